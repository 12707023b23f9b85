//! The gateway's own tools: search, mode, status, plans, runs. None of them can approve.

use std::sync::Arc;

use countersign_config::{OWN_TOOLS, ToolSurface};
use countersign_mcp::raw;
use countersign_mcp::server::RequestContext;
use countersign_policy::call::Caller;
use countersign_policy::confirm::{ConfirmInput, Kind, PlanState};
use countersign_policy::effect::Effect;
use countersign_policy::envelope::Envelope;
use countersign_policy::gate::{mode_within, parse_mode};
use countersign_policy::ids::{FullName, PlanId, RunId};
use countersign_policy::refusal::{Code, Refusal};
use countersign_policy::strict_json;
use countersign_policy::suggest::SuggestionTrigger;
use countersign_store::{BackgroundRun, DecisionOrigin, PlanRow};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::definitions::{self, DIRECT_COACHING, DIRECT_USAGE};
use super::{refuse_unread, retrieve};
use crate::active_policy::ActivePolicy;
use crate::answer::Answer;
use crate::decision_wait;
use crate::pipeline::CallPipeline;
use crate::pipeline::finished_plan::mark_result_delivered;
use crate::pipeline::request::invalid;
use crate::pipeline::series::SeriesRequest;
use crate::state::GatewayState;
use crate::suggestions::SuggestionInput;
use crate::upstreams::Condition;

/// The own tool of this name, or of an alias in the configuration.
pub(crate) fn own_tool_named(gateway: &GatewayState, name: &str) -> Option<&'static str> {
    let own = OWN_TOOLS.iter().find(|own| **own == name).copied();
    own.or_else(|| {
        let policy = gateway.policy.load();
        policy.aliases.iter().find(|(alias, _)| alias == name).map(|(_, own)| *own)
    })
}

/// Our own tools under the other names the configuration gave them.
pub(crate) fn aliases(gateway: &GatewayState) -> Vec<super::RawToolDefinition> {
    let policy = gateway.policy.load();
    let renamed = policy.aliases.iter().filter_map(|(alias, own)| {
        let tool =
            definitions::OWN.iter().find(|tool| raw::get_str(tool, "name").as_deref() == Some(*own))?;
        raw::set(tool, "name", &raw::to_raw(alias))
    });
    renamed.collect()
}

/// Runs one of our own tools.
pub(crate) async fn call_own_tool(
    gateway: &Arc<GatewayState>,
    ctx: &RequestContext,
    caller: Caller,
    surface: ToolSurface,
    name: &str,
    params: &RawValue,
) -> Answer {
    let given = arguments(name, params);
    if let ("draft_plan" | "run_plan", Ok(given)) = (name, &given) {
        match draft_or_run_plan(gateway, ctx, &caller, name, given).await {
            Ok(answer) => return answer,
            Err(refusal) => {
                let tool = FullName::new("countersign", name);
                return refuse_unread(gateway, &caller, tool, None, name, refusal, params).await;
            }
        }
    }
    let result = match given {
        Ok(given) => run_own_tool(gateway, ctx, &caller, surface, name, &given).await,
        Err(refusal) => Err(refusal),
    };
    match result {
        Ok(envelope) => Answer::Envelope(envelope),
        Err(refusal) => {
            let about_mode = matches!(refusal.code, Code::ModeInvalid | Code::ModeForbidden);
            let tool = FullName::new("countersign", name);
            let refused = refuse_unread(gateway, &caller, tool, None, name, refusal, params).await;
            match refused {
                Answer::Envelope(envelope) if about_mode => {
                    Answer::Envelope(envelope.with("suggestions", other_modes(gateway, &caller).await))
                }
                refused @ (Answer::Envelope(_)
                | Answer::Carded(..)
                | Answer::Upstream(_)
                | Answer::Rpc(_)) => refused,
            }
        }
    }
}

/// `draft_plan` and `run_plan`.
async fn draft_or_run_plan(
    gateway: &Arc<GatewayState>,
    ctx: &RequestContext,
    caller: &Caller,
    name: &str,
    given: &Map<String, Value>,
) -> Result<Answer, Refusal> {
    let wait_seconds = match given.get("wait_seconds") {
        None | Some(Value::Null) => None,
        Some(wait) => {
            let seconds = wait.as_f64().filter(|seconds| (0.0..=600.0).contains(seconds));
            Some(seconds.ok_or_else(|| invalid("wait_seconds", "must be a number from 0 to 600"))?)
        }
    };
    let pipeline =
        CallPipeline { wait_seconds, ..CallPipeline::new(gateway, Some(ctx), caller.clone(), name) };
    if name == "draft_plan" {
        return Ok(pipeline.draft_plan(SeriesRequest::read(given)?).await);
    }
    let text = |field: &str| match given.get(field) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(_) => Err(invalid(field, "must be a string")),
    };
    let yes = match given.get("yes") {
        None | Some(Value::Null) => None,
        Some(Value::Bool(yes)) => Some(*yes),
        Some(_) => return Err(invalid("yes", "must be true or false")),
    };
    if given.get("preview").is_some_and(|preview| *preview != Value::Bool(false) && !preview.is_null()) {
        return Err(invalid("preview", "must be false: draft_plan in plan mode previews"));
    }
    let confirm_input = ConfirmInput { token: text("confirm_token")?, yes, text: text("confirm_text")? };
    Ok(pipeline.run_plan(&PlanId::new(required(given, "plan_id")?), confirm_input).await)
}

async fn run_own_tool(
    gateway: &Arc<GatewayState>,
    ctx: &RequestContext,
    caller: &Caller,
    surface: ToolSurface,
    name: &str,
    given: &Map<String, Value>,
) -> Result<Envelope, Refusal> {
    match name {
        "retrieve_tools" => {
            gateway.wait_for_lists().await;
            retrieve::retrieve_tools(gateway, caller, given)
        }
        "set_mode" => set_mode(gateway, caller, given).await,
        "get_status" => get_status(gateway, caller, surface).await,
        "get_plan" => get_plan(gateway, ctx, caller, given).await,
        "cancel_plan" => cancel_plan(gateway, caller, given).await,
        "list_runs" => list_runs(gateway, caller, given).await,
        "get_run" => get_run(gateway, ctx, caller, given).await,
        other => Err(Refusal::new(Code::ToolNotFound, format!("Tool '{other}' not found"))),
    }
}

/// Reads the arguments of an own tool: strictly, and only names that its schema has.
fn arguments(name: &str, params: &RawValue) -> Result<Map<String, Value>, Refusal> {
    let Some(given) = raw::get(params, "arguments").filter(|given| given.get() != "null") else {
        return Ok(Map::new());
    };
    let parsed = strict_json::parse(given.get().as_bytes())
        .map_err(|fault| invalid("arguments", fault).because("arguments_not_strict"))?;
    let Value::Object(parsed) = parsed else { return Err(invalid("arguments", "must be an object")) };
    let tool = definitions::OWN.iter().find(|tool| raw::get_str(tool, "name").as_deref() == Some(name));
    let known = tool.and_then(|tool| raw::get_in(tool, &["inputSchema", "properties"]));
    for field in parsed.keys() {
        if known.is_none_or(|known| raw::get(known, field).is_none()) {
            return Err(invalid(field, "is not known here"));
        }
    }
    Ok(parsed)
}

fn required<'a>(given: &'a Map<String, Value>, name: &str) -> Result<&'a str, Refusal> {
    match given.get(name) {
        Some(Value::String(text)) => Ok(text),
        Some(_) => Err(invalid(name, "must be a string")),
        None => Err(invalid(name, "is required")),
    }
}

pub(super) fn read_count(
    given: &Map<String, Value>,
    name: &str,
    usual: u64,
    most: u64,
) -> Result<usize, Refusal> {
    let wrong = || invalid(name, format_args!("must be a whole number from 1 to {most}"));
    let number = match given.get(name) {
        None | Some(Value::Null) => usual,
        Some(value) => value.as_u64().ok_or_else(wrong)?,
    };
    if number > most || (number == 0 && usual != 0 && name != "tail") {
        return Err(wrong());
    }
    usize::try_from(number).map_err(|_| wrong())
}

/// Suggestions for a caller whose mode was refused.
async fn other_modes(gateway: &Arc<GatewayState>, caller: &Caller) -> Value {
    let set = gateway.session_mode(caller).await.ok().flatten();
    let mode = set.unwrap_or(gateway.policy.load().mode).min(caller.scopes.max_mode);
    SuggestionInput { gateway, caller, moment: SuggestionTrigger::ModeRefused, mode }.at_large()
}

async fn set_mode(
    gateway: &Arc<GatewayState>,
    caller: &Caller,
    given: &Map<String, Value>,
) -> Result<Envelope, Refusal> {
    let mode = parse_mode(required(given, "mode")?)?;
    mode_within(mode, caller.scopes.max_mode)?;
    let before = gateway
        .session_mode(caller)
        .await
        .map_err(|fault| fault.refusal())?
        .unwrap_or(gateway.policy.load().mode);
    gateway.set_session_mode(caller, mode).await.map_err(|fault| fault.refusal())?;
    let suggestions =
        SuggestionInput { gateway, caller, moment: SuggestionTrigger::ModeSet, mode }.at_large();
    Ok(Envelope::ok("set_mode", Map::new())
        .with("mode", mode.as_str())
        .with("previous", before.as_str())
        .with("message", format!("Mode set to: {mode}"))
        .with("suggestions", suggestions))
}

async fn get_status(
    gateway: &Arc<GatewayState>,
    caller: &Caller,
    surface: ToolSurface,
) -> Result<Envelope, Refusal> {
    let mode = gateway.session_mode(caller).await.map_err(|fault| fault.refusal())?;
    let pending = gateway.pending_plans(&caller.principal).await.map_err(|fault| fault.refusal())?;
    let catalog = gateway.catalog.load();
    let upstreams: Vec<Value> = gateway
        .upstreams
        .load()
        .iter()
        .map(|(id, upstream)| {
            let health = upstream.health();
            let (condition, why) = match &health.condition {
                Condition::Idle => ("idle", None),
                Condition::Starting => ("starting", None),
                Condition::Up => ("up", None),
                Condition::Down(why) => ("down", Some(crate::escape::visible(why))),
            };
            let (tools, withheld) = catalog.counts(id);
            json!({"name": id, "health": condition, "why": why, "tools": tools, "withheld": withheld,
                "restarts": health.restarts, "protocol": health.version})
        })
        .collect();
    let plans: Vec<Value> = pending.iter().map(plan_value).collect();
    let envelope = Envelope::ok("get_status", Map::new());
    // The `countersign` property of direct tools refers to this text.
    let envelope = match surface {
        ToolSurface::Direct => envelope.with("usage", format!("{DIRECT_USAGE} {DIRECT_COACHING}")),
        ToolSurface::Router => envelope,
    };
    Ok(envelope
        .with("role", caller.role.as_str())
        .with("principal", caller.principal.as_str())
        .with("mode", mode.unwrap_or(gateway.policy.load().mode).as_str())
        .with("max_mode", caller.scopes.max_mode.as_str())
        .with("surface", surface.as_str())
        .with("confirm", confirm_settings(&gateway.policy.load()))
        .with("upstreams", upstreams)
        .with("pending_plans", plans))
}

/// Who has to agree to a change by default, and how long a call waits for that.
fn confirm_settings(policy: &ActivePolicy) -> Value {
    let strengths = policy.rules.strengths();
    let strength = |effect, kind| strengths.strength(effect, kind).0;
    json!({
        "profile": strengths.profile,
        "strength": {
            "write": strength(Effect::Write, Kind::Simple),
            "destructive": strength(Effect::Destructive, Kind::Preview),
        },
        "hold_seconds": policy.hold.as_secs_f64(),
    })
}

/// The caller's plan. Another principal's plan looks like none.
async fn own_plan(gateway: &GatewayState, caller: &Caller, id: &PlanId) -> Result<PlanRow, Refusal> {
    let row = gateway.plan(id).await.map_err(|fault| fault.refusal())?;
    row.filter(|row| row.plan.principal == caller.principal).ok_or_else(|| {
        Refusal::new(
            Code::PlanNotFound,
            format!("there is no plan `{}`", crate::escape::visible(id.as_str())),
        )
    })
}

/// A plan as JSON text. Its result is spliced in as it came.
pub(crate) fn plan_text(row: &PlanRow) -> String {
    let plan = plan_value(row).to_string();
    let Some(result) = &row.result else { return plan };
    // The stored result is JSON. If it ever is not, it is quoted.
    let result = raw::from_text(result.as_str()).unwrap_or_else(|| raw::to_raw(result));
    raw::edit_text(&plan, &[raw::MemberEdit::Set("result", result.get())]).unwrap_or(plan)
}

fn plan_value(row: &PlanRow) -> Value {
    let mut plan = json!({
        "plan_id": row.plan.id,
        "state": row.state,
        "tool": row.plan.tool.to_string(),
        "effect": row.plan.effect,
        "confirm": {"kind": row.plan.requirement.kind, "strength": row.plan.requirement.strength},
        "expires_at": row.plan.expires.to_string(),
    });
    let Some(members) = plan.as_object_mut() else { return plan };
    if let Some(removed) = row.plan.preview.shown.get("removed_steps").filter(|_| !row.plan.steps.is_empty())
    {
        members.insert("removed_steps".into(), removed.clone());
    }
    if let Some(approval) = &row.approval {
        members.insert(
            "approval".into(),
            json!({"by": approval.by, "rail": approval.channel, "strength": approval.strength}),
        );
    }
    if let Some(note) = &row.note {
        members.insert("note".into(), note.as_str().into());
    }
    plan
}

async fn get_plan(
    gateway: &Arc<GatewayState>,
    ctx: &RequestContext,
    caller: &Caller,
    given: &Map<String, Value>,
) -> Result<Envelope, Refusal> {
    let id = PlanId::new(required(given, "plan_id")?);
    let mut row = own_plan(gateway, caller, &id).await?;
    if let Some(wait) = given.get("wait_seconds").filter(|wait| !wait.is_null()) {
        let seconds = wait.as_f64().filter(|seconds| (0.0..=600.0).contains(seconds));
        let seconds = seconds.ok_or_else(|| invalid("wait_seconds", "must be a number from 0 to 600"))?;
        let waits = match row.state {
            PlanState::Pending => decision_wait::until_decided(gateway, ctx, &id, seconds).await,
            PlanState::Executing => decision_wait::until_settled(gateway, ctx, &id, seconds).await,
            PlanState::Approved
            | PlanState::Rejected
            | PlanState::Cancelled
            | PlanState::Expired
            | PlanState::Done
            | PlanState::Failed
            | PlanState::OutcomeUnknown => false,
        };
        if waits {
            row = own_plan(gateway, caller, &id).await?;
        }
    }
    if row.result.is_some() {
        mark_result_delivered(gateway, &id).await;
    }
    Ok(Envelope::ok("get_plan", Map::new()).with_text("plan", plan_text(&row)))
}

async fn cancel_plan(
    gateway: &Arc<GatewayState>,
    caller: &Caller,
    given: &Map<String, Value>,
) -> Result<Envelope, Refusal> {
    let id = PlanId::new(required(given, "plan_id")?);
    own_plan(gateway, caller, &id).await?;
    let origin = DecisionOrigin { source: None, host: caller.host.clone() };
    let cancelled = gateway.store.cancel_from(&id, &caller.principal, origin, gateway.now()).await;
    cancelled.map_err(|refused| refused.refusal())?;
    gateway.announce(id.clone());
    let row = own_plan(gateway, caller, &id).await?;
    Ok(Envelope::ok("cancel_plan", Map::new()).with_text("plan", plan_text(&row)))
}

/// Lines of a run's log in a list.
const LISTED_LINES: usize = 5;

/// A run as `get_run` and `list_runs` show it.
pub(crate) fn run_value(run: &BackgroundRun, tail: usize) -> Value {
    let skipped = run.log_tail.len().saturating_sub(tail);
    let lines: Vec<&String> = run.log_tail.iter().skip(skipped).collect();
    let mut value = json!({
        "run_id": run.id,
        "tool": run.tool,
        "state": run.state.as_str(),
        "started_at": run.started.to_string(),
        "log_tail": lines,
    });
    if let Some(members) = value.as_object_mut() {
        members.extend(run.exit_code.map(|code| ("exit_code".to_owned(), code.into())));
        members.extend(run.ended.map(|ended| ("ended_at".to_owned(), ended.to_string().into())));
    }
    value
}

async fn list_runs(
    gateway: &Arc<GatewayState>,
    caller: &Caller,
    given: &Map<String, Value>,
) -> Result<Envelope, Refusal> {
    let limit = read_count(given, "limit", 20, 100)?;
    let limit = u32::try_from(limit).unwrap_or(100);
    let runs = gateway.store.runs(Some(&caller.principal), limit).await.map_err(|fault| fault.refusal())?;
    let runs: Vec<Value> = runs.iter().map(|run| run_value(run, LISTED_LINES)).collect();
    Ok(Envelope::ok("list_runs", Map::new()).with("runs", runs))
}

async fn get_run(
    gateway: &Arc<GatewayState>,
    ctx: &RequestContext,
    caller: &Caller,
    given: &Map<String, Value>,
) -> Result<Envelope, Refusal> {
    let id = RunId::new(required(given, "run_id")?);
    let tail = read_count(given, "tail", 50, 1000)?;
    if let Some(wait) = given.get("wait_seconds").filter(|wait| !wait.is_null()) {
        let seconds = wait.as_f64().filter(|seconds| (0.0..=600.0).contains(seconds));
        let seconds = seconds.ok_or_else(|| invalid("wait_seconds", "must be a number from 0 to 600"))?;
        decision_wait::until_run_ended(gateway, ctx, caller, &id, seconds).await;
    }
    let run = gateway.store.run(&id).await.map_err(|fault| fault.refusal())?;
    let run = run.filter(|run| run.principal == caller.principal);
    let run = run.ok_or_else(|| {
        Refusal::new(Code::NotFound, format!("there is no run `{}`", crate::escape::visible(id.as_str())))
    })?;
    // The fields are there twice: by themselves, and as `run`, like a plan in `get_plan`.
    let run = run_value(&run, tail);
    let fields = run.as_object().cloned().unwrap_or_default();
    Ok(Envelope::ok("get_run", fields).with("run", run))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The configuration checks aliases against its own list of our tools.
    #[test]
    fn the_configuration_knows_our_own_tools() {
        let own: Vec<String> =
            definitions::OWN.iter().map(|tool| raw::get_str(tool, "name").unwrap().into_owned()).collect();
        assert_eq!(own, OWN_TOOLS);
    }
}
