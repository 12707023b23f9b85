//! `countersign activity`: the ledger, read, exported, verified and pruned.

pub(crate) mod checkpoint;
pub(crate) mod export;
mod filter_args;
pub(crate) mod key;
pub(crate) mod list;
pub(crate) mod prune;
pub(crate) mod rows;
pub(crate) mod show;
pub(crate) mod verify;
pub(crate) mod watch;

use clap::{Args, Subcommand};
use countersign_store::StoreUrl;

use crate::cli::Cli;
use crate::command_result::CommandResult;
use crate::output::OutputSettings;
use crate::records;

#[derive(Args, Debug)]
pub(crate) struct ActivityArgs {
    /// The store to read: sqlite:PATH or postgres://…
    ///
    /// Without it, `gateway.store` of the configuration, where a relative path starts at the configuration's folder; without
    /// a configuration, sqlite:countersign.db in the current folder.
    #[arg(long, global = true, value_name = "URL")]
    store: Option<StoreUrl>,

    #[command(subcommand)]
    command: ActivityCommand,
}

#[derive(Subcommand, Debug)]
pub(crate) enum ActivityCommand {
    /// List calls and decisions, newest first
    #[command(after_help = list::EXAMPLES)]
    List(list::ActivityListArgs),
    /// Follow calls and decisions as they happen
    #[command(after_help = watch::EXAMPLES)]
    Watch(watch::ActivityWatchArgs),
    /// Show one row in full
    #[command(after_help = show::EXAMPLES)]
    Show(show::ActivityShowArgs),
    /// Write rows as JSON lines or CSV, oldest first
    #[command(after_help = export::EXAMPLES)]
    Export(export::ActivityExportArgs),
    /// Verify that no row was changed, removed, reordered or cut off, or name the first that was
    #[command(after_help = verify::EXAMPLES)]
    Verify(verify::ActivityVerifyArgs),
    /// Sign the head of the audit log, to verify against later
    #[command(after_help = checkpoint::EXAMPLES)]
    Checkpoint(checkpoint::ActivityCheckpointArgs),
    /// Print the public key that checkpoints are signed with, to verify elsewhere
    #[command(after_help = key::EXAMPLES)]
    Key,
    /// Archive and remove old rows, behind a signed tombstone
    #[command(after_help = prune::EXAMPLES)]
    Prune(prune::Prune),
}

pub(crate) fn run(activity: &ActivityArgs, cli: &Cli, voice: OutputSettings) -> CommandResult {
    let url = records::locate(activity.store.as_ref(), cli)?;
    match &activity.command {
        ActivityCommand::List(args) => list::run(args, &url, voice),
        ActivityCommand::Watch(args) => watch::run(args, &url, voice),
        ActivityCommand::Show(args) => show::run(args, &url),
        ActivityCommand::Export(args) => export::run(args, &url, voice),
        ActivityCommand::Verify(args) => verify::run(args, &url, voice),
        ActivityCommand::Checkpoint(args) => checkpoint::run(args, &url),
        ActivityCommand::Key => key::run(&url),
        ActivityCommand::Prune(args) => prune::run(args, &url, cli, voice),
    }
}
