//! Locks by name: at most one command per name runs at a time, in order within this process, and across the processes that share a
//! configuration's folder. A lock ends with its process.

use std::collections::HashMap;
use std::fs::{File, TryLockError};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{Mutex as Turn, OwnedMutexGuard};

/// How often a lock that another process holds is tried again.
const AGAIN: Duration = Duration::from_millis(100);

#[derive(Default)]
pub(super) struct Locks {
    turns: Mutex<HashMap<String, Arc<Turn<()>>>>,
}

pub(super) struct CommandLockGuard {
    _file: File,
    _turn: OwnedMutexGuard<()>,
}

impl Locks {
    pub(super) async fn take(&self, folder: &Path, name: &str) -> std::io::Result<CommandLockGuard> {
        let turn = {
            let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(turns.entry(name.to_owned()).or_default())
        };
        let turn = turn.lock_owned().await;
        super::log::private_folder(folder).await?;
        let file = File::options().create(true).append(true).open(folder.join(file_name(name)))?;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(CommandLockGuard { _file: file, _turn: turn }),
                Err(TryLockError::WouldBlock) => tokio::time::sleep(AGAIN).await,
                Err(TryLockError::Error(error)) => return Err(error),
            }
        }
    }
}

/// A lock's file name: letters and digits stay, everything else becomes hexadecimal.
fn file_name(name: &str) -> String {
    use std::fmt::Write as _;
    let mut file = "lock-".to_owned();
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_' {
            file.push(char::from(byte));
        } else {
            // Writing to a string does not fail.
            let _ = write!(file, "%{byte:02x}");
        }
    }
    file
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_files_of_the_folder() {
        assert_eq!(file_name("deploy-1"), "lock-deploy-1");
        assert_eq!(file_name("../é"), "lock-%2e%2e%2f%c3%a9");
    }

    #[tokio::test]
    async fn one_holds_a_lock_at_a_time_whoever_it_is() {
        let folder = tempfile::tempdir().unwrap();
        // Two sets of locks are like two processes: only the file is shared.
        let (here, there) = (Locks::default(), Arc::new(Locks::default()));
        let held = here.take(folder.path(), "a").await.unwrap();
        let _other = here.take(folder.path(), "b").await.unwrap();
        let path = folder.path().to_owned();
        let waiting = tokio::spawn(async move { there.take(&path, "a").await.map(drop) });
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        drop(held);
        waiting.await.unwrap().unwrap();
    }
}
