//! Proposals: what agents want to be recorded. Equal texts are stored once; undecided proposals expire.

use std::sync::Arc;

use countersign_policy::ids::LedgerId;
use countersign_policy::memory::{ProposalStatus, RecordKind, Scope};
use countersign_policy::record::RowStatus;
use countersign_policy::refusal::Code;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::find::{self, Terms};
use super::{AuditAction, Body, MemoryActor, new_id, text};
use crate::Store;
use crate::engine::{Cell, FoundRow, SqlDialect, cells, json_text};
use crate::fault::StoreFault;
use crate::random::LedgerIdGenerator;
use crate::writer::Tx;

const SWEEP_LIMIT: u32 = 500;

#[derive(Clone, Debug)]
pub struct NewProposal {
    pub kind: RecordKind,
    pub body: Body,
    pub source: String,
    pub session_id: String,
    pub agent_type: String,
    pub evidence: Value,
    pub confidence: u32,
    pub signals: Vec<String>,
    pub expires: Timestamp,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Proposal {
    /// `prop_` and a ULID.
    pub id: String,
    pub kind: RecordKind,
    /// The text and its place; its terms are not read back.
    pub body: Body,
    pub source: String,
    pub principal: String,
    pub session_id: String,
    pub agent_type: String,
    pub evidence: Value,
    pub confidence: u32,
    pub signals: Vec<String>,
    pub status: ProposalStatus,
    pub reviewed_by: Option<String>,
    pub reviewed_at: Option<Timestamp>,
    pub review_note: Option<String>,
    pub promoted_to: Option<String>,
    /// The person's own wording, if any; the proposed text stays in `body`.
    pub reworded: Option<String>,
    pub created: Timestamp,
    pub expires: Timestamp,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Proposed {
    New {
        id: String,
        ledger_id: LedgerId,
        rejected: Option<Box<Proposal>>,
        /// The same text is a record already.
        recorded: Option<String>,
    },
    Duplicate {
        existing_id: String,
    },
}

#[derive(Clone, Debug, Default)]
pub struct ProposalQuery {
    pub status: Option<ProposalStatus>,
    pub kind: Option<RecordKind>,
    pub terms: Terms,
    pub limit: u32,
}

pub(super) const COLUMNS: &str = "id, proposed_as, content, rationale, context, tags, scope, scope_path, source, \
     principal, session_id, agent_type, evidence, confidence, signals, status, reviewed_by, reviewed_at, \
     review_note, promoted_to, reworded, created, expires";

pub(super) fn decode(found: &mut FoundRow) -> Result<Proposal, StoreFault> {
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
pub(super) fn decode_body(found: &mut FoundRow) -> Result<Body, StoreFault> {
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
    /// The proposal at this moment: one past its time is expired even if no sweep has closed it yet.
    fn at(mut self, now: Timestamp) -> Self {
        if self.status == ProposalStatus::Pending && self.expires <= now {
            self.status = ProposalStatus::Expired;
        }
        self
    }
}

impl Store {
    /// Stores a proposal and its row in one transaction.
    ///
    /// INVARIANT (races end in SQL): of equal texts proposed at once one is stored, the others get its id.
    pub async fn propose(
        &self,
        proposal: NewProposal,
        actor: MemoryActor,
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
                let audit_action = audit_action("propose", &existing_id);
                let mut more = facts(&proposal);
                more.insert("reason_code".into(), Code::Duplicate.usual_reason().into());
                let mut entry = actor.entry(RowStatus::Refused, audit_action, more);
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
                &actor.entry(RowStatus::Success, audit_action("propose", &id), facts(&proposal)),
                ledger_id.clone(),
                now,
            );
            Ok(Proposed::New { id: id.clone(), ledger_id: ledger_id.clone(), rejected, recorded })
        })
        .await
    }

    pub async fn proposal(&self, id: &str, now: Timestamp) -> Result<Option<Proposal>, StoreFault> {
        let values = cells![id];
        let sql = format!("SELECT {COLUMNS} FROM memory_proposals WHERE id = $1");
        self.read(move |view| {
            let found = view.one(&sql, &values)?;
            found.map(|mut found| Ok(decode(&mut found)?.at(now))).transpose()
        })
        .await
    }

    pub async fn proposals(&self, query: ProposalQuery, now: Timestamp) -> Result<Vec<Proposal>, StoreFault> {
        self.read(move |view| {
            let (sql, values) = select(&query, view.dialect(), now);
            view.query(&sql, &values)?.into_iter().map(|mut found| Ok(decode(&mut found)?.at(now))).collect()
        })
        .await
    }

    /// Closes every expired proposal; returns their number.
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
                                            WHERE status = 'pending' AND expires <= $1 LIMIT {SWEEP_LIMIT})
                              RETURNING id"
                        ),
                        &cells![now],
                    )?;
                    close(tx, &ids, closed, now)
                })
                .await?;
            all += closed;
            if closed < u64::from(SWEEP_LIMIT) {
                return Ok(all);
            }
        }
    }
}

fn insert_values(
    proposal: &NewProposal,
    actor: &MemoryActor,
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

fn audit_action<'a>(action: &'a str, id: &'a str) -> AuditAction<'a> {
    AuditAction { tool: "store", action, entity_type: "proposal", entity_id: id }
}

/// What the row says of a proposal. Its text is in the call's arguments and in the table.
fn facts(proposal: &NewProposal) -> Map<String, Value> {
    super::records::facts(json!({
        "proposed_as": proposal.kind,
        "content_hash": super::content_hash(&proposal.body.content),
        "scope": proposal.body.scope,
        "scope_path": text::plain(&proposal.body.path),
    }))
}

/// Inserts a proposal; else returns the open one of the same text.
fn insert(tx: &mut Tx<'_>, values: &[Cell], key: &str) -> Result<Option<String>, StoreFault> {
    let places: Vec<String> = (1..=values.len()).map(|place| format!("${place}")).collect();
    let sql = format!(
        "INSERT INTO memory_proposals ({COLUMNS}, dedupe_key, words) VALUES ({})
         ON CONFLICT (dedupe_key) WHERE status = 'pending' DO NOTHING",
        places.join(", ")
    );
    // Between the two statements another process may decide the open proposal: try again.
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

fn expire_equal(
    tx: &mut Tx<'_>,
    ids: &Arc<LedgerIdGenerator>,
    key: &str,
    now: Timestamp,
) -> Result<(), StoreFault> {
    let closed = tx.query(
        "UPDATE memory_proposals SET status = 'expired'
          WHERE dedupe_key = $1 AND status = 'pending' AND expires <= $2 RETURNING id",
        &cells![key, now],
    )?;
    close(tx, ids, closed, now).map(drop)
}

fn close(
    tx: &mut Tx<'_>,
    ids: &Arc<LedgerIdGenerator>,
    closed: Vec<FoundRow>,
    now: Timestamp,
) -> Result<u64, StoreFault> {
    let mut count = 0;
    for mut found in closed {
        let id = found.text()?;
        let detail = json!({"action": "expire", "entity_type": "proposal", "entity_id": id});
        let mut entry = crate::Entry::new(countersign_policy::record::RowKind::Memory, RowStatus::Success)
            .with_detail(&detail);
        entry.upstream = Some(super::UPSTREAM.into());
        tx.append(&entry, ids.next(now), now);
        count += 1;
    }
    Ok(count)
}

fn select(query: &ProposalQuery, dialect: SqlDialect, now: Timestamp) -> (String, Vec<Cell>) {
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
