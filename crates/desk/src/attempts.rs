//! Attempts to sign in: how many there may be, of one name and of all, and one password hash at a time.
//! A known name and an unknown one are treated alike.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::http::{HeaderValue, header};
use countersign_core::refusal::{Code, NextAction, Refusal};
use tokio::sync::Semaphore;

use crate::told::No;

/// How many attempts with one name there may be in a window.
const OF_A_NAME: usize = 10;
/// How many with any name.
const OF_ALL: usize = 60;
/// How many failed attempts become rows in a window.
const ROWS: usize = 60;
const WINDOW: Duration = Duration::from_secs(60);
/// How many requests wait for the one password hash under way; each takes tens of milliseconds and 19 MiB.
const WAITING: usize = 4;

/// What happened lately, the oldest first.
#[derive(Debug, Default)]
struct Lately(VecDeque<Instant>);

impl Lately {
    /// Notes one more, unless there are so many already.
    fn note(&mut self, most: usize) -> bool {
        while self.0.front().is_some_and(|at| at.elapsed() >= WINDOW) {
            self.0.pop_front();
        }
        let has_room = self.0.len() < most;
        if has_room {
            self.0.push_back(Instant::now());
        }
        has_room
    }

    fn is_over(&self) -> bool {
        self.0.back().is_none_or(|at| at.elapsed() >= WINDOW)
    }
}

#[derive(Debug, Default)]
struct Counts {
    of_all: Lately,
    /// Bounded by `OF_ALL`: every name here was tried in this window or the one before.
    of_names: HashMap<String, Lately>,
    rows: Lately,
    unrecorded: u64,
}

/// Whether a failed attempt becomes a row.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Recorded {
    /// It does, and the row says how many before it did not.
    Row {
        /// How many.
        unrecorded: u64,
    },
    /// There are enough rows of this minute; it is counted.
    Counted,
}

/// Attempts to sign in. A code or a credential can't be guessed; a pass phrase is slowed down by this.
#[derive(Debug)]
pub(crate) struct Attempts {
    counts: Mutex<Counts>,
    /// One password hash at a time, whoever asks.
    hashing: Arc<Semaphore>,
    /// Places to wait for it.
    waiting: Arc<Semaphore>,
}

impl Default for Attempts {
    fn default() -> Self {
        Self {
            counts: Mutex::default(),
            hashing: Arc::new(Semaphore::new(1)),
            waiting: Arc::new(Semaphore::new(WAITING)),
        }
    }
}

fn too_many() -> No {
    let message = "too many tries to sign in; wait a minute, or sign in with countersign open";
    let refusal = Refusal::new(Code::LimitExceeded, message).because("rate_limited");
    let refusal = refusal.next(&[NextAction::RetryLater]);
    No::from(refusal).header(header::RETRY_AFTER, HeaderValue::from_static("60"))
}

impl Attempts {
    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes an attempt with a pass phrase; refused where there were too many.
    pub(crate) fn begin(&self, name: &str) -> Result<(), No> {
        let mut counts = self.counts();
        counts.of_names.retain(|_, lately| !lately.is_over());
        let is_known = counts.of_names.contains_key(name);
        // A name that is not known yet takes memory only once it has a place among all.
        if is_known && !counts.of_names.entry(name.to_owned()).or_default().note(OF_A_NAME) {
            return Err(too_many());
        }
        if !counts.of_all.note(OF_ALL) {
            return Err(too_many());
        }
        if !is_known {
            counts.of_names.entry(name.to_owned()).or_default().note(OF_A_NAME);
        }
        Ok(())
    }

    /// A person who got in may try again.
    pub(crate) fn forgive(&self, name: &str) {
        self.counts().of_names.remove(name);
    }

    /// Whether a failed attempt becomes a row.
    pub(crate) fn record(&self) -> Recorded {
        let mut counts = self.counts();
        if counts.rows.note(ROWS) {
            return Recorded::Row { unrecorded: std::mem::take(&mut counts.unrecorded) };
        }
        counts.unrecorded += 1;
        Recorded::Counted
    }

    /// Computes a password hash when it is its turn; refused where too many wait. `None` where it broke.
    pub(crate) async fn hashing<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<Option<T>, No> {
        let place = Arc::clone(&self.waiting).try_acquire_owned().map_err(|_| too_many())?;
        let Ok(turn) = Arc::clone(&self.hashing).acquire_owned().await else { return Ok(None) };
        // The turn goes with the work: a client that hangs up does not make room for another hash beside it.
        let done = tokio::task::spawn_blocking(move || {
            let _held = (place, turn);
            work()
        });
        Ok(done.await.ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn attack_06_names_nobody_has_share_one_rate_with_those_somebody_has() {
        let attempts = Attempts::default();
        let allowed = (0..600).filter(|number| attempts.begin(&format!("name-{number}")).is_ok()).count();
        assert_eq!(allowed, OF_ALL);
        assert_eq!(attempts.counts().of_names.len(), OF_ALL, "what is remembered is bounded");
        assert!(attempts.begin("ada").is_err());
    }

    #[test]
    fn one_name_is_slowed_down_before_all_are() {
        let attempts = Attempts::default();
        let allowed = (0..20).filter(|_| attempts.begin("ada").is_ok()).count();
        assert_eq!(allowed, OF_A_NAME);
        assert!(attempts.begin("bob").is_ok());
        attempts.forgive("ada");
        assert!(attempts.begin("ada").is_ok());
    }

    #[test]
    fn attack_06_failed_attempts_do_not_grow_the_ledger_without_end() {
        let attempts = Attempts::default();
        let rows = (0..1_000).filter(|_| attempts.record() != Recorded::Counted).count();
        assert_eq!(rows, ROWS);
        assert_eq!(attempts.counts().unrecorded, 1_000 - ROWS as u64);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn attack_06_one_password_hash_at_a_time_and_a_bounded_queue() {
        let attempts = Arc::new(Attempts::default());
        let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let mut all = tokio::task::JoinSet::new();
        for _ in 0..100 {
            let (attempts, running, most) = (attempts.clone(), running.clone(), most.clone());
            all.spawn(async move {
                let work = move || {
                    most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    std::thread::sleep(Duration::from_millis(5));
                    running.fetch_sub(1, Ordering::SeqCst);
                };
                attempts.hashing(work).await.is_ok()
            });
        }
        let served = all.join_all().await.into_iter().filter(|served| *served).count();
        assert_eq!(most.load(Ordering::SeqCst), 1);
        assert!(
            (WAITING..100).contains(&served),
            "{served} of 100 were served, the others told to come back"
        );
    }
}
