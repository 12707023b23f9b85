//! Secrets of the desk: codes, sessions, credentials. Random, in letters that need no escaping anywhere.

use std::time::Duration;

use countersign_core::ids::Secret;
use ring::rand::{SecureRandom as _, SystemRandom};

/// How long a one-time link works.
pub const SIGN_IN_LIFE: Duration = Duration::from_secs(60);

/// Random characters of a secret: six bits each.
const LETTERS: usize = 43;

/// A new secret after a prefix; none where the system has no randomness.
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
    // An id is no secret: its moment alone tells it apart.
    let _ = SystemRandom::new().fill(&mut bytes);
    u128::from_be_bytes(bytes)
}
