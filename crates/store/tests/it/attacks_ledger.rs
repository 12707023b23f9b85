//! Attacks on the ledger: rows rewritten and signed again, rows changed past the store, listings out of order.

use std::sync::{Arc, Mutex};

use countersign_policy::digest::{Digest, DigestDomain};
use countersign_policy::ids::LedgerId;
use countersign_policy::record::{RowKind, RowStatus};
use countersign_store::ledger::{
    Checkpoint, CheckpointFile, CheckpointSink, Format, LedgerFilter, LedgerRow, Why, checkpoint,
    keys_beside, verify, verify_with,
};
use countersign_store::{CheckpointCadence, ConnectOptions, Entry, Store, StoreUrl};
use serde_json::Value;

use crate::place::{Kind, Place, on_both, options};
use crate::world::{at, hold, record};

on_both!(
    attack_08_a_rewritten_and_resigned_ledger_does_not_verify,
    attack_08_a_copy_elsewhere_verifies_with_the_key_and_not_without,
    attack_08_checkpoints_are_kept_outside_by_default_and_show_truncation,
    attack_08_a_sink_that_fails_is_a_row_once,
    attack_14_rows_of_the_ledger_cannot_be_changed_removed_or_replaced,
    attack_18_listings_follow_the_chain_whatever_the_clock_did,
    attack_18_pages_of_several_writers_miss_and_repeat_nothing,
    attack_18_a_time_span_finds_rows_from_before_a_clock_step,
);

fn row(number: i64) -> Entry {
    Entry::new(RowKind::Config, RowStatus::Success).with_fact("n", number)
}

async fn with_rows(place: &Place, rows: i64, sinks: Vec<Arc<dyn CheckpointSink>>) -> Store {
    let checkpoints = CheckpointCadence { rows: 4, ..CheckpointCadence::default() };
    let store = place.try_store(ConnectOptions { checkpoints, sinks, ..options() }).await.unwrap();
    for number in 0..rows {
        store.append(row(number), at(number)).await.unwrap();
    }
    store
}

/// Every row after the one that was changed gets the hash it would have had.
pub(crate) async fn rehash(place: &Place) {
    let lines = "SELECT CAST(sequence AS TEXT) FROM ledger ORDER BY ledger.sequence";
    let mut previous = Digest::of(DigestDomain::LedgerGenesis, b"main").hex();
    for found in place.raw_texts(lines).await {
        let sequence = found[0].clone().unwrap();
        // A store of the attacker's own computes the hash: the row is read, given its new place and written again.
        let text = place
            .raw_texts(&format!(
                "SELECT id, kind, status, detail, CAST(time AS TEXT), CAST(version AS TEXT) FROM ledger WHERE sequence = {sequence}"
            ))
            .await[0]
            .clone();
        let field = |at: usize| text[at].clone().unwrap();
        let time: i64 = field(4).parse().unwrap();
        let value: Value = serde_json::json!({
            "detail": serde_json::from_str::<Value>(&field(3)).unwrap(),
            "id": field(0), "kind": field(1), "prev_hash": previous, "sequence": sequence.parse::<u64>().unwrap(),
            "status": field(2), "time": jiff::Timestamp::from_microsecond(time).unwrap().to_string(),
            "v": field(5).parse::<u32>().unwrap(), "writer": "main",
        });
        let body = countersign_policy::canonical::to_string(&value);
        let before: Digest = previous.parse().unwrap();
        let hash = Digest::of_parts(DigestDomain::LedgerRow, &[before.bytes(), body.as_bytes()]).hex();
        place
            .raw(&format!(
                "UPDATE ledger SET prev_hash = '{previous}', hash = '{hash}' WHERE sequence = {sequence}"
            ))
            .await;
        previous = hash;
    }
    place.raw(&format!("UPDATE ledger_heads SET hash = '{previous}'")).await;
}

async fn attack_08_a_rewritten_and_resigned_ledger_does_not_verify(place: Place) {
    let room = place.room.path().join("state");
    let file = CheckpointFile::new(room.join("outside.jsonl"));
    let store = with_rows(&place, 12, vec![Arc::new(file.clone())]).await;
    checkpoint(&store).await.unwrap();
    let own = store.trusted_keys().to_vec();
    let outside = file.read().unwrap();
    assert!(!outside.is_empty());
    assert!(verify_with(&store, &own, &outside).await.unwrap().is_clean());
    drop(store);

    // Somebody who owns the database rewrites a row and the chain after it, and signs with a key of their own.
    place.unlock().await;
    place.raw("UPDATE ledger SET detail = '{\"n\":666}' WHERE sequence = 5; DELETE FROM checkpoints; DELETE FROM signing_keys").await;
    rehash(&place).await;
    let key = std::fs::read(place.key_file()).unwrap();
    std::fs::remove_file(place.key_file()).unwrap();
    let forger = place.store().await;
    checkpoint(&forger).await.unwrap();
    assert!(verify(&forger, None).await.unwrap().is_clean(), "to the forger's own key all is well");
    let forged = forger.trusted_keys()[0];
    drop(forger);
    std::fs::write(place.key_file(), key).unwrap();

    let store = place.store().await;
    assert_eq!(store.trusted_keys(), own);
    let bad = verify(&store, None).await.unwrap().first_bad.expect("the forged signature is noticed");
    assert_eq!((bad.why, bad.key), (Why::Foreign, Some(forged.fingerprint())));
    // The file outside knows the rows as they were; removed or replaced by the forger's, the key still tells.
    let bad = verify_with(&store, &own, &outside).await.unwrap().first_bad.unwrap();
    assert_eq!(bad.why, Why::Changed);
    let theirs: Vec<Checkpoint> = place
        .raw_texts("SELECT body FROM checkpoints ORDER BY id")
        .await
        .iter()
        .map(|found| found[0].clone().unwrap().parse().unwrap())
        .filter(|made: &Checkpoint| made.public_key == forged.hex())
        .collect();
    assert!(!theirs.is_empty());
    assert_eq!(verify_with(&store, &own, &theirs).await.unwrap().first_bad.unwrap().why, Why::Foreign);
    // With every trace of the forger's signatures removed, the outside file is what remains.
    place.raw("DELETE FROM checkpoints").await;
    assert_eq!(verify_with(&store, &own, &outside).await.unwrap().first_bad.unwrap().why, Why::Changed);
}

async fn attack_08_a_copy_elsewhere_verifies_with_the_key_and_not_without(place: Place) {
    let store = with_rows(&place, 6, Vec::new()).await;
    checkpoint(&store).await.unwrap();
    let own = store.trusted_keys().to_vec();
    let report = verify_with(&store, &[], &[]).await.unwrap();
    assert_eq!(
        report.first_bad.unwrap().why,
        Why::Foreign,
        "without a key nothing that is signed is believed"
    );
    let report = verify_with(&store, &own, &[]).await.unwrap();
    assert_eq!((report.first_bad, report.fingerprints), (None, vec![own[0].fingerprint()]));
    let url: StoreUrl = place.url().parse().unwrap();
    let at = ConnectOptions { key_file: Some(place.room.path().join("none.key")), ..options() };
    assert!(keys_beside(&url, &at).unwrap().is_empty(), "looking makes no key");
    let looks = Store::connect_to_read(&url, at).await.unwrap();
    assert!(!verify(&looks, None).await.unwrap().is_clean());
    assert!(verify_with(&looks, &own, &[]).await.unwrap().is_clean());
}

async fn attack_08_checkpoints_are_kept_outside_by_default_and_show_truncation(place: Place) {
    let url: StoreUrl = place.url().parse().unwrap();
    let folder = place.room.path().join("state/checkpoints");
    let file = CheckpointFile::usual(&folder, &url).unwrap();
    let store = with_rows(&place, 9, vec![Arc::new(file.clone())]).await;
    drop(store);
    let kept = file.read().unwrap();
    let last = kept.last().unwrap().heads[0].sequence;
    assert_eq!(last, 10, "the last one is made when the store closes: nine rows and the key's");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(file.path()), mode(&folder)), (0o600, 0o700));
    }
    // Everything inside is cut to fit.
    place.unlock().await;
    place
        .raw(
            "DELETE FROM ledger WHERE sequence > 4; DELETE FROM checkpoints;
             UPDATE ledger_heads SET sequence = 4, hash = (SELECT hash FROM ledger WHERE sequence = 4)",
        )
        .await;
    let store = place.store().await;
    assert!(verify(&store, None).await.unwrap().is_clean(), "nobody inside can tell");
    let bad = verify_with(&store, store.trusted_keys(), &kept).await.unwrap().first_bad.unwrap();
    assert_eq!((bad.sequence, bad.why), (5, Why::Truncated));
}

/// A place that takes nothing.
#[derive(Debug, Default)]
struct Nowhere(Mutex<u32>);

impl CheckpointSink for Nowhere {
    fn keep(&self, _: &Checkpoint) -> Result<(), String> {
        *self.0.lock().unwrap() += 1;
        Err("the disk outside is gone".to_owned())
    }
}

async fn attack_08_a_sink_that_fails_is_a_row_once(place: Place) {
    let nowhere = Arc::new(Nowhere::default());
    drop(with_rows(&place, 20, vec![nowhere.clone()]).await);
    assert!(*nowhere.0.lock().unwrap() > 3);
    let store = place.store().await;
    let found = store
        .activity(LedgerFilter { q: Some("the disk outside".into()), ..LedgerFilter::default() })
        .await
        .unwrap();
    assert_eq!(found.rows.len(), 1);
    assert_eq!(found.rows[0].status, RowStatus::Error);
    assert!(verify(&store, None).await.unwrap().is_clean());
}

#[test]
fn attack_08_the_outside_file_is_bounded_and_a_cut_line_is_no_alarm() {
    let room = tempfile::tempdir().unwrap();
    let file = CheckpointFile::new(room.path().join("a/b.jsonl"));
    let line = r#"{"v":1,"time":"2026-01-01T00:00:00Z","heads":[],"public_key":"","signature":""}"#;
    let made: Checkpoint = line.parse().unwrap();
    for _ in 0..30_000 {
        file.keep(&made).unwrap();
    }
    let size: u64 = std::fs::read_dir(room.path().join("a"))
        .unwrap()
        .map(|file| file.unwrap().metadata().unwrap().len())
        .sum();
    assert!(size <= 2 << 20, "{size}");
    let whole = file.read().unwrap().len();
    let text = std::fs::read_to_string(file.path()).unwrap();
    std::fs::write(file.path(), format!("{text}{{\"v\":1,\"ti")).unwrap();
    assert_eq!(file.read().unwrap().len(), whole, "a line cut by a crash");
    std::fs::write(file.path(), format!("{text}nonsense\n")).unwrap();
    assert!(file.read().is_err(), "a line that somebody wrote");
    // One store has one file, whichever way it is named; two stores have two.
    let usual = |path: &std::path::Path| CheckpointFile::usual(room.path(), &StoreUrl::file(path)).unwrap();
    assert_eq!(usual(&room.path().join("x.db")), usual(&room.path().join("a/../x.db")));
    assert_ne!(usual(&room.path().join("x.db")), usual(&room.path().join("a/x.db")));
}

async fn attack_14_rows_of_the_ledger_cannot_be_changed_removed_or_replaced(place: Place) {
    let store = with_rows(&place, 6, Vec::new()).await;
    checkpoint(&store).await.unwrap();
    let mut attempts = vec![
        "UPDATE ledger SET principal = 'mallory'",
        "UPDATE ledger SET position = position + 1",
        "DELETE FROM ledger WHERE sequence = 3",
        "DELETE FROM ledger",
        "UPDATE checkpoints SET body = '{}'",
        "DELETE FROM checkpoints",
    ];
    attempts.extend(match place.kind {
        Kind::Sqlite => [
            "INSERT OR REPLACE INTO ledger SELECT * FROM ledger WHERE sequence = 3",
            "REPLACE INTO checkpoints SELECT * FROM checkpoints LIMIT 1",
        ],
        Kind::Postgres { .. } => ["TRUNCATE ledger", "TRUNCATE checkpoints"],
    });
    for sql in attempts {
        assert!(!place.try_raw(sql).await, "{sql}");
    }
    store.append(row(99), at(99)).await.unwrap();
    assert_eq!(verify(&store, None).await.unwrap().first_bad, None);
}

/// The role of the guide: it runs the gateway and can't touch what was written.
#[tokio::test(flavor = "multi_thread")]
async fn attack_14_the_documented_role_runs_the_gateway_and_cannot_rewrite_it() {
    let Some(place) = Place::postgres().await else { return };
    drop(place.store().await);
    let Kind::Postgres { schema, .. } = &place.kind else { panic!() };
    let role = format!("run_{schema}");
    place
        .raw(&format!(
            "CREATE ROLE {role} LOGIN; GRANT USAGE ON SCHEMA {schema} TO {role};
             GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO {role};
             GRANT USAGE ON ALL SEQUENCES IN SCHEMA {schema} TO {role};
             REVOKE UPDATE, DELETE, TRUNCATE ON ledger, checkpoints, ledger_tombstones FROM {role};
             REVOKE INSERT, UPDATE, DELETE, TRUNCATE ON schema_migrations FROM {role}"
        ))
        .await;
    let url = place.url().replacen("countersign@", &format!("{role}@"), 1);
    let options = ConnectOptions { key_file: Some(place.key_file()), ..options() };
    let store = Store::connect(&url.parse::<StoreUrl>().unwrap(), options).await.unwrap();
    let id = hold(&store, "a", 1, at(0)).await.plan_id;
    store
        .approve(&id, crate::plans::approval(countersign_policy::confirm::RecordedChannel::Page, 1), at(1))
        .await
        .unwrap();
    let opened = store.open(crate::world::permit_for(&store, "a", at(2)).await, at(2)).await.unwrap();
    store.close(opened, crate::calls::success(), at(3)).await.unwrap();
    checkpoint(&store).await.unwrap();
    assert!(verify(&store, None).await.unwrap().is_clean());
    for sql in [
        "UPDATE ledger SET principal = 'mallory'",
        "DELETE FROM ledger",
        "TRUNCATE ledger",
        "DELETE FROM checkpoints",
        "DROP TRIGGER ledger_no_change ON ledger",
        "ALTER TABLE ledger DISABLE TRIGGER USER",
        "UPDATE schema_migrations SET version = 1",
    ] {
        let refused = format!("SET ROLE {role}; {sql}");
        assert!(!place.try_raw(&refused).await, "{sql}");
    }
    drop(store);
    place.raw(&format!("DROP OWNED BY {role}; DROP ROLE {role}")).await;
}

fn sequences(rows: &[LedgerRow]) -> Vec<u64> {
    rows.iter().map(|row| row.sequence).collect()
}

async fn attack_18_listings_follow_the_chain_whatever_the_clock_did(place: Place) {
    let store = place.store().await;
    // The clock jumps back and forth; reads come with moments that passed before.
    for (number, seconds) in [0, 50, 10, 10, 9, 60, 3, 61, 61, 0].into_iter().enumerate() {
        store.append(row(number as i64), at(seconds)).await.unwrap();
    }
    let rows = store.activity(LedgerFilter::default()).await.unwrap().rows;
    assert_eq!(sequences(&rows), (1..=11).rev().collect::<Vec<_>>(), "newest first is the chain backwards");
    // Page by page, with rows added meanwhile: nothing is missed, nothing comes twice.
    let mut seen = Vec::new();
    let mut cursor = None;
    loop {
        let filter =
            LedgerFilter { limit: Some(3), cursor, kind: Some(RowKind::Config), ..LedgerFilter::default() };
        let page = store.activity(filter).await.unwrap();
        seen.extend(sequences(&page.rows));
        store.append(Entry::new(RowKind::System, RowStatus::Success), at(5)).await.unwrap();
        cursor = match page.next_cursor {
            Some(next) => Some(next.to_string().parse().unwrap()),
            None => break,
        };
    }
    assert_eq!(seen, (2..=11).rev().collect::<Vec<_>>());
    // An export is the chain from its beginning: each line's previous hash is that of the line before.
    let mut export = store.export(LedgerFilter { limit: Some(2), ..LedgerFilter::default() }, Format::Jsonl);
    let mut lines = String::new();
    while let Some(piece) = export.next().await.unwrap() {
        lines.push_str(&piece);
    }
    let rows: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(rows.windows(2).all(|pair| pair[1]["prev_hash"] == pair[0]["hash"]));
    assert!(rows.iter().all(|row| row.get("position").is_none()), "what is exported is what is hashed");
}

async fn attack_18_pages_of_several_writers_miss_and_repeat_nothing(place: Place) {
    let named = |name: &str| ConnectOptions { writer: name.into(), ..options() };
    let a = place.try_store(named("a")).await.unwrap();
    let b = place.try_store(named("b")).await.unwrap();
    for number in 0..20 {
        // The same moments in both chains.
        a.append(row(number), at(number / 4)).await.unwrap();
        b.append(row(number), at(number / 4)).await.unwrap();
    }
    let filter = LedgerFilter { kind: Some(RowKind::Config), limit: Some(7), ..LedgerFilter::default() };
    let mut seen: Vec<LedgerRow> = Vec::new();
    let mut cursor = None;
    loop {
        let page = a.activity(LedgerFilter { cursor, ..filter.clone() }).await.unwrap();
        seen.extend(page.rows);
        cursor = page.next_cursor;
        if cursor.is_none() {
            break;
        }
    }
    let mut ids: Vec<&LedgerId> = seen.iter().map(|row| &row.id).collect();
    ids.sort();
    ids.dedup();
    assert_eq!((seen.len(), ids.len()), (40, 40));
    for writer in ["a", "b"] {
        let own: Vec<u64> =
            seen.iter().filter(|row| row.writer.as_str() == writer).map(|row| row.sequence).collect();
        assert!(own.windows(2).all(|pair| pair[0] > pair[1]), "{writer}: {own:?}");
    }
    let times: Vec<i64> = seen.iter().map(|row| row.position).collect();
    assert!(times.windows(2).all(|pair| pair[0] >= pair[1]), "across writers by time");
}

async fn attack_18_a_time_span_finds_rows_from_before_a_clock_step(place: Place) {
    let store = place.store().await;
    for seconds in [0, 20_000, 5, 6, 20_001] {
        store.append(row(seconds), at(seconds)).await.unwrap();
    }
    let span = async |start: Option<i64>, end: i64| {
        let filter =
            LedgerFilter { start_time: start.map(at), end_time: Some(at(end)), ..LedgerFilter::default() };
        sequences(&store.activity(filter).await.unwrap().rows)
    };
    assert_eq!(span(Some(0), 100).await, [5, 4, 2], "also those written after the clock stood hours ahead");
    assert_eq!(span(Some(1), 100).await, [5, 4]);
    assert_eq!(span(Some(0), 30_000).await, [6, 5, 4, 3, 2]);
}

/// Rows, plans and keys of the version before; its schema is the first five steps.
async fn old_store() -> Place {
    let place = Place::sqlite();
    drop(place.store().await);
    std::fs::remove_file(place.path()).unwrap();
    for end in ["-wal", "-shm", ".key", ".seal"] {
        let _ = std::fs::remove_file(format!("{}{end}", place.path().display()));
    }
    let connection = rusqlite::Connection::open(place.path()).unwrap();
    connection
        .execute_batch("CREATE TABLE schema_migrations (version BIGINT PRIMARY KEY, name TEXT NOT NULL, applied BIGINT NOT NULL)")
        .unwrap();
    for (version, step) in [
        include_str!("../../migrations/sqlite/0001-records.sql"),
        include_str!("../../migrations/sqlite/0002-lines.sql"),
        include_str!("../../migrations/sqlite/0003-desk.sql"),
        include_str!("../../migrations/sqlite/0004-memory.sql"),
        include_str!("../../migrations/sqlite/0005-roles.sql"),
    ]
    .into_iter()
    .enumerate()
    {
        connection.execute_batch(step).unwrap();
        connection
            .execute_batch(&format!("INSERT INTO schema_migrations VALUES ({}, 'x', 0)", version + 1))
            .unwrap();
    }
    connection.execute_batch(include_str!("../fixtures/store-v5.sql")).unwrap();
    drop(connection);
    std::fs::write(place.key_file(), include_str!("../fixtures/store-v5.key")).unwrap();
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        std::fs::set_permissions(place.key_file(), std::fs::Permissions::from_mode(0o600)).unwrap();
    }
    place
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_of_the_version_before_opens_migrates_and_verifies() {
    let place = old_store().await;
    let clear = "SELECT body FROM plans WHERE body LIKE '{%' OR result NOT LIKE 'sealed1:%'";
    assert!(!place.raw_texts("SELECT body FROM plans WHERE body LIKE '{%'").await.is_empty());
    let store = place.store().await;
    let report = verify(&store, None).await.unwrap();
    assert_eq!((report.rows, report.checkpoints, report.first_bad), (22, 7, None));
    let rows =
        store.activity(LedgerFilter { limit: Some(100), ..LedgerFilter::default() }).await.unwrap().rows;
    assert_eq!(
        sequences(&rows),
        (1..=22).rev().collect::<Vec<_>>(),
        "old rows are in the chain's order as well"
    );
    assert_eq!(
        place.raw_texts(clear).await,
        Vec::<Vec<Option<String>>>::new(),
        "nothing is left in the clear"
    );
    let plans = store.plans(countersign_store::PlanFilter::default()).await.unwrap();
    assert_eq!(plans.len(), 6);
    assert!(plans.iter().all(|row| row.plan.arguments.value().contains_key("number")));
    // What was pending goes on: it is approved and run with the token the old version gave out.
    let now = at(20);
    let id = plans
        .iter()
        .find(|row| row.state == countersign_policy::confirm::PlanState::Pending)
        .unwrap()
        .plan
        .id
        .clone();
    store
        .approve(&id, crate::plans::approval(countersign_policy::confirm::RecordedChannel::Page, 20), now)
        .await
        .unwrap();
    hold(&store, "new", 77, now).await;
    store.pending(&record(&serde_json::json!({"n": 1}), now), now).await.unwrap();
    assert_eq!(verify(&store, None).await.unwrap().first_bad, None);
}
