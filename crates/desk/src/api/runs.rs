//! Runs: what goes on in the background, and stopping it.

use std::sync::Arc;

use axum::extract::State;
use countersign_core::ids::RunId;
use countersign_core::record::{RowKind, RowStatus};
use countersign_core::refusal::{Code, Refusal};
use countersign_store::{Entry, Run, RunState};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::access::Person;
use crate::asked::{Named, Query, limit, number};
use crate::desk::Desk;
use crate::told::{No, Outcome, told};
use crate::views::{self, RunView};

/// Which runs are wanted.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "RunQuery")]
pub(crate) struct Wanted {
    /// How many, 1 to 1000; 50 if left out.
    #[serde(default, deserialize_with = "number")]
    #[schemars(with = "Option<u32>", range(min = 1, max = 1000))]
    limit: Option<u32>,
}

/// The latest runs, newest first.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "RunList")]
pub(crate) struct Runs {
    /// Them, without their lines.
    runs: Vec<RunView>,
}

/// `GET /runs`
pub(crate) async fn list(
    State(desk): State<Arc<Desk>>,
    _: Person,
    Query(wanted): Query<Wanted>,
) -> Outcome<Runs> {
    let runs = desk.house.store.runs(None, limit(wanted.limit, 50)?).await?;
    told(Runs { runs: runs.iter().map(|run| views::run_view(run, 0)).collect() })
}

/// One run.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "RunAnswer")]
pub(crate) struct One {
    /// The run with its last lines.
    run: RunView,
}

async fn find(desk: &Desk, id: &RunId) -> Result<Run, No> {
    let run = desk.house.store.run(id).await?;
    run.ok_or_else(|| Refusal::new(Code::NotFound, "there is no such run").into())
}

/// `GET /runs/{id}`
pub(crate) async fn one(State(desk): State<Arc<Desk>>, _: Person, Named(id): Named) -> Outcome<One> {
    let run = find(&desk, &RunId::new(id)).await?;
    told(One { run: views::run_view(&run, usize::MAX) })
}

/// A run that was told to stop.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "RunStopping")]
pub(crate) struct Stopping {
    /// Its id.
    run_id: String,
    /// Always true: how it ended is told by the run.
    stopping: bool,
    /// The row.
    ledger_id: String,
}

/// `POST /runs/{id}/stop`
pub(crate) async fn stop(
    State(desk): State<Arc<Desk>>,
    person: Person,
    Named(id): Named,
) -> Outcome<Stopping> {
    let id = RunId::new(id);
    let run = find(&desk, &id).await?;
    let over = |message: String| No::from(Refusal::new(Code::PlanDecided, message).because("run_over"));
    if !matches!(run.state, RunState::Queued | RunState::Running) {
        return Err(over(format!("`{id}` is over: {}", run.state.as_str())));
    }
    // Nothing is written of a stop that this gateway can't bring about.
    let Some(runs) = desk.house.runs().filter(|runs| runs.is_live(&id)) else {
        return Err(over(format!("`{id}` is not of this gateway, or has just ended")));
    };
    let mut entry = Entry::new(RowKind::Decision, RowStatus::Success)
        .with_fact("action", "stop_run")
        .with_fact("entity_type", "run")
        .with_fact("entity_id", id.as_str());
    entry.principal = Some(person.name.clone());
    entry.role = Some(person.credential.role.into());
    entry.source = Some(person.source());
    let ledger_id = desk.house.store.append(entry, desk.house.now()).await?;
    if !runs.stop(&id) {
        return Err(over(format!("`{id}` has just ended by itself")));
    }
    told(Stopping { run_id: id.to_string(), stopping: true, ledger_id: ledger_id.to_string() })
}
