//! What is wrong with a configuration: where, what, and what to write instead. Prints like a compiler does.

use std::fmt;

use serde::Serialize;

use countersign_policy::nearest::nearest;
use countersign_policy::visible_text;
use countersign_policy::words::words;

words! {
    /// How bad a finding is.
    pub enum DiagnosticSeverity("severity") {
        Warning = "warning",
        /// The configuration can't be used, or a part of it never does anything.
        Error = "error",
    }
}

words! {
    /// What kind of finding it is.
    pub enum DiagnosticKind("problem") {
        /// The text is not TOML.
        Syntax = "syntax",
        /// A key is written twice.
        DuplicateKey = "duplicate-key",
        UnknownKey = "unknown-key",
        /// A key that has to be there is not.
        MissingKey = "missing-key",
        /// A string where a list belongs, and the like.
        WrongType = "wrong-type",
        /// A value that is of the right type and still no good.
        BadValue = "bad-value",
        /// A word outside its list.
        UnknownWord = "unknown-word",
        /// A glob that does not parse.
        BadGlob = "bad-glob",
        /// A condition that does not compile.
        BadCondition = "bad-condition",
        /// Keys that exclude one another, or names used twice.
        Conflict = "conflict",
        /// `${…}` or `{…}` that names nothing.
        BadReference = "bad-reference",
        /// A secret that could not be looked up.
        Unresolved = "unresolved",
        /// A rule that no tool can match.
        NeverMatches = "never-matches",
        /// A rule whose every field is decided before it is reached.
        NeverDecides = "never-decides",
        /// A rule that says nothing.
        EmptyRule = "empty-rule",
        DuplicateRule = "duplicate-rule",
        /// A condition that is always true, always false, or always fails.
        ConstantCondition = "constant-condition",
        /// A field that has no effect beside another.
        Useless = "useless",
        /// A rule that lets more through than is usual.
        Lax = "lax",
    }
}

/// One finding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Diagnostic {
    /// The file's name as the caller gave it.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// The column, from 1, in characters.
    pub column: usize,
    pub width: usize,
    pub severity: DiagnosticSeverity,
    pub code: DiagnosticKind,
    pub message: String,
    /// What to write instead.
    pub help: Option<String>,
    pub snippet: String,
}

impl Diagnostic {
    /// Whether it keeps the configuration from being used.
    pub fn is_error(&self) -> bool {
        self.severity == DiagnosticSeverity::Error
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = self.line.to_string();
        let gutter = " ".repeat(number.len());
        // A line that is hidden or shorter than the place still gets its caret.
        let room = self.snippet.chars().count();
        let before = (self.column - 1).min(room);
        let width = self.width.min(room.saturating_sub(before)).max(1);
        writeln!(f, "{}[{}]: {}", self.severity, self.code, self.message)?;
        writeln!(f, "{gutter}--> {}:{}:{}", self.file, self.line, self.column)?;
        writeln!(f, "{gutter} |")?;
        writeln!(f, "{number} | {}", self.snippet)?;
        write!(f, "{gutter} | {}{}", " ".repeat(before), "^".repeat(width))?;
        match &self.help {
            Some(help) => write!(f, "\n{gutter} = help: {help}"),
            None => Ok(()),
        }
    }
}

/// Text of the user's in backticks: one line, not endless.
pub(crate) fn tick(text: &str) -> String {
    const LONGEST: usize = 80;
    let mut shown = one_line(&text.chars().take(LONGEST).collect::<String>());
    if text.chars().nth(LONGEST).is_some() {
        shown.push('…');
    }
    format!("`{shown}`")
}

/// `did you mean …?`, or the other help if no known name is near.
pub(crate) fn did_you_mean<'k>(
    written: &str,
    known: impl IntoIterator<Item = &'k str>,
    otherwise: impl FnOnce() -> String,
) -> String {
    nearest(written, known).map_or_else(otherwise, |near| format!("did you mean `{near}`?"))
}

/// Text for one line of a terminal. Every character keeps its column, so that carets point at the right place.
pub(crate) fn one_line(text: &str) -> String {
    visible_text::replace_hidden(text, '\u{fffd}').replace(['\n', '\t'], " ")
}
