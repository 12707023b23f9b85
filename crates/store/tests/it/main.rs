//! The store's suite: the same functions on SQLite and on a real PostgreSQL, and proofs over processes, killed
//! writers, full disks and tampered ledgers. Talks to loopback and temporary files only.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::wildcard_enum_match_arm,
    reason = "a test may fail loudly and say what it left out"
)]

mod arguments;
mod attacks_ledger;
mod attacks_plans;
mod attacks_tls;
mod calls;
mod changes;
mod clock;
mod crash;
mod disk;
mod known_definitions;
mod ledger;
mod look;
mod memory;
mod place;
mod plans;
mod processes;
mod race;
mod records;
mod retention;
mod schema;
mod spends;
mod tamper;
mod vanished;
mod world;
