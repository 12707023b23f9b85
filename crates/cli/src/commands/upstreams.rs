//! `countersign upstreams`: what is governed: how it is, whether it can be reached, and the lines of the configuration that
//! name it.

mod command;
pub(crate) mod edit;
mod health;
mod help_text;
mod login;

use clap::{Args, Subcommand};
use countersign_gateway::house::House;
use countersign_gateway::upstreams::Condition;

use crate::answer::Outcome;
use crate::cli::Cli;
use crate::output::Voice;

/// What every `upstreams` command takes.
#[derive(Args, Debug)]
pub(crate) struct Upstreams {
    #[command(subcommand)]
    command: UpstreamsCommand,
}

/// The commands about upstreams.
#[derive(Subcommand, Debug)]
pub(crate) enum UpstreamsCommand {
    /// Start every upstream and say how it is
    #[command(after_help = "Examples:\n  countersign upstreams list\n  countersign upstreams list --json")]
    List,
    /// Start one upstream and say all about it
    #[command(after_help = "Examples:\n  countersign upstreams test github")]
    Test {
        /// Its name in the configuration
        name: String,
    },
    /// Write an upstream into the configuration
    #[command(after_help = edit::ADD_EXAMPLES)]
    Add(edit::Add),
    /// Make a governed tool of a command line, from what its help says
    #[command(after_help = command::EXAMPLES)]
    AddCommand(command::AddCommand),
    /// Sign in to an upstream with your browser
    #[command(after_help = login::LOGIN_EXAMPLES)]
    Login(login::Login),
    /// Forget a sign-in
    #[command(after_help = login::LOGOUT_EXAMPLES)]
    Logout(login::Logout),
    /// Take an upstream out of the configuration
    #[command(after_help = edit::REMOVE_EXAMPLES)]
    Remove(edit::Remove),
}

impl Upstreams {
    /// The dotted path.
    pub(crate) fn path(&self) -> &'static str {
        match self.command {
            UpstreamsCommand::List => "upstreams.list",
            UpstreamsCommand::Test { .. } => "upstreams.test",
            UpstreamsCommand::Add(_) => "upstreams.add",
            UpstreamsCommand::AddCommand(_) => "upstreams.add-command",
            UpstreamsCommand::Remove(_) => "upstreams.remove",
            UpstreamsCommand::Login(_) => "upstreams.login",
            UpstreamsCommand::Logout(_) => "upstreams.logout",
        }
    }
}

/// Runs one of them.
pub(crate) fn run(upstreams: &Upstreams, cli: &Cli, voice: Voice) -> Outcome {
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
pub(crate) fn unwell(house: &House) -> Vec<String> {
    let upstreams = house.upstreams.load();
    let down = upstreams.iter().filter_map(|(id, upstream)| match upstream.health().condition {
        Condition::Down(why) => Some(format!("`{id}` does not answer: {why}")),
        Condition::Starting => Some(format!("`{id}` has not answered yet")),
        Condition::Idle | Condition::Up => None,
    });
    down.collect()
}
