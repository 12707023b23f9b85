//! The governed memory's suite: the seed's tests and acceptance criteria by name, reads that show only what a person stands
//! behind, hostile texts, and what goes out and comes back in. Temporary files only.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::wildcard_enum_match_arm,
    reason = "a test may fail loudly"
)]

mod hostile;
mod reads;
mod seed;
mod transfer;
mod world;
