//! Archives of removed rows: a file of JSON lines, readable by its owner alone, written and synced before anything is removed. Each
//! removal is a section of the file whose digest is in a tombstone.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{BufReader, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use countersign_policy::digest::Digest;
use countersign_policy::ids::WriterId;
use ring::digest::{Context, SHA256};

use super::external_checkpoints::make_folder;
use super::tombstone::{ArchiveSection, Tombstone, pruned_part};
use super::verify::all_writers;
use crate::Store;
use crate::fault::StoreFault;
use crate::ledger::PublicKey;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArchiveFault {
    pub path: PathBuf,
    pub why: String,
}

impl fmt::Display for ArchiveFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "can't write the archive `{}`: {}", self.path.display(), self.why)
    }
}

/// A file for removed rows. It is created with the first section and never replaces another file.
#[derive(Debug)]
pub struct ArchiveFile {
    path: PathBuf,
    file: Option<File>,
    /// The length of the finished sections.
    bytes: u64,
}

impl ArchiveFile {
    /// An archive at a path where no file is yet.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), file: None, bytes: 0 }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    fn fault(&self, why: impl fmt::Display) -> ArchiveFault {
        ArchiveFault { path: self.path.clone(), why: why.to_string() }
    }

    /// Begins a section. An unfinished one is cut off: no tombstone refers to it.
    pub(crate) fn begin(&mut self) -> Result<SectionWriter<'_>, ArchiveFault> {
        let open = || {
            if let Some(folder) = self.path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
                make_folder(folder)?;
            }
            let mut options = OpenOptions::new();
            options.read(true).write(true).create_new(true);
            #[cfg(unix)]
            std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
            options.open(&self.path)
        };
        let file = match self.file.take() {
            Some(file) => file,
            None => open().map_err(|error| self.fault(error))?,
        };
        let mut cut = &file;
        let cut = file.set_len(self.bytes).and_then(|()| cut.seek(SeekFrom::Start(self.bytes)));
        cut.map_err(|error| self.fault(error))?;
        self.file = Some(file);
        Ok(SectionWriter { archive: self, digest: Context::new(&SHA256), bytes: 0, waiting: Vec::new() })
    }

    fn open_file(&mut self) -> Result<&mut File, ArchiveFault> {
        let gone = self.fault("it is not open");
        self.file.as_mut().ok_or(gone)
    }
}

impl Drop for ArchiveFile {
    /// Removes a file without a section.
    fn drop(&mut self) {
        if self.bytes == 0 && self.file.take().is_some() {
            let _ = fs::remove_file(&self.path);
        }
    }
}

pub(crate) struct SectionWriter<'a> {
    archive: &'a mut ArchiveFile,
    digest: Context,
    bytes: u64,
    waiting: Vec<u8>,
}

/// How much is written at a time.
const PIECE: usize = 1 << 20;

impl SectionWriter<'_> {
    pub(crate) fn push(&mut self, line: &str) -> Result<(), ArchiveFault> {
        self.waiting.extend_from_slice(line.as_bytes());
        self.waiting.push(b'\n');
        if self.waiting.len() < PIECE { Ok(()) } else { self.write() }
    }

    fn write(&mut self) -> Result<(), ArchiveFault> {
        self.digest.update(&self.waiting);
        self.bytes += self.waiting.len() as u64;
        let written = self.archive.open_file()?.write_all(&self.waiting);
        self.waiting.clear();
        written.map_err(|error| self.archive.fault(error))
    }

    /// Syncs the file and reads the section back: the rows are removed next and must survive a power cut.
    pub(crate) fn finish(mut self) -> Result<ArchiveSection, ArchiveFault> {
        self.write()?;
        let Self { archive, digest, bytes, .. } = self;
        let offset = archive.bytes;
        let sha256 = hex(digest).ok_or_else(|| archive.fault("no digest"))?;
        let file = archive.open_file()?;
        let read = file.sync_all().and_then(|()| file.seek(SeekFrom::Start(offset)));
        let read = read.and_then(|_| digest_of(file, bytes));
        if read.map_err(|error| archive.fault(error))? != Some(sha256) {
            return Err(archive.fault("what is read back is not what was written"));
        }
        sync_folder(&archive.path).map_err(|error| archive.fault(error))?;
        archive.bytes = offset + bytes;
        let file = archive.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Ok(ArchiveSection { file, offset, bytes, sha256 })
    }
}

/// A new file survives a crash only once its folder is synced.
fn sync_folder(path: &Path) -> std::io::Result<()> {
    #[cfg(unix)]
    {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        File::open(folder.unwrap_or(Path::new(".")))?.sync_all()?;
    }
    #[cfg(not(unix))]
    let _ = path;
    Ok(())
}

fn hex(digest: Context) -> Option<Digest> {
    crate::key_file::to_hex(digest.finish().as_ref()).parse().ok()
}

/// The digest of the next bytes; none where there are fewer.
fn digest_of(file: &mut File, bytes: u64) -> std::io::Result<Option<Digest>> {
    let (mut digest, mut left) = (Context::new(&SHA256), bytes);
    let (mut file, mut piece) = (BufReader::new(file), vec![0; 64 << 10]);
    while left > 0 {
        let want = usize::try_from(left).unwrap_or(usize::MAX).min(piece.len());
        let read = file.read(piece.get_mut(..want).unwrap_or_default())?;
        if read == 0 {
            return Ok(None);
        }
        digest.update(piece.get(..read).unwrap_or_default());
        left -= read as u64;
    }
    Ok(hex(digest))
}

/// What an archive turned out to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ArchiveReport {
    /// Every byte is covered by a tombstone.
    Whole { rows: u64 },
    /// No tombstone names this file.
    Unknown,
    /// It differs from what a tombstone says.
    Changed { writer: WriterId, first: u64, through: u64 },
}

pub async fn verify_archive(
    store: &Store,
    trusted: &[PublicKey],
    path: &Path,
) -> Result<Result<ArchiveReport, std::io::Error>, StoreFault> {
    let keys: Vec<String> = trusted.iter().map(PublicKey::hex).collect();
    let tombstones = store
        .read(move |view| {
            let mut all = Vec::new();
            for writer in all_writers(view)? {
                all.extend(pruned_part(view, &writer, &keys)?.tombstones);
            }
            Ok(all)
        })
        .await?;
    Ok(compare(tombstones, path))
}

fn compare(tombstones: Vec<Tombstone>, path: &Path) -> Result<ArchiveReport, std::io::Error> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let mut sections: Vec<Tombstone> =
        tombstones.into_iter().filter(|tombstone| tombstone.archive.file == name).collect();
    sections.sort_by_key(|tombstone| tombstone.archive.offset);
    let (mut at, mut rows) = (0, 0);
    for Tombstone { writer, first, through, archive, .. } in &sections {
        file.seek(SeekFrom::Start(archive.offset))?;
        let is_next = archive.offset == at;
        if !is_next || digest_of(&mut file, archive.bytes)? != Some(archive.sha256) {
            return Ok(ArchiveReport::Changed { writer: writer.clone(), first: *first, through: *through });
        }
        at += archive.bytes;
        rows += (through + 1).saturating_sub(*first);
    }
    Ok(match sections.last() {
        None => ArchiveReport::Unknown,
        Some(last) if at != length => {
            ArchiveReport::Changed { writer: last.writer.clone(), first: last.first, through: last.through }
        }
        Some(_) => ArchiveReport::Whole { rows },
    })
}
