//! A dry run: reads what is there, keeps in memory what would be written, and reads that back as if it were. The same
//! code runs over it as over the real one; nothing on disk changes.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{self, Cursor, Read};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::{Access, Body, Found, Kind, Real, Stamp, System};

/// The file system as it would be.
#[derive(Debug, Default)]
pub struct DryRun {
    shadows: Mutex<BTreeMap<PathBuf, Shadow>>,
}

/// What would be at a path.
#[derive(Clone, Debug)]
enum Shadow {
    Gone,
    Folder,
    Bytes(Vec<u8>, Access),
    /// The content of a real file, which is not copied for this.
    Same(PathBuf, Access),
}

impl DryRun {
    fn shadows(&self) -> MutexGuard<'_, BTreeMap<PathBuf, Shadow>> {
        self.shadows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn shadow(&self, path: &Path) -> Option<Shadow> {
        self.shadows().get(path).cloned()
    }

    fn set(&self, path: &Path, shadow: Shadow) {
        self.shadows().insert(path.to_path_buf(), shadow);
    }

    fn take(&self, from: &Path) -> io::Result<Shadow> {
        let moved = match self.shadow(from) {
            Some(Shadow::Gone) => return Err(io::Error::from(io::ErrorKind::NotFound)),
            Some(shadow) => shadow,
            None => match Real.look(from)? {
                Found::File(stamp) => Shadow::Same(from.to_path_buf(), stamp.access),
                Found::Missing => return Err(io::Error::from(io::ErrorKind::NotFound)),
                Found::Folder | Found::Link | Found::Other => {
                    return Err(io::Error::from(io::ErrorKind::Unsupported));
                }
            },
        };
        self.set(from, Shadow::Gone);
        Ok(moved)
    }
}

impl System for DryRun {
    fn look(&self, path: &Path) -> io::Result<Found> {
        let made =
            |bytes: u64, access| Found::File(Stamp { bytes, modified: 0, changed: 0, inode: 0, access });
        match self.shadow(path) {
            None => Real.look(path),
            Some(Shadow::Gone) => Ok(Found::Missing),
            Some(Shadow::Folder) => Ok(Found::Folder),
            Some(Shadow::Bytes(bytes, access)) => {
                Ok(made(u64::try_from(bytes.len()).unwrap_or(u64::MAX), access))
            }
            Some(Shadow::Same(from, access)) => Ok(match Real.look(&from)? {
                Found::File(stamp) => made(stamp.bytes, access),
                other @ (Found::Missing | Found::Folder | Found::Link | Found::Other) => other,
            }),
        }
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<(OsString, Kind)>> {
        let mut entries: BTreeMap<OsString, Kind> = match Real.list(folder) {
            Ok(entries) => entries.into_iter().collect(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => BTreeMap::new(),
            Err(error) => return Err(error),
        };
        for (path, shadow) in self.shadows().iter().filter(|(path, _)| path.parent() == Some(folder)) {
            let Some(name) = path.file_name() else { continue };
            match shadow {
                Shadow::Gone => entries.remove(name),
                Shadow::Folder => entries.insert(name.to_owned(), Kind::Folder),
                Shadow::Bytes(..) | Shadow::Same(..) => entries.insert(name.to_owned(), Kind::File),
            };
        }
        Ok(entries.into_iter().collect())
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn Read>> {
        match self.shadow(path) {
            None => Real.open(path),
            Some(Shadow::Gone) => Err(io::Error::from(io::ErrorKind::NotFound)),
            Some(Shadow::Folder) => Err(io::Error::from(io::ErrorKind::IsADirectory)),
            Some(Shadow::Bytes(bytes, _)) => Ok(Box::new(Cursor::new(bytes))),
            Some(Shadow::Same(from, _)) => Real.open(&from),
        }
    }

    fn make_folder(&self, path: &Path) -> io::Result<()> {
        if self.look(path)? == Found::Missing {
            self.set(path, Shadow::Folder);
        }
        Ok(())
    }

    fn write_new(&self, path: &Path, body: Body<'_>, access: Access) -> io::Result<()> {
        if self.look(path)? != Found::Missing {
            return Err(io::Error::from(io::ErrorKind::AlreadyExists));
        }
        let shadow = match body {
            Body::Bytes(bytes) => Shadow::Bytes(bytes.to_vec(), access),
            Body::CopyOf(from) => match self.shadow(from) {
                Some(Shadow::Bytes(bytes, _)) => Shadow::Bytes(bytes, access),
                Some(Shadow::Same(real, _)) => Shadow::Same(real, access),
                Some(Shadow::Gone) => return Err(io::Error::from(io::ErrorKind::NotFound)),
                Some(Shadow::Folder) => return Err(io::Error::from(io::ErrorKind::IsADirectory)),
                None => Shadow::Same(from.to_path_buf(), access),
            },
        };
        self.set(path, shadow);
        Ok(())
    }

    fn share(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.write_new(to, Body::CopyOf(from), Access::Plain)
    }

    fn replace(&self, from: &Path, to: &Path) -> io::Result<()> {
        let moved = self.take(from)?;
        self.set(to, moved);
        Ok(())
    }

    fn place(&self, from: &Path, to: &Path) -> io::Result<()> {
        if self.look(to)? != Found::Missing {
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
        self.set(path, Shadow::Gone);
        Ok(())
    }

    fn sync_folder(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }
}
