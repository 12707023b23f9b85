//! Fills in required arguments that have a default in the schema. Done before the decision: what is decided, shown, hashed and
//! recorded has to be what is sent.

use countersign_mcp::raw::{self, MemberEdit};
use countersign_policy::call::Arguments;
use countersign_policy::tool::Tool;
use serde_json::Value;

/// Names the gate knows as dry-run arguments.
const DRY_RUN: [&str; 2] = ["dry_run", "dryRun"];

/// The arguments with the tool's defaults for what is required and missing. Where that is not strict JSON they stay as they are,
/// and the schema refuses them. A dry-run argument is left to the gate, which knows whether a call previews.
pub(crate) fn with_required_defaults(tool: &Tool, arguments: Arguments) -> Arguments {
    let schema = tool.definition.get("inputSchema");
    let required = schema.and_then(|schema| schema.get("required")?.as_array());
    let properties = schema.and_then(|schema| schema.get("properties")?.as_object());
    let (Some(required), Some(properties)) = (required, properties) else { return arguments };
    let missing: Vec<(&str, String)> = required
        .iter()
        .filter_map(Value::as_str)
        .filter(|name| !arguments.value().contains_key(*name) && !DRY_RUN.contains(name))
        .filter_map(|name| Some((name, properties.get(name)?.get("default")?.to_string())))
        .collect();
    if missing.is_empty() {
        return arguments;
    }
    let edits: Vec<MemberEdit<'_>> = missing.iter().map(|(name, text)| MemberEdit::Set(name, text)).collect();
    let filled = raw::edit_text(arguments.text(), &edits);
    filled.and_then(|text| Arguments::parse(text.as_bytes()).ok()).unwrap_or(arguments)
}

#[cfg(test)]
mod tests {
    use super::*;
    use countersign_policy::ids::UpstreamId;
    use serde_json::json;

    fn filled(given: &str) -> String {
        let definition = json!({"name": "t", "inputSchema": {
            "properties": {
                "path": {"type": "string"},
                "depth": {"type": "integer", "default": 3},
                "order": {"type": "string", "default": "name"},
                "note": {"type": "string", "default": "none"},
                "dry_run": {"type": "boolean", "default": true},
            },
            "required": ["path", "depth", "order", "dry_run"],
        }});
        let tool = Tool::read(UpstreamId::new("u"), definition.as_object().unwrap().clone()).unwrap();
        with_required_defaults(&tool, Arguments::parse(given.as_bytes()).unwrap()).text().to_owned()
    }

    #[test]
    fn required_arguments_with_a_default_are_filled_and_nothing_else() {
        // The texts of numbers that came stay as they came.
        assert_eq!(filled(r#"{"path":"a","x":1.50}"#), r#"{"path":"a","x":1.50,"depth":3,"order":"name"}"#);
        assert_eq!(filled(r#"{"depth":null,"order":"size"}"#), r#"{"depth":null,"order":"size"}"#);
        assert_eq!(filled("{}"), r#"{"depth":3,"order":"name"}"#);
    }

    /// A name that another reader would take for the missing one is not joined by it: the gate refuses it as it came.
    #[test]
    fn attack_a_name_in_another_case_is_not_completed_into_two() {
        assert_eq!(filled(r#"{"Depth":9,"order":"name"}"#), r#"{"Depth":9,"order":"name"}"#);
    }
}
