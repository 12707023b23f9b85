//! `countersign completions`: a script that teaches a shell our commands. The script asks this program what fits, so that plans, tools and
//! upstreams are known by their names.

pub(crate) mod candidates;

use std::ffi::OsString;

use clap::{Args, CommandFactory as _};
use clap_complete::env::Shells;
use clap_complete::{CompleteEnv, Shell};

use crate::cli::Cli;
use crate::command_result::{Answer, CommandError, CommandResult};
use crate::environment;
use crate::usage::PROGRAM;

/// Set by the scripts, to the name of the shell that asks.
const VARIABLE: &str = "COUNTERSIGN_COMPLETE";

/// Tools are named `upstream:tool`, and bash ends words at colons by default.
const BASH_WORDS: &str = "COMP_WORDBREAKS=${COMP_WORDBREAKS//:}\n";

#[derive(Args, Debug)]
pub(crate) struct CompletionsArgs {
    /// The shell to write for
    shell: Shell,
}

pub(crate) fn run(args: &CompletionsArgs) -> CommandResult {
    let shell = args.shell.to_string();
    let unknown = || {
        CommandError::usage(
            "invalid_value",
            format!("no script for `{shell}`"),
            "countersign completions --help",
        )
    };
    let shells = Shells::builtins();
    let mut script = Vec::new();
    if args.shell == Shell::Bash {
        script.extend_from_slice(BASH_WORDS.as_bytes());
    }
    let written = shells.completer(&shell).ok_or_else(unknown)?.write_registration(
        VARIABLE,
        PROGRAM,
        PROGRAM,
        PROGRAM,
        &mut script,
    );
    written.map_err(|error| CommandError::fault("the script can't be written", error))?;
    let script = String::from_utf8_lossy(&script).into_owned();
    Ok(Answer::text(script.clone()).with("shell", shell).with("script", script))
}

/// Answers a shell that asks what fits; false if none does. A mistake in a question is no answer: shells show nothing then.
pub(crate) fn answer_shell(arguments: &[OsString]) -> bool {
    if environment::variable(VARIABLE).is_none() {
        return false;
    }
    let completing = CompleteEnv::with_factory(Cli::command).var(VARIABLE).bin(PROGRAM).completer(PROGRAM);
    completing
        .try_complete(arguments.iter().cloned(), std::env::current_dir().ok().as_deref())
        .unwrap_or(true)
}
