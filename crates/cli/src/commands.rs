//! The commands, one file each. A command reads what it needs, asks the rooms below, and gives back an answer.

pub(crate) mod activity;
pub(crate) mod bench;
pub(crate) mod completions;
pub(crate) mod policy;
pub(crate) mod serve;
pub(crate) mod version;

use crate::answer::Outcome;
use crate::cli::{Cli, Command};
use crate::output::Voice;

/// Runs the command that was typed.
pub(crate) fn run(cli: &Cli, voice: Voice) -> Outcome {
    match &cli.command {
        Command::Activity(activity) => activity::run(activity, cli, voice),
        Command::Policy { policy } => policy::run(policy, cli),
        Command::Serve(args) => serve::run(args, cli),
        Command::Bench(args) => bench::run(args, voice),
        Command::BenchEcho(args) => bench::run_echo(args),
        Command::Version => version::run(),
        Command::Completions(args) => completions::run(args),
    }
}
