//! Agent assets (instructions, skills, prompts, commands) kept in one repository and deployed to hosts: plan, confirm,
//! apply, roll back, evolve. Planning is pure; applying chooses nothing. Prints nothing and reads no environment: a
//! [`place::Place`] says where everything is.

pub mod actual;
pub mod apply;
pub mod bootstrap;
mod deed;
pub mod deploy;
pub mod desired;
pub mod diff;
pub mod digests;
pub mod doctor;
pub mod events;
pub mod evolve;
pub mod explain;
pub mod git;
pub mod import;
pub mod line;
pub mod lock;
pub mod lockfile;
pub mod manifest;
pub mod native;
pub mod overlay;
pub mod place;
pub mod plan;
pub mod policy;
pub mod records;
pub mod render;
pub mod reply;
pub mod repo;
pub mod rollback;
pub mod snapshot;
pub mod sources;
pub mod status;
pub mod stop;
pub mod survey;
pub mod system;
pub mod targets;
pub mod tools;
pub mod tree;
pub mod views;
