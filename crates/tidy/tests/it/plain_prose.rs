//! Checks what a machine can check of prose: Markdown is wrapped at 100 columns, documents and comments avoid the words of
//! the former private vocabulary, and `crates/…` paths in documents exist. Whether a text is clear is for the reviewer.

use crate::tokens::{self, Token};
use crate::{documents, files, none};

const MOST_COLUMNS: usize = 100;

/// Words and phrases of the former vocabulary, in lower case. They said gateway, policy, crate, connection, entry point and
/// approvals page, or hid who does what.
const FORMER_WORDS: &[&str] = &[
    "all the same",
    "are told",
    "as it stands",
    "at the door",
    "by and by",
    "epitaph",
    "house rules",
    "is told",
    "mourn",
    "rails",
    "the door",
    "the house",
    "the law",
    "the wire",
    "told apart",
    "what is asked",
    "what stands",
    "what waits",
    "whoever",
    "yes or no",
];

/// Text that is generated or that programs read.
const NOT_OUR_PROSE: &[&str] = &["docs/refusals.md", "crates/pack/src/bootstrap/skill.md"];

fn markdown_files() -> Vec<(String, String)> {
    let pages = files::under(&files::root(), "md").into_iter();
    let pages = pages.map(|path| (files::shown(&path), files::text(&path)));
    pages.filter(|(name, _)| !NOT_OUR_PROSE.contains(&name.as_str())).collect()
}

/// Whether a line of prose could have been broken earlier. Tables, HTML, headings and a link at the end cannot.
fn is_too_wide(line: &str) -> bool {
    let text = line.trim_start();
    let is_unbreakable = text.starts_with(['|', '<', '#']);
    let before_last = line.trim_end().rsplit_once(' ');
    line.chars().count() > MOST_COLUMNS
        && !is_unbreakable
        && before_last
            .is_some_and(|(start, last)| start.chars().count() > MOST_COLUMNS || !last.contains("]("))
}

#[test]
fn markdown_is_wrapped_at_100_columns() {
    let mut findings = Vec::new();
    for (name, text) in markdown_files() {
        let mut is_code = false;
        for (at, line) in text.lines().enumerate() {
            is_code ^= line.trim_start().starts_with("```");
            if !is_code && is_too_wide(line) {
                findings.push(format!("{name}:{}: {} columns", at + 1, line.chars().count()));
            }
        }
    }
    none("Markdown is wrapped at 100 columns, except tables, code and links", &findings);
}

/// The former words in a text, however its lines are broken.
fn former_words(text: &str) -> Vec<&'static str> {
    let is_letter = |c: char| c.is_alphanumeric() || c == '_';
    let words: Vec<String> = text.split_whitespace().map(str::to_lowercase).collect();
    let text = format!(" {} ", words.join(" "));
    let occurs = |word: &&str| {
        text.match_indices(*word).any(|(at, found)| {
            let is_start = !text[..at].ends_with(is_letter);
            is_start && !text[at + found.len()..].starts_with(is_letter)
        })
    };
    FORMER_WORDS.iter().copied().filter(occurs).collect()
}

/// The comments of a Rust file, joined where they follow one another.
fn comments(source: &str) -> Vec<(usize, String)> {
    let mut found: Vec<(usize, String)> = Vec::new();
    let mut last = 0;
    for (at, line) in source.lines().enumerate() {
        let Some(text) = line.trim_start().strip_prefix("//") else { continue };
        let text = text.trim_start_matches(['/', '!']).trim();
        match found.last_mut() {
            Some((_, joined)) if last == at => {
                joined.push(' ');
                joined.push_str(text);
            }
            _ => found.push((at + 1, text.to_owned())),
        }
        last = at + 1;
    }
    found
}

#[test]
fn documents_avoid_the_former_vocabulary() {
    let mut findings = Vec::new();
    for (name, text) in markdown_files() {
        let words = former_words(&documents::prose(&text));
        findings.extend(words.iter().map(|word| format!("{name}: `{word}`")));
    }
    none("documents say it in plain words (docs/glossary.md)", &findings);
}

#[test]
fn comments_avoid_the_former_vocabulary() {
    let mut findings = Vec::new();
    for path in files::under(&files::root().join("crates"), "rs") {
        for (line, text) in comments(&files::text(&path)) {
            let words = former_words(&text);
            findings.extend(words.iter().map(|word| format!("{}:{line}: `{word}`", files::shown(&path))));
        }
    }
    none("comments say it in plain words (docs/glossary.md)", &findings);
}

#[test]
fn messages_avoid_the_former_vocabulary() {
    let mut findings = Vec::new();
    for (path, tokens) in files::crate_names().iter().flat_map(|krate| tokens::of_crate(krate)) {
        // `/// text` is the tokens `doc = "text"`.
        let is_message = |window: &&[Token]| window[1].text != "=" || window[0].text != "doc";
        let strings = tokens.windows(3).filter(is_message).map(|window| &window[2]);
        for literal in strings.filter(|token| token.text.starts_with(['"', 'r'])) {
            let words = former_words(&literal.text);
            // A question may name its two answers.
            let words = words.iter().filter(|word| **word != "yes or no");
            findings.extend(words.map(|word| format!("{}:{}: `{word}`", files::shown(&path), literal.line)));
        }
    }
    none("messages say it in plain words (docs/glossary.md)", &findings);
}

#[test]
fn paths_named_in_documents_exist() {
    let mut findings = Vec::new();
    // A path in the changelog may be gone.
    for (name, text) in markdown_files().into_iter().filter(|(name, _)| name != "CHANGELOG.md") {
        for path in text.split('`').skip(1).step_by(2).filter(|span| span.starts_with("crates/")) {
            let is_pattern = path.contains(['*', '…', ' ', '<', '{']);
            if !is_pattern && !files::root().join(path).exists() {
                findings.push(format!("{name}: `{path}`"));
            }
        }
    }
    none("`crates/…` paths in documents exist", &findings);
}

#[test]
fn former_words_are_found_as_words() {
    let found = former_words("What\nstands here; the lawyer, trails, The Door.");
    assert_eq!(found, ["the door", "what stands"]);
    let joined = comments("//! a\n//! b\nfn f() {} // c\n    // d\n");
    assert_eq!(joined, [(1, "a b".to_owned()), (4, "d".to_owned())]);
    assert!(is_too_wide(&"word ".repeat(21)));
    assert!(!is_too_wide(&format!("{} [text](https://example.com)", "w".repeat(90))));
}
