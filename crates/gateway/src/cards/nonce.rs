//! The nonce of a card: what its button has and the model has not. Made from the plan and a secret of the store, so that it outlives
//! a restart and is kept nowhere; it travels only in a result's `_meta`.

use countersign_core::digest::{Digest, Domain};
use countersign_core::ids::PlanId;
use countersign_store::Store;

/// The nonce of a plan's card.
pub fn nonce(store: &Store, plan: &PlanId) -> String {
    let mut secret = store.salt().to_vec();
    secret.push(0);
    secret.extend_from_slice(plan.as_str().as_bytes());
    // Twice, so that nothing can be appended to what the first hash was over.
    let inner = Digest::of(Domain::Nonce, &secret);
    Digest::of(Domain::Nonce, inner.hex().as_bytes()).hex()
}

/// Whether a nonce is the plan's, in a time that tells nothing.
pub(super) fn fits(store: &Store, plan: &PlanId, given: &str) -> bool {
    let expect = nonce(store, plan);
    let same = expect.bytes().zip(given.bytes()).fold(0u8, |differ, (a, b)| differ | (a ^ b)) == 0;
    expect.len() == given.len() && same
}
