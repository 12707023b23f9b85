//! Free text as both databases can store it, byte for byte. PostgreSQL has no U+0000: a noncharacter replaces it, and is itself escaped.

use crate::engine::FoundRow;
use crate::fault::StoreFault;

/// A character Unicode promises never to use.
const SIGN: char = '\u{fdd0}';

pub(super) fn kept(text: &str) -> String {
    if !text.contains([SIGN, '\0']) {
        return text.to_owned();
    }
    let mut out = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        match c {
            '\0' => out.extend([SIGN, '0']),
            SIGN => out.extend([SIGN, '1']),
            other => out.push(other),
        }
    }
    out
}

pub(super) fn restored(text: String) -> String {
    if !text.contains(SIGN) {
        return text;
    }
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c != SIGN {
            out.push(c);
            continue;
        }
        match chars.next() {
            Some('0') => out.push('\0'),
            Some('1') => out.push(SIGN),
            // Not written by this store: leave it as it is.
            other => out.extend([Some(SIGN), other].into_iter().flatten()),
        }
    }
    out
}

pub(super) fn take(found: &mut FoundRow) -> Result<String, StoreFault> {
    Ok(restored(found.text()?))
}

/// A text for the ledger's details, which views of PostgreSQL read: U+0000 as its visible sign.
pub(super) fn plain(text: &str) -> String {
    text.replace('\0', "\u{2400}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_text_comes_back() {
        for text in ["", "plain", "a\0b", "\u{fdd0}", "\u{fdd0}0\0\u{fdd0}1", "\0\0", "日本\u{202e}"] {
            let kept = kept(text);
            assert!(!kept.contains('\0'));
            assert_eq!(restored(kept), text);
        }
    }
}
