//! Headers that repeat parts of a modern request's body (`Mcp-Method`, `Mcp-Name`, `Mcp-Param-*`): written, parsed and compared. A header
//! that disagrees with the body is an error.

use std::borrow::Cow;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::raw;

pub const METHOD: &str = "mcp-method";
pub const NAME: &str = "mcp-name";
const PARAM_PREFIX: &str = "mcp-param-";
const OPEN: &str = "=?base64?";
const CLOSE: &str = "?=";
/// The annotation in an input schema.
const ANNOTATION: &str = "x-mcp-header";

/// An invalid `x-mcp-header` annotation; its tool must not be listed over modern HTTP.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("property `{property}`: {reason}")]
pub struct InvalidMirror {
    pub property: String,
    pub reason: String,
}

/// The mirrored arguments of one tool.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MirroredHeaders(Vec<(Vec<String>, String)>);

impl MirroredHeaders {
    /// Reads the annotations of an input schema.
    pub fn of_schema(schema: &RawValue) -> Result<Self, InvalidMirror> {
        // Nearly all schemas have none.
        if memchr::memmem::find(schema.get().as_bytes(), ANNOTATION.as_bytes()).is_none() {
            return Ok(Self::default());
        }
        let schema: Value = serde_json::from_str(schema.get()).unwrap_or_default();
        let mut found = Self::default();
        found.walk(&schema, &mut Vec::new())?;
        Ok(found)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn walk(&mut self, schema: &Value, path: &mut Vec<String>) -> Result<(), InvalidMirror> {
        let Value::Object(members) = schema else { return Ok(()) };
        for (name, value) in members {
            match name.as_str() {
                ANNOTATION => self.note(schema, value, path)?,
                "properties" => {
                    let Value::Object(properties) = value else { continue };
                    for (property, schema) in properties {
                        path.push(property.clone());
                        self.walk(schema, path)?;
                        path.pop();
                    }
                }
                // Data, not schemas.
                "default" | "const" | "enum" | "examples" => {}
                _ if is_annotated(value) => {
                    return Err(invalid(path, "stands where an argument cannot be found by name alone"));
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn note(&mut self, schema: &Value, header: &Value, path: &[String]) -> Result<(), InvalidMirror> {
        let Value::String(header) = header else {
            return Err(invalid(path, "the header name is not a string"));
        };
        if path.is_empty() {
            return Err(invalid(path, "the root cannot be mirrored"));
        }
        if header.is_empty() || HeaderName::from_bytes(header.as_bytes()).is_err() {
            return Err(invalid(path, &format!("`{header}` is not a header name")));
        }
        if !matches!(schema.get("type").and_then(Value::as_str), Some("string" | "integer" | "boolean")) {
            return Err(invalid(path, "only strings, integers and booleans can be mirrored"));
        }
        if self.0.iter().any(|(_, other)| other.eq_ignore_ascii_case(header)) {
            return Err(invalid(path, &format!("header `{header}` is used twice")));
        }
        self.0.push((path.to_vec(), header.clone()));
        Ok(())
    }

    /// The value of each mirrored argument, before encoding.
    fn values<'a>(
        &'a self,
        arguments: Option<&'a RawValue>,
    ) -> impl Iterator<Item = (String, Option<String>)> + 'a {
        self.0.iter().map(move |(path, header)| {
            let mut text = arguments.map(RawValue::get);
            for name in path {
                text = text.and_then(|text| raw::get_text(text, name));
            }
            (format!("{PARAM_PREFIX}{}", header.to_ascii_lowercase()), text.and_then(primitive))
        })
    }
}

fn invalid(path: &[String], reason: &str) -> InvalidMirror {
    InvalidMirror { property: path.join("."), reason: reason.to_owned() }
}

fn is_annotated(value: &Value) -> bool {
    match value {
        Value::Object(members) => members.iter().any(|(name, value)| {
            name == ANNOTATION
                || !matches!(name.as_str(), "default" | "const" | "enum" | "examples") && is_annotated(value)
        }),
        Value::Array(items) => items.iter().any(is_annotated),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

fn primitive(text: &str) -> Option<String> {
    match text.as_bytes().first()? {
        b'"' => raw::text_of_string(text).map(Cow::into_owned),
        b'n' | b'{' | b'[' => None,
        _ => Some(text.to_owned()),
    }
}

/// Encodes text as a header value: plain where possible, else `=?base64?…?=`.
pub fn encode_header_value(text: &str) -> Cow<'_, str> {
    let edge = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t'));
    let bytes = text.as_bytes();
    let wrapped = text.starts_with(OPEN) && text.ends_with(CLOSE);
    let odd = bytes.iter().any(|byte| !(0x20..=0x7e).contains(byte));
    if odd || wrapped || edge(bytes.first()) || edge(bytes.last()) {
        Cow::Owned(format!("{OPEN}{}{CLOSE}", STANDARD.encode(text)))
    } else {
        Cow::Borrowed(text)
    }
}

/// Decodes a header value; `None` where the wrapped text is invalid.
pub fn decode_header_value(value: &str) -> Option<Cow<'_, str>> {
    match value.strip_prefix(OPEN).and_then(|inner| inner.strip_suffix(CLOSE)) {
        Some(inner) => String::from_utf8(STANDARD.decode(inner).ok()?).ok().map(Cow::Owned),
        None => Some(Cow::Borrowed(value)),
    }
}

pub fn name_of<'a>(method: &str, params: Option<&'a RawValue>) -> Option<Cow<'a, str>> {
    raw::get_str(params?, naming_member(method)?)
}

/// The member of the params that `Mcp-Name` repeats.
fn naming_member(method: &str) -> Option<&'static str> {
    match method {
        "tools/call" | "prompts/get" => Some("name"),
        "resources/read" => Some("uri"),
        "tasks/get" | "tasks/update" | "tasks/cancel" => Some("taskId"),
        _ => None,
    }
}

/// The headers of an outgoing modern request.
pub fn outgoing(
    method: &str,
    params: Option<&RawValue>,
    mirrors: Option<&MirroredHeaders>,
) -> Vec<(HeaderName, HeaderValue)> {
    let mut all = Vec::new();
    let mut push = |name: &str, text: &str| {
        if let (Ok(name), Ok(value)) =
            (HeaderName::from_bytes(name.as_bytes()), HeaderValue::from_str(&encode_header_value(text)))
        {
            all.push((name, value));
        }
    };
    push(METHOD, method);
    if let Some(name) = name_of(method, params) {
        push(NAME, &name);
    }
    if let Some(mirrors) = mirrors {
        let arguments = params.and_then(|params| raw::get(params, "arguments"));
        for (header, value) in mirrors.values(arguments) {
            if let Some(value) = value {
                push(&header, &value);
            }
        }
    }
    all
}

/// Compares the headers of an incoming modern request with its body; the error says what disagrees.
pub fn check(
    headers: &HeaderMap,
    method: &str,
    params: Option<&RawValue>,
    mirrors: Option<&MirroredHeaders>,
) -> Result<(), String> {
    compare(headers, METHOD, Some(method))?;
    // A name in the header and none in the body disagree as well.
    if naming_member(method).is_some() {
        compare(headers, NAME, name_of(method, params).as_deref())?;
    }
    if let Some(mirrors) = mirrors {
        let arguments = params.and_then(|params| raw::get(params, "arguments"));
        for (header, value) in mirrors.values(arguments) {
            compare(headers, &header, value.as_deref())?;
        }
    }
    Ok(())
}

fn compare(headers: &HeaderMap, name: &str, body: Option<&str>) -> Result<(), String> {
    let mut values = headers.get_all(name).iter();
    let (header, second) = (values.next(), values.next());
    if second.is_some() {
        return Err(format!("header `{name}` stands twice"));
    }
    let header = match header {
        None => None,
        Some(value) => Some(
            value
                .to_str()
                .ok()
                .and_then(decode_header_value)
                .ok_or(format!("header `{name}` cannot be read"))?,
        ),
    };
    match (header, body) {
        (None, None) => Ok(()),
        (None, Some(_)) => Err(format!("header `{name}` is missing")),
        (Some(header), Some(body)) if header == body => Ok(()),
        (Some(header), _) => Err(format!("header `{name}` says `{header}`, the body does not")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_survive_the_header() {
        for text in ["plain", "", " edge", "ünï", "line\nend", "=?base64?eA==?=", "a,b;c"] {
            assert_eq!(decode_header_value(&encode_header_value(text)).unwrap(), text);
        }
        assert_eq!(encode_header_value("plain"), "plain");
        assert_eq!(decode_header_value("=?base64?!?="), None);
    }

    #[test]
    fn annotations_are_read_or_refused() {
        let schema = |text: &str| MirroredHeaders::of_schema(&raw::from_text(text).unwrap());
        let good = schema(r#"{"properties":{"r":{"type":"string","x-mcp-header":"Region"},"o":{"properties":{"n":{"type":"integer","x-mcp-header":"N"}}}}}"#).unwrap();
        let params = raw::from_text(r#"{"name":"t","arguments":{"r":"é","o":{"n":7}}}"#).unwrap();
        let sent = outgoing("tools/call", Some(&params), Some(&good));
        let mut headers = HeaderMap::new();
        headers.extend(sent.clone());
        assert_eq!(sent.len(), 4);
        assert_eq!(check(&headers, "tools/call", Some(&params), Some(&good)), Ok(()));
        headers.insert("mcp-param-n", HeaderValue::from_static("8"));
        assert!(check(&headers, "tools/call", Some(&params), Some(&good)).is_err());
        headers.remove("mcp-param-n");
        assert!(check(&headers, "tools/call", Some(&params), Some(&good)).is_err());
        for bad in [
            r#"{"properties":{"r":{"type":"number","x-mcp-header":"R"}}}"#,
            r#"{"properties":{"r":{"type":"string","x-mcp-header":""}}}"#,
            r#"{"properties":{"r":{"type":"string","x-mcp-header":"a b"}}}"#,
            r#"{"x-mcp-header":"R","type":"string"}"#,
            r#"{"properties":{"r":{"items":{"type":"string","x-mcp-header":"R"}}}}"#,
            r#"{"properties":{"r":{"type":"string","x-mcp-header":"R"},"s":{"type":"string","x-mcp-header":"r"}}}"#,
        ] {
            assert!(schema(bad).is_err(), "{bad}");
        }
    }
}
