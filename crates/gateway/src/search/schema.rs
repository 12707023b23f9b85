//! Extracts argument names and their descriptions from an `inputSchema`, within limits. It resolves no references and validates nothing.

use serde_json::{Map, Value};

/// The depth and number of schemas read per tool: far beyond real tools, far below harm.
const DEPTH: usize = 6;
const SCHEMAS: usize = 512;

#[derive(Debug, Default)]
pub(super) struct ArgumentTexts<'a> {
    /// Outer before inner.
    pub(super) names: Vec<&'a str>,
    /// Titles, descriptions and enumerated values.
    pub(super) notes: Vec<&'a str>,
}

pub(super) fn arguments(schema: &Value) -> ArgumentTexts<'_> {
    let mut out = ArgumentTexts::default();
    let mut level = vec![schema];
    let mut left = SCHEMAS;
    for depth in 0..DEPTH {
        let mut next = Vec::new();
        for schema in level {
            let Some(object) = schema.as_object() else { continue };
            if left == 0 {
                return out;
            }
            left -= 1;
            // The root's description is about the tool, not an argument; it is rare and still a text.
            notes(object, &mut out);
            inner(object, depth, &mut out, &mut next);
        }
        level = next;
    }
    out
}

fn notes<'a>(schema: &'a Map<String, Value>, out: &mut ArgumentTexts<'a>) {
    out.notes.extend(["title", "description", "const"].iter().filter_map(|key| schema.get(*key)?.as_str()));
    if let Some(values) = schema.get("enum").and_then(Value::as_array) {
        out.notes.extend(values.iter().filter_map(Value::as_str).take(SCHEMAS));
    }
}

fn inner<'a>(
    schema: &'a Map<String, Value>,
    depth: usize,
    out: &mut ArgumentTexts<'a>,
    next: &mut Vec<&'a Value>,
) {
    if let Some(properties) = schema.get("properties").and_then(Value::as_object) {
        for (name, property) in properties.iter().take(SCHEMAS) {
            out.names.push(name);
            next.push(property);
        }
    }
    for key in ["items", "additionalProperties"] {
        next.extend(schema.get(key));
    }
    for key in ["anyOf", "oneOf", "allOf", "prefixItems"] {
        next.extend(schema.get(key).and_then(Value::as_array).into_iter().flatten().take(SCHEMAS));
    }
    if depth == 0 {
        for key in ["$defs", "definitions"] {
            next.extend(
                schema.get(key).and_then(Value::as_object).into_iter().flat_map(Map::values).take(SCHEMAS),
            );
        }
    }
}
