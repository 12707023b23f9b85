//! Texts of others made safe to show: whatever moves the cursor, hides, or turns the line around becomes an escape.
//! Changes nothing that is stored or hashed; only what a person sees.

pub use countersign_policy::visible_text::line as visible;

/// A word as a shell takes it, safe to show.
pub fn shell_word(word: &str) -> String {
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
