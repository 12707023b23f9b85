//! Counts of rows in a span of time. The rows themselves are in `activity`.

use jiff::Timestamp;
use serde::Serialize;

use crate::Store;
use crate::engine::cells;
use crate::fault::StoreFault;
use crate::readers::ReadTransaction;

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NamedCount {
    pub name: String,
    pub count: u64,
}

/// What happened in a span of time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LedgerSummary {
    pub start_time: Timestamp,
    pub end_time: Timestamp,
    pub total: u64,
    pub by_kind: Vec<NamedCount>,
    pub by_status: Vec<NamedCount>,
    pub by_intent: Vec<NamedCount>,
    pub by_server: Vec<NamedCount>,
    pub by_tool: Vec<NamedCount>,
    pub by_principal: Vec<NamedCount>,
    pub by_code: Vec<NamedCount>,
}

impl Store {
    /// Counts the rows from `start` until before `end`.
    pub async fn summary(&self, start: Timestamp, end: Timestamp) -> Result<LedgerSummary, StoreFault> {
        self.read(move |view| {
            let by_kind = count(view, "kind", start, end)?;
            Ok(LedgerSummary {
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
    view: &mut ReadTransaction<'_>,
    what: &str,
    start: Timestamp,
    end: Timestamp,
) -> Result<Vec<NamedCount>, StoreFault> {
    let sql = format!(
        "SELECT {what} AS name, COUNT(*) AS times FROM ledger
          WHERE position >= $1 AND position < $2 AND {what} IS NOT NULL
          GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT 10"
    );
    // By position only, which follows the time: then an index alone answers most of these.
    let found = view.query(&sql, &cells![start, end])?;
    found.into_iter().map(|mut found| Ok(NamedCount { name: found.text()?, count: found.count()? })).collect()
}
