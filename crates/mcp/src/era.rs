//! The two eras of MCP: revisions with sessions (legacy) and the stateless one (modern). Detects the era of a message and translates
//! results between the eras. It changes protocol fields only, never content.

use std::borrow::Cow;
use std::fmt;

use memchr::memmem;
use serde_json::value::RawValue;

use crate::jsonrpc::{Reply, Request, RpcError, code};
use crate::raw::{self, MemberEdit, RawJson};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Era {
    /// Revisions 2024-11-05 to 2025-11-25: `initialize` and a session.
    Legacy,
    /// Revision 2026-07-28: stateless, with everything in `_meta`.
    Modern,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Version {
    /// stdio only.
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
    /// Newest first.
    pub const ALL: [Version; 5] =
        [Self::V2026_07_28, Self::V2025_11_25, Self::V2025_06_18, Self::V2025_03_26, Self::V2024_11_05];
    pub const LATEST_LEGACY: Version = Self::V2025_11_25;
    pub const MODERN: Version = Self::V2026_07_28;

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|version| version.as_str() == text)
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Self::V2024_11_05 => "2024-11-05",
            Self::V2025_03_26 => "2025-03-26",
            Self::V2025_06_18 => "2025-06-18",
            Self::V2025_11_25 => "2025-11-25",
            Self::V2026_07_28 => "2026-07-28",
        }
    }

    pub fn era(self) -> Era {
        match self {
            Self::V2024_11_05 | Self::V2025_03_26 | Self::V2025_06_18 | Self::V2025_11_25 => Era::Legacy,
            Self::V2026_07_28 => Era::Modern,
        }
    }

    /// The answer to `initialize`: the requested version if we speak it, else our newest legacy one.
    pub fn negotiate(asked: &str) -> Self {
        // A client that opens with `initialize` cannot use the stateless revision, even if it names it.
        Self::parse(asked).filter(|version| version.era() == Era::Legacy).unwrap_or(Self::LATEST_LEGACY)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

pub mod key {
    pub const PROTOCOL_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
    pub const CLIENT_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
    pub const CLIENT_INFO: &str = "io.modelcontextprotocol/clientInfo";
    /// The lowest log severity the client wants.
    pub const LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";
    pub const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";
    /// The `subscriptions/listen` a notification belongs to.
    pub const SUBSCRIPTION_ID: &str = "io.modelcontextprotocol/subscriptionId";
}

/// Methods whose modern result carries a cache lifetime.
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

/// Methods of the legacy era only.
pub fn is_legacy_only(method: &str) -> bool {
    matches!(
        method,
        // The stateless revision has no session to hold their effect.
        "initialize" | "ping" | "logging/setLevel" | "resources/subscribe" | "resources/unsubscribe"
    )
}

/// The protocol version in `_meta`, which only modern requests have.
pub fn meta_version(params: Option<&RawValue>) -> Option<Cow<'_, str>> {
    let params = params?;
    // Most legacy requests never contain the key: a substring search is cheaper than parsing.
    memmem::find(params.get().as_bytes(), key::PROTOCOL_VERSION.as_bytes())?;
    raw::get_str_in(params, &["_meta", key::PROTOCOL_VERSION])
}

/// The era of an opening request; `None` when it belongs to neither.
pub fn of_opening(request: &Request) -> Option<Era> {
    // Decided by the request itself, not by the transport: one endpoint serves both eras.
    if &*request.method == "server/discover" || meta_version(request.params.as_deref()).is_some() {
        return Some(Era::Modern);
    }
    (&*request.method == "initialize").then_some(Era::Legacy)
}

/// Checks the members that every modern request must have.
pub fn check_modern_meta(params: Option<&RawValue>) -> Result<(), RpcError> {
    let meta = params.and_then(|params| raw::get_text(params.get(), "_meta"));
    let member = |name| meta.and_then(|meta| raw::get_text(meta, name));
    let Some(version) = member(key::PROTOCOL_VERSION).and_then(raw::text_of_string) else {
        return Err(missing(key::PROTOCOL_VERSION));
    };
    // A legacy version in `_meta` is no legacy request: those carry none.
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

pub fn unsupported_version(asked: &str) -> RpcError {
    let supported: Vec<&str> = Version::ALL.iter().map(|version| version.as_str()).collect();
    RpcError::with_data(
        code::UNSUPPORTED_VERSION,
        &format!("protocol version `{asked}` is not supported"),
        &serde_json::json!({ "supported": supported, "requested": asked }),
    )
}

/// Adds what a modern client requires: `resultType`, `ttlMs` and `cacheScope`, each only where absent.
pub fn modern_result(method: &str, result: RawJson) -> RawJson {
    let completed = match modern_text(method, result.get(), None) {
        Cow::Borrowed(_) => None,
        Cow::Owned(text) => raw::from_text(text),
    };
    completed.unwrap_or(result)
}

/// The same as text, with `_meta[serverInfo]`. A complete result stays borrowed.
pub(crate) fn modern_text<'a>(method: &str, result: &'a str, server_info: Option<&RawValue>) -> Cow<'a, str> {
    let kind = raw::get_text(result, "resultType");
    let mut edits = Vec::new();
    if kind.is_none() {
        edits.push(MemberEdit::Set("resultType", "\"complete\""));
    }
    // `input_required` has no lifetime: only complete results are cached.
    if is_cacheable(method) && kind.is_none_or(|kind| kind == "\"complete\"") {
        if raw::get_text(result, "ttlMs").is_none() {
            // A legacy upstream promises no lifetime, so a modern client must not cache its lists.
            edits.push(MemberEdit::Set("ttlMs", "0"));
        }
        if raw::get_text(result, "cacheScope").is_none() {
            // Lists depend on the caller's scopes: a shared cache would show one principal's tools to another.
            edits.push(MemberEdit::Set("cacheScope", "\"private\""));
        }
    }
    let meta = raw::get_text(result, "_meta");
    let meta = match server_info {
        // An upstream that names itself keeps its name: the gateway does not sign for it.
        Some(info) if meta.and_then(|meta| raw::get_text(meta, key::SERVER_INFO)).is_none() => {
            raw::edit_text(meta.unwrap_or("{}"), &[MemberEdit::Set(key::SERVER_INFO, info.get())])
        }
        _ => None,
    };
    if let Some(meta) = &meta {
        edits.push(MemberEdit::Set("_meta", meta));
    }
    if edits.is_empty() {
        return Cow::Borrowed(result);
    }
    raw::edit_text(result, &edits).map_or(Cow::Borrowed(result), Cow::Owned)
}

/// Removes what only the modern era has, for a legacy client.
pub fn legacy_result(method: &str, result: RawJson) -> RawJson {
    let text = result.get();
    // Results can be megabytes, and most have no such member: search before parsing.
    if memmem::find(text.as_bytes(), b"\"resultType\"").is_none() {
        return result;
    }
    // Content may contain the word: only the top-level member counts. A question is translated elsewhere.
    if raw::get_text(text, "resultType") != Some("\"complete\"") {
        return result;
    }
    let mut edits = vec![MemberEdit::Remove("resultType")];
    if is_cacheable(method) {
        edits.extend([MemberEdit::Remove("ttlMs"), MemberEdit::Remove("cacheScope")]);
    }
    let edited = raw::edit(&result, &edits).unwrap_or(result);
    match raw::get_in(&edited, &["_meta", key::SERVER_INFO]) {
        Some(_) => drop_meta(&edited, &[MemberEdit::Remove(key::SERVER_INFO)]).unwrap_or(edited),
        None => edited,
    }
}

/// Edits `_meta` and removes it when nothing is left in it.
fn drop_meta(object: &RawValue, edits: &[MemberEdit<'_>]) -> Option<RawJson> {
    let text = raw::edit_inside(object.get(), "_meta", edits)?;
    match raw::get_text(&text, "_meta") {
        // An empty `_meta` that the upstream did not send would be a difference to a direct connection.
        Some("{}") => raw::from_text(raw::edit_text(&text, &[MemberEdit::Remove("_meta")])?),
        _ => raw::from_text(text),
    }
}

/// Translates an error code: resource not found differs between the eras.
pub fn modern_error(error: RpcError) -> RpcError {
    if error.code() != code::LEGACY_RESOURCE_NOT_FOUND {
        return error;
    }
    let code = raw::to_raw(&code::INVALID_PARAMS);
    raw::set(error.as_raw(), "code", &code).map(RpcError::from_raw).unwrap_or(error)
}

/// Translates a reply of either era for a client of `era`.
pub fn reply_for(era: Era, method: &str, reply: Reply) -> Reply {
    match (era, reply) {
        (Era::Modern, Ok(result)) => Ok(modern_result(method, result)),
        (Era::Modern, Err(error)) => Err(modern_error(error)),
        (Era::Legacy, Ok(result)) => Ok(legacy_result(method, result)),
        (Era::Legacy, Err(error)) => Err(error),
    }
}

/// Adds `_meta[serverInfo]` where it is absent.
pub fn with_server_info(result: RawJson, server_info: &RawValue) -> RawJson {
    if raw::get_in(&result, &["_meta", key::SERVER_INFO]).is_some() {
        return result;
    }
    raw::set_in(&result, "_meta", key::SERVER_INFO, server_info).unwrap_or(result)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(text: &str) -> RawJson {
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
