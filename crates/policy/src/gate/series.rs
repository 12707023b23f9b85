//! Plans of several steps: one decision for an explicit list of calls. Each step is judged as it would be alone; the whole
//! needs the strictest confirm and strength among them, and its hash covers the steps in order.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::pending_step::PendingStep;
use super::permit::{Permit, TokenSpend, token_digest};
use super::verdict::{CallDraft, CallExplanation, Refused};
use super::{PolicySnapshot, brings_plan_back, check_pause, check_policy, check_schema, pass_check, resolve};
use crate::call::{Arguments, Caller, ToolCall};
use crate::confirm::{
    Approval, ApprovalStrength, ConfirmInput, ConfirmRequirement, ConfirmingCall, Kind, PendingPlan,
    check_strength, check_token_of,
};
use crate::digest::{Digest, DigestDomain};
use crate::effect::Effect;
use crate::ids::{FullName, PlanId};
use crate::mode::Mode;
use crate::plan::{HiddenArguments, Plan, PlanHashInput, PlanStep, Preview, PreviewSource};
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
pub fn draft_step(
    call: ToolCall,
    policy: &PolicySnapshot<'_>,
    now: Timestamp,
) -> Result<CallDraft, Box<Refused>> {
    let mut record = CallRecord::begin(&call);
    debug_assert!(!brings_plan_back(&call), "a step brings nothing back");
    let checked = match resolve(&call, false) {
        Ok(tool) => check_policy(call, tool, false, policy, now, &mut record),
        Err(refusal) => {
            record.set_arguments(policy.redactor, &call.arguments, &[]);
            Err(refusal)
        }
    };
    let draft = match checked {
        Ok(checked) => checked.draft,
        Err(refusal) => return Err(Box::new(Refused { refusal, record })),
    };
    if draft.mode == Mode::Ask && draft.classified.effect != Effect::Read {
        let CallExplanation { refusal, record, .. } = CallExplanation::of(draft, None);
        return Err(Box::new(Refused { refusal, record }));
    }
    let writes = draft.classified.effect != Effect::Read && draft.mode == Mode::Execute;
    pass_check(draft, |draft| {
        if writes {
            check_pause(policy)?;
        }
        check_schema(draft, policy)
    })
}

/// What a series is called and why it is wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SeriesPurpose {
    pub title: String,
    pub reason: Option<String>,
}

impl SeriesPurpose {
    /// That of a plan that is there already.
    pub fn of(plan: &Plan) -> Self {
        let text = |value: Option<&Value>| value.and_then(Value::as_str).map(str::to_owned);
        Self {
            title: text(plan.arguments.value().get("title")).unwrap_or_default(),
            reason: text(plan.preview.shown.get("reason")),
        }
    }
}

/// Freezes judged and previewed steps into one plan.
pub fn freeze_series(
    id: PlanId,
    caller: &Caller,
    purpose: &SeriesPurpose,
    steps: &[(CallDraft, Preview)],
    now: Timestamp,
    life: Duration,
) -> Plan {
    let name = series_name();
    let listed: Vec<Value> = steps
        .iter()
        .map(|(draft, _)| json!({"name": draft.call.name.to_string(), "args": draft.call.arguments.value()}))
        .collect();
    let arguments = series_arguments(purpose.title.as_str().into(), listed);
    let over = |domain: DigestDomain, parts: Vec<String>| Digest::of(domain, parts.join("\n").as_bytes());
    let fingerprint =
        over(DigestDomain::Policy, steps.iter().map(|(draft, _)| draft.tool.fingerprint.hex()).collect());
    let policy_digest =
        over(DigestDomain::Policy, steps.iter().map(|(draft, _)| draft.policy_digest.hex()).collect());
    let decisive = steps.iter().map(|(_, preview)| decisive(preview)).collect();
    let preview = Preview::new(PreviewSource::Computed, shown(purpose, steps), &decisive);
    let salts: Vec<Digest> = steps.iter().filter_map(|(draft, _)| draft.record.hash_salt).collect();
    let hidden = HiddenArguments::of_parts(&salts, &arguments);
    let hash = PlanHashInput {
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
        role: caller.role,
        session: caller.session.clone(),
        host: caller.host.as_deref().cloned().map(Box::new),
        tool: name,
        fingerprint,
        redact: redacted_paths(steps),
        hidden,
        arguments,
        meta: None,
        preview,
        policy_digest,
        effect: steps.iter().map(|(draft, _)| draft.classified.effect).max().unwrap_or(Effect::Read),
        requirement: strictest(steps.iter().map(|(draft, _)| &draft.requirement)),
        variant: None,
        intent: None,
        rule: steps.iter().find_map(|(draft, _)| draft.deciding_rule()),
        steps: steps.iter().map(|(draft, preview)| step(draft, preview)).collect(),
        created: now,
        expires: now.checked_add(life).unwrap_or(now),
    }
}

/// What of a step's preview the hash of the whole covers. A digest of a chained preview is that of the plain one it is compared with,
/// so its mark stands beside it.
fn decisive(preview: &Preview) -> Value {
    match preview.source {
        PreviewSource::Chained => json!({"previewed": preview.source, "digest": preview.digest}),
        PreviewSource::Argument
        | PreviewSource::Companion
        | PreviewSource::Command
        | PreviewSource::Computed
        | PreviewSource::WhenReached => json!(preview.digest),
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
    let kept: Vec<(usize, &PlanStep)> =
        plan.steps.iter().enumerate().filter(|(number, _)| !gone.contains(number)).collect();
    let listed: Vec<Value> = kept
        .iter()
        .map(|(_, step)| json!({"name": step.tool.to_string(), "args": step.arguments.value()}))
        .collect();
    let title = plan.arguments.value().get("title").cloned().unwrap_or_default();
    let arguments = series_arguments(title, listed);
    let over = |parts: Vec<String>| Digest::of(DigestDomain::Policy, parts.join("\n").as_bytes());
    let fingerprint = over(kept.iter().map(|(_, step)| step.fingerprint.hex()).collect());
    let policy_digest = over(kept.iter().map(|(_, step)| step.policy_digest.hex()).collect());
    let decisive = kept.iter().map(|(_, step)| decisive(&step.preview)).collect();
    let preview = Preview::new(plan.preview.source, shown_without(plan, gone), &decisive);
    let redact = plan.redact.iter().filter_map(|path| moved(path, &kept)).collect();
    let hidden = plan.hidden.map(|hidden| HiddenArguments::salted(hidden.hash_salt, &arguments));
    let mut left = Plan {
        fingerprint,
        policy_digest,
        effect: kept.iter().map(|(_, step)| step.effect).max().unwrap_or(plan.effect),
        requirement: strictest(kept.iter().map(|(_, step)| &step.requirement)),
        steps: kept.iter().map(|(_, step)| (*step).clone()).collect(),
        arguments,
        preview,
        redact,
        hidden,
        ..plan.clone()
    };
    left.hash = PlanHashInput {
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
fn moved(path: &str, kept: &[(usize, &PlanStep)]) -> Option<String> {
    let Some((number, rest)) = path.strip_prefix("steps.").and_then(|rest| rest.split_once('.')) else {
        return Some(path.to_owned());
    };
    let number: usize = number.parse().ok()?;
    let now = kept.iter().position(|(old, _)| *old == number)?;
    Some(format!("steps.{now}.{rest}"))
}

fn step(draft: &CallDraft, preview: &Preview) -> PlanStep {
    PlanStep {
        tool: draft.call.name.clone(),
        fingerprint: draft.tool.fingerprint,
        arguments: draft.call.arguments.clone().frozen(),
        preview: preview.clone(),
        policy_digest: draft.policy_digest,
        effect: draft.classified.effect,
        requirement: draft.requirement.clone(),
        intent: draft.intent.clone().map(Into::into),
    }
}

fn shown(purpose: &SeriesPurpose, steps: &[(CallDraft, Preview)]) -> Value {
    let steps: Vec<Value> = steps
        .iter()
        .enumerate()
        .map(|(index, (draft, preview))| {
            json!({
                "step": index + 1,
                "tool": draft.call.name.to_string(),
                "effect": draft.classified.effect,
                "confirm": draft.requirement.kind,
                "strength": draft.requirement.strength,
                "arguments": draft.record.arguments,
                "previewed": preview.source,
                "preview": preview.shown,
            })
        })
        .collect();
    json!({"title": purpose.title, "reason": purpose.reason, "steps": steps})
}

fn redacted_paths(steps: &[(CallDraft, Preview)]) -> Vec<String> {
    let paths = steps.iter().enumerate().flat_map(|(index, (draft, _))| {
        draft.rules.redact.iter().map(move |path| format!("steps.{index}.args.{path}"))
    });
    paths.collect()
}

/// The strictest of several needs. What has to be typed is the name of the first step that wants one.
fn strictest<'n>(needs: impl Iterator<Item = &'n ConfirmRequirement> + Clone) -> ConfirmRequirement {
    ConfirmRequirement {
        // A series is asked for as a whole even if every step of it would run at once.
        kind: needs.clone().map(|requirement| requirement.kind).max().unwrap_or(Kind::None).max(Kind::Simple),
        strength: needs
            .clone()
            .map(|requirement| requirement.strength)
            .max()
            .unwrap_or(ApprovalStrength::Caller),
        typed: needs
            .filter(|requirement| requirement.kind == Kind::Type)
            .find_map(|requirement| requirement.typed.clone()),
    }
}

/// The token checks of a series: as for one call, but found by the plan's id instead of tool and arguments.
pub fn check_series<'h>(
    confirm_input: &ConfirmInput,
    pending_plan: Option<&'h PendingPlan>,
    caller: &Caller,
    plan: &PlanId,
    now: Timestamp,
) -> Result<&'h PendingPlan, Refusal> {
    let belongs_to = |pending_plan: &Plan| {
        pending_plan.id == *plan
            && !pending_plan.steps.is_empty()
            && pending_plan.principal == caller.principal
            && pending_plan.session == caller.session
    };
    check_token_of(confirm_input, pending_plan, belongs_to, now)
}

/// Whether someone strong enough agreed to a series: checked before any preview is made again.
pub fn check_series_strength(
    pending_plan: &PendingPlan,
    confirm_input: &ConfirmInput,
    caller: &Caller,
    now: Timestamp,
) -> Result<Approval, Refusal> {
    let name = series_name();
    let confirming = ConfirmingCall {
        principal: &caller.principal,
        session: &caller.session,
        tool: &name,
        arguments: &pending_plan.plan.arguments,
    };
    check_strength(pending_plan, confirm_input, confirming, now)
}

/// The permits of a series: one for the whole, which spends its token, and one for each step.
#[derive(Debug)]
pub struct SeriesPermits {
    /// The whole: its row opens first and closes last.
    pub whole: Permit,
    pub steps: Vec<StepPermit>,
}

/// What a step of a series comes to before the first one runs.
#[derive(Debug)]
pub enum StepPermit {
    Ready(Box<Permit>),
    /// It is judged again and previewed when it is reached.
    WhenReached(Box<PendingStep>),
}

/// A refusal of a step that is not as it was shown.
pub(super) fn changed_since(plan: &PlanId, what: &str, reason: &'static str, step: usize) -> Refusal {
    let message = format!("{what} since `{plan}` was shown (step {}); ask for a new plan", step + 1);
    Refusal::new(Code::ConfirmTokenMismatch, message).because(reason).with("step", step + 1)
}

/// Turns a held series into permits: steps judged anew, unchanged since they were shown, agreed to strongly enough, and
/// previewed again with the same digest where the upstream previews.
pub fn settle_series(
    pending_plan: &PendingPlan,
    drafts: Vec<CallDraft>,
    fresh: &[Option<Preview>],
    confirm_input: &ConfirmInput,
    caller: &Caller,
    now: Timestamp,
) -> Result<SeriesPermits, Refusal> {
    let plan = &pending_plan.plan;
    let changed = |what, reason, step| changed_since(&plan.id, what, reason, step);
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
        let softer = plan.requirement.strength < draft.requirement.strength
            || plan.requirement.kind < draft.requirement.kind;
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
    let approval = check_series_strength(pending_plan, confirm_input, caller, now)?;
    let token = confirm_input
        .token
        .as_deref()
        .map(token_digest)
        .ok_or_else(|| Refusal::new(Code::ConfirmTokenRequired, "a plan runs with its confirm token"))?;
    let spend = TokenSpend { plan: plan.id.clone(), hash: plan.hash, token, approval: approval.clone() };
    let whole = Permit::of_series(series_tool(), plan, series_record(plan, caller, &approval), spend);
    let steps = drafts
        .into_iter()
        .zip(&plan.steps)
        .enumerate()
        .map(|(index, (mut draft, step))| {
            if step.preview.is_made_when_reached() {
                return StepPermit::WhenReached(Box::new(PendingStep {
                    plan: plan.id.clone(),
                    hash: plan.hash,
                    index,
                    step: step.clone(),
                    approval: approval.clone(),
                }));
            }
            draft.record.plan_id = Some(plan.id.clone());
            draft.record.plan_hash = Some(plan.hash);
            draft.record.approval = Some(approval.clone());
            StepPermit::Ready(Box::new(Permit::of_step(draft, step.arguments.canonical().to_owned())))
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
        annotations: crate::tool::ToolAnnotations::default(),
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
