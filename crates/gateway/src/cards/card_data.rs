//! The data of a card, in the `_meta` of a result, out of the model's sight. Arguments are texts, so that numbers keep their digits.
//! Redacted values stay redacted.

use countersign_policy::call::HostVouching;
use countersign_policy::confirm::{Kind, RecordedChannel};
use countersign_policy::plan::{Plan, PlanStep, Preview};
use countersign_policy::preview::ChangeView;
use countersign_policy::redact::Redactor;
use countersign_store::{Holding, ShownPlan};
use serde_json::{Map, Value, json};

use super::message::{RepeatedCall, apply_text, cancel_text, retry_text};
use super::nonce::nonce;
use crate::escape;
use crate::state::GatewayState;

/// The `_meta` of an answer that asks for confirmation: the plan in full, and the nonce of its buttons.
pub(crate) fn confirmation_meta(
    gateway: &GatewayState,
    plan: &Plan,
    holding: &Holding,
    token: &str,
    again: RepeatedCall<'_>,
    vouching: HostVouching,
) -> Map<String, Value> {
    let policy = gateway.policy.load();
    let mut view = plan_view(plan, &gateway.redactor);
    view.extend([
        ("status".to_owned(), json!("ready")),
        ("plan_id".to_owned(), json!(holding.plan_id)),
        ("state".to_owned(), json!(holding.state)),
        ("expires_at".to_owned(), json!(holding.expires)),
        ("apply".to_owned(), apply_text(plan, again, token).into()),
        ("cancel".to_owned(), cancel_text(plan).into()),
        ("retry".to_owned(), retry_text(plan, again).into()),
        ("approve_command".to_owned(), format!("countersign approve {}", holding.plan_id).into()),
    ]);
    // Offer no button whose answer would not be strong enough.
    let is_enough = RecordedChannel::Card.strength_with(vouching) >= plan.requirement.strength;
    view.insert("needs_desk".to_owned(), json!(!is_enough || plan.requirement.kind == Kind::Type));
    if let Some(desk) = &policy.desk_url {
        view.insert("approve_url".to_owned(), format!("{desk}/plans/{}", holding.plan_id).into());
    }
    let shown = ShownPlan { hash: holding.hash, expires: holding.expires };
    let card = json!({"plan_id": holding.plan_id, "nonce": nonce(&gateway.store, &holding.plan_id, shown)});
    [("countersign/card".to_owned(), card), ("countersign/view".to_owned(), Value::Object(view))]
        .into_iter()
        .collect()
}

/// The `_meta` of an answer in plan mode: the preview, without buttons.
pub(crate) fn preview_meta(gateway: &GatewayState, plan: &Plan) -> Map<String, Value> {
    let mut view = plan_view(plan, &gateway.redactor);
    view.insert("status".to_owned(), json!("preview"));
    [("countersign/view".to_owned(), Value::Object(view))].into_iter().collect()
}

/// The outcome of a call.
pub(crate) fn outcome_view(tool: &str, result: &Value) -> Value {
    let failed = result.get("isError") == Some(&Value::Bool(true));
    json!({
        "status": if failed { "failed" } else { "applied" },
        "tool": tool,
        "view": escaped(&ChangeView::of_result(result)),
    })
}

fn plan_view(plan: &Plan, redactor: &Redactor) -> Map<String, Value> {
    let arguments = redactor.clean(plan.arguments.value(), &plan.redact);
    let reason = plan.intent.as_ref().and_then(|intent| intent.reason.as_deref());
    let steps: Vec<Value> =
        plan.steps.iter().enumerate().map(|(number, step)| step_view(step, &arguments, number)).collect();
    let mut view = Map::new();
    view.insert("tool".to_owned(), plan.tool.to_string().into());
    view.insert("effect".to_owned(), json!(plan.effect));
    view.insert("principal".to_owned(), json!(plan.principal));
    view.insert(
        "reason".to_owned(),
        json!(reason.map(|reason| escape::visible(&redactor.clean_text(reason)))),
    );
    view.insert("rule".to_owned(), json!(plan.rule));
    view.insert(
        "confirm".to_owned(),
        json!({"kind": plan.requirement.kind, "strength": plan.requirement.strength, "prompt": plan.requirement.prompt(&plan.tool)}),
    );
    view.insert("blocks".to_owned(), json!(visible(countersign_policy::preview::blocks(plan))));
    view.insert("hash".to_owned(), json!(plan.hash));
    if steps.is_empty() {
        view.insert("source".to_owned(), json!(plan.preview.source));
        view.insert("view".to_owned(), preview_view(&plan.preview));
        let mut shown = argument_texts(&arguments);
        if let (Some(meta), Some(pairs)) = (&plan.meta, shown.as_array_mut()) {
            let meta = serde_json::to_string_pretty(&redactor.clean(meta.value(), &[])).unwrap_or_default();
            pairs.push(json!(["_meta", escape::visible(&meta)]));
        }
        view.insert("arguments".to_owned(), shown);
    } else {
        let title = arguments.get("title").and_then(Value::as_str).map(escape::visible);
        view.insert("title".to_owned(), json!(title));
        view.insert("steps".to_owned(), steps.into());
    }
    view
}

fn step_view(step: &PlanStep, arguments: &Value, number: usize) -> Value {
    let own = arguments.get("steps").and_then(|steps| steps.get(number)?.get("args")).unwrap_or(&Value::Null);
    json!({
        "tool": step.tool.to_string(),
        "effect": step.effect,
        "source": step.preview.source,
        "view": preview_view(&step.preview),
        "arguments": argument_texts(own),
    })
}

fn preview_view(preview: &Preview) -> Value {
    escaped(&ChangeView::of(preview))
}

/// Names and values as escaped texts, in order.
fn argument_texts(arguments: &Value) -> Value {
    let Some(members) = arguments.as_object() else { return Value::Array(Vec::new()) };
    let pairs = members.iter().map(|(name, value)| {
        let text = serde_json::to_string_pretty(value).unwrap_or_default();
        json!([escape::visible(name), escape::visible(&text)])
    });
    pairs.collect()
}

fn visible(texts: Vec<String>) -> Vec<String> {
    texts.iter().map(|text| escape::visible(text)).collect()
}

/// A view with hidden characters escaped in every text.
fn escaped(view: &ChangeView) -> Value {
    let mut value = serde_json::to_value(view).unwrap_or_default();
    escape_texts(&mut value);
    value
}

fn escape_texts(value: &mut Value) {
    match value {
        Value::String(text) if escape::hides(text) => *text = escape::visible(text),
        Value::Array(items) => items.iter_mut().for_each(escape_texts),
        Value::Object(members) => members.values_mut().for_each(escape_texts),
        Value::String(_) | Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}
