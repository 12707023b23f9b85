//! What a command gives back: an answer, or trouble of one of three kinds. Prints nothing itself.

use countersign_core::refusal::Refusal;
use serde_json::{Map, Value};

/// What every command gives back.
pub(crate) type Outcome = Result<Answer, Trouble>;

/// It went well.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    /// For people, on stdout.
    pub(crate) text: String,
    /// For programs, in the envelope.
    pub(crate) data: Map<String, Value>,
    /// The same, as JSON text that keeps every digit.
    pub(crate) verbatim: Vec<(String, String)>,
    /// For both.
    pub(crate) warnings: Vec<String>,
}

impl Answer {
    /// An answer for people.
    pub(crate) fn text(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }

    /// The same answer with one more piece of data.
    #[must_use]
    pub(crate) fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.data.insert(name.to_owned(), value.into());
        self
    }

    /// The same answer with one more piece of data, as the JSON text it came in.
    #[must_use]
    pub(crate) fn with_text(mut self, name: &str, text: impl Into<String>) -> Self {
        self.verbatim.push((name.to_owned(), text.into()));
        self
    }
}

/// It did not: the law said no, the command line makes no sense, or something is broken.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// The law said no, or something it needs is broken: the code tells which.
    Refused(Box<Refused>),
    /// The command line can't be read.
    Usage(Usage),
    /// What was found can't be written to where it should go.
    Output(String),
    /// What was called ran, and says itself that it failed.
    Failed(Box<Failed>),
}

/// A refusal, with what the command found out on the way.
#[derive(Debug)]
pub(crate) struct Refused {
    /// The no.
    pub(crate) refusal: Refusal,
    /// The command's own findings, for people, on stdout: what they asked for, although it ends in a no.
    pub(crate) findings: String,
    /// Why it can't be done, for people, on stderr, above the refusal.
    pub(crate) reasons: String,
    /// For programs, in the envelope.
    pub(crate) data: Map<String, Value>,
    /// For both.
    pub(crate) warnings: Vec<String>,
    /// What a person can type or do next.
    pub(crate) next: Option<String>,
    /// What is behind it when something is broken; told with `--verbose` only.
    pub(crate) inside: Option<String>,
}

/// A call that ran and failed.
#[derive(Debug)]
pub(crate) struct Failed {
    /// What came back all the same.
    pub(crate) answer: Answer,
    /// What failed, in one line.
    pub(crate) message: String,
}

/// A command line that can't be read.
#[derive(Debug)]
pub(crate) struct Usage {
    /// What is wrong, in one line.
    pub(crate) message: String,
    /// The kind of mistake, for programs.
    pub(crate) reason_code: &'static str,
    /// What to type instead.
    pub(crate) next: String,
}

impl Trouble {
    /// A refusal and what to do about it.
    pub(crate) fn refused(refusal: Refusal, next: impl Into<String>) -> Self {
        let mut refused = Refused::from(refusal);
        refused.next = Some(next.into());
        Self::Refused(Box::new(refused))
    }

    /// A value on the command line that is well-formed but can't be used.
    pub(crate) fn usage(
        reason_code: &'static str,
        message: impl Into<String>,
        next: impl Into<String>,
    ) -> Self {
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

impl From<Refused> for Trouble {
    fn from(refused: Refused) -> Self {
        Self::Refused(Box::new(refused))
    }
}
