//! Limits on sign-in: attempts per name and in total, rows in the audit log, and one password hash at a time. Treats known and
//! unknown names alike.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::http::{HeaderValue, header};
use countersign_policy::refusal::{Code, NextAction, Refusal};
use tokio::sync::Semaphore;

use crate::response::ApiError;

/// Attempts with one name in a window.
const MOST_PER_NAME: usize = 10;
/// Attempts with any name in a window.
const MOST_IN_TOTAL: usize = 60;
/// Rows for failed attempts in a window.
const MOST_ROWS: usize = 60;
const WINDOW: Duration = Duration::from_secs(60);
/// Requests that may wait for the running password hash; each hash takes tens of milliseconds and 19 MiB.
const MOST_WAITING: usize = 4;

#[derive(Debug, Default)]
struct SlidingWindow(VecDeque<Instant>);

impl SlidingWindow {
    /// Counts an event, unless the window already holds `most`.
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

    fn is_empty_by_now(&self) -> bool {
        self.0.back().is_none_or(|at| at.elapsed() >= WINDOW)
    }
}

#[derive(Debug, Default)]
struct SignInCounts {
    total: SlidingWindow,
    /// Bounded by `MOST_IN_TOTAL`: only names tried in the last two windows are kept.
    by_name: HashMap<String, SlidingWindow>,
    rows: SlidingWindow,
    unrecorded: u64,
}

/// A code or a credential can't be guessed; attempts with a pass phrase are limited.
#[derive(Debug)]
pub(crate) struct SignInLimits {
    counts: Mutex<SignInCounts>,
    /// One password hash at a time.
    hashing: Arc<Semaphore>,
    waiting: Arc<Semaphore>,
}

impl Default for SignInLimits {
    fn default() -> Self {
        Self {
            counts: Mutex::default(),
            hashing: Arc::new(Semaphore::new(1)),
            waiting: Arc::new(Semaphore::new(MOST_WAITING)),
        }
    }
}

fn too_many() -> ApiError {
    let message = "too many tries to sign in; wait a minute, or sign in with countersign open";
    let refusal = Refusal::new(Code::LimitExceeded, message).because("rate_limited");
    let refusal = refusal.next(&[NextAction::RetryLater]);
    ApiError::from(refusal).header(header::RETRY_AFTER, HeaderValue::from_static("60"))
}

impl SignInLimits {
    fn counts(&self) -> MutexGuard<'_, SignInCounts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts an attempt with a pass phrase; refuses it if there were too many.
    pub(crate) fn begin(&self, name: &str) -> Result<(), ApiError> {
        let mut counts = self.counts();
        counts.by_name.retain(|_, window| !window.is_empty_by_now());
        let is_known = counts.by_name.contains_key(name);
        // An unknown name takes memory only after it has passed the total limit.
        if is_known && !counts.by_name.entry(name.to_owned()).or_default().note(MOST_PER_NAME) {
            return Err(too_many());
        }
        if !counts.total.note(MOST_IN_TOTAL) {
            return Err(too_many());
        }
        if !is_known {
            counts.by_name.entry(name.to_owned()).or_default().note(MOST_PER_NAME);
        }
        Ok(())
    }

    /// Resets the count of a name after a successful sign-in.
    pub(crate) fn reset(&self, name: &str) {
        self.counts().by_name.remove(name);
    }

    /// Whether a failed attempt becomes a row: then, how many before it did not.
    pub(crate) fn admit_row(&self) -> Option<u64> {
        let mut counts = self.counts();
        if counts.rows.note(MOST_ROWS) {
            return Some(std::mem::take(&mut counts.unrecorded));
        }
        counts.unrecorded += 1;
        None
    }

    /// Runs a password hash in its turn; refuses it if too many wait. `None` if the hash panicked.
    pub(crate) async fn run_hash<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<Option<T>, ApiError> {
        let place = Arc::clone(&self.waiting).try_acquire_owned().map_err(|_| too_many())?;
        let Ok(turn) = Arc::clone(&self.hashing).acquire_owned().await else { return Ok(None) };
        // The permits move into the task: a client that hangs up must not let a second hash start beside this one.
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
        let attempts = SignInLimits::default();
        let allowed = (0..600).filter(|number| attempts.begin(&format!("name-{number}")).is_ok()).count();
        assert_eq!(allowed, MOST_IN_TOTAL);
        assert_eq!(attempts.counts().by_name.len(), MOST_IN_TOTAL, "what is remembered is bounded");
        assert!(attempts.begin("ada").is_err());
    }

    #[test]
    fn one_name_is_slowed_down_before_all_are() {
        let attempts = SignInLimits::default();
        let allowed = (0..20).filter(|_| attempts.begin("ada").is_ok()).count();
        assert_eq!(allowed, MOST_PER_NAME);
        assert!(attempts.begin("bob").is_ok());
        attempts.reset("ada");
        assert!(attempts.begin("ada").is_ok());
    }

    #[test]
    fn attack_06_failed_attempts_do_not_grow_the_ledger_without_end() {
        let attempts = SignInLimits::default();
        let rows = (0..1_000).filter(|_| attempts.admit_row().is_some()).count();
        assert_eq!(rows, MOST_ROWS);
        assert_eq!(attempts.counts().unrecorded, 1_000 - MOST_ROWS as u64);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn attack_06_one_password_hash_at_a_time_and_a_bounded_queue() {
        let attempts = Arc::new(SignInLimits::default());
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
                attempts.run_hash(work).await.is_ok()
            });
        }
        let served = all.join_all().await.into_iter().filter(|served| *served).count();
        assert_eq!(most.load(Ordering::SeqCst), 1);
        assert!((MOST_WAITING..100).contains(&served), "{served} of 100 were served, the others refused");
    }
}
