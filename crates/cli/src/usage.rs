//! A command line that can't be read: clap's own message in one line, a code for programs, and the help to read next.

use clap::error::{ContextKind, ContextValue, ErrorKind};
use countersign_policy::nearest::nearest;
use countersign_policy::words::choices;

use crate::command_result::Usage;
use crate::output::visible;

pub(crate) const PROGRAM: &str = "countersign";

/// `words` are the commands that were understood.
pub(crate) fn usage(error: &clap::Error, tree: &clap::Command, words: &[String]) -> Usage {
    let mut command = vec![PROGRAM.to_owned()];
    command.extend_from_slice(words);
    let command = command.join(" ");
    let next = format!("{command} --help");
    let missing = [ErrorKind::MissingSubcommand, ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand];
    if missing.contains(&error.kind()) {
        let at = words.iter().try_fold(tree, |at, word| at.find_subcommand(word)).unwrap_or(tree);
        let names: Vec<&str> = at.get_subcommands().map(clap::Command::get_name).collect();
        let message = format!("`{command}` needs a command: {}", choices(&names));
        return Usage { message, reason_code: "command_missing", next };
    }
    if let (ErrorKind::InvalidSubcommand, Some(ContextValue::String(typed))) =
        (error.kind(), error.get(ContextKind::InvalidSubcommand))
    {
        return unknown_command(
            typed,
            &command,
            words.iter().try_fold(tree, |at, word| at.find_subcommand(word)),
        );
    }
    Usage { message: one_line(&error.to_string()), reason_code: reason_code(error), next }
}

/// A command that does not exist, with the one that was probably meant. clap's own suggestions are too many: `serve` for `aprove`.
fn unknown_command(typed: &str, command: &str, at: Option<&clap::Command>) -> Usage {
    let names: Vec<&str> = at
        .into_iter()
        .flat_map(clap::Command::get_subcommands)
        .filter(|known| !known.is_hide_set())
        .map(clap::Command::get_name)
        .collect();
    let begun = || names.iter().copied().find(|name| typed.len() > 2 && name.starts_with(typed));
    let meant = nearest(typed, names.iter().copied()).or_else(begun);
    let hint = meant.map(|name| format!("; did you mean `{name}`?")).unwrap_or_default();
    Usage {
        message: format!("`{command}` has no command `{}`{hint}", visible(typed)),
        reason_code: "unknown_command",
        next: meant.map_or_else(|| format!("{command} --help"), |name| format!("{command} {name} --help")),
    }
}

#[expect(clippy::wildcard_enum_match_arm, reason = "clap's kinds are open-ended")]
fn reason_code(error: &clap::Error) -> &'static str {
    let is_empty = |kind| {
        matches!(error.get(kind), None | Some(ContextValue::None))
            || matches!(error.get(kind), Some(ContextValue::String(text)) if text.is_empty())
    };
    match error.kind() {
        ErrorKind::InvalidSubcommand => "unknown_command",
        ErrorKind::UnknownArgument => "unknown_argument",
        ErrorKind::InvalidValue if is_empty(ContextKind::InvalidValue) => "value_missing",
        ErrorKind::InvalidValue | ErrorKind::ValueValidation => "invalid_value",
        ErrorKind::ArgumentConflict => "argument_conflict",
        ErrorKind::MissingRequiredArgument => "argument_missing",
        _ => "not_understood",
    }
}

/// clap's message without its label, the usage and the pointer to the help, with quoted input in backticks as everywhere.
fn one_line(text: &str) -> String {
    let mut message = String::new();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        if line.starts_with("Usage:") || line.starts_with("For more information") {
            break;
        }
        let line = line.strip_prefix("error: ").or_else(|| line.strip_prefix("tip: ")).unwrap_or(line);
        message.push_str(match message.chars().last() {
            None => "",
            Some(':') => " ",
            Some(_) => "; ",
        });
        message.push_str(&backticked(&visible(line)));
    }
    message
}

/// Replaces the single quotes around words, and keeps apostrophes.
fn backticked(line: &str) -> String {
    let (mut shown, mut is_open) = (String::with_capacity(line.len()), false);
    let mut before = ' ';
    let mut rest = line.chars().peekable();
    while let Some(one) = rest.next() {
        let ends_word = rest.peek().is_none_or(|next| !next.is_alphanumeric());
        let is_quote = one == '\'' && if is_open { ends_word } else { before.is_whitespace() };
        is_open ^= is_quote;
        shown.push(if is_quote { '`' } else { one });
        before = one;
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claps_message_is_one_line_with_backticks() {
        let text = "error: invalid value 'bsh' for '<SHELL>'\n  [possible values: bash, zsh]\n\n  tip: a similar value exists: 'bash'\n\nFor more information, try '--help'.\n";
        let expect =
            "invalid value `bsh` for `<SHELL>`; [possible values: bash, zsh]; a similar value exists: `bash`";
        assert_eq!(one_line(text), expect);
        let text =
            "error: the following required arguments were not provided:\n  <SHELL>\n\nUsage: x <SHELL>\n";
        assert_eq!(one_line(text), "the following required arguments were not provided: <SHELL>");
        let text = "error: invalid value 'ab' for '--tool <T>': a tool's full name can't be `ab`";
        assert_eq!(one_line(text), "invalid value `ab` for `--tool <T>`: a tool's full name can't be `ab`");
    }
}
