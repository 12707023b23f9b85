//! Replies to tool calls: envelopes of our own, and upstream results that are unchanged but for our `_meta`.

mod text;

use countersign_mcp::jsonrpc::{Reply, RpcError};
use countersign_mcp::raw::{self, MemberEdit, RawJson};
use countersign_policy::envelope::Envelope;
use countersign_policy::ids::RequestId;
use countersign_policy::refusal::{Code, Refusal};
use serde_json::{Map, Value, json};

pub enum Answer {
    Envelope(Envelope),
    /// An envelope, with `_meta` for its card.
    Carded(Envelope, Map<String, Value>),
    /// The upstream's result, bytes as they came, with `_meta["countersign"]`.
    Upstream(RawJson),
    Rpc(RpcError),
}

impl Answer {
    /// A refusal: a tool result with `isError`, or for human-only tools a JSON-RPC error, as the contract has it.
    pub fn refused(command: &str, refusal: &Refusal) -> Self {
        if refusal.code == Code::RoleForbidden {
            let data = json!({"code": refusal.code.as_str(), "details": refusal.details_value()});
            return Self::Rpc(RpcError::with_data(-32602, &refusal.message, &data));
        }
        Self::Envelope(Envelope::refused(command, refusal))
    }

    /// The first error as `{code, message, details}`.
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
    pub(crate) fn is_refused(&self, code: Code) -> bool {
        match self {
            Self::Envelope(envelope) | Self::Carded(envelope, _) => {
                envelope.errors.first().is_some_and(|first| first.code == code.as_str())
            }
            Self::Upstream(_) | Self::Rpc(_) => false,
        }
    }

    /// The reply to the request with this id.
    pub(crate) fn into_reply(self, request_id: Option<&RequestId>) -> Reply {
        self.into_reply_with(TextForm::ForModel, request_id)
    }

    /// The reply to the request with this id, with this text block in an envelope of ours.
    pub(crate) fn into_reply_with(self, form: TextForm, request_id: Option<&RequestId>) -> Reply {
        crate::trace::answered(&self);
        let (envelope, mut meta) = match self {
            Self::Envelope(envelope) => (envelope, Map::new()),
            Self::Carded(envelope, meta) => (envelope, meta),
            Self::Upstream(result) => return Ok(result),
            Self::Rpc(error) => return Err(error),
        };
        let mut ours = mark();
        if let (Some(id), Some(members)) = (request_id, ours.as_object_mut()) {
            members.insert("request_id".to_owned(), id.as_str().into());
        }
        meta.insert(OURS.to_owned(), ours);
        let result = tool_result(&envelope, form);
        Ok(raw::set(&result, "_meta", &raw::to_raw(&meta)).unwrap_or(result))
    }
}

/// Adds the request id to the `data` of an error of ours, which has no `_meta`. An upstream's error stays as it is.
pub(crate) fn with_request_id(error: RpcError, request_id: Option<&RequestId>) -> RpcError {
    let is_ours = raw::get_str_in(error.as_raw(), &["data", "code"])
        .is_some_and(|code| code.starts_with("E_"))
        && raw::get_in(error.as_raw(), &["data", "details"]).is_some();
    // A gateway behind this one has put its own id there, and its rows are found by that.
    let has_id = raw::get_in(error.as_raw(), &["data", "request_id"]).is_some();
    match request_id.filter(|_| is_ours && !has_id) {
        Some(id) => raw::set_in(error.as_raw(), "data", "request_id", &raw::to_raw(id))
            .map_or(error, RpcError::from_raw),
        None => error,
    }
}

/// Our member of `_meta`. Upstreams can't write it: `own_marks` takes theirs out.
const OURS: &str = "countersign";

/// Marks an envelope as ours. Cards trust no other.
fn mark() -> Value {
    json!({"envelope": true})
}

/// The text block of an envelope.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextForm {
    /// Sentences for the model, or the data alone.
    ForModel,
    /// The envelope once more, as the original of `pack`'s tools has it.
    Envelope,
}

/// The envelope as `structuredContent`, with one text block, `isError = !ok`, marked as ours.
pub(crate) fn tool_result(envelope: &Envelope, form: TextForm) -> RawJson {
    let whole = envelope.to_text();
    let value = raw::from_text(whole.as_str()).unwrap_or_else(raw::empty_object);
    let text = match form {
        TextForm::ForModel => text::for_model(envelope),
        TextForm::Envelope => whole,
    };
    let told = raw::to_raw(&json!({"content": [{"type": "text", "text": text}]}));
    let meta = raw::to_raw(&json!({OURS: mark()}));
    let edits = [
        MemberEdit::Set("structuredContent", value.get()),
        MemberEdit::Set("isError", if envelope.ok { "false" } else { "true" }),
        MemberEdit::Set("_meta", meta.get()),
    ];
    raw::edit(&told, &edits).unwrap_or(told)
}

/// The text block of an answer, for the model.
pub fn model_text(envelope: &Envelope) -> String {
    text::for_model(envelope)
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

/// Adds our metadata to the `_meta` of an upstream's result; every other byte stays as it was. A mark in it is ours: `own_marks`
/// has removed those of others.
pub(crate) fn with_meta<T: serde::Serialize>(result: RawJson, facts: &T) -> RawJson {
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
    fn only_errors_of_ours_carry_the_request_id() {
        let id = RequestId::new("req_1");
        let data = |data: Value| with_request_id(RpcError::with_data(-32602, "no", &data), Some(&id));
        let ours = data(json!({"code": "E_ROLE_FORBIDDEN", "details": {}}));
        assert_eq!(raw::get_str_in(ours.as_raw(), &["data", "request_id"]).as_deref(), Some("req_1"));
        for of_upstream in [json!({"code": 7, "details": {}}), json!({"code": "E_X"}), json!([1])] {
            let error = RpcError::with_data(-32602, "no", &of_upstream);
            assert_eq!(data(of_upstream).as_raw().get(), error.as_raw().get());
        }
        let behind = json!({"code": "E_X", "details": {}, "request_id": "req_0"});
        assert_eq!(raw::get_str_in(data(behind).as_raw(), &["data", "request_id"]).as_deref(), Some("req_0"));
    }

    #[test]
    fn what_somebody_else_wrote_keeps_its_digits_in_our_envelope() {
        let text = r#"[{"step":1,"result":{"big":12345678901234567890123,"e":1E+2}}]"#;
        let envelope = Envelope::ok("run_plan", Map::new()).with_text("steps", text);
        let result = tool_result(&envelope, TextForm::ForModel);
        assert!(result.get().contains(&format!(r#""data":{{"steps":{text}}}"#)), "{result}");
        let value: Value = serde_json::from_str(result.get()).unwrap();
        assert!(value["content"][0]["text"].as_str().unwrap().contains(text), "{value}");
    }

    #[test]
    fn an_envelope_is_text_and_structure() {
        let result = tool_result(&Envelope::ok("set_mode", Map::new()), TextForm::Envelope);
        let value: Value = serde_json::from_str(result.get()).unwrap();
        assert_eq!(value["isError"], false);
        assert_eq!(value["_meta"], json!({"countersign": {"envelope": true}}));
        let text: Value = serde_json::from_str(value["content"][0]["text"].as_str().unwrap()).unwrap();
        assert_eq!(text, value["structuredContent"]);
    }
}
