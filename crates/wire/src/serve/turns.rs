//! Turns: a bound on what one line or principal has running, so that a flood waits here and not in the service.
//! It knows how many, never who or what.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{Semaphore, SemaphorePermit};

/// How many requests may run and wait at once: those of a line, or all of a principal over HTTP.
#[derive(Debug)]
pub(crate) struct Turns {
    running: Semaphore,
    waiting: AtomicUsize,
    most_waiting: usize,
}

impl Turns {
    /// Requests that may wait, as a multiple of those that may run.
    const QUEUE_FACTOR: usize = 16;

    pub(crate) fn new(in_flight: usize) -> Arc<Self> {
        let in_flight = in_flight.clamp(1, Semaphore::MAX_PERMITS);
        Arc::new(Self {
            running: Semaphore::new(in_flight),
            waiting: AtomicUsize::new(0),
            most_waiting: in_flight.saturating_mul(Self::QUEUE_FACTOR),
        })
    }

    /// Waits for a turn; `None` when too many wait already.
    pub(crate) async fn take(&self) -> Option<SemaphorePermit<'_>> {
        if let Ok(permit) = self.running.try_acquire() {
            return Some(permit);
        }
        if self.waiting.fetch_add(1, Ordering::AcqRel) >= self.most_waiting {
            self.waiting.fetch_sub(1, Ordering::AcqRel);
            return None;
        }
        let permit = self.running.acquire().await.ok();
        self.waiting.fetch_sub(1, Ordering::AcqRel);
        permit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_flood_is_turned_away() {
        let turns = Turns::new(1);
        let first = turns.take().await;
        let mut waiting = tokio::task::JoinSet::new();
        for _ in 0..20 {
            let turns = turns.clone();
            waiting.spawn(async move { turns.take().await.is_some() });
        }
        // Four do not even find a place to wait; the others get their turn once the first ends.
        let mut turned_away = 0;
        while turned_away < 4 {
            turned_away += usize::from(!waiting.join_next().await.unwrap().unwrap());
        }
        drop(first);
        assert!(waiting.join_all().await.into_iter().all(|served| served));
    }
}
