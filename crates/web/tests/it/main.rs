//! The desk over a real store and a real house: who gets in, what each route tells, what a person's decision comes to.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod decisions;
mod described;
mod events;
mod kit;
mod matrix;
mod reading;
mod signing_in;
mod table;
