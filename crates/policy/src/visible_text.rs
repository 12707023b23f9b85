//! Makes text written by agents and upstreams safe to look at. Controls, bidirectional marks, zero-width and other invisible
//! characters become visible escapes such as `\u{202e}`. Nothing is dropped, and nothing is cut without saying so.
//!
//! [`INVISIBLE`] is the only list of such characters: the host's dialog, the card, the terminal and the page all use it.

use std::borrow::Cow;
use std::fmt::Write;

use crate::words::plural;

/// Characters that leave no mark of their own or change how their neighbours are shown: inclusive ranges, ascending.
pub const INVISIBLE: &[(char, char)] = &[
    // Control characters.
    ('\u{0}', '\u{1f}'),
    ('\u{7f}', '\u{9f}'),
    // Soft hyphen, joiners and fillers.
    ('\u{ad}', '\u{ad}'),
    ('\u{34f}', '\u{34f}'),
    ('\u{61c}', '\u{61c}'),
    ('\u{115f}', '\u{1160}'),
    ('\u{17b4}', '\u{17b5}'),
    ('\u{180b}', '\u{180f}'),
    // Zero-width characters, bidirectional marks, line and paragraph separators, invisible operators.
    ('\u{200b}', '\u{200f}'),
    ('\u{2028}', '\u{202e}'),
    ('\u{2060}', '\u{206f}'),
    // The blank Braille pattern and the Hangul filler.
    ('\u{2800}', '\u{2800}'),
    ('\u{3164}', '\u{3164}'),
    // Private use: no font has to show it.
    ('\u{e000}', '\u{f8ff}'),
    // Noncharacters, variation selectors (a letter may carry bytes in any number of them), the byte order mark.
    ('\u{fdd0}', '\u{fdef}'),
    ('\u{fe00}', '\u{fe0f}'),
    ('\u{feff}', '\u{feff}'),
    ('\u{ffa0}', '\u{ffa0}'),
    ('\u{fff0}', '\u{fffb}'),
    ('\u{fffe}', '\u{ffff}'),
    // Shorthand and musical controls, tags, supplementary variation selectors and private use.
    ('\u{1bca0}', '\u{1bca3}'),
    ('\u{1d173}', '\u{1d17a}'),
    ('\u{e0000}', '\u{e0fff}'),
    ('\u{f0000}', '\u{10ffff}'),
];

/// Where pictures are. Variation selectors and joiners inside one (`⚠️`, a family) are how pictures are written.
const PICTURES: &[(char, char)] = &[('\u{203c}', '\u{303d}'), ('\u{1f000}', '\u{1faff}')];

/// Plain characters that a variation selector turns into a picture, such as `1️⃣`.
const PICTURE_BASES: &str = "0123456789#*©®";

/// Text of several lines: line feeds and tabs stay, everything hidden is shown.
pub fn visible(text: &str) -> String {
    escape(text, |c| matches!(c, '\n' | '\t')).into_owned()
}

/// Text that has to stay on one line: line feeds and tabs are escaped too.
pub fn line(text: &str) -> Cow<'_, str> {
    escape(text, |_| false)
}

/// The text with every hidden character but line feeds and tabs replaced by one other character, so that columns stay.
pub fn replace_hidden(text: &str, with: char) -> String {
    let mut out = String::with_capacity(text.len());
    let mut shown = 0;
    for (at, c) in hidden(text).filter(|(_, c)| !matches!(c, '\n' | '\t')) {
        out.push_str(text.get(shown..at).unwrap_or_default());
        out.push(with);
        shown = at + c.len_utf8();
    }
    out.push_str(text.get(shown..).unwrap_or_default());
    out
}

/// At most `most` characters of one line, and how many were left out.
pub fn excerpt(text: &str, most: usize) -> String {
    let cut = text.char_indices().nth(most).map_or(text.len(), |(at, _)| at);
    let (head, rest) = text.split_at(cut);
    match rest.chars().count() {
        0 => line(head).into_owned(),
        left => format!("{}… ({} more)", line(head), plural(left, "character")),
    }
}

/// Whether the text holds something a reader would not see. Line breaks and tabs are seen.
pub fn hides(text: &str) -> bool {
    !plain(text) && hidden(text).any(|(_, c)| !matches!(c, '\n' | '\t' | '\r'))
}

/// Printable ASCII needs no look at each character's neighbours, and nearly all texts are that.
fn plain(text: &str) -> bool {
    text.bytes().all(|byte| matches!(byte, b' '..=b'~'))
}

fn escape(text: &str, keep: impl Fn(char) -> bool) -> Cow<'_, str> {
    if plain(text) {
        return Cow::Borrowed(text);
    }
    let mut out = String::new();
    let mut shown = 0;
    for (at, c) in hidden(text).filter(|(_, c)| !keep(*c)) {
        out.push_str(text.get(shown..at).unwrap_or_default());
        let _ = match c {
            '\n' => out.write_str("\\n"),
            '\r' => out.write_str("\\r"),
            '\t' => out.write_str("\\t"),
            _ => write!(out, "\\u{{{:x}}}", u32::from(c)),
        };
        shown = at + c.len_utf8();
    }
    if shown == 0 {
        return Cow::Borrowed(text);
    }
    out.push_str(text.get(shown..).unwrap_or_default());
    Cow::Owned(out)
}

/// The hidden characters of a text and where they stand.
fn hidden(text: &str) -> impl Iterator<Item = (usize, char)> + '_ {
    let mut before: Option<char> = None;
    let mut rest = text.char_indices().peekable();
    std::iter::from_fn(move || {
        while let Some((at, c)) = rest.next() {
            let after = rest.peek().map(|(_, next)| *next);
            let seen = !is_invisible(c) || joins_pictures(before, c, after);
            before = Some(c);
            if !seen {
                return Some((at, c));
            }
        }
        None
    })
}

fn joins_pictures(before: Option<char>, c: char, after: Option<char>) -> bool {
    let picture = |c: char| is_within(PICTURES, c) && !is_invisible(c);
    match c {
        '\u{fe0f}' | '\u{fe0e}' => {
            before.is_some_and(|before| picture(before) || PICTURE_BASES.contains(before))
        }
        '\u{200d}' => {
            before.is_some_and(|before| picture(before) || before == '\u{fe0f}') && after.is_some_and(picture)
        }
        _ => false,
    }
}

/// Whether a character leaves no mark of its own, or changes how others are shown.
pub fn is_invisible(c: char) -> bool {
    is_within(INVISIBLE, c)
}

fn is_within(ranges: &[(char, char)], c: char) -> bool {
    let after = ranges.partition_point(|(first, _)| *first <= c);
    after.checked_sub(1).and_then(|at| ranges.get(at)).is_some_and(|(_, last)| c <= *last)
}

/// The pattern of a hidden character for JavaScript, with the flag `u`: what [`visible`] and [`line()`] escape, but for the
/// characters of the class `kept`. JavaScript strings can hold half a surrogate pair; the pattern matches these too.
pub fn javascript_pattern(kept: &str) -> String {
    let (hidden, pictures) = (javascript_class(INVISIBLE), javascript_class(PICTURES));
    let picture = format!("(?![{hidden}])[{pictures}]");
    let selector = format!(r"(?<={picture}|[{PICTURE_BASES}])[\ufe0e\ufe0f]");
    let joiner = format!(r"(?<={picture}|\ufe0f)\u200d(?={picture})");
    format!(r"(?!{selector}|{joiner}|[{kept}])(?:[{hidden}]|[\ud800-\udfff])")
}

fn javascript_class(ranges: &[(char, char)]) -> String {
    let range = |(first, last): &(char, char)| {
        format!("\\u{{{:x}}}-\\u{{{:x}}}", u32::from(*first), u32::from(*last))
    };
    ranges.iter().map(range).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_characters_become_visible() {
        let check = |input: &str, several: &str, one: &str| {
            assert_eq!(visible(input), several, "text {input:?}");
            assert_eq!(line(input), one, "line {input:?}");
        };
        check("plain ~ text", "plain ~ text", "plain ~ text");
        check("a\nb\tc", "a\nb\tc", "a\\nb\\tc");
        check("a\r\nb", "a\\r\nb", "a\\r\\nb");
        check("\u{1b}[31mred\u{1b}[0m", "\\u{1b}[31mred\\u{1b}[0m", "\\u{1b}[31mred\\u{1b}[0m");
        check("\u{9b}31m", "\\u{9b}31m", "\\u{9b}31m");
        check("gnp\u{202e}exe", "gnp\\u{202e}exe", "gnp\\u{202e}exe");
        check("pay\u{200b}pal\u{feff}", "pay\\u{200b}pal\\u{feff}", "pay\\u{200b}pal\\u{feff}");
        check("tag\u{e0041}\u{e007f}", "tag\\u{e0041}\\u{e007f}", "tag\\u{e0041}\\u{e007f}");
        check("über 東京 \u{3000}x", "über 東京 \u{3000}x", "über 東京 \u{3000}x");
        check("\u{2066}x\u{2069}", "\\u{2066}x\\u{2069}", "\\u{2066}x\\u{2069}");
    }

    #[test]
    fn attack_11_the_list_is_ascending_and_holds_every_control() {
        assert!(INVISIBLE.windows(2).all(|pair| pair[0].1 < pair[1].0), "ranges ascend and do not touch");
        for c in (0..=0x10ffff).filter_map(char::from_u32) {
            assert!(!c.is_control() || is_invisible(c), "{c:?}");
        }
        for c in ['\u{2800}', '\u{ffa0}', '\u{e000}', '\u{180b}', '\u{1d173}', '\u{10ffff}', '\u{fdd0}'] {
            assert_eq!(line(&c.to_string()), format!("\\u{{{:x}}}", u32::from(c)));
        }
    }

    #[test]
    fn a_javascript_class_names_each_range() {
        assert_eq!(
            javascript_class(&[('a', 'b'), ('\u{e0000}', '\u{e0fff}')]),
            r"\u{61}-\u{62}\u{e0000}-\u{e0fff}"
        );
    }

    #[test]
    fn pictures_stay_and_bytes_hidden_behind_them_do_not() {
        assert_eq!(line("⚠️ 👩‍💻 1️⃣"), "⚠️ 👩‍💻 1️⃣");
        assert_eq!(line("⚠\u{fe0f}\u{fe0f}"), "⚠\u{fe0f}\\u{fe0f}");
        assert_eq!(line("a\u{fe0f}b\u{200d}c"), "a\\u{fe0f}b\\u{200d}c");
        assert_eq!(line("😀\u{e0101}\u{e0142}"), "😀\\u{e0101}\\u{e0142}");
        assert_eq!(line("😀\u{200d}x"), "😀\\u{200d}x");
    }

    #[test]
    fn only_what_is_not_seen_counts_as_hidden() {
        for fine in ["", "plain", "line\nbreak\t\r\n", "⚠️", "Zürich", "日本語"] {
            assert!(!hides(fine), "{fine:?}");
        }
        for bad in ["\u{1b}[2J", "a\u{200b}", "\u{202e}", "x\u{0}", "\u{e0020}"] {
            assert!(hides(bad), "{bad:?}");
        }
    }

    #[test]
    fn an_excerpt_says_what_it_leaves_out() {
        assert_eq!(excerpt("short", 10), "short");
        assert_eq!(excerpt("äöü\nß", 3), "äöü… (2 characters more)");
        assert_eq!(excerpt("a\u{202e}b", 2), "a\\u{202e}… (1 character more)");
    }
}
