//! `countersign tools diff`: what was accepted against what its upstream says now, from the records. Starts nothing.

use countersign_core::digest::Digest;
use countersign_core::ids::FullName;
use countersign_core::refusal::{Code, Refusal};
use countersign_desk::views;
use countersign_store::{Definition, Pin, PinState, StoreUrl};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::answer::{Answer, Outcome, Trouble};
use crate::commands::plans::sheet;
use crate::output::{BOLD, DIM, GOOD, Voice, WARN, paint, shown, visible};
use crate::person::{diff, value};
use crate::records;

/// Shown under the help.
pub(crate) const EXAMPLES: &str = "Examples:
  countersign tools diff github:delete_repo
  countersign tools diff github:delete_repo --json";

/// Compares them.
pub(crate) fn run(name: &FullName, url: &StoreUrl, voice: Voice) -> Outcome {
    let pin = records::with(url, async |store| {
        store.pin_of(name).await.map_err(|fault| records::trouble(&fault, url))
    })?;
    let pin = pin.ok_or_else(|| never_seen(name, url))?;
    Ok(Answer::text(story(&pin, voice)).with("tool", describe(&pin)))
}

/// A tool no gateway on this store has seen.
pub(super) fn never_seen(name: &FullName, url: &StoreUrl) -> Trouble {
    let message = format!("`{name}` was never listed to a gateway on `{url}`");
    Trouble::refused(Refusal::new(Code::ToolNotFound, message), "countersign tools list")
}

/// What a person has to look at: the difference, or the whole of what is new.
pub(super) fn story(pin: &Pin, voice: Voice) -> String {
    let zone = sheet::zone(voice, Timestamp::now());
    let name = visible(&format!("{}:{}", pin.upstream, pin.tool)).into_owned();
    let head = |word: String, when: Timestamp| {
        let since = paint(DIM, format_args!("since {}", shown(when, &zone)));
        format!("{}  {word} {since}\n", paint(BOLD, &name))
    };
    let now = pin.candidate.as_ref().unwrap_or(&pin.pinned);
    match pin.state {
        PinState::Accepted => head(paint(GOOD, "accepted"), pin.decided.unwrap_or(pin.first_seen)),
        PinState::Pending => {
            let new = diff::unified(("nothing", ""), ("new", &lines(now)));
            format!("{}{new}", head(paint(WARN, "new"), pin.first_seen))
        }
        PinState::Changed => {
            let differs = diff::unified(("accepted", &lines(&pin.pinned)), ("now", &lines(now)));
            format!("{}{differs}", head(paint(WARN, "changed"), pin.changed))
        }
    }
}

fn lines(definition: &Definition) -> String {
    // Line by line, so that a long schema does not differ as one long line.
    let lines = value::spread(&Value::Object(definition.definition.clone()));
    lines.iter().map(|line| format!("{line}\n")).collect()
}

/// The fingerprint a person who saw the story has looked at.
pub(super) fn looked_at(pin: &Pin) -> Digest {
    pin.candidate.as_ref().unwrap_or(&pin.pinned).fingerprint
}

/// A pin for programs.
pub(super) fn describe(pin: &Pin) -> Value {
    json!(views::pin(pin))
}
