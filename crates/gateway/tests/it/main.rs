//! The gateway from outside: real child processes, real sockets, a real store.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that finds something missing fails there"
)]

mod approval;
mod catalog;
mod command;
mod upstreams;
