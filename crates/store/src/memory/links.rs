//! Links between records, made and removed by people. A superseded record is invalid until its link is removed. Each change and its row
//! are one transaction.

use countersign_policy::ids::LedgerId;
use countersign_policy::memory::RecordRelation;
use countersign_policy::record::RowStatus;
use jiff::Timestamp;
use serde_json::json;

use super::records::facts;
use super::{AuditAction, MemoryActor, new_id, text};
use crate::Store;
use crate::engine::{FoundRow, cells};
use crate::fault::StoreFault;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordLink {
    /// `l_` and a ULID.
    pub id: String,
    pub source_id: String,
    pub target_id: String,
    pub relation: RecordRelation,
    pub principal: String,
    pub created: Timestamp,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotLinked {
    Unknown(String),
    Exists(String),
}

const COLUMNS: &str = "id, source_id, target_id, relation, principal, created";

fn decode(found: &mut FoundRow) -> Result<RecordLink, StoreFault> {
    Ok(RecordLink {
        id: found.text()?,
        source_id: found.text()?,
        target_id: found.text()?,
        relation: found.word()?,
        principal: text::take(found)?,
        created: found.time()?,
    })
}

impl Store {
    pub async fn link_records(
        &self,
        source: &str,
        target: &str,
        relation: RecordRelation,
        actor: MemoryActor,
        now: Timestamp,
    ) -> Result<Result<(String, LedgerId), NotLinked>, StoreFault> {
        let (source, target) = (source.to_owned(), target.to_owned());
        let (id, ledger_id) = (new_id("l", &self.ids(), now), self.mint(now));
        self.write(move |tx| {
            for one in [&source, &target] {
                let found = tx.one("SELECT id FROM memory_records WHERE id = $1", &cells![one.as_str()])?;
                if found.is_none() {
                    return Ok(Err(NotLinked::Unknown(one.clone())));
                }
            }
            let added = tx.execute(
                &format!(
                    "INSERT INTO memory_links ({COLUMNS}) VALUES ($1, $2, $3, $4, $5, $6)
                     ON CONFLICT (source_id, target_id, relation) DO NOTHING"
                ),
                &cells![
                    id.as_str(),
                    source.as_str(),
                    target.as_str(),
                    relation.as_str(),
                    text::kept(actor.principal.as_str()),
                    now
                ],
            )?;
            if added == 0 {
                let found = tx.one(
                    "SELECT id FROM memory_links WHERE source_id = $1 AND target_id = $2 AND relation = $3",
                    &cells![source.as_str(), target.as_str(), relation.as_str()],
                )?;
                let existing = found.map(|mut found| found.text()).transpose()?.unwrap_or_default();
                return Ok(Err(NotLinked::Exists(existing)));
            }
            if relation == RecordRelation::Supersedes {
                tx.execute(
                    "UPDATE memory_records SET status = 'superseded', updated = $2 WHERE id = $1 AND status = 'active'",
                    &cells![target.as_str(), now],
                )?;
            }
            let audit_action = AuditAction { tool: "recall_link", action: "link", entity_type: "link", entity_id: &id };
            let more = facts(json!({"source_id": source, "target_id": target, "relation": relation}));
            tx.append(&actor.entry(RowStatus::Success, audit_action, more), ledger_id.clone(), now);
            Ok(Ok((id.clone(), ledger_id.clone())))
        })
        .await
    }

    /// Removes a link; none if there is none.
    pub async fn unlink_records(
        &self,
        id: &str,
        actor: MemoryActor,
        now: Timestamp,
    ) -> Result<Option<(RecordLink, LedgerId)>, StoreFault> {
        let (id, ledger_id) = (id.to_owned(), self.mint(now));
        self.write(move |tx| {
            let sql = format!("DELETE FROM memory_links WHERE id = $1 RETURNING {COLUMNS}");
            let Some(mut found) = tx.one(&sql, &cells![id.as_str()])? else { return Ok(None) };
            let link = decode(&mut found)?;
            if link.relation == RecordRelation::Supersedes {
                tx.execute(
                    "UPDATE memory_records SET status = 'active', updated = $2
                      WHERE id = $1 AND status = 'superseded' AND NOT EXISTS
                        (SELECT 1 FROM memory_links WHERE target_id = $1 AND relation = 'supersedes')",
                    &cells![link.target_id.as_str(), now],
                )?;
            }
            let audit_action =
                AuditAction { tool: "recall_unlink", action: "unlink", entity_type: "link", entity_id: &id };
            let more = facts(json!({
                "source_id": link.source_id, "target_id": link.target_id, "relation": link.relation,
            }));
            tx.append(&actor.entry(RowStatus::Success, audit_action, more), ledger_id.clone(), now);
            Ok(Some((link, ledger_id.clone())))
        })
        .await
    }

    pub async fn links(&self) -> Result<Vec<RecordLink>, StoreFault> {
        let sql = format!("SELECT {COLUMNS} FROM memory_links ORDER BY id");
        self.read(move |view| {
            view.query(&sql, &[])?.into_iter().map(|mut found| decode(&mut found)).collect()
        })
        .await
    }

    /// The links from and to a record, oldest first; at most a hundred.
    pub async fn links_of(&self, id: &str) -> Result<Vec<RecordLink>, StoreFault> {
        let values = cells![id];
        let sql = format!(
            "SELECT {COLUMNS} FROM memory_links WHERE source_id = $1 OR target_id = $1 ORDER BY id LIMIT 100"
        );
        self.read(move |view| {
            view.query(&sql, &values)?.into_iter().map(|mut found| decode(&mut found)).collect()
        })
        .await
    }
}
