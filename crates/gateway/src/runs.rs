//! Commands in progress: those a call waits for, and background runs. A run has a row in the store, a log on disk, a place behind its lock,
//! and exactly one end. What may run was decided before; nothing is ever started twice.

mod lock;
mod log;
mod mask;
mod output;
mod process;
mod progress;
mod report;
mod stop;
mod sweep;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use countersign_policy::ids::{RunId, UpstreamId};
use countersign_store::{BackgroundRun, RecordedPermit, RunState, Store};
use jiff::Timestamp;
use tokio::sync::{Semaphore, SemaphorePermit, oneshot};
use tokio::time::Instant;

use self::lock::{CommandLockGuard, Locks};
use self::log::Log;
pub(crate) use self::mask::Mask;
pub(crate) use self::output::CapturedOutput;
use self::output::Output;
pub(crate) use self::process::{Launch, ProcessEnd};
use self::process::{Process, until};
pub(crate) use self::progress::ProgressReporter;
use self::report::RunReporter;
use self::stop::StopSignal;
pub(crate) use self::stop::{CommandGroup, Stopper};
use self::sweep::LogRetention;

/// Runs in progress; others are queued.
const RUNS_AT_ONCE: usize = 32;
/// Commands that calls wait for; further calls wait with their deadline running.
const CALLS_AT_ONCE: usize = 32;
/// Runs queued or in progress.
const MOST_RUNS: usize = 1_000;
const BETWEEN_LOOKS: Duration = Duration::from_millis(50);
const BETWEEN_SWEEPS: Duration = Duration::from_secs(60 * 60);

pub(crate) struct Job {
    pub(crate) launch: Launch,
    pub(crate) timeout: Option<Duration>,
    pub(crate) lock: Option<String>,
    pub(crate) ok_exit: Vec<i32>,
    /// How much of each stream is kept.
    pub(crate) limit: usize,
    pub(crate) mask: Arc<Mask>,
}

pub(crate) struct FinishedCommand {
    pub(crate) end: ProcessEnd,
    pub(crate) out: CapturedOutput,
    pub(crate) err: CapturedOutput,
    /// The log's name, if the streams were longer than what is kept.
    pub(crate) log: Option<String>,
}

#[derive(Debug)]
pub(crate) enum NotBegun {
    Closed,
    Full,
    Store(countersign_store::StoreFault),
}

pub struct BackgroundRuns {
    store: Store,
    folder: PathBuf,
    locks: Locks,
    calls: Semaphore,
    places: Semaphore,
    live: Mutex<HashMap<RunId, Stopper>>,
    crews: Mutex<HashMap<UpstreamId, Arc<CommandGroup>>>,
}

impl BackgroundRuns {
    pub fn new(store: Store, folder: PathBuf) -> Arc<Self> {
        Arc::new(Self {
            store,
            folder,
            locks: Locks::default(),
            calls: Semaphore::new(CALLS_AT_ONCE),
            places: Semaphore::new(RUNS_AT_ONCE),
            live: Mutex::default(),
            crews: Mutex::default(),
        })
    }

    /// Whether a run of this process is queued or in progress.
    pub fn is_live(&self, id: &RunId) -> bool {
        self.live().contains_key(id)
    }

    /// Stops a run of this process; false if there is none. It ends as `cancelled`.
    pub fn stop(&self, id: &RunId) -> bool {
        let live = self.live();
        live.get(id).map(Stopper::stop).is_some()
    }

    pub async fn ended(&self) {
        while !self.live().is_empty() {
            tokio::time::sleep(BETWEEN_LOOKS).await;
        }
    }

    /// Removes old logs now and every hour, for the lifetime of these runs.
    pub(crate) fn sweep_now_and_then(runs: &Arc<Self>) {
        let runs = Arc::downgrade(runs);
        tokio::spawn(async move {
            while let Some(here) = runs.upgrade() {
                let swept = tokio::task::spawn_blocking(move || here.sweep()).await;
                if let Ok(Err(error)) = swept {
                    tracing::warn!(%error, "old logs could not be removed");
                }
                tokio::time::sleep(BETWEEN_SWEEPS).await;
            }
        });
    }

    fn sweep(&self) -> std::io::Result<usize> {
        let live = |run: &str| self.live().contains_key(&RunId::new(run));
        sweep::sweep(&self.folder, LogRetention::USUAL, SystemTime::now(), &live)
    }

    /// The commands of an upstream, across configurations.
    pub(crate) fn command_group(&self, upstream: &UpstreamId) -> Arc<CommandGroup> {
        let mut crews = self.crews.lock().unwrap_or_else(PoisonError::into_inner);
        let command_group = crews.entry(upstream.clone()).or_insert_with(CommandGroup::new);
        if command_group.is_closed() {
            *command_group = CommandGroup::new();
        }
        Arc::clone(command_group)
    }

    /// Stops every command and waits for their end.
    pub async fn close(&self) {
        let crews: Vec<_> =
            self.crews.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect();
        for command_group in crews {
            command_group.close().await;
        }
    }

    fn live(&self) -> std::sync::MutexGuard<'_, HashMap<RunId, Stopper>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs a command to its end. Dropping the future stops the command and everything it started.
    pub(crate) async fn wait_for(
        self: &Arc<Self>,
        job: Job,
        command_group: &Arc<CommandGroup>,
        progress: Option<ProgressReporter>,
    ) -> Option<FinishedCommand> {
        let (stopper, mut stop) = command_group.join()?;
        let runs = Arc::clone(self);
        // A task of its own follows it to its end even if nobody waits any more.
        let run_command = tokio::spawn(async move {
            let deadline = job.timeout.map(|timeout| Instant::now() + timeout);
            let log = Log::buffered(&runs.folder, &mint(), job.limit);
            let mut output = Output::new(Arc::clone(&job.mask), job.limit, log, None).with_progress(progress);
            let end = runs.run_command(&job, &runs.calls, deadline, &mut stop, &mut output).await;
            let (out, err, log) = output.finish().await;
            FinishedCommand { end, out, err, log }
        });
        let done = run_command.await;
        drop(stopper);
        done.ok()
    }

    /// Starts a run and returns its id.
    pub(crate) async fn begin(
        self: &Arc<Self>,
        opened: &RecordedPermit,
        job: Job,
        command_group: &Arc<CommandGroup>,
    ) -> Result<RunId, NotBegun> {
        let (stopper, stop) = command_group.join().ok_or(NotBegun::Closed)?;
        let record = opened.permit().record();
        let run = BackgroundRun {
            id: mint(),
            principal: record.principal.clone(),
            session: record.session.clone(),
            tool: record.tool.to_string(),
            state: RunState::Queued,
            ledger_id: Some(opened.ledger_id().clone()),
            started: Timestamp::now(),
            ended: None,
            exit_code: None,
            log_tail: Vec::new(),
        };
        let id = run.id.clone();
        {
            let mut live = self.live();
            if live.len() >= MOST_RUNS {
                return Err(NotBegun::Full);
            }
            live.insert(id.clone(), stopper);
        }
        let (begun, recorded_end) = oneshot::channel();
        let runs = Arc::clone(self);
        // A task of its own from the first row on: a caller that leaves now must not leave a false row behind.
        tokio::spawn(async move {
            let id = run.id.clone();
            match runs.store.begin_run(&run).await {
                Ok(()) => {
                    if begun.send(Ok(())).is_err() {
                        runs.stop(&id);
                    }
                    runs.follow_run(run, job, stop).await;
                }
                Err(fault) => {
                    // The caller may have left.
                    let _ = begun.send(Err(NotBegun::Store(fault)));
                }
            }
            runs.live().remove(&id);
        });
        match recorded_end.await {
            Ok(Ok(())) => Ok(id),
            Ok(Err(not)) => Err(not),
            Err(_) => Err(NotBegun::Closed),
        }
    }

    async fn follow_run(&self, run: BackgroundRun, job: Job, mut stop: StopSignal) {
        let report = RunReporter::new(self.store.clone(), run.clone());
        let log = match Log::now(&self.folder, &run.id).await {
            Ok(log) => log,
            // A run without a log does not start.
            Err(error) => {
                let why = format!("not started: its log could not be opened: {error}");
                return report.ended(RunState::Failed, None, vec![why]).await;
            }
        };
        let going = RunReporter::new(self.store.clone(), run);
        let mut output = Output::new(Arc::clone(&job.mask), 0, log, Some(going));
        let end = self.run_command(&job, &self.places, None, &mut stop, &mut output).await;
        let (state, exit_code, note) = recorded_end(&end, &job);
        if let Some(note) = note {
            output.note(&note).await;
        }
        let tail = output.tail();
        output.finish().await;
        report.ended(state, exit_code, tail).await;
    }

    /// Waits for a place and the lock, starts the command and follows it. A run's time counts from its start, a call's from the call.
    async fn run_command(
        &self,
        job: &Job,
        places: &Semaphore,
        deadline: Option<Instant>,
        stop: &mut StopSignal,
        output: &mut Output,
    ) -> ProcessEnd {
        let wait_for_lock = tokio::select! {
            wait_for_lock = self.wait_for_lock(job, places) => wait_for_lock,
            () = stop.raised() => return ProcessEnd::Stopped,
            () = until(deadline) => return ProcessEnd::NoTurn,
        };
        let (_held, _place) = match wait_for_lock {
            Ok(wait_for_lock) => wait_for_lock,
            Err(why) => return ProcessEnd::NotStarted(why),
        };
        if stop.is_raised() {
            return ProcessEnd::Stopped;
        }
        // Written before the start: a run that is `queued` in its row has never begun.
        if !output.begins().await {
            return ProcessEnd::NotStarted("that it runs could not be recorded".to_owned());
        }
        let process = match Process::start(&job.launch) {
            Ok(process) => process,
            Err(error) => {
                let program = job.launch.program.to_string_lossy();
                return ProcessEnd::NotStarted(format!("`{program}` could not be started: {error}"));
            }
        };
        let deadline = deadline.or_else(|| job.timeout.map(|timeout| Instant::now() + timeout));
        process.follow(stop, deadline, output).await
    }

    /// The lock first: a command that waits for one must not occupy a place.
    async fn wait_for_lock<'p>(
        &self,
        job: &Job,
        places: &'p Semaphore,
    ) -> Result<(Option<CommandLockGuard>, SemaphorePermit<'p>), String> {
        let held = match &job.lock {
            Some(name) => {
                let taken = self.locks.take(&self.folder, name).await;
                Some(taken.map_err(|error| format!("the lock `{name}` could not be taken: {error}"))?)
            }
            None => None,
        };
        let place = places.acquire().await.map_err(|_| "the gateway is closed".to_owned())?;
        Ok((held, place))
    }
}

/// The recorded end of a run: its state, its exit code, and a line for its log.
fn recorded_end(end: &ProcessEnd, job: &Job) -> (RunState, Option<i64>, Option<String>) {
    match end {
        ProcessEnd::Exited(code) if job.ok_exit.contains(code) => {
            (RunState::Success, Some((*code).into()), None)
        }
        ProcessEnd::Exited(code) => (RunState::Failed, Some((*code).into()), None),
        ProcessEnd::Signalled(signal) => (RunState::Failed, None, Some(format!("ended by signal {signal}"))),
        ProcessEnd::TimedOut => {
            let limit = job.timeout.unwrap_or_default();
            (RunState::Failed, None, Some(format!("killed: it took longer than {limit:?}")))
        }
        ProcessEnd::Stopped => (RunState::Cancelled, None, Some("stopped".to_owned())),
        ProcessEnd::NotStarted(why) => (RunState::Failed, None, Some(format!("not started: {why}"))),
        ProcessEnd::NoTurn => {
            (RunState::Failed, None, Some("not started: its turn did not come in time".to_owned()))
        }
    }
}

fn mint() -> RunId {
    RunId::mint(Timestamp::now(), uuid::Uuid::new_v4().as_u128())
}
