//! Drift: how the files on disk differ from what was deployed. Reads only.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use countersign_policy::digest::Digest;
use serde_json::{Map, Value, json};

use crate::bootstrap;
use crate::desired_state::key;
use crate::error::{PackError, PackResult, shown};
use crate::manifest::Target;
use crate::records;
use crate::reply::{PackCommandReply, put_path};
use crate::survey::DeploymentSurvey;
use crate::system::{self, EntryKind, FileSystem, PathStatus};
use crate::targets::{ExtraFiles, TargetRoot};
use countersign_policy::words::words;

words! {
    pub enum DriftKind("drift kind") {
        Missing = "missing",
        /// It has other content.
        Modified = "modified",
        /// It is there and nobody wants it.
        Extra = "extra",
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriftedFile {
    pub target: Target,
    pub root: PathBuf,
    pub path: PathBuf,
    pub expected: Option<Digest>,
    pub actual: Option<Digest>,
    pub kind: DriftKind,
    /// For which modules, where that is known.
    pub module_ids: Vec<String>,
}

/// Everything that differs, sorted.
pub fn drift(
    survey: &DeploymentSurvey,
    system: &dyn FileSystem,
    warnings: &mut Vec<String>,
) -> PackResult<Vec<DriftedFile>> {
    let mut found = Vec::new();
    let has_records = survey.actual.records.iter().any(Option::is_some);
    if !has_records {
        warnings
            .push("no target has a manifest yet: files are compared with what should be deployed".to_owned());
    }
    for (index, (root, record)) in survey.desired.roots.iter().zip(&survey.actual.records).enumerate() {
        let wanted = survey
            .desired
            .outputs
            .iter()
            .filter(|((target, _), output)| *target == root.target && output.root == index);
        let mut known: BTreeSet<PathBuf> = wanted.clone().map(|((_, path), _)| path.to_path_buf()).collect();
        match record {
            Some(record) => {
                for (path, expected, file) in record.record.files(&root.path) {
                    let is_wanted =
                        known.contains(&path) || survey.actual.kept.contains_key(&key(root.target, &path));
                    known.insert(path.clone());
                    let actual = survey.actual.files.get(&key(root.target, &path)).copied().flatten();
                    let output = survey.desired.outputs.get(&key(root.target, &path));
                    let expected = output.map(|output| output.digest).or(expected.filter(|_| is_wanted));
                    let kind = match (actual, is_wanted) {
                        (None, true) => DriftKind::Missing,
                        (None, false) => continue,
                        (Some(_), false) => DriftKind::Extra,
                        (Some(actual), true) if Some(actual) == expected => continue,
                        (Some(_), true) => DriftKind::Modified,
                    };
                    let (target, root, module_ids) =
                        (root.target, root.path.clone(), file.module_ids.clone());
                    found.push(DriftedFile { target, root, path, expected, actual, kind, module_ids });
                }
            }
            None => {
                let mut any = false;
                for ((target, path), output) in wanted {
                    any = true;
                    let actual = survey.actual.files.get(&(*target, path.clone())).copied().flatten();
                    let kind = match actual {
                        None => DriftKind::Missing,
                        Some(actual) if actual == output.digest => continue,
                        Some(_) => DriftKind::Modified,
                    };
                    let (root, path, module_ids) =
                        (root.path.clone(), path.to_path_buf(), output.module_ids.clone());
                    found.push(DriftedFile {
                        target: *target,
                        root,
                        path,
                        expected: Some(output.digest),
                        actual,
                        kind,
                        module_ids,
                    });
                }
                if any && has_records {
                    warnings.push(format!(
                        "`{}` has no manifest of {}: compared with what should be deployed",
                        shown(&root.path),
                        root.target
                    ));
                }
            }
        }
        if root.extras == ExtraFiles::Reported {
            extras(survey, root, &root.path, &known, system, &mut found)?;
        }
    }
    found.sort_by(|a, b| (a.target, &a.path, a.kind).cmp(&(b.target, &b.path, b.kind)));
    found.dedup();
    Ok(found)
}

/// Files in a root of ours that nobody planned.
fn extras(
    survey: &DeploymentSurvey,
    root: &TargetRoot,
    folder: &Path,
    known: &BTreeSet<PathBuf>,
    system: &dyn FileSystem,
    found: &mut Vec<DriftedFile>,
) -> PackResult<()> {
    if system.path_status(folder).map_err(|error| PackError::io("read", folder, &error))?
        != PathStatus::Folder
    {
        return Ok(());
    }
    for (name, kind) in system.list(folder).map_err(|error| PackError::io("list", folder, &error))? {
        let path = folder.join(&name);
        let other =
            survey.desired.roots.iter().any(|other| other.target == root.target && other.path == path);
        match kind {
            EntryKind::Folder if other => {}
            EntryKind::Folder => extras(survey, root, &path, known, system, found)?,
            EntryKind::File if known.contains(&path) || name.to_str().is_some_and(records::is_record) => {}
            EntryKind::File | EntryKind::Link | EntryKind::Other => found.push(DriftedFile {
                target: root.target,
                root: root.path.clone(),
                expected: None,
                // A link or a device has no content of its own.
                actual: system::digest_if_there(system, &path).ok().flatten(),
                path,
                kind: DriftKind::Extra,
                module_ids: Vec::new(),
            }),
        }
    }
    Ok(())
}

impl DriftedFile {
    pub fn to_value(&self) -> Map<String, Value> {
        let mut item = Map::new();
        item.insert("target".into(), self.target.as_str().into());
        put_path(&mut item, "root", &self.root);
        put_path(&mut item, "path", &self.path);
        for (name, digest) in [("expected", self.expected), ("actual", self.actual)] {
            item.insert(name.into(), digest.map(|digest| format!("sha256:{digest}")).into());
        }
        item.insert("kind".into(), self.kind.as_str().into());
        item
    }
}

fn summary<'a>(drift: impl Iterator<Item = &'a DriftedFile> + Clone) -> Value {
    let count = |kind| drift.clone().filter(|item| item.kind == kind).count();
    json!({
        "modified": count(DriftKind::Modified),
        "missing": count(DriftKind::Missing),
        "extra": count(DriftKind::Extra),
    })
}

/// The answer of `status`. Operator assets are looked at here and not as drift: they belong to no module.
pub fn reply(
    survey: &DeploymentSurvey,
    drift: &[DriftedFile],
    only: &[DriftKind],
    mut warnings: Vec<String>,
) -> PackCommandReply {
    let shown: Vec<&DriftedFile> =
        drift.iter().filter(|item| only.is_empty() || only.contains(&item.kind)).collect();
    let mut by_root: BTreeMap<(Target, &Path), Vec<&DriftedFile>> = BTreeMap::new();
    for item in &shown {
        by_root.entry((item.target, &item.root)).or_default().push(item);
    }
    let by_root: Vec<Value> = by_root
        .into_iter()
        .map(|((target, root), items)| {
            let mut entry = Map::new();
            entry.insert("target".into(), target.as_str().into());
            put_path(&mut entry, "root", root);
            entry.insert("summary".into(), summary(items.iter().copied()));
            Value::Object(entry)
        })
        .collect();
    let mut reply = PackCommandReply::new(survey.head())
        .with("drift", shown.iter().map(|item| Value::Object(item.to_value())).collect::<Vec<_>>())
        .with("summary", summary(shown.iter().copied()))
        .with("summary_by_root", by_root);
    if !only.is_empty() {
        reply = reply.with("summary_total", summary(drift.iter()));
    }
    let mut actions = Vec::new();
    for gap in bootstrap::gaps(survey) {
        warnings.push(gap.warning());
        actions.push(("bootstrap", gap.command() + " --yes --json"));
    }
    actions.sort();
    actions.dedup();
    actions.extend(next_actions(survey, drift));
    let commands: Vec<&str> = actions.iter().map(|(_, command)| command.as_str()).collect();
    let detailed: Vec<Value> =
        actions.iter().map(|(action, command)| json!({"action": action, "command": command})).collect();
    reply.with("next_actions", commands).with("next_actions_detailed", detailed).warn(warnings)
}

/// What can be done about it, in the order of its boldness.
fn next_actions(survey: &DeploymentSurvey, drift: &[DriftedFile]) -> Vec<(&'static str, String)> {
    let has = |kind| drift.iter().any(|item| item.kind == kind);
    let differs = has(DriftKind::Modified) || has(DriftKind::Missing);
    let has_records = survey.actual.records.iter().any(Option::is_some);
    let prefix = survey.command_prefix();
    let mut actions = Vec::new();
    if differs || has(DriftKind::Extra) || !survey.plan.changes.is_empty() {
        actions.push(("preview_diff", format!("{prefix} preview --diff --json")));
    }
    if differs || !has_records || !survey.plan.changes.is_empty() {
        actions.push(("deploy_apply", format!("{prefix} deploy --apply --yes --json")));
    }
    // Without a manifest nobody can tell an edit from what was there before.
    if differs && has_records {
        actions.push(("evolve_propose", format!("{prefix} evolve propose --yes --json")));
    }
    actions
}
