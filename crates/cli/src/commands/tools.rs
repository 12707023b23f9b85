//! `countersign tools`: what there is to call, what each tool needs, and the definitions that wait for a person.
//! Accepting takes exactly what was shown.

mod approve;
pub(crate) mod classify;
mod diff;
mod list;
mod show;

use clap::{Args, Subcommand};
use clap_complete::ArgValueCandidates;
use countersign_policy::ids::FullName;

use crate::cli::Cli;
use crate::command_result::CommandResult;
use crate::commands::completions::candidates;
use crate::local_gateway::StoreArgs;
use crate::output::OutputSettings;

#[derive(Args, Debug)]
pub(crate) struct ToolsArgs {
    #[command(flatten)]
    of: StoreArgs,

    #[command(subcommand)]
    command: ToolsCommand,
}

#[derive(Subcommand, Debug)]
pub(crate) enum ToolsCommand {
    /// List every tool and what it needs, from the records; starts only upstreams that were never listed
    #[command(after_help = list::LIST_EXAMPLES)]
    List(list::ToolsListArgs),
    /// Search tools by keywords; starts the upstreams
    #[command(after_help = list::SEARCH_EXAMPLES)]
    Search(list::ToolsSearchArgs),
    /// Show one tool in full; starts the upstreams
    #[command(after_help = show::EXAMPLES)]
    Show {
        /// The tool's full name
        #[arg(value_name = "UPSTREAM:TOOL", add = ArgValueCandidates::new(candidates::tool_names))]
        tool: FullName,
    },
    /// Compare the accepted definition with the upstream's current one
    #[command(after_help = diff::EXAMPLES)]
    Diff {
        /// The tool's full name
        #[arg(value_name = "UPSTREAM:TOOL", add = ArgValueCandidates::new(candidates::tool_names))]
        tool: FullName,
    },
    /// Propose which tools without annotations only read, to accept as rules
    #[command(after_help = classify::EXAMPLES)]
    Classify(classify::ToolsClassifyArgs),
    /// Accept a new or changed definition, as shown
    #[command(after_help = approve::EXAMPLES)]
    Approve(approve::Approve),
}

pub(crate) fn run(tools: &ToolsArgs, cli: &Cli, voice: OutputSettings) -> CommandResult {
    match &tools.command {
        ToolsCommand::List(args) => list::run(args, cli, voice),
        ToolsCommand::Search(args) => list::search(args, cli, voice),
        ToolsCommand::Show { tool } => show::run(tool, cli, voice),
        ToolsCommand::Diff { tool } => diff::run(tool, &tools.of.url(cli)?, voice),
        ToolsCommand::Classify(args) => classify::run(args, cli, voice),
        ToolsCommand::Approve(args) => approve::run(args, &tools.of.url(cli)?, voice),
    }
}
