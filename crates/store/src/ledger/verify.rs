//! Verification: reads every chain from its first row and names the first row that is not as it was written. Needs no secret. Trusts the
//! keys that the caller gives, never keys that the store names.

use std::collections::HashMap;
use std::sync::Arc;

use countersign_policy::ids::{LedgerId, WriterId};
use serde::Serialize;

use super::checkpoint::{ChainHead, Checkpoint};
use super::columns::{SELECTED, decode};
use super::key::PublicKey;
use super::row::{LedgerRow, position_after};
use super::tombstone::{Link, Tombstone, pruned_part};
use crate::Store;
use crate::engine::{FoundRow, cells};
use crate::fault::StoreFault;
use crate::readers::ReadTransaction;

/// How many rows are in memory at a time.
pub(super) const STEP: usize = 1000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Why {
    Changed,
    /// It is missing, and later ones are there.
    Missing,
    Reordered,
    /// It and everything after it is missing.
    Truncated,
    /// A checkpoint's signature is not that of its key.
    BadSignature,
    /// No writer of this store wrote it, or a checkpoint's key is not trusted.
    Foreign,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Bad {
    pub writer: WriterId,
    pub sequence: u64,
    pub id: Option<LedgerId>,
    pub why: Why,
    /// The fingerprint of the untrusted key that signed a checkpoint.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct VerifyReport {
    pub rows: u64,
    pub writers: u64,
    pub checkpoints: u64,
    pub outside: u64,
    /// More than one means that a key was replaced, or that several machines sign.
    pub keys: u64,
    pub fingerprints: Vec<String>,
    pub pruned: u64,
    pub first_bad: Option<Bad>,
}

impl VerifyReport {
    pub fn is_clean(&self) -> bool {
        self.first_bad.is_none()
    }
}

/// Verifies every chain with the keys beside the store, against the stored checkpoints and one from outside.
pub async fn verify(store: &Store, outside: Option<&Checkpoint>) -> Result<VerifyReport, StoreFault> {
    verify_with(store, store.trusted_keys(), outside.map(std::slice::from_ref).unwrap_or_default()).await
}

/// Verifies every chain with the given keys, against the stored checkpoints and those from outside.
pub async fn verify_with(
    store: &Store,
    trusted: &[PublicKey],
    outside: &[Checkpoint],
) -> Result<VerifyReport, StoreFault> {
    let keys: Vec<String> = trusted.iter().map(PublicKey::hex).collect();
    let mut report = VerifyReport {
        rows: 0,
        writers: 0,
        checkpoints: 0,
        outside: outside.len() as u64,
        keys: keys.len() as u64,
        fingerprints: trusted.iter().map(PublicKey::fingerprint).collect(),
        pruned: 0,
        first_bad: None,
    };
    let writers = store.read(all_writers).await?;
    report.writers = writers.len() as u64;
    let mut bad = Vec::new();
    let mut known = VerifyContext { keys, pruned: HashMap::new() };
    for writer in writers {
        let (name, trusted) = (writer.clone(), known.keys.clone());
        let part = store.read(move |view| pruned_part(view, &name, &trusted)).await?;
        report.pruned += part.tombstones.iter().map(Tombstone::rows).sum::<u64>();
        let start = part.end(&writer);
        known.pruned.insert(writer.clone(), part.tombstones);
        if part.bad.is_some() {
            // Without a valid tombstone, the hash before the first remaining row is unknown.
            bad.extend(part.bad);
            continue;
        }
        let (rows, found) = verify_chain(store, writer, start).await?;
        report.rows += rows;
        bad.extend(found);
    }
    let known = Arc::new(known);
    for given in outside.chunks(200) {
        report.checkpoints += given.len() as u64;
        bad.extend(compare_checkpoints(store, given.to_vec(), &known).await?);
    }
    let (kept, found) = compare_stored_checkpoints(store, &known).await?;
    report.checkpoints += kept;
    bad.extend(found);
    report.first_bad = earliest(bad);
    Ok(report)
}

struct VerifyContext {
    /// The keys that are trusted, as hex.
    keys: Vec<String>,
    pruned: HashMap<WriterId, Vec<Tombstone>>,
}

impl VerifyContext {
    /// Whether a pruned row was as the head says, as far as the tombstones tell; none if they do not cover it.
    fn matches_tombstones(&self, head: &ChainHead) -> Option<bool> {
        let all = self.pruned.get(&head.writer)?;
        let cover = all.iter().find(|tombstone| tombstone.through >= head.sequence)?;
        Some(cover.through > head.sequence || cover.hash == head.hash)
    }
}

/// The fault with the lowest sequence: a missing or changed row says more than the signature that noticed it.
fn earliest(bad: Vec<Bad>) -> Option<Bad> {
    bad.into_iter().min_by(|left, right| (left.sequence, &left.writer).cmp(&(right.sequence, &right.writer)))
}

pub(super) fn all_writers(view: &mut ReadTransaction<'_>) -> Result<Vec<WriterId>, StoreFault> {
    let sql = "SELECT DISTINCT writer FROM ledger UNION SELECT writer FROM ledger_heads
               UNION SELECT writer FROM ledger_tombstones ORDER BY 1";
    view.query(sql, &[])?.into_iter().map(|mut found| Ok(found.text()?.into())).collect()
}

/// The next rows of a chain and its recorded end, from one snapshot.
struct ChainSegment {
    rows: Vec<FoundRow>,
    head: Option<ChainHead>,
}

fn read_segment(
    view: &mut ReadTransaction<'_>,
    writer: &WriterId,
    after: i64,
) -> Result<ChainSegment, StoreFault> {
    // Sequence and id are selected twice: a row that can't be decoded must still be named.
    let sql = format!(
        "SELECT sequence, id, {} FROM ledger WHERE writer = $1 AND sequence > $2 ORDER BY sequence LIMIT {STEP}",
        *SELECTED
    );
    let rows = view.query(&sql, &cells![writer.as_str(), after])?;
    let head =
        view.one("SELECT sequence, hash FROM ledger_heads WHERE writer = $1", &cells![writer.as_str()])?;
    let head = match head {
        Some(mut found) => {
            Some(ChainHead { writer: writer.clone(), sequence: found.count()?, hash: found.word()? })
        }
        None => None,
    };
    Ok(ChainSegment { rows, head })
}

/// Checks one chain from where its tombstones end. Returns the number of rows and the first bad one.
async fn verify_chain(
    store: &Store,
    writer: WriterId,
    start: Link,
) -> Result<(u64, Option<Bad>), StoreFault> {
    let mut last = start;
    // Rows at or below the start are read too: only somebody else can have put them there.
    let mut after = i64::MIN;
    let mut rows = 0;
    loop {
        let (name, from) = (writer.clone(), after);
        let ChainSegment { rows: found, head } =
            store.read(move |view| read_segment(view, &name, from)).await?;
        if found.is_empty() {
            return Ok((rows, check_end(&writer, last, head)));
        }
        let (checked, bad) = check_segment(&writer, &mut last, found, drop);
        rows += checked;
        if let Some(mut bad) = bad {
            bad.why = find_reordered(store, &bad, last).await?;
            return Ok((rows, Some(bad)));
        }
        after = i64::try_from(last.sequence).unwrap_or(i64::MAX);
    }
}

/// Checks that rows continue a chain, and passes each good one to `good`.
pub(super) fn check_segment(
    writer: &WriterId,
    last: &mut Link,
    found: Vec<FoundRow>,
    mut good: impl FnMut(LedgerRow),
) -> (u64, Option<Bad>) {
    let mut checked = 0;
    for mut found in found {
        let bad =
            |sequence, id, why| (checked, Some(Bad { writer: writer.clone(), sequence, id, why, key: None }));
        let (place, id) = match (found.int(), found.text()) {
            (Ok(place), Ok(id)) => (place, Some(LedgerId::new(id))),
            _ => return bad(last.sequence + 1, None, Why::Changed),
        };
        match u64::try_from(place) {
            Ok(place) if place == last.sequence + 1 => {}
            Ok(place) if place > last.sequence + 1 => return bad(last.sequence + 1, None, Why::Missing),
            _ => return bad(u64::try_from(place).unwrap_or(0), id, Why::Foreign),
        }
        let row = match decode(found) {
            Ok(row) => row,
            Err(_) => return bad(last.sequence + 1, id, Why::Changed),
        };
        // The position is not hashed but follows from the times so far; otherwise somebody moved the row in listings.
        let is_placed = row.position == position_after(last.position, row.time);
        if row.hash != row.computed_hash() || row.prev_hash != last.hash || !is_placed {
            return bad(row.sequence, Some(row.id), Why::Changed);
        }
        *last = Link { sequence: row.sequence, hash: row.hash, position: Some(row.position) };
        checked += 1;
        good(row);
    }
    (checked, None)
}

/// Tells a swapped row from a changed one: the row that belongs here is at another place.
async fn find_reordered(store: &Store, bad: &Bad, last: Link) -> Result<Why, StoreFault> {
    if !matches!(bad.why, Why::Changed | Why::Missing) {
        return Ok(bad.why);
    }
    let values = cells![bad.writer.as_str(), last.hash, bad.sequence];
    let elsewhere = store
        .read(move |view| {
            view.one(
                "SELECT sequence FROM ledger WHERE writer = $1 AND prev_hash = $2 AND sequence <> $3",
                &values,
            )
        })
        .await?;
    Ok(if elsewhere.is_some() { Why::Reordered } else { bad.why })
}

/// Checks that a chain ends where its writer left it.
fn check_end(writer: &WriterId, last: Link, head: Option<ChainHead>) -> Option<Bad> {
    let bad = |sequence, why| Some(Bad { writer: writer.clone(), sequence, id: None, why, key: None });
    match head {
        Some(head) if head.sequence > last.sequence => bad(last.sequence + 1, Why::Truncated),
        Some(head) if head.sequence < last.sequence => bad(head.sequence + 1, Why::Foreign),
        Some(head) if head.hash != last.hash => bad(last.sequence, Why::Changed),
        Some(_) => None,
        None => bad(1, Why::Foreign),
    }
}

/// Compares checkpoints with the rows; returns the earliest fault.
async fn compare_checkpoints(
    store: &Store,
    given: Vec<Checkpoint>,
    known: &Arc<VerifyContext>,
) -> Result<Option<Bad>, StoreFault> {
    let known = Arc::clone(known);
    store
        .read(move |view| {
            let checked = given.iter().map(|given| check_heads(view, given, &known));
            Ok(earliest(checked.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect()))
        })
        .await
}

fn check_heads(
    view: &mut ReadTransaction<'_>,
    given: &Checkpoint,
    known: &VerifyContext,
) -> Result<Option<Bad>, StoreFault> {
    let about = |why, key| {
        let (writer, sequence) = match given.heads.first() {
            Some(head) => (head.writer.clone(), head.sequence),
            None => (WriterId::new(""), 0),
        };
        Some(Bad { writer, sequence, id: None, why, key })
    };
    if !given.is_signed() {
        return Ok(about(Why::BadSignature, None));
    }
    // Somebody who rewrites a store signs it with a key of their own: a valid signature alone proves nothing.
    if !known.keys.contains(&given.public_key) {
        let key = PublicKey::from_hex(&given.public_key).map(|key| key.fingerprint());
        return Ok(about(Why::Foreign, key));
    }
    for head in &given.heads {
        if let Some(bad) = check_head(view, head, known)? {
            return Ok(Some(bad));
        }
    }
    Ok(None)
}

fn check_head(
    view: &mut ReadTransaction<'_>,
    head: &ChainHead,
    known: &VerifyContext,
) -> Result<Option<Bad>, StoreFault> {
    let writer = head.writer.clone();
    let found = view.one(
        "SELECT hash, id FROM ledger WHERE writer = $1 AND sequence = $2",
        &cells![writer.as_str(), head.sequence],
    )?;
    if let Some(mut found) = found {
        let same = found.maybe_text().is_ok_and(|hash| hash == Some(head.hash.hex()));
        let id = found.text().ok().map(LedgerId::new);
        return Ok((!same).then_some(Bad {
            writer,
            sequence: head.sequence,
            id,
            why: Why::Changed,
            key: None,
        }));
    }
    match known.matches_tombstones(head) {
        Some(true) => return Ok(None),
        Some(false) => {
            let (sequence, why) = (head.sequence, Why::Changed);
            return Ok(Some(Bad { writer, sequence, id: None, why, key: None }));
        }
        None => {}
    }
    // Report the first missing row.
    let end = view.one("SELECT MAX(sequence) FROM ledger WHERE writer = $1", &cells![writer.as_str()])?;
    let end = end.map_or(Ok(None), |mut found| found.maybe_int())?.unwrap_or_default();
    let end = u64::try_from(end).unwrap_or_default();
    let (sequence, why) =
        if end < head.sequence { (end + 1, Why::Truncated) } else { (head.sequence, Why::Missing) };
    Ok(Some(Bad { writer, sequence, id: None, why, key: None }))
}

/// Compares every stored checkpoint; returns their number and the earliest fault.
async fn compare_stored_checkpoints(
    store: &Store,
    known: &Arc<VerifyContext>,
) -> Result<(u64, Option<Bad>), StoreFault> {
    let mut after = String::new();
    let mut count = 0;
    let mut bad = Vec::new();
    loop {
        let (from, known) = (after.clone(), Arc::clone(known));
        let checked = store
            .read(move |view| {
                let sql = "SELECT id, body FROM checkpoints WHERE id > $1 ORDER BY id LIMIT 200";
                let mut checked = Vec::new();
                for mut found in view.query(sql, &cells![from.as_str()])? {
                    let (id, body) = (found.text()?, found.maybe_text().ok().flatten());
                    let read = body.as_deref().and_then(|body| body.parse::<Checkpoint>().ok());
                    checked.push(match read {
                        Some(read) => (id, check_heads(view, &read, &known)?),
                        None => (id, Some(unreadable())),
                    });
                }
                Ok(checked)
            })
            .await?;
        let Some((last, _)) = checked.last() else { return Ok((count, earliest(bad))) };
        last.clone_into(&mut after);
        count += checked.len() as u64;
        // Only the earliest is reported.
        bad = earliest(checked.into_iter().filter_map(|(_, found)| found).chain(bad).collect())
            .into_iter()
            .collect();
    }
}

fn unreadable() -> Bad {
    Bad { writer: WriterId::new(""), sequence: 0, id: None, why: Why::BadSignature, key: None }
}
