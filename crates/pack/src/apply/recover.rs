//! After a crash: the apply that stopped halfway is finished, or, where somebody changed files since, undone. Runs with the
//! lock held, so that nobody else's apply is taken for a crashed one.

use std::path::{Path, PathBuf};

use countersign_core::words::plural;

use super::{Journal, Step, finish, put, stage, undo};
use crate::snapshot;
use crate::stop::{Outcome, Stop, shown};
use crate::system::{self, Found, Kind, System};

/// What became of an apply that stopped halfway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Recovery {
    /// It was finished.
    Finished {
        /// Its snapshot.
        snapshot_id: String,
        /// How many files were still to be written.
        files: usize,
    },
    /// It was undone: every byte is as before, but for files that somebody changed since.
    Undone {
        /// Its snapshot, which does not come to be.
        snapshot_id: String,
        /// Files that were left alone.
        left: Vec<PathBuf>,
        /// Why it could not be finished.
        why: String,
    },
}

impl Recovery {
    /// One line for a reader.
    pub fn message(&self) -> String {
        match self {
            Recovery::Finished { snapshot_id, files } => {
                let files = plural(*files, "file");
                format!(
                    "an apply that had stopped halfway (snapshot {snapshot_id}) was finished: {files} to write were left"
                )
            }
            Recovery::Undone { snapshot_id, left, why } => {
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
pub fn recover(snapshots: &Path, system: &dyn System) -> Outcome<Option<Recovery>> {
    let Some(journal) = Journal::read(snapshots, system)? else {
        sweep(snapshots, system)?;
        return Ok(None);
    };
    let snapshot_id = journal.snapshot.id.clone();
    let recovered = match go_on(&journal, snapshots, system) {
        Ok(files) => Recovery::Finished { snapshot_id, files },
        Err(stop) => {
            let why = stop.to_string();
            Recovery::Undone { snapshot_id, left: undo(&journal, snapshots, system)?, why }
        }
    };
    sweep(snapshots, system)?;
    Ok(Some(recovered))
}

fn go_on(journal: &Journal, snapshots: &Path, system: &dyn System) -> Outcome<usize> {
    let mut open = Vec::new();
    for step in &journal.steps {
        let now = system::digest_if_there(system, &step.path)
            .map_err(|error| Stop::io("read", &step.path, &error))?;
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

fn drop_temporary(step: &Step, system: &dyn System) -> Outcome<()> {
    super::drop_temporary(step, system).map_err(|error| Stop::io("remove", &step.temporary, &error))
}

/// Removes what was staged for applies that never began.
fn sweep(snapshots: &Path, system: &dyn System) -> Outcome<()> {
    let io = |error: std::io::Error| Stop::io("tidy", snapshots, &error);
    if system.look(snapshots).map_err(io)? != Found::Folder {
        return Ok(());
    }
    for (name, kind) in system.list(snapshots).map_err(io)? {
        let Some(id) = name.to_str().filter(|name| kind == Kind::Folder && snapshot::is_id(name)) else {
            continue;
        };
        if system.look(&snapshot::file(snapshots, id)).map_err(io)? == Found::Missing {
            stage::discard(snapshots, id, system)?;
        }
    }
    Ok(())
}
