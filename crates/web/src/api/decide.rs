//! The routes that decide plans: approve, approve and run, reject, several at once, remove steps. `gateway::approval` decides;
//! this module reads requests and writes answers.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use countersign_gateway::approval::{ApprovalInput, PlanDecider, check_note, check_shown};
use countersign_gateway::run_approved;
use countersign_policy::confirm::{Approval, PlanState};
use countersign_policy::digest::Digest;
use countersign_policy::gate::without_steps;
use countersign_policy::ids::PlanId;
use countersign_policy::plan::Plan;
use countersign_policy::record::Source;
use countersign_policy::refusal::{Code, Refusal};
use countersign_store::{PauseOutcome, ShownPlan};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::grants::{GrantTermsBody, IssuedGrant};
use super::plans::find;
use crate::auth::AuthenticatedPerson;
use crate::request::{Body, PathName, invalid};
use crate::response::{ApiError, ApiResult, error_body, respond};
use crate::state::{Web, WebState};
use crate::views::PlanView;

/// How long "approve and run" waits for the outcome. The call continues after that.
const RUN_TIMEOUT: Duration = Duration::from_secs(20);
/// How often a plan that runs elsewhere is read.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
const MOST_DECISIONS: usize = 100;

/// An approval.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Approve")]
pub(crate) struct ApprovePlanBody {
    /// The typed name of the resource, if the plan asks for one.
    confirm_text: Option<String>,
    /// Recorded with the approval.
    note: Option<String>,
    /// Run the plan at once; the agent reads the result with `get_plan`.
    run: Option<bool>,
    /// Also approve later calls like this one.
    grant: Option<GrantTermsBody>,
    /// The hash of the plan that was shown: no other plan is approved.
    plan_hash: Option<String>,
    /// The expiry that was shown: the approval ends then, even if the plan was given more time.
    expires_at: Option<String>,
}

/// A rejection.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Reject")]
pub(crate) struct RejectPlanBody {
    /// The reason; the agent reads it.
    note: Option<String>,
    /// The hash of the plan that was shown: no other plan is rejected.
    plan_hash: Option<String>,
}

/// The approved plan.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Approved {
    plan_id: String,
    state: String,
    /// `upstream:tool`.
    tool: String,
    plan_hash: String,
    /// `{by, rail, strength, at}`
    #[schemars(with = "Value")]
    approval: Approval,
    ledger_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    grant: Option<IssuedGrant>,
    /// The plan after it ran, or while it is running.
    #[serde(skip_serializing_if = "Option::is_none")]
    plan: Option<PlanView>,
    /// Why it did not run.
    #[serde(skip_serializing_if = "Option::is_none")]
    run_error: Option<Value>,
}

/// The rejected plan.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Rejected {
    plan_id: String,
    state: String,
    /// `upstream:tool`.
    tool: String,
    by: String,
    /// Whether this rejection paused the principal's writes.
    paused: bool,
    ledger_id: String,
}

pub(crate) async fn approve(
    State(web): Web,
    person: AuthenticatedPerson,
    PathName(id): PathName,
    Body(body): Body<ApprovePlanBody>,
) -> ApiResult<Approved> {
    respond(approve_plan(&web, &person, &id, body).await?)
}

pub(crate) async fn reject(
    State(web): Web,
    person: AuthenticatedPerson,
    PathName(id): PathName,
    Body(body): Body<RejectPlanBody>,
) -> ApiResult<Rejected> {
    respond(reject_plan(&web, &person, &id, body).await?)
}

fn decider<'a>(web: &'a WebState, person: &'a AuthenticatedPerson) -> PlanDecider<'a> {
    PlanDecider { store: &web.gateway.store, channel: person.channel(), by: &person.name, program: None }
}

async fn approve_plan(
    web: &Arc<WebState>,
    person: &AuthenticatedPerson,
    id: &str,
    body: ApprovePlanBody,
) -> Result<Approved, ApiError> {
    check_note(body.note.as_deref())?;
    let row = find(&web.gateway, id).await?;
    let plan = &row.plan;
    if let Some(grant) = &body.grant {
        grant.check(plan)?;
    }
    let shown = read_shown(plan, body.plan_hash.as_deref(), body.expires_at.as_deref())?;
    let (typed, note) = (body.confirm_text.as_deref(), body.note.as_deref());
    let input = ApprovalInput { shown, typed, note };
    let decided = decider(web, person).approve_plan(&plan.id, input, web.gateway.now()).await?;
    let grant = match &body.grant {
        Some(grant) => Some(grant.create(web, plan, &person.name).await?),
        None => None,
    };
    let (mut ran, mut run_error) = (None, None);
    if body.run == Some(true) {
        let until = tokio::time::Instant::now() + RUN_TIMEOUT;
        let refused = run(web, plan).await;
        let mut now = find(&web.gateway, id).await?;
        // A call that waited for this decision may have run it first: wait for that outcome.
        while now.state == PlanState::Executing && tokio::time::Instant::now() < until {
            tokio::time::sleep(POLL_INTERVAL).await;
            now = find(&web.gateway, id).await?;
        }
        // A refusal counts only if nobody else ran the plan.
        run_error = refused.filter(|_| now.state == PlanState::Approved);
        ran = Some(now);
    }
    web.gateway.announce(plan.id.clone());
    let state = ran.as_ref().map_or("approved".to_owned(), |row| row.state.to_string());
    Ok(Approved {
        plan_id: plan.id.to_string(),
        state,
        tool: plan.tool.to_string(),
        plan_hash: decided.plan.hash.hex(),
        approval: decided.approval,
        ledger_id: decided.ledger_id.to_string(),
        grant,
        plan: ran.map(|row| web.plan_view(&row)),
        run_error,
    })
}

/// Runs the plan on a task of its own, so that closing the page does not cancel it. Returns the error, if it was refused in time.
async fn run(web: &Arc<WebState>, plan: &Plan) -> Option<Value> {
    let (gateway, plan) = (Arc::clone(&web.gateway), plan.clone());
    let work = tokio::spawn(async move { run_approved(&gateway, &plan, Source::Page).await });
    match tokio::time::timeout(RUN_TIMEOUT, work).await {
        Ok(Ok(Ok(answer))) => answer.error(),
        Ok(Ok(Err(refusal))) => Some(error_body(&refusal)),
        Ok(Err(_)) => Some(error_body(&Refusal::new(Code::UpstreamUnavailable, "the call was cut off"))),
        Err(_) => None,
    }
}

async fn reject_plan(
    web: &WebState,
    person: &AuthenticatedPerson,
    id: &str,
    body: RejectPlanBody,
) -> Result<Rejected, ApiError> {
    let note = body.note.as_deref();
    check_note(note)?;
    let row = find(&web.gateway, id).await?;
    let shown = body.plan_hash.as_deref().map(read_hash).transpose()?;
    let decided = decider(web, person).reject_plan(&row.plan.id, shown, note, web.gateway.now()).await?;
    web.gateway.announce(row.plan.id.clone());
    Ok(Rejected {
        plan_id: row.plan.id.to_string(),
        state: "rejected".to_owned(),
        tool: row.plan.tool.to_string(),
        by: person.name.to_string(),
        paused: decided.paused == PauseOutcome::Now,
        ledger_id: decided.ledger_id.to_string(),
    })
}

/// The plan as it was shown; members that the request leaves out are taken from the plan.
fn read_shown(plan: &Plan, hash: Option<&str>, expires: Option<&str>) -> Result<ShownPlan, Refusal> {
    let now = ShownPlan::from(plan);
    let hash = hash.map(read_hash).transpose()?.unwrap_or(now.hash);
    let Some(expires) = expires else { return Ok(ShownPlan { hash, ..now }) };
    let expires =
        expires.parse().map_err(|_| invalid("expires_at", "must be a time like 2026-01-31T12:00:00Z"))?;
    Ok(ShownPlan { hash, expires: now.expires.min(expires) })
}

fn read_hash(hash: &str) -> Result<Digest, Refusal> {
    hash.parse().map_err(|_| invalid("plan_hash", "must be 64 lower-case hexadecimal digits"))
}

/// One decision.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Decision {
    plan_id: String,
    decision: DecisionChoice,
    /// The typed name of the resource, if the plan asks for one.
    confirm_text: Option<String>,
    /// The agent reads the note of a rejection.
    note: Option<String>,
    /// Run the plan at once if it is approved.
    run: Option<bool>,
    /// The hash of the plan that was shown.
    plan_hash: Option<String>,
    /// The expiry that was shown.
    expires_at: Option<String>,
}

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "DecisionWord")]
pub(crate) enum DecisionChoice {
    Approve,
    Reject,
}

/// Decisions on several plans.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Decide")]
pub(crate) struct DecidePlansBody {
    /// At most 100.
    decisions: Vec<Decision>,
}

/// The result of one decision.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "DecideResult")]
pub(crate) struct DecidedOne {
    plan_id: String,
    success: bool,
    /// Set on success.
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<String>,
    /// Set on failure: `{code, message, details}`.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Value>,
}

/// The results, in the order of the request.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "DecideResults")]
pub(crate) struct PlanDecisionResults {
    results: Vec<DecidedOne>,
}

/// `POST /plans/decide`: decides each plan on its own; one failure does not stop the rest.
pub(crate) async fn decide_many(
    State(web): Web,
    person: AuthenticatedPerson,
    Body(body): Body<DecidePlansBody>,
) -> ApiResult<PlanDecisionResults> {
    if body.decisions.is_empty() || body.decisions.len() > MOST_DECISIONS {
        return Err(invalid("decisions", format_args!("must be a list of 1 to {MOST_DECISIONS}")).into());
    }
    let mut results = Vec::with_capacity(body.decisions.len());
    for one in body.decisions {
        let id = PlanId::new(one.plan_id);
        let decided = match one.decision {
            DecisionChoice::Approve => {
                let body = ApprovePlanBody {
                    confirm_text: one.confirm_text,
                    note: one.note,
                    run: one.run,
                    plan_hash: one.plan_hash,
                    expires_at: one.expires_at,
                    ..ApprovePlanBody::default()
                };
                approve_plan(&web, &person, id.as_str(), body).await.map(|approved| approved.state)
            }
            DecisionChoice::Reject => {
                let body = RejectPlanBody { note: one.note, plan_hash: one.plan_hash };
                reject_plan(&web, &person, id.as_str(), body).await.map(|rejected| rejected.state)
            }
        };
        let (state, why) = match decided {
            Ok(state) => (Some(state), None),
            Err(error) => (None, Some(error_body(error.refusal()))),
        };
        results.push(DecidedOne { plan_id: id.to_string(), success: why.is_none(), state, error: why });
    }
    respond(PlanDecisionResults { results })
}

/// Steps to remove.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "RemoveSteps")]
pub(crate) struct RemoveStepsBody {
    /// Numbers of steps, from 1.
    remove: Vec<usize>,
    /// The hash of the plan that was shown.
    plan_hash: Option<String>,
}

/// The plan without the removed steps.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "StepsRemoved")]
pub(crate) struct RemainingPlan {
    /// The same id, another hash.
    plan: PlanView,
}

/// `POST /plans/{id}/steps`: removes steps. People decide on the rest, and the agent's answer lists what was removed.
pub(crate) async fn steps(
    State(web): Web,
    person: AuthenticatedPerson,
    PathName(id): PathName,
    Body(body): Body<RemoveStepsBody>,
) -> ApiResult<RemainingPlan> {
    let row = find(&web.gateway, &id).await?;
    if let Some(hash) = &body.plan_hash {
        check_shown(&row.plan, read_hash(hash)?)?;
    }
    if row.plan.steps.is_empty() {
        return Err(invalid("remove", "needs a plan of several steps").into());
    }
    // Numbers start at 1; zero wraps to a step that does not exist.
    let removed: BTreeSet<usize> = body.remove.iter().map(|number| number.wrapping_sub(1)).collect();
    let rest = without_steps(&row.plan, &removed)?;
    let now = web.gateway.now();
    if !web.gateway.store.revise(row.plan.hash, &rest, &person.name, now).await? {
        let message = format!("`{}` was decided or changed meanwhile", row.plan.id);
        return Err(Refusal::new(Code::PlanDecided, message).because("plan_changed").into());
    }
    web.gateway.announce(row.plan.id.clone());
    let row = find(&web.gateway, &id).await?;
    respond(RemainingPlan { plan: web.plan_view(&row) })
}
