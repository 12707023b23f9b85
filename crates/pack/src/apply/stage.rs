//! Staging: copies, syncs and checks the old content of every file that will change and the new content of every managed file before
//! anything changes.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use countersign_policy::digest::Digest;
use countersign_policy::refusal::{Code, Refusal};

use super::{ApplyJournal, JournalStep, drifted};
use crate::actual_state::{CheckedFolders, no_links};
use crate::error::{PackError, PackResult, shown};
use crate::place::posix;
use crate::plan::FileOp;
use crate::records::{self, RecordedFile, TargetManifest};
use crate::render::FileContent;
use crate::snapshot::{self, ManagedFile, Snapshot, SnapshotChange, SnapshotKind, SnapshotRoot};
use crate::system::{self, EntryKind, FileAccess, FileSystem, PathStatus, WriteSource};
use crate::targets::TargetRoot;

/// One file to be written or removed.
pub(crate) struct StagedEdit<'a> {
    pub path: PathBuf,
    pub root: &'a TargetRoot,
    /// What must be there.
    pub before: Option<Digest>,
    /// What will be there, with its digest.
    pub after: Option<(Digest, &'a FileContent)>,
}

pub(crate) struct ApplyJob<'a> {
    pub kind: SnapshotKind,
    pub targets: Vec<String>,
    pub edits: Vec<StagedEdit<'a>>,
    pub managed: Vec<ManagedFile>,
    /// Where the content of files that are ours and do not change can be had: by target and path.
    pub contents: BTreeMap<(String, String), FileContent>,
    /// The roots that have a manifest afterwards.
    pub roots: Vec<TargetRoot>,
    /// Roots of other projects that have one too, and keep it as it is.
    pub(crate) other_roots: Vec<SnapshotRoot>,
    pub(crate) left_roots: Vec<TargetRoot>,
    /// The snapshot before this one.
    pub previous: Option<String>,
    pub rolled_back_to: Option<String>,
    pub(crate) lockfile_sha256: Option<String>,
}

/// Stages the work and writes its journal.
pub(crate) fn stage(
    work: ApplyJob<'_>,
    snapshots: &Path,
    system: &dyn FileSystem,
    now: jiff::Timestamp,
) -> PackResult<ApplyJournal> {
    let id = snapshot::next_id(system, snapshots, now)?;
    let blobs = snapshots.join(&id);
    let steps = steps(&work, &id, system, now)?;
    let journal = ApplyJournal {
        version: 1,
        folders: missing_folders(&steps, system)?,
        snapshot: describe(&work, &id, &blobs, &steps, now),
        steps: steps.iter().map(|planned| planned.step.clone()).collect(),
        blobs,
    };
    let staged =
        keep(&work, &journal, &steps, snapshots, system).and_then(|()| journal.write(snapshots, system));
    match staged {
        Ok(()) => Ok(journal),
        Err(stop) => {
            // Nothing has changed yet: what was staged is only in the way.
            let _ = discard(snapshots, &id, system);
            Err(stop.with("done", Vec::<String>::new()))
        }
    }
}

/// A step and where its new content comes from.
struct StagedStep<'a> {
    step: JournalStep,
    content: Option<ContentCow<'a>>,
}

enum ContentCow<'a> {
    Borrowed(&'a FileContent),
    Owned(FileContent),
}

impl ContentCow<'_> {
    fn get(&self) -> &FileContent {
        match self {
            ContentCow::Borrowed(content) => content,
            ContentCow::Owned(content) => content,
        }
    }
}

fn steps<'a>(
    work: &ApplyJob<'a>,
    id: &str,
    system: &dyn FileSystem,
    now: jiff::Timestamp,
) -> PackResult<Vec<StagedStep<'a>>> {
    let mut steps = Vec::new();
    let mut checked = CheckedFolders::default();
    for edit in &work.edits {
        no_links(system, edit.root, &edit.path, &mut checked)?;
        let content = edit.after.map(|(_, content)| content);
        let after = edit.after.map(|(digest, _)| digest);
        let step = step(edit.root, edit.path.clone(), edit.before, after, id, system)?;
        let access = content.map_or(FileAccess::Plain, FileContent::access);
        steps.push(StagedStep {
            step: JournalStep { access, ..step },
            content: content.map(ContentCow::Borrowed),
        });
    }
    for root in &work.roots {
        let text = record(work, root, id, now).text().into_bytes();
        steps.extend(record_step(root, Some(text), id, system)?);
    }
    for root in &work.left_roots {
        steps.extend(record_step(root, None, id, system)?);
    }
    Ok(steps)
}

fn record_step<'a>(
    root: &TargetRoot,
    text: Option<Vec<u8>>,
    id: &str,
    system: &dyn FileSystem,
) -> PackResult<Option<StagedStep<'a>>> {
    let path = records::path_in(&root.path, root.target);
    let before =
        system::digest_if_there(system, &path).map_err(|error| PackError::io("read", &path, &error))?;
    let after = text.as_deref().map(Digest::plain);
    if before == after {
        return Ok(None);
    }
    let step = JournalStep { is_record: true, ..step(root, path, before, after, id, system)? };
    Ok(Some(StagedStep { step, content: text.map(|text| ContentCow::Owned(FileContent::Bytes(text))) }))
}

fn step(
    root: &TargetRoot,
    path: PathBuf,
    before: Option<Digest>,
    after: Option<Digest>,
    id: &str,
    system: &dyn FileSystem,
) -> PackResult<JournalStep> {
    let blob = snapshot::blob_name(&path.to_string_lossy());
    let temporary = path.parent().unwrap_or(Path::new(".")).join(format!(".{id}-{blob}.agentpack-tmp"));
    let before_access = match system
        .path_status(&path)
        .map_err(|error| PackError::io("read", &path, &error))?
    {
        PathStatus::File(stamp) => stamp.access,
        PathStatus::Missing | PathStatus::Folder | PathStatus::Link | PathStatus::Other => FileAccess::Plain,
    };
    Ok(JournalStep {
        target: root.target,
        root: root.path.clone(),
        base: root.base.clone(),
        before,
        after,
        temporary,
        access: FileAccess::Plain,
        before_access,
        is_record: false,
        blob,
        path,
    })
}

/// The manifest of a root after this.
fn record(work: &ApplyJob<'_>, root: &TargetRoot, id: &str, now: jiff::Timestamp) -> TargetManifest {
    let deeper = |path: &Path| {
        let depth = root.path.components().count();
        work.roots.iter().any(|other| {
            other.target == root.target
                && path.starts_with(&other.path)
                && other.path.components().count() > depth
        })
    };
    let mine = work.managed.iter().filter(|file| file.target == root.target.as_str()).filter_map(|file| {
        let path = Path::new(&file.path);
        let below = path.strip_prefix(&root.path).ok().filter(|_| !deeper(path))?;
        Some(RecordedFile {
            path: posix(below),
            sha256: file.sha256.clone(),
            module_ids: file.module_ids.clone(),
        })
    });
    TargetManifest {
        schema_version: 1,
        generated_at: now.to_string(),
        tool: root.target.as_str().to_owned(),
        snapshot_id: Some(id.to_owned()),
        managed_files: mine.collect(),
    }
}

fn missing_folders(steps: &[StagedStep<'_>], system: &dyn FileSystem) -> PackResult<Vec<PathBuf>> {
    let mut missing = BTreeSet::new();
    for planned in steps.iter().filter(|planned| planned.step.after.is_some()) {
        for folder in planned.step.path.ancestors().skip(1) {
            if missing.contains(folder) {
                break;
            }
            if system.path_status(folder).map_err(|error| PackError::io("read", folder, &error))?
                != PathStatus::Missing
            {
                break;
            }
            missing.insert(folder.to_path_buf());
        }
    }
    Ok(missing.into_iter().collect())
}

fn describe(
    work: &ApplyJob<'_>,
    id: &str,
    blobs: &Path,
    steps: &[StagedStep<'_>],
    now: jiff::Timestamp,
) -> Snapshot {
    // Manifests are among the changes because the original puts them back from there.
    let changes = steps.iter().map(|planned| &planned.step).map(|step| {
        let op = match (step.before, step.after) {
            (None, _) => FileOp::Create,
            (Some(_), Some(_)) => FileOp::Update,
            (Some(_), None) => FileOp::Delete,
        };
        let target = step.target.as_str().to_owned();
        let backup = step.before.map(|_| blobs.join("backup").join(&target).join(&step.blob));
        SnapshotChange {
            op: op.as_str().to_owned(),
            path: step.path.to_string_lossy().into_owned(),
            backup_path: backup.map(|path| path.to_string_lossy().into_owned()),
            before_sha256: step.before.map(|digest| digest.hex()),
            after_sha256: step.after.map(|digest| digest.hex()),
            target,
        }
    });
    Snapshot {
        kind: work.kind,
        id: id.to_owned(),
        created_at: now.to_string(),
        targets: work.targets.clone(),
        managed_files: work.managed.clone(),
        changes: changes.collect(),
        rolled_back_to: work.rolled_back_to.clone(),
        before_first: work.kind == SnapshotKind::Rollback && work.rolled_back_to.is_none(),
        lockfile_sha256: work.lockfile_sha256.clone(),
        backup_root: Some(blobs.join("backup").to_string_lossy().into_owned()),
        roots: work.roots.iter().map(SnapshotRoot::from).chain(work.other_roots.iter().cloned()).collect(),
    }
}

impl From<&TargetRoot> for SnapshotRoot {
    fn from(root: &TargetRoot) -> Self {
        let text = |path: &Path| path.to_string_lossy().into_owned();
        Self { target: root.target.as_str().to_owned(), path: text(&root.path), base: text(&root.base) }
    }
}

/// Copies old and new contents to the snapshot's folder, each checked against its digest.
fn keep(
    work: &ApplyJob<'_>,
    journal: &ApplyJournal,
    steps: &[StagedStep<'_>],
    snapshots: &Path,
    system: &dyn FileSystem,
) -> PackResult<()> {
    let mut shelves = BTreeSet::new();
    for planned in steps {
        let step = &planned.step;
        if let Some(before) = step.before {
            let blob = journal.backup(step);
            write_blob(system, &blob, WriteSource::CopyOf(&step.path), &mut shelves)?;
            let kept = system::digest(system, &blob)
                .map_err(|error| PackError::io("back up", &step.path, &error))?;
            if kept != before {
                return Err(drifted(step, Some(kept)));
            }
        } else if system.path_status(&step.path).map_err(|error| PackError::io("read", &step.path, &error))?
            != PathStatus::Missing
        {
            return Err(drifted(step, None));
        }
        if let (Some(content), Some(after)) = (&planned.content, step.after) {
            let blob = journal.staged(step);
            write_content(system, &blob, content.get(), &mut shelves)?;
            check_blob(system, &blob, after, &step.path)?;
        }
    }
    let changed: BTreeSet<PathBuf> = steps.iter().map(|planned| journal.staged(&planned.step)).collect();
    for file in &work.managed {
        let blob = snapshot::state_blob(snapshots, &journal.snapshot.id, &file.target, &file.path);
        if !changed.contains(&blob) {
            keep_unchanged(work, file, &blob, snapshots, system, &mut shelves)?;
        }
    }
    for shelf in &shelves {
        system.sync_folder(shelf).map_err(|error| PackError::io("sync", shelf, &error))?;
    }
    Ok(())
}

/// The content of a file that is ours and does not change: the last snapshot has it, or it is copied once more.
fn keep_unchanged(
    work: &ApplyJob<'_>,
    file: &ManagedFile,
    blob: &Path,
    snapshots: &Path,
    system: &dyn FileSystem,
    shelves: &mut BTreeSet<PathBuf>,
) -> PackResult<()> {
    let io = |error: io::Error| PackError::io("keep", Path::new(&file.path), &error);
    if let Some(previous) = &work.previous {
        let known = snapshot::state_blob(snapshots, previous, &file.target, &file.path);
        let same = system::digest_if_there(system, &known)
            .map_err(io)?
            .is_some_and(|digest| digest.hex() == file.sha256);
        if same {
            shelf(system, blob, shelves)?;
            return system.share(&known, blob).map_err(io);
        }
    }
    if let Some(content) = work.contents.get(&(file.target.clone(), file.path.clone())) {
        return write_content(system, blob, content, shelves);
    }
    // Carried over from a snapshot that did not keep it, as the original's rollbacks: kept now, if nobody has edited it.
    let path = Path::new(&file.path);
    match system::digest_if_there(system, path) {
        Ok(Some(digest)) if digest.hex() == file.sha256 => {
            write_blob(system, blob, WriteSource::CopyOf(path), shelves)
        }
        Ok(_) | Err(_) => Ok(()),
    }
}

fn write_content(
    system: &dyn FileSystem,
    blob: &Path,
    content: &FileContent,
    shelves: &mut BTreeSet<PathBuf>,
) -> PackResult<()> {
    match content {
        FileContent::CopyOf(path, _) => write_blob(system, blob, WriteSource::CopyOf(path), shelves),
        FileContent::Bytes(bytes) => write_blob(system, blob, WriteSource::Bytes(bytes), shelves),
    }
}

fn write_blob(
    system: &dyn FileSystem,
    blob: &Path,
    body: WriteSource<'_>,
    shelves: &mut BTreeSet<PathBuf>,
) -> PackResult<()> {
    shelf(system, blob, shelves)?;
    system.write_new(blob, body, FileAccess::Plain).map_err(|error| PackError::io("keep", blob, &error))
}

fn shelf(system: &dyn FileSystem, blob: &Path, shelves: &mut BTreeSet<PathBuf>) -> PackResult<()> {
    let folder = blob.parent().unwrap_or(Path::new("."));
    if shelves.insert(folder.to_path_buf()) {
        system::make_folders(system, folder).map_err(|error| PackError::io("make", folder, &error))?;
    }
    Ok(())
}

fn check_blob(system: &dyn FileSystem, blob: &Path, expect: Digest, of: &Path) -> PackResult<()> {
    let kept = system::digest(system, blob).map_err(|error| PackError::io("read", blob, &error))?;
    if kept == expect {
        return Ok(());
    }
    let message = format!("the source of `{}` changed after it was planned", shown(of));
    Err(Refusal::new(Code::ApplyDrifted, message).with("path", shown(of)).into())
}

/// Removes what was staged for a snapshot that does not come to be.
pub(super) fn discard(snapshots: &Path, id: &str, system: &dyn FileSystem) -> PackResult<()> {
    let folder = snapshots.join(id);
    remove_tree(system, &folder).map_err(|error| PackError::io("remove", &folder, &error))
}

pub(super) fn remove_tree(system: &dyn FileSystem, folder: &Path) -> io::Result<()> {
    if system.path_status(folder)? != PathStatus::Folder {
        return Ok(());
    }
    for (name, kind) in system.list(folder)? {
        let path = folder.join(name);
        match kind {
            EntryKind::Folder => remove_tree(system, &path)?,
            EntryKind::File | EntryKind::Link | EntryKind::Other => system.remove(&path)?,
        }
    }
    system.remove_folder(folder)
}
