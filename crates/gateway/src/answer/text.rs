//! The text block of our answers. Many hosts pass nothing else to the model, and every word costs tokens: a hold and a refusal are
//! a few sentences with the next step, everything else is its data, once. The whole envelope is in `structuredContent`.

use countersign_policy::envelope::{Envelope, ErrorEntry};
use countersign_policy::visible_text::excerpt;
use serde_json::{Value, json};

/// The longest refusal, in bytes.
const REFUSAL: usize = 300;
/// The longest hold, in bytes, besides an upstream's own preview.
const HOLD: usize = 600;
/// How much of an upstream's own preview is repeated.
const PREVIEW: usize = 4 << 10;
/// The longest name in a sentence, in characters.
const NAME: usize = 80;

pub(super) fn for_model(envelope: &Envelope) -> String {
    let word = |name: &str| envelope.data.get(name).and_then(Value::as_str);
    let text = match (envelope.errors.first(), word("status")) {
        // Steps that ran are listed even where a later one failed.
        (Some(error), _) if envelope.has_data("steps") || envelope.has_data("ran_steps") => {
            return format!("{}\n{}", refusal(error), envelope.data_text());
        }
        (Some(error), _) => return refusal(error),
        (None, Some("confirmation_required")) => hold(envelope),
        (None, Some("preview")) => preview(envelope),
        (None, _) => return data(envelope),
    };
    let text = with_notes(text, envelope) + &shown(envelope);
    match envelope.member_text("ran_steps") {
        Some(steps) => format!("{text}\nRan before it: {steps}"),
        None => text,
    }
}

/// The warnings, as far as there is room: the whole of them is in `structuredContent`.
fn with_notes(text: String, envelope: &Envelope) -> String {
    let notes = envelope.warnings.iter().map(|warning| format!("\nNote: {warning}."));
    notes.fold(text, |text, note| {
        let room = HOLD.saturating_sub(text.len());
        if note.len() <= room { text + &note } else { text }
    })
}

/// The data alone, as JSON; warnings beside it where there are any.
fn data(envelope: &Envelope) -> String {
    match envelope.warnings.is_empty() {
        true => envelope.data_text(),
        false => format!("{}\nNote: {}", envelope.data_text(), envelope.warnings.join("; ")),
    }
}

fn hold(envelope: &Envelope) -> String {
    let word = |name: &str| envelope.data.get(name).and_then(Value::as_str).unwrap_or_default();
    let confirm = |name: &str| envelope.data.get("confirm").and_then(|confirm| confirm.get(name)?.as_str());
    let (plan, tool) = (word("plan_id"), excerpt(word("tool"), NAME));
    let blocks = envelope.data.get("blocks").and_then(Value::as_array);
    if let Some(block) = blocks.and_then(|blocks| blocks.first()?.as_str()) {
        let why = excerpt(block, 2 * NAME);
        return format!("Nothing has changed, and {tool} can't run like this: {why}. Fix it or stop.");
    }
    let mut run = json!({"plan_id": plan, "confirm_token": word("confirm_token"), "yes": true});
    if let (Some("type"), Some(run)) = (confirm("kind"), run.as_object_mut()) {
        run.insert("confirm_text".to_owned(), json!("what the user typed"));
    }
    let until =
        confirm("expires").map(|expires| format!(" until {}", whole_seconds(expires))).unwrap_or_default();
    let ask = match (word("approve_command"), word("approve_url")) {
        ("", _) => "Show the user what would happen and end the turn. If they agree:".to_owned(),
        (command, "") => format!("A person approves with `{command}`. Then:"),
        (command, url) => format!("A person approves at {url} or with `{command}`. Then:"),
    };
    format!(
        "Waiting for confirmation: {tool} ({}). Nothing has changed. Plan {plan}{until}.\n{ask} run_plan {run}",
        word("effect")
    )
}

fn preview(envelope: &Envelope) -> String {
    let word = |name: &str| envelope.data.get(name).and_then(Value::as_str).unwrap_or_default();
    let (tool, hint) = (excerpt(word("tool"), NAME), word("execute_hint"));
    format!("Preview only: {tool} was not run, {hint}.")
}

/// The upstream's own preview. One that we computed from the arguments is left out: the model has just sent them.
fn shown(envelope: &Envelope) -> String {
    let Some(preview) = envelope.data.get("preview") else { return String::new() };
    let shown = preview.get("shown").unwrap_or(preview);
    let text = match shown.get("steps").and_then(Value::as_array) {
        Some(steps) => steps.iter().filter_map(step_preview).collect::<Vec<_>>().join("\n"),
        None if preview["source"] == "computed" => String::new(),
        None => preview_text(shown),
    };
    if text.is_empty() {
        return text;
    }
    if text.len() <= PREVIEW {
        return format!("\nPreview:\n{text}");
    }
    let url = envelope.data.get("approve_url").and_then(Value::as_str);
    let rest = url.map_or_else(|| "cut".to_owned(), |url| format!("the whole is at {url}"));
    format!("\nPreview:\n{}\n… ({rest})", at_most(&text, PREVIEW))
}

fn preview_text(shown: &Value) -> String {
    let blocks = shown.get("content").and_then(Value::as_array);
    let texts: Vec<&str> = blocks.into_iter().flatten().filter_map(|block| block["text"].as_str()).collect();
    match texts.is_empty() {
        true => shown.get("structuredContent").unwrap_or(shown).to_string(),
        false => texts.join("\n"),
    }
}

/// What an upstream says of its dry run of one step; none where it made none.
fn step_preview(step: &Value) -> Option<String> {
    let by_upstream =
        matches!(step["previewed"].as_str(), Some("argument" | "companion" | "command" | "chained"));
    by_upstream.then(|| format!("step {}: {}", step["step"], preview_text(&step["preview"])))
}

fn refusal(error: &ErrorEntry) -> String {
    let next = error.details.as_ref().and_then(|details| details.get("next_actions")?.as_array());
    let next: Vec<&str> = next.into_iter().flatten().filter_map(Value::as_str).take(2).collect();
    let plan = error.details.as_ref().and_then(|details| details.get("plan_id")?.as_str());
    let plan = plan.filter(|plan| !error.message.contains(plan)).map(|plan| format!(" Plan {plan}."));
    let end = format!("{} Next: {}.", plan.unwrap_or_default(), next.join(", ").replace('_', " "));
    let room = REFUSAL.saturating_sub(error.code.len() + end.len() + 3);
    let message = match error.message.len() > room {
        true => format!("{}…", at_most(&error.message, room.saturating_sub(3))),
        false => error.message.clone(),
    };
    format!("{}: {}.{end}", error.code, message.trim_end_matches('.'))
}

/// At most so many bytes of a text, whole characters.
fn at_most(text: &str, most: usize) -> &str {
    let end = (0..=most.min(text.len())).rev().find(|at| text.is_char_boundary(*at));
    text.get(..end.unwrap_or_default()).unwrap_or_default()
}

/// `2026-01-31T12:00:00.123456Z` without the fraction.
fn whole_seconds(time: &str) -> String {
    match time.split_once('.') {
        Some((seconds, _)) => format!("{seconds}Z"),
        None => time.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use countersign_policy::refusal::{Code, Refusal};
    use serde_json::Map;

    use super::*;

    fn asking() -> Envelope {
        Envelope::ok("call_tool_write", Map::new())
            .with("status", "confirmation_required")
            .with("plan_id", "pln_01KAAAAAAAAAAAAAAAAAAAAAAA")
            .with("tool", "files:edit_file")
            .with("effect", "write")
            .with(
                "confirm",
                json!({"kind": "preview", "strength": "host", "expires": "2026-01-31T12:00:00.123456Z"}),
            )
            .with(
                "preview",
                json!({"source": "computed", "shown": {"arguments": {"body": "x".repeat(9000)}}}),
            )
            .with("confirm_token", "9f0c1d0e-9a3c-4a2e-9a10-000000000000")
            .with("approve_command", "countersign approve pln_01KAAAAAAAAAAAAAAAAAAAAAAA")
            .with("approve_url", "http://127.0.0.1:7878/plans/pln_01KAAAAAAAAAAAAAAAAAAAAAAA")
    }

    #[test]
    fn a_hold_is_a_few_sentences_with_all_that_is_needed() {
        let text = for_model(&asking().warn(vec!["x".repeat(100), "y".repeat(400)]));
        assert!(text.len() <= HOLD, "{} bytes: {text}", text.len());
        for part in [
            "pln_01K",
            "9f0c1d0e-9a3c",
            "run_plan {",
            "\"yes\":true",
            "countersign approve",
            "/plans/",
            "12:00:00Z",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(!text.contains("xxxxxxxxx".repeat(20).as_str()), "arguments are not repeated");
    }

    #[test]
    fn an_upstreams_preview_is_in_it_and_bounded() {
        let long = "ä".repeat(9000);
        let told = json!({"source": "argument", "shown": {"content": [{"type": "text", "text": long}]}});
        let text = for_model(&asking().with("preview", told));
        assert!(text.contains("Preview:\nää") && text.contains("the whole is at http://127.0.0.1"), "{text}");
        assert!(text.len() < 600 + PREVIEW + 100, "{}", text.len());
    }

    #[test]
    fn a_refusal_has_at_most_300_bytes() {
        for message in ["short", &"ü".repeat(500)] {
            let refusal = Refusal::new(Code::ApprovalPending, message)
                .with("plan_id", "pln_01KAAAAAAAAAAAAAAAAAAAAAAA");
            let text = for_model(&Envelope::refused("x", &refusal));
            assert!(text.len() <= REFUSAL, "{} bytes: {text}", text.len());
            assert!(text.starts_with("E_APPROVAL_PENDING: ") && text.contains(". Next: "), "{text}");
            assert!(text.contains("pln_01K"), "{text}");
        }
    }

    #[test]
    fn a_failed_plan_tells_its_steps_and_a_refusal_that_only_mentions_steps_does_not() {
        let refused = || Envelope::refused("run_plan", &Refusal::new(Code::StepFailed, "step 2 failed"));
        let text = for_model(&refused().with_text("steps", r#"[{"step":1,"n":12345678901234567890123}]"#));
        assert!(text.ends_with(r#"{"steps":[{"step":1,"n":12345678901234567890123}]}"#), "{text}");
        let text = for_model(&refused().with("plan", json!({"steps": [1], "says": "\"steps\":"})));
        assert!(text.len() <= REFUSAL && !text.contains('{'), "{text}");
    }

    #[test]
    fn the_dry_runs_of_steps_and_what_ran_before_are_in_a_hold() {
        let step = |number: u32, previewed: &str, says: &str| json!({"step": number, "previewed": previewed, "preview": {"content": [{"text": says}]}});
        let steps = [
            step(1, "argument", "2 notes"),
            step(2, "computed", "hidden"),
            step(3, "when_reached", "hidden"),
        ];
        let preview = json!({"source": "computed", "shown": {"steps": steps}});
        let text = for_model(&asking().with("preview", preview).with_text("ran_steps", r#"[{"step":1}]"#));
        assert!(text.ends_with("\nPreview:\nstep 1: 2 notes\nRan before it: [{\"step\":1}]"), "{text}");
        assert!(!text.contains("hidden"), "{text}");
    }

    #[test]
    fn data_is_told_once_and_keeps_its_digits() {
        let envelope =
            Envelope::ok("get_plan", Map::new()).with_text("plan", r#"{"n":12345678901234567890123}"#);
        assert_eq!(for_model(&envelope), r#"{"plan":{"n":12345678901234567890123}}"#);
    }
}
