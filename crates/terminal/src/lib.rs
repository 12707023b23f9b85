//! What every command line front end shares: the answer of a command, its printing and exit code, the environment, the
//! configuration's files, the store a command works on, and the person at this machine. Knows no command.

pub mod command_result;
pub mod config_file;
pub mod environment;
pub mod exit;
pub mod global_args;
pub mod output;
pub mod partial_id;
pub mod person;
pub mod private_file;
pub mod records;
pub mod runtime;
