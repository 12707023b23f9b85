//! Background runs: listed, read, stopped.

use axum::extract::State;
use countersign_policy::ids::RunId;
use countersign_policy::record::{RowKind, RowStatus};
use countersign_policy::refusal::{Code, Refusal};
use countersign_store::{BackgroundRun, Entry, RunState};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::auth::AuthenticatedPerson;
use crate::request::{PathName, QueryParams, limit, number};
use crate::response::{ApiError, ApiResult, respond};
use crate::state::{Web, WebState};
use crate::views::{self, RunView};

/// Limits the list.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "RunQuery")]
pub(crate) struct ListRunsQuery {
    /// Default 50.
    #[serde(default, deserialize_with = "number")]
    #[schemars(with = "Option<u32>", range(min = 1, max = 1000))]
    limit: Option<u32>,
}

/// The latest runs, newest first, without output.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct RunList {
    runs: Vec<RunView>,
}

pub(crate) async fn list(
    State(web): Web,
    _: AuthenticatedPerson,
    QueryParams(wanted): QueryParams<ListRunsQuery>,
) -> ApiResult<RunList> {
    let runs = web.gateway.store.runs(None, limit(wanted.limit, 50)?).await?;
    respond(RunList { runs: runs.iter().map(|run| views::run_view(run, 0)).collect() })
}

/// One run with its output.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "RunAnswer")]
pub(crate) struct RunDetail {
    run: RunView,
}

async fn find(web: &WebState, id: &RunId) -> Result<BackgroundRun, ApiError> {
    let run = web.gateway.store.run(id).await?;
    run.ok_or_else(|| Refusal::new(Code::NotFound, "there is no such run").into())
}

pub(crate) async fn one(
    State(web): Web,
    _: AuthenticatedPerson,
    PathName(id): PathName,
) -> ApiResult<RunDetail> {
    let run = find(&web, &RunId::new(id)).await?;
    respond(RunDetail { run: views::run_view(&run, usize::MAX) })
}

/// A run that is stopping.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "RunStopping")]
pub(crate) struct StoppingRun {
    run_id: String,
    /// Always true; read the run for its outcome.
    stopping: bool,
    ledger_id: String,
}

pub(crate) async fn stop(
    State(web): Web,
    person: AuthenticatedPerson,
    PathName(id): PathName,
) -> ApiResult<StoppingRun> {
    let id = RunId::new(id);
    let run = find(&web, &id).await?;
    let over = |message: String| ApiError::from(Refusal::new(Code::PlanDecided, message).because("run_over"));
    if !matches!(run.state, RunState::Queued | RunState::Running) {
        return Err(over(format!("`{id}` is over: {}", run.state.as_str())));
    }
    // Record no stop that this gateway can't carry out.
    let Some(runs) = web.gateway.runs().filter(|runs| runs.is_live(&id)) else {
        return Err(over(format!("`{id}` is not of this gateway, or has just ended")));
    };
    let mut entry = Entry::new(RowKind::Decision, RowStatus::Success)
        .with_fact("action", "stop_run")
        .with_fact("entity_type", "run")
        .with_fact("entity_id", id.as_str());
    entry.principal = Some(person.name.clone());
    entry.role = Some(person.credential.role.into());
    entry.source = Some(person.source());
    let ledger_id = web.gateway.store.append(entry, web.gateway.now()).await?;
    if !runs.stop(&id) {
        return Err(over(format!("`{id}` has just ended by itself")));
    }
    respond(StoppingRun { run_id: id.to_string(), stopping: true, ledger_id: ledger_id.to_string() })
}
