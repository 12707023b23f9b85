//! From permit to row: what is spent, what is written, what is refused and in which words.

use countersign_policy::confirm::{Approval, PlanState, RecordedChannel};
use countersign_policy::gate::token_digest;
use countersign_policy::grant::Grant;
use countersign_policy::ids::GrantId;
use countersign_policy::record::{RowKind, RowStatus};
use countersign_policy::refusal::Code;
use countersign_store::ledger::verify;
use countersign_store::{
    ConnectOptions, LedgerFilter, NotSpendable, OpenRefused, Outcome, OutcomeStatus, RESULT_LIMIT, ReadRows,
    Store,
};

use crate::place::{Place, on_both, options};
use crate::world::{LIFE, at, hold, permit_at_once, permit_for, permit_granted, tool};

on_both!(
    a_held_call_runs_once_and_its_rows_tell_the_story,
    a_token_that_came_late_is_refused_in_its_own_words,
    a_grant_is_used_up_to_the_last,
    invariant_written_first,
    reads_do_not_wait_and_are_written_all_the_same,
    results_are_kept_up_to_a_size,
);

pub(crate) fn success() -> Outcome {
    Outcome {
        status: OutcomeStatus::Success,
        code: None,
        duration_us: 1234,
        result_digest: None,
        result: None,
    }
}

async fn rows(store: &Store) -> Vec<(RowKind, RowStatus)> {
    let page = store.activity(LedgerFilter { limit: Some(1000), ..LedgerFilter::default() }).await.unwrap();
    let mut rows: Vec<_> = page.rows.iter().map(|row| (row.kind, row.status)).collect();
    rows.reverse();
    rows.retain(|(kind, _)| *kind != RowKind::System);
    rows
}

async fn a_held_call_runs_once_and_its_rows_tell_the_story(place: Place) {
    let store = place.store().await;
    let holding = hold(&store, "t1", 1, at(0)).await;
    let permit = permit_for(&store, "t1", at(1)).await;
    let twin = permit_for(&store, "t1", at(1)).await;
    let opened = store.open(permit, at(1)).await.unwrap();
    assert_eq!(opened.plan_id(), Some(&holding.plan_id));
    assert_eq!(store.plan(&holding.plan_id).await.unwrap().unwrap().state, PlanState::Executing);

    let refused = store.open(twin, at(1)).await.unwrap_err();
    assert!(matches!(refused, OpenRefused::NotSpendable { why: NotSpendable::Used, .. }));
    assert_eq!(refused.refusal().code, Code::ConfirmTokenUsed);

    let outcome = Outcome { result: Some("{\"ok\":true}".into()), ..success() };
    let closed = store.close(opened, outcome, at(2)).await.unwrap();
    let kept = store.plan(&holding.plan_id).await.unwrap().unwrap();
    assert_eq!((kept.state, kept.result.as_deref()), (PlanState::Done, Some("{\"ok\":true}")));
    assert_eq!(kept.approval.unwrap().channel, RecordedChannel::Chat);

    let call = RowKind::Call;
    assert_eq!(
        rows(&store).await,
        [
            (call, RowStatus::Pending),
            (call, RowStatus::Allowed),
            (call, RowStatus::Refused),
            (call, RowStatus::Success)
        ]
    );
    let row = store.activity_row(&closed).await.unwrap().unwrap();
    assert_eq!(row.tool.clone().unwrap().as_str(), "write_it");
    assert_eq!(row.intent.clone().unwrap().reason.as_deref(), Some("because"));
    assert_eq!(row.arguments.clone().unwrap().text(), r#"{"number":1}"#);
    assert_eq!((row.plan_id.clone(), row.duration_us), (Some(holding.plan_id), Some(1234)));
    assert!(verify(&store, None).await.unwrap().is_clean());
}

async fn a_token_that_came_late_is_refused_in_its_own_words(place: Place) {
    let store = place.store().await;
    let cases = [
        ("cancelled", NotSpendable::Cancelled, Code::PlanCancelled),
        ("rejected", NotSpendable::Rejected, Code::ApprovalRejected),
        ("gone", NotSpendable::Unknown, Code::ConfirmTokenMismatch),
        ("expired", NotSpendable::Expired, Code::ConfirmTokenExpired),
    ];
    for (number, (token, why, code)) in cases.into_iter().enumerate() {
        let holding = hold(&store, token, number as u64, at(0)).await;
        // The gate said yes a moment before somebody else was faster.
        let permit = permit_for(&store, token, at(1)).await;
        let mut now = at(2);
        match why {
            NotSpendable::Cancelled => {
                drop(store.cancel(&holding.plan_id, &"agent".into(), now).await.unwrap())
            }
            NotSpendable::Rejected => {
                drop(
                    store
                        .reject(&holding.plan_id, "ann".into(), RecordedChannel::Page, None, now)
                        .await
                        .unwrap(),
                );
            }
            NotSpendable::Expired => now = at(LIFE),
            _ => place.raw(&format!("DELETE FROM tokens WHERE token = '{}'", token_digest(token))).await,
        }
        let refused = store.open(permit, now).await.unwrap_err();
        assert!(
            matches!(&refused, OpenRefused::NotSpendable { why: said, .. } if *said == why),
            "{refused:?}"
        );
        assert_eq!(refused.refusal().code, code);
        let OpenRefused::NotSpendable { ledger_id, .. } = refused else { panic!() };
        let row = store.activity_row(&ledger_id).await.unwrap().unwrap();
        assert_eq!((row.status, row.code.as_deref()), (RowStatus::Refused, Some(code.as_str())));
    }
}

async fn a_grant_is_used_up_to_the_last(place: Place) {
    let store = place.store().await;
    let grant = Grant {
        id: GrantId::mint(at(0), 7),
        principal: "agent".into(),
        tool: "files:write_it".into(),
        fingerprint: tool("write_it").fingerprint,
        arguments: [("number".to_owned(), countersign_policy::grant::Allowed::Any)].into(),
        uses_left: 2,
        expires: at(100),
        by: "ann".into(),
    };
    store.grant(&grant, at(0)).await.unwrap();
    let known =
        store.grants_covering(&"agent".into(), &"files:write_it".parse().unwrap(), at(1)).await.unwrap();
    assert_eq!(known, std::slice::from_ref(&grant));
    for _ in 0..2 {
        let permit = permit_granted(&grant, r#"{"number":1}"#, at(1)).unwrap();
        let opened = store.open(permit, at(1)).await.unwrap();
        let row = store.activity_row(opened.ledger_id()).await.unwrap().unwrap();
        assert_eq!(row.approval().unwrap().grant, Some(grant.id.clone()));
        store.close(opened, success(), at(1)).await.unwrap();
    }
    let permit = permit_granted(&grant, r#"{"number":1}"#, at(1)).unwrap();
    let refused = store.open(permit, at(1)).await.unwrap_err();
    assert!(matches!(refused, OpenRefused::NotSpendable { why: NotSpendable::GrantSpent, .. }));
    let left =
        store.grants_covering(&"agent".into(), &"files:write_it".parse().unwrap(), at(1)).await.unwrap();
    assert!(left.is_empty());
}

/// When `open` returns, somebody who goes past the store already finds the row.
async fn invariant_written_first(place: Place) {
    let store = place.store().await;
    for number in 0..20 {
        let opened = store.open(permit_at_once("free_it", "{}", at(number)), at(number)).await.unwrap();
        let sql = format!("SELECT status FROM ledger WHERE id = '{}'", opened.ledger_id());
        assert_eq!(place.raw_texts(&sql).await, [[Some("allowed".to_owned())]]);
        store.close(opened, success(), at(number)).await.unwrap();
    }
}

async fn reads_do_not_wait_and_are_written_all_the_same(place: Place) {
    let soon = place.store().await;
    let mut ids = Vec::new();
    for number in 0..50 {
        let opened = soon.open(permit_at_once("get_it", "{}", at(number)), at(number)).await.unwrap();
        ids.push(opened.ledger_id().clone());
        ids.push(soon.close(opened, success(), at(number)).await.unwrap());
    }
    soon.flush().await.unwrap();
    for id in &ids {
        assert!(soon.activity_row(id).await.unwrap().is_some());
    }
    drop(soon);
    let sync = place.try_store(ConnectOptions { reads: ReadRows::Sync, ..options() }).await.unwrap();
    let opened = sync.open(permit_at_once("get_it", "{}", at(60)), at(60)).await.unwrap();
    assert!(sync.activity_row(opened.ledger_id()).await.unwrap().is_some());
    assert!(verify(&sync, None).await.unwrap().is_clean());
}

async fn results_are_kept_up_to_a_size(place: Place) {
    let store = place.store().await;
    for (token, size, now) in [("small", RESULT_LIMIT, at(0)), ("large", RESULT_LIMIT + 1, at(1))] {
        let holding = hold(&store, token, size as u64, now).await;
        let approval = Approval::over(RecordedChannel::Cli, "ann".into(), now);
        store.approve(&holding.plan_id, approval.clone(), now).await.unwrap();
        let opened = store.open(permit_for(&store, token, now).await, now).await.unwrap();
        let outcome = Outcome { status: OutcomeStatus::Unknown, result: Some("x".repeat(size)), ..success() };
        store.close(opened, outcome, now).await.unwrap();
        let kept = store.plan(&holding.plan_id).await.unwrap().unwrap();
        assert_eq!(kept.state, PlanState::OutcomeUnknown);
        assert_eq!(kept.approval, Some(approval), "an approval that was there stays");
        assert_eq!(kept.result_bytes, Some(size as u64));
        assert_eq!(kept.result.is_some(), size <= RESULT_LIMIT);
    }
}
