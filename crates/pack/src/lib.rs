//! Agent assets (instructions, skills, prompts, commands) kept in one repository and deployed to hosts: plan, confirm,
//! apply, roll back, evolve. Planning is pure; applying chooses nothing. Prints nothing and reads no environment: a
//! [`place::PackEnvironment`] says where everything is.

mod actual_state;
mod apply;
mod audit_row;
pub mod bootstrap;
pub mod command;
pub mod deploy;
pub mod desired_state;
pub mod diff;
mod digests;
pub mod doctor;
pub mod error;
pub mod events;
pub mod evolve;
pub mod explain;
mod git;
pub mod import;
pub mod lock;
mod lockfile;
pub mod manifest;
pub mod overlay;
pub mod place;
pub mod plan;
pub mod policy;
pub mod records;
mod render;
pub mod reply;
pub mod repo;
pub mod rollback;
pub mod server;
pub mod snapshot;
mod sources;
pub mod status;
pub mod survey;
pub mod system;
mod targets;
pub mod tools;
mod tree;
pub mod upstream;
pub mod views;
