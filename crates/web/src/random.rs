//! Random secrets (sign-in codes, sessions, credentials) in characters that need no escaping, and random bits for ids.

use std::time::Duration;

use countersign_policy::ids::Secret;
use ring::rand::{SecureRandom as _, SystemRandom};

/// How long a one-time sign-in link works.
pub const SIGN_IN_LIFE: Duration = Duration::from_secs(60);

/// The length of a secret without its prefix; each character holds six bits.
const LETTERS: usize = 43;

/// A new secret with a prefix; none if the system has no randomness.
pub fn secret(prefix: &str) -> Option<Secret> {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut bytes = [0; LETTERS];
    SystemRandom::new().fill(&mut bytes).ok()?;
    let letters =
        bytes.iter().filter_map(|byte| ALPHABET.get(usize::from(byte % 64)).map(|b| char::from(*b)));
    Some(Secret::new(format!("{prefix}{}", letters.collect::<String>())))
}

/// Random bits for an id.
pub(crate) fn bits() -> u128 {
    let mut bytes = [0; 16];
    // An id is no secret: without randomness its time still tells it apart.
    let _ = SystemRandom::new().fill(&mut bytes);
    u128::from_be_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_has_258_random_bits() {
        let made: Vec<String> = (0..200)
            .map(|_| secret("csg_human_").unwrap().expose().strip_prefix("csg_human_").unwrap().to_owned())
            .collect();
        // 43 letters of 64: each of them all over the alphabet.
        assert!(made.iter().all(|letters| letters.len() * 6 == 258));
        let used: std::collections::BTreeSet<char> =
            made.iter().flat_map(|letters| letters.chars()).collect();
        assert_eq!(used.len(), 64);
        for place in 0..LETTERS {
            let here: std::collections::BTreeSet<u8> =
                made.iter().map(|letters| letters.as_bytes()[place]).collect();
            assert!(here.len() > 40, "letter {place} is one of {}", here.len());
        }
    }
}
