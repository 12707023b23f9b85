//! The two eras of MCP: revisions with sessions (legacy) and the stateless one (modern), how a message tells its era,
//! and how a result of one era is said in the other. It moves only protocol fields, never content.

use std::borrow::Cow;
use std::fmt;

use memchr::memmem;
use serde_json::value::RawValue;

use crate::frame::{Reply, Request, RpcError, code};
use crate::raw::{self, Edit, Raw};

/// How a peer speaks: with `initialize` and a session, or stateless with everything in `_meta`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Era {
    /// 2024-11-05 to 2025-11-25.
    Legacy,
    /// 2026-07-28.
    Modern,
}

/// A protocol revision we speak.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Version {
    /// The first; stdio only.
    V2024_11_05,
    /// Streamable HTTP, annotations, batches.
    V2025_03_26,
    /// Elicitation, structured content.
    V2025_06_18,
    /// URL elicitation, tasks, SSE polling.
    V2025_11_25,
    /// Stateless.
    V2026_07_28,
}

impl Version {
    /// All revisions we speak, newest first.
    pub const ALL: [Version; 5] =
        [Self::V2026_07_28, Self::V2025_11_25, Self::V2025_06_18, Self::V2025_03_26, Self::V2024_11_05];
    /// The newest revision with sessions.
    pub const LATEST_LEGACY: Version = Self::V2025_11_25;
    /// The stateless revision.
    pub const MODERN: Version = Self::V2026_07_28;

    /// Reads a revision's date.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|version| version.as_str() == text)
    }

    /// The revision's date.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::V2024_11_05 => "2024-11-05",
            Self::V2025_03_26 => "2025-03-26",
            Self::V2025_06_18 => "2025-06-18",
            Self::V2025_11_25 => "2025-11-25",
            Self::V2026_07_28 => "2026-07-28",
        }
    }

    /// The era it belongs to.
    pub fn era(self) -> Era {
        match self {
            Self::V2024_11_05 | Self::V2025_03_26 | Self::V2025_06_18 | Self::V2025_11_25 => Era::Legacy,
            Self::V2026_07_28 => Era::Modern,
        }
    }

    /// What `initialize` is answered with: the version asked for if we speak it, else our newest with sessions.
    pub fn negotiate(asked: &str) -> Self {
        Self::parse(asked).filter(|version| version.era() == Era::Legacy).unwrap_or(Self::LATEST_LEGACY)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Keys of `_meta` that the protocol owns.
pub mod key {
    /// The revision a modern request is made in.
    pub const PROTOCOL_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
    /// What the client can do.
    pub const CLIENT_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
    /// Who the client says it is.
    pub const CLIENT_INFO: &str = "io.modelcontextprotocol/clientInfo";
    /// The least severe log message the client wants.
    pub const LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";
    /// Who the server says it is.
    pub const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";
    /// Which `subscriptions/listen` a notification belongs to.
    pub const SUBSCRIPTION_ID: &str = "io.modelcontextprotocol/subscriptionId";
}

/// Methods whose modern result must say how long it may be kept.
pub fn is_cacheable(method: &str) -> bool {
    matches!(
        method,
        "server/discover"
            | "tools/list"
            | "prompts/list"
            | "resources/list"
            | "resources/templates/list"
            | "resources/read"
    )
}

/// Methods a modern server may answer with `input_required`.
pub fn may_ask(method: &str) -> bool {
    matches!(method, "tools/call" | "prompts/get" | "resources/read")
}

/// Methods that only exist where there are sessions.
pub fn is_legacy_only(method: &str) -> bool {
    matches!(
        method,
        "initialize" | "ping" | "logging/setLevel" | "resources/subscribe" | "resources/unsubscribe"
    )
}

/// The protocol version a request carries in `_meta`, if it is a modern one.
pub fn meta_version(params: Option<&RawValue>) -> Option<Cow<'_, str>> {
    let params = params?;
    // Most legacy requests never mention the key: a substring search is cheaper than a walk.
    memmem::find(params.get().as_bytes(), key::PROTOCOL_VERSION.as_bytes())?;
    raw::get_str_in(params, &["_meta", key::PROTOCOL_VERSION])
}

/// The era an opening request tells; `None` when it belongs to neither.
pub fn of_opening(request: &Request) -> Option<Era> {
    if &*request.method == "server/discover" || meta_version(request.params.as_deref()).is_some() {
        return Some(Era::Modern);
    }
    (&*request.method == "initialize").then_some(Era::Legacy)
}

/// Checks what every modern request must carry.
pub fn check_modern_meta(params: Option<&RawValue>) -> Result<(), RpcError> {
    let meta = params.and_then(|params| raw::get_text(params.get(), "_meta"));
    let member = |name| meta.and_then(|meta| raw::get_text(meta, name));
    let Some(version) = member(key::PROTOCOL_VERSION).and_then(raw::text_of_string) else {
        return Err(missing(key::PROTOCOL_VERSION));
    };
    if Version::parse(&version).map(Version::era) != Some(Era::Modern) {
        return Err(unsupported_version(&version));
    }
    match member(key::CLIENT_CAPABILITIES) {
        Some(capabilities) if capabilities.starts_with('{') => Ok(()),
        _ => Err(missing(key::CLIENT_CAPABILITIES)),
    }
}

fn missing(name: &str) -> RpcError {
    RpcError::invalid_params(&format!("`_meta` needs `{name}`"))
}

/// The error for a version we do not speak.
pub fn unsupported_version(asked: &str) -> RpcError {
    let supported: Vec<&str> = Version::ALL.iter().map(|version| version.as_str()).collect();
    RpcError::with_data(
        code::UNSUPPORTED_VERSION,
        &format!("protocol version `{asked}` is not supported"),
        &serde_json::json!({ "supported": supported, "requested": asked }),
    )
}

/// Completes a result for a modern client: `resultType`, `ttlMs` and `cacheScope`, each only where absent.
pub fn modern_result(method: &str, result: Raw) -> Raw {
    let completed = match modern_text(method, result.get(), None) {
        Cow::Borrowed(_) => None,
        Cow::Owned(text) => raw::from_text(text),
    };
    completed.unwrap_or(result)
}

/// The text of a result for a modern client, with `_meta[serverInfo]` where none is there. What is complete stays borrowed.
pub(crate) fn modern_text<'a>(method: &str, result: &'a str, server_info: Option<&RawValue>) -> Cow<'a, str> {
    let kind = raw::get_text(result, "resultType");
    let mut edits = Vec::new();
    if kind.is_none() {
        edits.push(Edit::Set("resultType", "\"complete\""));
    }
    if is_cacheable(method) && kind.is_none_or(|kind| kind == "\"complete\"") {
        if raw::get_text(result, "ttlMs").is_none() {
            edits.push(Edit::Set("ttlMs", "0"));
        }
        if raw::get_text(result, "cacheScope").is_none() {
            edits.push(Edit::Set("cacheScope", "\"private\""));
        }
    }
    let meta = raw::get_text(result, "_meta");
    let meta = match server_info {
        Some(info) if meta.and_then(|meta| raw::get_text(meta, key::SERVER_INFO)).is_none() => {
            raw::edit_text(meta.unwrap_or("{}"), &[Edit::Set(key::SERVER_INFO, info.get())])
        }
        _ => None,
    };
    if let Some(meta) = &meta {
        edits.push(Edit::Set("_meta", meta));
    }
    if edits.is_empty() {
        return Cow::Borrowed(result);
    }
    raw::edit_text(result, &edits).map_or(Cow::Borrowed(result), Cow::Owned)
}

/// Takes what only the modern era has out of a result for a legacy client.
pub fn legacy_result(method: &str, result: Raw) -> Raw {
    let text = result.get();
    if memmem::find(text.as_bytes(), b"\"resultType\"").is_none() {
        return result;
    }
    if raw::get_text(text, "resultType") != Some("\"complete\"") {
        return result;
    }
    let mut edits = vec![Edit::Remove("resultType")];
    if is_cacheable(method) {
        edits.extend([Edit::Remove("ttlMs"), Edit::Remove("cacheScope")]);
    }
    let edited = raw::edit(&result, &edits).unwrap_or(result);
    match raw::get_in(&edited, &["_meta", key::SERVER_INFO]) {
        Some(_) => drop_meta(&edited, &[Edit::Remove(key::SERVER_INFO)]).unwrap_or(edited),
        None => edited,
    }
}

/// Edits `_meta` and takes it out whole when nothing is left in it.
fn drop_meta(object: &RawValue, edits: &[Edit<'_>]) -> Option<Raw> {
    let text = raw::edit_inside(object.get(), "_meta", edits)?;
    match raw::get_text(&text, "_meta") {
        Some("{}") => raw::from_text(raw::edit_text(&text, &[Edit::Remove("_meta")])?),
        _ => raw::from_text(text),
    }
}

/// A legacy error in modern words: resource not found has another number there.
pub fn modern_error(error: RpcError) -> RpcError {
    if error.code() != code::LEGACY_RESOURCE_NOT_FOUND {
        return error;
    }
    let code = raw::to_raw(&code::INVALID_PARAMS);
    raw::set(error.as_raw(), "code", &code).map(RpcError::from_raw).unwrap_or(error)
}

/// A reply as a client of `era` expects it, whatever era it came from.
pub fn reply_for(era: Era, method: &str, reply: Reply) -> Reply {
    match (era, reply) {
        (Era::Modern, Ok(result)) => Ok(modern_result(method, result)),
        (Era::Modern, Err(error)) => Err(modern_error(error)),
        (Era::Legacy, Ok(result)) => Ok(legacy_result(method, result)),
        (Era::Legacy, Err(error)) => Err(error),
    }
}

/// Adds `_meta[serverInfo]` where it is absent.
pub fn with_server_info(result: Raw, server_info: &RawValue) -> Raw {
    if raw::get_in(&result, &["_meta", key::SERVER_INFO]).is_some() {
        return result;
    }
    raw::set_in(&result, "_meta", key::SERVER_INFO, server_info).unwrap_or(result)
}

/// Takes the per-hop keys of a modern request out of `params`, for an upstream that speaks the legacy era.
pub fn legacy_params(params: Raw) -> Raw {
    if memmem::find(params.get().as_bytes(), b"io.modelcontextprotocol/").is_none() {
        return params;
    }
    let edits = [
        Edit::Remove(key::PROTOCOL_VERSION),
        Edit::Remove(key::CLIENT_CAPABILITIES),
        Edit::Remove(key::CLIENT_INFO),
        Edit::Remove(key::LOG_LEVEL),
    ];
    if raw::get(&params, "_meta").is_none() {
        return params;
    }
    drop_meta(&params, &edits).unwrap_or(params)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(text: &str) -> Raw {
        raw::from_text(text).unwrap()
    }

    #[test]
    fn results_change_only_protocol_fields() {
        let check = |method: &str, legacy: &str, modern: &str| {
            assert_eq!(modern_result(method, raw(legacy)).get(), modern);
            assert_eq!(legacy_result(method, raw(modern)).get(), legacy);
        };
        check(
            "tools/call",
            r#"{"content":[ ],"x":1.0}"#,
            r#"{"content":[ ],"x":1.0,"resultType":"complete"}"#,
        );
        check(
            "tools/list",
            r#"{"tools":[]}"#,
            r#"{"tools":[],"resultType":"complete","ttlMs":0,"cacheScope":"private"}"#,
        );
        let asks = r#"{"resultType":"input_required","requestState":"x"}"#;
        assert_eq!(modern_result("resources/read", raw(asks)).get(), asks);
        assert_eq!(legacy_result("tools/call", raw(asks)).get(), asks);
    }

    #[test]
    fn errors_and_meta_cross_the_era() {
        let missing = RpcError::new(code::LEGACY_RESOURCE_NOT_FOUND, "no such resource");
        assert_eq!(modern_error(missing).code(), code::INVALID_PARAMS);
        let params = r#"{"name":"x","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","a":1}}"#;
        assert_eq!(legacy_params(raw(params)).get(), r#"{"name":"x","_meta":{"a":1}}"#);
        let info = raw(r#"{"name":"s"}"#);
        assert_eq!(
            legacy_result("tools/call", with_server_info(raw(r#"{"resultType":"complete"}"#), &info)).get(),
            "{}"
        );
    }

    #[test]
    fn modern_requests_must_say_who_they_are() {
        let check = |params: &str, code: Option<i64>| {
            let found = check_modern_meta(Some(&raw(params))).err().map(|error| error.code());
            assert_eq!(found, code, "{params}");
        };
        check(r#"{}"#, Some(code::INVALID_PARAMS));
        check(
            r#"{"_meta":{"io.modelcontextprotocol/protocolVersion":"2027-01-01"}}"#,
            Some(code::UNSUPPORTED_VERSION),
        );
        check(
            r#"{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}"#,
            Some(code::INVALID_PARAMS),
        );
        check(
            r#"{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}"#,
            None,
        );
        assert_eq!(Version::negotiate("1999-01-01"), Version::LATEST_LEGACY);
        assert_eq!(Version::negotiate("2025-06-18"), Version::V2025_06_18);
    }
}
