//! Snapshots: what each deployment changed and what was ours after it, with the bytes to go back. Files once written never
//! change. Reads those of the original tool as well.

use std::path::{Path, PathBuf};

use countersign_core::digest::Digest;
use countersign_core::refusal::{Code, Refusal};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::place::Place;
use crate::reply::Reply;
use crate::stop::{Outcome, Stop, shown};
use crate::system::{self, Found, System};
use countersign_core::words::words;

words! {
    /// What wrote a snapshot.
    pub enum SnapshotKind("snapshot kind") {
        /// A deployment.
        Deploy = "deploy",
        /// The assets that teach agents to use this.
        Bootstrap = "bootstrap",
        /// Going back.
        Rollback = "rollback",
    }
}

/// A snapshot.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// What wrote it.
    pub kind: SnapshotKind,
    /// Nanoseconds since 1970: later ones are greater.
    pub id: String,
    /// When.
    pub created_at: String,
    /// For which targets.
    #[serde(default)]
    pub targets: Vec<String>,
    /// What was ours after it.
    #[serde(default)]
    pub managed_files: Vec<ManagedFile>,
    /// What it changed.
    #[serde(default)]
    pub changes: Vec<SnapshotChange>,
    /// For going back: where to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rolled_back_to: Option<String>,
    /// The lockfile it was made with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lockfile_sha256: Option<String>,
    /// Where its backups are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backup_root: Option<String>,
    /// The roots that have a manifest after it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub roots: Vec<SnapshotRoot>,
}

/// A file that was ours.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManagedFile {
    /// For which target.
    pub target: String,
    /// Where.
    pub path: String,
    /// As it was deployed.
    pub sha256: String,
    /// For which modules; the original does not say.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub module_ids: Vec<String>,
}

/// A root with a manifest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotRoot {
    /// Of which target.
    pub target: String,
    /// Where.
    pub path: String,
    /// The folder above it that is trusted.
    pub base: String,
}

/// What happened to a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotChange {
    /// For which target.
    pub target: String,
    /// `create`, `update` or `delete`.
    pub op: String,
    /// Where.
    pub path: String,
    /// Where its old content is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backup_path: Option<String>,
    /// Its old content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before_sha256: Option<String>,
    /// Its new content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after_sha256: Option<String>,
}

const LIMIT: u64 = 512 * 1024 * 1024;

/// The name of a blob: 16 hex digits of the path's digest.
pub fn blob_name(path: &str) -> String {
    Digest::plain(path.as_bytes()).hex().chars().take(16).collect()
}

/// Where the content of a file after a snapshot is kept.
pub fn state_blob(snapshots: &Path, id: &str, target: &str, path: &str) -> PathBuf {
    snapshots.join(id).join("state").join(target).join(blob_name(path))
}

/// Where the content of a file before a snapshot is kept.
pub fn backup_blob(snapshots: &Path, id: &str, target: &str, path: &str) -> PathBuf {
    snapshots.join(id).join("backup").join(target).join(blob_name(path))
}

/// The file of a snapshot.
pub fn file(snapshots: &Path, id: &str) -> PathBuf {
    snapshots.join(format!("{id}.json"))
}

/// Whether a text can be the id of a snapshot: digits only, so that it leads nowhere else.
pub fn is_id(text: &str) -> bool {
    !text.is_empty() && text.len() <= 32 && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Every snapshot that can be read, oldest first.
pub fn list(system: &dyn System, snapshots: &Path, warnings: &mut Vec<String>) -> Outcome<Vec<Snapshot>> {
    if system.look(snapshots).map_err(|error| Stop::io("read", snapshots, &error))? != Found::Folder {
        return Ok(Vec::new());
    }
    let entries = system.list(snapshots).map_err(|error| Stop::io("list", snapshots, &error))?;
    let names = entries.iter().filter_map(|(name, _)| name.to_str()?.strip_suffix(".json"));
    let mut ids: Vec<&str> = names.filter(|name| is_id(name)).collect();
    ids.sort_by_key(|id| (id.len(), *id));
    let mut found = Vec::new();
    for id in ids {
        match read(system, snapshots, id) {
            Ok(snapshot) => found.push(snapshot),
            Err(stop) => warnings.push(format!("snapshot `{id}` is left out: {stop}")),
        }
    }
    Ok(found)
}

/// One snapshot by its id.
pub fn read(system: &dyn System, snapshots: &Path, id: &str) -> Outcome<Snapshot> {
    let missing = || {
        Refusal::new(Code::SnapshotNotFound, format!("there is no snapshot `{id}`")).with("snapshot_id", id)
    };
    if !is_id(id) {
        return Err(missing().into());
    }
    let path = file(snapshots, id);
    let bytes =
        system::read_if_there(system, &path, LIMIT).map_err(|error| Stop::io("read", &path, &error))?;
    let bytes = bytes.ok_or_else(missing)?;
    serde_json::from_slice(&bytes).map_err(|error| {
        let message = format!("snapshot `{id}` can't be read: {error}");
        Refusal::new(Code::SnapshotNotFound, message)
            .because("snapshot_damaged")
            .with("snapshot_id", id)
            .into()
    })
}

/// An id later than every other.
pub fn next_id(system: &dyn System, snapshots: &Path, now: jiff::Timestamp) -> Outcome<String> {
    let mut latest = 0u128;
    if system.look(snapshots).map_err(|error| Stop::io("read", snapshots, &error))? == Found::Folder {
        for (name, _) in system.list(snapshots).map_err(|error| Stop::io("list", snapshots, &error))? {
            let number =
                name.to_str().map(|name| name.trim_end_matches(".json")).and_then(|name| name.parse().ok());
            latest = latest.max(number.unwrap_or_default());
        }
    }
    let nanos = u128::try_from(now.as_nanosecond()).unwrap_or_default();
    Ok(nanos.max(latest + 1).to_string())
}

/// The answer of `snapshots`: what one can go back to, newest first.
pub fn listing(place: &Place, system: &dyn System) -> Outcome<Reply> {
    let mut warnings = Vec::new();
    let mut all = list(system, &place.snapshots(), &mut warnings)?;
    all.reverse();
    let count =
        |snapshot: &Snapshot, op: &str| snapshot.changes.iter().filter(|change| change.op == op).count();
    let entries: Vec<Value> = all
        .iter()
        .map(|snapshot| {
            json!({
                "snapshot_id": snapshot.id,
                "kind": snapshot.kind,
                "created_at": snapshot.created_at,
                "targets": snapshot.targets,
                "managed_files": snapshot.managed_files.len(),
                "summary": {
                    "create": count(snapshot, "create"), "update": count(snapshot, "update"), "delete": count(snapshot, "delete"),
                },
                "rolled_back_to": snapshot.rolled_back_to,
            })
        })
        .collect();
    Ok(Reply::default().with("snapshots", entries).warn(warnings))
}

/// A snapshot's text.
pub fn text(snapshot: &Snapshot) -> Outcome<String> {
    let text = serde_json::to_string_pretty(snapshot);
    text.map(|text| text + "\n")
        .map_err(|error| Stop::broken(format!("write snapshot `{}`", shown(Path::new(&snapshot.id))), error))
}
