//! Applying: stages everything, writes the journal, then changes file by file, each compared with the plan. Undoes what can't be
//! finished; a crash is recovered at the next start.

mod journal;
mod recover;
mod stage;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use countersign_policy::digest::Digest;
use countersign_policy::refusal::{Code, Refusal};

pub(crate) use journal::{ApplyJournal, JournalStep};
pub(crate) use recover::{ApplyRecovery, recover};
pub(crate) use stage::{ApplyJob, StagedEdit, stage};

use crate::actual_state::{CheckedFolders, no_links};
use crate::error::{PackError, PackResult, shown};
use crate::snapshot;
use crate::system::{self, FileSystem, PathStatus, WriteSource};
use crate::targets::{ExtraFiles, TargetRoot};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApplyResult {
    pub snapshot_id: String,
    /// How many files it wrote or removed.
    pub files: usize,
}

pub(crate) fn apply(
    work: ApplyJob<'_>,
    snapshots: &Path,
    system: &dyn FileSystem,
    now: jiff::Timestamp,
) -> PackResult<ApplyResult> {
    let journal = stage(work, snapshots, system, now)?;
    carry_out(&journal, snapshots, system)
}

/// Does what a journal says. If a step can't be done, those before it are undone.
pub(crate) fn carry_out(
    journal: &ApplyJournal,
    snapshots: &Path,
    system: &dyn FileSystem,
) -> PackResult<ApplyResult> {
    for (index, step) in journal.steps.iter().enumerate() {
        if let Err(stop) = put(step, journal, system) {
            let (done, not_done) = journal.steps.split_at(index);
            return Err(back_out(journal, done, not_done, stop, snapshots, system));
        }
    }
    finish(journal, snapshots, system)?;
    let files = journal.steps.iter().filter(|step| !step.is_record).count();
    Ok(ApplyResult { snapshot_id: journal.snapshot.id.clone(), files })
}

/// Makes names durable, writes the snapshot, and forgets the journal.
fn finish(journal: &ApplyJournal, snapshots: &Path, system: &dyn FileSystem) -> PackResult<()> {
    sync_folders(journal, system)?;
    let path = snapshot::file(snapshots, &journal.snapshot.id);
    let text = snapshot::text(&journal.snapshot)?;
    system::write_whole(system, &path, text.as_bytes())
        .map_err(|error| PackError::io("write", &path, &error))?;
    journal.forget(snapshots, system)
}

fn sync_folders(journal: &ApplyJournal, system: &dyn FileSystem) -> PackResult<()> {
    let folders: BTreeSet<&Path> = journal.steps.iter().filter_map(|step| step.path.parent()).collect();
    for folder in folders {
        if system.path_status(folder).map_err(|error| PackError::io("read", folder, &error))?
            == PathStatus::Folder
        {
            system.sync_folder(folder).map_err(|error| PackError::io("sync", folder, &error))?;
        }
    }
    Ok(())
}

/// One step: compared with what was planned for, and only then done.
fn put(step: &JournalStep, journal: &ApplyJournal, system: &dyn FileSystem) -> PackResult<()> {
    let io = |doing: &'static str| move |error: io::Error| PackError::io(doing, &step.path, &error);
    let root = TargetRoot {
        target: step.target,
        path: step.root.clone(),
        base: step.base.clone(),
        extras: ExtraFiles::Ignored,
    };
    no_links(system, &root, &step.path, &mut CheckedFolders::default())?;
    let Some(after) = step.after else {
        compare(step, system)?;
        return system.remove(&step.path).map_err(io("remove"));
    };
    if let Some(folder) = step.path.parent() {
        system::make_folders(system, folder).map_err(|error| PackError::io("make", folder, &error))?;
    }
    let staged = journal.staged(step);
    let written = (|| {
        if system.path_status(&step.temporary)? != PathStatus::Missing {
            system.remove(&step.temporary)?;
        }
        system.write_new(&step.temporary, WriteSource::CopyOf(&staged), step.access)?;
        system::digest(system, &step.temporary)
    })();
    let written = written.map_err(io("write"))?;
    if written != after {
        return Err(PackError::broken(
            format!("write `{}`", shown(&step.path)),
            "what was staged for it has changed",
        ));
    }
    compare(step, system)?;
    match step.before {
        Some(_) => system.replace(&step.temporary, &step.path).map_err(io("write")),
        None => match system.place(&step.temporary, &step.path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(drifted(step, None)),
            placed => placed.map_err(io("write")),
        },
    }
}

/// Whether a file is still what was planned for.
fn compare(step: &JournalStep, system: &dyn FileSystem) -> PackResult<()> {
    let now = system::digest_if_there(system, &step.path)
        .map_err(|error| PackError::io("read", &step.path, &error))?;
    if now == step.before { Ok(()) } else { Err(drifted(step, now)) }
}

fn drifted(step: &JournalStep, now: Option<Digest>) -> PackError {
    let message = format!("`{}` changed after it was planned", shown(&step.path));
    Refusal::new(Code::ApplyDrifted, message)
        .with("path", shown(&step.path))
        .with("expected_sha256", step.before.map(|digest| digest.hex()))
        .with("actual_sha256", now.map(|digest| digest.hex()))
        .into()
}

/// Undoes the steps that were done and says what became of each.
fn back_out(
    journal: &ApplyJournal,
    done: &[JournalStep],
    not_done: &[JournalStep],
    stop: PackError,
    snapshots: &Path,
    system: &dyn FileSystem,
) -> PackError {
    let names = |steps: &[&JournalStep]| -> Vec<String> {
        steps.iter().filter(|step| !step.is_record).map(|step| shown(&step.path)).collect()
    };
    let not_done: Vec<&JournalStep> = not_done.iter().collect();
    match undo(journal, snapshots, system) {
        Ok(left) => {
            let (kept, undone): (Vec<&JournalStep>, Vec<&JournalStep>) =
                done.iter().partition(|step| left.contains(&step.path));
            stop.with("done", names(&kept)).with("undone", names(&undone)).with("not_done", names(&not_done))
        }
        Err(fault) => {
            let done: Vec<&JournalStep> = done.iter().collect();
            stop.with("done", names(&done))
                .with("not_done", names(&not_done))
                .with("undo", format!("{fault}; the next start tries again"))
        }
    }
}

/// Puts back what was there before every step, wherever our content still is. Gives back the files that somebody changed since
/// and that are left alone.
fn undo(journal: &ApplyJournal, snapshots: &Path, system: &dyn FileSystem) -> PackResult<Vec<PathBuf>> {
    let mut left = Vec::new();
    for step in journal.steps.iter().rev() {
        let io = |error: io::Error| PackError::io("restore", &step.path, &error);
        drop_temporary(step, system).map_err(io)?;
        let now = match system::digest_if_there(system, &step.path) {
            Ok(now) => now,
            Err(_) => {
                // A folder or a link came there: not ours.
                left.push(step.path.clone());
                continue;
            }
        };
        if now == step.before {
            continue;
        }
        if now != step.after {
            left.push(step.path.clone());
            continue;
        }
        match step.before {
            None => system.remove(&step.path).map_err(io)?,
            Some(_) => {
                let folder = step.path.parent().unwrap_or(Path::new("."));
                system::make_folders(system, folder).map_err(io)?;
                system
                    .write_new(
                        &step.temporary,
                        WriteSource::CopyOf(&journal.backup(step)),
                        step.before_access,
                    )
                    .map_err(io)?;
                system.replace(&step.temporary, &step.path).map_err(io)?;
            }
        }
    }
    for folder in journal.folders.iter().rev() {
        // Somebody may have put something into it; then it stays.
        match system.remove_folder(folder) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {}
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {}
            Err(error) => return Err(PackError::io("remove", folder, &error)),
        }
    }
    sync_folders(journal, system)?;
    journal.forget(snapshots, system)?;
    stage::discard(snapshots, &journal.snapshot.id, system)?;
    Ok(left)
}

fn drop_temporary(step: &JournalStep, system: &dyn FileSystem) -> io::Result<()> {
    match system.path_status(&step.temporary)? {
        PathStatus::Missing => Ok(()),
        PathStatus::File(_) | PathStatus::Link => system.remove(&step.temporary),
        PathStatus::Folder | PathStatus::Other => Err(io::Error::from(io::ErrorKind::InvalidInput)),
    }
}
