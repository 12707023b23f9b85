//! The plan: the changes that turn the actual state into the desired one. Pure: reads, writes and times nothing.

use std::path::PathBuf;

use countersign_policy::digest::Digest;
use countersign_policy::refusal::{Code, Refusal};
use serde_json::{Map, Value, json};

use crate::actual_state::ActualState;
use crate::desired_state::{DesiredState, FileKey};
use crate::error::shown;
use crate::manifest::Target;
use crate::place::posix;
use countersign_policy::words::words;

words! {
    pub enum FileOp("op") {
        Create = "create",
        /// It gets other content.
        Update = "update",
        Delete = "delete",
    }
}

words! {
    /// Whose content an update replaces.
    pub enum UpdateKind("update kind") {
        Managed = "managed_update",
        /// Somebody's: it has to be agreed to.
        Adopt = "adopt_update",
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileChange {
    pub target: Target,
    pub op: FileOp,
    pub path: PathBuf,
    pub before: Option<Digest>,
    pub after: Option<Digest>,
    /// For updates: whose content goes.
    pub update_kind: Option<UpdateKind>,
    pub reason: &'static str,
}

/// What has to change, sorted by target and path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    pub changes: Vec<FileChange>,
}

/// Compares what should be with what is.
pub(crate) fn plan(desired: &DesiredState, actual: &ActualState) -> Plan {
    let mut changes = Vec::new();
    for (key, output) in &desired.outputs {
        let (target, path) = key;
        let before = actual.files.get(key).copied().flatten();
        let after = Some(output.digest);
        if before == after {
            continue;
        }
        let (op, update_kind, reason) = match (before, actual.managed.contains_key(key)) {
            (None, _) => (FileOp::Create, None, "file missing"),
            (Some(_), true) => (FileOp::Update, Some(UpdateKind::Managed), "content differs"),
            (Some(_), false) => {
                (FileOp::Update, Some(UpdateKind::Adopt), "would overwrite unmanaged existing file")
            }
        };
        changes.push(FileChange {
            target: *target,
            op,
            path: path.to_path_buf(),
            before,
            after,
            update_kind,
            reason,
        });
    }
    let unasked = |key: &&FileKey| !desired.outputs.contains_key(*key) && !actual.kept.contains_key(*key);
    for key in actual.managed.keys().filter(unasked) {
        if let Some(before) = actual.files.get(key).copied().flatten() {
            changes.push(FileChange {
                target: key.0,
                op: FileOp::Delete,
                path: key.1.to_path_buf(),
                before: Some(before),
                after: None,
                update_kind: None,
                reason: "no longer managed",
            });
        }
    }
    changes.sort_by(|a, b| (a.target, &a.path).cmp(&(b.target, &b.path)));
    Plan { changes }
}

impl Plan {
    /// How many changes of a kind there are.
    pub fn count(&self, op: FileOp) -> usize {
        self.changes.iter().filter(|change| change.op == op).count()
    }

    /// `{create, update, delete}`.
    pub fn summary(&self) -> Value {
        json!({"create": self.count(FileOp::Create), "update": self.count(FileOp::Update), "delete": self.count(FileOp::Delete)})
    }

    pub(crate) fn changes_value(&self) -> Value {
        self.changes.iter().map(FileChange::to_value).collect()
    }

    /// Refuses if files of others would be overwritten and nobody agreed.
    pub fn check_adopt(&self, adopt: AdoptPolicy) -> Result<(), Refusal> {
        let adopted: Vec<&FileChange> =
            self.changes.iter().filter(|change| change.update_kind == Some(UpdateKind::Adopt)).collect();
        let Some(first) = adopted.first().filter(|_| adopt == AdoptPolicy::Refused) else { return Ok(()) };
        let sample: Vec<String> = adopted.iter().take(20).map(|change| shown(&change.path)).collect();
        let message = match adopted.len() {
            1 => format!("`{}` exists and is not managed; it would be overwritten", shown(&first.path)),
            n => format!(
                "{n} files such as `{}` exist and are not managed; they would be overwritten",
                shown(&first.path)
            ),
        };
        Err(Refusal::new(Code::AdoptConfirmRequired, message)
            .with("flag", "--adopt")
            .with("adopt_updates", adopted.len())
            .with("sample_paths_posix", sample.clone())
            .with("sample_paths", sample))
    }
}

/// Whether files of others may be overwritten.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AdoptPolicy {
    #[default]
    Refused,
    /// They may; a backup is kept.
    Agreed,
}

impl FileChange {
    pub fn to_value(&self) -> Value {
        let mut change = Map::new();
        change.insert("target".into(), self.target.as_str().into());
        change.insert("op".into(), self.op.as_str().into());
        change.insert("path".into(), self.path.to_string_lossy().into_owned().into());
        change.insert("path_posix".into(), posix(&self.path).into());
        change.insert("before_sha256".into(), self.before.map_or(Value::Null, |digest| digest.hex().into()));
        change.insert("after_sha256".into(), self.after.map_or(Value::Null, |digest| digest.hex().into()));
        if let Some(kind) = self.update_kind {
            change.insert("update_kind".into(), kind.as_str().into());
        }
        change.insert("reason".into(), self.reason.into());
        Value::Object(change)
    }
}
