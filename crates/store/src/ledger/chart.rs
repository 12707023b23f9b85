//! Counts of rows over time, for the charts of the approvals page: how many of each kind and status in equal parts of a period,
//! how long decisions took, and which rules asked or refused. The rows themselves are in `activity`.

use jiff::Timestamp;

use crate::Store;
use crate::engine::{SqlDialect, cells};
use crate::fault::StoreFault;
use crate::readers::ReadTransaction;

/// How many names a list of the most frequent has.
const MOST_NAMES: usize = 10;
/// How many decisions are read for their times: the latest of the period.
const MOST_DECISIONS: usize = 20_000;

/// The rows of one part of the period with one kind and status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartCount {
    /// From 0.
    pub part: u32,
    pub kind: String,
    pub status: String,
    pub count: u64,
}

/// The rows of one status with one name: of a principal, a tool, a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusCount {
    pub name: String,
    pub status: String,
    pub count: u64,
}

/// How long one decision took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecisionTime {
    pub part: u32,
    pub micros: i64,
}

/// What happened in a period, in equal parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LedgerChart {
    pub over_time: Vec<PartCount>,
    /// Calls only.
    pub by_principal: Vec<StatusCount>,
    pub by_tool: Vec<StatusCount>,
    /// Calls that a rule made wait or refused.
    pub by_rule: Vec<StatusCount>,
    pub decisions: Vec<DecisionTime>,
}

/// A period in equal parts.
#[derive(Clone, Copy, Debug)]
pub struct ChartPeriod {
    start: Timestamp,
    end: Timestamp,
    /// Microseconds.
    width: i64,
}

impl ChartPeriod {
    /// From `start` until before `end`, in at most `parts` parts.
    pub fn new(start: Timestamp, end: Timestamp, parts: u32) -> Self {
        let length = (end.as_microsecond() - start.as_microsecond()).max(1);
        let parts = i64::from(parts.max(1));
        // Rounded up, so that the last part holds the end.
        Self { start, end, width: (length + parts - 1) / parts }
    }

    /// Where a part starts.
    pub fn start_of(&self, part: u32) -> Timestamp {
        let moment = self.start.as_microsecond().saturating_add(self.width.saturating_mul(i64::from(part)));
        Timestamp::from_microsecond(moment).unwrap_or(self.end).min(self.end)
    }

    /// SQL for the part of a moment.
    fn part_of(&self, column: &str) -> String {
        format!("({column} - {}) / {}", self.start.as_microsecond(), self.width)
    }
}

impl Store {
    /// Counts the rows of a period.
    pub async fn chart(&self, period: ChartPeriod) -> Result<LedgerChart, StoreFault> {
        self.read(move |view| {
            let rule = match view.dialect() {
                SqlDialect::Sqlite => "json_extract(detail, '$.rule')",
                SqlDialect::Postgres => "(detail::json ->> 'rule')",
            };
            Ok(LedgerChart {
                over_time: over_time(view, period)?,
                by_principal: by_name(view, "principal", period)?,
                by_tool: by_name(view, "upstream || ':' || tool", period)?,
                by_rule: by_name(view, rule, period)?,
                decisions: decision_times(view, period)?,
            })
        })
        .await
    }
}

fn over_time(view: &mut ReadTransaction<'_>, period: ChartPeriod) -> Result<Vec<PartCount>, StoreFault> {
    let sql = format!(
        "SELECT {} AS part, kind, status, COUNT(*) AS times FROM ledger
          WHERE position >= $1 AND position < $2 AND time >= $1 AND time < $2 GROUP BY 1, 2, 3 ORDER BY 1, 2, 3",
        period.part_of("time")
    );
    let found = view.query(&sql, &cells![period.start, period.end])?;
    let read = found.into_iter().map(|mut found| {
        let part = u32::try_from(found.int()?).unwrap_or_default();
        Ok(PartCount { part, kind: found.text()?, status: found.text()?, count: found.count()? })
    });
    read.collect()
}

/// Calls by name and status, for the names that most calls have.
fn by_name(
    view: &mut ReadTransaction<'_>,
    name: &str,
    period: ChartPeriod,
) -> Result<Vec<StatusCount>, StoreFault> {
    let of_calls = format!(
        "FROM ledger WHERE position >= $1 AND position < $2 AND time >= $1 AND time < $2 AND kind = 'call'
          AND status <> 'allowed' AND {name} IS NOT NULL"
    );
    let sql = format!(
        "SELECT {name} AS name, status, COUNT(*) AS times {of_calls} AND {name} IN
          (SELECT {name} {of_calls} GROUP BY {name} ORDER BY COUNT(*) DESC, {name} LIMIT {MOST_NAMES})
          GROUP BY 1, 2 ORDER BY 3 DESC, 1, 2"
    );
    let found = view.query(&sql, &cells![period.start, period.end])?;
    let read = found.into_iter().map(|mut found| {
        Ok(StatusCount { name: found.text()?, status: found.text()?, count: found.count()? })
    });
    read.collect()
}

/// From a plan's creation to its approval or rejection by somebody.
fn decision_times(
    view: &mut ReadTransaction<'_>,
    period: ChartPeriod,
) -> Result<Vec<DecisionTime>, StoreFault> {
    let sql = format!(
        "SELECT {} AS part, ledger.time - plans.created FROM ledger JOIN plans ON plans.plan_id = ledger.plan_id
          WHERE ledger.position >= $1 AND ledger.position < $2 AND ledger.time >= $1 AND ledger.time < $2
          AND ledger.kind = 'approval' ORDER BY ledger.position DESC LIMIT {MOST_DECISIONS}",
        period.part_of("ledger.time")
    );
    let found = view.query(&sql, &cells![period.start, period.end])?;
    let read = found.into_iter().map(|mut found| {
        let part = u32::try_from(found.int()?).unwrap_or_default();
        Ok(DecisionTime { part, micros: found.int()?.max(0) })
    });
    read.collect()
}
