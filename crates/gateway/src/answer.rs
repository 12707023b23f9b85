//! Answers: envelopes as tool results, upstream results unchanged but for our `_meta`, refusals as either.

use countersign_core::envelope::Envelope;
use countersign_core::refusal::{Code, Refusal};
use countersign_wire::frame::{Reply, RpcError};
use countersign_wire::raw::{self, Edit, Raw};
use serde_json::{Map, Value, json};

/// What a tool call is answered with.
pub enum Answer {
    /// Our own words.
    Envelope(Envelope),
    /// Our own words, with what only a card is to see.
    Carded(Envelope, Map<String, Value>),
    /// The upstream's result, bytes as they came, with `_meta["countersign"]`.
    Upstream(Raw),
    /// A JSON-RPC error.
    Rpc(RpcError),
}

impl Answer {
    /// A refusal: a tool result with `isError`, but for human-only tools, whose refusal the contract makes a JSON-RPC error.
    pub fn refused(command: &str, refusal: &Refusal) -> Self {
        if refusal.code == Code::RoleForbidden {
            let data = json!({"code": refusal.code.as_str(), "details": refusal.details_value()});
            return Self::Rpc(RpcError::with_data(-32602, &refusal.message, &data));
        }
        Self::Envelope(Envelope::refused(command, refusal))
    }

    /// What is refused or broken, as `{code, message, details}`; none where an upstream's result or our own yes is told.
    pub fn error(&self) -> Option<Value> {
        match self {
            Self::Envelope(envelope) | Self::Carded(envelope, _) => {
                envelope.errors.first().map(|first| json!(first))
            }
            Self::Upstream(_) => None,
            Self::Rpc(error) => Some(json!({"code": error.code(), "message": error.message()})),
        }
    }

    /// Whether it is our refusal with this code.
    pub fn is_refused(&self, code: Code) -> bool {
        match self {
            Self::Envelope(envelope) | Self::Carded(envelope, _) => {
                envelope.errors.first().is_some_and(|first| first.code == code.as_str())
            }
            Self::Upstream(_) | Self::Rpc(_) => false,
        }
    }

    /// As a reply on the wire.
    pub fn into_reply(self) -> Reply {
        crate::trace::answered(&self);
        match self {
            Self::Envelope(envelope) => Ok(tool_result(&envelope)),
            Self::Carded(envelope, mut meta) => {
                meta.insert(OURS.to_owned(), mark());
                let result = tool_result(&envelope);
                Ok(raw::set(&result, "_meta", &raw::to_raw(&meta)).unwrap_or(result))
            }
            Self::Upstream(result) => Ok(result),
            Self::Rpc(error) => Err(error),
        }
    }
}

/// Our member of `_meta`. Upstreams can't write it: `own_marks` takes theirs out.
const OURS: &str = "countersign";

/// What marks an envelope as ours: cards believe no other.
fn mark() -> Value {
    json!({"envelope": true})
}

/// The envelope as `structuredContent` and as one text block, `isError = !ok`, marked as ours.
pub fn tool_result(envelope: &Envelope) -> Raw {
    let text = envelope.to_text();
    let value = raw::from_text(text.as_str()).unwrap_or_else(raw::empty_object);
    let told = raw::to_raw(&json!({"content": [{"type": "text", "text": text}]}));
    let meta = raw::to_raw(&json!({OURS: mark()}));
    let edits = [
        Edit::Set("structuredContent", value.get()),
        Edit::Set("isError", if envelope.ok { "false" } else { "true" }),
        Edit::Set("_meta", meta.get()),
    ];
    raw::edit(&told, &edits).unwrap_or(told)
}

/// The envelope of one of our own upstreams, marked as ours.
pub fn marked(mut result: Value) -> Value {
    if result.pointer("/structuredContent/schema_version") == Some(&json!(1))
        && let Some(members) = result.as_object_mut()
    {
        members.insert("_meta".to_owned(), json!({OURS: mark()}));
    }
    result
}

/// The upstream's result with our facts in its `_meta`; every other byte stays as it was. A mark in it is ours: what others
/// wrote there was taken out when it came.
pub fn with_meta<T: serde::Serialize>(result: Raw, facts: &T) -> Raw {
    let is_marked =
        raw::get_in(&result, &["_meta", OURS, "envelope"]).is_some_and(|mark| mark.get() == "true");
    let facts = raw::to_raw(facts);
    let marked = is_marked.then(|| raw::set(&facts, "envelope", &raw::to_raw(&true))).flatten();
    let facts = marked.unwrap_or(facts);
    raw::set_in(&result, "_meta", OURS, &facts).unwrap_or(result)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_upstream_result_keeps_every_byte() {
        let text = r#"{"content":[],"x":12345678901234567890123,"_meta":{"a" : 1}}"#;
        let result = raw::from_text(text).unwrap();
        let facts = json!({"ledger_id": "L"});
        let got = with_meta(result, &facts);
        assert!(got.get().contains(r#""x":12345678901234567890123"#), "{got}");
        assert!(got.get().contains(r#""a" : 1"#), "{got}");
        assert!(got.get().contains(r#""countersign":{"ledger_id":"L"}"#), "{got}");
    }

    #[test]
    fn what_somebody_else_wrote_keeps_its_digits_in_our_envelope() {
        let text = r#"[{"step":1,"result":{"big":12345678901234567890123,"e":1E+2}}]"#;
        let result = tool_result(&Envelope::ok("run_plan", Map::new()).with_text("steps", text));
        assert!(result.get().contains(&format!(r#""data":{{"steps":{text}}}"#)), "{result}");
        let value: Value = serde_json::from_str(result.get()).unwrap();
        assert!(value["content"][0]["text"].as_str().unwrap().contains(text), "{value}");
    }

    #[test]
    fn an_envelope_is_text_and_structure() {
        let result = tool_result(&Envelope::ok("set_mode", Map::new()));
        let value: Value = serde_json::from_str(result.get()).unwrap();
        assert_eq!(value["isError"], false);
        assert_eq!(value["_meta"], json!({"countersign": {"envelope": true}}));
        let text: Value = serde_json::from_str(value["content"][0]["text"].as_str().unwrap()).unwrap();
        assert_eq!(text, value["structuredContent"]);
    }
}
