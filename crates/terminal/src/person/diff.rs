//! Differences as a person reads them: unified, coloured, with nothing invisible. Compares what is shown, so that what
//! differs is seen to differ.

use std::collections::HashSet;

use crate::output::{BAD, BOLD, DIM, GOOD, NAME, paint, visible};

/// The difference of two texts whose lines are safe to show, under their names; empty where there is none.
pub fn unified(old: (&str, &str), new: (&str, &str)) -> String {
    if old.1 == new.1 {
        return String::new();
    }
    let mut options = diffy::DiffOptions::new();
    options.set_original_filename(old.0.to_owned()).set_modified_filename(new.0.to_owned());
    coloured(&options.create_patch(old.1, new.1).to_string())
}

/// A unified difference with its colours; each line is made safe to show.
pub fn coloured(text: &str) -> String {
    let spaced = !only_spaces_differ(text);
    text.lines().map(|line| format!("{}\n", colour(&shown(line, spaced)))).collect()
}

/// A line with what is invisible made visible; where it may be, with the tabs it begins with as spaces.
fn shown(line: &str, spaced: bool) -> String {
    let text = line.trim_start_matches(['+', '-', ' ']);
    let indented = text.trim_start_matches('\t');
    match line.strip_suffix(text).filter(|mark| spaced && mark.len() <= 1) {
        Some(mark) => format!("{mark}{}{}", "    ".repeat(text.len() - indented.len()), visible(indented)),
        None => visible(line).into_owned(),
    }
}

/// Whether some line was replaced by one that only has other white space: then every tab matters.
fn only_spaces_differ(text: &str) -> bool {
    let bare = |line: &str| line.split_whitespace().collect::<String>();
    let gone: HashSet<String> = text.lines().filter_map(|line| line.strip_prefix('-')).map(bare).collect();
    let mut come = text.lines().filter_map(|line| line.strip_prefix('+')).map(bare);
    come.any(|line| !line.is_empty() && gone.contains(&line))
}

pub fn colour(line: &str) -> String {
    if line.starts_with("+++ ") || line.starts_with("--- ") || line.starts_with("diff ") {
        paint(BOLD, line)
    } else if line.starts_with("@@") {
        paint(NAME, line)
    } else if line.starts_with('+') {
        paint(GOOD, line)
    } else if line.starts_with('-') {
        paint(BAD, line)
    } else if line.starts_with('\\') {
        paint(DIM, line)
    } else {
        line.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tabs_indent_unless_they_are_what_differs() {
        let plain = |text: String| anstream::adapter::strip_str(&text).to_string();
        let patch = |old: &str, new: &str| plain(unified(("a", old), ("b", new)));
        let head = "--- a\n+++ b\n";
        assert_eq!(
            patch("{\n\t\"a\": 1\n}\n", "{\n\t\"b\":\t2\n}\n"),
            format!("{head}@@ -1,3 +1,3 @@\n {{\n-    \"a\": 1\n+    \"b\":\\t2\n }}\n")
        );
        assert_eq!(patch("\ta\n", "    a\n"), format!("{head}@@ -1 +1 @@\n-\\ta\n+    a\n"));
        assert_eq!(patch("x\n", "- \ta\n"), format!("{head}@@ -1 +1 @@\n-x\n+- \\ta\n"));
    }

    #[test]
    fn what_is_invisible_differs_visibly() {
        let plain = |text: String| anstream::adapter::strip_str(&text).to_string();
        assert_eq!(unified(("a", "same\n"), ("b", "same\n")), "");
        assert_eq!(
            plain(unified(("accepted", "one\ntwo\n"), ("now", "one\ntw\u{200b}o\n"))),
            "--- accepted\n+++ now\n@@ -1,2 +1,2 @@\n one\n-two\n+tw\\u{200b}o\n"
        );
    }
}
