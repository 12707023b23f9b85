//! Turns: a bound on what one line or principal has running, so that a flood waits here and not in the service.
//! It knows how many, never who or what.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};

/// How many requests may run and wait at once: those of a line, or all of a principal over HTTP.
#[derive(Debug)]
pub(crate) struct Turns {
    running: Arc<Semaphore>,
    waiting: AtomicUsize,
    most_waiting: usize,
    /// HTTP requests that are open, answers on their way included.
    open: AtomicUsize,
    /// Places for requests with a large body.
    large: Semaphore,
}

/// One open HTTP request; dropped when its answer is through.
#[derive(Debug)]
pub(crate) struct OpenRequest(Arc<Turns>);

impl Drop for OpenRequest {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Turns {
    /// Requests that may wait, as a multiple of those that may run.
    const QUEUE_FACTOR: usize = 16;
    /// Requests with a large body that are read and parsed at once.
    const LARGE: usize = 4;

    pub(crate) fn new(in_flight: usize) -> Arc<Self> {
        let in_flight = in_flight.clamp(1, Semaphore::MAX_PERMITS);
        Arc::new(Self {
            running: Arc::new(Semaphore::new(in_flight)),
            waiting: AtomicUsize::new(0),
            most_waiting: in_flight.saturating_mul(Self::QUEUE_FACTOR),
            open: AtomicUsize::new(0),
            large: Semaphore::new(Self::LARGE),
        })
    }

    /// Notes an HTTP request; `None` when so many are open already.
    pub(crate) fn open_request(self: Arc<Self>, most: usize) -> Option<OpenRequest> {
        if self.open.fetch_add(1, Ordering::AcqRel) >= most {
            self.open.fetch_sub(1, Ordering::AcqRel);
            return None;
        }
        Some(OpenRequest(self))
    }

    /// Waits for a place to read a large body in.
    pub(crate) async fn large_body(&self) -> Option<SemaphorePermit<'_>> {
        self.large.acquire().await.ok()
    }

    /// Waits for a turn; `None` when too many wait already.
    pub(crate) async fn take(&self) -> Option<OwnedSemaphorePermit> {
        if let Ok(permit) = self.running.clone().try_acquire_owned() {
            return Some(permit);
        }
        if self.waiting.fetch_add(1, Ordering::AcqRel) >= self.most_waiting {
            self.waiting.fetch_sub(1, Ordering::AcqRel);
            return None;
        }
        let permit = self.again().await;
        self.waiting.fetch_sub(1, Ordering::AcqRel);
        permit
    }

    /// Waits for the turn of a request that gave its own up for a while; it was admitted before.
    pub(crate) async fn again(&self) -> Option<OwnedSemaphorePermit> {
        self.running.clone().acquire_owned().await.ok()
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
