//! `countersign tools diff`: what was accepted against what its upstream says now, from the records. Starts nothing.

use countersign_policy::digest::Digest;
use countersign_policy::ids::FullName;
use countersign_policy::refusal::{Code, Refusal};
use countersign_store::{KnownDefinition, PinState, StoreUrl, ToolDefinition, ToolPin};
use countersign_web::views;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::command_result::{Answer, CommandError, CommandResult};
use crate::commands::plans::sheet;
use crate::output::{BOLD, DIM, GOOD, OutputSettings, TimeDisplay, WARN, paint, shown, visible};
use crate::person::{diff, value};
use crate::records;

pub(crate) const EXAMPLES: &str = "Examples:
  countersign tools diff github:delete_repo
  countersign tools diff github:delete_repo --json";

pub(crate) fn run(name: &FullName, url: &StoreUrl, voice: OutputSettings) -> CommandResult {
    let pin = records::with(url, async |store| {
        store.pin_of(name).await.map_err(|fault| records::trouble(&fault, url))
    })?;
    let pin = pin.ok_or_else(|| never_seen(name, url))?;
    Ok(Answer::text(story(&pin, voice)).with("tool", describe(&pin)))
}

/// A tool no gateway on this store has seen.
pub(super) fn never_seen(name: &FullName, url: &StoreUrl) -> CommandError {
    let message = format!("`{name}` was never listed to a gateway on `{url}`");
    CommandError::refused(Refusal::new(Code::ToolNotFound, message), "countersign tools list")
}

/// What a person has to look at: the difference, or the whole of what is new.
pub(super) fn story(pin: &ToolPin, voice: OutputSettings) -> String {
    let zone = sheet::zone(voice, Timestamp::now());
    let name = visible(&format!("{}:{}", pin.upstream, pin.tool)).into_owned();
    let head = |word: String, when: Timestamp| {
        let since = paint(DIM, format_args!("since {}", shown(when, &zone)));
        format!("{}  {word} {since}\n", paint(BOLD, &name))
    };
    let now = pin.candidate.as_ref().unwrap_or(&pin.pinned);
    match pin.state {
        PinState::Accepted => {
            let accepted = head(paint(GOOD, "accepted"), pin.decided.unwrap_or(pin.first_seen));
            format!("{accepted}{}", set_line(pin))
        }
        PinState::Pending => {
            let new = diff::unified(("nothing", ""), ("new", &lines(now)));
            format!("{}{new}", head(paint(WARN, "new"), pin.first_seen))
        }
        PinState::Changed => {
            let differs = diff::unified(("accepted", &lines(&pin.pinned)), ("now", &lines(now)));
            let offer = offer(pin, &zone);
            format!("{}{}{differs}{offer}", head(paint(WARN, "changed"), pin.changed), set_line(pin))
        }
    }
}

/// How many definitions count as accepted, where a set of them does.
fn set_line(pin: &ToolPin) -> String {
    match pin.accepted_set().count() {
        0 => String::new(),
        several => format!("{}\n", paint(DIM, format_args!("  {several} definitions are accepted as a set"))),
    }
}

/// What can be done about a tool that flips between definitions that were accepted.
fn offer(pin: &ToolPin, zone: &TimeDisplay) -> String {
    let Some(flipped) = pin.flipped_to() else { return String::new() };
    let name = visible(&format!("{}:{}", pin.upstream, pin.tool)).into_owned();
    format!(
        "{} {}; the tool flips between {} known definitions\n  countersign tools approve {name} --known  {}\n",
        paint(WARN, "accepted before"),
        paint(DIM, acceptance(flipped, zone)),
        pin.known.len(),
        paint(DIM, "accepts all of them")
    )
}

fn acceptance(known: &KnownDefinition, zone: &TimeDisplay) -> String {
    match &known.accepted_by {
        Some(person) => format!("on {} by {}", shown(known.accepted, zone), visible(person.as_str())),
        None => format!("on {} at first sight", shown(known.accepted, zone)),
    }
}

/// Every definition of the set that is on offer: what is pinned whole, the others by what differs from it.
pub(super) fn known_set(pin: &ToolPin, voice: OutputSettings) -> String {
    let zone = sheet::zone(voice, Timestamp::now());
    let name = visible(&format!("{}:{}", pin.upstream, pin.tool)).into_owned();
    let offered = pin.offered_set();
    let mut text = format!("{}  {} known definitions\n", paint(BOLD, name), offered.len());
    let pinned = lines(&pin.pinned);
    let is_pinned = |known: &&KnownDefinition| known.definition.fingerprint == pin.pinned.fingerprint;
    let (first, others): (Vec<_>, Vec<_>) = offered.iter().partition(is_pinned);
    for known in first.into_iter().chain(others) {
        let fingerprint = known.definition.fingerprint;
        let differs = match is_pinned(&known) {
            true => diff::unified(("nothing", ""), ("accepted", &pinned)),
            false => diff::unified(("accepted", &pinned), ("known", &lines(&known.definition))),
        };
        text.push_str(&format!(
            "{fingerprint}  {}\n{differs}",
            paint(DIM, format_args!("accepted {}", acceptance(known, &zone)))
        ));
    }
    let outside = pin.waiting().is_some() && pin.flipped_to().is_none();
    if outside {
        let note = "what it is now is not among them, and stays withheld";
        text.push_str(&format!("{}\n", paint(WARN, note)));
    }
    text
}

fn lines(definition: &ToolDefinition) -> String {
    // Line by line, so that a long schema does not differ as one long line.
    let lines = value::spread(&Value::Object(definition.definition.clone()));
    lines.iter().map(|line| format!("{line}\n")).collect()
}

/// The fingerprint a person who saw the story has looked at.
pub(super) fn looked_at(pin: &ToolPin) -> Digest {
    pin.candidate.as_ref().unwrap_or(&pin.pinned).fingerprint
}

pub(super) fn describe(pin: &ToolPin) -> Value {
    json!(views::pin(pin))
}
