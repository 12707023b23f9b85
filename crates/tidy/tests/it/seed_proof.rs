//! What shows the sentences of a seed: functions of test files, transcripts, checks of the cards in the browser, and programs in `tests`.
//! One file a seed holds its table; here is what they share.

use std::collections::BTreeSet;

use crate::tokens::Part;
use crate::{files, none, tokens};

/// A sentence of a seed, and what shows it.
pub(crate) type SeedSentence = (&'static str, &'static [&'static str]);

/// Everything that can show a sentence, by its name.
fn known() -> BTreeSet<String> {
    let root = files::root();
    let mut known = BTreeSet::new();
    for path in files::under(&root.join("crates"), "rs") {
        let tokens = tokens::of_file(&path, Part::Everything);
        let names = tokens.windows(2).filter(|pair| pair[0].text == "fn").map(|pair| pair[1].text.clone());
        known.extend(names);
    }
    let stem = |path: &std::path::Path| path.file_stem().unwrap().to_string_lossy().into_owned();
    let transcripts = files::under(&root.join("crates/cli/tests/it/serve/transcripts"), "txt");
    known.extend(transcripts.iter().map(|path| format!("tables::{}", stem(path))));
    let cards = files::text(&root.join("tests/cards/run.mjs"));
    let titles = cards.split("\ncheck('").skip(1).filter_map(|rest| rest.split_once("', "));
    known.extend(titles.map(|(title, _)| format!("cards: {title}")));
    known.extend(["tests/katana/drive.py".to_owned()].into_iter().filter(|path| root.join(path).exists()));
    known
}

/// Fails for sentences without proof, and for proofs that are not there.
#[track_caller]
pub(crate) fn check(sentences: &[SeedSentence]) {
    let known = known();
    let mut findings = Vec::new();
    for (sentence, shown_by) in sentences {
        if shown_by.is_empty() {
            findings.push(format!("`{sentence}` is shown by nothing"));
        }
        let missing = shown_by.iter().filter(|name| !known.contains(**name));
        findings.extend(missing.map(|name| format!("`{sentence}`: there is no `{name}`")));
    }
    none("every sentence of the seed names tests that exist", &findings);
}
