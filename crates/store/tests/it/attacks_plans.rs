//! Attacks on plans: approvals that outlive what was shown, secrets in rows, keys that are not there.

use countersign_policy::call::Arguments;
use countersign_policy::confirm::{PlanState, RecordedChannel};
use countersign_policy::digest::Digest;
use countersign_policy::gate::token_digest;
use countersign_policy::grant::Grant;
use countersign_policy::ids::GrantId;
use countersign_policy::plan::Plan;
use countersign_policy::redact::is_redacted;
use countersign_store::{
    ConnectOptions, FaultKind, GrantFilter, LedgerFilter, Outcome, OutcomeStatus, PlanMatch, ShownPlan,
    Store, StoreUrl,
};
use serde_json::{Value, json};

use crate::place::{Kind, Place, on_both, options};
use crate::plans::approval;
use crate::world::{LIFE, at, draft_redacting, freeze, hold, permit_for, permit_redacting, redeem};

on_both!(
    attack_09_repeating_a_call_extends_pending_plans_only,
    attack_09_an_approval_ends_at_the_expiry_that_was_shown,
    attack_12_plans_are_sealed_in_their_rows,
    attack_12_grants_are_sealed_in_their_rows,
    attack_12_redacted_values_are_wiped_when_a_plan_closes,
    attack_12_a_spent_token_of_a_wiped_plan_is_still_spent,
    attack_12_no_digest_of_a_redacted_value_can_be_guessed,
    attack_12_another_key_opens_nothing_and_loses_nothing,
);

async fn attack_09_repeating_a_call_extends_pending_plans_only(place: Place) {
    let store = place.store().await;
    let first = hold(&store, "a", 1, at(0)).await;
    let joined = hold(&store, "b", 1, at(100)).await;
    assert_eq!((joined.how, joined.expires), (PlanMatch::Existing, at(100 + LIFE)), "pending: more time");
    store.approve(&first.plan_id, approval(RecordedChannel::Page, 110), at(110)).await.unwrap();
    let until = at(100 + LIFE);
    for (number, seconds) in [150, 250, 350, 390].into_iter().enumerate() {
        let again = hold(&store, &format!("c{number}"), 1, at(seconds)).await;
        assert_eq!((again.state, again.expires), (PlanState::Approved, until), "approved: none");
    }
    assert_eq!(store.plan(&first.plan_id).await.unwrap().unwrap().plan.expires, until);
    // A token that was given out late does not outlive the approval either.
    let held = store.held(token_digest("c3")).await.unwrap().unwrap();
    assert!(held.token_expires <= until);
    assert!(redeem(&held, "c3", at(100 + LIFE)).is_err(), "the gate says no");
    let again = hold(&store, "late", 1, at(101 + LIFE)).await;
    assert_eq!(
        (again.how, again.state),
        (PlanMatch::New, PlanState::Pending),
        "somebody has to decide again"
    );
}

async fn attack_09_an_approval_ends_at_the_expiry_that_was_shown(place: Place) {
    let store = place.store().await;
    let id = hold(&store, "a", 1, at(0)).await.plan_id;
    let shown = ShownPlan::from(&store.plan(&id).await.unwrap().unwrap().plan);
    assert_eq!(shown.expires, at(LIFE));
    // While the person reads, the agent asks again and the plan gets more time.
    hold(&store, "b", 1, at(200)).await;
    store.approve_shown(&id, Some(shown), approval(RecordedChannel::Page, 210), None, at(210)).await.unwrap();
    assert_eq!(store.plan(&id).await.unwrap().unwrap().plan.expires, at(LIFE));
    // Even a permit that the gate gave out in time does not run after it.
    let permit = permit_for(&store, "b", at(LIFE - 1)).await;
    let refused = store.open(permit, at(LIFE)).await.unwrap_err().refusal();
    assert_eq!(refused.code.as_str(), "E_CONFIRM_TOKEN_EXPIRED");
    // Past what was shown nothing is approved, however much time the plan has.
    let id = hold(&store, "c", 2, at(1000)).await.plan_id;
    let shown = ShownPlan::from(&store.plan(&id).await.unwrap().unwrap().plan);
    hold(&store, "d", 2, at(1200)).await;
    let late = at(1000 + LIFE + 1);
    let refused = store
        .approve_shown(&id, Some(shown), approval(RecordedChannel::Page, 0), None, late)
        .await
        .unwrap_err();
    assert_eq!(refused.refusal().reason_code, "plan_expired");
    let other = ShownPlan { hash: Digest::plain(b"another"), expires: at(9000) };
    let refused = store
        .approve_shown(&id, Some(other), approval(RecordedChannel::Page, 0), None, late)
        .await
        .unwrap_err();
    assert_eq!(refused.refusal().reason_code, "plan_changed");
    assert_eq!(store.plan(&id).await.unwrap().unwrap().state, PlanState::Pending);
}

const SECRET: &str = "hunter2-the-password";

const HIDDEN: [&str; 2] = ["password", "pin"];

fn arguments() -> String {
    json!({"password": SECRET, "pin": 4711000047110000_i64, "user": "ann"}).to_string()
}

async fn permit(store: &Store, token: &str, now: jiff::Timestamp) -> countersign_policy::gate::Permit {
    permit_redacting(store, token, &arguments(), &HIDDEN, now).await
}

/// A plan with redacted arguments, whose preview quotes them.
async fn hold_secret(store: &Store, token: &str, now: i64) -> Plan {
    let draft = draft_redacting("change_it", &arguments(), &HIDDEN, store.salt(), at(now));
    let (mut plan, record) = freeze(&draft, u128::from(token.len() as u64) + 7 * now as u128, at(now));
    plan.preview.shown = json!({"table": [["password", SECRET]], "says": format!("sets {SECRET} and 4711000047110000"), "pin": 4711000047110000_i64});
    store.hold(&plan, token_digest(token), plan.expires, record, at(now)).await.unwrap();
    plan
}

/// Everything the database holds about plans and calls, as text.
async fn everything(place: &Place) -> String {
    let mut all = String::new();
    for sql in [
        "SELECT plan_id, hash, body, result, note, approval FROM plans",
        "SELECT arguments, arguments_digest, plan_hash, intent_reason, detail, result_digest, code FROM ledger",
        "SELECT name, value, NULL FROM meta",
    ] {
        for found in place.raw_texts(sql).await {
            all.push_str(&found.into_iter().flatten().collect::<Vec<_>>().join("\n"));
            all.push('\n');
        }
    }
    all
}

fn outcome(result: &str) -> Outcome {
    Outcome {
        status: OutcomeStatus::Success,
        code: None,
        duration_us: 1,
        result_digest: None,
        result: Some(result.into()),
    }
}

async fn attack_12_plans_are_sealed_in_their_rows(place: Place) {
    let store = place.store().await;
    let plan = hold_secret(&store, "a", 0).await;
    store.approve(&plan.id, approval(RecordedChannel::Page, 1), at(1)).await.unwrap();
    let row = store.plan(&plan.id).await.unwrap().unwrap();
    assert_eq!(row.plan.arguments, plan.arguments, "whoever has the key reads it whole, and it can run");
    let body = &place.raw_texts("SELECT body FROM plans").await[0][0].clone().unwrap();
    assert!(body.starts_with("sealed1:"));
    let all = everything(&place).await;
    assert!(!all.contains(SECRET) && !all.contains("4711000047110000"), "{all}");
    // The body of one plan in another's row, or in the clear, is no plan.
    let id = hold(&store, "bb", 2, at(2)).await.plan_id;
    let other = store.plan(&id).await.unwrap().unwrap().plan;
    place.raw(&format!("UPDATE plans SET body = '{body}' WHERE plan_id = '{}'", other.id)).await;
    assert_eq!(store.plan(&other.id).await.unwrap_err().kind(), FaultKind::Corrupt);
    let clear = serde_json::to_string(&other).unwrap().replace('\'', "''");
    place.raw(&format!("UPDATE plans SET body = '{clear}' WHERE plan_id = '{}'", other.id)).await;
    assert_eq!(store.plan(&other.id).await.unwrap_err().kind(), FaultKind::Corrupt);
}

fn grant(arguments: Value) -> Grant {
    Grant {
        id: GrantId::mint(at(0), 1),
        principal: "agent".into(),
        tool: "files:write_it".into(),
        fingerprint: Digest::plain(b"f"),
        arguments: serde_json::from_value(arguments).unwrap(),
        uses_left: 3,
        expires: at(1000),
        by: "ann".into(),
    }
}

async fn attack_12_grants_are_sealed_in_their_rows(place: Place) {
    let store = place.store().await;
    let given = grant(json!({"password": {"exact": SECRET}, "user": "any"}));
    store.grant(&given, at(0)).await.unwrap();
    let usable = store.grants_covering(&given.principal, &given.tool.parse().unwrap(), at(1)).await.unwrap();
    assert_eq!(usable[0].arguments, given.arguments, "it covers what it was given for");
    let sealed = place.raw_texts("SELECT body FROM grants").await[0][0].clone().unwrap();
    assert!(sealed.starts_with("sealed1:"), "{sealed}");
    assert!(!everything(&place).await.contains(SECRET));
    // A grant that somebody writes into the database is none, now and after a restart.
    let wider = serde_json::to_string(&grant(json!({"password": "any"}))).unwrap();
    place.raw(&format!("UPDATE grants SET body = '{wider}'")).await;
    assert_eq!(store.grants(GrantFilter::All).await.unwrap_err().kind(), FaultKind::Corrupt);
    drop(store);
    let store = place.store().await;
    assert_eq!(store.grants(GrantFilter::All).await.unwrap_err().kind(), FaultKind::Corrupt);
    // One that a version before kept in the clear is sealed once.
    place.raw("DELETE FROM meta WHERE name = 'grants_sealed'").await;
    drop(store);
    let store = place.store().await;
    assert_eq!(store.grants(GrantFilter::All).await.unwrap().len(), 1);
    assert!(place.raw_texts("SELECT body FROM grants").await[0][0].clone().unwrap().starts_with("sealed1:"));
}

async fn attack_12_redacted_values_are_wiped_when_a_plan_closes(place: Place) {
    let store = place.store().await;
    let closed = async |plan: &Plan, state: PlanState| {
        let row = store.plan(&plan.id).await.unwrap().unwrap();
        assert_eq!(row.state, state);
        let text = serde_json::to_string(&row.plan).unwrap();
        assert!(!text.contains(SECRET) && !text.contains("4711000047110000"), "{state}: {text}");
        let value = row.plan.arguments.value();
        assert!(is_redacted(&value["password"]) && is_redacted(&value["pin"]));
        assert_eq!(value["user"], "ann", "the rest stays");
        assert_eq!(row.plan.hash, plan.hash);
    };
    let done = hold_secret(&store, "a", 0).await;
    store.approve(&done.id, approval(RecordedChannel::Page, 0), at(0)).await.unwrap();
    let opened = store.open(permit(&store, "a", at(1)).await, at(1)).await.unwrap();
    assert!(opened.permit().arguments().contains(SECRET), "what runs is what was asked");
    store.close(opened, outcome(&format!("set to {SECRET}")), at(2)).await.unwrap();
    closed(&done, PlanState::Done).await;
    let row = store.plan(&done.id).await.unwrap().unwrap();
    assert_eq!(row.result, Some(format!("set to {SECRET}")), "the result is the caller's, and sealed");
    assert!(!everything(&place).await.contains(SECRET));

    let rejected = hold_secret(&store, "b", 10).await;
    store.reject(&rejected.id, "ann".into(), RecordedChannel::Page, None, at(11)).await.unwrap();
    closed(&rejected, PlanState::Rejected).await;
    let cancelled = hold_secret(&store, "c", 20).await;
    store.cancel(&cancelled.id, &"agent".into(), at(21)).await.unwrap();
    closed(&cancelled, PlanState::Cancelled).await;
    let withdrawn = hold_secret(&store, "d", 30).await;
    store.cancel_for_tool(&withdrawn.tool, at(31)).await.unwrap();
    closed(&withdrawn, PlanState::Cancelled).await;
    let expired = hold_secret(&store, "e", 40).await;
    store.expire(at(40 + LIFE)).await.unwrap();
    closed(&expired, PlanState::Expired).await;
    for (token, now, status, state) in [
        ("f", 1000, OutcomeStatus::Error, PlanState::Failed),
        ("g", 1010, OutcomeStatus::Unknown, PlanState::OutcomeUnknown),
    ] {
        let plan = hold_secret(&store, token, now).await;
        store.approve(&plan.id, approval(RecordedChannel::Page, now), at(now)).await.unwrap();
        let opened = store.open(permit(&store, token, at(now)).await, at(now)).await.unwrap();
        store.close(opened, Outcome { status, ..outcome("x") }, at(now)).await.unwrap();
        closed(&plan, state).await;
    }
}

async fn attack_12_a_spent_token_of_a_wiped_plan_is_still_spent(place: Place) {
    let store = place.store().await;
    let plan = hold_secret(&store, "a", 0).await;
    store.reject(&plan.id, "ann".into(), RecordedChannel::Page, None, at(1)).await.unwrap();
    let held = store.held(token_digest("a")).await.unwrap().unwrap();
    assert!(held.plan.has_arguments(&plan.arguments), "the call that comes back is still known");
    let other = Arguments::parse(br#"{"password":"x","pin":4711000047110000,"user":"ann"}"#).unwrap();
    assert!(!held.plan.has_arguments(&other));
    assert!(!held.plan.has_arguments(&held.plan.arguments), "what stands for them is not them");
}

async fn attack_12_no_digest_of_a_redacted_value_can_be_guessed(place: Place) {
    let store = place.store().await;
    let plan = hold_secret(&store, "a", 0).await;
    store.approve(&plan.id, approval(RecordedChannel::Page, 1), at(1)).await.unwrap();
    let opened = store.open(permit(&store, "a", at(2)).await, at(2)).await.unwrap();
    store.close(opened, outcome("done"), at(3)).await.unwrap();
    let all = everything(&place).await;
    // What somebody could compute who has the database, the tool and the right guess.
    let preview = plan.preview.digest;
    let guess = countersign_policy::plan::PlanHashInput {
        principal: &plan.principal,
        session: &plan.session,
        upstream: &plan.tool.upstream,
        tool: &plan.tool.tool,
        fingerprint: plan.fingerprint,
        arguments: &plan.arguments,
        meta: None,
        preview_digest: preview,
        policy_digest: plan.policy_digest,
        hash_salt: None,
    };
    for guessed in
        [plan.arguments.digest(), Digest::plain(plan.arguments.canonical().as_bytes()), guess.hash()]
    {
        assert!(!all.contains(&guessed.hex()), "a digest of the secret can be found by trying");
    }
    let digests =
        place.raw_texts("SELECT DISTINCT arguments_digest FROM ledger WHERE plan_id IS NOT NULL").await;
    assert_eq!(digests.len(), 1, "all rows of the call agree: {digests:?}");
    // A call without secrets keeps its plain digest, which anybody can check.
    hold(&store, "b", 5, at(4)).await;
    let open = Arguments::parse(br#"{"number":5}"#).unwrap().digest();
    assert!(everything(&place).await.contains(&open.hex()));
    // Equal calls with a secret still find each other.
    let joined = hold_secret(&store, "c", 50).await;
    let again = hold_secret(&store, "dd", 51).await;
    assert_eq!(joined.hash, again.hash);
}

async fn attack_12_another_key_opens_nothing_and_loses_nothing(place: Place) {
    let store = place.store().await;
    let plan = hold_secret(&store, "a", 0).await;
    drop(store);
    let key = match place.kind {
        Kind::Sqlite => place.room.path().join("store.db.seal"),
        Kind::Postgres { .. } => place.room.path().join("store.db.key.seal"),
    };
    let kept = std::fs::read(&key).unwrap();
    std::fs::remove_file(&key).unwrap();
    let fault = place.try_store(options()).await.err().unwrap();
    assert_eq!(fault.kind(), FaultKind::Key);
    assert!(fault.inside().contains("missing") && fault.inside().contains(".seal"), "{}", fault.inside());
    assert!(!key.exists(), "no new key takes its place");
    // Reading the ledger needs no such key; plans stay sealed.
    let at_keys = ConnectOptions { key_file: Some(place.key_file()), ..options() };
    let url: StoreUrl = place.url().parse().unwrap();
    let looks = Store::connect_to_read(&url, at_keys.clone()).await.unwrap();
    assert_eq!(looks.activity(LedgerFilter::default()).await.unwrap().rows.len(), 2);
    assert_eq!(looks.plan(&plan.id).await.unwrap_err().kind(), FaultKind::Key);
    drop(looks);
    // The key of another store is refused as well.
    let other = Place::sqlite();
    drop(other.store().await);
    std::fs::copy(other.room.path().join("store.db.seal"), &key).unwrap();
    assert_eq!(place.try_store(options()).await.err().unwrap().kind(), FaultKind::Key);
    std::fs::write(&key, kept).unwrap();
    let row = place.store().await.plan(&plan.id).await.unwrap().unwrap();
    assert_eq!(row.plan.arguments, plan.arguments, "and nothing is lost");
    // Replicas on other machines name the shared key in the address.
    if matches!(place.kind, Kind::Postgres { .. }) {
        let shared = place.room.path().join("shared.seal");
        std::fs::rename(&key, &shared).unwrap();
        let url: StoreUrl = format!("{}&sealkey={}", place.url(), shared.display()).parse().unwrap();
        let store = Store::connect(&url, at_keys).await.unwrap();
        assert_eq!(store.plan(&plan.id).await.unwrap().unwrap().plan.arguments, plan.arguments);
    }
}
