//! How a store is opened. Only settings; every default is the careful one.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use countersign_core::ids::WriterId;
use jiff::Timestamp;

use crate::ledger::CheckpointSink;

/// When the rows of reads are durable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReadRows {
    /// Within 100 ms; a read does not wait for the disk.
    #[default]
    Soon,
    /// Before the read goes out, as for writes (`ledger.reads = "sync"`).
    Sync,
}

/// When a signed checkpoint is kept in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cadence {
    /// After so many rows.
    pub rows: u32,
    /// After so long, if there were rows.
    pub after: Duration,
}

impl Default for Cadence {
    fn default() -> Self {
        Self { rows: 256, after: Duration::from_secs(10) }
    }
}

/// How a store is opened.
#[derive(Clone, Debug)]
pub struct ConnectOptions {
    /// The name of the chain this process appends to. Processes on one SQLite file may share it; replicas on one
    /// PostgreSQL do better with one each.
    pub writer: WriterId,
    /// Where the signing key is; none means beside the SQLite file, with `.key` at the end of its name. A store
    /// on PostgreSQL without one signs nothing.
    pub key_file: Option<PathBuf>,
    /// Where the key is that plans are sealed with; none means beside the SQLite file, with `.seal` at the end of its name, or beside
    /// `key_file` for a store on PostgreSQL. All replicas of a store need the same.
    pub seal_file: Option<PathBuf>,
    /// Where checkpoints go besides the store, after each is committed.
    pub sinks: Vec<Arc<dyn CheckpointSink>>,
    /// How many connections read.
    pub readers: usize,
    /// When the rows of reads are durable.
    pub reads: ReadRows,
    /// When checkpoints are kept.
    pub checkpoints: Cadence,
    /// How many changes are committed together at most; 1 means each on its own.
    pub group: usize,
    /// The largest a SQLite file may grow, in bytes; a write beyond it is refused as on a full disk.
    pub max_bytes: Option<u64>,
    /// How long to wait for a lock that another process holds.
    pub patience: Duration,
    /// The moment of opening, for what is recorded about it.
    pub now: Timestamp,
}

impl Default for ConnectOptions {
    fn default() -> Self {
        Self {
            writer: WriterId::new("main"),
            key_file: None,
            seal_file: None,
            sinks: Vec::new(),
            readers: 4,
            reads: ReadRows::Soon,
            checkpoints: Cadence::default(),
            group: 512,
            max_bytes: None,
            patience: Duration::from_secs(10),
            now: Timestamp::now(),
        }
    }
}
