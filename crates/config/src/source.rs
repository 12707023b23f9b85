//! The texts a configuration comes from, and places in them. Turns offsets into lines and columns, also inside strings.
//! Reads no file: the caller brings the text.

use super::diagnostic::{Diagnostic, DiagnosticKind, DiagnosticSeverity, one_line};
use countersign_policy::command_template::Place;
use countersign_policy::redact::Redactor;

/// One configuration file: its name, for messages, and its text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// What messages call it, such as `countersign.toml`.
    pub name: String,
    pub text: String,
}

impl Source {
    pub fn new(name: impl Into<String>, text: impl Into<String>) -> Self {
        Self { name: name.into(), text: text.into() }
    }
}

/// All sources of a configuration, kept so that later findings can show their lines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceFiles {
    sources: Vec<Source>,
    /// Where the lines of each source start, so that a file with thousands of mistakes is answered as well.
    lines: Vec<Vec<usize>>,
}

impl SourceFiles {
    pub(crate) fn new(sources: &[Source]) -> Self {
        let starts = |source: &Source| {
            std::iter::once(0).chain(source.text.match_indices('\n').map(|(at, _)| at + 1)).collect()
        };
        Self { sources: sources.to_vec(), lines: sources.iter().map(starts).collect() }
    }

    pub fn all(&self) -> &[Source] {
        &self.sources
    }

    fn source(&self, file: usize) -> (&str, &str) {
        self.sources.get(file).map_or(("", ""), |source| (&source.name, &source.text))
    }

    /// Line and column of a place, from 1, columns in characters.
    pub fn position(&self, place: Place) -> (usize, usize) {
        let (_, text) = self.source(place.file);
        let at = floor(text, place.start);
        let line = self
            .lines
            .get(place.file)
            .map_or(0, |starts| starts.partition_point(|start| *start <= at))
            .max(1);
        let before = text.get(self.line_start(place.file, line)..at).unwrap_or_default();
        (line, before.trim_start_matches('\u{feff}').chars().count() + 1)
    }

    fn line_start(&self, file: usize, line: usize) -> usize {
        self.lines.get(file).and_then(|starts| starts.get(line - 1)).copied().unwrap_or(0)
    }

    /// `file:line`, which is how rules are named.
    pub fn label(&self, place: Place) -> String {
        format!("{}:{}", self.source(place.file).0, self.position(place).0)
    }

    /// A finding at a place, with the line it stands on.
    pub fn diagnostic(
        &self,
        place: Place,
        severity: DiagnosticSeverity,
        problem: DiagnosticKind,
        message: impl Into<String>,
        help: impl Into<Option<String>>,
    ) -> Diagnostic {
        let (name, text) = self.source(place.file);
        let (line, column) = self.position(place);
        let from_line = text.get(self.line_start(place.file, line)..).unwrap_or_default();
        let whole_line = from_line.split('\n').next().unwrap_or_default().trim_start_matches('\u{feff}');
        let marked = text.get(floor(text, place.start)..floor(text, place.end)).unwrap_or_default();
        let marked = marked.split('\n').next().unwrap_or_default().trim_end();
        Diagnostic {
            file: name.to_owned(),
            line,
            column,
            width: marked.chars().count().max(1),
            severity,
            code: problem,
            message: message.into(),
            help: help.into(),
            snippet: shown(whole_line),
        }
    }

    /// The place of the byte `offset` of a string's value: escapes make it differ from its spelling.
    pub(crate) fn inside(&self, string: Place, offset: usize) -> usize {
        let (_, text) = self.source(string.file);
        let raw = text.get(string.start..string.end).unwrap_or_default();
        (string.start + offset_in_spelling(raw, offset)).min(string.end)
    }
}

/// The nearest character boundary at or before an offset.
fn floor(text: &str, offset: usize) -> usize {
    let mut offset = offset.min(text.len());
    while !text.is_char_boundary(offset) {
        offset -= 1;
    }
    offset
}

/// A line for people: no control characters, and no line that seems to hold a secret.
fn shown(line: &str) -> String {
    let line = line.trim_end_matches('\r');
    // A reference in the place of a secret is no secret.
    let pasted = line.split("${").enumerate().map(|(index, part)| match (index, part.split_once('}')) {
        (1.., Some((_, after))) => after,
        (_, _) => part,
    });
    let pasted: String = pasted.collect();
    if Redactor::default().clean_text(&pasted) != pasted {
        return "(a line that seems to hold a secret is not shown)".to_owned();
    }
    one_line(line)
}

/// Where in a TOML string's spelling its value's byte at `offset` stands.
fn offset_in_spelling(raw: &str, offset: usize) -> usize {
    let (quotes, escapes) = match raw {
        _ if raw.starts_with("\"\"\"") => (3, true),
        _ if raw.starts_with("'''") => (3, false),
        _ => (1, raw.starts_with('"')),
    };
    let body = raw.get(quotes..).unwrap_or_default();
    // A newline right behind the opening quotes of a multi-line string is not part of its value.
    let skipped = if quotes == 3 {
        body.len() - body.strip_prefix("\r\n").or(body.strip_prefix('\n')).unwrap_or(body).len()
    } else {
        0
    };
    let (mut spelled, mut valued) = (quotes + skipped, 0);
    let mut rest = body.get(skipped..).unwrap_or_default();
    while valued < offset {
        let Some(first) = rest.chars().next() else { break };
        let (takes, gives) =
            if escapes && first == '\\' { escape(rest) } else { (first.len_utf8(), first.len_utf8()) };
        spelled += takes;
        valued += gives;
        rest = rest.get(takes..).unwrap_or_default();
    }
    spelled
}

/// How many bytes an escape takes in the spelling, and how many it gives in the value.
fn escape(rest: &str) -> (usize, usize) {
    let after = rest.get(1..).unwrap_or_default();
    let hex = |digits: usize| {
        let code = after.get(1..1 + digits).and_then(|digits| u32::from_str_radix(digits, 16).ok());
        (2 + digits, code.and_then(char::from_u32).map_or(1, char::len_utf8))
    };
    match after.chars().next() {
        Some('x') => hex(2),
        Some('u') => hex(4),
        Some('U') => hex(8),
        Some(blank) if blank.is_whitespace() => (1 + after.len() - after.trim_start().len(), 0),
        Some(other) => (1 + other.len_utf8(), 1),
        None => (1, 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_in_values_lead_to_their_spelling() {
        for (raw, value, offset) in [
            (r#""abc""#, "abc", 2),
            (r"'a\c'", r"a\c", 2),
            (r#""a\"bc""#, "a\"bc", 2),
            (r#""a\u00e9bc""#, "aébc", 3),
            (r#""\x41bc""#, "Abc", 1),
            ("'''\nab\ncd'''", "ab\ncd", 3),
            ("\"\"\"\r\nab\\\n   cd\"\"\"", "abcd", 3),
        ] {
            let found = offset_in_spelling(raw, offset);
            let expect = value.get(offset..).and_then(|rest| rest.chars().next());
            assert_eq!(raw[found..].chars().next(), expect, "{raw}");
        }
        assert_eq!(offset_in_spelling("'ab'", 99), 4);
    }
}
