//! Calls that are tasks and no runs: under way, or with the answer they ended with, until it is fetched or forgotten. In this process only.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use countersign_core::ids::{PrincipalId, RunId};
use countersign_wire::frame::Reply;
use countersign_wire::raw;
use countersign_wire::serve::Ctx;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::POLL_MS;

/// How long an answer can be fetched.
pub(super) const KEPT: Duration = Duration::from_secs(300);
/// How many there are at most.
const MOST: usize = 1_000;
/// How many of one principal, and how many bytes of answers.
const MOST_OF_ONE: usize = 64;
const MOST_BYTES: usize = 32 << 20;

/// How a call stands.
#[derive(Clone)]
pub(super) enum State {
    /// Under way; its request is what is told to stop.
    Working(Ctx),
    /// It has begun a run, and ends when that does.
    Running(RunId),
    /// It ended, with this.
    Ended(Reply),
    /// Whoever asked wanted it no more.
    Cancelled,
}

/// One call.
#[derive(Clone)]
pub(super) struct Call {
    pub(super) id: String,
    principal: PrincipalId,
    began: Timestamp,
    changed: Timestamp,
    pub(super) state: State,
}

impl Call {
    /// As clients of the session revisions are told.
    pub(super) fn task(&self) -> Value {
        let millis = u64::try_from(KEPT.as_millis()).unwrap_or(u64::MAX);
        json!({
            "taskId": self.id,
            "status": self.status(),
            "createdAt": self.began.to_string(),
            "lastUpdatedAt": self.changed.to_string(),
            "ttl": millis,
            "pollInterval": POLL_MS,
        })
    }

    fn status(&self) -> &'static str {
        match &self.state {
            State::Working(_) | State::Running(_) => "working",
            State::Cancelled => "cancelled",
            State::Ended(Err(_)) => "failed",
            State::Ended(Ok(result)) => {
                let failed = raw::get(result, "isError").is_some_and(|flag| flag.get() == "true");
                if failed { "failed" } else { "completed" }
            }
        }
    }

    /// How many bytes of an answer it holds.
    fn bytes(&self) -> usize {
        match &self.state {
            State::Ended(Ok(result)) => result.get().len(),
            State::Ended(Err(_)) | State::Working(_) | State::Running(_) | State::Cancelled => 0,
        }
    }

    /// Whether nothing will change any more.
    pub(super) fn is_over(&self) -> bool {
        matches!(self.state, State::Ended(_) | State::Cancelled)
    }
}

/// The calls of this process.
#[derive(Default)]
pub struct Calls(Mutex<HashMap<String, Call>>);

impl Calls {
    fn all(&self) -> MutexGuard<'_, HashMap<String, Call>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a call and names it; none where too many are under way.
    pub(super) fn keep(&self, principal: &PrincipalId, state: State, now: Timestamp) -> Option<Call> {
        let mut all = self.all();
        all.retain(|_, call| !call.is_over() || now.duration_since(call.changed).unsigned_abs() < KEPT);
        while all.values().filter(|call| call.principal == *principal).count() >= MOST_OF_ONE {
            forget_oldest(&mut all, |call| call.principal == *principal)?;
        }
        if all.len() >= MOST {
            forget_oldest(&mut all, |_| true)?;
        }
        let id = format!("tsk_{}", uuid::Uuid::new_v4().simple());
        let call = Call { id: id.clone(), principal: principal.clone(), began: now, changed: now, state };
        all.insert(id, call.clone());
        shrink(&mut all, &call);
        Some(call)
    }

    /// A call of this principal: another's looks like none.
    pub(super) fn get(&self, id: &str, principal: &PrincipalId) -> Option<Call> {
        self.all().get(id).filter(|call| call.principal == *principal).cloned()
    }

    /// All of a principal's.
    pub(super) fn of(&self, principal: &PrincipalId) -> Vec<Call> {
        self.all().values().filter(|call| call.principal == *principal).cloned().collect()
    }

    /// What became of a call, unless it was over already. None where it is not kept.
    pub(super) fn turn(&self, id: &str, state: State, now: Timestamp) -> Option<Call> {
        let mut all = self.all();
        let call = all.get_mut(id)?;
        if !call.is_over() {
            (call.state, call.changed) = (state, now);
        }
        let call = call.clone();
        shrink(&mut all, &call);
        Some(call)
    }
}

/// Forgets old answers of a principal while all of them are too large. The newest stays, however large it is.
fn shrink(all: &mut HashMap<String, Call>, newest: &Call) {
    let is_own = |call: &Call| call.principal == newest.principal;
    while all.values().filter(|call| is_own(call)).map(Call::bytes).sum::<usize>() > MOST_BYTES {
        if forget_oldest(all, |call| is_own(call) && call.id != newest.id).is_none() {
            return;
        }
    }
}

/// Forgets the answer that ended first among some; none where all of them are under way.
fn forget_oldest(all: &mut HashMap<String, Call>, among: impl Fn(&Call) -> bool) -> Option<()> {
    let over = all.values().filter(|call| call.is_over() && among(call));
    let oldest = over.min_by_key(|call| call.changed).map(|call| call.id.clone())?;
    all.remove(&oldest);
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attack_06_one_principal_does_not_use_up_the_tasks_of_others() {
        let (calls, now) = (Calls::default(), Timestamp::UNIX_EPOCH);
        let (loud, quiet) = (PrincipalId::new("loud"), PrincipalId::new("quiet"));
        let own = calls.keep(&quiet, State::Cancelled, now).unwrap();
        for _ in 0..2_000 {
            calls.keep(&loud, State::Cancelled, now).unwrap();
        }
        assert_eq!(calls.of(&loud).len(), MOST_OF_ONE);
        assert!(calls.get(&own.id, &quiet).is_some());
    }

    #[test]
    fn attack_06_kept_answers_are_bounded_by_their_bytes() {
        let (calls, now, who) = (Calls::default(), Timestamp::UNIX_EPOCH, PrincipalId::new("loud"));
        for _ in 0..20 {
            let call = calls.keep(&who, State::Running(RunId::new("r")), now).unwrap();
            let answer = raw::to_raw(&json!({"text": "x".repeat(4 << 20)}));
            calls.turn(&call.id, State::Ended(Ok(answer)), now).unwrap();
        }
        let held: usize = calls.of(&who).iter().map(Call::bytes).sum();
        assert!(held <= MOST_BYTES, "{held} bytes");
    }
}
