//! `countersign help`: the help of any command, and with `--all` the list of every command. `--help` lists those people need first.

use std::ffi::OsString;

use clap::{Args, CommandFactory as _};

use crate::cli::{self, Cli};
use crate::command_result::{Answer, CommandResult};
use crate::usage::PROGRAM;

#[derive(Args, Debug)]
pub(crate) struct HelpArgs {
    /// List every command
    #[arg(long, conflicts_with = "command")]
    all: bool,

    /// The command to explain, such as `policy explain`
    #[arg(value_name = "COMMAND")]
    command: Vec<OsString>,
}

pub(crate) fn run(args: &HelpArgs) -> CommandResult {
    if args.all {
        return Ok(answer(&Cli::command().render_long_help()));
    }
    // The same path as `COMMAND --help`, so that a mistyped command is answered the same way.
    let line = [OsString::from(PROGRAM)].into_iter().chain(args.command.iter().cloned());
    let line: Vec<OsString> = line.chain([OsString::from("--help")]).collect();
    match cli::read(&line) {
        Err(not_read) => not_read.result,
        Ok(_) => Ok(answer(&Cli::command().render_long_help())),
    }
}

pub(crate) fn answer(help: &clap::builder::StyledStr) -> Answer {
    Answer::text(help.ansi().to_string()).with("help", help.to_string())
}
