//! `countersign memory`: list, approve, write, search, audit, import, export and serve the project's memory. Reads the flags, asks
//! before something becomes true, prints. What is stored and refused is decided in `countersign-memory`.

mod audit;
mod decide;
mod list;
mod serve;
mod sheet;
mod store;
mod transfer;

use clap::{Args, Subcommand};
use countersign_memory::{Memory, MemoryError};
use countersign_policy::memory::RecordKind;
use countersign_policy::record::Source;
use countersign_policy::role::Role;
use countersign_store::Store;
use countersign_store::memory::MemoryActor;
use countersign_terminal::command_result::{CommandError, CommandResult, Refused};
use countersign_terminal::global_args::GlobalArgs;
use countersign_terminal::output::OutputSettings;
use countersign_terminal::person::Person;
use countersign_terminal::records::StoreArgs;

/// What every `memory` command takes.
#[derive(Args, Debug)]
pub struct MemoryArgs {
    #[command(flatten)]
    of: StoreArgs,

    #[command(subcommand)]
    command: MemoryCommand,
}

/// The commands about the memory.
#[derive(Subcommand, Debug)]
enum MemoryCommand {
    /// Propose something, or write it yourself with --direct
    #[command(after_help = store::EXAMPLES)]
    Store(store::MemoryStoreArgs),
    /// List proposals that wait for a person, and records
    #[command(after_help = list::EXAMPLES)]
    List(list::MemoryListArgs),
    /// Show a proposal or a record, whole
    #[command(after_help = list::SHOW_EXAMPLES)]
    Show(list::MemoryShowArgs),
    /// Make proposals true
    #[command(after_help = decide::APPROVE_EXAMPLES)]
    Approve(decide::MemoryApproveArgs),
    /// Say no to proposals
    #[command(after_help = decide::REJECT_EXAMPLES)]
    Reject(decide::MemoryRejectArgs),
    /// Find records and proposals by words
    #[command(after_help = list::SEARCH_EXAMPLES)]
    Search(list::MemorySearchArgs),
    /// Show who made what true
    #[command(after_help = audit::EXAMPLES)]
    Audit(audit::MemoryAuditArgs),
    /// Write all records as Markdown
    #[command(after_help = transfer::EXPORT_EXAMPLES)]
    Export(transfer::MemoryExportArgs),
    /// Take in records: Markdown as `export` writes it, or a mind-palace database
    #[command(after_help = transfer::IMPORT_EXAMPLES)]
    Import(transfer::MemoryImportArgs),
    /// Serve the memory's tools on stdin and stdout
    #[command(after_help = serve::EXAMPLES)]
    Serve(serve::MemoryServeArgs),
}

/// Runs one of them.
pub fn run(memory: &MemoryArgs, cli: &GlobalArgs, voice: OutputSettings) -> CommandResult {
    let url = memory.of.url(cli)?;
    match &memory.command {
        MemoryCommand::Store(args) => store::run(args, &url, voice),
        MemoryCommand::List(args) => list::run(args, &url, voice),
        MemoryCommand::Show(args) => list::show(args, &url, voice),
        MemoryCommand::Search(args) => list::search(args, &url, voice),
        MemoryCommand::Approve(args) => decide::approve(args, &url, voice),
        MemoryCommand::Reject(args) => decide::reject(args, &url, voice),
        MemoryCommand::Audit(args) => audit::run(args, &url, voice),
        MemoryCommand::Import(args) => transfer::import(args, &url, voice),
        MemoryCommand::Export(args) => transfer::export(args, &url, voice),
        MemoryCommand::Serve(args) => serve::run(args, cli, &url),
    }
}

/// The memory in a store, for commands that read no project.
fn open_memory(store: &Store) -> Memory {
    Memory::new(store.clone(), ".")
}

/// Somebody at a shell without a proved identity: they may propose.
fn anonymous_agent() -> MemoryActor {
    MemoryActor {
        principal: "local-agent".into(),
        role: Role::Agent,
        session: None,
        source: Source::Cli,
        named: None,
    }
}

/// A person who has proved who they are.
fn actor(person: &Person) -> MemoryActor {
    MemoryActor {
        principal: person.name.clone(),
        role: Role::Human,
        session: None,
        source: Source::Cli,
        named: None,
    }
}

/// A refusal of the memory, with what to type next.
fn command_error(MemoryError(refusal): MemoryError, next: &str) -> CommandError {
    if next.is_empty() { Refused::from(*refusal).into() } else { CommandError::refused(*refusal, next) }
}

/// The kinds of records, for options.
fn kinds() -> impl clap::builder::TypedValueParser<Value = RecordKind> {
    use clap::builder::{PossibleValuesParser, TypedValueParser as _};
    PossibleValuesParser::new(RecordKind::ALL.iter().map(|word| word.as_str()))
        .try_map(|word| word.parse::<RecordKind>())
}
