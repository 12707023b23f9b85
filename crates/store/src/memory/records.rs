//! Records: approved by a person, imported, or an idea. A record's text never changes; each way to write one adds its row in the same
//! transaction.

use countersign_policy::ids::LedgerId;
use countersign_policy::memory::{DecisionOutcome, RecordAuthority, RecordKind, RecordStatus};
use countersign_policy::record::RowStatus;
use countersign_policy::role::Role;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::proposals::decode_body;
use super::{AuditAction, Body, MemoryActor, content_hash, new_id, prefix, text};
use crate::Store;
use crate::engine::{Cell, FoundRow, cells, json_text};
use crate::fault::StoreFault;
use crate::writer::Tx;

/// The most records one transaction imports.
const BATCH: usize = 500;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    Direct,
    Idea,
    /// It was there before there was governance.
    Legacy,
}

#[derive(Clone, Debug)]
pub struct NewRecord {
    pub kind: RecordKind,
    pub body: Body,
    pub confidence: u32,
    /// Where it came from: `human`, `agent`, `cli`, `import`.
    pub source: String,
    pub session_id: String,
    pub status: RecordStatus,
    pub outcome: DecisionOutcome,
    /// The id it had elsewhere; used if it is free.
    pub id: Option<String>,
    /// The time it was made elsewhere; else now.
    pub created: Option<Timestamp>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct MemoryRecord {
    pub seq: i64,
    pub id: String,
    pub kind: RecordKind,
    /// The text and its place; its terms are not read back.
    pub body: Body,
    /// What supports it; none for ideas.
    pub authority: Option<RecordAuthority>,
    pub status: RecordStatus,
    pub outcome: DecisionOutcome,
    pub outcome_note: String,
    pub outcome_at: Option<Timestamp>,
    pub confidence: u32,
    pub source: String,
    pub principal: String,
    pub session_id: String,
    pub proposal_id: String,
    pub created: Timestamp,
    pub updated: Timestamp,
}

impl MemoryRecord {
    /// Whether an agent may read it: an idea, or a record that a person approved or wrote.
    pub fn is_readable(&self) -> bool {
        match (self.kind, self.authority) {
            (RecordKind::Idea, None) => true,
            (_, Some(authority)) => authority.is_authoritative(),
            (RecordKind::Decision | RecordKind::Learning, None) => false,
        }
    }
}

pub(super) const COLUMNS: &str = "seq, id, kind, content, rationale, context, tags, scope, scope_path, authority, status, \
     outcome, outcome_note, outcome_at, confidence, source, principal, session_id, proposal_id, created, updated";

pub(super) fn decode(found: &mut FoundRow) -> Result<MemoryRecord, StoreFault> {
    let (seq, id, kind) = (found.int()?, found.text()?, found.word()?);
    let body = decode_body(found)?;
    Ok(MemoryRecord {
        seq,
        id,
        kind,
        body,
        authority: found.maybe()?,
        status: found.word()?,
        outcome: found.word()?,
        outcome_note: text::take(found)?,
        outcome_at: found.maybe_time()?,
        confidence: u32::try_from(found.count()?).unwrap_or(u32::MAX),
        source: text::take(found)?,
        principal: text::take(found)?,
        session_id: text::take(found)?,
        proposal_id: found.text()?,
        created: found.time()?,
        updated: found.time()?,
    })
}

pub(super) struct RecordRow<'a> {
    pub(super) id: &'a str,
    pub(super) kind: RecordKind,
    pub(super) body: &'a Body,
    pub(super) authority: Option<RecordAuthority>,
    pub(super) status: RecordStatus,
    pub(super) outcome: DecisionOutcome,
    pub(super) confidence: u32,
    pub(super) source: &'a str,
    pub(super) principal: &'a str,
    pub(super) session_id: &'a str,
    pub(super) proposal_id: &'a str,
    pub(super) terms: String,
    pub(super) created: Timestamp,
    pub(super) now: Timestamp,
}

pub(super) fn insert(tx: &mut Tx<'_>, row: RecordRow<'_>) -> Result<bool, StoreFault> {
    let body = row.body;
    let values = cells![
        row.id,
        row.kind.as_str(),
        text::kept(&body.content),
        text::kept(&body.rationale),
        text::kept(&body.context),
        json_text(&body.tags)?,
        body.scope.as_str(),
        text::kept(&body.path),
        body.place(),
        row.authority.map(RecordAuthority::as_str),
        row.status.as_str(),
        row.outcome.as_str(),
        "",
        Cell::Null,
        row.confidence,
        text::kept(row.source),
        text::kept(row.principal),
        text::kept(row.session_id),
        row.proposal_id,
        body.dedupe_key(row.kind),
        row.created,
        row.now,
        row.terms,
    ];
    let places: Vec<String> = (1..=values.len()).map(|place| format!("${place}")).collect();
    let added = tx.execute(
        &format!(
            "INSERT INTO memory_records (id, kind, content, rationale, context, tags, scope, scope_path, scope_key, \
             authority, status, outcome, outcome_note, outcome_at, confidence, source, principal, session_id, \
             proposal_id, dedupe_key, created, updated, words) VALUES ({}) ON CONFLICT (id) DO NOTHING",
            places.join(", ")
        ),
        &values,
    )?;
    Ok(added == 1)
}

/// A valid record of the same text, if there is one.
pub(super) fn equal(tx: &mut Tx<'_>, key: &str) -> Result<Option<String>, StoreFault> {
    let found = tx.one(
        "SELECT id FROM memory_records WHERE dedupe_key = $1 AND status = 'active' ORDER BY seq LIMIT 1",
        &cells![key],
    )?;
    found.map(|mut found| found.text()).transpose()
}

type WriteRecordResult = Result<(String, LedgerId, Option<String>), String>;

impl Store {
    /// Writes a record without a proposal: a person's own, or an idea. Returns its id, its row, and the id of an equal record; an idea that
    /// exists is not written again, and its id is the error.
    pub async fn write_record(
        &self,
        record: NewRecord,
        origin: Origin,
        actor: MemoryActor,
        now: Timestamp,
    ) -> Result<WriteRecordResult, StoreFault> {
        let (id, ledger_id) = (new_id(prefix(record.kind), &self.ids(), now), self.mint(now));
        self.write(move |tx| {
            let same = equal(tx, &record.body.dedupe_key(record.kind))?;
            if let (Origin::Idea, Some(same)) = (origin, &same) {
                return Ok(Err(same.clone()));
            }
            put(tx, &record, origin, &actor, &id, now)?;
            tx.append(&entry(&record, origin, &actor, &id), ledger_id.clone(), now);
            Ok(Ok((id.clone(), ledger_id.clone(), same)))
        })
        .await
    }

    /// Imports records, each with its row, in transactional batches. Skips records whose equal exists. Returns the ids that were written.
    pub async fn import_records(
        &self,
        records: Vec<NewRecord>,
        origin: Origin,
        actor: MemoryActor,
        now: Timestamp,
    ) -> Result<Vec<String>, StoreFault> {
        let mut all = Vec::new();
        let mut rest = records.into_iter().peekable();
        while rest.peek().is_some() {
            let batch: Vec<NewRecord> = rest.by_ref().take(BATCH).collect();
            let (ids, actor) = (self.ids(), actor.clone());
            let written = self
                .write(move |tx| {
                    let mut written = Vec::new();
                    for record in &batch {
                        if equal(tx, &record.body.dedupe_key(record.kind))?.is_some() {
                            continue;
                        }
                        let wanted = record.id.clone().filter(|id| is_ours(record.kind, id));
                        let id = match wanted {
                            Some(id) if put(tx, record, origin, &actor, &id, now)? => id,
                            _ => {
                                let id = new_id(prefix(record.kind), &ids, now);
                                put(tx, record, origin, &actor, &id, now)?;
                                id
                            }
                        };
                        tx.append(&entry(record, origin, &actor, &id), ids.next(now), now);
                        written.push(id);
                    }
                    Ok(written)
                })
                .await?;
            all.extend(written);
        }
        Ok(all)
    }

    pub async fn record(&self, id: &str) -> Result<Option<MemoryRecord>, StoreFault> {
        let values = cells![id];
        let sql = format!("SELECT {COLUMNS} FROM memory_records WHERE id = $1");
        self.read(move |view| view.one(&sql, &values)?.map(|mut found| decode(&mut found)).transpose()).await
    }

    /// Writes the outcome of a decision and its row. Learnings that supported it gain or lose confidence. None if there is no such decision.
    pub async fn record_outcome(
        &self,
        id: &str,
        outcome: DecisionOutcome,
        note: &str,
        actor: MemoryActor,
        now: Timestamp,
    ) -> Result<Option<LedgerId>, StoreFault> {
        let (id, note, ledger_id) = (id.to_owned(), note.to_owned(), self.mint(now));
        self.write(move |tx| {
            let changed = tx.execute(
                "UPDATE memory_records SET outcome = $1, outcome_note = $2, outcome_at = $3, updated = $3
                  WHERE id = $4 AND kind = 'decision'",
                &cells![outcome.as_str(), text::kept(&note), now, id.as_str()],
            )?;
            if changed == 0 {
                return Ok(None);
            }
            let step: i64 = match outcome {
                DecisionOutcome::Successful => 100,
                DecisionOutcome::Failed => -100,
                DecisionOutcome::Mixed | DecisionOutcome::Unknown => 0,
            };
            if step != 0 {
                tx.execute(
                    "UPDATE memory_records SET updated = $3, confidence =
                       CASE WHEN confidence + $1 > 1000 THEN 1000 WHEN confidence + $1 < 0 THEN 0 ELSE confidence + $1 END
                      WHERE kind = 'learning' AND id IN
                        (SELECT source_id FROM memory_links WHERE target_id = $2 AND relation = 'supports')",
                    &cells![step, id.as_str(), now],
                )?;
            }
            let audit_action = AuditAction { tool: "recall_outcome", action: "outcome", entity_type: "decision", entity_id: &id };
            let more = facts(json!({"outcome": outcome, "note": text::plain(&note)}));
            tx.append(&actor.entry(RowStatus::Success, audit_action, more), ledger_id.clone(), now);
            Ok(Some(ledger_id.clone()))
        })
        .await
    }
}

fn is_ours(kind: RecordKind, id: &str) -> bool {
    id.len() <= 64
        && id
            .strip_prefix(prefix(kind))
            .and_then(|rest| rest.strip_prefix('_'))
            .is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_alphanumeric()))
}

fn put(
    tx: &mut Tx<'_>,
    record: &NewRecord,
    origin: Origin,
    actor: &MemoryActor,
    id: &str,
    now: Timestamp,
) -> Result<bool, StoreFault> {
    let authority = match origin {
        Origin::Direct => Some(RecordAuthority::Approved),
        Origin::Legacy => Some(RecordAuthority::LegacyApproved),
        Origin::Idea => None,
    };
    let row = RecordRow {
        id,
        kind: record.kind,
        body: &record.body,
        authority,
        status: record.status,
        outcome: record.outcome,
        confidence: record.confidence,
        source: &record.source,
        principal: actor.principal.as_str(),
        session_id: &record.session_id,
        proposal_id: "",
        terms: record.body.terms(record.kind),
        created: record.created.unwrap_or(now),
        now,
    };
    insert(tx, row)
}

fn entry(record: &NewRecord, origin: Origin, actor: &MemoryActor, id: &str) -> crate::Entry {
    let (tool, action) = match (origin, actor.role) {
        (Origin::Idea, Role::Agent | Role::Human) => ("store", "idea"),
        (Origin::Direct | Origin::Legacy, Role::Agent | Role::Human) => ("store_direct", "direct_write"),
    };
    let audit_action = AuditAction { tool, action, entity_type: record.kind.as_str(), entity_id: id };
    let mut more = json!({
        "content_hash": content_hash(&record.body.content),
        "scope": record.body.scope,
        "scope_path": text::plain(&record.body.path),
    });
    if origin == Origin::Legacy
        && let Some(more) = more.as_object_mut()
    {
        more.insert("authority".into(), RecordAuthority::LegacyApproved.as_str().into());
    }
    actor.entry(RowStatus::Success, audit_action, facts(more))
}

pub(super) fn facts(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(facts) => facts,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => Map::new(),
    }
}
