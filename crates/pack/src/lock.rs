//! The deployment lock: a file in the pack's state, held while something is applied. The holder first recovers what a crash left
//! behind.

use std::fs::{File, OpenOptions};

use crate::apply::{ApplyRecovery, recover};
use crate::error::{PackError, PackResult};
use crate::place::PackEnvironment;
use crate::system::RealFileSystem;

/// The right to change what is deployed; given back when dropped.
#[derive(Debug)]
pub struct DeployLock {
    _file: File,
}

fn open(place: &PackEnvironment) -> PackResult<File> {
    let folder = place.state();
    std::fs::create_dir_all(&folder).map_err(|error| PackError::io("make", &folder, &error))?;
    let path = folder.join("lock");
    OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&path)
        .map_err(|error| PackError::io("open", &path, &error))
}

/// Waits for its turn, then finishes or undoes what a crash left half done.
pub fn acquire(place: &PackEnvironment) -> PackResult<(DeployLock, Option<ApplyRecovery>)> {
    let file = open(place)?;
    file.lock().map_err(|error| PackError::io("lock", &place.state(), &error))?;
    let lock = DeployLock { _file: file };
    let recovered = recover(&place.snapshots(), &RealFileSystem)?;
    Ok((lock, recovered))
}

/// Looks after what a crash left behind, if there is anything and nobody is at work: what every start does first.
pub fn recover_if_stale(place: &PackEnvironment) -> PackResult<Option<ApplyRecovery>> {
    if !crate::apply::ApplyJournal::path(&place.snapshots()).exists() {
        return Ok(None);
    }
    let file = open(place)?;
    match file.try_lock() {
        Ok(()) => recover(&place.snapshots(), &RealFileSystem),
        // Somebody is at work: it is not half done, it is being done.
        Err(std::fs::TryLockError::WouldBlock) => Ok(None),
        Err(std::fs::TryLockError::Error(error)) => Err(PackError::io("lock", &place.state(), &error)),
    }
}
