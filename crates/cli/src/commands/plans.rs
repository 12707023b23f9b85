//! `countersign plans`: plans that wait for a person, and what became of the others. Decides nothing; `approve` and `reject` do.

pub(crate) mod changes;
pub(crate) mod find;
mod inbox;
pub(crate) mod list;
mod resume;
pub(crate) mod sheet;
mod show;
mod watch;

use clap::{Args, Subcommand};

use crate::cli::Cli;
use crate::command_result::CommandResult;
use crate::local_gateway::StoreArgs;
use crate::output::OutputSettings;

#[derive(Args, Debug)]
pub(crate) struct PlansArgs {
    #[command(flatten)]
    of: StoreArgs,

    #[command(subcommand)]
    command: PlansCommand,
}

#[derive(Subcommand, Debug)]
pub(crate) enum PlansCommand {
    /// List plans that wait for approval
    #[command(after_help = list::EXAMPLES)]
    List(list::PlansListArgs),
    /// Show one plan in full
    #[command(after_help = show::EXAMPLES)]
    Show(show::PlansShowArgs),
    /// Decide plans as they come, in a small inbox; off a terminal, follow them line by line
    #[command(after_help = watch::EXAMPLES)]
    Watch(watch::PlansWatchArgs),
    /// Resume a principal that was paused after too many rejections
    #[command(after_help = resume::EXAMPLES)]
    Resume(resume::PlansResumeArgs),
}

pub(crate) fn run(plans: &PlansArgs, cli: &Cli, voice: OutputSettings) -> CommandResult {
    let url = plans.of.url(cli)?;
    match &plans.command {
        PlansCommand::List(args) => list::run(args, &url, voice),
        PlansCommand::Show(args) => show::run(args, &url, voice),
        PlansCommand::Watch(args) => watch::run(args, &url, voice),
        PlansCommand::Resume(args) => resume::run(args, &url, voice),
    }
}
