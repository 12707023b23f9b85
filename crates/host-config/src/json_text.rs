//! JSON with comments and trailing commas as a tree that keeps every byte. Reports errors with their line.

use jsonc_parser::ParseOptions;
use jsonc_parser::cst::{CstArray, CstInputValue, CstNode, CstObject, CstRootNode};
use serde_json::Value;

use crate::host::HostFileError;

/// Hosts accept comments and trailing commas, and nothing looser.
const OPTIONS: ParseOptions = ParseOptions {
    allow_comments: true,
    allow_trailing_commas: true,
    allow_loose_object_property_names: false,
    allow_missing_commas: false,
    allow_single_quoted_strings: false,
    allow_hexadecimal_numbers: false,
    allow_unary_plus_numbers: false,
    allow_bare_decimal_point_numbers: false,
    allow_non_finite_numbers: false,
    allow_extended_string_escapes: false,
};

pub(crate) fn parse(text: &str) -> Result<CstRootNode, HostFileError> {
    CstRootNode::parse(text, &OPTIONS)
        .map_err(|error| HostFileError { line: error.line_display(), reason: error.kind().to_string() })
}

/// The object a file is; none where the file is empty.
pub(crate) fn root_object(root: &CstRootNode) -> Result<Option<CstObject>, HostFileError> {
    match (root.value(), root.object_value()) {
        (None, _) => Ok(None),
        (Some(_), Some(object)) => Ok(Some(object)),
        (Some(value), None) => {
            Err(HostFileError { line: line(&value), reason: "it is not an object".to_owned() })
        }
    }
}

/// Parses a text to edit; an empty one becomes an empty object.
pub(crate) fn parse_object(text: &str) -> Result<(CstRootNode, CstObject), HostFileError> {
    let root = parse(text)?;
    let object = root_object(&root)?.unwrap_or_else(|| root.object_value_or_set());
    Ok((root, object))
}

fn line(node: &CstNode) -> usize {
    let mut breaks = 0_usize;
    let mut here = Some(node.clone());
    while let Some(node) = here {
        let before = node.previous_siblings().map(|sibling| sibling.to_string().matches('\n').count());
        breaks = breaks.saturating_add(before.sum());
        here = node.parent().map(CstNode::Container);
    }
    breaks.saturating_add(1)
}

/// The value of a member, converted. A value of another type is an error: it is never overwritten.
fn member<T>(
    holder: &CstObject,
    key: &str,
    expected: &str,
    convert: fn(&CstNode) -> Option<T>,
) -> Result<Option<T>, HostFileError> {
    let mut members = holder.properties().into_iter();
    let mut named = || members.find(|member| member.decoded_name().as_deref() == Some(key));
    let first = named();
    // Programs take the last of them, people see the first.
    if let Some(again) = named() {
        let line = line(&CstNode::Container(again.into()));
        return Err(HostFileError { line, reason: format!("`{key}` is there twice") });
    }
    let Some(value) = first.and_then(|member| member.value()) else { return Ok(None) };
    let wrong = || HostFileError { line: line(&value), reason: format!("`{key}` is not {expected}") };
    convert(&value).map(Some).ok_or_else(wrong)
}

pub(crate) fn object(holder: &CstObject, key: &str) -> Result<Option<CstObject>, HostFileError> {
    member(holder, key, "an object", CstNode::as_object)
}

pub(crate) fn list(holder: &CstObject, key: &str) -> Result<Option<CstArray>, HostFileError> {
    member(holder, key, "a list", CstNode::as_array)
}

pub(crate) fn object_or_new(holder: &CstObject, key: &str) -> Result<CstObject, HostFileError> {
    Ok(object(holder, key)?.unwrap_or_else(|| holder.object_value_or_set(key)))
}

/// The object at the end of a path of keys.
pub(crate) fn descend<K: AsRef<str>>(object: &CstObject, keys: &[K]) -> Option<CstObject> {
    keys.iter().try_fold(object.clone(), |here, key| here.object_value(key.as_ref()))
}

/// A file we create ends with a line break.
pub(crate) fn with_final_break(before: &str, after: String) -> String {
    if before.is_empty() && !after.ends_with('\n') { format!("{after}\n") } else { after }
}

pub(crate) fn string(text: &str) -> CstInputValue {
    CstInputValue::String(text.to_owned())
}

pub(crate) fn input(value: &Value) -> CstInputValue {
    match value {
        Value::Null => CstInputValue::Null,
        Value::Bool(truth) => CstInputValue::Bool(*truth),
        Value::Number(number) => CstInputValue::Number(number.to_string()),
        Value::String(text) => string(text),
        Value::Array(items) => CstInputValue::Array(items.iter().map(input).collect()),
        Value::Object(members) => {
            CstInputValue::Object(members.iter().map(|(name, value)| (name.clone(), input(value))).collect())
        }
    }
}

/// The value of a text, with everything the parser tolerates.
pub(crate) fn parse_loose(text: &str) -> Option<Value> {
    CstRootNode::parse(text, &ParseOptions::default()).ok()?.to_serde_value()
}
