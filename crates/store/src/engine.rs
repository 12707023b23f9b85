//! The interface to both databases: text and integers, statements with `$1`, one transaction at a time. The code above it does not know
//! which database it uses, except for `SqlDialect`.

mod postgres;
#[cfg(test)]
mod scripted;
mod sqlite;

use std::str::FromStr;
use std::vec;

use countersign_policy::digest::Digest;
use jiff::Timestamp;
use tokio::sync::oneshot;

pub(crate) use postgres::PostgresHome;
pub(crate) use postgres::address::PostgresAddress;
#[cfg(test)]
pub(crate) use scripted::ScriptedConnection;
pub(crate) use sqlite::SqliteHome;

use crate::fault::StoreFault;

/// A value of a column. These are the only kinds the store writes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Cell {
    Null,
    Int(i64),
    Text(String),
    /// A text that is one of a few words.
    Word(&'static str),
    /// A kind of value the store never writes: somebody else did.
    Foreign,
}

macro_rules! cell_from {
    ($($from:ty => |$value:ident| $cell:expr;)+) => {
        $(impl From<$from> for Cell {
            fn from($value: $from) -> Self {
                $cell
            }
        })+
    };
}

cell_from! {
    i64 => |value| Cell::Int(value);
    u32 => |value| Cell::Int(i64::from(value));
    u64 => |value| Cell::Int(i64::try_from(value).unwrap_or(i64::MAX));
    &str => |value| Cell::Text(value.to_owned());
    String => |value| Cell::Text(value);
    &String => |value| Cell::Text(value.clone());
    Digest => |value| Cell::Text(value.hex());
    Timestamp => |value| Cell::Int(value.as_microsecond());
}

impl<T: Into<Cell>> From<Option<T>> for Cell {
    fn from(value: Option<T>) -> Self {
        value.map_or(Cell::Null, Into::into)
    }
}

/// The values of a statement, in order.
macro_rules! cells {
    ($($value:expr),* $(,)?) => { [$($crate::engine::Cell::from($value)),*] };
}
pub(crate) use cells;

/// A row of a result; its columns are taken from left to right.
#[derive(Debug)]
pub(crate) struct FoundRow(vec::IntoIter<Cell>);

impl FoundRow {
    pub(crate) fn new(cells: Vec<Cell>) -> Self {
        Self(cells.into_iter())
    }

    fn next(&mut self) -> Result<Cell, StoreFault> {
        match self.0.next() {
            Some(Cell::Foreign) => {
                Err(StoreFault::corrupt("a column holds a kind of value that is never written"))
            }
            Some(cell) => Ok(cell),
            None => Err(StoreFault::corrupt("a row has fewer columns than expected")),
        }
    }

    pub(crate) fn maybe_text(&mut self) -> Result<Option<String>, StoreFault> {
        match self.next()? {
            Cell::Null => Ok(None),
            Cell::Text(text) => Ok(Some(text)),
            Cell::Word(word) => Ok(Some(word.to_owned())),
            Cell::Int(_) | Cell::Foreign => Err(StoreFault::corrupt("a number stands where a text should")),
        }
    }

    pub(crate) fn text(&mut self) -> Result<String, StoreFault> {
        self.maybe_text()?.ok_or_else(|| StoreFault::corrupt("a text is missing"))
    }

    pub(crate) fn maybe_int(&mut self) -> Result<Option<i64>, StoreFault> {
        match self.next()? {
            Cell::Null => Ok(None),
            Cell::Int(number) => Ok(Some(number)),
            Cell::Text(_) | Cell::Word(_) | Cell::Foreign => {
                Err(StoreFault::corrupt("a text stands where a number should"))
            }
        }
    }

    pub(crate) fn int(&mut self) -> Result<i64, StoreFault> {
        self.maybe_int()?.ok_or_else(|| StoreFault::corrupt("a number is missing"))
    }

    pub(crate) fn maybe_count(&mut self) -> Result<Option<u64>, StoreFault> {
        let bad = |_| StoreFault::corrupt("a count is negative");
        self.maybe_int()?.map(u64::try_from).transpose().map_err(bad)
    }

    pub(crate) fn count(&mut self) -> Result<u64, StoreFault> {
        self.maybe_count()?.ok_or_else(|| StoreFault::corrupt("a count is missing"))
    }

    pub(crate) fn maybe_time(&mut self) -> Result<Option<Timestamp>, StoreFault> {
        let bad = |_| StoreFault::corrupt("a time lies outside of all calendars");
        self.maybe_int()?.map(Timestamp::from_microsecond).transpose().map_err(bad)
    }

    pub(crate) fn time(&mut self) -> Result<Timestamp, StoreFault> {
        self.maybe_time()?.ok_or_else(|| StoreFault::corrupt("a time is missing"))
    }

    /// A word of a closed vocabulary, a digest, or anything else that parses from text.
    pub(crate) fn maybe<T: FromStr>(&mut self) -> Result<Option<T>, StoreFault> {
        let bad = |_| StoreFault::corrupt("a word is unknown");
        self.maybe_text()?.map(|text| text.parse().map_err(bad)).transpose()
    }

    pub(crate) fn word<T: FromStr>(&mut self) -> Result<T, StoreFault> {
        self.maybe()?.ok_or_else(|| StoreFault::corrupt("a word is missing"))
    }

    pub(crate) fn maybe_json<T: serde::de::DeserializeOwned>(&mut self) -> Result<Option<T>, StoreFault> {
        let bad = |error| StoreFault::corrupt(format!("kept JSON can't be read: {error}"));
        self.maybe_text()?.map(|text| serde_json::from_str(&text).map_err(bad)).transpose()
    }

    pub(crate) fn json<T: serde::de::DeserializeOwned>(&mut self) -> Result<T, StoreFault> {
        self.maybe_json()?.ok_or_else(|| StoreFault::corrupt("kept JSON is missing"))
    }
}

/// A value as the JSON text it is kept as.
pub(crate) fn json_text<T: serde::Serialize>(value: &T) -> Result<String, StoreFault> {
    serde_json::to_string(value)
        .map_err(|error| StoreFault::invalid(format!("can't be kept as JSON: {error}")))
}

/// For statements that differ between the databases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SqlDialect {
    Sqlite,
    Postgres,
}

/// One connection. A transaction may have one savepoint, to which a failed job is rolled back.
pub(crate) trait DatabaseConnection: Send {
    fn dialect(&self) -> SqlDialect;
    /// Begins a transaction that holds the lock on the chain of `writer` until it ends.
    fn begin(&mut self, writer: &str) -> Result<(), StoreFault>;
    /// Begins a read transaction on one snapshot.
    fn begin_reading(&mut self) -> Result<(), StoreFault>;
    /// Durable when it returns.
    fn commit(&mut self) -> Result<(), StoreFault>;
    fn rollback(&mut self);
    fn savepoint(&mut self) -> Result<(), StoreFault>;
    fn release_savepoint(&mut self) -> Result<(), StoreFault>;
    fn rollback_to_savepoint(&mut self) -> Result<(), StoreFault>;
    fn query(&mut self, sql: &str, values: &[Cell]) -> Result<Vec<FoundRow>, StoreFault>;
    fn execute(&mut self, sql: &str, values: &[Cell]) -> Result<u64, StoreFault>;
    fn execute_all(&mut self, sql: &str, rows: &[Vec<Cell>]) -> Result<(), StoreFault>;
    fn script(&mut self, sql: &str) -> Result<(), StoreFault>;
    /// Whether the process of that name still runs.
    fn is_alive(&mut self, instance: &str) -> Result<bool, StoreFault>;
    /// Shortens lock waits to a few milliseconds until the transaction ends: it already holds locks that others may wait for. Does nothing
    /// where one writer locks the whole database.
    fn shorten_lock_waits(&mut self) -> Result<(), StoreFault> {
        Ok(())
    }
    /// Notifies other processes when the transaction commits. Does nothing where the database has no notifications.
    fn notify(&mut self, _message: &str) -> Result<(), StoreFault> {
        Ok(())
    }
}

/// Runs work in a write transaction and commits; a fault rolls it back.
pub(crate) fn in_transaction<T>(
    engine: &mut dyn DatabaseConnection,
    writer: &str,
    work: impl FnOnce(&mut dyn DatabaseConnection) -> Result<T, StoreFault>,
) -> Result<T, StoreFault> {
    engine.begin(writer)?;
    match work(engine) {
        Ok(done) => engine.commit().map(|()| done),
        Err(fault) => {
            engine.rollback();
            Err(fault)
        }
    }
}

pub(crate) enum ReplicaMessage<'n> {
    /// Messages arrive from now on; earlier ones are lost.
    Connected,
    Received(&'n str),
    Disconnected,
}

/// Makes connections, and makes them again after a failure.
pub(crate) trait ConnectionFactory: Send + Sync {
    /// For the writer. It also marks `instance` as alive for as long as the connection lasts.
    fn writer(&self, instance: &str) -> Result<Box<dyn DatabaseConnection>, StoreFault>;
    /// For a reader; none where reads go through the writer's queue.
    fn reader(&self) -> Result<Option<Box<dyn DatabaseConnection>>, StoreFault>;
    /// Receives messages of other processes until `end`; returns at once where the database has no notifications.
    fn listen(
        &self,
        _instance: &str,
        _receive: &mut dyn FnMut(ReplicaMessage<'_>),
        _end: oneshot::Receiver<()>,
    ) {
    }
}
