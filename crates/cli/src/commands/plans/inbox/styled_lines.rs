//! Lines with colours, broken to the width of a terminal. Nothing is left out: a plan is read whole. The only escape sequences in them are
//! our own colours, since every text of others was made visible before.

use unicode_width::UnicodeWidthChar as _;

const ESCAPE: char = '\u{1b}';
const RESET: &str = "\u{1b}[0m";

/// The line in pieces of at most `width` columns; colours go on in the next piece.
pub(super) fn wrap(line: &str, width: usize) -> Vec<String> {
    let width = width.max(1);
    let (mut pieces, mut piece, mut taken) = (Vec::new(), String::new(), 0);
    let mut colours = String::new();
    let mut rest = line.chars();
    while let Some(letter) = rest.next() {
        if letter == ESCAPE {
            let sequence = colour_sequence(&mut rest);
            piece.push_str(&sequence);
            if sequence == RESET {
                colours.clear();
            } else {
                colours.push_str(&sequence);
            }
            continue;
        }
        let wide = letter.width().unwrap_or(0);
        if taken + wide > width {
            if !colours.is_empty() {
                piece.push_str(RESET);
            }
            pieces.push(std::mem::replace(&mut piece, colours.clone()));
            taken = 0;
        }
        piece.push(letter);
        taken += wide;
    }
    pieces.push(piece);
    pieces
}

/// The rest of a sequence that began with an escape.
fn colour_sequence(rest: &mut std::str::Chars<'_>) -> String {
    let mut sequence = String::from(ESCAPE);
    for letter in rest.by_ref() {
        sequence.push(letter);
        if letter.is_ascii_alphabetic() {
            break;
        }
    }
    sequence
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::{BAD, paint};

    #[test]
    fn a_line_is_broken_by_what_is_seen_and_nothing_is_lost() {
        assert_eq!(wrap("", 4), [""]);
        assert_eq!(wrap("abcdef", 4), ["abcd", "ef"]);
        assert_eq!(wrap("日本語x", 4), ["日本", "語x"]);
        let red = paint(BAD, "abcdef");
        let pieces = wrap(&red, 4);
        let seen: Vec<String> =
            pieces.iter().map(|piece| anstream::adapter::strip_str(piece).to_string()).collect();
        assert_eq!(seen, ["abcd", "ef"]);
        assert!(
            pieces.iter().all(|piece| piece.contains("\u{1b}[31m") && piece.ends_with(RESET)),
            "{pieces:?}"
        );
    }
}
