//! The documents: links lead somewhere, decisions are listed and whole, and an invariant that is claimed has its test.

use std::collections::BTreeSet;
use std::path::Path;

use crate::tokens::{self, Part};
use crate::{files, none};

/// A page without its code blocks and code spans: examples may hold any brackets they like.
fn prose(text: &str) -> String {
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

/// What a page points at: `](…)`, `src="…"`, `srcset="…"`, `href="…"`.
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

/// The anchors GitHub makes of a page's headings.
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
fn links_lead_somewhere() {
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
fn decisions_are_listed_and_whole() {
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
    assert!(lines < 200, "docs/ARCHITECTURE.md has {lines} lines: what has grown into a guide of its own?");
}

/// The `invariant_…` names in the part of a page under one heading.
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

#[test]
fn protections_in_the_security_page_have_their_test() {
    let word = |c: char| !(c.is_alphanumeric() || c == '_');
    let page = files::text(&files::root().join("SECURITY.md"));
    // `attack_05_*` stands for a family of tests.
    let claimed: BTreeSet<&str> = page.split(word).filter(|name| name.starts_with("attack_")).collect();
    assert!(claimed.len() > 20, "the page names {} tests", claimed.len());
    let written: Vec<String> =
        files::under(&files::root(), "rs").iter().flat_map(|path| tests_of(path, "attack_")).collect();
    let has =
        |name: &str| written.iter().any(|test| test == name || name.ends_with('_') && test.starts_with(name));
    let findings: Vec<String> =
        claimed.into_iter().filter(|name| !has(name) && *name != "attack_NN_").map(str::to_owned).collect();
    none("each test that SECURITY.md names exists", &findings);
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
