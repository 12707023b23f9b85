//! `policy explain`: the verdict on one call, the rule that decided each field, and the verdict in each mode.
//! Reports what the gate says; decides nothing itself.

use serde::Serialize;
use serde_json::{Value, json};

use super::Config;
use super::cases::{CallRoute, VerdictWord};
use super::hypothetical_call::{
    ExplainInput, HypotheticalVerdict, command_tool, judge, resolve, spoken, tool_of,
};
use super::upstream::{UpstreamKind, nearest_upstream};
use countersign_policy::confirm::{ApprovalStrength, Kind};
use countersign_policy::effect::{Effect, EffectReason};
use countersign_policy::gate;
use countersign_policy::intent::{CallEntryPoint, UncheckedIntent};
use countersign_policy::mode::Mode;
use countersign_policy::preview::{self, PreviewStyle};
use countersign_policy::profile::StrengthOrigin;
use countersign_policy::refusal::{Code, Refusal};
use countersign_policy::rules::{RuleField, RuleResolution};
use countersign_policy::tool::Tool;

/// What decided a field.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DecidedField {
    pub field: RuleField,
    pub value: Value,
    /// The rule that decided it; none for a default.
    pub rule: Option<String>,
    pub because: String,
}

/// What would happen to the call in one mode.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ModeVerdict {
    pub verdict: VerdictWord,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<&'static str>,
}

/// What would happen to the call in each mode.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ModeRow {
    pub ask: ModeVerdict,
    pub plan: ModeVerdict,
    pub execute: ModeVerdict,
}

/// The policy's answer to a call.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PolicyExplanation {
    pub tool: String,
    pub effect: Effect,
    pub because: EffectReason,
    pub confirm: Kind,
    pub strength: ApprovalStrength,
    pub preview: Value,
    /// The arguments that would be judged and sent, where they are not those that were given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effective_arguments: Option<Value>,
    pub mode: Mode,
    pub variant: CallRoute,
    pub verdict: VerdictWord,
    pub code: Option<&'static str>,
    pub reason_code: Option<&'static str>,
    pub message: Option<String>,
    /// The rule behind the verdict, where there is one.
    pub rule: Option<String>,
    pub decided: Vec<DecidedField>,
    pub modes: ModeRow,
    pub warnings: Vec<String>,
}

/// Explains a call.
pub fn explain(config: &Config, input: &ExplainInput) -> PolicyExplanation {
    let tool = tool_of(config, input);
    let mode = input.mode.unwrap_or(config.gateway.mode);
    // The suited way depends on the rules, and rules may look at the intent: asked once without, then with it.
    let way = input.way.unwrap_or_else(|| {
        let (_, rules) =
            resolve(config, input, &tool, mode, &UncheckedIntent::default(), CallEntryPoint::Direct);
        CallRoute::suited(gate::outlook(&tool, &rules).0.effect)
    });
    let spoken = spoken(input, way);
    let heard = spoken.as_ref().map_or_else(|_| UncheckedIntent::default(), Clone::clone);
    let (arguments, rules) = resolve(config, input, &tool, mode, &heard, way.entry_point());
    let (classified, confirm, strength) = gate::outlook(&tool, &rules);
    let said = |mode: Mode| match &spoken {
        Ok(spoken) => judge(config, input, &tool, mode, way, spoken),
        Err(refusal) => HypotheticalVerdict::no(Refusal::clone(refusal)),
    };
    let judged = said(mode);
    let short = |mode: Mode| {
        let judged = said(mode);
        ModeVerdict { verdict: judged.verdict, code: judged.refusal.map(|refusal| refusal.code.as_str()) }
    };
    let refusal = judged.refusal.as_ref();
    PolicyExplanation {
        tool: input.tool.to_string(),
        effect: classified.effect,
        because: classified.because,
        confirm,
        strength,
        preview: style_value(&preview::style(&tool, rules.preview.as_ref())),
        effective_arguments: (arguments != input.arguments).then(|| json!(arguments.value())),
        mode,
        variant: way,
        verdict: judged.verdict,
        code: refusal.map(|refusal| refusal.code.as_str()),
        reason_code: refusal.map(|refusal| refusal.reason_code),
        message: refusal.map(|refusal| refusal.message.clone()),
        rule: deciding_rule(refusal, &rules),
        decided: decided(&tool, &rules),
        modes: ModeRow { ask: short(Mode::Ask), plan: short(Mode::Plan), execute: short(Mode::Execute) },
        warnings: warnings(config, input, classified.because, judged.warnings),
    }
}

/// The rule a refusal names, else the one that asks for the second step.
pub(crate) fn deciding_rule(refusal: Option<&Refusal>, rules: &RuleResolution) -> Option<String> {
    let named =
        refusal.and_then(|refusal| refusal.details.get("rule")).and_then(Value::as_str).map(str::to_owned);
    let of = |code: Code, field: RuleField| {
        refusal.filter(|refusal| refusal.code == code).and_then(|_| rules.rule_for(field))
    };
    let of_code =
        of(Code::RoleForbidden, RuleField::Role).or(of(Code::IntentServerMismatch, RuleField::Effect));
    let usual = [RuleField::Confirm, RuleField::Strength, RuleField::Effect]
        .into_iter()
        .find_map(|field| rules.rule_for(field));
    named.or_else(|| of_code.or(usual).map(|rule| rule.0.clone()))
}

fn decided(tool: &Tool, rules: &RuleResolution) -> Vec<DecidedField> {
    let (classified, kind, strength) = gate::outlook(tool, rules);
    let style = preview::style(tool, rules.preview.as_ref());
    let origin = strength_origin(rules, classified.effect);
    // These have a value even if no rule decides them.
    let defaults = [
        (RuleField::Effect, json!(classified.effect), because(classified.because)),
        (RuleField::Confirm, json!(kind), "the default for the effect"),
        (RuleField::Strength, json!(strength), origin.as_str()),
        (RuleField::Preview, style_value(&style), "the tool's input schema, else computed"),
    ];
    let of = |field: RuleField| -> Option<(Value, &str)> {
        let default = defaults.iter().find(|(name, _, _)| *name == field);
        let default = default.map(|(_, value, because)| (value.clone(), *because));
        default.or_else(|| rules.value(field).map(|value| (value, "")))
    };
    let decide = |field: &RuleField| {
        let (value, default) = of(*field)?;
        let rule = rules.rule_for(*field).map(|rule| rule.0.clone());
        let because = rule.as_ref().map_or_else(|| default.to_owned(), |rule| format!("rule `{rule}`"));
        Some(DecidedField { field: *field, value, rule, because })
    };
    RuleField::ALL.iter().filter_map(decide).collect()
}

/// Where the strength comes from where no rule decides it.
fn strength_origin(rules: &RuleResolution, effect: Effect) -> String {
    let (profile, kind) = (rules.strengths.profile, rules.kind_for(effect));
    if kind == Kind::None {
        return "no second step: nobody is asked".to_owned();
    }
    match rules.strength_for(effect).1 {
        StrengthOrigin::Rule => "a rule".to_owned(),
        StrengthOrigin::Confirm => format!("confirm.strength.{effect}"),
        StrengthOrigin::Profile if profile.awaits_gesture(kind) => {
            format!("profile {profile}; human until gesture is there")
        }
        StrengthOrigin::Profile => format!("profile {profile}"),
    }
}

fn because(because: EffectReason) -> &'static str {
    match because {
        EffectReason::Rule => "a rule",
        EffectReason::DestructiveHint => "the upstream says destructiveHint",
        EffectReason::ReadOnlyHint => "the upstream says readOnlyHint",
        EffectReason::Lexicon => "a word of the tool's name",
        EffectReason::Schema => "an argument of its input schema",
        EffectReason::Contradiction => "its name or input schema, against its annotations",
        EffectReason::Unknown => "nothing is known of it, so it counts as a write",
    }
}

fn style_value(style: &PreviewStyle) -> Value {
    match style {
        PreviewStyle::Argument { arg, preview, apply } => {
            json!({"from": "argument", "arg": arg, "preview": preview, "apply": apply})
        }
        PreviewStyle::Companion { tool, digest } => json!({"from": "tool", "tool": tool, "digest": digest}),
        PreviewStyle::Command(command) => {
            let mut value = command.shown();
            if let Some(members) = value.as_object_mut() {
                members.insert("from".into(), "command".into());
            }
            value
        }
        PreviewStyle::Computed => json!({"from": "computed"}),
    }
}

fn warnings(
    config: &Config,
    input: &ExplainInput,
    because: EffectReason,
    mut warnings: Vec<String>,
) -> Vec<String> {
    let name = &input.tool;
    match config.upstream(&name.upstream) {
        None if !config.upstreams.is_empty() => {
            let near = nearest_upstream(name.upstream.as_str(), &config.upstreams);
            let meant = near.map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
            warnings.push(format!("upstream `{}` is not declared{meant}", name.upstream));
        }
        Some(upstream)
            if matches!(upstream.kind, UpstreamKind::Command { .. })
                && command_tool(config, name).is_none() =>
        {
            warnings.push(format!("upstream `{}` has no tool `{}`", name.upstream, name.tool));
        }
        Some(_) | None => {}
    }
    if because == EffectReason::Contradiction {
        warnings.push(format!(
            "the annotations of `{name}` contradict its name or input schema; a rule with `effect` settles it"
        ));
    }
    warnings
}
