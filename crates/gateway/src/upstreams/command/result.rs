//! Turns the end of a command into a result: its output as text, parsed where configured; a bad exit as an error with the end of stderr; no
//! end at all as a fault that says whether it may have acted.

use std::time::Duration;

use countersign_config::CommandOutputFormat;
use countersign_mcp::fault::DeliveryState;
use countersign_mcp::raw::{self, RawJson, within_nesting};
use countersign_policy::words::plural;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::runs::{CapturedOutput, FinishedCommand, ProcessEnd};
use crate::upstreams::UpstreamFault;

/// A result contains the parsed output two levels down.
const DEEPEST: usize = 60;
/// How much of stderr a fault shows.
const LAST_WORDS: usize = 400;

pub(super) struct ResultReader<'a> {
    pub(super) name: &'a str,
    pub(super) ok_exit: &'a [i32],
    pub(super) parse: CommandOutputFormat,
    pub(super) timeout: Option<Duration>,
}

impl ResultReader<'_> {
    pub(super) fn result_of(&self, done: &FinishedCommand) -> Result<RawJson, UpstreamFault> {
        let name = self.name;
        match &done.end {
            ProcessEnd::Exited(code) if self.ok_exit.contains(code) => Ok(self.success(done, *code)),
            ProcessEnd::Exited(code) => {
                Ok(failure(done, format!("`{name}` failed with exit code {code}"), Some(*code)))
            }
            ProcessEnd::Signalled(signal) => {
                Ok(failure(done, format!("`{name}` was ended by signal {signal}"), None))
            }
            ProcessEnd::TimedOut => {
                let limit = self.timeout.unwrap_or_default();
                let why =
                    format!("`{name}` took longer than {limit:?} and was killed{}", stderr_end(&done.err));
                Err(UpstreamFault::Timeout { why, sent: DeliveryState::Unknown })
            }
            ProcessEnd::Stopped => {
                let why = format!("`{name}` was stopped{}", stderr_end(&done.err));
                Err(UpstreamFault::Unavailable { why, sent: DeliveryState::Unknown })
            }
            ProcessEnd::NotStarted(why) => {
                Err(UpstreamFault::Unavailable { why: why.clone(), sent: DeliveryState::No })
            }
            ProcessEnd::NoTurn => {
                let why = format!("`{name}` waited for its turn until its time was up");
                Err(UpstreamFault::Timeout { why, sent: DeliveryState::No })
            }
        }
    }

    fn success(&self, done: &FinishedCommand, code: i32) -> RawJson {
        let (out, err) = (text(&done.out, done), text(&done.err, done));
        let (structure, note) = match self.parse {
            CommandOutputFormat::Text => (None, None),
            CommandOutputFormat::Lines => {
                (Some(raw::to_raw(&json!({"lines": out.lines().collect::<Vec<_>>()}))), None)
            }
            CommandOutputFormat::Json if done.out.left_out() > 0 => {
                (None, Some("the output is longer than `output` allows, and was not read as JSON".to_owned()))
            }
            CommandOutputFormat::Json => match as_structure(&out) {
                Ok(structure) => (Some(structure), None),
                Err(why) => (None, Some(format!("the output is not what was expected: {why}"))),
            },
        };
        let mut blocks = vec![out, err, note.unwrap_or_default()];
        blocks.retain(|block| !block.is_empty());
        if blocks.is_empty() {
            blocks.push(format!("`{}` ended with exit code {code} and wrote nothing", self.name));
        }
        tool_result(&blocks, structure.as_deref(), false, Some(code))
    }
}

fn failure(done: &FinishedCommand, what: String, code: Option<i32>) -> RawJson {
    let mut blocks = vec![what, text(&done.err, done), text(&done.out, done)];
    blocks.retain(|block| !block.is_empty());
    tool_result(&blocks, None, true, code)
}

fn tool_result(
    blocks: &[String],
    structure: Option<&RawValue>,
    is_error: bool,
    code: Option<i32>,
) -> RawJson {
    let content: Vec<Value> = blocks.iter().map(|text| json!({"type": "text", "text": text})).collect();
    let mut result = json!({"content": content, "isError": is_error});
    if let (Some(members), Some(code)) = (result.as_object_mut(), code) {
        members.insert("_meta".into(), json!({"countersign/command": {"exit_code": code}}));
    }
    let result = raw::to_raw(&result);
    // Passed on as the command wrote it: numbers keep their text.
    match structure {
        Some(structure) => raw::set(&result, "structuredContent", structure).unwrap_or(result),
        None => result,
    }
}

fn text(captured: &CapturedOutput, done: &FinishedCommand) -> String {
    let place = match &done.log {
        Some(log) => format!("; the whole output is in runs/{log}"),
        None => String::new(),
    };
    captured.text(&format!("\n[{} left out{place}]\n", plural(captured.left_out(), "byte")))
}

/// An object as it is, anything else as the member `value` of one.
fn as_structure(text: &str) -> Result<RawJson, String> {
    let text = text.trim();
    if !within_nesting(text, DEEPEST) {
        return Err(format!("it nests deeper than {DEEPEST} levels"));
    }
    let parsed: &RawValue = serde_json::from_str(text).map_err(|error| format!("not JSON: {error}"))?;
    // A message is one line. Between tokens a line end becomes a space; valid JSON has none inside a string.
    let one_line = parsed.get().replace(['\n', '\r'], " ");
    let parsed = raw::from_text(one_line).ok_or_else(|| "not JSON".to_owned())?;
    if raw::is_object(&parsed) {
        return Ok(parsed);
    }
    raw::set(&raw::empty_object(), "value", &parsed).ok_or_else(|| "not JSON".to_owned())
}

fn stderr_end(err: &CapturedOutput) -> String {
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
        // A line end inside a string is invalid JSON, and stays so.
        assert!(as_structure("{\"a\": \"x\ny\"}").is_err());
    }
}
