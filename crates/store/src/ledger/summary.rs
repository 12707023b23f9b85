//! What happened in a span of time, counted. Only numbers and names; whoever wants rows asks for activity.

use jiff::Timestamp;
use serde::Serialize;

use crate::Store;
use crate::engine::cells;
use crate::fault::StoreFault;
use crate::readers::View;

/// How often something occurred.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Count {
    /// What.
    pub name: String,
    /// How often.
    pub count: u64,
}

/// What happened in a span of time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// From when.
    pub start_time: Timestamp,
    /// Until when.
    pub end_time: Timestamp,
    /// All rows.
    pub total: u64,
    /// By what they are about.
    pub by_kind: Vec<Count>,
    /// By how the matter stands.
    pub by_status: Vec<Count>,
    /// Calls by what was declared.
    pub by_intent: Vec<Count>,
    /// The ten most used upstreams.
    pub by_server: Vec<Count>,
    /// The ten most used tools.
    pub by_tool: Vec<Count>,
    /// The ten busiest principals.
    pub by_principal: Vec<Count>,
    /// The ten most frequent codes.
    pub by_code: Vec<Count>,
}

impl Store {
    /// What happened from `start` until before `end`, to the millisecond.
    pub async fn summary(&self, start: Timestamp, end: Timestamp) -> Result<Summary, StoreFault> {
        self.read(move |view| {
            let by_kind = count(view, "kind", start, end)?;
            Ok(Summary {
                start_time: start,
                end_time: end,
                total: by_kind.iter().map(|count| count.count).sum(),
                by_kind,
                by_status: count(view, "status", start, end)?,
                by_intent: count(view, "intent_type", start, end)?,
                by_server: count(view, "upstream", start, end)?,
                by_tool: count(view, "upstream || ':' || tool", start, end)?,
                by_principal: count(view, "principal", start, end)?,
                by_code: count(view, "code", start, end)?,
            })
        })
        .await
    }
}

fn count(
    view: &mut View<'_>,
    what: &str,
    start: Timestamp,
    end: Timestamp,
) -> Result<Vec<Count>, StoreFault> {
    let sql = format!(
        "SELECT {what} AS name, COUNT(*) AS times FROM ledger
          WHERE position >= $1 AND position < $2 AND {what} IS NOT NULL
          GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT 10"
    );
    // Only positions, which are the times in the chain's order: then an index alone answers most of these.
    let found = view.query(&sql, &cells![start, end])?;
    found.into_iter().map(|mut found| Ok(Count { name: found.text()?, count: found.count()? })).collect()
}
