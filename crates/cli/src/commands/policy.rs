//! `countersign policy`: what a configuration says, before anybody relies on it. Changes nothing.

pub(crate) mod check;
pub(crate) mod explain;
pub(crate) mod simulate;
pub(crate) mod test;

use clap::Subcommand;

use crate::answer::Outcome;
use crate::cli::Cli;
use crate::output::Voice;

/// The commands about a configuration.
#[derive(Subcommand, Debug)]
pub(crate) enum Policy {
    /// Say everything that is wrong with a configuration, and what to write instead
    #[command(after_help = check::EXAMPLES)]
    Check,
    /// Say what would happen to one call, and which rule decided each part of it
    #[command(after_help = explain::EXAMPLES)]
    Explain(explain::Explain),
    /// Replay the ledger through new rules, and say every decision that would change
    #[command(after_help = simulate::EXAMPLES)]
    Simulate(simulate::Simulate),
    /// Run the `[[tests]]` of a configuration
    #[command(after_help = test::EXAMPLES)]
    Test(test::Test),
}

impl Policy {
    /// The dotted path.
    pub(crate) fn path(&self) -> &'static str {
        match self {
            Policy::Check => "policy.check",
            Policy::Explain(_) => "policy.explain",
            Policy::Simulate(_) => "policy.simulate",
            Policy::Test(_) => "policy.test",
        }
    }
}

/// Runs one of them.
pub(crate) fn run(policy: &Policy, cli: &Cli, voice: Voice) -> Outcome {
    match policy {
        Policy::Check => check::run(cli),
        Policy::Explain(args) => explain::run(args, cli),
        Policy::Simulate(args) => simulate::run(args, cli, voice),
        Policy::Test(args) => test::run(args, cli),
    }
}
