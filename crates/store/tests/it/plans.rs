//! Plans and decisions: joining, limits, who is first, pauses, expiry, and what is left after a crash.

use countersign_policy::call::Arguments;
use countersign_policy::confirm::{Approval, ApprovalStrength, PlanEnd, PlanState, RecordedChannel};
use countersign_policy::gate::token_digest;
use countersign_policy::ids::{CredentialId, PlanId, Secret};
use countersign_policy::record::RowKind;
use countersign_policy::refusal::Code;
use countersign_policy::role::Role;
use countersign_store::{
    Credential, DecideRefused, HoldRefused, LedgerFilter, NotDecided, PENDING_LIMIT, PauseOutcome,
    PlanFilter, PlanMatch, Store, secret_digest,
};
use serde_json::json;

use crate::place::{Place, on_both};
use crate::world::{LIFE, at, draft, freeze, hold, hold_as, permit_for, redeem};

on_both!(
    an_equal_call_joins_and_either_token_ends_both,
    an_expired_plan_makes_room_for_its_equal,
    attack_02_an_equal_call_joins_whatever_its_meta_and_the_plan_keeps_its_own,
    twenty_pending_are_the_limit,
    the_first_answer_decides_once,
    a_weak_answer_leaves_the_plan_open,
    three_rejections_pause_and_a_person_resumes,
    only_its_owner_cancels,
    a_changed_tool_takes_its_plans_along,
    attack_16_a_plan_ends_with_its_credential,
    time_closes_plans,
    plans_are_listed_newest_first_by_pages,
);

pub(crate) fn approval(channel: RecordedChannel, seconds: i64) -> Approval {
    Approval::over(channel, "ann".into(), at(seconds))
}

fn why(refused: DecideRefused) -> NotDecided {
    match refused {
        DecideRefused::NotDecided(why) => why,
        DecideRefused::Fault(fault) => panic!("{}", fault.inside()),
    }
}

async fn state(store: &Store, id: &PlanId) -> PlanState {
    store.plan(id).await.unwrap().unwrap().state
}

async fn an_equal_call_joins_and_either_token_ends_both(place: Place) {
    let store = place.store().await;
    let first = hold(&store, "a", 1, at(0)).await;
    let second = hold(&store, "b", 1, at(100)).await;
    assert_eq!((first.how, second.how), (PlanMatch::New, PlanMatch::Existing));
    assert_eq!((&second.plan_id, second.hash), (&first.plan_id, first.hash));
    assert_eq!(second.expires, at(100 + LIFE), "joining moves the plan's end");
    let held = store.held(token_digest("a")).await.unwrap().unwrap();
    assert_eq!(held.token_expires, at(LIFE), "but not the first token's");
    assert!(redeem(&held, "a", at(LIFE)).is_err());
    assert!(store.held(token_digest("unknown")).await.unwrap().is_none());

    let late = permit_for(&store, "a", at(101)).await;
    store.open(permit_for(&store, "b", at(101)).await, at(101)).await.unwrap();
    assert_eq!(store.open(late, at(101)).await.unwrap_err().refusal().code, Code::ConfirmTokenUsed);
    let third = hold(&store, "c", 1, at(102)).await;
    assert_eq!(third.how, PlanMatch::New, "a plan that runs is not joined");
    let other = hold_as(&store, "other", ("write_it", r#"{"number":1}"#), "d", at(103)).await.unwrap();
    assert_eq!(other.how, PlanMatch::New, "nor is another principal's");
}

async fn an_expired_plan_makes_room_for_its_equal(place: Place) {
    let store = place.store().await;
    let first = hold(&store, "a", 1, at(0)).await;
    let second = hold(&store, "b", 1, at(LIFE)).await;
    assert_eq!(second.how, PlanMatch::New);
    assert_ne!(first.plan_id, second.plan_id);
    assert_eq!(state(&store, &first.plan_id).await, PlanState::Expired);
}

async fn attack_02_an_equal_call_joins_whatever_its_meta_and_the_plan_keeps_its_own(place: Place) {
    let store = place.store().await;
    let hold = async |token: &str, meta: Option<&str>, number: u128| {
        let mut draft = draft("agent", "write_it", r#"{"number":1}"#, at(0));
        draft.meta = meta.map(|meta| Arguments::parse(meta.as_bytes()).unwrap());
        let (plan, record) = freeze(&draft, number, at(0));
        let holding = store.hold(&plan, token_digest(token), plan.expires, record, at(0)).await.unwrap();
        (plan, holding)
    };
    let (plan, first) = hold("a", Some(r#"{"tool_use":"1","tenant":"shown"}"#), 1).await;
    assert_eq!((first.how, first.hash), (PlanMatch::New, plan.hash));
    for (token, meta, number) in [("b", Some(r#"{"tool_use":"2","tenant":"other"}"#), 2), ("c", None, 3)] {
        let (other, joined) = hold(token, meta, number).await;
        assert_ne!(other.hash, plan.hash);
        assert_eq!(
            (joined.how, &joined.plan_id, joined.hash),
            (PlanMatch::Existing, &first.plan_id, plan.hash)
        );
        let held = store.held(token_digest(token)).await.unwrap().unwrap();
        assert_eq!(held.plan.meta, plan.meta, "what was shown is what will be sent");
    }
    let rows = store
        .activity(LedgerFilter { plan_id: Some(first.plan_id.clone()), ..LedgerFilter::default() })
        .await;
    assert!(rows.unwrap().rows.iter().all(|row| row.plan_hash == Some(plan.hash)));
}

async fn twenty_pending_are_the_limit(place: Place) {
    let store = place.store().await;
    for number in 0..PENDING_LIMIT {
        hold(&store, &format!("t{number}"), number, at(0)).await;
    }
    let arguments = json!({"number": 99}).to_string();
    let refused = hold_as(&store, "agent", ("write_it", &arguments), "more", at(1)).await.unwrap_err();
    assert!(matches!(refused, HoldRefused::TooManyPending));
    assert_eq!(
        (refused.refusal().code, refused.refusal().reason_code),
        (Code::LimitExceeded, "too_many_pending")
    );
    hold(&store, "joins", 3, at(1)).await;
    hold_as(&store, "other", ("write_it", &arguments), "theirs", at(1)).await.unwrap();
    hold(&store, "later", 99, at(LIFE + 1)).await;
}

async fn the_first_answer_decides_once(place: Place) {
    let store = place.store().await;
    let id = hold(&store, "a", 1, at(0)).await.plan_id;
    let decided = store.approve(&id, approval(RecordedChannel::Page, 1), at(1)).await.unwrap();
    assert_eq!(decided.plan.id, id);
    let row = store.activity_row(&decided.ledger_id).await.unwrap().unwrap();
    assert_eq!((row.kind, row.approval().unwrap().by.as_str()), (RowKind::Approval, "ann"));
    let again = why(store.approve(&id, approval(RecordedChannel::Cli, 2), at(2)).await.unwrap_err());
    assert_eq!(again, NotDecided::Decided(PlanState::Approved));
    assert_eq!(again.refusal().code, Code::PlanDecided);
    let no = store.reject(&id, "bob".into(), RecordedChannel::Page, None, at(2)).await.unwrap_err();
    assert_eq!(why(no), NotDecided::Decided(PlanState::Approved));
    assert_eq!(store.plan(&id).await.unwrap().unwrap().approval, Some(approval(RecordedChannel::Page, 1)));
    let unknown =
        why(store.approve(&"pln_x".into(), approval(RecordedChannel::Page, 1), at(1)).await.unwrap_err());
    assert_eq!(unknown.refusal().code, Code::PlanNotFound);
    let old = hold(&store, "b", 2, at(0)).await.plan_id;
    let late = why(store.approve(&old, approval(RecordedChannel::Page, LIFE), at(LIFE)).await.unwrap_err());
    assert_eq!((late, late.refusal().reason_code), (NotDecided::Expired, "plan_expired"));
}

async fn a_weak_answer_leaves_the_plan_open(place: Place) {
    let store = place.store().await;
    let id = hold_as(&store, "agent", ("delete_it", "{}"), "a", at(0)).await.unwrap().plan_id;
    assert_eq!(store.plan(&id).await.unwrap().unwrap().plan.requirement.strength, ApprovalStrength::Host);
    let weak = why(store.approve(&id, approval(RecordedChannel::Chat, 1), at(1)).await.unwrap_err());
    assert_eq!((weak, state(&store, &id).await), (NotDecided::TooWeak, PlanState::Pending));
    store.approve(&id, approval(RecordedChannel::Card, 2), at(2)).await.unwrap();
}

async fn three_rejections_pause_and_a_person_resumes(place: Place) {
    let store = place.store().await;
    let agent = "agent".into();
    let reject = async |number: u64, seconds: i64| {
        let id = hold(&store, &format!("t{number}"), number, at(seconds)).await.plan_id;
        let note = Some(format!("no {number}"));
        let decided =
            store.reject(&id, "ann".into(), RecordedChannel::Page, note, at(seconds)).await.unwrap();
        assert_eq!(store.plan(&id).await.unwrap().unwrap().note, Some(format!("no {number}")));
        decided.paused
    };
    // Two, and a third eleven minutes later: too far apart.
    assert_eq!(
        (reject(1, 0).await, reject(2, 1).await, reject(3, 661).await),
        (PauseOutcome::No, PauseOutcome::No, PauseOutcome::No)
    );
    assert_eq!(store.paused(&agent).await.unwrap(), None);
    assert_eq!((reject(4, 700).await, reject(5, 701).await), (PauseOutcome::No, PauseOutcome::Now));
    assert_eq!(store.paused(&agent).await.unwrap(), Some(at(701)));
    assert_eq!(store.paused(&"other".into()).await.unwrap(), None);
    assert!(store.resume(&agent, &"ann".into(), at(702)).await.unwrap().is_some());
    assert!(store.resume(&agent, &"ann".into(), at(702)).await.unwrap().is_none());
    assert_eq!(store.paused(&agent).await.unwrap(), None);
    assert_eq!(reject(6, 703).await, PauseOutcome::No, "what was before the resume no longer counts");
}

async fn only_its_owner_cancels(place: Place) {
    let store = place.store().await;
    let id = hold(&store, "a", 1, at(0)).await.plan_id;
    let foreign = why(store.cancel(&id, &"other".into(), at(1)).await.unwrap_err());
    assert_eq!(foreign, NotDecided::Unknown, "a foreign plan looks like none");
    store.cancel(&id, &"agent".into(), at(1)).await.unwrap();
    let again = why(store.cancel(&id, &"agent".into(), at(1)).await.unwrap_err());
    assert_eq!(again, NotDecided::Decided(PlanState::Cancelled));
}

async fn a_changed_tool_takes_its_plans_along(place: Place) {
    let store = place.store().await;
    let open = hold(&store, "a", 1, at(0)).await.plan_id;
    let agreed = hold(&store, "b", 2, at(0)).await.plan_id;
    store.approve(&agreed, approval(RecordedChannel::Page, 1), at(1)).await.unwrap();
    let other = hold_as(&store, "agent", ("delete_it", "{}"), "c", at(0)).await.unwrap().plan_id;
    let mut closed = store.cancel_for_tool(&"files:write_it".parse().unwrap(), at(2)).await.unwrap();
    closed.sort();
    let mut expect = [open, agreed];
    expect.sort();
    assert_eq!(closed, expect);
    assert_eq!(state(&store, &other).await, PlanState::Pending);
    assert!(store.cancel_for_tool(&"files:write_it".parse().unwrap(), at(2)).await.unwrap().is_empty());
}

/// Expired or revoked: nobody agrees to it, nobody runs it, and an equal call is a new plan.
async fn attack_16_a_plan_ends_with_its_credential(place: Place) {
    let store = place.store().await;
    for (number, end) in [PlanEnd::CredentialExpired, PlanEnd::CredentialRevoked].into_iter().enumerate() {
        let from = 100 * i64::try_from(number).unwrap();
        let at = |seconds: i64| at(from + seconds);
        let (name, id) = (format!("bot-{number}"), CredentialId::new(format!("crd_{number}")));
        let credential = Credential {
            id: id.clone(),
            role: Role::Agent,
            name: name.clone(),
            scopes: json!({}),
            created: at(0),
            expires: (end == PlanEnd::CredentialExpired).then(|| at(10)),
            revoked: None,
        };
        let secret = secret_digest(&Secret::new(name.as_str()));
        store.add_credential(&credential, secret, &"root".into(), at(0)).await.unwrap();
        let mut plans = Vec::new();
        for (token, argument) in [("pending", 1), ("agreed", 2)] {
            let arguments = json!({"number": argument}).to_string();
            let (mut plan, record) =
                freeze(&draft(&name, "write_it", &arguments, at(1)), number as u128 * 2 + argument, at(1));
            plan.credential = Some(id.clone());
            let token = token_digest(&format!("{name}-{token}"));
            plans.push(store.hold(&plan, token, plan.expires, record, at(1)).await.unwrap().plan_id);
        }
        store.approve(&plans[1], approval(RecordedChannel::Page, from + 2), at(2)).await.unwrap();
        // The gate said yes a moment before.
        let permit = permit_for(&store, &format!("{name}-agreed"), at(3)).await;
        if end == PlanEnd::CredentialRevoked {
            store.revoke_credential(&id, &"root".into(), at(20)).await.unwrap().unwrap();
            assert!(store.open(permit, at(20)).await.is_err(), "the race ends in the store");
            assert_eq!(state(&store, &plans[1]).await, PlanState::Cancelled);
        }
        let refused = why(store
            .approve(&plans[0], approval(RecordedChannel::Page, from + 21), at(21))
            .await
            .unwrap_err());
        assert_eq!(refused, NotDecided::Ended(end));
        assert_eq!(refused.refusal().code, Code::PlanCancelled);
        let held = store.held(token_digest(&format!("{name}-agreed"))).await.unwrap().unwrap();
        assert!(redeem(&held, &format!("{name}-agreed"), at(21)).unwrap_err().contains("E_PLAN_CANCELLED"));
        let arguments = json!({"number": 1}).to_string();
        let again = hold_as(&store, &name, ("write_it", &arguments), &format!("{name}-again"), at(22)).await;
        assert_ne!(again.unwrap().plan_id, plans[0]);
    }
}

async fn time_closes_plans(place: Place) {
    let store = place.store().await;
    let id = hold(&store, "a", 1, at(0)).await.plan_id;
    hold(&store, "b", 2, at(10)).await;
    assert!(store.expire(at(LIFE - 1)).await.unwrap().is_empty());
    assert_eq!(store.expire(at(LIFE)).await.unwrap(), std::slice::from_ref(&id));
    assert_eq!(state(&store, &id).await, PlanState::Expired);
    let page = store
        .activity(LedgerFilter { kind: Some(RowKind::Decision), ..LedgerFilter::default() })
        .await
        .unwrap();
    assert_eq!(page.rows.len(), 1);
    assert_eq!(page.rows[0].plan_id, Some(id));
}

async fn plans_are_listed_newest_first_by_pages(place: Place) {
    let store = place.store().await;
    let mut ids = Vec::new();
    for number in 0..5 {
        ids.push(hold(&store, &format!("t{number}"), number, at(number as i64)).await.plan_id);
    }
    store.approve(&ids[2], approval(RecordedChannel::Page, 6), at(6)).await.unwrap();
    ids.reverse();
    let list = async |filter: PlanFilter| {
        let found = store.plans(filter).await.unwrap();
        found.into_iter().map(|row| row.plan.id).collect::<Vec<_>>()
    };
    assert_eq!(list(PlanFilter::default()).await, ids);
    assert_eq!(list(PlanFilter { limit: Some(2), ..Default::default() }).await, ids[..2]);
    let next = PlanFilter { limit: Some(2), cursor: Some(ids[1].clone()), ..Default::default() };
    assert_eq!(list(next).await, ids[2..4]);
    assert_eq!(
        list(PlanFilter { state: Some(PlanState::Approved), ..Default::default() }).await,
        [ids[2].clone()]
    );
    assert!(list(PlanFilter { principal: Some("other".into()), ..Default::default() }).await.is_empty());
}
