//! Text into search terms: folded, split on case and punctuation, English words stemmed, scripts without spaces cut into
//! characters. Terms are ASCII letters and digits whatever the script, so that both databases find the same.

use std::collections::HashSet;

use rust_stemmers::{Algorithm, Stemmer};
use unicode_normalization::UnicodeNormalization as _;
use unicode_normalization::char::is_combining_mark;

const LONGEST: usize = 60;

/// Words that say nothing about what is looked for.
const EMPTY: &[&str] = &[
    "a", "an", "and", "are", "as", "at", "be", "by", "do", "does", "for", "from", "has", "have", "how", "i",
    "in", "is", "it", "its", "my", "of", "on", "or", "our", "should", "that", "the", "their", "this", "to",
    "was", "we", "what", "when", "where", "which", "who", "why", "will", "with", "you", "your",
];

/// Which side of a search a text is on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SearchSide {
    Kept,
    Asked,
}

/// The terms a text is found by, each once, in the order they come.
pub fn terms(text: &str) -> Vec<String> {
    collect(text, SearchSide::Kept)
}

/// The terms somebody asks for: without words that say nothing, unless there are no others. At most sixteen.
pub fn query_terms(text: &str) -> Vec<String> {
    let all = collect(text, SearchSide::Asked);
    let telling_words: Vec<String> =
        all.iter().filter(|term| !EMPTY.contains(&term.as_str())).cloned().collect();
    let mut chosen = if telling_words.is_empty() { all } else { telling_words };
    chosen.truncate(16);
    chosen
}

/// The terms of a whole record, as the store wants them.
pub fn of_record(content: &str, rationale: &str, context: &str, tags: &[String]) -> String {
    let mut all = terms(content);
    for text in [rationale, context].into_iter().chain(tags.iter().map(String::as_str)) {
        all.extend(terms(text));
    }
    let mut seen = HashSet::new();
    all.retain(|term| seen.insert(term.clone()));
    all.join(" ")
}

fn collect(text: &str, side: SearchSide) -> Vec<String> {
    let stemmer = Stemmer::create(Algorithm::English);
    let mut out = Vec::new();
    let mut seen = HashSet::new();
    let mut add = |word: &str| {
        let term = term(&stemmer, word);
        if !term.is_empty() && seen.insert(term.clone()) {
            out.push(term);
        }
    };
    for run in text.split(|c: char| !c.is_alphanumeric() && !is_combining_mark(c)) {
        if run.is_empty() {
            continue;
        }
        let folded: String = run.nfkd().filter(|c| !is_combining_mark(*c)).collect();
        let parts = parts(&folded);
        if parts.len() > 1 && side == SearchSide::Kept && folded.is_ascii() {
            add(&folded.to_lowercase());
        }
        parts.iter().for_each(|part| add(&part.to_lowercase()));
    }
    out
}

/// `userName` is two words; a script without spaces is cut into its characters.
fn parts(word: &str) -> Vec<String> {
    let mut out: Vec<String> = Vec::new();
    let mut before: Option<char> = None;
    for c in word.chars() {
        let cut = match before {
            None => true,
            Some(p) => (p.is_lowercase() && c.is_uppercase()) || is_unspaced(c) || is_unspaced(p),
        };
        match out.last_mut() {
            Some(last) if !cut => last.push(c),
            _ => out.push(c.to_string()),
        }
        before = Some(c);
    }
    out
}

fn is_unspaced(c: char) -> bool {
    matches!(u32::from(c),
        0x0e00..=0x0eff | 0x1000..=0x109f | 0x1780..=0x17ff | 0x3040..=0x30ff | 0x3400..=0x4dbf | 0x4e00..=0x9fff
        | 0xf900..=0xfaff | 0x20000..=0x3134f)
}

fn term(stemmer: &Stemmer, word: &str) -> String {
    if word.is_ascii() {
        let stem = if word.len() > 3 { stemmer.stem(word) } else { word.into() };
        return stem.chars().filter(char::is_ascii_alphanumeric).take(LONGEST).collect();
    }
    let hex: String = word.bytes().take(LONGEST / 2 - 1).map(|byte| format!("{byte:02x}")).collect();
    format!("u{hex}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_meets_what_is_kept() {
        let check = |kept: &str, query: &str| {
            let kept = terms(kept);
            assert!(query_terms(query).iter().all(|term| kept.contains(term)), "{query}: {kept:?}");
        };
        check("We deploy with Terraform", "deploying terraform");
        check("Café opening hours", "CAFE");
        check("call getUserName() first", "user name");
        check("call getUserName() first", "getusername");
        check("東京の決定", "東京");
        check("שלום עולם", "עולם");
        check("a\"b OR c*", "\"b\"");
    }

    #[test]
    fn terms_are_letters_and_digits() {
        for text in ["x'; DROP TABLE--", "ÄÖ ß \u{202e}abc\0def", "😀 + 1", "हिन्दी भाषा"]
        {
            for term in terms(text) {
                assert!(term.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit()), "{term}");
            }
        }
        assert!(query_terms("the of and").len() == 3, "words that say nothing are better than none");
        assert!(query_terms("***").is_empty());
    }
}
