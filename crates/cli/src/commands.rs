//! The commands, one file each. A command reads what it needs, asks the rooms below, and gives back an answer.

pub(crate) mod activity;
pub(crate) mod bench;
pub(crate) mod completions;
pub(crate) mod pack;
pub(crate) mod policy;
pub(crate) mod serve;
pub(crate) mod version;

use crate::cli::{Cli, Command};
use crate::exit::Exit;
use crate::output::{self, Voice};

/// Runs the command that was typed, prints what it answers, and says how the process ends.
pub(crate) fn run(cli: &Cli, voice: Voice) -> Exit {
    let outcome = match &cli.command {
        // Its envelopes are those of `agentpack`, which it prints itself.
        Command::Pack(args) => return pack::run(args, voice),
        Command::Activity(activity) => activity::run(activity, cli, voice),
        Command::Policy { policy } => policy::run(policy, cli),
        Command::Serve(args) => serve::run(args, cli),
        Command::Bench(args) => bench::run(args, voice),
        Command::BenchEcho(args) => bench::run_echo(args),
        Command::Version => version::run(),
        Command::Completions(args) => completions::run(args),
    };
    output::finish(voice, cli.command.path(), outcome)
}
