//! Checkpoints outside the store, out of reach for somebody who rewrites it. A sink gets each checkpoint after it is committed; the
//! default sink is a growing file in the state folder, readable by its owner alone.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use countersign_policy::digest::Digest;

use super::checkpoint::{Checkpoint, NotACheckpoint};
use super::key::with_suffix;
use crate::url::StoreUrl;

/// The size at which a file is rotated. The last two are read.
const LONGEST: u64 = 1 << 20;
/// How often a file that was rotated meanwhile is opened again.
const TRIES: u32 = 4;

/// Keeps checkpoints outside the store. The writer thread calls it: it must not wait for a network.
pub trait CheckpointSink: Send + Sync + fmt::Debug {
    /// Takes a checkpoint; the error says why it could not.
    fn keep(&self, checkpoint: &Checkpoint) -> Result<(), String>;
}

/// A file of checkpoints, one a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckpointFile {
    path: PathBuf,
}

impl CheckpointFile {
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// The default file of a store in a folder. Its name is derived from the store's address, not from its contents: a store that was put in
    /// another's place is compared with what that one left. None for a store in memory.
    pub fn usual(folder: &Path, url: &StoreUrl) -> Option<Self> {
        let (stem, place) = match url {
            StoreUrl::Memory => return None,
            StoreUrl::Sqlite(path) => {
                let whole = absolute(path);
                let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
                (stem, whole.to_string_lossy().into_owned())
            }
            StoreUrl::Postgres(_) => ("postgres".to_owned(), url.place()),
        };
        let plain = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_');
        let stem: String = stem.chars().filter(|letter| plain(*letter)).take(40).collect();
        let digest = Digest::plain(place.as_bytes()).hex();
        let name = format!("{stem}-{}.jsonl", digest.get(..16).unwrap_or(&digest));
        Some(Self::new(folder.join(name)))
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Every checkpoint, oldest first, the rotated file included; empty if there is none. A last line that was cut off is left out.
    pub fn read(&self) -> Result<Vec<Checkpoint>, String> {
        let mut all = Vec::new();
        for path in [with_suffix(&self.path, ".1"), self.path.clone()] {
            let mut text = String::new();
            match File::open(&path).and_then(|file| file.take(2 * LONGEST).read_to_string(&mut text)) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(format!("can't read `{}`: {error}", path.display())),
            }
            let whole = text.rfind('\n').map_or("", |end| text.get(..end).unwrap_or_default());
            for line in whole.lines().filter(|line| !line.trim().is_empty()) {
                let read = line.parse().map_err(|why: NotACheckpoint| format!("`{}`: {why}", path.display()));
                all.push(read?);
            }
        }
        Ok(all)
    }

    fn append(&self, line: &str) -> io::Result<()> {
        if let Some(folder) = self.path.parent() {
            make_folder(folder)?;
        }
        for _ in 0..TRIES {
            let mut options = OpenOptions::new();
            options.create(true).append(true);
            #[cfg(unix)]
            std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
            let mut file = options.open(&self.path)?;
            // Processes that share a store share the file: the lock lets one at a time rotate it.
            file.lock()?;
            if !is_at(&file, &self.path)? {
                continue;
            }
            if file.metadata()?.len() + line.len() as u64 > LONGEST {
                fs::rename(&self.path, with_suffix(&self.path, ".1"))?;
                continue;
            }
            return file.write_all(line.as_bytes());
        }
        Err(io::Error::other("others keep moving it away"))
    }
}

impl CheckpointSink for CheckpointFile {
    fn keep(&self, checkpoint: &Checkpoint) -> Result<(), String> {
        let kept = self.append(&format!("{checkpoint}\n"));
        kept.map_err(|error| format!("can't write `{}`: {error}", self.path.display()))
    }
}

fn absolute(path: &Path) -> PathBuf {
    let whole = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    // Canonicalise the folder, so that one store has one file under any path; the store itself may not exist yet.
    match (whole.parent().and_then(|folder| folder.canonicalize().ok()), whole.file_name()) {
        (Some(folder), Some(name)) => folder.join(name),
        _ => whole,
    }
}

pub(super) fn make_folder(folder: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)
}

#[cfg(unix)]
fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    use std::os::unix::fs::MetadataExt as _;
    let open = file.metadata()?;
    match fs::metadata(path) {
        Ok(there) => Ok((there.dev(), there.ino()) == (open.dev(), open.ino())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(not(unix))]
fn is_at(_: &File, path: &Path) -> io::Result<bool> {
    Ok(path.exists())
}
