//! What must hold for any headers: they are read or refused, never a panic; what we write into a header is read back as it
//! was; and a name that differs from the body's is never let through.

use countersign_mcp::mirrored_headers;
use countersign_mcp::oauth::BearerChallenge;
use countersign_mcp::raw;
use http::{HeaderMap, HeaderName, HeaderValue};

/// Inputs that get far, for a start: a value, a line end, a body.
#[allow(dead_code, reason = "libFuzzer takes the files themselves")]
pub(crate) const SEEDS: &[&[u8]] = &[
    include_bytes!("../seeds/header/01"),
    include_bytes!("../seeds/header/02"),
    include_bytes!("../seeds/header/03"),
    include_bytes!("../seeds/header/04"),
    include_bytes!("../seeds/header/05"),
    include_bytes!("../seeds/header/06"),
];

/// Checks one input.
pub(crate) fn check(bytes: &[u8]) {
    let split = bytes.iter().position(|byte| *byte == b'\n').unwrap_or(bytes.len());
    let (value, body) = (&bytes[..split], bytes.get(split + 1..).unwrap_or_default());
    if let Ok(text) = std::str::from_utf8(value) {
        let _ = BearerChallenge::parse(text);
        let _ = mirrored_headers::decode_header_value(text);
    }
    let Ok(body) = std::str::from_utf8(body) else { return };
    // Any text of a body fits into a header, and comes back.
    let written = mirrored_headers::encode_header_value(body);
    assert!(HeaderValue::from_str(&written).is_ok(), "{written:?}");
    assert_eq!(mirrored_headers::decode_header_value(&written).as_deref(), Some(body), "{written:?}");
    let Some(params) = raw::from_text(body) else { return };
    let schema = raw::from_text(
        r#"{"properties":{"region":{"type":"string","x-mcp-header":"Region"},"n":{"type":"integer","x-mcp-header":"N"}}}"#,
    );
    let mirrors = schema.and_then(|schema| mirrored_headers::MirroredHeaders::of_schema(&schema).ok());
    let Ok(value) = HeaderValue::from_bytes(value) else { return };
    let mut headers = HeaderMap::new();
    headers.insert(HeaderName::from_static("mcp-method"), HeaderValue::from_static("tools/call"));
    headers.insert(HeaderName::from_static("mcp-name"), value.clone());
    let checked = mirrored_headers::check(&headers, "tools/call", Some(&params), mirrors.as_ref());
    let shown = value.to_str().ok().and_then(mirrored_headers::decode_header_value);
    let name = mirrored_headers::name_of("tools/call", Some(&params));
    if checked.is_ok() {
        assert_eq!(
            shown.as_deref(),
            name.as_deref(),
            "a header that disagrees with the body was let through"
        );
    }
    // What we send ourselves, we would take.
    let own: HeaderMap =
        mirrored_headers::outgoing("tools/call", Some(&params), mirrors.as_ref()).into_iter().collect();
    if name.is_some() {
        let taken = mirrored_headers::check(&own, "tools/call", Some(&params), mirrors.as_ref());
        assert!(taken.is_ok(), "{taken:?} {own:?} {params}");
    }
}
