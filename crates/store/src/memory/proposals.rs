//! Proposals: what agents would like to be true. Equal ones wait once; what nobody decided in time expires.

use std::sync::Arc;

use countersign_core::ids::LedgerId;
use countersign_core::memory::{ProposalStatus, RecordKind, Scope};
use countersign_core::record::RowStatus;
use countersign_core::refusal::Code;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::find::{self, Terms};
use super::{Actor, Body, Deed, new_id, text};
use crate::Store;
use crate::chance::Mint;
use crate::engine::{Cell, Dialect, Found, cells, json_text};
use crate::fault::StoreFault;
use crate::writer::Tx;

/// How many proposals one transaction closes at most.
const SWEEP: u32 = 500;

/// What is to be proposed.
#[derive(Clone, Debug)]
pub struct NewProposal {
    /// As what: a decision or a learning.
    pub kind: RecordKind,
    /// The text and its place.
    pub body: Body,
    /// Where it came from: `agent`, `cli`, `import`.
    pub source: String,
    /// The memory session it was made in, if any.
    pub session_id: String,
    /// What kind of agent, if it said.
    pub agent_type: String,
    /// What speaks for it.
    pub evidence: Value,
    /// How sure the classification is, in thousandths.
    pub confidence: u32,
    /// What the classification went by.
    pub signals: Vec<String>,
    /// Until when it waits.
    pub expires: Timestamp,
}

/// A proposal as it is kept.
#[derive(Clone, Debug, PartialEq)]
pub struct Proposal {
    /// `prop_` and a ULID.
    pub id: String,
    /// As what it was proposed.
    pub kind: RecordKind,
    /// The text and its place; its terms are not read back.
    pub body: Body,
    /// Where it came from.
    pub source: String,
    /// Who proposed it.
    pub principal: String,
    /// The memory session it was made in, if any.
    pub session_id: String,
    /// What kind of agent, if it said.
    pub agent_type: String,
    /// What speaks for it.
    pub evidence: Value,
    /// How sure the classification is, in thousandths.
    pub confidence: u32,
    /// What the classification went by.
    pub signals: Vec<String>,
    /// Where it stands, as of the moment it was read.
    pub status: ProposalStatus,
    /// Who decided.
    pub reviewed_by: Option<String>,
    /// When.
    pub reviewed_at: Option<Timestamp>,
    /// What they noted.
    pub review_note: Option<String>,
    /// The record that came of it.
    pub promoted_to: Option<String>,
    /// The text the person put in its place, where they did; the proposed one stays in `body`.
    pub reworded: Option<String>,
    /// When it was made.
    pub created: Timestamp,
    /// Until when it waits.
    pub expires: Timestamp,
}

/// What became of proposing something.
#[derive(Clone, Debug, PartialEq)]
pub enum Proposed {
    /// It waits.
    New {
        /// Its id.
        id: String,
        /// Its row.
        ledger_id: LedgerId,
        /// The same text was rejected before.
        rejected: Option<Box<Proposal>>,
        /// The same text is a record already.
        recorded: Option<String>,
    },
    /// The same text waits already.
    Duplicate {
        /// The one that waits.
        existing_id: String,
    },
}

/// Which proposals are wanted.
#[derive(Clone, Debug, Default)]
pub struct ProposalQuery {
    /// Where they stand; none means anywhere.
    pub status: Option<ProposalStatus>,
    /// As what they were proposed.
    pub kind: Option<RecordKind>,
    /// With these terms.
    pub terms: Terms,
    /// How many at most; newest first.
    pub limit: u32,
}

pub(super) const COLUMNS: &str = "id, proposed_as, content, rationale, context, tags, scope, scope_path, source, \
     principal, session_id, agent_type, evidence, confidence, signals, status, reviewed_by, reviewed_at, \
     review_note, promoted_to, reworded, created, expires";

pub(super) fn decode(found: &mut Found) -> Result<Proposal, StoreFault> {
    let (id, kind) = (found.text()?, found.word()?);
    let body = decode_body(found)?;
    Ok(Proposal {
        id,
        kind,
        body,
        source: text::take(found)?,
        principal: text::take(found)?,
        session_id: text::take(found)?,
        agent_type: text::take(found)?,
        evidence: found.json()?,
        confidence: u32::try_from(found.count()?).unwrap_or(u32::MAX),
        signals: found.json()?,
        status: found.word()?,
        reviewed_by: found.maybe_text()?.map(text::restored),
        reviewed_at: found.maybe_time()?,
        review_note: found.maybe_text()?.map(text::restored),
        promoted_to: found.maybe_text()?,
        reworded: found.maybe_text()?.map(text::restored),
        created: found.time()?,
        expires: found.time()?,
    })
}

/// Content, rationale, context, tags, scope, path, in this order.
pub(super) fn decode_body(found: &mut Found) -> Result<Body, StoreFault> {
    Ok(Body {
        content: text::take(found)?,
        rationale: text::take(found)?,
        context: text::take(found)?,
        tags: found.json()?,
        scope: found.word::<Scope>()?,
        path: text::take(found)?,
        words: String::new(),
    })
}

impl Proposal {
    /// The same proposal as it stands at this moment: what nobody swept yet is expired all the same.
    fn at(mut self, now: Timestamp) -> Self {
        if self.status == ProposalStatus::Pending && self.expires <= now {
            self.status = ProposalStatus::Expired;
        }
        self
    }
}

impl Store {
    /// Proposes something. The row is written with it, or neither is.
    ///
    /// INVARIANT (races end in SQL): of equal texts proposed at once one waits, the others learn its id.
    pub async fn propose(
        &self,
        proposal: NewProposal,
        actor: Actor,
        now: Timestamp,
    ) -> Result<Proposed, StoreFault> {
        let ids = self.ids();
        let (id, ledger_id) = (new_id("prop", &ids, now), self.mint(now));
        let values = insert_values(&proposal, &actor, &id, now)?;
        self.write(move |tx| {
            tx.check_clock(now)?;
            let key = proposal.body.dedupe_key(proposal.kind);
            expire_equal(tx, &ids, &key, now)?;
            if let Some(existing_id) = insert(tx, &values, &key)? {
                let deed = deed("propose", &existing_id);
                let mut more = facts(&proposal);
                more.insert("reason_code".into(), Code::Duplicate.usual_reason().into());
                let mut entry = actor.entry(RowStatus::Refused, deed, more);
                entry.code = Some(Code::Duplicate.as_str().to_owned());
                tx.append(&entry, ledger_id.clone(), now);
                return Ok(Proposed::Duplicate { existing_id });
            }
            let rejected = tx.one(
                &format!(
                    "SELECT {COLUMNS} FROM memory_proposals WHERE dedupe_key = $1 AND status = 'rejected'
                      ORDER BY seq DESC LIMIT 1"
                ),
                &cells![key.as_str()],
            )?;
            let rejected = rejected.map(|mut found| decode(&mut found)).transpose()?.map(Box::new);
            let recorded = super::records::equal(tx, &key)?;
            tx.append(
                &actor.entry(RowStatus::Success, deed("propose", &id), facts(&proposal)),
                ledger_id.clone(),
                now,
            );
            Ok(Proposed::New { id: id.clone(), ledger_id: ledger_id.clone(), rejected, recorded })
        })
        .await
    }

    /// One proposal, as it stands now.
    pub async fn proposal(&self, id: &str, now: Timestamp) -> Result<Option<Proposal>, StoreFault> {
        let values = cells![id];
        let sql = format!("SELECT {COLUMNS} FROM memory_proposals WHERE id = $1");
        self.read(move |view| {
            let found = view.one(&sql, &values)?;
            found.map(|mut found| Ok(decode(&mut found)?.at(now))).transpose()
        })
        .await
    }

    /// Proposals, newest first.
    pub async fn proposals(&self, query: ProposalQuery, now: Timestamp) -> Result<Vec<Proposal>, StoreFault> {
        self.read(move |view| {
            let (sql, values) = select(&query, view.dialect(), now);
            view.query(&sql, &values)?.into_iter().map(|mut found| Ok(decode(&mut found)?.at(now))).collect()
        })
        .await
    }

    /// Closes every proposal nobody decided in time; how many.
    pub async fn expire_proposals(&self, now: Timestamp) -> Result<u64, StoreFault> {
        let mut all = 0;
        loop {
            let ids = self.ids();
            let closed = self
                .write(move |tx| {
                    tx.check_clock(now)?;
                    let closed = tx.query(
                        &format!(
                            "UPDATE memory_proposals SET status = 'expired'
                              WHERE status = 'pending' AND expires <= $1
                                AND id IN (SELECT id FROM memory_proposals
                                            WHERE status = 'pending' AND expires <= $1 LIMIT {SWEEP})
                              RETURNING id"
                        ),
                        &cells![now],
                    )?;
                    close(tx, &ids, closed, now)
                })
                .await?;
            all += closed;
            if closed < u64::from(SWEEP) {
                return Ok(all);
            }
        }
    }
}

fn insert_values(
    proposal: &NewProposal,
    actor: &Actor,
    id: &str,
    now: Timestamp,
) -> Result<Vec<Cell>, StoreFault> {
    let body = &proposal.body;
    Ok(cells![
        id,
        proposal.kind.as_str(),
        text::kept(&body.content),
        text::kept(&body.rationale),
        text::kept(&body.context),
        json_text(&body.tags)?,
        body.scope.as_str(),
        text::kept(&body.path),
        text::kept(&proposal.source),
        text::kept(actor.principal.as_str()),
        text::kept(&proposal.session_id),
        text::kept(&proposal.agent_type),
        json_text(&proposal.evidence)?,
        proposal.confidence,
        json_text(&proposal.signals)?,
        ProposalStatus::Pending.as_str(),
        Cell::Null,
        Cell::Null,
        Cell::Null,
        Cell::Null,
        Cell::Null,
        now,
        proposal.expires,
        body.dedupe_key(proposal.kind),
        body.terms(proposal.kind),
    ]
    .to_vec())
}

fn deed<'a>(action: &'a str, id: &'a str) -> Deed<'a> {
    Deed { tool: "store", action, entity_type: "proposal", entity_id: id }
}

/// What the row says of a proposal: not its text, which is in the call's arguments and in the table.
fn facts(proposal: &NewProposal) -> Map<String, Value> {
    super::records::facts(json!({
        "proposed_as": proposal.kind,
        "content_hash": super::content_hash(&proposal.body.content),
        "scope": proposal.body.scope,
        "scope_path": text::plain(&proposal.body.path),
    }))
}

/// Puts a proposal in, or says which one of the same text waits already.
fn insert(tx: &mut Tx<'_>, values: &[Cell], key: &str) -> Result<Option<String>, StoreFault> {
    let places: Vec<String> = (1..=values.len()).map(|place| format!("${place}")).collect();
    let sql = format!(
        "INSERT INTO memory_proposals ({COLUMNS}, dedupe_key, words) VALUES ({})
         ON CONFLICT (dedupe_key) WHERE status = 'pending' DO NOTHING",
        places.join(", ")
    );
    // Between the two statements another process may decide the one that waits: then there is room again.
    for _ in 0..3 {
        if tx.execute(&sql, values)? == 1 {
            return Ok(None);
        }
        let found = tx.one(
            "SELECT id FROM memory_proposals WHERE dedupe_key = $1 AND status = 'pending'",
            &cells![key],
        )?;
        if let Some(mut found) = found {
            return found.text().map(Some);
        }
    }
    Err(StoreFault::unavailable("the same text is proposed and decided again and again"))
}

fn expire_equal(tx: &mut Tx<'_>, ids: &Arc<Mint>, key: &str, now: Timestamp) -> Result<(), StoreFault> {
    let closed = tx.query(
        "UPDATE memory_proposals SET status = 'expired'
          WHERE dedupe_key = $1 AND status = 'pending' AND expires <= $2 RETURNING id",
        &cells![key, now],
    )?;
    close(tx, ids, closed, now).map(drop)
}

fn close(tx: &mut Tx<'_>, ids: &Arc<Mint>, closed: Vec<Found>, now: Timestamp) -> Result<u64, StoreFault> {
    let mut count = 0;
    for mut found in closed {
        let id = found.text()?;
        let detail = json!({"action": "expire", "entity_type": "proposal", "entity_id": id});
        let mut entry = crate::Entry::new(countersign_core::record::RowKind::Memory, RowStatus::Success)
            .with_detail(&detail);
        entry.upstream = Some(super::UPSTREAM.into());
        tx.append(&entry, ids.next(now), now);
        count += 1;
    }
    Ok(count)
}

fn select(query: &ProposalQuery, dialect: Dialect, now: Timestamp) -> (String, Vec<Cell>) {
    let mut values: Vec<Cell> = Vec::new();
    let mut place = |value: Cell| {
        values.push(value);
        format!("${}", values.len())
    };
    let mut conditions = Vec::new();
    if let Some(kind) = query.kind {
        conditions.push(format!("p.proposed_as = {}", place(kind.as_str().into())));
    }
    match query.status {
        None => {}
        Some(ProposalStatus::Pending) => {
            conditions.push(format!("p.status = 'pending' AND p.expires > {}", place(now.into())));
        }
        Some(ProposalStatus::Expired) => conditions.push(format!(
            "(p.status = 'expired' OR (p.status = 'pending' AND p.expires <= {}))",
            place(now.into())
        )),
        Some(status @ (ProposalStatus::Approved | ProposalStatus::Rejected)) => {
            conditions.push(format!("p.status = {}", place(status.as_str().into())));
        }
    }
    let mut from = "memory_proposals p".to_owned();
    if let Some(wanted) = find::expression(&query.terms, &[], dialect) {
        let (source, condition) = find::matching("proposals", "p", &place(wanted.into()), dialect);
        from = source;
        conditions.push(condition);
    }
    let columns: Vec<String> = COLUMNS.split(',').map(|column| format!("p.{}", column.trim())).collect();
    let condition =
        if conditions.is_empty() { String::new() } else { format!("WHERE {}", conditions.join(" AND ")) };
    let sql = format!(
        "SELECT {} FROM {from} {condition} ORDER BY p.seq DESC LIMIT {}",
        columns.join(", "),
        query.limit.clamp(1, 1000)
    );
    (sql, values)
}
