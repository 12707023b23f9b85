//! The commands, one file each. A command reads what it needs, calls the crates below, and returns an answer.

pub(crate) mod activity;
pub(crate) mod approve;
pub(crate) mod bench;
pub(crate) mod call;
pub(crate) mod completions;
pub(crate) mod demo;
pub(crate) mod doctor;
pub(crate) mod grants;
pub(crate) mod help;
pub(crate) mod init;
pub(crate) mod logs;
pub(crate) mod man;
pub(crate) mod open;
pub(crate) mod plans;
pub(crate) mod policy;
pub(crate) mod preview_file;
pub(crate) mod reject;
pub(crate) mod serve;
pub(crate) mod status;
pub(crate) mod token;
pub(crate) mod tools;
pub(crate) mod upstreams;
pub(crate) mod version;

pub(crate) use countersign_memory_cli as memory;
pub(crate) use countersign_pack_cli as pack;

use crate::cli::{Cli, Command};
use crate::exit::Exit;
use crate::log;
use crate::output::{self, OutputSettings};

/// Runs the command that was typed, prints what it answers, and says how the process ends.
pub(crate) fn run(cli: &Cli, voice: OutputSettings) -> Exit {
    if !matches!(cli.command, Command::Serve(_))
        && let Err(trouble) = log::start(cli)
    {
        return output::finish(voice, &cli.path, Err(trouble));
    }
    let outcome = match &cli.command {
        // Its envelopes are those of `agentpack`, which it prints itself.
        Command::Pack(args) => return pack::run(args, cli, voice),
        Command::Doctor(args) => doctor::run(args, cli, voice),
        Command::Init(args) => init::run(args, cli, voice),
        Command::Activity(activity) => activity::run(activity, cli, voice),
        Command::Policy { policy } => policy::run(policy, cli, voice),
        Command::Plans(args) => plans::run(args, cli, voice),
        Command::Approve(args) => approve::run(args, cli, voice),
        Command::Reject(args) => reject::run(args, cli, voice),
        Command::Grants(args) => grants::run(args, cli, voice),
        Command::Call(args) => call::run(args, cli, voice),
        Command::Tools(args) => tools::run(args, cli, voice),
        Command::Upstreams(args) => upstreams::run(args, cli, voice),
        Command::Token(args) => token::run(args, cli, voice),
        Command::Serve(args) => serve::run(args, cli),
        Command::Status(args) => status::run(args, cli, voice),
        Command::Logs(args) => logs::run(args, voice),
        Command::Open(args) => open::run(args, cli, voice),
        Command::Demo(args) => demo::run(args, voice),
        Command::Bench(args) => bench::run(args, voice),
        Command::BenchEcho(args) => bench::run_echo(args),
        Command::PreviewFile(args) => preview_file::run(args),
        Command::Memory(args) => memory::run(args, cli, voice),
        Command::Version => version::run(),
        Command::Completions(args) => completions::run(args),
        Command::Man(args) => man::run(args),
        Command::Help(args) => help::run(args),
    };
    output::finish(voice, &cli.path, outcome)
}
