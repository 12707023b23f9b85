//! One row: an entry with its place in a chain, and how it is hashed. The hashed text is canonical JSON that anyone can make again
//! from an exported line. Which columns there are is in `columns`.

use std::ops::Deref;

use countersign_policy::canonical;
use countersign_policy::confirm::Approval;
use countersign_policy::digest::{Digest, DigestDomain};
use countersign_policy::ids::{LedgerId, RequestId, WriterId};
use countersign_policy::record::{HostInfo, RowKind, RowStatus};
use jiff::Timestamp;
use serde::{Serialize, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;

use super::columns::{ROW_VERSION, canonical_text};
use super::entry::Entry;

/// A JSON value as the canonical text it is stored as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Json(String);

impl Json {
    pub fn of(value: &Value) -> Self {
        Self(canonical::to_string(value))
    }
    /// The program on the other end of a connection.
    pub fn of_host(host: &HostInfo) -> Self {
        // Three texts always have a JSON form.
        Self::of(&serde_json::to_value(host).unwrap_or_default())
    }
    /// A text that was read and found to be one JSON value.
    pub(super) fn checked(text: String) -> Self {
        Self(text)
    }
    pub fn text(&self) -> &str {
        &self.0
    }
    pub fn value(&self) -> Value {
        // The text was made from a value, or checked when it was read.
        serde_json::from_str(&self.0).unwrap_or(Value::Null)
    }
}

/// One row of the ledger: an [`Entry`], whose fields can be read from the row itself, and its place in a chain.
#[derive(Clone, Debug, PartialEq)]
pub struct LedgerRow {
    pub version: u32,
    /// Ids sort by time.
    pub id: LedgerId,
    pub time: Timestamp,
    /// The chain it belongs to.
    pub writer: WriterId,
    /// Its place in that chain, from 1.
    pub sequence: u64,
    /// Its place in listings, in microseconds. Strictly increasing within a chain; follows from the times before it, so it is not hashed.
    pub position: i64,
    pub entry: Entry,
    pub prev_hash: Digest,
    pub hash: Digest,
    /// The sequence of the row that stores the arguments, for a row that is to be added. None in a row that was read.
    pub(crate) arguments_from: Option<u64>,
}

impl Deref for LedgerRow {
    type Target = Entry;

    fn deref(&self) -> &Entry {
        &self.entry
    }
}

impl LedgerRow {
    /// A row that every column is still to be read into.
    pub(super) fn empty() -> Self {
        let no_hash = Digest::plain(b"");
        Self {
            version: ROW_VERSION,
            id: LedgerId::new(""),
            time: Timestamp::UNIX_EPOCH,
            writer: WriterId::new(""),
            sequence: 0,
            position: 0,
            entry: Entry::new(RowKind::System, RowStatus::Success),
            prev_hash: no_hash,
            hash: no_hash,
            arguments_from: None,
        }
    }

    /// Gives an entry its place in a chain.
    pub(crate) fn chain(entry: &Entry, id: LedgerId, now: Timestamp, place: Place<'_>) -> Self {
        // Databases store microseconds; what is hashed must be what is stored.
        let time = Timestamp::from_microsecond(now.as_microsecond()).unwrap_or(now);
        let mut row = Self {
            version: ROW_VERSION,
            id,
            time,
            writer: place.writer.clone(),
            sequence: place.sequence,
            position: position_after(place.position, time),
            entry: entry.clone(),
            prev_hash: place.prev_hash,
            hash: place.prev_hash,
            arguments_from: place.arguments_from,
        };
        row.hash = row.computed_hash();
        row
    }

    /// What the hash should be: over the previous hash's bytes and the canonical text without the hash itself.
    pub fn computed_hash(&self) -> Digest {
        let text = canonical_text(self, false);
        Digest::of_parts(DigestDomain::LedgerRow, &[self.prev_hash.bytes(), text.as_bytes()])
    }

    /// The row as one line of canonical JSON, hash included.
    pub fn json(&self) -> String {
        canonical_text(self, true)
    }

    pub fn approval(&self) -> Option<Approval> {
        self.approval.as_ref().and_then(|json| serde_json::from_str(json.text()).ok())
    }

    pub fn host(&self) -> Option<HostInfo> {
        self.host.as_ref().and_then(|json| serde_json::from_str(json.text()).ok())
    }

    /// The request the row belongs to; rows of version 1 have it in their detail.
    pub fn request_id(&self) -> Option<RequestId> {
        let in_detail = || Some(self.detail.as_ref()?.value().get("request_id")?.as_str()?.into());
        self.request_id.clone().or_else(|| (self.version == 1).then(in_detail).flatten())
    }
}

/// A place at the end of a chain.
#[derive(Clone, Copy)]
pub(crate) struct Place<'a> {
    pub(crate) writer: &'a WriterId,
    pub(crate) sequence: u64,
    pub(crate) prev_hash: Digest,
    /// The position of the row before.
    pub(crate) position: Option<i64>,
    /// The sequence of an earlier row that stores the same arguments.
    pub(crate) arguments_from: Option<u64>,
}

/// The place of a row in listings: its time, or right after the row before where the clock did not advance.
pub(crate) fn position_after(before: Option<i64>, time: Timestamp) -> i64 {
    let time = time.as_microsecond();
    before.map_or(time, |before| time.max(before.saturating_add(1)))
}

impl Serialize for Json {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let raw: &RawValue = serde_json::from_str(&self.0).map_err(serde::ser::Error::custom)?;
        raw.serialize(to)
    }
}

impl Serialize for LedgerRow {
    /// As [`LedgerRow::json`]; for `serde_json` only.
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        RawValue::from_string(self.json()).map_err(serde::ser::Error::custom)?.serialize(to)
    }
}
