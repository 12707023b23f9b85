//! Runs as MCP tasks, for clients that know tasks: in 2025-11-25 where a call asks for one, in the stateless era where the client
//! declares the extension. A task is a run, or an answer that was there at once. Begins nothing and permits nothing by itself.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use countersign_core::call::Caller;
use countersign_core::envelope::Envelope;
use countersign_core::ids::{PrincipalId, RunId};
use countersign_store::{Run, RunState};
use countersign_wire::era::{Era, Version};
use countersign_wire::frame::{Reply, RpcError, code};
use countersign_wire::raw::{self, Raw};
use countersign_wire::serve::{Ctx, Session};
use jiff::Timestamp;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use crate::answer::tool_result;
use crate::house::House;
use crate::surfaces::own::run_value;

/// The extension of the stateless era.
pub const EXTENSION: &str = "io.modelcontextprotocol/tasks";
/// Where a result says which task it belongs to.
const RELATED: &str = "io.modelcontextprotocol/related-task";
/// How often a client should ask, in milliseconds.
const POLL_MS: u64 = 1_000;
/// How long an answer that was there at once can be fetched.
const KEPT: Duration = Duration::from_secs(300);
/// How many of them are kept.
const MOST: usize = 1_000;
/// How often a run is looked at for who waits for its end.
const LOOK: Duration = Duration::from_millis(200);

/// Answers that were there at once, until they are fetched or forgotten.
#[derive(Default)]
pub struct Finished(Mutex<HashMap<String, (PrincipalId, Timestamp, Raw)>>);

impl Finished {
    /// Keeps an answer and names it.
    fn keep(&self, principal: &PrincipalId, result: Raw, now: Timestamp) -> String {
        let id = format!("tsk_{}", uuid::Uuid::new_v4().simple());
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|_, (_, since, _)| now.duration_since(*since).unsigned_abs() < KEPT);
        if all.len() >= MOST
            && let Some(oldest) = all.iter().min_by_key(|(_, (_, since, _))| *since).map(|(id, _)| id.clone())
        {
            all.remove(&oldest);
        }
        all.insert(id.clone(), (principal.clone(), now, result));
        id
    }

    fn get(&self, id: &str, principal: &PrincipalId) -> Option<(Timestamp, Raw)> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.get(id)
            .filter(|(owner, _, _)| owner == principal)
            .map(|(_, since, result)| (*since, result.clone()))
    }
}

/// Whether anything here can be a task.
pub fn are_offered(house: &House) -> bool {
    house.bare_upstream().is_none() && house.upstreams.load().values().any(|upstream| upstream.has_runs())
}

/// What we say about tasks when a session opens.
pub fn capability(house: &House, session: &Session, capabilities: Raw) -> Raw {
    if !are_offered(house) {
        return capabilities;
    }
    let said = match session.version() {
        Version::V2025_11_25 => raw::set(
            &capabilities,
            "tasks",
            &raw::to_raw(&json!({"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}})),
        ),
        Version::V2026_07_28 => raw::set_in(&capabilities, "extensions", EXTENSION, &raw::to_raw(&json!({}))),
        Version::V2024_11_05 | Version::V2025_03_26 | Version::V2025_06_18 => None,
    };
    said.unwrap_or(capabilities)
}

/// One request about tasks, or one that may become one.
pub struct Tasks<'a> {
    /// What all lines share.
    pub house: &'a Arc<House>,
    /// The request.
    pub ctx: &'a Ctx,
    /// Who asks.
    pub caller: &'a Caller,
}

impl Tasks<'_> {
    /// A call's reply, as a task where the client wants one.
    pub async fn dress(&self, params: Option<&RawValue>, reply: Reply) -> Reply {
        let result = reply?;
        let asked = params.and_then(|params| raw::get(params, "task")).is_some_and(raw::is_object);
        let wanted = match self.ctx.session().version() {
            Version::V2025_11_25 => asked,
            Version::V2026_07_28 => self.knows_the_extension(),
            Version::V2024_11_05 | Version::V2025_03_26 | Version::V2025_06_18 => false,
        };
        // What an upstream made a task itself is its own.
        if !wanted || !are_offered(self.house) || raw::get(&result, "task").is_some() {
            return Ok(result);
        }
        let begun = raw::get_str_in(&result, &["structuredContent", "data", "run_id"]).map(RunId::new);
        let run = match begun {
            Some(id) => self.run(&id).await?,
            None => None,
        };
        match (self.ctx.era(), run) {
            (Era::Legacy, Some(run)) => Ok(raw::to_raw(&json!({"task": task(&run, Era::Legacy)}))),
            (Era::Legacy, None) => {
                let now = self.house.now();
                let id = self.house.finished.keep(&self.caller.principal, result, now);
                Ok(raw::to_raw(&json!({"task": finished(&id, now)})))
            }
            (Era::Modern, Some(run)) => {
                let mut created = task(&run, Era::Modern);
                set(&mut created, "resultType", "task".into());
                Ok(raw::to_raw(&created))
            }
            (Era::Modern, None) => Ok(result),
        }
    }

    fn knows_the_extension(&self) -> bool {
        let capabilities = self.ctx.client().capabilities.as_deref();
        capabilities.is_some_and(|all| raw::get_in(all, &["extensions", EXTENSION]).is_some())
    }

    /// Whether a method is about tasks of ours.
    pub fn is_about(&self, method: &str) -> bool {
        let known = match self.ctx.session().version() {
            Version::V2025_11_25 => &["tasks/get", "tasks/result", "tasks/list", "tasks/cancel"][..],
            Version::V2026_07_28 => &["tasks/get", "tasks/update", "tasks/cancel"][..],
            Version::V2024_11_05 | Version::V2025_03_26 | Version::V2025_06_18 => &[],
        };
        known.contains(&method) && are_offered(self.house)
    }

    /// Answers a request about tasks.
    pub async fn answer(&self, method: &str, params: Option<&RawValue>) -> Reply {
        if method == "tasks/list" {
            return self.list().await;
        }
        let id = params.and_then(|params| raw::get_str(params, "taskId"));
        let Some(id) = id else { return Err(RpcError::invalid_params("`taskId` is required")) };
        if let Some((since, result)) = self.house.finished.get(&id, &self.caller.principal) {
            return match method {
                "tasks/get" => Ok(raw::to_raw(&finished(&id, since))),
                "tasks/result" => Ok(related(&result, &id)),
                _ => Err(RpcError::invalid_params("the task has ended already")),
            };
        }
        let run = self.run(&RunId::new(id.as_ref())).await?;
        let Some(run) = run else {
            let shown = crate::escape::visible(&id);
            return Err(RpcError::invalid_params(&format!("there is no task `{shown}`")));
        };
        match method {
            "tasks/get" => Ok(self.told(&run)),
            "tasks/result" => self.result(run).await,
            "tasks/cancel" => self.cancel(run).await,
            // Runs ask nothing, so there is nothing to tell them.
            "tasks/update" => Ok(raw::empty_object()),
            other => Err(RpcError::method_not_found(other)),
        }
    }

    /// The run, if it is of this principal: another's looks like none.
    async fn run(&self, id: &RunId) -> Result<Option<Run>, RpcError> {
        let run = self
            .house
            .store
            .run(id)
            .await
            .map_err(|fault| RpcError::new(code::INTERNAL, &fault.outside()))?;
        Ok(run.filter(|run| run.principal == self.caller.principal))
    }

    async fn list(&self) -> Reply {
        let runs = self.house.store.runs(Some(&self.caller.principal), 100).await;
        let runs = runs.map_err(|fault| RpcError::new(code::INTERNAL, &fault.outside()))?;
        let tasks: Vec<Value> = runs.iter().map(|run| task(run, Era::Legacy)).collect();
        Ok(raw::to_raw(&json!({"tasks": tasks})))
    }

    /// How a run stands; in the stateless era with its result once there is one.
    fn told(&self, run: &Run) -> Raw {
        let mut told = task(run, self.ctx.era());
        match (self.ctx.era(), status(run.state)) {
            (Era::Modern, "completed") => set(&mut told, "result", outcome(run)),
            (Era::Modern, "failed") => {
                let message = format!("the run `{}` ended as {}", run.id, run.state.as_str());
                set(
                    &mut told,
                    "error",
                    json!({"code": code::INTERNAL, "message": message, "data": run_value(run, 50)}),
                );
            }
            (Era::Legacy | Era::Modern, _) => {}
        }
        raw::to_raw(&told)
    }

    /// Waits for the end of a run and gives what came of it.
    async fn result(&self, mut run: Run) -> Reply {
        while matches!(run.state, RunState::Queued | RunState::Running) {
            tokio::select! {
                () = tokio::time::sleep(LOOK) => {}
                () = self.ctx.cancelled() => return Err(RpcError::new(code::INTERNAL, "cancelled")),
            }
            run = match self.run(&run.id).await? {
                Some(run) => run,
                None => return Err(RpcError::invalid_params("the task is gone")),
            };
        }
        Ok(related(&raw::to_raw(&outcome(&run)), run.id.as_str()))
    }

    async fn cancel(&self, mut run: Run) -> Reply {
        if !matches!(run.state, RunState::Queued | RunState::Running) {
            return Err(RpcError::invalid_params("the task has ended already"));
        }
        if !self.house.runs().is_some_and(|runs| runs.stop(&run.id)) {
            return Err(RpcError::invalid_params("the task runs in another process of this gateway"));
        }
        // Being told to stop and having stopped are two things: the answer says how it ended.
        while matches!(run.state, RunState::Queued | RunState::Running) {
            tokio::time::sleep(LOOK).await;
            run = match self.run(&run.id).await? {
                Some(run) => run,
                None => return Err(RpcError::invalid_params("the task is gone")),
            };
        }
        match self.ctx.era() {
            Era::Legacy => Ok(raw::to_raw(&task(&run, Era::Legacy))),
            Era::Modern => Ok(raw::empty_object()),
        }
    }
}

/// A run's state as a task's status.
fn status(state: RunState) -> &'static str {
    match state {
        RunState::Queued | RunState::Running => "working",
        RunState::Success => "completed",
        RunState::Failed | RunState::OutcomeUnknown => "failed",
        RunState::Cancelled => "cancelled",
    }
}

/// A run as a task of an era. It stays as long as the records do.
fn task(run: &Run, era: Era) -> Value {
    let (ttl, poll) = match era {
        Era::Legacy => ("ttl", "pollInterval"),
        Era::Modern => ("ttlMs", "pollIntervalMs"),
    };
    let mut task = json!({
        "taskId": run.id,
        "status": status(run.state),
        "statusMessage": run.log_tail.last().map_or_else(|| run.state.as_str().to_owned(), |line| crate::escape::excerpt(line, 200)),
        "createdAt": run.started.to_string(),
        "lastUpdatedAt": run.ended.unwrap_or(run.started).to_string(),
    });
    set(&mut task, ttl, Value::Null);
    set(&mut task, poll, POLL_MS.into());
    task
}

/// An answer that was there at once, as a task.
fn finished(id: &str, since: Timestamp) -> Value {
    let millis = u64::try_from(KEPT.as_millis()).unwrap_or(u64::MAX);
    json!({
        "taskId": id,
        "status": "completed",
        "createdAt": since.to_string(),
        "lastUpdatedAt": since.to_string(),
        "ttl": millis,
        "pollInterval": POLL_MS,
    })
}

/// What came of a run, as a tool's result.
fn outcome(run: &Run) -> Value {
    let envelope =
        Envelope::ok(&run.tool, Map::new()).with("run_id", run.id.as_str()).with("run", run_value(run, 50));
    let mut result = serde_json::from_str(tool_result(&envelope).get()).unwrap_or_else(|_| json!({}));
    set(&mut result, "isError", (run.state != RunState::Success).into());
    result
}

/// A result with the task it belongs to.
fn related(result: &RawValue, id: &str) -> Raw {
    let related = raw::to_raw(&json!({"taskId": id}));
    raw::set_in(result, "_meta", RELATED, &related).unwrap_or_else(|| result.to_owned())
}

fn set(object: &mut Value, name: &str, value: Value) {
    if let Some(members) = object.as_object_mut() {
        members.insert(name.to_owned(), value);
    }
}
