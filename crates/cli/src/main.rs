//! The door: reads the command line, lets one command do its work, prints what it answers, exits.
//! The only room that prints, reads the environment or exits; it decides nothing the law decides.

mod answer;
mod cli;
mod commands;
mod config_file;
mod environment;
mod exit;
mod output;
mod records;
mod usage;
mod when;

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().collect();
    let (voice, path, result) = match cli::read(&arguments) {
        Ok(cli) => {
            let (voice, path) = (output::Voice::of(&cli), cli.command.path());
            let result = commands::run(&cli, voice);
            (voice, path.to_owned(), result)
        }
        Err(not_read) => (not_read.voice, not_read.path, not_read.result),
    };
    output::finish(voice, &path, result).into()
}
