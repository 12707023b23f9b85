//! `[limits]`: the bounds of frames, arguments, connections, sessions, waits and new plans.

use std::time::Duration;

use super::diagnostic::{Problem, tick};
use super::reading::{Reader, Section};
use super::tree::{Node, Table, Value};
use crate::duration::Rate;

/// `[limits]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitsSection {
    /// The longest frame, in bytes.
    pub frame: u64,
    /// The longest arguments of one call, in bytes.
    pub arguments: u64,
    /// How long a client may take to send the head of a request.
    pub header_timeout: Duration,
    /// How long a connection may stay open without a request.
    pub idle_timeout: Duration,
    /// How many connections a listener holds.
    pub connections: u64,
    /// How many connections one other machine may hold.
    pub connections_per_peer: u64,
    /// How many sessions one principal may have open.
    pub sessions: u64,
    /// How many calls of one principal may wait for a person at once.
    pub waits: u64,
    /// How many new plans one principal may ask for.
    pub drafts: Rate,
    /// How many notices each target of `[notify]` gets; what is beyond becomes one summary.
    pub notices: Rate,
}

const MINUTE: Duration = Duration::from_secs(60);

impl Default for LimitsSection {
    fn default() -> Self {
        Self {
            frame: 16 << 20,
            arguments: 1 << 20,
            header_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(120),
            connections: 512,
            connections_per_peer: 128,
            sessions: 64,
            waits: 32,
            drafts: Rate { count: 120, window: MINUTE },
            notices: Rate { count: 10, window: MINUTE },
        }
    }
}

const KEYS: [&str; 10] = [
    "frame",
    "arguments",
    "header_timeout",
    "idle_timeout",
    "connections",
    "connections_per_peer",
    "sessions",
    "waits",
    "drafts",
    "notices",
];

static EMPTY: Table = Table { entries: Vec::new() };

pub(super) fn read(reader: &mut Reader<'_>, root: &Table) -> LimitsSection {
    let table = root.get("limits").and_then(|node| reader.table(node, "limits", "{ frame = \"16MiB\" }"));
    let table = table.unwrap_or(&EMPTY);
    let mut section = Section::open(reader, table, "`[limits]`", &KEYS);
    let usual = LimitsSection::default();
    let limits = LimitsSection {
        frame: section.size("frame", "\"16MiB\"").unwrap_or(usual.frame),
        arguments: section.size("arguments", "\"1MiB\"").unwrap_or(usual.arguments),
        header_timeout: section.span("header_timeout", "\"10s\"").unwrap_or(usual.header_timeout),
        idle_timeout: section.span("idle_timeout", "\"2m\"").unwrap_or(usual.idle_timeout),
        connections: count(&mut section, "connections", 16..=65_536, usual.connections),
        connections_per_peer: count(
            &mut section,
            "connections_per_peer",
            1..=65_536,
            usual.connections_per_peer,
        ),
        sessions: count(&mut section, "sessions", 1..=10_000, usual.sessions),
        waits: count(&mut section, "waits", 0..=1_000, usual.waits),
        drafts: rate(&mut section, "drafts", usual.drafts),
        notices: rate(&mut section, "notices", usual.notices),
    };
    let size =
        |reader: &mut Reader<'_>, key: &str, given: u64, smallest: u64, message: &str, example: &str| {
            if let Some(node) = table.get(key)
                && !(smallest..=1 << 30).contains(&given)
            {
                let help = format!("write `{key} = {example}`");
                reader.error(node.place, Problem::BadValue, message, help);
            }
        };
    size(
        reader,
        "frame",
        limits.frame,
        4 << 10,
        "a frame has between 4 KiB and 1 GiB",
        "\"16MiB\"`, or anything from `4KiB` to `1GiB",
    );
    size(
        reader,
        "arguments",
        limits.arguments,
        1 << 10,
        "arguments have between 1 KiB and 1 GiB",
        "\"1MiB\"`, or anything from `1KiB` to `1GiB",
    );
    limits
}

/// A whole number within bounds.
fn count(
    section: &mut Section<'_, '_, '_>,
    key: &str,
    bounds: std::ops::RangeInclusive<u64>,
    usual: u64,
) -> u64 {
    let Some(node) = section.table.get(key) else { return usual };
    let given = whole(node).filter(|given| bounds.contains(given));
    if given.is_none() {
        let message =
            format!("{} must be a whole number from {} to {}", tick(key), bounds.start(), bounds.end());
        let help = format!("write `{key} = {usual}`");
        section.reader.error(node.place, Problem::BadValue, message, help);
    }
    given.unwrap_or(usual)
}

fn whole(node: &Node) -> Option<u64> {
    match node.value {
        Value::Integer(number) => u64::try_from(number).ok(),
        Value::String(_)
        | Value::Float(_)
        | Value::Boolean(_)
        | Value::Datetime(_)
        | Value::Array(_)
        | Value::Table(_) => None,
    }
}

fn rate(section: &mut Section<'_, '_, '_>, key: &str, usual: Rate) -> Rate {
    let example = format!("\"{usual}\"");
    let Some(node) = section.table.get(key) else { return usual };
    let Some(text) = section.reader.text(node, key, &example) else { return usual };
    let rate = text.parse().ok();
    if rate.is_none() {
        let help = format!("write a number and s, min, h or day: `{key} = {example}`");
        section.reader.error(node.place, Problem::BadValue, format!("{} is not a rate", tick(text)), help);
    }
    rate.unwrap_or(usual)
}
