//! `countersign plans`: what waits for a person, and what became of it. Decides nothing; `approve` and `reject` do.

pub(crate) mod changes;
pub(crate) mod find;
mod list;
mod resume;
pub(crate) mod sheet;
mod show;
mod watch;

use clap::{Args, Subcommand};

use crate::answer::Outcome;
use crate::cli::Cli;
use crate::house::Of;
use crate::output::Voice;

/// What every `plans` command takes.
#[derive(Args, Debug)]
pub(crate) struct Plans {
    #[command(flatten)]
    of: Of,

    #[command(subcommand)]
    command: PlansCommand,
}

/// The commands about plans.
#[derive(Subcommand, Debug)]
pub(crate) enum PlansCommand {
    /// List the plans that wait for a person
    #[command(after_help = list::EXAMPLES)]
    List(list::List),
    /// Show one plan whole
    #[command(after_help = show::EXAMPLES)]
    Show(show::Show),
    /// Follow plans as they come
    #[command(after_help = watch::EXAMPLES)]
    Watch(watch::Watch),
    /// Let a principal's writes go on after too many rejections
    #[command(after_help = resume::EXAMPLES)]
    Resume(resume::Resume),
}

impl Plans {
    /// The dotted path.
    pub(crate) fn path(&self) -> &'static str {
        match self.command {
            PlansCommand::List(_) => "plans.list",
            PlansCommand::Show(_) => "plans.show",
            PlansCommand::Watch(_) => "plans.watch",
            PlansCommand::Resume(_) => "plans.resume",
        }
    }
}

/// Runs one of them.
pub(crate) fn run(plans: &Plans, cli: &Cli, voice: Voice) -> Outcome {
    let url = plans.of.url(cli)?;
    match &plans.command {
        PlansCommand::List(args) => list::run(args, &url, voice),
        PlansCommand::Show(args) => show::run(args, &url, voice),
        PlansCommand::Watch(args) => watch::run(args, &url, voice),
        PlansCommand::Resume(args) => resume::run(args, &url, voice),
    }
}
