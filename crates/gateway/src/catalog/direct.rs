//! A tool as the direct surface lists it: its own bytes with our name, annotations that say the governed effect, and one more
//! optional argument. What a reader would not see is escaped; everything else stays as it came.

use countersign_core::effect::Effect;
use countersign_wire::raw::{self, Edit, Raw};
use serde_json::Value;

use super::build::value_hides;
use super::{COUNTERSIGN, Listed};
use crate::escape;
use crate::surfaces::definitions::DIRECT_COACHING;

/// The schema of the argument `countersign`.
const ARGUMENT: &str = r#"{"type":"object","description":"For the Countersign gateway, not for the tool: mode and intent of this call, and what confirms a plan that was shown.","properties":{"mode":{"type":"string","enum":["ask","plan","execute"]},"intent":{"type":"object","properties":{"operation_type":{"type":"string","enum":["read","write","destructive"]},"data_sensitivity":{"type":"string","enum":["public","internal","private","unknown"]},"reason":{"type":"string","maxLength":1000}},"required":["operation_type"]},"confirm_token":{"type":"string"},"yes":{"type":"boolean"},"confirm_text":{"type":"string"},"wait_seconds":{"type":"number","minimum":0,"maximum":600}}}"#;

/// The definition with our edits; the tool's own bytes where an edit is impossible.
pub(super) fn definition(listed: &Listed) -> Raw {
    edited(listed).and_then(raw::from_text).unwrap_or_else(|| (*listed.raw).to_owned())
}

fn edited(listed: &Listed) -> Option<String> {
    let text = readable(listed);
    let (read_only, destructive) = match listed.outlook.effect {
        Effect::Read => ("true", "false"),
        Effect::Write => ("false", "false"),
        Effect::Destructive => ("false", "true"),
    };
    let hints = [Edit::Set("readOnlyHint", read_only), Edit::Set("destructiveHint", destructive)];
    let text = raw::edit_inside(&text, "annotations", &hints)?;
    let name = raw::to_raw(&listed.direct_name);
    let own = raw::get_text(&text, "inputSchema").filter(|schema| schema.starts_with('{'));
    let schema = raw::edit_inside(
        own.unwrap_or(r#"{"type":"object"}"#),
        "properties",
        &[Edit::Set(COUNTERSIGN, ARGUMENT)],
    )?;
    let mut edits = vec![Edit::Set("name", name.get()), Edit::Set("inputSchema", &schema)];
    let coached = coached(listed, &text);
    if let Some(description) = &coached {
        edits.push(Edit::Set("description", description.get()));
    }
    let titled = titled(listed, &text);
    if let Some(title) = &titled {
        edits.push(Edit::Set("title", title.get()));
    }
    raw::edit_text(&text, &edits)
}

/// A title for a tool that has none and is listed under a name of ours; none where it keeps its own.
fn titled(listed: &Listed, text: &str) -> Option<Raw> {
    if listed.direct_name == listed.tool.name.as_str() || raw::get_text(text, "title").is_some() {
        return None;
    }
    let hinted = raw::get_text(text, "annotations").and_then(|hints| raw::get_text(hints, "title"));
    let hinted = hinted.and_then(raw::text_of_string).filter(|title| !title.trim().is_empty());
    Some(raw::to_raw(&hinted.map_or_else(|| listed.tool.full_name().to_string(), |title| title.to_string())))
}

/// The description of a tool that previews, with what to do after the preview; none where nothing is added.
fn coached(listed: &Listed, text: &str) -> Option<Raw> {
    if listed.outlook.effect == Effect::Read || !listed.may_ask() {
        return None;
    }
    let own = raw::get_text(text, "description").and_then(raw::text_of_string).unwrap_or_default();
    let own = own.trim_end();
    let joint = if own.is_empty() { "" } else { "\n\n" };
    Some(raw::to_raw(&format!("{own}{joint}{DIRECT_COACHING}")))
}

/// The definition's text. Where a description or title hides something it is shown; only such a definition is written anew.
fn readable(listed: &Listed) -> String {
    let mut whole = Value::Object(listed.tool.definition.clone());
    if !value_hides(&whole) {
        return listed.raw.get().to_owned();
    }
    show(&mut whole, Keys::Keywords);
    whole.to_string()
}

/// What the keys of an object are: keywords, or names somebody chose.
#[derive(Clone, Copy, PartialEq)]
enum Keys {
    Keywords,
    Names,
}

fn show(value: &mut Value, keys: Keys) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| show(item, Keys::Keywords)),
        Value::Object(members) => {
            for (name, member) in members.iter_mut() {
                match (keys, name.as_str(), &mut *member) {
                    (Keys::Keywords, "description" | "title", Value::String(text)) => {
                        *text = escape::visible(text)
                    }
                    // Values that are compared or sent: changing them would change the tool.
                    (Keys::Keywords, "enum" | "const" | "default" | "examples", _) => {}
                    (Keys::Keywords, "properties" | "$defs" | "definitions", names) => {
                        show(names, Keys::Names)
                    }
                    (Keys::Keywords | Keys::Names, _, other) => show(other, Keys::Keywords),
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
