//! The file system as the pack uses it: a few small steps, each of which can fail. The real one writes, the dry one remembers what would
//! be written, and tests bring one that dies at step k. Knows nothing of plans.

mod dry;
mod real;

use std::ffi::OsString;
use std::io::{self, Read};
use std::path::Path;

use countersign_policy::digest::Digest;
use sha2::{Digest as _, Sha256};

pub use dry::DryRun;
pub use real::RealFileSystem;

/// What identifies a file's content without reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileStamp {
    pub bytes: u64,
    /// When it was written, in nanoseconds.
    pub modified: i64,
    /// When anything about it changed, in nanoseconds; 0 where the platform does not tell.
    pub changed: i64,
    /// Which file it is; 0 where the platform does not tell.
    pub(crate) inode: u64,
    pub access: FileAccess,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileAccess {
    #[default]
    Plain,
    Executable,
}

/// What is at a path. Links are never followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathStatus {
    Missing,
    File(FileStamp),
    Folder,
    Link,
    Other,
}

/// The kind of an entry of a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryKind {
    File,
    Folder,
    Link,
    Other,
}

#[derive(Clone, Copy, Debug)]
pub enum WriteSource<'a> {
    /// These bytes.
    Bytes(&'a [u8]),
    CopyOf(&'a Path),
}

/// The file system in small steps. Everything that changes something is one call, so that a test can end the world after any of
/// them.
pub trait FileSystem: Send + Sync {
    fn path_status(&self, path: &Path) -> io::Result<PathStatus>;
    /// The entries of a folder, in no order.
    fn list(&self, folder: &Path) -> io::Result<Vec<(OsString, EntryKind)>>;
    /// A file's content, bit by bit.
    fn open(&self, path: &Path) -> io::Result<Box<dyn Read>>;

    /// Makes one folder; that it is there already is no error.
    fn make_folder(&self, path: &Path) -> io::Result<()>;
    /// Makes a file that was not there, with everything in it on disk when this returns.
    fn write_new(&self, path: &Path, body: WriteSource<'_>, access: FileAccess) -> io::Result<()>;
    /// Gives a file that never changes a second name, or a copy where that is not possible.
    fn share(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Puts a file in the place of another, whatever is there.
    fn replace(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Puts a file where nothing is; fails if something came there first.
    fn place(&self, from: &Path, to: &Path) -> io::Result<()>;
    fn remove(&self, path: &Path) -> io::Result<()>;
    fn remove_folder(&self, path: &Path) -> io::Result<()>;
    /// Makes the names in a folder durable.
    fn sync_folder(&self, path: &Path) -> io::Result<()>;
}

/// So few are looked at faster than a thread starts.
const FEW: usize = 1_000;
/// More threads than this wait for each other in the kernel.
const MOST_THREADS: usize = 8;

/// What is at each of many paths, in their order; on several threads where there are many.
pub(crate) fn look_all(system: &dyn FileSystem, paths: &[&Path]) -> Vec<io::Result<PathStatus>> {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get).min(MOST_THREADS);
    if paths.len() < FEW || cores == 1 {
        return paths.iter().map(|path| system.path_status(path)).collect();
    }
    let share = paths.len().div_ceil(cores);
    std::thread::scope(|scope| {
        let path_status =
            |part: &[&Path]| part.iter().map(|path| system.path_status(path)).collect::<Vec<_>>();
        let parts: Vec<_> = paths.chunks(share).map(|part| scope.spawn(move || path_status(part))).collect();
        parts
            .into_iter()
            .zip(paths.chunks(share))
            // A thread that ended badly has looked at nothing: its part is looked at here.
            .flat_map(|(thread, part)| thread.join().unwrap_or_else(|_| path_status(part)))
            .collect()
    })
}

/// A file's content as a whole, if it is not longer than `limit`.
pub fn read(system: &dyn FileSystem, path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let read = system.open(path)?.take(limit.saturating_add(1)).read_to_end(&mut bytes)?;
    if u64::try_from(read).unwrap_or(u64::MAX) > limit {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("longer than {limit} bytes")));
    }
    Ok(bytes)
}

/// A file's content, if there is a file.
pub(crate) fn read_if_there(system: &dyn FileSystem, path: &Path, limit: u64) -> io::Result<Option<Vec<u8>>> {
    match read(system, path, limit) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// SHA-256 of a file, read in pieces.
pub fn digest(system: &dyn FileSystem, path: &Path) -> io::Result<Digest> {
    let mut file = system.open(path)?;
    let mut sha = Sha256::new();
    let mut piece = vec![0u8; 64 * 1024];
    loop {
        match file.read(&mut piece) {
            Ok(0) => return Ok(Digest::from_bytes(sha.finalize().into())),
            Ok(read) => sha.update(piece.get(..read).unwrap_or_default()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// SHA-256 of the file at a path, none where nothing is. A link or a folder is an error: it is not what was planned for.
pub(crate) fn digest_if_there(system: &dyn FileSystem, path: &Path) -> io::Result<Option<Digest>> {
    match system.path_status(path)? {
        PathStatus::Missing => Ok(None),
        PathStatus::File(_) => digest(system, path).map(Some),
        PathStatus::Folder => Err(io::Error::from(io::ErrorKind::IsADirectory)),
        PathStatus::Link | PathStatus::Other => Err(io::Error::from(io::ErrorKind::InvalidInput)),
    }
}

/// Writes a file as a whole, or leaves the old one: temporary file, sync, rename, sync of the folder.
pub(crate) fn write_whole(system: &dyn FileSystem, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    make_folders(system, folder)?;
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(".agentpack-tmp");
    let temporary = folder.join(name);
    if system.path_status(&temporary)? != PathStatus::Missing {
        system.remove(&temporary)?;
    }
    system.write_new(&temporary, WriteSource::Bytes(bytes), FileAccess::Plain)?;
    system.replace(&temporary, path)?;
    system.sync_folder(folder)
}

/// Makes a folder and those above it; says which were not there, topmost first.
pub(crate) fn make_folders(system: &dyn FileSystem, folder: &Path) -> io::Result<Vec<std::path::PathBuf>> {
    let mut missing = Vec::new();
    let mut here = Some(folder);
    while let Some(path) = here.filter(|path| !path.as_os_str().is_empty()) {
        match system.path_status(path)? {
            PathStatus::Missing => missing.push(path.to_path_buf()),
            PathStatus::Folder | PathStatus::Link => break,
            PathStatus::File(_) | PathStatus::Other => {
                return Err(io::Error::from(io::ErrorKind::NotADirectory));
            }
        }
        here = path.parent();
    }
    missing.reverse();
    for path in &missing {
        system.make_folder(path)?;
        if let Some(parent) = path.parent() {
            system.sync_folder(parent)?;
        }
    }
    Ok(missing)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_are_looked_at_in_their_order() {
        let room = tempfile::tempdir().unwrap();
        let paths: Vec<std::path::PathBuf> =
            (0..FEW * 2 + 7).map(|number| room.path().join(format!("f{number}"))).collect();
        for (number, path) in paths.iter().enumerate().filter(|(number, _)| number % 3 == 0) {
            std::fs::write(path, "x".repeat(number % 7)).unwrap();
        }
        let paths: Vec<&Path> = paths.iter().map(std::path::PathBuf::as_path).collect();
        let together: Vec<PathStatus> =
            look_all(&RealFileSystem, &paths).into_iter().map(Result::unwrap).collect();
        let alone: Vec<PathStatus> =
            paths.iter().map(|path| RealFileSystem.path_status(path).unwrap()).collect();
        assert_eq!(together, alone);
    }
}
