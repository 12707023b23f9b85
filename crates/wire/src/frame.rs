//! One JSON-RPC message, in and out. Params, results and errors stay the bytes they came as; only the envelope is read.
//! It never decides what a method means.

mod parse;

use std::fmt;

use serde_json::value::RawValue;

pub use self::parse::parse;
use crate::raw::{self, Raw};

/// How large and how deep a message may be.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Bytes of one message.
    pub frame: usize,
    /// Objects and arrays inside each other.
    pub nesting: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { frame: 16 << 20, nesting: 64 }
    }
}

/// JSON-RPC and MCP error codes the wire itself uses.
pub mod code {
    /// The text is not JSON.
    pub const PARSE: i64 = -32700;
    /// The JSON is not a JSON-RPC message.
    pub const INVALID_REQUEST: i64 = -32600;
    /// No such method.
    pub const METHOD_NOT_FOUND: i64 = -32601;
    /// The params are wrong.
    pub const INVALID_PARAMS: i64 = -32602;
    /// Something broke on this side.
    pub const INTERNAL: i64 = -32603;
    /// A mirrored header is missing or disagrees with the body.
    pub const HEADER_MISMATCH: i64 = -32020;
    /// The client did not declare a capability the request needs.
    pub const MISSING_CAPABILITY: i64 = -32021;
    /// The protocol version is not one we speak.
    pub const UNSUPPORTED_VERSION: i64 = -32022;
    /// A resource is not there (session revisions; `INVALID_PARAMS` in 2026-07-28).
    pub const LEGACY_RESOURCE_NOT_FOUND: i64 = -32002;
}

/// A JSON-RPC id: a string or a number, kept as written.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Id(Box<str>);

impl Id {
    /// An id of our own making.
    pub fn number(value: u64) -> Self {
        Self(value.to_string().into())
    }

    /// Takes an id from raw JSON; only strings and numbers are ids.
    pub fn from_raw(value: &RawValue) -> Option<Self> {
        match value.get().as_bytes().first()? {
            b'"' | b'-' | b'0'..=b'9' => Some(Self(value.get().into())),
            _ => None,
        }
    }

    /// The id as JSON text.
    pub fn as_json(&self) -> &str {
        &self.0
    }

    /// The id as a number, if it is one of ours.
    pub fn as_number(&self) -> Option<u64> {
        self.0.parse().ok()
    }
}

impl fmt::Debug for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A call that wants a reply.
#[derive(Debug, Clone)]
pub struct Request {
    /// The caller's id.
    pub id: Id,
    /// The method's name.
    pub method: Box<str>,
    /// The params, as they came.
    pub params: Option<Raw>,
}

/// A message that wants none.
#[derive(Debug, Clone)]
pub struct Notification {
    /// The method's name.
    pub method: Box<str>,
    /// The params, as they came.
    pub params: Option<Raw>,
}

impl Notification {
    /// A notification with the given params.
    pub fn new(method: impl Into<Box<str>>, params: Option<Raw>) -> Self {
        Self { method: method.into(), params }
    }
}

/// The reply to a request.
#[derive(Debug, Clone)]
pub struct Response {
    /// The id it answers; `None` where the peer could not tell which request was meant.
    pub id: Option<Id>,
    /// The result, or the error object.
    pub reply: Reply,
}

/// What a request comes to: the raw result, or a JSON-RPC error.
pub type Reply = Result<Raw, RpcError>;

/// Any one message.
#[derive(Debug, Clone)]
pub enum Message {
    /// Wants a reply.
    Request(Request),
    /// Wants none.
    Notification(Notification),
    /// Is a reply.
    Response(Response),
}

/// What one frame held: a message, or a batch (revision 2025-03-26 only).
#[derive(Debug)]
pub enum Frame {
    /// The usual case.
    One(Message),
    /// A batch, each part parsed by itself.
    Batch(Vec<Result<Message, Malformed>>),
}

/// A frame that is no JSON-RPC message: the error to send, and the id where one could be read.
#[derive(Debug, Clone)]
pub struct Malformed {
    /// The id of the broken message, if it could be read.
    pub id: Option<Id>,
    /// What to answer.
    pub error: RpcError,
}

impl Malformed {
    fn new(code: i64, message: &str) -> Self {
        Self { id: None, error: RpcError::new(code, message) }
    }

    /// The error for a frame over the limit; the id is sought in what was kept of it.
    pub fn too_long(head: &[u8], tail: &[u8], limit: usize) -> Self {
        let error = RpcError::new(code::INVALID_REQUEST, &format!("message is longer than {limit} bytes"));
        Self { id: parse::sniff_id(head, tail), error }
    }
}

/// A JSON-RPC error object, kept as the bytes it came as.
#[derive(Debug, Clone)]
pub struct RpcError(Raw);

impl RpcError {
    /// An error of our own.
    pub fn new(code: i64, message: &str) -> Self {
        Self(raw::to_raw(&serde_json::json!({ "code": code, "message": message })))
    }

    /// An error of our own with data.
    pub fn with_data(code: i64, message: &str, data: &impl serde::Serialize) -> Self {
        Self(raw::to_raw(&serde_json::json!({ "code": code, "message": message, "data": data })))
    }

    /// An error object as it came.
    pub fn from_raw(object: Raw) -> Self {
        Self(object)
    }

    /// The answer to a method nobody knows.
    pub fn method_not_found(method: &str) -> Self {
        Self::new(code::METHOD_NOT_FOUND, &format!("method `{method}` not found"))
    }

    /// The answer to wrong params.
    pub fn invalid_params(message: &str) -> Self {
        Self::new(code::INVALID_PARAMS, message)
    }

    /// The error code; 0 where the object has none.
    pub fn code(&self) -> i64 {
        raw::get(&self.0, "code").and_then(|code| code.get().parse().ok()).unwrap_or(0)
    }

    /// The message; empty where the object has none.
    pub fn message(&self) -> String {
        raw::get_str(&self.0, "message").map(|text| text.into_owned()).unwrap_or_default()
    }

    /// The data member, if any.
    pub fn data(&self) -> Option<&RawValue> {
        raw::get(&self.0, "data")
    }

    /// The whole object.
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
pub fn write_request(out: &mut Vec<u8>, id: &Id, method: &str, params: Option<&str>) {
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
pub fn write_response(out: &mut Vec<u8>, id: Option<&Id>, reply: &Reply) {
    out.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"id\":");
    out.extend_from_slice(id.map_or("null", Id::as_json).as_bytes());
    let (name, body): (&[u8], &str) = match reply {
        Ok(result) => (b",\"result\":", result.get()),
        Err(error) => (b",\"error\":", error.as_raw().get()),
    };
    out.extend_from_slice(name);
    out.extend_from_slice(body.as_bytes());
    out.push(b'}');
}

/// Appends one response whose result is given as JSON text.
pub(crate) fn write_result_text(out: &mut Vec<u8>, id: &Id, result: &str) {
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
        write_request(&mut out, &Id::number(3), "a\"b", Some("{ }"));
        assert_eq!(out, br#"{"jsonrpc":"2.0","id":3,"method":"a\"b","params":{ }}"#);
        out.clear();
        write_response(&mut out, None, &Err(RpcError::new(-1, "x")));
        assert_eq!(out, br#"{"jsonrpc":"2.0","id":null,"error":{"code":-1,"message":"x"}}"#);
    }
}
