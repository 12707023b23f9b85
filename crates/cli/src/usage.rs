//! A command line that can't be read, said in our words: one line, user input in backticks, what to type instead.

use clap::error::{ContextKind, ContextValue, ErrorKind};
use countersign_core::words::choices;

use crate::answer::Usage;
use crate::output::visible;

/// The program's name as it is typed.
pub(crate) const PROGRAM: &str = "countersign";

/// What clap found, in our words. `words` are the commands that were understood.
pub(crate) fn usage(error: &clap::Error, tree: &clap::Command, words: &[String]) -> Usage {
    let found = Found(error);
    let mut command = vec![PROGRAM.to_owned()];
    command.extend_from_slice(words);
    let next = format!("{} --help", command.join(" "));
    let missing = [ErrorKind::MissingSubcommand, ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand];
    let (reason_code, message) = if missing.contains(&error.kind()) {
        ("command_missing", format!("`{}` needs a command: {}", command.join(" "), commands(tree, words)))
    } else {
        say(error, &found)
    };
    Usage { message, reason_code, next }
}

#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "clap's kinds are open-ended; others are said in its own first line"
)]
fn say(error: &clap::Error, found: &Found<'_>) -> (&'static str, String) {
    let arg = found.arg();
    let value = found.first(ContextKind::InvalidValue);
    match error.kind() {
        ErrorKind::InvalidSubcommand => {
            let name = found.first(ContextKind::InvalidSubcommand);
            let close = found.did_you_mean(ContextKind::SuggestedSubcommand);
            ("unknown_command", format!("unknown command `{name}`{close}"))
        }
        ErrorKind::UnknownArgument => {
            let close = found.did_you_mean(ContextKind::SuggestedArg);
            let what = if arg.starts_with('-') { "unknown option" } else { "unexpected argument" };
            ("unknown_argument", format!("{what} `{arg}`{close}"))
        }
        ErrorKind::InvalidValue if value.is_empty() => {
            ("value_missing", format!("`{arg}` needs a value{}", found.must_be()))
        }
        ErrorKind::InvalidValue => {
            let close = found.did_you_mean(ContextKind::SuggestedValue);
            ("invalid_value", format!("`{value}` does not fit `{arg}`{}{close}", found.must_be()))
        }
        ErrorKind::ValueValidation => {
            let why = std::error::Error::source(error).map_or(String::new(), |source| format!(": {source}"));
            ("invalid_value", format!("`{value}` does not fit `{arg}`{why}"))
        }
        ErrorKind::ArgumentConflict => {
            let prior = found.first(ContextKind::PriorArg);
            if prior.is_empty() || prior == arg {
                ("argument_conflict", format!("`{arg}` can be given only once"))
            } else {
                ("argument_conflict", format!("`{arg}` can't be used with `{prior}`"))
            }
        }
        ErrorKind::MissingRequiredArgument => {
            let missing: Vec<String> =
                found.all(ContextKind::InvalidArg).iter().map(|arg| format!("`{arg}`")).collect();
            ("argument_missing", format!("{} is missing", missing.join(" and ")))
        }
        _ => ("not_understood", first_line(error)),
    }
}

/// The commands there are below these words.
fn commands(tree: &clap::Command, words: &[String]) -> String {
    let at = words.iter().try_fold(tree, |at, word| at.find_subcommand(word)).unwrap_or(tree);
    let names: Vec<&str> = at.get_subcommands().map(clap::Command::get_name).collect();
    choices(&names)
}

/// clap's own words: its first line without the `error:` in front.
fn first_line(error: &clap::Error) -> String {
    let text = error.to_string();
    let line = text.lines().next().unwrap_or_default();
    visible(line.strip_prefix("error: ").unwrap_or(line)).replace('\'', "`")
}

struct Found<'a>(&'a clap::Error);

impl Found<'_> {
    fn all(&self, kind: ContextKind) -> Vec<String> {
        match self.0.get(kind) {
            Some(ContextValue::String(text)) => vec![visible(text).into_owned()],
            Some(ContextValue::Strings(texts)) => {
                texts.iter().map(|text| visible(text).into_owned()).collect()
            }
            Some(ContextValue::StyledStr(text)) => vec![visible(&text.to_string()).into_owned()],
            _ => Vec::new(),
        }
    }

    fn first(&self, kind: ContextKind) -> String {
        self.all(kind).into_iter().next().unwrap_or_default()
    }

    /// The option without the placeholder of its value.
    fn arg(&self) -> String {
        let arg = self.first(ContextKind::InvalidArg);
        match arg.split_once(" <") {
            Some((name, _)) => name.to_owned(),
            None => arg,
        }
    }

    fn must_be(&self) -> String {
        let words = self.all(ContextKind::ValidValue);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        if words.is_empty() { String::new() } else { format!(": must be {}", choices(&words)) }
    }

    fn did_you_mean(&self, kind: ContextKind) -> String {
        match self.first(kind) {
            close if close.is_empty() => String::new(),
            close => format!("; did you mean `{close}`?"),
        }
    }
}
