//! Deciding on plans: approve, approve and run, reject, a burst at once. The store decides who was first; the law, whether the
//! name was typed to the letter; the gateway, whether it may still run.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use countersign_core::confirm::{Approval, Kind, PlanState, Rail, check_typed};
use countersign_core::digest::Digest;
use countersign_core::gate::without_steps;
use countersign_core::ids::PlanId;
use countersign_core::plan::Plan;
use countersign_core::record::{RowKind, RowStatus};
use countersign_core::refusal::{Code, Refusal};
use countersign_gateway::conduct::desk::run_approved;
use countersign_store::{Entry, Paused, PlanRow};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::grants::{Ahead, Given};
use super::plans::find;
use crate::access::Person;
use crate::asked::{Body, Named, invalid};
use crate::desk::Desk;
use crate::told::{No, Outcome, error, told};
use crate::views::{self, PlanView};

/// How long "approve and run" waits for the outcome; the call goes on whatever happens here.
const PATIENCE: Duration = Duration::from_secs(20);
/// How often a plan that another runs is looked at.
const LOOK: Duration = Duration::from_millis(50);
/// How many plans one burst decides at most.
const BURST: usize = 100;
/// The longest note.
const NOTE: usize = 4000;

/// What an approval brings along.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Approve")]
pub(crate) struct Agreed {
    /// The resource's name, to the letter, where it has to be typed.
    confirm_text: Option<String>,
    /// What to keep with the approval.
    note: Option<String>,
    /// Whether to run it from here; the agent finds the result with `get_plan`.
    run: Option<bool>,
    /// Approve later calls like this one, too.
    grant: Option<Ahead>,
    /// The hash of the plan that was looked at: another one is not approved.
    plan_hash: Option<String>,
}

/// What a rejection brings along.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Reject")]
pub(crate) struct Refusing {
    /// Why, for whoever asked: the agent is told.
    note: Option<String>,
}

/// A plan that was approved.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Approved {
    /// Its id.
    plan_id: String,
    /// Where it stands now.
    state: String,
    /// `upstream:tool`.
    tool: String,
    /// Its hash.
    plan_hash: String,
    /// The approval: by, rail, strength, at.
    #[schemars(with = "Value")]
    approval: Approval,
    /// The row.
    ledger_id: String,
    /// The grant that was given with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    grant: Option<Given>,
    /// The plan after it ran, or while it runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    plan: Option<PlanView>,
    /// Why it did not run, where it was to run.
    #[serde(skip_serializing_if = "Option::is_none")]
    run_error: Option<Value>,
}

/// A plan that was rejected.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Rejected {
    /// Its id.
    plan_id: String,
    /// Always `rejected`.
    state: String,
    /// `upstream:tool`.
    tool: String,
    /// Who said no.
    by: String,
    /// Whether it was one too many: the principal's writes are paused.
    paused: bool,
    /// The row.
    ledger_id: String,
}

/// `POST /plans/{id}/approve`
pub(crate) async fn approve(
    State(desk): State<Arc<Desk>>,
    person: Person,
    Named(id): Named,
    Body(agreed): Body<Agreed>,
) -> Outcome<Approved> {
    told(agree(&desk, &person, &id, agreed).await?)
}

/// `POST /plans/{id}/reject`
pub(crate) async fn reject(
    State(desk): State<Arc<Desk>>,
    person: Person,
    Named(id): Named,
    Body(refusing): Body<Refusing>,
) -> Outcome<Rejected> {
    told(refuse(&desk, &person, &id, refusing.note).await?)
}

async fn agree(desk: &Arc<Desk>, person: &Person, id: &str, agreed: Agreed) -> Result<Approved, No> {
    check_note(agreed.note.as_deref())?;
    let row = find(&desk.house, id).await?;
    let plan = &row.plan;
    if let Some(ahead) = &agreed.grant {
        ahead.check(plan)?;
    }
    check_shown(plan, agreed.plan_hash.as_deref())?;
    if plan.need.kind == Kind::Type
        && let Err(refusal) = check_typed(&plan.need, agreed.confirm_text.as_deref())
    {
        record_mistyped(desk, person, &row, &refusal).await?;
        return Err(refusal.into());
    }
    let now = desk.house.now();
    let mut approval = Approval::over(Rail::Page, person.name.clone(), now);
    approval.note.clone_from(&agreed.note);
    let (store, door) = (&desk.house.store, Some(person.source()));
    let decided = store.approve_shown(&plan.id, Some(plan.into()), approval.clone(), door, now).await?;
    let grant = match &agreed.grant {
        Some(ahead) => Some(ahead.give(desk, plan, &person.name).await?),
        None => None,
    };
    let (mut ran, mut run_error) = (None, None);
    if agreed.run == Some(true) {
        let until = tokio::time::Instant::now() + PATIENCE;
        let refused = run(desk, plan).await;
        let mut now = find(&desk.house, id).await?;
        // A call that waited for this decision may have been first: its outcome is the one that was asked for.
        while now.state == PlanState::Executing && tokio::time::Instant::now() < until {
            tokio::time::sleep(LOOK).await;
            now = find(&desk.house, id).await?;
        }
        // Whoever ran it, it ran; only what still waits was refused.
        run_error = refused.filter(|_| now.state == PlanState::Approved);
        ran = Some(now);
    }
    desk.house.announce(plan.id.clone());
    let state = ran.as_ref().map_or("approved".to_owned(), |row| row.state.to_string());
    Ok(Approved {
        plan_id: plan.id.to_string(),
        state,
        tool: plan.tool.to_string(),
        plan_hash: decided.plan.hash.hex(),
        approval,
        ledger_id: decided.ledger_id.to_string(),
        grant,
        plan: ran.map(|row| views::plan(&row, &desk.house.redactor, desk.house.now())),
        run_error,
    })
}

/// Runs it on a task of its own: whoever closes the page does not cut it off. Waits a while for the outcome; gives back why it
/// was refused, where it was.
async fn run(desk: &Arc<Desk>, plan: &Plan) -> Option<Value> {
    let (house, plan) = (Arc::clone(&desk.house), plan.clone());
    let work = tokio::spawn(async move { run_approved(&house, &plan).await });
    match tokio::time::timeout(PATIENCE, work).await {
        Ok(Ok(Ok(answer))) => answer.error(),
        Ok(Ok(Err(refusal))) => Some(error(&refusal)),
        Ok(Err(_)) => Some(error(&Refusal::new(Code::UpstreamUnavailable, "the call was cut off"))),
        Err(_) => None,
    }
}

async fn refuse(desk: &Desk, person: &Person, id: &str, note: Option<String>) -> Result<Rejected, No> {
    check_note(note.as_deref())?;
    let row = find(&desk.house, id).await?;
    let now = desk.house.now();
    let (by, door) = (person.name.clone(), Some(person.source()));
    let decided = desk.house.store.reject_from(&row.plan.id, by, Rail::Page, door, note, now).await?;
    desk.house.announce(row.plan.id.clone());
    Ok(Rejected {
        plan_id: row.plan.id.to_string(),
        state: "rejected".to_owned(),
        tool: row.plan.tool.to_string(),
        by: person.name.to_string(),
        paused: decided.paused == Paused::Now,
        ledger_id: decided.ledger_id.to_string(),
    })
}

pub(super) fn check_note(note: Option<&str>) -> Result<(), Refusal> {
    match note {
        Some(note) if note.chars().count() > NOTE => {
            Err(invalid("note", format_args!("is longer than {NOTE} characters")))
        }
        Some(_) | None => Ok(()),
    }
}

/// What is approved is what was looked at.
fn check_shown(plan: &Plan, hash: Option<&str>) -> Result<(), Refusal> {
    let Some(hash) = hash else { return Ok(()) };
    let looked_at: Digest =
        hash.parse().map_err(|_| invalid("plan_hash", "must be 64 lower-case hexadecimal digits"))?;
    if looked_at == plan.hash {
        return Ok(());
    }
    let message = format!("`{}` is not the plan that was looked at: it was changed since", plan.id);
    Err(Refusal::new(Code::PlanDecided, message).because("plan_changed").with("plan_hash", plan.hash.hex()))
}

/// A name typed wrong decides nothing, and is kept; what was typed is not.
async fn record_mistyped(desk: &Desk, person: &Person, row: &PlanRow, refusal: &Refusal) -> Result<(), No> {
    let mut entry = Entry::new(RowKind::Approval, RowStatus::Refused)
        .with_fact("action", "approve")
        .with_fact("entity_type", "plan")
        .with_fact("entity_id", row.plan.id.as_str());
    entry.principal = Some(person.name.clone());
    entry.role = Some(person.credential.role.into());
    entry.source = Some(person.source());
    entry.upstream = Some(row.plan.tool.upstream.clone());
    entry.tool = Some(row.plan.tool.tool.clone());
    entry.plan_id = Some(row.plan.id.clone());
    entry.plan_hash = Some(row.plan.hash);
    entry.code = Some(refusal.code.as_str().into());
    desk.house.store.append(entry, desk.house.now()).await?;
    Ok(())
}

/// What is to become of one plan of a burst.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Decision {
    /// Which plan.
    plan_id: String,
    /// `approve` or `reject`.
    decision: Answer,
    /// The resource's name, where it has to be typed.
    confirm_text: Option<String>,
    /// A note; the agent is told it with a rejection.
    note: Option<String>,
    /// The hash of the plan that was looked at.
    plan_hash: Option<String>,
}

/// Yes or no.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "DecisionWord")]
pub(crate) enum Answer {
    /// Yes.
    Approve,
    /// No.
    Reject,
}

/// A burst.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Decide")]
pub(crate) struct Burst {
    /// One decision for each plan, at most 100.
    decisions: Vec<Decision>,
}

/// What became of one of them.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "DecideResult")]
pub(crate) struct DecidedOne {
    /// Which plan.
    plan_id: String,
    /// Whether it was decided as asked.
    success: bool,
    /// Where it stands now, if it was.
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<String>,
    /// Why not, if it was not: code, message, details.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Value>,
}

/// What became of all of them.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "DecideResults")]
pub(crate) struct Results {
    /// In the order they were asked for.
    results: Vec<DecidedOne>,
}

/// `POST /plans/decide`: each decided for itself, as if it were alone.
pub(crate) async fn burst(
    State(desk): State<Arc<Desk>>,
    person: Person,
    Body(burst): Body<Burst>,
) -> Outcome<Results> {
    if burst.decisions.is_empty() || burst.decisions.len() > BURST {
        return Err(invalid("decisions", format_args!("must be a list of 1 to {BURST}")).into());
    }
    let mut results = Vec::with_capacity(burst.decisions.len());
    for one in burst.decisions {
        let id = PlanId::new(one.plan_id);
        let decided = match one.decision {
            Answer::Approve => {
                let agreed = Agreed {
                    confirm_text: one.confirm_text,
                    note: one.note,
                    plan_hash: one.plan_hash,
                    ..Agreed::default()
                };
                agree(&desk, &person, id.as_str(), agreed).await.map(|approved| approved.state)
            }
            Answer::Reject => {
                refuse(&desk, &person, id.as_str(), one.note).await.map(|rejected| rejected.state)
            }
        };
        let (state, why) = match decided {
            Ok(state) => (Some(state), None),
            Err(no) => (None, Some(error(no.refusal()))),
        };
        results.push(DecidedOne { plan_id: id.to_string(), success: why.is_none(), state, error: why });
    }
    told(Results { results })
}

/// Steps to take out.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "RemoveSteps")]
pub(crate) struct Taken {
    /// Which steps, counted from 1.
    remove: Vec<usize>,
    /// The hash of the plan that was looked at.
    plan_hash: Option<String>,
}

/// What is left of a plan.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "StepsRemoved")]
pub(crate) struct Left {
    /// The plan, under its id, with another hash.
    plan: PlanView,
}

/// `POST /plans/{id}/steps`: takes steps out of a plan of several; the rest is what is decided on, and the agent is told.
pub(crate) async fn steps(
    State(desk): State<Arc<Desk>>,
    person: Person,
    Named(id): Named,
    Body(taken): Body<Taken>,
) -> Outcome<Left> {
    let row = find(&desk.house, &id).await?;
    check_shown(&row.plan, taken.plan_hash.as_deref())?;
    if row.plan.steps.is_empty() {
        return Err(invalid("remove", "needs a plan of several steps").into());
    }
    // Counted from 1 outside; a zero is no step.
    let gone: BTreeSet<usize> = taken.remove.iter().map(|number| number.wrapping_sub(1)).collect();
    let left = without_steps(&row.plan, &gone)?;
    let now = desk.house.now();
    if !desk.house.store.revise(row.plan.hash, &left, &person.name, now).await? {
        let message = format!("`{}` was decided or changed meanwhile", row.plan.id);
        return Err(Refusal::new(Code::PlanDecided, message).because("plan_changed").into());
    }
    desk.house.announce(row.plan.id.clone());
    let row = find(&desk.house, &id).await?;
    told(Left { plan: views::plan(&row, &desk.house.redactor, now) })
}
