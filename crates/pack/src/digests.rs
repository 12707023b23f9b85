//! A cache of file digests, as git's index has one: a file whose stamp is unchanged is not read again. Only planning trusts it; a file
//! about to be overwritten is always read.

use std::collections::HashMap;
use std::ffi::OsString;
use std::io;
use std::path::Path;

use countersign_policy::digest::Digest;

use crate::system::{self, FileAccess, FileStamp, FileSystem};

/// First bytes of the file it is kept in; another version is another text.
const MAGIC: &[u8] = b"countersign-pack-digests-2\n";
/// A file this young may be written again within the same tick of its clock, so that its stamp says nothing.
const YOUNG: i64 = 2_000_000_000;

#[derive(Debug, Default)]
pub(crate) struct DigestCache {
    known: HashMap<OsString, CachedDigest>,
    learnt: usize,
    used: usize,
    now: i64,
}

#[derive(Debug, Clone, Copy)]
struct CachedDigest {
    stamp: FileStamp,
    digest: Digest,
    used: bool,
}

impl DigestCache {
    /// What was kept in a file, or nothing if it can't be read: it is only there to save time. `now` in nanoseconds.
    pub(crate) fn load(path: &Path, now: i64) -> Self {
        let known = std::fs::read(path).ok().and_then(|bytes| decode(&bytes)).unwrap_or_default();
        Self { known, learnt: 0, used: 0, now }
    }

    /// The digest of a file that has this stamp.
    pub(crate) fn of(
        &mut self,
        system: &dyn FileSystem,
        path: &Path,
        stamp: FileStamp,
    ) -> io::Result<Digest> {
        if let Some(entry) = self.known.get_mut(path.as_os_str()).filter(|entry| entry.stamp == stamp) {
            self.used += usize::from(!entry.used);
            entry.used = true;
            return Ok(entry.digest);
        }
        let digest = system::digest(system, path)?;
        if self.now.saturating_sub(stamp.modified.max(stamp.changed)) > YOUNG {
            self.known.insert(path.as_os_str().to_owned(), CachedDigest { stamp, digest, used: true });
            self.learnt += 1;
            self.used += 1;
        }
        Ok(digest)
    }

    /// Keeps what was learnt. A failure only costs time later.
    pub(crate) fn save(&self, path: &Path) {
        // Entries of other repositories stay, unless they have become most of it.
        let crowded = self.known.len() > 4 * self.used.max(1000);
        if self.learnt == 0 && !crowded {
            return;
        }
        let kept = self.known.iter().filter(|(_, entry)| entry.used || !crowded);
        let _ = system::write_whole(&system::RealFileSystem, path, &encode(kept));
    }
}

fn encode<'a>(entries: impl Iterator<Item = (&'a OsString, &'a CachedDigest)>) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    for (path, entry) in entries {
        let Some(name) = path.to_str() else { continue };
        let Ok(length) = u32::try_from(name.len()) else { continue };
        let access: u8 = match entry.stamp.access {
            FileAccess::Plain => 0,
            FileAccess::Executable => 1,
        };
        bytes.extend_from_slice(&length.to_le_bytes());
        bytes.extend_from_slice(name.as_bytes());
        bytes.extend_from_slice(&entry.stamp.bytes.to_le_bytes());
        bytes.extend_from_slice(&entry.stamp.modified.to_le_bytes());
        bytes.extend_from_slice(&entry.stamp.changed.to_le_bytes());
        bytes.extend_from_slice(&entry.stamp.inode.to_le_bytes());
        bytes.push(access);
        bytes.extend_from_slice(entry.digest.bytes());
    }
    // The whole is checked, so that a torn file is no file.
    let check = sum(&bytes);
    bytes.extend_from_slice(&check.to_le_bytes());
    bytes
}

/// A sum that a torn file does not have. It is written as a whole and read by its own user: nobody else is kept out by it.
fn sum(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let mix = |sum: u64, word: u64| (sum.rotate_left(23) ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let whole = words.iter().fold(bytes.len() as u64, |sum, word| mix(sum, u64::from_le_bytes(*word)));
    rest.iter().fold(whole, |sum, byte| mix(sum, u64::from(*byte)))
}

fn decode(bytes: &[u8]) -> Option<HashMap<OsString, CachedDigest>> {
    let (body, check) = bytes.split_last_chunk::<8>()?;
    if sum(body) != u64::from_le_bytes(*check) {
        return None;
    }
    let mut rest = body.strip_prefix(MAGIC)?;
    // Most paths are about as long as everything else of an entry.
    let mut known = HashMap::with_capacity(body.len() / 150);
    while !rest.is_empty() {
        let length = u32::from_le_bytes(*take(&mut rest)?);
        let (name, after) = rest.split_at_checked(usize::try_from(length).ok()?)?;
        rest = after;
        let stamp = FileStamp {
            bytes: u64::from_le_bytes(*take(&mut rest)?),
            modified: i64::from_le_bytes(*take(&mut rest)?),
            changed: i64::from_le_bytes(*take(&mut rest)?),
            inode: u64::from_le_bytes(*take(&mut rest)?),
            access: if *take::<1>(&mut rest)? == [0] { FileAccess::Plain } else { FileAccess::Executable },
        };
        let digest = Digest::from_bytes(*take(&mut rest)?);
        known.insert(
            OsString::from(std::str::from_utf8(name).ok()?),
            CachedDigest { stamp, digest, used: false },
        );
    }
    Some(known)
}

fn take<'a, const N: usize>(rest: &mut &'a [u8]) -> Option<&'a [u8; N]> {
    let (first, after) = rest.split_first_chunk::<N>()?;
    *rest = after;
    Some(first)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system::{PathStatus, RealFileSystem};

    fn stamp_of(path: &Path) -> FileStamp {
        let Ok(PathStatus::File(stamp)) = RealFileSystem.path_status(path) else { panic!("no file") };
        stamp
    }

    #[test]
    fn an_old_file_is_read_once_and_a_changed_one_again() {
        let room = tempfile::tempdir().unwrap();
        let (file, kept) = (room.path().join("a"), room.path().join("kept"));
        std::fs::write(&file, "one").unwrap();
        let later = stamp_of(&file).modified + 10 * YOUNG;
        let mut digests = DigestCache::load(&kept, later);
        let one = digests.of(&RealFileSystem, &file, stamp_of(&file)).unwrap();
        digests.save(&kept);
        let mut again = DigestCache::load(&kept, later);
        assert_eq!(again.of(&RealFileSystem, &file, stamp_of(&file)).unwrap(), one);
        assert_eq!(again.learnt, 0);
        std::fs::write(&file, "other").unwrap();
        assert_eq!(again.of(&RealFileSystem, &file, stamp_of(&file)).unwrap(), Digest::plain(b"other"));
    }

    #[test]
    fn a_young_file_is_not_trusted_and_a_torn_memory_is_none() {
        let room = tempfile::tempdir().unwrap();
        let (file, kept) = (room.path().join("a"), room.path().join("kept"));
        std::fs::write(&file, "one").unwrap();
        let mut digests = DigestCache::load(&kept, stamp_of(&file).modified);
        digests.of(&RealFileSystem, &file, stamp_of(&file)).unwrap();
        assert_eq!(digests.learnt, 0);
        digests.now += 10 * YOUNG;
        digests.of(&RealFileSystem, &file, stamp_of(&file)).unwrap();
        digests.save(&kept);
        let bytes = std::fs::read(&kept).unwrap();
        assert_eq!(decode(&bytes).unwrap().len(), 1);
        for cut in 0..bytes.len() {
            assert!(decode(&bytes[..cut]).is_none(), "{cut}");
        }
    }
}
