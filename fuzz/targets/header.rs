//! libFuzzer over the property `header`.
#![no_main]

#[path = "../properties/header.rs"]
mod property;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| property::check(bytes));
