//! One thing that was looked at, and what was seen.

use serde_json::{Value, json};

use crate::command_result::CommandError;

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

pub(super) fn one_line(trouble: &CommandError) -> String {
    match trouble {
        CommandError::Refused(refused) => refused.refusal.message.clone(),
        CommandError::Usage(usage) => usage.message.clone(),
        CommandError::Output(message) => message.clone(),
        CommandError::Fault(fault) => fault.message.clone(),
        CommandError::Failed(failed) => failed.message.clone(),
    }
}
