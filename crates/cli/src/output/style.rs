//! The few colours we use, by what they mean. Whether they are printed is decided where they are printed.

use std::fmt::Display;

use anstyle::{AnsiColor, Style};

/// It went well.
pub(crate) const GOOD: Style = AnsiColor::Green.on_default();
/// It did not.
pub(crate) const BAD: Style = AnsiColor::Red.on_default().bold();
/// Should be known.
pub(crate) const WARN: Style = AnsiColor::Yellow.on_default();
/// A name: of a tool, a rule, a command.
pub(crate) const NAME: Style = AnsiColor::Cyan.on_default();
/// Matters.
pub(crate) const BOLD: Style = Style::new().bold();
/// Matters less.
pub(crate) const DIM: Style = Style::new().dimmed();

/// As it is.
pub(crate) const PLAIN: Style = Style::new();

/// The text in a style.
pub(crate) fn paint(style: Style, text: impl Display) -> String {
    format!("{style}{text}{style:#}")
}
