//! Killed writers: what was acknowledged is there, what is there is whole, and calls on their way have an unknown outcome.

use std::time::{Duration, Instant};

use countersign_policy::confirm::PlanState;
use countersign_policy::ids::RunId;
use countersign_policy::record::{RowKind, RowStatus};
use countersign_store::ledger::verify;
use countersign_store::{BackgroundRun, Entry, LedgerFilter, RunState};

use crate::calls::success;
use crate::place::{Place, is_long, is_quick, on_both};
use crate::processes::{Other, listen, same_store, say};
use crate::world::{at, hold, permit_at_once, permit_for};

on_both!(
    a_killed_writer_loses_nothing_it_acknowledged,
    a_call_whose_process_was_killed_has_an_unknown_outcome,
    a_late_answer_is_better_than_none,
);

/// The part of a process that will be killed: eight callers append and say what was acknowledged.
pub(crate) async fn append_for_ever() {
    let store = same_store("main").await;
    let callers: Vec<_> = (0..8)
        .map(|caller| {
            let store = store.clone();
            tokio::spawn(async move {
                for number in 0.. {
                    let entry = Entry::new(RowKind::Config, RowStatus::Success)
                        .with_fact("caller", caller)
                        .with_fact("text", "x".repeat(number % 3000));
                    let id = store.append(entry, at(0)).await.unwrap();
                    say(format_args!("ack {id}"));
                }
            })
        })
        .collect();
    for caller in callers {
        caller.await.unwrap();
    }
}

async fn a_killed_writer_loses_nothing_it_acknowledged(place: Place) {
    let rounds = match () {
        () if is_long() => 50,
        () if is_quick() => 2,
        () => 8,
    };
    let mut acknowledged = Vec::new();
    for round in 0..rounds {
        let mut writer = Other::start(&place, "append");
        // Killed at another point each time: after the first rows, in the middle, around a checkpoint.
        for _ in 0..(1 + round * 37 % 400) {
            acknowledged.push(writer.hear().unwrap());
        }
        acknowledged.extend(writer.kill());
    }
    let store = place.store().await;
    let report = verify(&store, None).await.unwrap();
    assert_eq!(report.first_bad, None);
    println!("{rounds} kills, {} rows acknowledged, {} found", acknowledged.len(), report.rows);
    for line in &acknowledged {
        let id = line.strip_prefix("ack ").unwrap().into();
        let row = store.activity_row(&id).await.unwrap();
        assert!(row.is_some(), "acknowledged and lost: {id}");
    }
    // Every row can be read: none is half written.
    let mut filter = LedgerFilter { limit: Some(1000), ..LedgerFilter::default() };
    let mut read = 0;
    loop {
        let page = store.activity(filter.clone()).await.unwrap();
        read += page.rows.len() as u64;
        filter.cursor = page.next_cursor;
        if filter.cursor.is_none() {
            break;
        }
    }
    assert_eq!(read, report.rows);
    store.append(Entry::new(RowKind::Config, RowStatus::Success), at(1)).await.unwrap();
    assert!(verify(&store, None).await.unwrap().is_clean());
}

/// The part of a process that is killed while its calls are on their way.
pub(crate) async fn open_and_wait(token: &str) {
    let store = same_store("main").await;
    let planned = store.open(permit_for(&store, token, at(1)).await, at(1)).await.unwrap();
    let free = store.open(permit_at_once("free_it", "{}", at(1)), at(1)).await.unwrap();
    let run = BackgroundRun {
        id: RunId::mint(at(1), 5),
        principal: "agent".into(),
        session: "s1".into(),
        tool: "files:free_it".into(),
        state: RunState::Running,
        ledger_id: Some(free.ledger_id().clone()),
        started: at(1),
        ended: None,
        exit_code: None,
        log_tail: vec!["began".into()],
    };
    store.begin_run(&run).await.unwrap();
    say(format_args!("opened {} {} {}", planned.ledger_id(), free.ledger_id(), run.id));
    listen();
}

async fn a_call_whose_process_was_killed_has_an_unknown_outcome(place: Place) {
    let store = place.store().await;
    let plan = hold(&store, "a", 1, at(0)).await.plan_id;
    let mut other = Other::start(&place, "open a");
    let said = other.hear().unwrap();
    let opened: Vec<&str> = said.split(' ').skip(1).collect();
    // While the process lives, nobody touches its calls.
    let nothing = store.recover(at(2)).await.unwrap();
    assert!(nothing.calls.is_empty() && nothing.plans.is_empty() && nothing.runs.is_empty());
    assert_eq!(store.plan(&plan).await.unwrap().unwrap().state, PlanState::Executing);
    other.kill();
    let patience = Instant::now() + Duration::from_secs(30);
    let found = loop {
        // A server notices the end of a connection in its own time.
        let found = store.recover(at(3)).await.unwrap();
        if !found.calls.is_empty() || Instant::now() > patience {
            break found;
        }
    };
    assert_eq!(found.plans, std::slice::from_ref(&plan));
    assert_eq!(found.runs.iter().map(|run| run.as_str()).collect::<Vec<_>>(), [opened[2]]);
    let mut calls: Vec<&str> = found.calls.iter().map(|id| id.as_str()).collect();
    calls.sort_unstable();
    assert_eq!(calls, opened[..2]);
    assert_eq!(store.plan(&plan).await.unwrap().unwrap().state, PlanState::OutcomeUnknown);
    assert_eq!(store.run(&opened[2].into()).await.unwrap().unwrap().state, RunState::OutcomeUnknown);
    let filter =
        LedgerFilter { status: Some(RowStatus::Error), kind: Some(RowKind::Call), ..LedgerFilter::default() };
    let rows = store.activity(filter).await.unwrap().rows;
    assert_eq!(rows.len(), 2);
    for row in rows {
        assert_eq!(row.detail.as_ref().unwrap().value()["outcome"], "unknown");
        assert!(row.tool.is_some() && row.intent.is_some() && row.arguments.is_some());
    }
    let again = store.recover(at(4)).await.unwrap();
    assert!(again.calls.is_empty(), "once is enough");
}

async fn a_late_answer_is_better_than_none(place: Place) {
    let store = place.store().await;
    let plan = hold(&store, "a", 1, at(0)).await.plan_id;
    let opened = store.open(permit_for(&store, "a", at(1)).await, at(1)).await.unwrap();
    // Somebody took this process for dead.
    place.raw("UPDATE plans SET state = 'outcome_unknown'; DELETE FROM in_flight").await;
    store.close(opened, success(), at(2)).await.unwrap();
    assert_eq!(store.plan(&plan).await.unwrap().unwrap().state, PlanState::Done);
}
