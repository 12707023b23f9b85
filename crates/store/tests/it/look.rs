//! Opened to be read: what is there is seen, beside a writer too; nothing is made, brought up to date or written, and a store of
//! another version is refused.

use countersign_policy::record::{RowKind, RowStatus};
use countersign_policy::refusal::Code;
use countersign_store::ledger::verify;
use countersign_store::{ConnectOptions, Entry, FaultKind, LedgerFilter, Store, StoreFault, StoreUrl};

use crate::place::{Kind, Place, on_both, options};
use crate::world::at;

on_both!(
    a_store_is_looked_at_beside_its_writer_and_never_written,
    a_store_of_another_version_is_refused_and_left_as_it_is,
    where_nothing_was_kept_nothing_is_made,
);

fn row() -> Entry {
    Entry::new(RowKind::System, RowStatus::Success)
}

async fn look(place: &Place) -> Result<Store, StoreFault> {
    let options = ConnectOptions { key_file: Some(place.key_file()), ..options() };
    Store::connect_to_read(&place.url().parse::<StoreUrl>().unwrap(), options).await
}

/// What lies in the folder, but for the log that SQLite keeps while anybody has the file open.
fn files(place: &Place) -> Vec<String> {
    let names = std::fs::read_dir(place.room.path()).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> =
        names.filter(|name| !name.ends_with("-wal") && !name.ends_with("-shm")).collect();
    names.sort();
    names
}

async fn rows(store: &Store) -> usize {
    store.activity(LedgerFilter::default()).await.unwrap().rows.len()
}

async fn a_store_is_looked_at_beside_its_writer_and_never_written(place: Place) {
    let writes = place.store().await;
    writes.append(row(), at(1)).await.unwrap();
    let before = files(&place);
    let looks = look(&place).await.unwrap();
    assert_eq!(files(&place), before, "no file says that somebody looks");
    let seen = rows(&looks).await;
    writes.append(row(), at(2)).await.unwrap();
    assert_eq!(rows(&looks).await, seen + 1, "what is written meanwhile is seen");
    assert!(verify(&looks, None).await.unwrap().is_clean());
    assert_eq!(looks.salt(), writes.salt());
    let fault = looks.append(row(), at(3)).await.unwrap_err();
    assert_eq!((fault.kind(), fault.refusal().code), (FaultKind::ReadOnly, Code::LedgerUnavailable));
    // The writer goes, and it can still be looked at; and again.
    drop(writes);
    assert_eq!(rows(&looks).await, seen + 1);
    drop(looks);
    assert_eq!(rows(&look(&place).await.unwrap()).await, seen + 1);
}

async fn a_store_of_another_version_is_refused_and_left_as_it_is(place: Place) {
    drop(place.store().await);
    let steps = "SELECT CAST(version AS TEXT) FROM schema_migrations ORDER BY schema_migrations.version";
    let newest = place.raw_texts(steps).await;
    place.raw("INSERT INTO schema_migrations (version, name, applied) VALUES (999, 'later', 0)").await;
    let fault = look(&place).await.err().unwrap();
    assert_eq!((fault.kind(), fault.refusal().code), (FaultKind::NewerSchema, Code::StoreUnavailable));
    assert!(fault.inside().contains("999"), "{}", fault.inside());
    let last = newest.last().unwrap()[0].clone().unwrap();
    place.raw(&format!("DELETE FROM schema_migrations WHERE version IN (999, {last})")).await;
    let fault = look(&place).await.err().unwrap();
    assert_eq!((fault.kind(), fault.refusal().code), (FaultKind::OlderSchema, Code::StoreUnavailable));
    assert!(fault.outside().contains("older version"), "{fault}");
    assert_eq!(place.raw_texts(steps).await.len() + 1, newest.len(), "nothing was brought up to date");
}

async fn where_nothing_was_kept_nothing_is_made(place: Place) {
    if let Kind::Sqlite = place.kind {
        // A database of somebody else's.
        place.raw("CREATE TABLE theirs (a TEXT)").await;
    }
    assert_eq!(look(&place).await.err().unwrap().kind(), FaultKind::Empty);
    let tables = match place.kind {
        Kind::Sqlite => "SELECT name FROM sqlite_schema WHERE name <> 'theirs'",
        Kind::Postgres { .. } => {
            "SELECT CAST(tablename AS TEXT) FROM pg_tables WHERE schemaname = current_schema()"
        }
    };
    assert!(place.raw_texts(tables).await.is_empty());
    if let Kind::Sqlite = place.kind {
        std::fs::remove_file(place.path()).unwrap();
        assert!(look(&place).await.is_err());
        assert!(!place.path().exists(), "a file that is not there is not made");
    }
}
