//! A transaction as a piece of work sees it: statements, and rows for the ledger. What it changes is kept or undone
//! as one; the rows it adds are written with those of its neighbours.

use std::time::Duration;

use countersign_core::ids::{LedgerId, WriterId};
use jiff::Timestamp;

use super::chain::{Before, Chain};
use crate::engine::{Cell, Engine, Found};
use crate::fault::{FaultKind, Hurt, StoreFault};
use crate::ledger::{Checkpoint, Entry, SigningKey};
use crate::readers::View;
use crate::seal::Seal;

/// How far a clock may stand behind the latest recorded moment.
const TOLERANCE: Duration = Duration::from_secs(2);

/// A transaction as one piece of work sees it.
pub(crate) struct Tx<'t> {
    engine: &'t mut dyn Engine,
    chain: &'t mut Chain,
    before: Before,
    marked: bool,
    /// The process that works.
    pub(crate) instance: &'t str,
    /// What seals plans.
    pub(crate) seal: &'t Seal,
    /// Whether this work was attempted before.
    pub(crate) again: bool,
    /// How long it waited to be attempted: its moment is as much older than the clock.
    pub(crate) waited: Duration,
}

impl<'t> Tx<'t> {
    pub(super) fn new(
        engine: &'t mut dyn Engine,
        chain: &'t mut Chain,
        instance: &'t str,
        seal: &'t Seal,
    ) -> Self {
        let before = chain.before();
        Self { engine, chain, before, marked: false, instance, seal, again: false, waited: Duration::ZERO }
    }

    /// Keeps or undoes what the work did.
    pub(super) fn end(self, outcome: Result<(), StoreFault>) -> Result<(), StoreFault> {
        match outcome {
            Ok(()) => {
                if self.marked {
                    self.engine.unmark()?;
                }
                Ok(())
            }
            Err(fault) if fault.hurt > Hurt::Busy => Err(fault),
            Err(fault) => {
                self.chain.back_to(self.before);
                if self.marked {
                    self.engine.back_to_mark()?;
                }
                Err(fault)
            }
        }
    }

    /// The mark to go back to is set before the first statement; work that only adds rows needs none.
    fn mark(&mut self) -> Result<(), StoreFault> {
        if !self.marked {
            self.engine.mark()?;
            self.marked = true;
        }
        Ok(())
    }

    pub(crate) fn query(&mut self, sql: &str, values: &[Cell]) -> Result<Vec<Found>, StoreFault> {
        self.mark()?;
        self.engine.query(sql, values)
    }

    /// The first row of what was found.
    pub(crate) fn one(&mut self, sql: &str, values: &[Cell]) -> Result<Option<Found>, StoreFault> {
        Ok(self.query(sql, values)?.into_iter().next())
    }

    pub(crate) fn execute(&mut self, sql: &str, values: &[Cell]) -> Result<u64, StoreFault> {
        self.mark()?;
        self.engine.execute(sql, values)
    }

    pub(crate) fn tell_news(&mut self, news: &str) -> Result<(), StoreFault> {
        self.mark()?;
        self.engine.tell(news)
    }

    pub(crate) fn lives(&mut self, instance: &str) -> Result<bool, StoreFault> {
        self.engine.lives(instance)
    }

    /// Adds a row to the ledger.
    pub(crate) fn append(&mut self, entry: &Entry, id: LedgerId, now: Timestamp) {
        self.chain.push(entry, id, now);
    }

    /// Whether a row is there: for work that is attempted again after nobody knows what.
    pub(crate) fn has_row(&mut self, id: &LedgerId) -> Result<bool, StoreFault> {
        Ok(self.one("SELECT sequence FROM ledger WHERE id = $1", &[Cell::from(id.as_str())])?.is_some())
    }

    /// Expiry can only be judged by a clock that does not run backwards. Work that had to wait for others is not taken for one that
    /// does: what it waited is added to the moment it came with.
    pub(crate) fn check_clock(&self, came: Timestamp) -> Result<(), StoreFault> {
        let now = came.checked_add(self.waited).unwrap_or(came);
        match self.chain.high_water() {
            Some(seen) if now < seen.checked_sub(TOLERANCE).unwrap_or(seen) => Err(StoreFault::new(
                FaultKind::Clock,
                Hurt::Statement,
                format!("it is {now}, and {seen} was recorded"),
            )),
            _ => Ok(()),
        }
    }

    /// Takes a moment as the latest, whatever was recorded.
    pub(crate) fn set_clock(&mut self, now: Timestamp) -> Result<(), StoreFault> {
        self.execute("UPDATE ledger_heads SET clock = $1", &[Cell::from(now)])?;
        self.chain.set_high_water(now);
        Ok(())
    }

    /// Signs and keeps the heads as they will be; none where nothing was ever written.
    pub(crate) fn checkpoint(
        &mut self,
        key: &SigningKey,
        writer: &WriterId,
    ) -> Result<Option<Checkpoint>, StoreFault> {
        let Some(at) = self.chain.high_water() else { return Ok(None) };
        self.mark()?;
        crate::ledger::keep(self.engine, key, writer, self.chain.heads(), at).map(Some)
    }

    /// A look at the same connection, where readers have none of their own.
    pub(crate) fn view(&mut self) -> View<'_> {
        View::new(self.engine)
    }
}
