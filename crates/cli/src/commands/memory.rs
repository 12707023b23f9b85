//! `countersign memory`: what the project knows, for people: look, decide, write, search, audit, take in, give out, serve.
//! Reads the flags, asks where something becomes true, prints. What is kept and refused is decided in the rooms below.

mod audit;
mod decide;
mod list;
mod serve;
mod sheet;
mod store;
mod transfer;

use clap::{Args, Subcommand};
use countersign_core::memory::RecordKind;
use countersign_core::record::Source;
use countersign_core::role::Role;
use countersign_memory::{Memory as Room, Stop};
use countersign_store::Store;
use countersign_store::memory::Actor;

use crate::answer::{Outcome, Refused, Trouble};
use crate::cli::Cli;
use crate::house::Of;
use crate::output::Voice;
use crate::person::Person;

/// What every `memory` command takes.
#[derive(Args, Debug)]
pub(crate) struct Memory {
    #[command(flatten)]
    of: Of,

    #[command(subcommand)]
    command: MemoryCommand,
}

/// The commands about the memory.
#[derive(Subcommand, Debug)]
pub(crate) enum MemoryCommand {
    /// Propose something, or write it yourself with --direct
    #[command(after_help = store::EXAMPLES)]
    Store(store::Store),
    /// List what waits for a person, and what is true
    #[command(after_help = list::EXAMPLES)]
    List(list::List),
    /// Show a proposal or a record, whole
    #[command(after_help = list::SHOW_EXAMPLES)]
    Show(list::Show),
    /// Make proposals true
    #[command(after_help = decide::APPROVE_EXAMPLES)]
    Approve(decide::Approve),
    /// Say no to proposals
    #[command(after_help = decide::REJECT_EXAMPLES)]
    Reject(decide::Reject),
    /// Find records and proposals by words
    #[command(after_help = list::SEARCH_EXAMPLES)]
    Search(list::Search),
    /// Show who made what true
    #[command(after_help = audit::EXAMPLES)]
    Audit(audit::Audit),
    /// Write all records as Markdown
    #[command(after_help = transfer::EXPORT_EXAMPLES)]
    Export(transfer::Export),
    /// Take in records: Markdown as `export` writes it, or a mind-palace database
    #[command(after_help = transfer::IMPORT_EXAMPLES)]
    Import(transfer::Import),
    /// Serve the memory's tools on stdin and stdout
    #[command(after_help = serve::EXAMPLES)]
    Serve(serve::Serve),
}

impl Memory {
    /// The dotted path.
    pub(crate) fn path(&self) -> &'static str {
        match self.command {
            MemoryCommand::Store(_) => "memory.store",
            MemoryCommand::List(_) => "memory.list",
            MemoryCommand::Show(_) => "memory.show",
            MemoryCommand::Approve(_) => "memory.approve",
            MemoryCommand::Reject(_) => "memory.reject",
            MemoryCommand::Search(_) => "memory.search",
            MemoryCommand::Audit(_) => "memory.audit",
            MemoryCommand::Import(_) => "memory.import",
            MemoryCommand::Export(_) => "memory.export",
            MemoryCommand::Serve(_) => "memory.serve",
        }
    }
}

/// Runs one of them.
pub(crate) fn run(memory: &Memory, cli: &Cli, voice: Voice) -> Outcome {
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

/// The memory in a store, for commands that look at no project.
fn room(store: &Store) -> Room {
    Room::new(store.clone(), ".")
}

/// Somebody at a shell who has proved nothing: they may propose.
fn someone() -> Actor {
    Actor {
        principal: "local-agent".into(),
        role: Role::Agent,
        session: None,
        source: Source::Cli,
        named: None,
    }
}

/// A person who has proved who they are.
fn actor(person: &Person) -> Actor {
    Actor {
        principal: person.name.clone(),
        role: Role::Human,
        session: None,
        source: Source::Cli,
        named: None,
    }
}

/// A no of the room below, with what to type next.
fn trouble(Stop(refusal): Stop, next: &str) -> Trouble {
    if next.is_empty() { Refused::from(*refusal).into() } else { Trouble::refused(*refusal, next) }
}

/// The kinds of records, for options.
fn kinds() -> impl clap::builder::TypedValueParser<Value = RecordKind> {
    use clap::builder::{PossibleValuesParser, TypedValueParser as _};
    PossibleValuesParser::new(RecordKind::ALL.iter().map(|word| word.as_str()))
        .try_map(|word| word.parse::<RecordKind>())
}
