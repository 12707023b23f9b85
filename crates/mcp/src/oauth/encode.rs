//! Form and query encoding.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

/// Everything but the unreserved characters of RFC 3986.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

pub(super) fn form(pairs: &[(&str, &str)]) -> String {
    let parts: Vec<String> =
        pairs.iter().map(|(name, value)| format!("{}={}", percent(name), percent(value))).collect();
    parts.join("&")
}

pub(super) fn percent(text: &str) -> String {
    utf8_percent_encode(text, RESERVED).to_string()
}

/// The first value of a name in a query; none if it is absent or no text.
pub(super) fn value(query: &str, name: &str) -> Option<String> {
    let found = query.split('&').find_map(|part| {
        let (key, value) = part.split_once('=').unwrap_or((part, ""));
        (decode(key)? == name).then_some(value)
    });
    decode(found?)
}

fn decode(text: &str) -> Option<String> {
    // The crate keeps a `%` that begins no escape; what cannot be read in one way only is not read here.
    let is_escape = |after: &str| {
        after.as_bytes().first_chunk::<2>().is_some_and(|pair| pair.iter().all(u8::is_ascii_hexdigit))
    };
    if !text.split('%').skip(1).all(is_escape) {
        return None;
    }
    let text = text.replace('+', " ");
    percent_decode_str(&text).decode_utf8().ok().map(|text| text.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_encoded_comes_back() {
        let odd = "a b&c=d/ü\u{0}+%~";
        let query = form(&[("x", "1"), ("odd", odd), ("odd", "second")]);
        assert_eq!(value(&query, "odd").as_deref(), Some(odd));
        assert_eq!(value("code=a+b&state", "code").as_deref(), Some("a b"));
        assert_eq!(value("code=a+b&state", "state").as_deref(), Some(""));
        assert_eq!(value("code=%zz", "code"), None);
        assert_eq!(value("code=%ff", "code"), None);
        assert_eq!(value("code=%f", "code"), None);
    }
}
