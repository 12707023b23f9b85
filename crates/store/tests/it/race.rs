//! Races: many who redeem the same tokens at once, in threads and in processes. Each token works exactly once.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use countersign_policy::confirm::{PlanState, RecordedChannel};
use countersign_policy::gate::token_digest;
use countersign_policy::ids::PlanId;
use countersign_store::ledger::verify;
use countersign_store::{ConnectOptions, DecideRefused, LedgerFilter, OpenRefused, Store};
use tokio::sync::Barrier;

use crate::place::{Place, is_long, is_quick, on_both, options};
use crate::plans::approval;
use crate::processes::{Other, listen, same_store, say};
use crate::world::{at, hold, hold_as, redeem};

on_both!(invariant_races_end_in_sql, approvals_race_too, opposite_orders_get_answers);

const THREADS: usize = 8;
/// Tokens each contender gets permits for before anyone spends.
const HEAT: usize = 50;

fn token(number: usize) -> String {
    format!("token-{number}")
}

/// 8 threads in each of 2 processes redeem the same tokens.
async fn invariant_races_end_in_sql(place: Place) {
    let count = match () {
        () if is_long() => 5_000,
        () if is_quick() => 50,
        () => 500,
    };
    let store = place.store().await;
    prepare(&store, count).await;
    // Chains of their own: on PostgreSQL nothing but the statement itself keeps the two apart.
    let part = |writer: &str| Other::start(&place, &format!("race {count} {writer}"));
    let mut others = [part("one"), part("two")];
    for other in &mut others {
        assert_eq!(other.hear().as_deref(), Some("ready"));
    }
    others.iter_mut().for_each(|other| other.tell("go"));
    let mut wins: HashMap<String, u32> = HashMap::new();
    let mut shares = Vec::new();
    for other in &mut others {
        let mut share = 0;
        while let Some(line) = other.hear() {
            *wins.entry(line.strip_prefix("won ").unwrap().to_owned()).or_default() += 1;
            share += 1;
        }
        assert!(other.child.wait().unwrap().success());
        shares.push(share);
    }
    println!("{count} tokens, 2 processes, {THREADS} threads each: won {shares:?}");
    for number in 0..count {
        assert_eq!(wins.get(&token(number)), Some(&1), "{}", token(number));
    }
    assert_eq!(wins.len(), count);
    let sql = "SELECT CAST(COUNT(*) AS TEXT) FROM ledger WHERE status = 'allowed'";
    assert_eq!(place.raw_texts(sql).await, [[Some(count.to_string())]], "one row each, too");
    assert!(verify(&store, None).await.unwrap().is_clean());
}

async fn prepare(store: &Store, count: usize) {
    let mut held = Vec::new();
    for number in 0..count {
        let store = store.clone();
        held.push(tokio::spawn(async move {
            // Twenty a principal may be pending.
            let who = format!("agent-{}", number / 20);
            hold_as(&store, &who, ("write_it", &format!("{{\"n\":{number}}}")), &token(number), at(0))
                .await
                .unwrap();
        }));
    }
    for one in held {
        one.await.unwrap();
    }
}

/// The part of another process: every thread tries every token.
pub(crate) async fn redeem_all(how: &str) {
    let (count, writer) = how.split_once(' ').unwrap();
    let count: usize = count.parse().unwrap();
    let store = same_store(writer).await;
    let gate = Arc::new(Barrier::new(THREADS));
    say("ready");
    listen();
    let threads: Vec<_> = (0..THREADS)
        .map(|_| {
            let (store, gate) = (store.clone(), Arc::clone(&gate));
            tokio::spawn(async move {
                let mut won = Vec::new();
                for heat in (0..count).step_by(HEAT) {
                    let mut permits = Vec::new();
                    for number in heat..(heat + HEAT).min(count) {
                        let held = store.held(token_digest(&token(number))).await.unwrap().unwrap();
                        // Where the other process was faster the gate says so, and there is no permit.
                        permits
                            .extend(redeem(&held, &token(number), at(1)).ok().map(|permit| (number, permit)));
                    }
                    gate.wait().await;
                    for (number, permit) in permits {
                        match store.open(permit, at(1)).await {
                            Ok(_) => won.push(token(number)),
                            Err(OpenRefused::NotSpendable { .. }) => {}
                            Err(OpenRefused::Fault(fault, _)) => panic!("{}", fault.inside()),
                        }
                    }
                }
                won
            })
        })
        .collect();
    for thread in threads {
        for token in thread.await.unwrap() {
            say(format_args!("won {token}"));
        }
    }
}

async fn two_writers(place: &Place) -> (Store, Store) {
    let named = |name: &str| ConnectOptions { writer: name.into(), ..options() };
    (place.try_store(named("one")).await.unwrap(), place.try_store(named("two")).await.unwrap())
}

/// Two replicas decide the same plans in opposite order, many in one transaction: a deadlock is not an answer.
async fn opposite_orders_get_answers(place: Place) {
    let (one, other) = two_writers(&place).await;
    for round in 0..4 {
        let now = at(round * 10);
        let mut plans = Vec::new();
        for number in 0..10 {
            let holding = hold(&one, &format!("{round}-{number}"), (round * 100 + number) as u64, now).await;
            plans.push(holding.plan_id);
        }
        let answers: Vec<_> = (0..plans.len())
            .flat_map(|number| {
                let (yes, no) = (plans[number].clone(), plans[plans.len() - 1 - number].clone());
                let (one, other) = (one.clone(), other.clone());
                let yes =
                    tokio::spawn(
                        async move { one.approve(&yes, approval(RecordedChannel::Page, 0), now).await },
                    );
                let no = tokio::spawn(async move {
                    other.reject(&no, "bob".into(), RecordedChannel::Cli, None, now).await
                });
                [yes, no]
            })
            .collect();
        let mut decided = 0;
        for answer in answers {
            match answer.await.unwrap() {
                Ok(_) => decided += 1,
                Err(DecideRefused::NotDecided(_)) => {}
                Err(DecideRefused::Fault(fault)) => panic!("{}", fault.inside()),
            }
        }
        assert_eq!(decided, plans.len(), "each once");
        for plan in &plans {
            // The approval is withdrawn, so that the next round starts fresh.
            let _ = one.cancel(plan, &"agent".into(), now).await;
        }
    }
    assert!(verify(&one, None).await.unwrap().is_clean());
}

/// A connection of somebody else's that holds a plan until it is dropped.
pub(crate) async fn hold_back(place: &Place, plan: &PlanId) -> tokio_postgres::Client {
    let (client, connection) = tokio_postgres::connect(&place.url(), tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    let sql = format!("BEGIN; SELECT 1 FROM plans WHERE plan_id = '{plan}' FOR UPDATE");
    client.batch_execute(&sql).await.unwrap();
    client
}

/// Work that was taken into one transaction with work that has to wait for another replica does not wait with it: each would
/// hold what the other waits for, and the server would end one of them after a second.
#[tokio::test(flavor = "multi_thread")]
async fn who_waits_for_another_replica_holds_nobody_up() {
    let Some(place) = Place::postgres().await else { return };
    let store = place.store().await;
    let mut plans = Vec::new();
    for number in 0..4 {
        plans.push(hold(&store, &token(number), number as u64, at(0)).await.plan_id);
    }
    let (first, last) = (hold_back(&place, &plans[0]).await, hold_back(&place, &plans[2]).await);
    let approve = |plan: &PlanId| {
        let (store, plan) = (store.clone(), plan.clone());
        tokio::spawn(async move { store.approve(&plan, approval(RecordedChannel::Page, 0), at(0)).await })
    };
    // The first keeps the writer busy, so that the others come together.
    let busy = approve(&plans[0]);
    tokio::time::sleep(Duration::from_millis(300)).await;
    let (before, held, after) = (approve(&plans[1]), approve(&plans[2]), approve(&plans[3]));
    tokio::time::sleep(Duration::from_millis(300)).await;
    drop(first);
    for (name, answer) in [("the first", busy), ("the one before it", before), ("the one after it", after)] {
        let answer = tokio::time::timeout(Duration::from_secs(30), answer).await;
        assert!(answer.unwrap_or_else(|_| panic!("{name} waits")).unwrap().is_ok(), "{name}");
    }
    assert!(!held.is_finished(), "it is held back still");
    drop(last);
    assert!(held.await.unwrap().is_ok());
    assert!(verify(&store, None).await.unwrap().is_clean());
}

/// Approve, reject, cancel and run, all at once: one of them happens.
async fn approvals_race_too(place: Place) {
    let (one, other) = two_writers(&place).await;
    let agent = "agent".into();
    for round in 0..15 {
        let now = at(round as i64);
        let holding = hold(&one, &token(round), round as u64, now).await;
        let id = &holding.plan_id;
        let permit = crate::world::permit_for(&one, &token(round), now).await;
        let (yes, yes_too, no, cancel, run) = tokio::join!(
            one.approve(id, approval(RecordedChannel::Page, 0), now),
            other.approve(id, approval(RecordedChannel::Cli, 0), now),
            other.reject(id, "bob".into(), RecordedChannel::Page, None, now),
            one.cancel(id, &agent, now),
            other.open(permit, now),
        );
        for refused in [yes.as_ref().err(), yes_too.as_ref().err(), no.as_ref().err()].into_iter().flatten() {
            assert!(matches!(refused, DecideRefused::NotDecided(_)), "{refused:?}");
        }
        let answers = [yes.is_ok(), yes_too.is_ok(), no.is_ok()].iter().filter(|won| **won).count();
        assert!(answers <= 1, "the first answer decides");
        let ends = [no.is_ok(), cancel.is_ok(), run.is_ok()].iter().filter(|won| **won).count();
        assert_eq!(ends, 1, "a plan ends once");
        let state = one.plan(id).await.unwrap().unwrap().state;
        let expect = match (no.is_ok(), cancel.is_ok()) {
            (true, _) => PlanState::Rejected,
            (_, true) => PlanState::Cancelled,
            _ => PlanState::Executing,
        };
        assert_eq!(state, expect);
        one.resume(&agent, &"ann".into(), now).await.unwrap();
    }
    let all = one.activity(LedgerFilter { limit: Some(1000), ..LedgerFilter::default() }).await.unwrap();
    assert!(all.rows.len() > 30);
    assert!(verify(&one, None).await.unwrap().is_clean());
}
