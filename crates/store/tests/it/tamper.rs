//! Tampering: whatever is done to a row past the store, verification finds it and names the place; clean ledgers
//! never raise an alarm.

use countersign_policy::record::{RowKind, RowStatus};
use countersign_policy::refusal::{Code, Refusal};
use countersign_store::ledger::{COLUMNS, Checkpoint, LedgerColumn, PublicKey, Why, checkpoint, verify};
use countersign_store::{CheckpointCadence, ConnectOptions, Entry, Store};
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::{Config, TestRunner};
use serde_json::json;

use crate::place::{Kind, Place, is_long, is_quick, on_both, options};
use crate::plans::approval;
use crate::world::{at, hold, permit_for, record};

on_both!(
    every_column_is_under_the_hash,
    random_mutations_are_found_and_clean_ledgers_are_clean,
    a_cut_end_is_found,
    an_exported_checkpoint_outlives_everything_in_the_store,
    forged_signatures_and_keys_are_found,
    text_cannot_be_moved_between_columns,
);

/// Every column and a value it does not have.
fn changes() -> Vec<(&'static str, &'static str)> {
    let value = |column: &LedgerColumn| match column.name {
        "sequence" => "100000",
        "version" => "1",
        "id" => "'01ARYZ6S410000000000000000'",
        "time" => "time + 1",
        "kind" => "'pack'",
        "role" => "'human'",
        "source" => "'page'",
        "variant" | "effect" => "'read'",
        "mode" => "'ask'",
        "status" => "'success'",
        "arguments" => "'{\"number\": 1}'",
        "approval" | "detail" => "'{}'",
        "host" => "'{\"program\":\"other\"}'",
        "arguments_digest" | "plan_hash" | "result_digest" | "hash" => "prev_hash",
        "prev_hash" => "hash",
        "arguments_from" => "1",
        _ if column.sql_type == "BIGINT" => "7",
        _ => "'other'",
    };
    COLUMNS.iter().map(|column| (column.name, value(column))).collect()
}

/// Rows of every kind, without a checkpoint in between unless asked for.
async fn ledger(place: &Place, rows: i64, every: u32) -> Store {
    let checkpoints = CheckpointCadence { rows: every, ..CheckpointCadence::default() };
    let store = place.try_store(ConnectOptions { checkpoints, ..options() }).await.unwrap();
    for number in 0..rows {
        let now = at(number);
        match number % 5 {
            0 => drop(store.pending(&record(&json!({"number": number}), now), now).await.unwrap()),
            1 => {
                let refusal = Refusal::new(Code::RuleDenied, "no");
                store.refused(&record(&json!({"x": [1.5, null]}), now), &refusal, now).await.unwrap();
            }
            2 => {
                let token = format!("t{number}");
                let id = hold(&store, &token, number as u64, now).await.plan_id;
                let channel = countersign_policy::confirm::RecordedChannel::Page;
                store.approve(&id, approval(channel, number), now).await.unwrap();
                let opened = store.open(permit_for(&store, &token, now).await, now).await.unwrap();
                store.close(opened, crate::calls::success(), now).await.unwrap();
            }
            _ => {
                let entry = Entry::new(RowKind::Config, RowStatus::Success).with_fact("n", number);
                store.append(entry, now).await.unwrap();
            }
        }
    }
    place.unlock().await;
    store
}

async fn every_column_is_under_the_hash(place: Place) {
    let store = ledger(&place, 10, 1000).await;
    assert!(verify(&store, None).await.unwrap().is_clean());
    // The row of a held call that was run: nearly every column has a value.
    let found = place
        .raw_texts("SELECT CAST(sequence AS TEXT) FROM ledger WHERE status = 'allowed' ORDER BY 1")
        .await;
    let sequence = found[0][0].clone().unwrap();
    place.raw("CREATE TABLE kept AS SELECT * FROM ledger").await;
    for (column, value) in changes() {
        for change in [value, "NULL"] {
            let may_be_null = place
                .raw_texts(&format!("SELECT CAST({column} AS TEXT) FROM ledger WHERE sequence = {sequence}"))
                .await[0][0]
                .is_some();
            let required = [
                "writer",
                "sequence",
                "version",
                "id",
                "time",
                "kind",
                "status",
                "prev_hash",
                "hash",
                "position",
            ];
            if change == "NULL" && (!may_be_null || required.contains(&column)) {
                continue;
            }
            place.raw(&format!("UPDATE ledger SET {column} = {change} WHERE sequence = {sequence}")).await;
            let bad = verify(&store, None).await.unwrap().first_bad;
            let bad = bad.unwrap_or_else(|| panic!("{column} = {change} was not found"));
            if !["writer", "sequence"].contains(&column) {
                assert_eq!((bad.sequence.to_string(), bad.why), (sequence.clone(), Why::Changed), "{column}");
            }
            place.raw("DELETE FROM ledger; INSERT INTO ledger SELECT * FROM kept").await;
        }
    }
    assert!(verify(&store, None).await.unwrap().is_clean(), "and put back as it was, it is clean");
}

#[derive(Clone, Debug)]
enum Deed {
    Change { row: u64, column: usize },
    Drop { row: u64 },
    Swap { one: u64, other: u64 },
    Truncate { keep: u64 },
    Duplicate { row: u64 },
}

fn deeds(rows: u64) -> impl Strategy<Value = Deed> {
    let columns = changes().len();
    let row = 1..=rows;
    prop_oneof![
        4 => (row.clone(), 0..columns).prop_map(|(row, column)| Deed::Change { row, column }),
        2 => row.clone().prop_map(|row| Deed::Drop { row }),
        2 => (row.clone(), row.clone())
            .prop_filter("two rows", |(one, other)| one != other)
            .prop_map(|(one, other)| Deed::Swap { one, other }),
        1 => (0..rows).prop_map(|keep| Deed::Truncate { keep }),
        1 => row.prop_map(|row| Deed::Duplicate { row }),
    ]
}

fn sql(deed: &Deed, rows: u64) -> String {
    match deed {
        Deed::Change { row, column } => {
            let (name, value) = changes()[*column];
            // A value that the row happens to have is no change.
            format!("UPDATE ledger SET {name} = {value} WHERE sequence = {row}")
        }
        Deed::Drop { row } => format!("DELETE FROM ledger WHERE sequence = {row}"),
        Deed::Swap { one, other } => format!(
            "UPDATE ledger SET sequence = -1 WHERE sequence = {one};
             UPDATE ledger SET sequence = {one} WHERE sequence = {other};
             UPDATE ledger SET sequence = {other} WHERE sequence = -1"
        ),
        Deed::Truncate { keep } => format!("DELETE FROM ledger WHERE sequence > {keep}"),
        Deed::Duplicate { row } => format!(
            "CREATE TABLE copied AS SELECT * FROM ledger WHERE sequence = {row};
             UPDATE copied SET sequence = {rows} + 1, id = '7ZZZZZZZZZZZZZZZZZZZZZZZZZ', position = 9000000000000000;
             INSERT INTO ledger SELECT * FROM copied; DROP TABLE copied"
        ),
    }
}

/// The lowest place at which the deed can be seen, and what it may be called.
fn expected(deed: &Deed, rows: u64) -> (u64, Vec<Why>) {
    match deed {
        Deed::Change { row, column } => match changes()[*column].0 {
            "writer" | "sequence" => (*row, vec![Why::Missing, Why::Truncated, Why::Reordered, Why::Foreign]),
            _ => (*row, vec![Why::Changed]),
        },
        Deed::Drop { row } if *row == rows => (*row, vec![Why::Truncated]),
        Deed::Drop { row } => (*row, vec![Why::Missing]),
        Deed::Swap { one, other } => (*one.min(other), vec![Why::Reordered]),
        Deed::Truncate { keep } => (keep + 1, vec![Why::Truncated]),
        Deed::Duplicate { .. } => (rows + 1, vec![Why::Foreign, Why::Changed]),
    }
}

async fn random_mutations_are_found_and_clean_ledgers_are_clean(place: Place) {
    let store = ledger(&place, 12, 1000).await;
    let rows = verify(&store, None).await.unwrap().rows;
    place.raw("CREATE TABLE kept AS SELECT * FROM ledger").await;
    let cases = match () {
        () if is_long() => 2_000,
        () if is_quick() => 20,
        () => 150,
    };
    // Cases come from one seed, so that a failure can be looked at again.
    let mut runner = TestRunner::new_with_rng(
        Config::default(),
        proptest::test_runner::TestRng::deterministic_rng(proptest::test_runner::RngAlgorithm::ChaCha),
    );
    let strategy = deeds(rows);
    for case in 0..cases {
        let deed = strategy.new_tree(&mut runner).unwrap().current();
        assert_eq!(verify(&store, None).await.unwrap().first_bad, None, "clean before case {case}");
        place.raw(&sql(&deed, rows)).await;
        let differs =
            "SELECT CAST(COUNT(*) AS TEXT) FROM (SELECT * FROM ledger EXCEPT SELECT * FROM kept) AS x";
        let gone = "SELECT CAST(COUNT(*) AS TEXT) FROM (SELECT * FROM kept EXCEPT SELECT * FROM ledger) AS x";
        let same = |found: Vec<Vec<Option<String>>>| found[0][0].as_deref() == Some("0");
        if same(place.raw_texts(differs).await) && same(place.raw_texts(gone).await) {
            continue;
        }
        let bad = verify(&store, None).await.unwrap().first_bad;
        let bad = bad.unwrap_or_else(|| panic!("case {case} was not found: {deed:?}"));
        let (place_of, names) = expected(&deed, rows);
        let is_move = matches!(&deed, Deed::Change { column, .. } if changes()[*column].0 == "writer");
        assert!(is_move || bad.sequence == place_of, "case {case}: {deed:?} {bad:?}");
        assert!(names.contains(&bad.why), "case {case}: {deed:?} {bad:?}");
        place.raw("DELETE FROM ledger; INSERT INTO ledger SELECT * FROM kept").await;
    }
    println!("{cases} mutations");
}

async fn a_cut_end_is_found(place: Place) {
    let store = ledger(&place, 10, 1000).await;
    let rows = verify(&store, None).await.unwrap().rows;
    // The one who cuts also moves the recorded end; what is kept signed tells.
    checkpoint(&store).await.unwrap();
    place
        .raw(&format!(
            "DELETE FROM ledger WHERE sequence > {rows} - 3;
             UPDATE ledger_heads SET sequence = {rows} - 3,
                    hash = (SELECT hash FROM ledger WHERE sequence = {rows} - 3)"
        ))
        .await;
    let bad = verify(&store, None).await.unwrap().first_bad.unwrap();
    assert_eq!((bad.sequence, bad.why), (rows - 2, Why::Truncated));
}

async fn an_exported_checkpoint_outlives_everything_in_the_store(place: Place) {
    let store = ledger(&place, 10, 4).await;
    let exported = checkpoint(&store).await.unwrap().to_string();
    let outside: Checkpoint = exported.parse().unwrap();
    assert!(verify(&store, Some(&outside)).await.unwrap().is_clean());
    store.append(Entry::new(RowKind::Config, RowStatus::Success), at(100)).await.unwrap();
    assert!(verify(&store, Some(&outside)).await.unwrap().is_clean(), "rows may be added after it");

    // Everything that could tell is cut to fit: only the checkpoint from outside remembers.
    let rows = outside.heads[0].sequence;
    place
        .raw(&format!(
            "DELETE FROM ledger WHERE sequence > {rows} - 2; DELETE FROM checkpoints;
             UPDATE ledger_heads SET sequence = {rows} - 2,
                    hash = (SELECT hash FROM ledger WHERE sequence = {rows} - 2)"
        ))
        .await;
    assert!(verify(&store, None).await.unwrap().is_clean(), "nobody inside can tell");
    let bad = verify(&store, Some(&outside)).await.unwrap().first_bad.unwrap();
    assert_eq!((bad.sequence, bad.why), (rows - 1, Why::Truncated));
    // Written over with other rows, it shows as well.
    for number in 0..5 {
        store.append(Entry::new(RowKind::Config, RowStatus::Success), at(200 + number)).await.unwrap();
    }
    let bad = verify(&store, Some(&outside)).await.unwrap().first_bad.unwrap();
    assert_eq!((bad.sequence, bad.why), (rows, Why::Changed));
}

async fn forged_signatures_and_keys_are_found(place: Place) {
    let store = ledger(&place, 6, 1000).await;
    let outside = checkpoint(&store).await.unwrap();
    let check =
        async |given: &Checkpoint| verify(&store, Some(given)).await.unwrap().first_bad.map(|bad| bad.why);
    assert_eq!(check(&outside).await, None);

    let mut forged = outside.clone();
    forged.heads[0].sequence -= 1;
    assert_eq!(check(&forged).await, Some(Why::BadSignature));
    let mut forged = outside.clone();
    forged.signature = "00".repeat(64);
    assert_eq!(check(&forged).await, Some(Why::BadSignature));

    // A checkpoint of another store is honestly signed, by a key that is not ours.
    let elsewhere = Place::sqlite();
    let theirs = checkpoint(&ledger(&elsewhere, 3, 1000).await).await.unwrap();
    assert_eq!(check(&theirs).await, Some(Why::Foreign));

    // Whatever the store says about keys is not believed.
    place.raw(&format!("UPDATE signing_keys SET public_key = '{}'", theirs.public_key)).await;
    assert_eq!(check(&theirs).await, Some(Why::Foreign));
    assert_eq!(check(&outside).await, None);

    // The key file is lost: a new one is made, and what the old one signed is not believed until its public half is listed.
    drop(store);
    std::fs::remove_file(place.key_file()).unwrap();
    let store = place.store().await;
    let bad = verify(&store, Some(&outside)).await.unwrap().first_bad.unwrap();
    let old = PublicKey::from_hex(&outside.public_key).unwrap();
    assert_eq!((bad.why, bad.key), (Why::Foreign, Some(old.fingerprint())), "and the key is named");
    drop(store);
    let kept = std::fs::read_to_string(place.key_file()).unwrap();
    std::fs::write(place.key_file(), format!("{kept}countersign-ed25519-public-v1 {}\n", old.hex())).unwrap();
    let store = place.store().await;
    let report = verify(&store, Some(&outside)).await.unwrap();
    assert_eq!((report.keys, report.first_bad), (2, None));
    // A kept checkpoint that was edited is found without any from outside.
    place.raw("UPDATE checkpoints SET body = REPLACE(body, '\"sequence\":', '\"sequence\":1')").await;
    assert_eq!(verify(&store, None).await.unwrap().first_bad.unwrap().why, Why::BadSignature);
}

/// Kept JSON goes into the hashed text as it is; a text that is more than one value must not pass for two columns.
async fn text_cannot_be_moved_between_columns(place: Place) {
    let store = ledger(&place, 6, 1000).await;
    let join = match place.kind {
        Kind::Sqlite | Kind::Postgres { .. } => {
            "UPDATE ledger SET arguments = arguments || ',\"arguments_digest\":\"' || arguments_digest || '\"',
                    arguments_digest = NULL
              WHERE sequence = (SELECT MIN(sequence) FROM ledger WHERE arguments IS NOT NULL)"
        }
    };
    place.raw(join).await;
    assert_eq!(verify(&store, None).await.unwrap().first_bad.unwrap().why, Why::Changed);
}
