//! Reads the workspace's own files and dependency graph and fails on what the house rules forbid.
//! Never builds, runs or downloads anything: what it judges is what is on disk.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot read has failed"
)]

mod files;
mod graph;
mod licence;
mod pages;
mod rooms;
mod supply;
mod tokens;
mod words;

/// Fails with every finding at once, one a line: nobody likes to fix them one run at a time.
#[track_caller]
fn none(rule: &str, findings: &[String]) {
    assert!(findings.is_empty(), "{rule}:\n  {}\n", findings.join("\n  "));
}
