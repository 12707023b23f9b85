//! A write transaction as a job sees it: statements, and rows for the ledger. A job's changes are kept or rolled back as one; its rows are
//! written together with those of the other jobs.

use std::time::Duration;

use countersign_policy::ids::{LedgerId, PlanId, WriterId};
use jiff::Timestamp;

use super::chain::{ChainSavepoint, LedgerChain};
use crate::engine::{Cell, DatabaseConnection, FoundRow};
use crate::fault::{FailureScope, FaultKind, StoreFault};
use crate::ledger::{Checkpoint, Entry, SigningKey};
use crate::readers::ReadTransaction;
use crate::seal::Seal;

/// How far a clock may be behind the latest recorded moment.
const TOLERANCE: Duration = Duration::from_secs(2);

/// Arguments of at least this many bytes are stored once per call: shorter ones cost less than the search for them.
const SHARED_ARGUMENTS_SIZE: usize = 512;

/// The greatest age of a row that another one refers to for its arguments. Half of `ledger::prune::PRUNE_AGE`, so that no such row is
/// being removed.
const SHARED_ARGUMENTS_AGE: Duration = Duration::from_secs(30 * 60);

/// A write transaction as one job sees it.
pub(crate) struct Tx<'t> {
    engine: &'t mut dyn DatabaseConnection,
    chain: &'t mut LedgerChain,
    before: ChainSavepoint,
    has_savepoint: bool,
    pub(crate) instance: &'t str,
    pub(crate) seal: &'t Seal,
    pub(crate) again: bool,
    /// How long the job has waited: its `now` is that much older than the clock.
    pub(crate) waited: Duration,
}

impl<'t> Tx<'t> {
    pub(super) fn new(
        engine: &'t mut dyn DatabaseConnection,
        chain: &'t mut LedgerChain,
        instance: &'t str,
        seal: &'t Seal,
    ) -> Self {
        let before = chain.before();
        Self {
            engine,
            chain,
            before,
            has_savepoint: false,
            instance,
            seal,
            again: false,
            waited: Duration::ZERO,
        }
    }

    /// Keeps or rolls back what the job did.
    pub(super) fn end(self, outcome: Result<(), StoreFault>) -> Result<(), StoreFault> {
        match outcome {
            Ok(()) => {
                if self.has_savepoint {
                    self.engine.release_savepoint()?;
                }
                Ok(())
            }
            // The transaction itself is lost: there is nothing to roll back to.
            Err(fault) if fault.scope > FailureScope::Busy => Err(fault),
            Err(fault) => {
                self.chain.back_to(self.before);
                if self.has_savepoint {
                    self.engine.rollback_to_savepoint()?;
                }
                Err(fault)
            }
        }
    }

    /// Sets the savepoint before the first statement. A job that only adds rows needs none.
    fn ensure_savepoint(&mut self) -> Result<(), StoreFault> {
        if !self.has_savepoint {
            self.engine.savepoint()?;
            self.has_savepoint = true;
        }
        Ok(())
    }

    pub(crate) fn query(&mut self, sql: &str, values: &[Cell]) -> Result<Vec<FoundRow>, StoreFault> {
        self.ensure_savepoint()?;
        self.engine.query(sql, values)
    }

    /// The first row of what was found.
    pub(crate) fn one(&mut self, sql: &str, values: &[Cell]) -> Result<Option<FoundRow>, StoreFault> {
        Ok(self.query(sql, values)?.into_iter().next())
    }

    pub(crate) fn execute(&mut self, sql: &str, values: &[Cell]) -> Result<u64, StoreFault> {
        self.ensure_savepoint()?;
        self.engine.execute(sql, values)
    }

    pub(crate) fn notify(&mut self, news: &str) -> Result<(), StoreFault> {
        self.ensure_savepoint()?;
        self.engine.notify(news)
    }

    pub(crate) fn is_alive(&mut self, instance: &str) -> Result<bool, StoreFault> {
        self.engine.is_alive(instance)
    }

    pub(crate) fn append(&mut self, entry: &Entry, id: LedgerId, now: Timestamp) {
        self.chain.push(entry, id, now, None);
    }

    /// Adds a row about a call. If an earlier row of the same plan or call stores the same arguments, this one refers to it; readers see no
    /// difference.
    pub(crate) fn append_call(
        &mut self,
        entry: &Entry,
        id: LedgerId,
        call: Option<&LedgerId>,
        now: Timestamp,
    ) -> Result<(), StoreFault> {
        let from = self.arguments_origin(entry, call, now)?;
        self.chain.push(entry, id, now, from);
        Ok(())
    }

    fn arguments_origin(
        &mut self,
        entry: &Entry,
        call: Option<&LedgerId>,
        now: Timestamp,
    ) -> Result<Option<u64>, StoreFault> {
        let Some(arguments) =
            entry.arguments.as_ref().filter(|json| json.text().len() >= SHARED_ARGUMENTS_SIZE)
        else {
            return Ok(None);
        };
        if let Some(pending) = self.chain.pending_origin(entry, call) {
            return Ok(Some(pending));
        }
        // Within one chain only: another chain may be pruned on its own.
        let writer = self.chain.writer().clone();
        // An older row might be removed by a prune at this moment.
        let since = now.checked_sub(SHARED_ARGUMENTS_AGE).unwrap_or(now);
        let by_call = "SELECT sequence, arguments FROM ledger WHERE writer = $1 AND time >= $2 AND sequence =
                         (SELECT COALESCE(arguments_from, sequence) FROM ledger WHERE id = $3 AND writer = $1)";
        let by_plan = "SELECT sequence, arguments FROM ledger
                        WHERE writer = $1 AND time >= $2 AND plan_id = $3 AND arguments IS NOT NULL
                        ORDER BY position LIMIT 1";
        let wanted =
            [(by_call, call.map(LedgerId::as_str)), (by_plan, entry.plan_id.as_ref().map(PlanId::as_str))];
        for (sql, name) in wanted {
            let Some(name) = name else { continue };
            let values = [Cell::from(writer.as_str()), Cell::from(since), Cell::from(name)];
            let Some(mut found) = self.one(sql, &values)? else { continue };
            let (sequence, text) = (found.count()?, found.maybe_text()?);
            // The rules, and with them the redaction, may have changed between two rows of a call.
            if text.as_deref() == Some(arguments.text()) {
                return Ok(Some(sequence));
            }
        }
        Ok(None)
    }

    /// Whether a row exists: for a job that is retried after a commit whose outcome is unknown.
    pub(crate) fn has_row(&mut self, id: &LedgerId) -> Result<bool, StoreFault> {
        Ok(self.one("SELECT sequence FROM ledger WHERE id = $1", &[Cell::from(id.as_str())])?.is_some())
    }

    /// Rejects a clock that runs backwards: it can't judge expiry. The time a job has waited is added to its `now`, so that a long queue is not
    /// taken for such a clock.
    pub(crate) fn check_clock(&self, came: Timestamp) -> Result<(), StoreFault> {
        let now = came.checked_add(self.waited).unwrap_or(came);
        match self.chain.latest_time() {
            Some(seen) if now < seen.checked_sub(TOLERANCE).unwrap_or(seen) => Err(StoreFault::new(
                FaultKind::Clock,
                FailureScope::Statement,
                format!("it is {now}, and {seen} was recorded"),
            )),
            _ => Ok(()),
        }
    }

    /// Makes a moment the latest one, whatever was recorded.
    pub(crate) fn set_clock(&mut self, now: Timestamp) -> Result<(), StoreFault> {
        self.execute("UPDATE ledger_heads SET clock = $1", &[Cell::from(now)])?;
        self.chain.set_latest_time(now);
        Ok(())
    }

    /// Signs and stores the heads as they will be; none in an empty store.
    pub(crate) fn checkpoint(
        &mut self,
        key: &SigningKey,
        writer: &WriterId,
    ) -> Result<Option<Checkpoint>, StoreFault> {
        let Some(at) = self.chain.latest_time() else { return Ok(None) };
        self.ensure_savepoint()?;
        crate::ledger::keep(self.engine, key, writer, self.chain.heads(), at).map(Some)
    }

    /// Reads on the same connection, for databases without readers of their own.
    pub(crate) fn view(&mut self) -> ReadTransaction<'_> {
        ReadTransaction::new(self.engine)
    }
}
