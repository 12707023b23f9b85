//! Line ends of files that are edited: what is not edited ends as it did. Reads and writes nothing.

/// A text with the line ends another one has: the editor of TOML knows one kind only. Lines that are in both end as they did, new
/// ones as most do.
pub fn with_line_ends(before: &str, after: &str) -> String {
    let body = |line: &str| -> String { line.trim_end_matches('\n').trim_end_matches('\r').to_owned() };
    let usual = if before.matches("\r\n").count() * 2 > before.matches('\n').count() { "\r\n" } else { "\n" };
    let mut old = before.split_inclusive('\n');
    let mut text = String::with_capacity(after.len() + 64);
    for line in after.split_inclusive('\n') {
        if !text.is_empty() && !text.ends_with('\n') {
            text.push_str(usual);
        }
        let mut rest = old.clone();
        match rest.find(|known| body(known) == body(line)) {
            Some(known) => {
                text.push_str(known);
                old = rest;
            }
            None => {
                text.push_str(&body(line));
                text.push_str(usual);
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_end_as_they_did() {
        for (before, after, expect) in [
            ("a = 1\r\nb = 2\r\n", "a = 1\nc = 3\n", "a = 1\r\nc = 3\r\n"),
            ("a = 1\nb = 2\n", "a = 1\nc = 3\nb = 2\n", "a = 1\nc = 3\nb = 2\n"),
            (
                "a = 1\r\nb = 2\nc = 3\r\n",
                "a = 1\nb = 2\nc = 3\nd = 4\n",
                "a = 1\r\nb = 2\nc = 3\r\nd = 4\r\n",
            ),
            ("a = 1\nb = 2", "a = 1\nb = 2\n", "a = 1\nb = 2"),
            ("a = 1\nb = 2", "a = 1\nb = 2\nc = 3\n", "a = 1\nb = 2\nc = 3\n"),
            ("", "a = 1\n", "a = 1\n"),
        ] {
            assert_eq!(with_line_ends(before, after), expect);
        }
    }
}
