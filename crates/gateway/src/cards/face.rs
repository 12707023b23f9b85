//! What a card is given to show, in a result's `_meta`: not for the model, only for whoever looks at the card.
//! Arguments are shown as texts, so that a number keeps its digits; what rules keep out of pages is kept out here.

use countersign_core::plan::{Plan, Preview, Step};
use countersign_core::preview::View;
use countersign_core::redact::Redactor;
use countersign_store::Holding;
use serde_json::{Map, Value, json};

use super::{Again, apply, cancel, nonce, retry};
use crate::escape;
use crate::house::House;

/// The `_meta` of an answer that asks for confirmation: the nonce, and everything there is to see.
pub fn asking(
    house: &House,
    plan: &Plan,
    holding: &Holding,
    token: &str,
    again: Again<'_>,
) -> Map<String, Value> {
    let law = house.law.load();
    let mut face = of_plan(plan, &house.redactor);
    face.extend([
        ("status".to_owned(), json!("ready")),
        ("plan_id".to_owned(), json!(holding.plan_id)),
        ("state".to_owned(), json!(holding.state)),
        ("expires_at".to_owned(), json!(holding.expires)),
        ("apply".to_owned(), apply(plan, again, token).into()),
        ("cancel".to_owned(), cancel(plan).into()),
        ("retry".to_owned(), retry(plan, again).into()),
        ("approve_command".to_owned(), format!("countersign approve {}", holding.plan_id).into()),
    ]);
    if let Some(desk) = &law.desk_url {
        face.insert("approve_url".to_owned(), format!("{desk}/plans/{}", holding.plan_id).into());
    }
    let card = json!({"plan_id": holding.plan_id, "nonce": nonce(&house.store, &holding.plan_id)});
    [("countersign/card".to_owned(), card), ("countersign/view".to_owned(), Value::Object(face))]
        .into_iter()
        .collect()
}

/// The `_meta` of an answer in plan mode: to look at, nothing to decide.
pub fn previewing(house: &House, plan: &Plan) -> Map<String, Value> {
    let mut face = of_plan(plan, &house.redactor);
    face.insert("status".to_owned(), json!("preview"));
    [("countersign/view".to_owned(), Value::Object(face))].into_iter().collect()
}

/// What a result says, for its card.
pub fn outcome(tool: &str, result: &Value) -> Value {
    let failed = result.get("isError") == Some(&Value::Bool(true));
    json!({
        "status": if failed { "failed" } else { "applied" },
        "tool": tool,
        "view": shown(&View::of_result(result)),
    })
}

fn of_plan(plan: &Plan, redactor: &Redactor) -> Map<String, Value> {
    let arguments = redactor.clean(plan.arguments.value(), &plan.redact);
    let reason = plan.intent.as_ref().and_then(|intent| intent.reason.as_deref());
    let steps: Vec<Value> =
        plan.steps.iter().enumerate().map(|(number, step)| of_step(step, &arguments, number)).collect();
    let mut face = Map::new();
    face.insert("tool".to_owned(), plan.tool.to_string().into());
    face.insert("effect".to_owned(), json!(plan.effect));
    face.insert("principal".to_owned(), json!(plan.principal));
    face.insert(
        "reason".to_owned(),
        json!(reason.map(|reason| escape::visible(&redactor.clean_text(reason)))),
    );
    face.insert("rule".to_owned(), json!(plan.rule));
    face.insert(
        "confirm".to_owned(),
        json!({"kind": plan.need.kind, "strength": plan.need.strength, "prompt": plan.need.prompt(&plan.tool)}),
    );
    face.insert("blocks".to_owned(), json!(visible(countersign_core::preview::blocks(plan))));
    face.insert("hash".to_owned(), json!(plan.hash));
    if steps.is_empty() {
        face.insert("source".to_owned(), json!(plan.preview.source));
        face.insert("view".to_owned(), of_preview(&plan.preview));
        let mut shown = argument_texts(&arguments);
        if let (Some(meta), Some(pairs)) = (&plan.meta, shown.as_array_mut()) {
            let meta = serde_json::to_string_pretty(&redactor.clean(meta.value(), &[])).unwrap_or_default();
            pairs.push(json!(["_meta", escape::visible(&meta)]));
        }
        face.insert("arguments".to_owned(), shown);
    } else {
        let title = arguments.get("title").and_then(Value::as_str).map(escape::visible);
        face.insert("title".to_owned(), json!(title));
        face.insert("steps".to_owned(), steps.into());
    }
    face
}

fn of_step(step: &Step, arguments: &Value, number: usize) -> Value {
    let own = arguments.get("steps").and_then(|steps| steps.get(number)?.get("args")).unwrap_or(&Value::Null);
    json!({
        "tool": step.tool.to_string(),
        "effect": step.effect,
        "source": step.preview.source,
        "view": of_preview(&step.preview),
        "arguments": argument_texts(own),
    })
}

fn of_preview(preview: &Preview) -> Value {
    shown(&View::of(preview))
}

/// Names and values as texts, in order.
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

/// A view whose every text shows what it would hide.
fn shown(view: &View) -> Value {
    let mut value = serde_json::to_value(view).unwrap_or_default();
    show(&mut value);
    value
}

fn show(value: &mut Value) {
    match value {
        Value::String(text) if escape::hides(text) => *text = escape::visible(text),
        Value::Array(items) => items.iter_mut().for_each(show),
        Value::Object(members) => members.values_mut().for_each(show),
        Value::String(_) | Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}
