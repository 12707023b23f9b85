//! The file system as it is. Every file is on disk before its name is, and every name before we say so.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write as _};
use std::path::Path;

use super::{Access, Body, Found, Kind, Stamp, System};

/// The file system as it is.
#[derive(Clone, Copy, Debug, Default)]
pub struct Real;

impl System for Real {
    fn look(&self, path: &Path) -> io::Result<Found> {
        match fs::symlink_metadata(path) {
            Ok(found) if found.is_file() => Ok(Found::File(stamp(&found))),
            Ok(found) if found.is_dir() => Ok(Found::Folder),
            Ok(found) if found.is_symlink() => Ok(Found::Link),
            Ok(_) => Ok(Found::Other),
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                Ok(Found::Missing)
            }
            Err(error) => Err(error),
        }
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<(OsString, Kind)>> {
        fs::read_dir(folder)?
            .map(|entry| {
                let entry = entry?;
                let kind = entry.file_type()?;
                let kind = match (kind.is_file(), kind.is_dir(), kind.is_symlink()) {
                    (true, _, _) => Kind::File,
                    (_, true, _) => Kind::Folder,
                    (_, _, true) => Kind::Link,
                    (false, false, false) => Kind::Other,
                };
                Ok((entry.file_name(), kind))
            })
            .collect()
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn Read>> {
        Ok(Box::new(File::open(path)?))
    }

    fn make_folder(&self, path: &Path) -> io::Result<()> {
        match fs::create_dir(path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
            made => made,
        }
    }

    fn write_new(&self, path: &Path, body: Body<'_>, access: Access) -> io::Result<()> {
        let mut file = create(path, access)?;
        match body {
            Body::Bytes(bytes) => file.write_all(bytes)?,
            Body::CopyOf(from) => {
                io::copy(&mut File::open(from)?, &mut file)?;
            }
        }
        file.sync_all()
    }

    fn share(&self, from: &Path, to: &Path) -> io::Result<()> {
        match fs::hard_link(from, to) {
            Ok(()) => Ok(()),
            Err(error) if matches!(error.kind(), io::ErrorKind::AlreadyExists | io::ErrorKind::NotFound) => {
                Err(error)
            }
            Err(_) => self.write_new(to, Body::CopyOf(from), Access::Plain),
        }
    }

    fn replace(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn place(&self, from: &Path, to: &Path) -> io::Result<()> {
        match fs::hard_link(from, to) {
            Ok(()) => fs::remove_file(from),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(error),
            // A file system without hard links: look, then rename. The look is all it offers.
            Err(_) if fs::symlink_metadata(to).is_ok() => Err(io::Error::from(io::ErrorKind::AlreadyExists)),
            Err(_) => fs::rename(from, to),
        }
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn remove_folder(&self, path: &Path) -> io::Result<()> {
        fs::remove_dir(path)
    }

    fn sync_folder(&self, path: &Path) -> io::Result<()> {
        sync_folder(path)
    }
}

#[cfg(unix)]
fn create(path: &Path, access: Access) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt as _;
    let mode = match access {
        Access::Plain => 0o644,
        Access::Executable => 0o755,
    };
    OpenOptions::new().write(true).create_new(true).mode(mode).open(path)
}

#[cfg(not(unix))]
fn create(path: &Path, _: Access) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).open(path)
}

#[cfg(unix)]
fn sync_folder(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

#[cfg(not(unix))]
fn sync_folder(_: &Path) -> io::Result<()> {
    // Names are durable with the files there.
    Ok(())
}

#[cfg(unix)]
fn stamp(found: &fs::Metadata) -> Stamp {
    use std::os::unix::fs::MetadataExt as _;
    let nanos = |seconds: i64, rest: i64| seconds.saturating_mul(1_000_000_000).saturating_add(rest);
    Stamp {
        bytes: found.len(),
        modified: nanos(found.mtime(), found.mtime_nsec()),
        changed: nanos(found.ctime(), found.ctime_nsec()),
        inode: found.ino(),
        access: if found.mode() & 0o111 == 0 { Access::Plain } else { Access::Executable },
    }
}

#[cfg(not(unix))]
fn stamp(found: &fs::Metadata) -> Stamp {
    let since = |time: io::Result<std::time::SystemTime>| {
        let time = time.ok().and_then(|time| time.duration_since(std::time::UNIX_EPOCH).ok());
        time.and_then(|time| i64::try_from(time.as_nanos()).ok()).unwrap_or_default()
    };
    Stamp {
        bytes: found.len(),
        modified: since(found.modified()),
        changed: since(found.created()),
        inode: 0,
        access: Access::Plain,
    }
}
