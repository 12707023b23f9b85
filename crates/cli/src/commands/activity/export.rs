//! `countersign activity export`: rows as text, oldest first, page by page, to stdout or into a file.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use countersign_store::ledger::{self, Filter};
use countersign_store::{Store, StoreUrl};
use jiff::Timestamp;

use super::wanted::Wanted;
use crate::answer::{Answer, Outcome, Trouble};
use crate::config_file::why;
use crate::output::{Format, Progress, Voice, plural};
use crate::records;

/// Shown under the help.
pub(crate) const EXAMPLES: &str = "Examples:
  countersign activity export --since 30d --out ledger.jsonl
  countersign activity export --format csv --status refused > refused.csv";

/// What `activity export` takes.
#[derive(Args, Debug)]
pub(crate) struct Export {
    /// JSON lines hold the hashed form of each row: others can check the chain without us
    #[arg(long, value_enum, default_value_t = Shape::Jsonl)]
    format: Shape,

    /// Write into this file instead of stdout; it must not exist yet
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,

    #[command(flatten)]
    wanted: Wanted,
}

/// How rows are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Shape {
    /// One JSON object a line
    Jsonl,
    /// Comma-separated values with a head line
    Csv,
}

/// Exports the rows.
pub(crate) fn run(args: &Export, url: &StoreUrl, voice: Voice) -> Outcome {
    if voice.format == Format::Json && args.out.is_none() {
        let message = "with `--json`, stdout carries one envelope: the rows need a file";
        return Err(Trouble::usage("argument_missing", message, "add --out FILE, or leave --json out"));
    }
    let filter = args.wanted.filter(Timestamp::now());
    let done = records::look(url, async |store| match &args.out {
        Some(path) => {
            let file = create(path)?;
            let done = pour(&store, filter, args.format, BufWriter::new(&file), voice, url).await?;
            // Whoever exports evidence wants it to be there after a power cut.
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
pub(super) fn create(path: &Path) -> Result<File, Trouble> {
    File::create_new(path).map_err(|error| {
        if error.kind() == io::ErrorKind::AlreadyExists {
            let message = format!("`{}` exists and is not replaced", path.display());
            Trouble::usage("file_exists", message, "name another file, or remove it first")
        } else {
            unwritable(path, &error)
        }
    })
}

/// A file that can't be written.
pub(super) fn unwritable(path: &Path, error: &io::Error) -> Trouble {
    let is_lost = error.kind() == io::ErrorKind::NotFound;
    let why = if is_lost { "there is no such folder".to_owned() } else { why(error) };
    Trouble::Output(format!("can't write `{}`: {why}", path.display()))
}

#[derive(Default)]
struct Done {
    rows: u64,
    bytes: u64,
}

async fn pour(
    store: &Store,
    filter: Filter,
    shape: Shape,
    mut out: impl Write,
    voice: Voice,
    url: &StoreUrl,
) -> Result<Done, Trouble> {
    let format = match shape {
        Shape::Jsonl => ledger::Format::Jsonl,
        Shape::Csv => ledger::Format::Csv,
    };
    let mut export = store.export(filter, format);
    let mut progress = Progress::begin(voice, "rows");
    let mut done = Done::default();
    let mut lines = Lines::default();
    while let Some(piece) = export.next().await.map_err(|fault| records::trouble(&fault, url))? {
        match out.write_all(piece.as_bytes()) {
            Ok(()) => {}
            // `| head` has seen enough.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(done),
            Err(error) => return Err(Trouble::Output(format!("can't write the rows: {error}"))),
        }
        done.bytes += piece.len() as u64;
        lines.count(&piece);
        done.rows = lines.rows(shape);
        progress.at(done.rows);
    }
    match out.flush() {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Trouble::Output(format!("can't write the rows: {error}")))
        }
        _ => Ok(done),
    }
}

/// Counts lines that end outside of quotes: a quoted field of CSV may hold line ends of its own.
#[derive(Default)]
struct Lines {
    ended: u64,
    quoted: Quoted,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Quoted {
    #[default]
    Outside,
    Inside,
}

impl Lines {
    fn count(&mut self, piece: &str) {
        for byte in piece.bytes() {
            match (byte, self.quoted) {
                (b'"', Quoted::Outside) => self.quoted = Quoted::Inside,
                (b'"', Quoted::Inside) => self.quoted = Quoted::Outside,
                (b'\n', Quoted::Outside) => self.ended += 1,
                _ => {}
            }
        }
    }

    /// The head line of CSV is no row.
    fn rows(&self, shape: Shape) -> u64 {
        match shape {
            Shape::Jsonl => self.ended,
            Shape::Csv => self.ended.saturating_sub(1),
        }
    }
}
