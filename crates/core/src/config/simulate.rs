//! `policy simulate`: a recorded call put to the present law and to a new one, and what would come out differently.
//! Judges with the real gate; limits, schemas, tokens, grants and scopes are not replayed, because the ledger does not hold them.

use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

use super::Config;
use super::cases::{VerdictWord, Way};
use super::explain::deciding_rule;
use super::question::{ExplainInput, Judged, judge, resolve, spoken, tool_of};
use crate::confirm::{Kind, Strength};
use crate::effect::Effect;
use crate::gate;
use crate::ids::LedgerId;
use crate::intent::Spoken;
use crate::redact::{is_redacted, redacted_names};
use crate::refusal::Refusal;
use crate::rules::RuleSet;

/// What the ledger says was decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// The verdict.
    pub verdict: VerdictWord,
    /// The code, for a no.
    pub code: Option<String>,
    /// What the tool did, where that was known.
    pub effect: Option<Effect>,
}

/// A call of the past.
#[derive(Clone, Debug, PartialEq)]
pub struct Past {
    /// Its row.
    pub id: LedgerId,
    /// When it was made.
    pub time: Timestamp,
    /// The call as far as the ledger kept it.
    pub input: ExplainInput,
    /// The arguments as the ledger kept them: what was redacted is not in them.
    pub arguments: Value,
    /// What was decided.
    pub recorded: Recorded,
}

/// What a law makes of a call, in short.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Decision {
    /// The verdict.
    pub verdict: VerdictWord,
    /// The code, for a no.
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
    pub strength: Option<Strength>,
    /// The rule behind it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// What is said, for a no.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// A decision that would change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Change {
    /// What it was.
    pub before: Decision,
    /// What it would be.
    pub after: Decision,
}

/// What replaying a call shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Replayed {
    /// The same would be decided.
    Same,
    /// Something else would be.
    Changed(Box<Change>),
    /// A rule looks at an argument that the ledger does not hold.
    Undecidable {
        /// The rule.
        rule: String,
        /// The arguments it looks at that were kept out.
        arguments: Vec<String>,
    },
}

/// Puts a call of the past to both laws.
pub fn replay(present: &Config, new: &Config, past: &Past) -> Replayed {
    if let Some((rule, arguments)) = blind_spot(&new.rules, past) {
        return Replayed::Undecidable { rule, arguments };
    }
    let after = decide(new, &past.input);
    // What the present law says in full counts where it is what was decided then; else the ledger's word does.
    let seen = blind_spot(&present.rules, past).is_none();
    let before = Some(decide(present, &past.input)).filter(|now| seen && is_as_recorded(now, &past.recorded));
    let before = before.unwrap_or_else(|| Decision {
        verdict: past.recorded.verdict,
        code: past.recorded.code.clone(),
        effect: past.recorded.effect,
        confirm: None,
        strength: None,
        rule: None,
        message: None,
    });
    if is_same(&before, &after) {
        Replayed::Same
    } else {
        Replayed::Changed(Box::new(Change { before, after }))
    }
}

fn is_as_recorded(now: &Decision, recorded: &Recorded) -> bool {
    now.verdict == recorded.verdict
        && now.code == recorded.code
        && recorded.effect.is_none_or(|effect| now.effect == Some(effect))
}

/// Whether two decisions are one, as far as both say.
fn is_same(before: &Decision, after: &Decision) -> bool {
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
fn blind_spot(rules: &RuleSet, past: &Past) -> Option<(String, Vec<String>)> {
    let whole = is_redacted(&past.arguments) && !past.arguments.is_object();
    let names = redacted_names(&past.arguments);
    if !whole && names.is_empty() {
        return None;
    }
    let matching = rules.matching(&past.input.tool).into_iter().filter_map(|index| rules.rules().get(index));
    matching.into_iter().find_map(|rule| {
        let reads = rule.when.as_ref()?.reads();
        let hidden: Vec<String> = names.iter().filter(|name| reads.reads(name)).cloned().collect();
        let touched =
            !hidden.is_empty() || (whole && reads != crate::rules::Reads::Named(Default::default()));
        touched.then(|| (rule.name.0.clone(), hidden))
    })
}

/// What a law makes of a call.
fn decide(config: &Config, input: &ExplainInput) -> Decision {
    let tool = tool_of(config, input);
    let mode = input.mode.unwrap_or(config.gateway.mode);
    let way = input.way.unwrap_or(Way::Direct);
    let spoken = spoken(input, way);
    let heard = spoken.as_ref().map_or_else(|_| Spoken::default(), Clone::clone);
    let (_, rules) = resolve(config, input, &tool, mode, &heard, way.door());
    let (classified, confirm, strength) = gate::outlook(&tool, &rules);
    let judged = match &spoken {
        Ok(spoken) => judge(config, input, &tool, mode, way, spoken),
        Err(refusal) => Judged::no(Refusal::clone(refusal)),
    };
    let refusal = judged.refusal.as_ref();
    Decision {
        verdict: judged.verdict,
        code: refusal.map(|refusal| refusal.code.as_str().to_owned()),
        effect: Some(classified.effect),
        confirm: Some(confirm),
        strength: Some(strength),
        rule: deciding_rule(refusal, &rules),
        message: refusal.map(|refusal| refusal.message.clone()),
    }
}
