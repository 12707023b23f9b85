//! The one writer: a thread that takes everything that waits into one transaction and answers after the commit.
//! Each piece of work fails alone; nobody is told "written" before the disk was. It never reads for others.

mod chain;
mod deed;
mod queue;
#[cfg(test)]
mod tests;
mod tx;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use countersign_core::ids::{LedgerId, WriterId};

pub(crate) use chain::{Chain, genesis};
pub(crate) use deed::{Deed, Keep, ask, tell};
pub(crate) use queue::{Queue, Work, queue};
pub(crate) use tx::Tx;

use queue::{Waited, Wants};

use crate::engine::{Engine, Home};
use crate::fault::{FaultKind, Hurt, StoreFault};
use crate::ledger::{Checkpoint, CheckpointSink, Entry, SigningKey};
use crate::options::{Cadence, ReadRows};
use crate::seal::Seal;

/// Rows of reads wait this long for company, so that they do not cost a sync each.
const COMPANY: Duration = Duration::from_millis(20);
/// The longest a batch waits for callers that were answered together.
const LONGEST_WAIT: Duration = Duration::from_millis(1);
/// How often kept work is tried again while the store is broken.
const AGAIN: Duration = Duration::from_millis(250);
/// How much kept work is held while the store is broken.
const BACKLOG: usize = 10_000;
/// How often a transaction that lost against another is tried again.
const TRIES: u32 = 5;

/// Whether the last commit went well.
#[derive(Debug, Default)]
pub(crate) struct Health {
    failing: AtomicBool,
}

impl Health {
    pub(crate) fn is_failing(&self) -> bool {
        self.failing.load(Ordering::Acquire)
    }
}

/// What the writer thread owns.
pub(crate) struct Writer {
    pub(crate) queue: Work,
    pub(crate) home: Arc<dyn Home>,
    pub(crate) engine: Option<Box<dyn Engine>>,
    pub(crate) name: WriterId,
    pub(crate) instance: String,
    pub(crate) key: Option<Arc<SigningKey>>,
    pub(crate) seal: Arc<Seal>,
    pub(crate) sinks: Vec<Arc<dyn CheckpointSink>>,
    /// Whether the last checkpoint could not be kept outside: that is a row once, not every ten seconds.
    pub(crate) outside_fails: bool,
    pub(crate) cadence: Cadence,
    pub(crate) group: usize,
    pub(crate) reads: ReadRows,
    pub(crate) health: Arc<Health>,
    pub(crate) since: Since,
    pub(crate) pace: Pace,
    pub(crate) backlog: VecDeque<Box<dyn Deed>>,
    pub(crate) ruined: Option<StoreFault>,
}

/// What happened since the last checkpoint was kept.
#[derive(Debug)]
pub(crate) struct Since {
    pub(crate) rows: u32,
    pub(crate) when: Instant,
}

/// What the last batch was like.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    together: usize,
    wait: Duration,
}

/// What became of a transaction.
enum Ended {
    /// One outcome for each deed; none for one that would have had to wait for somebody else.
    Committed(Vec<Option<Result<(), StoreFault>>>),
    /// Nothing of it was kept.
    Lost(StoreFault),
}

impl Writer {
    /// Works until every sender is gone, then keeps a last checkpoint.
    pub(crate) fn run(mut self) {
        loop {
            let batch = match self.queue.wait(Wants::Any, self.nap()) {
                Waited::There => self.gather(),
                Waited::Late => Vec::new(),
                Waited::Closed => break,
            };
            self.work(batch);
        }
        self.work(Vec::new());
        if self.since.rows > 0 {
            self.keep_checkpoint();
        }
        // What could not be kept outside may be a row by now.
        self.work(Vec::new());
    }

    fn nap(&self) -> Duration {
        if !self.backlog.is_empty() {
            AGAIN
        } else if self.since.rows > 0 {
            self.cadence.after.saturating_sub(self.since.when.elapsed()).max(Duration::from_millis(1))
        } else {
            Duration::from_secs(3600)
        }
    }

    /// Takes what waits. Where more is about to come, waits a little for it: what may be written later waits for
    /// company, and callers that were answered together are likely to be back together.
    fn gather(&self) -> Vec<Box<dyn Deed>> {
        let began = Instant::now();
        self.queue.wait(Wants::UrgentOr(self.group), COMPANY);
        if self.queue.is_urgent() {
            let left = self.pace.wait.saturating_sub(began.elapsed());
            self.queue.wait(Wants::Many(self.pace.together.min(self.group)), left);
        }
        self.queue.take(self.group)
    }

    fn work(&mut self, batch: Vec<Box<dyn Deed>>) {
        let kept: Vec<Box<dyn Deed>> = self.backlog.drain(..).collect();
        if !kept.is_empty() {
            self.settle(kept);
        }
        if !batch.is_empty() {
            let (began, together) = (Instant::now(), batch.len());
            self.settle(batch);
            // A small part of what a commit costs, so that waiting never costs more than it saves.
            self.pace = Pace { together, wait: (began.elapsed() / 8).min(LONGEST_WAIT) };
        }
        if self.since.rows > 0 && self.since.when.elapsed() >= self.cadence.after {
            self.keep_checkpoint();
        }
    }

    /// Writes a batch and answers; where it is lost as a whole, each deed gets a transaction of its own.
    fn settle(&mut self, mut batch: Vec<Box<dyn Deed>>) {
        match self.transact(&mut batch) {
            Ended::Committed(outcomes) => {
                let (mut done, mut left) = (Vec::with_capacity(batch.len()), Vec::new());
                for (deed, outcome) in batch.into_iter().zip(outcomes) {
                    match outcome {
                        Some(outcome) => done.push((deed, outcome)),
                        None => left.push(deed),
                    }
                }
                self.answer(done.into_iter());
                self.one_by_one(left);
            }
            Ended::Lost(fault) if batch.len() > 1 && alone_may_pass(&fault) => self.one_by_one(batch),
            Ended::Lost(fault) => {
                let outcome = match fault.hurt {
                    Hurt::Conflict => self.stubborn(&mut batch),
                    Hurt::Statement | Hurt::Busy | Hurt::Transaction | Hurt::Connection | Hurt::Disk => {
                        Err(fault)
                    }
                };
                self.answer(batch.into_iter().map(|deed| (deed, outcome.clone())));
            }
        }
    }

    /// Each in a transaction of its own.
    fn one_by_one(&mut self, deeds: Vec<Box<dyn Deed>>) {
        for deed in deeds {
            let mut one = vec![deed];
            let outcome = self.stubborn(&mut one);
            self.answer(one.into_iter().map(|deed| (deed, outcome.clone())));
        }
    }

    /// One deed, tried again while it only loses against others.
    fn stubborn(&mut self, one: &mut Vec<Box<dyn Deed>>) -> Result<(), StoreFault> {
        let mut tries = 0;
        loop {
            match self.transact(one) {
                Ended::Committed(outcomes) => return outcomes.into_iter().next().flatten().unwrap_or(Ok(())),
                Ended::Lost(fault) if fault.hurt == Hurt::Conflict && tries < TRIES => tries += 1,
                Ended::Lost(fault) => return Err(fault),
            }
        }
    }

    fn answer(&mut self, ended: impl Iterator<Item = (Box<dyn Deed>, Result<(), StoreFault>)>) {
        for (mut deed, outcome) in ended {
            let wait =
                matches!(&outcome, Err(fault) if fault.may_pass()) && deed.keep() == Keep::UntilWritten;
            deed.answer(outcome);
            // Whoever waited has been told that it failed; what it was about is still written once that is possible.
            if wait && self.backlog.len() < BACKLOG {
                self.backlog.push_back(deed);
            }
        }
    }

    fn transact(&mut self, batch: &mut [Box<dyn Deed>]) -> Ended {
        let ended = match &self.ruined {
            Some(fault) => Ended::Lost(fault.clone()),
            None => self.try_transact(batch),
        };
        self.health.failing.store(matches!(ended, Ended::Lost(_)), Ordering::Release);
        if let Ended::Lost(fault) = &ended {
            match fault.hurt {
                Hurt::Statement | Hurt::Busy | Hurt::Conflict | Hurt::Transaction => {}
                Hurt::Connection => self.engine = None,
                Hurt::Disk => {
                    self.engine = None;
                    self.ruined = Some(fault.clone());
                }
            }
        }
        ended
    }

    fn try_transact(&mut self, batch: &mut [Box<dyn Deed>]) -> Ended {
        let mut engine = match self.begin() {
            Ok(engine) => engine,
            Err(fault) => return Ended::Lost(fault),
        };
        let ended = self.inside(engine.as_mut(), batch);
        if matches!(ended, Ended::Lost(_)) {
            engine.rollback();
        }
        self.engine = Some(engine);
        ended
    }

    /// A connection with a transaction begun. One that died while nobody used it is made again, once.
    fn begin(&mut self) -> Result<Box<dyn Engine>, StoreFault> {
        if let Some(mut engine) = self.engine.take() {
            match engine.begin(self.name.as_str()) {
                Ok(()) => return Ok(engine),
                Err(fault) if fault.hurt == Hurt::Connection => {}
                Err(fault) => {
                    engine.rollback();
                    self.engine = Some(engine);
                    return Err(fault);
                }
            }
        }
        let mut engine = self.home.writer(&self.instance)?;
        engine.begin(self.name.as_str())?;
        Ok(engine)
    }

    fn inside(&mut self, engine: &mut dyn Engine, batch: &mut [Box<dyn Deed>]) -> Ended {
        let mut chain = match Chain::load(engine, &self.name) {
            Ok(chain) => chain,
            Err(fault) => return Ended::Lost(fault),
        };
        let mut outcomes = Vec::with_capacity(batch.len());
        for (place, deed) in batch.iter_mut().enumerate() {
            // What the first deed holds, another writer may wait for while we wait for it: each would wait for the other. So
            // only the first waits; one that would have to is left out and gets a transaction of its own.
            if place == 1
                && let Err(fault) = engine.hurry()
            {
                return Ended::Lost(fault);
            }
            let mut tx = Tx::new(engine, &mut chain, &self.instance, &self.seal);
            let outcome = deed.attempt(&mut tx);
            match tx.end(outcome) {
                Err(fault) if fault.hurt > Hurt::Busy => return Ended::Lost(fault),
                Err(fault) if fault.hurt == Hurt::Busy && place > 0 => outcomes.push(None),
                outcome => outcomes.push(Some(outcome)),
            }
        }
        match self.finish(engine, &mut chain) {
            Ok(()) => Ended::Committed(outcomes),
            Err(fault) => Ended::Lost(fault),
        }
    }

    /// Writes the rows, a checkpoint where one is due, and commits.
    fn finish(&mut self, engine: &mut dyn Engine, chain: &mut Chain) -> Result<(), StoreFault> {
        let rows = u32::try_from(chain.pending()).unwrap_or(u32::MAX);
        let last = chain.last_id();
        let due = self.since.rows.saturating_add(rows) >= self.cadence.rows
            || self.since.when.elapsed() >= self.cadence.after;
        chain.flush(engine)?;
        let signed = match (&self.key, chain.high_water()) {
            (Some(key), Some(at)) if due && rows > 0 => {
                Some(crate::ledger::keep(engine, key, &self.name, chain.heads(), at)?)
            }
            _ => None,
        };
        match engine.commit() {
            Ok(()) => {}
            // The server went away in the middle: whether it committed is a question to the ledger.
            Err(fault) if fault.hurt == Hurt::Connection && self.is_there(last.as_ref()) => {}
            Err(fault) => return Err(fault),
        }
        self.count(rows, signed.is_some());
        if let Some(made) = signed {
            self.keep_outside(&made);
        }
        Ok(())
    }

    fn count(&mut self, rows: u32, signed: bool) {
        if signed {
            self.since = Since { rows: 0, when: Instant::now() };
        } else if self.since.rows == 0 && rows > 0 {
            self.since = Since { rows, when: Instant::now() };
        } else {
            self.since.rows = self.since.rows.saturating_add(rows);
        }
    }

    fn is_there(&self, id: Option<&LedgerId>) -> bool {
        let Some(id) = id else { return false };
        let look = || {
            let mut engine = self.home.writer(&self.instance)?;
            engine.query("SELECT sequence FROM ledger WHERE id = $1", &crate::engine::cells![id.as_str()])
        };
        look().is_ok_and(|found: Vec<_>| !found.is_empty())
    }

    /// A checkpoint in a transaction of its own, when rows have waited long enough for one.
    fn keep_checkpoint(&mut self) {
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
        // A failure is not lost: the rows are there, and the next ones bring a checkpoint over them too.
        let ended = self.transact(&mut [tell(None, Keep::Not, work)]);
        let made = made.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let (Ended::Committed(_), Some(made)) = (ended, made) {
            self.keep_outside(&made);
        }
    }

    /// Gives a committed checkpoint to whatever keeps them outside. Where that fails, a row says so, once until it works again.
    fn keep_outside(&mut self, made: &Checkpoint) {
        let failed: Vec<String> = self.sinks.iter().filter_map(|sink| sink.keep(made).err()).collect();
        let is_new = !failed.is_empty() && !self.outside_fails;
        self.outside_fails = !failed.is_empty();
        if is_new && self.backlog.len() < BACKLOG {
            let (entry, now) = (Entry::not_kept_outside(&failed.join("; ")), made.time);
            let id = LedgerId::mint(now, crate::chance::bits());
            self.backlog.push_back(tell(None, Keep::UntilWritten, move |tx| {
                if !(tx.again && tx.has_row(&id)?) {
                    tx.append(&entry, id.clone(), now);
                }
                Ok(())
            }));
        }
    }
}

/// Whether deeds that failed together may pass one by one.
fn alone_may_pass(fault: &StoreFault) -> bool {
    match (fault.kind(), fault.hurt) {
        (_, Hurt::Disk | Hurt::Connection) => false,
        // One deed that is too large must not keep the others out.
        (FaultKind::Full, _) | (_, Hurt::Statement | Hurt::Conflict) => true,
        (_, Hurt::Busy | Hurt::Transaction) => false,
    }
}
