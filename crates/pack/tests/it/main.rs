//! The pack as agents meet it: the eleven tools over real folders and a real store. One binary.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

mod git;
mod golden;
mod hostile;
mod original;
mod seed;
mod token;
mod world;
