//! The end of a chain inside one transaction: read at its beginning, extended in memory, written once before the commit.

use countersign_policy::digest::{Digest, DigestDomain};
use countersign_policy::ids::{LedgerId, WriterId};
use jiff::Timestamp;

use crate::engine::{DatabaseConnection, cells};
use crate::fault::StoreFault;
use crate::ledger::{self, ChainHead, Entry, LedgerRow, Place};

/// The end of a chain, and the rows to be added to it.
pub(crate) struct LedgerChain {
    writer: WriterId,
    sequence: u64,
    hash: Digest,
    /// The listing position of the last row.
    position: Option<i64>,
    others: Vec<ChainHead>,
    /// The latest moment any writer has recorded, in microseconds; none in an empty store.
    latest_time: Option<i64>,
    seen: Option<i64>,
    rows: Vec<LedgerRow>,
}

/// A point to which a chain can be rolled back.
#[derive(Clone, Copy)]
pub(crate) struct ChainSavepoint {
    sequence: u64,
    hash: Digest,
    position: Option<i64>,
    rows: usize,
}

impl LedgerChain {
    /// Reads the end inside the transaction: another process may have added rows.
    pub(crate) fn load(engine: &mut dyn DatabaseConnection, writer: &WriterId) -> Result<Self, StoreFault> {
        let mut chain = Self {
            writer: writer.clone(),
            sequence: 0,
            hash: genesis(writer),
            position: None,
            others: Vec::new(),
            latest_time: None,
            seen: None,
            rows: Vec::new(),
        };
        let sql = "SELECT heads.writer, heads.sequence, heads.hash, heads.clock, last.position
                     FROM ledger_heads AS heads
                     LEFT JOIN ledger AS last ON last.writer = heads.writer AND last.sequence = heads.sequence";
        // All heads in one query: a checkpoint signs them together, and the latest clock is that of any writer.
        for mut found in engine.query(sql, &[])? {
            let head =
                ChainHead { writer: found.text()?.into(), sequence: found.count()?, hash: found.word()? };
            let (clock, position) = (found.int()?, found.maybe_int()?);
            chain.latest_time = chain.latest_time.max(Some(clock));
            if head.writer == *writer {
                chain.sequence = head.sequence;
                chain.hash = head.hash;
                chain.position = position;
            } else {
                chain.others.push(head);
            }
        }
        Ok(chain)
    }

    pub(crate) fn latest_time(&self) -> Option<Timestamp> {
        self.latest_time.max(self.seen).and_then(|micros| Timestamp::from_microsecond(micros).ok())
    }

    pub(crate) fn set_latest_time(&mut self, now: Timestamp) {
        self.latest_time = Some(now.as_microsecond());
        self.seen = None;
    }

    pub(crate) fn push(&mut self, entry: &Entry, id: LedgerId, now: Timestamp, arguments_from: Option<u64>) {
        let place = Place {
            writer: &self.writer,
            sequence: self.sequence + 1,
            prev_hash: self.hash,
            position: self.position,
            arguments_from,
        };
        let row = LedgerRow::chain(entry, id, now, place);
        self.sequence = row.sequence;
        self.hash = row.hash;
        self.position = Some(row.position);
        self.seen = self.seen.max(Some(now.as_microsecond()));
        self.rows.push(row);
    }

    pub(crate) fn writer(&self) -> &WriterId {
        &self.writer
    }

    /// The sequence of a row of the same call with the same arguments among those to be added with this transaction.
    pub(crate) fn pending_origin(&self, entry: &Entry, call: Option<&LedgerId>) -> Option<u64> {
        let is_same_call = |row: &LedgerRow| {
            call == Some(&row.id) || (entry.plan_id.is_some() && entry.plan_id == row.plan_id)
        };
        // Rows of this transaction are not in the table yet, so a query would not find them.
        let mut same = self.rows.iter().filter(|row| row.arguments == entry.arguments);
        let found = same.find(|row| is_same_call(row))?;
        Some(found.arguments_from.unwrap_or(found.sequence))
    }

    pub(crate) fn before(&self) -> ChainSavepoint {
        ChainSavepoint {
            sequence: self.sequence,
            hash: self.hash,
            position: self.position,
            rows: self.rows.len(),
        }
    }

    pub(crate) fn back_to(&mut self, before: ChainSavepoint) {
        self.sequence = before.sequence;
        self.hash = before.hash;
        self.position = before.position;
        // The job's rows go with it: a hash over a rolled-back row would break the chain.
        self.rows.truncate(before.rows);
    }

    pub(crate) fn pending(&self) -> usize {
        self.rows.len()
    }

    pub(crate) fn last_id(&self) -> Option<LedgerId> {
        self.rows.last().map(|row| row.id.clone())
    }

    /// Every head as it will be after the commit.
    pub(crate) fn heads(&self) -> Vec<ChainHead> {
        let own = ChainHead { writer: self.writer.clone(), sequence: self.sequence, hash: self.hash };
        let mut heads = self.others.clone();
        heads.extend((own.sequence > 0).then_some(own));
        // Signed text must not depend on the order in which the database returns rows.
        heads.sort_by(|left, right| left.writer.cmp(&right.writer));
        heads
    }

    /// Writes the rows and the new end.
    pub(crate) fn flush(&mut self, engine: &mut dyn DatabaseConnection) -> Result<(), StoreFault> {
        if self.rows.is_empty() {
            return Ok(());
        }
        let rows: Vec<_> = self.rows.drain(..).map(|row| ledger::cells(&row)).collect();
        engine.execute_all(&ledger::INSERT, &rows)?;
        // The clock of a head only moves forward, also if the rows of this transaction are older than recorded ones.
        let clock = self.latest_time.max(self.seen).unwrap_or_default();
        engine.execute(
            "INSERT INTO ledger_heads (writer, sequence, hash, clock) VALUES ($1, $2, $3, $4)
             ON CONFLICT (writer) DO UPDATE SET sequence = excluded.sequence, hash = excluded.hash, clock = excluded.clock",
            &cells![self.writer.as_str(), self.sequence, self.hash, clock],
        )?;
        Ok(())
    }
}

/// The hash before the first row of a chain.
pub(crate) fn genesis(writer: &WriterId) -> Digest {
    Digest::of(DigestDomain::LedgerGenesis, writer.as_str().as_bytes())
}
