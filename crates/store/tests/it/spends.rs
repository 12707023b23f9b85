//! Conditions of the statements that spend, revise and grant: each holds also if the world changed after the gate gave its permit.

use countersign_policy::confirm::{PlanState, RecordedChannel};
use countersign_policy::gate::{Permit, token_digest};
use countersign_policy::grant::{Allowed, Grant};
use countersign_policy::ids::GrantId;
use countersign_policy::plan::Plan;
use countersign_store::{DecideRefused, NotDecided, NotSpendable, OpenRefused, Store};
use jiff::Timestamp;

use crate::place::{Place, on_both};
use crate::plans::approval;
use crate::world::{LIFE, at, draft, freeze, hold, permit_for, permit_granted, redeem, tool};

on_both!(
    a_token_that_expired_after_the_permit_is_not_spent,
    a_token_of_another_plan_is_not_spent,
    an_approval_without_a_ledger_row_is_not_spent,
    a_plan_that_was_revised_after_the_permit_is_not_spent,
    a_revision_needs_the_plan_that_was_looked_at_open_and_unlike_others,
    a_grant_that_ended_after_the_permit_is_not_used,
    an_expired_plan_is_neither_rejected_nor_cancelled,
    only_an_approved_plan_gets_another_token,
);

async fn why_refused(store: &Store, permit: Permit, now: Timestamp) -> NotSpendable {
    match store.open(permit, now).await {
        Err(OpenRefused::NotSpendable { why, .. }) => why,
        other => panic!("{other:?}"),
    }
}

async fn a_token_that_expired_after_the_permit_is_not_spent(place: Place) {
    let store = place.store().await;
    let (plan, record) = freeze(&draft("agent", "write_it", r#"{"number":1}"#, at(0)), 1, at(0));
    store.hold(&plan, token_digest("t"), at(10), record, at(0)).await.unwrap();
    let permit = permit_for(&store, "t", at(5)).await;
    assert_eq!(why_refused(&store, permit, at(11)).await, NotSpendable::Expired);
}

async fn a_token_of_another_plan_is_not_spent(place: Place) {
    let store = place.store().await;
    hold(&store, "a", 1, at(0)).await;
    hold(&store, "b", 2, at(0)).await;
    let held = store.held(token_digest("a")).await.unwrap().unwrap();
    let permit = redeem(&held, "b", at(1)).unwrap();
    assert_eq!(why_refused(&store, permit, at(1)).await, NotSpendable::Unknown);
    store.open(permit_for(&store, "b", at(1)).await, at(1)).await.unwrap();
}

async fn an_approval_without_a_ledger_row_is_not_spent(place: Place) {
    let store = place.store().await;
    hold(&store, "t", 1, at(0)).await;
    let forged = serde_json::to_string(&approval(RecordedChannel::Page, 0)).unwrap();
    place.raw(&format!("UPDATE plans SET state = 'approved', approval = '{forged}'")).await;
    let permit = permit_for(&store, "t", at(1)).await;
    assert_eq!(why_refused(&store, permit, at(1)).await, NotSpendable::Unproven);
}

/// The plan of other arguments under the id of one that is held.
fn revised(held: &Plan, number: u64) -> Plan {
    let arguments = format!(r#"{{"number":{number}}}"#);
    let (plan, _) = freeze(&draft("agent", "write_it", &arguments, at(0)), 9, at(0));
    Plan { id: held.id.clone(), ..plan }
}

async fn a_plan_that_was_revised_after_the_permit_is_not_spent(place: Place) {
    let store = place.store().await;
    let holding = hold(&store, "t", 1, at(0)).await;
    let permit = permit_for(&store, "t", at(1)).await;
    let held = store.plan(&holding.plan_id).await.unwrap().unwrap().plan;
    assert!(store.revise(held.hash, &revised(&held, 7), &"ann".into(), at(1)).await.unwrap());
    assert_eq!(why_refused(&store, permit, at(2)).await, NotSpendable::Unknown);
    let kept = store.plan(&holding.plan_id).await.unwrap().unwrap().plan;
    assert_eq!(kept.arguments.canonical(), r#"{"number":7}"#);
}

async fn a_revision_needs_the_plan_that_was_looked_at_open_and_unlike_others(place: Place) {
    let store = place.store().await;
    let revise = async |held: &Plan, number: u64, seen, now| {
        store.revise(seen, &revised(held, number), &"ann".into(), now).await.unwrap()
    };
    let first = hold(&store, "a", 1, at(0)).await;
    let first = store.plan(&first.plan_id).await.unwrap().unwrap().plan;
    let second = hold(&store, "b", 2, at(0)).await;
    let second = store.plan(&second.plan_id).await.unwrap().unwrap().plan;
    assert!(!revise(&first, 7, second.hash, at(1)).await, "it is not what was looked at");
    assert!(!revise(&first, 2, first.hash, at(1)).await, "an equal plan is open");
    assert!(!revise(&first, 7, first.hash, at(LIFE)).await, "it has expired");
    store.approve(&first.id, approval(RecordedChannel::Page, 1), at(1)).await.unwrap();
    assert!(!revise(&first, 7, first.hash, at(2)).await, "it is decided");
    assert!(revise(&second, 7, second.hash, at(2)).await);
    assert!(!revise(&second, 8, second.hash, at(2)).await, "it is another plan by now");
}

async fn a_grant_that_ended_after_the_permit_is_not_used(place: Place) {
    let store = place.store().await;
    let given = |number: u128, expires: i64| Grant {
        id: GrantId::mint(at(0), number),
        principal: "agent".into(),
        tool: "files:write_it".into(),
        fingerprint: tool("write_it").fingerprint,
        arguments: [("number".to_owned(), Allowed::Any)].into(),
        uses_left: 2,
        expires: at(expires),
        by: "ann".into(),
    };
    let (revoked, short) = (given(1, 100), given(2, 10));
    for grant in [&revoked, &short] {
        store.grant(grant, at(0)).await.unwrap();
    }
    let permit = permit_granted(&revoked, r#"{"number":1}"#, at(1)).unwrap();
    store.revoke_grant(&revoked.id, &"ann".into(), at(2)).await.unwrap().unwrap();
    assert_eq!(why_refused(&store, permit, at(3)).await, NotSpendable::GrantSpent);
    let permit = permit_granted(&short, r#"{"number":1}"#, at(9)).unwrap();
    assert_eq!(why_refused(&store, permit, at(10)).await, NotSpendable::GrantSpent);
}

async fn an_expired_plan_is_neither_rejected_nor_cancelled(place: Place) {
    let store = place.store().await;
    let id = hold(&store, "t", 1, at(0)).await.plan_id;
    let late = at(LIFE);
    let rejected = store.reject(&id, "ann".into(), RecordedChannel::Page, None, late).await;
    assert!(matches!(rejected, Err(DecideRefused::NotDecided(NotDecided::Expired))), "{rejected:?}");
    let cancelled = store.cancel(&id, &"agent".into(), late).await;
    assert!(matches!(cancelled, Err(DecideRefused::NotDecided(NotDecided::Expired))), "{cancelled:?}");
    assert_eq!(store.plan(&id).await.unwrap().unwrap().state, PlanState::Pending);
}

async fn only_an_approved_plan_gets_another_token(place: Place) {
    let store = place.store().await;
    let id = hold(&store, "t", 1, at(0)).await.plan_id;
    assert!(!store.lend_token(&id, token_digest("early"), at(1)).await.unwrap(), "it is pending");
    store.approve(&id, approval(RecordedChannel::Page, 1), at(1)).await.unwrap();
    assert!(!store.lend_token(&id, token_digest("late"), at(LIFE)).await.unwrap(), "it has expired");
    assert!(store.lend_token(&id, token_digest("more"), at(2)).await.unwrap());
    store.open(permit_for(&store, "more", at(3)).await, at(3)).await.unwrap();
    assert!(store.held(token_digest("early")).await.unwrap().is_none());
}
