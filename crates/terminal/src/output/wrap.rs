//! Text broken into lines that fit, with a hanging indent. Escape sequences have no width; spaces between words are kept, so that
//! columns stay aligned. A word wider than the line, such as a link, is left whole: broken, it could not be clicked.

use anstream::adapter::strip_str;
use unicode_width::UnicodeWidthStr as _;

/// Wraps one line at `width` columns; the lines after the first begin with `indent` spaces. The first is taken to begin at `indent`.
pub fn wrap(text: &str, width: usize, indent: usize) -> String {
    let mut wrapped = String::with_capacity(text.len());
    let mut column = indent;
    let mut gap = "";
    for piece in pieces(text) {
        if piece.starts_with(' ') {
            gap = piece;
            continue;
        }
        let piece_width = strip_str(piece).to_string().width();
        if column > indent && column + gap.len() + piece_width > width {
            wrapped.push('\n');
            wrapped.push_str(&" ".repeat(indent));
            column = indent;
        } else {
            wrapped.push_str(gap);
            column += gap.len();
        }
        gap = "";
        wrapped.push_str(piece);
        column += piece_width;
    }
    wrapped
}

/// Words and the spaces between them, in order.
fn pieces(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let is_space = rest.starts_with(' ');
        let end = rest.find(|letter| (letter == ' ') != is_space).unwrap_or(rest.len());
        let (piece, after) = rest.split_at(end);
        rest = after;
        (!piece.is_empty()).then_some(piece)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::{BAD, paint};

    #[test]
    fn lines_fit_and_words_stay_whole() {
        let check = |text: &str, width, expect: &str| assert_eq!(wrap(text, width, 2), expect);
        check("one two three", 40, "one two three");
        check("one two three", 9, "one two\n  three");
        check("one two three", 3, "one\n  two\n  three");
        check("a    b", 9, "a    b");
        check("  a  b", 9, "  a  b");
        check("see http://127.0.0.1:7878/ there", 12, "see\n  http://127.0.0.1:7878/\n  there");
        check("日本 日本", 8, "日本\n  日本");
    }

    #[test]
    fn colours_have_no_width() {
        let red = paint(BAD, "red");
        assert_eq!(wrap(&format!("{red} word"), 10, 2), format!("{red} word"));
    }
}
