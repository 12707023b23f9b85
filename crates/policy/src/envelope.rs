//! The envelope every answer of ours comes in. Fields may be added, never renamed or removed.

use serde::ser::SerializeMap as _;
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::refusal::Refusal;

/// The version of the envelope's shape.
pub const SCHEMA_VERSION: u32 = 1;

/// The code of a fault that is neither the store's nor an upstream's. It is no refusal, so the registry does not list it.
pub const UNEXPECTED: &str = "E_UNEXPECTED";

/// One entry of `errors`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ErrorEntry {
    pub code: String,
    pub message: String,
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
#[derive(Clone, Debug, PartialEq)]
pub struct Envelope {
    /// Always [`SCHEMA_VERSION`].
    pub schema_version: u32,
    pub ok: bool,
    pub command: String,
    /// The same, for programs that key on it.
    pub command_id: String,
    pub command_path: Vec<String>,
    pub version: String,
    pub data: Map<String, Value>,
    /// Members of `data` that are written as the JSON text they came in, so that numbers keep their digits.
    verbatim: Vec<(String, String)>,
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
            verbatim: Vec::new(),
            warnings: Vec::new(),
            errors: Vec::new(),
        }
    }

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

    /// The same answer with one more piece of data, as the JSON text that somebody else wrote.
    #[must_use]
    pub fn with_text(mut self, name: &str, text: impl Into<String>) -> Self {
        self.verbatim.push((name.to_owned(), text.into()));
        self
    }

    /// The same answer with these warnings.
    #[must_use]
    pub fn warn(mut self, warnings: Vec<String>) -> Self {
        self.warnings.extend(warnings);
        self
    }

    /// Whether `data` has a member of this name.
    pub fn has_data(&self, name: &str) -> bool {
        self.data.contains_key(name) || self.verbatim.iter().any(|(known, _)| known == name)
    }

    /// The JSON text of one member of `data`, every digit as it came.
    pub fn member_text(&self, name: &str) -> Option<String> {
        let verbatim = self.verbatim.iter().find(|(known, _)| known == name).map(|(_, text)| text.clone());
        verbatim.or_else(|| self.data.get(name).map(Value::to_string))
    }

    /// The envelope as a value. Numbers that do not fit a JSON value are rounded: to pass the envelope on, use `to_text`.
    pub fn to_value(&self) -> Value {
        serde_json::to_value(self).unwrap_or(Value::Null)
    }

    /// What was asked for, alone, as JSON text, every digit as it came.
    pub fn data_text(&self) -> String {
        serde_json::to_string(&EnvelopeData(self)).unwrap_or_else(|_| "null".to_owned())
    }

    /// The envelope as JSON text, every digit as it came.
    pub fn to_text(&self) -> String {
        serde_json::to_string(self).unwrap_or_else(|_| "null".to_owned())
    }
}

/// The members in the order in which they are written.
#[derive(Serialize)]
struct EnvelopeFields<'e> {
    schema_version: u32,
    ok: bool,
    command: &'e str,
    command_id: &'e str,
    command_path: &'e [String],
    version: &'e str,
    data: EnvelopeData<'e>,
    warnings: &'e [String],
    errors: &'e [ErrorEntry],
}

struct EnvelopeData<'e>(&'e Envelope);

impl Serialize for EnvelopeData<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut members = to.serialize_map(None)?;
        for (name, value) in &self.0.data {
            members.serialize_entry(name, value)?;
        }
        for (name, text) in &self.0.verbatim {
            match serde_json::from_str::<&RawValue>(text) {
                Ok(raw) => members.serialize_entry(name, raw)?,
                Err(_) => members.serialize_entry(name, text)?,
            }
        }
        members.end()
    }
}

impl Serialize for Envelope {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        EnvelopeFields {
            schema_version: self.schema_version,
            ok: self.ok,
            command: &self.command,
            command_id: &self.command_id,
            command_path: &self.command_path,
            version: &self.version,
            data: EnvelopeData(self),
            warnings: &self.warnings,
            errors: &self.errors,
        }
        .serialize(to)
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
    fn a_text_is_told_as_it_came() {
        let text = r#"{"big":12345678901234567890123,"small":0.10000000000000000555, "e":1E+2}"#;
        let envelope = Envelope::ok("get_plan", Map::new())
            .with("plan", "x")
            .with_text("result", text)
            .with_text("bad", "{");
        let told = envelope.to_text();
        assert!(told.contains(&format!(r#""data":{{"plan":"x","result":{text},"bad":"{{"}}"#)), "{told}");
        assert_eq!(envelope.to_value()["data"]["result"]["e"], 100.0);
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
