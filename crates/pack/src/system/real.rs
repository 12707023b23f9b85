//! The real file system. Syncs every file before its name appears, and every name before the step counts as done.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write as _};
use std::path::Path;

use super::{EntryKind, FileAccess, FileStamp, FileSystem, PathStatus, WriteSource};

#[derive(Clone, Copy, Debug, Default)]
pub struct RealFileSystem;

impl FileSystem for RealFileSystem {
    fn path_status(&self, path: &Path) -> io::Result<PathStatus> {
        match fs::symlink_metadata(path) {
            Ok(found) if found.is_file() => Ok(PathStatus::File(stamp(&found))),
            Ok(found) if found.is_dir() => Ok(PathStatus::Folder),
            Ok(found) if found.is_symlink() => Ok(PathStatus::Link),
            Ok(_) => Ok(PathStatus::Other),
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                Ok(PathStatus::Missing)
            }
            Err(error) => Err(error),
        }
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<(OsString, EntryKind)>> {
        fs::read_dir(folder)?
            .map(|entry| {
                let entry = entry?;
                let kind = entry.file_type()?;
                let kind = match (kind.is_file(), kind.is_dir(), kind.is_symlink()) {
                    (true, _, _) => EntryKind::File,
                    (_, true, _) => EntryKind::Folder,
                    (_, _, true) => EntryKind::Link,
                    (false, false, false) => EntryKind::Other,
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

    fn write_new(&self, path: &Path, body: WriteSource<'_>, access: FileAccess) -> io::Result<()> {
        let mut file = create(path)?;
        match body {
            WriteSource::Bytes(bytes) => file.write_all(bytes)?,
            WriteSource::CopyOf(from) => {
                io::copy(&mut File::open(from)?, &mut file)?;
            }
        }
        // The mode comes last: what is half written, or put back afterwards, was open to nobody else.
        give_access(&file, path, access)?;
        file.sync_all()
    }

    fn share(&self, from: &Path, to: &Path) -> io::Result<()> {
        match fs::hard_link(from, to) {
            Ok(()) => Ok(()),
            Err(error) if matches!(error.kind(), io::ErrorKind::AlreadyExists | io::ErrorKind::NotFound) => {
                Err(error)
            }
            Err(_) => self.write_new(to, WriteSource::CopyOf(from), FileAccess::Plain),
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
fn create(path: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt as _;
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

#[cfg(unix)]
fn give_access(file: &File, path: &Path, access: FileAccess) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    let mode = match access {
        FileAccess::Plain => 0o644,
        FileAccess::Executable => 0o755,
    };
    file.set_permissions(fs::Permissions::from_mode(mode & !umask(path)?))
}

/// What the process keeps from new files. Only a new file tells, without changing it for other threads: an empty one, once.
#[cfg(unix)]
fn umask(near: &Path) -> io::Result<u32> {
    use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
    static MASK: std::sync::OnceLock<u32> = std::sync::OnceLock::new();
    if let Some(mask) = MASK.get() {
        return Ok(*mask);
    }
    let mut name = near.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.mask", std::process::id()));
    let probe = near.with_file_name(name);
    let made = OpenOptions::new().write(true).create_new(true).mode(0o777).open(&probe)?;
    let mode = made.metadata().map(|meta| meta.permissions().mode() & 0o777);
    fs::remove_file(&probe)?;
    Ok(*MASK.get_or_init(|| 0o777 & !mode.unwrap_or(0o700)))
}

#[cfg(not(unix))]
fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).open(path)
}

#[cfg(not(unix))]
fn give_access(_: &File, _: &Path, _: FileAccess) -> io::Result<()> {
    Ok(())
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
fn stamp(found: &fs::Metadata) -> FileStamp {
    use std::os::unix::fs::MetadataExt as _;
    let nanos = |seconds: i64, rest: i64| seconds.saturating_mul(1_000_000_000).saturating_add(rest);
    FileStamp {
        bytes: found.len(),
        modified: nanos(found.mtime(), found.mtime_nsec()),
        changed: nanos(found.ctime(), found.ctime_nsec()),
        inode: found.ino(),
        access: if found.mode() & 0o111 == 0 { FileAccess::Plain } else { FileAccess::Executable },
    }
}

#[cfg(not(unix))]
fn stamp(found: &fs::Metadata) -> FileStamp {
    let since = |time: io::Result<std::time::SystemTime>| {
        let time = time.ok().and_then(|time| time.duration_since(std::time::UNIX_EPOCH).ok());
        time.and_then(|time| i64::try_from(time.as_nanos()).ok()).unwrap_or_default()
    };
    FileStamp {
        bytes: found.len(),
        modified: since(found.modified()),
        changed: since(found.created()),
        inode: 0,
        access: FileAccess::Plain,
    }
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_file_takes_its_mode_only_when_it_is_written() {
        let room = tempfile::tempdir().unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let (plain, tool) = (room.path().join("a"), room.path().join("b"));
        // Half written, as a reader in between finds it.
        drop(create(&plain).unwrap());
        assert_eq!(mode(&plain), 0o600);
        fs::remove_file(&plain).unwrap();
        let mask = umask(&plain).unwrap();
        RealFileSystem.write_new(&plain, WriteSource::Bytes(b"x"), FileAccess::Plain).unwrap();
        RealFileSystem.write_new(&tool, WriteSource::Bytes(b"x"), FileAccess::Executable).unwrap();
        assert_eq!((mode(&plain), mode(&tool)), (0o644 & !mask, 0o755 & !mask));
        assert_eq!(fs::read_dir(room.path()).unwrap().count(), 2, "nothing is left beside them");
    }
}
