//! The file system of a dry run: reads the disk, keeps writes in memory and reads them back. Changes nothing on disk.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{self, Cursor, Read};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::{EntryKind, FileAccess, FileStamp, FileSystem, PathStatus, RealFileSystem, WriteSource};

/// The file system as it would be.
#[derive(Debug, Default)]
pub struct DryRun {
    shadows: Mutex<BTreeMap<PathBuf, ShadowEntry>>,
}

#[derive(Clone, Debug)]
enum ShadowEntry {
    Gone,
    Folder,
    Bytes(Vec<u8>, FileAccess),
    /// The content of a real file, which is not copied for this.
    Same(PathBuf, FileAccess),
}

impl DryRun {
    fn shadows(&self) -> MutexGuard<'_, BTreeMap<PathBuf, ShadowEntry>> {
        self.shadows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn shadow(&self, path: &Path) -> Option<ShadowEntry> {
        self.shadows().get(path).cloned()
    }

    fn set(&self, path: &Path, shadow: ShadowEntry) {
        self.shadows().insert(path.to_path_buf(), shadow);
    }

    fn take(&self, from: &Path) -> io::Result<ShadowEntry> {
        let moved = match self.shadow(from) {
            Some(ShadowEntry::Gone) => return Err(io::Error::from(io::ErrorKind::NotFound)),
            Some(shadow) => shadow,
            None => match RealFileSystem.path_status(from)? {
                PathStatus::File(stamp) => ShadowEntry::Same(from.to_path_buf(), stamp.access),
                PathStatus::Missing => return Err(io::Error::from(io::ErrorKind::NotFound)),
                PathStatus::Folder | PathStatus::Link | PathStatus::Other => {
                    return Err(io::Error::from(io::ErrorKind::Unsupported));
                }
            },
        };
        self.set(from, ShadowEntry::Gone);
        Ok(moved)
    }
}

impl FileSystem for DryRun {
    fn path_status(&self, path: &Path) -> io::Result<PathStatus> {
        let made = |bytes: u64, access| {
            PathStatus::File(FileStamp { bytes, modified: 0, changed: 0, inode: 0, access })
        };
        match self.shadow(path) {
            None => RealFileSystem.path_status(path),
            Some(ShadowEntry::Gone) => Ok(PathStatus::Missing),
            Some(ShadowEntry::Folder) => Ok(PathStatus::Folder),
            Some(ShadowEntry::Bytes(bytes, access)) => {
                Ok(made(u64::try_from(bytes.len()).unwrap_or(u64::MAX), access))
            }
            Some(ShadowEntry::Same(from, access)) => Ok(match RealFileSystem.path_status(&from)? {
                PathStatus::File(stamp) => made(stamp.bytes, access),
                other @ (PathStatus::Missing | PathStatus::Folder | PathStatus::Link | PathStatus::Other) => {
                    other
                }
            }),
        }
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<(OsString, EntryKind)>> {
        let mut entries: BTreeMap<OsString, EntryKind> = match RealFileSystem.list(folder) {
            Ok(entries) => entries.into_iter().collect(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => BTreeMap::new(),
            Err(error) => return Err(error),
        };
        for (path, shadow) in self.shadows().iter().filter(|(path, _)| path.parent() == Some(folder)) {
            let Some(name) = path.file_name() else { continue };
            match shadow {
                ShadowEntry::Gone => entries.remove(name),
                ShadowEntry::Folder => entries.insert(name.to_owned(), EntryKind::Folder),
                ShadowEntry::Bytes(..) | ShadowEntry::Same(..) => {
                    entries.insert(name.to_owned(), EntryKind::File)
                }
            };
        }
        Ok(entries.into_iter().collect())
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn Read>> {
        match self.shadow(path) {
            None => RealFileSystem.open(path),
            Some(ShadowEntry::Gone) => Err(io::Error::from(io::ErrorKind::NotFound)),
            Some(ShadowEntry::Folder) => Err(io::Error::from(io::ErrorKind::IsADirectory)),
            Some(ShadowEntry::Bytes(bytes, _)) => Ok(Box::new(Cursor::new(bytes))),
            Some(ShadowEntry::Same(from, _)) => RealFileSystem.open(&from),
        }
    }

    fn make_folder(&self, path: &Path) -> io::Result<()> {
        if self.path_status(path)? == PathStatus::Missing {
            self.set(path, ShadowEntry::Folder);
        }
        Ok(())
    }

    fn write_new(&self, path: &Path, body: WriteSource<'_>, access: FileAccess) -> io::Result<()> {
        if self.path_status(path)? != PathStatus::Missing {
            return Err(io::Error::from(io::ErrorKind::AlreadyExists));
        }
        let shadow = match body {
            WriteSource::Bytes(bytes) => ShadowEntry::Bytes(bytes.to_vec(), access),
            WriteSource::CopyOf(from) => match self.shadow(from) {
                Some(ShadowEntry::Bytes(bytes, _)) => ShadowEntry::Bytes(bytes, access),
                Some(ShadowEntry::Same(real, _)) => ShadowEntry::Same(real, access),
                Some(ShadowEntry::Gone) => return Err(io::Error::from(io::ErrorKind::NotFound)),
                Some(ShadowEntry::Folder) => return Err(io::Error::from(io::ErrorKind::IsADirectory)),
                None => ShadowEntry::Same(from.to_path_buf(), access),
            },
        };
        self.set(path, shadow);
        Ok(())
    }

    fn share(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.write_new(to, WriteSource::CopyOf(from), FileAccess::Plain)
    }

    fn replace(&self, from: &Path, to: &Path) -> io::Result<()> {
        let moved = self.take(from)?;
        self.set(to, moved);
        Ok(())
    }

    fn place(&self, from: &Path, to: &Path) -> io::Result<()> {
        if self.path_status(to)? != PathStatus::Missing {
            return Err(io::Error::from(io::ErrorKind::AlreadyExists));
        }
        self.replace(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.take(path).map(|_| ())
    }

    fn remove_folder(&self, path: &Path) -> io::Result<()> {
        if !self.list(path)?.is_empty() {
            return Err(io::Error::from(io::ErrorKind::DirectoryNotEmpty));
        }
        self.set(path, ShadowEntry::Gone);
        Ok(())
    }

    fn sync_folder(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }
}
