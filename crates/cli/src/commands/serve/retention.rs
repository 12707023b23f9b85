//! `[ledger] keep`: a gateway archives and removes rows that are older, a bounded number at a time. What can't be archived stays.

use std::time::Duration;

use countersign_policy::record::{RowKind, RowStatus};
use countersign_store::ledger::{ArchiveFile, PruneRefused};
use countersign_store::{Entry, Store, StoreUrl};
use jiff::Timestamp;
use tokio::runtime::Handle;

use crate::records;

/// When the first round begins: after the gateway has answered those who wait for it.
const FIRST: Duration = Duration::from_secs(2);
/// How long after a round the next one begins.
const ROUND: Duration = Duration::from_secs(24 * 60 * 60);
/// The same where a round left something.
const SOON: Duration = Duration::from_secs(10 * 60);
const MOST: u64 = 50_000;

pub(super) async fn keep(store: Store, url: StoreUrl, keep: Duration) {
    let mut pause = FIRST;
    loop {
        tokio::time::sleep(pause).await;
        let (store, url, runtime) = (store.clone(), url.clone(), Handle::current());
        // Archives are written and synced by a thread of their own: requests do not wait for that.
        let done = tokio::task::spawn_blocking(move || runtime.block_on(round(&store, &url, keep)));
        pause = done.await.unwrap_or(ROUND);
    }
}

/// Removes what is old; how long to wait for the next round.
async fn round(store: &Store, url: &StoreUrl, keep: Duration) -> Duration {
    let now = Timestamp::now();
    let before = now.checked_sub(keep).unwrap_or(Timestamp::MIN);
    let Ok(path) = records::archive_path(url, now) else {
        tracing::warn!("old rows are kept: there is no folder for their archive");
        return ROUND;
    };
    let mut archive = ArchiveFile::new(path);
    match store.prune(before, MOST, &mut archive, None, now).await {
        Ok(pruned) => {
            if pruned.rows > 0 {
                tracing::info!(rows = pruned.rows, archive = %archive.path().display(), "old rows archived");
            }
            if pruned.has_more { SOON } else { ROUND }
        }
        Err(refused) => {
            let why = match &refused {
                PruneRefused::Tampered(bad) => {
                    format!("row {} of writer `{}` is not as it was written", bad.sequence, bad.writer)
                }
                PruneRefused::Archive(fault) => fault.to_string(),
                PruneRefused::NoKey => "the store has no signing key".to_owned(),
                PruneRefused::Fault(fault) => fault.inside().to_owned(),
            };
            tracing::warn!(why, "old rows are kept");
            let row = Entry::new(RowKind::System, RowStatus::Error)
                .with_fact("action", "prune")
                .with_fact("why", why);
            // Where this can't be written either, the next round says it again.
            let _ = store.append(row, now).await;
            ROUND
        }
    }
}
