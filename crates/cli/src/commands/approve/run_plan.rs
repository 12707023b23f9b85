//! `countersign approve --run`: runs an approved plan for the person at the terminal, with the upstreams it needs and no others. It is
//! the agent's own second call: the same checks apply, and a plan runs once.

use std::time::{Duration, Instant};

use countersign_gateway::run_approved;
use countersign_policy::confirm::PlanState;
use countersign_policy::ids::{PlanId, UpstreamId};
use countersign_policy::plan::Plan;
use countersign_policy::record::Source;
use countersign_policy::refusal::{Code, Refusal};
use countersign_store::{PlanRow, Store, StoreUrl};
use serde_json::Value;

use super::ApprovedAnswer;
use crate::cli::Cli;
use crate::command_result::{Answer, CommandError, CommandResult, FailedCall};
use crate::commands::plans::sheet;
use crate::local_gateway::ResolvedConfig;
use crate::output::{OutputSettings, paint, visible};
use crate::records;

/// How long a call that was held open may take to notice its approval: its gateway looks twice a second.
const NOTICE_PATIENCE: Duration = Duration::from_secs(5);
/// How long the outcome of a call that runs elsewhere is waited for.
const OUTCOME_PATIENCE: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Waits for the agent's own call to run the plan. The plan is still approved where that call is gone.
pub(super) async fn await_held_call(
    store: &Store,
    url: &StoreUrl,
    id: &PlanId,
) -> Result<PlanRow, CommandError> {
    let start = Instant::now();
    loop {
        let row = read(store, url, id).await?;
        let patience = match row.state {
            PlanState::Approved => NOTICE_PATIENCE,
            PlanState::Executing => OUTCOME_PATIENCE,
            PlanState::Pending
            | PlanState::Rejected
            | PlanState::Cancelled
            | PlanState::Expired
            | PlanState::Done
            | PlanState::Failed
            | PlanState::OutcomeUnknown => return Ok(row),
        };
        if start.elapsed() > patience {
            return Ok(row);
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

async fn read(store: &Store, url: &StoreUrl, id: &PlanId) -> Result<PlanRow, CommandError> {
    let found = store.plan(id).await.map_err(|fault| records::trouble(&fault, url))?;
    found.ok_or_else(|| {
        let refusal = Refusal::new(Code::PlanNotFound, format!("there is no plan `{id}` in `{url}`"));
        CommandError::refused(refusal, "countersign plans list --all")
    })
}

/// Runs the plan unless its own call did, and says what came of it.
pub(super) fn run(
    approved: ApprovedAnswer,
    url: &StoreUrl,
    cli: &Cli,
    voice: OutputSettings,
) -> CommandResult {
    let ApprovedAnswer { answer, row, .. } = approved;
    // The row of a plan that was just approved is the one that was shown, still pending.
    let has_run = !matches!(row.state, PlanState::Pending | PlanState::Approved);
    let (row, error) = if has_run { (row, None) } else { run_here(&row.plan, url, cli, voice)? };
    outcome(answer, &row, error)
}

fn run_here(
    plan: &Plan,
    url: &StoreUrl,
    cli: &Cli,
    voice: OutputSettings,
) -> Result<(PlanRow, Option<String>), CommandError> {
    let needed = upstreams(plan);
    let mut blueprint = ResolvedConfig::read(cli)?.only(|upstream| needed.contains(&upstream.id));
    blueprint.url = url.clone();
    blueprint.with_gateway(voice, async |gateway| {
        let error = match run_approved(&gateway, plan, Source::Cli).await {
            Ok(answer) => answer.error().as_ref().map(error_text),
            Err(refusal) => Some(format!("{} {}", refusal.code, refusal.message)),
        };
        Ok((read(&gateway.store, url, &plan.id).await?, error))
    })
}

/// The upstreams a plan calls.
fn upstreams(plan: &Plan) -> Vec<UpstreamId> {
    let of_steps = plan.steps.iter().map(|step| step.tool.upstream.clone());
    of_steps.chain([plan.tool.upstream.clone()]).collect()
}

fn error_text(error: &Value) -> String {
    let word = |name: &str| error.get(name).and_then(Value::as_str).unwrap_or_default();
    format!("{} {}", word("code"), word("message")).trim().to_owned()
}

fn outcome(mut answer: Answer, row: &PlanRow, error: Option<String>) -> CommandResult {
    let (state, tool) = (row.state, row.plan.tool.to_string());
    let result = row.result.as_deref().and_then(|text| serde_json::from_str::<Value>(text).ok());
    let shown = result.as_ref().map(sheet::result).unwrap_or_default();
    answer.text.push_str(&format!("{} {}\n{shown}", paint(sheet::state_style(state), state), visible(&tool)));
    answer = answer.with("state", state.as_str());
    if let Some(text) = &row.result {
        answer = answer.with_text("result", text);
    }
    let message = match (state, error) {
        (PlanState::Done | PlanState::Executing, _) => return Ok(answer),
        (PlanState::Approved, Some(why)) => format!("it is approved and did not run: {why}"),
        (_, Some(why)) => why,
        (_, None) => format!("`{}` is {state}", row.plan.id),
    };
    Err(CommandError::Failed(Box::new(FailedCall { answer, message })))
}
