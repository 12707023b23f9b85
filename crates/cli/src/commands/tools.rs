//! `countersign tools`: what there is to call, what each tool needs, and the definitions that wait for a person.
//! Accepting takes exactly what was shown.

mod approve;
mod diff;
mod list;
mod show;

use clap::{Args, Subcommand};
use countersign_core::ids::FullName;

use crate::answer::Outcome;
use crate::cli::Cli;
use crate::house::Of;
use crate::output::Voice;

/// What every `tools` command takes.
#[derive(Args, Debug)]
pub(crate) struct Tools {
    #[command(flatten)]
    of: Of,

    #[command(subcommand)]
    command: ToolsCommand,
}

/// The commands about tools.
#[derive(Subcommand, Debug)]
pub(crate) enum ToolsCommand {
    /// List every tool with what it needs; starts the upstreams
    #[command(after_help = list::LIST_EXAMPLES)]
    List(list::List),
    /// Find tools by a few words; starts the upstreams
    #[command(after_help = list::SEARCH_EXAMPLES)]
    Search(list::Search),
    /// Show one tool whole; starts the upstreams
    #[command(after_help = show::EXAMPLES)]
    Show {
        /// The tool's full name
        #[arg(value_name = "UPSTREAM:TOOL")]
        tool: FullName,
    },
    /// Compare what was accepted with what its upstream says now
    #[command(after_help = diff::EXAMPLES)]
    Diff {
        /// The tool's full name
        #[arg(value_name = "UPSTREAM:TOOL")]
        tool: FullName,
    },
    /// Accept a new or changed definition, as shown
    #[command(after_help = approve::EXAMPLES)]
    Approve(approve::Approve),
}

impl Tools {
    /// The dotted path.
    pub(crate) fn path(&self) -> &'static str {
        match self.command {
            ToolsCommand::List(_) => "tools.list",
            ToolsCommand::Search(_) => "tools.search",
            ToolsCommand::Show { .. } => "tools.show",
            ToolsCommand::Diff { .. } => "tools.diff",
            ToolsCommand::Approve(_) => "tools.approve",
        }
    }
}

/// Runs one of them.
pub(crate) fn run(tools: &Tools, cli: &Cli, voice: Voice) -> Outcome {
    match &tools.command {
        ToolsCommand::List(args) => list::run(args, cli, voice),
        ToolsCommand::Search(args) => list::search(args, cli, voice),
        ToolsCommand::Show { tool } => show::run(tool, cli, voice),
        ToolsCommand::Diff { tool } => diff::run(tool, &tools.of.url(cli)?, voice),
        ToolsCommand::Approve(args) => approve::run(args, &tools.of.url(cli)?, voice),
    }
}
