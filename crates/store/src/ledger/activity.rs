//! Reading the ledger: filters, pages newest first, single rows. Pages are in the chain's order: by `position`, which never decreases
//! within a chain, then by writer. A cursor is the last id of a page and stays valid while rows are added.

use std::fmt;
use std::str::FromStr;

use countersign_policy::effect::Effect;
use countersign_policy::ids::{LedgerId, PlanId, PrincipalId, RequestId, SessionId, ToolName, UpstreamId};
use countersign_policy::record::{ActorRole, RowKind, RowStatus};
use jiff::Timestamp;

use super::columns::{self, SELECTED, decode};
use super::row::LedgerRow;
use crate::Store;
use crate::engine::{Cell, SqlDialect, cells};
use crate::fault::StoreFault;
use crate::readers::ReadTransaction;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cursor(LedgerId);

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this is not a cursor that a page gave out")]
pub struct NotACursor;

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl FromStr for Cursor {
    type Err = NotACursor;
    fn from_str(text: &str) -> Result<Self, NotACursor> {
        let is_id =
            text.len() == 26 && text.bytes().all(|byte| byte.is_ascii_digit() || byte.is_ascii_uppercase());
        if is_id { Ok(Self(LedgerId::new(text))) } else { Err(NotACursor) }
    }
}

/// Which rows to list. A field without a value does not restrict anything.
#[derive(Clone, Debug, Default)]
pub struct LedgerFilter {
    pub kind: Option<RowKind>,
    pub status: Option<RowStatus>,
    /// The upstream.
    pub server: Option<UpstreamId>,
    /// The tool, by its own name.
    pub tool: Option<ToolName>,
    pub intent_type: Option<Effect>,
    pub session_id: Option<SessionId>,
    pub request_id: Option<RequestId>,
    pub principal: Option<PrincipalId>,
    pub role: Option<ActorRole>,
    pub plan_id: Option<PlanId>,
    pub code: Option<String>,
    /// A text anywhere in tool, upstream, reason, arguments, code, principal or detail; case does not matter.
    pub q: Option<String>,
    pub start_time: Option<Timestamp>,
    /// The first moment that is not listed any more.
    pub end_time: Option<Timestamp>,
    /// The size of a page: 50 by default, at most 1000.
    pub limit: Option<u32>,
    pub cursor: Option<Cursor>,
    /// With `q`: how many rows one page searches, so that a text that is nowhere does not cost a whole scan. Such a page may be
    /// short or empty, and its cursor continues. All rows by default.
    pub search_limit: Option<u32>,
}

/// Some rows, and the cursor of the next page if there is one.
#[derive(Clone, Debug)]
pub struct Page {
    pub rows: Vec<LedgerRow>,
    pub next_cursor: Option<Cursor>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RowOrder {
    Newest,
    Oldest,
}

impl RowOrder {
    fn sql(self) -> &'static str {
        match self {
            RowOrder::Newest => "ORDER BY position DESC, writer DESC",
            RowOrder::Oldest => "ORDER BY position, writer",
        }
    }
}

/// A row whose position is further ahead of its time than this, in microseconds, is in the index of stepped clocks.
const CLOCK_STEP: i64 = 3_600_000_000;

impl Store {
    /// One page of the ledger, newest first.
    pub async fn activity(&self, filter: LedgerFilter) -> Result<Page, StoreFault> {
        page(self, filter, RowOrder::Newest).await
    }

    pub async fn activity_row(&self, id: &LedgerId) -> Result<Option<LedgerRow>, StoreFault> {
        let values = cells![id.as_str()];
        let sql = format!("SELECT {} FROM ledger WHERE id = $1", *SELECTED);
        self.read(move |view| view.one(&sql, &values)?.map(decode).transpose()).await
    }
}

pub(super) async fn page(store: &Store, filter: LedgerFilter, order: RowOrder) -> Result<Page, StoreFault> {
    let limit = filter.limit.unwrap_or(50).clamp(1, 1000);
    let (rows, bound) = store
        .read(move |view| {
            let latest = latest_position(view, &filter)?;
            let bound = bound(view, &filter, latest, order)?;
            let (conditions, values) = conditions(&filter, bound.as_ref(), latest, order, view.dialect());
            let by = order.sql();
            // One row more tells whether there is a next page.
            let sql = format!("SELECT {} FROM ledger {conditions} {by} LIMIT {}", *SELECTED, limit + 1);
            let rows =
                view.query(&sql, &values)?.into_iter().map(decode).collect::<Result<Vec<LedgerRow>, _>>()?;
            Ok((rows, bound))
        })
        .await?;
    let limit = limit as usize;
    let more = rows.len() > limit;
    let mut rows = rows;
    rows.truncate(limit);
    let last = rows.last().filter(|_| more).map(|row| Cursor(row.id.clone()));
    // A page that is not full may have reached its search limit before the end.
    let next_cursor = last.or_else(|| bound.filter(|_| !more).map(Cursor));
    Ok(Page { rows, next_cursor })
}

/// The last position that a row from before `end_time` can have; none without an end.
fn latest_position(view: &mut ReadTransaction<'_>, filter: &LedgerFilter) -> Result<Option<i64>, StoreFault> {
    let Some(until) = filter.end_time else { return Ok(None) };
    let sql = format!("SELECT MAX(position) FROM ledger WHERE position - time > {CLOCK_STEP} AND time < $1");
    let stepped = view.one(&sql, &cells![until])?.map(|mut found| found.maybe_int()).transpose()?.flatten();
    Ok(stepped.max(Some(until.as_microsecond().saturating_add(CLOCK_STEP))))
}

/// The last row that a page searches for its text; none if it may search everything that is left.
fn bound(
    view: &mut ReadTransaction<'_>,
    filter: &LedgerFilter,
    latest: Option<i64>,
    order: RowOrder,
) -> Result<Option<LedgerId>, StoreFault> {
    let (Some(most), Some(_), RowOrder::Newest) = (filter.search_limit, &filter.q, order) else {
        return Ok(None);
    };
    let span =
        LedgerFilter { cursor: filter.cursor.clone(), end_time: filter.end_time, ..LedgerFilter::default() };
    let (conditions, values) = conditions(&span, None, latest, order, view.dialect());
    let sql = format!("SELECT id, position FROM ledger {conditions} {} LIMIT 1 OFFSET {most}", order.sql());
    let Some(mut found) = view.one(&sql, &values)? else { return Ok(None) };
    let (id, position) = (LedgerId::new(found.text()?), found.int()?);
    // Rows before `start_time` are not searched anyway.
    Ok(filter.start_time.is_none_or(|from| position > from.as_microsecond()).then_some(id))
}

/// Compares a row's place in the listing with that of the row whose id is given.
fn place_condition(with: &str) -> String {
    let from = "FROM ledger WHERE id = ?";
    // The first condition is one that an index can follow.
    let near = with.trim_end_matches('=');
    format!(
        "position {near}= (SELECT position {from}) AND (position, writer) {with} (SELECT position, writer {from})"
    )
}

/// `WHERE …` and its values.
fn conditions(
    filter: &LedgerFilter,
    bound: Option<&LedgerId>,
    latest: Option<i64>,
    order: RowOrder,
    dialect: SqlDialect,
) -> (String, Vec<Cell>) {
    let mut all = SqlConditions::default();
    if let Some(bound) = bound {
        all.add(&place_condition(">="), bound.as_str());
    }
    // SQLite guesses which index to follow without knowing how rows differ: the `+` leaves it the first one only.
    for (place, (condition, value)) in columns::filter_conditions(filter).into_iter().enumerate() {
        let aside = if place > 0 && dialect == SqlDialect::Sqlite { "+" } else { "" };
        all.add(&format!("{aside}{condition}"), value);
    }
    if let Some(from) = filter.start_time {
        // No position is before its row's time: the position bounds the scan, the time decides.
        all.add("position >= ?", from);
        all.add("time >= ?", from);
    }
    if let Some(until) = filter.end_time {
        if let Some(latest) = latest {
            all.add("position <= ?", latest);
        }
        all.add("time < ?", until);
    }
    if let Some(Cursor(last)) = &filter.cursor {
        let with = match order {
            RowOrder::Newest => "<",
            RowOrder::Oldest => ">",
        };
        all.add(&place_condition(with), last.as_str());
    }
    if let Some(words) = filter.q.as_deref().filter(|words| !words.is_empty()) {
        let like = match dialect {
            SqlDialect::Sqlite => "LIKE",
            SqlDialect::Postgres => "ILIKE",
        };
        let any: Vec<String> =
            columns::searched().map(|column| format!("({column}) {like} ? ESCAPE '!'")).collect();
        all.add(&format!("({})", any.join(" OR ")), like_pattern(words).as_str());
    }
    all.end()
}

/// A pattern for the text anywhere; wildcards in the text are escaped.
fn like_pattern(words: &str) -> String {
    let escaped = words.replace('\0', "\u{2400}").replace('!', "!!").replace('%', "!%").replace('_', "!_");
    format!("%{escaped}%")
}

#[derive(Default)]
struct SqlConditions {
    texts: Vec<String>,
    values: Vec<Cell>,
}

impl SqlConditions {
    fn add(&mut self, text: &str, value: impl Into<Cell>) {
        self.values.push(value.into());
        self.texts.push(text.replace('?', &format!("${}", self.values.len())));
    }
    fn end(self) -> (String, Vec<Cell>) {
        let text =
            if self.texts.is_empty() { String::new() } else { format!("WHERE {}", self.texts.join(" AND ")) };
        (text, self.values)
    }
}
