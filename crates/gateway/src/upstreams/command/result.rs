//! What a command's end becomes for the caller: its output as text, parsed where that is configured; a bad exit as an error result with
//! the last of stderr; no end at all as a fault that says whether it may have acted.

use std::time::Duration;

use countersign_core::config::Parse;
use countersign_core::words::plural;
use countersign_wire::fault::Sent;
use countersign_wire::raw::{self, Raw, within_nesting};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::runs::{Captured, Done, End};
use crate::upstreams::UpstreamFault;

/// How deep parsed output may nest: a result holds it two levels down.
const DEEPEST: usize = 60;
/// How much of stderr stands in a fault.
const LAST_WORDS: usize = 400;

/// How a result is to be read.
pub(super) struct Reading<'a> {
    pub(super) name: &'a str,
    pub(super) ok_exit: &'a [i32],
    pub(super) parse: Parse,
    pub(super) timeout: Option<Duration>,
}

impl Reading<'_> {
    /// The result or the fault of a command that was waited for.
    pub(super) fn told(&self, done: &Done) -> Result<Raw, UpstreamFault> {
        let name = self.name;
        match &done.end {
            End::Exited(code) if self.ok_exit.contains(code) => Ok(self.good(done, *code)),
            End::Exited(code) => Ok(bad(done, format!("`{name}` failed with exit code {code}"), Some(*code))),
            End::Signalled(signal) => Ok(bad(done, format!("`{name}` was ended by signal {signal}"), None)),
            End::TimedOut => {
                let limit = self.timeout.unwrap_or_default();
                let why =
                    format!("`{name}` took longer than {limit:?} and was killed{}", last_words(&done.err));
                Err(UpstreamFault::Timeout { why, sent: Sent::Unknown })
            }
            End::Stopped => {
                let why = format!("`{name}` was stopped{}", last_words(&done.err));
                Err(UpstreamFault::Unavailable { why, sent: Sent::Unknown })
            }
            End::NotStarted(why) => Err(UpstreamFault::Unavailable { why: why.clone(), sent: Sent::No }),
            End::NoTurn => {
                let why = format!("`{name}` waited for its turn until its time was up");
                Err(UpstreamFault::Timeout { why, sent: Sent::No })
            }
        }
    }

    fn good(&self, done: &Done, code: i32) -> Raw {
        let (out, err) = (text(&done.out, done), text(&done.err, done));
        let (structure, note) = match self.parse {
            Parse::Text => (None, None),
            Parse::Lines => (Some(raw::to_raw(&json!({"lines": out.lines().collect::<Vec<_>>()}))), None),
            Parse::Json if done.out.left_out() > 0 => {
                (None, Some("the output is longer than `output` allows, and was not read as JSON".to_owned()))
            }
            Parse::Json => match as_structure(&out) {
                Ok(structure) => (Some(structure), None),
                Err(why) => (None, Some(format!("the output is not what was expected: {why}"))),
            },
        };
        let mut blocks = vec![out, err, note.unwrap_or_default()];
        blocks.retain(|block| !block.is_empty());
        if blocks.is_empty() {
            blocks.push(format!("`{}` ended with exit code {code} and wrote nothing", self.name));
        }
        whole(&blocks, structure.as_deref(), false, Some(code))
    }
}

fn bad(done: &Done, what: String, code: Option<i32>) -> Raw {
    let mut blocks = vec![what, text(&done.err, done), text(&done.out, done)];
    blocks.retain(|block| !block.is_empty());
    whole(&blocks, None, true, code)
}

fn whole(blocks: &[String], structure: Option<&RawValue>, is_error: bool, code: Option<i32>) -> Raw {
    let content: Vec<Value> = blocks.iter().map(|text| json!({"type": "text", "text": text})).collect();
    let mut result = json!({"content": content, "isError": is_error});
    if let (Some(members), Some(code)) = (result.as_object_mut(), code) {
        members.insert("_meta".into(), json!({"countersign/command": {"exit_code": code}}));
    }
    let result = raw::to_raw(&result);
    // The structure goes in as the bytes the command wrote: numbers keep their text.
    match structure {
        Some(structure) => raw::set(&result, "structuredContent", structure).unwrap_or(result),
        None => result,
    }
}

fn text(captured: &Captured, done: &Done) -> String {
    let place = match &done.log {
        Some(log) => format!("; the whole output is in runs/{log}"),
        None => String::new(),
    };
    captured.text(&format!("\n[{} left out{place}]\n", plural(captured.left_out(), "byte")))
}

/// Parsed output: an object as it is, anything else as the member `value` of one.
fn as_structure(text: &str) -> Result<Raw, String> {
    let text = text.trim();
    if !within_nesting(text, DEEPEST) {
        return Err(format!("it nests deeper than {DEEPEST} levels"));
    }
    let parsed: &RawValue = serde_json::from_str(text).map_err(|error| format!("not JSON: {error}"))?;
    // A message is one line. Between the parts of JSON an end of line is a space; inside a string there was none.
    let one_line = parsed.get().replace(['\n', '\r'], " ");
    let parsed = raw::from_text(one_line).ok_or_else(|| "not JSON".to_owned())?;
    if raw::is_object(&parsed) {
        return Ok(parsed);
    }
    raw::set(&raw::empty_object(), "value", &parsed).ok_or_else(|| "not JSON".to_owned())
}

/// The end of stderr, for a sentence.
fn last_words(err: &Captured) -> String {
    let text = err.text(" … ");
    let text = text.trim();
    if text.is_empty() {
        return String::new();
    }
    let skipped = text.chars().count().saturating_sub(LAST_WORDS);
    let last: String = text.chars().skip(skipped).collect();
    format!("; its last words: {}", crate::escape::line(&last))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_of_many_lines_is_one_line_of_protocol() {
        let check = |text: &str, expect: &str| assert_eq!(as_structure(text).unwrap().get(), expect);
        check("{\n  \"a\": 1.50,\r\n  \"b\": \"x\\ny\"\n}\n", "{   \"a\": 1.50,    \"b\": \"x\\ny\" }");
        check("\n[1,\n2]\n", "{\"value\":[1, 2]}");
        // An end of line inside a string is no JSON, and does not become any.
        assert!(as_structure("{\"a\": \"x\ny\"}").is_err());
    }
}
