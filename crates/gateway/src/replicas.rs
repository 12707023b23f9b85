//! Several gateways on one store: passes on what other replicas decided, and closes calls that a replica left open when it died.
//! Does nothing where the store is not shared.

use std::sync::Arc;
use std::time::Duration;

use countersign_store::{Changed, StoreSharing};
use tokio::sync::broadcast::error::RecvError;

use crate::state::GatewayState;

/// How often dead replicas are looked for.
const RECOVERY_INTERVAL: Duration = Duration::from_secs(5);

pub fn join(gateway: &Arc<GatewayState>) {
    if gateway.store.shared() == StoreSharing::No {
        return;
    }
    tokio::spawn(forward_changes(Arc::clone(gateway)));
    tokio::spawn(recover_dead_replicas(Arc::clone(gateway)));
}

/// Wakes calls that wait here for what is decided elsewhere.
async fn forward_changes(gateway: Arc<GatewayState>) {
    let mut changes = gateway.store.changes();
    loop {
        match changes.recv().await {
            Ok(Changed::Plan(plan)) => gateway.announce(plan),
            Ok(Changed::Missed) | Err(RecvError::Lagged(_)) => gateway.announce_all(),
            Err(RecvError::Closed) => return,
        }
    }
}

/// Records calls of dead replicas as `outcome_unknown`. They are never run again.
async fn recover_dead_replicas(gateway: Arc<GatewayState>) {
    loop {
        tokio::time::sleep(RECOVERY_INTERVAL).await;
        match gateway.store.recover(gateway.now()).await {
            Ok(recovered) => {
                for plan in recovered.plans {
                    tracing::warn!(
                        plan = plan.as_str(),
                        "a replica died in the middle of a call: outcome unknown"
                    );
                    gateway.announce(plan);
                }
            }
            Err(fault) => tracing::warn!(fault = fault.inside(), "looking for dead replicas failed"),
        }
    }
}
