//! Errors and answers of the memory. Store faults become refusals with their code.

use countersign_policy::envelope::Envelope;
use countersign_policy::refusal::{Code, Refusal};
use countersign_store::StoreFault;
use serde_json::{Map, Value};

#[derive(Debug)]
pub struct MemoryError(pub Box<Refusal>);

pub type MemoryResult<T> = Result<T, MemoryError>;

#[derive(Debug, Default)]
pub struct MemoryToolReply {
    pub data: Map<String, Value>,
    pub warnings: Vec<String>,
}

impl MemoryToolReply {
    /// An answer with its sentence for people.
    pub fn with_message(message: impl Into<String>) -> Self {
        Self::default().with("message", message.into())
    }

    /// The same answer with one more piece of data.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.data.insert(name.to_owned(), value.into());
        self
    }

    #[must_use]
    pub fn warn(mut self, warnings: impl IntoIterator<Item = String>) -> Self {
        self.warnings.extend(warnings);
        self
    }
}

impl MemoryError {
    pub fn field(name: &str, message: impl Into<String>) -> Self {
        Refusal::new(Code::ArgumentsInvalid, message).with("field", name).into()
    }

    /// Something that is not there, or not for this reader.
    pub fn not_found(message: impl Into<String>) -> Self {
        Refusal::new(Code::NotFound, message).into()
    }
}

impl From<Refusal> for MemoryError {
    fn from(refusal: Refusal) -> Self {
        Self(Box::new(refusal))
    }
}

impl From<StoreFault> for MemoryError {
    fn from(fault: StoreFault) -> Self {
        fault.refusal().into()
    }
}

pub fn envelope(tool: &str, outcome: MemoryResult<MemoryToolReply>) -> Envelope {
    let command = format!("memory.{tool}");
    match outcome {
        Ok(reply) => Envelope::ok(&command, reply.data).warn(reply.warnings),
        Err(MemoryError(refusal)) => Envelope::refused(&command, &refusal),
    }
}
