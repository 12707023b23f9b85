//! Checks where a request comes from (`Host`, `Origin`) and what it accepts, and builds the plain HTTP error responses. A browser page
//! of a foreign origin gets no further than this.

use ::http::header::{ACCEPT, ALLOW, CONTENT_TYPE, HOST, ORIGIN, RETRY_AFTER};
use ::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::body::Body;
use axum::response::Response;

use super::{HttpOptions, HttpRefusal, VERSION};
use crate::era::{Era, Version};
use crate::jsonrpc::{self, JsonRpcId, Reply, RpcError, code};

/// Rejects a `Host` that is not ours (DNS rebinding) and an `Origin` that is neither ours nor allowed.
pub(super) fn check_source(options: &HttpOptions, headers: &HeaderMap) -> Result<(), HttpRefusal> {
    let refusal =
        |message: &str| HttpRefusal { status: 403, headers: Vec::new(), message: message.to_owned() };
    let text = |name| {
        let value: Option<&HeaderValue> = headers.get(name);
        value.and_then(|value| value.to_str().ok())
    };
    let host = text(HOST).unwrap_or_default();
    if !is_allowed_host(options, host) {
        return Err(refusal("this host name is not served here"));
    }
    if !headers.contains_key(ORIGIN) {
        return Ok(());
    }
    let Some(origin) = text(ORIGIN) else { return Err(refusal("the origin cannot be read")) };
    let own = origin.split_once("://").is_some_and(|(_, authority)| authority.eq_ignore_ascii_case(host));
    if own || options.allowed_origins.iter().any(|allowed| allowed.eq_ignore_ascii_case(origin)) {
        return Ok(());
    }
    Err(refusal("requests from this origin are not accepted"))
}

fn is_allowed_host(options: &HttpOptions, host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    options.allowed_hosts.iter().any(|allowed| {
        allowed == "*" || allowed.eq_ignore_ascii_case(host) || allowed.eq_ignore_ascii_case(name)
    })
}

/// Whether the caller accepts a media type; no header accepts all.
pub(super) fn accepts(headers: &HeaderMap, wanted: &str) -> bool {
    if !headers.contains_key(ACCEPT) {
        return true;
    }
    let (kind, _) = wanted.split_once('/').unwrap_or((wanted, ""));
    headers
        .get_all(ACCEPT)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|part| {
            let part = part.split(';').next().unwrap_or_default().trim();
            part == "*/*"
                || part.eq_ignore_ascii_case(wanted)
                || part.strip_suffix("/*").is_some_and(|prefix| prefix.eq_ignore_ascii_case(kind))
        })
}

pub(super) fn is_json(headers: &HeaderMap) -> bool {
    headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).is_some_and(|value| {
        value.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case("application/json")
    })
}

pub(super) fn version_header(headers: &HeaderMap) -> Option<&str> {
    headers.get(&VERSION).and_then(|value| value.to_str().ok())
}

/// Whether the headers name the stateless revision, or one we do not know yet.
pub(super) fn is_modern(headers: &HeaderMap) -> bool {
    version_header(headers).is_some_and(|version| match Version::parse(version) {
        Some(version) => version.era() == Era::Modern,
        None => version > Version::LATEST_LEGACY.as_str(),
    })
}

pub(super) fn refuse(refusal: HttpRefusal) -> Response {
    let status = StatusCode::from_u16(refusal.status).unwrap_or(StatusCode::FORBIDDEN);
    let mut response = plain(status, &refusal.message);
    for (name, value) in &refusal.headers {
        if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name.as_bytes()), HeaderValue::from_str(value))
        {
            response.headers_mut().append(name, value);
        }
    }
    response
}

pub(super) fn not_allowed() -> Response {
    let mut response = plain(StatusCode::METHOD_NOT_ALLOWED, "only POST is served here");
    response.headers_mut().insert(ALLOW, HeaderValue::from_static("POST"));
    response
}

pub(super) fn empty(status: StatusCode) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    response
}

/// A status with a JSON-RPC error that belongs to no request: clients show its message.
pub(super) fn plain(status: StatusCode, message: &str) -> Response {
    error(status, None, RpcError::new(code::INVALID_REQUEST, message))
}

/// The same with `Retry-After`.
pub(super) fn busy(status: StatusCode, message: &str) -> Response {
    let mut response = plain(status, message);
    response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("5"));
    response
}

pub(super) fn error(status: StatusCode, id: Option<&JsonRpcId>, error: RpcError) -> Response {
    reply(status, id, &Err(error))
}

pub(super) fn reply(status: StatusCode, id: Option<&JsonRpcId>, reply: &Reply) -> Response {
    let mut bytes = Vec::new();
    jsonrpc::write_response(&mut bytes, id, reply);
    json(status, bytes)
}

pub(super) fn json(status: StatusCode, bytes: Vec<u8>) -> Response {
    let mut response = Response::new(super::full(bytes));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

#[cfg(test)]
mod tests {
    use super::super::super::{SealKey, ServeOptions};
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
            .collect()
    }

    #[test]
    fn only_our_own_names_and_origins() {
        let mut options = HttpOptions::loopback(ServeOptions::new(SealKey::random()));
        options.allowed_origins.push("https://ok.example".into());
        let check = |pairs: &[(&'static str, &'static str)], allowed: bool| {
            assert_eq!(check_source(&options, &headers(pairs)).is_ok(), allowed, "{pairs:?}");
        };
        check(&[("host", "127.0.0.1:7878")], true);
        check(&[("host", "[::1]:7878")], true);
        check(&[("host", "LOCALHOST")], true);
        check(&[("host", "evil.example:7878")], false);
        check(&[("host", "127.0.0.1.evil.example")], false);
        check(&[], false);
        check(&[("host", "localhost:1"), ("origin", "http://localhost:1")], true);
        check(&[("host", "localhost:1"), ("origin", "http://localhost:2")], false);
        check(&[("host", "localhost:1"), ("origin", "https://ok.example")], true);
        check(&[("host", "localhost:1"), ("origin", "null")], false);
    }

    #[test]
    fn accept_lists_are_read() {
        let check = |value: &'static str, wanted: &str, expect: bool| {
            assert_eq!(accepts(&headers(&[("accept", value)]), wanted), expect, "{value} {wanted}");
        };
        check("application/json, text/event-stream", "text/event-stream", true);
        check("application/json;q=1", "text/event-stream", false);
        check("text/*", "text/event-stream", true);
        check("*/*", "application/json", true);
        assert!(accepts(&HeaderMap::new(), "application/json"));
    }
}
