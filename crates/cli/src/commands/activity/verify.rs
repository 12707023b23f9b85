//! `countersign activity verify`: proves the ledger whole, or names the first row that is not as it was written.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use countersign_policy::refusal::{Code, Refusal};
use countersign_store::ledger::{
    self, ArchiveReport, Bad, Checkpoint, CheckpointFile, LedgerFilter, LedgerRow, PublicKey, VerifyReport,
    Why,
};
use countersign_store::{Store, StoreUrl};
use serde_json::{Map, Value, json};

use crate::command_result::{Answer, CommandError, CommandResult, Refused};
use crate::config_file::{read_text, why};
use crate::output::{BAD, DIM, GOOD, OutputSettings, Progress, paint, plural, span, visible};
use crate::records;

pub(crate) const EXAMPLES: &str = "Examples:
  countersign activity verify
  countersign activity verify --checkpoint head.json
  countersign activity verify --store sqlite:copy.db --key ledger.pem

Signatures are believed by the key file beside the store and by --key, never by
keys that the store names. Every checkpoint is also kept in a file outside the
store (in the state folder), and rows are compared with it.";

const LONGEST: u64 = 8 << 20;

#[derive(Args, Debug)]
pub(crate) struct ActivityVerifyArgs {
    /// A checkpoint exported earlier, or a file with one a line: everything up to it must still be there
    #[arg(long, value_name = "FILE")]
    checkpoint: Option<PathBuf>,

    /// A public key to believe besides the one beside the store: PEM, or as `activity key` prints it; may be repeated
    #[arg(long = "key", value_name = "FILE")]
    keys: Vec<PathBuf>,

    /// An archive of pruned rows, to compare with the tombstone that has its digest; may be repeated
    #[arg(long = "archive", value_name = "FILE")]
    archives: Vec<PathBuf>,
}

struct Evidence {
    /// Where the key file beside the store is, where one belongs.
    key_file: Option<PathBuf>,
    /// Keys that are believed.
    trusted: Vec<PublicKey>,
    /// Checkpoints from outside the store.
    outside: Vec<Checkpoint>,
    /// The file that the store's checkpoints are kept in by default.
    file: Option<CheckpointFile>,
}

impl Evidence {
    fn gather(args: &ActivityVerifyArgs, url: &StoreUrl) -> Result<Self, CommandError> {
        let options = records::reading(url);
        let mut trusted = match ledger::keys_beside(url, &options) {
            Ok(keys) => keys,
            // A key file that others can read proves nothing; a key that was named does.
            Err(_) if !args.keys.is_empty() => Vec::new(),
            Err(fault) => return Err(records::trouble(&fault, url)),
        };
        for path in &args.keys {
            trusted.extend(read_keys(path)?);
        }
        trusted.sort_unstable();
        trusted.dedup();
        let file = records::outside_file(url);
        let mut outside = args.checkpoint.as_deref().map(read).transpose()?.unwrap_or_default();
        if let Some(file) = &file {
            outside.extend(file.read().map_err(|why| replaced(file, &why))?);
        }
        Ok(Self { key_file: ledger::key_path(url, &options), trusted, outside, file })
    }
}

pub(crate) fn run(args: &ActivityVerifyArgs, url: &StoreUrl, voice: OutputSettings) -> CommandResult {
    records::require(url)?;
    let evidence = Evidence::gather(args, url)?;
    let mut progress = Progress::begin(voice, "verifying");
    let (report, head) = records::with_read_only(url, async |store| {
        let trouble = |fault| records::trouble(&fault, url);
        let verified = ledger::verify_with(&store, &evidence.trusted, &evidence.outside);
        let report = progress.during(verified).await.map_err(trouble)?;
        for path in &args.archives {
            check_archive(&store, &evidence.trusted, path, url).await?;
        }
        let newest = store.activity(LedgerFilter { limit: Some(1), ..LedgerFilter::default() }).await;
        // A row that can't be read is the report's to tell.
        Ok((report, newest.ok().and_then(|page| page.rows.into_iter().next())))
    })?;
    let took = progress.elapsed();
    drop(progress);
    let data = data(&report, head.as_ref(), took, &evidence);
    match &report.first_bad {
        None => Ok(Answer {
            text: clean(&report, head.as_ref(), took),
            data,
            warnings: warnings(&report),
            ..Answer::default()
        }),
        Some(bad) => {
            let refusal = if bad.why == Why::Foreign && bad.key.is_some() && evidence.trusted.is_empty() {
                unbelieved(bad, &evidence)
            } else {
                tampered(bad)
            };
            let mut refused = Refused::from(refusal);
            refused.findings = found(&report, took);
            refused.data = data;
            refused.warnings = warnings(&report);
            refused.next = Some(next(bad, &evidence));
            Err(refused.into())
        }
    }
}

/// Refuses an archive that is not what a tombstone says of it.
async fn check_archive(
    store: &Store,
    trusted: &[PublicKey],
    path: &Path,
    url: &StoreUrl,
) -> Result<(), CommandError> {
    let found = ledger::verify_archive(store, trusted, path).await;
    let shown = visible(&path.display().to_string()).into_owned();
    let refuse = |message: String| {
        let refusal = Refusal::new(Code::LedgerTampered, message).because("archive_changed");
        Err(CommandError::refused(
            refusal.with("archive", shown.as_str()),
            "compare with a backup of the archive",
        ))
    };
    match found.map_err(|fault| records::trouble(&fault, url))? {
        Ok(ArchiveReport::Whole { .. }) => Ok(()),
        Ok(ArchiveReport::Unknown) => refuse(format!("no tombstone speaks of an archive named `{shown}`")),
        Ok(ArchiveReport::Changed { writer, first, through }) => refuse(format!(
            "`{shown}` was changed: rows {first} to {through} of writer `{}` are not as they were archived",
            visible(writer.as_str())
        )),
        Err(error) => {
            let message = format!("can't read `{shown}`: {}", why(&error));
            Err(CommandError::usage("invalid_value", message, "name an archive that activity prune wrote"))
        }
    }
}

pub(super) fn tampered(bad: &Bad) -> Refusal {
    let (reason, what) = words(bad.why);
    let what = match &bad.key {
        Some(key) => format!("is vouched for by a checkpoint of a key that is not trusted: {key}"),
        None => what.to_owned(),
    };
    let refusal = Refusal::new(Code::LedgerTampered, format!("{} {what}", place(bad)));
    refusal.because(reason).with("first_bad", json!(bad))
}

/// Nothing is known to be wrong, and nothing is proven: signed rows without a key to check them by.
fn unbelieved(bad: &Bad, evidence: &Evidence) -> Refusal {
    let place =
        evidence.key_file.as_ref().map(|path| format!(" at `{}`", path.display())).unwrap_or_default();
    let key = bad.key.as_deref().unwrap_or_default();
    let message =
        format!("the ledger is signed by key {key}, and there is no key file{place} to check it with");
    Refusal::new(Code::LedgerUnverified, message).with("key", key)
}

/// The file outside holds something that we never wrote.
fn replaced(file: &CheckpointFile, why: &str) -> CommandError {
    let message = format!("the checkpoints kept outside the store can't be read: {}", visible(why));
    let next = format!("compare {} with a backup; move it away to verify without it", file.path().display());
    CommandError::refused(Refusal::new(Code::LedgerTampered, message).because("bad_signature"), next)
}

fn read_keys(path: &Path) -> Result<Vec<PublicKey>, CommandError> {
    let keys =
        read_text(path, LONGEST).and_then(|text| PublicKey::read_all(&text).map_err(|why| why.to_string()));
    keys.map_err(|why| {
        let message = format!("can't use `{}`: {}", path.display(), visible(&why));
        CommandError::usage("invalid_value", message, "countersign activity key prints one")
    })
}

fn read(path: &Path) -> Result<Vec<Checkpoint>, CommandError> {
    let text = read_text(path, LONGEST).and_then(|text| {
        // One checkpoint may be spread over lines; several are one a line.
        if let Ok(one) = text.parse() {
            return Ok(vec![one]);
        }
        let lines = text.lines().filter(|line| !line.trim().is_empty());
        let all: Result<Vec<Checkpoint>, _> = lines.map(str::parse).collect();
        match all {
            Ok(all) if !all.is_empty() => Ok(all),
            Ok(_) => Err("there is no checkpoint in it".to_owned()),
            Err(why) => Err(format!("{why}")),
        }
    });
    text.map_err(|why| {
        let message = format!("can't use `{}`: {}", path.display(), visible(&why));
        CommandError::usage("invalid_value", message, "countersign activity checkpoint --out FILE makes one")
    })
}

fn clean(report: &VerifyReport, head: Option<&LedgerRow>, took: Duration) -> String {
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
    let keys: String = report.fingerprints.iter().map(|key| format!("key {key}\n")).collect();
    let pruned = match report.pruned {
        0 => String::new(),
        some => format!("{} before them archived, behind tombstones\n", plural(some, "row")),
    };
    let outside = match report.outside {
        0 => String::new(),
        some => format!(", {some} of them kept outside the store"),
    };
    format!(
        "{} {}\n{}\n",
        paint(GOOD, "✓"),
        good_rows(report),
        paint(DIM, format_args!("{pruned}{head}{keys}{against}{outside}, {}", span(took)))
    )
}

fn found(report: &VerifyReport, took: Duration) -> String {
    format!("{} {}, then one is not\n{}\n", paint(BAD, "✗"), good_rows(report), paint(DIM, span(took)))
}

fn good_rows(report: &VerifyReport) -> String {
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
        Why::Foreign => ("foreign_checkpoint", "was not written by a writer of this store"),
    }
}

fn next(bad: &Bad, evidence: &Evidence) -> String {
    match &bad.id {
        _ if bad.key.is_some() => {
            let file = evidence.file.as_ref().map(|file| {
                format!("; if the store was begun anew on purpose, move {} away", file.path().display())
            });
            format!("if the key is yours, name its public half: --key FILE{}", file.unwrap_or_default())
        }
        Some(id) => format!("countersign activity show {id}, and compare with a backup or an export"),
        None => "compare with a backup or an export".to_owned(),
    }
}

fn warnings(report: &VerifyReport) -> Vec<String> {
    let mut warnings = Vec::new();
    if report.keys > 1 {
        warnings
            .push(format!("{} keys are trusted: one was replaced, or several machines sign", report.keys));
    }
    if report.rows > 0 && report.checkpoints == 0 {
        warnings.push("nothing is signed: rows that were all rewritten would not be noticed".to_owned());
    }
    warnings
}

fn data(
    report: &VerifyReport,
    head: Option<&LedgerRow>,
    took: Duration,
    evidence: &Evidence,
) -> Map<String, Value> {
    let mut data = Map::new();
    data.insert("clean".into(), report.is_clean().into());
    data.insert("rows".into(), report.rows.into());
    data.insert("pruned".into(), report.pruned.into());
    data.insert("writers".into(), report.writers.into());
    data.insert("checkpoints".into(), report.checkpoints.into());
    data.insert("outside_checkpoint".into(), (report.outside > 0).into());
    data.insert("outside_checkpoints".into(), report.outside.into());
    let file = evidence.file.as_ref().map(|file| file.path().display().to_string());
    data.insert("outside_file".into(), json!(file));
    data.insert("keys".into(), report.keys.into());
    data.insert("fingerprints".into(), json!(report.fingerprints));
    data.insert("key_file".into(), json!(evidence.key_file.as_ref().map(|path| path.display().to_string())));
    let head = head
        .map(|row| json!({"writer": row.writer, "sequence": row.sequence, "hash": row.hash, "id": row.id}));
    data.insert("head".into(), head.into());
    data.insert("first_bad".into(), json!(report.first_bad));
    data.insert("took_ms".into(), u64::try_from(took.as_millis()).unwrap_or(u64::MAX).into());
    data
}
