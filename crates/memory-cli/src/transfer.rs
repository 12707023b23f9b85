//! `memory import` and `memory export`: records as Markdown, and back; imports a mind-palace database as legacy records. An import makes
//! records true, so a person proves who they are.

use std::fs;
use std::path::PathBuf;

use clap::Args;
use countersign_memory::markdown::PageRecordLink;
use countersign_memory::{legacy, markdown};
use countersign_policy::memory::RecordKind;
use countersign_policy::refusal::{Code, Refusal};
use countersign_store::memory::{
    Holding, MemoryRecord, NewProposal, NewRecord, Origin, Proposed, RecordQuery,
};
use countersign_store::{Store, StoreUrl};
use countersign_terminal::command_result::{Answer, CommandError, CommandResult};
use countersign_terminal::output::{GOOD, OutputSettings, paint, plural, visible};
use countersign_terminal::records::with_store;
use countersign_terminal::{config_file, person, records};
use jiff::Timestamp;

use crate::actor;

/// Shown under the help.
pub(crate) const EXPORT_EXAMPLES: &str = "Examples:
  countersign memory export
  countersign memory export --out MEMORY.md";
/// Shown under the help.
pub(crate) const IMPORT_EXAMPLES: &str = "Examples:
  countersign memory import MEMORY.md
  countersign memory import .palace/memory.db";

const SQLITE_HEAD: &[u8] = b"SQLite format 3\0";

/// What `memory export` takes.
#[derive(Args, Debug)]
pub(crate) struct MemoryExportArgs {
    /// Write it to this file instead of stdout
    #[arg(long, value_name = "PATH")]
    out: Option<PathBuf>,
}

/// What `memory import` takes.
#[derive(Args, Debug)]
pub(crate) struct MemoryImportArgs {
    /// A page that `memory export` wrote, or a mind-palace database
    path: PathBuf,
}

/// Writes everything as one page.
pub(crate) fn export(args: &MemoryExportArgs, url: &StoreUrl, voice: OutputSettings) -> CommandResult {
    let (found, links) = records::with(url, async |store| {
        let links = store.links().await.map_err(|fault| records::trouble(&fault, url))?;
        Ok((all(&store, url).await?, links))
    })?;
    let page = markdown::write(&found, &links);
    let answer = Answer::default().with("records", found.len());
    match &args.out {
        Some(path) => {
            fs::write(path, &page).map_err(|error| {
                CommandError::Output(format!(
                    "can't write `{}`: {}",
                    path.display(),
                    config_file::why(&error)
                ))
            })?;
            let text = format!(
                "{} {} to {}\n",
                paint(GOOD, "written"),
                plural(found.len(), "record"),
                path.display()
            );
            Ok(Answer { text, ..answer.with("path", path.display().to_string()) })
        }
        None if voice.format == countersign_terminal::output::Format::Json => {
            Ok(answer.with("markdown", page))
        }
        None => Ok(Answer { text: page, ..answer }),
    }
}

/// Every record, page by page.
async fn all(store: &Store, url: &StoreUrl) -> Result<Vec<MemoryRecord>, CommandError> {
    let mut all = Vec::new();
    for kind in RecordKind::ALL {
        let mut before = None;
        loop {
            let query = RecordQuery {
                kinds: vec![*kind],
                holding: Holding::Whatever,
                limit: 1000,
                before,
                ..RecordQuery::default()
            };
            let page = store.find_records(query).await.map_err(|fault| records::trouble(&fault, url))?;
            before = page.last().map(|record| record.seq);
            let done = page.len() < 1000;
            all.extend(page);
            if done {
                break;
            }
        }
    }
    Ok(all)
}

/// What a file brings.
struct ImportedMemory {
    records: Vec<NewRecord>,
    proposals: Vec<NewProposal>,
    links: Vec<PageRecordLink>,
    origin: Origin,
    warnings: Vec<String>,
}

/// Takes in a file.
pub(crate) fn import(args: &MemoryImportArgs, url: &StoreUrl, voice: OutputSettings) -> CommandResult {
    let now = Timestamp::now();
    let mut brought = read(args, now)?;
    let count = brought.records.len();
    with_store(url, async |store| {
        let person = person::prove(&store, url, voice).await?;
        let fault = |fault| records::trouble(&fault, url);
        let actor = actor(&person);
        // Ideas are nobody's word wherever they come from, but what was there before keeps its mark.
        let (ideas, governed): (Vec<NewRecord>, Vec<NewRecord>) = std::mem::take(&mut brought.records)
            .into_iter()
            .partition(|record| record.kind == RecordKind::Idea && brought.origin == Origin::Direct);
        let mut ids =
            store.import_records(governed, brought.origin, actor.clone(), now).await.map_err(fault)?;
        ids.extend(store.import_records(ideas, Origin::Idea, actor.clone(), now).await.map_err(fault)?);
        let mut proposed = 0;
        for proposal in brought.proposals {
            if let Proposed::New { .. } = store.propose(proposal, actor.clone(), now).await.map_err(fault)? {
                proposed += 1;
            }
        }
        let mut linked = 0;
        for link in brought.links {
            // Linked so already, or one of the two is not here: nothing to do.
            let made =
                store.link_records(&link.source, &link.target, link.relation, actor.clone(), now).await;
            linked += usize::from(made.map_err(fault)?.is_ok());
        }
        let known = count - ids.len();
        let mut text = format!(
            "{} {} as {}",
            paint(GOOD, "taken in"),
            plural(ids.len(), "record"),
            visible(person.name.as_str())
        );
        if known > 0 {
            text.push_str(&format!("; {known} there already"));
        }
        if linked > 0 {
            text.push_str(&format!("; {} between them", plural(linked, "link")));
        }
        if proposed > 0 {
            text.push_str(&format!("; {} waiting for a decision", plural(proposed, "proposal")));
        }
        text.push('\n');
        let mut answer = Answer::text(text)
            .with("imported", ids.len())
            .with("skipped", known)
            .with("proposals", proposed)
            .with("links", linked)
            .with("ids", ids);
        answer.warnings = person.warnings;
        answer.warnings.extend(brought.warnings);
        Ok(answer)
    })
}

fn read(args: &MemoryImportArgs, now: Timestamp) -> Result<ImportedMemory, CommandError> {
    let path = &args.path;
    let refused = |why: String| {
        let message = format!("`{}` can't be taken in: {why}", path.display());
        let refusal = Refusal::new(Code::ArgumentsInvalid, message);
        CommandError::refused(refusal, "countersign memory import MEMORY.md")
    };
    let bytes = fs::read(path).map_err(|error| refused(config_file::why(&error)))?;
    if bytes.starts_with(SQLITE_HEAD) {
        let legacy = legacy::read(path, now).map_err(refused)?;
        let left_out = [
            (legacy.empty, plural(legacy.empty, "row") + " without a text"),
            (legacy.unknown_links, plural(legacy.unknown_links, "link") + " to something else than a record"),
        ];
        let warnings =
            left_out.into_iter().filter(|(count, _)| *count > 0).map(|(_, what)| format!("left out: {what}"));
        return Ok(ImportedMemory {
            records: legacy.records,
            proposals: legacy.proposals,
            links: legacy.links,
            origin: Origin::Legacy,
            warnings: warnings.collect(),
        });
    }
    let page = String::from_utf8(bytes)
        .map_err(|_| refused("it is neither text nor a SQLite database".to_owned()))?;
    let records =
        markdown::read(&page).map_err(|bad| refused(format!("line {}: {}", bad.line, bad.message)))?;
    if records.is_empty() {
        return Err(refused("there is no record in it".to_owned()));
    }
    let links = markdown::links(&page);
    Ok(ImportedMemory { records, proposals: Vec::new(), links, origin: Origin::Direct, warnings: Vec::new() })
}
