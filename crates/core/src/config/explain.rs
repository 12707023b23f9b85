//! `policy explain`: what the law makes of one call, which rule decided each field, and what would happen in each mode.
//! Puts into words what the gate said; decides nothing itself.

use serde::Serialize;
use serde_json::{Value, json};

use super::Config;
use super::cases::{VerdictWord, Way};
use super::question::{ExplainInput, Judged, command_tool, judge, resolve, spoken, tool_of};
use super::upstream::{UpstreamKind, nearest_upstream};
use crate::confirm::{Kind, Strength};
use crate::effect::{Because, Effect};
use crate::gate;
use crate::intent::{Door, Spoken};
use crate::mode::Mode;
use crate::preview::{self, Style};
use crate::profile::StrengthOrigin;
use crate::refusal::{Code, Refusal};
use crate::rules::{Field, Resolution};
use crate::tool::Tool;

/// What decided a field.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Decided {
    /// The field.
    pub field: Field,
    /// What it is.
    pub value: Value,
    /// The rule that decided it; none for a default.
    pub rule: Option<String>,
    /// Why, in words.
    pub because: String,
}

/// What would happen to the call in one mode.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Said {
    /// The verdict.
    pub verdict: VerdictWord,
    /// The code, for a no.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<&'static str>,
}

/// What would happen to the call in each mode.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ModeRow {
    /// In ask mode.
    pub ask: Said,
    /// In plan mode.
    pub plan: Said,
    /// In execute mode.
    pub execute: Said,
}

/// What the law makes of a call.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Explained {
    /// The tool.
    pub tool: String,
    /// What it does.
    pub effect: Effect,
    /// Why it is thought to do that.
    pub because: Because,
    /// Which second step it needs.
    pub confirm: Kind,
    /// Who has to agree.
    pub strength: Strength,
    /// Where its preview comes from.
    pub preview: Value,
    /// The arguments that would be judged and sent, where they are not those that were given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effective_arguments: Option<Value>,
    /// The mode in force.
    pub mode: Mode,
    /// Through which call tool.
    pub variant: Way,
    /// What happens.
    pub verdict: VerdictWord,
    /// The code, for a no.
    pub code: Option<&'static str>,
    /// The reason code, for a no.
    pub reason_code: Option<&'static str>,
    /// What is said, for a no.
    pub message: Option<String>,
    /// The rule behind the verdict, where there is one.
    pub rule: Option<String>,
    /// Which rule decided each field.
    pub decided: Vec<Decided>,
    /// What would happen in each mode.
    pub modes: ModeRow,
    /// What else should be known.
    pub warnings: Vec<String>,
}

/// Explains a call.
pub fn explain(config: &Config, input: &ExplainInput) -> Explained {
    let tool = tool_of(config, input);
    let mode = input.mode.unwrap_or(config.gateway.mode);
    // The suited way depends on the rules, and rules may look at the intent: asked once without, then with it.
    let way = input.way.unwrap_or_else(|| {
        let (_, rules) = resolve(config, input, &tool, mode, &Spoken::default(), Door::Direct);
        Way::suited(gate::outlook(&tool, &rules).0.effect)
    });
    let spoken = spoken(input, way);
    let heard = spoken.as_ref().map_or_else(|_| Spoken::default(), Clone::clone);
    let (arguments, rules) = resolve(config, input, &tool, mode, &heard, way.door());
    let (classified, confirm, strength) = gate::outlook(&tool, &rules);
    let said = |mode: Mode| match &spoken {
        Ok(spoken) => judge(config, input, &tool, mode, way, spoken),
        Err(refusal) => Judged::no(Refusal::clone(refusal)),
    };
    let judged = said(mode);
    let short = |mode: Mode| {
        let judged = said(mode);
        Said { verdict: judged.verdict, code: judged.refusal.map(|refusal| refusal.code.as_str()) }
    };
    let refusal = judged.refusal.as_ref();
    Explained {
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
pub(super) fn deciding_rule(refusal: Option<&Refusal>, rules: &Resolution) -> Option<String> {
    let named =
        refusal.and_then(|refusal| refusal.details.get("rule")).and_then(Value::as_str).map(str::to_owned);
    let of = |code: Code, field: Field| {
        refusal.filter(|refusal| refusal.code == code).and_then(|_| rules.rule_for(field))
    };
    let of_code = of(Code::RoleForbidden, Field::Role).or(of(Code::IntentServerMismatch, Field::Effect));
    let usual =
        [Field::Confirm, Field::Strength, Field::Effect].into_iter().find_map(|field| rules.rule_for(field));
    named.or_else(|| of_code.or(usual).map(|rule| rule.0.clone()))
}

fn decided(tool: &Tool, rules: &Resolution) -> Vec<Decided> {
    let (classified, kind, strength) = gate::outlook(tool, rules);
    let style = preview::style(tool, rules.preview.as_ref());
    let origin = strength_origin(rules, classified.effect);
    let of = |field: Field| -> Option<(Value, &str)> {
        let some = |value: Option<Value>| value.map(|value| (value, ""));
        match field {
            Field::Effect => Some((json!(classified.effect), because(classified.because))),
            Field::Confirm => Some((json!(kind), "the default for the effect")),
            Field::Strength => Some((json!(strength), origin.as_str())),
            Field::Preview => Some((style_value(&style), "the tool's input schema, else computed")),
            Field::TypeField => some(rules.type_field.as_ref().map(|field| json!(field))),
            Field::Role => some(rules.role.map(|role| json!(role))),
            Field::Deny => some(rules.deny.as_ref().map(|why| json!(why))),
            Field::Allow => some(rules.allow.map(|allow| json!(allow))),
            Field::Limit => some(rules.limit.as_ref().map(|(_, rate)| json!(rate.to_string()))),
            Field::Redact => some((!rules.redact.is_empty()).then(|| json!(rules.redact))),
            Field::Timeout => some(rules.timeout.map(|timeout| json!(format!("{}ms", timeout.as_millis())))),
        }
    };
    let decide = |field: &Field| {
        let (value, default) = of(*field)?;
        let rule = rules.rule_for(*field).map(|rule| rule.0.clone());
        let because = rule.as_ref().map_or_else(|| default.to_owned(), |rule| format!("rule `{rule}`"));
        Some(Decided { field: *field, value, rule, because })
    };
    Field::ALL.iter().filter_map(decide).collect()
}

/// Where the strength comes from where no rule decides it.
fn strength_origin(rules: &Resolution, effect: Effect) -> String {
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

fn because(because: Because) -> &'static str {
    match because {
        Because::Rule => "a rule",
        Because::DestructiveHint => "the upstream says destructiveHint",
        Because::ReadOnlyHint => "the upstream says readOnlyHint",
        Because::Lexicon => "a word of the tool's name",
        Because::Contradiction => "a word of the tool's name, against its annotations",
        Because::Unknown => "nothing is known of it, so it counts as a write",
    }
}

fn style_value(style: &Style) -> Value {
    match style {
        Style::Argument { arg, preview, apply } => {
            json!({"from": "argument", "arg": arg, "preview": preview, "apply": apply})
        }
        Style::Companion { tool, digest } => json!({"from": "tool", "tool": tool, "digest": digest}),
        Style::Command(command) => {
            let mut value = command.shown();
            if let Some(members) = value.as_object_mut() {
                members.insert("from".into(), "command".into());
            }
            value
        }
        Style::Computed => json!({"from": "computed"}),
    }
}

fn warnings(
    config: &Config,
    input: &ExplainInput,
    because: Because,
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
    if because == Because::Contradiction {
        warnings.push(format!(
            "the annotations of `{name}` contradict its name; a rule with `effect` settles it"
        ));
    }
    warnings
}
