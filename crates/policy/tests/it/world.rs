//! Small worlds for tests: a tool, a caller, a snapshot, with every knob at a plain value.

use std::sync::Arc;

use countersign_policy::call::{Arguments, Caller, CallerScopes, CatalogStatus, ToolCall};
use countersign_policy::confirm::{ApprovalStrength, ConfirmInput, PendingPlan};
use countersign_policy::gate::{NoLimits, NoSchema, PolicySnapshot, Verdict, WriteStatus, judge};
use countersign_policy::grant::Grant;
use countersign_policy::ids::FullName;
use countersign_policy::intent::{CallEntryPoint, CallToolVariant, IntentStrictness, UncheckedIntent};
use countersign_policy::mode::Mode;
use countersign_policy::profile::StrengthDefaults;
use countersign_policy::record::Source;
use countersign_policy::redact::Redactor;
use countersign_policy::role::Role;
use countersign_policy::rules::{Rule, RuleSet, UnlistedToolPolicy};
use countersign_policy::tool::Tool;
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
    pub(crate) strictness: IntentStrictness,
    pub(crate) configured_mode: Mode,
    pub(crate) session_mode: Option<Mode>,
    pub(crate) pending_plan: Option<PendingPlan>,
    pub(crate) grants: Vec<Grant>,
    pub(crate) writes: WriteStatus,
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
            rules: RuleSet::compile(rules, UnlistedToolPolicy::Govern).unwrap(),
            strictness: IntentStrictness::Strict,
            configured_mode: Mode::Ask,
            session_mode: Some(Mode::Execute),
            pending_plan: None,
            grants: Vec::new(),
            writes: WriteStatus::Open,
            redactor: Redactor::new(*b"salt"),
        }
    }

    /// The same, where an operator lets the agent's own token run writes: for tests of the token protocol.
    pub(crate) fn writes_by_caller(mut self) -> Self {
        let strengths =
            StrengthDefaults { write: Some(ApprovalStrength::Caller), ..StrengthDefaults::default() };
        self.rules = self.rules.with_strengths(strengths);
        self
    }

    pub(crate) fn judge(&self, call: ToolCall, now: Timestamp) -> Verdict {
        let snapshot = PolicySnapshot {
            rules: &self.rules,
            strictness: self.strictness,
            configured_mode: self.configured_mode,
            session_mode: self.session_mode,
            pending_plan: self.pending_plan.as_ref(),
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
        request_id: None,
        source: Source::Mcp,
        host: None,
        scopes: CallerScopes::all(),
    }
}

/// A call of a tool through a call tool, with the intent that matches it.
pub(crate) fn call(tool: &Arc<Tool>, entry_point: CallEntryPoint, arguments: &str) -> ToolCall {
    let intent = match entry_point {
        CallEntryPoint::Router(variant) => json!({"intent": {"operation_type": variant.operation()}}),
        CallEntryPoint::Direct => json!({}),
    };
    ToolCall {
        caller: agent(),
        name: FullName { upstream: tool.upstream.clone(), tool: tool.name.clone() },
        catalog_status: CatalogStatus::Accepted(Arc::clone(tool)),
        arguments: Arguments::parse(arguments.as_bytes()).unwrap(),
        entry_point,
        intent: UncheckedIntent::read(intent.as_object().unwrap()).unwrap(),
        mode: None,
        confirm_input: ConfirmInput::default(),
    }
}

/// The router door of a variant.
pub(crate) fn router(variant: CallToolVariant) -> CallEntryPoint {
    CallEntryPoint::Router(variant)
}

/// A verdict in a few letters, for tables.
pub(crate) fn short(verdict: &Verdict) -> String {
    match verdict {
        Verdict::Go(permit) if permit.warnings().is_empty() => "go".into(),
        Verdict::Go(_) => "go+warn".into(),
        Verdict::Redeem(_) => "redeem".into(),
        Verdict::Hold(draft) => format!("hold {}/{}", draft.requirement.kind, draft.requirement.strength),
        Verdict::Preview(_) => "preview".into(),
        Verdict::Explain(_) => "explain".into(),
        Verdict::Refuse(refused) => refused.refusal.code.as_str().trim_start_matches("E_").to_lowercase(),
    }
}
