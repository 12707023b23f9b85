//! `countersign policy`: what a configuration says, before anybody relies on it. Changes nothing.

pub(crate) mod check;
pub(crate) mod explain;
pub(crate) mod simulate;
pub(crate) mod test;

use clap::Subcommand;

use crate::cli::Cli;
use crate::command_result::CommandResult;
use crate::output::OutputSettings;

#[derive(Subcommand, Debug)]
pub(crate) enum PolicyCommand {
    /// Report every mistake in a configuration, and what to write instead
    #[command(after_help = check::EXAMPLES)]
    Check,
    /// Show what would happen to one call, and which rule decided each part of it
    #[command(after_help = explain::EXAMPLES)]
    Explain(explain::PolicyExplainArgs),
    /// Replay the audit log through new rules, and list every decision that would change
    #[command(after_help = simulate::EXAMPLES)]
    Simulate(simulate::PolicySimulateArgs),
    /// Run the `[[tests]]` of a configuration
    #[command(after_help = test::EXAMPLES)]
    Test(test::PolicyTestArgs),
}

pub(crate) fn run(policy: &PolicyCommand, cli: &Cli, voice: OutputSettings) -> CommandResult {
    match policy {
        PolicyCommand::Check => check::run(cli),
        PolicyCommand::Explain(args) => explain::run(args, cli),
        PolicyCommand::Simulate(args) => simulate::run(args, cli, voice),
        PolicyCommand::Test(args) => test::run(args, cli),
    }
}
