//! Counts for the charts of the overview: calls, holds, decisions and refusals over any period. Every count names the rows behind
//! it by filters of the audit log.

use axum::extract::State;
use countersign_store::ledger::{ChartPeriod, DecisionTime, StatusCount};
use jiff::{Timestamp, ToSpan as _};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::activity::parse_time;
use crate::auth::AuthenticatedPerson;
use crate::request::{QueryParams, invalid, number};
use crate::response::{ApiResult, respond};
use crate::state::Web;
use crate::views::exact;

const MOST_PARTS: u32 = 200;

/// The period of a chart.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ChartQuery {
    /// Inclusive; default a day before the end.
    start_time: Option<String>,
    /// Exclusive; default now.
    end_time: Option<String>,
    /// Into how many equal parts the period is divided; default 24.
    #[serde(default, deserialize_with = "number")]
    #[schemars(with = "Option<u32>", range(min = 1, max = 200))]
    parts: Option<u32>,
}

/// The rows of one part of the period with one kind and status.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ChartBar {
    /// From 0.
    part: u32,
    kind: String,
    status: String,
    count: u64,
}

/// Calls of one status with one name.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct NamedBar {
    name: String,
    status: String,
    count: u64,
}

/// How long the decisions of one part took, from the plan to the approval or rejection.
#[derive(Debug, PartialEq, Serialize, JsonSchema)]
pub(crate) struct DecisionBar {
    part: u32,
    count: u64,
    /// Microseconds.
    median_us: i64,
}

/// What happened in a period.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Chart {
    start_time: String,
    end_time: String,
    /// Where each part starts.
    parts: Vec<String>,
    over_time: Vec<ChartBar>,
    by_principal: Vec<NamedBar>,
    by_tool: Vec<NamedBar>,
    /// Calls that a rule made wait or refused.
    by_rule: Vec<NamedBar>,
    decisions: Vec<DecisionBar>,
}

pub(crate) async fn chart(
    State(web): Web,
    _: AuthenticatedPerson,
    QueryParams(wanted): QueryParams<ChartQuery>,
) -> ApiResult<Chart> {
    let end = parse_time("end_time", wanted.end_time.as_deref())?.unwrap_or_else(|| web.gateway.now());
    let day_before = end.checked_sub(24.hours()).unwrap_or(Timestamp::UNIX_EPOCH);
    let start = parse_time("start_time", wanted.start_time.as_deref())?.unwrap_or(day_before);
    if start >= end {
        return Err(invalid("start_time", "must be before `end_time`").into());
    }
    let parts = match wanted.parts {
        None => 24,
        Some(parts @ 1..=MOST_PARTS) => parts,
        Some(_) => return Err(invalid("parts", "must be a number from 1 to 200").into()),
    };
    let period = ChartPeriod::new(start, end, parts);
    let found = web.gateway.store.chart(period).await?;
    let over_time = found.over_time.into_iter();
    let named = |all: Vec<StatusCount>| {
        let bars = all.into_iter();
        bars.map(|one| NamedBar { name: one.name, status: one.status, count: one.count }).collect()
    };
    respond(Chart {
        start_time: exact(start),
        end_time: exact(end),
        parts: (0..parts).map(|part| exact(period.start_of(part))).collect(),
        over_time: over_time
            .map(|one| ChartBar { part: one.part, kind: one.kind, status: one.status, count: one.count })
            .collect(),
        by_principal: named(found.by_principal),
        by_tool: named(found.by_tool),
        by_rule: named(found.by_rule),
        decisions: medians(found.decisions),
    })
}

fn medians(mut all: Vec<DecisionTime>) -> Vec<DecisionBar> {
    all.sort_unstable_by_key(|one| (one.part, one.micros));
    let of_parts = all.chunk_by(|one, other| one.part == other.part);
    let bar = |part: &[DecisionTime]| {
        let middle = part.get(part.len() / 2)?;
        Some(DecisionBar { part: middle.part, count: part.len() as u64, median_us: middle.micros })
    };
    of_parts.filter_map(bar).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_part_has_the_median_of_its_own_decisions() {
        let time = |part, micros| DecisionTime { part, micros };
        let bars = medians(vec![time(2, 9), time(0, 5), time(0, 1), time(0, 3)]);
        let bar = |part, count, median_us| DecisionBar { part, count, median_us };
        assert_eq!(bars, [bar(0, 3, 3), bar(2, 1, 9)]);
    }
}
