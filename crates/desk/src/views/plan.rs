//! One plan as programs are told of it. The text to be typed is not in it: it is for a person's eyes.

use countersign_core::confirm::{Approval, Kind, PlanState};
use countersign_core::plan::{Plan, Preview, Step, StoredIntent};
use countersign_core::preview::blocks;
use countersign_core::redact::Redactor;
use countersign_store::PlanRow;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::exact;

/// Where a plan stands at this moment: one whose time ran out is expired, whether or not anyone has noted it.
pub fn plan_state(row: &PlanRow, now: Timestamp) -> PlanState {
    let open = matches!(row.state, PlanState::Pending | PlanState::Approved);
    if open && row.plan.expires <= now { PlanState::Expired } else { row.state }
}

/// What a plan needs before it may run.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "Confirm")]
pub struct ConfirmView {
    /// The kind of second step: none, simple, preview, type.
    pub kind: String,
    /// Who has to agree: caller, host, human.
    pub strength: String,
    /// The question a person is asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
    /// The argument whose value has to be typed, or `tool` for the tool's own name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub type_field: Option<String>,
}

/// What was shown to whoever decides.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "Preview")]
pub struct PreviewView {
    /// Where it came from: argument, companion, command, computed.
    pub source: String,
    /// Over the part of it that must not change.
    pub digest: String,
    /// What is shown, in full.
    pub shown: Value,
}

/// One step of a plan of several.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "Step")]
pub struct StepView {
    /// `upstream:tool`.
    pub tool: String,
    /// read, write or destructive.
    pub effect: String,
    /// What it would need alone.
    pub confirm: ConfirmView,
    /// What the agent declared.
    pub intent: Value,
    /// Its arguments, without what must not be shown.
    pub arguments: Value,
    /// What was shown.
    pub preview: PreviewView,
}

/// A plan and what became of it.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "Plan")]
pub struct PlanView {
    /// Its id.
    pub plan_id: String,
    /// pending, approved, rejected, cancelled, expired, executing, done, failed, outcome_unknown.
    pub state: String,
    /// `upstream:tool`.
    pub tool: String,
    /// read, write or destructive.
    pub effect: String,
    /// What it needs.
    pub confirm: ConfirmView,
    /// Who asks.
    pub principal: String,
    /// In which session.
    pub session: String,
    /// What the agent declared.
    pub intent: Value,
    /// The rule that asks for the confirm; none where it is usual for the effect.
    pub rule: Option<String>,
    /// The steps of a plan of several.
    pub steps: Vec<StepView>,
    /// Its arguments in full, without what must not be shown.
    pub arguments: Value,
    /// Members of the request's `_meta` that are sent with it and are part of its hash.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub meta: Option<Value>,
    /// What was shown.
    pub preview: PreviewView,
    /// What the preview says against it: where there is anything, nobody can approve it.
    pub blocks: Vec<String>,
    /// What it is bound by.
    pub plan_hash: String,
    /// The tool's definition it is bound to.
    pub fingerprint: String,
    /// The rules it is bound to: with it, anyone can compute the hash again.
    pub policy_digest: String,
    /// When it was drafted.
    pub created_at: String,
    /// Until when it can be decided and run.
    pub expires_at: String,
    /// Who agreed, how, and how strongly.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Value>")]
    pub approval: Option<Approval>,
    /// What was written with a rejection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// When it was decided.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decided_at: Option<String>,
    /// The row that let its call out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ledger_id: Option<String>,
    /// The code of what went wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// What came back, unless it was too long to keep.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Value>")]
    pub result: Option<Box<RawValue>>,
    /// How long what came back was, in bytes, where it was too long to keep.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result_bytes: Option<u64>,
    /// When its call ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<String>,
}

/// The plan for programs.
pub fn plan(row: &PlanRow, redactor: &Redactor, now: Timestamp) -> PlanView {
    let plan = &row.plan;
    let arguments = redactor.clean(plan.arguments.value(), &plan.redact);
    // As it came: a program that reads it gets every digit.
    let result = row.result.clone().and_then(|text| RawValue::from_string(text).ok());
    PlanView {
        plan_id: plan.id.to_string(),
        state: plan_state(row, now).to_string(),
        tool: plan.tool.to_string(),
        effect: plan.effect.to_string(),
        confirm: ConfirmView {
            kind: plan.need.kind.to_string(),
            strength: plan.need.strength.to_string(),
            prompt: Some(plan.need.prompt(&plan.tool)),
            type_field: type_field(plan),
        },
        principal: plan.principal.to_string(),
        session: plan.session.to_string(),
        intent: intent(plan.intent.as_ref(), redactor),
        rule: plan.rule.clone(),
        steps: steps(plan, &arguments, redactor),
        arguments,
        meta: plan.meta.as_ref().map(|meta| redactor.clean(meta.value(), &[])),
        preview: preview(&plan.preview),
        blocks: blocks(plan),
        plan_hash: plan.hash.hex(),
        fingerprint: plan.fingerprint.hex(),
        policy_digest: plan.policy_digest.hex(),
        created_at: exact(plan.created),
        expires_at: exact(plan.expires),
        approval: row.approval.clone(),
        note: row.note.clone(),
        decided_at: row.decided.map(exact),
        ledger_id: row.ledger_id.as_ref().map(ToString::to_string),
        code: row.code.clone(),
        result_bytes: row.result_bytes.filter(|_| result.is_none()),
        result,
        ended_at: row.ended.map(exact),
    }
}

/// Which argument's value is to be typed, by name only: the phrase itself is in no answer.
fn type_field(plan: &Plan) -> Option<String> {
    let typed = plan.need.typed.as_deref().filter(|_| plan.need.kind == Kind::Type)?;
    let is_it = |value: &Value| match value {
        Value::String(text) => text == typed,
        Value::Number(number) => number.to_string() == typed,
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => false,
    };
    let names = |arguments: &serde_json::Map<String, Value>| {
        arguments.iter().find(|(_, value)| is_it(value)).map(|(name, _)| name.clone())
    };
    let in_steps = || {
        let steps = plan.steps.iter().enumerate().filter(|(_, step)| step.need.kind == Kind::Type);
        let mut fields = steps
            .filter_map(|(number, step)| Some(format!("steps.{number}.{}", names(step.arguments.value())?)));
        fields.next()
    };
    names(plan.arguments.value()).or_else(in_steps).or_else(|| Some("tool".to_owned()))
}

fn preview(preview: &Preview) -> PreviewView {
    PreviewView {
        source: preview.source.to_string(),
        digest: preview.digest.hex(),
        shown: preview.shown.clone(),
    }
}

/// What was declared, without what looks like a secret.
fn intent(intent: Option<&StoredIntent>, redactor: &Redactor) -> Value {
    let clean = intent.cloned().map(|mut intent| {
        intent.reason = intent.reason.map(|reason| redactor.clean_text(&reason));
        intent
    });
    serde_json::to_value(clean).unwrap_or_default()
}

/// The steps of a plan of several. What was left out of the whole is left out of its parts.
fn steps(plan: &Plan, arguments: &Value, redactor: &Redactor) -> Vec<StepView> {
    let step = |(number, step): (usize, &Step)| StepView {
        tool: step.tool.to_string(),
        effect: step.effect.to_string(),
        confirm: ConfirmView {
            kind: step.need.kind.to_string(),
            strength: step.need.strength.to_string(),
            prompt: None,
            type_field: None,
        },
        intent: intent(step.intent.as_ref(), redactor),
        arguments: step_arguments(arguments, number),
        preview: preview(&step.preview),
    };
    plan.steps.iter().enumerate().map(step).collect()
}

/// The arguments of one step, out of the cleaned arguments of the whole.
pub fn step_arguments(arguments: &Value, number: usize) -> Value {
    let own = arguments.get("steps").and_then(|steps| steps.get(number)?.get("args").cloned());
    own.unwrap_or_default()
}
