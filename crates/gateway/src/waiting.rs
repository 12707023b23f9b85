//! Waiting for a person: woken by decisions of this process and of other replicas, and by looking at the store for those nobody
//! tells of. Decides nothing.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use countersign_core::call::Caller;
use countersign_core::confirm::PlanState;
use countersign_core::ids::{PlanId, PrincipalId, RunId};
use countersign_store::RunState;
use countersign_wire::raw;
use countersign_wire::serve::Ctx;
use serde_json::json;
use tokio::sync::broadcast;

use crate::escape::excerpt;
use crate::house::House;
use crate::line::Principal;

/// How often the store is looked at: another process may have decided.
const LOOK: Duration = Duration::from_millis(500);

/// The same where other replicas tell us: only what was lost on the way is found by looking.
const HEARING_LOOK: Duration = Duration::from_secs(5);

/// How often a waiting client hears that we still wait.
const PROGRESS: Duration = Duration::from_secs(5);

/// How often a run is looked at.
const RUN_LOOK: Duration = Duration::from_millis(200);

/// How often whoever waits for a run hears of it.
const RUN_PROGRESS: Duration = Duration::from_secs(1);

/// How many calls of each principal wait for a person or a run.
#[derive(Debug, Default)]
pub struct Waits(Mutex<HashMap<PrincipalId, u64>>);

/// A place to wait in; given back when it is dropped.
struct WaitPlace<'a> {
    waits: &'a Waits,
    principal: PrincipalId,
}

impl Waits {
    /// A place, unless so many calls of this principal wait already.
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

/// Waits without holding one of the caller's turns. Where too many calls of the principal wait, `None` at once.
async fn in_place<T>(house: &House, ctx: &Ctx, waiting: impl Future<Output = T>) -> Option<T> {
    let principal = ctx.session().tag().get::<Principal>().map(|principal| principal.id.clone());
    let principal = principal.unwrap_or_else(|| PrincipalId::new(""));
    let _place = house.waits.take(&principal, house.law.load().config.limits.waits)?;
    Some(Box::pin(ctx.off_turn(waiting)).await)
}

/// Waits until the plan is no longer pending; false when the time is up or the client left.
pub async fn until_decided(house: &Arc<House>, ctx: &Ctx, plan: &PlanId, seconds: f64) -> bool {
    let decided = wait(house, ctx, plan, seconds, |state| state != PlanState::Pending);
    in_place(house, ctx, decided).await.unwrap_or(false)
}

/// Waits until the plan has an end; false when the time is up or the client left.
pub async fn until_settled(house: &Arc<House>, ctx: &Ctx, plan: &PlanId, seconds: f64) -> bool {
    let open = [PlanState::Pending, PlanState::Approved, PlanState::Executing];
    let settled = wait(house, ctx, plan, seconds, move |state| !open.contains(&state));
    in_place(house, ctx, settled).await.unwrap_or(false)
}

async fn wait(
    house: &Arc<House>,
    ctx: &Ctx,
    plan: &PlanId,
    seconds: f64,
    enough: impl Fn(PlanState) -> bool,
) -> bool {
    let mut decisions = house.decisions();
    let start = Instant::now();
    let patience = Duration::try_from_secs_f64(seconds).unwrap_or_default();
    // At once, and then again and again: a host that shows it shows that it waits for a person.
    let mut told: Option<Instant> = None;
    loop {
        match house.plan(plan).await {
            Ok(Some(row)) if enough(row.state) => return true,
            Ok(Some(_)) => {}
            Ok(None) | Err(_) => return false,
        }
        let left = patience.saturating_sub(start.elapsed());
        if left.is_zero() {
            return false;
        }
        if told.is_none_or(|told| told.elapsed() >= PROGRESS) {
            told = Some(Instant::now());
            tell(ctx, start.elapsed(), patience, "waiting for a person to decide").await;
        }
        let look = if house.store.is_hearing() { HEARING_LOOK } else { LOOK };
        tokio::select! {
            () = about(&mut decisions, plan) => {}
            () = tokio::time::sleep(look.min(left).min(PROGRESS)) => {}
            () = ctx.cancelled() => return false,
        }
    }
}

/// Returns when something may have happened to this plan.
async fn about(decisions: &mut broadcast::Receiver<Option<PlanId>>, plan: &PlanId) {
    // A lagged receiver has missed decisions: looking again is the answer to that as well.
    while let Ok(Some(decided)) = decisions.recv().await {
        if decided == *plan {
            return;
        }
    }
}

/// Waits until a run of this caller has ended, the time is up or the client left; tells its last line meanwhile.
pub async fn until_run_ended(house: &House, ctx: &Ctx, caller: &Caller, id: &RunId, seconds: f64) {
    // Where too many wait already, the run is answered as it stands.
    let _ = in_place(house, ctx, run_ended(house, ctx, caller, id, seconds)).await;
}

async fn run_ended(house: &House, ctx: &Ctx, caller: &Caller, id: &RunId, seconds: f64) {
    let start = Instant::now();
    let patience = Duration::try_from_secs_f64(seconds).unwrap_or_default();
    let mut told = start;
    loop {
        let run = match house.store.run(id).await {
            Ok(Some(run)) if run.principal == caller.principal => run,
            Ok(_) | Err(_) => return,
        };
        let left = patience.saturating_sub(start.elapsed());
        if left.is_zero() || !matches!(run.state, RunState::Queued | RunState::Running) {
            return;
        }
        if told.elapsed() >= RUN_PROGRESS {
            told = Instant::now();
            let message =
                run.log_tail.last().map_or_else(|| run.state.as_str().to_owned(), |line| excerpt(line, 200));
            tell(ctx, start.elapsed(), patience, &message).await;
        }
        tokio::select! {
            () = tokio::time::sleep(RUN_LOOK.min(left)) => {}
            () = ctx.cancelled() => return,
        }
    }
}

async fn tell(ctx: &Ctx, waited: Duration, patience: Duration, message: &str) {
    let Some(token) = ctx.progress_token() else { return };
    let params = raw::to_raw(&json!({
        "progressToken": token,
        "progress": (waited.as_secs_f64() * 10.0).round() / 10.0,
        "total": patience.as_secs_f64().round(),
        "message": message,
    }));
    // A client that left is told nothing.
    let _ = ctx.notify("notifications/progress", Some(&params)).await;
}
