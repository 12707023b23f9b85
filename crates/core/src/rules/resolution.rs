//! What the rules say of one call, field by field, with the rule that decided each.

use std::time::Duration;

use serde_json::{Value, json};

use super::condition::{Facts, World};
use super::{Rule, RuleName, RuleSet, Unlisted};
use crate::canonical;
use crate::confirm::{Kind, Strength};
use crate::digest::{Digest, Domain};
use crate::duration::Rate;
use crate::effect::Effect;
use crate::preview::Style;
use crate::profile::{StrengthDefaults, StrengthOrigin};
use crate::role::Role;
use crate::words::words;

words! {
    /// The fields a rule may decide.
    pub enum Field("rule field") {
        /// `effect`
        Effect = "effect",
        /// `confirm`
        Confirm = "confirm",
        /// `type_field`
        TypeField = "type_field",
        /// `strength`
        Strength = "strength",
        /// `preview`
        Preview = "preview",
        /// `role`
        Role = "role",
        /// `deny`
        Deny = "deny",
        /// `allow`
        Allow = "allow",
        /// `limit`
        Limit = "limit",
        /// `redact`
        Redact = "redact",
        /// `timeout`
        Timeout = "timeout",
    }
}

/// Which rule decided a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecidedBy {
    /// The field.
    pub field: Field,
    /// The rule.
    pub rule: RuleName,
}

/// A rule whose condition could not be evaluated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the condition of rule `{rule}` failed: {why}")]
pub struct RuleFault {
    /// The rule.
    pub rule: RuleName,
    /// What went wrong.
    pub why: String,
}

/// What the rules say of a call.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Resolution {
    /// What the tool does.
    pub effect: Option<Effect>,
    /// Which second step.
    pub confirm: Option<Kind>,
    /// Whose value is typed.
    pub type_field: Option<String>,
    /// Who has to agree.
    pub strength: Option<Strength>,
    /// Where the preview comes from.
    pub preview: Option<Style>,
    /// Who may call it.
    pub role: Option<Role>,
    /// Why it is denied: the first matching deny.
    pub deny: Option<String>,
    /// Whether a rule allows it by name.
    pub allow: Option<bool>,
    /// How often, and under which rule.
    pub limit: Option<(RuleName, Rate)>,
    /// Argument paths kept out of records: of all matching rules, so that no rule can uncover another's.
    pub redact: Vec<String>,
    /// How long a call may take.
    pub timeout: Option<Duration>,
    /// Who decided what.
    pub decided: Vec<DecidedBy>,
    /// The first condition that failed.
    pub fault: Option<RuleFault>,
    /// Whether tools no rule allows are denied.
    pub closed: bool,
    /// What decides the strength where no rule does.
    pub strengths: StrengthDefaults,
}

impl Resolution {
    /// The rule that decided a field.
    pub fn rule_for(&self, field: Field) -> Option<&RuleName> {
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
    pub fn strength_for(&self, effect: Effect) -> (Strength, StrengthOrigin) {
        match self.strength {
            Some(strength) => (strength, StrengthOrigin::Rule),
            None => self.strengths.strength(effect, self.kind_for(effect)),
        }
    }

    /// The digest of the decision: plans die when it changes, and only then.
    pub fn digest(&self, effect: Effect) -> Digest {
        let preview = self.preview.as_ref().map(|rule| match rule {
            Style::Argument { arg, preview, apply } => {
                json!({"arg": arg, "preview": preview, "apply": apply})
            }
            Style::Companion { tool, digest } => json!({"tool": tool, "digest": digest}),
            Style::Command(command) => command.shown(),
            Style::Computed => Value::Bool(false),
        });
        let decision = json!({
            "effect": effect,
            "confirm": self.confirm,
            "type_field": self.type_field,
            // The strength in force, wherever it comes from: a plan made under a softer profile ends with it.
            "strength": self.strength_for(effect).0,
            "preview": preview,
            "role": self.role,
        });
        Digest::of(Domain::Policy, canonical::to_string(&decision).as_bytes())
    }

    fn take(&mut self, rule: &Rule) {
        fn first<T: Clone>(slot: &mut Option<T>, given: Option<&T>) -> bool {
            match (&slot, given) {
                (None, Some(value)) => {
                    *slot = Some(value.clone());
                    true
                }
                (Some(_), _) | (None, None) => false,
            }
        }
        let limit = rule.limit.map(|rate| (rule.name.clone(), rate));
        let taken = [
            (Field::Effect, first(&mut self.effect, rule.effect.as_ref())),
            (Field::Confirm, first(&mut self.confirm, rule.confirm.as_ref())),
            (Field::TypeField, first(&mut self.type_field, rule.type_field.as_ref())),
            (Field::Strength, first(&mut self.strength, rule.strength.as_ref())),
            (Field::Preview, first(&mut self.preview, rule.preview.as_ref())),
            (Field::Role, first(&mut self.role, rule.role.as_ref())),
            (Field::Deny, first(&mut self.deny, rule.deny.as_ref())),
            (Field::Allow, first(&mut self.allow, rule.allow.as_ref())),
            (Field::Limit, first(&mut self.limit, limit.as_ref())),
            (Field::Timeout, first(&mut self.timeout, rule.timeout.as_ref())),
        ];
        let new: Vec<String> =
            rule.redact.iter().filter(|path| !self.redact.contains(path)).cloned().collect();
        if !new.is_empty() && self.redact.is_empty() {
            self.decided.push(DecidedBy { field: Field::Redact, rule: rule.name.clone() });
        }
        self.redact.extend(new);
        let fields = taken.into_iter().filter(|(_, taken)| *taken);
        self.decided.extend(fields.map(|(field, _)| DecidedBy { field, rule: rule.name.clone() }));
    }
}

pub(super) fn resolve(rules: &RuleSet, facts: &Facts<'_>) -> Resolution {
    let mut resolution = Resolution {
        closed: rules.unlisted() == Unlisted::Deny,
        strengths: rules.strengths(),
        ..Resolution::default()
    };
    let mut world = None;
    for rule in rules.matching(facts.name).into_iter().filter_map(|index| rules.rules().get(index)) {
        let holds = match &rule.when {
            None => Ok(true),
            Some(condition) => condition.holds(world.get_or_insert_with(|| World::of(facts))),
        };
        match holds {
            Ok(true) => resolution.take(rule),
            Ok(false) => {}
            Err(why) => {
                resolution.fault.get_or_insert_with(|| RuleFault { rule: rule.name.clone(), why });
            }
        }
    }
    resolution
}
