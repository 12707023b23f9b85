//! Commands under way: those a call waits for, and runs that go on in the background. A run has a row in the store, a log on disk,
//! a turn behind its lock, and exactly one end. What may run was decided before; nothing here is ever started a second time.

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

use countersign_core::ids::{RunId, UpstreamId};
use countersign_store::{Opened, Run, RunState, Store};
use jiff::Timestamp;
use tokio::sync::{Semaphore, SemaphorePermit, oneshot};
use tokio::time::Instant;

use self::lock::{Held, Locks};
use self::log::Log;
pub(crate) use self::mask::Mask;
pub(crate) use self::output::Captured;
use self::output::Output;
pub(crate) use self::process::{End, Launch};
use self::process::{Process, until};
pub(crate) use self::progress::Progress;
use self::report::Report;
use self::stop::Stop;
pub(crate) use self::stop::{Crew, Stopper};
use self::sweep::Bounds;

/// How many runs are under way at a time; others are queued.
const RUNS_AT_ONCE: usize = 32;
/// How many commands are waited for at a time; other calls wait with their deadline running.
const CALLS_AT_ONCE: usize = 32;
/// How many runs may be queued or under way.
const MOST_RUNS: usize = 1_000;
/// How often it is looked whether runs have ended.
const BETWEEN_LOOKS: Duration = Duration::from_millis(50);
/// How often old logs are looked for.
const BETWEEN_SWEEPS: Duration = Duration::from_secs(60 * 60);

/// A command that may run.
pub(crate) struct Job {
    pub(crate) launch: Launch,
    pub(crate) timeout: Option<Duration>,
    pub(crate) lock: Option<String>,
    pub(crate) ok_exit: Vec<i32>,
    /// How much of each stream is kept.
    pub(crate) limit: usize,
    pub(crate) mask: Arc<Mask>,
}

/// What came of a command that was waited for.
pub(crate) struct Done {
    pub(crate) end: End,
    pub(crate) out: Captured,
    pub(crate) err: Captured,
    /// The log's name, where the streams were more than is kept.
    pub(crate) log: Option<String>,
}

/// Why a run did not begin.
#[derive(Debug)]
pub(crate) enum NotBegun {
    /// The upstream is closed.
    Closed,
    /// Too many are queued.
    Full,
    /// Its row could not be written.
    Store(countersign_store::StoreFault),
}

/// All commands of a house.
pub struct Runs {
    store: Store,
    folder: PathBuf,
    locks: Locks,
    calls: Semaphore,
    places: Semaphore,
    live: Mutex<HashMap<RunId, Stopper>>,
    crews: Mutex<HashMap<UpstreamId, Arc<Crew>>>,
}

impl Runs {
    /// Runs with their rows in this store and their logs in this folder.
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

    /// Whether a run is of this process, queued or under way.
    pub fn is_live(&self, id: &RunId) -> bool {
        self.live().contains_key(id)
    }

    /// Stops a run of this process, queued or under way; false if there is none. It ends as `cancelled`.
    pub fn stop(&self, id: &RunId) -> bool {
        let live = self.live();
        live.get(id).map(Stopper::stop).is_some()
    }

    /// Waits until no run of this process is queued or under way.
    pub async fn ended(&self) {
        while !self.live().is_empty() {
            tokio::time::sleep(BETWEEN_LOOKS).await;
        }
    }

    /// Removes old logs now and every hour, as long as these runs are there.
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
        sweep::sweep(&self.folder, Bounds::USUAL, SystemTime::now(), &live)
    }

    /// The commands of an upstream, whichever configuration they come from.
    pub(crate) fn crew(&self, upstream: &UpstreamId) -> Arc<Crew> {
        let mut crews = self.crews.lock().unwrap_or_else(PoisonError::into_inner);
        let crew = crews.entry(upstream.clone()).or_insert_with(Crew::new);
        if crew.is_closed() {
            *crew = Crew::new();
        }
        Arc::clone(crew)
    }

    /// Stops every command that is left, and returns when they have ended.
    pub async fn close(&self) {
        let crews: Vec<_> =
            self.crews.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect();
        for crew in crews {
            crew.close().await;
        }
    }

    fn live(&self) -> std::sync::MutexGuard<'_, HashMap<RunId, Stopper>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs a command to its end. Dropping the future stops the command and everything it started.
    pub(crate) async fn wait_for(
        self: &Arc<Self>,
        job: Job,
        crew: &Arc<Crew>,
        progress: Option<Progress>,
    ) -> Option<Done> {
        let (stopper, mut stop) = crew.join()?;
        let runs = Arc::clone(self);
        // On a task of its own, so that it is seen to its end even if nobody waits for it any more.
        let work = tokio::spawn(async move {
            let deadline = job.timeout.map(|timeout| Instant::now() + timeout);
            let log = Log::later(&runs.folder, &mint(), job.limit);
            let mut output = Output::new(Arc::clone(&job.mask), job.limit, log, None).with_progress(progress);
            let end = runs.work(&job, &runs.calls, deadline, &mut stop, &mut output).await;
            let (out, err, log) = output.finish().await;
            Done { end, out, err, log }
        });
        let done = work.await;
        drop(stopper);
        done.ok()
    }

    /// Begins a run and tells its id; it goes on by itself.
    pub(crate) async fn begin(
        self: &Arc<Self>,
        opened: &Opened,
        job: Job,
        crew: &Arc<Crew>,
    ) -> Result<RunId, NotBegun> {
        let (stopper, stop) = crew.join().ok_or(NotBegun::Closed)?;
        let record = opened.permit().record();
        let run = Run {
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
        let (begun, told) = oneshot::channel();
        let runs = Arc::clone(self);
        // On a task of its own from the first row on: a caller who leaves now must not leave a row behind that is never true.
        tokio::spawn(async move {
            let id = run.id.clone();
            match runs.store.begin_run(&run).await {
                Ok(()) => {
                    if begun.send(Ok(())).is_err() {
                        runs.stop(&id);
                    }
                    runs.see_through(run, job, stop).await;
                }
                Err(fault) => {
                    // Whoever left needs no reason.
                    let _ = begun.send(Err(NotBegun::Store(fault)));
                }
            }
            runs.live().remove(&id);
        });
        match told.await {
            Ok(Ok(())) => Ok(id),
            Ok(Err(not)) => Err(not),
            Err(_) => Err(NotBegun::Closed),
        }
    }

    /// A run from its queue to its end.
    async fn see_through(&self, run: Run, job: Job, mut stop: Stop) {
        let report = Report::new(self.store.clone(), run.clone());
        let log = match Log::now(&self.folder, &run.id).await {
            Ok(log) => log,
            // What leaves no trace does not run.
            Err(error) => {
                let why = format!("not started: its log could not be opened: {error}");
                return report.ended(RunState::Failed, None, vec![why]).await;
            }
        };
        let going = Report::new(self.store.clone(), run);
        let mut output = Output::new(Arc::clone(&job.mask), 0, log, Some(going));
        let end = self.work(&job, &self.places, None, &mut stop, &mut output).await;
        let (state, exit_code, note) = told(&end, &job);
        if let Some(note) = note {
            output.note(&note).await;
        }
        let tail = output.tail();
        output.finish().await;
        report.ended(state, exit_code, tail).await;
    }

    /// Waits for a place and the lock, starts the command and follows it. A run's time counts from its start, a call's from the call.
    async fn work(
        &self,
        job: &Job,
        places: &Semaphore,
        deadline: Option<Instant>,
        stop: &mut Stop,
        output: &mut Output,
    ) -> End {
        let turn = tokio::select! {
            turn = self.turn(job, places) => turn,
            () = stop.raised() => return End::Stopped,
            () = until(deadline) => return End::NoTurn,
        };
        let (_held, _place) = match turn {
            Ok(turn) => turn,
            Err(why) => return End::NotStarted(why),
        };
        if stop.is_raised() {
            return End::Stopped;
        }
        // Written before the start: a run that is still `queued` in its row has never begun.
        if !output.begins().await {
            return End::NotStarted("that it runs could not be recorded".to_owned());
        }
        let process = match Process::start(&job.launch) {
            Ok(process) => process,
            Err(error) => {
                let program = job.launch.program.to_string_lossy();
                return End::NotStarted(format!("`{program}` could not be started: {error}"));
            }
        };
        let deadline = deadline.or_else(|| job.timeout.map(|timeout| Instant::now() + timeout));
        process.follow(stop, deadline, output).await
    }

    /// The lock first: who waits for one takes no place away.
    async fn turn<'p>(
        &self,
        job: &Job,
        places: &'p Semaphore,
    ) -> Result<(Option<Held>, SemaphorePermit<'p>), String> {
        let held = match &job.lock {
            Some(name) => {
                let taken = self.locks.take(&self.folder, name).await;
                Some(taken.map_err(|error| format!("the lock `{name}` could not be taken: {error}"))?)
            }
            None => None,
        };
        let place = places.acquire().await.map_err(|_| "the house is closed".to_owned())?;
        Ok((held, place))
    }
}

/// How a run's end is recorded: its state, what its program returned, and a line for its log.
fn told(end: &End, job: &Job) -> (RunState, Option<i64>, Option<String>) {
    match end {
        End::Exited(code) if job.ok_exit.contains(code) => (RunState::Success, Some((*code).into()), None),
        End::Exited(code) => (RunState::Failed, Some((*code).into()), None),
        End::Signalled(signal) => (RunState::Failed, None, Some(format!("ended by signal {signal}"))),
        End::TimedOut => {
            let limit = job.timeout.unwrap_or_default();
            (RunState::Failed, None, Some(format!("killed: it took longer than {limit:?}")))
        }
        End::Stopped => (RunState::Cancelled, None, Some("stopped".to_owned())),
        End::NotStarted(why) => (RunState::Failed, None, Some(format!("not started: {why}"))),
        End::NoTurn => {
            (RunState::Failed, None, Some("not started: its turn did not come in time".to_owned()))
        }
    }
}

fn mint() -> RunId {
    RunId::mint(Timestamp::now(), uuid::Uuid::new_v4().as_u128())
}
