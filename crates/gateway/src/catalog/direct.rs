//! A tool's definition on the direct surface: its own bytes with our name, annotations of the governed effect, and one more optional
//! argument. Invisible characters are escaped; everything else stays.

use std::borrow::Cow;

use countersign_mcp::raw::{self, MemberEdit, RawJson};
use countersign_policy::effect::Effect;
use serde_json::Value;

use super::build::value_hides;
use super::{COUNTERSIGN, Listed};
use crate::escape;

/// The schema of the argument `countersign`. Short, because it is on every tool that changes something: it is explained once, in the
/// server's instructions and by `get_status`. It is accepted on every tool.
const ARGUMENT: &str = r#"{"type":"object","description":"see get_status"}"#;

/// In `_meta` of a tool whose upstream is still starting: calls of it wait.
const STARTING: &str = "countersign/starting";

/// The definition with our edits; the tool's own bytes where an edit is impossible.
pub(super) fn definition(listed: &Listed) -> RawJson {
    edited(listed).and_then(raw::from_text).unwrap_or_else(|| (*listed.raw).to_owned())
}

fn edited(listed: &Listed) -> Option<String> {
    let text = readable(listed);
    let (read_only, destructive) = match listed.outlook.effect {
        Effect::Read => ("true", "false"),
        Effect::Write => ("false", "false"),
        Effect::Destructive => ("false", "true"),
    };
    let hints = [MemberEdit::Set("readOnlyHint", read_only), MemberEdit::Set("destructiveHint", destructive)];
    let mut text = raw::edit_inside(&text, "annotations", &hints)?;
    if listed.is_starting {
        text = raw::edit_inside(&text, "_meta", &[MemberEdit::Set(STARTING, "true")])?;
    }
    let name = raw::to_raw(&listed.direct_name);
    let own = raw::get_text(&text, "inputSchema").filter(|schema| schema.starts_with('{'));
    let own = own.unwrap_or(r#"{"type":"object"}"#);
    let changes = listed.outlook.effect != Effect::Read || listed.may_ask();
    let extra =
        changes.then(|| raw::edit_inside(own, "properties", &[MemberEdit::Set(COUNTERSIGN, ARGUMENT)]));
    let schema = extra.flatten();
    let mut edits = vec![
        MemberEdit::Set("name", name.get()),
        MemberEdit::Set("inputSchema", schema.as_deref().unwrap_or(own)),
    ];
    if !listed.keeps_output_schema() {
        edits.push(MemberEdit::Remove("outputSchema"));
    }
    let description = described(listed);
    if let Some(description) = &description {
        edits.push(MemberEdit::Set("description", description.get()));
    }
    let titled = titled(listed, &text);
    if let Some(title) = &titled {
        edits.push(MemberEdit::Set("title", title.get()));
    }
    raw::edit_text(&text, &edits)
}

/// A description that is not the tool's own.
fn described(listed: &Listed) -> Option<RawJson> {
    match listed.description() {
        Cow::Borrowed(_) => None,
        Cow::Owned(said) => Some(raw::to_raw(&escape::visible(&said))),
    }
}

/// A title for a tool that has none and is listed under a name of ours.
fn titled(listed: &Listed, text: &str) -> Option<RawJson> {
    if listed.direct_name == listed.tool.name.as_str() || raw::get_text(text, "title").is_some() {
        return None;
    }
    let hinted = raw::get_text(text, "annotations").and_then(|hints| raw::get_text(hints, "title"));
    let hinted = hinted.and_then(raw::text_of_string).filter(|title| !title.trim().is_empty());
    Some(raw::to_raw(&hinted.map_or_else(|| listed.tool.full_name().to_string(), |title| title.to_string())))
}

/// The definition's text. Only one whose description or title hides something is rewritten.
fn readable(listed: &Listed) -> String {
    let mut whole = Value::Object(listed.tool.definition.clone());
    if !value_hides(&whole) {
        return listed.raw.get().to_owned();
    }
    show(&mut whole, ObjectKeyKind::Keywords);
    whole.to_string()
}

/// Whether the keys of an object are keywords or names somebody chose.
#[derive(Clone, Copy, PartialEq)]
enum ObjectKeyKind {
    Keywords,
    Names,
}

fn show(value: &mut Value, keys: ObjectKeyKind) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| show(item, ObjectKeyKind::Keywords)),
        Value::Object(members) => {
            for (name, member) in members.iter_mut() {
                match (keys, name.as_str(), &mut *member) {
                    (ObjectKeyKind::Keywords, "description" | "title", Value::String(text)) => {
                        *text = escape::visible(text)
                    }
                    // Values that are compared or sent: changing them would change the tool.
                    (ObjectKeyKind::Keywords, "enum" | "const" | "default" | "examples", _) => {}
                    (ObjectKeyKind::Keywords, "properties" | "$defs" | "definitions", names) => {
                        show(names, ObjectKeyKind::Names)
                    }
                    (ObjectKeyKind::Keywords | ObjectKeyKind::Names, _, other) => {
                        show(other, ObjectKeyKind::Keywords)
                    }
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
