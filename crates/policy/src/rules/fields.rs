//! The table of rule fields. A new field is one row here, its form in `config/src/rule.rs`, and the code that obeys it;
//! reading, merging, linting, explaining and the page follow from the row.

use std::time::Duration;

use serde_json::{Value, json};

use super::{Condition, RuleFault, RuleName};
use crate::confirm::{ApprovalStrength, Kind};
use crate::digest::Digest;
use crate::duration::RateLimit;
use crate::effect::Effect;
use crate::preview::PreviewStyle;
use crate::profile::StrengthDefaults;
use crate::role::Role;
use crate::words::words;

/// Which rule decided a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecidedBy {
    pub field: RuleField,
    pub rule: RuleName,
}

macro_rules! rule_fields {
    ($($(#[$doc:meta])* $variant:ident, $field:ident: $type:ty, $key:literal, when_denied: $when_denied:literal;)+) => {
        words! {
            /// The fields a rule may decide.
            pub enum RuleField("rule field") { $($(#[$doc])* $variant = $key,)+ }
        }

        impl RuleField {
            /// Whether the field still has a meaning for a call that is denied.
            pub const fn matters_when_denied(self) -> bool {
                match self { $(Self::$variant => $when_denied,)+ }
            }

            /// Whether the values of all matching rules count, not only the first.
            pub const fn adds_up(self) -> bool {
                match self { $(Self::$variant => <$type as FieldValue>::ADDS_UP,)+ }
            }
        }

        /// One rule as written.
        #[derive(Clone, Debug, PartialEq)]
        pub struct Rule {
            /// Where it is written, such as `countersign.toml:31`.
            pub name: RuleName,
            /// Globs over `upstream:tool`, any of which matches.
            pub globs: Vec<String>,
            pub when: Option<Condition>,
            /// The accepted fingerprints of the tool; any if empty. The rule ends when the tool changes.
            pub fingerprints: Vec<Digest>,
            $($(#[$doc])* pub $field: $type,)+
        }

        impl Rule {
            /// A rule that matches and decides nothing yet.
            pub fn named(name: impl Into<String>, globs: &[&str]) -> Self {
                Self {
                    name: RuleName(name.into()),
                    globs: globs.iter().map(|glob| (*glob).to_owned()).collect(),
                    when: None,
                    fingerprints: Vec::new(),
                    $($field: Default::default(),)+
                }
            }

            /// The value of a field as the page and explanations show it; none if the rule does not set it.
            pub fn value(&self, field: RuleField) -> Option<Value> {
                match field { $(RuleField::$variant => self.$field.shown(),)+ }
            }

            pub fn sets(&self, field: RuleField) -> bool {
                match field { $(RuleField::$variant => self.$field.is_set(),)+ }
            }

            /// Whether a later rule's value of a field has no effect after this rule's.
            pub fn overrides(&self, field: RuleField, later: &Rule) -> bool {
                match field { $(RuleField::$variant => self.$field.overrides(&later.$field),)+ }
            }
        }

        /// What the rules say of a call.
        #[derive(Clone, Debug, Default, PartialEq)]
        pub struct RuleResolution {
            $($(#[$doc])* pub $field: $type,)+
            pub decided: Vec<DecidedBy>,
            pub fault: Option<RuleFault>,
            /// Whether tools that no rule allows are denied.
            pub closed: bool,
            /// The strength where no rule decides it.
            pub strengths: StrengthDefaults,
        }

        impl RuleResolution {
            pub fn value(&self, field: RuleField) -> Option<Value> {
                match field { $(RuleField::$variant => self.$field.shown(),)+ }
            }

            /// Adds the next matching rule. Rules come in file order, so a value that is set already stays.
            pub(super) fn merge(&mut self, rule: &Rule) {
                $(if self.$field.merge(&rule.$field) {
                    self.decided.push(DecidedBy { field: RuleField::$variant, rule: rule.name.clone() });
                })+
            }
        }
    };
}

rule_fields! {
    Effect, effect: Option<Effect>, "effect", when_denied: true;
    /// The kind of second step.
    Confirm, confirm: Option<Kind>, "confirm", when_denied: false;
    /// The argument whose value a person types.
    TypeField, type_field: Option<String>, "type_field", when_denied: false;
    Strength, strength: Option<ApprovalStrength>, "strength", when_denied: false;
    /// Where the preview comes from.
    Preview, preview: Option<PreviewStyle>, "preview", when_denied: false;
    /// Who may call the tool. Checked before rules deny, so it changes the answer to a denied call.
    Role, role: Option<Role>, "role", when_denied: true;
    /// Why the call is denied. Every matching `deny` denies; the first gives the reason.
    Deny, deny: Option<String>, "deny", when_denied: false;
    /// Whether the tool is allowed by name.
    Allow, allow: Option<bool>, "allow", when_denied: false;
    /// How often the tool may be called.
    Limit, limit: Option<RateLimit>, "limit", when_denied: false;
    /// Argument paths kept out of records. The paths of all matching rules count, so that no rule uncovers another's.
    Redact, redact: Vec<String>, "redact", when_denied: true;
    /// How long a call may take.
    Timeout, timeout: Option<Duration>, "timeout", when_denied: false;
}

/// How a field's values of several rules become one.
trait FieldValue {
    const ADDS_UP: bool;
    fn is_set(&self) -> bool;
    /// Takes over a later rule's value; returns whether that rule decided the field.
    fn merge(&mut self, later: &Self) -> bool;
    fn overrides(&self, later: &Self) -> bool;
    fn shown(&self) -> Option<Value>;
}

impl<T: Clone + ShownValue> FieldValue for Option<T> {
    const ADDS_UP: bool = false;

    fn is_set(&self) -> bool {
        self.is_some()
    }

    fn merge(&mut self, later: &Self) -> bool {
        let decides = self.is_none() && later.is_some();
        if decides {
            self.clone_from(later);
        }
        decides
    }

    fn overrides(&self, _: &Self) -> bool {
        self.is_some()
    }

    fn shown(&self) -> Option<Value> {
        self.as_ref().map(ShownValue::shown)
    }
}

impl FieldValue for Vec<String> {
    const ADDS_UP: bool = true;

    fn is_set(&self) -> bool {
        !self.is_empty()
    }

    fn merge(&mut self, later: &Self) -> bool {
        let decides = self.is_empty() && !later.is_empty();
        let new: Vec<String> = later.iter().filter(|path| !self.contains(path)).cloned().collect();
        self.extend(new);
        decides
    }

    fn overrides(&self, later: &Self) -> bool {
        !self.is_empty() && later.iter().all(|path| self.contains(path))
    }

    fn shown(&self) -> Option<Value> {
        (!self.is_empty()).then(|| json!(self))
    }
}

/// A value as the page and explanations show it.
trait ShownValue {
    fn shown(&self) -> Value;
}

macro_rules! shown_as_json {
    ($($type:ty),+) => {
        $(impl ShownValue for $type {
            fn shown(&self) -> Value {
                json!(self)
            }
        })+
    };
}
shown_as_json!(Effect, Kind, String, ApprovalStrength, Role, bool);

impl ShownValue for RateLimit {
    fn shown(&self) -> Value {
        json!(self.to_string())
    }
}

impl ShownValue for Duration {
    fn shown(&self) -> Value {
        json!(format!("{}ms", self.as_millis()))
    }
}

impl ShownValue for PreviewStyle {
    fn shown(&self) -> Value {
        self.written().unwrap_or_else(|| json!("computed"))
    }
}
