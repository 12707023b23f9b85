//! `countersign upstreams`: what is governed: how it is, whether it can be reached, and the lines of the configuration that
//! name it.

mod command;
pub(crate) mod edit;
mod health;
mod help_text;
mod login;

use clap::{Args, Subcommand};
use countersign_gateway::state::GatewayState;
use countersign_gateway::upstreams::Condition;

use crate::cli::Cli;
use crate::command_result::CommandResult;
use crate::output::OutputSettings;

#[derive(Args, Debug)]
pub(crate) struct UpstreamsArgs {
    #[command(subcommand)]
    command: UpstreamsCommand,
}

#[derive(Subcommand, Debug)]
pub(crate) enum UpstreamsCommand {
    /// Start every upstream and show its health
    #[command(after_help = "Examples:\n  countersign upstreams list\n  countersign upstreams list --json")]
    List,
    /// Start one upstream and show details
    #[command(after_help = "Examples:\n  countersign upstreams test github")]
    Test {
        /// Its name in the configuration
        name: String,
    },
    /// Add an upstream to the configuration
    #[command(after_help = edit::ADD_EXAMPLES)]
    Add(edit::UpstreamAddArgs),
    /// Add a command-line program as a governed tool, from its help text
    #[command(after_help = command::EXAMPLES)]
    AddCommand(command::AddCommand),
    /// Sign in to an upstream with your browser
    #[command(after_help = login::LOGIN_EXAMPLES)]
    Login(login::UpstreamLoginArgs),
    /// Forget a sign-in
    #[command(after_help = login::LOGOUT_EXAMPLES)]
    Logout(login::UpstreamLogoutArgs),
    /// Remove an upstream from the configuration
    #[command(after_help = edit::REMOVE_EXAMPLES)]
    Remove(edit::UpstreamRemoveArgs),
}

pub(crate) fn run(upstreams: &UpstreamsArgs, cli: &Cli, voice: OutputSettings) -> CommandResult {
    match &upstreams.command {
        UpstreamsCommand::List => health::list(cli, voice),
        UpstreamsCommand::Test { name } => health::test(name, cli, voice),
        UpstreamsCommand::Add(args) => edit::add(args, cli, voice),
        UpstreamsCommand::AddCommand(args) => command::add(args, cli, voice),
        UpstreamsCommand::Remove(args) => edit::remove(args, cli, voice),
        UpstreamsCommand::Login(args) => login::login(args, cli, voice),
        UpstreamsCommand::Logout(args) => login::logout(args, cli, voice),
    }
}

pub(crate) use self::health::unknown;

/// A line for every upstream that does not answer: its tools are missing from whatever was asked.
pub(crate) fn unwell(gateway: &GatewayState) -> Vec<String> {
    let upstreams = gateway.upstreams.load();
    let down = upstreams.iter().filter_map(|(id, upstream)| match upstream.health().condition {
        Condition::Down(why) => Some(format!("`{id}` does not answer: {why}")),
        Condition::Starting => Some(format!("`{id}` has not answered yet")),
        Condition::Idle | Condition::Up => None,
    });
    down.collect()
}
