//! What the rules say of one call, field by field, with the rule that decided each.

use serde_json::{Value, json};

use super::condition::{ConditionFacts, World};
use super::{RuleField, RuleName, RuleResolution, RuleSet, UnlistedToolPolicy};
use crate::canonical;
use crate::confirm::{ApprovalStrength, Kind};
use crate::digest::{Digest, DigestDomain};
use crate::duration::RateLimit;
use crate::effect::Effect;
use crate::profile::StrengthOrigin;
use crate::tool::Tool;

/// A rule whose condition could not be evaluated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the condition of rule `{rule}` failed: {why}")]
pub struct RuleFault {
    pub rule: RuleName,
    pub why: String,
}

impl RuleResolution {
    /// The rule that decided a field.
    pub fn rule_for(&self, field: RuleField) -> Option<&RuleName> {
        self.decided.iter().find(|decided| decided.field == field).map(|decided| &decided.rule)
    }

    /// Why the call is denied, if it is, and under which of the code's reasons.
    pub fn denial(&self) -> Option<(String, &'static str)> {
        match (&self.deny, self.allow, self.closed) {
            (Some(why), _, _) => Some((why.clone(), "rule_denied")),
            (None, Some(false), _) => Some(("a rule does not allow it".to_owned(), "not_allowed")),
            (None, None, true) => {
                Some(("no rule allows it, and unlisted tools are denied".to_owned(), "not_allowed"))
            }
            (None, Some(true), _) | (None, None, false) => None,
        }
    }

    /// The kind of second step: a rule's, else the effect's own.
    pub fn kind_for(&self, effect: Effect) -> Kind {
        self.confirm.unwrap_or(match effect {
            Effect::Read => Kind::None,
            Effect::Write => Kind::Simple,
            Effect::Destructive => Kind::Preview,
        })
    }

    /// Who has to agree, and what says so: a rule, else `[confirm] strength`, else the profile.
    pub fn strength_for(&self, effect: Effect) -> (ApprovalStrength, StrengthOrigin) {
        match self.strength {
            Some(strength) => (strength, StrengthOrigin::Rule),
            None => self.strengths.strength(effect, self.kind_for(effect)),
        }
    }

    /// The digest of the decision: plans die when it changes, and only then.
    pub fn digest(&self, effect: Effect) -> Digest {
        let preview = self.preview.as_ref().map(|style| style.written().unwrap_or(Value::Bool(false)));
        let decision = json!({
            "effect": effect,
            "confirm": self.confirm,
            "type_field": self.type_field,
            // The strength in force, wherever it comes from: a plan made under a softer profile ends with it.
            "strength": self.strength_for(effect).0,
            "preview": preview,
            "role": self.role,
        });
        Digest::of(DigestDomain::Policy, canonical::to_string(&decision).as_bytes())
    }

    /// The rate a call counts against, and the rule that says so.
    pub fn limit_with_rule(&self) -> Option<(RuleName, RateLimit)> {
        Some((self.rule_for(RuleField::Limit)?.clone(), self.limit?))
    }
}

pub(super) fn resolve(rules: &RuleSet, facts: &ConditionFacts<'_>) -> RuleResolution {
    let mut resolution = RuleResolution {
        closed: rules.unlisted() == UnlistedToolPolicy::Deny,
        strengths: rules.strengths(),
        ..RuleResolution::default()
    };
    // Conditions are rare and their variables cost a conversion of all arguments: build them on first use.
    let mut world = None;
    for rule in rules.matching(facts.name).into_iter().filter_map(|index| rules.rules().get(index)) {
        let of_another = |tool: &Tool| !rule.fingerprints.contains(&tool.fingerprint);
        // A rule pinned to fingerprints was accepted for that definition. A changed or unknown tool must not profit from it.
        if !rule.fingerprints.is_empty() && facts.tool.is_none_or(of_another) {
            continue;
        }
        let holds = match &rule.when {
            None => Ok(true),
            Some(condition) => condition.holds(world.get_or_insert_with(|| World::of(facts, rules.paths()))),
        };
        match holds {
            Ok(true) => resolution.merge(rule),
            Ok(false) => {}
            // Go on after a failed condition: a later rule may still redact or deny, and both must happen.
            Err(why) => {
                resolution.fault.get_or_insert_with(|| RuleFault { rule: rule.name.clone(), why });
            }
        }
    }
    resolution
}
