//! Checks what a machine can check of type and file names: words per name, length, repetition, bare participles.
//! Whether a name fits its thing is for the reviewer; `docs/glossary.md` has the words.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::files;
use crate::none;
use crate::tokens;

/// The largest share of one-word type names, in percent.
const MOST_ONE_WORD: usize = 35;
/// The smallest mean length of a type name.
const LEAST_MEAN_LENGTH: usize = 11;
/// How often one type name may be declared.
const MOST_DECLARATIONS: usize = 3;
/// Names that traits and conventions give: they may be declared often.
const CONVENTIONAL: &[&str] =
    &["Args", "Config", "Err", "Error", "Item", "Options", "Output", "Rejection", "Target", "Value"];
/// Words that say nothing on their own, as a file or as a type.
const BARE_WORDS: &[&str] = &[
    "asked",
    "brought",
    "came",
    "done",
    "everybody",
    "found",
    "given",
    "gone",
    "heard",
    "held",
    "kept",
    "known",
    "left",
    "lost",
    "made",
    "me",
    "meant",
    "no",
    "nobody",
    "one",
    "opened",
    "said",
    "sent",
    "shown",
    "somebody",
    "spoken",
    "taken",
    "them",
    "they",
    "thought",
    "told",
    "us",
    "wanted",
    "who",
    "whom",
    "written",
];

/// Every type declared in `crates/*/src`, tests apart, with its file.
fn declared_types() -> Vec<(String, PathBuf)> {
    let mut types = Vec::new();
    for krate in files::crate_names() {
        for (path, tokens) in tokens::of_crate(&krate) {
            for pair in tokens.windows(2) {
                let is_declaration =
                    ["struct", "enum", "trait", "union", "type"].contains(&pair[0].text.as_str());
                let name = &pair[1].text;
                if is_declaration && name.starts_with(|first: char| first.is_ascii_uppercase()) {
                    types.push((name.clone(), path.clone()));
                }
            }
        }
    }
    types
}

/// How many words a camel-case name has: a run of capitals counts as one.
fn word_count(name: &str) -> usize {
    let letters: Vec<char> = name.chars().collect();
    (0..letters.len())
        .filter(|&at| {
            letters[at].is_ascii_uppercase()
                && (at == 0
                    || !letters[at - 1].is_ascii_uppercase()
                    || letters.get(at + 1).is_some_and(char::is_ascii_lowercase))
        })
        .count()
}

#[test]
fn type_names_say_what_the_thing_is() {
    let types = declared_types();
    let one_word = types.iter().filter(|(name, _)| word_count(name) == 1).count();
    let letters: usize = types.iter().map(|(name, _)| name.len()).sum();
    let share = 100 * one_word / types.len();
    assert!(share <= MOST_ONE_WORD, "{share} % of {} type names are one word", types.len());
    let mean = letters as f64 / types.len() as f64;
    assert!(mean >= LEAST_MEAN_LENGTH as f64, "a type name has {mean:.1} letters on average");
}

#[test]
fn a_type_name_is_not_declared_again_and_again() {
    let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, path) in declared_types() {
        places.entry(name).or_default().push(files::shown(&path));
    }
    let often = places
        .iter()
        .filter(|(name, places)| places.len() > MOST_DECLARATIONS && !CONVENTIONAL.contains(&name.as_str()))
        .map(|(name, places)| format!("{name}: {}", places.join(", ")));
    none("type names declared more than three times", &often.collect::<Vec<_>>());
}

#[test]
fn nothing_is_named_by_a_bare_participle_or_pronoun() {
    let is_bare = |word: &str| BARE_WORDS.contains(&word.to_ascii_lowercase().as_str());
    let types = declared_types().into_iter().filter(|(name, _)| is_bare(name));
    let mut findings: Vec<String> =
        types.map(|(name, path)| format!("{name} in {}", files::shown(&path))).collect();
    for krate in files::crate_names() {
        for path in files::under(&files::root().join("crates").join(&krate).join("src"), "rs") {
            if path.file_stem().and_then(|stem| stem.to_str()).is_some_and(is_bare) {
                findings.push(files::shown(&path));
            }
        }
    }
    none("names that say nothing on their own", &findings);
}

#[test]
fn camel_case_words_are_counted() {
    for (name, count) in [("Plan", 1), ("PlanHash", 2), ("HTTPServer", 2), ("JSON", 1), ("ApiError2", 2)] {
        assert_eq!(word_count(name), count, "{name}");
    }
}
