//! One of several gateways on one store: hears what the others decided, and closes what one of them left open when it died.
//! Where nobody shares the store there is nothing to do.

use std::sync::Arc;
use std::time::Duration;

use countersign_store::{Changed, Shared};
use tokio::sync::broadcast::error::RecvError;

use crate::house::House;

/// How often we look for replicas that died in the middle of a call.
const ROUND: Duration = Duration::from_secs(5);

/// Joins the other replicas; ends with the process.
pub fn join(house: &Arc<House>) {
    if house.store.shared() == Shared::No {
        return;
    }
    tokio::spawn(follow(Arc::clone(house)));
    tokio::spawn(mourn(Arc::clone(house)));
}

/// Whoever waits here is woken by what is decided there.
async fn follow(house: Arc<House>) {
    let mut changes = house.store.changes();
    loop {
        match changes.recv().await {
            Ok(Changed::Plan(plan)) => house.announce(plan),
            Ok(Changed::Missed) | Err(RecvError::Lagged(_)) => house.announce_all(),
            Err(RecvError::Closed) => return,
        }
    }
}

/// What a dead replica had sent has an outcome nobody knows: said, shown, never run again.
async fn mourn(house: Arc<House>) {
    loop {
        tokio::time::sleep(ROUND).await;
        match house.store.recover(house.now()).await {
            Ok(recovered) => {
                for plan in recovered.plans {
                    tracing::warn!(
                        plan = plan.as_str(),
                        "a replica died in the middle of a call: outcome unknown"
                    );
                    house.announce(plan);
                }
            }
            Err(fault) => tracing::warn!(fault = fault.inside(), "looking for dead replicas failed"),
        }
    }
}
