//! Argument names and what is said about them, out of an `inputSchema`. It reads; it never resolves a
//! reference, validates, or follows a schema further than its bounds.

use serde_json::{Map, Value};

/// How deep, and how many schemas, one tool's input is read: far beyond real tools, far below harm.
const DEPTH: usize = 6;
const SCHEMAS: usize = 512;

/// The texts of an input schema.
#[derive(Debug, Default)]
pub(super) struct Arguments<'a> {
    /// Property names, outer before inner.
    pub(super) names: Vec<&'a str>,
    /// Their titles, descriptions and enumerated values.
    pub(super) notes: Vec<&'a str>,
}

/// Reads the arguments of a tool.
pub(super) fn arguments(schema: &Value) -> Arguments<'_> {
    let mut out = Arguments::default();
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
            // The root's own description speaks of the tool, not of an argument; it is rare and still a text.
            notes(object, &mut out);
            inner(object, depth, &mut out, &mut next);
        }
        level = next;
    }
    out
}

fn notes<'a>(schema: &'a Map<String, Value>, out: &mut Arguments<'a>) {
    out.notes.extend(["title", "description", "const"].iter().filter_map(|key| schema.get(*key)?.as_str()));
    if let Some(values) = schema.get("enum").and_then(Value::as_array) {
        out.notes.extend(values.iter().filter_map(Value::as_str).take(SCHEMAS));
    }
}

fn inner<'a>(
    schema: &'a Map<String, Value>,
    depth: usize,
    out: &mut Arguments<'a>,
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
