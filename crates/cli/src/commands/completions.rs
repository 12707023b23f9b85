//! `countersign completions`: a script that teaches a shell our commands.

use clap::{Args, CommandFactory as _};
use clap_complete::Shell;

use crate::cli::Cli;
use crate::command_result::{Answer, CommandResult};
use crate::usage::PROGRAM;

#[derive(Args, Debug)]
pub(crate) struct CompletionsArgs {
    /// The shell to write for
    shell: Shell,
}

pub(crate) fn run(args: &CompletionsArgs) -> CommandResult {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), PROGRAM, &mut script);
    let script = String::from_utf8_lossy(&script).into_owned();
    Ok(Answer::text(script.clone()).with("shell", args.shell.to_string()).with("script", script))
}
