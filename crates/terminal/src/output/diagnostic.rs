//! Findings about a configuration, the way compilers show them, with colours and carets that stand under what is meant.

use countersign_config::{Diagnostic, DiagnosticSeverity};
use countersign_policy::words::plural;
use unicode_width::UnicodeWidthStr as _;

use super::escaping::visible;
use super::style::{BAD, BOLD, DIM, GOOD, NAME, WARN, paint};

/// One finding, with an empty line after it.
pub fn diagnostic(found: &Diagnostic) -> String {
    let style = match found.severity {
        DiagnosticSeverity::Error => BAD,
        DiagnosticSeverity::Warning => WARN,
    };
    let number = found.line.to_string();
    let gutter = " ".repeat(number.len());
    // Escapes change the width of a line, so the part before the place is escaped on its own.
    let before: String = found.snippet.chars().take(found.column.saturating_sub(1)).collect();
    let marked: String =
        found.snippet.chars().skip(found.column.saturating_sub(1)).take(found.width).collect();
    let carets = "^".repeat(visible(&marked).width().max(1));
    let bar = paint(DIM, "|");
    let mut text = format!(
        "{}{}\n{gutter}{} {}:{}:{}\n{gutter} {bar}\n{} {bar} {}\n{gutter} {bar} {}{}\n",
        paint(style, format_args!("{}[{}]", found.severity, found.code)),
        paint(BOLD, format_args!(": {}", visible(&found.message))),
        paint(DIM, "-->"),
        paint(NAME, visible(&found.file)),
        found.line,
        found.column,
        paint(DIM, &number),
        visible(&found.snippet),
        " ".repeat(visible(&before).width()),
        paint(style, carets),
    );
    if let Some(help) = &found.help {
        text.push_str(&format!("{gutter} {} {}\n", paint(GOOD, "= help:"), visible(help)));
    }
    text.push('\n');
    text
}

/// `2 errors, 1 warning`.
pub fn counts(found: &[Diagnostic]) -> String {
    let errors = found.iter().filter(|one| one.is_error()).count();
    let warnings = found.len() - errors;
    let say = |count: usize, one: &str| (count > 0).then(|| plural(count, one));
    let both: Vec<String> = [say(errors, "error"), say(warnings, "warning")].into_iter().flatten().collect();
    both.join(", ")
}
