//! Answers of commands: data, warnings or an error, and the envelope around them.

use countersign_policy::envelope::Envelope;
use serde_json::{Map, Value, json};

use crate::error::{PackError, PackResult, UNEXPECTED};

#[derive(Debug, Default)]
pub struct PackCommandReply {
    pub data: Map<String, Value>,
    pub warnings: Vec<String>,
}

impl PackCommandReply {
    /// An answer without warnings.
    pub fn new(data: Map<String, Value>) -> Self {
        Self { data, warnings: Vec::new() }
    }

    /// The same answer with one more piece of data.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.data.insert(name.to_owned(), value.into());
        self
    }

    /// The same answer with a path, and the path with forward slashes.
    #[must_use]
    pub fn with_path(mut self, name: &str, path: &std::path::Path) -> Self {
        put_path(&mut self.data, name, path);
        self
    }

    #[must_use]
    pub fn warn(mut self, warnings: Vec<String>) -> Self {
        self.warnings.extend(warnings);
        self
    }
}

/// A path and its twin with forward slashes.
pub(crate) fn put_path(data: &mut Map<String, Value>, name: &str, path: &std::path::Path) {
    data.insert(name.to_owned(), path.to_string_lossy().into_owned().into());
    data.insert(format!("{name}_posix"), crate::place::posix(path).into());
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommandName {
    /// `command`, dotted.
    pub command: &'static str,
    /// `command_id`: its words as they are typed.
    pub id: &'static str,
}

impl CommandName {
    pub const fn new(command: &'static str, id: &'static str) -> Self {
        Self { command, id }
    }

    pub(crate) fn put_into(self, envelope: &mut Envelope) {
        envelope.command = self.command.to_owned();
        envelope.command_id = self.id.to_owned();
        envelope.command_path = self.id.split(' ').map(str::to_owned).collect();
    }
}

pub fn envelope(name: CommandName, outcome: PackResult<PackCommandReply>) -> Envelope {
    let mut envelope = match outcome {
        Ok(reply) => Envelope::ok(name.command, reply.data).warn(reply.warnings),
        Err(PackError::Refused(refusal)) => Envelope::refused(name.command, &refusal),
        Err(PackError::Broken(broken)) => {
            let details =
                json!({"reason_code": "unexpected", "next_actions": ["retry_command"], "retryable": true});
            Envelope::fault(name.command, UNEXPECTED, broken.to_string(), Some(details))
        }
    };
    name.put_into(&mut envelope);
    envelope
}
