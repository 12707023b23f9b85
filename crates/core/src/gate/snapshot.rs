//! What the gate looks at besides the call: the law and the state of the world at one moment, read before, never during.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Map, Value};

use crate::confirm::Held;
use crate::duration::Rate;
use crate::grant::Grant;
use crate::ids::PrincipalId;
use crate::intent::Strictness;
use crate::mode::Mode;
use crate::redact::Redactor;
use crate::rules::{RuleName, RuleSet};
use crate::tool::Tool;

/// Whether a principal's writes go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Writes {
    /// They do.
    Open,
    /// Three rejections in ten minutes stopped them.
    Paused,
}

/// How often rules were used lately.
pub trait Usage {
    /// How long to wait until one more call fits, or none if it fits now.
    fn wait(&self, rule: &RuleName, principal: &PrincipalId, rate: Rate, now: Timestamp) -> Option<Duration>;
}

/// Nothing was used.
#[derive(Clone, Copy, Debug)]
pub struct NoLimits;

impl Usage for NoLimits {
    fn wait(&self, _: &RuleName, _: &PrincipalId, _: Rate, _: Timestamp) -> Option<Duration> {
        None
    }
}

/// One way in which arguments miss a schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchemaFault {
    /// A pointer to the place, empty for the whole.
    pub field: String,
    /// What is wrong there.
    pub why: String,
}

impl std::fmt::Display for SchemaFault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.field.as_str() {
            "" => f.write_str(&self.why),
            field => write!(f, "`{field}` {}", self.why),
        }
    }
}

/// Checks arguments against a tool's input schema.
pub trait Schema {
    /// Every miss, none if they fit. A schema that can't be used is a miss.
    fn check(&self, tool: &Tool, arguments: &Map<String, Value>) -> Vec<SchemaFault>;
}

/// Every object fits: for explanations without a catalogue.
#[derive(Clone, Copy, Debug)]
pub struct NoSchema;

impl Schema for NoSchema {
    fn check(&self, _: &Tool, _: &Map<String, Value>) -> Vec<SchemaFault> {
        Vec::new()
    }
}

/// The law and the world at one moment.
#[derive(Clone, Copy)]
pub struct Snapshot<'a> {
    /// The operator's rules.
    pub rules: &'a RuleSet,
    /// Whether annotations that contradict the intent refuse.
    pub strictness: Strictness,
    /// The configured default mode.
    pub configured_mode: Mode,
    /// What `set_mode` left on the session.
    pub session_mode: Option<Mode>,
    /// The plan found by the token the call brings.
    pub held: Option<&'a Held>,
    /// Grants that may cover the call.
    pub grants: &'a [Grant],
    /// How often rules were used.
    pub usage: &'a dyn Usage,
    /// Whether the principal's writes go on.
    pub writes: Writes,
    /// How arguments are checked.
    pub schema: &'a dyn Schema,
    /// What replaces secrets in records.
    pub redactor: &'a Redactor,
}
