//! Rows of the ledger as lines of a table.

use anstyle::Style;
use countersign_policy::record::{RowKind, RowStatus};
use countersign_store::ledger::LedgerRow;
use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::output::{BAD, Column, DIM, GOOD, NAME, OutputSettings, Table, TimeDisplay, WARN, shown};

const COLUMNS: [Column; 8] = [
    Column::kept("TIME").steady(8),
    Column::kept("STATUS").steady(7),
    Column::spared("WHO", 2).steady(10),
    Column::kept("TOOL").steady(24),
    Column::spared("INTENT", 3).steady(11),
    Column::spared("CODE", 1).steady(18),
    Column::spared("PLAN", 4).steady(30),
    Column::kept("ID").steady(26),
];

pub(crate) fn table() -> Table {
    Table::new(&COLUMNS)
}

/// How times are shown on stdout.
pub(crate) fn zone(voice: OutputSettings, now: Timestamp) -> TimeDisplay {
    if voice.is_watched() {
        TimeDisplay::Person { zone: TimeZone::system(), now }
    } else {
        TimeDisplay::Program
    }
}

pub(crate) fn line(row: &LedgerRow, zone: &TimeDisplay) -> Vec<(String, Style)> {
    let plain = Style::new();
    vec![
        (shown(row.time, zone), DIM),
        (row.status.to_string(), status_style(row.status)),
        (row.principal.as_ref().map(ToString::to_string).unwrap_or_default(), plain),
        (about(row), NAME),
        (row.intent.as_ref().and_then(|intent| intent.operation_type.clone()).unwrap_or_default(), plain),
        (row.code.clone().unwrap_or_default(), if row.status == RowStatus::Success { plain } else { WARN }),
        (row.plan_id.as_ref().map(ToString::to_string).unwrap_or_default(), DIM),
        (row.id.to_string(), DIM),
    ]
}

pub(crate) fn status_style(status: RowStatus) -> Style {
    match status {
        RowStatus::Success => GOOD,
        RowStatus::Refused | RowStatus::Error => BAD,
        RowStatus::Pending => WARN,
        RowStatus::Allowed => Style::new(),
    }
}

/// The tool of a call; of anything else, what it is and what was done.
pub(crate) fn about(row: &LedgerRow) -> String {
    let tool = match (&row.upstream, &row.tool) {
        (Some(upstream), Some(tool)) => format!("{upstream}:{tool}"),
        (Some(one), None) => one.to_string(),
        (None, Some(one)) => one.to_string(),
        (None, None) => String::new(),
    };
    if row.kind == RowKind::Call {
        return tool;
    }
    let detail = row.detail.as_ref().map(|detail| detail.value());
    let action = detail.as_ref().and_then(|detail| detail.get("action")?.as_str()).unwrap_or_default();
    let words = [row.kind.as_str(), action, &tool];
    words.into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
}
