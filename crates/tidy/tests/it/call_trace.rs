//! Checks that the trace of one call in docs/ARCHITECTURE.md names files and functions that exist.

use crate::files;
use crate::none;
use crate::tokens::{self, Part};

/// File and function of every table row in the section.
fn traced(page: &str) -> Vec<(String, String)> {
    let section = page.split("\n## One call, traced\n").nth(1).unwrap().split("\n## ").next().unwrap();
    let rows = section.lines().filter(|line| line.starts_with('|')).skip(2);
    let last_two = |row: &str| {
        let mut cells =
            row.trim_matches('|').rsplit('|').map(|cell| cell.trim().trim_matches('`').to_owned());
        let function = cells.next().unwrap();
        (cells.next().unwrap(), function)
    };
    rows.map(last_two).collect()
}

#[test]
fn the_traced_call_names_functions_that_exist() {
    let stages = traced(&files::text(&files::root().join("docs/ARCHITECTURE.md")));
    assert!(stages.len() >= 20, "the trace has {} stages", stages.len());
    let mut findings = Vec::new();
    for (file, function) in stages {
        let path = files::root().join(&file);
        if !path.is_file() {
            findings.push(format!("there is no file {file}"));
            continue;
        }
        let tokens = tokens::of_file(&path, Part::Everything);
        if !tokens.windows(2).any(|pair| pair[0].text == "fn" && pair[1].text == function) {
            findings.push(format!("{file} has no function `{function}`"));
        }
    }
    none("every stage of the traced call is a function in its file", &findings);
}
