//! Snapshots: what each deployment changed and which files it managed, with the bytes to roll back. Never changes a file once written.
//! Reads snapshots of the original tool as well.

use std::path::{Path, PathBuf};

use countersign_policy::digest::Digest;
use countersign_policy::refusal::{Code, Refusal};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::error::{PackError, PackResult, shown};
use crate::place::PackEnvironment;
use crate::records;
use crate::reply::PackCommandReply;
use crate::rollback::INITIAL;
use crate::system::{self, FileSystem, PathStatus};
use countersign_policy::words::words;

words! {
    pub enum SnapshotKind("snapshot kind") {
        Deploy = "deploy",
        /// The assets that teach agents to use this.
        Bootstrap = "bootstrap",
        Rollback = "rollback",
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    #[serde(default = "deploy_kind")]
    pub kind: SnapshotKind,
    /// Nanoseconds since 1970: later ones are greater.
    pub id: String,
    pub created_at: String,
    #[serde(default)]
    pub targets: Vec<String>,
    /// What was ours after it.
    #[serde(default)]
    pub(crate) managed_files: Vec<ManagedFile>,
    #[serde(default)]
    pub(crate) changes: Vec<SnapshotChange>,
    /// For going back: the snapshot it went back to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rolled_back_to: Option<String>,
    /// For going back: whether it went before the first snapshot. The original would look for a snapshot of that name.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub before_first: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) lockfile_sha256: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backup_root: Option<String>,
    /// The roots that have a manifest after it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) roots: Vec<SnapshotRoot>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManagedFile {
    pub target: String,
    pub path: String,
    pub sha256: String,
    /// For which modules; the original does not say.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub module_ids: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotRoot {
    pub target: String,
    pub path: String,
    /// The folder above it that is trusted.
    pub base: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotChange {
    pub target: String,
    /// `create`, `update` or `delete`.
    pub op: String,
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

/// Old snapshots of the original do not say.
const fn deploy_kind() -> SnapshotKind {
    SnapshotKind::Deploy
}

impl Snapshot {
    /// Changes of deployed files.
    pub fn file_changes(&self) -> impl Iterator<Item = &SnapshotChange> {
        self.changes.iter().filter(|change| !change.is_record())
    }

    /// Changes of target manifests, which are among the changes but are written anew by every apply.
    pub fn record_changes(&self) -> impl Iterator<Item = &SnapshotChange> {
        self.changes.iter().filter(|change| change.is_record())
    }
}

impl SnapshotChange {
    fn is_record(&self) -> bool {
        let name = Path::new(&self.path).file_name().and_then(|name| name.to_str());
        name.is_some_and(records::is_record)
    }
}

const LIMIT: u64 = 512 * 1024 * 1024;

/// The name of a blob: 16 hex digits of the path's digest.
pub(crate) fn blob_name(path: &str) -> String {
    Digest::plain(path.as_bytes()).hex().chars().take(16).collect()
}

/// Where the content of a file after a snapshot is kept.
pub(crate) fn state_blob(snapshots: &Path, id: &str, target: &str, path: &str) -> PathBuf {
    snapshots.join(id).join("state").join(target).join(blob_name(path))
}

/// Where the content of a file before a snapshot is kept.
pub(crate) fn backup_blob(snapshots: &Path, id: &str, target: &str, path: &str) -> PathBuf {
    snapshots.join(id).join("backup").join(target).join(blob_name(path))
}

pub fn file(snapshots: &Path, id: &str) -> PathBuf {
    snapshots.join(format!("{id}.json"))
}

/// Whether a text can be the id of a snapshot: digits only, so that it leads nowhere else.
pub fn is_id(text: &str) -> bool {
    !text.is_empty() && text.len() <= 32 && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Every snapshot that can be read, oldest first.
pub(crate) fn list(
    system: &dyn FileSystem,
    snapshots: &Path,
    warnings: &mut Vec<String>,
) -> PackResult<Vec<Snapshot>> {
    if system.path_status(snapshots).map_err(|error| PackError::io("read", snapshots, &error))?
        != PathStatus::Folder
    {
        return Ok(Vec::new());
    }
    let entries = system.list(snapshots).map_err(|error| PackError::io("list", snapshots, &error))?;
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

pub(crate) fn read(system: &dyn FileSystem, snapshots: &Path, id: &str) -> PackResult<Snapshot> {
    let missing = || {
        Refusal::new(Code::SnapshotNotFound, format!("there is no snapshot `{id}`")).with("snapshot_id", id)
    };
    if !is_id(id) {
        return Err(missing().into());
    }
    let path = file(snapshots, id);
    let bytes =
        system::read_if_there(system, &path, LIMIT).map_err(|error| PackError::io("read", &path, &error))?;
    let bytes = bytes.ok_or_else(missing)?;
    serde_json::from_slice(&bytes).map_err(|error| {
        let message = format!("snapshot `{id}` can't be read: {error}");
        Refusal::new(Code::SnapshotNotFound, message)
            .because("snapshot_damaged")
            .with("snapshot_id", id)
            .into()
    })
}

pub fn next_id(system: &dyn FileSystem, snapshots: &Path, now: jiff::Timestamp) -> PackResult<String> {
    let mut latest = 0u128;
    if system.path_status(snapshots).map_err(|error| PackError::io("read", snapshots, &error))?
        == PathStatus::Folder
    {
        for (name, _) in system.list(snapshots).map_err(|error| PackError::io("list", snapshots, &error))? {
            let number =
                name.to_str().map(|name| name.trim_end_matches(".json")).and_then(|name| name.parse().ok());
            latest = latest.max(number.unwrap_or_default());
        }
    }
    let nanos = u128::try_from(now.as_nanosecond()).unwrap_or_default();
    Ok(nanos.max(latest + 1).to_string())
}

/// The answer of `snapshots`: what one can go back to, newest first.
pub fn listing(place: &PackEnvironment, system: &dyn FileSystem) -> PackResult<PackCommandReply> {
    let mut warnings = Vec::new();
    let mut all = list(system, &place.snapshots(), &mut warnings)?;
    all.reverse();
    let count =
        |snapshot: &Snapshot, op: &str| snapshot.file_changes().filter(|change| change.op == op).count();
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
                "rolled_back_to": if snapshot.before_first { Some(INITIAL) } else { snapshot.rolled_back_to.as_deref() },
            })
        })
        .collect();
    Ok(PackCommandReply::default().with("snapshots", entries).warn(warnings))
}

pub(crate) fn text(snapshot: &Snapshot) -> PackResult<String> {
    let text = serde_json::to_string_pretty(snapshot);
    text.map(|text| text + "\n").map_err(|error| {
        PackError::broken(format!("write snapshot `{}`", shown(Path::new(&snapshot.id))), error)
    })
}
