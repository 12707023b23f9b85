//! Checks the conventions of this codebase on its files and its dependency graph.
//! Never builds, runs or downloads anything.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot read has failed"
)]

mod call_trace;
mod crate_dependencies;
mod dependency_graph;
mod documents;
mod files;
mod licence_expression;
mod plain_prose;
mod seed_000_modes;
mod seed_002_roles;
mod seed_003_cards;
mod seed_004_intent;
mod seed_proof;
mod source_files;
mod third_party_crates;
mod tokens;
mod type_names;

/// Fails with all findings, one per line.
#[track_caller]
fn none(rule: &str, findings: &[String]) {
    assert!(findings.is_empty(), "{rule}:\n  {}\n", findings.join("\n  "));
}
