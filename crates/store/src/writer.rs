//! The writer thread: runs all queued jobs in one transaction and answers their callers after the commit. A job that fails is rolled back
//! alone. It does no reads for callers, except where the database has no reader connections.

mod chain;
mod queue;
#[cfg(test)]
mod tests;
mod tx;
mod write_job;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use countersign_policy::ids::{LedgerId, WriterId};

pub(crate) use chain::{LedgerChain, genesis};
pub(crate) use queue::{WriteQueue, WriteQueueReceiver, queue};
pub(crate) use tx::Tx;
pub(crate) use write_job::{WriteJob, WriteRetryPolicy, awaited_job, detached_job};

use queue::{WaitOutcome, WakeCondition};

use crate::engine::{ConnectionFactory, DatabaseConnection};
use crate::fault::{FailureScope, FaultKind, StoreFault};
use crate::ledger::{Checkpoint, CheckpointSink, Entry, SigningKey};
use crate::options::{CheckpointCadence, ReadRows};
use crate::seal::Seal;

/// How long rows of reads wait for others, so that they do not cost a sync each.
const READ_ROW_DELAY: Duration = Duration::from_millis(20);
/// The longest wait for callers that were answered together and may return together.
const MOST_BATCH_WAIT: Duration = Duration::from_millis(1);
/// The pause between retries of the backlog while the store fails.
const RETRY_PAUSE: Duration = Duration::from_millis(250);
/// The most jobs in the backlog.
const BACKLOG_LIMIT: usize = 10_000;
/// How often a transaction that lost against another is retried.
const MOST_RETRIES: u32 = 5;

/// A transaction that takes longer is logged at `debug`.
const SLOW: Duration = Duration::from_millis(100);

#[derive(Debug, Default)]
pub(crate) struct WriterHealth {
    failing: AtomicBool,
}

impl WriterHealth {
    pub(crate) fn is_failing(&self) -> bool {
        self.failing.load(Ordering::Acquire)
    }
}

pub(crate) struct StoreWriter {
    pub(crate) queue: WriteQueueReceiver,
    pub(crate) home: Arc<dyn ConnectionFactory>,
    pub(crate) engine: Option<Box<dyn DatabaseConnection>>,
    pub(crate) name: WriterId,
    pub(crate) instance: String,
    pub(crate) key: Option<Arc<SigningKey>>,
    pub(crate) seal: Arc<Seal>,
    pub(crate) sinks: Vec<Arc<dyn CheckpointSink>>,
    /// Whether the last checkpoint could not be kept outside: that is one row, not one every ten seconds.
    pub(crate) sink_fails: bool,
    pub(crate) cadence: CheckpointCadence,
    pub(crate) group: usize,
    pub(crate) reads: ReadRows,
    pub(crate) health: Arc<WriterHealth>,
    pub(crate) since: CheckpointAge,
    pub(crate) pace: BatchPace,
    pub(crate) backlog: VecDeque<Box<dyn WriteJob>>,
    pub(crate) ruined: Option<StoreFault>,
}

#[derive(Debug)]
pub(crate) struct CheckpointAge {
    pub(crate) rows: u32,
    pub(crate) when: Instant,
}

#[derive(Debug, Default)]
pub(crate) struct BatchPace {
    together: usize,
    wait: Duration,
}

/// The outcomes of a committed transaction's jobs: none for a job that would have had to wait for a lock. A fault means that everything
/// was rolled back.
type BatchResult = Result<Vec<Option<Result<(), StoreFault>>>, StoreFault>;

impl StoreWriter {
    /// Runs until the queue is closed and empty, then stores a last checkpoint.
    pub(crate) fn run(mut self) {
        loop {
            let batch = match self.queue.wait(WakeCondition::Any, self.idle_timeout()) {
                WaitOutcome::There => self.take_batch(),
                WaitOutcome::Late => Vec::new(),
                WaitOutcome::Closed => break,
            };
            self.process(batch);
        }
        self.process(Vec::new());
        if self.since.rows > 0 {
            self.store_checkpoint();
        }
        // A sink that failed has queued a row.
        self.process(Vec::new());
    }

    fn idle_timeout(&self) -> Duration {
        if !self.backlog.is_empty() {
            RETRY_PAUSE
        } else if self.since.rows > 0 {
            self.cadence.after.saturating_sub(self.since.when.elapsed()).max(Duration::from_millis(1))
        } else {
            Duration::from_secs(3600)
        }
    }

    /// Takes the next batch. Waits a little if more is likely to come: rows that no caller waits for can wait, and callers that were answered
    /// together tend to return together.
    fn take_batch(&self) -> Vec<Box<dyn WriteJob>> {
        let began = Instant::now();
        self.queue.wait(WakeCondition::UrgentOr(self.group), READ_ROW_DELAY);
        if self.queue.is_urgent() {
            let left = self.pace.wait.saturating_sub(began.elapsed());
            self.queue.wait(WakeCondition::Many(self.pace.together.min(self.group)), left);
        }
        self.queue.take(self.group)
    }

    fn process(&mut self, batch: Vec<Box<dyn WriteJob>>) {
        // Before the new batch: rows of the backlog record what happened earlier.
        let kept: Vec<Box<dyn WriteJob>> = self.backlog.drain(..).collect();
        if !kept.is_empty() {
            self.write_batch(kept);
        }
        if !batch.is_empty() {
            let (began, together) = (Instant::now(), batch.len());
            self.write_batch(batch);
            // A small part of a commit's time, so that waiting never costs more than it saves.
            self.pace = BatchPace { together, wait: (began.elapsed() / 8).min(MOST_BATCH_WAIT) };
        }
        if self.since.rows > 0 && self.since.when.elapsed() >= self.cadence.after {
            self.store_checkpoint();
        }
    }

    /// Writes a batch and answers its callers. If the batch fails as a whole, each job gets a transaction of its own.
    fn write_batch(&mut self, mut batch: Vec<Box<dyn WriteJob>>) {
        match self.transact(&mut batch) {
            Ok(outcomes) => {
                let (mut done, mut left) = (Vec::with_capacity(batch.len()), Vec::new());
                for (job, outcome) in batch.into_iter().zip(outcomes) {
                    match outcome {
                        Some(outcome) => done.push((job, outcome)),
                        None => left.push(job),
                    }
                }
                // Answer first: these are committed, and the rest may wait for a lock.
                self.answer(done.into_iter());
                self.run_one_by_one(left);
            }
            Err(fault) if batch.len() > 1 && may_succeed_alone(&fault) => {
                tracing::debug!(jobs = batch.len(), kind = ?fault.kind(), "batch failed, its jobs run one by one");
                self.run_one_by_one(batch)
            }
            Err(fault) => {
                let outcome = match fault.scope {
                    FailureScope::Conflict => self.retry_conflicts(&mut batch),
                    FailureScope::Statement
                    | FailureScope::Busy
                    | FailureScope::Transaction
                    | FailureScope::Connection
                    | FailureScope::Disk => Err(fault),
                };
                self.answer(batch.into_iter().map(|job| (job, outcome.clone())));
            }
        }
    }

    fn run_one_by_one(&mut self, jobs: Vec<Box<dyn WriteJob>>) {
        for job in jobs {
            let mut one = vec![job];
            let outcome = self.retry_conflicts(&mut one);
            self.answer(one.into_iter().map(|job| (job, outcome.clone())));
        }
    }

    /// One job, retried while it only loses against other writers.
    fn retry_conflicts(&mut self, one: &mut Vec<Box<dyn WriteJob>>) -> Result<(), StoreFault> {
        let mut tries = 0;
        loop {
            match self.transact(one) {
                Ok(outcomes) => {
                    return outcomes.into_iter().next().flatten().unwrap_or(Ok(()));
                }
                Err(fault) if fault.scope == FailureScope::Conflict && tries < MOST_RETRIES => {
                    tries += 1;
                    tracing::debug!(tries, "transaction lost against another writer, tried again");
                }
                Err(fault) => return Err(fault),
            }
        }
    }

    fn answer(&mut self, done: impl Iterator<Item = (Box<dyn WriteJob>, Result<(), StoreFault>)>) {
        for (mut job, outcome) in done {
            let is_kept = matches!(&outcome, Err(fault) if fault.is_transient())
                && job.retry_policy() == WriteRetryPolicy::UntilWritten;
            job.answer(outcome);
            // The caller has the error; the row is still written once the store is available again.
            if is_kept && self.backlog.len() < BACKLOG_LIMIT {
                self.backlog.push_back(job);
            }
        }
    }

    fn transact(&mut self, batch: &mut [Box<dyn WriteJob>]) -> BatchResult {
        let began = Instant::now();
        if let Some(fault) = &self.ruined {
            return Err(fault.clone());
        }
        let outcome = self.try_transact(batch);
        let took = began.elapsed();
        if took > SLOW {
            let millis = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
            tracing::debug!(millis, jobs = batch.len(), "slow transaction");
        }
        // Callers of reads look at this: while commits fail, they wait for their rows instead of running ahead of the disk.
        self.health.failing.store(outcome.is_err(), Ordering::Release);
        if let Err(fault) = &outcome {
            match fault.scope {
                FailureScope::Statement
                | FailureScope::Busy
                | FailureScope::Conflict
                | FailureScope::Transaction => {}
                // `begin` makes a new one; a broken connection may hold half a transaction.
                FailureScope::Connection => self.engine = None,
                FailureScope::Disk => {
                    tracing::error!("a sync to disk failed: this process writes nothing more");
                    // After a failed fsync the next one may report success although data is lost, so never retry.
                    self.engine = None;
                    self.ruined = Some(fault.clone());
                }
            }
        }
        outcome
    }

    fn try_transact(&mut self, batch: &mut [Box<dyn WriteJob>]) -> BatchResult {
        let mut engine = self.begin()?;
        let outcome = self.run_jobs(engine.as_mut(), batch);
        if outcome.is_err() {
            engine.rollback();
        }
        self.engine = Some(engine);
        outcome
    }

    /// A connection with a transaction begun. A connection that died while idle is made again, once.
    fn begin(&mut self) -> Result<Box<dyn DatabaseConnection>, StoreFault> {
        if let Some(mut engine) = self.engine.take() {
            match engine.begin(self.name.as_str()) {
                Ok(()) => return Ok(engine),
                Err(fault) if fault.scope == FailureScope::Connection => {}
                Err(fault) => {
                    engine.rollback();
                    self.engine = Some(engine);
                    return Err(fault);
                }
            }
        }
        tracing::debug!(writer = self.name.as_str(), "writer reconnects to the database");
        let mut engine = self.home.writer(&self.instance)?;
        engine.begin(self.name.as_str())?;
        Ok(engine)
    }

    fn run_jobs(
        &mut self,
        engine: &mut dyn DatabaseConnection,
        batch: &mut [Box<dyn WriteJob>],
    ) -> BatchResult {
        let mut chain = LedgerChain::load(engine, &self.name)?;
        let mut outcomes = Vec::with_capacity(batch.len());
        for (place, job) in batch.iter_mut().enumerate() {
            // A job may wait for a lock only while this transaction holds none: two writers that wait for each other would deadlock. So only
            // the first job waits; a later one that would have to is left out and gets a transaction of its own.
            if place == 1 {
                engine.shorten_lock_waits()?;
            }
            let mut tx = Tx::new(engine, &mut chain, &self.instance, &self.seal);
            let outcome = job.attempt(&mut tx);
            match tx.end(outcome) {
                // The savepoint is gone with the transaction, so no job of the batch can be kept.
                Err(fault) if fault.scope > FailureScope::Busy => return Err(fault),
                Err(fault) if fault.scope == FailureScope::Busy && place > 0 => outcomes.push(None),
                outcome => outcomes.push(Some(outcome)),
            }
        }
        self.commit_batch(engine, &mut chain)?;
        Ok(outcomes)
    }

    /// Writes the rows, a checkpoint where one is due, and commits.
    fn commit_batch(
        &mut self,
        engine: &mut dyn DatabaseConnection,
        chain: &mut LedgerChain,
    ) -> Result<(), StoreFault> {
        let rows = u32::try_from(chain.pending()).unwrap_or(u32::MAX);
        let last = chain.last_id();
        let due = self.since.rows.saturating_add(rows) >= self.cadence.rows
            || self.since.when.elapsed() >= self.cadence.after;
        // Rows are inserted at the end, in one round trip: a rolled-back job must not leave a gap in the chain.
        chain.flush(engine)?;
        let signed = match (&self.key, chain.latest_time()) {
            (Some(key), Some(at)) if due && rows > 0 => {
                Some(crate::ledger::keep(engine, key, &self.name, chain.heads(), at)?)
            }
            _ => None,
        };
        match engine.commit() {
            Ok(()) => {}
            // The connection broke during the commit: only the ledger can tell whether it succeeded.
            Err(fault) if fault.scope == FailureScope::Connection && self.has_committed(last.as_ref()) => {}
            Err(fault) => return Err(fault),
        }
        self.update_checkpoint_age(rows, signed.is_some());
        // Only after the commit: a checkpoint outside the store must never be ahead of it.
        if let Some(made) = signed {
            self.export_checkpoint(&made);
        }
        Ok(())
    }

    fn update_checkpoint_age(&mut self, rows: u32, signed: bool) {
        if signed {
            self.since = CheckpointAge { rows: 0, when: Instant::now() };
        } else if self.since.rows == 0 && rows > 0 {
            self.since = CheckpointAge { rows, when: Instant::now() };
        } else {
            self.since.rows = self.since.rows.saturating_add(rows);
        }
    }

    fn has_committed(&self, id: Option<&LedgerId>) -> bool {
        let Some(id) = id else { return false };
        let find_row = || {
            let mut engine = self.home.writer(&self.instance)?;
            engine.query("SELECT sequence FROM ledger WHERE id = $1", &crate::engine::cells![id.as_str()])
        };
        find_row().is_ok_and(|found: Vec<_>| !found.is_empty())
    }

    /// Stores a checkpoint in a transaction of its own, when rows have waited long enough for one.
    fn store_checkpoint(&mut self) {
        self.since.rows = 0;
        self.since.when = Instant::now();
        let Some(key) = self.key.clone() else { return };
        let name = self.name.clone();
        let made = Arc::new(Mutex::new(None));
        let slot = Arc::clone(&made);
        let work = move |tx: &mut Tx<'_>| {
            *slot.lock().unwrap_or_else(PoisonError::into_inner) = tx.checkpoint(&key, &name)?;
            Ok(())
        };
        // A failure is harmless: the next checkpoint covers these rows too.
        let outcome = self.transact(&mut [detached_job(None, WriteRetryPolicy::Not, work)]);
        let made = made.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let (Ok(_), Some(made)) = (outcome, made) {
            self.export_checkpoint(&made);
        }
    }

    /// Passes a committed checkpoint to the sinks. A failure becomes a row, once until it works again.
    fn export_checkpoint(&mut self, made: &Checkpoint) {
        let failed: Vec<String> = self.sinks.iter().filter_map(|sink| sink.keep(made).err()).collect();
        let is_new = !failed.is_empty() && !self.sink_fails;
        self.sink_fails = !failed.is_empty();
        if is_new && self.backlog.len() < BACKLOG_LIMIT {
            let (entry, now) = (Entry::not_kept_outside(&failed.join("; ")), made.time);
            let id = LedgerId::mint(now, crate::random::bits());
            self.backlog.push_back(detached_job(None, WriteRetryPolicy::UntilWritten, move |tx| {
                if !(tx.again && tx.has_row(&id)?) {
                    tx.append(&entry, id.clone(), now);
                }
                Ok(())
            }));
        }
    }
}

/// Whether jobs that failed together may succeed one by one.
fn may_succeed_alone(fault: &StoreFault) -> bool {
    match (fault.kind(), fault.scope) {
        (_, FailureScope::Disk | FailureScope::Connection) => false,
        // One job that is too large must not block the others.
        (FaultKind::Full, _) | (_, FailureScope::Statement | FailureScope::Conflict) => true,
        (_, FailureScope::Busy | FailureScope::Transaction) => false,
    }
}
