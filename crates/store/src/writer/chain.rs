//! The end of a chain inside one transaction: read when it begins, grown in memory, written once before the commit.

use countersign_core::digest::{Digest, Domain};
use countersign_core::ids::{LedgerId, WriterId};
use jiff::Timestamp;

use crate::engine::{Cell, Engine, cells};
use crate::fault::StoreFault;
use crate::ledger::{Entry, Head, Row, insert_sql};

/// The end of a chain, and the rows that are to be added to it.
pub(crate) struct Chain {
    writer: WriterId,
    sequence: u64,
    hash: Digest,
    /// The listing position of the last row.
    position: Option<i64>,
    /// Heads of all other writers.
    others: Vec<Head>,
    /// The latest moment any writer has seen, in microseconds; none in an empty store.
    high_water: Option<i64>,
    /// The latest moment of this transaction.
    seen: Option<i64>,
    rows: Vec<Row>,
}

/// A point to which a chain can go back.
#[derive(Clone, Copy)]
pub(crate) struct Before {
    sequence: u64,
    hash: Digest,
    position: Option<i64>,
    rows: usize,
}

impl Chain {
    /// Reads the end inside the transaction: another process may have grown it.
    pub(crate) fn load(engine: &mut dyn Engine, writer: &WriterId) -> Result<Self, StoreFault> {
        let mut chain = Self {
            writer: writer.clone(),
            sequence: 0,
            hash: genesis(writer),
            position: None,
            others: Vec::new(),
            high_water: None,
            seen: None,
            rows: Vec::new(),
        };
        let sql = "SELECT heads.writer, heads.sequence, heads.hash, heads.clock, last.position
                     FROM ledger_heads AS heads
                     LEFT JOIN ledger AS last ON last.writer = heads.writer AND last.sequence = heads.sequence";
        for mut found in engine.query(sql, &[])? {
            let head = Head { writer: found.text()?.into(), sequence: found.count()?, hash: found.word()? };
            let (clock, position) = (found.int()?, found.maybe_int()?);
            chain.high_water = chain.high_water.max(Some(clock));
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

    pub(crate) fn high_water(&self) -> Option<Timestamp> {
        self.high_water.max(self.seen).and_then(|micros| Timestamp::from_microsecond(micros).ok())
    }

    pub(crate) fn set_high_water(&mut self, now: Timestamp) {
        self.high_water = Some(now.as_microsecond());
        self.seen = None;
    }

    pub(crate) fn push(&mut self, entry: &Entry, id: LedgerId, now: Timestamp) {
        let place = crate::ledger::Place {
            writer: &self.writer,
            sequence: self.sequence + 1,
            prev_hash: self.hash,
            position: self.position,
        };
        let row = Row::chain(entry, id, now, place);
        self.sequence = row.sequence;
        self.hash = row.hash;
        self.position = Some(row.position);
        self.seen = self.seen.max(Some(now.as_microsecond()));
        self.rows.push(row);
    }

    pub(crate) fn before(&self) -> Before {
        Before { sequence: self.sequence, hash: self.hash, position: self.position, rows: self.rows.len() }
    }

    pub(crate) fn back_to(&mut self, before: Before) {
        self.sequence = before.sequence;
        self.hash = before.hash;
        self.position = before.position;
        self.rows.truncate(before.rows);
    }

    pub(crate) fn pending(&self) -> usize {
        self.rows.len()
    }

    pub(crate) fn last_id(&self) -> Option<LedgerId> {
        self.rows.last().map(|row| row.id.clone())
    }

    /// Every head as it will be after the commit.
    pub(crate) fn heads(&self) -> Vec<Head> {
        let own = Head { writer: self.writer.clone(), sequence: self.sequence, hash: self.hash };
        let mut heads = self.others.clone();
        heads.extend((own.sequence > 0).then_some(own));
        heads.sort_by(|left, right| left.writer.cmp(&right.writer));
        heads
    }

    /// Writes the rows and the new end.
    pub(crate) fn flush(&mut self, engine: &mut dyn Engine) -> Result<(), StoreFault> {
        if self.rows.is_empty() {
            return Ok(());
        }
        let rows: Vec<Vec<Cell>> = self.rows.drain(..).map(Row::into_cells).collect();
        engine.execute_all(&insert_sql(), &rows)?;
        let clock = self.high_water.max(self.seen).unwrap_or_default();
        engine.execute(
            "INSERT INTO ledger_heads (writer, sequence, hash, clock) VALUES ($1, $2, $3, $4)
             ON CONFLICT (writer) DO UPDATE SET sequence = excluded.sequence, hash = excluded.hash, clock = excluded.clock",
            &cells![self.writer.as_str(), self.sequence, self.hash, clock],
        )?;
        Ok(())
    }
}

/// What stands before the first row of a chain.
pub(crate) fn genesis(writer: &WriterId) -> Digest {
    Digest::of(Domain::LedgerGenesis, writer.as_str().as_bytes())
}
