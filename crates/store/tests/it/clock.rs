//! A clock that runs backwards: nothing whose end has to be judged goes on, until it is right again.

use countersign_policy::confirm::RecordedChannel;
use countersign_policy::record::{RowKind, RowStatus};
use countersign_policy::refusal::Code;
use countersign_store::{Entry, FaultKind, HoldRefused};

use crate::place::{Place, on_both};
use crate::plans::approval;
use crate::world::{at, hold, hold_as, permit_for};

on_both!(a_clock_set_back_stops_decisions_but_not_the_ledger);

async fn a_clock_set_back_stops_decisions_but_not_the_ledger(place: Place) {
    let store = place.store().await;
    let plan = hold(&store, "a", 1, at(0)).await.plan_id;
    let permit = permit_for(&store, "a", at(0)).await;
    store.append(Entry::new(RowKind::System, RowStatus::Success), at(100)).await.unwrap();
    // It survives a restart.
    drop(store);
    let store = place.store().await;
    let clock =
        |refusal: countersign_policy::refusal::Refusal| assert_eq!(refusal.code, Code::ClockUntrusted);
    let refused = hold_as(&store, "agent", ("write_it", "{}"), "b", at(60)).await.unwrap_err();
    assert!(matches!(&refused, HoldRefused::Fault(fault) if fault.kind() == FaultKind::Clock));
    clock(refused.refusal());
    clock(store.approve(&plan, approval(RecordedChannel::Page, 60), at(60)).await.unwrap_err().refusal());
    clock(store.open(permit, at(60)).await.unwrap_err().refusal());
    assert_eq!(store.expire(at(60)).await.unwrap_err().kind(), FaultKind::Clock);
    // Outcomes are still recorded, and two seconds are tolerated.
    store.append(Entry::new(RowKind::System, RowStatus::Success), at(60)).await.unwrap();
    hold_as(&store, "agent", ("write_it", "{}"), "c", at(98)).await.unwrap();
    // The recorded moment was the mistake: a person says so.
    store.trust_clock(&"ann".into(), at(50)).await.unwrap();
    hold_as(&store, "agent", ("write_it", r#"{"n":1}"#), "d", at(51)).await.unwrap();
    assert!(hold_as(&store, "agent", ("write_it", r#"{"n":2}"#), "e", at(40)).await.is_err());
}

/// Work that waited for its turn while another process recorded later moments is no sign of a clock set back.
#[tokio::test(flavor = "multi_thread")]
async fn waiting_for_others_is_not_a_clock_set_back() {
    let place = Place::sqlite();
    let store = place.store().await;
    let plan = hold(&store, "t1", 1, at(0)).await.plan_id;
    let other = rusqlite::Connection::open(place.path()).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let waiting = tokio::spawn({
        let store = store.clone();
        async move { store.approve(&plan, approval(RecordedChannel::Page, 1), at(1)).await }
    });
    tokio::time::sleep(std::time::Duration::from_millis(3_500)).await;
    other.execute("UPDATE ledger_heads SET clock = ?1", [at(4).as_microsecond()]).unwrap();
    other.execute_batch("COMMIT").unwrap();
    waiting.await.unwrap().unwrap();
}
