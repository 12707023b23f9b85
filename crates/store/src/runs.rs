//! Background runs, stored for `get_run`. A run whose process is gone ends as `outcome_unknown` and is never started again.

use countersign_policy::ids::{LedgerId, PrincipalId, RunId, SessionId};
use jiff::Timestamp;

use crate::Store;
use crate::engine::{FoundRow, cells, json_text};
use crate::fault::StoreFault;

countersign_policy::closed_vocabulary! {
    pub enum RunState("run state") {
        Queued = "queued",
        Running = "running",
        Success = "success",
        Failed = "failed",
        Cancelled = "cancelled",
        OutcomeUnknown = "outcome_unknown",
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackgroundRun {
    pub id: RunId,
    pub principal: PrincipalId,
    pub session: SessionId,
    pub tool: String,
    pub state: RunState,
    pub ledger_id: Option<LedgerId>,
    pub started: Timestamp,
    pub ended: Option<Timestamp>,
    pub exit_code: Option<i64>,
    pub log_tail: Vec<String>,
}

const COLUMNS: &str =
    "run_id, principal, session, tool, state, ledger_id, started, ended, exit_code, log_tail";

fn decode(mut found: FoundRow) -> Result<BackgroundRun, StoreFault> {
    Ok(BackgroundRun {
        id: found.text()?.into(),
        principal: found.text()?.into(),
        session: found.text()?.into(),
        tool: found.text()?,
        state: found.word()?,
        ledger_id: found.maybe_text()?.map(Into::into),
        started: found.time()?,
        ended: found.maybe_time()?,
        exit_code: found.maybe_int()?,
        log_tail: found.json()?,
    })
}

impl Store {
    /// Keeps a new run, as one of this process.
    pub async fn begin_run(&self, run: &BackgroundRun) -> Result<(), StoreFault> {
        let (run, log) = (run.clone(), json_text(&run.log_tail)?);
        self.write(move |tx| {
            let values = cells![
                run.id.as_str(),
                run.principal.as_str(),
                run.session.as_str(),
                run.tool.as_str(),
                run.state.as_str(),
                tx.instance,
                run.ledger_id.as_ref().map(LedgerId::as_str),
                run.started,
                log.as_str(),
            ];
            tx.execute(
                "INSERT INTO runs (run_id, principal, session, tool, state, instance, ledger_id, started, log_tail)
                 VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)",
                &values,
            )
            .map(drop)
        })
        .await
    }

    /// Updates a run. A run that has ended stays as it ended, unless its outcome was unknown.
    pub async fn update_run(&self, run: &BackgroundRun) -> Result<(), StoreFault> {
        let sql = "UPDATE runs SET state = $1, ended = $2, exit_code = $3, log_tail = $4
                    WHERE run_id = $5 AND state IN ('queued', 'running', 'outcome_unknown')";
        let log = json_text(&run.log_tail)?;
        self.execute(sql, cells![run.state.as_str(), run.ended, run.exit_code, log, run.id.as_str()])
            .await
            .map(drop)
    }

    pub async fn run(&self, id: &RunId) -> Result<Option<BackgroundRun>, StoreFault> {
        let values = cells![id.as_str()];
        let sql = format!("SELECT {COLUMNS} FROM runs WHERE run_id = $1");
        self.read(move |view| view.one(&sql, &values)?.map(decode).transpose()).await
    }

    /// The latest runs, of one principal or of all, newest first.
    pub async fn runs(
        &self,
        principal: Option<&PrincipalId>,
        limit: u32,
    ) -> Result<Vec<BackgroundRun>, StoreFault> {
        let limit = limit.clamp(1, 1000);
        let (condition, values) = match principal {
            Some(principal) => ("WHERE principal = $1", cells![principal.as_str()].to_vec()),
            None => ("", Vec::new()),
        };
        let sql = format!("SELECT {COLUMNS} FROM runs {condition} ORDER BY run_id DESC LIMIT {limit}");
        self.read(move |view| view.query(&sql, &values)?.into_iter().map(decode).collect()).await
    }
}
