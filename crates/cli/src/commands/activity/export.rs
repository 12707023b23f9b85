//! `countersign activity export`: rows as text, oldest first, page by page, to stdout or into a file.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use countersign_store::ledger::{self, LedgerFilter};
use countersign_store::{Store, StoreUrl};
use jiff::Timestamp;

use super::filter_args::ActivityFilterArgs;
use crate::command_result::{Answer, CommandError, CommandResult};
use crate::config_file::why;
use crate::output::{Format, OutputSettings, Progress, plural};
use crate::records;

pub(crate) const EXAMPLES: &str = "Examples:
  countersign activity export --since 30d --out ledger.jsonl
  countersign activity export --format csv --status refused > refused.csv";

#[derive(Args, Debug)]
pub(crate) struct ActivityExportArgs {
    /// JSON lines hold the hashed form of each row: others can check the chain without us
    #[arg(long, value_enum, default_value_t = ExportFormat::Jsonl)]
    format: ExportFormat,

    /// Write into this file instead of stdout; it must not exist yet
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,

    #[command(flatten)]
    wanted: ActivityFilterArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ExportFormat {
    /// One JSON object a line
    Jsonl,
    /// Comma-separated values with a head line
    Csv,
}

pub(crate) fn run(args: &ActivityExportArgs, url: &StoreUrl, voice: OutputSettings) -> CommandResult {
    if voice.format == Format::Json && args.out.is_none() {
        let message = "with `--json`, stdout carries one envelope: the rows need a file";
        return Err(CommandError::usage("argument_missing", message, "add --out FILE, or leave --json out"));
    }
    let filter = args.wanted.filter(Timestamp::now());
    let done = records::with_read_only(url, async |store| match &args.out {
        Some(path) => {
            let file = create(path)?;
            let done = pour(&store, filter, args.format, BufWriter::new(&file), voice, url).await?;
            // Exported evidence has to survive a power cut.
            file.sync_all().map_err(|error| unwritable(path, &error))?;
            Ok(done)
        }
        None => pour(&store, filter, args.format, BufWriter::new(voice.data()), voice, url).await,
    })?;
    let text = match &args.out {
        Some(path) => {
            let (rows, bytes) = (plural(done.rows, "row"), plural(done.bytes, "byte"));
            format!("wrote {rows}, {bytes}, to {}\n", path.display())
        }
        None => String::new(),
    };
    let out = args.out.as_ref().map(|path| path.display().to_string());
    Ok(Answer::text(text).with("rows", done.rows).with("bytes", done.bytes).with("out", out))
}

/// An export is evidence: it never replaces another file.
pub(super) fn create(path: &Path) -> Result<File, CommandError> {
    File::create_new(path).map_err(|error| {
        if error.kind() == io::ErrorKind::AlreadyExists {
            let message = format!("`{}` exists and is not replaced", path.display());
            CommandError::usage("file_exists", message, "name another file, or remove it first")
        } else {
            unwritable(path, &error)
        }
    })
}

pub(super) fn unwritable(path: &Path, error: &io::Error) -> CommandError {
    let is_lost = error.kind() == io::ErrorKind::NotFound;
    let why = if is_lost { "there is no such folder".to_owned() } else { why(error) };
    CommandError::Output(format!("can't write `{}`: {why}", path.display()))
}

#[derive(Default)]
struct ExportTotals {
    rows: u64,
    bytes: u64,
}

async fn pour(
    store: &Store,
    filter: LedgerFilter,
    shape: ExportFormat,
    mut out: impl Write,
    voice: OutputSettings,
    url: &StoreUrl,
) -> Result<ExportTotals, CommandError> {
    let format = match shape {
        ExportFormat::Jsonl => ledger::Format::Jsonl,
        ExportFormat::Csv => ledger::Format::Csv,
    };
    let mut export = store.export(filter, format);
    let mut progress = Progress::begin(voice, "rows");
    let mut done = ExportTotals::default();
    let mut lines = LineCounter::default();
    while let Some(piece) = export.next().await.map_err(|fault| records::trouble(&fault, url))? {
        match out.write_all(piece.as_bytes()) {
            Ok(()) => {}
            // `| head` has seen enough.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(done),
            Err(error) => return Err(CommandError::Output(format!("can't write the rows: {error}"))),
        }
        done.bytes += piece.len() as u64;
        lines.count(&piece);
        done.rows = lines.rows(shape);
        progress.at(done.rows);
    }
    match out.flush() {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(CommandError::Output(format!("can't write the rows: {error}")))
        }
        _ => Ok(done),
    }
}

/// Counts lines that end outside of quotes: a quoted field of CSV may hold line ends of its own.
#[derive(Default)]
struct LineCounter {
    ended: u64,
    quoted: QuoteState,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum QuoteState {
    #[default]
    Outside,
    Inside,
}

impl LineCounter {
    fn count(&mut self, piece: &str) {
        for byte in piece.bytes() {
            match (byte, self.quoted) {
                (b'"', QuoteState::Outside) => self.quoted = QuoteState::Inside,
                (b'"', QuoteState::Inside) => self.quoted = QuoteState::Outside,
                (b'\n', QuoteState::Outside) => self.ended += 1,
                _ => {}
            }
        }
    }

    /// The head line of CSV is no row.
    fn rows(&self, shape: ExportFormat) -> u64 {
        match shape {
            ExportFormat::Jsonl => self.ended,
            ExportFormat::Csv => self.ended.saturating_sub(1),
        }
    }
}
