//! The journal: the steps of an apply, on disk before the first of them. Everything a step needs is staged before it is written, so an
//! apply can be finished or undone from the journal alone.

use std::path::{Path, PathBuf};

use countersign_policy::digest::Digest;
use serde::{Deserialize, Serialize};

use crate::error::{PackError, PackResult};
use crate::manifest::Target;
use crate::snapshot::Snapshot;
use crate::system::{self, FileAccess, FileSystem, PathStatus};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ApplyJournal {
    /// Always 1.
    pub version: u32,
    /// The snapshot that will say it happened.
    pub snapshot: Snapshot,
    pub steps: Vec<JournalStep>,
    /// Folders that are made for them, topmost first.
    pub folders: Vec<PathBuf>,
    pub(crate) blobs: PathBuf,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct JournalStep {
    pub target: Target,
    pub path: PathBuf,
    pub root: PathBuf,
    /// The folder above the root that is trusted.
    pub base: PathBuf,
    /// What must be there.
    pub before: Option<Digest>,
    pub after: Option<Digest>,
    /// The file's name while it is written.
    pub temporary: PathBuf,
    pub access: FileAccess,
    /// Whether what was there may be run.
    pub(crate) before_access: FileAccess,
    pub(crate) is_record: bool,
    pub blob: String,
}

const LIMIT: u64 = 512 * 1024 * 1024;

impl ApplyJournal {
    pub(crate) fn path(snapshots: &Path) -> PathBuf {
        snapshots.parent().unwrap_or(snapshots).join("journal.json")
    }

    /// Where a step's new content is staged.
    pub(crate) fn staged(&self, step: &JournalStep) -> PathBuf {
        self.blobs.join("state").join(step.target.as_str()).join(&step.blob)
    }

    /// Where a step's old content is kept.
    pub(crate) fn backup(&self, step: &JournalStep) -> PathBuf {
        self.blobs.join("backup").join(step.target.as_str()).join(&step.blob)
    }

    /// Puts it on disk: from here on it will be finished or undone.
    pub(crate) fn write(&self, snapshots: &Path, system: &dyn FileSystem) -> PackResult<()> {
        let path = Self::path(snapshots);
        let text = serde_json::to_vec(self).map_err(|error| PackError::broken("write the journal", error))?;
        system::write_whole(system, &path, &text).map_err(|error| PackError::io("write", &path, &error))
    }

    /// The journal that is there, if one is.
    pub(crate) fn read(snapshots: &Path, system: &dyn FileSystem) -> PackResult<Option<Self>> {
        let path = Self::path(snapshots);
        let bytes = system::read_if_there(system, &path, LIMIT)
            .map_err(|error| PackError::io("read", &path, &error))?;
        let Some(bytes) = bytes else { return Ok(None) };
        serde_json::from_slice(&bytes)
            .map(Some)
            .map_err(|error| PackError::broken("read the journal of a half-done apply", error))
    }

    pub(crate) fn forget(&self, snapshots: &Path, system: &dyn FileSystem) -> PackResult<()> {
        let path = Self::path(snapshots);
        let gone = (|| {
            if system.path_status(&path)? != PathStatus::Missing {
                system.remove(&path)?;
            }
            system.sync_folder(path.parent().unwrap_or(Path::new(".")))
        })();
        gone.map_err(|error| PackError::io("remove", &path, &error))
    }
}
