//! Runs as MCP tasks, for clients that know tasks: in 2025-11-25 where a call asks for one, in the stateless era where the client
//! declares the extension. A task is a run, or a call that goes on after its request was answered. Permits nothing by itself.

mod kept;

use std::sync::Arc;
use std::time::Duration;

use countersign_core::call::Caller;
use countersign_core::config::Surface;
use countersign_core::envelope::Envelope;
use countersign_core::ids::RunId;
use countersign_store::{Run, RunState};
use countersign_wire::era::{Era, Version};
use countersign_wire::frame::{Reply, RpcError, code};
use countersign_wire::raw::{self, Raw};
use countersign_wire::serve::{Ctx, Session};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use tokio::task::JoinHandle;

pub use kept::Calls;

use self::kept::State;
use crate::answer::tool_result;
use crate::house::House;
use crate::surfaces::{self, own::run_value};
use crate::trace;

/// The extension of the stateless era.
pub const EXTENSION: &str = "io.modelcontextprotocol/tasks";
/// Where a result says which task it belongs to.
const RELATED: &str = "io.modelcontextprotocol/related-task";
/// How often a client should ask, in milliseconds.
const POLL_MS: u64 = 1_000;
/// How long a call may take before its task is told about instead: what is quicker is told as what it is.
const AT_ONCE: Duration = Duration::from_millis(250);
/// How often a run is looked at for who waits for its end.
const LOOK: Duration = Duration::from_millis(200);

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
    /// A call, as a task where the client wants one.
    pub async fn call(&self, surface: Surface, params: Option<&RawValue>) -> Reply {
        let wants = self.ctx.session().version() == Version::V2025_11_25
            && params.and_then(|params| raw::get(params, "task")).is_some_and(raw::is_object);
        // Where one upstream is served bare, what it makes a task is its own.
        if wants && are_offered(self.house) {
            return Box::pin(self.as_task(surface, params)).await;
        }
        let reply = surfaces::call(self.house, self.ctx, self.caller.clone(), surface, params).await;
        if self.ctx.session().version() == Version::V2026_07_28 && self.knows_the_extension() {
            return Box::pin(self.dress(reply)).await;
        }
        reply
    }

    /// A call in a task of its own, so that its request can be answered before it ends.
    async fn as_task(&self, surface: Surface, params: Option<&RawValue>) -> Reply {
        let (house, ctx, caller) = (Arc::clone(self.house), self.ctx.clone(), self.caller.clone());
        let params = params.map(ToOwned::to_owned);
        let call = async move { surfaces::call(&house, &ctx, caller, surface, params.as_deref()).await };
        let mut call = tokio::spawn(trace::carried(call));
        match tokio::time::timeout(AT_ONCE, &mut call).await {
            Ok(ended) => self.named(ended.unwrap_or_else(|_| Err(vanished()))).await,
            Err(_) => self.goes_on(call),
        }
    }

    /// The task of a call that ended at once: the run it began, or what it answered.
    async fn named(&self, reply: Reply) -> Reply {
        let result = reply?;
        // What an upstream made a task itself is its own.
        if raw::get(&result, "task").is_some() {
            return Ok(result);
        }
        if let Some(run) = self.begun(&result).await? {
            self.follow(run.id.clone());
            return Ok(raw::to_raw(&json!({"task": task(&run, Era::Legacy)})));
        }
        self.kept(State::Ended(Ok(result))).map(|call| raw::to_raw(&json!({"task": call.task()})))
    }

    /// The task of a call that takes its time.
    fn goes_on(&self, call: JoinHandle<Reply>) -> Reply {
        let kept = self.kept(State::Working(self.ctx.clone()))?;
        let (told, id) = (raw::to_raw(&json!({"task": kept.task()})), kept.id);
        let (house, ctx, caller) = (Arc::clone(self.house), self.ctx.clone(), self.caller.clone());
        tokio::spawn(async move {
            let tasks = Tasks { house: &house, ctx: &ctx, caller: &caller };
            let mut reply = call.await.unwrap_or_else(|_| Err(vanished()));
            // What began a run ends with it.
            let begun = match &reply {
                Ok(result) => tasks.begun(result).await.ok().flatten(),
                Err(_) => None,
            };
            if let Some(run) = begun {
                let known = house.calls.turn(&id, State::Running(run.id.clone()), house.now());
                if known.is_some_and(|call| call.is_over()) {
                    house.runs().map(|runs| runs.stop(&run.id));
                }
                reply = tasks.ended(run).await.map(|run| raw::to_raw(&outcome(&run)));
            }
            if let Some(call) = house.calls.turn(&id, State::Ended(reply), house.now()) {
                tasks.tell(&call.task()).await;
            }
        });
        Ok(told)
    }

    fn kept(&self, state: State) -> Result<kept::Call, RpcError> {
        let kept = self.house.calls.keep(&self.caller.principal, state, self.house.now());
        kept.ok_or_else(|| RpcError::new(code::INTERNAL, "too many tasks are under way"))
    }

    /// Tells the client when a run that is its task has ended.
    fn follow(&self, id: RunId) {
        let (house, ctx, caller) = (Arc::clone(self.house), self.ctx.clone(), self.caller.clone());
        tokio::spawn(async move {
            let tasks = Tasks { house: &house, ctx: &ctx, caller: &caller };
            if let Ok(Some(run)) = tasks.run(&id).await
                && let Ok(run) = tasks.ended(run).await
            {
                tasks.tell(&task(&run, Era::Legacy)).await;
            }
        });
    }

    /// `notifications/tasks/status`, for a client that still listens.
    async fn tell(&self, task: &Value) {
        let _ = self.ctx.session().notify("notifications/tasks/status", Some(&raw::to_raw(task))).await;
    }

    /// A call's reply, as a task where it began one for a client of the stateless era that knows them.
    async fn dress(&self, reply: Reply) -> Reply {
        let result = reply?;
        if !are_offered(self.house) || raw::get(&result, "task").is_some() {
            return Ok(result);
        }
        let Some(run) = self.begun(&result).await? else { return Ok(result) };
        let mut created = task(&run, Era::Modern);
        set(&mut created, "resultType", "task".into());
        Ok(raw::to_raw(&created))
    }

    /// The run that a result tells of.
    async fn begun(&self, result: &RawValue) -> Result<Option<Run>, RpcError> {
        match raw::get_str_in(result, &["structuredContent", "data", "run_id"]) {
            Some(id) => self.run(&RunId::new(id.as_ref())).await,
            None => Ok(None),
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
        if let Some(call) = self.house.calls.get(&id, &self.caller.principal) {
            return match method {
                "tasks/get" => Ok(raw::to_raw(&call.task())),
                "tasks/result" => self.answered(call).await,
                _ => self.call_off(&call).await,
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
        let mut tasks: Vec<Value> = runs.iter().map(|run| task(run, Era::Legacy)).collect();
        tasks.extend(self.house.calls.of(&self.caller.principal).iter().map(kept::Call::task));
        // The newest first.
        tasks.sort_by(|left, right| created(right).cmp(created(left)));
        Ok(raw::to_raw(&json!({"tasks": tasks})))
    }

    /// Waits for the end of a call and gives what it ended with.
    async fn answered(&self, mut call: kept::Call) -> Reply {
        loop {
            match call.state {
                State::Ended(reply) => return reply.map(|result| related(&result, &call.id)),
                State::Cancelled => return Err(RpcError::new(code::INTERNAL, "the task was cancelled")),
                State::Working(_) | State::Running(_) => {}
            }
            tokio::select! {
                () = tokio::time::sleep(LOOK) => {}
                () = self.ctx.cancelled() => return Err(RpcError::new(code::INTERNAL, "cancelled")),
            }
            let again = self.house.calls.get(&call.id, &self.caller.principal);
            call = again.ok_or_else(|| RpcError::invalid_params("the task is gone"))?;
        }
    }

    /// Tells a call to stop. What it has done by then stands in the ledger.
    async fn call_off(&self, call: &kept::Call) -> Reply {
        match &call.state {
            State::Working(request) => request.cancel(),
            State::Running(run) => drop(self.house.runs().map(|runs| runs.stop(run))),
            State::Ended(_) | State::Cancelled => {
                return Err(RpcError::invalid_params("the task has ended already"));
            }
        }
        let turned = self.house.calls.turn(&call.id, State::Cancelled, self.house.now());
        let task = turned.unwrap_or_else(|| call.clone()).task();
        self.tell(&task).await;
        Ok(raw::to_raw(&task))
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
    async fn result(&self, run: Run) -> Reply {
        tokio::select! {
            ended = self.ended(run) => ended.map(|run| related(&raw::to_raw(&outcome(&run)), run.id.as_str())),
            () = self.ctx.cancelled() => Err(RpcError::new(code::INTERNAL, "cancelled")),
        }
    }

    /// Waits for the end of a run.
    async fn ended(&self, mut run: Run) -> Result<Run, RpcError> {
        while matches!(run.state, RunState::Queued | RunState::Running) {
            tokio::time::sleep(LOOK).await;
            run = self.run(&run.id).await?.ok_or_else(|| RpcError::invalid_params("the task is gone"))?;
        }
        Ok(run)
    }

    async fn cancel(&self, run: Run) -> Reply {
        if !matches!(run.state, RunState::Queued | RunState::Running) {
            return Err(RpcError::invalid_params("the task has ended already"));
        }
        if !self.house.runs().is_some_and(|runs| runs.stop(&run.id)) {
            return Err(RpcError::invalid_params("the task runs in another process of this gateway"));
        }
        // Being told to stop and having stopped are two things: the answer says how it ended.
        let run = self.ended(run).await?;
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

/// When a task was made.
fn created(task: &Value) -> &str {
    task.get("createdAt").and_then(Value::as_str).unwrap_or_default()
}

fn vanished() -> RpcError {
    RpcError::new(code::INTERNAL, "the call could not be answered")
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
