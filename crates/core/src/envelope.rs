//! The envelope every answer of ours comes in. Fields may be added, never renamed or removed.

use serde::Serialize;
use serde_json::{Map, Value};

use crate::refusal::Refusal;

/// The version of the envelope's shape.
pub const SCHEMA_VERSION: u32 = 1;

/// One entry of `errors`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ErrorEntry {
    /// The stable code.
    pub code: String,
    /// One line for a reader.
    pub message: String,
    /// Reason code, next actions and facts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub details: Option<Value>,
}

impl From<&Refusal> for ErrorEntry {
    fn from(refusal: &Refusal) -> Self {
        Self {
            code: refusal.code.as_str().to_owned(),
            message: refusal.message.clone(),
            details: Some(refusal.details_value()),
        }
    }
}

/// What every command prints with `--json` and every tool of ours answers.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Envelope {
    /// Always [`SCHEMA_VERSION`].
    pub schema_version: u32,
    /// Whether it went well.
    pub ok: bool,
    /// The command or tool, dotted.
    pub command: String,
    /// The same, for programs that key on it.
    pub command_id: String,
    /// The command's words.
    pub command_path: Vec<String>,
    /// The program's version.
    pub version: String,
    /// What was asked for.
    pub data: Map<String, Value>,
    /// What went well but should be known.
    pub warnings: Vec<String>,
    /// What went wrong; empty exactly when `ok`.
    pub errors: Vec<ErrorEntry>,
}

impl Envelope {
    /// A good answer of the command named by its dotted path.
    pub fn ok(command: &str, data: Map<String, Value>) -> Self {
        Self {
            schema_version: SCHEMA_VERSION,
            ok: true,
            command: command.to_owned(),
            command_id: command.to_owned(),
            command_path: command.split('.').map(str::to_owned).collect(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            data,
            warnings: Vec::new(),
            errors: Vec::new(),
        }
    }

    /// A refusal of the command.
    pub fn refused(command: &str, refusal: &Refusal) -> Self {
        let mut envelope = Self::ok(command, Map::new());
        envelope.ok = false;
        envelope.errors.push(refusal.into());
        envelope
    }

    /// A fault of the command: something broke; the message is the outside one.
    pub fn fault(command: &str, code: &str, message: impl Into<String>, details: Option<Value>) -> Self {
        let mut envelope = Self::ok(command, Map::new());
        envelope.ok = false;
        envelope.errors.push(ErrorEntry { code: code.to_owned(), message: message.into(), details });
        envelope
    }

    /// The same answer with one more piece of data.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.data.insert(name.to_owned(), value.into());
        self
    }

    /// The same answer with these warnings.
    #[must_use]
    pub fn warn(mut self, warnings: Vec<String>) -> Self {
        self.warnings.extend(warnings);
        self
    }

    /// The envelope as a value.
    pub fn to_value(&self) -> Value {
        serde_json::to_value(self).unwrap_or(Value::Null)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::refusal::Code;

    #[test]
    fn the_shape_is_the_contract() {
        let value = Envelope::ok("policy.check", Map::new()).to_value();
        let keys: Vec<&str> = value.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(
            keys,
            [
                "schema_version",
                "ok",
                "command",
                "command_id",
                "command_path",
                "version",
                "data",
                "warnings",
                "errors"
            ]
        );
        assert_eq!(value["command_path"], serde_json::json!(["policy", "check"]));
    }

    #[test]
    fn a_refusal_always_has_reason_and_next_actions() {
        for code in Code::ALL {
            let value = Envelope::refused("x", &Refusal::new(*code, "m")).to_value();
            assert_eq!(value["ok"], false);
            assert!(value["errors"][0]["details"]["reason_code"].is_string());
            assert!(value["errors"][0]["details"]["next_actions"].is_array());
        }
    }
}
