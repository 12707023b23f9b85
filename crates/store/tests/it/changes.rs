//! News between replicas on a real PostgreSQL: what one decides the other hears, once committed and not before.

use std::time::{Duration, Instant};

use countersign_policy::confirm::{Approval, RecordedChannel};
use countersign_store::{Changed, Store, StoreSharing};
use tokio::sync::broadcast::Receiver;

use crate::place::Place;
use crate::world::{at, hold, permit_for};

const PATIENCE: Duration = Duration::from_secs(20);

async fn next(news: &mut Receiver<Changed>) -> Changed {
    tokio::time::timeout(PATIENCE, news.recv()).await.expect("nothing was heard").unwrap()
}

/// Hears from now on: the first word of an ear is that something may have been missed.
async fn hearing(store: &Store) -> Receiver<Changed> {
    let mut news = store.changes();
    assert_eq!(next(&mut news).await, Changed::Missed);
    assert!(store.is_hearing());
    news
}

#[tokio::test(flavor = "multi_thread")]
async fn what_one_replica_decides_the_other_hears() {
    let Some(place) = Place::postgres().await else { return };
    let (here, there) = (place.store().await, place.store().await);
    assert_eq!(here.shared(), StoreSharing::Yes);
    let mut news = hearing(&here).await;
    let mut own = hearing(&there).await;
    let heard = |plan: &countersign_policy::ids::PlanId| Changed::Plan(plan.clone());

    let held = hold(&there, "t1", 1, at(0)).await;
    assert_eq!(next(&mut news).await, heard(&held.plan_id), "a plan that came up");
    let approval = Approval::over(RecordedChannel::Page, "ada".into(), at(1));
    there.approve(&held.plan_id, approval, at(1)).await.unwrap();
    assert_eq!(next(&mut news).await, heard(&held.plan_id), "approved");
    let again = Approval::over(RecordedChannel::Page, "bob".into(), at(1));
    assert!(there.approve(&held.plan_id, again, at(1)).await.is_err(), "decided already");
    let permit = permit_for(&there, "t1", at(2)).await;
    there.open(permit, at(2)).await.unwrap();
    assert_eq!(next(&mut news).await, heard(&held.plan_id), "spent");

    let other = hold(&there, "t2", 2, at(3)).await;
    assert_eq!(next(&mut news).await, heard(&other.plan_id));
    there.reject(&other.plan_id, "ada".into(), RecordedChannel::Page, None, at(4)).await.unwrap();
    assert_eq!(next(&mut news).await, heard(&other.plan_id), "rejected; the approval that lost was not told");
    assert!(own.try_recv().is_err(), "nobody hears themselves");
}

/// A lost connection is made again, and says that something may have been missed meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn an_ear_that_was_cut_off_hears_again() {
    let Some(place) = Place::postgres().await else { return };
    let (here, there) = (place.store().await, place.store().await);
    let mut news = hearing(&here).await;
    place
        .raw("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = current_schema() AND pid <> pg_backend_pid()")
        .await;
    assert_eq!(next(&mut news).await, Changed::Missed);
    let held = hold(&there, "t1", 1, at(0)).await;
    assert_eq!(next(&mut news).await, Changed::Plan(held.plan_id));
}

/// A writer between two connections is not taken for dead by others: its ear says that it lives.
#[tokio::test(flavor = "multi_thread")]
async fn a_replica_lives_as_long_as_it_hears() {
    let Some(place) = Place::postgres().await else { return };
    let (here, there) = (place.store().await, place.store().await);
    hold(&here, "t1", 1, at(0)).await;
    let opened = here.open(permit_for(&here, "t1", at(1)).await, at(1)).await.unwrap();
    let mut news = hearing(&here).await;
    place
        .raw("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = current_schema() AND pid <> pg_backend_pid()")
        .await;
    // The ear is back; the writer connects again only when it has something to write.
    assert_eq!(next(&mut news).await, Changed::Missed);
    assert!(there.recover(at(2)).await.unwrap().calls.is_empty(), "it lives");
    drop(news);
    drop(opened);
    drop(here);
    // The server notices that its peers hung up when it gets round to it.
    let since = Instant::now();
    let found = loop {
        let found = there.recover(at(3)).await.unwrap().plans.len();
        if found > 0 || since.elapsed() > PATIENCE {
            break found;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    assert_eq!(found, 1, "it is gone, and so is what it sent");
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_told_on_one_machine() {
    let place = Place::sqlite();
    let store = place.store().await;
    let mut news = store.changes();
    hold(&store, "t1", 1, at(0)).await;
    assert_eq!((store.shared(), store.is_hearing()), (StoreSharing::No, false));
    assert!(news.try_recv().is_err());
}
