//! The back-off before an upstream is restarted: none the first time, then doubling up to a limit, spread so that several upstreams do not
//! restart at the same moment.

use std::time::Duration;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RestartBackoff {
    /// The pause after the second failure in a row; it doubles from there.
    pub first: Duration,
    pub longest: Duration,
    /// After how long a failure counts as the first one again.
    pub stable: Duration,
}

impl Default for RestartBackoff {
    fn default() -> Self {
        Self {
            first: Duration::from_millis(250),
            longest: Duration::from_secs(60),
            stable: Duration::from_secs(30),
        }
    }
}

impl RestartBackoff {
    /// The pause after so many failures in a row; `seed` spreads it by up to a quarter.
    pub fn after(&self, failures: u32, seed: u64) -> Duration {
        let Some(doublings) = failures.checked_sub(2) else { return Duration::ZERO };
        let whole = self.first.saturating_mul(1u32.checked_shl(doublings.min(31)).unwrap_or(u32::MAX));
        let whole = whole.min(self.longest);
        // At most a quarter less: the limit holds.
        let share = u32::try_from(mix(seed) % 256).unwrap_or(0);
        whole - whole / 4 * share / 256
    }
}

/// Spreads neighbouring numbers over the whole range (the finisher of SplitMix64).
fn mix(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_their_bound_and_spread() {
        let backoff = RestartBackoff::default();
        assert_eq!(backoff.after(0, 7), Duration::ZERO);
        assert_eq!(backoff.after(1, 7), Duration::ZERO);
        for (failures, whole) in [(2, 250), (3, 500), (4, 1_000), (9, 32_000), (10, 60_000), (500, 60_000)] {
            let whole = Duration::from_millis(whole);
            let all: Vec<Duration> = (0..100).map(|seed| backoff.after(failures, seed)).collect();
            assert!(
                all.iter().all(|pause| *pause <= whole && *pause >= whole * 3 / 4),
                "{failures}: {all:?}"
            );
            assert!(all.iter().any(|pause| *pause != all[0]), "{failures} is not spread");
        }
    }
}
