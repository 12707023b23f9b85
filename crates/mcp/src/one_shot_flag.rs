//! A flag that is raised once and can be awaited.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

#[derive(Debug, Default)]
pub(crate) struct OneShotFlag {
    raised: AtomicBool,
    waiters: Notify,
}

impl OneShotFlag {
    /// Raises the flag; true for the first call.
    pub(crate) fn raise(&self) -> bool {
        let first = !self.raised.swap(true, Ordering::AcqRel);
        self.waiters.notify_waiters();
        first
    }

    pub(crate) fn is_raised(&self) -> bool {
        self.raised.load(Ordering::Acquire)
    }

    pub(crate) async fn wait(&self) {
        loop {
            // Registered before the check, so that a raise in between is not missed.
            let woken = self.waiters.notified();
            if self.is_raised() {
                return;
            }
            woken.await;
        }
    }
}
