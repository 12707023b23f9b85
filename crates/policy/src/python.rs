//! JSON as Python literals, for chat text: `Apply: call tool(name='x', preview=False)`. Every value comes out as the value it
//! was, numbers by their own digits; what a reader would not see is escaped. Writes text, runs nothing.

use std::fmt::Write as _;

use crate::visible_text::is_invisible;

/// A JSON text as a Python literal. The text must be valid JSON; what is not comes out as none.
pub fn literal(json: &str) -> Option<String> {
    serde_json::from_str::<serde::de::IgnoredAny>(json).ok()?;
    let mut out = String::with_capacity(json.len() + 16);
    let mut rest = json;
    while let Some(first) = rest.chars().next() {
        rest = match first {
            '"' => {
                let end = string_end(rest)?;
                let (quoted, after) = rest.split_at_checked(end)?;
                push_string(&mut out, &serde_json::from_str::<String>(quoted).ok()?);
                after
            }
            ',' | ':' => {
                out.push(first);
                out.push(' ');
                rest.get(1..)?
            }
            ' ' | '\n' | '\r' | '\t' => rest.get(1..)?,
            '[' | ']' | '{' | '}' => {
                out.push(first);
                rest.get(1..)?
            }
            't' => word(&mut out, rest, "true", "True")?,
            'f' => word(&mut out, rest, "false", "False")?,
            'n' => word(&mut out, rest, "null", "None")?,
            _ => {
                let end = rest.find([',', ']', '}', ' ', '\n', '\r', '\t']).unwrap_or(rest.len());
                let (number, after) = rest.split_at_checked(end)?;
                out.push_str(number);
                after
            }
        };
    }
    Some(out)
}

fn word<'r>(out: &mut String, rest: &'r str, json: &str, python: &str) -> Option<&'r str> {
    out.push_str(python);
    rest.strip_prefix(json)
}

/// The byte after the closing quote of the string a text starts with.
fn string_end(text: &str) -> Option<usize> {
    let mut escaped = false;
    for (at, byte) in text.bytes().enumerate().skip(1) {
        match (escaped, byte) {
            (true, _) => escaped = false,
            (false, b'\\') => escaped = true,
            (false, b'"') => return Some(at + 1),
            (false, _) => {}
        }
    }
    None
}

/// A text as a Python literal.
pub fn string(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    push_string(&mut out, text);
    out
}

fn push_string(out: &mut String, text: &str) {
    // As Python itself would write it: single quotes unless only double ones need no escape.
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    out.push(quote);
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c == quote => {
                out.push('\\');
                out.push(c);
            }
            c if is_seen(c) => out.push(c),
            c => {
                let code = u32::from(c);
                // Writing to a text cannot fail.
                let _ = match code {
                    0..=0xff => write!(out, "\\x{code:02x}"),
                    0x100..=0xffff => write!(out, "\\u{code:04x}"),
                    _ => write!(out, "\\U{code:08x}"),
                };
            }
        }
    }
    out.push(quote);
}

/// Whether a reader sees the character as what it is. The plain space is the only space that counts.
fn is_seen(c: char) -> bool {
    !is_invisible(c) && (c == ' ' || !c.is_whitespace())
}

/// Words Python keeps for itself: no name of an argument.
const KEYWORDS: [&str; 35] = [
    "False", "None", "True", "and", "as", "assert", "async", "await", "break", "class", "continue", "def",
    "del", "elif", "else", "except", "finally", "for", "from", "global", "if", "import", "in", "is",
    "lambda", "nonlocal", "not", "or", "pass", "raise", "return", "try", "while", "with", "yield",
];

/// Whether a name can stand before `=` in a call.
fn is_name(name: &str) -> bool {
    let mut letters = name.chars();
    letters.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
        && letters.all(|c| c.is_ascii_alphanumeric() || c == '_')
        && !KEYWORDS.contains(&name)
}

/// One argument of a call: `name=value`, or `**{'name': value}` where the name is none in Python.
pub fn argument(name: &str, literal: &str) -> String {
    if is_name(name) { format!("{name}={literal}") } else { format!("**{{{}: {literal}}}", string(name)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_become_python() {
        for (json, python) in [
            ("null", "None"),
            ("[true,false]", "[True, False]"),
            (r#"{"a":1.50,"b":{"c":[-1e-7]}}"#, "{'a': 1.50, 'b': {'c': [-1e-7]}}"),
            (r#""it's""#, r#""it's""#),
            (r#""it's \"so\"""#, r#"'it\'s "so"'"#),
            (r#""a\\b\n\u0007\u202e\ud83d\ude80 é""#, r"'a\\b\n\x07\u202e🚀 é'"),
            (r#" { "true" : "null, false" } "#, "{'true': 'null, false'}"),
        ] {
            assert_eq!(literal(json).as_deref(), Some(python), "{json}");
        }
        assert_eq!(literal("{\"a\":"), None);
        assert_eq!(literal("nul"), None);
    }

    #[test]
    fn names_that_are_none_in_python_are_spread() {
        assert_eq!(argument("supplier_id", "7"), "supplier_id=7");
        assert_eq!(argument("from", "7"), "**{'from': 7}");
        assert_eq!(argument("a-b", "7"), "**{'a-b': 7}");
        assert_eq!(argument("", "7"), "**{'': 7}");
    }
}
