//! `[limits]`: the bounds of frames, arguments, connections, sessions, waits and new plans.

use std::time::Duration;

use super::config_reader::{ConfigReader, SectionReader};
use super::diagnostic::DiagnosticKind::BadValue;
use super::diagnostic::tick;
use super::rule;
use super::tree::TomlTable;
use countersign_policy::duration::RateLimit;

/// `[limits]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitsSection {
    pub frame: u64,
    /// The longest arguments of one call, in bytes.
    pub arguments: u64,
    /// How long a client may take to send the head of a request.
    pub header_timeout: Duration,
    /// How long a connection may stay open without a request.
    pub idle_timeout: Duration,
    pub connections: u64,
    /// How many connections one other machine may hold.
    pub connections_per_peer: u64,
    /// How many sessions one principal may have open.
    pub sessions: u64,
    /// How many calls of one principal may wait for a person at once.
    pub waits: u64,
    /// How many new plans one principal may ask for.
    pub drafts: RateLimit,
    /// How many notices each target of `[notify]` gets; what is beyond becomes one summary.
    pub notices: RateLimit,
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
            drafts: RateLimit { count: 120, window: MINUTE },
            notices: RateLimit { count: 10, window: MINUTE },
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

static EMPTY: TomlTable = TomlTable { entries: Vec::new() };

pub(crate) fn read(reader: &mut ConfigReader<'_>, root: &TomlTable) -> LimitsSection {
    let table = root.get("limits").and_then(|node| reader.table(node, "limits", "{ frame = \"16MiB\" }"));
    let table = table.unwrap_or(&EMPTY);
    let mut section = SectionReader::open(reader, table, "`[limits]`", &KEYS);
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
    let size = |reader: &mut ConfigReader<'_>,
                key: &str,
                given: u64,
                smallest: u64,
                message: &str,
                example: &str| {
        if let Some(node) = table.get(key)
            && !(smallest..=1 << 30).contains(&given)
        {
            let help = format!("write `{key} = {example}`");
            reader.error(node.place, BadValue, message, help);
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
    section: &mut SectionReader<'_, '_, '_>,
    key: &str,
    bounds: std::ops::RangeInclusive<u64>,
    usual: u64,
) -> u64 {
    let Some(node) = section.table.get(key) else { return usual };
    let given = node
        .as_integer()
        .and_then(|number| u64::try_from(number).ok())
        .filter(|given| bounds.contains(given));
    if given.is_none() {
        let message =
            format!("{} must be a whole number from {} to {}", tick(key), bounds.start(), bounds.end());
        let help = format!("write `{key} = {usual}`");
        section.reader.error(node.place, BadValue, message, help);
    }
    given.unwrap_or(usual)
}

fn rate(section: &mut SectionReader<'_, '_, '_>, key: &str, usual: RateLimit) -> RateLimit {
    let node = section.table.get(key);
    let given = node.and_then(|node| rule::rate(section.reader, node, key, &format!("\"{usual}\"")));
    given.unwrap_or(usual)
}
