//! One plan as REST and `--json` return it, without the text that a person has to type.

use countersign_policy::confirm::{Approval, Kind, PlanState};
use countersign_policy::headline::{call_title, title};
use countersign_policy::plan::{Plan, PlanStep, Preview, PreviewSource, StoredIntent};
use countersign_policy::preview::blocks;
use countersign_policy::record::HostInfo;
use countersign_policy::redact::Redactor;
use countersign_store::PlanRow;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::exact;

/// The state of a plan at `now`: one that has run out of time is expired, even if the store does not say so yet.
pub fn plan_state(row: &PlanRow, now: Timestamp) -> PlanState {
    let open = matches!(row.state, PlanState::Pending | PlanState::Approved);
    if open && row.plan.expires <= now { PlanState::Expired } else { row.state }
}

/// What a plan needs before it may run.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "Confirm")]
pub struct ConfirmView {
    /// The kind of confirmation: none, simple, preview, type.
    pub kind: String,
    /// Who has to approve: caller, host, human.
    pub strength: String,
    /// The question a person is asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
    /// The argument whose value has to be typed, or `tool` for the tool's own name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub type_field: Option<String>,
}

/// The preview a decision is based on.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "Preview")]
pub struct PreviewView {
    /// Where it came from: argument, companion, command, computed, when_reached, chained.
    pub source: String,
    /// Over the part that must not change before the call runs.
    pub digest: String,
    pub shown: Value,
}

/// One step of a plan with several.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "Step")]
pub struct StepView {
    /// `upstream:tool`.
    pub tool: String,
    /// read, write or destructive
    pub effect: String,
    /// What the step would need as a plan of its own.
    pub confirm: ConfirmView,
    /// What it does, in words.
    pub title: String,
    /// As the agent declared it.
    pub intent: Value,
    /// With redacted values, in the order of the tool's schema.
    pub arguments: Value,
    /// Arguments that say nothing new: null, the schema's default, or what makes a dry run the real call.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub defaults: Vec<String>,
    pub preview: PreviewView,
}

/// A plan, its decision and its outcome.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "Plan")]
pub struct PlanView {
    pub plan_id: String,
    /// pending, approved, rejected, cancelled, expired, executing, done, failed, outcome_unknown
    pub state: String,
    /// What it does, in words: `Edit cart.js, +1 −1`.
    pub title: String,
    /// `upstream:tool`.
    pub tool: String,
    /// read, write or destructive
    pub effect: String,
    pub confirm: ConfirmView,
    /// Who requested it.
    pub principal: String,
    /// Who requested it, for people: the host and its folder, such as `Claude Code in ~/projects/shop`.
    pub asked_by: String,
    /// The host program `{program, title, version, folder}`, as far as it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Value>")]
    pub host: Option<HostInfo>,
    pub session: String,
    /// As the agent declared it.
    pub intent: Value,
    /// The rule that requires the confirmation; null for the default of the effect.
    pub rule: Option<String>,
    pub steps: Vec<StepView>,
    /// With redacted values, in the order of the tool's schema.
    pub arguments: Value,
    /// Arguments that say nothing new: null, the schema's default, or what makes a dry run the real call.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub defaults: Vec<String>,
    /// Members of the request's `_meta` that are sent with the call and are part of the hash.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub meta: Option<Value>,
    pub preview: PreviewView,
    /// Reasons in the preview that block the plan: nobody can approve it then.
    pub blocks: Vec<String>,
    /// A decision is bound to this hash.
    pub plan_hash: String,
    /// The digest of the tool's definition.
    pub fingerprint: String,
    /// The digest of the rules, one of the inputs of the hash.
    pub policy_digest: String,
    pub created_at: String,
    /// It can be decided and run until then.
    pub expires_at: String,
    /// Until then the agent's own call is held open, and runs the plan itself once it is approved. Left out where no call waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub call_waits_until: Option<String>,
    /// Who approved, over which channel, how strongly, when.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Value>")]
    pub approval: Option<Approval>,
    /// The note of a rejection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decided_at: Option<String>,
    /// The row of its call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ledger_id: Option<String>,
    /// The code of a failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// The result, unless it was too long to store.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Value>")]
    pub result: Option<Box<RawValue>>,
    /// The size in bytes of a result that was too long to store.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<String>,
}

pub fn plan(row: &PlanRow, redactor: &Redactor, now: Timestamp, home: Option<&str>) -> PlanView {
    let plan = &row.plan;
    let arguments = redactor.clean(plan.arguments.value(), &plan.redact);
    // Kept as text, so that numbers keep their digits.
    let result = row.result.clone().and_then(|text| RawValue::from_string(text).ok());
    PlanView {
        plan_id: plan.id.to_string(),
        state: plan_state(row, now).to_string(),
        title: title(plan, redactor),
        tool: plan.tool.to_string(),
        effect: plan.effect.to_string(),
        confirm: ConfirmView {
            kind: plan.requirement.kind.to_string(),
            strength: plan.requirement.strength.to_string(),
            prompt: Some(plan.requirement.prompt(&plan.tool)),
            type_field: type_field(plan),
        },
        principal: plan.principal.to_string(),
        asked_by: plan.asked_by(home),
        host: plan.host.as_deref().cloned(),
        session: plan.session.to_string(),
        intent: intent(plan.intent.as_ref(), redactor),
        rule: plan.rule.clone(),
        steps: steps(plan, &arguments, redactor),
        arguments,
        defaults: Vec::new(),
        meta: plan.meta.as_ref().map(|meta| redactor.clean(meta.value(), &[])),
        preview: preview(&plan.preview),
        blocks: blocks(plan),
        plan_hash: plan.hash.hex(),
        fingerprint: plan.fingerprint.hex(),
        policy_digest: plan.policy_digest.hex(),
        created_at: exact(plan.created),
        expires_at: exact(plan.expires),
        call_waits_until: row.held_until.filter(|_| row.is_held_open(now)).map(exact),
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

/// The name of the argument whose value has to be typed. The value itself must not be in any answer.
fn type_field(plan: &Plan) -> Option<String> {
    let typed = plan.requirement.typed.as_deref().filter(|_| plan.requirement.kind == Kind::Type)?;
    let is_it = |value: &Value| match value {
        Value::String(text) => text == typed,
        Value::Number(number) => number.to_string() == typed,
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => false,
    };
    let names = |arguments: &serde_json::Map<String, Value>| {
        arguments.iter().find(|(_, value)| is_it(value)).map(|(name, _)| name.clone())
    };
    let in_steps = || {
        let steps = plan.steps.iter().enumerate().filter(|(_, step)| step.requirement.kind == Kind::Type);
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

/// The declared intent; secrets in its reason are redacted.
fn intent(intent: Option<&StoredIntent>, redactor: &Redactor) -> Value {
    let clean = intent.cloned().map(|mut intent| {
        intent.reason = intent.reason.map(|reason| redactor.clean_text(&reason));
        intent
    });
    serde_json::to_value(clean).unwrap_or_default()
}

fn steps(plan: &Plan, arguments: &Value, redactor: &Redactor) -> Vec<StepView> {
    let none = Map::new();
    let step = |(number, step): (usize, &PlanStep)| StepView {
        title: call_title(
            &step.tool,
            step_arguments(arguments, number).as_object().unwrap_or(&none),
            &step.preview,
        ),
        tool: step.tool.to_string(),
        effect: step.effect.to_string(),
        confirm: ConfirmView {
            kind: step.requirement.kind.to_string(),
            strength: step.requirement.strength.to_string(),
            prompt: None,
            type_field: None,
        },
        intent: intent(step.intent.as_ref(), redactor),
        arguments: step_arguments(arguments, number),
        defaults: Vec::new(),
        preview: preview(&step.preview),
    };
    plan.steps.iter().enumerate().map(step).collect()
}

impl PlanView {
    /// Arranges the arguments as each tool's own schema lists them; `schema_of` finds it by `upstream:tool`.
    pub fn arrange(mut self, schema_of: impl Fn(&str) -> Option<Value>) -> Self {
        if let Some(schema) = schema_of(&self.tool) {
            (self.arguments, self.defaults) = arranged(&self.arguments, &schema, &self.preview);
        }
        for step in &mut self.steps {
            if let Some(schema) = schema_of(&step.tool) {
                (step.arguments, step.defaults) = arranged(&step.arguments, &schema, &step.preview);
            }
        }
        self
    }
}

/// The arguments in the schema's order, others after them; and the names of those that say nothing new.
fn arranged(arguments: &Value, schema: &Value, preview: &PreviewView) -> (Value, Vec<String>) {
    let (Some(given), Some(properties)) =
        (arguments.as_object(), schema.get("properties").and_then(Value::as_object))
    else {
        return (arguments.clone(), Vec::new());
    };
    let listed = properties.keys().filter(|name| given.contains_key(*name));
    let others = given.keys().filter(|name| !properties.contains_key(*name));
    let member = |name: &String| Some((name.clone(), given.get(name)?.clone()));
    let ordered: Map<String, Value> = listed.chain(others).filter_map(member).collect();
    let required = schema.get("required").and_then(Value::as_array);
    let is_required = |name: &str| required.is_some_and(|all| all.iter().any(|one| one == name));
    // A dry run by an argument: the call itself has it switched off, mostly because we did that.
    let is_dry_run = preview.source == PreviewSource::Argument.as_str();
    let says_nothing = |(name, value): (&String, &Value)| {
        let default = properties.get(name).and_then(|property| property.get("default"));
        let is_applied = is_dry_run && *value == Value::Bool(false) && !is_required(name);
        (value.is_null() || default == Some(value) || is_applied).then(|| name.clone())
    };
    let defaults = ordered.iter().filter_map(says_nothing).collect();
    (Value::Object(ordered), defaults)
}

/// The arguments of one step, taken from the redacted arguments of the plan.
pub fn step_arguments(arguments: &Value, number: usize) -> Value {
    let own = arguments.get("steps").and_then(|steps| steps.get(number)?.get("args").cloned());
    own.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn arguments_stand_in_the_schemas_order_and_what_says_nothing_is_named() {
        let schema = json!({"required": ["path", "force"], "properties": {
            "path": {}, "mode": {"default": "text"}, "dry_run": {}, "force": {}, "owner": {}}});
        let given =
            json!({"dry_run": false, "extra": 1, "force": false, "mode": "text", "owner": null, "path": "a"});
        let preview = |source: PreviewSource| PreviewView {
            source: source.to_string(),
            digest: String::new(),
            shown: Value::Null,
        };
        let (ordered, defaults) = arranged(&given, &schema, &preview(PreviewSource::Argument));
        let names: Vec<&String> = ordered.as_object().unwrap().keys().collect();
        assert_eq!(names, ["path", "mode", "dry_run", "force", "owner", "extra"]);
        assert_eq!(defaults, ["mode", "dry_run", "owner"], "a required argument always says something");
        assert_eq!(ordered, given, "nothing is left out");
        let (_, defaults) = arranged(&given, &schema, &preview(PreviewSource::Computed));
        assert_eq!(defaults, ["mode", "owner"]);
    }
}
