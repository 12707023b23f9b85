//! Splits text into words and reduces them to stems: Unicode folded, names split on case and punctuation, scripts without spaces cut into
//! pairs of characters. Documents and queries use the same code.

use std::borrow::Cow;

use rust_stemmers::{Algorithm, Stemmer};
use unicode_normalization::UnicodeNormalization;
use unicode_normalization::char::is_combining_mark;

use super::synonyms;
use crate::escape::is_invisible;

/// The rest of a longer word is dropped, on both sides alike.
const WORD_BYTES: usize = 40;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TextWord {
    /// Lower-case, at most `WORD_BYTES` and one character.
    pub(super) text: String,
    pub(super) link: WordLink,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WordLink {
    /// First, or after a space.
    Apart,
    /// In the same identifier or compound: `pull_request`, `GitHub`, `e-mail`.
    Glued,
    /// A run of a script without spaces: not a word yet, see [`pairs`].
    Run,
}

/// Reads at most `max_chars` characters.
pub(super) fn words(text: &str, max_chars: usize) -> Vec<TextWord> {
    let chars = folded(text, max_chars);
    let mut out: Vec<TextWord> = Vec::new();
    let mut link = WordLink::Apart;
    let mut previous = None;
    for (at, &c) in chars.iter().enumerate() {
        if is_word(c) {
            let rest = chars.get(at + 1..).unwrap_or_default();
            match (previous, out.last_mut()) {
                (Some(p), Some(word)) if !parts(p, c, rest) => extend(&mut word.text, c),
                _ => {
                    let mut text = String::new();
                    extend(&mut text, c);
                    out.push(TextWord { text, link: if is_unspaced(c) { WordLink::Run } else { link } });
                }
            }
            previous = Some(c);
            link = WordLink::Glued;
        } else {
            previous = None;
            if !matches!(c, '_' | '-' | '.' | ':' | '/' | '\u{2010}' | '\u{2011}') {
                link = WordLink::Apart;
            }
        }
    }
    out
}

/// Folds compatibility forms (full width, ligatures) and accents; one character may become many, so the limit applies before and after.
/// Invisible characters are removed.
fn folded(text: &str, max_chars: usize) -> Vec<char> {
    if text.is_ascii() {
        return text.chars().take(max_chars).collect();
    }
    let folded = text.chars().take(max_chars).nfkd().filter(|c| !('\u{300}'..='\u{36f}').contains(c)).nfc();
    folded.filter(|c| c.is_control() || !is_invisible(*c)).take(max_chars).collect()
}

fn extend(text: &mut String, c: char) {
    // Runs are not limited: they are cut into pairs later.
    if is_unspaced(c) || text.len() < WORD_BYTES {
        text.extend(c.to_lowercase());
    }
}

/// Whether a new word begins at `c`, which follows `previous` directly.
fn parts(previous: char, c: char, rest: &[char]) -> bool {
    if is_unspaced(previous) != is_unspaced(c) {
        return true;
    }
    if !c.is_uppercase() {
        return false;
    }
    if !previous.is_uppercase() {
        return true;
    }
    // The last capital of a run belongs to what follows (`HTTPServer`), unless that is a plural's `s` (`PRs`).
    match rest {
        ['s'] => false,
        ['s', after, ..] if !after.is_lowercase() => false,
        [next, ..] => next.is_lowercase(),
        [] => false,
    }
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || is_combining_mark(c)
}

/// Scripts written without spaces (Thai, Lao, Myanmar, Khmer, Han, kana), and Hangul, whose words carry particles: pairs of characters
/// match where whole words would not.
fn is_unspaced(c: char) -> bool {
    matches!(c, '\u{e00}'..='\u{eff}' | '\u{1000}'..='\u{109f}' | '\u{1780}'..='\u{17ff}'
        | '\u{2e80}'..='\u{9fff}' | '\u{ac00}'..='\u{d7af}' | '\u{f900}'..='\u{faff}' | '\u{20000}'..='\u{3ffff}')
}

pub(super) fn pairs(run: &str) -> impl Iterator<Item = String> + '_ {
    run.chars().zip(run.chars().skip(1)).map(|(a, b)| String::from_iter([a, b]))
}

/// The stem a word is indexed under, with abbreviations expanded; words of scripts without a stemmer are their own.
pub(super) fn stem(word: &str) -> Cow<'_, str> {
    let word = synonyms::written_out(word);
    let all = |of: fn(&char) -> bool| word.chars().all(|c| of(&c));
    let algorithm = if word.len() < 3 {
        return Cow::Borrowed(word);
    } else if all(char::is_ascii_lowercase) {
        Algorithm::English
    } else if all(|c| ('\u{430}'..='\u{44f}').contains(c)) {
        Algorithm::Russian
    } else if all(|c| ('\u{3b1}'..='\u{3c9}').contains(c)) {
        Algorithm::Greek
    } else {
        return Cow::Borrowed(word);
    };
    Stemmer::create(algorithm).stem(word)
}

/// Words that say nothing about which tool is meant.
const FILLERS: &str = "a about all also an and any are as at be but by can could d did do does for from had has have \
        help how i if in into is it its let ll m may me must my need not of on onto or our out over \
        please re s should so some somebody someone something t than that the their them then there \
        these they this those to tool tools us use used using ve via want was we were what when where \
        which who will with would yet you your";

pub(super) fn is_filler(word: &str) -> bool {
    word.len() <= "something".len() && FILLERS.split(' ').any(|filler| filler == word)
}
