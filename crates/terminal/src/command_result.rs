//! What a command gives back: an answer, or trouble of one of three kinds. Prints nothing itself.

use countersign_policy::refusal::Refusal;
use serde_json::{Map, Value};

pub type CommandResult = Result<Answer, CommandError>;

#[derive(Debug, Default)]
pub struct Answer {
    pub text: String,
    pub data: Map<String, Value>,
    /// The same, as JSON text that keeps every digit.
    pub verbatim: Vec<(String, String)>,
    pub warnings: Vec<String>,
}

impl Answer {
    pub fn text(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }

    /// The same answer with one more piece of data.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.data.insert(name.to_owned(), value.into());
        self
    }

    /// The same answer with one more piece of data, as the JSON text it came in.
    #[must_use]
    pub fn with_text(mut self, name: &str, text: impl Into<String>) -> Self {
        self.verbatim.push((name.to_owned(), text.into()));
        self
    }
}

/// The policy refused, the command line makes no sense, or something is broken.
#[derive(Debug)]
pub enum CommandError {
    /// The policy refused, or something it needs is broken: the code tells which.
    Refused(Box<Refused>),
    Usage(Usage),
    /// What was found can't be written to where it should go.
    Output(String),
    /// This machine does not do what the command needs: no runtime, no free address.
    Fault(Box<Fault>),
    /// What was called ran, and says itself that it failed.
    Failed(Box<FailedCall>),
}

/// A refusal, with what the command found out on the way.
#[derive(Debug)]
pub struct Refused {
    pub refusal: Refusal,
    /// The command's own findings, for people, on stdout: what they asked for, although it ends in a no.
    pub findings: String,
    /// Why it can't be done, for people, on stderr, above the refusal.
    pub reasons: String,
    pub data: Map<String, Value>,
    pub warnings: Vec<String>,
    /// What a person can type or do next.
    pub next: Option<String>,
    /// What is behind it when something is broken; told with `--verbose` only.
    pub inside: Option<String>,
}

#[derive(Debug)]
pub struct FailedCall {
    pub answer: Answer,
    pub message: String,
}

/// Something broke that is neither the store nor an upstream.
#[derive(Debug)]
pub struct Fault {
    pub message: String,
    pub next: Option<String>,
    /// The cause, shown with `--verbose` only.
    pub inside: String,
}

/// A command line that can't be read.
#[derive(Debug)]
pub struct Usage {
    pub message: String,
    pub reason_code: &'static str,
    pub next: String,
}

impl CommandError {
    /// A refusal and what to do about it.
    pub fn refused(refusal: Refusal, next: impl Into<String>) -> Self {
        let mut refused = Refused::from(refusal);
        refused.next = Some(next.into());
        Self::Refused(Box::new(refused))
    }

    pub fn fault(message: impl Into<String>, cause: impl std::fmt::Display) -> Self {
        Self::Fault(Box::new(Fault { message: message.into(), next: None, inside: cause.to_string() }))
    }

    /// A value on the command line that is well-formed but can't be used.
    pub fn usage(reason_code: &'static str, message: impl Into<String>, next: impl Into<String>) -> Self {
        Self::Usage(Usage { message: message.into(), reason_code, next: next.into() })
    }
}

impl From<Refusal> for Refused {
    fn from(refusal: Refusal) -> Self {
        Self {
            refusal,
            findings: String::new(),
            reasons: String::new(),
            data: Map::new(),
            warnings: Vec::new(),
            next: None,
            inside: None,
        }
    }
}

impl From<Refused> for CommandError {
    fn from(refused: Refused) -> Self {
        Self::Refused(Box::new(refused))
    }
}
