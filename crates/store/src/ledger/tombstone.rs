//! Tombstones: signed statements that the first rows of a chain were removed on purpose. Each continues the one before, says where the
//! chain continues, and holds the digest of the archive with the rows.

use std::fmt;
use std::str::FromStr;

use countersign_policy::canonical;
use countersign_policy::digest::Digest;
use countersign_policy::ids::WriterId;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::checkpoint::NotACheckpoint;
use super::key::{PublicKey, SigningKey, is_signed};
use super::verify::{Bad, Why};
use crate::engine::cells;
use crate::fault::StoreFault;
use crate::readers::ReadTransaction;
use crate::writer::genesis;

/// Prefix of what is signed, so that a signature can't be taken for another kind of statement.
const TAG: &str = "countersign/tombstone/v1\0";

/// Where the removed rows were written to: a part of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArchiveSection {
    /// The file's name, without its folder: archives may be moved.
    pub file: String,
    pub offset: u64,
    pub bytes: u64,
    pub sha256: Digest,
}

/// A signed statement that rows `first` to `through` of a chain were removed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tombstone {
    pub v: u32,
    pub time: Timestamp,
    pub writer: WriterId,
    pub first: u64,
    pub prev_hash: Digest,
    pub through: u64,
    /// Its hash, which the next row's `prev_hash` repeats.
    pub hash: Digest,
    pub position: i64,
    pub archive: ArchiveSection,
    /// The key that signed it, as hex.
    pub public_key: String,
    pub signature: String,
}

impl Tombstone {
    pub(crate) fn sign(mut self, key: &SigningKey) -> Self {
        self.public_key = key.public().hex();
        self.signature = key.sign(&self.signed_bytes());
        self
    }

    fn signed_bytes(&self) -> Vec<u8> {
        let body = json!({
            "v": self.v,
            "time": self.time.to_string(),
            "writer": self.writer.as_str(),
            "first": self.first,
            "prev_hash": self.prev_hash.hex(),
            "through": self.through,
            "hash": self.hash.hex(),
            // A number beyond 2^53 has no canonical form.
            "position": self.position.to_string(),
            "archive": {
                "file": self.archive.file,
                "offset": self.archive.offset,
                "bytes": self.archive.bytes,
                "sha256": self.archive.sha256.hex(),
            },
            "public_key": self.public_key,
        });
        [TAG.as_bytes(), canonical::to_string(&body).as_bytes()].concat()
    }

    /// Whether the signature is that of `public_key`. Whether that key is trusted is checked elsewhere.
    pub fn is_signed(&self) -> bool {
        is_signed(&self.public_key, &self.signed_bytes(), &self.signature)
    }

    pub fn rows(&self) -> u64 {
        (self.through + 1).saturating_sub(self.first)
    }
}

impl fmt::Display for Tombstone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&serde_json::to_string(self).map_err(|_| fmt::Error)?)
    }
}

impl FromStr for Tombstone {
    type Err = NotACheckpoint;

    fn from_str(text: &str) -> Result<Self, NotACheckpoint> {
        let read: Self =
            serde_json::from_str(text.trim()).map_err(|error| NotACheckpoint::because(error.to_string()))?;
        match read.v {
            1 => Ok(read),
            v => Err(NotACheckpoint::because(format!("version {v} is newer than this program"))),
        }
    }
}

/// The last row of a chain that is known to be good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) sequence: u64,
    pub(crate) hash: Digest,
    pub(crate) position: Option<i64>,
}

impl Link {
    pub(crate) fn origin(writer: &WriterId) -> Self {
        Self { sequence: 0, hash: genesis(writer), position: None }
    }
}

impl From<&Tombstone> for Link {
    fn from(tombstone: &Tombstone) -> Self {
        Self { sequence: tombstone.through, hash: tombstone.hash, position: Some(tombstone.position) }
    }
}

/// The tombstones of one chain, as far as they verify.
pub(crate) struct PrunedPart {
    pub(crate) tombstones: Vec<Tombstone>,
    /// The first that does not verify. Later ones are not read.
    pub(crate) bad: Option<Bad>,
}

impl PrunedPart {
    /// Where the rows that are still there begin.
    pub(crate) fn end(&self, writer: &WriterId) -> Link {
        self.tombstones.last().map_or_else(|| Link::origin(writer), Link::from)
    }
}

/// Reads the tombstones of a chain and checks that each is signed by a trusted key and continues where the last one ended.
pub(crate) fn pruned_part(
    view: &mut ReadTransaction<'_>,
    writer: &WriterId,
    trusted: &[String],
) -> Result<PrunedPart, StoreFault> {
    let sql = "SELECT through, body FROM ledger_tombstones WHERE writer = $1 ORDER BY through";
    let mut part = PrunedPart { tombstones: Vec::new(), bad: None };
    for mut found in view.query(sql, &cells![writer.as_str()])? {
        let (through, body) = (found.count().ok(), found.maybe_text().ok().flatten());
        let read = body.and_then(|body| body.parse::<Tombstone>().ok());
        match check(read, through, writer, part.end(writer), trusted) {
            Ok(good) => part.tombstones.push(good),
            Err(bad) => {
                part.bad = Some(bad);
                break;
            }
        }
    }
    Ok(part)
}

fn check(
    read: Option<Tombstone>,
    through: Option<u64>,
    writer: &WriterId,
    last: Link,
    trusted: &[String],
) -> Result<Tombstone, Bad> {
    let bad = |why, key| Bad { writer: writer.clone(), sequence: last.sequence + 1, id: None, why, key };
    let read = read.ok_or_else(|| bad(Why::BadSignature, None))?;
    if !read.is_signed() {
        return Err(bad(Why::BadSignature, None));
    }
    if !trusted.contains(&read.public_key) {
        let key = PublicKey::from_hex(&read.public_key).map(|key| key.fingerprint());
        return Err(bad(Why::Foreign, key));
    }
    // A valid tombstone of another chain or place covers nothing here.
    if read.writer != *writer || through != Some(read.through) || read.through < read.first {
        return Err(bad(Why::Foreign, None));
    }
    if read.first != last.sequence + 1 || read.prev_hash != last.hash {
        return Err(bad(Why::Missing, None));
    }
    Ok(read)
}
