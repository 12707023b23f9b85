//! Our own tools: search, mode, status, plans, runs. None of them can approve.

use std::sync::Arc;

use countersign_core::call::Caller;
use countersign_core::config::{OWN_TOOLS, Surface};
use countersign_core::confirm::{Brought, Kind, PlanState};
use countersign_core::effect::Effect;
use countersign_core::envelope::Envelope;
use countersign_core::gate::{mode_within, parse_mode};
use countersign_core::ids::{FullName, PlanId, RunId};
use countersign_core::intent::Variant;
use countersign_core::refusal::{Code, Refusal};
use countersign_core::role::Role;
use countersign_core::strict_json;
use countersign_core::suggest::Moment;
use countersign_store::{PlanRow, Run};
use countersign_wire::raw;
use countersign_wire::serve::Ctx;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::definitions::{self, USAGE};
use super::refuse_unread;
use crate::answer::Answer;
use crate::asked::invalid;
use crate::conduct::Conduct;
use crate::conduct::series::AskedSeries;
use crate::house::House;
use crate::law::Law;
use crate::search::Query;
use crate::suggested::Suggesting;
use crate::upstreams::Condition;
use crate::waiting;

/// Which of our own tools a name means: its own, or one the configuration gave it.
pub fn meant(house: &House, name: &str) -> Option<&'static str> {
    let own = OWN_TOOLS.iter().find(|own| **own == name).copied();
    own.or_else(|| {
        let law = house.law.load();
        law.aliases.iter().find(|(alias, _)| alias == name).map(|(_, own)| *own)
    })
}

/// Our own tools under the other names the configuration gave them.
pub fn aliases(house: &House) -> Vec<super::Definition> {
    let law = house.law.load();
    let renamed = law.aliases.iter().filter_map(|(alias, own)| {
        let tool =
            definitions::OWN.iter().find(|tool| raw::get_str(tool, "name").as_deref() == Some(*own))?;
        raw::set(tool, "name", &raw::to_raw(alias))
    });
    renamed.collect()
}

/// Runs one of our own tools.
pub async fn call(
    house: &Arc<House>,
    ctx: &Ctx,
    caller: Caller,
    surface: Surface,
    name: &str,
    params: &RawValue,
) -> Answer {
    let given = arguments(name, params);
    if let ("draft_plan" | "run_plan", Ok(given)) = (name, &given) {
        match series(house, ctx, &caller, name, given).await {
            Ok(answer) => return answer,
            Err(refusal) => {
                let tool = FullName::new("countersign", name);
                return refuse_unread(house, &caller, tool, None, name, refusal, params).await;
            }
        }
    }
    let result = match given {
        Ok(given) => answer(house, ctx, &caller, surface, name, &given).await,
        Err(refusal) => Err(refusal),
    };
    match result {
        Ok(envelope) => Answer::Envelope(envelope),
        Err(refusal) => {
            let about_mode = matches!(refusal.code, Code::ModeInvalid | Code::ModeForbidden);
            let tool = FullName::new("countersign", name);
            let refused = refuse_unread(house, &caller, tool, None, name, refusal, params).await;
            match refused {
                Answer::Envelope(envelope) if about_mode => {
                    Answer::Envelope(envelope.with("suggestions", other_modes(house, &caller).await))
                }
                refused @ (Answer::Envelope(_)
                | Answer::Carded(..)
                | Answer::Upstream(_)
                | Answer::Rpc(_)) => refused,
            }
        }
    }
}

/// Plans of several steps go their own way: they answer with a plan, or with what became of its steps.
async fn series(
    house: &Arc<House>,
    ctx: &Ctx,
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
    let conduct = Conduct {
        house,
        ctx: Some(ctx),
        caller: caller.clone(),
        command: name.to_owned(),
        wait_seconds,
        rest: None,
    };
    if name == "draft_plan" {
        return Ok(conduct.draft_series(AskedSeries::read(given)?).await);
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
    let brought = Brought { token: text("confirm_token")?, yes, text: text("confirm_text")? };
    Ok(conduct.run_series(&PlanId::new(required(given, "plan_id")?), brought).await)
}

async fn answer(
    house: &Arc<House>,
    ctx: &Ctx,
    caller: &Caller,
    surface: Surface,
    name: &str,
    given: &Map<String, Value>,
) -> Result<Envelope, Refusal> {
    match name {
        "retrieve_tools" => retrieve_tools(house, caller, given),
        "set_mode" => set_mode(house, caller, given).await,
        "get_status" => get_status(house, caller, surface).await,
        "get_plan" => get_plan(house, ctx, caller, given).await,
        "cancel_plan" => cancel_plan(house, caller, given).await,
        "list_runs" => list_runs(house, caller, given).await,
        "get_run" => get_run(house, ctx, caller, given).await,
        other => Err(Refusal::new(Code::ToolNotFound, format!("Tool '{other}' not found"))),
    }
}

/// The arguments of one of our tools: strict, and only the names its schema has.
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

fn count(given: &Map<String, Value>, name: &str, usual: u64, most: u64) -> Result<usize, Refusal> {
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

fn retrieve_tools(house: &House, caller: &Caller, given: &Map<String, Value>) -> Result<Envelope, Refusal> {
    let query = match given.get("query") {
        None | Some(Value::Null) => return Err(invalid("query", "is required: what the tool should do")),
        Some(Value::String(text)) => text,
        Some(_) => return Err(invalid("query", "must be a string")),
    };
    let limit = count(given, "limit", 15, 100)?;
    let effect = match given.get("effect") {
        None | Some(Value::Null) => None,
        Some(value) => {
            let known = value.as_str().and_then(|text| text.parse::<Effect>().ok());
            Some(known.ok_or_else(|| invalid("effect", "must be read, write, or destructive"))?)
        }
    };
    let upstream = match given.get("upstream") {
        None | Some(Value::Null) => None,
        Some(Value::String(text)) => Some(text.as_str()),
        Some(_) => return Err(invalid("upstream", "must be a string")),
    };
    let catalog = house.catalog.load();
    let visible = |doc: usize| {
        catalog.indexed(doc).is_some_and(|listed| {
            effect.is_none_or(|effect| listed.outlook.effect == effect)
                && caller.scopes.upstreams.as_ref().is_none_or(|all| all.contains(&listed.tool.upstream))
                && !(caller.role == Role::Agent && listed.outlook.role == Some(Role::Human))
        })
    };
    let found = catalog.index().search(&Query { text: query, limit, upstream, keep: Some(&visible) });
    let tools: Vec<Value> = found
        .hits
        .iter()
        .filter_map(|hit| catalog.indexed(hit.doc).map(|listed| (listed, hit.score)))
        .map(|(listed, score)| {
            json!({
                "name": listed.tool.full_name().to_string(),
                "description": listed.tool.description(),
                "inputSchema": listed.tool.input_schema(),
                "score": score,
                "server": listed.tool.upstream,
                "annotations": listed.tool.definition.get("annotations").cloned().unwrap_or_else(|| json!({})),
                "effect": listed.outlook.effect,
                "confirm": listed.outlook.kind,
                "strength": listed.outlook.strength,
                "call_with": Variant::for_effect(listed.outlook.effect).call_tool(),
            })
        })
        .collect();
    Ok(Envelope::ok("retrieve_tools", Map::new())
        .with("tools", tools)
        .with("total", found.total)
        .with("usage_instructions", USAGE))
}

/// What can be done where a mode was refused.
async fn other_modes(house: &Arc<House>, caller: &Caller) -> Value {
    let set = house.session_mode(caller).await.ok().flatten();
    let mode = set.unwrap_or(house.law.load().mode).min(caller.scopes.max_mode);
    Suggesting { house, caller, moment: Moment::ModeRefused, mode }.at_large()
}

async fn set_mode(
    house: &Arc<House>,
    caller: &Caller,
    given: &Map<String, Value>,
) -> Result<Envelope, Refusal> {
    let mode = parse_mode(required(given, "mode")?)?;
    mode_within(mode, caller.scopes.max_mode)?;
    let before =
        house.session_mode(caller).await.map_err(|fault| fault.refusal())?.unwrap_or(house.law.load().mode);
    house.set_session_mode(caller, mode).await.map_err(|fault| fault.refusal())?;
    let suggestions = Suggesting { house, caller, moment: Moment::ModeSet, mode }.at_large();
    Ok(Envelope::ok("set_mode", Map::new())
        .with("mode", mode.as_str())
        .with("previous", before.as_str())
        .with("message", format!("Mode set to: {mode}"))
        .with("suggestions", suggestions))
}

async fn get_status(house: &Arc<House>, caller: &Caller, surface: Surface) -> Result<Envelope, Refusal> {
    let mode = house.session_mode(caller).await.map_err(|fault| fault.refusal())?;
    let pending = house.pending_plans(&caller.principal).await.map_err(|fault| fault.refusal())?;
    let catalog = house.catalog.load();
    let upstreams: Vec<Value> = house
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
    Ok(Envelope::ok("get_status", Map::new())
        .with("role", caller.role.as_str())
        .with("principal", caller.principal.as_str())
        .with("mode", mode.unwrap_or(house.law.load().mode).as_str())
        .with("max_mode", caller.scopes.max_mode.as_str())
        .with("surface", surface.as_str())
        .with("confirm", who_agrees(&house.law.load()))
        .with("upstreams", upstreams)
        .with("pending_plans", plans))
}

/// Who has to agree to a change by default, and how long a call waits for that.
fn who_agrees(law: &Law) -> Value {
    let strengths = law.rules.strengths();
    let strength = |effect, kind| strengths.strength(effect, kind).0;
    json!({
        "profile": strengths.profile,
        "strength": {
            "write": strength(Effect::Write, Kind::Simple),
            "destructive": strength(Effect::Destructive, Kind::Preview),
        },
        "hold_seconds": law.hold.as_secs_f64(),
    })
}

/// The plan, if it is of this principal: another's looks like none.
async fn own_plan(house: &House, caller: &Caller, id: &PlanId) -> Result<PlanRow, Refusal> {
    let row = house.plan(id).await.map_err(|fault| fault.refusal())?;
    row.filter(|row| row.plan.principal == caller.principal).ok_or_else(|| {
        Refusal::new(
            Code::PlanNotFound,
            format!("there is no plan `{}`", crate::escape::visible(id.as_str())),
        )
    })
}

/// A plan of the line as it is told, what came back of it as it came.
pub(crate) fn plan_text(row: &PlanRow) -> String {
    let plan = plan_value(row).to_string();
    let Some(result) = &row.result else { return plan };
    // What was kept is JSON; if it ever is not, it is told as a text.
    let result = raw::from_text(result.as_str()).unwrap_or_else(|| raw::to_raw(result));
    raw::edit_text(&plan, &[raw::Edit::Set("result", result.get())]).unwrap_or(plan)
}

fn plan_value(row: &PlanRow) -> Value {
    let mut plan = json!({
        "plan_id": row.plan.id,
        "state": row.state,
        "tool": row.plan.tool.to_string(),
        "effect": row.plan.effect,
        "confirm": {"kind": row.plan.need.kind, "strength": row.plan.need.strength},
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
            json!({"by": approval.by, "rail": approval.rail, "strength": approval.strength}),
        );
    }
    if let Some(note) = &row.note {
        members.insert("note".into(), note.as_str().into());
    }
    plan
}

async fn get_plan(
    house: &Arc<House>,
    ctx: &Ctx,
    caller: &Caller,
    given: &Map<String, Value>,
) -> Result<Envelope, Refusal> {
    let id = PlanId::new(required(given, "plan_id")?);
    let mut row = own_plan(house, caller, &id).await?;
    if let Some(wait) = given.get("wait_seconds").filter(|wait| !wait.is_null()) {
        let seconds = wait.as_f64().filter(|seconds| (0.0..=600.0).contains(seconds));
        let seconds = seconds.ok_or_else(|| invalid("wait_seconds", "must be a number from 0 to 600"))?;
        let waits = match row.state {
            PlanState::Pending => waiting::until_decided(house, ctx, &id, seconds).await,
            PlanState::Executing => waiting::until_settled(house, ctx, &id, seconds).await,
            PlanState::Approved
            | PlanState::Rejected
            | PlanState::Cancelled
            | PlanState::Expired
            | PlanState::Done
            | PlanState::Failed
            | PlanState::OutcomeUnknown => false,
        };
        if waits {
            row = own_plan(house, caller, &id).await?;
        }
    }
    Ok(Envelope::ok("get_plan", Map::new()).with_text("plan", plan_text(&row)))
}

async fn cancel_plan(
    house: &Arc<House>,
    caller: &Caller,
    given: &Map<String, Value>,
) -> Result<Envelope, Refusal> {
    let id = PlanId::new(required(given, "plan_id")?);
    own_plan(house, caller, &id).await?;
    house.store.cancel(&id, &caller.principal, house.now()).await.map_err(|refused| refused.refusal())?;
    house.announce(id.clone());
    let row = own_plan(house, caller, &id).await?;
    Ok(Envelope::ok("cancel_plan", Map::new()).with_text("plan", plan_text(&row)))
}

/// How many lines of its log a run has in a list: enough to see what it was at.
const LISTED_LINES: usize = 5;

/// A run as `get_run` and `list_runs` show it.
pub(crate) fn run_value(run: &Run, tail: usize) -> Value {
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
    house: &Arc<House>,
    caller: &Caller,
    given: &Map<String, Value>,
) -> Result<Envelope, Refusal> {
    let limit = count(given, "limit", 20, 100)?;
    let limit = u32::try_from(limit).unwrap_or(100);
    let runs = house.store.runs(Some(&caller.principal), limit).await.map_err(|fault| fault.refusal())?;
    let runs: Vec<Value> = runs.iter().map(|run| run_value(run, LISTED_LINES)).collect();
    Ok(Envelope::ok("list_runs", Map::new()).with("runs", runs))
}

async fn get_run(
    house: &Arc<House>,
    ctx: &Ctx,
    caller: &Caller,
    given: &Map<String, Value>,
) -> Result<Envelope, Refusal> {
    let id = RunId::new(required(given, "run_id")?);
    let tail = count(given, "tail", 50, 1000)?;
    if let Some(wait) = given.get("wait_seconds").filter(|wait| !wait.is_null()) {
        let seconds = wait.as_f64().filter(|seconds| (0.0..=600.0).contains(seconds));
        let seconds = seconds.ok_or_else(|| invalid("wait_seconds", "must be a number from 0 to 600"))?;
        waiting::until_run_ended(house, ctx, caller, &id, seconds).await;
    }
    let run = house.store.run(&id).await.map_err(|fault| fault.refusal())?;
    let run = run.filter(|run| run.principal == caller.principal);
    let run = run.ok_or_else(|| {
        Refusal::new(Code::NotFound, format!("there is no run `{}`", crate::escape::visible(id.as_str())))
    })?;
    // Its fields stand by themselves, and together as `run`, as a plan does in `get_plan`.
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
