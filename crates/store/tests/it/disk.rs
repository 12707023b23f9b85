//! No room and no right to write: a typed fault, nothing acknowledged, and work goes on without a restart once it can.

use std::path::Path;
use std::process::Command;

use countersign_policy::confirm::PlanState;
use countersign_policy::record::{RowKind, RowStatus};
use countersign_policy::refusal::Code;
use countersign_store::ledger::verify;
use countersign_store::{
    ConnectOptions, Entry, FaultKind, LedgerFilter, OpenRefused, Store, StoreFault, StoreUrl,
};

use crate::calls::success;
use crate::place::{Place, options};
use crate::world::{at, hold, permit_at_once, permit_for};

fn runs(program: &str, arguments: &[&str]) -> bool {
    Command::new(program).args(arguments).output().is_ok_and(|output| output.status.success())
}

/// A file system of a given size, gone with the test.
struct SmallDisk {
    room: tempfile::TempDir,
}

impl SmallDisk {
    /// None where this account may not mount.
    fn mount() -> Option<Self> {
        let room = tempfile::tempdir().unwrap();
        let path = room.path().to_str().unwrap();
        runs("mount", &["-t", "tmpfs", "-o", "size=3m,mode=700", "tmpfs", path]).then_some(Self { room })
    }
    fn path(&self) -> &Path {
        self.room.path()
    }
    fn remount(&self, how: &str) {
        let path = self.path().to_str().unwrap();
        assert!(runs("mount", &["-o", &format!("remount,{how}"), path]), "remount,{how}");
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        runs("umount", &["-l", self.path().to_str().unwrap()]);
    }
}

fn big(number: i64) -> Entry {
    Entry::new(RowKind::Config, RowStatus::Success)
        .with_fact("n", number)
        .with_fact("text", "x".repeat(50_000))
}

/// Appends until there is no room; what was acknowledged, and the fault.
async fn fill(store: &Store) -> (Vec<String>, StoreFault) {
    let mut acknowledged = Vec::new();
    for number in 0..10_000 {
        match store.append(big(number), at(2)).await {
            Ok(id) => acknowledged.push(id.to_string()),
            Err(fault) => return (acknowledged, fault),
        }
    }
    panic!("it never got full");
}

async fn all_ids(store: &Store) -> Vec<String> {
    let filter = LedgerFilter { kind: Some(RowKind::Config), limit: Some(1000), ..LedgerFilter::default() };
    let mut ids: Vec<String> =
        store.activity(filter).await.unwrap().rows.iter().map(|row| row.id.to_string()).collect();
    ids.reverse();
    ids
}

async fn full_and_then_room(store: Store, make_room: impl FnOnce()) {
    let plan = hold(&store, "a", 1, at(0)).await.plan_id;
    hold(&store, "b", 2, at(0)).await;
    let under_way = store.open(permit_for(&store, "a", at(1)).await, at(1)).await.unwrap();
    let waiting = permit_for(&store, "b", at(1)).await;

    let (acknowledged, fault) = fill(&store).await;
    assert_eq!(fault.kind(), FaultKind::Full, "{}", fault.inside());
    assert_eq!(fault.refusal().code, Code::LedgerUnavailable);
    assert!(store.is_failing() && acknowledged.len() > 5);
    assert_eq!(all_ids(&store).await, acknowledged, "what is there is what was acknowledged");

    // A write may not go out, a read neither while its row can't be kept, and nothing of the token is spent.
    let huge = format!("{{\"text\":\"{}\"}}", "y".repeat(60_000));
    let read = store.open(permit_at_once("get_it", &huge, at(2)), at(2)).await.unwrap_err();
    assert!(matches!(read, OpenRefused::Fault(..)));
    let write = store.open(permit_at_once("free_it", &huge, at(2)), at(2)).await.unwrap_err();
    assert_eq!(write.refusal().code, Code::LedgerUnavailable);
    // The outcome of a finished call cannot be recorded now: the caller gets an error.
    let mut outcome = success();
    outcome.result = Some("z".repeat(250_000));
    assert!(store.close(under_way, outcome, at(3)).await.is_err());

    make_room();
    let id = store.append(big(1), at(4)).await.unwrap();
    assert_eq!(all_ids(&store).await.last(), Some(&id.to_string()));
    store.open(waiting, at(4)).await.unwrap();
    store.flush().await.unwrap();
    assert_eq!(
        store.plan(&plan).await.unwrap().unwrap().state,
        PlanState::Done,
        "it was written when it could be"
    );
    assert!(!store.is_failing());
    assert_eq!(verify(&store, None).await.unwrap().first_bad, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_refuses_and_recovers() {
    let Some(disk) = SmallDisk::mount() else {
        println!("this account may not mount: only the limit of the file is tested");
        return;
    };
    println!("tested on a tmpfs of 3 MiB");
    let store = Store::connect(&StoreUrl::file(disk.path().join("store.db")), options()).await.unwrap();
    full_and_then_room(store, || disk.remount("size=64m")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_at_its_limit_refuses_and_recovers() {
    let place = Place::sqlite();
    drop(place.store().await);
    // Something else takes room in the file, and later gives it back.
    place.raw("CREATE TABLE ballast (x); INSERT INTO ballast VALUES (zeroblob(4000000)); PRAGMA wal_checkpoint(TRUNCATE)").await;
    let max_bytes = Some(std::fs::metadata(place.path()).unwrap().len() + 2_000_000);
    let store = place.try_store(ConnectOptions { max_bytes, ..options() }).await.unwrap();
    let path = place.path();
    full_and_then_room(store, move || {
        let other = rusqlite::Connection::open(path).unwrap();
        other.execute_batch("DROP TABLE ballast").unwrap();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_row_that_is_too_large_harms_no_other() {
    let place = Place::sqlite();
    drop(place.store().await);
    let max_bytes = Some(std::fs::metadata(place.path()).unwrap().len() + 1_000_000);
    let store = place.try_store(ConnectOptions { max_bytes, ..options() }).await.unwrap();
    let row = |text: String| Entry::new(RowKind::Config, RowStatus::Success).with_fact("text", text);
    let mut asked = Vec::new();
    for number in 0..40 {
        let entry = row("x".repeat(if number == 20 { 5_000_000 } else { 100 }));
        let store = store.clone();
        asked.push(tokio::spawn(async move { store.append(entry, at(1)).await }));
    }
    for (number, one) in asked.into_iter().enumerate() {
        let outcome = one.await.unwrap();
        assert_eq!(outcome.is_err(), number == 20, "{number}: {outcome:?}");
    }
    assert_eq!(all_ids(&store).await.len(), 39);
    assert!(verify(&store, None).await.unwrap().is_clean());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_on_a_read_only_disk_is_a_typed_fault() {
    let room = tempfile::tempdir().unwrap();
    let disk = SmallDisk::mount();
    let folder = disk.as_ref().map_or(room.path(), SmallDisk::path);
    let url = StoreUrl::file(folder.join("store.db"));
    drop(Store::connect(&url, options()).await.unwrap());
    let lock = |read_only: bool| match &disk {
        Some(disk) => disk.remount(if read_only { "ro" } else { "rw" }),
        None => {
            for name in [".", "store.db", "store.db.key"] {
                let path = folder.join(name);
                let mut rights = std::fs::metadata(&path).unwrap().permissions();
                rights.set_readonly(read_only);
                std::fs::set_permissions(path, rights).unwrap();
            }
        }
    };
    lock(true);
    let fault = Store::connect(&url, options()).await.err().unwrap();
    assert_eq!(fault.kind(), FaultKind::ReadOnly, "{}", fault.inside());
    assert_eq!(fault.refusal().code, Code::StoreUnavailable);
    lock(false);
    let store = Store::connect(&url, options()).await.unwrap();
    store.append(big(1), at(1)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_becomes_immutable_refuses_and_recovers() {
    let place = Place::sqlite();
    let store = place.store().await;
    let first = store.append(big(1), at(1)).await.unwrap();
    let (file, log) = (place.path(), format!("{}-wal", place.path().display()));
    let flag = |sign: &str| runs("chattr", &[&format!("{sign}i"), file.to_str().unwrap(), &log]);
    if !flag("+") {
        println!("left out: this account or file system has no immutable files");
        return;
    }
    let mut kinds = Vec::new();
    for number in 2..6 {
        kinds.push(store.append(big(number), at(2)).await.unwrap_err().kind());
    }
    let seen = all_ids(&store).await;
    assert!(flag("-"));
    assert_eq!(kinds.last(), Some(&FaultKind::ReadOnly), "{kinds:?}");
    assert_eq!(seen, [first.to_string()], "and it can still be read");
    let next = store.append(big(7), at(3)).await.unwrap();
    assert_eq!(all_ids(&store).await, [first.to_string(), next.to_string()]);
    assert!(verify(&store, None).await.unwrap().is_clean());
}
