//! What the two databases have in common: text and integers, statements with `$1`, one transaction at a time.
//! Everything above speaks SQL through this; nothing above knows which database it is, but for `Dialect`.

mod postgres;
mod sqlite;

use std::str::FromStr;
use std::vec;

use countersign_core::digest::Digest;
use jiff::Timestamp;
use tokio::sync::oneshot;

pub(crate) use postgres::PostgresHome;
pub(crate) use postgres::address::Address;
pub(crate) use sqlite::SqliteHome;

use crate::fault::StoreFault;

/// A value of a column: these are all we use.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Cell {
    Null,
    Int(i64),
    Text(String),
    /// A text that is one of a few words.
    Word(&'static str),
    /// A kind of value we never write: somebody else did.
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

/// A row that was found; its columns are taken from left to right.
#[derive(Debug)]
pub(crate) struct Found(vec::IntoIter<Cell>);

impl Found {
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

    /// A word of a closed vocabulary, a digest, or anything else that reads itself from text.
    pub(crate) fn maybe<T: FromStr>(&mut self) -> Result<Option<T>, StoreFault> {
        let bad = |_| StoreFault::corrupt("a word is unknown");
        self.maybe_text()?.map(|text| text.parse().map_err(bad)).transpose()
    }

    pub(crate) fn word<T: FromStr>(&mut self) -> Result<T, StoreFault> {
        self.maybe()?.ok_or_else(|| StoreFault::corrupt("a word is missing"))
    }

    /// A value kept as JSON.
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

/// Where the two databases speak differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    Sqlite,
    Postgres,
}

/// One connection. A transaction may have one mark, to which a failed part of it goes back.
pub(crate) trait Engine: Send {
    fn dialect(&self) -> Dialect;
    /// Begins a transaction that will write to the chain of `writer`; nobody else does until it ends.
    fn begin(&mut self, writer: &str) -> Result<(), StoreFault>;
    /// Begins a transaction in which everything is seen as of one moment.
    fn begin_reading(&mut self) -> Result<(), StoreFault>;
    /// Durable when it returns.
    fn commit(&mut self) -> Result<(), StoreFault>;
    fn rollback(&mut self);
    fn mark(&mut self) -> Result<(), StoreFault>;
    fn unmark(&mut self) -> Result<(), StoreFault>;
    fn back_to_mark(&mut self) -> Result<(), StoreFault>;
    fn query(&mut self, sql: &str, values: &[Cell]) -> Result<Vec<Found>, StoreFault>;
    fn execute(&mut self, sql: &str, values: &[Cell]) -> Result<u64, StoreFault>;
    /// The same statement for many rows.
    fn execute_all(&mut self, sql: &str, rows: &[Vec<Cell>]) -> Result<(), StoreFault>;
    /// Several statements without values.
    fn script(&mut self, sql: &str) -> Result<(), StoreFault>;
    /// Whether a process that named itself so still runs.
    fn lives(&mut self, instance: &str) -> Result<bool, StoreFault>;
    /// From here to the end of the transaction nobody is waited for longer than a moment: it already holds what others may
    /// wait for. Where one writer has the whole database, there is nobody to wait for.
    fn hurry(&mut self) -> Result<(), StoreFault> {
        Ok(())
    }
    /// Tells other processes, when and if the transaction commits; where the database carries no news, nothing.
    fn tell(&mut self, _news: &str) -> Result<(), StoreFault> {
        Ok(())
    }
}

/// What came over from other processes.
pub(crate) enum News<'n> {
    /// We hear from now on; what was said before is missed.
    Hearing,
    /// Somebody said this.
    Said(&'n str),
    /// We do not hear any more.
    Deaf,
}

/// How a connection is made, and made again.
pub(crate) trait Home: Send + Sync {
    /// For the writer: it also says that `instance` lives, as long as the connection does.
    fn writer(&self, instance: &str) -> Result<Box<dyn Engine>, StoreFault>;
    /// For a reader; none where readers have to queue with the writer.
    fn reader(&self) -> Result<Option<Box<dyn Engine>>, StoreFault>;
    /// Hears what other processes tell until `end`; returns at once where the database carries no news.
    fn listen(&self, _instance: &str, _heard: &mut dyn FnMut(News<'_>), _end: oneshot::Receiver<()>) {}
}
