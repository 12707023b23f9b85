//! Runs as MCP tasks: in 2025-11-25 where a call asks for one, in the stateless era where the client declares the extension. A task is a run,
//! or a call that continues after its request was answered. Permits nothing by itself.

mod stored_tasks;

use std::sync::Arc;
use std::time::Duration;

use countersign_config::ToolSurface;
use countersign_mcp::era::{Era, Version};
use countersign_mcp::jsonrpc::{Reply, RpcError, code};
use countersign_mcp::raw::{self, RawJson};
use countersign_mcp::server::{RequestContext, Session};
use countersign_policy::call::Caller;
use countersign_policy::envelope::Envelope;
use countersign_policy::ids::RunId;
use countersign_store::{BackgroundRun, RunState};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use tokio::task::JoinHandle;

pub(crate) use stored_tasks::StoredTasks;

use self::stored_tasks::TaskState;
use crate::answer::{TextForm, tool_result};
use crate::state::GatewayState;
use crate::surfaces::{self, own::run_value};
use crate::trace;

pub(crate) const EXTENSION: &str = "io.modelcontextprotocol/tasks";
/// The `_meta` key of the task a result belongs to.
const RELATED: &str = "io.modelcontextprotocol/related-task";
/// In milliseconds.
const POLL_MS: u64 = 1_000;
/// How long a call may take before its task is returned instead of its result.
const AT_ONCE: Duration = Duration::from_millis(250);
/// How often a run is polled for its end.
const LOOK: Duration = Duration::from_millis(200);

/// Whether anything here can be a task.
pub(crate) fn are_offered(gateway: &GatewayState) -> bool {
    gateway.bare_upstream().is_none() && gateway.upstreams.load().values().any(|upstream| upstream.has_runs())
}

pub(crate) fn capability(gateway: &GatewayState, session: &Session, capabilities: RawJson) -> RawJson {
    if !are_offered(gateway) {
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

pub(crate) struct TaskRequest<'a> {
    pub gateway: &'a Arc<GatewayState>,
    pub ctx: &'a RequestContext,
    pub caller: &'a Caller,
}

impl TaskRequest<'_> {
    /// Runs a call, as a task if the client wants one.
    pub(crate) async fn call(&self, surface: ToolSurface, params: Option<&RawValue>) -> Reply {
        let wants = self.ctx.session().version() == Version::V2025_11_25
            && params.and_then(|params| raw::get(params, "task")).is_some_and(raw::is_object);
        // Tasks of an upstream under its own names are its own.
        if wants && are_offered(self.gateway) {
            return Box::pin(self.as_task(surface, params)).await;
        }
        let reply = surfaces::call_tool(self.gateway, self.ctx, self.caller.clone(), surface, params).await;
        if self.ctx.session().version() == Version::V2026_07_28 && self.knows_the_extension() {
            return Box::pin(self.with_task(reply)).await;
        }
        reply
    }

    /// Runs a call in a tokio task, so that its request can be answered before it ends.
    async fn as_task(&self, surface: ToolSurface, params: Option<&RawValue>) -> Reply {
        let (gateway, ctx, caller) = (Arc::clone(self.gateway), self.ctx.clone(), self.caller.clone());
        let params = params.map(ToOwned::to_owned);
        let call =
            async move { surfaces::call_tool(&gateway, &ctx, caller, surface, params.as_deref()).await };
        let mut call = tokio::spawn(trace::carried(call));
        match tokio::time::timeout(AT_ONCE, &mut call).await {
            Ok(ended) => self.named(ended.unwrap_or_else(|_| Err(vanished()))).await,
            Err(_) => self.continue_as_task(call),
        }
    }

    /// The task of a call that ended at once: the run it started, or its answer.
    async fn named(&self, reply: Reply) -> Reply {
        let result = reply?;
        // A task of the upstream stays the upstream's.
        if raw::get(&result, "task").is_some() {
            return Ok(result);
        }
        if let Some(run) = self.started_run(&result).await? {
            self.follow(run.id.clone());
            return Ok(raw::to_raw(&json!({"task": task(&run, Era::Legacy)})));
        }
        self.store_task(TaskState::Ended(Ok(result))).map(|call| raw::to_raw(&json!({"task": call.task()})))
    }

    /// The task of a call that takes longer.
    fn continue_as_task(&self, call: JoinHandle<Reply>) -> Reply {
        let store_task = self.store_task(TaskState::Working(self.ctx.clone()))?;
        let (run_status, id) = (raw::to_raw(&json!({"task": store_task.task()})), store_task.id);
        let (gateway, ctx, caller) = (Arc::clone(self.gateway), self.ctx.clone(), self.caller.clone());
        tokio::spawn(async move {
            let tasks = TaskRequest { gateway: &gateway, ctx: &ctx, caller: &caller };
            let mut reply = call.await.unwrap_or_else(|_| Err(vanished()));
            // A call that started a run ends with it.
            let started_run = match &reply {
                Ok(result) => tasks.started_run(result).await.ok().flatten(),
                Err(_) => None,
            };
            if let Some(run) = started_run {
                let known = gateway.calls.set_state(&id, TaskState::Running(run.id.clone()), gateway.now());
                if known.is_some_and(|call| call.is_over()) {
                    gateway.runs().map(|runs| runs.stop(&run.id));
                }
                reply = tasks.ended(run).await.map(|run| raw::to_raw(&outcome(&run)));
            }
            if let Some(call) = gateway.calls.set_state(&id, TaskState::Ended(reply), gateway.now()) {
                tasks.notify_status(&call.task()).await;
            }
        });
        Ok(run_status)
    }

    fn store_task(&self, state: TaskState) -> Result<stored_tasks::StoredTask, RpcError> {
        let store_task = self.gateway.calls.add(&self.caller.principal, state, self.gateway.now());
        store_task.ok_or_else(|| RpcError::new(code::INTERNAL, "too many tasks are under way"))
    }

    /// Notifies the client when its run has ended.
    fn follow(&self, id: RunId) {
        let (gateway, ctx, caller) = (Arc::clone(self.gateway), self.ctx.clone(), self.caller.clone());
        tokio::spawn(async move {
            let tasks = TaskRequest { gateway: &gateway, ctx: &ctx, caller: &caller };
            if let Ok(Some(run)) = tasks.run(&id).await
                && let Ok(run) = tasks.ended(run).await
            {
                tasks.notify_status(&task(&run, Era::Legacy)).await;
            }
        });
    }

    async fn notify_status(&self, task: &Value) {
        let _ = self.ctx.session().notify("notifications/tasks/status", Some(&raw::to_raw(task))).await;
    }

    /// Adds the task to the reply of a call that started a run, for stateless clients with the extension.
    async fn with_task(&self, reply: Reply) -> Reply {
        let result = reply?;
        if !are_offered(self.gateway) || raw::get(&result, "task").is_some() {
            return Ok(result);
        }
        let Some(run) = self.started_run(&result).await? else { return Ok(result) };
        let mut created = task(&run, Era::Modern);
        set(&mut created, "resultType", "task".into());
        Ok(raw::to_raw(&created))
    }

    async fn started_run(&self, result: &RawValue) -> Result<Option<BackgroundRun>, RpcError> {
        match raw::get_str_in(result, &["structuredContent", "data", "run_id"]) {
            Some(id) => self.run(&RunId::new(id.as_ref())).await,
            None => Ok(None),
        }
    }

    fn knows_the_extension(&self) -> bool {
        let capabilities = self.ctx.client().capabilities.as_deref();
        capabilities.is_some_and(|all| raw::get_in(all, &["extensions", EXTENSION]).is_some())
    }

    pub(crate) fn is_about(&self, method: &str) -> bool {
        let known = match self.ctx.session().version() {
            Version::V2025_11_25 => &["tasks/get", "tasks/result", "tasks/list", "tasks/cancel"][..],
            Version::V2026_07_28 => &["tasks/get", "tasks/update", "tasks/cancel"][..],
            Version::V2024_11_05 | Version::V2025_03_26 | Version::V2025_06_18 => &[],
        };
        known.contains(&method) && are_offered(self.gateway)
    }

    pub(crate) async fn answer(&self, method: &str, params: Option<&RawValue>) -> Reply {
        if method == "tasks/list" {
            return self.list().await;
        }
        let id = params.and_then(|params| raw::get_str(params, "taskId"));
        let Some(id) = id else { return Err(RpcError::invalid_params("`taskId` is required")) };
        if let Some(call) = self.gateway.calls.get(&id, &self.caller.principal) {
            return match method {
                "tasks/get" => Ok(raw::to_raw(&call.task())),
                "tasks/result" => self.answered(call).await,
                _ => self.cancel_call(&call).await,
            };
        }
        let run = self.run(&RunId::new(id.as_ref())).await?;
        let Some(run) = run else {
            let shown = crate::escape::visible(&id);
            return Err(RpcError::invalid_params(&format!("there is no task `{shown}`")));
        };
        match method {
            "tasks/get" => Ok(self.run_status(&run)),
            "tasks/result" => self.result(run).await,
            "tasks/cancel" => self.cancel(run).await,
            // Runs ask no questions, so there is nothing to update.
            "tasks/update" => Ok(raw::empty_object()),
            other => Err(RpcError::method_not_found(other)),
        }
    }

    /// The run, if it belongs to this principal; another's looks absent.
    async fn run(&self, id: &RunId) -> Result<Option<BackgroundRun>, RpcError> {
        let run = self
            .gateway
            .store
            .run(id)
            .await
            .map_err(|fault| RpcError::new(code::INTERNAL, &fault.outside()))?;
        Ok(run.filter(|run| run.principal == self.caller.principal))
    }

    async fn list(&self) -> Reply {
        let runs = self.gateway.store.runs(Some(&self.caller.principal), 100).await;
        let runs = runs.map_err(|fault| RpcError::new(code::INTERNAL, &fault.outside()))?;
        let mut tasks: Vec<Value> = runs.iter().map(|run| task(run, Era::Legacy)).collect();
        tasks
            .extend(self.gateway.calls.of(&self.caller.principal).iter().map(stored_tasks::StoredTask::task));
        // Newest first.
        tasks.sort_by(|left, right| created(right).cmp(created(left)));
        Ok(raw::to_raw(&json!({"tasks": tasks})))
    }

    /// Waits for the end of a call and returns its answer.
    async fn answered(&self, mut call: stored_tasks::StoredTask) -> Reply {
        loop {
            match call.state {
                TaskState::Ended(reply) => return reply.map(|result| related(&result, &call.id)),
                TaskState::Cancelled => return Err(RpcError::new(code::INTERNAL, "the task was cancelled")),
                TaskState::Working(_) | TaskState::Running(_) => {}
            }
            tokio::select! {
                () = tokio::time::sleep(LOOK) => {}
                () = self.ctx.cancelled() => return Err(RpcError::new(code::INTERNAL, "cancelled")),
            }
            let again = self.gateway.calls.get(&call.id, &self.caller.principal);
            call = again.ok_or_else(|| RpcError::invalid_params("the task is gone"))?;
        }
    }

    /// Cancels a call. What it has done by then is in the ledger.
    async fn cancel_call(&self, call: &stored_tasks::StoredTask) -> Reply {
        match &call.state {
            TaskState::Working(request) => request.cancel(),
            TaskState::Running(run) => drop(self.gateway.runs().map(|runs| runs.stop(run))),
            TaskState::Ended(_) | TaskState::Cancelled => {
                return Err(RpcError::invalid_params("the task has ended already"));
            }
        }
        let turned = self.gateway.calls.set_state(&call.id, TaskState::Cancelled, self.gateway.now());
        let task = turned.unwrap_or_else(|| call.clone()).task();
        self.notify_status(&task).await;
        Ok(raw::to_raw(&task))
    }

    /// The state of a run; in the stateless era with its result once there is one.
    fn run_status(&self, run: &BackgroundRun) -> RawJson {
        let mut run_status = task(run, self.ctx.era());
        match (self.ctx.era(), status(run.state)) {
            (Era::Modern, "completed") => set(&mut run_status, "result", outcome(run)),
            (Era::Modern, "failed") => {
                let message = format!("the run `{}` ended as {}", run.id, run.state.as_str());
                set(
                    &mut run_status,
                    "error",
                    json!({"code": code::INTERNAL, "message": message, "data": run_value(run, 50)}),
                );
            }
            (Era::Legacy | Era::Modern, _) => {}
        }
        raw::to_raw(&run_status)
    }

    /// Waits for the end of a run and returns its result.
    async fn result(&self, run: BackgroundRun) -> Reply {
        tokio::select! {
            ended = self.ended(run) => ended.map(|run| related(&raw::to_raw(&outcome(&run)), run.id.as_str())),
            () = self.ctx.cancelled() => Err(RpcError::new(code::INTERNAL, "cancelled")),
        }
    }

    async fn ended(&self, mut run: BackgroundRun) -> Result<BackgroundRun, RpcError> {
        while matches!(run.state, RunState::Queued | RunState::Running) {
            tokio::time::sleep(LOOK).await;
            run = self.run(&run.id).await?.ok_or_else(|| RpcError::invalid_params("the task is gone"))?;
        }
        Ok(run)
    }

    async fn cancel(&self, run: BackgroundRun) -> Reply {
        if !matches!(run.state, RunState::Queued | RunState::Running) {
            return Err(RpcError::invalid_params("the task has ended already"));
        }
        if !self.gateway.runs().is_some_and(|runs| runs.stop(&run.id)) {
            return Err(RpcError::invalid_params("the task runs in another process of this gateway"));
        }
        // A cancelled run may still end in another way: the answer says how.
        let run = self.ended(run).await?;
        match self.ctx.era() {
            Era::Legacy => Ok(raw::to_raw(&task(&run, Era::Legacy))),
            Era::Modern => Ok(raw::empty_object()),
        }
    }
}

fn status(state: RunState) -> &'static str {
    match state {
        RunState::Queued | RunState::Running => "working",
        RunState::Success => "completed",
        RunState::Failed | RunState::OutcomeUnknown => "failed",
        RunState::Cancelled => "cancelled",
    }
}

/// A run as a task of an era. It is kept as long as the store keeps runs.
fn task(run: &BackgroundRun, era: Era) -> Value {
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

fn created(task: &Value) -> &str {
    task.get("createdAt").and_then(Value::as_str).unwrap_or_default()
}

fn vanished() -> RpcError {
    RpcError::new(code::INTERNAL, "the call could not be answered")
}

fn outcome(run: &BackgroundRun) -> Value {
    let envelope =
        Envelope::ok(&run.tool, Map::new()).with("run_id", run.id.as_str()).with("run", run_value(run, 50));
    let result = tool_result(&envelope, TextForm::ForModel);
    let mut result = serde_json::from_str(result.get()).unwrap_or_else(|_| json!({}));
    set(&mut result, "isError", (run.state != RunState::Success).into());
    result
}

fn related(result: &RawValue, id: &str) -> RawJson {
    let related = raw::to_raw(&json!({"taskId": id}));
    raw::set_in(result, "_meta", RELATED, &related).unwrap_or_else(|| result.to_owned())
}

fn set(object: &mut Value, name: &str, value: Value) {
    if let Some(members) = object.as_object_mut() {
        members.insert(name.to_owned(), value);
    }
}
