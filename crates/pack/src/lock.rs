//! One writer at a time: a lock file in the pack's state, held while something is applied. Whoever gets it first looks after what
//! a crash left behind.

use std::fs::{File, OpenOptions};

use crate::apply::{Recovery, recover};
use crate::place::Place;
use crate::stop::{Outcome, Stop};
use crate::system::Real;

/// The right to change what is deployed; given back when dropped.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

fn open(place: &Place) -> Outcome<File> {
    let folder = place.state();
    std::fs::create_dir_all(&folder).map_err(|error| Stop::io("make", &folder, &error))?;
    let path = folder.join("lock");
    OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&path)
        .map_err(|error| Stop::io("open", &path, &error))
}

/// Waits for its turn, then finishes or undoes what a crash left half done.
pub fn acquire(place: &Place) -> Outcome<(Lock, Option<Recovery>)> {
    let file = open(place)?;
    file.lock().map_err(|error| Stop::io("lock", &place.state(), &error))?;
    let lock = Lock { _file: file };
    let recovered = recover(&place.snapshots(), &Real)?;
    Ok((lock, recovered))
}

/// Looks after what a crash left behind, if there is anything and nobody is at work: what every start does first.
pub fn tend(place: &Place) -> Outcome<Option<Recovery>> {
    if !crate::apply::Journal::path(&place.snapshots()).exists() {
        return Ok(None);
    }
    let file = open(place)?;
    match file.try_lock() {
        Ok(()) => recover(&place.snapshots(), &Real),
        // Somebody is at work: it is not half done, it is being done.
        Err(std::fs::TryLockError::WouldBlock) => Ok(None),
        Err(std::fs::TryLockError::Error(error)) => Err(Stop::io("lock", &place.state(), &error)),
    }
}
