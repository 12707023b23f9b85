//! Rows of the ledger as lines of a table.

use anstyle::Style;
use countersign_policy::record::{RowKind, RowStatus, asked_by};
use countersign_store::ledger::LedgerRow;
use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::commands::plans::list::shown_id;
use crate::environment;
use crate::output::{BAD, Column, DIM, GOOD, NAME, OutputSettings, Table, TimeDisplay, WARN, shown};

/// Ids go first where there is no room: they are in `--json`, and `activity show` takes their end.
const COLUMNS: [Column; 9] = [
    Column::kept("TIME").steady(8),
    Column::kept("STATUS").steady(7),
    Column::cut("WHO", 10).steady(24),
    Column::cut("TOOL", 12).steady(24),
    Column::spared("INTENT", 2).steady(11),
    Column::spared("CODE", 1).steady(18),
    Column::spared("PLAN", 4).steady(10),
    Column::spared("ID", 3).steady(6),
    Column::cut("REASON", 10),
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

pub(crate) fn line(row: &LedgerRow, voice: OutputSettings, zone: &TimeDisplay) -> Vec<(String, Style)> {
    let plain = Style::new();
    let reason = row.intent.as_ref().and_then(|intent| intent.reason.clone());
    vec![
        (shown(row.time, zone), DIM),
        (row.status.to_string(), status_style(row.status)),
        (who(row).unwrap_or_default(), plain),
        (about(row), NAME),
        (row.intent.as_ref().and_then(|intent| intent.operation_type.clone()).unwrap_or_default(), plain),
        (row.code.clone().unwrap_or_default(), if row.status == RowStatus::Success { plain } else { WARN }),
        (row.plan_id.as_ref().map(|id| shown_id(id.as_str(), voice)).unwrap_or_default(), DIM),
        (shown_id(row.id.as_str(), voice), DIM),
        (reason.unwrap_or_default(), DIM),
    ]
}

/// Who acted, for people: the host and its folder where a connection did.
pub(crate) fn who(row: &LedgerRow) -> Option<String> {
    let home = environment::home_text();
    row.principal.as_ref().map(|principal| asked_by(row.host().as_ref(), principal, home.as_deref()))
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
