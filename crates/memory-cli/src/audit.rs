//! `memory audit`: who made what true, from the ledger, newest first.

use anstyle::Style;
use clap::Args;
use countersign_store::StoreUrl;
use countersign_store::memory::AuditFilter;
use countersign_terminal::command_result::{Answer, CommandResult};
use countersign_terminal::output::{Column, DIM, NAME, OutputSettings, Table, exact, paint, shown, zone};
use countersign_terminal::records;
use jiff::Timestamp;
use serde_json::{Value, json};

/// Shown under the help.
pub(crate) const EXAMPLES: &str = "Examples:
  countersign memory audit
  countersign memory audit --action approve --limit 20
  countersign memory audit --entity-type proposal --json";

/// What `memory audit` takes.
#[derive(Args, Debug)]
pub(crate) struct MemoryAuditArgs {
    /// What was done: direct_write, approve, reject; also outcome, link, unlink
    #[arg(long, value_name = "ACTION")]
    action: Option<String>,

    /// To what: decision, learning, proposal
    #[arg(long, value_name = "TYPE")]
    entity_type: Option<String>,

    /// To which
    #[arg(long, value_name = "ID")]
    entity_id: Option<String>,

    /// How many at most
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1000))]
    limit: u32,
}

/// Shows it.
pub(crate) fn run(args: &MemoryAuditArgs, url: &StoreUrl, voice: OutputSettings) -> CommandResult {
    let filter = AuditFilter {
        action: args.action.clone(),
        entity_type: args.entity_type.clone(),
        entity_id: args.entity_id.clone(),
        limit: Some(args.limit),
    };
    let rows = records::with(url, async |store| {
        store.memory_audit(filter).await.map_err(|fault| records::trouble(&fault, url))
    })?;
    let zone = zone(voice, Timestamp::now());
    let mut table = Table::new(&[
        Column::kept("WHEN"),
        Column::kept("ACTION"),
        Column::kept("BY"),
        Column::kept("ENTITY"),
        Column::spared("ROW", 2),
        Column::spared("NOTE", 3),
    ]);
    for row in &rows {
        let note = row.metadata.get("note").and_then(Value::as_str).unwrap_or_default();
        table.row(vec![
            (shown(row.created_at, &zone), DIM),
            (row.action.clone(), NAME),
            (row.actor_id.clone(), Style::new()),
            (format!("{} {}", row.entity_type, row.entity_id), Style::new()),
            (row.id.to_string(), DIM),
            (note.to_owned(), Style::new()),
        ]);
    }
    let text = match (rows.is_empty(), voice.is_watched()) {
        (true, true) => format!("{}\n", paint(DIM, "nothing was decided yet")),
        (true, false) => String::new(),
        (false, _) => table.render(voice.width()),
    };
    let entries: Vec<Value> = rows
        .iter()
        .map(|row| {
            json!({
                "id": row.id,
                "action": row.action,
                "actor_type": row.actor_type,
                "actor_id": row.actor_id,
                "entity_type": row.entity_type,
                "entity_id": row.entity_id,
                "metadata": row.metadata,
                "created_at": exact(row.created_at),
            })
        })
        .collect();
    Ok(Answer::text(text).with("audit", entries))
}
