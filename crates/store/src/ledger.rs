//! The ledger: every decision as a row, one SHA-256 chain per writer, signed heads. Rows are only added; the oldest can be removed behind
//! a signed tombstone. What may happen is decided elsewhere.

mod activity;
mod archive;
mod chart;
mod checkpoint;
mod columns;
mod entry;
mod export;
mod external_checkpoints;
mod key;
mod prune;
mod row;
mod summary;
mod tombstone;
mod verify;

pub use activity::{Cursor, LedgerFilter, NotACursor, Page};
pub use archive::{ArchiveFault, ArchiveFile, ArchiveReport, verify_archive};
pub use chart::{ChartPeriod, DecisionTime, LedgerChart, PartCount, StatusCount};
pub use checkpoint::{ChainHead, Checkpoint, NotACheckpoint, checkpoint, kept_checkpoint};
pub use columns::{COLUMNS, LedgerColumn};
pub use entry::{Entry, OMITTED};
pub use export::{Format, LedgerExport};
pub use external_checkpoints::{CheckpointFile, CheckpointSink};
pub use key::{NotAKey, PublicKey, key_path, keys_beside};
pub use prune::{PRUNE_BATCH, PruneRange, PruneRefused, PruneReport};
pub use row::{Json, LedgerRow};
pub use summary::{LedgerSummary, NamedCount};
pub use tombstone::{ArchiveSection, Tombstone};
pub use verify::{Bad, VerifyReport, Why, verify, verify_with};

pub(crate) use checkpoint::keep;
pub(crate) use columns::{INSERT, SELECTED, cells, decode};
pub(crate) use key::{SigningKey, with_suffix};
pub(crate) use row::Place;
