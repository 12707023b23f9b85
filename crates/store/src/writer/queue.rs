//! The writer's queue. A push wakes the writer only if the writer waits for just that: rows that can be written later collect without a
//! wake-up, because waking a thread costs the caller more than the row itself.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::write_job::WriteJob;

/// The sending side of the writer's queue.
#[derive(Clone)]
pub(crate) struct WriteQueue {
    shared: Arc<QueueShared>,
}

/// The receiving side. Dropping it closes the queue.
pub(crate) struct WriteQueueReceiver {
    shared: Arc<QueueShared>,
}

#[derive(Default)]
struct QueueShared {
    state: Mutex<QueueState>,
    wake: Condvar,
}

#[derive(Default)]
struct QueueState {
    jobs: VecDeque<Box<dyn WriteJob>>,
    /// How many of them a caller waits for.
    urgent: usize,
    wants: WakeCondition,
    end: QueueStatus,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum QueueStatus {
    #[default]
    Open,
    /// Takes no more jobs; those in the queue are still done.
    Closed,
}

#[derive(Clone, Copy, Default)]
pub(crate) enum WakeCondition {
    #[default]
    Nothing,
    Any,
    /// A job that a caller waits for, or this many jobs.
    UrgentOr(usize),
    Many(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitOutcome {
    There,
    Late,
    Closed,
}

pub(crate) fn queue() -> (WriteQueue, WriteQueueReceiver) {
    let shared = Arc::new(QueueShared::default());
    (WriteQueue { shared: Arc::clone(&shared) }, WriteQueueReceiver { shared })
}

impl WriteQueue {
    /// Queues a job; false if the writer is gone or the queue is closed.
    #[must_use]
    pub(crate) fn push(&self, job: Box<dyn WriteJob>) -> bool {
        let mut state = self.shared.lock();
        if state.end == QueueStatus::Closed {
            return false;
        }
        state.urgent += usize::from(job.is_urgent());
        state.jobs.push_back(job);
        if state.meets(state.wants) {
            // One wake-up is enough: until the writer waits again, it needs no other.
            state.wants = WakeCondition::Nothing;
            drop(state);
            self.shared.wake.notify_one();
        }
        true
    }

    pub(crate) fn close(&self) {
        self.shared.close();
    }
}

impl WriteQueueReceiver {
    pub(crate) fn wait(&self, wants: WakeCondition, longest: Duration) -> WaitOutcome {
        let began = Instant::now();
        let mut state = self.shared.lock();
        loop {
            // A condition variable may wake without a reason: check again, for the time that is left.
            let left = longest.saturating_sub(began.elapsed());
            let waited = match state.meets(wants) {
                true => Some(WaitOutcome::There),
                false if state.end == QueueStatus::Closed => Some(WaitOutcome::Closed),
                false if left.is_zero() => Some(WaitOutcome::Late),
                false => None,
            };
            if let Some(waited) = waited {
                state.wants = WakeCondition::Nothing;
                return waited;
            }
            state.wants = wants;
            let woken = self.shared.wake.wait_timeout(state, left);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Whether a caller waits for a job in the queue.
    pub(crate) fn is_urgent(&self) -> bool {
        self.shared.lock().urgent > 0
    }

    /// Takes the oldest jobs, at most `most`.
    pub(crate) fn take(&self, most: usize) -> Vec<Box<dyn WriteJob>> {
        let mut state = self.shared.lock();
        let many = state.jobs.len().min(most);
        let taken: Vec<_> = state.jobs.drain(..many).collect();
        // A batch may be smaller than the queue, so count what was taken.
        state.urgent -= taken.iter().filter(|job| job.is_urgent()).count();
        taken
    }
}

impl Drop for WriteQueueReceiver {
    fn drop(&mut self) {
        self.shared.close();
        // Dropping a job closes its channel, which tells its caller.
        self.shared.lock().jobs.clear();
    }
}

impl QueueShared {
    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn close(&self) {
        self.lock().end = QueueStatus::Closed;
        self.wake.notify_all();
    }
}

impl QueueState {
    fn meets(&self, wants: WakeCondition) -> bool {
        match wants {
            WakeCondition::Nothing => false,
            WakeCondition::Any => !self.jobs.is_empty(),
            WakeCondition::UrgentOr(enough) => self.urgent > 0 || self.jobs.len() >= enough,
            WakeCondition::Many(enough) => self.jobs.len() >= enough,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::write_job::{WriteRetryPolicy, awaited_job, detached_job};
    use super::*;
    use tokio::sync::Semaphore;

    const LONG: Duration = Duration::from_secs(30);

    fn later() -> Box<dyn WriteJob> {
        detached_job(None, WriteRetryPolicy::Not, |_| Ok(()))
    }

    fn urgent() -> Box<dyn WriteJob> {
        let place = Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap();
        awaited_job(Instant::now(), place, WriteRetryPolicy::Not, |_| Ok(())).0
    }

    #[test]
    fn what_may_wait_wakes_nobody_until_it_is_enough() {
        let (queue, work) = queue();
        assert!(queue.push(later()));
        assert_eq!(work.wait(WakeCondition::Any, LONG), WaitOutcome::There);
        assert_eq!(work.wait(WakeCondition::UrgentOr(3), Duration::from_millis(1)), WaitOutcome::Late);
        assert!(!work.is_urgent());
        assert!(queue.push(later()) && queue.push(later()));
        assert_eq!(work.wait(WakeCondition::UrgentOr(3), LONG), WaitOutcome::There);
        assert_eq!(work.take(2).len(), 2);
        assert_eq!(work.take(9).len(), 1);
    }

    #[test]
    fn someone_who_waits_ends_the_gathering() {
        let (queue, work) = queue();
        let gathering = std::thread::spawn(move || {
            let waited = work.wait(WakeCondition::UrgentOr(512), LONG);
            (waited, work.is_urgent(), work.take(512).len(), work.is_urgent())
        });
        assert!(queue.push(later()) && queue.push(urgent()));
        assert_eq!(gathering.join().unwrap(), (WaitOutcome::There, true, 2, false));
    }

    #[test]
    fn what_was_handed_over_before_the_end_is_still_there() {
        let (queue, work) = queue();
        assert!(queue.push(later()));
        queue.close();
        assert!(!queue.push(later()), "nothing is taken after the end");
        assert_eq!(work.wait(WakeCondition::Any, LONG), WaitOutcome::There);
        assert_eq!(work.take(9).len(), 1);
        assert_eq!(work.wait(WakeCondition::Any, LONG), WaitOutcome::Closed);
    }

    #[test]
    fn a_writer_that_is_gone_takes_nothing() {
        let (queue, work) = queue();
        drop(work);
        assert!(!queue.push(later()));
    }
}
