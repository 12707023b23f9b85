//! The plan: what has to change so that the disk is as it should be. Pure: two views in, a list out; nothing here reads,
//! writes or knows the time.

use std::path::PathBuf;

use countersign_core::digest::Digest;
use countersign_core::refusal::{Code, Refusal};
use serde_json::{Map, Value, json};

use crate::actual::Actual;
use crate::desired::{Desired, Key};
use crate::manifest::Target;
use crate::place::posix;
use crate::stop::shown;
use countersign_core::words::words;

words! {
    /// What happens to a file.
    pub enum Op("op") {
        /// It is made.
        Create = "create",
        /// It gets other content.
        Update = "update",
        /// It goes.
        Delete = "delete",
    }
}

words! {
    /// Whose content an update replaces.
    pub enum UpdateKind("update kind") {
        /// Ours.
        Managed = "managed_update",
        /// Somebody's: it has to be agreed to.
        Adopt = "adopt_update",
    }
}

/// One change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// For which target.
    pub target: Target,
    /// What happens.
    pub op: Op,
    /// To which file.
    pub path: PathBuf,
    /// What is in it now.
    pub before: Option<Digest>,
    /// What will be.
    pub after: Option<Digest>,
    /// For updates: whose content goes.
    pub update_kind: Option<UpdateKind>,
    /// Why.
    pub reason: &'static str,
}

/// What has to change, sorted by target and path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// The changes.
    pub changes: Vec<Change>,
}

/// Compares what should be with what is.
pub fn plan(desired: &Desired, actual: &Actual) -> Plan {
    let mut changes = Vec::new();
    for (key, output) in &desired.outputs {
        let (target, path) = key;
        let before = actual.files.get(key).copied().flatten();
        let after = Some(output.digest);
        if before == after {
            continue;
        }
        let (op, update_kind, reason) = match (before, actual.managed.contains_key(key)) {
            (None, _) => (Op::Create, None, "file missing"),
            (Some(_), true) => (Op::Update, Some(UpdateKind::Managed), "content differs"),
            (Some(_), false) => {
                (Op::Update, Some(UpdateKind::Adopt), "would overwrite unmanaged existing file")
            }
        };
        changes.push(Change {
            target: *target,
            op,
            path: path.to_path_buf(),
            before,
            after,
            update_kind,
            reason,
        });
    }
    let unasked = |key: &&Key| !desired.outputs.contains_key(*key) && !actual.kept.contains_key(*key);
    for key in actual.managed.keys().filter(unasked) {
        if let Some(before) = actual.files.get(key).copied().flatten() {
            changes.push(Change {
                target: key.0,
                op: Op::Delete,
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
    pub fn count(&self, op: Op) -> usize {
        self.changes.iter().filter(|change| change.op == op).count()
    }

    /// `{create, update, delete}`.
    pub fn summary(&self) -> Value {
        json!({"create": self.count(Op::Create), "update": self.count(Op::Update), "delete": self.count(Op::Delete)})
    }

    /// The changes as programs read them.
    pub fn changes_value(&self) -> Value {
        self.changes.iter().map(Change::to_value).collect()
    }

    /// Refuses if files of others would be overwritten and nobody agreed.
    pub fn check_adopt(&self, adopt: Adopt) -> Result<(), Refusal> {
        let adopted: Vec<&Change> =
            self.changes.iter().filter(|change| change.update_kind == Some(UpdateKind::Adopt)).collect();
        let Some(first) = adopted.first().filter(|_| adopt == Adopt::Refused) else { return Ok(()) };
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
pub enum Adopt {
    /// They may not.
    #[default]
    Refused,
    /// They may; a backup is kept.
    Agreed,
}

impl Change {
    /// As programs read it.
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
