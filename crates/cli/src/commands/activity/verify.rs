//! `countersign activity verify`: proves the ledger whole, or names the first row that is not as it was written.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use countersign_core::refusal::{Code, Refusal};
use countersign_store::StoreUrl;
use countersign_store::ledger::{self, Bad, Checkpoint, Filter, Report, Row, Why};
use serde_json::{Map, Value, json};

use crate::answer::{Answer, Outcome, Refused, Trouble};
use crate::config_file::read_text;
use crate::output::{BAD, DIM, GOOD, Progress, Voice, paint, plural, span, visible};
use crate::records;

/// Shown under the help.
pub(crate) const EXAMPLES: &str = "Examples:
  countersign activity verify
  countersign activity verify --checkpoint head.json

Rows cut off together with all that the store keeps about them go unnoticed
without a checkpoint that was kept elsewhere.";

/// No checkpoint is that long.
const LONGEST: u64 = 8 << 20;

/// What `activity verify` takes.
#[derive(Args, Debug)]
pub(crate) struct Verify {
    /// A checkpoint exported earlier: everything up to it must still be there
    #[arg(long, value_name = "FILE")]
    checkpoint: Option<PathBuf>,
}

/// Verifies the ledger.
pub(crate) fn run(args: &Verify, url: &StoreUrl, voice: Voice) -> Outcome {
    let outside = args.checkpoint.as_deref().map(read).transpose()?;
    let mut progress = Progress::begin(voice, "verifying");
    let (report, head) = records::look(url, async |store| {
        let trouble = |fault| records::trouble(&fault, url);
        let report = progress.during(ledger::verify(&store, outside.as_ref())).await.map_err(trouble)?;
        let newest = store.activity(Filter { limit: Some(1), ..Filter::default() }).await;
        // A row that can't be read is the report's to tell.
        Ok((report, newest.ok().and_then(|page| page.rows.into_iter().next())))
    })?;
    let took = progress.elapsed();
    drop(progress);
    let data = data(&report, head.as_ref(), took, outside.is_some());
    match &report.first_bad {
        None => Ok(Answer {
            text: clean(&report, head.as_ref(), took),
            data,
            warnings: warnings(&report),
            ..Answer::default()
        }),
        Some(bad) => {
            let (reason, what) = words(bad.why);
            let refusal = Refusal::new(Code::LedgerTampered, format!("{} {what}", place(bad)));
            let refusal = refusal.because(reason).with("first_bad", json!(bad));
            let mut refused = Refused::from(refusal);
            refused.findings = found(&report, took);
            refused.data = data;
            refused.warnings = warnings(&report);
            refused.next = Some(next(bad));
            Err(refused.into())
        }
    }
}

fn read(path: &Path) -> Result<Checkpoint, Trouble> {
    let text = read_text(path, LONGEST).and_then(|text| text.parse().map_err(|why| format!("{why}")));
    text.map_err(|why| {
        let message = format!("can't use `{}`: {}", path.display(), visible(&why));
        Trouble::usage("invalid_value", message, "countersign activity checkpoint --out FILE makes one")
    })
}

fn clean(report: &Report, head: Option<&Row>, took: Duration) -> String {
    // "0 rows are as they were written" would sound like a proof.
    if report.rows == 0 {
        return format!("{}\n", paint(DIM, "the ledger is empty: nothing was recorded yet"));
    }
    let head =
        head.map(|row| format!("head {} #{} {}\n", row.writer, row.sequence, row.hash)).unwrap_or_default();
    let against = match report.checkpoints {
        0 => "no checkpoint to compare with".to_owned(),
        some => plural(some, "checkpoint"),
    };
    format!(
        "{} {}\n{}\n",
        paint(GOOD, "✓"),
        good_rows(report),
        paint(DIM, format_args!("{head}{against}, {}", span(took)))
    )
}

fn found(report: &Report, took: Duration) -> String {
    format!("{} {}, then one is not\n{}\n", paint(BAD, "✗"), good_rows(report), paint(DIM, span(took)))
}

fn good_rows(report: &Report) -> String {
    let are = if report.rows == 1 { "is as it was" } else { "are as they were" };
    format!("{} of {} {are} written", plural(report.rows, "row"), plural(report.writers, "writer"))
}

fn place(bad: &Bad) -> String {
    let id = bad.id.as_ref().map(|id| format!(" ({})", visible(id.as_str()))).unwrap_or_default();
    format!("row {} of writer `{}`{id}", bad.sequence, visible(bad.writer.as_str()))
}

/// The reason code, and what follows "row N of writer W".
fn words(why: Why) -> (&'static str, &'static str) {
    match why {
        Why::Changed => ("row_changed", "was changed: it is not what was hashed"),
        Why::Missing => ("row_missing", "is missing, though later rows are there"),
        Why::Reordered => ("row_reordered", "does not belong in its place: rows were reordered"),
        Why::Truncated => ("truncated", "and everything after it was cut off"),
        Why::BadSignature => {
            ("bad_signature", "is vouched for by a checkpoint whose signature is not that of its key")
        }
        Why::Foreign => ("foreign_checkpoint", "was not written, or signed, by this store"),
    }
}

fn next(bad: &Bad) -> String {
    match &bad.id {
        Some(id) => format!("countersign activity show {id}, and compare with a backup or an export"),
        None => "compare with a backup or an export".to_owned(),
    }
}

fn warnings(report: &Report) -> Vec<String> {
    let many = format!("{} keys have signed for this store: a key was lost or replaced", report.keys);
    if report.keys > 1 { vec![many] } else { Vec::new() }
}

fn data(report: &Report, head: Option<&Row>, took: Duration, outside: bool) -> Map<String, Value> {
    let mut data = Map::new();
    data.insert("clean".into(), report.is_clean().into());
    data.insert("rows".into(), report.rows.into());
    data.insert("writers".into(), report.writers.into());
    data.insert("checkpoints".into(), report.checkpoints.into());
    data.insert("outside_checkpoint".into(), outside.into());
    data.insert("keys".into(), report.keys.into());
    let head = head
        .map(|row| json!({"writer": row.writer, "sequence": row.sequence, "hash": row.hash, "id": row.id}));
    data.insert("head".into(), head.into());
    data.insert("first_bad".into(), json!(report.first_bad));
    data.insert("took_ms".into(), u64::try_from(took.as_millis()).unwrap_or(u64::MAX).into());
    data
}
