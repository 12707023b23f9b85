//! What must hold for any bytes that are to be hashed: they are refused, or they mean one thing. Their canonical form is read
//! as the same value and is its own canonical form, so that what is hashed is what is sent.

use countersign_policy::{canonical, strict_json};

/// Bytes that get far, for a start.
#[allow(dead_code, reason = "libFuzzer takes the files themselves")]
pub(crate) const SEEDS: &[&[u8]] = &[
    include_bytes!("../seeds/strict_json/01"),
    include_bytes!("../seeds/strict_json/02"),
    include_bytes!("../seeds/strict_json/03"),
    include_bytes!("../seeds/strict_json/04"),
    include_bytes!("../seeds/strict_json/05"),
    include_bytes!("../seeds/strict_json/06"),
    include_bytes!("../seeds/strict_json/07"),
    include_bytes!("../seeds/strict_json/08"),
];

/// Checks one input.
pub(crate) fn check(bytes: &[u8]) {
    let Ok(value) = strict_json::parse(bytes) else { return };
    strict_json::check(&value).unwrap();
    let text = canonical::to_vec(&value);
    let again = strict_json::parse(&text)
        .unwrap_or_else(|error| panic!("{:?} is not read again: {error:?}", String::from_utf8_lossy(&text)));
    assert_eq!(canonical::to_vec(&again), text, "{:?}", String::from_utf8_lossy(bytes));
    // A lenient reader sees the same: nobody after us reads something else.
    let lenient: serde_json::Value = serde_json::from_slice(bytes).unwrap();
    assert_eq!(canonical::to_vec(&lenient), text, "{:?}", String::from_utf8_lossy(bytes));
}
