//! Everything the gate needs besides the call: rules, modes, the pending plan, grants and usage. The caller reads it before the
//! call is judged; the gate fetches nothing itself.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Map, Value};

use crate::confirm::PendingPlan;
use crate::duration::RateLimit;
use crate::grant::Grant;
use crate::ids::PrincipalId;
use crate::intent::IntentStrictness;
use crate::mode::Mode;
use crate::redact::Redactor;
use crate::rules::{RuleName, RuleSet};
use crate::tool::Tool;

/// Whether a principal's writes go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WriteStatus {
    Open,
    /// Three rejections in ten minutes stopped them.
    Paused,
}

/// How often rules were used lately.
pub trait RuleUsage {
    /// How long to wait until one more call fits, or none if it fits now.
    fn wait(
        &self,
        rule: &RuleName,
        principal: &PrincipalId,
        rate: RateLimit,
        now: Timestamp,
    ) -> Option<Duration>;
}

/// Nothing was used.
#[derive(Clone, Copy, Debug)]
pub struct NoLimits;

impl RuleUsage for NoLimits {
    fn wait(&self, _: &RuleName, _: &PrincipalId, _: RateLimit, _: Timestamp) -> Option<Duration> {
        None
    }
}

/// One way in which arguments miss a schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchemaFault {
    /// A pointer to the place, empty for the whole.
    pub field: String,
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
pub trait SchemaChecker {
    /// Every miss, none if they fit. A schema that can't be used is a miss.
    fn check(&self, tool: &Tool, arguments: &Map<String, Value>) -> Vec<SchemaFault>;
}

/// Every object fits: for explanations without a catalogue.
#[derive(Clone, Copy, Debug)]
pub struct NoSchema;

impl SchemaChecker for NoSchema {
    fn check(&self, _: &Tool, _: &Map<String, Value>) -> Vec<SchemaFault> {
        Vec::new()
    }
}

/// The policy and the state of the gateway at one moment.
#[derive(Clone, Copy)]
pub struct PolicySnapshot<'a> {
    pub rules: &'a RuleSet,
    pub strictness: IntentStrictness,
    pub configured_mode: Mode,
    /// What `set_mode` left on the session.
    pub session_mode: Option<Mode>,
    /// The plan found by the token the call brings.
    pub pending_plan: Option<&'a PendingPlan>,
    pub grants: &'a [Grant],
    pub usage: &'a dyn RuleUsage,
    pub writes: WriteStatus,
    pub schema: &'a dyn SchemaChecker,
    /// What replaces secrets in records.
    pub redactor: &'a Redactor,
}
