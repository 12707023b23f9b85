//! Pass phrases: Argon2id, with the parameters its text carries. Never stored, never compared byte by byte.

use argon2::Argon2;
use argon2::password_hash::{PasswordHasher as _, PasswordVerifier as _};
use countersign_core::ids::{CredentialId, Secret};

/// What is kept of a pass phrase; none where the system has no randomness.
pub(crate) fn hash(phrase: &Secret) -> Option<String> {
    Argon2::default().hash_password(phrase.expose().as_bytes()).ok().map(|hash| hash.to_string())
}

/// Whose phrase it is. Where nobody has one, as much work is done all the same.
pub(crate) fn find(all: &[(CredentialId, String)], phrase: &Secret) -> Option<CredentialId> {
    if all.is_empty() {
        let _ = hash(phrase);
        return None;
    }
    let fits = |kept: &str| {
        argon2::PasswordHash::new(kept)
            .is_ok_and(|kept| Argon2::default().verify_password(phrase.expose().as_bytes(), &kept).is_ok())
    };
    all.iter().find(|(_, kept)| fits(kept)).map(|(id, _)| id.clone())
}
