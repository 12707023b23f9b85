//! The canonical form of a JSON value: RFC 8785, the bytes that are hashed, stored and sent.
//! It orders and prints; it never judges. What must not be printed is refused before, by `strict_json`.
//! For values that `strict_json::check` passes, equal bytes mean equal values. Others are printed too: their integers
//! keep every digit, so that even an unchecked 9007199254740993 is not taken for its neighbour.

use std::cmp::Ordering;
use std::fmt::Write as _;
use std::{slice, vec};

use serde_json::{Number, Value};

use crate::strict_json::print_double;

/// The canonical form as text.
pub fn to_string(value: &Value) -> String {
    let mut out = String::with_capacity(128);
    // A list of its own instead of recursion: an unchecked value may be nested to any depth.
    let mut open = Vec::new();
    begin(value, &mut out, &mut open);
    while let Some(top) = open.last_mut() {
        let separator = if std::mem::take(&mut top.first) { "" } else { "," };
        match &mut top.rest {
            ContainerIter::Items(items) => match items.next() {
                Some(item) => {
                    out.push_str(separator);
                    begin(item, &mut out, &mut open);
                }
                None => {
                    out.push(']');
                    open.pop();
                }
            },
            ContainerIter::Members(members) => match members.next() {
                Some((key, member)) => {
                    out.push_str(separator);
                    write_string(key, &mut out);
                    out.push(':');
                    begin(member, &mut out, &mut open);
                }
                None => {
                    out.push('}');
                    open.pop();
                }
            },
        }
    }
    out
}

/// The canonical form as bytes.
pub fn to_vec(value: &Value) -> Vec<u8> {
    to_string(value).into_bytes()
}

/// An array or object whose opening bracket is written, and what of it is not.
struct OpenContainer<'v> {
    first: bool,
    rest: ContainerIter<'v>,
}

enum ContainerIter<'v> {
    Items(slice::Iter<'v, Value>),
    Members(vec::IntoIter<(&'v String, &'v Value)>),
}

/// Writes a value as far as it goes without another value inside.
fn begin<'v>(value: &'v Value, out: &mut String, open: &mut Vec<OpenContainer<'v>>) {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(true) => out.push_str("true"),
        Value::Bool(false) => out.push_str("false"),
        Value::Number(number) => write_number(number, out),
        Value::String(text) => write_string(text, out),
        Value::Array(items) => {
            out.push('[');
            open.push(OpenContainer { first: true, rest: ContainerIter::Items(items.iter()) });
        }
        Value::Object(members) => {
            out.push('{');
            let mut members: Vec<_> = members.iter().collect();
            members.sort_unstable_by(|(left, _), (right, _)| utf16_order(left, right));
            open.push(OpenContainer { first: true, rest: ContainerIter::Members(members.into_iter()) });
        }
    }
}

/// RFC 8785 orders keys by UTF-16 units. That is the order of UTF-8 bytes, but for one thing: U+10000 and above (first
/// byte F0 and up) come before U+E000 to U+FFFF (first byte EE or EF).
fn utf16_order(left: &str, right: &str) -> Ordering {
    let rank = |byte: u8| if matches!(byte, 0xEE | 0xEF) { byte | 0x10 } else { byte };
    match left.bytes().zip(right.bytes()).find(|(left, right)| left != right) {
        Some((left, right)) => rank(left).cmp(&rank(right)),
        None => left.len().cmp(&right.len()),
    }
}

fn write_number(number: &Number, out: &mut String) {
    match number.as_f64().filter(|_| number.is_f64()) {
        Some(double) => out.push_str(&print_double(double)),
        // Integers print their digits; a `String` takes everything it is given.
        None => {
            let _ = write!(out, "{number}");
        }
    }
}

/// Writes a string in canonical form at the end of a text. Only the quote, the backslash and the controls below U+0020 are
/// escaped, each in its one way.
pub fn write_string(text: &str, out: &mut String) {
    out.push('"');
    let mut rest = text;
    while let Some(at) = rest.bytes().position(|byte| matches!(byte, b'"' | b'\\' | ..=0x1F)) {
        let (plain, from) = rest.split_at_checked(at).unwrap_or((rest, ""));
        out.push_str(plain);
        let mut chars = from.chars();
        match chars.next() {
            Some('"') => out.push_str("\\\""),
            Some('\\') => out.push_str("\\\\"),
            Some('\u{8}') => out.push_str("\\b"),
            Some('\t') => out.push_str("\\t"),
            Some('\n') => out.push_str("\\n"),
            Some('\u{c}') => out.push_str("\\f"),
            Some('\r') => out.push_str("\\r"),
            Some(control) => {
                let _ = write!(out, "\\u{:04x}", u32::from(control));
            }
            None => {}
        }
        rest = chars.as_str();
    }
    out.push_str(rest);
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unchecked_values_are_printed_without_meeting_their_neighbours() {
        let text = |number: u64| to_string(&Value::from(number));
        assert_eq!(text((1 << 53) + 1), "9007199254740993");
        assert_eq!(text(u64::MAX), "18446744073709551615");
    }

    #[test]
    fn keys_are_ordered_as_utf16() {
        let samples =
            "\u{0}a\u{7f}\u{80}\u{7ff}\u{800}\u{d7ff}\u{e000}\u{efff}\u{f000}\u{ffff}\u{10000}\u{10ffff}";
        let mut words: Vec<String> = samples.chars().map(String::from).collect();
        words.extend(
            samples.chars().flat_map(|first| samples.chars().map(move |second| format!("{first}{second}"))),
        );
        words.push(String::new());
        for left in &words {
            for right in &words {
                let expect = left.encode_utf16().cmp(right.encode_utf16());
                assert_eq!(utf16_order(left, right), expect, "{left:?} {right:?}");
            }
        }
    }

    #[test]
    fn a_deep_value_needs_no_stack() {
        let depth = 2_000;
        let deep = (0..depth).fold(Value::Null, |inner, _| Value::Array(vec![inner]));
        assert_eq!(to_string(&deep), format!("{}null{}", "[".repeat(depth), "]".repeat(depth)));
    }
}
