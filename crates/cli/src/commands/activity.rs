//! `countersign activity`: the ledger, read, exported and verified. Never adds a row of its own.

pub(crate) mod checkpoint;
pub(crate) mod export;
pub(crate) mod key;
pub(crate) mod list;
mod rows;
pub(crate) mod show;
pub(crate) mod verify;
mod wanted;
pub(crate) mod watch;

use clap::{Args, Subcommand};
use countersign_store::StoreUrl;

use crate::answer::Outcome;
use crate::cli::Cli;
use crate::output::Voice;
use crate::records;

/// What every `activity` command takes.
#[derive(Args, Debug)]
pub(crate) struct Activity {
    /// The store to read: sqlite:PATH or postgres://…
    ///
    /// Without it, `gateway.store` of the configuration, where a relative path starts at the configuration's folder; without
    /// a configuration, sqlite:countersign.db in the current folder.
    #[arg(long, global = true, value_name = "URL")]
    store: Option<StoreUrl>,

    #[command(subcommand)]
    command: ActivityCommand,
}

/// The commands about the ledger.
#[derive(Subcommand, Debug)]
pub(crate) enum ActivityCommand {
    /// List what was decided, newest first
    #[command(after_help = list::EXAMPLES)]
    List(list::List),
    /// Follow what is decided, as it happens
    #[command(after_help = watch::EXAMPLES)]
    Watch(watch::Watch),
    /// Show one row whole
    #[command(after_help = show::EXAMPLES)]
    Show(show::Show),
    /// Write rows as JSON lines or CSV, oldest first
    #[command(after_help = export::EXAMPLES)]
    Export(export::Export),
    /// Prove that no row was changed, removed, reordered or cut off, or name the first that was
    #[command(after_help = verify::EXAMPLES)]
    Verify(verify::Verify),
    /// Sign the ledger's head, to verify against later
    #[command(after_help = checkpoint::EXAMPLES)]
    Checkpoint(checkpoint::Checkpoint),
    /// Print the public key that checkpoints are signed with, to verify elsewhere
    #[command(after_help = key::EXAMPLES)]
    Key,
}

impl Activity {
    /// The dotted path.
    pub(crate) fn path(&self) -> &'static str {
        match self.command {
            ActivityCommand::List(_) => "activity.list",
            ActivityCommand::Watch(_) => "activity.watch",
            ActivityCommand::Show(_) => "activity.show",
            ActivityCommand::Export(_) => "activity.export",
            ActivityCommand::Verify(_) => "activity.verify",
            ActivityCommand::Checkpoint(_) => "activity.checkpoint",
            ActivityCommand::Key => "activity.key",
        }
    }
}

/// Runs one of them.
pub(crate) fn run(activity: &Activity, cli: &Cli, voice: Voice) -> Outcome {
    let url = records::locate(activity.store.as_ref(), cli)?;
    match &activity.command {
        ActivityCommand::List(args) => list::run(args, &url, voice),
        ActivityCommand::Watch(args) => watch::run(args, &url, voice),
        ActivityCommand::Show(args) => show::run(args, &url),
        ActivityCommand::Export(args) => export::run(args, &url, voice),
        ActivityCommand::Verify(args) => verify::run(args, &url, voice),
        ActivityCommand::Checkpoint(args) => checkpoint::run(args, &url),
        ActivityCommand::Key => key::run(&url),
    }
}
