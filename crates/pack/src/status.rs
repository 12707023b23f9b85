//! Drift: what on disk differs from what was deployed. Only looks.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use countersign_core::digest::Digest;
use serde_json::{Map, Value, json};

use crate::bootstrap;
use crate::desired::key;
use crate::manifest::Target;
use crate::records;
use crate::reply::{Reply, put_path};
use crate::stop::{Outcome, Stop, shown};
use crate::survey::Survey;
use crate::system::{Found, Kind, System};
use crate::targets::{Extras, Root};
use countersign_core::words::words;

words! {
    /// How a file differs.
    pub enum DriftKind("drift kind") {
        /// It is gone.
        Missing = "missing",
        /// It has other content.
        Modified = "modified",
        /// It is there and nobody wants it.
        Extra = "extra",
    }
}

/// One file that differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Drift {
    /// For which target.
    pub target: Target,
    /// Below which root.
    pub root: PathBuf,
    /// Which file.
    pub path: PathBuf,
    /// What was deployed.
    pub expected: Option<Digest>,
    /// What is there.
    pub actual: Option<Digest>,
    /// How it differs.
    pub kind: DriftKind,
    /// For which modules, where that is known.
    pub module_ids: Vec<String>,
}

/// Everything that differs, sorted.
pub fn drift(survey: &Survey, system: &dyn System, warnings: &mut Vec<String>) -> Outcome<Vec<Drift>> {
    let mut found = Vec::new();
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
                    let kind = match (actual, is_wanted) {
                        (None, true) => DriftKind::Missing,
                        (None, false) => continue,
                        (Some(_), false) => DriftKind::Extra,
                        (Some(actual), true) if Some(actual) == expected => continue,
                        (Some(_), true) => DriftKind::Modified,
                    };
                    let (target, root, module_ids) =
                        (root.target, root.path.clone(), file.module_ids.clone());
                    found.push(Drift { target, root, path, expected, actual, kind, module_ids });
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
                    found.push(Drift {
                        target: *target,
                        root,
                        path,
                        expected: Some(output.digest),
                        actual,
                        kind,
                        module_ids,
                    });
                }
                if any {
                    warnings.push(format!(
                        "`{}` has no manifest of {}: compared with what should be deployed",
                        shown(&root.path),
                        root.target
                    ));
                }
            }
        }
        if root.extras == Extras::Reported {
            extras(survey, root, &root.path, &known, system, &mut found)?;
        }
    }
    if bootstrap::is_outdated(survey) {
        warnings.push(
            "the operator assets are of another version: `bootstrap` brings them up to date".to_owned(),
        );
    }
    found.sort_by(|a, b| (a.target, &a.path, a.kind).cmp(&(b.target, &b.path, b.kind)));
    found.dedup();
    Ok(found)
}

/// Files in a root of ours that nobody planned.
fn extras(
    survey: &Survey,
    root: &Root,
    folder: &Path,
    known: &BTreeSet<PathBuf>,
    system: &dyn System,
    found: &mut Vec<Drift>,
) -> Outcome<()> {
    if system.look(folder).map_err(|error| Stop::io("read", folder, &error))? != Found::Folder {
        return Ok(());
    }
    for (name, kind) in system.list(folder).map_err(|error| Stop::io("list", folder, &error))? {
        let path = folder.join(&name);
        let other =
            survey.desired.roots.iter().any(|other| other.target == root.target && other.path == path);
        match kind {
            Kind::Folder if other => {}
            Kind::Folder => extras(survey, root, &path, known, system, found)?,
            Kind::File if known.contains(&path) || name.to_str().is_some_and(records::is_record) => {}
            Kind::File | Kind::Link | Kind::Other => found.push(Drift {
                target: root.target,
                root: root.path.clone(),
                path,
                expected: None,
                actual: None,
                kind: DriftKind::Extra,
                module_ids: Vec::new(),
            }),
        }
    }
    Ok(())
}

impl Drift {
    /// As programs read it.
    pub fn to_value(&self) -> Map<String, Value> {
        let mut item = Map::new();
        item.insert("target".into(), self.target.as_str().into());
        put_path(&mut item, "root", &self.root);
        put_path(&mut item, "path", &self.path);
        for (name, digest) in [("expected", self.expected), ("actual", self.actual)] {
            if let Some(digest) = digest {
                item.insert(name.into(), format!("sha256:{digest}").into());
            }
        }
        item.insert("kind".into(), self.kind.as_str().into());
        item
    }
}

fn summary<'a>(drift: impl Iterator<Item = &'a Drift> + Clone) -> Value {
    let count = |kind| drift.clone().filter(|item| item.kind == kind).count();
    json!({
        "modified": count(DriftKind::Modified),
        "missing": count(DriftKind::Missing),
        "extra": count(DriftKind::Extra),
    })
}

/// The answer of `status`.
pub fn reply(survey: &Survey, drift: &[Drift], only: &[DriftKind], warnings: Vec<String>) -> Reply {
    let shown: Vec<&Drift> =
        drift.iter().filter(|item| only.is_empty() || only.contains(&item.kind)).collect();
    let mut by_root: BTreeMap<(Target, &Path), Vec<&Drift>> = BTreeMap::new();
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
    let mut reply = Reply::new(survey.head())
        .with("drift", shown.iter().map(|item| Value::Object(item.to_value())).collect::<Vec<_>>())
        .with("summary", summary(shown.iter().copied()))
        .with("summary_by_root", by_root);
    if !only.is_empty() {
        reply = reply.with("summary_total", summary(drift.iter()));
    }
    let mut actions = next_actions(drift, !survey.plan.changes.is_empty());
    if bootstrap::is_outdated(survey) {
        actions.insert(0, ("bootstrap", "agentpack bootstrap"));
    }
    let commands: Vec<&str> = actions.iter().map(|(_, command)| *command).collect();
    let detailed: Vec<Value> =
        actions.iter().map(|(action, command)| json!({"action": action, "command": command})).collect();
    reply.with("next_actions", commands).with("next_actions_detailed", detailed).warn(warnings)
}

/// What can be done about it, in the order of its boldness.
fn next_actions(drift: &[Drift], outdated: bool) -> Vec<(&'static str, &'static str)> {
    let has = |kind| drift.iter().any(|item| item.kind == kind);
    let mut actions = Vec::new();
    if has(DriftKind::Modified) || has(DriftKind::Missing) || outdated {
        actions.push(("preview_diff", "agentpack preview --diff"));
        actions.push(("deploy_apply", "agentpack deploy --apply"));
    }
    if has(DriftKind::Modified) {
        actions.push(("evolve_propose", "agentpack evolve propose --dry-run"));
    }
    if has(DriftKind::Missing) {
        actions.push(("evolve_restore", "agentpack evolve restore"));
    }
    actions
}
