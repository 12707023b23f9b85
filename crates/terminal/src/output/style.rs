//! The few colours we use, by what they mean. Whether they are printed is decided where they are printed.

use std::fmt::Display;

use anstyle::{AnsiColor, Style};

pub const GOOD: Style = AnsiColor::Green.on_default();
pub const BAD: Style = AnsiColor::Red.on_default().bold();
pub const WARN: Style = AnsiColor::Yellow.on_default();
/// A name: of a tool, a rule, a command.
pub const NAME: Style = AnsiColor::Cyan.on_default();
pub const BOLD: Style = Style::new().bold();
pub const DIM: Style = Style::new().dimmed();

pub const PLAIN: Style = Style::new();

pub fn paint(style: Style, text: impl Display) -> String {
    format!("{style}{text}{style:#}")
}
