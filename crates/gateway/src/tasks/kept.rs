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
        if all.len() >= MOST {
            let over = all.values().filter(|call| call.is_over());
            let oldest = over.min_by_key(|call| call.changed).map(|call| call.id.clone())?;
            all.remove(&oldest);
        }
        let id = format!("tsk_{}", uuid::Uuid::new_v4().simple());
        let call = Call { id: id.clone(), principal: principal.clone(), began: now, changed: now, state };
        all.insert(id, call.clone());
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
        Some(call.clone())
    }
}
