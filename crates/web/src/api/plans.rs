//! Reads plans: the list, one plan with its history. Lists and resumes paused principals.

use axum::extract::State;
use countersign_gateway::state::GatewayState;
use countersign_policy::confirm::PlanState;
use countersign_policy::ids::{PlanId, PrincipalId};
use countersign_policy::refusal::{Code, Refusal};
use countersign_store::{LedgerFilter, PlanFilter, PlanRow};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::auth::AuthenticatedPerson;
use crate::request::{PathName, QueryParams, invalid, limit, number, word};
use crate::response::{ApiError, ApiResult, respond};
use crate::state::Web;
use crate::views::{self, Activity, PlanView, exact};

/// Filters on plans.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "PlanQuery")]
pub(crate) struct ListPlansQuery {
    /// pending, approved, rejected, cancelled, expired, executing, done, failed, outcome_unknown
    state: Option<String>,
    principal: Option<String>,
    /// Default 50.
    #[serde(default, deserialize_with = "number")]
    #[schemars(with = "Option<u32>", range(min = 1, max = 1000))]
    limit: Option<u32>,
    /// `next_cursor` of the previous page.
    cursor: Option<String>,
}

/// A page of plans, newest first.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "PlanList")]
pub(crate) struct PlanPage {
    plans: Vec<PlanView>,
    /// Null on the last page.
    next_cursor: Option<String>,
}

pub(crate) async fn list(
    State(web): Web,
    _: AuthenticatedPerson,
    QueryParams(wanted): QueryParams<ListPlansQuery>,
) -> ApiResult<PlanPage> {
    let state: Option<PlanState> = word("state", wanted.state.as_deref())?;
    let limit = limit(wanted.limit, 50)?;
    let cursor = wanted.cursor.as_deref().map(plan_id).transpose()?;
    if wanted.cursor.is_some() && cursor.is_none() {
        return Err(invalid("cursor", "is not one that a page gave out").into());
    }
    let filter = PlanFilter {
        state,
        principal: wanted.principal.map(PrincipalId::new),
        // One more than requested: it tells whether there is a next page.
        limit: Some((limit + 1).min(1000)),
        cursor,
    };
    let mut rows = web.gateway.plans(filter).await?;
    let most = usize::try_from(limit).unwrap_or(usize::MAX).min(999);
    let more = rows.len() > most;
    rows.truncate(most);
    let next_cursor = rows.last().filter(|_| more).map(|row| row.plan.id.to_string());
    let plans = rows.iter().map(|row| web.plan_view(row)).collect();
    respond(PlanPage { plans, next_cursor })
}

fn plan_id(text: &str) -> Result<PlanId, Refusal> {
    let is_id = text.starts_with("pln_")
        && text.len() <= 64
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    if is_id { Ok(PlanId::new(text)) } else { Err(invalid("cursor", "is not one that a page gave out")) }
}

/// The last approved plan about the same target by the same principal.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Previous {
    plan_id: String,
    /// With redacted values.
    arguments: Value,
    /// Who approved it.
    by: String,
    approved_at: String,
    state: String,
}

/// One plan in full.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "PlanWhole")]
pub(crate) struct PlanDetail {
    #[serde(flatten)]
    plan: PlanView,
    /// The last approved plan about the same target by the same principal, for comparison.
    previous_approval: Option<Previous>,
}

/// One plan and its history.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "PlanAnswer")]
pub(crate) struct PlanWithHistory {
    plan: PlanDetail,
    /// Its rows of the audit log, oldest first.
    story: Vec<Activity>,
}

pub(crate) async fn find(gateway: &GatewayState, id: &str) -> Result<PlanRow, ApiError> {
    let found = gateway.plan(&PlanId::new(id)).await?;
    found.ok_or_else(|| {
        let shown: String = id.chars().filter(|c| !c.is_control()).take(64).collect();
        Refusal::new(Code::PlanNotFound, format!("there is no plan `{shown}`")).into()
    })
}

pub(crate) async fn one(
    State(web): Web,
    _: AuthenticatedPerson,
    PathName(id): PathName,
) -> ApiResult<PlanWithHistory> {
    let row = find(&web.gateway, &id).await?;
    let (store, redactor, now) = (&web.gateway.store, &web.gateway.redactor, web.gateway.now());
    let previous = store.approved_before(&row.plan).await?.and_then(|before| {
        let approval = before.approval.clone()?;
        Some(Previous {
            plan_id: before.plan.id.to_string(),
            arguments: redactor.clean(before.plan.arguments.value(), &before.plan.redact),
            by: approval.by.to_string(),
            approved_at: exact(approval.at),
            state: views::plan_state(&before, now).to_string(),
        })
    });
    let filter =
        LedgerFilter { plan_id: Some(row.plan.id.clone()), limit: Some(500), ..LedgerFilter::default() };
    let mut story = store.activity(filter).await?.rows;
    story.reverse();
    let plan = PlanDetail { plan: web.plan_view(&row), previous_approval: previous };
    respond(PlanWithHistory { plan, story: story.iter().map(views::activity).collect() })
}

/// A principal whose writes are paused.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Pause {
    principal: String,
    since: String,
}

/// Every paused principal.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Pauses {
    pauses: Vec<Pause>,
}

pub(crate) async fn pauses(State(web): Web, _: AuthenticatedPerson) -> ApiResult<Pauses> {
    let all = web.gateway.store.all_paused().await?;
    let pauses = all.iter().map(|(who, since)| Pause { principal: who.to_string(), since: exact(*since) });
    respond(Pauses { pauses: pauses.collect() })
}

/// The resumed principal.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Resumed {
    principal: String,
    ledger_id: String,
}

pub(crate) async fn resume(
    State(web): Web,
    person: AuthenticatedPerson,
    PathName(principal): PathName,
) -> ApiResult<Resumed> {
    let who = PrincipalId::new(principal);
    let resumed = web.gateway.store.resume(&who, &person.name, web.gateway.now()).await?;
    let Some(ledger_id) = resumed else {
        let message = "the writes of that principal are not paused";
        return Err(Refusal::new(Code::NotFound, message).into());
    };
    respond(Resumed { principal: who.to_string(), ledger_id: ledger_id.to_string() })
}
