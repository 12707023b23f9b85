//! Rollback: the files as they were after a snapshot, or before the first one (`initial`). Backs up files that were edited since before
//! overwriting them.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use countersign_policy::digest::Digest;
use countersign_policy::refusal::{Code, Refusal};

use crate::apply::{ApplyJob, ApplyResult, StagedEdit, apply};
use crate::diff::{self, DiffBody};
use crate::error::{PackError, PackResult, shown};
use crate::manifest::Target;
use crate::place::PackEnvironment;
use crate::plan::FileOp;
use crate::records;
use crate::render::FileContent;
use crate::snapshot::{self, ManagedFile, Snapshot, SnapshotChange, SnapshotKind, SnapshotRoot};
use crate::system::{self, FileAccess, FileStamp, FileSystem, PathStatus};
use crate::targets::{ExtraFiles, TargetRoot};

/// The state before the first deployment.
pub(crate) const INITIAL: &str = "initial";

#[derive(Debug)]
pub struct RollbackPlan {
    to: String,
    changes: Vec<RollbackChange>,
    managed: Vec<ManagedFile>,
    roots: Vec<TargetRoot>,
    left_roots: Vec<TargetRoot>,
    /// The roots that have a manifest afterwards.
    kept: BTreeSet<usize>,
    previous: Option<String>,
    contents: BTreeMap<(String, String), FileContent>,
    lockfile_sha256: Option<String>,
}

#[derive(Debug)]
pub struct RollbackChange {
    pub target: Target,
    pub path: PathBuf,
    pub before: Option<Digest>,
    /// What will be; none means that it goes.
    pub after: Option<Digest>,
    root: usize,
    content: Option<FileContent>,
}

impl RollbackChange {
    pub fn op(&self) -> FileOp {
        match (self.before, self.after) {
            (None, _) => FileOp::Create,
            (Some(_), Some(_)) => FileOp::Update,
            (Some(_), None) => FileOp::Delete,
        }
    }

    pub fn lines(&self, system: &dyn FileSystem) -> PackResult<DiffBody> {
        let read = |content: io::Result<Vec<u8>>| match content {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == io::ErrorKind::FileTooLarge => Ok(None),
            Err(error) => Err(PackError::io("read", &self.path, &error)),
        };
        let before = match self.before {
            None => Some(Vec::new()),
            Some(_) => read(system::read(system, &self.path, diff::LIMIT))?,
        };
        let after = match &self.content {
            None => Some(Vec::new()),
            Some(content) => read(content.bytes(system, diff::LIMIT))?,
        };
        Ok(match (before, after) {
            (Some(before), Some(after)) => {
                let name = shown(&self.path);
                diff::lines(name.trim_start_matches('/'), self.op(), before, after)
            }
            (None, _) | (_, None) => DiffBody::TooLong,
        })
    }

    pub fn to_value(&self) -> serde_json::Value {
        let op = self.op().as_str();
        let mut entry = serde_json::Map::new();
        entry.insert("target".into(), self.target.as_str().into());
        entry.insert("op".into(), op.into());
        crate::reply::put_path(&mut entry, "path", &self.path);
        entry.insert("before_sha256".into(), self.before.map(|digest| digest.hex()).into());
        entry.insert("after_sha256".into(), self.after.map(|digest| digest.hex()).into());
        serde_json::Value::Object(entry)
    }
}

impl RollbackPlan {
    pub fn to(&self) -> &str {
        &self.to
    }
    pub fn changes(&self) -> &[RollbackChange] {
        &self.changes
    }
}

/// Works out what going back would do. Writes nothing.
pub fn plan(place: &PackEnvironment, to: &str, system: &dyn FileSystem) -> PackResult<RollbackPlan> {
    let snapshots = place.snapshots();
    let all = snapshot::list(system, &snapshots, &mut Vec::new())?;
    let at = target(&all, &snapshots, to, system)?;
    let goal = at.and_then(|at| all.get(at));
    let since = all.get(at.map_or(0, |at| at + 1)..).unwrap_or_default();
    let managed = goal.map(|goal| managed_files(goal, &snapshots, system)).unwrap_or_default();
    let mut roots = RollbackRoots::of(&all, system);
    let mut wanted: BTreeMap<(Target, PathBuf), RollbackGoal> = BTreeMap::new();
    // What changed after the goal goes back to what it was before its first change, or to what its owner had put there since …
    let (mut written, mut previous) = (BTreeSet::new(), goal);
    for snapshot in since {
        let ours: BTreeSet<(&String, &String)> = previous
            .into_iter()
            .flat_map(|previous| &previous.managed_files)
            .map(|file| (&file.target, &file.path))
            .collect();
        for change in snapshot.file_changes() {
            let Ok(target) = change.target.parse::<Target>() else { continue };
            let was = state_before(snapshot, change, &snapshots, system);
            let is_theirs = !ours.contains(&(&change.target, &change.path))
                && change
                    .before_sha256
                    .as_ref()
                    .is_some_and(|sha256| !written.contains(&(&change.target, &change.path, sha256)));
            let key = (target, PathBuf::from(&change.path));
            if is_theirs {
                wanted.insert(key, was);
            } else {
                wanted.entry(key).or_insert(was);
            }
            written.extend(change.after_sha256.as_ref().map(|sha256| (&change.target, &change.path, sha256)));
        }
        previous = Some(snapshot);
    }
    // … and what was ours at the goal is as it was deployed then.
    for file in goal.iter().flat_map(|goal| goal.managed_files.iter().map(move |file| (&goal.id, file))) {
        let (id, file) = file;
        let (Ok(target), Ok(digest)) = (file.target.parse::<Target>(), file.sha256.parse::<Digest>()) else {
            continue;
        };
        let blob = snapshot::state_blob(&snapshots, id, &file.target, &file.path);
        if system.path_status(&blob).map_err(|error| PackError::io("read", &blob, &error))?
            != PathStatus::Missing
        {
            wanted.insert((target, PathBuf::from(&file.path)), RollbackGoal::Content(digest, blob));
        }
    }
    let mut changes = Vec::new();
    for ((target, path), goal) in wanted {
        let root = roots.find(target, &path, system);
        changes.extend(restore(target, path, goal, root, system)?);
    }
    let mut contents = BTreeMap::new();
    for file in &managed {
        let path = PathBuf::from(&file.path);
        if let Ok(PathStatus::File(stamp)) = system.path_status(&path) {
            contents.insert((file.target.clone(), file.path.clone()), FileContent::CopyOf(path, stamp));
        }
    }
    let kept: BTreeSet<usize> = managed
        .iter()
        .filter_map(|file| Some(roots.find(file.target.parse().ok()?, Path::new(&file.path), system)))
        .collect();
    let unused = roots
        .all
        .iter()
        .enumerate()
        .filter(|(index, _)| !kept.contains(index) && roots.recorded.contains(index));
    let left_roots = unused.map(|(_, root)| root.clone()).collect();
    Ok(RollbackPlan {
        to: to.to_owned(),
        changes,
        managed,
        previous: all.last().map(|last| last.id.clone()),
        lockfile_sha256: goal.and_then(|goal| goal.lockfile_sha256.clone()),
        left_roots,
        contents,
        kept,
        roots: roots.all,
    })
}

enum RollbackGoal {
    Gone,
    Content(Digest, PathBuf),
}

/// What a file was before a change. The original's rollbacks keep nothing of what they overwrite: there is nothing to restore then.
fn state_before(
    snapshot: &Snapshot,
    change: &SnapshotChange,
    snapshots: &Path,
    system: &dyn FileSystem,
) -> RollbackGoal {
    let blob = snapshot::backup_blob(snapshots, &snapshot.id, &change.target, &change.path);
    let is_lost =
        change.op.starts_with("rollback_") && matches!(system.path_status(&blob), Ok(PathStatus::Missing));
    match change.before_sha256.as_deref().and_then(|hex| hex.parse().ok()) {
        Some(digest) if !is_lost => RollbackGoal::Content(digest, blob),
        Some(_) | None => RollbackGoal::Gone,
    }
}

/// The files of a snapshot with their modules, which the original says only in the manifests it kept.
fn managed_files(goal: &Snapshot, snapshots: &Path, system: &dyn FileSystem) -> Vec<ManagedFile> {
    let mut modules: BTreeMap<(&str, PathBuf), Vec<String>> = BTreeMap::new();
    for change in goal.record_changes() {
        let blob = snapshot::state_blob(snapshots, &goal.id, &change.target, &change.path);
        let (Some(root), Some(record)) =
            (Path::new(&change.path).parent(), records::read_one(system, &blob, &mut Vec::new()))
        else {
            continue;
        };
        let files = record.managed_files.into_iter();
        modules.extend(files.map(|file| ((&*change.target, root.join(file.path)), file.module_ids)));
    }
    let mut managed = goal.managed_files.clone();
    for file in managed.iter_mut().filter(|file| file.module_ids.is_empty()) {
        let known = modules.remove(&(&*file.target, PathBuf::from(&file.path)));
        file.module_ids = known.unwrap_or_default();
    }
    managed
}

fn restore(
    target: Target,
    path: PathBuf,
    goal: RollbackGoal,
    root: usize,
    system: &dyn FileSystem,
) -> PackResult<Option<RollbackChange>> {
    let before =
        system::digest_if_there(system, &path).map_err(|error| PackError::io("read", &path, &error))?;
    match goal {
        RollbackGoal::Gone if before.is_none() => Ok(None),
        RollbackGoal::Gone => {
            Ok(Some(RollbackChange { target, path, before, after: None, root, content: None }))
        }
        RollbackGoal::Content(digest, _) if before == Some(digest) => Ok(None),
        RollbackGoal::Content(digest, blob) => {
            let kept = system::digest_if_there(system, &blob)
                .map_err(|error| PackError::io("read", &blob, &error))?;
            if kept != Some(digest) {
                let message = format!("what was kept of `{}` is missing or damaged", shown(&path));
                let refusal = Refusal::new(Code::SnapshotNotFound, message).because("snapshot_damaged");
                return Err(refusal.with("path", shown(&path)).into());
            }
            let stamp =
                FileStamp { bytes: 0, modified: 0, changed: 0, inode: 0, access: access(system, &path) };
            let content = Some(FileContent::CopyOf(blob, stamp));
            Ok(Some(RollbackChange { target, path, before, after: Some(digest), root, content }))
        }
    }
}

fn access(system: &dyn FileSystem, path: &Path) -> FileAccess {
    match system.path_status(path) {
        Ok(PathStatus::File(stamp)) => stamp.access,
        Ok(PathStatus::Missing | PathStatus::Folder | PathStatus::Link | PathStatus::Other) | Err(_) => {
            FileAccess::Plain
        }
    }
}

/// The snapshot that is meant, by its place in the list; none for the state before the first.
fn target(
    all: &[Snapshot],
    snapshots: &Path,
    to: &str,
    system: &dyn FileSystem,
) -> PackResult<Option<usize>> {
    let known = || -> Vec<&str> {
        let deploys = all.iter().filter(|snapshot| snapshot.kind != SnapshotKind::Rollback);
        deploys.rev().take(20).map(|snapshot| snapshot.id.as_str()).collect()
    };
    if to == INITIAL {
        if all.is_empty() {
            let message = "nothing was deployed yet, so there is nothing to go back from";
            return Err(PackError::refused(Code::SnapshotNotFound, message));
        }
        return Ok(None);
    }
    let snapshot = snapshot::read(system, snapshots, to).map_err(|stop| stop.with("snapshots", known()))?;
    if snapshot.kind == SnapshotKind::Rollback {
        let message = format!("`{to}` is the record of going back itself; name the snapshot it went back to");
        let refusal = Refusal::new(Code::SnapshotNotFound, message).because("snapshot_not_a_deploy");
        return Err(refusal.with("snapshot_id", to).with("snapshots", known()).into());
    }
    Ok(all.iter().position(|known| known.id == snapshot.id))
}

/// The roots of all snapshots, and of files whose snapshot names none.
struct RollbackRoots {
    all: Vec<TargetRoot>,
    recorded: BTreeSet<usize>,
}

impl RollbackRoots {
    fn of(snapshots: &[Snapshot], system: &dyn FileSystem) -> Self {
        let mut roots = Self { all: Vec::new(), recorded: BTreeSet::new() };
        for SnapshotRoot { target, path, base } in snapshots.iter().flat_map(|snapshot| &snapshot.roots) {
            roots.add_named(target, Path::new(path), Path::new(base), system);
        }
        // The original names its roots only by the manifests in them.
        for change in snapshots.iter().flat_map(Snapshot::record_changes) {
            if let Some(folder) = Path::new(&change.path).parent() {
                roots.add_named(&change.target, folder, folder, system);
            }
        }
        roots
    }

    fn add_named(&mut self, target: &str, path: &Path, base: &Path, system: &dyn FileSystem) {
        if let Ok(target) = target.parse() {
            let extras = ExtraFiles::Ignored;
            self.add(TargetRoot { target, path: path.into(), base: base.into(), extras }, system);
        }
    }

    fn add(&mut self, root: TargetRoot, system: &dyn FileSystem) -> usize {
        if let Some(known) =
            self.all.iter().position(|known| known.target == root.target && known.path == root.path)
        {
            return known;
        }
        let index = self.all.len();
        if matches!(system.path_status(&records::path_in(&root.path, root.target)), Ok(PathStatus::File(_))) {
            self.recorded.insert(index);
        }
        self.all.push(root);
        index
    }

    /// The root of a file: the deepest that is known, else the nearest folder above it with a manifest, else its own folder.
    fn find(&mut self, target: Target, path: &Path, system: &dyn FileSystem) -> usize {
        let known = self
            .all
            .iter()
            .enumerate()
            .filter(|(_, root)| root.target == target && path.starts_with(&root.path));
        if let Some((index, _)) = known.max_by_key(|(_, root)| root.path.components().count()) {
            return index;
        }
        let marked = path.ancestors().skip(1).find(|folder| {
            matches!(system.path_status(&records::path_in(folder, target)), Ok(PathStatus::File(_)))
        });
        let folder = marked.or(path.parent()).unwrap_or(path).to_path_buf();
        self.add(
            TargetRoot { target, path: folder.clone(), base: folder, extras: ExtraFiles::Ignored },
            system,
        )
    }
}

pub(crate) fn apply_rollback(
    back: &RollbackPlan,
    place: &PackEnvironment,
    system: &dyn FileSystem,
    now: jiff::Timestamp,
) -> PackResult<ApplyResult> {
    let mut edits = Vec::new();
    for change in &back.changes {
        let root =
            back.roots.get(change.root).ok_or_else(|| PackError::broken("go back", "a file has no root"))?;
        let after = change.after.zip(change.content.as_ref());
        edits.push(StagedEdit { path: change.path.clone(), root, before: change.before, after });
    }
    let roots =
        back.roots.iter().enumerate().filter(|(index, _)| back.kept.contains(index)).map(|(_, root)| root);
    let mut targets: Vec<String> = back.roots.iter().map(|root| root.target.as_str().to_owned()).collect();
    targets.sort();
    targets.dedup();
    let work = ApplyJob {
        kind: SnapshotKind::Rollback,
        targets,
        edits,
        managed: back.managed.clone(),
        contents: back.contents.clone(),
        roots: roots.cloned().collect(),
        other_roots: Vec::new(),
        left_roots: back.left_roots.clone(),
        previous: back.previous.clone(),
        rolled_back_to: Some(back.to.clone()).filter(|to| to != INITIAL),
        lockfile_sha256: back.lockfile_sha256.clone(),
    };
    apply(work, &place.snapshots(), system, now)
}
