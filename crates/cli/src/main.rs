//! The door: reads the command line, lets one command do its work, prints what it answers, exits.
//! The only room that prints, reads the environment or exits; it decides nothing the law decides.

mod answer;
mod browser;
mod cli;
mod commands;
mod config_change;
mod config_file;
mod environment;
mod exit;
mod hosts;
mod house;
mod line_ends;
mod natives;
mod output;
mod person;
mod private_file;
mod records;
mod telemetry;
mod usage;
mod when;

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments = commands::pack::under_alias(std::env::args_os().collect());
    match cli::read(&arguments) {
        Ok(cli) => commands::run(&cli, output::Voice::of(&cli)).into(),
        Err(not_read) => output::finish(not_read.voice, &not_read.path, not_read.result).into(),
    }
}
