//! The durations of an upstream's last calls, for its health report.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

const KEPT: usize = 64;

/// Oldest first.
#[derive(Debug, Default)]
pub(super) struct RecentDurations(Mutex<VecDeque<u64>>);

impl RecentDurations {
    pub(super) fn took(&self, time: Duration) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() >= KEPT {
            kept.pop_front();
        }
        kept.push_back(u64::try_from(time.as_micros()).unwrap_or(u64::MAX));
    }

    /// In microseconds.
    pub(super) fn micros(&self) -> Vec<u64> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().copied().collect()
    }
}
