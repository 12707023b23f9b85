//! Checks conventions of Rust source files: a `//!` head, no stubs or skipped tests, no empty names such as `Manager`.

use crate::tokens::{self, Part};
use crate::{files, none};

fn sources() -> Vec<std::path::PathBuf> {
    files::under(&files::root(), "rs")
}

#[test]
fn every_source_file_has_a_head() {
    let mut findings = Vec::new();
    for path in files::crate_names()
        .iter()
        .flat_map(|krate| files::under(&files::root().join("crates").join(krate).join("src"), "rs"))
    {
        let text = files::text(&path);
        let head = text.lines().take_while(|line| line.starts_with("//!")).count();
        if !(1..=5).contains(&head) {
            findings.push(format!("{}: {head} lines of `//!`", files::shown(&path)));
        }
    }
    none("a source file opens with one to five lines of `//!`", &findings);
}

#[test]
fn no_stubs_and_no_skipped_tests() {
    let mut findings = Vec::new();
    for path in sources() {
        let tokens = tokens::of_file(&path, Part::Everything);
        for word in ["todo!", "unimplemented!", "#[ignore"] {
            // `#[ignore` does not parse as tokens because its bracket is open, so its tokens are compared one by one.
            let lines = match word {
                "#[ignore" => tokens
                    .windows(3)
                    .filter(|w| w[0].text == "#" && w[1].text == "[" && w[2].text == "ignore")
                    .map(|w| w[0].line)
                    .collect(),
                _ => tokens::find(&tokens, word),
            };
            findings.extend(lines.iter().map(|line| format!("{}:{line}: `{word}`", files::shown(&path))));
        }
    }
    none("no stubs, no skipped tests", &findings);
}

#[test]
fn no_type_is_a_manager_and_no_module_a_util() {
    let mut findings = Vec::new();
    for path in sources() {
        let tokens = tokens::of_file(&path, Part::Everything);
        for pair in tokens.windows(2) {
            let (keyword, name) = (pair[0].text.as_str(), pair[1].text.as_str());
            let empty_type = ["struct", "enum", "trait", "type", "union"].contains(&keyword)
                && ["Manager", "Helper"].iter().any(|word| name.ends_with(word));
            let empty_module =
                keyword == "mod" && ["util", "utils", "common", "helper", "helpers", "misc"].contains(&name);
            if empty_type || empty_module {
                findings.push(format!("{}:{}: `{keyword} {name}`", files::shown(&path), pair[1].line));
            }
        }
    }
    none("no Manager, Helper, util or common", &findings);
}
