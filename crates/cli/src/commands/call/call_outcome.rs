//! What the gateway answered: the upstream's own result, a preview, a question, or a no; and each as a person reads it.

use std::io::IsTerminal as _;

use countersign_gateway::escape;
use countersign_policy::ids::FullName;
use countersign_policy::refusal::{Code, NextAction, Refusal};
use serde_json::{Map, Value, json};

use super::local_client::GatewayCallReply;
use crate::command_result::{Answer, CommandError, CommandResult, FailedCall, Refused};
use crate::commands::plans::sheet as plan_sheet;
use crate::output::{BOLD, DIM, OutputSettings, paint, plural, visible};
use crate::person::value;

pub(super) enum CallOutcome {
    Ran(Ran),
    /// Nothing changed; this is what there is to see.
    Shown(Map<String, Value>, Vec<String>),
    Asks(Box<Map<String, Value>>),
    Refused(Refused),
}

/// What came back from the tool, and the text it came in.
pub(super) struct Ran(Value, String);

/// Understands a reply. What an upstream answered always carries our facts; what does not is ours.
pub(super) fn read(reply: GatewayCallReply, tool: &FullName) -> Result<CallOutcome, CommandError> {
    let (mut result, text) = match reply {
        Ok(result) => result,
        Err(error) => return Err(rpc(&error, tool)),
    };
    if result.pointer("/_meta/countersign/ledger_id").is_some() {
        return Ok(CallOutcome::Ran(Ran(result, text)));
    }
    let mut envelope = result.get_mut("structuredContent").map(Value::take).unwrap_or_default();
    let Some(Value::Object(data)) = envelope.get_mut("data").map(Value::take) else {
        return Ok(CallOutcome::Ran(Ran(result, text)));
    };
    let warnings = strings(envelope.get("warnings"));
    let error = envelope.get("errors").and_then(|errors| errors.get(0));
    Ok(match (error, data.get("status").and_then(Value::as_str)) {
        (Some(error), _) => {
            let refusal = refusal(error);
            let next = next(&refusal, tool);
            let mut refused = Refused { data, warnings, next, ..refusal.into() };
            if let Some(explain) = refused.data.get("explain") {
                refused.findings = explained(explain);
            }
            CallOutcome::Refused(refused)
        }
        (None, Some("confirmation_required")) => CallOutcome::Asks(Box::new(data)),
        (None, _) => CallOutcome::Shown(data, warnings),
    })
}

/// A JSON-RPC error: a tool that is for people only, or the upstream's own.
fn rpc(error: &Value, tool: &FullName) -> CommandError {
    let message = error.get("message").and_then(Value::as_str).unwrap_or("no reason given");
    if message.ends_with("not available in agent mode") {
        let refusal = Refusal::new(Code::RoleForbidden, message);
        return CommandError::refused(refusal, "only a line opened as a person can call it");
    }
    let answer = Answer::default().with("error", error.clone());
    CommandError::Failed(Box::new(FailedCall {
        answer,
        message: format!("`{tool}` answered with an error: {message}"),
    }))
}

fn strings(value: Option<&Value>) -> Vec<String> {
    let items = value.and_then(Value::as_array).into_iter().flatten();
    items.filter_map(Value::as_str).map(str::to_owned).collect()
}

/// A refusal of the gateway, parsed from its answer.
fn refusal(error: &Value) -> Refusal {
    let text = |name: &str| error.get(name).and_then(Value::as_str).unwrap_or_default();
    let code = Code::ALL.iter().find(|code| code.as_str() == text("code")).copied();
    let mut refusal = Refusal::new(code.unwrap_or(Code::UpstreamUnavailable), text("message"));
    let Some(details) = error.get("details").and_then(Value::as_object) else { return refusal };
    for (name, value) in details {
        match name.as_str() {
            "reason_code" => {
                let known = refusal.code.reasons().iter().find(|reason| value.as_str() == Some(reason));
                refusal.reason_code = known.copied().unwrap_or(refusal.reason_code);
            }
            "next_actions" => {
                refusal.next_actions =
                    strings(Some(value)).iter().filter_map(|word| word.parse::<NextAction>().ok()).collect();
            }
            "retryable" => {}
            _ => refusal = refusal.with(name, value.clone()),
        }
    }
    refusal
}

#[expect(clippy::wildcard_enum_match_arm, reason = "most refusals say all there is in their own words")]
fn next(refusal: &Refusal, tool: &FullName) -> Option<String> {
    match refusal.code {
        Code::ModeAsk => Some("add --mode plan to preview it, --mode execute to run it".to_owned()),
        Code::IntentServerMismatch => Some(format!("countersign call tool-destructive --tool-name={tool}")),
        Code::ToolChanged | Code::ToolQuarantined => Some(format!("countersign tools diff {tool}")),
        Code::ToolNotFound => Some("countersign tools list".to_owned()),
        Code::ArgumentsInvalid => Some(format!("countersign tools show {tool}")),
        Code::PrincipalPaused => Some(format!("countersign plans resume {}", super::WHO)),
        _ => None,
    }
}

/// Something that was answered without running anything.
pub(super) fn shown(data: Map<String, Value>, warnings: Vec<String>) -> Answer {
    let mut text = String::new();
    if let Some(preview) = data.get("preview") {
        text.push_str(&format!("{}\n", paint(BOLD, "preview; nothing was changed")));
        text.push_str(&plan_sheet::result(preview.get("shown").unwrap_or(preview)));
    } else {
        text.push_str(&sheet("answer", &Value::Object(data.clone())));
    }
    Answer { text, data, warnings, ..Answer::default() }
}

/// What a call would do, for people: the parts everybody asks for first, then whatever else is known. How to go on is said
/// in the words of this command below, not in an agent's.
fn explained(explain: &Value) -> String {
    const SAID: [&str; 9] =
        ["tool", "what", "effect", "risk", "target", "mode", "confirm", "strength", "how_to_go_on"];
    let word = |name: &str| explain.get(name).and_then(Value::as_str).map(visible).unwrap_or_default();
    let needs = format!("confirm {}, strength {}", word("confirm"), word("strength"));
    let facts = [
        ("tool", format!("{}  {}", word("tool"), word("effect"))),
        ("does", word("what").to_string()),
        ("risk", word("risk").to_string()),
        ("needs", needs),
    ];
    let mut text = format!("{}\n", paint(BOLD, "what would happen"));
    for (name, said) in facts.iter().filter(|(_, said)| !said.trim().is_empty()) {
        text.push_str(&format!("  {} {said}\n", paint(DIM, format!("{name:<10}"))));
    }
    for (name, value) in explain.as_object().into_iter().flatten() {
        let empty = value.is_null() || value.as_object().is_some_and(Map::is_empty);
        if SAID.contains(&name.as_str()) || empty {
            continue;
        }
        let lines = value::lines(value);
        match lines.as_slice() {
            [only] => {
                text.push_str(&format!("  {} {only}\n", paint(DIM, format!("{:<10}", visible(name)))));
            }
            lines => {
                text.push_str(&format!("  {}\n", paint(DIM, visible(name))));
                lines.iter().for_each(|line| text.push_str(&format!("    {line}\n")));
            }
        }
    }
    text
}

fn sheet(title: &str, value: &Value) -> String {
    let mut text = format!("{}\n", paint(BOLD, title));
    for line in value::lines(value) {
        text.push_str(&format!("  {line}\n"));
    }
    text
}

impl Ran {
    /// The result as a person or their pipe wants it.
    pub(super) fn answer(self, tool: &FullName, voice: OutputSettings) -> CommandResult {
        let Self(result, came) = self;
        let facts = result.pointer("/_meta/countersign").cloned().unwrap_or_default();
        let failed = result.get("isError") == Some(&json!(true));
        let mut answer = Answer::text(text(&result, voice));
        answer.warnings = strings(facts.get("warnings"));
        for name in ["plan_id", "ledger_id", "effect", "mode"] {
            if let Some(fact) = facts.get(name) {
                answer = answer.with(name, fact.clone());
            }
        }
        answer = answer.with_text("result", came);
        if failed {
            let message = format!("`{tool}` ran and says that it failed");
            return Err(CommandError::Failed(Box::new(FailedCall { answer, message })));
        }
        Ok(answer)
    }
}

/// Texts as they are; of everything else, what it is. In a pipe a text is left byte for byte.
fn text(result: &Value, voice: OutputSettings) -> String {
    let raw = !std::io::stdout().is_terminal() && !voice.is_watched();
    let mut text = String::new();
    let blocks = result.get("content").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    for block in blocks {
        let part = |name: &str| block.get(name).and_then(Value::as_str).unwrap_or_default();
        match part("type") {
            "text" if raw => text.push_str(part("text")),
            "text" => text.push_str(&escape::visible(part("text"))),
            "image" | "audio" => {
                let bytes = part("data").len() / 4 * 3;
                text.push_str(&paint(
                    DIM,
                    format_args!(
                        "[{} {}, {}]",
                        part("type"),
                        visible(part("mimeType")),
                        plural(bytes, "byte")
                    ),
                ));
            }
            "resource_link" => text.push_str(&paint(DIM, format_args!("[{}]", visible(part("uri"))))),
            _ => text.push_str(&value::lines(block).join("\n")),
        }
        if !text.ends_with('\n') {
            text.push('\n');
        }
    }
    if blocks.is_empty() {
        let rest = result.get("structuredContent").unwrap_or(&Value::Null);
        text.push_str(&format!("{}\n", value::lines(rest).join("\n")));
    }
    text
}
