//! The gate judges a call: one fixed sequence of checks, pure and total. Every refusal is a value.
//! Dispatches nothing, stores nothing, and knows neither the clock nor the protocol.

mod arguments;
mod pending_step;
mod permit;
mod series;
mod snapshot;
mod verdict;

use std::sync::Arc;

use jiff::Timestamp;

use arguments::{ResolvedArguments, check_keys, settle_arguments};

pub use arguments::effective;
pub use pending_step::{PendingStep, ReachedStep};
pub use permit::{Permit, PlanRedemption, SentMeta, TokenSpend, token_digest};
pub use series::{
    MOST_STEPS, SeriesPermits, SeriesPurpose, StepPermit, check_series, check_series_strength, draft_step,
    freeze_series, series_name, series_record, settle_series, without_steps,
};
pub use snapshot::{NoLimits, NoSchema, PolicySnapshot, RuleUsage, SchemaChecker, SchemaFault, WriteStatus};
pub use verdict::{CallDraft, CallExplanation, DryRun, Refused, Verdict};

use crate::call::{CatalogStatus, ToolCall};
use crate::confirm::{
    ApprovalStrength, ConfirmRequirement, ConfirmingCall, Kind, PendingPlan, belongs_to, check_strength,
    check_token,
};
use crate::effect::{Effect, EffectClassification, classify, declared};
use crate::ids::UpstreamId;
use crate::intent::{Intent, against_server};
use crate::mode::{Mode, ModeSources};
use crate::record::CallRecord;
use crate::refusal::{Code, NextAction, Refusal};
use crate::role::Role;
use crate::rules::{RuleField, RuleResolution};
use crate::tool::Tool;
use crate::words::UnknownWord;

/// Judges a call: `identify → resolve → role → intent → rules → mode → schema → preview → confirm`.
///
/// INVARIANT (one gate): a [`Permit`] is made here and nowhere else, and can't be copied.
pub fn judge(call: ToolCall, policy: &PolicySnapshot<'_>, now: Timestamp) -> Verdict {
    let mut record = CallRecord::begin(&call);
    let phase_two = brings_plan_back(&call);
    let checked = match resolve(&call, phase_two) {
        Ok(tool) => check_policy(call, tool, phase_two, policy, now, &mut record),
        Err(refusal) => {
            record.set_arguments(policy.redactor, &call.arguments, &[]);
            Err(refusal)
        }
    };
    match checked.map(|draft| apply_mode(draft, policy, now)) {
        Ok(Ok(verdict)) => verdict,
        Ok(Err(refused)) => Verdict::Refuse(*refused),
        Err(refusal) => Verdict::Refuse(Refused { refusal, record }),
    }
}

/// The checks from role to mode: everything that needs neither schema nor preview.
fn check_policy<'h>(
    mut call: ToolCall,
    tool: Arc<Tool>,
    phase_two: bool,
    policy: &PolicySnapshot<'h>,
    now: Timestamp,
    record: &mut CallRecord,
) -> Result<CheckedCall<'h>, Refusal> {
    let own_mode = own_mode(&call);
    let mode = ModeSources {
        call: own_mode.as_ref().ok().copied().flatten(),
        session: policy.session_mode,
        configured: policy.configured_mode,
    }
    .resolve();
    // Record the mode even if an earlier check refuses the call: `policy simulate` replays the row with it.
    record.mode = own_mode.is_ok().then_some(mode);
    let spoken = call.intent.declare(call.entry_point);
    let declared = spoken.as_ref().ok().and_then(Option::as_ref);
    let ResolvedArguments { rules, style, fault } =
        settle_arguments(&mut call, &tool, policy, declared, mode, now);
    record.set_arguments(policy.redactor, &call.arguments, &rules.redact);
    // An upstream that folds case may read `Password` as the `password` a rule redacts. Such arguments are recorded as a
    // digest only.
    let keys = check_keys(&call, &tool);
    if keys.is_err() {
        record.arguments = serde_json::Value::Null;
    }

    // The order below decides which refusal an agent sees, and is part of the contract. The arguments are resolved and
    // redacted before the first check, so that no refusal records a secret.
    check_role(&call, &rules)?;
    let intent = spoken?;
    let warnings = check_intent(&call, policy, &tool, &rules, intent.as_ref())?;
    keys?;

    let classified = classify(rules.effect, &tool);
    record.effect = Some(classified.effect);
    let kind = rules.kind_for(classified.effect);
    let is_preview = style.is_asked_for(&call.arguments);
    if is_preview {
        // `resolve` excuses a changed tool in phase 2, where the token checks report it. A preview redeems no plan, so it
        // gets no such excuse.
        resolve(&call, false)?;
    }
    let pending_plan = if phase_two && kind != Kind::None && !is_preview {
        // Name the plan in the record only if it is the caller's own: a foreign token must not reveal a plan id.
        if let Some(own) =
            policy.pending_plan.filter(|pending_plan| belongs_to(&pending_plan.plan, confirming(&call)))
        {
            record.plan_id = Some(own.plan.id.clone());
            record.plan_hash = Some(own.plan.hash);
        }
        Some(check_token(&call.confirm_input, policy.pending_plan, confirming(&call), now)?)
    } else {
        None
    };

    fault.map_or(Ok(()), Err)?;
    check_rules(&call, policy, &rules, classified.effect, now)?;
    own_mode?;
    check_mode(&call, mode)?;
    let requirement = match confirm_requirement(&call, &rules, classified.effect) {
        Ok(requirement) => requirement,
        // Ask mode only explains the call, so nobody has to type a name.
        Err(_) if mode == Mode::Ask && classified.effect != Effect::Read => {
            ConfirmRequirement { kind, strength: rules.strength_for(classified.effect).0, typed: None }
        }
        // Report schema errors before a missing `type_field`: they name the missing argument.
        Err(refusal) => return Err(check_arguments(&call, &tool, policy).err().unwrap_or(refusal)),
    };
    if let Some(pending_plan) = pending_plan {
        check_unchanged(pending_plan, &call, &tool, &rules, classified.effect, &requirement)?;
    }
    let draft = CallDraft {
        call,
        tool,
        classified,
        requirement,
        intent,
        mode,
        policy_digest: rules.digest(classified.effect),
        style,
        warnings,
        rules,
        meta: None,
        // Every later refusal carries this record, so the arguments move instead of being copied.
        record: CallRecord { arguments: std::mem::take(&mut record.arguments), ..record.clone() },
    };
    Ok(CheckedCall { draft, pending_plan })
}

/// A call that passed the checks up to the mode, with the plan it redeems.
struct CheckedCall<'h> {
    draft: CallDraft,
    pending_plan: Option<&'h PendingPlan>,
}

/// Applies the table of effect and mode. Every pair is named, so that a new mode does not compile until it is placed.
fn apply_mode(
    checked: CheckedCall<'_>,
    policy: &PolicySnapshot<'_>,
    now: Timestamp,
) -> Result<Verdict, Box<Refused>> {
    let CheckedCall { draft, pending_plan } = checked;
    if draft.is_preview() && (draft.mode != Mode::Ask || draft.call.caller.scopes.max_mode >= Mode::Plan) {
        return pass_check(draft, |draft| check_schema(draft, policy)).map(Verdict::Preview);
    }
    match (draft.classified.effect, draft.mode) {
        (Effect::Read, Mode::Ask | Mode::Plan | Mode::Execute) => {
            let draft = pass_check(draft, |draft| check_schema(draft, policy))?;
            apply_confirm_rules(draft, policy, pending_plan, now)
        }
        (Effect::Write | Effect::Destructive, Mode::Ask) => {
            // Ask mode explains a call with any arguments, but sends only valid ones upstream to look at the present state.
            let state = check_schema(&draft, policy).is_ok().then(|| draft.look());
            Ok(Verdict::Explain(CallExplanation::of(draft, state)))
        }
        (Effect::Write | Effect::Destructive, Mode::Plan) => {
            pass_check(draft, |draft| check_schema(draft, policy)).map(Verdict::Preview)
        }
        (Effect::Write | Effect::Destructive, Mode::Execute) => {
            let draft =
                pass_check(draft, |draft| check_pause(policy).and_then(|()| check_schema(draft, policy)))?;
            apply_confirm_rules(draft, policy, pending_plan, now)
        }
    }
}

/// The draft, or the refusal with the draft's record.
fn pass_check(
    draft: CallDraft,
    check: impl FnOnce(&CallDraft) -> Result<(), Refusal>,
) -> Result<CallDraft, Box<Refused>> {
    match check(&draft) {
        Ok(()) => Ok(draft),
        Err(refusal) => Err(Box::new(Refused { refusal, record: draft.record })),
    }
}

fn apply_confirm_rules(
    draft: CallDraft,
    policy: &PolicySnapshot<'_>,
    pending_plan: Option<&PendingPlan>,
    now: Timestamp,
) -> Result<Verdict, Box<Refused>> {
    if draft.requirement.kind == Kind::None {
        return Ok(Verdict::Go(Permit::at_once(draft)));
    }
    if let Some(pending_plan) = pending_plan {
        return match check_strength(pending_plan, &draft.call.confirm_input, confirming(&draft.call), now) {
            Ok(approval) => {
                Ok(Verdict::Redeem(PlanRedemption::new(draft, pending_plan.plan.clone(), approval)))
            }
            Err(refusal) => Err(Box::new(Refused { refusal, record: draft.record })),
        };
    }
    // The gate may have added the argument that says "apply". A grant was written without it and still covers the call.
    let bare = draft.style.without_apply(&draft.call.arguments);
    let covering = policy.grants.iter().find(|grant| {
        let (caller, call) = (&draft.call.caller, &draft.call);
        let covers = |arguments| {
            grant.covers(
                &caller.principal,
                &call.name,
                draft.tool.fingerprint,
                arguments,
                &draft.requirement,
                now,
            )
        };
        covers(&call.arguments) || bare.as_ref().is_some_and(covers)
    });
    match covering {
        Some(grant) => Ok(Verdict::Go(Permit::granted(draft, grant, now))),
        None => Ok(Verdict::Hold(draft)),
    }
}

fn confirming(call: &ToolCall) -> ConfirmingCall<'_> {
    ConfirmingCall {
        principal: &call.caller.principal,
        session: &call.caller.session,
        tool: &call.name,
        arguments: &call.arguments,
    }
}

/// Whether the call redeems a plan. A call that asks for another mode than execute is judged in that mode instead.
fn brings_plan_back(call: &ToolCall) -> bool {
    call.confirm_input.is_phase_two()
        && call.mode.as_deref().is_none_or(|mode| mode == Mode::Execute.as_str())
}

fn resolve(call: &ToolCall, phase_two: bool) -> Result<Arc<Tool>, Refusal> {
    let reachable = call.caller.scopes.upstreams.as_ref().is_none_or(|all| all.contains(&call.name.upstream));
    if !reachable {
        let message = format!("this line does not reach upstream `{}`", call.name.upstream);
        return Err(Refusal::new(Code::ScopeForbidden, message));
    }
    match &call.catalog_status {
        CatalogStatus::Accepted(tool) => Ok(Arc::clone(tool)),
        // Phase 2 reports a changed tool as a dead plan: first the token checks, then `tool_changed`.
        CatalogStatus::Changed(tool) if phase_two => Ok(Arc::clone(tool)),
        CatalogStatus::Changed(_) => {
            let message =
                format!("`{}` is not the tool that was accepted: its definition differs", call.name);
            Err(Refusal::new(Code::ToolChanged, message)
                .with("review", format!("countersign tools diff {}", call.name)))
        }
        CatalogStatus::Quarantined(_, reason) => {
            let message = format!("`{}` is withheld until a person accepts it", call.name);
            let refusal = Refusal::new(Code::ToolQuarantined, message).because(reason);
            Err(refusal.with("review", format!("countersign tools show {}", call.name)))
        }
        CatalogStatus::Unknown(near) => {
            let message = match near.first() {
                Some(nearest) => format!("there is no tool `{}`; did you mean `{nearest}`?", call.name),
                None => format!("there is no tool `{}`", call.name),
            };
            Err(Refusal::new(Code::ToolNotFound, message).with("did_you_mean", near.clone()))
        }
        CatalogStatus::Unlisted(why) => Err(unlisted(&call.name.upstream, why)),
    }
}

/// Refuses a tool of an upstream that has not listed its tools.
pub fn unlisted(upstream: &UpstreamId, why: &str) -> Refusal {
    let message = format!("upstream `{upstream}` can't be asked for its tools: {why}");
    Refusal::new(Code::UpstreamUnavailable, message)
}

fn own_mode(call: &ToolCall) -> Result<Option<Mode>, Refusal> {
    call.mode.as_deref().map(parse_mode).transpose()
}

/// Reads a mode as sent. The refusal of an unknown one names the known ones.
pub fn parse_mode(text: &str) -> Result<Mode, Refusal> {
    text.parse().map_err(|UnknownWord { expected, .. }| {
        let text = crate::refusal::brief(text);
        Refusal::new(Code::ModeInvalid, format!("unknown mode `{text}`: must be {expected}"))
    })
}

/// Refuses a mode above the highest one the connection may use.
pub fn mode_within(mode: Mode, max: Mode) -> Result<(), Refusal> {
    if mode <= max {
        return Ok(());
    }
    let message = format!("mode `{mode}` is above this line's highest, `{max}`");
    Err(Refusal::new(Code::ModeForbidden, message).with("max_mode", max.as_str()))
}

fn check_mode(call: &ToolCall, mode: Mode) -> Result<(), Refusal> {
    mode_within(mode, call.caller.scopes.max_mode)
}

fn check_role(call: &ToolCall, rules: &RuleResolution) -> Result<(), Refusal> {
    match (rules.role, call.caller.role) {
        (Some(Role::Human), Role::Agent) => {
            let message = format!("Tool \"{}\" not available in agent mode", call.name.tool);
            Err(Refusal::new(Code::RoleForbidden, message))
        }
        (Some(Role::Human), Role::Human) | (Some(Role::Agent) | None, Role::Agent | Role::Human) => Ok(()),
    }
}

fn check_intent(
    call: &ToolCall,
    policy: &PolicySnapshot<'_>,
    tool: &Tool,
    rules: &RuleResolution,
    intent: Option<&Intent>,
) -> Result<Vec<String>, Refusal> {
    let declared = declared(rules.effect, tool);
    let warning = against_server(call.entry_point, intent, declared, policy.strictness, &call.name)?;
    Ok(warning.into_iter().collect())
}

fn check_rules(
    call: &ToolCall,
    policy: &PolicySnapshot<'_>,
    rules: &RuleResolution,
    effect: Effect,
    now: Timestamp,
) -> Result<(), Refusal> {
    if let Some(fault) = &rules.fault {
        return Err(Refusal::new(Code::RuleError, fault.to_string()).with("rule", fault.rule.0.as_str()));
    }
    if let Some((why, reason)) = rules.denial() {
        let mut refusal =
            Refusal::new(Code::RuleDenied, format!("`{}` is denied: {why}", call.name)).because(reason);
        if let Some(rule) = rules.rule_for(RuleField::Deny).or(rules.rule_for(RuleField::Allow)) {
            refusal = refusal.with("rule", rule.0.as_str());
        }
        return Err(refusal);
    }
    if call.caller.scopes.effects.as_ref().is_some_and(|all| !all.contains(&effect)) {
        let message = format!("this line may not use {effect} tools");
        return Err(Refusal::new(Code::ScopeForbidden, message));
    }
    if let Some((rule, rate)) = rules.limit_with_rule()
        && let Some(wait) = policy.usage.wait(&rule, &call.caller.principal, rate, now)
    {
        return Err(over_limit(&rule, rate, wait));
    }
    Ok(())
}

/// The refusal of a call beyond a rule's rate.
pub fn over_limit(
    rule: &crate::rules::RuleName,
    rate: crate::duration::RateLimit,
    wait: std::time::Duration,
) -> Refusal {
    let message = format!("rule `{rule}` allows {rate}");
    Refusal::new(Code::LimitExceeded, message)
        .with("rule", rule.0.as_str())
        .with("retry_after_ms", u64::try_from(wait.as_millis()).unwrap_or(u64::MAX))
        .next(&[NextAction::RetryLater])
}

fn confirm_requirement(
    call: &ToolCall,
    rules: &RuleResolution,
    effect: Effect,
) -> Result<ConfirmRequirement, Refusal> {
    let (kind, strength) = (rules.kind_for(effect), rules.strength_for(effect).0);
    let typed = match kind {
        Kind::Type => Some(text_to_type(call, rules)?),
        Kind::None | Kind::Simple | Kind::Preview => None,
    };
    Ok(ConfirmRequirement { kind, strength, typed })
}

/// The name a person types: the value of the rule's `type_field`, or the tool's full name where no field is named.
fn text_to_type(call: &ToolCall, rules: &RuleResolution) -> Result<String, Refusal> {
    let Some(field) = &rules.type_field else { return Ok(call.name.to_string()) };
    let typed = call.arguments.at(field).and_then(|value| match value {
        serde_json::Value::String(text) if !text.is_empty() => Some(text.clone()),
        serde_json::Value::Number(number) => Some(number.to_string()),
        serde_json::Value::Null
        | serde_json::Value::Bool(_)
        | serde_json::Value::String(_)
        | serde_json::Value::Array(_)
        | serde_json::Value::Object(_) => None,
    });
    typed.ok_or_else(|| {
        let message =
            format!("the name to be typed is the argument `{field}`, which this call does not have");
        Refusal::new(Code::RuleError, message).because("type_field_missing").with("field", field.as_str())
    })
}

/// Refuses if the tool or the policy changed since the plan was shown.
fn check_unchanged(
    pending_plan: &PendingPlan,
    call: &ToolCall,
    tool: &Tool,
    rules: &RuleResolution,
    effect: Effect,
    requirement: &ConfirmRequirement,
) -> Result<(), Refusal> {
    let changed = |what: &str, reason| {
        let message = format!("{what} since `{}` was shown; ask for a new plan", pending_plan.plan.id);
        Err(Refusal::new(Code::ConfirmTokenMismatch, message).because(reason))
    };
    if matches!(call.catalog_status, CatalogStatus::Changed(_))
        || tool.fingerprint != pending_plan.plan.fingerprint
    {
        return changed("the tool has changed", "tool_changed");
    }
    if rules.digest(effect) != pending_plan.plan.policy_digest
        || is_softer(&pending_plan.plan.requirement, requirement)
    {
        return changed("the rules have changed", "policy_changed");
    }
    Ok(())
}

/// Whether a stored plan asks for less than the rules do now. The digest alone would not show that the stored
/// requirement was edited in the database.
fn is_softer(kept: &ConfirmRequirement, requirement: &ConfirmRequirement) -> bool {
    kept.kind < requirement.kind || kept.strength < requirement.strength || kept.typed != requirement.typed
}

fn check_pause(policy: &PolicySnapshot<'_>) -> Result<(), Refusal> {
    match policy.writes {
        WriteStatus::Open => Ok(()),
        WriteStatus::Paused => {
            let message =
                "three rejections in ten minutes paused this principal's writes; a person has to resume them";
            Err(Refusal::new(Code::PrincipalPaused, message))
        }
    }
}

fn check_schema(draft: &CallDraft, policy: &PolicySnapshot<'_>) -> Result<(), Refusal> {
    check_arguments(&draft.call, &draft.tool, policy)
}

fn check_arguments(call: &ToolCall, tool: &Tool, policy: &PolicySnapshot<'_>) -> Result<(), Refusal> {
    let faults = policy.schema.check(tool, call.arguments.value());
    let Some(first) = faults.first() else { return Ok(()) };
    let message = format!("the arguments of `{}` do not fit its schema: {first}", call.name);
    let all: Vec<serde_json::Value> =
        faults.iter().map(|fault| serde_json::json!({"field": fault.field, "why": fault.why})).collect();
    Err(Refusal::new(Code::ArgumentsInvalid, message)
        .because("schema_mismatch")
        .with("field", first.field.as_str())
        .with("faults", all))
}

/// The effect of a tool and the confirm and strength its calls need, for lists and explanations.
pub fn outlook(tool: &Tool, rules: &RuleResolution) -> (EffectClassification, Kind, ApprovalStrength) {
    let classified = classify(rules.effect, tool);
    let kind = rules.kind_for(classified.effect);
    (classified, kind, rules.strength_for(classified.effect).0)
}
