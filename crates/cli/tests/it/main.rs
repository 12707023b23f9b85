//! The binary as people and programs meet it: transcripts in an environment of their own, snapshots of stdout, stderr and exit code.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

mod activity;
mod add_command;
mod amof_server;
mod call;
mod classify;
mod configuration;
mod demo;
mod doctor;
mod door;
mod examples;
mod guide;
mod init;
mod invisible;
mod katana;
mod ledger;
mod login;
mod mask;
mod memory;
mod pack;
mod people;
mod policy;
mod retention;
mod serve;
mod stage;
mod tampered;
mod world;
