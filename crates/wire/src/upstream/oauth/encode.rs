//! Forms and queries: names and values, percent-encoded and back. It knows no other part of a URL.

use std::fmt::Write as _;

/// `name=value&…`.
pub(super) fn form(pairs: &[(&str, &str)]) -> String {
    let parts: Vec<String> =
        pairs.iter().map(|(name, value)| format!("{}={}", percent(name), percent(value))).collect();
    parts.join("&")
}

/// Everything but unreserved letters as `%XX`.
pub(super) fn percent(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(char::from(byte)),
            // Writing to a text cannot fail.
            _ => drop(write!(out, "%{byte:02X}")),
        }
    }
    out
}

/// The first value of a name in a query; none where it is not there or no text.
pub(super) fn value(query: &str, name: &str) -> Option<String> {
    let found = query.split('&').find_map(|part| {
        let (key, value) = part.split_once('=').unwrap_or((part, ""));
        (plain(key)? == name).then_some(value)
    });
    plain(found?)
}

fn plain(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        match byte {
            b'+' => bytes.push(b' '),
            b'%' => {
                let digit = |byte: u8| char::from(byte).to_digit(16);
                let (high, low) = (digit(rest.next()?)?, digit(rest.next()?)?);
                bytes.push(u8::try_from(high * 16 + low).ok()?);
            }
            _ => bytes.push(byte),
        }
    }
    String::from_utf8(bytes).ok()
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
