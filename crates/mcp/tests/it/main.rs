//! The protocol with scripted peers: in-memory connections, real child processes, HTTP over loopback.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::wildcard_enum_match_arm,
    reason = "tests fail loudly, also in the functions they share"
)]

mod attacks_listener;
mod child;
mod eras;
mod fidelity;
mod hostile;
mod http_client;
mod http_server;
mod kit;
mod line;
mod logging;
mod raw_edits;
