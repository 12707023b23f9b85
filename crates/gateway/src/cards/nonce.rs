//! The nonce that proves that an answer came from a card: it is only in the `_meta` of a result, which models do not see. Derived from
//! the plan as shown (hash and expiry) and a secret of the store, so that it survives a restart without being stored.

use countersign_policy::digest::{Digest, DigestDomain};
use countersign_policy::ids::PlanId;
use countersign_store::{ShownPlan, Store};
use jiff::Timestamp;

/// The expiry that the card shows, and a keyed digest over the plan.
pub(super) fn nonce(store: &Store, plan: &PlanId, shown: ShownPlan) -> String {
    let expires = shown.expires.as_microsecond();
    let mut keyed = store.salt().to_vec();
    keyed.extend_from_slice(format!("\0{plan}\0{}\0{expires}", shown.hash.hex()).as_bytes());
    // Hashed twice against length extension.
    let inner = Digest::of(DigestDomain::Nonce, &keyed);
    format!("{expires:x}.{}", Digest::of(DigestDomain::Nonce, inner.hex().as_bytes()).hex())
}

/// The plan as the card with this nonce showed it; none if the nonce is not of a card of this plan.
pub(super) fn shown_by(store: &Store, plan: &PlanId, hash: Digest, given: &str) -> Option<ShownPlan> {
    let (expires, _) = given.split_once('.')?;
    let expires = Timestamp::from_microsecond(i64::from_str_radix(expires, 16).ok()?).ok()?;
    let shown = ShownPlan { hash, expires };
    let expect = nonce(store, plan, shown);
    // Compared in constant time.
    let same = expect.bytes().zip(given.bytes()).fold(0u8, |differ, (a, b)| differ | (a ^ b)) == 0;
    (expect.len() == given.len() && same).then_some(shown)
}
