//! What a command answers: data, warnings, or why not, and the envelope around it. The names of commands are here and nowhere
//! else.

use countersign_core::envelope::Envelope;
use serde_json::{Map, Value, json};

use crate::stop::{Outcome, Stop, UNEXPECTED};

/// A good answer.
#[derive(Debug, Default)]
pub struct Reply {
    /// What was asked for.
    pub data: Map<String, Value>,
    /// What should be known.
    pub warnings: Vec<String>,
}

impl Reply {
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

    /// The same answer with warnings.
    #[must_use]
    pub fn warn(mut self, warnings: Vec<String>) -> Self {
        self.warnings.extend(warnings);
        self
    }
}

/// A path and its twin with forward slashes.
pub fn put_path(data: &mut Map<String, Value>, name: &str, path: &std::path::Path) {
    data.insert(name.to_owned(), path.to_string_lossy().into_owned().into());
    data.insert(format!("{name}_posix"), crate::place::posix(path).into());
}

/// A command as envelopes name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Name {
    /// `command`, dotted.
    pub command: &'static str,
    /// `command_id`: its words as they are typed.
    pub id: &'static str,
}

impl Name {
    /// A command of these words.
    pub const fn new(command: &'static str, id: &'static str) -> Self {
        Self { command, id }
    }
}

/// The envelope of a command.
pub fn envelope(name: Name, outcome: Outcome<Reply>) -> Envelope {
    let mut envelope = match outcome {
        Ok(reply) => Envelope::ok(name.command, reply.data).warn(reply.warnings),
        Err(Stop::Refused(refusal)) => Envelope::refused(name.command, &refusal),
        Err(Stop::Broken(broken)) => {
            let details =
                json!({"reason_code": "unexpected", "next_actions": ["retry_command"], "retryable": true});
            Envelope::fault(name.command, UNEXPECTED, broken.to_string(), Some(details))
        }
    };
    envelope.command_id = name.id.to_owned();
    envelope.command_path = name.id.split(' ').map(str::to_owned).collect();
    envelope
}
