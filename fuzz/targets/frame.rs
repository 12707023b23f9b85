//! libFuzzer over the property `frame`.
#![no_main]

#[path = "../properties/frame.rs"]
mod property;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| property::check(bytes));
