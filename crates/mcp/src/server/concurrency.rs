//! Limits how many requests of one client or principal run at once, so that a flood waits here and not in the service.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};

/// The limits of one stdio client, or of all requests of an HTTP principal.
#[derive(Debug)]
pub(crate) struct ConcurrencyLimiter {
    running: Arc<Semaphore>,
    waiting: AtomicUsize,
    most_waiting: usize,
    /// Open HTTP requests, including responses being sent.
    open: AtomicUsize,
    large: Semaphore,
}

/// One open HTTP request; dropped when its response is sent.
#[derive(Debug)]
pub(crate) struct OpenRequest(Arc<ConcurrencyLimiter>);

impl Drop for OpenRequest {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::AcqRel);
    }
}

impl ConcurrencyLimiter {
    /// Requests that may wait, as a multiple of those that may run.
    const QUEUE_FACTOR: usize = 16;
    /// Requests with a large body that are parsed at once.
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

    /// Counts an HTTP request; `None` when too many are open.
    pub(crate) fn open_request(self: Arc<Self>, most: usize) -> Option<OpenRequest> {
        // Added before it is compared: two requests at the limit must not both pass.
        if self.open.fetch_add(1, Ordering::AcqRel) >= most {
            self.open.fetch_sub(1, Ordering::AcqRel);
            return None;
        }
        Some(OpenRequest(self))
    }

    pub(crate) async fn large_body(&self) -> Option<SemaphorePermit<'_>> {
        self.large.acquire().await.ok()
    }

    /// Waits for a slot; `None` when too many wait already.
    pub(crate) async fn take(&self) -> Option<OwnedSemaphorePermit> {
        // The usual case takes no place in the queue.
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

    /// Waits for the slot of a request that released its own; it was admitted before, so the queue limit does not apply.
    pub(crate) async fn again(&self) -> Option<OwnedSemaphorePermit> {
        self.running.clone().acquire_owned().await.ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_flood_is_turned_away() {
        let turns = ConcurrencyLimiter::new(1);
        let first = turns.take().await;
        let mut waiting = tokio::task::JoinSet::new();
        for _ in 0..20 {
            let turns = turns.clone();
            waiting.spawn(async move { turns.take().await.is_some() });
        }
        // Four are rejected; the others get a slot once the first ends.
        let mut turned_away = 0;
        while turned_away < 4 {
            turned_away += usize::from(!waiting.join_next().await.unwrap().unwrap());
        }
        drop(first);
        assert!(waiting.join_all().await.into_iter().all(|served| served));
    }
}
