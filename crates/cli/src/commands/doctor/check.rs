//! One thing that was looked at, and what was seen.

use serde_json::{Value, json};

use crate::answer::Trouble;

/// How it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// As it should be.
    Good,
    /// Not wrong, but worth knowing.
    Look,
    /// Wrong.
    Bad,
    /// It was wrong, and is mended.
    Fixed,
}

/// One finding.
#[derive(Clone, Debug)]
pub(super) struct Check {
    /// What it belongs to.
    pub(super) area: &'static str,
    /// How it is.
    pub(super) state: State,
    /// What was seen, in one line.
    pub(super) message: String,
    /// What to do.
    pub(super) fix: Option<String>,
}

impl Check {
    /// A finding without a fix.
    pub(super) fn new(area: &'static str, state: State, message: impl Into<String>) -> Self {
        Self { area, state, message: message.into(), fix: None }
    }

    /// The same with what to do.
    pub(super) fn fix(mut self, fix: impl Into<String>) -> Self {
        self.fix = Some(fix.into());
        self
    }

    /// For programs.
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

/// Another command's trouble in one line.
pub(super) fn told(trouble: &Trouble) -> String {
    match trouble {
        Trouble::Refused(refused) => refused.refusal.message.clone(),
        Trouble::Usage(usage) => usage.message.clone(),
        Trouble::Output(message) => message.clone(),
        Trouble::Failed(failed) => failed.message.clone(),
    }
}
