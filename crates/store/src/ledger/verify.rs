//! Verification: walks every chain from its first row and names the first that is not as it was written. Needs no
//! secret. Signatures are believed by keys that the caller trusts, never by keys that the store itself names.

use countersign_core::digest::Digest;
use countersign_core::ids::{LedgerId, WriterId};
use serde::Serialize;

use super::checkpoint::{Checkpoint, Head};
use super::key::PublicKey;
use super::row::{COLUMNS, decode, position_after};
use crate::Store;
use crate::engine::{Found, cells};
use crate::fault::StoreFault;
use crate::readers::View;
use crate::writer::genesis;

/// How many rows are in memory at a time.
const STEP: usize = 1000;

/// What is wrong with a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Why {
    /// It is not what was hashed.
    Changed,
    /// It is not there, though later ones are.
    Missing,
    /// Another one stands in its place.
    Reordered,
    /// It and everything after it is not there.
    Truncated,
    /// A checkpoint's signature is not that of its key.
    BadSignature,
    /// It was not written by a writer of this store, or a checkpoint's key is not trusted.
    Foreign,
}

/// The first row that is not as it was written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Bad {
    /// In whose chain.
    pub writer: WriterId,
    /// At which place.
    pub sequence: u64,
    /// Its id, where it has one.
    pub id: Option<LedgerId>,
    /// What is wrong.
    pub why: Why,
    /// The fingerprint of the key that signed the checkpoint that tells so, where it is not trusted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Report {
    /// How many rows were looked at.
    pub rows: u64,
    /// How many chains there are.
    pub writers: u64,
    /// How many signed heads were compared.
    pub checkpoints: u64,
    /// How many of them were kept outside the store.
    pub outside: u64,
    /// How many keys are trusted; more than one means that a key was lost or replaced, or that several machines sign.
    pub keys: u64,
    /// The fingerprints of the trusted keys.
    pub fingerprints: Vec<String>,
    /// The first row that is not as it was written.
    pub first_bad: Option<Bad>,
}

impl Report {
    /// Whether every row is as it was written.
    pub fn is_clean(&self) -> bool {
        self.first_bad.is_none()
    }
}

/// Verifies every chain by the keys beside the store, against a checkpoint from outside where one is given and against all that are kept.
pub async fn verify(store: &Store, outside: Option<&Checkpoint>) -> Result<Report, StoreFault> {
    verify_with(store, store.trusted_keys(), outside.map(std::slice::from_ref).unwrap_or_default()).await
}

/// Verifies every chain by the keys that are given, against checkpoints from outside and against all that are kept.
pub async fn verify_with(
    store: &Store,
    trusted: &[PublicKey],
    outside: &[Checkpoint],
) -> Result<Report, StoreFault> {
    let keys: Vec<String> = trusted.iter().map(PublicKey::hex).collect();
    let mut report = Report {
        rows: 0,
        writers: 0,
        checkpoints: 0,
        outside: outside.len() as u64,
        keys: keys.len() as u64,
        fingerprints: trusted.iter().map(PublicKey::fingerprint).collect(),
        first_bad: None,
    };
    let writers = store.read(all_writers).await?;
    report.writers = writers.len() as u64;
    let mut bad = Vec::new();
    for writer in writers {
        let (rows, found) = walk(store, writer).await?;
        report.rows += rows;
        bad.extend(found);
    }
    for given in outside.chunks(200) {
        report.checkpoints += given.len() as u64;
        bad.extend(hold_against(store, given.to_vec(), &keys).await?);
    }
    let (kept, found) = hold_against_kept(store, &keys).await?;
    report.checkpoints += kept;
    bad.extend(found);
    report.first_bad = earliest(bad);
    Ok(report)
}

/// The lowest place of the first writer; a missing or changed row says more than the signature that noticed it.
fn earliest(bad: Vec<Bad>) -> Option<Bad> {
    bad.into_iter().min_by(|left, right| (left.sequence, &left.writer).cmp(&(right.sequence, &right.writer)))
}

fn all_writers(view: &mut View<'_>) -> Result<Vec<WriterId>, StoreFault> {
    let sql = "SELECT DISTINCT writer FROM ledger UNION SELECT writer FROM ledger_heads ORDER BY 1";
    view.query(sql, &[])?.into_iter().map(|mut found| Ok(found.text()?.into())).collect()
}

/// The next rows of a chain and, as of the same moment, its recorded end.
struct Stretch {
    rows: Vec<Found>,
    head: Option<Head>,
}

fn stretch(view: &mut View<'_>, writer: &WriterId, after: i64) -> Result<Stretch, StoreFault> {
    // Place and id come twice: a row that can't be read must still be named.
    let sql = format!(
        "SELECT sequence, id, {COLUMNS} FROM ledger WHERE writer = $1 AND sequence > $2 ORDER BY sequence LIMIT {STEP}"
    );
    let rows = view.query(&sql, &cells![writer.as_str(), after])?;
    let head =
        view.one("SELECT sequence, hash FROM ledger_heads WHERE writer = $1", &cells![writer.as_str()])?;
    let head = match head {
        Some(mut found) => {
            Some(Head { writer: writer.clone(), sequence: found.count()?, hash: found.word()? })
        }
        None => None,
    };
    Ok(Stretch { rows, head })
}

/// Walks one chain; the rows looked at and the first bad one.
async fn walk(store: &Store, writer: WriterId) -> Result<(u64, Option<Bad>), StoreFault> {
    let mut last = Link { sequence: 0, hash: genesis(&writer), position: None };
    // Nothing stands at or below place 0, unless somebody put it there.
    let mut after = i64::MIN;
    let mut rows = 0;
    loop {
        let (name, from) = (writer.clone(), after);
        let Stretch { rows: found, head } = store.read(move |view| stretch(view, &name, from)).await?;
        if found.is_empty() {
            return Ok((rows, check_end(&writer, last, head)));
        }
        let (checked, bad) = check_stretch(&writer, &mut last, found);
        rows += checked;
        if let Some(mut bad) = bad {
            bad.why = look_closer(store, &bad, last).await?;
            return Ok((rows, Some(bad)));
        }
        after = i64::try_from(last.sequence).unwrap_or(i64::MAX);
    }
}

/// The end of the part that is good.
#[derive(Clone, Copy)]
struct Link {
    sequence: u64,
    hash: Digest,
    position: Option<i64>,
}

fn check_stretch(writer: &WriterId, last: &mut Link, found: Vec<Found>) -> (u64, Option<Bad>) {
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
        // The position is not hashed: it is what the times up to here make it, or somebody moved the row in listings.
        let is_placed = row.position == position_after(last.position, row.time);
        if row.hash != row.computed_hash() || row.prev_hash != last.hash || !is_placed {
            return bad(row.sequence, Some(row.id), Why::Changed);
        }
        *last = Link { sequence: row.sequence, hash: row.hash, position: Some(row.position) };
        checked += 1;
    }
    (checked, None)
}

/// A row in the wrong place: if the one that belongs here stands elsewhere, they were swapped.
async fn look_closer(store: &Store, bad: &Bad, last: Link) -> Result<Why, StoreFault> {
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

/// Whether a chain ends where its writer left it.
fn check_end(writer: &WriterId, last: Link, head: Option<Head>) -> Option<Bad> {
    let bad = |sequence, why| Some(Bad { writer: writer.clone(), sequence, id: None, why, key: None });
    match head {
        Some(head) if head.sequence > last.sequence => bad(last.sequence + 1, Why::Truncated),
        Some(head) if head.sequence < last.sequence => bad(head.sequence + 1, Why::Foreign),
        Some(head) if head.hash != last.hash => bad(last.sequence, Why::Changed),
        Some(_) => None,
        None => bad(1, Why::Foreign),
    }
}

/// Compares checkpoints with the rows they speak of; the earliest bad place.
async fn hold_against(
    store: &Store,
    given: Vec<Checkpoint>,
    keys: &[String],
) -> Result<Option<Bad>, StoreFault> {
    let keys = keys.to_vec();
    store
        .read(move |view| {
            let checked = given.iter().map(|given| check_heads(view, given, &keys));
            Ok(earliest(checked.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect()))
        })
        .await
}

fn check_heads(view: &mut View<'_>, given: &Checkpoint, keys: &[String]) -> Result<Option<Bad>, StoreFault> {
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
    // Whoever rewrites a store signs it again with a key of their own: a good signature proves nothing by itself.
    if !keys.contains(&given.public_key) {
        let key = PublicKey::from_hex(&given.public_key).map(|key| key.fingerprint());
        return Ok(about(Why::Foreign, key));
    }
    for head in &given.heads {
        if let Some(bad) = check_head(view, head)? {
            return Ok(Some(bad));
        }
    }
    Ok(None)
}

fn check_head(view: &mut View<'_>, head: &Head) -> Result<Option<Bad>, StoreFault> {
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
    // Named is the first row that is not there any more.
    let end = view.one("SELECT MAX(sequence) FROM ledger WHERE writer = $1", &cells![writer.as_str()])?;
    let end = end.map_or(Ok(None), |mut found| found.maybe_int())?.unwrap_or_default();
    let end = u64::try_from(end).unwrap_or_default();
    let (sequence, why) =
        if end < head.sequence { (end + 1, Why::Truncated) } else { (head.sequence, Why::Missing) };
    Ok(Some(Bad { writer, sequence, id: None, why, key: None }))
}

/// Compares every kept checkpoint; how many there are and the earliest bad place they found.
async fn hold_against_kept(store: &Store, keys: &[String]) -> Result<(u64, Option<Bad>), StoreFault> {
    let mut after = String::new();
    let mut count = 0;
    let mut bad = Vec::new();
    loop {
        let (from, known) = (after.clone(), keys.to_vec());
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
        // Only the earliest is reported, so only the earliest is kept.
        bad = earliest(checked.into_iter().filter_map(|(_, found)| found).chain(bad).collect())
            .into_iter()
            .collect();
    }
}

fn unreadable() -> Bad {
    Bad { writer: WriterId::new(""), sequence: 0, id: None, why: Why::BadSignature, key: None }
}
