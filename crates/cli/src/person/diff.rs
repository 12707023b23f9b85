//! Differences as a person reads them: unified, coloured, with nothing invisible. Compares what is shown, so that what
//! differs is seen to differ.

use crate::output::{BAD, BOLD, DIM, GOOD, NAME, paint, visible};

/// The difference of two texts whose lines are safe to show, under their names; empty where there is none.
pub(crate) fn unified(old: (&str, &str), new: (&str, &str)) -> String {
    if old.1 == new.1 {
        return String::new();
    }
    let mut options = diffy::DiffOptions::new();
    options.set_original_filename(old.0.to_owned()).set_modified_filename(new.0.to_owned());
    coloured(&options.create_patch(old.1, new.1).to_string())
}

/// A unified difference with its colours; each line is made safe to show.
pub(crate) fn coloured(text: &str) -> String {
    text.lines().map(|line| format!("{}\n", colour(&visible(line)))).collect()
}

/// One line of a difference.
pub(crate) fn colour(line: &str) -> String {
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
    fn what_is_invisible_differs_visibly() {
        let plain = |text: String| anstream::adapter::strip_str(&text).to_string();
        assert_eq!(unified(("a", "same\n"), ("b", "same\n")), "");
        assert_eq!(
            plain(unified(("accepted", "one\ntwo\n"), ("now", "one\ntw\u{200b}o\n"))),
            "--- accepted\n+++ now\n@@ -1,2 +1,2 @@\n one\n-two\n+tw\\u{200b}o\n"
        );
    }
}
