//! What differs from run to run, replaced by something of the same width, so that columns still stand.

use regex::{Captures, Regex};

/// Ids and hashes become numbers in the order they appear; how long something took and incidents become letters.
pub(crate) fn mask(text: &str) -> String {
    let text = numbered(text, r"\b01[0-9A-HJKMNP-TV-Z]{24}\b", |number| format!("ID{number:024}"));
    let text = numbered(&text, r"\b[0-9a-f]{64}\b", |number| format!("hash{number:060}"));
    let text = numbered(&text, r"\b[0-9a-f]{16}\.jsonl\b", |number| format!("place{number:011}.jsonl"));
    let text = numbered(&text, r"\b[0-9a-f]{128}\b", |number| format!("signature{number:0119}"));
    let text = Regex::new(r"\b\d+(\.\d+)? (µs|ms|s)\b").unwrap().replace_all(&text, "N ms").into_owned();
    let text = Regex::new(r#""took_ms":\d+"#).unwrap().replace_all(&text, r#""took_ms":0"#).into_owned();
    let text = Regex::new(r#""incident":"[0-9a-f]{8}""#)
        .unwrap()
        .replace_all(&text, r#""incident":"xxxxxxxx""#)
        .into_owned();
    Regex::new(r"\bincident [0-9a-f]{8}\b").unwrap().replace_all(&text, "incident xxxxxxxx").into_owned()
}

fn numbered(text: &str, pattern: &str, name: impl Fn(usize) -> String) -> String {
    let mut seen: Vec<String> = Vec::new();
    let replace = |found: &Captures<'_>| {
        let known = seen.iter().position(|one| *one == found[0]);
        let at = known.unwrap_or_else(|| {
            seen.push(found[0].to_owned());
            seen.len() - 1
        });
        name(at + 1)
    };
    Regex::new(pattern).unwrap().replace_all(text, replace).into_owned()
}
