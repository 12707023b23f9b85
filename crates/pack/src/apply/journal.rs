//! The journal: what is about to happen, on disk before it happens. Everything a step needs is staged when it is written, so
//! that the whole can be finished or undone from it alone.

use std::path::{Path, PathBuf};

use countersign_core::digest::Digest;
use serde::{Deserialize, Serialize};

use crate::manifest::Target;
use crate::snapshot::Snapshot;
use crate::stop::{Outcome, Stop};
use crate::system::{self, Access, Found, System};

/// What is about to happen.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Journal {
    /// Always 1.
    pub version: u32,
    /// The snapshot that will say it happened.
    pub snapshot: Snapshot,
    /// The steps in their order.
    pub steps: Vec<Step>,
    /// Folders that are made for them, topmost first.
    pub folders: Vec<PathBuf>,
    /// Where the snapshot's blobs are.
    pub blobs: PathBuf,
}

/// One file written or removed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// For which target.
    pub target: Target,
    /// Which file.
    pub path: PathBuf,
    /// The root it is below.
    pub root: PathBuf,
    /// The folder above the root that is trusted.
    pub base: PathBuf,
    /// What must be there.
    pub before: Option<Digest>,
    /// What will be there.
    pub after: Option<Digest>,
    /// The file's name while it is written.
    pub temporary: PathBuf,
    /// Whether it may be run.
    pub access: Access,
    /// Whether what was there may be run.
    pub before_access: Access,
    /// Whether it is a target manifest.
    pub is_record: bool,
    /// The name of its blobs.
    pub blob: String,
}

const LIMIT: u64 = 512 * 1024 * 1024;

impl Journal {
    /// Where the journal is.
    pub fn path(snapshots: &Path) -> PathBuf {
        snapshots.parent().unwrap_or(snapshots).join("journal.json")
    }

    /// Where a step's new content is staged.
    pub fn staged(&self, step: &Step) -> PathBuf {
        let shelf = if step.is_record { "records" } else { "state" };
        self.blobs.join(shelf).join(step.target.as_str()).join(&step.blob)
    }

    /// Where a step's old content is kept.
    pub fn backup(&self, step: &Step) -> PathBuf {
        let shelf = if step.is_record { "record-backups" } else { "backup" };
        self.blobs.join(shelf).join(step.target.as_str()).join(&step.blob)
    }

    /// Puts it on disk: from here on it will be finished or undone.
    pub fn write(&self, snapshots: &Path, system: &dyn System) -> Outcome<()> {
        let path = Self::path(snapshots);
        let text = serde_json::to_vec(self).map_err(|error| Stop::broken("write the journal", error))?;
        system::write_whole(system, &path, &text).map_err(|error| Stop::io("write", &path, &error))
    }

    /// The journal that is there, if one is.
    pub fn read(snapshots: &Path, system: &dyn System) -> Outcome<Option<Self>> {
        let path = Self::path(snapshots);
        let bytes =
            system::read_if_there(system, &path, LIMIT).map_err(|error| Stop::io("read", &path, &error))?;
        let Some(bytes) = bytes else { return Ok(None) };
        serde_json::from_slice(&bytes)
            .map(Some)
            .map_err(|error| Stop::broken("read the journal of a half-done apply", error))
    }

    /// It is over.
    pub fn forget(&self, snapshots: &Path, system: &dyn System) -> Outcome<()> {
        let path = Self::path(snapshots);
        let gone = (|| {
            if system.look(&path)? != Found::Missing {
                system.remove(&path)?;
            }
            system.sync_folder(path.parent().unwrap_or(Path::new(".")))
        })();
        gone.map_err(|error| Stop::io("remove", &path, &error))
    }
}
