//! Runs: calls that go on in the background. Kept so that `get_run` can tell what became of one; a run whose process
//! is gone ends as `outcome_unknown`, never by being started again.

use countersign_core::ids::{LedgerId, PrincipalId, RunId, SessionId};
use jiff::Timestamp;

use crate::Store;
use crate::engine::{Found, cells, json_text};
use crate::fault::StoreFault;

/// Where a run stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RunState {
    /// Not begun.
    Queued,
    /// Under way.
    Running,
    /// It went well.
    Success,
    /// It went wrong.
    Failed,
    /// It was stopped.
    Cancelled,
    /// Nobody knows.
    OutcomeUnknown,
}

impl RunState {
    /// The exact spelling.
    pub const fn as_str(self) -> &'static str {
        match self {
            RunState::Queued => "queued",
            RunState::Running => "running",
            RunState::Success => "success",
            RunState::Failed => "failed",
            RunState::Cancelled => "cancelled",
            RunState::OutcomeUnknown => "outcome_unknown",
        }
    }
}

impl std::str::FromStr for RunState {
    type Err = StoreFault;
    fn from_str(text: &str) -> Result<Self, StoreFault> {
        match text {
            "queued" => Ok(RunState::Queued),
            "running" => Ok(RunState::Running),
            "success" => Ok(RunState::Success),
            "failed" => Ok(RunState::Failed),
            "cancelled" => Ok(RunState::Cancelled),
            "outcome_unknown" => Ok(RunState::OutcomeUnknown),
            _ => Err(StoreFault::corrupt("an unknown run state")),
        }
    }
}

/// A call in the background.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// Its id.
    pub id: RunId,
    /// Who asked for it.
    pub principal: PrincipalId,
    /// In which session.
    pub session: SessionId,
    /// Which tool, `upstream:tool`.
    pub tool: String,
    /// Where it stands.
    pub state: RunState,
    /// The row that let it out.
    pub ledger_id: Option<LedgerId>,
    /// When it began.
    pub started: Timestamp,
    /// When it ended.
    pub ended: Option<Timestamp>,
    /// What its program returned.
    pub exit_code: Option<i64>,
    /// The last lines it wrote, without secrets.
    pub log_tail: Vec<String>,
}

const COLUMNS: &str =
    "run_id, principal, session, tool, state, ledger_id, started, ended, exit_code, log_tail";

fn decode(mut found: Found) -> Result<Run, StoreFault> {
    Ok(Run {
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
    pub async fn begin_run(&self, run: &Run) -> Result<(), StoreFault> {
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

    /// Writes where a run stands now; a run that has ended stays as it ended, but for one whose end nobody knew.
    pub async fn update_run(&self, run: &Run) -> Result<(), StoreFault> {
        let values =
            cells![run.state.as_str(), run.ended, run.exit_code, json_text(&run.log_tail)?, run.id.as_str(),];
        self.write(move |tx| {
            tx.execute(
                "UPDATE runs SET state = $1, ended = $2, exit_code = $3, log_tail = $4
                  WHERE run_id = $5 AND state IN ('queued', 'running', 'outcome_unknown')",
                &values,
            )
            .map(drop)
        })
        .await
    }

    /// One run.
    pub async fn run(&self, id: &RunId) -> Result<Option<Run>, StoreFault> {
        let values = cells![id.as_str()];
        let sql = format!("SELECT {COLUMNS} FROM runs WHERE run_id = $1");
        self.read(move |view| view.one(&sql, &values)?.map(decode).transpose()).await
    }

    /// The latest runs, of one principal or of all, newest first.
    pub async fn runs(&self, principal: Option<&PrincipalId>, limit: u32) -> Result<Vec<Run>, StoreFault> {
        let limit = limit.clamp(1, 1000);
        let (condition, values) = match principal {
            Some(principal) => ("WHERE principal = $1", cells![principal.as_str()].to_vec()),
            None => ("", Vec::new()),
        };
        let sql = format!("SELECT {COLUMNS} FROM runs {condition} ORDER BY run_id DESC LIMIT {limit}");
        self.read(move |view| view.query(&sql, &values)?.into_iter().map(decode).collect()).await
    }
}
