//! Retention: removes the oldest rows of each chain. They are verified and written to an archive first; the archive's digest is in a
//! signed tombstone, and tombstone and removal are one transaction. Rows that can't be archived or do not verify stay.

use countersign_policy::ids::{PrincipalId, WriterId};
use countersign_policy::record::{ActorRole, RowKind, RowStatus};
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use super::archive::{ArchiveFault, ArchiveFile};
use super::columns::SELECTED;
use super::entry::Entry;
use super::key::PublicKey;
use super::row::LedgerRow;
use super::tombstone::{Link, Tombstone, pruned_part};
use super::verify::{Bad, STEP, all_writers, check_segment};
use crate::Store;
use crate::engine::cells;
use crate::fault::StoreFault;
use crate::readers::ReadTransaction;
use crate::writer::Tx;

/// How many rows one transaction removes: other jobs must not wait long for the writer.
pub const PRUNE_BATCH: u64 = 1000;

/// The least age of a removed row, whatever the caller asks for: rows of the same call may still refer to younger ones.
pub(crate) const PRUNE_AGE: SignedDuration = SignedDuration::from_hours(1);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PruneRange {
    pub writer: WriterId,
    pub first: u64,
    pub through: u64,
}

impl PruneRange {
    pub fn rows(&self) -> u64 {
        (self.through + 1).saturating_sub(self.first)
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PruneReport {
    pub rows: u64,
    pub tombstones: Vec<Tombstone>,
    pub has_more: bool,
}

#[derive(Clone, Debug)]
pub enum PruneRefused {
    /// A row is not as it was written: removing it would hide that.
    Tampered(Bad),
    Archive(ArchiveFault),
    NoKey,
    Fault(StoreFault),
}

impl From<StoreFault> for PruneRefused {
    fn from(fault: StoreFault) -> Self {
        Self::Fault(fault)
    }
}

impl Store {
    /// What [`Store::prune`] would remove: rows from before a moment, up to the first row of an open plan or a running call, and never the
    /// last row of a chain or a row of the last hour.
    pub async fn prunable(&self, before: Timestamp, now: Timestamp) -> Result<Vec<PruneRange>, PruneRefused> {
        let (trusted, before) = (self.trusted_hex(), at_most(before, now));
        let found = self.read(move |view| {
            let mut ranges = Vec::new();
            for writer in all_writers(view)? {
                match range(view, &writer, before, u64::MAX, &trusted)? {
                    Ok((_, range)) => ranges.extend(range),
                    Err(bad) => return Ok(Err(bad)),
                }
            }
            Ok(Ok(ranges))
        });
        found.await?.map_err(PruneRefused::Tampered)
    }

    /// Writes rows from before a moment to the archive and removes them, at most `most`.
    pub async fn prune(
        &self,
        before: Timestamp,
        most: u64,
        archive: &mut ArchiveFile,
        by: Option<&PrincipalId>,
        now: Timestamp,
    ) -> Result<PruneReport, PruneRefused> {
        if self.signing_key().is_none() {
            return Err(PruneRefused::NoKey);
        }
        // Each removal adds a row with the time `now`, which the next one must not remove.
        let before = at_most(before, now);
        let mut done = PruneReport::default();
        for writer in self.read(all_writers).await? {
            loop {
                let left = most.saturating_sub(done.rows).min(PRUNE_BATCH);
                let Some((start, range)) = self.next_range(&writer, before, left.max(1)).await? else {
                    break;
                };
                if left == 0 {
                    done.has_more = true;
                    return Ok(done);
                }
                let tombstone = self.prune_range(start, &range, archive, by, now).await?;
                done.rows += tombstone.rows();
                done.tombstones.push(tombstone);
            }
        }
        Ok(done)
    }

    async fn next_range(
        &self,
        writer: &WriterId,
        before: Timestamp,
        most: u64,
    ) -> Result<Option<(Link, PruneRange)>, PruneRefused> {
        let (writer, trusted) = (writer.clone(), self.trusted_hex());
        let found = self.read(move |view| range(view, &writer, before, most, &trusted)).await?;
        let (start, range) = found.map_err(PruneRefused::Tampered)?;
        Ok(range.map(|range| (start, range)))
    }

    fn trusted_hex(&self) -> Vec<String> {
        self.trusted_keys().iter().map(PublicKey::hex).collect()
    }

    async fn prune_range(
        &self,
        start: Link,
        range: &PruneRange,
        archive: &mut ArchiveFile,
        by: Option<&PrincipalId>,
        now: Timestamp,
    ) -> Result<Tombstone, PruneRefused> {
        let key = self.signing_key().ok_or(PruneRefused::NoKey)?;
        let mut section = archive.begin().map_err(PruneRefused::Archive)?;
        let mut last = start;
        while last.sequence < range.through {
            let rows = self.good_rows(range, &mut last).await?;
            for row in &rows {
                section.push(&row.json()).map_err(PruneRefused::Archive)?;
            }
        }
        let archive = section.finish().map_err(PruneRefused::Archive)?;
        let unsigned = Tombstone {
            v: 1,
            time: now,
            writer: range.writer.clone(),
            first: range.first,
            prev_hash: start.hash,
            through: last.sequence,
            hash: last.hash,
            position: last.position.unwrap_or_default(),
            archive,
            public_key: String::new(),
            signature: String::new(),
        };
        let tombstone = unsigned.sign(&key);
        let (made, id, by) = (tombstone.clone(), self.mint(now), by.cloned());
        self.write(move |tx| {
            remove_behind_tombstone(tx, &made)?;
            tx.append(&pruned_entry(&made, by.as_ref()), id.clone(), now);
            Ok(())
        })
        .await?;
        Ok(tombstone)
    }

    async fn good_rows(&self, range: &PruneRange, last: &mut Link) -> Result<Vec<LedgerRow>, PruneRefused> {
        let values = cells![range.writer.as_str(), last.sequence, range.through];
        let sql = format!(
            "SELECT sequence, id, {} FROM ledger WHERE writer = $1 AND sequence > $2 AND sequence <= $3
              ORDER BY sequence LIMIT {STEP}",
            *SELECTED
        );
        let found = self.read(move |view| view.query(&sql, &values)).await?;
        let mut rows = Vec::with_capacity(found.len());
        let (_, bad) = check_segment(&range.writer, last, found, |row| rows.push(row));
        match bad {
            Some(bad) => Err(PruneRefused::Tampered(bad)),
            // They existed a moment ago: another process removes them as well.
            None if rows.is_empty() => Err(concurrent_prune().into()),
            None => Ok(rows),
        }
    }
}

/// Where a chain's rows begin, and which of them can be removed.
type Range = (Link, Option<PruneRange>);

fn range(
    view: &mut ReadTransaction<'_>,
    writer: &WriterId,
    before: Timestamp,
    most: u64,
    trusted: &[String],
) -> Result<Result<Range, Bad>, StoreFault> {
    let part = pruned_part(view, writer, trusted)?;
    let start = part.end(writer);
    if let Some(bad) = part.bad {
        return Ok(Err(bad));
    }
    // Rows are removed from the beginning only, so the first that has to stay keeps all after it. Positions follow the chain, and none
    // stands before its row's time.
    let first_to_stay = "SELECT MIN(sequence) FROM (
           SELECT sequence FROM ledger WHERE writer = $1
              AND position = (SELECT MIN(position) FROM ledger WHERE writer = $1 AND position >= $2 AND time >= $2)
           UNION ALL
           SELECT sequence FROM ledger_heads WHERE writer = $1
           UNION ALL
           SELECT MIN(sequence) FROM ledger WHERE writer = $1 AND plan_id IN
                  (SELECT plan_id FROM plans WHERE state IN ('pending', 'approved', 'executing'))
           UNION ALL
           SELECT MIN(sequence) FROM ledger WHERE writer = $1 AND id IN (SELECT ledger_id FROM in_flight)
         ) AS stay";
    let found = view.one(first_to_stay, &cells![writer.as_str(), before])?;
    let stay = found.map(|mut found| found.maybe_int()).transpose()?.flatten().unwrap_or_default();
    let first = start.sequence + 1;
    let through = u64::try_from(stay).unwrap_or_default().saturating_sub(1);
    let through = whole_calls(view, writer, first, through, most)?;
    let range = (through >= first).then(|| PruneRange { writer: writer.clone(), first, through });
    Ok(Ok((start, range)))
}

/// The last row that can be removed so that no remaining row has its arguments in a removed one. Takes more than `most` rows only if
/// a call needs it.
fn whole_calls(
    view: &mut ReadTransaction<'_>,
    writer: &WriterId,
    first: u64,
    mut through: u64,
    most: u64,
) -> Result<u64, StoreFault> {
    let held =
        "SELECT MIN(arguments_from) FROM ledger WHERE writer = $1 AND sequence > $2 AND arguments_from <= $2";
    while let Some(held) = number(view, held, writer, through)? {
        through = held.saturating_sub(1);
    }
    let mut end = through.min(first.saturating_add(most).saturating_sub(1));
    let refers = "SELECT MAX(sequence) FROM ledger WHERE writer = $1 AND arguments_from <= $2";
    while let Some(last) = number(view, refers, writer, end)?.filter(|last| *last > end) {
        end = last;
    }
    // The first loop has moved `through` before every row that is referred to from beyond it.
    Ok(end.min(through))
}

fn number(
    view: &mut ReadTransaction<'_>,
    sql: &str,
    writer: &WriterId,
    up_to: u64,
) -> Result<Option<u64>, StoreFault> {
    let found = view.one(sql, &cells![writer.as_str(), up_to])?;
    let number = found.map(|mut found| found.maybe_int()).transpose()?.flatten();
    Ok(number.and_then(|number| u64::try_from(number).ok()))
}

fn at_most(before: Timestamp, now: Timestamp) -> Timestamp {
    before.min(now.checked_sub(PRUNE_AGE).unwrap_or(Timestamp::MIN))
}

/// Stores the tombstone and removes the rows it covers.
///
/// INVARIANT (no removal without a tombstone): triggers allow the removal of covered rows only, so the tombstone is stored first.
fn remove_behind_tombstone(tx: &mut Tx<'_>, made: &Tombstone) -> Result<(), StoreFault> {
    let writer = made.writer.as_str();
    let found =
        tx.one("SELECT hash FROM ledger WHERE writer = $1 AND sequence = $2", &cells![writer, made.through])?;
    let hash = found.map(|mut found| found.text()).transpose()?;
    if hash.as_deref() != Some(made.hash.hex().as_str()) {
        return Err(concurrent_prune());
    }
    tx.execute(
        "INSERT INTO ledger_tombstones (writer, through, time, body) VALUES ($1, $2, $3, $4)",
        &cells![writer, made.through, made.time, made.to_string()],
    )?;
    let sql = "DELETE FROM ledger WHERE writer = $1 AND sequence <= $2";
    // Of two processes that remove the same rows the second removes fewer, and its tombstone is rolled back.
    match tx.execute(sql, &cells![writer, made.through])? {
        removed if removed == made.rows() => Ok(()),
        _ => Err(concurrent_prune()),
    }
}

fn concurrent_prune() -> StoreFault {
    StoreFault::unavailable("another process removes old rows at the same time")
}

fn pruned_entry(made: &Tombstone, by: Option<&PrincipalId>) -> Entry {
    let mut entry = Entry::new(RowKind::System, RowStatus::Success).with_detail(&json!({
        "action": "prune",
        "writer": made.writer,
        "first": made.first,
        "through": made.through,
        "archive": made.archive,
    }));
    entry.principal = by.cloned();
    entry.role = by.map(|_| ActorRole::Human);
    entry
}
