//! Configuration: reading, error messages, and the resulting policy.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::wildcard_enum_match_arm,
    clippy::type_complexity,
    reason = "a test that can't go on fails loudly, in its own functions as well"
)]

mod attacks_defaults;
mod bad;
mod explained;
mod good;
mod hostile;
mod labels;
mod linted;
mod outside;
mod strict;
#[path = "../../../policy/tests/it/world.rs"]
#[allow(dead_code, reason = "shared with the tests of `policy`, which use all of it")]
mod world;

use countersign_config::{self as config, Config, Diagnostic, Source};

fn read(text: &str) -> Result<Config, Vec<Diagnostic>> {
    config::parse(&[Source::new("countersign.toml", text)])
}

fn good(text: &str) -> Config {
    read(text).unwrap_or_else(|found| panic!("{}", show(&found)))
}

fn show(found: &[Diagnostic]) -> String {
    found.iter().map(|finding| format!("{finding}\n")).collect()
}

/// Every case under its title, with everything that is said about it.
fn sheet(cases: &[(&str, &str)], say: impl Fn(&str) -> Vec<Diagnostic>) -> String {
    let mut sheet = String::new();
    for (title, text) in cases {
        let said = say(text.trim_start_matches('\n'));
        assert!(!said.is_empty(), "{title}: nothing is said");
        sheet.push_str(&format!("## {title}\n{}\n", show(&said)));
    }
    sheet
}
