//! Texts of others made safe to show: whatever moves the cursor, hides, or turns the line around becomes an escape.
//! Changes nothing that is stored or hashed; only what a person sees.

use std::borrow::Cow;
use std::fmt::Write as _;

/// A text on one line: line ends are escapes too.
pub(crate) fn visible(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_deceptive) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            c if !is_deceptive(c) => shown.push(c),
            '\n' => shown.push_str("\\n"),
            '\r' => shown.push_str("\\r"),
            '\t' => shown.push_str("\\t"),
            // Writing to a String can't fail.
            c => drop(write!(shown, "\\u{{{:x}}}", u32::from(c))),
        }
    }
    Cow::Owned(shown)
}

/// Controls, and characters that are invisible or reorder what stands around them.
fn is_deceptive(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{00ad}' | '\u{034f}' | '\u{061c}' | '\u{115f}' | '\u{1160}' | '\u{180e}'
            | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
            | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e0fff}')
}

/// A word as a shell takes it, safe to show.
pub(crate) fn shell_word(word: &str) -> String {
    let word = visible(word);
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_./:@%+=".contains(letter);
    let plain = !word.is_empty() && word.chars().all(is_plain);
    if plain { word.into_owned() } else { format!("'{}'", word.replace('\'', "'\\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_hidden_stays_hidden() {
        let check = |text: &str, expect: &str| assert_eq!(visible(text), expect);
        check("plain – ünïcode 日本", "plain – ünïcode 日本");
        check("a\x1b[2Jb", "a\\u{1b}[2Jb");
        check("a\r\nb\tc\0", "a\\r\\nb\\tc\\u{0}");
        check("pay \u{202e}001\u{202c}", "pay \\u{202e}001\\u{202c}");
        check("zero\u{200b}width \u{e0041}", "zero\\u{200b}width \\u{e0041}");
        check("\u{9b}31m", "\\u{9b}31m");
    }
}
