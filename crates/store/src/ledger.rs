//! The ledger: every decision as a row, one SHA-256 chain per writer, signed heads. Rows are only ever added.
//! Whether something may happen is decided elsewhere; here it is written down and can be checked by anyone.

mod activity;
mod checkpoint;
mod entry;
mod export;
mod key;
mod members;
mod outside;
mod row;
mod summary;
mod verify;

pub use activity::{Cursor, Filter, NotACursor, Page};
pub use checkpoint::{Checkpoint, Head, NotACheckpoint, checkpoint, kept_checkpoint};
pub use entry::{Entry, OMITTED};
pub use export::{Export, Format};
pub use key::{NotAKey, PublicKey, key_path, keys_beside};
pub use outside::{CheckpointFile, CheckpointSink};
pub use row::{Json, Row};
pub use summary::{Count, Summary};
pub use verify::{Bad, Report, Why, verify, verify_with};

pub(crate) use checkpoint::keep;
pub(crate) use key::{SigningKey, beside};
pub(crate) use row::{COLUMNS, Place, decode, insert_sql};
