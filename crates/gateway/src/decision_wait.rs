//! Waits for a decision or a run: woken by this process and by other replicas, and by polling the store for what they do not
//! announce. Decides nothing.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use countersign_mcp::raw;
use countersign_mcp::server::RequestContext;
use countersign_policy::call::Caller;
use countersign_policy::confirm::PlanState;
use countersign_policy::headline::headline;
use countersign_policy::ids::{PlanId, PrincipalId, RunId};
use countersign_store::RunState;
use jiff::Timestamp;
use serde_json::json;
use tokio::sync::broadcast;

use crate::escape::excerpt;
use crate::principal::Principal;
use crate::state::GatewayState;

/// How often the store is polled: another process may have decided.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// The same where other replicas notify us: polling only finds what was lost on the way.
const NOTIFIED_POLL_INTERVAL: Duration = Duration::from_secs(5);

/// How often a waiting client gets a progress notification.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(5);

const RUN_POLL_INTERVAL: Duration = Duration::from_millis(200);

const RUN_PROGRESS_INTERVAL: Duration = Duration::from_secs(1);

/// How many calls of each principal are waiting. Bounded, because each holds memory and a connection.
#[derive(Debug, Default)]
pub(crate) struct WaitingCalls(Mutex<HashMap<PrincipalId, u64>>);

/// A place among the waiting calls, given back when dropped.
struct WaitPlace<'a> {
    waits: &'a WaitingCalls,
    principal: PrincipalId,
}

impl WaitingCalls {
    fn take(&self, principal: &PrincipalId, most: u64) -> Option<WaitPlace<'_>> {
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = waiting.get(principal).copied().unwrap_or(0);
        if count >= most {
            return None;
        }
        waiting.insert(principal.clone(), count + 1);
        Some(WaitPlace { waits: self, principal: principal.clone() })
    }
}

impl Drop for WaitPlace<'_> {
    fn drop(&mut self) {
        let mut waiting = self.waits.0.lock().unwrap_or_else(PoisonError::into_inner);
        match waiting.get_mut(&self.principal) {
            Some(count) if *count > 1 => *count -= 1,
            Some(_) | None => drop(waiting.remove(&self.principal)),
        }
    }
}

/// Waits without counting against the caller's concurrent requests. None at once where too many of its calls wait already.
async fn in_wait_place<T>(
    gateway: &GatewayState,
    ctx: &RequestContext,
    waiting: impl Future<Output = T>,
) -> Option<T> {
    let principal = ctx.session().identity().get::<Principal>().map(|principal| principal.id.clone());
    let principal = principal.unwrap_or_else(|| PrincipalId::new(""));
    let _place = gateway.waits.take(&principal, gateway.policy.load().config.limits.waits)?;
    Some(Box::pin(ctx.without_slot(waiting)).await)
}

/// Waits until the plan is no longer pending; false when the time is up or the client left.
pub(crate) async fn until_decided(
    gateway: &Arc<GatewayState>,
    ctx: &RequestContext,
    plan: &PlanId,
    seconds: f64,
) -> bool {
    let decided = poll_plan(gateway, ctx, plan, seconds, |state| state != PlanState::Pending);
    in_wait_place(gateway, ctx, decided).await.unwrap_or(false)
}

/// Holds a call open until its plan is decided; false when the time is up or the client left. Notes in the store that the call
/// waits, so that people know what an approval leads to.
pub(crate) async fn hold_until_decided(
    gateway: &Arc<GatewayState>,
    ctx: &RequestContext,
    plan: &PlanId,
    seconds: f64,
) -> bool {
    let patience = Duration::try_from_secs_f64(seconds).unwrap_or_default();
    note_held_until(gateway, plan, gateway.now().checked_add(patience).ok()).await;
    until_decided(gateway, ctx, plan, seconds).await
}

/// Notes that no call waits for the plan any more.
pub(crate) async fn note_not_held(gateway: &GatewayState, plan: &PlanId) {
    note_held_until(gateway, plan, None).await;
}

async fn note_held_until(gateway: &GatewayState, plan: &PlanId, until: Option<Timestamp>) {
    // A note that can't be written changes no decision.
    if let Err(fault) = gateway.store.note_held_until(plan, until).await {
        tracing::debug!(plan = plan.as_str(), fault = %fault.inside(), "held call not noted");
    }
}

/// Waits until the plan has an end; false when the time is up or the client left.
pub(crate) async fn until_settled(
    gateway: &Arc<GatewayState>,
    ctx: &RequestContext,
    plan: &PlanId,
    seconds: f64,
) -> bool {
    let open = [PlanState::Pending, PlanState::Approved, PlanState::Executing];
    let settled = poll_plan(gateway, ctx, plan, seconds, move |state| !open.contains(&state));
    in_wait_place(gateway, ctx, settled).await.unwrap_or(false)
}

async fn poll_plan(
    gateway: &Arc<GatewayState>,
    ctx: &RequestContext,
    plan: &PlanId,
    seconds: f64,
    enough: impl Fn(PlanState) -> bool,
) -> bool {
    let mut decisions = gateway.decisions();
    let start = Instant::now();
    let patience = Duration::try_from_secs_f64(seconds).unwrap_or_default();
    // The first notification goes out at once: where a host has no dialog, it is all the user sees of the plan.
    let mut notified: Option<Instant> = None;
    loop {
        let row = match gateway.plan(plan).await {
            Ok(Some(row)) if enough(row.state) => return true,
            Ok(Some(row)) => row,
            Ok(None) | Err(_) => return false,
        };
        let left = patience.saturating_sub(start.elapsed());
        if left.is_zero() {
            return false;
        }
        if notified.is_none_or(|at| at.elapsed() >= PROGRESS_INTERVAL) {
            notified = Some(Instant::now());
            let home = gateway.policy.load().home.clone();
            let headline = headline(&row.plan, &gateway.redactor, home.as_deref());
            let message = format!("waiting for a person to decide: {headline}");
            send_progress(ctx, start.elapsed(), patience, &message).await;
        }
        let interval = if gateway.store.is_hearing() { NOTIFIED_POLL_INTERVAL } else { POLL_INTERVAL };
        tokio::select! {
            () = plan_announced(&mut decisions, plan) => {}
            () = tokio::time::sleep(interval.min(left).min(PROGRESS_INTERVAL)) => {}
            () = ctx.cancelled() => return false,
        }
    }
}

/// Returns when something may have happened to this plan.
async fn plan_announced(decisions: &mut broadcast::Receiver<Option<PlanId>>, plan: &PlanId) {
    // A lagged receiver has missed announcements. It returns, too, and the plan is read again.
    while let Ok(Some(decided)) = decisions.recv().await {
        if decided == *plan {
            return;
        }
    }
}

/// Waits until a run of this caller has ended, the time is up or the client left. Progress carries the last line of its log.
pub(crate) async fn until_run_ended(
    gateway: &GatewayState,
    ctx: &RequestContext,
    caller: &Caller,
    id: &RunId,
    seconds: f64,
) {
    // Where too many wait already, the answer says where the run stands now.
    let _ = in_wait_place(gateway, ctx, poll_run(gateway, ctx, caller, id, seconds)).await;
}

async fn poll_run(gateway: &GatewayState, ctx: &RequestContext, caller: &Caller, id: &RunId, seconds: f64) {
    let start = Instant::now();
    let patience = Duration::try_from_secs_f64(seconds).unwrap_or_default();
    let mut notified = start;
    loop {
        let run = match gateway.store.run(id).await {
            Ok(Some(run)) if run.principal == caller.principal => run,
            Ok(_) | Err(_) => return,
        };
        let left = patience.saturating_sub(start.elapsed());
        if left.is_zero() || !matches!(run.state, RunState::Queued | RunState::Running) {
            return;
        }
        if notified.elapsed() >= RUN_PROGRESS_INTERVAL {
            notified = Instant::now();
            let message =
                run.log_tail.last().map_or_else(|| run.state.as_str().to_owned(), |line| excerpt(line, 200));
            send_progress(ctx, start.elapsed(), patience, &message).await;
        }
        tokio::select! {
            () = tokio::time::sleep(RUN_POLL_INTERVAL.min(left)) => {}
            () = ctx.cancelled() => return,
        }
    }
}

async fn send_progress(ctx: &RequestContext, waited: Duration, patience: Duration, message: &str) {
    let Some(token) = ctx.progress_token() else { return };
    let params = raw::to_raw(&json!({
        "progressToken": token,
        "progress": (waited.as_secs_f64() * 10.0).round() / 10.0,
        "total": patience.as_secs_f64().round(),
        "message": message,
    }));
    // A client that left needs none.
    let _ = ctx.notify("notifications/progress", Some(&params)).await;
}
