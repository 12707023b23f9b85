//! Checks the Markdown files: relative links resolve, ADRs are complete and indexed, and every test that a document names exists.

use std::collections::BTreeSet;
use std::path::Path;

use crate::tokens::{self, Part};
use crate::{files, none};

/// The page without code blocks and code spans, whose brackets are not links.
pub(crate) fn prose(text: &str) -> String {
    let mut fenced = false;
    let mut kept = String::new();
    for line in text.lines() {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        if !fenced && !fence {
            kept.extend(line.split('`').step_by(2));
        }
        kept.push('\n');
    }
    kept
}

/// The link targets of a page: `](…)`, `src="…"`, `srcset="…"`, `href="…"`.
fn targets(text: &str) -> Vec<String> {
    let prose = prose(text);
    let ends = [("](", ')'), ("src=\"", '"'), ("srcset=\"", '"'), ("href=\"", '"')];
    let cut = |(open, close): (&str, char)| -> Vec<String> {
        prose
            .split(open)
            .skip(1)
            .filter_map(|rest| rest.split_once(close))
            .map(|(t, _)| t.to_owned())
            .collect()
    };
    ends.into_iter().flat_map(cut).collect()
}

/// The anchors that GitHub derives from the headings.
fn anchors(text: &str) -> BTreeSet<String> {
    let heading =
        |line: &str| line.starts_with('#').then(|| line.trim_start_matches('#').trim().to_lowercase());
    let keep = |c: char| c.is_alphanumeric() || c == '-' || c == '_' || c == ' ';
    text.lines()
        .filter_map(heading)
        .map(|h| h.chars().filter(|c| keep(*c)).collect::<String>().replace(' ', "-"))
        .collect()
}

#[test]
fn relative_links_resolve() {
    let mut findings = Vec::new();
    for page in files::under(&files::root(), "md") {
        for target in targets(&files::text(&page)) {
            if target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            let (file, anchor) = target.split_once('#').unwrap_or((&target, ""));
            let path = if file.is_empty() { page.clone() } else { page.parent().unwrap().join(file) };
            let anchored = || anchor.is_empty() || anchors(&files::text(&path)).contains(anchor);
            if !path.exists() || !anchored() {
                findings.push(format!("{}: `{target}`", files::shown(&page)));
            }
        }
    }
    none("relative links resolve", &findings);
}

#[test]
fn decision_records_are_complete_and_indexed() {
    let folder = files::root().join("docs/adr");
    let index = files::text(&folder.join("README.md"));
    let listed = targets(&index);
    let mut findings = Vec::new();
    for page in files::under(&folder, "md").into_iter().filter(|page| !page.ends_with("README.md")) {
        let name = page.file_name().unwrap().to_str().unwrap().to_owned();
        if !listed.contains(&name) {
            findings.push(format!("{name} is not in docs/adr/README.md"));
        }
        let found = anchors(&files::text(&page));
        for part in ["context", "choice", "what-we-gave-up"] {
            if !found.contains(part) {
                findings.push(format!("{name} has no heading `{}`", part.replace('-', " ")));
            }
        }
    }
    none("each decision is in the index and says context, choice and what we gave up", &findings);
}

#[test]
fn the_architecture_page_stays_short() {
    let lines = files::text(&files::root().join("docs/ARCHITECTURE.md")).lines().count();
    assert!(lines < 200, "docs/ARCHITECTURE.md has {lines} lines: move a part of it to a page of its own");
}

#[test]
fn the_readme_stays_short() {
    let bytes = files::text(&files::root().join("README.md")).len();
    assert!(bytes < 6_200, "README.md has {bytes} bytes: tell details in docs/guide");
}

/// The `invariant_…` names in the section under `heading`.
fn claimed(page: &str, heading: &str) -> BTreeSet<String> {
    let Some((_, rest)) = page.split_once(heading) else { return BTreeSet::new() };
    let part = rest.split("\n#").next().unwrap();
    let word = |c: char| !(c.is_alphanumeric() || c == '_');
    part.split(word).filter(|w| w.starts_with("invariant_")).map(str::to_owned).collect()
}

/// The functions of a file whose names begin with `prefix`.
fn tests_of(path: &Path, prefix: &str) -> Vec<String> {
    let tokens = tokens::of_file(path, Part::Everything);
    let names = tokens.windows(2).filter(|pair| pair[0].text == "fn" && pair[1].text.starts_with(prefix));
    names.map(|pair| pair[1].text.clone()).collect()
}

/// The last cell of every table row, with its line. A table whose last column is not `shown by` is a finding.
fn last_cells<'p>(page: &'p str, findings: &mut Vec<String>) -> Vec<(usize, &'p str)> {
    let mut cells = Vec::new();
    let mut is_inside = false;
    for (at, line) in page.lines().enumerate() {
        let was_inside = std::mem::replace(&mut is_inside, line.starts_with('|'));
        if !is_inside || line.starts_with("|---") {
            continue;
        }
        let last = line.trim_end().trim_end_matches('|').rsplit('|').next().unwrap_or_default().trim();
        match was_inside {
            true => cells.push((at + 1, last)),
            false if last != "shown by" => {
                findings.push(format!("line {}: the table's last column is `{last}`, not `shown by`", at + 1))
            }
            false => {}
        }
    }
    cells
}

/// The titles of the browser tests in `tests/page`.
fn page_tests() -> BTreeSet<String> {
    let files = files::under(&files::root().join("tests/page"), "mjs");
    let titles = |text: String| -> Vec<String> {
        let starts = text.split("\ntest(\"").skip(1);
        starts.filter_map(|rest| rest.split_once("\", ")).map(|(title, _)| title.to_owned()).collect()
    };
    files.iter().flat_map(|path| titles(files::text(path))).collect()
}

#[test]
fn protections_in_the_security_page_have_their_test() {
    let page = files::text(&files::root().join("SECURITY.md"));
    let mut written = page_tests();
    assert!(!written.is_empty(), "no test of the page was found");
    written.extend(files::under(&files::root(), "rs").iter().flat_map(|path| tests_of(path, "")));
    let mut findings = Vec::new();
    let cells = last_cells(&page, &mut findings);
    assert!(cells.len() > 50, "the page's tables have {} rows", cells.len());
    for (line, cell) in cells {
        let named: Vec<&str> = cell.split('`').skip(1).step_by(2).collect();
        if named.is_empty() {
            findings.push(format!("line {line}: no test is named"));
        }
        let missing = named.into_iter().filter(|name| !written.contains(*name));
        findings.extend(missing.map(|name| format!("line {line}: there is no test `{name}`")));
    }
    let word = |c: char| !(c.is_alphanumeric() || c == '_');
    let in_prose =
        page.split(word).filter(|name| name.starts_with("attack_") || name.starts_with("invariant_"));
    // The page explains the naming scheme with `attack_NN_…`.
    let missing = in_prose.filter(|name| !written.contains(*name) && *name != "attack_NN_");
    findings.extend(missing.map(|name| format!("there is no test `{name}`")));
    none("every table row of SECURITY.md names tests that exist", &findings);
}

#[test]
fn claimed_invariants_have_their_test() {
    let page = files::text(&files::root().join("docs/ARCHITECTURE.md"));
    let (held, promised) = (claimed(&page, "### Held today"), claimed(&page, "### Promised"));
    let written: BTreeSet<String> =
        files::under(&files::root(), "rs").iter().flat_map(|path| tests_of(path, "invariant_")).collect();
    assert!(!held.is_empty(), "the page claims no invariant at all");
    let mut findings = Vec::new();
    findings.extend(
        held.difference(&written).map(|name| format!("`{name}` is claimed, but there is no such test")),
    );
    findings.extend(
        promised.intersection(&written).map(|name| format!("`{name}` exists: move it from promised to held")),
    );
    let unknown = |name: &&String| !held.contains(*name) && !promised.contains(*name);
    findings.extend(
        written.iter().filter(unknown).map(|name| format!("`{name}` is not on docs/ARCHITECTURE.md")),
    );
    none("docs/ARCHITECTURE.md and the tests agree on the invariants", &findings);
}
