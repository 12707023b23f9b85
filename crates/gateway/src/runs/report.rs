//! Keeps the row of a run current while it is in progress. A failed write is logged and stops no command.

use countersign_policy::record::{RowKind, RowStatus};
use countersign_store::{BackgroundRun, Entry, RunState, Store};
use jiff::Timestamp;
use serde_json::json;

pub(crate) struct RunReporter {
    store: Store,
    run: BackgroundRun,
}

impl RunReporter {
    pub(super) fn new(store: Store, run: BackgroundRun) -> Self {
        Self { store, run }
    }

    /// Records the state and the last lines; false if that failed.
    pub(super) async fn running(&mut self, tail: Vec<String>) -> bool {
        self.run.state = RunState::Running;
        self.run.log_tail = tail;
        self.write().await
    }

    /// Records the end in the run's row and in the ledger.
    pub(super) async fn ended(mut self, state: RunState, exit_code: Option<i64>, tail: Vec<String>) {
        let now = Timestamp::now();
        self.run.state = state;
        self.run.exit_code = exit_code;
        self.run.ended = Some(now);
        self.run.log_tail = tail;
        self.write().await;
        let status = if state == RunState::Success { RowStatus::Success } else { RowStatus::Error };
        let mut entry = Entry::new(RowKind::System, status);
        entry.principal = Some(self.run.principal.clone());
        entry.session = Some(self.run.session.clone());
        let detail = json!({
            "action": "run_ended",
            "entity_type": "run",
            "entity_id": self.run.id.as_str(),
            "tool": self.run.tool,
            "state": state.as_str(),
            "exit_code": exit_code,
            "opened": self.run.ledger_id.as_ref().map(|id| id.as_str()),
        });
        if let Err(fault) = self.store.append(entry.with_detail(&detail), now).await {
            tracing::error!(
                incident = fault.incident(),
                fault = fault.inside(),
                "a run's end could not be recorded"
            );
        }
    }

    async fn write(&self) -> bool {
        let written = self.store.update_run(&self.run).await;
        if let Err(fault) = &written {
            tracing::error!(
                incident = fault.incident(),
                fault = fault.inside(),
                run = self.run.id.as_str(),
                "where a run stands could not be recorded"
            );
        }
        written.is_ok()
    }
}
