//! Reading the ledger: filters, pages newest first, single rows. Pages are in the chain's order: by `position`, which never goes
//! back within a chain, then by writer. A cursor is the last id seen and stays good however many rows are added meanwhile.

use std::fmt;
use std::str::FromStr;

use countersign_core::effect::Effect;
use countersign_core::ids::{LedgerId, PlanId, PrincipalId, SessionId, ToolName, UpstreamId};
use countersign_core::record::{ActorRole, RowKind, RowStatus};
use jiff::Timestamp;

use super::row::{COLUMNS, Row, decode};
use crate::Store;
use crate::engine::{Cell, Dialect, cells};
use crate::fault::StoreFault;
use crate::readers::View;

/// Where a page ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cursor(LedgerId);

/// The text is no cursor.
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

/// Which rows are wanted. Whatever is none does not matter.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// What they are about (`type`).
    pub kind: Option<RowKind>,
    /// How the matter stands.
    pub status: Option<RowStatus>,
    /// Of which upstream (`server`).
    pub server: Option<UpstreamId>,
    /// Of which tool, by its own name.
    pub tool: Option<ToolName>,
    /// What was declared.
    pub intent_type: Option<Effect>,
    /// In which session.
    pub session_id: Option<SessionId>,
    /// By whom.
    pub principal: Option<PrincipalId>,
    /// In which role.
    pub role: Option<ActorRole>,
    /// About which plan.
    pub plan_id: Option<PlanId>,
    /// With which code.
    pub code: Option<String>,
    /// With this text somewhere: tool, upstream, reason, arguments, code, principal, detail; case does not matter.
    pub q: Option<String>,
    /// Not before.
    pub start_time: Option<Timestamp>,
    /// Before.
    pub end_time: Option<Timestamp>,
    /// How many on a page; 50 where none is given, at most 1000.
    pub limit: Option<u32>,
    /// Where the page before ended.
    pub cursor: Option<Cursor>,
    /// With a text: how many rows one page looks at, so that nobody waits for a text that is nowhere. A page may be short or
    /// empty then, and its cursor goes on. All rows where none is given.
    pub look: Option<u32>,
}

/// Some rows, and where to go on.
#[derive(Clone, Debug)]
pub struct Page {
    /// The rows.
    pub rows: Vec<Row>,
    /// The cursor of the next page, if there is one.
    pub next_cursor: Option<Cursor>,
}

/// Which end comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    Newest,
    Oldest,
}

impl Order {
    fn sql(self) -> &'static str {
        match self {
            Order::Newest => "ORDER BY position DESC, writer DESC",
            Order::Oldest => "ORDER BY position, writer",
        }
    }
}

/// How far a position may stand behind its row's time before the row is in the index of stepped clocks, in microseconds.
const STEPPED: i64 = 3_600_000_000;

impl Store {
    /// One page of the ledger, newest first.
    pub async fn activity(&self, filter: Filter) -> Result<Page, StoreFault> {
        page(self, filter, Order::Newest).await
    }

    /// One row.
    pub async fn activity_row(&self, id: &LedgerId) -> Result<Option<Row>, StoreFault> {
        let values = cells![id.as_str()];
        let sql = format!("SELECT {COLUMNS} FROM ledger WHERE id = $1");
        self.read(move |view| view.one(&sql, &values)?.map(decode).transpose()).await
    }
}

pub(super) async fn page(store: &Store, filter: Filter, order: Order) -> Result<Page, StoreFault> {
    let limit = filter.limit.unwrap_or(50).clamp(1, 1000);
    let (rows, bound) = store
        .read(move |view| {
            let latest = latest_position(view, &filter)?;
            let bound = bound(view, &filter, latest, order)?;
            let (conditions, values) = conditions(&filter, bound.as_ref(), latest, order, view.dialect());
            let by = order.sql();
            // One more than asked for tells whether there is a next page.
            let sql = format!("SELECT {COLUMNS} FROM ledger {conditions} {by} LIMIT {}", limit + 1);
            let rows = view.query(&sql, &values)?.into_iter().map(decode).collect::<Result<Vec<Row>, _>>()?;
            Ok((rows, bound))
        })
        .await?;
    let limit = limit as usize;
    let more = rows.len() > limit;
    let mut rows = rows;
    rows.truncate(limit);
    let last = rows.last().filter(|_| more).map(|row| Cursor(row.id.clone()));
    // A page that is not full may have stopped looking before the end.
    let next_cursor = last.or_else(|| bound.filter(|_| !more).map(Cursor));
    Ok(Page { rows, next_cursor })
}

/// The last position at which a row from before `end_time` can stand; none where no end is asked for.
fn latest_position(view: &mut View<'_>, filter: &Filter) -> Result<Option<i64>, StoreFault> {
    let Some(until) = filter.end_time else { return Ok(None) };
    let sql = format!("SELECT MAX(position) FROM ledger WHERE position - time > {STEPPED} AND time < $1");
    let stepped = view.one(&sql, &cells![until])?.map(|mut found| found.maybe_int()).transpose()?.flatten();
    Ok(stepped.max(Some(until.as_microsecond().saturating_add(STEPPED))))
}

/// How far down a page looks for its text; none where it may look at everything, or that is not so much.
fn bound(
    view: &mut View<'_>,
    filter: &Filter,
    latest: Option<i64>,
    order: Order,
) -> Result<Option<LedgerId>, StoreFault> {
    let (Some(look), Some(_), Order::Newest) = (filter.look, &filter.q, order) else { return Ok(None) };
    let span = Filter { cursor: filter.cursor.clone(), end_time: filter.end_time, ..Filter::default() };
    let (conditions, values) = conditions(&span, None, latest, order, view.dialect());
    let sql = format!("SELECT id, position FROM ledger {conditions} {} LIMIT 1 OFFSET {look}", order.sql());
    let Some(mut found) = view.one(&sql, &values)? else { return Ok(None) };
    let (id, position) = (LedgerId::new(found.text()?), found.int()?);
    // What lies before the wanted time is not looked at anyway.
    Ok(filter.start_time.is_none_or(|from| position > from.as_microsecond()).then_some(id))
}

/// A comparison of a row's place in the listing with that of the row whose id is given.
fn compared(with: &str) -> String {
    let from = "FROM ledger WHERE id = ?";
    // The first half is what an index can follow.
    let near = with.trim_end_matches('=');
    format!(
        "position {near}= (SELECT position {from}) AND (position, writer) {with} (SELECT position, writer {from})"
    )
}

/// `WHERE …` and its values.
fn conditions(
    filter: &Filter,
    bound: Option<&LedgerId>,
    latest: Option<i64>,
    order: Order,
    dialect: Dialect,
) -> (String, Vec<Cell>) {
    let mut all = Conditions::default();
    if let Some(bound) = bound {
        all.add(&compared(">="), bound.as_str());
    }
    // What tells rows apart best stands first, and is what the walk follows; SQLite guesses without knowing how rows differ.
    let equal = [
        ("plan_id", filter.plan_id.as_ref().map(PlanId::as_str)),
        ("session", filter.session_id.as_ref().map(SessionId::as_str)),
        ("code", filter.code.as_deref()),
        ("tool", filter.tool.as_ref().map(ToolName::as_str)),
        ("principal", filter.principal.as_ref().map(PrincipalId::as_str)),
        ("upstream", filter.server.as_ref().map(UpstreamId::as_str)),
        ("intent_type", filter.intent_type.map(Effect::as_str)),
        ("status", filter.status.map(RowStatus::as_str)),
        ("kind", filter.kind.map(RowKind::as_str)),
        ("role", filter.role.map(ActorRole::as_str)),
    ];
    let given = equal.into_iter().filter_map(|(column, value)| Some((column, value?)));
    for (place, (column, value)) in given.enumerate() {
        let aside = if place > 0 && dialect == Dialect::Sqlite { "+" } else { "" };
        all.add(&format!("{aside}{column} = ?"), value);
    }
    if let Some(from) = filter.start_time {
        // No position stands before its row's time: it bounds the walk, and the time decides.
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
            Order::Newest => "<",
            Order::Oldest => ">",
        };
        all.add(&compared(with), last.as_str());
    }
    if let Some(words) = filter.q.as_deref().filter(|words| !words.is_empty()) {
        let like = match dialect {
            Dialect::Sqlite => "LIKE",
            Dialect::Postgres => "ILIKE",
        };
        let columns = ["tool", "upstream", "intent_reason", "arguments", "code", "principal", "detail"];
        let any: Vec<String> = columns.iter().map(|column| format!("{column} {like} ? ESCAPE '!'")).collect();
        all.add(&format!("({})", any.join(" OR ")), like_pattern(words).as_str());
    }
    all.end()
}

/// The text anywhere, taken as it is: wildcards in it are none.
fn like_pattern(words: &str) -> String {
    let escaped = words.replace('\0', "\u{2400}").replace('!', "!!").replace('%', "!%").replace('_', "!_");
    format!("%{escaped}%")
}

#[derive(Default)]
struct Conditions {
    texts: Vec<String>,
    values: Vec<Cell>,
}

impl Conditions {
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
