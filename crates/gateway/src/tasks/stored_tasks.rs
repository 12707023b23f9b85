//! Calls that are tasks but not runs, in this process only: in progress, or with their answer until it is fetched or dropped.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use countersign_mcp::jsonrpc::Reply;
use countersign_mcp::raw;
use countersign_mcp::server::RequestContext;
use countersign_policy::ids::{PrincipalId, RunId};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::POLL_MS;

/// How long an answer can be fetched.
pub(super) const KEPT: Duration = Duration::from_secs(300);
const MOST: usize = 1_000;
/// Of one principal: the number, and the bytes of answers.
const MOST_OF_ONE: usize = 64;
const MOST_BYTES: usize = 32 << 20;

#[derive(Clone)]
pub(super) enum TaskState {
    /// In progress; cancelled through its request.
    Working(RequestContext),
    /// It has started a run, and ends with it.
    Running(RunId),
    Ended(Reply),
    Cancelled,
}

#[derive(Clone)]
pub(super) struct StoredTask {
    pub(super) id: String,
    principal: PrincipalId,
    began: Timestamp,
    changed: Timestamp,
    pub(super) state: TaskState,
}

impl StoredTask {
    /// The status for legacy clients.
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
            TaskState::Working(_) | TaskState::Running(_) => "working",
            TaskState::Cancelled => "cancelled",
            TaskState::Ended(Err(_)) => "failed",
            TaskState::Ended(Ok(result)) => {
                let failed = raw::get(result, "isError").is_some_and(|flag| flag.get() == "true");
                if failed { "failed" } else { "completed" }
            }
        }
    }

    fn bytes(&self) -> usize {
        match &self.state {
            TaskState::Ended(Ok(result)) => result.get().len(),
            TaskState::Ended(Err(_))
            | TaskState::Working(_)
            | TaskState::Running(_)
            | TaskState::Cancelled => 0,
        }
    }

    pub(super) fn is_over(&self) -> bool {
        matches!(self.state, TaskState::Ended(_) | TaskState::Cancelled)
    }
}

#[derive(Default)]
pub(crate) struct StoredTasks(Mutex<HashMap<String, StoredTask>>);

impl StoredTasks {
    fn all(&self) -> MutexGuard<'_, HashMap<String, StoredTask>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a call and returns its id; none if too many are in progress.
    pub(super) fn add(
        &self,
        principal: &PrincipalId,
        state: TaskState,
        now: Timestamp,
    ) -> Option<StoredTask> {
        let mut all = self.all();
        all.retain(|_, call| !call.is_over() || now.duration_since(call.changed).unsigned_abs() < KEPT);
        while all.values().filter(|call| call.principal == *principal).count() >= MOST_OF_ONE {
            forget_oldest(&mut all, |call| call.principal == *principal)?;
        }
        if all.len() >= MOST {
            forget_oldest(&mut all, |_| true)?;
        }
        let id = format!("tsk_{}", uuid::Uuid::new_v4().simple());
        let call =
            StoredTask { id: id.clone(), principal: principal.clone(), began: now, changed: now, state };
        all.insert(id, call.clone());
        drop_old_answers(&mut all, &call);
        Some(call)
    }

    /// A call of this principal; another's looks absent.
    pub(super) fn get(&self, id: &str, principal: &PrincipalId) -> Option<StoredTask> {
        self.all().get(id).filter(|call| call.principal == *principal).cloned()
    }

    pub(super) fn of(&self, principal: &PrincipalId) -> Vec<StoredTask> {
        self.all().values().filter(|call| call.principal == *principal).cloned().collect()
    }

    /// Sets the outcome of a call, unless it has one. None if it is not kept.
    pub(super) fn set_state(&self, id: &str, state: TaskState, now: Timestamp) -> Option<StoredTask> {
        let mut all = self.all();
        let call = all.get_mut(id)?;
        if !call.is_over() {
            (call.state, call.changed) = (state, now);
        }
        let call = call.clone();
        drop_old_answers(&mut all, &call);
        Some(call)
    }
}

/// Drops old answers of a principal while they are too large together. The newest stays, however large it is.
fn drop_old_answers(all: &mut HashMap<String, StoredTask>, newest: &StoredTask) {
    let is_own = |call: &StoredTask| call.principal == newest.principal;
    while all.values().filter(|call| is_own(call)).map(StoredTask::bytes).sum::<usize>() > MOST_BYTES {
        if forget_oldest(all, |call| is_own(call) && call.id != newest.id).is_none() {
            return;
        }
    }
}

/// Drops the answer that ended first; none if all calls are in progress.
fn forget_oldest(all: &mut HashMap<String, StoredTask>, among: impl Fn(&StoredTask) -> bool) -> Option<()> {
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
        let (calls, now) = (StoredTasks::default(), Timestamp::UNIX_EPOCH);
        let (loud, quiet) = (PrincipalId::new("loud"), PrincipalId::new("quiet"));
        let own = calls.add(&quiet, TaskState::Cancelled, now).unwrap();
        for _ in 0..2_000 {
            calls.add(&loud, TaskState::Cancelled, now).unwrap();
        }
        assert_eq!(calls.of(&loud).len(), MOST_OF_ONE);
        assert!(calls.get(&own.id, &quiet).is_some());
    }

    #[test]
    fn attack_06_kept_answers_are_bounded_by_their_bytes() {
        let (calls, now, who) = (StoredTasks::default(), Timestamp::UNIX_EPOCH, PrincipalId::new("loud"));
        for _ in 0..20 {
            let call = calls.add(&who, TaskState::Running(RunId::new("r")), now).unwrap();
            let answer = raw::to_raw(&json!({"text": "x".repeat(4 << 20)}));
            calls.set_state(&call.id, TaskState::Ended(Ok(answer)), now).unwrap();
        }
        let held: usize = calls.of(&who).iter().map(StoredTask::bytes).sum();
        assert!(held <= MOST_BYTES, "{held} bytes");
    }
}
