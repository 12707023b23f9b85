//! The characters of the one list of invisible characters, and a check that a text shows each of them as an escape.

use countersign_policy::visible_text::{INVISIBLE, is_invisible};

/// A text with every character of a short range and the first, a middle and the last one of a long range, each after its number:
/// `<202e:…>`.
pub(crate) fn text() -> String {
    let codes = |(first, last): &(char, char)| {
        let (first, last) = (u32::from(*first), u32::from(*last));
        if last - first < 64 { (first..=last).collect() } else { vec![first, (first + last) / 2, last] }
    };
    let text = numbered(INVISIBLE.iter().flat_map(codes));
    assert!(text.chars().filter(|c| is_invisible(*c)).count() > 150, "{text:?}");
    text
}

/// The same with the ends of the ranges only: a reason has at most 1,000 characters.
pub(crate) fn short_text() -> String {
    numbered(INVISIBLE.iter().flat_map(|(first, last)| [u32::from(*first), u32::from(*last)]))
}

fn numbered(codes: impl Iterator<Item = u32>) -> String {
    codes.filter_map(char::from_u32).map(|c| format!("<{:x}:{c}>", u32::from(c))).collect()
}

/// Checks that `shown` has an escape for every invisible character of `text`, and none of the characters themselves. Line breaks
/// and tabs may stand as they are.
pub(crate) fn check_escaped(shown: &str, text: &str, place: &str) {
    for c in text.chars().filter(|c| is_invisible(*c) && !matches!(c, '\n' | '\t')) {
        let code = u32::from(c);
        let short = match c {
            '\r' => "\\r",
            '\u{8}' => "\\b",
            '\u{c}' => "\\f",
            _ => "none",
        };
        // Arguments are shown as JSON, which has escapes of its own.
        let escapes = [format!("\\u{{{code:x}}}"), format!("\\u{code:04x}"), short.to_owned()];
        let is_escaped = |escape: &String| shown.contains(&format!("<{code:x}:{escape}>"));
        assert!(escapes.iter().any(is_escaped), "{place}: U+{code:04X} has no escape\n{shown}");
        assert!(!shown.contains(c), "{place}: U+{code:04X} is there itself");
    }
}
