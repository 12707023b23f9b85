//! Plans of several steps: one decision for an explicit list of calls. Each step is judged as it would be alone; the whole
//! needs the strictest confirm and strength among them, and its hash covers the steps in order.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::permit::{Permit, Spend, token_digest};
use super::verdict::{Draft, Explanation, Refused};
use super::{Snapshot, check_pause, check_schema, checked, comes_back, resolve, weigh};
use crate::call::{Arguments, Call, Caller};
use crate::confirm::{Approval, Asker, Brought, Held, Kind, Need, Strength, check_strength, check_token_of};
use crate::digest::{Digest, Domain};
use crate::effect::Effect;
use crate::ids::{FullName, PlanId};
use crate::mode::Mode;
use crate::plan::{Hashed, HiddenArguments, Plan, Preview, PreviewSource, Step};
use crate::record::CallRecord;
use crate::refusal::{Code, Refusal};
use crate::tool::Tool;

/// The most steps of one plan.
pub const MOST_STEPS: usize = 50;

/// The name under which a plan of several steps runs.
pub fn series_name() -> FullName {
    FullName::new("countersign", "run_plan")
}

/// Judges one step as it would be alone: a draft ready to be previewed, or the no it would get.
pub fn draft_step(call: Call, law: &Snapshot<'_>, now: Timestamp) -> Result<Draft, Box<Refused>> {
    let mut record = CallRecord::begin(&call);
    debug_assert!(!comes_back(&call), "a step brings nothing back");
    let weighed = match resolve(&call, false) {
        Ok(tool) => weigh(call, tool, false, law, now, &mut record),
        Err(refusal) => {
            record.set_arguments(law.redactor, &call.arguments, &[]);
            Err(refusal)
        }
    };
    let draft = match weighed {
        Ok(weighed) => weighed.draft,
        Err(refusal) => return Err(Box::new(Refused { refusal, record })),
    };
    if draft.mode == Mode::Ask && draft.classified.effect != Effect::Read {
        let Explanation { refusal, record, .. } = Explanation::of(draft, None);
        return Err(Box::new(Refused { refusal, record }));
    }
    let writes = draft.classified.effect != Effect::Read && draft.mode == Mode::Execute;
    checked(draft, |draft| {
        if writes {
            check_pause(law)?;
        }
        check_schema(draft, law)
    })
}

/// What a series is called and why it is wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Purpose {
    /// Its title.
    pub title: String,
    /// Why.
    pub reason: Option<String>,
}

/// Freezes judged and previewed steps into one plan.
pub fn freeze_series(
    id: PlanId,
    caller: &Caller,
    purpose: &Purpose,
    steps: &[(Draft, Preview)],
    now: Timestamp,
    life: Duration,
) -> Plan {
    let name = series_name();
    let listed: Vec<Value> = steps
        .iter()
        .map(|(draft, _)| json!({"name": draft.call.name.to_string(), "args": draft.call.arguments.value()}))
        .collect();
    let arguments = series_arguments(purpose.title.as_str().into(), listed);
    let over = |domain: Domain, parts: Vec<String>| Digest::of(domain, parts.join("\n").as_bytes());
    let fingerprint =
        over(Domain::Policy, steps.iter().map(|(draft, _)| draft.tool.fingerprint.hex()).collect());
    let policy_digest =
        over(Domain::Policy, steps.iter().map(|(draft, _)| draft.policy_digest.hex()).collect());
    let decisive = json!(steps.iter().map(|(_, preview)| preview.digest).collect::<Vec<_>>());
    let preview = Preview::new(PreviewSource::Computed, shown(purpose, steps), &decisive);
    let salts: Vec<Digest> = steps.iter().filter_map(|(draft, _)| draft.record.hash_salt).collect();
    let hidden = HiddenArguments::of_parts(&salts, &arguments);
    let hash = Hashed {
        principal: &caller.principal,
        session: &caller.session,
        upstream: &name.upstream,
        tool: &name.tool,
        fingerprint,
        arguments: &arguments,
        meta: None,
        preview_digest: preview.digest,
        policy_digest,
        hash_salt: hidden.map(|hidden| hidden.hash_salt),
    }
    .hash();
    Plan {
        id,
        hash,
        principal: caller.principal.clone(),
        credential: caller.credential.clone(),
        session: caller.session.clone(),
        tool: name,
        fingerprint,
        redact: redacted_paths(steps),
        hidden,
        arguments,
        meta: None,
        preview,
        policy_digest,
        effect: steps.iter().map(|(draft, _)| draft.classified.effect).max().unwrap_or(Effect::Read),
        need: strictest(steps.iter().map(|(draft, _)| &draft.need)),
        variant: None,
        intent: None,
        rule: steps.iter().find_map(|(draft, _)| draft.deciding_rule()),
        steps: steps.iter().map(|(draft, preview)| step(draft, preview)).collect(),
        created: now,
        expires: now.checked_add(life).unwrap_or(now),
    }
}

/// The same plan without some of its steps, counted from 0: what a person took out before deciding. It has another hash, the
/// strictest need of what is left, and says what was taken out.
pub fn without_steps(plan: &Plan, gone: &BTreeSet<usize>) -> Result<Plan, Refusal> {
    let invalid =
        |why: &str| Refusal::new(Code::ArgumentsInvalid, format!("`remove` {why}")).with("field", "remove");
    if gone.is_empty() || gone.iter().any(|number| *number >= plan.steps.len()) {
        return Err(invalid(&format!("must name steps from 1 to {}", plan.steps.len())));
    }
    if gone.len() == plan.steps.len() {
        return Err(invalid("would leave no step: reject the plan instead"));
    }
    let kept: Vec<(usize, &Step)> =
        plan.steps.iter().enumerate().filter(|(number, _)| !gone.contains(number)).collect();
    let listed: Vec<Value> = kept
        .iter()
        .map(|(_, step)| json!({"name": step.tool.to_string(), "args": step.arguments.value()}))
        .collect();
    let title = plan.arguments.value().get("title").cloned().unwrap_or_default();
    let arguments = series_arguments(title, listed);
    let over = |parts: Vec<String>| Digest::of(Domain::Policy, parts.join("\n").as_bytes());
    let fingerprint = over(kept.iter().map(|(_, step)| step.fingerprint.hex()).collect());
    let policy_digest = over(kept.iter().map(|(_, step)| step.policy_digest.hex()).collect());
    let decisive = json!(kept.iter().map(|(_, step)| step.preview.digest).collect::<Vec<_>>());
    let preview = Preview::new(plan.preview.source, shown_without(plan, gone), &decisive);
    let redact = plan.redact.iter().filter_map(|path| moved(path, &kept)).collect();
    let hidden = plan.hidden.map(|hidden| HiddenArguments::salted(hidden.hash_salt, &arguments));
    let mut left = Plan {
        fingerprint,
        policy_digest,
        effect: kept.iter().map(|(_, step)| step.effect).max().unwrap_or(plan.effect),
        need: strictest(kept.iter().map(|(_, step)| &step.need)),
        steps: kept.iter().map(|(_, step)| (*step).clone()).collect(),
        arguments,
        preview,
        redact,
        hidden,
        ..plan.clone()
    };
    left.hash = Hashed {
        principal: &left.principal,
        session: &left.session,
        upstream: &left.tool.upstream,
        tool: &left.tool.tool,
        fingerprint,
        arguments: &left.arguments,
        meta: None,
        preview_digest: left.preview.digest,
        policy_digest,
        hash_salt: hidden.map(|hidden| hidden.hash_salt),
    }
    .hash();
    Ok(left)
}

/// The arguments of the whole. Every step's were parsed strictly, so the list of them is strict as well.
fn series_arguments(title: Value, steps: Vec<Value>) -> Arguments {
    Arguments::of_members(Map::from_iter([
        ("title".to_owned(), title),
        ("steps".to_owned(), Value::Array(steps)),
    ]))
}

/// What was shown, without what was taken out, and what that was.
fn shown_without(plan: &Plan, gone: &BTreeSet<usize>) -> Value {
    let mut shown = plan.preview.shown.clone();
    let Some(members) = shown.as_object_mut() else { return shown };
    let mut removed = members.get("removed_steps").and_then(Value::as_array).cloned().unwrap_or_default();
    for number in gone {
        let tool = plan.steps.get(*number).map(|step| step.tool.to_string());
        removed.push(json!({"step": number + 1, "tool": tool}));
    }
    members.insert("removed_steps".into(), Value::Array(removed));
    if let Some(steps) = members.get_mut("steps").and_then(Value::as_array_mut) {
        let mut number = 0;
        steps.retain(|_| {
            number += 1;
            !gone.contains(&(number - 1))
        });
        for (number, step) in steps.iter_mut().enumerate() {
            if let Some(step) = step.as_object_mut() {
                step.insert("step".into(), json!(number + 1));
            }
        }
    }
    shown
}

/// A path of a step's argument under the step's new number; none where the step is gone.
fn moved(path: &str, kept: &[(usize, &Step)]) -> Option<String> {
    let Some((number, rest)) = path.strip_prefix("steps.").and_then(|rest| rest.split_once('.')) else {
        return Some(path.to_owned());
    };
    let number: usize = number.parse().ok()?;
    let now = kept.iter().position(|(old, _)| *old == number)?;
    Some(format!("steps.{now}.{rest}"))
}

fn step(draft: &Draft, preview: &Preview) -> Step {
    Step {
        tool: draft.call.name.clone(),
        fingerprint: draft.tool.fingerprint,
        arguments: draft.call.arguments.clone().frozen(),
        preview: preview.clone(),
        policy_digest: draft.policy_digest,
        effect: draft.classified.effect,
        need: draft.need.clone(),
        intent: draft.intent.clone().map(Into::into),
    }
}

fn shown(purpose: &Purpose, steps: &[(Draft, Preview)]) -> Value {
    let steps: Vec<Value> = steps
        .iter()
        .enumerate()
        .map(|(index, (draft, preview))| {
            json!({
                "step": index + 1,
                "tool": draft.call.name.to_string(),
                "effect": draft.classified.effect,
                "confirm": draft.need.kind,
                "strength": draft.need.strength,
                "arguments": draft.record.arguments,
                "preview": preview.shown,
            })
        })
        .collect();
    json!({"title": purpose.title, "reason": purpose.reason, "steps": steps})
}

fn redacted_paths(steps: &[(Draft, Preview)]) -> Vec<String> {
    let paths = steps.iter().enumerate().flat_map(|(index, (draft, _))| {
        draft.rules.redact.iter().map(move |path| format!("steps.{index}.args.{path}"))
    });
    paths.collect()
}

/// The strictest of several needs. What has to be typed is the name of the first step that wants one.
fn strictest<'n>(needs: impl Iterator<Item = &'n Need> + Clone) -> Need {
    Need {
        // A series is asked for as a whole even if every step of it would run at once.
        kind: needs.clone().map(|need| need.kind).max().unwrap_or(Kind::None).max(Kind::Simple),
        strength: needs.clone().map(|need| need.strength).max().unwrap_or(Strength::Caller),
        typed: needs.filter(|need| need.kind == Kind::Type).find_map(|need| need.typed.clone()),
    }
}

/// The token checks of a series: as for one call, but found by the plan's id instead of tool and arguments.
pub fn check_series<'h>(
    brought: &Brought,
    held: Option<&'h Held>,
    caller: &Caller,
    plan: &PlanId,
    now: Timestamp,
) -> Result<&'h Held, Refusal> {
    let is_of = |held: &Plan| {
        held.id == *plan
            && !held.steps.is_empty()
            && held.principal == caller.principal
            && held.session == caller.session
    };
    check_token_of(brought, held, is_of, now)
}

/// Whether someone strong enough agreed to a series: checked before any preview is made again.
pub fn check_series_strength(
    held: &Held,
    brought: &Brought,
    caller: &Caller,
    now: Timestamp,
) -> Result<Approval, Refusal> {
    let name = series_name();
    let asker = Asker {
        principal: &caller.principal,
        session: &caller.session,
        tool: &name,
        arguments: &held.plan.arguments,
    };
    check_strength(held, brought, asker, now)
}

/// The permits of a series: one for the whole, which spends its token, and one for each step.
#[derive(Debug)]
pub struct SeriesPermits {
    /// The whole: its row opens first and closes last.
    pub whole: Permit,
    /// The steps, in order.
    pub steps: Vec<Permit>,
}

/// Turns a held series into permits: steps judged anew, unchanged since they were shown, agreed to strongly enough, and
/// previewed again with the same digest where the upstream previews.
pub fn settle_series(
    held: &Held,
    drafts: Vec<Draft>,
    fresh: &[Option<Preview>],
    brought: &Brought,
    caller: &Caller,
    now: Timestamp,
) -> Result<SeriesPermits, Refusal> {
    let plan = &held.plan;
    let changed = |what: &str, reason: &'static str, step: usize| {
        let message = format!("{what} since `{}` was shown (step {}); ask for a new plan", plan.id, step + 1);
        Refusal::new(Code::ConfirmTokenMismatch, message).because(reason).with("step", step + 1)
    };
    if drafts.len() != plan.steps.len() {
        return Err(changed("the steps have changed", "plan_drifted", 0));
    }
    for (index, (draft, step)) in drafts.iter().zip(&plan.steps).enumerate() {
        if draft.mode != Mode::Execute {
            return Err(Refusal::new(Code::ModeAsk, format!("mode is {}: the plan was not run", draft.mode)));
        }
        if draft.tool.fingerprint != step.fingerprint {
            return Err(changed("the tool has changed", "tool_changed", index));
        }
        let softer = plan.need.strength < draft.need.strength || plan.need.kind < draft.need.kind;
        if draft.policy_digest != step.policy_digest || softer {
            return Err(changed("the rules have changed", "policy_changed", index));
        }
        let again = fresh.get(index).and_then(Option::as_ref);
        if step.preview.is_recomputed() && again.is_none_or(|again| again.digest != step.preview.digest) {
            let now = again.map_or(Value::Null, |again| again.shown.clone());
            let refusal = changed("what it would do has changed", "plan_drifted", index);
            return Err(refusal.with("reviewed", step.preview.shown.clone()).with("now", now));
        }
    }
    let approval = check_series_strength(held, brought, caller, now)?;
    let token = brought
        .token
        .as_deref()
        .map(token_digest)
        .ok_or_else(|| Refusal::new(Code::ConfirmTokenRequired, "a plan runs with its confirm token"))?;
    let spend = Spend { plan: plan.id.clone(), hash: plan.hash, token, approval: approval.clone() };
    let whole = Permit::of_series(series_tool(), plan, series_record(plan, caller, &approval), spend);
    let steps = drafts
        .into_iter()
        .zip(&plan.steps)
        .map(|(mut draft, step)| {
            draft.record.plan_id = Some(plan.id.clone());
            draft.record.plan_hash = Some(plan.hash);
            draft.record.approval = Some(approval.clone());
            Permit::of_step(draft, step.arguments.canonical().to_owned())
        })
        .collect();
    Ok(SeriesPermits { whole, steps })
}

fn series_tool() -> Arc<Tool> {
    let name = series_name();
    let mut definition = Map::new();
    definition.insert("name".into(), name.tool.as_str().into());
    Arc::new(Tool {
        upstream: name.upstream,
        name: name.tool,
        annotations: crate::tool::Annotations::default(),
        fingerprint: crate::tool::fingerprint(&definition),
        definition,
    })
}

/// What the ledger keeps of the whole; the steps' rows keep their own arguments.
pub fn series_record(plan: &Plan, caller: &Caller, approval: &Approval) -> CallRecord {
    let mut record = CallRecord::unread(caller, series_name(), None, plan.arguments.canonical().as_bytes());
    record.effect = Some(plan.effect);
    record.mode = Some(Mode::Execute);
    record.arguments = plan.preview.shown.get("title").map_or(Value::Null, |title| json!({"title": title}));
    record.arguments_digest = plan.recorded_digest();
    record.plan_id = Some(plan.id.clone());
    record.plan_hash = Some(plan.hash);
    record.approval = Some(approval.clone());
    record
}
