//! Parses one frame: checks the envelope and keeps its parts as text. Finds the id of a malformed message if it can.

use std::fmt;

use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::{
    Frame, FrameLimits, JsonRpcId, MalformedFrame, Message, Notification, Request, Response, RpcError, code,
};
use crate::raw;

#[derive(Default)]
struct Envelope<'a> {
    version: Option<&'a RawValue>,
    id: Option<&'a RawValue>,
    method: Option<&'a RawValue>,
    params: Option<&'a RawValue>,
    result: Option<&'a RawValue>,
    error: Option<&'a RawValue>,
    twice: bool,
    lookalike: bool,
}

enum EnvelopeField {
    Version,
    Id,
    Method,
    Params,
    Result,
    Error,
    /// Folds onto another name without being it.
    Lookalike,
    Other,
}

const MEMBERS: [&str; 6] = ["jsonrpc", "id", "method", "params", "result", "error"];

/// Whether a parser that ignores case (as Go's and .NET's do, U+017F and U+212A included) or stops at a NUL would take the name for a
/// member of the envelope.
fn is_lookalike(name: &str) -> bool {
    let ascii = |c: char| match c {
        '\u{17f}' => 's',
        '\u{212a}' => 'k',
        '\u{130}' | '\u{131}' => 'i',
        _ => c.to_ascii_lowercase(),
    };
    let folded = || name.chars().take_while(|c| *c != '\0').map(ascii);
    MEMBERS.iter().any(|member| member.chars().eq(folded()))
}

impl<'de> serde::Deserialize<'de> for EnvelopeField {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct FieldNameVisitor;
        impl Visitor<'_> for FieldNameVisitor {
            type Value = EnvelopeField;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a member name")
            }
            fn visit_str<E>(self, name: &str) -> Result<EnvelopeField, E> {
                Ok(match name {
                    "jsonrpc" => EnvelopeField::Version,
                    "id" => EnvelopeField::Id,
                    "method" => EnvelopeField::Method,
                    "params" => EnvelopeField::Params,
                    "result" => EnvelopeField::Result,
                    "error" => EnvelopeField::Error,
                    other if is_lookalike(other) => EnvelopeField::Lookalike,
                    _ => EnvelopeField::Other,
                })
            }
        }
        deserializer.deserialize_identifier(FieldNameVisitor)
    }
}

impl<'de> serde::Deserialize<'de> for Envelope<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct EnvelopeVisitor;
        impl<'de> Visitor<'de> for EnvelopeVisitor {
            type Value = Envelope<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON-RPC message")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Envelope<'de>, A::Error> {
                let mut found = Envelope::default();
                while let Some(field) = map.next_key::<EnvelopeField>()? {
                    let slot = match field {
                        EnvelopeField::Version => &mut found.version,
                        EnvelopeField::Id => &mut found.id,
                        EnvelopeField::Method => &mut found.method,
                        EnvelopeField::Params => &mut found.params,
                        EnvelopeField::Result => &mut found.result,
                        EnvelopeField::Error => &mut found.error,
                        EnvelopeField::Lookalike | EnvelopeField::Other => {
                            found.lookalike |= matches!(field, EnvelopeField::Lookalike);
                            map.next_value::<IgnoredAny>()?;
                            continue;
                        }
                    };
                    found.twice |= slot.replace(map.next_value()?).is_some();
                }
                Ok(found)
            }
        }
        deserializer.deserialize_map(EnvelopeVisitor)
    }
}

/// Parses one frame. A malformed one gives the error to answer with; the connection goes on.
pub fn parse(bytes: &[u8], limits: FrameLimits) -> Result<Frame, MalformedFrame> {
    if bytes.len() > limits.frame {
        return Err(MalformedFrame::too_long(bytes, &[], limits.frame));
    }
    let text = std::str::from_utf8(bytes)
        .map_err(|_| MalformedFrame {
            id: sniff_id(bytes, &[]),
            ..MalformedFrame::new(code::PARSE, "message is not UTF-8")
        })?
        .trim_matches([' ', '\t', '\r', '\n']);
    // Line ends between tokens would break newline framing when passed on. One inside a string stays, and makes the text invalid.
    let flat = raw::without_line_ends(text);
    let text = &*flat;
    if !raw::within_nesting(text, limits.nesting) {
        let error = RpcError::new(
            code::INVALID_REQUEST,
            &format!("message is nested deeper than {}", limits.nesting),
        );
        return Err(MalformedFrame { id: sniff_id(bytes, &[]), error });
    }
    if text.starts_with('[') {
        let parts: Vec<&RawValue> = serde_json::from_str(text).map_err(|_| not_json())?;
        if parts.is_empty() {
            return Err(MalformedFrame::new(code::INVALID_REQUEST, "a batch needs at least one message"));
        }
        return Ok(Frame::Batch(parts.into_iter().map(|part| parse_one(part.get())).collect()));
    }
    parse_one(text).map(Frame::One)
}

fn not_json() -> MalformedFrame {
    MalformedFrame::new(code::PARSE, "message is not valid JSON")
}

fn parse_one(text: &str) -> Result<Message, MalformedFrame> {
    let found: Envelope<'_> = match serde_json::from_str(text) {
        Ok(found) => found,
        Err(_) if !text.starts_with('{') && serde_json::from_str::<IgnoredAny>(text).is_ok() => {
            return Err(MalformedFrame::new(code::INVALID_REQUEST, "message is not an object"));
        }
        // The sender still waits for a reply.
        Err(_) => return Err(MalformedFrame { id: sniff_id(text.as_bytes(), &[]), ..not_json() }),
    };
    classify(found)
}

fn classify(found: Envelope<'_>) -> Result<Message, MalformedFrame> {
    let id = found.id.and_then(JsonRpcId::from_raw);
    let wrong = |message: &str| MalformedFrame {
        id: id.clone(),
        ..MalformedFrame::new(code::INVALID_REQUEST, message)
    };
    if found.twice {
        return Err(wrong("a member of the message stands twice"));
    }
    if found.lookalike {
        return Err(wrong("a member of the message differs from a known one only by case"));
    }
    if found.version.map(RawValue::get) != Some("\"2.0\"") {
        return Err(wrong("`jsonrpc` must be \"2.0\""));
    }
    if let Some(method) = found.method {
        let Some(method) = raw::text_of_string(method.get()) else {
            return Err(wrong("`method` must be a string"));
        };
        let method: Box<str> = method.into();
        let params = match found.params {
            Some(params) if matches!(params.get().as_bytes().first(), Some(b'{' | b'[')) => {
                Some(params.to_owned())
            }
            // Some clients write `"params": null` for none.
            Some(params) if params.get() == "null" => None,
            Some(_) => return Err(wrong("`params` must be an object or an array")),
            None => None,
        };
        return match (found.id, id.clone()) {
            (None, _) => Ok(Message::Notification(Notification { method, params })),
            (Some(_), Some(id)) => Ok(Message::Request(Request { id, method, params })),
            (Some(_), None) => Err(wrong("`id` must be a string or a number")),
        };
    }
    match (found.result, found.error) {
        (Some(result), None) if id.is_some() => {
            Ok(Message::Response(Response { id, reply: Ok(result.to_owned()) }))
        }
        (None, Some(error)) if raw::is_object(error) => {
            Ok(Message::Response(Response { id, reply: Err(RpcError(error.to_owned())) }))
        }
        _ => Err(wrong("message is neither a request, a notification nor a response")),
    }
}

/// Searches the top-level `id` of a message that cannot be parsed, so that its sender gets an error reply.
pub(super) fn sniff_id(head: &[u8], tail: &[u8]) -> Option<JsonRpcId> {
    let take = |part: &[u8], at: usize| -> Option<JsonRpcId> {
        let rest = part.get(at..)?;
        let end = match rest.first()? {
            b'"' => 2 + rest.get(1..)?.iter().position(|byte| *byte == b'"')?,
            _ => rest.iter().position(|byte| !matches!(byte, b'-' | b'0'..=b'9'))?,
        };
        let text = std::str::from_utf8(rest.get(..end)?).ok()?;
        JsonRpcId::from_raw(serde_json::from_str(text).ok()?)
    };
    let after = |part: &[u8], at: usize| -> Option<JsonRpcId> {
        let mut at = at + 4;
        while matches!(part.get(at), Some(b' ' | b':')) {
            at += 1;
        }
        take(part, at)
    };
    // At the start the id must come before anything nested; at the end it must close the message.
    let opening = head.get(..head.len().min(1024)).unwrap_or_default();
    let plain = opening
        .iter()
        .skip(1)
        .position(|byte| matches!(byte, b'{' | b'['))
        .map_or(opening.len(), |at| at + 1);
    if let Some(at) = memchr::memmem::find(opening.get(..plain)?, b"\"id\"") {
        return after(opening, at);
    }
    let at = memchr::memmem::rfind(tail, b"\"id\"")?;
    let closing = tail.get(at..)?.iter().filter(|byte| matches!(byte, b'}' | b']' | b'{' | b'[')).count();
    if closing == 1 { after(tail, at) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(text: &str) -> Message {
        match parse(text.as_bytes(), FrameLimits::default()).unwrap() {
            Frame::One(message) => message,
            Frame::Batch(_) => panic!("a batch"),
        }
    }

    fn broken(bytes: &[u8]) -> (Option<String>, i64) {
        let malformed = parse(bytes, FrameLimits::default()).unwrap_err();
        (malformed.id.map(|id| id.to_string()), malformed.error.code())
    }

    #[test]
    fn bytes_of_params_and_results_stay() {
        let Message::Request(request) = one(
            r#" {"params": {"b" :1, "a":12345678901234567890123},"id":"x","method":"m","jsonrpc":"2.0","z":0} "#,
        ) else {
            panic!("a request")
        };
        assert_eq!(request.params.unwrap().get(), r#"{"b" :1, "a":12345678901234567890123}"#);
        assert_eq!(request.id.as_json(), "\"x\"");
        let Message::Response(response) = one(r#"{"jsonrpc":"2.0","id":7,"result":null}"#) else {
            panic!("a response")
        };
        assert_eq!(response.reply.unwrap().get(), "null");
    }

    #[test]
    fn malformed_frames_get_the_right_error() {
        assert_eq!(broken(b"not json"), (None, code::PARSE));
        assert_eq!(broken(br#"{"jsonrpc":"2.0","id":3,"result":{"#), (Some("3".into()), code::PARSE));
        assert_eq!(broken(b"17"), (None, code::INVALID_REQUEST));
        assert_eq!(
            broken(b"{\"jsonrpc\":\"2.0\",\"id\":3,\"method\":\"\xff\"}"),
            (Some("3".into()), code::PARSE)
        );
        assert_eq!(broken(br#"{"jsonrpc":"2.0","id":null,"method":"m"}"#), (None, code::INVALID_REQUEST));
        assert_eq!(
            broken(br#"{"jsonrpc":"1.0","id":4,"method":"m"}"#),
            (Some("4".into()), code::INVALID_REQUEST)
        );
        assert_eq!(
            broken(br#"{"jsonrpc":"2.0","id":4,"method":"m","params":3}"#),
            (Some("4".into()), code::INVALID_REQUEST)
        );
        assert_eq!(broken(br#"{"jsonrpc":"2.0","id":4,"id":5,"method":"m"}"#).1, code::INVALID_REQUEST);
        assert_eq!(broken(b"[]"), (None, code::INVALID_REQUEST));
        let deep = format!(
            r#"{{"jsonrpc":"2.0","id":9,"method":"m","params":{}1{}}}"#,
            "[".repeat(70),
            "]".repeat(70)
        );
        assert_eq!(broken(deep.as_bytes()), (Some("9".into()), code::INVALID_REQUEST));
    }

    #[test]
    fn attack_02_members_that_fold_onto_the_envelopes_are_refused() {
        for name in [
            "Params",
            "PARAMS",
            "param\u{17f}",
            "params\\u0000",
            "Method",
            "ID",
            "\u{131}d",
            "Result",
            "JSONRPC",
        ] {
            let text = format!(r#"{{"jsonrpc":"2.0","id":4,"method":"m","params":{{}},"{name}":{{}}}}"#);
            assert_eq!(broken(text.as_bytes()), (Some("4".into()), code::INVALID_REQUEST), "{name}");
        }
        one(r#"{"jsonrpc":"2.0","id":4,"method":"m","parameters":{},"x-id":1}"#);
    }

    #[test]
    fn attack_15_a_raw_control_character_in_a_string_is_no_json() {
        for raw in ["\n", "\r", "\r\n", "\t", "\u{0}", "\u{1f}"] {
            for text in [
                format!("{{\"jsonrpc\":\"2.0\",\"id\":4,\"method\":\"m\",\"params\":{{\"a\":\"b{raw}c\"}}}}"),
                format!("{{\"jsonrpc\":\"2.0\",\"id\":4,\"method\":\"m\",\"params\":{{\"a{raw}\":1}}}}"),
                format!("{{\"jsonrpc\":\"2.0\",\"id\":4,\"method\":\"m{raw}\"}}"),
                format!("{{\"jsonrpc\":\"2.0\",\"id\":4,\"result\":[\"\\\\{raw}\"]}}"),
            ] {
                assert_eq!(broken(text.as_bytes()), (Some("4".into()), code::PARSE), "{text:?}");
            }
        }
    }

    #[test]
    fn attack_15_line_ends_between_tokens_are_whitespace() {
        let pretty = "{\n  \"jsonrpc\": \"2.0\",\r\n\t\"id\": 4,\n \"method\": \"m\",\n\"params\": {\r\"a\":\n\"b\\n \\\" c\"}\n}";
        let Message::Request(request) = one(pretty) else { panic!("a request") };
        assert_eq!(request.params.unwrap().get(), r#"{ "a": "b\n \" c"}"#);
    }

    #[test]
    fn long_frames_still_tell_their_id() {
        let check = |head: &str, tail: &str, id: Option<&str>| {
            let found = MalformedFrame::too_long(head.as_bytes(), tail.as_bytes(), 16).id;
            assert_eq!(found.as_ref().map(JsonRpcId::as_json), id);
        };
        check(r#"{"jsonrpc":"2.0","id":12,"result":{"id":3"#, "", Some("12"));
        check(r#"{"result":{"id":3,"#, r#"x"},"jsonrpc":"2.0","id":"a"}"#, Some("\"a\""));
        check(r#"{"result":{"id":3,"#, r#""id":3}}"#, None);
    }
}
