//! The house from outside: real children, real sockets, a real store.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that finds something missing fails there"
)]

mod catalog;
mod command;
mod upstreams;
