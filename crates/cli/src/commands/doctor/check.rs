//! One thing that was looked at, and what was seen. A fix is a line for the shell: what has to be done by hand opens the file, and
//! says what to change behind `#`.

use std::path::Path;

use serde_json::{Value, json};

use crate::cli::Cli;
use crate::command_result::CommandError;
use crate::output::shell_word;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Good,
    Look,
    Bad,
    Fixed,
}

#[derive(Clone, Debug)]
pub(super) struct Check {
    pub(super) area: &'static str,
    pub(super) state: State,
    pub(super) message: String,
    pub(super) fix: Option<String>,
}

impl Check {
    pub(super) fn new(area: &'static str, state: State, message: impl Into<String>) -> Self {
        Self { area, state, message: message.into(), fix: None }
    }

    pub(super) fn fix(mut self, fix: impl Into<String>) -> Self {
        self.fix = Some(fix.into());
        self
    }

    /// A fix that is an edit.
    pub(super) fn edit(self, path: &Path, what: &str) -> Self {
        let path = shell_word(&path.display().to_string());
        self.fix(format!("${{EDITOR:-vi}} {path}  # {what}"))
    }

    pub(super) fn value(&self) -> Value {
        let state = match self.state {
            State::Good => "good",
            State::Look => "look",
            State::Bad => "bad",
            State::Fixed => "fixed",
        };
        json!({"area": self.area, "state": state, "message": self.message, "fix": self.fix})
    }
}

/// A command of ours about the configuration that was looked at, wherever the reader is.
pub(super) fn own_command(cli: &Cli, words: &str) -> String {
    let named = cli.config.iter().map(|path| {
        let path = std::path::absolute(path).unwrap_or_else(|_| path.clone());
        format!(" --config {}", shell_word(&path.display().to_string()))
    });
    format!("countersign {words}{}", named.collect::<String>())
}

pub(super) fn one_line(trouble: &CommandError) -> String {
    match trouble {
        CommandError::Refused(refused) => refused.refusal.message.clone(),
        CommandError::Usage(usage) => usage.message.clone(),
        CommandError::Output(message) => message.clone(),
        CommandError::Fault(fault) => fault.message.clone(),
        CommandError::Failed(failed) => failed.message.clone(),
    }
}
