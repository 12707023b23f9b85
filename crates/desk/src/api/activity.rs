//! The ledger: filtered pages, one row, a summary, an export that never is all in memory.

use std::sync::Arc;

use axum::body::{Body as Stream, Bytes};
use axum::extract::State;
use axum::http::{HeaderValue, header};
use axum::response::Response;
use countersign_core::duration;
use countersign_core::ids::LedgerId;
use countersign_core::refusal::{Code, Refusal};
use countersign_store::Filter;
use countersign_store::ledger::{Export, Format};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::access::Person;
use crate::asked::{Named, Query, invalid, limit, number, word};
use crate::desk::Desk;
use crate::told::{No, Outcome, no_store, told};
use crate::views::{self, Activity};

/// Which rows are wanted. Whatever is left out does not matter.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "ActivityQuery")]
pub(crate) struct Wanted {
    /// What they are about: call, decision, approval, mode, tool_change, config, memory, pack, question, system.
    r#type: Option<String>,
    /// How the matter stands: allowed, refused, success, error, pending.
    status: Option<String>,
    /// Of which upstream.
    server: Option<String>,
    /// Of which tool: `upstream:tool`, or the tool's own name.
    tool: Option<String>,
    /// What was declared: read, write, destructive.
    intent_type: Option<String>,
    /// In which session.
    session_id: Option<String>,
    /// By whom.
    principal: Option<String>,
    /// agent or human.
    role: Option<String>,
    /// About which plan.
    plan_id: Option<String>,
    /// With which code.
    code: Option<String>,
    /// With this text somewhere. One page looks at 10,000 rows: it may be short or empty, and its cursor goes on.
    q: Option<String>,
    /// Not before this moment.
    start_time: Option<String>,
    /// Before this moment.
    end_time: Option<String>,
    /// How many, 1 to 1000; 50 if left out.
    #[serde(default, deserialize_with = "number")]
    #[schemars(with = "Option<u32>", range(min = 1, max = 1000))]
    limit: Option<u32>,
    /// Where the page before ended.
    cursor: Option<String>,
}

/// How many rows one page looks at for a text: an answer in time, and a cursor to go on.
const LOOK: u32 = 10_000;

/// Reads a moment.
fn moment(name: &str, text: Option<&str>) -> Result<Option<Timestamp>, Refusal> {
    let wrong = || invalid(name, "must be a moment such as 2026-11-15T22:00:00Z");
    text.map(|text| text.parse().map_err(|_| wrong())).transpose()
}

impl Wanted {
    fn filter(self) -> Result<Filter, Refusal> {
        let (of_tool, tool) = match self.tool.as_deref().map(|tool| tool.split_once(':').ok_or(tool)) {
            Some(Ok((upstream, tool))) => (Some(upstream), Some(tool)),
            Some(Err(tool)) => (None, Some(tool)),
            None => (None, None),
        };
        let cursor = match self.cursor.as_deref() {
            Some(text) => {
                Some(text.parse().map_err(|why| invalid("cursor", format_args!("is wrong: {why}")))?)
            }
            None => None,
        };
        Ok(Filter {
            kind: word("type", self.r#type.as_deref())?,
            status: word("status", self.status.as_deref())?,
            server: self.server.as_deref().or(of_tool).map(Into::into),
            tool: tool.map(Into::into),
            intent_type: word("intent_type", self.intent_type.as_deref())?,
            session_id: self.session_id.map(Into::into),
            principal: self.principal.map(Into::into),
            role: word("role", self.role.as_deref())?,
            plan_id: self.plan_id.map(Into::into),
            code: self.code,
            q: self.q,
            start_time: moment("start_time", self.start_time.as_deref())?,
            end_time: moment("end_time", self.end_time.as_deref())?,
            limit: Some(limit(self.limit, 50)?),
            cursor,
            look: Some(LOOK),
        })
    }
}

/// Some rows, newest first.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "ActivityList")]
pub(crate) struct Activities {
    /// The rows.
    activities: Vec<Activity>,
    /// The cursor of the next page, if there is one.
    next_cursor: Option<String>,
}

/// `GET /activity`
pub(crate) async fn list(
    State(desk): State<Arc<Desk>>,
    _: Person,
    Query(wanted): Query<Wanted>,
) -> Outcome<Activities> {
    let page = desk.house.store.activity(wanted.filter()?).await?;
    told(Activities {
        activities: page.rows.iter().map(views::activity).collect(),
        next_cursor: page.next_cursor.map(|cursor| cursor.to_string()),
    })
}

/// One row.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "ActivityAnswer")]
pub(crate) struct One {
    /// The row.
    activity: Activity,
}

/// `GET /activity/{id}`
pub(crate) async fn one(State(desk): State<Arc<Desk>>, _: Person, Named(id): Named) -> Outcome<One> {
    let row = desk.house.store.activity_row(&LedgerId::new(id.to_ascii_uppercase())).await?;
    let row = row.ok_or_else(|| Refusal::new(Code::NotFound, "there is no such row"))?;
    told(One { activity: views::activity(&row) })
}

/// What a summary is of.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "SummaryQuery")]
pub(crate) struct Period {
    /// How far back, such as `24h` or `7d`; `24h` if left out.
    period: Option<String>,
}

/// How often something occurred.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Count {
    /// What.
    name: String,
    /// How often.
    count: u64,
}

/// What happened in a span of time.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Summary {
    /// How far back.
    period: String,
    /// From when.
    start_time: String,
    /// Until when.
    end_time: String,
    /// All rows.
    total: u64,
    /// By what they are about.
    by_kind: Vec<Count>,
    /// By how the matter stands.
    by_status: Vec<Count>,
    /// Calls by what was declared.
    by_intent: Vec<Count>,
    /// The most used upstreams.
    by_server: Vec<Count>,
    /// The most used tools.
    by_tool: Vec<Count>,
    /// The busiest principals.
    by_principal: Vec<Count>,
    /// The most frequent codes.
    by_code: Vec<Count>,
}

/// `GET /activity/summary`
pub(crate) async fn summary(
    State(desk): State<Arc<Desk>>,
    _: Person,
    Query(asked): Query<Period>,
) -> Outcome<Summary> {
    let period = asked.period.unwrap_or_else(|| "24h".to_owned());
    let span = duration::parse(&period).map_err(|why| invalid("period", format_args!("is wrong: {why}")))?;
    let end = desk.house.now();
    let start = end.checked_sub(span).unwrap_or(Timestamp::UNIX_EPOCH).max(Timestamp::UNIX_EPOCH);
    let found = desk.house.store.summary(start, end).await?;
    let counts = |all: Vec<countersign_store::ledger::Count>| {
        all.into_iter().map(|one| Count { name: one.name, count: one.count }).collect()
    };
    told(Summary {
        period,
        start_time: found.start_time.to_string(),
        end_time: found.end_time.to_string(),
        total: found.total,
        by_kind: counts(found.by_kind),
        by_status: counts(found.by_status),
        by_intent: counts(found.by_intent),
        by_server: counts(found.by_server),
        by_tool: counts(found.by_tool),
        by_principal: counts(found.by_principal),
        by_code: counts(found.by_code),
    })
}

/// What is exported, and how. The filters are those of the list.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "ExportQuery")]
pub(crate) struct Exported {
    /// `jsonl` or `csv`; `jsonl` if left out.
    format: Option<String>,
    /// What they are about.
    r#type: Option<String>,
    /// How the matter stands.
    status: Option<String>,
    /// Of which upstream.
    server: Option<String>,
    /// Of which tool.
    tool: Option<String>,
    /// What was declared.
    intent_type: Option<String>,
    /// In which session.
    session_id: Option<String>,
    /// By whom.
    principal: Option<String>,
    /// agent or human.
    role: Option<String>,
    /// About which plan.
    plan_id: Option<String>,
    /// With which code.
    code: Option<String>,
    /// With this text somewhere.
    q: Option<String>,
    /// Not before this moment.
    start_time: Option<String>,
    /// Before this moment.
    end_time: Option<String>,
}

/// `GET /activity/export`: oldest first, each line as it is hashed.
pub(crate) async fn export(
    State(desk): State<Arc<Desk>>,
    _: Person,
    Query(asked): Query<Exported>,
) -> Result<Response, No> {
    let (format, kind, name) = match asked.format.as_deref() {
        None | Some("jsonl") => {
            (Format::Jsonl, "application/jsonl", "attachment; filename=\"activity.jsonl\"")
        }
        Some("csv") => (Format::Csv, "text/csv; charset=utf-8", "attachment; filename=\"activity.csv\""),
        Some(_) => return Err(invalid("format", "must be jsonl or csv").into()),
    };
    let wanted = Wanted {
        r#type: asked.r#type,
        status: asked.status,
        server: asked.server,
        tool: asked.tool,
        intent_type: asked.intent_type,
        session_id: asked.session_id,
        principal: asked.principal,
        role: asked.role,
        plan_id: asked.plan_id,
        code: asked.code,
        q: asked.q,
        start_time: asked.start_time,
        end_time: asked.end_time,
        ..Wanted::default()
    };
    let filter = Filter { limit: None, look: None, ..wanted.filter()? };
    let export = desk.house.store.export(filter, format);
    let mut response = Response::new(Stream::from_stream(pieces(export)));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(header::CONTENT_DISPOSITION, HeaderValue::from_static(name));
    no_store(&mut response);
    Ok(response)
}

/// The export, piece by piece. What breaks cuts the body off, so that nobody takes a part for the whole.
fn pieces(export: Export) -> impl futures_util::Stream<Item = Result<Bytes, std::io::Error>> {
    futures_util::stream::unfold(Some(export), async |export| {
        let mut export = export?;
        match export.next().await {
            Ok(Some(piece)) => Some((Ok(Bytes::from(piece)), Some(export))),
            Ok(None) => None,
            Err(fault) => Some((Err(std::io::Error::other(fault.outside())), None)),
        }
    })
}
