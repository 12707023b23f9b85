//! Small worlds for tests: a tool, a caller, a snapshot, with every knob at a plain value.

use std::sync::Arc;

use countersign_core::call::{Arguments, Call, Caller, Scopes, Standing};
use countersign_core::confirm::{Brought, Held, Strength};
use countersign_core::gate::{NoLimits, NoSchema, Snapshot, Verdict, Writes, judge};
use countersign_core::grant::Grant;
use countersign_core::ids::FullName;
use countersign_core::intent::{Door, Spoken, Strictness, Variant};
use countersign_core::mode::Mode;
use countersign_core::profile::StrengthDefaults;
use countersign_core::record::Source;
use countersign_core::redact::Redactor;
use countersign_core::role::Role;
use countersign_core::rules::{Rule, RuleSet, Unlisted};
use countersign_core::tool::Tool;
use jiff::Timestamp;
use serde_json::{Value, json};

/// A moment, in seconds of the epoch.
pub(crate) fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

/// A tool with these annotations.
pub(crate) fn tool(name: &str, annotations: Value) -> Arc<Tool> {
    let definition = json!({"name": name, "description": "a tool", "annotations": annotations});
    Arc::new(Tool::read("github".into(), definition.as_object().unwrap().clone()).unwrap())
}

/// Everything a judgement looks at.
pub(crate) struct World {
    pub(crate) rules: RuleSet,
    pub(crate) strictness: Strictness,
    pub(crate) configured_mode: Mode,
    pub(crate) session_mode: Option<Mode>,
    pub(crate) held: Option<Held>,
    pub(crate) grants: Vec<Grant>,
    pub(crate) writes: Writes,
    pub(crate) redactor: Redactor,
}

impl World {
    /// No rules, strict, execute by session.
    pub(crate) fn new() -> Self {
        Self::with_rules(Vec::new())
    }

    /// These rules, strict, execute by session.
    pub(crate) fn with_rules(rules: Vec<Rule>) -> Self {
        Self {
            rules: RuleSet::compile(rules, Unlisted::Govern).unwrap(),
            strictness: Strictness::Strict,
            configured_mode: Mode::Ask,
            session_mode: Some(Mode::Execute),
            held: None,
            grants: Vec::new(),
            writes: Writes::Open,
            redactor: Redactor::new(*b"salt"),
        }
    }

    /// The same, where an operator lets the agent's own token run writes: for tests of the token protocol.
    pub(crate) fn writes_by_caller(mut self) -> Self {
        let strengths = StrengthDefaults { write: Some(Strength::Caller), ..StrengthDefaults::default() };
        self.rules = self.rules.with_strengths(strengths);
        self
    }

    pub(crate) fn judge(&self, call: Call, now: Timestamp) -> Verdict {
        let snapshot = Snapshot {
            rules: &self.rules,
            strictness: self.strictness,
            configured_mode: self.configured_mode,
            session_mode: self.session_mode,
            held: self.held.as_ref(),
            grants: &self.grants,
            usage: &NoLimits,
            writes: self.writes,
            schema: &NoSchema,
            redactor: &self.redactor,
        };
        judge(call, &snapshot, now)
    }
}

/// An agent's line.
pub(crate) fn agent() -> Caller {
    Caller {
        principal: "agent".into(),
        credential: None,
        role: Role::Agent,
        session: "s1".into(),
        source: Source::Mcp,
        scopes: Scopes::all(),
    }
}

/// A call of a tool through a door, with the intent that fits the door.
pub(crate) fn call(tool: &Arc<Tool>, door: Door, arguments: &str) -> Call {
    let intent = match door {
        Door::Router(variant) => json!({"intent": {"operation_type": variant.operation()}}),
        Door::Direct => json!({}),
    };
    Call {
        caller: agent(),
        name: FullName { upstream: tool.upstream.clone(), tool: tool.name.clone() },
        standing: Standing::Accepted(Arc::clone(tool)),
        arguments: Arguments::parse(arguments.as_bytes()).unwrap(),
        door,
        intent: Spoken::read(intent.as_object().unwrap()).unwrap(),
        mode: None,
        brought: Brought::default(),
    }
}

/// The router door of a variant.
pub(crate) fn router(variant: Variant) -> Door {
    Door::Router(variant)
}

/// A verdict in a few letters, for tables.
pub(crate) fn short(verdict: &Verdict) -> String {
    match verdict {
        Verdict::Go(permit) if permit.warnings().is_empty() => "go".into(),
        Verdict::Go(_) => "go+warn".into(),
        Verdict::Redeem(_) => "redeem".into(),
        Verdict::Hold(draft) => format!("hold {}/{}", draft.need.kind, draft.need.strength),
        Verdict::Preview(_) => "preview".into(),
        Verdict::Explain(_) => "explain".into(),
        Verdict::Refuse(refused) => refused.refusal.code.as_str().trim_start_matches("E_").to_lowercase(),
    }
}
