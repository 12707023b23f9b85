//! Why an answer is a no: the law or the request. Faults of the store come as refusals too, with their code.

use countersign_core::envelope::Envelope;
use countersign_core::refusal::{Code, Refusal};
use countersign_store::StoreFault;
use serde_json::{Map, Value};

/// A no.
#[derive(Debug)]
pub struct Stop(pub Box<Refusal>);

/// What every act gives back.
pub type Outcome<T> = Result<T, Stop>;

/// A good answer.
#[derive(Debug, Default)]
pub struct Reply {
    /// What was asked for.
    pub data: Map<String, Value>,
    /// What should be known.
    pub warnings: Vec<String>,
}

impl Reply {
    /// An answer with its sentence for people.
    pub fn said(message: impl Into<String>) -> Self {
        Self::default().with("message", message.into())
    }

    /// The same answer with one more piece of data.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.data.insert(name.to_owned(), value.into());
        self
    }

    /// The same answer with warnings.
    #[must_use]
    pub fn warn(mut self, warnings: impl IntoIterator<Item = String>) -> Self {
        self.warnings.extend(warnings);
        self
    }
}

impl Stop {
    /// A field that can't be used.
    pub fn field(name: &str, message: impl Into<String>) -> Self {
        Refusal::new(Code::ArgumentsInvalid, message).with("field", name).into()
    }

    /// Something that is not there, or not for this reader.
    pub fn not_found(message: impl Into<String>) -> Self {
        Refusal::new(Code::NotFound, message).into()
    }
}

impl From<Refusal> for Stop {
    fn from(refusal: Refusal) -> Self {
        Self(Box::new(refusal))
    }
}

impl From<StoreFault> for Stop {
    fn from(fault: StoreFault) -> Self {
        fault.refusal().into()
    }
}

/// The envelope of a tool's answer.
pub fn envelope(tool: &str, outcome: Outcome<Reply>) -> Envelope {
    let command = format!("memory.{tool}");
    match outcome {
        Ok(reply) => Envelope::ok(&command, reply.data).warn(reply.warnings),
        Err(Stop(refusal)) => Envelope::refused(&command, &refusal),
    }
}
