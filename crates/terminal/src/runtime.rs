//! The one place that builds an async runtime.

use tokio::runtime::{Builder, Runtime};

use crate::command_result::CommandError;

/// How many threads work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Threads {
    /// The calling one: quickest for a single connection.
    Current,
    Workers(usize),
}

pub fn runtime(threads: Threads) -> Result<Runtime, CommandError> {
    build(threads).map_err(|error| CommandError::fault("the runtime can't be started", error))
}

/// The same for a caller with an error type of its own.
pub fn build(threads: Threads) -> std::io::Result<Runtime> {
    let mut builder = match threads {
        Threads::Current => Builder::new_current_thread(),
        Threads::Workers(count) => {
            let mut builder = Builder::new_multi_thread();
            builder.worker_threads(count);
            builder
        }
    };
    builder.enable_all().build()
}
