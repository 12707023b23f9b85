//! What can be wrong with a text, where, and how it is said. Input shown in a message is escaped and cut:
//! a message is one line whatever the text holds.

use std::fmt;

use crate::visible_text::is_invisible;

/// Characters of the input a message shows at most.
const SHOWN: usize = 60;

/// What is wrong with a text or a value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StrictFault {
    /// The object already has this key, after unescaping.
    #[error("duplicate key `{}`", shown(.0))]
    DuplicateKey(String),
    /// The object has another key that is equal under case folding.
    #[error("key `{}` differs from another key only by case", shown(.0))]
    FoldedKey(String),
    /// The bytes are not UTF-8.
    #[error("the text is not valid UTF-8")]
    InvalidUtf8,
    /// An escaped surrogate without its other half.
    #[error("an escaped surrogate stands without its other half")]
    LoneSurrogate,
    /// The text starts with U+FEFF.
    #[error("the text starts with a byte order mark")]
    ByteOrderMark,
    /// More arrays and objects inside each other than the limit.
    #[error("arrays and objects are nested too deeply")]
    TooDeep,
    /// More keys in all objects together than the limit.
    #[error("the objects hold too many keys")]
    TooManyKeys,
    /// More bytes than the limit.
    #[error("the text is too large")]
    TooLarge,
    /// A double does not carry this number.
    #[error("the number `{}` would become `{}`", shown(.text), shown(.becomes))]
    NumberChanges {
        text: String,
        /// What a reader of doubles would take it for.
        becomes: String,
    },
    /// The number is beyond the largest double.
    #[error("the number is beyond the range of a double")]
    NumberOverflow,
    /// Zero with a minus sign.
    #[error("negative zero would become zero")]
    NegativeZero,
    /// The text is not JSON; what was expected or found.
    #[error("{0}")]
    Syntax(String),
    #[error("something follows the end of the value")]
    TrailingData,
    #[error("the text is empty")]
    Empty,
}

/// A fault and where in the text it is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} at line {line} column {column}")]
pub struct StrictError {
    pub what: StrictFault,
    pub offset: usize,
    /// Its line, from 1.
    pub line: u32,
    /// Its column, from 1, in characters.
    pub column: u32,
}

impl StrictError {
    /// Puts line and column to an offset. Only refusals pay for it.
    pub(super) fn locate(bytes: &[u8], what: StrictFault, offset: usize) -> Self {
        let before = bytes.get(..offset).unwrap_or(bytes);
        let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
        // Continuation bytes do not start a character.
        let starts = |byte: &&u8| **byte & 0xC0 != 0x80;
        let column = 1 + before.iter().rev().take_while(|byte| **byte != b'\n').filter(starts).count();
        let narrow = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        Self { what, offset, line: narrow(line), column: narrow(column) }
    }
}

/// Input as a message may show it.
pub(super) fn shown(text: &str) -> impl fmt::Display {
    let mut out = String::new();
    let mut chars = text.chars();
    for c in chars.by_ref().take(SHOWN) {
        match c {
            // A backtick would end the quotation.
            '`' => out.push_str("\\u{60}"),
            ' '..='~' => out.push(c),
            _ if c.is_control() || !is_invisible(c) => out.extend(c.escape_debug()),
            _ => out.extend(c.escape_unicode()),
        }
    }
    if chars.next().is_some() {
        out.push('…');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shown_input_is_one_plain_line() {
        let check = |input: &str, expect: &str| assert_eq!(shown(input).to_string(), expect);
        check("a \"b\" 'c' \\", "a \"b\" 'c' \\");
        check("a\nb\u{1b}[31m\u{0}", "a\\nb\\u{1b}[31m\\0");
        check("é\u{202e}x\u{200b}`", "é\\u{202e}x\\u{200b}\\u{60}");
        check(&"ü".repeat(60), &"ü".repeat(60));
        check(&"ü".repeat(61), &format!("{}…", "ü".repeat(60)));
    }

    #[test]
    fn columns_count_characters_and_lines_start_at_one() {
        let text = "ab\nü𝄞x".as_bytes();
        let check = |offset, line, column| {
            let spot = StrictError::locate(text, StrictFault::Empty, offset);
            assert_eq!((spot.line, spot.column), (line, column), "offset {offset}");
        };
        check(0, 1, 1);
        check(2, 1, 3);
        check(3, 2, 1);
        check(5, 2, 2);
        check(9, 2, 3);
        check(99, 2, 4);
    }
}
