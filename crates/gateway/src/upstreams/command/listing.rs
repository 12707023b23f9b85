//! The listed definition of a command tool: the configured one, with the limits of command arguments added to its input schema, so that the
//! gate refuses a value that looks like a flag before anything is previewed or asked.

use countersign_config::{CommandInput, CommandRunMode, CommandTool, LeadingDash};
use countersign_mcp::raw::{self, RawJson};
use serde_json::{Map, Value, json};

/// No argument of a process can contain a NUL.
pub(crate) const NO_NUL: &str = "^[^\\x00]*$";
/// Nor may it look like a flag. One pattern for both, because checking a long text twice costs twice.
pub(crate) const NO_FLAG: &str = "^([^-\\x00][^\\x00]*)?$";

pub(super) fn definition(tool: &CommandTool) -> RawJson {
    let mut definition = tool.definition();
    let properties =
        definition.get_mut("inputSchema").and_then(|schema| schema.get_mut("properties")?.as_object_mut());
    if let Some(properties) = properties {
        for input in &tool.inputs {
            if let Some(schema) = properties.get_mut(&input.name).and_then(Value::as_object_mut) {
                narrow(input, schema);
            }
        }
    }
    // Clients that support tasks may follow a run as one.
    if tool.running == CommandRunMode::Background {
        definition.insert("execution".into(), json!({"taskSupport": "optional"}));
    }
    raw::to_raw(&definition)
}

fn narrow(input: &CommandInput, schema: &mut Map<String, Value>) {
    match schema.get("type").and_then(Value::as_str) {
        Some("array") => {
            let items = schema.entry("items").or_insert_with(|| json!({}));
            // Other items cannot be constrained here; they are checked when they are filled in.
            if let Some(items) = items.as_object_mut() {
                require(items, demands(input));
            }
        }
        Some("boolean" | "object") => {}
        Some(_) | None => require(schema, demands(input)),
    }
}

/// Patterns apply to strings only and `minimum` to numbers, so all of them fit beside any type.
fn demands(input: &CommandInput) -> Vec<Value> {
    match input.leading_dash {
        LeadingDash::Allowed => vec![json!({"pattern": NO_NUL})],
        LeadingDash::Refused => {
            vec![json!({"pattern": NO_FLAG}), json!({"minimum": 0})]
        }
    }
}

fn require(schema: &mut Map<String, Value>, demands: Vec<Value>) {
    // An item that is an object or a list is filled in as JSON.
    let kind = schema.get("type").and_then(Value::as_str).unwrap_or("").to_owned();
    let fits = |demand: &Value| match kind.as_str() {
        "string" => demand.get("pattern").is_some(),
        "integer" | "number" => demand.get("minimum").is_some(),
        "" => true,
        _ => false,
    };
    let demands: Vec<Value> = demands.into_iter().filter(fits).collect();
    if demands.is_empty() {
        return;
    }
    let all = schema.entry("allOf").or_insert_with(|| json!([]));
    if let Some(all) = all.as_array_mut() {
        all.extend(demands);
    } else {
        // No schema in that place: ours is the schema.
        *all = Value::Array(demands);
    }
}
