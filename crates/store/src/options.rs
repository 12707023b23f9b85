//! The options a store is opened with. Every default is the safe one.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use countersign_policy::ids::WriterId;
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
pub struct CheckpointCadence {
    pub rows: u32,
    /// After so long, if there were rows.
    pub after: Duration,
}

impl Default for CheckpointCadence {
    fn default() -> Self {
        Self { rows: 256, after: Duration::from_secs(10) }
    }
}

#[derive(Clone, Debug)]
pub struct ConnectOptions {
    /// The chain this process appends to. Processes on one SQLite file may share it; replicas on PostgreSQL should have one each.
    pub writer: WriterId,
    /// The signing key; by default beside the SQLite file, with `.key` added to its name. A store on PostgreSQL without one signs nothing.
    pub key_file: Option<PathBuf>,
    /// The key that plans are sealed with; by default beside the SQLite file with `.seal` added to its name, or beside `key_file` for a
    /// store on PostgreSQL. All replicas of a store need the same.
    pub seal_file: Option<PathBuf>,
    /// Where checkpoints go besides the store, after each is committed.
    pub sinks: Vec<Arc<dyn CheckpointSink>>,
    pub readers: usize,
    /// When the rows of reads are durable.
    pub reads: ReadRows,
    pub checkpoints: CheckpointCadence,
    /// The most jobs in one transaction.
    pub group: usize,
    /// The largest size of a SQLite file in bytes; a write beyond it fails as on a full disk.
    pub max_bytes: Option<u64>,
    /// How long to wait for a lock that another process holds.
    pub patience: Duration,
    /// The moment of opening, for its rows.
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
            checkpoints: CheckpointCadence::default(),
            group: 512,
            max_bytes: None,
            patience: Duration::from_secs(10),
            now: Timestamp::now(),
        }
    }
}
