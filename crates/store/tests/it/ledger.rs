//! The ledger as its readers see it: filters, pages, summaries, exports, the audit view, and lines that others can check.

use countersign_policy::digest::{Digest, DigestDomain};
use countersign_policy::effect::Effect;
use countersign_policy::mode::Mode;
use countersign_policy::record::{ActorRole, RowKind, RowStatus, Source};
use countersign_policy::refusal::{Code, Refusal};
use countersign_policy::role::Role;
use countersign_store::ledger::{ChartPeriod, Cursor, DecisionTime, Format, PartCount, StatusCount, verify};
use countersign_store::{Entry, LedgerFilter, ModeSetter, Store};
use serde_json::{Value, json};

use crate::place::{Place, on_both};
use crate::world::{at, hold, record};

on_both!(
    every_filter_finds_its_rows_and_no_others,
    pages_are_stable_while_rows_are_added,
    hostile_text_is_kept_and_found_as_text,
    exported_lines_can_be_checked_without_us,
    a_summary_counts,
    a_chart_counts_equal_parts_of_a_period,
    the_audit_view_tells_who_decided,
    rows_are_found_by_their_request,
    rows_of_version_1_keep_their_hash_and_are_found_by_their_request,
);

fn entry(kind: RowKind, status: RowStatus) -> Entry {
    Entry::new(kind, status)
}

async fn ids(store: &Store, filter: LedgerFilter) -> Vec<String> {
    let page = store.activity(filter).await.unwrap();
    page.rows.iter().map(|row| row.id.to_string()).collect()
}

async fn every_filter_finds_its_rows_and_no_others(place: Place) {
    let store = place.store().await;
    let refusal = Refusal::new(Code::RuleDenied, "no");
    let base = record(&json!({"path": "a 100% sure_thing"}), at(1));
    let one = store.refused(&base, &refusal, at(1)).await.unwrap();
    let mut other = base.clone();
    other.principal = "bob".into();
    other.session = "s2".into();
    other.role = Role::Human;
    other.tool = "git:push".parse().unwrap();
    other.plan_id = Some("pln_1".into());
    other.arguments = json!({});
    let mut intent = other.intent.clone().unwrap();
    intent.operation_type = Some("destructive".to_owned());
    intent.reason = Some("clean up".into());
    other.intent = Some(intent);
    let two = store.pending(&other, at(2)).await.unwrap();
    let three = store.append(entry(RowKind::Config, RowStatus::Success), at(3)).await.unwrap();
    let f = LedgerFilter::default;
    let cases: Vec<(LedgerFilter, Vec<&str>)> = vec![
        (LedgerFilter { kind: Some(RowKind::Config), ..f() }, vec![three.as_str()]),
        (LedgerFilter { kind: Some(RowKind::Call), ..f() }, vec![two.as_str(), one.as_str()]),
        (LedgerFilter { status: Some(RowStatus::Pending), ..f() }, vec![two.as_str()]),
        (LedgerFilter { server: Some("git".into()), ..f() }, vec![two.as_str()]),
        (LedgerFilter { tool: Some("free_it".into()), ..f() }, vec![one.as_str()]),
        (LedgerFilter { intent_type: Some(Effect::Destructive), ..f() }, vec![two.as_str()]),
        (LedgerFilter { session_id: Some("s2".into()), ..f() }, vec![two.as_str()]),
        (LedgerFilter { principal: Some("bob".into()), ..f() }, vec![two.as_str()]),
        (LedgerFilter { role: Some(ActorRole::Agent), ..f() }, vec![one.as_str()]),
        (LedgerFilter { plan_id: Some("pln_1".into()), ..f() }, vec![two.as_str()]),
        (LedgerFilter { code: Some("E_RULE_DENIED".into()), ..f() }, vec![one.as_str()]),
        (LedgerFilter { q: Some("CLEAN".into()), ..f() }, vec![two.as_str()]),
        (LedgerFilter { q: Some("100%".into()), ..f() }, vec![one.as_str()]),
        (LedgerFilter { q: Some("sure_t".into()), ..f() }, vec![one.as_str()]),
        (LedgerFilter { q: Some("1_0".into()), ..f() }, vec![]),
        (LedgerFilter { start_time: Some(at(2)), ..f() }, vec![three.as_str(), two.as_str()]),
        (LedgerFilter { start_time: Some(at(1)), end_time: Some(at(2)), ..f() }, vec![one.as_str()]),
        (LedgerFilter { principal: Some("bob".into()), kind: Some(RowKind::Config), ..f() }, vec![]),
    ];
    for (filter, expect) in cases {
        let shown = format!("{filter:?}");
        assert_eq!(ids(&store, filter).await, expect, "{shown}");
    }
}

async fn pages_are_stable_while_rows_are_added(place: Place) {
    let store = place.store().await;
    for number in 0..25 {
        store
            .append(entry(RowKind::Config, RowStatus::Success).with_fact("n", number), at(number))
            .await
            .unwrap();
    }
    let mut filter = LedgerFilter { kind: Some(RowKind::Config), limit: Some(10), ..LedgerFilter::default() };
    let mut seen = Vec::new();
    loop {
        let page = store.activity(filter.clone()).await.unwrap();
        seen.extend(page.rows.iter().map(|row| row.detail.as_ref().unwrap().value()["n"].as_i64().unwrap()));
        store.append(entry(RowKind::Config, RowStatus::Success).with_fact("n", 99), at(100)).await.unwrap();
        let Some(cursor) = page.next_cursor else { break };
        filter.cursor = Some(cursor.to_string().parse::<Cursor>().unwrap());
    }
    assert_eq!(seen, (0..25).rev().collect::<Vec<i64>>());
    for bad in ["", "x", "01ARYZ6S41000000000000000é", "' OR 1=1 --"] {
        assert!(bad.parse::<Cursor>().is_err());
    }
}

async fn hostile_text_is_kept_and_found_as_text(place: Place) {
    let store = place.store().await;
    let hostile = "x'; DROP TABLE ledger; -- \u{0} \u{202e} \n \" \\ é 名";
    let mut odd = record(&json!({"text": hostile}), at(1));
    odd.principal = hostile.into();
    odd.session = hostile.into();
    odd.intent.as_mut().unwrap().reason = Some(hostile.into());
    let id = store.pending(&odd, at(1)).await.unwrap();
    let row = store.activity_row(&id).await.unwrap().unwrap();
    let visible = hostile.replace('\0', "\u{2400}");
    assert_eq!(row.entry.principal.unwrap().as_str(), visible);
    assert_eq!(row.entry.intent.unwrap().reason.unwrap(), visible);
    assert_eq!(row.entry.arguments.unwrap().value()["text"], hostile, "JSON has its own way to write U+0000");
    let found = ids(&store, LedgerFilter { q: Some("DROP TABLE".into()), ..LedgerFilter::default() }).await;
    assert_eq!(found, [id.as_str()]);
    assert!(verify(&store, None).await.unwrap().is_clean());
}

/// Follows the chain of exported lines with nothing but the published rule: hash = H(tag ‖ 0 ‖ prev ‖ line without hash).
async fn exported_lines_can_be_checked_without_us(place: Place) {
    let store = place.store().await;
    for number in 0..7 {
        store
            .pending(&record(&json!({"n": number, "f": 0.1, "g": 1e21}), at(number)), at(number))
            .await
            .unwrap();
    }
    let filter = LedgerFilter { limit: Some(3), ..LedgerFilter::default() };
    let mut lines = Vec::new();
    let mut export = store.export(filter.clone(), Format::Jsonl);
    while let Some(text) = export.next().await.unwrap() {
        assert!(text.lines().count() <= 3, "never more than a page in memory");
        lines.extend(text.lines().map(str::to_owned));
    }
    assert_eq!(lines.len(), 8, "seven calls and the row of the key");
    let mut prev = Digest::of(DigestDomain::LedgerGenesis, b"main");
    for (index, line) in lines.iter().enumerate() {
        let row: Value = serde_json::from_str(line).unwrap();
        assert_eq!(row["sequence"], index as u64 + 1);
        assert_eq!(row["prev_hash"], prev.hex());
        let hash = row["hash"].as_str().unwrap();
        let without = line.replace(&format!("\"hash\":\"{hash}\","), "");
        assert_ne!(*line, without);
        prev = Digest::of(DigestDomain::LedgerRow, &[prev.bytes().as_slice(), without.as_bytes()].concat());
        assert_eq!(hash, prev.hex());
    }
    let mut csv = String::new();
    let mut export = store.export(filter, Format::Csv);
    while let Some(text) = export.next().await.unwrap() {
        csv.push_str(&text);
    }
    assert_eq!(csv.lines().count(), 9);
    assert!(csv.starts_with("id,time,writer,sequence,kind,"));
}

async fn a_summary_counts(place: Place) {
    let store = place.store().await;
    for number in 0..4 {
        store.pending(&record(&json!({}), at(number)), at(number)).await.unwrap();
    }
    store.append(entry(RowKind::Config, RowStatus::Error), at(5)).await.unwrap();
    let summary = store.summary(at(1), at(10)).await.unwrap();
    assert_eq!(summary.total, 4);
    assert_eq!((summary.by_kind[0].name.as_str(), summary.by_kind[0].count), ("call", 3));
    assert_eq!((summary.by_tool[0].name.as_str(), summary.by_tool[0].count), ("files:free_it", 3));
    assert_eq!(store.summary(at(20), at(30)).await.unwrap().total, 0);
}

async fn a_chart_counts_equal_parts_of_a_period(place: Place) {
    let store = place.store().await;
    let yes = hold(&store, "a", 1, at(0)).await.plan_id;
    hold(&store, "b", 2, at(1)).await;
    store
        .approve(&yes, crate::plans::approval(countersign_policy::confirm::ApprovalRail::Page, 25), at(25))
        .await
        .unwrap();
    let refusal = Refusal::new(Code::RuleDenied, "no").with("rule", "a.toml:3");
    store.refused(&record(&json!({}), at(12)), &refusal, at(12)).await.unwrap();
    store.append(entry(RowKind::Config, RowStatus::Error), at(30)).await.unwrap();
    let period = ChartPeriod::new(at(0), at(30), 3);
    let chart = store.chart(period).await.unwrap();
    let part = |part, kind: &str, status: &str, count| PartCount {
        part,
        kind: kind.to_owned(),
        status: status.to_owned(),
        count,
    };
    let counted =
        [part(0, "call", "pending", 2), part(1, "call", "refused", 1), part(2, "approval", "success", 1)];
    assert_eq!(chart.over_time, counted, "the end is exclusive");
    assert_eq!((period.start_of(1), period.start_of(3)), (at(10), at(30)));
    let rule = StatusCount { name: "a.toml:3".to_owned(), status: "refused".to_owned(), count: 1 };
    assert_eq!(chart.by_rule, [rule]);
    assert_eq!(chart.by_tool.iter().map(|one| one.count).sum::<u64>(), 3);
    assert!(matches!(chart.decisions[..], [DecisionTime { part: 2, micros: 25_000_000 }]));
}

async fn the_audit_view_tells_who_decided(place: Place) {
    let store = place.store().await;
    let yes = hold(&store, "a", 1, at(0)).await.plan_id;
    let no = hold(&store, "b", 2, at(0)).await.plan_id;
    use countersign_policy::confirm::RecordedChannel;
    store.approve(&yes, crate::plans::approval(RecordedChannel::Page, 1), at(1)).await.unwrap();
    store.reject(&no, "bob".into(), RecordedChannel::Cli, Some("not today".into()), at(2)).await.unwrap();
    let mut direct = entry(RowKind::Memory, RowStatus::Success);
    direct.principal = Some("line".into());
    direct.role = Some(ActorRole::Human);
    let detail =
        json!({"action": "direct_write", "actor_id": "eve", "entity_type": "decision", "entity_id": "dec_1"});
    store.append(direct.with_detail(&detail), at(3)).await.unwrap();
    let setter = ModeSetter {
        principal: "agent".into(),
        session: "s".into(),
        role: Role::Agent,
        source: Source::Mcp,
        host: None,
    };
    store.set_mode(&setter, Mode::Plan, at(4)).await.unwrap();
    let sql =
        "SELECT action, actor_type, actor_id, entity_type, entity_id, created_at FROM audit_log ORDER BY id";
    let found = place.raw_texts(sql).await;
    let found: Vec<Vec<&str>> =
        found.iter().map(|row| row.iter().map(|text| text.as_deref().unwrap()).collect()).collect();
    assert_eq!(
        found,
        [
            ["approve", "human", "ann", "plan", yes.as_str(), "2027-01-15T08:00:01.000Z"],
            ["reject", "human", "bob", "plan", no.as_str(), "2027-01-15T08:00:02.000Z"],
            ["direct_write", "human", "eve", "decision", "dec_1", "2027-01-15T08:00:03.000Z"],
        ]
    );
}

async fn rows_are_found_by_their_request(place: Place) {
    let store = place.store().await;
    let mut one = record(&json!({"n": 1}), at(1));
    one.request_id = Some("req_1".into());
    let other = countersign_policy::record::CallRecord { request_id: Some("req_2".into()), ..one.clone() };
    let first = store.pending(&one, at(1)).await.unwrap();
    store.pending(&other, at(2)).await.unwrap();
    // The row of the outcome says it again.
    hold(&store, "a", 7, at(3)).await;
    let opened = store.open(crate::world::permit_for(&store, "a", at(4)).await, at(4)).await.unwrap();
    store.close(opened, crate::calls::success(), at(5)).await.unwrap();
    let of = |id: &str| LedgerFilter { request_id: Some(id.into()), ..LedgerFilter::default() };
    assert_eq!(ids(&store, of("req_1")).await, [first.as_str()]);
    assert_eq!(ids(&store, of("req_0123456789abcdef")).await.len(), 3, "pending, allowed, success");
    assert!(ids(&store, of("req_")).await.is_empty());
    let both = LedgerFilter { status: Some(RowStatus::Pending), ..of("req_1") };
    assert_eq!(ids(&store, both).await.len(), 1);
    let row = store.activity_row(&first).await.unwrap().unwrap();
    let json: Value = serde_json::from_str(&row.json()).unwrap();
    assert_eq!((&json["request_id"], &json["v"]), (&json!("req_1"), &json!(2)));
    assert!(verify(&store, None).await.unwrap().is_clean());
}

async fn rows_of_version_1_keep_their_hash_and_are_found_by_their_request(place: Place) {
    let store = place.store().await;
    for number in 1..6 {
        store
            .append(entry(RowKind::Config, RowStatus::Success).with_fact("n", number), at(number))
            .await
            .unwrap();
    }
    place.unlock().await;
    place
        .raw("UPDATE ledger SET version = 1, detail = '{\"request_id\":\"req_old\"}' WHERE sequence = 3")
        .await;
    crate::attacks_ledger::rehash(&place).await;
    assert!(verify(&store, None).await.unwrap().is_clean());
    let of = |id: &str| LedgerFilter { request_id: Some(id.into()), ..LedgerFilter::default() };
    let found = store.activity(of("req_old")).await.unwrap().rows;
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].sequence, found[0].request_id().unwrap().as_str()), (3, "req_old"));
    assert!(
        !found[0].json().contains("\"request_id\":\"req_old\",\"s"),
        "the exported line is what was hashed"
    );
    assert!(store.activity(of("req_ol")).await.unwrap().rows.is_empty());
    // A column that rows of its version do not have is not hashed, so it must be empty.
    place.raw("UPDATE ledger SET request_id = 'req_old' WHERE sequence = 3").await;
    let bad = verify(&store, None).await.unwrap().first_bad.unwrap();
    assert_eq!((bad.sequence, bad.why), (3, countersign_store::ledger::Why::Changed));
}
