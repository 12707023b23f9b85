//! JSON-RPC messages. Params, results and errors stay the bytes they arrived in; only the envelope is parsed.

mod parse;

use std::fmt;

use serde_json::value::RawValue;

pub use self::parse::parse;
use crate::raw::{self, RawJson};

#[derive(Debug, Clone, Copy)]
pub struct FrameLimits {
    pub frame: usize,
    /// Nested objects and arrays.
    pub nesting: usize,
}

impl Default for FrameLimits {
    fn default() -> Self {
        Self { frame: 16 << 20, nesting: 64 }
    }
}

/// The JSON-RPC and MCP error codes this crate uses.
pub mod code {
    pub const PARSE: i64 = -32700;
    pub const INVALID_REQUEST: i64 = -32600;
    pub const METHOD_NOT_FOUND: i64 = -32601;
    pub const INVALID_PARAMS: i64 = -32602;
    pub const INTERNAL: i64 = -32603;
    /// A mirrored header is missing or disagrees with the body.
    pub const HEADER_MISMATCH: i64 = -32020;
    /// The client did not declare a capability the request needs.
    pub const MISSING_CAPABILITY: i64 = -32021;
    pub const UNSUPPORTED_VERSION: i64 = -32022;
    /// Legacy revisions; `INVALID_PARAMS` in 2026-07-28.
    pub const LEGACY_RESOURCE_NOT_FOUND: i64 = -32002;
}

/// A string or a number, kept as written.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct JsonRpcId(Box<str>);

impl JsonRpcId {
    /// An id of our own.
    pub fn number(value: u64) -> Self {
        Self(value.to_string().into())
    }

    /// Only strings and numbers are ids.
    pub fn from_raw(value: &RawValue) -> Option<Self> {
        match value.get().as_bytes().first()? {
            b'"' | b'-' | b'0'..=b'9' => Some(Self(value.get().into())),
            _ => None,
        }
    }

    pub fn as_json(&self) -> &str {
        &self.0
    }

    /// The id as a number, if it is one of ours.
    pub fn as_number(&self) -> Option<u64> {
        self.0.parse().ok()
    }
}

impl fmt::Debug for JsonRpcId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for JsonRpcId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[derive(Debug, Clone)]
pub struct Request {
    pub id: JsonRpcId,
    pub method: Box<str>,
    pub params: Option<RawJson>,
}

#[derive(Debug, Clone)]
pub struct Notification {
    pub method: Box<str>,
    pub params: Option<RawJson>,
}

impl Notification {
    pub fn new(method: impl Into<Box<str>>, params: Option<RawJson>) -> Self {
        Self { method: method.into(), params }
    }
}

#[derive(Debug, Clone)]
pub struct Response {
    /// `None` where the peer could not tell which request was meant.
    pub id: Option<JsonRpcId>,
    pub reply: Reply,
}

/// The raw result, or a JSON-RPC error.
pub type Reply = Result<RawJson, RpcError>;

#[derive(Debug, Clone)]
pub enum Message {
    Request(Request),
    Notification(Notification),
    Response(Response),
}

/// The contents of one frame.
#[derive(Debug)]
pub enum Frame {
    One(Message),
    /// Revision 2025-03-26 only; each part is parsed by itself.
    Batch(Vec<Result<Message, MalformedFrame>>),
}

/// A frame that is no JSON-RPC message.
#[derive(Debug, Clone)]
pub struct MalformedFrame {
    /// The id, if it could be read.
    pub id: Option<JsonRpcId>,
    /// The error to answer with.
    pub error: RpcError,
}

impl MalformedFrame {
    fn new(code: i64, message: &str) -> Self {
        Self { id: None, error: RpcError::new(code, message) }
    }

    /// The error for a frame over the limit; the id is searched in what was kept of it.
    pub fn too_long(head: &[u8], tail: &[u8], limit: usize) -> Self {
        let error = RpcError::new(code::INVALID_REQUEST, &format!("message is longer than {limit} bytes"));
        Self { id: parse::sniff_id(head, tail), error }
    }
}

/// A JSON-RPC error object, kept as raw JSON.
#[derive(Debug, Clone)]
pub struct RpcError(RawJson);

impl RpcError {
    pub fn new(code: i64, message: &str) -> Self {
        Self(raw::to_raw(&serde_json::json!({ "code": code, "message": message })))
    }

    pub fn with_data(code: i64, message: &str, data: &impl serde::Serialize) -> Self {
        Self(raw::to_raw(&serde_json::json!({ "code": code, "message": message, "data": data })))
    }

    pub fn from_raw(object: RawJson) -> Self {
        Self(object)
    }

    pub fn method_not_found(method: &str) -> Self {
        Self::new(code::METHOD_NOT_FOUND, &format!("method `{method}` not found"))
    }

    pub fn invalid_params(message: &str) -> Self {
        Self::new(code::INVALID_PARAMS, message)
    }

    /// 0 where the object has none.
    pub fn code(&self) -> i64 {
        raw::get(&self.0, "code").and_then(|code| code.get().parse().ok()).unwrap_or(0)
    }

    /// Empty where the object has none.
    pub fn message(&self) -> String {
        raw::get_str(&self.0, "message").map(|text| text.into_owned()).unwrap_or_default()
    }

    pub fn data(&self) -> Option<&RawValue> {
        raw::get(&self.0, "data")
    }

    pub fn as_raw(&self) -> &RawValue {
        &self.0
    }
}

impl fmt::Display for RpcError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.message(), self.code())
    }
}

/// Appends one request to `out`, without a line end.
pub fn write_request(out: &mut Vec<u8>, id: &JsonRpcId, method: &str, params: Option<&str>) {
    out.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"id\":");
    out.extend_from_slice(id.as_json().as_bytes());
    write_call(out, method, params);
}

/// Appends one notification to `out`, without a line end.
pub fn write_notification(out: &mut Vec<u8>, method: &str, params: Option<&str>) {
    out.extend_from_slice(b"{\"jsonrpc\":\"2.0\"");
    write_call(out, method, params);
}

fn write_call(out: &mut Vec<u8>, method: &str, params: Option<&str>) {
    out.extend_from_slice(b",\"method\":");
    write_string(out, method);
    if let Some(params) = params {
        out.extend_from_slice(b",\"params\":");
        out.extend_from_slice(params.as_bytes());
    }
    out.push(b'}');
}

/// Appends one response to `out`, without a line end.
pub fn write_response(out: &mut Vec<u8>, id: Option<&JsonRpcId>, reply: &Reply) {
    out.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"id\":");
    out.extend_from_slice(id.map_or("null", JsonRpcId::as_json).as_bytes());
    let (name, body): (&[u8], &str) = match reply {
        Ok(result) => (b",\"result\":", result.get()),
        Err(error) => (b",\"error\":", error.as_raw().get()),
    };
    out.extend_from_slice(name);
    out.extend_from_slice(body.as_bytes());
    out.push(b'}');
}

/// The same with a result given as JSON text.
pub(crate) fn write_result_text(out: &mut Vec<u8>, id: &JsonRpcId, result: &str) {
    out.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"id\":");
    out.extend_from_slice(id.as_json().as_bytes());
    out.extend_from_slice(b",\"result\":");
    out.extend_from_slice(result.as_bytes());
    out.push(b'}');
}

fn write_string(out: &mut Vec<u8>, text: &str) {
    // Writing a string into a Vec cannot fail.
    let _ = serde_json::to_writer(out, text);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writing_is_the_inverse_of_reading() {
        let mut out = Vec::new();
        write_request(&mut out, &JsonRpcId::number(3), "a\"b", Some("{ }"));
        assert_eq!(out, br#"{"jsonrpc":"2.0","id":3,"method":"a\"b","params":{ }}"#);
        out.clear();
        write_response(&mut out, None, &Err(RpcError::new(-1, "x")));
        assert_eq!(out, br#"{"jsonrpc":"2.0","id":null,"error":{"code":-1,"message":"x"}}"#);
    }
}
