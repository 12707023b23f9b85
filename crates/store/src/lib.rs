//! The records of Countersign: plans, tokens, approvals, grants, credentials, sessions, pins, runs, and the ledger.
//! One API over SQLite and PostgreSQL. It never decides what is allowed; of two who race it lets one win, and it
//! says "written" only when the disk has it.

mod calls;
mod chance;
mod changes;
mod credentials;
mod decisions;
mod desk;
mod engine;
mod fault;
mod grants;
mod key_file;
pub mod ledger;
mod lines;
pub mod memory;
mod migrate;
mod options;
mod pauses;
mod pins;
mod plans;
mod readers;
mod recover;
mod runs;
mod seal;
mod sessions;
mod store;
mod url;
mod writer;

pub use calls::{Ended, NotSpendable, OpenRefused, Opened, Outcome, RESULT_LIMIT};
pub use changes::Changed;
pub use credentials::{Credential, secret_digest};
pub use decisions::{DecideRefused, Decided, NotDecided, Paused, ShownPlan};
pub use desk::{DeskSession, page_proof, session_digest, sign_in_digest};
pub use fault::{Doing, FaultKind, StoreFault};
pub use grants::{GrantRow, Grants};
pub use ledger::{Entry, Filter, OMITTED, Row};
pub use lines::SavedLine;
pub use options::{Cadence, ConnectOptions, ReadRows};
pub use pauses::REJECTIONS;
pub use pins::{Definition, Pin, PinState, Sight};
pub use plans::{HoldRefused, Holding, Joined, PENDING_LIMIT, PlanFilter, PlanRow};
pub use recover::Recovered;
pub use runs::{Run, RunState};
pub use sessions::{Session, Setter};
pub use store::{Shared, Store};
pub use url::{NotAStoreUrl, StoreUrl};
