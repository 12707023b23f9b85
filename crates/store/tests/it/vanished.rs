//! A store whose file is moved away under it: nothing is acknowledged that nobody will ever read.

use countersign_policy::record::{RowKind, RowStatus};
use countersign_store::{ConnectOptions, Entry, FaultKind, Store, StoreUrl};
use jiff::Timestamp;

#[tokio::test]
async fn rows_for_a_file_that_was_moved_are_refused_until_it_is_back() {
    let folder = tempfile::tempdir().unwrap();
    let (path, away) = (folder.path().join("s.db"), folder.path().join("elsewhere.db"));
    let store = Store::connect(&StoreUrl::file(&path), ConnectOptions::default()).await.unwrap();
    let row = || Entry::new(RowKind::System, RowStatus::Success);
    store.append(row(), Timestamp::now()).await.unwrap();
    std::fs::rename(&path, &away).unwrap();
    let fault = store.append(row(), Timestamp::now()).await.unwrap_err();
    assert_eq!(fault.kind(), FaultKind::Unavailable);
    std::fs::rename(&away, &path).unwrap();
    store.append(row(), Timestamp::now()).await.unwrap();
    std::fs::remove_file(&path).unwrap();
    store.append(row(), Timestamp::now()).await.unwrap_err();
}
