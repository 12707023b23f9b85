//! Reads a mind-palace database and leaves it unchanged: decisions, learnings and ideas become legacy records with
//! their tags, outcomes and links, pending proposals stay proposals. Columns differ between versions; a missing one is empty.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use countersign_policy::memory::{DecisionOutcome, RecordKind, RecordRelation, RecordStatus, Scope};
use countersign_store::memory::{NewProposal, NewRecord};
use jiff::Timestamp;
use rusqlite::{Connection, OpenFlags};
use serde_json::{Value, json};

use crate::PROPOSAL_LIFE;
use crate::govern::{RecordDraft, proposal_body};
use crate::markdown::PageRecordLink;

#[derive(Debug, Default)]
pub struct LegacyImport {
    pub records: Vec<NewRecord>,
    pub proposals: Vec<NewProposal>,
    pub links: Vec<PageRecordLink>,
    pub empty: usize,
    /// Links to files of the code, or of a kind unknown here.
    pub unknown_links: usize,
}

/// Reads a database; why not, in a line.
pub fn read(path: &Path, now: Timestamp) -> Result<LegacyImport, String> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags).map_err(|error| error.to_string())?;
    let mut legacy = LegacyImport::default();
    let mut tables = 0;
    let mut tags = tags(&connection)?;
    for (table, kind) in [
        ("decisions", RecordKind::Decision),
        ("learnings", RecordKind::Learning),
        ("ideas", RecordKind::Idea),
    ] {
        for row in rows(&connection, table)? {
            match record(&row, kind) {
                Some(mut record) => {
                    record.body.tags.extend(tags.remove(&row.text("id")).unwrap_or_default());
                    legacy.records.push(record);
                }
                None => legacy.empty += 1,
            }
        }
        tables += usize::from(!columns(&connection, table)?.is_empty());
    }
    for row in rows(&connection, "proposals")? {
        if row.text("status") == "pending" {
            match proposal(&row, now) {
                Some(proposal) => legacy.proposals.push(proposal),
                None => legacy.empty += 1,
            }
        }
    }
    read_links(&connection, &mut legacy)?;
    if tables == 0 {
        return Err("it has no table of decisions, learnings or ideas".to_owned());
    }
    Ok(legacy)
}

/// Links between records: those a person made, and the learnings that speak for a decision.
fn read_links(connection: &Connection, legacy: &mut LegacyImport) -> Result<(), String> {
    let known: HashSet<String> = legacy.records.iter().filter_map(|record| record.id.clone()).collect();
    let supports = rows(connection, "decision_learnings")?.into_iter().map(|row| {
        (row.text("learning_id"), RecordRelation::Supports.as_str().to_owned(), row.text("decision_id"))
    });
    let made = rows(connection, "links")?
        .into_iter()
        .map(|row| (row.text("source_id"), row.text("relation"), row.text("target_id")));
    for (source, relation, target) in made.chain(supports).collect::<Vec<_>>() {
        match relation.parse::<RecordRelation>() {
            Ok(relation) if known.contains(&source) && known.contains(&target) => {
                legacy.links.push(PageRecordLink { source, relation, target });
            }
            Ok(_) | Err(_) => legacy.unknown_links += 1,
        }
    }
    Ok(())
}

/// The tags of each record, in a table of their own.
fn tags(connection: &Connection) -> Result<HashMap<String, Vec<String>>, String> {
    let mut all: HashMap<String, Vec<String>> = HashMap::new();
    for row in rows(connection, "record_tags")? {
        all.entry(row.text("record_id")).or_default().push(row.text("tag"));
    }
    Ok(all)
}

/// A row by the names of its columns.
struct LegacyRow(Vec<(String, rusqlite::types::Value)>);

impl LegacyRow {
    fn text(&self, name: &str) -> String {
        match self.0.iter().find(|(column, _)| column == name).map(|(_, value)| value) {
            Some(rusqlite::types::Value::Text(text)) => text.clone(),
            Some(rusqlite::types::Value::Integer(number)) => number.to_string(),
            Some(rusqlite::types::Value::Real(number)) => number.to_string(),
            Some(rusqlite::types::Value::Blob(_) | rusqlite::types::Value::Null) | None => String::new(),
        }
    }

    /// A number from 0 to 1, in thousandths.
    fn thousandths(&self, name: &str, usual: u32) -> u32 {
        let number: Option<f64> = self.text(name).parse().ok();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and 1000")]
        number.map_or(usual, |number| (number.clamp(0.0, 1.0) * 1000.0).round() as u32)
    }

    fn wording(&self) -> Option<RecordDraft> {
        let content = self.text("content");
        if content.trim().is_empty() {
            return None;
        }
        let path = self.text("scope_path");
        let place = match self.text("scope").parse::<Scope>() {
            Ok(scope @ (Scope::File | Scope::Room)) if !path.is_empty() => Some((scope, path)),
            Ok(_) | Err(_) => None,
        };
        let tags: Vec<String> = serde_json::from_str(&self.text("tags")).unwrap_or_default();
        Some(RecordDraft {
            content,
            rationale: self.text("rationale"),
            context: self.text("context"),
            tags,
            place,
        })
    }
}

fn columns(connection: &Connection, table: &str) -> Result<Vec<String>, String> {
    let sql = format!("SELECT name FROM pragma_table_info('{table}')");
    let mut statement = connection.prepare(&sql).map_err(|error| error.to_string())?;
    let names = statement.query_map([], |row| row.get(0)).map_err(|error| error.to_string())?;
    names.collect::<Result<_, _>>().map_err(|error| error.to_string())
}

fn rows(connection: &Connection, table: &str) -> Result<Vec<LegacyRow>, String> {
    let wanted: HashSet<&str> = [
        "id",
        "content",
        "rationale",
        "context",
        "scope",
        "scope_path",
        "status",
        "outcome",
        "outcome_note",
        "outcome_at",
        "source_id",
        "target_id",
        "relation",
        "decision_id",
        "learning_id",
        "record_id",
        "tag",
        "confidence",
        "tags",
        "source",
        "session_id",
        "proposed_as",
        "classification_confidence",
        "classification_signals",
        "evidence_refs",
        "agent_type",
        "created_at",
    ]
    .into();
    let names: Vec<String> =
        columns(connection, table)?.into_iter().filter(|name| wanted.contains(name.as_str())).collect();
    if names.is_empty() {
        return Ok(Vec::new());
    }
    let sql = format!("SELECT {} FROM {table} ORDER BY rowid", names.join(", "));
    let mut statement = connection.prepare(&sql).map_err(|error| error.to_string())?;
    let found = statement
        .query_map([], |row| {
            let cells = names.iter().enumerate().map(|(at, name)| Ok((name.clone(), row.get(at)?)));
            Ok(LegacyRow(cells.collect::<rusqlite::Result<_>>()?))
        })
        .map_err(|error| error.to_string())?;
    found.collect::<Result<_, _>>().map_err(|error| error.to_string())
}

fn record(row: &LegacyRow, kind: RecordKind) -> Option<NewRecord> {
    let outcome = match row.text("outcome").as_str() {
        "successful" | "success" => DecisionOutcome::Successful,
        "failed" | "failure" => DecisionOutcome::Failed,
        "mixed" => DecisionOutcome::Mixed,
        _ => DecisionOutcome::Unknown,
    };
    Some(NewRecord {
        kind,
        body: proposal_body(row.wording()?),
        confidence: row.thousandths("confidence", if kind == RecordKind::Learning { 500 } else { 1000 }),
        source: "import".to_owned(),
        session_id: String::new(),
        status: row.text("status").parse().unwrap_or(RecordStatus::Active),
        outcome,
        outcome_note: row.text("outcome_note"),
        outcome_at: row.text("outcome_at").parse().ok(),
        id: Some(row.text("id")).filter(|id| !id.is_empty()),
        created: row.text("created_at").parse().ok(),
    })
}

fn proposal(row: &LegacyRow, now: Timestamp) -> Option<NewProposal> {
    let kind = row.text("proposed_as").parse::<RecordKind>().ok().filter(|kind| *kind != RecordKind::Idea)?;
    let mut evidence: Value = serde_json::from_str(&row.text("evidence_refs")).unwrap_or_else(|_| json!({}));
    if let Some(evidence) = evidence.as_object_mut() {
        evidence.insert("imported_id".into(), row.text("id").into());
    }
    Some(NewProposal {
        kind,
        body: proposal_body(row.wording()?),
        source: "import".to_owned(),
        session_id: String::new(),
        agent_type: row.text("agent_type"),
        evidence,
        confidence: row.thousandths("classification_confidence", 500),
        signals: serde_json::from_str(&row.text("classification_signals")).unwrap_or_default(),
        expires: now.checked_add(PROPOSAL_LIFE).unwrap_or(Timestamp::MAX),
    })
}
