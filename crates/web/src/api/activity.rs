//! The audit log: filtered pages, one row, a summary, and a streamed export.

use axum::body::{Body as Stream, Bytes};
use axum::extract::State;
use axum::http::{HeaderValue, header};
use axum::response::Response;
use countersign_policy::duration;
use countersign_policy::ids::LedgerId;
use countersign_policy::refusal::{Code, Refusal};
use countersign_store::LedgerFilter;
use countersign_store::ledger::{Format, LedgerExport};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::auth::AuthenticatedPerson;
use crate::request::{PathName, QueryParams, invalid, limit, number, word};
use crate::response::{ApiError, ApiResult, no_store, respond};
use crate::state::Web;
use crate::views::{self, Activity};

/// Declares a query with the filters on rows and fields of its own.
macro_rules! activity_query {
    ($(#[$attribute:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident: $type:ty,)+ }) => {
        #[derive(Debug, Default, Deserialize, JsonSchema)]
        $(#[$attribute])*
        #[serde(deny_unknown_fields)]
        pub(crate) struct $name {
            /// call, decision, approval, mode, tool_change, config, memory, pack, question, system
            r#type: Option<String>,
            /// allowed, refused, success, error, pending
            status: Option<String>,
            /// The upstream.
            server: Option<String>,
            /// `upstream:tool`, or the tool's own name.
            tool: Option<String>,
            /// The declared operation: read, write, destructive.
            intent_type: Option<String>,
            session_id: Option<String>,
            /// As the log names it.
            request_id: Option<String>,
            principal: Option<String>,
            /// agent, host or human
            role: Option<String>,
            plan_id: Option<String>,
            /// The code of a refusal or a failed call.
            code: Option<String>,
            /// A text anywhere in the row. One page searches 10,000 rows: it may be short or empty, and its cursor continues.
            q: Option<String>,
            /// Inclusive.
            start_time: Option<String>,
            /// Exclusive.
            end_time: Option<String>,
            $($(#[$field_doc])* $field: $type,)+
        }

        impl $name {
            /// The filters that both queries have.
            fn row_filter(self) -> Result<LedgerFilter, Refusal> {
                let (of_tool, tool) = match self.tool.as_deref().map(|tool| tool.split_once(':').ok_or(tool)) {
                    Some(Ok((upstream, tool))) => (Some(upstream), Some(tool)),
                    Some(Err(tool)) => (None, Some(tool)),
                    None => (None, None),
                };
                Ok(LedgerFilter {
                    kind: word("type", self.r#type.as_deref())?,
                    status: word("status", self.status.as_deref())?,
                    server: self.server.as_deref().or(of_tool).map(Into::into),
                    tool: tool.map(Into::into),
                    intent_type: word("intent_type", self.intent_type.as_deref())?,
                    session_id: self.session_id.map(Into::into),
                    request_id: self.request_id.map(Into::into),
                    principal: self.principal.map(Into::into),
                    role: word("role", self.role.as_deref())?,
                    plan_id: self.plan_id.map(Into::into),
                    code: self.code,
                    q: self.q,
                    start_time: parse_time("start_time", self.start_time.as_deref())?,
                    end_time: parse_time("end_time", self.end_time.as_deref())?,
                    ..LedgerFilter::default()
                })
            }
        }
    };
}

activity_query! {
    /// Filters on rows; all that are given must match.
    #[schemars(rename = "ActivityQuery")]
    ActivityFilter {
        /// Default 50.
        #[serde(default, deserialize_with = "number")]
        #[schemars(with = "Option<u32>", range(min = 1, max = 1000))]
        limit: Option<u32>,
        /// `next_cursor` of the previous page.
        cursor: Option<String>,
    }
}

activity_query! {
    /// Format and filters of an export.
    ExportQuery {
        /// `jsonl` (default) or `csv`.
        format: Option<String>,
    }
}

/// The filters of the list, for the page's address.
pub(crate) fn filter_names() -> Vec<String> {
    let schema = schemars::schema_for!(ActivityFilter);
    let members = schema.get("properties").and_then(|members| members.as_object());
    let names = members.into_iter().flat_map(|members| members.keys());
    names.filter(|name| !["limit", "cursor"].contains(&name.as_str())).cloned().collect()
}

/// How many rows one page searches for a text, so that it answers in time.
const SEARCH_LIMIT: u32 = 10_000;

pub(super) fn parse_time(name: &str, text: Option<&str>) -> Result<Option<Timestamp>, Refusal> {
    let wrong = || invalid(name, "must be a moment such as 2026-11-15T22:00:00Z");
    text.map(|text| text.parse().map_err(|_| wrong())).transpose()
}

impl ActivityFilter {
    fn filter(mut self) -> Result<LedgerFilter, Refusal> {
        let cursor = match self.cursor.take().as_deref() {
            Some(text) => {
                Some(text.parse().map_err(|why| invalid("cursor", format_args!("is wrong: {why}")))?)
            }
            None => None,
        };
        let limit = Some(limit(self.limit, 50)?);
        Ok(LedgerFilter { limit, cursor, search_limit: Some(SEARCH_LIMIT), ..self.row_filter()? })
    }
}

/// A page of rows, newest first.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "ActivityList")]
pub(crate) struct ActivityPage {
    activities: Vec<Activity>,
    /// Null on the last page.
    next_cursor: Option<String>,
}

pub(crate) async fn list(
    State(web): Web,
    _: AuthenticatedPerson,
    QueryParams(wanted): QueryParams<ActivityFilter>,
) -> ApiResult<ActivityPage> {
    let page = web.gateway.store.activity(wanted.filter()?).await?;
    respond(ActivityPage {
        activities: page.rows.iter().map(views::activity).collect(),
        next_cursor: page.next_cursor.map(|cursor| cursor.to_string()),
    })
}

/// One row.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "ActivityAnswer")]
pub(crate) struct ActivityDetail {
    activity: Activity,
}

pub(crate) async fn one(
    State(web): Web,
    _: AuthenticatedPerson,
    PathName(id): PathName,
) -> ApiResult<ActivityDetail> {
    let row = web.gateway.store.activity_row(&LedgerId::new(id.to_ascii_uppercase())).await?;
    let row = row.ok_or_else(|| Refusal::new(Code::NotFound, "there is no such row"))?;
    respond(ActivityDetail { activity: views::activity(&row) })
}

/// The period of a summary.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SummaryQuery {
    /// Such as `24h` or `7d`; default `24h`.
    period: Option<String>,
}

/// A name and how many rows have it.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Count {
    name: String,
    count: u64,
}

/// Counts of the rows in a period.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Summary {
    period: String,
    start_time: String,
    end_time: String,
    total: u64,
    by_kind: Vec<Count>,
    by_status: Vec<Count>,
    /// Calls by declared operation.
    by_intent: Vec<Count>,
    by_server: Vec<Count>,
    by_tool: Vec<Count>,
    by_principal: Vec<Count>,
    by_code: Vec<Count>,
}

pub(crate) async fn summary(
    State(web): Web,
    _: AuthenticatedPerson,
    QueryParams(asked): QueryParams<SummaryQuery>,
) -> ApiResult<Summary> {
    let period = asked.period.unwrap_or_else(|| "24h".to_owned());
    let span = duration::parse(&period).map_err(|why| invalid("period", format_args!("is wrong: {why}")))?;
    let end = web.gateway.now();
    let start = end.checked_sub(span).unwrap_or(Timestamp::UNIX_EPOCH).max(Timestamp::UNIX_EPOCH);
    let found = web.gateway.store.summary(start, end).await?;
    let counts = |all: Vec<countersign_store::ledger::NamedCount>| {
        all.into_iter().map(|one| Count { name: one.name, count: one.count }).collect()
    };
    respond(Summary {
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

/// `GET /activity/export`: oldest first; a line of JSONL is the text that is hashed.
pub(crate) async fn export(
    State(web): Web,
    _: AuthenticatedPerson,
    QueryParams(asked): QueryParams<ExportQuery>,
) -> Result<Response, ApiError> {
    let (format, kind, name) = match asked.format.as_deref() {
        None | Some("jsonl") => {
            (Format::Jsonl, "application/jsonl", "attachment; filename=\"activity.jsonl\"")
        }
        Some("csv") => (Format::Csv, "text/csv; charset=utf-8", "attachment; filename=\"activity.csv\""),
        Some(_) => return Err(invalid("format", "must be jsonl or csv").into()),
    };
    let filter = asked.row_filter()?;
    let export = web.gateway.store.export(filter, format);
    let mut response = Response::new(Stream::from_stream(chunks(export)));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(header::CONTENT_DISPOSITION, HeaderValue::from_static(name));
    no_store(&mut response);
    Ok(response)
}

/// Streams the export. A fault cuts the body off, so that nobody takes a part for the whole.
fn chunks(export: LedgerExport) -> impl futures_util::Stream<Item = Result<Bytes, std::io::Error>> {
    futures_util::stream::unfold(Some(export), async |export| {
        let mut export = export?;
        match export.next().await {
            Ok(Some(piece)) => Some((Ok(Bytes::from(piece)), Some(export))),
            Ok(None) => None,
            Err(fault) => Some((Err(std::io::Error::other(fault.outside())), None)),
        }
    })
}
