//! Deploying: turns a survey's plan into an apply job. Decides nothing beyond the plan.

use std::collections::BTreeMap;
use std::path::Path;

use crate::apply::{ApplyJob, ApplyResult, StagedEdit, apply};
use crate::error::{PackError, PackResult};
use crate::manifest::Target;
use crate::place::PackEnvironment;
use crate::records::RecordedFile;
use crate::snapshot::{self, ManagedFile, Snapshot, SnapshotRoot};
use crate::survey::DeploymentSurvey;
use crate::system::{DryRun, FileSystem};
use crate::targets::TargetRoot;

/// A plan that somebody entitled to has agreed to.
///
/// INVARIANT (plans leave no choices): nothing else can be applied, and it is the plan that was hashed, not one made again.
#[derive(Debug)]
pub struct ConfirmedPlan(DeploymentSurvey);

impl ConfirmedPlan {
    /// For a call that the ledger has let out.
    pub fn by(_: &countersign_store::RecordedPermit, survey: DeploymentSurvey) -> Self {
        Self(survey)
    }

    #[cfg(test)]
    pub(crate) fn in_test(survey: DeploymentSurvey) -> Self {
        Self(survey)
    }

    pub fn survey(&self) -> &DeploymentSurvey {
        &self.0
    }
}

/// Whether there is anything to write: changes, or a manifest that does not say what is ours.
pub fn is_needed(survey: &DeploymentSurvey) -> bool {
    !survey.plan.changes.is_empty()
        || roots(survey).iter().any(|(root, found)| {
            let mine = recorded(survey, root);
            found.as_ref().is_none_or(|found| *found != mine)
        })
}

/// Applies a plan that was agreed to.
pub fn deploy(
    confirmed: &ConfirmedPlan,
    place: &PackEnvironment,
    system: &dyn FileSystem,
    now: jiff::Timestamp,
) -> PackResult<ApplyResult> {
    let snapshots = place.snapshots();
    let previous = snapshot::list(system, &snapshots, &mut Vec::new())?.pop();
    apply(work(&confirmed.0, previous.as_ref())?, &snapshots, system, now)
}

/// The same code over a system that writes nothing: what applying would do, found out by doing all of it but the writing.
pub fn dry_run(
    survey: DeploymentSurvey,
    place: &PackEnvironment,
    now: jiff::Timestamp,
) -> PackResult<(ApplyResult, DeploymentSurvey)> {
    let confirmed = ConfirmedPlan(survey);
    let applied = deploy(&confirmed, place, &DryRun::default(), now)?;
    Ok((applied, confirmed.0))
}

/// The roots that have a manifest afterwards, with what it says now.
fn roots(survey: &DeploymentSurvey) -> Vec<(&TargetRoot, Option<Vec<RecordedFile>>)> {
    let with_records = survey.desired.roots.iter().enumerate().zip(&survey.actual.records);
    let wanted = with_records.filter(|((index, _), record)| {
        record.is_some() || survey.desired.outputs.values().any(|output| output.root == *index)
    });
    wanted
        .map(|((_, root), record)| {
            let current = record
                .as_ref()
                .filter(|found| found.path == crate::records::path_in(&root.path, root.target));
            (root, current.map(|found| found.record.managed_files.clone()))
        })
        .collect()
}

fn recorded(survey: &DeploymentSurvey, root: &TargetRoot) -> Vec<RecordedFile> {
    let at = survey.desired.roots.iter().position(|other| other == root);
    let mine = survey
        .desired
        .outputs
        .iter()
        .filter(|((target, _), output)| *target == root.target && Some(output.root) == at);
    let mine = mine.map(|((_, path), output)| (&**path, output.digest.hex(), &output.module_ids));
    let kept = kept(survey).filter(|(target, path, ..)| {
        *target == root.target && survey.desired.root_of(*target, path).is_some_and(|other| other == root)
    });
    let mut files: Vec<(&Path, String, &Vec<String>)> =
        mine.chain(kept.map(|(_, path, sha256, ids)| (path, sha256, ids))).collect();
    files.sort_by(|a, b| a.0.as_os_str().cmp(b.0.as_os_str()));
    let recorded = files.into_iter().filter_map(|(path, sha256, module_ids)| {
        let below = path.strip_prefix(&root.path).ok()?;
        Some(RecordedFile { path: crate::place::posix(below), sha256, module_ids: module_ids.clone() })
    });
    recorded.collect()
}

/// Files that stay ours though nobody asks for them: target, path, digest, whose they are.
fn kept(survey: &DeploymentSurvey) -> impl Iterator<Item = (Target, &Path, String, &Vec<String>)> {
    let unasked = survey.actual.kept.iter().filter(|(key, _)| !survey.desired.outputs.contains_key(*key));
    unasked.filter_map(|(key, ids)| {
        let recorded = survey.actual.managed.get(key).copied().flatten()?;
        Some((key.0, &*key.1, recorded.hex(), ids))
    })
}

fn work<'a>(survey: &'a DeploymentSurvey, previous: Option<&Snapshot>) -> PackResult<ApplyJob<'a>> {
    let desired = &survey.desired;
    let mut edits = Vec::new();
    for change in &survey.plan.changes {
        let output = desired.outputs.get(&crate::desired_state::key(change.target, &change.path));
        let root = desired.root_of(change.target, &change.path);
        let root = root
            .ok_or_else(|| PackError::broken("apply", format!("`{}` has no root", change.path.display())))?;
        let after = match (change.after, output) {
            (Some(digest), Some(output)) => Some((digest, &output.content)),
            (None, _) => None,
            (Some(_), None) => return Err(PackError::broken("apply", "a change has no content")),
        };
        edits.push(StagedEdit { path: change.path.clone(), root, before: change.before, after });
    }
    let ours = |target: &str, path: &str| {
        let target: Option<Target> = target.parse().ok();
        target.is_some_and(|target| desired.root_of(target, Path::new(path)).is_some())
    };
    // What was deployed elsewhere, for another project or target, stays ours.
    let elsewhere = previous.into_iter().flat_map(|previous| &previous.managed_files);
    let elsewhere = elsewhere.filter(|file| !ours(&file.target, &file.path)).cloned();
    let mut managed: Vec<ManagedFile> = elsewhere.collect();
    let mut contents = BTreeMap::new();
    for ((target, path), output) in &desired.outputs {
        let (target, path) = (target.as_str().to_owned(), path.to_string_lossy().into_owned());
        contents.insert((target.clone(), path.clone()), output.content.clone());
        managed.push(ManagedFile {
            target,
            path,
            sha256: output.digest.hex(),
            module_ids: output.module_ids.clone(),
        });
    }
    for (target, path, sha256, module_ids) in kept(survey) {
        let (target, path) = (target.as_str().to_owned(), path.to_string_lossy().into_owned());
        managed.push(ManagedFile { target, path, sha256, module_ids: module_ids.clone() });
    }
    managed.sort_by(|a, b| (&a.target, &a.path).cmp(&(&b.target, &b.path)));
    let roots: Vec<TargetRoot> = roots(survey).into_iter().map(|(root, _)| root.clone()).collect();
    let known: Vec<SnapshotRoot> = desired.roots.iter().map(SnapshotRoot::from).collect();
    let other_roots = previous.into_iter().flat_map(|previous| &previous.roots);
    let same = |a: &SnapshotRoot, b: &SnapshotRoot| a.target == b.target && a.path == b.path;
    Ok(ApplyJob {
        kind: survey.kind,
        targets: desired.target_names().into_iter().map(str::to_owned).collect(),
        edits,
        managed,
        contents,
        other_roots: other_roots.filter(|root| !known.iter().any(|mine| same(mine, root))).cloned().collect(),
        roots,
        left_roots: Vec::new(),
        previous: previous.map(|previous| previous.id.clone()),
        rolled_back_to: None,
        lockfile_sha256: survey.lockfile_sha256.clone(),
    })
}
