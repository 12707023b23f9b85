//! The gate: the one place where a call is judged. A straight line, pure and total; every refusal is a value.
//! It dispatches nothing, stores nothing, and knows neither clock nor wire.

mod arguments;
mod permit;
mod series;
mod snapshot;
mod verdict;

use std::sync::Arc;

use jiff::Timestamp;

use arguments::{Settled, check_keys, settle_arguments};

pub use arguments::effective;
pub use permit::{Permit, Redemption, SentMeta, Spend, token_digest};
pub use series::{
    MOST_STEPS, Purpose, SeriesPermits, check_series, check_series_strength, draft_step, freeze_series,
    series_name, series_record, settle_series, without_steps,
};
pub use snapshot::{NoLimits, NoSchema, Schema, SchemaFault, Snapshot, Usage, Writes};
pub use verdict::{Draft, DryRun, Explanation, Refused, Verdict};

use crate::call::{Call, Standing};
use crate::confirm::{Asker, Held, Kind, Need, Strength, check_strength, check_token, is_of};
use crate::effect::{Classified, Effect, classify, declared};
use crate::intent::{Intent, against_server};
use crate::mode::{Mode, ModeSources};
use crate::record::CallRecord;
use crate::refusal::{Code, NextAction, Refusal};
use crate::role::Role;
use crate::rules::{Field, Resolution};
use crate::tool::Tool;

/// Judges a call: `identify → resolve → role → intent → rules → mode → schema → preview → confirm`.
///
/// INVARIANT (one gate): a [`Permit`] is made here and nowhere else, and can't be copied.
pub fn judge(call: Call, law: &Snapshot<'_>, now: Timestamp) -> Verdict {
    let mut record = CallRecord::begin(&call);
    let phase_two = comes_back(&call);
    let weighed = match resolve(&call, phase_two) {
        Ok(tool) => weigh(call, tool, phase_two, law, now, &mut record),
        Err(refusal) => {
            record.set_arguments(law.redactor, &call.arguments, &[]);
            Err(refusal)
        }
    };
    match weighed.map(|draft| by_mode(draft, law, now)) {
        Ok(Ok(verdict)) => verdict,
        Ok(Err(refused)) => Verdict::Refuse(*refused),
        Err(refusal) => Verdict::Refuse(Refused { refusal, record }),
    }
}

/// From the role to the mode: everything that needs neither schema nor preview.
fn weigh<'h>(
    mut call: Call,
    tool: Arc<Tool>,
    phase_two: bool,
    law: &Snapshot<'h>,
    now: Timestamp,
    record: &mut CallRecord,
) -> Result<Weighed<'h>, Refusal> {
    let own_mode = own_mode(&call);
    let mode = ModeSources {
        call: own_mode.as_ref().ok().copied().flatten(),
        session: law.session_mode,
        configured: law.configured_mode,
    }
    .resolve();
    // Also of a call that is refused before its mode is judged: whoever replays the ledger needs it.
    record.mode = own_mode.is_ok().then_some(mode);
    let spoken = call.intent.declare(call.door);
    let declared = spoken.as_ref().ok().and_then(Option::as_ref);
    let Settled { rules, style, fault } = settle_arguments(&mut call, &tool, law, declared, mode, now);
    record.set_arguments(law.redactor, &call.arguments, &rules.redact);
    // Names that other readers fold may carry what a rule redacts: such arguments are kept as a digest only.
    let keys = check_keys(&call, &tool);
    if keys.is_err() {
        record.arguments = serde_json::Value::Null;
    }

    check_role(&call, &rules)?;
    let intent = spoken?;
    let warnings = check_intent(&call, law, &tool, &rules, intent.as_ref())?;
    keys?;

    let classified = classify(rules.effect, tool.annotations, tool.name.as_str());
    record.effect = Some(classified.effect);
    let kind = rules.kind_for(classified.effect);
    let is_preview = style.is_asked_for(&call.arguments);
    if is_preview {
        // A preview brings nothing back, so a changed tool is not excused by a token either.
        resolve(&call, false)?;
    }
    let held = if phase_two && kind != Kind::None && !is_preview {
        if let Some(own) = law.held.filter(|held| is_of(&held.plan, asker(&call))) {
            record.plan_id = Some(own.plan.id.clone());
            record.plan_hash = Some(own.plan.hash);
        }
        Some(check_token(&call.brought, law.held, asker(&call), now)?)
    } else {
        None
    };

    fault.map_or(Ok(()), Err)?;
    check_rules(&call, law, &rules, classified.effect, now)?;
    own_mode?;
    check_mode(&call, mode)?;
    let need = match need(&call, &rules, classified.effect) {
        Ok(need) => need,
        // A call that is only explained needs no name to be typed.
        Err(_) if mode == Mode::Ask && classified.effect != Effect::Read => {
            Need { kind, strength: rules.strength_for(classified.effect).0, typed: None }
        }
        // Whose arguments do not fit is told that first: it says what is missing.
        Err(refusal) => return Err(fits(&call, &tool, law).err().unwrap_or(refusal)),
    };
    if let Some(held) = held {
        check_unchanged(held, &call, &tool, &rules, classified.effect, &need)?;
    }
    let draft = Draft {
        call,
        tool,
        classified,
        need,
        intent,
        mode,
        policy_digest: rules.digest(classified.effect),
        style,
        warnings,
        rules,
        meta: None,
        // Nothing refuses between here and the verdict but what carries this record along: the arguments move.
        record: CallRecord { arguments: std::mem::take(&mut record.arguments), ..record.clone() },
    };
    Ok(Weighed { draft, held })
}

/// A call that passed the gates up to the mode, with the plan it brings back.
struct Weighed<'h> {
    draft: Draft,
    held: Option<&'h Held>,
}

/// Which rows of the mode table apply, every pair named.
fn by_mode(weighed: Weighed<'_>, law: &Snapshot<'_>, now: Timestamp) -> Result<Verdict, Box<Refused>> {
    let Weighed { draft, held } = weighed;
    if draft.is_preview() && (draft.mode != Mode::Ask || draft.call.caller.scopes.max_mode >= Mode::Plan) {
        return checked(draft, |draft| check_schema(draft, law)).map(Verdict::Preview);
    }
    match (draft.classified.effect, draft.mode) {
        (Effect::Read, Mode::Ask | Mode::Plan | Mode::Execute) => {
            let draft = checked(draft, |draft| check_schema(draft, law))?;
            by_need(draft, law, held, now)
        }
        (Effect::Write | Effect::Destructive, Mode::Ask) => {
            // Whatever the arguments are it is explained; only those that fit may be used to look at the present state.
            let state = check_schema(&draft, law).is_ok().then(|| draft.look());
            Ok(Verdict::Explain(Explanation::of(draft, state)))
        }
        (Effect::Write | Effect::Destructive, Mode::Plan) => {
            checked(draft, |draft| check_schema(draft, law)).map(Verdict::Preview)
        }
        (Effect::Write | Effect::Destructive, Mode::Execute) => {
            let draft = checked(draft, |draft| check_pause(law).and_then(|()| check_schema(draft, law)))?;
            by_need(draft, law, held, now)
        }
    }
}

/// The draft, or the refusal with the draft's record.
fn checked(draft: Draft, check: impl FnOnce(&Draft) -> Result<(), Refusal>) -> Result<Draft, Box<Refused>> {
    match check(&draft) {
        Ok(()) => Ok(draft),
        Err(refusal) => Err(Box::new(Refused { refusal, record: draft.record })),
    }
}

fn by_need(
    draft: Draft,
    law: &Snapshot<'_>,
    held: Option<&Held>,
    now: Timestamp,
) -> Result<Verdict, Box<Refused>> {
    if draft.need.kind == Kind::None {
        return Ok(Verdict::Go(Permit::at_once(draft)));
    }
    if let Some(held) = held {
        return match check_strength(held, &draft.call.brought, asker(&draft.call), now) {
            Ok(approval) => Ok(Verdict::Redeem(Redemption::new(draft, held.plan.clone(), approval))),
            Err(refusal) => Err(Box::new(Refused { refusal, record: draft.record })),
        };
    }
    // What says apply is the convention's, not the person's: a grant covers the call whether it lists it or not.
    let bare = draft.style.without_apply(&draft.call.arguments);
    let covering = law.grants.iter().find(|grant| {
        let (caller, call) = (&draft.call.caller, &draft.call);
        let covers = |arguments| {
            grant.covers(&caller.principal, &call.name, draft.tool.fingerprint, arguments, &draft.need, now)
        };
        covers(&call.arguments) || bare.as_ref().is_some_and(covers)
    });
    match covering {
        Some(grant) => Ok(Verdict::Go(Permit::granted(draft, grant, now))),
        None => Ok(Verdict::Hold(draft)),
    }
}

fn asker(call: &Call) -> Asker<'_> {
    Asker {
        principal: &call.caller.principal,
        session: &call.caller.session,
        tool: &call.name,
        arguments: &call.arguments,
    }
}

/// Whether the call brings a plan back. With a mode of its own other than execute it is judged by that mode.
fn comes_back(call: &Call) -> bool {
    call.brought.is_phase_two() && matches!(call.mode.as_deref(), None | Some("execute"))
}

fn resolve(call: &Call, phase_two: bool) -> Result<Arc<Tool>, Refusal> {
    let reachable = call.caller.scopes.upstreams.as_ref().is_none_or(|all| all.contains(&call.name.upstream));
    if !reachable {
        let message = format!("this line does not reach upstream `{}`", call.name.upstream);
        return Err(Refusal::new(Code::ScopeForbidden, message));
    }
    match &call.standing {
        Standing::Accepted(tool) => Ok(Arc::clone(tool)),
        // A plan on a changed tool dies as a plan: the token checks come first, then `tool_changed`.
        Standing::Changed(tool) if phase_two => Ok(Arc::clone(tool)),
        Standing::Changed(_) => {
            let message =
                format!("`{}` is not the tool that was accepted: its definition differs", call.name);
            Err(Refusal::new(Code::ToolChanged, message)
                .with("review", format!("countersign tools diff {}", call.name)))
        }
        Standing::Quarantined(_, reason) => {
            let message = format!("`{}` is withheld until a person accepts it", call.name);
            let refusal = Refusal::new(Code::ToolQuarantined, message).because(reason);
            Err(refusal.with("review", format!("countersign tools show {}", call.name)))
        }
        Standing::Unknown(near) => {
            let message = match near.first() {
                Some(nearest) => format!("there is no tool `{}`; did you mean `{nearest}`?", call.name),
                None => format!("there is no tool `{}`", call.name),
            };
            Err(Refusal::new(Code::ToolNotFound, message).with("did_you_mean", near.clone()))
        }
        Standing::Unlisted(why) => {
            let message = format!("upstream `{}` can't be asked for its tools: {why}", call.name.upstream);
            Err(Refusal::new(Code::UpstreamUnavailable, message))
        }
    }
}

fn own_mode(call: &Call) -> Result<Option<Mode>, Refusal> {
    call.mode.as_deref().map(parse_mode).transpose()
}

/// Reads a mode as it is sent; an unknown one is refused naming the three.
pub fn parse_mode(text: &str) -> Result<Mode, Refusal> {
    text.parse().map_err(|_| {
        let text = crate::refusal::brief(text);
        Refusal::new(Code::ModeInvalid, format!("unknown mode `{text}`: must be ask, plan, or execute"))
    })
}

/// Whether the line may use the mode at all.
pub fn mode_within(mode: Mode, max: Mode) -> Result<(), Refusal> {
    if mode <= max {
        return Ok(());
    }
    let message = format!("mode `{mode}` is above this line's highest, `{max}`");
    Err(Refusal::new(Code::ModeForbidden, message).with("max_mode", max.as_str()))
}

fn check_mode(call: &Call, mode: Mode) -> Result<(), Refusal> {
    mode_within(mode, call.caller.scopes.max_mode)
}

fn check_role(call: &Call, rules: &Resolution) -> Result<(), Refusal> {
    match (rules.role, call.caller.role) {
        (Some(Role::Human), Role::Agent) => {
            let message = format!("Tool \"{}\" not available in agent mode", call.name.tool);
            Err(Refusal::new(Code::RoleForbidden, message))
        }
        (Some(Role::Human), Role::Human) | (Some(Role::Agent) | None, Role::Agent | Role::Human) => Ok(()),
    }
}

fn check_intent(
    call: &Call,
    law: &Snapshot<'_>,
    tool: &Tool,
    rules: &Resolution,
    intent: Option<&Intent>,
) -> Result<Vec<String>, Refusal> {
    let declared = declared(rules.effect, tool.annotations, tool.name.as_str());
    let warning = against_server(call.door, intent, declared, law.strictness, &call.name)?;
    Ok(warning.into_iter().collect())
}

fn check_rules(
    call: &Call,
    law: &Snapshot<'_>,
    rules: &Resolution,
    effect: Effect,
    now: Timestamp,
) -> Result<(), Refusal> {
    if let Some(fault) = &rules.fault {
        return Err(Refusal::new(Code::RuleError, fault.to_string()).with("rule", fault.rule.0.as_str()));
    }
    if let Some((why, reason)) = rules.denial() {
        let mut refusal =
            Refusal::new(Code::RuleDenied, format!("`{}` is denied: {why}", call.name)).because(reason);
        if let Some(rule) = rules.rule_for(Field::Deny).or(rules.rule_for(Field::Allow)) {
            refusal = refusal.with("rule", rule.0.as_str());
        }
        return Err(refusal);
    }
    if call.caller.scopes.effects.as_ref().is_some_and(|all| !all.contains(&effect)) {
        let message = format!("this line may not use {effect} tools");
        return Err(Refusal::new(Code::ScopeForbidden, message));
    }
    if let Some((rule, rate)) = &rules.limit
        && let Some(wait) = law.usage.wait(rule, &call.caller.principal, *rate, now)
    {
        return Err(over_limit(rule, *rate, wait));
    }
    Ok(())
}

/// The refusal of a call beyond a rule's rate.
pub fn over_limit(
    rule: &crate::rules::RuleName,
    rate: crate::duration::Rate,
    wait: std::time::Duration,
) -> Refusal {
    let message = format!("rule `{rule}` allows {rate}");
    Refusal::new(Code::LimitExceeded, message)
        .with("rule", rule.0.as_str())
        .with("retry_after_ms", u64::try_from(wait.as_millis()).unwrap_or(u64::MAX))
        .next(&[NextAction::RetryLater])
}

fn need(call: &Call, rules: &Resolution, effect: Effect) -> Result<Need, Refusal> {
    let (kind, strength) = (rules.kind_for(effect), rules.strength_for(effect).0);
    let typed = match kind {
        Kind::Type => Some(to_be_typed(call, rules)?),
        Kind::None | Kind::Simple | Kind::Preview => None,
    };
    Ok(Need { kind, strength, typed })
}

/// The name a person types: the value of the rule's `type_field`, or the tool's full name where no field is named.
fn to_be_typed(call: &Call, rules: &Resolution) -> Result<String, Refusal> {
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

/// Rules and fingerprint are still those the plan was made under.
fn check_unchanged(
    held: &Held,
    call: &Call,
    tool: &Tool,
    rules: &Resolution,
    effect: Effect,
    need: &Need,
) -> Result<(), Refusal> {
    let changed = |what: &str, reason| {
        let message = format!("{what} since `{}` was shown; ask for a new plan", held.plan.id);
        Err(Refusal::new(Code::ConfirmTokenMismatch, message).because(reason))
    };
    if matches!(call.standing, Standing::Changed(_)) || tool.fingerprint != held.plan.fingerprint {
        return changed("the tool has changed", "tool_changed");
    }
    if rules.digest(effect) != held.plan.policy_digest || is_softer(&held.plan.need, need) {
        return changed("the rules have changed", "policy_changed");
    }
    Ok(())
}

/// Whether a kept plan asks for less than the rules do now. Somebody may have edited what was kept.
fn is_softer(kept: &Need, need: &Need) -> bool {
    kept.kind < need.kind || kept.strength < need.strength || kept.typed != need.typed
}

fn check_pause(law: &Snapshot<'_>) -> Result<(), Refusal> {
    match law.writes {
        Writes::Open => Ok(()),
        Writes::Paused => {
            let message =
                "three rejections in ten minutes paused this principal's writes; a person has to resume them";
            Err(Refusal::new(Code::PrincipalPaused, message))
        }
    }
}

fn check_schema(draft: &Draft, law: &Snapshot<'_>) -> Result<(), Refusal> {
    fits(&draft.call, &draft.tool, law)
}

fn fits(call: &Call, tool: &Tool, law: &Snapshot<'_>) -> Result<(), Refusal> {
    let faults = law.schema.check(tool, call.arguments.value());
    let Some(first) = faults.first() else { return Ok(()) };
    let message = format!("the arguments of `{}` do not fit its schema: {first}", call.name);
    let all: Vec<serde_json::Value> =
        faults.iter().map(|fault| serde_json::json!({"field": fault.field, "why": fault.why})).collect();
    Err(Refusal::new(Code::ArgumentsInvalid, message)
        .because("schema_mismatch")
        .with("field", first.field.as_str())
        .with("faults", all))
}

/// Why a tool has its effect and needs what it needs; for lists and explanations.
pub fn outlook(tool: &Tool, rules: &Resolution) -> (Classified, Kind, Strength) {
    let classified = classify(rules.effect, tool.annotations, tool.name.as_str());
    let kind = rules.kind_for(classified.effect);
    (classified, kind, rules.strength_for(classified.effect).0)
}
