//! Opening: from nothing, again, by several at once, and never a store of a newer version. Reading while others write.

use std::time::{Duration, Instant};

use countersign_policy::record::{RowKind, RowStatus};
use countersign_store::ledger::{COLUMNS, verify};
use countersign_store::{ConnectOptions, Entry, FaultKind, LedgerFilter, StoreUrl};

use crate::place::{Kind, Place, on_both, options};
use crate::world::at;

on_both!(
    a_store_is_made_once_and_opened_again,
    several_that_start_at_once_make_one_store,
    a_newer_store_is_refused_untouched,
    writers_of_different_names_keep_chains_of_their_own,
    the_migrations_make_the_columns_of_the_table,
);

fn row() -> Entry {
    Entry::new(RowKind::System, RowStatus::Success)
}

async fn a_store_is_made_once_and_opened_again(place: Place) {
    let steps = "SELECT CAST(version AS TEXT), CAST(applied AS TEXT) FROM schema_migrations ORDER BY version";
    let mut applied = Vec::new();
    for round in 0..3 {
        let now = at(round);
        let store = place.try_store(ConnectOptions { now, ..options() }).await.unwrap();
        store.append(row(), now).await.unwrap();
        applied.push(place.raw_texts(steps).await);
    }
    assert_eq!(applied[0][0][0].as_deref(), Some("1"));
    assert!(applied.iter().all(|steps| *steps == applied[0]), "no step is taken twice: {applied:?}");
    let report = verify(&place.store().await, None).await.unwrap();
    assert_eq!(
        (report.rows, report.keys, report.first_bad),
        (4, 1, None),
        "three rows and the one of the key"
    );
}

async fn several_that_start_at_once_make_one_store(place: Place) {
    let (a, b, c, d) = tokio::join!(place.store(), place.store(), place.store(), place.store());
    for store in [&a, &b, &c, &d] {
        store.append(row(), at(1)).await.unwrap();
    }
    let report = verify(&a, None).await.unwrap();
    assert_eq!((report.rows, report.keys, report.first_bad), (5, 1, None));
}

async fn a_newer_store_is_refused_untouched(place: Place) {
    drop(place.store().await);
    place.raw("INSERT INTO schema_migrations (version, name, applied) VALUES (999, 'later', 0)").await;
    let fault = place.try_store(options()).await.err().unwrap();
    assert_eq!(fault.kind(), FaultKind::NewerSchema);
    assert!(fault.inside().contains("999"));
    place.raw("DELETE FROM schema_migrations WHERE version = 999").await;
    place.store().await;
}

async fn writers_of_different_names_keep_chains_of_their_own(place: Place) {
    let named = |name: &str| ConnectOptions { writer: name.into(), ..options() };
    let a = place.try_store(named("a")).await.unwrap();
    let b = place.try_store(named("b")).await.unwrap();
    for number in 0..10 {
        let (one, other) = tokio::join!(a.append(row(), at(number)), b.append(row(), at(number)));
        one.unwrap();
        other.unwrap();
    }
    let report = verify(&a, None).await.unwrap();
    assert_eq!((report.rows, report.writers, report.first_bad), (21, 2, None));
    let last = "SELECT writer, CAST(sequence AS TEXT) FROM ledger_heads ORDER BY writer";
    let found = place.raw_texts(last).await;
    assert_eq!(found[1], [Some("b".to_owned()), Some("10".to_owned())]);
}

async fn the_migrations_make_the_columns_of_the_table(place: Place) {
    drop(place.store().await);
    let sql = match &place.kind {
        Kind::Sqlite => "SELECT name, type FROM pragma_table_info('ledger') ORDER BY name".to_owned(),
        Kind::Postgres { schema, .. } => format!(
            "SELECT CAST(column_name AS TEXT), UPPER(data_type) FROM information_schema.columns
              WHERE table_name = 'ledger' AND table_schema = '{schema}' ORDER BY column_name"
        ),
    };
    let mut expected: Vec<Vec<Option<String>>> = COLUMNS
        .iter()
        .map(|column| vec![Some(column.name.to_owned()), Some(column.sql_type.to_owned())])
        .collect();
    expected.sort();
    let mut found = place.raw_texts(&sql).await;
    found.sort();
    assert_eq!(found, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn reads_do_not_wait_for_whoever_holds_the_write_lock() {
    let place = Place::sqlite();
    let store = place.store().await;
    store.append(row(), at(0)).await.unwrap();
    let other = rusqlite::Connection::open(place.path()).unwrap();
    other.execute_batch("BEGIN IMMEDIATE; INSERT INTO meta (name, value) VALUES ('x', 'y')").unwrap();
    let blocked = tokio::spawn({
        let store = store.clone();
        async move { store.append(row(), at(1)).await }
    });
    let began = Instant::now();
    for _ in 0..100 {
        assert_eq!(store.activity(LedgerFilter::default()).await.unwrap().rows.len(), 2);
    }
    let took = began.elapsed();
    assert!(!blocked.is_finished(), "the writer waits for the lock");
    assert!(took < Duration::from_secs(3), "and 100 reads took {took:?}");
    other.execute_batch("ROLLBACK").unwrap();
    blocked.await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_is_never_given_back_is_a_typed_fault() {
    let place = Place::sqlite();
    let store =
        place.try_store(ConnectOptions { patience: Duration::from_millis(50), ..options() }).await.unwrap();
    let other = rusqlite::Connection::open(place.path()).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let fault = store.append(row(), at(1)).await.unwrap_err();
    assert_eq!(fault.kind(), FaultKind::Unavailable);
    other.execute_batch("ROLLBACK").unwrap();
    store.append(row(), at(2)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_line_cut_by_the_server_is_made_again() {
    let Some(place) = Place::postgres().await else { return };
    let store = place.store().await;
    store.append(row(), at(0)).await.unwrap();
    let Kind::Postgres { schema, .. } = &place.kind else { panic!() };
    for round in 1..4 {
        place
            .raw(&format!(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                  WHERE application_name = '{schema}' AND pid <> pg_backend_pid()"
            ))
            .await;
        store.append(row(), at(round)).await.unwrap();
        store.activity(LedgerFilter::default()).await.unwrap();
    }
    assert!(verify(&store, None).await.unwrap().is_clean());
}

#[tokio::test]
async fn places_that_are_none_are_typed_faults() {
    let room = tempfile::tempdir().unwrap();
    let no_folder = StoreUrl::file(room.path().join("a/b/c.db"));
    let fault = countersign_store::Store::connect(&no_folder, options()).await.err().unwrap();
    assert_eq!(fault.kind(), FaultKind::Unavailable);
    let garbage = room.path().join("garbage.db");
    std::fs::write(&garbage, "this is no database, whatever its name says".repeat(100)).unwrap();
    let fault = countersign_store::Store::connect(&StoreUrl::file(&garbage), options()).await.err().unwrap();
    assert_eq!(fault.kind(), FaultKind::Corrupt);
    let nobody: StoreUrl = "postgres://x@127.0.0.1:9/none?connect_timeout=2".parse().unwrap();
    let fault = countersign_store::Store::connect(&nobody, options()).await.err().unwrap();
    assert_eq!(fault.kind(), FaultKind::Unavailable);
    assert!(!fault.outside().contains("127.0.0.1"));
}
