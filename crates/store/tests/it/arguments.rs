//! Arguments are stored once per call, and read as if each row had its own.

use countersign_policy::confirm::RecordedChannel;
use countersign_policy::record::RowStatus;
use countersign_policy::refusal::{Code, Refusal};
use countersign_store::ledger::{ArchiveFile, Format, Why, verify};
use countersign_store::{LedgerFilter, LedgerRow, Store};
use serde_json::{Value, json};

use crate::place::{Kind, Place, on_both};
use crate::plans::approval;
use crate::world::{at, hold_as, permit_at_once, permit_for, record};

on_both!(
    arguments_are_stored_once_per_call,
    readers_see_the_arguments_in_every_row,
    attack_changed_arguments_are_found_wherever_they_stand,
    a_call_is_pruned_whole_or_not_at_all,
);

/// Text that no compression makes much smaller.
fn text(bytes: usize, seed: u64) -> String {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let letter = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        char::from(b'a' + (state % 26) as u8)
    };
    std::iter::repeat_with(letter).take(bytes).collect()
}

fn arguments(bytes: usize, seed: u64) -> String {
    json!({"path": "a.txt", "text": text(bytes, seed)}).to_string()
}

/// A call that is held, approved and executed; its token names it.
async fn run(store: &Store, arguments: &str, token: &str, from: i64, until: i64) {
    let held = hold_as(store, "agent", ("write_it", arguments), token, at(from)).await.unwrap();
    store.approve(&held.plan_id, approval(RecordedChannel::Page, from), at(from)).await.unwrap();
    let opened = store.open(permit_for(store, token, at(from)).await, at(from)).await.unwrap();
    store.close(opened, crate::calls::success(), at(until)).await.unwrap();
}

async fn number(place: &Place, sql: &str) -> u64 {
    place.raw_texts(sql).await[0][0].clone().unwrap().parse().unwrap()
}

async fn call_rows(store: &Store) -> Vec<LedgerRow> {
    let kind = Some(countersign_policy::record::RowKind::Call);
    let mut rows = store
        .activity(LedgerFilter { kind, limit: Some(1000), ..LedgerFilter::default() })
        .await
        .unwrap()
        .rows;
    rows.reverse();
    rows
}

/// How large the store is, in bytes.
async fn size(place: &Place) -> u64 {
    let sql = match place.kind {
        Kind::Sqlite => {
            "SELECT CAST(page_count * page_size AS TEXT) FROM pragma_page_count(), pragma_page_size()"
        }
        Kind::Postgres { .. } => {
            "SELECT CAST(SUM(pg_total_relation_size(oid)) AS TEXT) FROM pg_class
              WHERE relkind = 'r' AND relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = current_schema())"
        }
    };
    number(place, sql).await
}

/// How much a held, approved and executed call of 50 KB adds, as a multiple of its arguments. It was 5.9.
async fn arguments_are_stored_once_per_call(place: Place) {
    let store = place.store().await;
    let (mut before, mut sent, mut all) = (0, 0, 0);
    for call in 0..25_i64 {
        if call == 5 {
            // What a store takes once, such as pages that are free again after an update, is no growth.
            (before, sent) = (size(&place).await, 0);
        }
        let arguments = arguments(50_000, 7 + call as u64);
        sent += arguments.len() as u64;
        all += arguments.len() as u64;
        run(&store, &arguments, &format!("t{call}"), call, call).await;
    }
    let rows = number(&place, "SELECT CAST(SUM(LENGTH(arguments)) AS TEXT) FROM ledger").await;
    assert_eq!(rows, all, "one row of each call holds them");
    let plans = number(&place, "SELECT CAST(SUM(LENGTH(body)) AS TEXT) FROM plans").await;
    assert!(plans * 100 < all * 140, "a plan holds them once, sealed: {plans} of {all}");
    let grown = size(&place).await - before;
    println!("{:.2} times", grown as f64 / sent as f64);
    // PostgreSQL keeps the versions of a row that updates left behind until it is vacuumed.
    let most = if let Kind::Sqlite = place.kind { 250 } else { 270 };
    assert!(grown * 100 <= sent * most, "{grown} of {sent}");
    assert!(verify(&store, None).await.unwrap().is_clean());
}

async fn readers_see_the_arguments_in_every_row(place: Place) {
    let store = place.store().await;
    let arguments = arguments(5_000, 1);
    let value: Value = serde_json::from_str(&arguments).unwrap();
    run(&store, &arguments, "t", 0, 1).await;
    // A call that asks again too early, one without a plan, a short one, and a read.
    let held = hold_as(&store, "agent", ("write_it", &arguments), "again", at(2)).await.unwrap();
    let mut record = record(&value, at(2));
    record.plan_id = Some(held.plan_id.clone());
    let early = Refusal::new(Code::ApprovalPending, "wait");
    store.refused(&record, &early, at(3)).await.unwrap();
    for (tool, arguments) in
        [("free_it", arguments.as_str()), ("get_it", &arguments), ("free_it", "{\"n\":1}")]
    {
        let opened = store.open(permit_at_once(tool, arguments, at(4)), at(4)).await.unwrap();
        store.close(opened, crate::calls::success(), at(4)).await.unwrap();
    }
    store.flush().await.unwrap();
    let rows = call_rows(&store).await;
    let statuses: Vec<RowStatus> = rows.iter().map(|row| row.status).collect();
    assert_eq!(rows.len(), 11, "{statuses:?}");
    for row in &rows[..9] {
        assert_eq!(row.arguments.as_ref().unwrap().value(), value, "{:?} {}", row.status, row.sequence);
        assert_eq!(row.hash, row.computed_hash());
    }
    let held =
        number(&place, "SELECT CAST(COUNT(*) AS TEXT) FROM ledger WHERE LENGTH(arguments) > 1000").await;
    assert_eq!(held, 4, "once for each plan and each call without one");
    // A search finds what another row holds, and an export has it in each line.
    let word = value["text"].as_str().unwrap()[100..140].to_uppercase();
    let found = store.activity(LedgerFilter { q: Some(word), ..LedgerFilter::default() }).await.unwrap().rows;
    assert_eq!(found.len(), 9);
    let mut export = store.export(LedgerFilter::default(), Format::Jsonl);
    let lines = export.next().await.unwrap().unwrap();
    assert_eq!(lines.matches(value["text"].as_str().unwrap()).count(), 9);
    assert!(verify(&store, None).await.unwrap().is_clean());
    // A plan shows in its preview what it was made with.
    let plan = store.plans(countersign_store::PlanFilter::default()).await.unwrap().remove(0).plan;
    assert_eq!(plan.preview.shown["arguments"], value);
}

async fn attack_changed_arguments_are_found_wherever_they_stand(place: Place) {
    let store = place.store().await;
    run(&store, &arguments(5_000, 1), "t", 0, 1).await;
    run(&store, &arguments(5_000, 2), "u", 2, 3).await;
    assert!(verify(&store, None).await.unwrap().is_clean());
    place.unlock().await;
    place.raw("CREATE TABLE kept AS SELECT * FROM ledger").await;
    let rows = call_rows(&store).await;
    let (first, allowed, other) = (rows[0].sequence, rows[1].sequence, rows[3].sequence);
    let cases = [
        (
            format!(
                "UPDATE ledger SET arguments = REPLACE(arguments, 'a.txt', 'b.txt') WHERE sequence = {first}"
            ),
            first,
        ),
        (format!("UPDATE ledger SET arguments = NULL WHERE sequence = {first}"), first),
        (format!("UPDATE ledger SET arguments_from = {other} WHERE sequence = {allowed}"), allowed),
        (format!("UPDATE ledger SET arguments_from = 999 WHERE sequence = {allowed}"), allowed),
        (format!("UPDATE ledger SET arguments_from = {allowed} WHERE sequence = {allowed}"), allowed),
        (format!("UPDATE ledger SET arguments_from = NULL WHERE sequence = {allowed}"), allowed),
        (format!("UPDATE ledger SET arguments = '{{}}' WHERE sequence = {allowed}"), allowed),
    ];
    for (sql, sequence) in cases {
        place.raw(&sql).await;
        let bad = verify(&store, None).await.unwrap().first_bad.unwrap_or_else(|| panic!("{sql}"));
        assert_eq!((bad.sequence, bad.why), (sequence, Why::Changed), "{sql}");
        place.raw("DELETE FROM ledger; INSERT INTO ledger SELECT * FROM kept").await;
    }
    assert!(verify(&store, None).await.unwrap().is_clean());
}

async fn a_call_is_pruned_whole_or_not_at_all(place: Place) {
    let store = place.store().await;
    let arguments = arguments(5_000, 1);
    run(&store, &arguments, "t", 0, 60).await;
    run(&store, &arguments, "u", 61, 62).await;
    let archive = |name: &str| ArchiveFile::new(place.key_file().with_file_name(name));
    // The call's first rows are old enough, its last is not: all of it stays.
    let ranges = store.prunable(at(30), at(10_000)).await.unwrap();
    assert!(ranges.iter().all(|range| range.through == 1), "only the row of the key: {ranges:?}");
    // A limit that would end inside the call ends after it.
    let mut one = archive("one.jsonl");
    let pruned = store.prune(at(61), 2, &mut one, None, at(10_000)).await.unwrap();
    assert_eq!(pruned.tombstones.last().unwrap().through, 5, "{pruned:?}");
    let lines = std::fs::read_to_string(one.path()).unwrap();
    assert_eq!(lines.matches(&text(5_000, 1)).count(), 3, "the archive has them in each line");
    let rows = call_rows(&store).await;
    assert!(rows.iter().all(|row| row.arguments.as_ref().unwrap().text() == arguments), "the rest is whole");
    assert!(verify(&store, None).await.unwrap().is_clean());
}
