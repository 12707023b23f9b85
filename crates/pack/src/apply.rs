//! Applying: stage everything, write down what will happen, then do it file by file, each compared with what was planned.
//! Chooses nothing. What can't be finished is undone; what a crash left half done is finished or undone at the next start.

mod journal;
mod recover;
mod stage;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use countersign_core::digest::Digest;
use countersign_core::refusal::{Code, Refusal};

pub use journal::{Journal, Step};
pub use recover::{Recovery, recover};
pub use stage::{Edit, Work, stage};

use crate::actual::{Checked, no_links};
use crate::snapshot;
use crate::stop::{Outcome, Stop, shown};
use crate::system::{self, Body, Found, System};
use crate::targets::{Extras, Root};

/// What an apply did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    /// The snapshot to go back to.
    pub snapshot_id: String,
    /// How many files it wrote or removed.
    pub files: usize,
}

/// Stages, writes down and carries out.
pub fn apply(
    work: Work<'_>,
    snapshots: &Path,
    system: &dyn System,
    now: jiff::Timestamp,
) -> Outcome<Applied> {
    let journal = stage(work, snapshots, system, now)?;
    carry_out(&journal, snapshots, system)
}

/// Does what a journal says. If a step can't be done, those before it are undone.
pub fn carry_out(journal: &Journal, snapshots: &Path, system: &dyn System) -> Outcome<Applied> {
    for (index, step) in journal.steps.iter().enumerate() {
        if let Err(stop) = put(step, journal, system) {
            let (done, not_done) = journal.steps.split_at(index);
            return Err(back_out(journal, done, not_done, stop, snapshots, system));
        }
    }
    finish(journal, snapshots, system)?;
    let files = journal.steps.iter().filter(|step| !step.is_record).count();
    Ok(Applied { snapshot_id: journal.snapshot.id.clone(), files })
}

/// Makes names durable, writes the snapshot, and forgets the journal.
fn finish(journal: &Journal, snapshots: &Path, system: &dyn System) -> Outcome<()> {
    sync_folders(journal, system)?;
    let path = snapshot::file(snapshots, &journal.snapshot.id);
    let text = snapshot::text(&journal.snapshot)?;
    system::write_whole(system, &path, text.as_bytes()).map_err(|error| Stop::io("write", &path, &error))?;
    journal.forget(snapshots, system)
}

fn sync_folders(journal: &Journal, system: &dyn System) -> Outcome<()> {
    let folders: BTreeSet<&Path> = journal.steps.iter().filter_map(|step| step.path.parent()).collect();
    for folder in folders {
        if system.look(folder).map_err(|error| Stop::io("read", folder, &error))? == Found::Folder {
            system.sync_folder(folder).map_err(|error| Stop::io("sync", folder, &error))?;
        }
    }
    Ok(())
}

/// One step: compared with what was planned for, and only then done.
fn put(step: &Step, journal: &Journal, system: &dyn System) -> Outcome<()> {
    let io = |doing: &'static str| move |error: io::Error| Stop::io(doing, &step.path, &error);
    let root = Root {
        target: step.target,
        path: step.root.clone(),
        base: step.base.clone(),
        extras: Extras::Ignored,
    };
    no_links(system, &root, &step.path, &mut Checked::default())?;
    let Some(after) = step.after else {
        compare(step, system)?;
        return system.remove(&step.path).map_err(io("remove"));
    };
    if let Some(folder) = step.path.parent() {
        system::make_folders(system, folder).map_err(|error| Stop::io("make", folder, &error))?;
    }
    let staged = journal.staged(step);
    let written = (|| {
        if system.look(&step.temporary)? != Found::Missing {
            system.remove(&step.temporary)?;
        }
        system.write_new(&step.temporary, Body::CopyOf(&staged), step.access)?;
        system::digest(system, &step.temporary)
    })();
    let written = written.map_err(io("write"))?;
    if written != after {
        return Err(Stop::broken(
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
fn compare(step: &Step, system: &dyn System) -> Outcome<()> {
    let now =
        system::digest_if_there(system, &step.path).map_err(|error| Stop::io("read", &step.path, &error))?;
    if now == step.before { Ok(()) } else { Err(drifted(step, now)) }
}

fn drifted(step: &Step, now: Option<Digest>) -> Stop {
    let message = format!("`{}` changed after it was planned", shown(&step.path));
    Refusal::new(Code::ApplyDrifted, message)
        .with("path", shown(&step.path))
        .with("expected_sha256", step.before.map(|digest| digest.hex()))
        .with("actual_sha256", now.map(|digest| digest.hex()))
        .into()
}

/// Undoes the steps that were done and says what became of each.
fn back_out(
    journal: &Journal,
    done: &[Step],
    not_done: &[Step],
    stop: Stop,
    snapshots: &Path,
    system: &dyn System,
) -> Stop {
    let names = |steps: &[&Step]| -> Vec<String> {
        steps.iter().filter(|step| !step.is_record).map(|step| shown(&step.path)).collect()
    };
    let not_done: Vec<&Step> = not_done.iter().collect();
    match undo(journal, snapshots, system) {
        Ok(left) => {
            let (kept, undone): (Vec<&Step>, Vec<&Step>) =
                done.iter().partition(|step| left.contains(&step.path));
            stop.with("done", names(&kept)).with("undone", names(&undone)).with("not_done", names(&not_done))
        }
        Err(fault) => {
            let done: Vec<&Step> = done.iter().collect();
            stop.with("done", names(&done))
                .with("not_done", names(&not_done))
                .with("undo", format!("{fault}; the next start tries again"))
        }
    }
}

/// Puts back what was there before every step, wherever our content still is. Gives back the files that somebody changed since
/// and that are left alone.
fn undo(journal: &Journal, snapshots: &Path, system: &dyn System) -> Outcome<Vec<PathBuf>> {
    let mut left = Vec::new();
    for step in journal.steps.iter().rev() {
        let io = |error: io::Error| Stop::io("restore", &step.path, &error);
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
                    .write_new(&step.temporary, Body::CopyOf(&journal.backup(step)), step.before_access)
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
            Err(error) => return Err(Stop::io("remove", folder, &error)),
        }
    }
    sync_folders(journal, system)?;
    journal.forget(snapshots, system)?;
    stage::discard(snapshots, &journal.snapshot.id, system)?;
    Ok(left)
}

fn drop_temporary(step: &Step, system: &dyn System) -> io::Result<()> {
    match system.look(&step.temporary)? {
        Found::Missing => Ok(()),
        Found::File(_) | Found::Link => system.remove(&step.temporary),
        Found::Folder | Found::Other => Err(io::Error::from(io::ErrorKind::InvalidInput)),
    }
}
