//! Pass phrases, hashed with Argon2id. The hash text holds its own parameters.

use argon2::Argon2;
use argon2::password_hash::{PasswordHasher as _, PasswordVerifier as _};
use countersign_policy::ids::{CredentialId, Secret};

/// The hash to store; none if the system has no randomness.
pub(crate) fn hash(phrase: &Secret) -> Option<String> {
    Argon2::default().hash_password(phrase.expose().as_bytes()).ok().map(|hash| hash.to_string())
}

/// Finds the credential whose pass phrase matches. Without candidates it still hashes once, so that the time does not tell
/// whether a name exists.
pub(crate) fn find_match(all: &[(CredentialId, String)], phrase: &Secret) -> Option<CredentialId> {
    if all.is_empty() {
        let _ = hash(phrase);
        return None;
    }
    let matches = |stored: &str| {
        argon2::PasswordHash::new(stored).is_ok_and(|stored| {
            Argon2::default().verify_password(phrase.expose().as_bytes(), &stored).is_ok()
        })
    };
    all.iter().find(|(_, stored)| matches(stored)).map(|(id, _)| id.clone())
}
