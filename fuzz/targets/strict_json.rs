//! libFuzzer over the property `strict_json`.
#![no_main]

#[path = "../properties/strict_json.rs"]
mod property;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| property::check(bytes));
