//! `policy simulate`: judges a recorded call by the present policy and by a new one, and reports the difference.
//! Uses the real gate. Does not replay limits, schemas, tokens, grants and scopes, because the ledger does not hold them.

use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

use super::Config;
use super::cases::{CallRoute, VerdictWord};
use super::explain::deciding_rule;
use super::hypothetical_call::{ExplainInput, HypotheticalVerdict, judge, resolve, spoken, tool_of};
use countersign_policy::confirm::{ApprovalStrength, Kind};
use countersign_policy::effect::Effect;
use countersign_policy::gate;
use countersign_policy::ids::LedgerId;
use countersign_policy::intent::UncheckedIntent;
use countersign_policy::redact::{is_redacted, redacted_names};
use countersign_policy::refusal::Refusal;
use countersign_policy::rules::RuleSet;

/// What the ledger says was decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedVerdict {
    pub verdict: VerdictWord,
    pub code: Option<String>,
    /// What the tool did, where that was known.
    pub effect: Option<Effect>,
}

/// A call of the past.
#[derive(Clone, Debug, PartialEq)]
pub struct PastCall {
    pub id: LedgerId,
    pub time: Timestamp,
    /// The call as far as the ledger kept it.
    pub input: ExplainInput,
    /// The arguments as the ledger kept them: what was redacted is not in them.
    pub arguments: Value,
    pub recorded: RecordedVerdict,
}

/// The short form of a policy's answer to a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SimulatedDecision {
    pub verdict: VerdictWord,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// What the tool does; none where the ledger does not say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effect: Option<Effect>,
    /// Which second step; none where the ledger does not say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub confirm: Option<Kind>,
    /// Who has to agree; none where the ledger does not say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub strength: Option<ApprovalStrength>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// A decision that would change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DecisionChange {
    pub before: SimulatedDecision,
    pub after: SimulatedDecision,
}

/// What replaying a call shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReplayResult {
    /// The same would be decided.
    Same,
    Changed(Box<DecisionChange>),
    /// A rule looks at an argument that the ledger does not hold.
    Undecidable {
        rule: String,
        /// The arguments it looks at that were kept out.
        arguments: Vec<String>,
    },
}

/// Judges a recorded call by both policies.
pub fn replay(present: &Config, new: &Config, past: &PastCall) -> ReplayResult {
    if let Some((rule, arguments)) = blind_spot(&new.rules, past) {
        return ReplayResult::Undecidable { rule, arguments };
    }
    let after = decide(new, &past.input);
    // The ledger has no confirm, strength or rule. The present policy supplies them if it still decides as recorded.
    let seen = blind_spot(&present.rules, past).is_none();
    let before = Some(decide(present, &past.input)).filter(|now| seen && is_as_recorded(now, &past.recorded));
    let before = before.unwrap_or_else(|| SimulatedDecision {
        verdict: past.recorded.verdict,
        code: past.recorded.code.clone(),
        effect: past.recorded.effect,
        confirm: None,
        strength: None,
        rule: None,
        message: None,
    });
    if is_same(&before, &after) {
        ReplayResult::Same
    } else {
        ReplayResult::Changed(Box::new(DecisionChange { before, after }))
    }
}

fn is_as_recorded(now: &SimulatedDecision, recorded: &RecordedVerdict) -> bool {
    now.verdict == recorded.verdict
        && now.code == recorded.code
        && recorded.effect.is_none_or(|effect| now.effect == Some(effect))
}

/// Whether two decisions are one, as far as both say.
fn is_same(before: &SimulatedDecision, after: &SimulatedDecision) -> bool {
    fn alike<T: PartialEq>(one: Option<&T>, other: Option<&T>) -> bool {
        one.zip(other).is_none_or(|(one, other)| one == other)
    }
    // A call that runs at once or is refused asks nobody, whatever it would have asked.
    let asks = !matches!(after.verdict, VerdictWord::Go | VerdictWord::Refuse);
    before.verdict == after.verdict
        && before.code == after.code
        && alike(before.effect.as_ref(), after.effect.as_ref())
        && (!asks
            || alike(before.confirm.as_ref(), after.confirm.as_ref())
                && alike(before.strength.as_ref(), after.strength.as_ref()))
}

/// The first rule for the tool whose condition reads an argument that was kept out of the ledger.
fn blind_spot(rules: &RuleSet, past: &PastCall) -> Option<(String, Vec<String>)> {
    let whole = is_redacted(&past.arguments) && !past.arguments.is_object();
    let names = redacted_names(&past.arguments);
    if !whole && names.is_empty() {
        return None;
    }
    let matching = rules.matching(&past.input.tool).into_iter().filter_map(|index| rules.rules().get(index));
    matching.into_iter().find_map(|rule| {
        let reads = rule.when.as_ref()?.reads();
        let hidden: Vec<String> = names.iter().filter(|name| reads.reads(name)).cloned().collect();
        let touched = !hidden.is_empty()
            || (whole && reads != countersign_policy::rules::ArgumentReads::Named(Default::default()));
        touched.then(|| (rule.name.0.clone(), hidden))
    })
}

/// The policy's answer to a call.
fn decide(config: &Config, input: &ExplainInput) -> SimulatedDecision {
    let tool = tool_of(config, input);
    let mode = input.mode.unwrap_or(config.gateway.mode);
    let way = input.way.unwrap_or(CallRoute::Direct);
    let spoken = spoken(input, way);
    let heard = spoken.as_ref().map_or_else(|_| UncheckedIntent::default(), Clone::clone);
    let (_, rules) = resolve(config, input, &tool, mode, &heard, way.entry_point());
    let (classified, confirm, strength) = gate::outlook(&tool, &rules);
    let judged = match &spoken {
        Ok(spoken) => judge(config, input, &tool, mode, way, spoken),
        Err(refusal) => HypotheticalVerdict::no(Refusal::clone(refusal)),
    };
    let refusal = judged.refusal.as_ref();
    SimulatedDecision {
        verdict: judged.verdict,
        code: refusal.map(|refusal| refusal.code.as_str().to_owned()),
        effect: Some(classified.effect),
        confirm: Some(confirm),
        strength: Some(strength),
        rule: deciding_rule(refusal, &rules),
        message: refusal.map(|refusal| refusal.message.clone()),
    }
}
