//! A flag that is raised once and can be waited for. It carries no value.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

/// Raised once, seen by everyone who waits or asks later.
#[derive(Debug, Default)]
pub(crate) struct Signal {
    raised: AtomicBool,
    waiters: Notify,
}

impl Signal {
    /// Raises the flag; true for the one who did.
    pub(crate) fn raise(&self) -> bool {
        let first = !self.raised.swap(true, Ordering::AcqRel);
        self.waiters.notify_waiters();
        first
    }

    pub(crate) fn is_raised(&self) -> bool {
        self.raised.load(Ordering::Acquire)
    }

    /// Returns once the flag is up.
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
