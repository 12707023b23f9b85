//! The command line: reads the arguments, runs one command, prints its answer, exits.
//! With `terminal`, the only crate that prints or reads the environment. It makes no policy decision.

mod browser;
mod cli;
mod commands;
mod config_change;
mod local_gateway;
mod log;
mod natives;
mod time_argument;
mod usage;

use std::process::ExitCode;

use countersign_terminal::{
    command_result, config_file, environment, exit, output, person, private_file, records, runtime,
};

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().collect();
    if commands::completions::answer_shell(&arguments) {
        return ExitCode::SUCCESS;
    }
    let arguments = commands::pack::under_alias(arguments);
    match cli::read(&arguments) {
        Ok(cli) => commands::run(&cli, output::OutputSettings::from_cli(&cli)).into(),
        Err(not_read) => output::finish(not_read.voice, &not_read.path, not_read.result).into(),
    }
}
