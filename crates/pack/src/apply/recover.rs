//! Recovery after a crash: finishes an apply that stopped halfway, or undoes it where files were changed since. Runs with the lock
//! held, so that a running apply is not taken for a crashed one.

use std::path::{Path, PathBuf};

use countersign_policy::words::plural;

use super::{ApplyJournal, JournalStep, finish, put, stage, undo};
use crate::error::{PackError, PackResult, shown};
use crate::snapshot;
use crate::system::{self, EntryKind, FileSystem, PathStatus};

/// What became of an apply that stopped halfway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApplyRecovery {
    Finished {
        snapshot_id: String,
        /// How many files were still to be written.
        files: usize,
    },
    /// It was undone: every byte is as before, but for files that somebody changed since.
    Undone {
        /// Its snapshot, which does not come to be.
        snapshot_id: String,
        left: Vec<PathBuf>,
        why: String,
    },
}

impl ApplyRecovery {
    pub fn message(&self) -> String {
        match self {
            ApplyRecovery::Finished { snapshot_id, files } => {
                let files = plural(*files, "file");
                format!(
                    "an apply that had stopped halfway (snapshot {snapshot_id}) was finished: {files} to write were left"
                )
            }
            ApplyRecovery::Undone { snapshot_id, left, why } => {
                let left: Vec<String> = left.iter().map(|path| format!("`{}`", shown(path))).collect();
                let but = if left.is_empty() {
                    String::new()
                } else {
                    format!("; changed since and left alone: {}", left.join(", "))
                };
                format!("an apply that had stopped halfway (snapshot {snapshot_id}) was undone: {why}{but}")
            }
        }
    }
}

/// Finishes or undoes what a crash left half done.
pub(crate) fn recover(snapshots: &Path, system: &dyn FileSystem) -> PackResult<Option<ApplyRecovery>> {
    let Some(journal) = ApplyJournal::read(snapshots, system)? else {
        sweep(snapshots, system)?;
        return Ok(None);
    };
    let snapshot_id = journal.snapshot.id.clone();
    let recovered = match go_on(&journal, snapshots, system) {
        Ok(files) => ApplyRecovery::Finished { snapshot_id, files },
        Err(stop) => {
            let why = stop.to_string();
            ApplyRecovery::Undone { snapshot_id, left: undo(&journal, snapshots, system)?, why }
        }
    };
    sweep(snapshots, system)?;
    Ok(Some(recovered))
}

fn go_on(journal: &ApplyJournal, snapshots: &Path, system: &dyn FileSystem) -> PackResult<usize> {
    let mut open = Vec::new();
    for step in &journal.steps {
        let now = system::digest_if_there(system, &step.path)
            .map_err(|error| PackError::io("read", &step.path, &error))?;
        if now == step.after {
            drop_temporary(step, system)?;
        } else {
            open.push(step);
        }
    }
    for step in &open {
        put(step, journal, system)?;
    }
    finish(journal, snapshots, system)?;
    Ok(open.iter().filter(|step| !step.is_record).count())
}

fn drop_temporary(step: &JournalStep, system: &dyn FileSystem) -> PackResult<()> {
    super::drop_temporary(step, system).map_err(|error| PackError::io("remove", &step.temporary, &error))
}

/// Removes what was staged for applies that never began.
fn sweep(snapshots: &Path, system: &dyn FileSystem) -> PackResult<()> {
    let io = |error: std::io::Error| PackError::io("tidy", snapshots, &error);
    if system.path_status(snapshots).map_err(io)? != PathStatus::Folder {
        return Ok(());
    }
    for (name, kind) in system.list(snapshots).map_err(io)? {
        let Some(id) = name.to_str().filter(|name| kind == EntryKind::Folder && snapshot::is_id(name)) else {
            continue;
        };
        if system.path_status(&snapshot::file(snapshots, id)).map_err(io)? == PathStatus::Missing {
            stage::discard(snapshots, id, system)?;
        }
    }
    Ok(())
}
