//! Retention: old rows go behind a signed tombstone, after an export, and what remains is proven as before.

use std::path::PathBuf;

use countersign_policy::digest::Digest;
use countersign_policy::record::{RowKind, RowStatus};
use countersign_store::ledger::{
    ArchiveFile, ArchiveReport, PruneRefused, PruneReport, Tombstone, Why, checkpoint, verify, verify_archive,
};
use countersign_store::{ConnectOptions, Entry, LedgerFilter, Store};
use serde_json::Value;

use crate::place::{Kind, Place, on_both, options};
use crate::plans::approval;
use crate::world::{at, hold, permit_for};

on_both!(
    old_rows_go_behind_a_tombstone_and_the_rest_verifies,
    pruning_goes_on_where_it_ended_and_keeps_every_chain,
    rows_of_an_open_plan_stay_and_so_does_everything_after_them,
    an_export_that_fails_prunes_nothing,
    attack_a_changed_row_is_not_pruned,
    attack_rows_removed_beyond_the_tombstone_are_found,
    attack_a_forged_tombstone_is_found,
    attack_a_prune_that_no_tombstone_covers_is_found,
    attack_a_tampered_archive_is_found,
    the_database_lets_rows_go_only_behind_a_tombstone,
);

/// Long after every row: those of the last hour are never removed.
const LATER: i64 = 10_000;

async fn fill(store: &Store, from: i64, until: i64) {
    for number in from..until {
        let entry = Entry::new(RowKind::Config, RowStatus::Success).with_fact("n", number);
        store.append(entry, at(number)).await.unwrap();
    }
}

fn archive_path(place: &Place, name: &str) -> PathBuf {
    place.key_file().with_file_name("ledger-archive").join(name)
}

async fn prune(store: &Store, place: &Place, before: i64, name: &str) -> PruneReport {
    let mut archive = ArchiveFile::new(archive_path(place, name));
    store.prune(at(before), u64::MAX, &mut archive, None, at(LATER)).await.unwrap()
}

async fn sequences(store: &Store) -> Vec<u64> {
    let page = store.activity(LedgerFilter { limit: Some(1000), ..LedgerFilter::default() }).await.unwrap();
    page.rows.iter().rev().map(|row| row.sequence).collect()
}

async fn old_rows_go_behind_a_tombstone_and_the_rest_verifies(place: Place) {
    let store = place.store().await;
    fill(&store, 0, 20).await;
    let outside = checkpoint(&store).await.unwrap();
    let before = store.prunable(at(10), at(LATER)).await.unwrap();
    // The row of the key was written at the epoch; row 2 is that of second 0.
    assert_eq!((before[0].first, before[0].through), (1, 11));
    assert_eq!(sequences(&store).await.len(), 21, "looking removes nothing");
    assert!(
        store.prunable(at(10), at(30)).await.unwrap().iter().all(|range| range.through == 1),
        "the last hour stays"
    );
    let done = prune(&store, &place, 10, "a.jsonl").await;
    assert_eq!((done.rows, done.tombstones.len(), done.has_more), (11, 1, false));
    assert_eq!(sequences(&store).await, (12..=22).collect::<Vec<_>>(), "and the row that says so");
    let report = verify(&store, Some(&outside)).await.unwrap();
    assert_eq!((report.rows, report.pruned, report.first_bad), (11, 11, None));
    // The archive is the rows as they were exported, private, and its digest is signed.
    let path = archive_path(&place, "a.jsonl");
    let text = std::fs::read_to_string(&path).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(lines.windows(2).all(|pair| pair[1]["prev_hash"] == pair[0]["hash"]));
    assert_eq!(
        (lines.len(), lines[10]["hash"].as_str().unwrap().to_owned()),
        (11, done.tombstones[0].hash.hex())
    );
    assert_eq!(done.tombstones[0].archive.sha256, Digest::plain(text.as_bytes()));
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }
    // The prune is a row, and the chain goes on.
    let rows = store
        .activity(LedgerFilter { kind: Some(RowKind::System), ..LedgerFilter::default() })
        .await
        .unwrap()
        .rows;
    let detail = rows[0].detail.as_ref().unwrap().value();
    assert_eq!((&detail["action"], &detail["through"]), (&"prune".into(), &11.into()));
    drop(store);
    let store = place.store().await;
    fill(&store, LATER + 1, LATER + 3).await;
    assert!(verify(&store, Some(&outside)).await.unwrap().is_clean());
}

async fn pruning_goes_on_where_it_ended_and_keeps_every_chain(place: Place) {
    let named = |name: &str| ConnectOptions { writer: name.into(), ..options() };
    let (a, b) = (place.try_store(named("a")).await.unwrap(), place.try_store(named("b")).await.unwrap());
    fill(&a, 0, 30).await;
    fill(&b, 0, 30).await;
    let mut archive = ArchiveFile::new(archive_path(&place, "all.jsonl"));
    let first = a.prune(at(20), 7, &mut archive, Some(&"ada".into()), at(LATER)).await.unwrap();
    assert_eq!((first.rows, first.has_more), (7, true), "at most so many");
    let second = a.prune(at(20), 1000, &mut archive, Some(&"ada".into()), at(LATER)).await.unwrap();
    assert_eq!((second.rows, second.has_more), (21 + 20 - 7, false));
    let later = prune(&b, &place, 25, "later.jsonl").await;
    assert_eq!(later.rows, 10);
    let report = verify(&b, None).await.unwrap();
    assert_eq!((report.pruned, report.writers, report.first_bad), (51, 2, None));
    for (name, rows) in [("all.jsonl", 41), ("later.jsonl", 10)] {
        let found = verify_archive(&a, a.trusted_keys(), &archive_path(&place, name)).await.unwrap().unwrap();
        assert_eq!(found, ArchiveReport::Whole { rows }, "{name}");
    }
    // Whatever the moment, the last row of a chain stays.
    let done = prune(&a, &place, 100_000, "rest.jsonl").await;
    assert!(done.rows > 0 && sequences(&a).await.len() > 1);
    assert!(verify(&a, None).await.unwrap().is_clean());
    let nothing = prune(&a, &place, -100, "none.jsonl").await;
    assert_eq!(nothing.rows, 0);
    assert!(!archive_path(&place, "none.jsonl").exists(), "nothing to archive is no file");
}

async fn rows_of_an_open_plan_stay_and_so_does_everything_after_them(place: Place) {
    let store = place.store().await;
    fill(&store, 0, 5).await;
    let id = hold(&store, "t", 1, at(5)).await.plan_id;
    fill(&store, 6, 10).await;
    let done = prune(&store, &place, 100, "a.jsonl").await;
    assert_eq!(done.tombstones[0].through, 6, "the seventh row is that of the pending plan");
    // Back to the plan's time.
    store.trust_clock(&"ada".into(), at(10)).await.unwrap();
    store
        .approve(&id, approval(countersign_policy::confirm::RecordedChannel::Page, 10), at(10))
        .await
        .unwrap();
    assert_eq!(prune(&store, &place, 100, "b.jsonl").await.rows, 0, "approved is open, too");
    let opened = store.open(permit_for(&store, "t", at(11)).await, at(11)).await.unwrap();
    assert_eq!(prune(&store, &place, 100, "c.jsonl").await.rows, 0, "and so is a call under way");
    store.close(opened, crate::calls::success(), at(12)).await.unwrap();
    assert!(prune(&store, &place, 100, "d.jsonl").await.rows > 0, "what is over may go");
    assert!(verify(&store, None).await.unwrap().is_clean());
}

async fn an_export_that_fails_prunes_nothing(place: Place) {
    let store = place.store().await;
    fill(&store, 0, 5).await;
    let folder = archive_path(&place, "x").parent().unwrap().to_owned();
    std::fs::create_dir_all(&folder).unwrap();
    // A file that is there is not replaced, and a folder that is none holds no file.
    std::fs::write(folder.join("there.jsonl"), "mine").unwrap();
    for path in [folder.join("there.jsonl"), folder.join("there.jsonl/x.jsonl")] {
        let mut archive = ArchiveFile::new(&path);
        let refused = store.prune(at(4), u64::MAX, &mut archive, None, at(LATER)).await.unwrap_err();
        assert!(matches!(refused, PruneRefused::Archive(_)), "{refused:?}");
    }
    assert_eq!(std::fs::read_to_string(folder.join("there.jsonl")).unwrap(), "mine");
    assert_eq!(sequences(&store).await.len(), 6);
    assert!(place.raw_texts("SELECT writer FROM ledger_tombstones").await.is_empty());
    assert!(verify(&store, None).await.unwrap().is_clean());
}

async fn attack_a_changed_row_is_not_pruned(place: Place) {
    let store = place.store().await;
    fill(&store, 0, 10).await;
    place.unlock().await;
    place.raw("UPDATE ledger SET principal = 'mallory' WHERE sequence = 4").await;
    let mut archive = ArchiveFile::new(archive_path(&place, "a.jsonl"));
    let refused = store.prune(at(8), u64::MAX, &mut archive, None, at(LATER)).await.unwrap_err();
    drop(archive);
    assert!(matches!(&refused, PruneRefused::Tampered(bad) if bad.sequence == 4), "{refused:?}");
    assert_eq!(sequences(&store).await.len(), 11, "nothing was removed that would hide it");
    assert!(!archive_path(&place, "a.jsonl").exists());
    assert_eq!(verify(&store, None).await.unwrap().first_bad.unwrap().sequence, 4);
}

async fn attack_rows_removed_beyond_the_tombstone_are_found(place: Place) {
    let store = place.store().await;
    fill(&store, 0, 20).await;
    let outside = checkpoint(&store).await.unwrap();
    prune(&store, &place, 10, "a.jsonl").await;
    place.unlock().await;
    place.raw("CREATE TABLE kept AS SELECT * FROM ledger").await;
    let cases = [
        ("DELETE FROM ledger WHERE sequence = 12", 12, Why::Missing),
        ("DELETE FROM ledger WHERE sequence <= 15", 12, Why::Missing),
        ("DELETE FROM ledger WHERE sequence >= 18", 18, Why::Truncated),
        ("UPDATE ledger SET principal = 'mallory' WHERE sequence = 12", 12, Why::Changed),
        ("UPDATE ledger SET position = position - 1 WHERE sequence = 12", 12, Why::Changed),
        (
            "UPDATE ledger SET sequence = 900 WHERE sequence = 13;
          UPDATE ledger SET sequence = 13 WHERE sequence = 14;
          UPDATE ledger SET sequence = 14 WHERE sequence = 900",
            13,
            Why::Reordered,
        ),
    ];
    for (sql, sequence, why) in cases {
        place.raw(sql).await;
        let bad = verify(&store, Some(&outside)).await.unwrap().first_bad.unwrap_or_else(|| panic!("{sql}"));
        assert_eq!((bad.sequence, bad.why), (sequence, why), "{sql}");
        place.raw("DELETE FROM ledger; INSERT INTO ledger SELECT * FROM kept").await;
    }
    // Everything gone, head and all: what was kept outside tells.
    place.raw("DELETE FROM ledger; DELETE FROM ledger_heads").await;
    let bad = verify(&store, Some(&outside)).await.unwrap().first_bad.unwrap();
    assert_eq!(bad.why, Why::Foreign);
}

/// The newest tombstone of the store as JSON.
async fn body(place: &Place) -> Value {
    let found = place.raw_texts("SELECT body FROM ledger_tombstones ORDER BY through DESC").await;
    serde_json::from_str(found[0][0].as_deref().unwrap()).unwrap()
}

async fn set_body(place: &Place, through: u64, body: &str) {
    let body = body.replace('\'', "''");
    place.raw(&format!("UPDATE ledger_tombstones SET body = '{body}', through = {through}")).await;
}

async fn attack_a_forged_tombstone_is_found(place: Place) {
    let store = place.store().await;
    fill(&store, 0, 20).await;
    prune(&store, &place, 10, "a.jsonl").await;
    place.unlock().await;
    let good = body(&place).await;
    // Any word of it that is not what was signed.
    for (name, value) in [
        ("through", Value::from(12)),
        ("hash", good["prev_hash"].clone()),
        ("first", 2.into()),
        ("writer", "other".into()),
        ("position", 7.into()),
        ("time", "2020-01-01T00:00:00Z".into()),
    ] {
        let mut bent = good.clone();
        bent[name] = value;
        set_body(&place, bent["through"].as_u64().unwrap(), &bent.to_string()).await;
        let bad = verify(&store, None).await.unwrap().first_bad.unwrap_or_else(|| panic!("{name}"));
        assert_eq!((bad.sequence, bad.why), (1, Why::BadSignature), "{name}");
    }
    set_body(&place, 11, "{}").await;
    assert_eq!(verify(&store, None).await.unwrap().first_bad.unwrap().why, Why::BadSignature);
    // A tombstone with a good signature by a key of the attacker's own, over more rows than were pruned.
    let other = Place::sqlite();
    let forger = other.store().await;
    fill(&forger, 0, 20).await;
    prune(&forger, &other, 12, "b.jsonl").await;
    let forged = body(&other).await;
    let through = forged["through"].as_u64().unwrap();
    place.raw(&format!("DELETE FROM ledger WHERE sequence <= {through}")).await;
    set_body(&place, through, &forged.to_string()).await;
    let bad = verify(&store, None).await.unwrap().first_bad.unwrap();
    assert_eq!((bad.sequence, bad.why), (1, Why::Foreign));
    let key = forged["public_key"].as_str().unwrap();
    let key = countersign_store::ledger::PublicKey::from_hex(key).unwrap().fingerprint();
    assert_eq!(bad.key, Some(key), "and the key is named");
    // Nobody prunes on top of it.
    let mut archive = ArchiveFile::new(archive_path(&place, "c.jsonl"));
    let refused = store.prune(at(15), u64::MAX, &mut archive, None, at(2 * LATER)).await.unwrap_err();
    assert!(matches!(refused, PruneRefused::Tampered(_)), "{refused:?}");
}

async fn attack_a_prune_that_no_tombstone_covers_is_found(place: Place) {
    let store = place.store().await;
    fill(&store, 0, 30).await;
    prune(&store, &place, 10, "a.jsonl").await;
    prune(&store, &place, 20, "b.jsonl").await;
    place.unlock().await;
    place.raw("CREATE TABLE buried AS SELECT * FROM ledger_tombstones").await;
    for (sql, sequence) in [
        ("DELETE FROM ledger_tombstones", 1),
        ("DELETE FROM ledger_tombstones WHERE through = 11", 1),
        ("DELETE FROM ledger_tombstones WHERE through = 21", 12),
        ("UPDATE ledger_tombstones SET through = 40 WHERE through = 21", 12),
        ("UPDATE ledger_tombstones SET writer = 'other' WHERE through = 21", 1),
    ] {
        place.raw(sql).await;
        let bad = verify(&store, None).await.unwrap().first_bad.unwrap_or_else(|| panic!("{sql}"));
        assert_eq!(bad.sequence, sequence, "{sql}: {bad:?}");
        place.raw("DELETE FROM ledger_tombstones; INSERT INTO ledger_tombstones SELECT * FROM buried").await;
    }
    assert!(verify(&store, None).await.unwrap().is_clean());
}

async fn attack_a_tampered_archive_is_found(place: Place) {
    let store = place.store().await;
    fill(&store, 0, 20).await;
    let done = prune(&store, &place, 10, "a.jsonl").await;
    let path = archive_path(&place, "a.jsonl");
    let good = std::fs::read_to_string(&path).unwrap();
    let look = async || verify_archive(&store, store.trusted_keys(), &path).await.unwrap().unwrap();
    assert_eq!(look().await, ArchiveReport::Whole { rows: 11 });
    let lines: Vec<&str> = good.lines().collect();
    let tampered = [
        good.replacen("\"n\":3", "\"n\":4", 1),
        format!("{}\n", lines[1..].join("\n")),
        format!("{}\n", lines[..10].join("\n")),
        format!("{good}{{}}\n"),
        String::new(),
    ];
    let Tombstone { writer, first, through, .. } = done.tombstones[0].clone();
    for text in tampered {
        std::fs::write(&path, &text).unwrap();
        let changed = ArchiveReport::Changed { writer: writer.clone(), first, through };
        assert_eq!(look().await, changed, "{} bytes", text.len());
    }
    std::fs::write(&path, &good).unwrap();
    assert_eq!(
        verify_archive(&store, &[], &path).await.unwrap().unwrap(),
        ArchiveReport::Unknown,
        "by no key"
    );
}

async fn the_database_lets_rows_go_only_behind_a_tombstone(place: Place) {
    let store = place.store().await;
    fill(&store, 0, 20).await;
    prune(&store, &place, 10, "a.jsonl").await;
    for sql in [
        "DELETE FROM ledger",
        "DELETE FROM ledger WHERE sequence = 12",
        "UPDATE ledger SET principal = 'mallory'",
        "UPDATE ledger_tombstones SET through = 15",
        "DELETE FROM ledger_tombstones",
    ] {
        assert!(!place.try_raw(sql).await, "{sql}");
    }
    if let Kind::Postgres { .. } = &place.kind {
        assert!(!place.try_raw("TRUNCATE ledger_tombstones").await);
    }
    assert!(verify(&store, None).await.unwrap().is_clean());
}
