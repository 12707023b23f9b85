//! `countersign activity prune`: removes old rows of the ledger behind a signed tombstone, after they were archived.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use countersign_policy::duration;
use countersign_policy::refusal::{Code, Refusal};
use countersign_store::ledger::{ArchiveFile, PruneRange, PruneRefused, PruneReport};
use countersign_store::{Store, StoreUrl};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde_json::{Value, json};

use super::verify;
use crate::cli::Cli;
use crate::command_result::{Answer, CommandError, CommandResult};
use crate::output::{DIM, OutputSettings, paint, plural, visible};
use crate::person::{self, ask};
use crate::records;
use crate::time_argument::TimeArgument;

pub(crate) const EXAMPLES: &str = "Examples:
  countersign activity prune --keep 365d --dry-run
  countersign activity prune --before 2026-01-01 --out 2025.jsonl --dry-run

Without --dry-run it asks first, or needs --yes; without --keep and --before
it takes what [ledger] keep says.
Rows are written to an archive first; its digest is in a tombstone that is
signed and kept, and activity verify proves what remains. Rows from the first
one of a plan that is still open stay.";

#[derive(Args, Debug)]
pub(crate) struct Prune {
    /// Remove rows from before this: 365d, 2026-01-01, or an exact moment
    #[arg(long, value_name = "TIME", conflicts_with = "keep")]
    before: Option<TimeArgument>,

    /// Remove rows that are older than this; without it, what `ledger.keep` says
    #[arg(long, value_name = "SPAN", value_parser = duration::parse)]
    keep: Option<Duration>,

    /// Archive into this file; it must not exist yet. Else into ledger-archive/ beside the store
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,

    /// Dry run: show what would be removed
    #[arg(long)]
    dry_run: bool,

    /// Do not ask
    #[arg(long)]
    yes: bool,
}

pub(crate) fn run(args: &Prune, url: &StoreUrl, cli: &Cli, voice: OutputSettings) -> CommandResult {
    let now = Timestamp::now();
    let before = moment(args, cli, now)?;
    if args.dry_run {
        let ranges = records::with_read_only(url, async |store| prunable(&store, before, url).await)?;
        return Ok(answer(shown(&ranges, before), before, &ranges, None));
    }
    records::with(url, async |store| remove(args, &store, url, before, voice).await)
}

fn moment(args: &Prune, cli: &Cli, now: Timestamp) -> Result<Timestamp, CommandError> {
    let next = "add --keep 365d or --before 2026-01-01, or write `keep` under [ledger]";
    let before = match (&args.before, args.keep) {
        (Some(when), _) => when.resolve(now, &TimeZone::system()),
        (None, Some(keep)) => now.checked_sub(keep).unwrap_or(Timestamp::MIN),
        (None, None) => {
            let keep = records::keep(cli)?.ok_or_else(|| {
                CommandError::usage("argument_missing", "nothing says which rows to keep", next)
            })?;
            now.checked_sub(keep).unwrap_or(Timestamp::MIN)
        }
    };
    if before > now {
        let message = format!("`{before}` is in the future: rows of now would be removed");
        return Err(CommandError::usage("invalid_value", message, next));
    }
    Ok(before)
}

async fn prunable(store: &Store, before: Timestamp, url: &StoreUrl) -> Result<Vec<PruneRange>, CommandError> {
    store.prunable(before, Timestamp::now()).await.map_err(|refused| trouble(refused, url))
}

async fn remove(
    args: &Prune,
    store: &Store,
    url: &StoreUrl,
    before: Timestamp,
    voice: OutputSettings,
) -> CommandResult {
    let ranges = prunable(store, before, url).await?;
    if ranges.is_empty() {
        return Ok(answer(shown(&ranges, before), before, &ranges, None));
    }
    if !args.yes {
        if !ask::can_ask(voice) {
            let message = "rows are only removed with a yes, and there is nobody to ask here";
            return Err(CommandError::usage(
                "argument_missing",
                message,
                "look with --dry-run, then add --yes",
            ));
        }
        voice.tell(&shown(&ranges, before));
        if !ask::yes(voice, "Archive and remove them? [yes/No]") {
            return Ok(Answer::text("nothing was removed\n").with("rows", 0));
        }
    }
    let person = person::prove(store, url, voice).await?;
    let now = Timestamp::now();
    let path = match &args.out {
        Some(path) => path.clone(),
        None => records::archive_path(url, now)?,
    };
    let mut archive = ArchiveFile::new(path);
    let pruned = store.prune(before, u64::MAX, &mut archive, Some(&person.name), now).await;
    let pruned = pruned.map_err(|refused| trouble(refused, url))?;
    let text = format!(
        "removed {}, archived in {}\n",
        plural(pruned.rows, "row"),
        visible(&archive.path().display().to_string())
    );
    let mut answer = answer(text, before, &ranges, Some((&pruned, &archive)));
    answer.warnings = person.warnings;
    Ok(answer)
}

fn shown(ranges: &[PruneRange], before: Timestamp) -> String {
    if ranges.is_empty() {
        return format!("{}\n", paint(DIM, format_args!("no row from before {before} can be removed")));
    }
    let total: u64 = ranges.iter().map(PruneRange::rows).sum();
    let mut text = format!("{} from before {before}:\n", plural(total, "row"));
    for range in ranges {
        let writer = visible(range.writer.as_str());
        text.push_str(&format!("  {writer} #{} to #{}\n", range.first, range.through));
    }
    text
}

fn answer(
    text: String,
    before: Timestamp,
    ranges: &[PruneRange],
    done: Option<(&PruneReport, &ArchiveFile)>,
) -> Answer {
    let planned: u64 = ranges.iter().map(PruneRange::rows).sum();
    let range =
        |range: &PruneRange| json!({"writer": range.writer, "first": range.first, "through": range.through});
    Answer::text(text)
        .with("before", before.to_string())
        .with("prunable", planned)
        .with("ranges", ranges.iter().map(range).collect::<Value>())
        .with("rows", done.map_or(0, |(pruned, _)| pruned.rows))
        .with("archive", done.map(|(_, archive)| archive.path().display().to_string()))
        .with("tombstones", done.map_or(Value::Null, |(pruned, _)| json!(pruned.tombstones)))
}

/// Why nothing, or nothing more, was removed.
fn trouble(refused: PruneRefused, url: &StoreUrl) -> CommandError {
    match refused {
        PruneRefused::Tampered(bad) => CommandError::refused(
            verify::tampered(&bad),
            "countersign activity verify; nothing more was removed",
        ),
        PruneRefused::Archive(fault) => CommandError::Output(format!("{fault}: nothing more was removed")),
        PruneRefused::NoKey => {
            let message = "this store has no signing key, and rows are removed behind a signature only";
            CommandError::refused(Refusal::new(Code::LedgerUnverified, message), "countersign activity key")
        }
        PruneRefused::Fault(fault) => records::trouble(&fault, url),
    }
}
