//! The only source of randomness of this crate. Makes identifiers that sort by time.

use std::sync::Mutex;

use countersign_policy::ids::LedgerId;
use jiff::Timestamp;
use ring::rand::{SecureRandom as _, SystemRandom};

/// Random bytes; none if the system has none.
pub(crate) fn bytes<const N: usize>() -> Option<[u8; N]> {
    let mut out = [0u8; N];
    SystemRandom::new().fill(&mut out).ok()?;
    Some(out)
}

/// 128 random bits for identifiers. Zeros if the system has no randomness; the database's constraints then keep ids unique.
pub(crate) fn bits() -> u128 {
    u128::from_le_bytes(bytes().unwrap_or_default())
}

/// Mints ids of ledger rows that grow within one process, so that rows of one millisecond keep their order.
#[derive(Debug, Default)]
pub(crate) struct LedgerIdGenerator {
    last: Mutex<Option<(i64, u128)>>,
}

impl LedgerIdGenerator {
    /// The next id for a row of this moment.
    pub(crate) fn next(&self, now: Timestamp) -> LedgerId {
        let millis = now.as_millisecond();
        let mut last = self.last.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let random = match *last {
            Some((before, random)) if before == millis => random + 1,
            // The top bit stays free, so that counting up within a millisecond never wraps.
            _ => bits() >> 49,
        };
        *last = Some((millis, random));
        LedgerId::mint(now, random)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_one_millisecond_grow() {
        let mint = LedgerIdGenerator::default();
        let now = Timestamp::from_millisecond(1_700_000_000_000).unwrap();
        let ids: Vec<LedgerId> = (0..1000).map(|_| mint.next(now)).collect();
        assert!(ids.is_sorted() && ids.windows(2).all(|pair| pair[0] != pair[1]));
    }
}
