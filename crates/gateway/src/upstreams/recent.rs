//! How long the last calls of an upstream took, for whoever looks at its health. Keeps a few, decides nothing.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// How many durations are kept.
const KEPT: usize = 64;

/// The last calls' durations, oldest first.
#[derive(Debug, Default)]
pub(super) struct Recent(Mutex<VecDeque<u64>>);

impl Recent {
    /// One more call took this long.
    pub(super) fn took(&self, time: Duration) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() >= KEPT {
            kept.pop_front();
        }
        kept.push_back(u64::try_from(time.as_micros()).unwrap_or(u64::MAX));
    }

    /// All of them, in microseconds.
    pub(super) fn micros(&self) -> Vec<u64> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().copied().collect()
    }
}
