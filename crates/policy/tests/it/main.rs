//! Integration tests of the policy, one binary.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::wildcard_enum_match_arm,
    clippy::type_complexity,
    reason = "tests fail loudly, in their helper functions too"
)]

mod attacks_calls;
mod attacks_defaults;
mod canonical;
mod confirm;
mod gate;
mod hostile;
mod matrix;
mod python;
mod series;
mod strict_json;
mod world;
