//! The command line: reads the arguments, runs one command, prints its answer, exits.
//! The only crate that prints, reads the environment or exits. It makes no policy decision.

mod browser;
mod cli;
mod command_result;
mod commands;
mod config_change;
mod config_file;
mod environment;
mod exit;
mod local_gateway;
mod log;
mod natives;
mod output;
mod person;
mod private_file;
mod records;
mod runtime;
mod time_argument;
mod usage;

use std::process::ExitCode;

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
