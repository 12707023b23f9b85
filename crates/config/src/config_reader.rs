//! Reads typed values off the tree and collects everything that is wrong, each with what to write instead.
//! Never stops at the first mistake, and never echoes a value that may be a secret.

use std::str::FromStr;
use std::time::Duration;

use super::diagnostic::DiagnosticKind::{BadValue, MissingKey, UnknownKey, WrongType};
use super::diagnostic::{Diagnostic, DiagnosticKind, DiagnosticSeverity, did_you_mean, tick};
use super::source::SourceFiles;
use super::tree::{TomlNode, TomlTable, TomlValue};
use countersign_policy::command_template::Place;
use countersign_policy::duration;
use countersign_policy::nearest::nearest;
use countersign_policy::words::{UnknownWord, choices};

/// Whether a file is read alone or as part of the whole: only the whole can miss something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConfigCompleteness {
    Whole,
    Part,
}

/// Collects findings.
pub(crate) struct ConfigReader<'f> {
    pub(crate) files: &'f SourceFiles,
    pub(crate) found: Vec<Diagnostic>,
    pub(crate) reach: ConfigCompleteness,
}

impl<'f> ConfigReader<'f> {
    pub(crate) fn new(files: &'f SourceFiles, reach: ConfigCompleteness) -> Self {
        Self { files, found: Vec::new(), reach }
    }

    pub(crate) fn error(
        &mut self,
        place: Place,
        problem: DiagnosticKind,
        message: impl Into<String>,
        help: impl Into<String>,
    ) {
        let help = help.into();
        self.found.push(self.files.diagnostic(place, DiagnosticSeverity::Error, problem, message, help));
    }

    /// What only the whole can tell: that something is missing.
    pub(crate) fn missing(&mut self, place: Place, message: impl Into<String>, help: impl Into<String>) {
        if self.reach == ConfigCompleteness::Whole {
            self.error(place, MissingKey, message, help);
        }
    }

    /// What is there, what is expected, and an example.
    pub(crate) fn expected(&mut self, node: &TomlNode, what: &str, expected: &str, example: &str) {
        let message = format!("{} must be {expected}, and is {}", tick(what), node.kind());
        self.error(node.place, WrongType, message, format!("write `{what} = {example}`"));
    }

    /// A finding inside a string's value, some bytes in.
    pub(crate) fn place_inside(&self, string: Place, offset: usize, length: usize) -> Place {
        let start = self.files.inside(string, offset);
        let end = self.files.inside(string, offset + length).max(start + 1).min(string.end);
        Place { file: string.file, start, end }
    }

    pub(crate) fn table<'t>(
        &mut self,
        node: &'t TomlNode,
        what: &str,
        example: &str,
    ) -> Option<&'t TomlTable> {
        if node.as_table().is_none() {
            self.expected(node, what, "a table", example);
        }
        node.as_table()
    }

    pub(crate) fn list<'t>(
        &mut self,
        node: &'t TomlNode,
        what: &str,
        example: &str,
    ) -> Option<&'t [TomlNode]> {
        if node.as_items().is_none() {
            self.expected(node, what, "a list", example);
        }
        node.as_items()
    }

    /// The tables of a list such as `[[rules]]`; none if it is not written.
    pub(crate) fn tables<'t>(
        &mut self,
        root: &'t TomlTable,
        name: &str,
        example: &str,
    ) -> Vec<(&'t TomlNode, &'t TomlTable)> {
        let Some(node) = root.get(name) else { return Vec::new() };
        if node.as_table().is_some() {
            let message = format!("`{name}` is a list of tables, and is one table");
            self.error(node.place, WrongType, message, format!("write `[[{name}]]` with two brackets"));
            return Vec::new();
        }
        let items = self.list(node, name, example).unwrap_or_default();
        items.iter().filter_map(|item| Some((item, self.table(item, name, example)?))).collect()
    }

    pub(crate) fn text<'t>(&mut self, node: &'t TomlNode, what: &str, example: &str) -> Option<&'t str> {
        match node.as_text() {
            Some(text) if text.trim().is_empty() => {
                let message = format!("{} is empty", tick(what));
                self.error(node.place, BadValue, message, format!("write `{what} = {example}`"));
                None
            }
            Some(text) => Some(text),
            None => {
                self.expected(node, what, "a string", example);
                None
            }
        }
    }

    /// One string or a list of them; an empty list is a mistake.
    pub(crate) fn texts<'t>(
        &mut self,
        node: &'t TomlNode,
        what: &str,
        example: &str,
    ) -> Vec<(&'t str, Place)> {
        let Some(items) = node.as_items() else {
            if node.as_text().is_none() {
                self.expected(node, what, "a string or a list of strings", example);
                return Vec::new();
            }
            return self.text(node, what, example).map(|text| (text, node.place)).into_iter().collect();
        };
        if items.is_empty() {
            let message = format!("{} is an empty list", tick(what));
            self.error(node.place, BadValue, message, format!("write `{what} = {example}`"));
        }
        let mut texts = Vec::new();
        for node in items {
            match node.as_text() {
                Some(text) if !text.trim().is_empty() => texts.push((text, node.place)),
                Some(_) | None => {
                    let kind = if node.as_text().is_some() { "an empty string" } else { node.kind() };
                    let message = format!("every value in `{what}` must be a string, and this is {kind}");
                    self.error(node.place, WrongType, message, format!("write `{what} = {example}`"));
                }
            }
        }
        texts
    }

    pub(crate) fn truth(&mut self, node: &TomlNode, what: &str, example: &str) -> Option<bool> {
        let TomlValue::Boolean(truth) = node.value else {
            self.expected(node, what, "`true` or `false`, without quotes", example);
            return None;
        };
        Some(truth)
    }

    pub(crate) fn word<W: FromStr<Err = UnknownWord>>(
        &mut self,
        node: &TomlNode,
        what: &str,
        example: &str,
    ) -> Option<W> {
        let text = self.text(node, what, example)?;
        match text.parse() {
            Ok(word) => Some(word),
            Err(unknown) => {
                let listed = unknown.expected.replace(", or ", ", ").replace(" or ", ", ");
                let help = did_you_mean(text, listed.split(", "), || format!("write `{what} = {example}`"));
                let message =
                    format!("unknown {} {}: must be {}", unknown.what, tick(text), unknown.expected);
                self.error(node.place, DiagnosticKind::UnknownWord, message, help);
                None
            }
        }
    }

    pub(crate) fn span(&mut self, node: &TomlNode, what: &str, example: &str) -> Option<Duration> {
        let TomlValue::String(text) = &node.value else {
            self.expected(node, what, "a span of time in quotes", example);
            return None;
        };
        let span = duration::parse(text).ok().filter(|span| !span.is_zero());
        if span.is_none() {
            let message = format!("{} is not a span of time", tick(text));
            let help = format!("write a whole number and ms, s, m, h or d: `{what} = {example}`");
            self.error(node.place, BadValue, message, help);
        }
        span
    }

    /// A number of bytes: `"16MiB"`, or the plain number.
    pub(crate) fn size(&mut self, node: &TomlNode, what: &str, example: &str) -> Option<u64> {
        let size = match &node.value {
            TomlValue::Integer(bytes) => u64::try_from(*bytes).ok().filter(|bytes| *bytes > 0),
            TomlValue::String(text) => parse_size(text),
            TomlValue::Float(_)
            | TomlValue::Boolean(_)
            | TomlValue::Datetime(_)
            | TomlValue::Array(_)
            | TomlValue::Table(_) => {
                self.expected(node, what, "a size in quotes or a number of bytes", example);
                return None;
            }
        };
        if size.is_none() {
            let message = format!("{} is not a size", tick(what));
            let help = format!("write a whole number and B, KiB, MiB or GiB: `{what} = {example}`");
            self.error(node.place, BadValue, message, help);
        }
        size
    }

    /// Every key that is not known here, with the one that was meant.
    pub(crate) fn unknown_keys(&mut self, table: &TomlTable, where_: &str, known: &[&str]) {
        for entry in table.entries.iter().filter(|entry| !known.contains(&entry.key.as_str())) {
            let message = format!("unknown key {} in {where_}", tick(&entry.key));
            let help = match (nearest(&entry.key, known.iter().copied()), home_of(&entry.key)) {
                (_, Some("mcpServers")) => {
                    "write `[upstreams.NAME]` for each server, or let `countersign init` import them"
                        .to_owned()
                }
                (Some(near), _) => format!("did you mean `{near}`?"),
                (None, Some(home)) => format!("`{}` belongs in `{home}`", entry.key),
                (None, None) => format!("known here: {}", choices(known)),
            };
            self.error(entry.place, UnknownKey, message, help);
        }
    }
}

fn parse_size(text: &str) -> Option<u64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at_checked(digits)?;
    let factor: u64 = match unit.trim() {
        "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(factor).filter(|bytes| *bytes > 0)
}

/// Where a key that strayed belongs.
fn home_of(key: &str) -> Option<&'static str> {
    let home = match key {
        "mode" | "surface" | "listen" | "store" | "max_mode" | "unlisted" | "agent_auth" => "[gateway]",
        "strict_server_validation" => "[intent]",
        "ttl" => "[confirm]",
        "reads" | "keep" => "[ledger]",
        "frame" | "arguments" | "header_timeout" | "idle_timeout" | "connections" | "sessions" | "drafts"
        | "notices" => "[limits]",
        "command" | "args" | "env" | "cwd" | "url" | "headers" | "bearer" | "trust" | "relist" => {
            "[upstreams.NAME]"
        }
        "run" | "input" | "background" => "[[upstreams.NAME.tools]]",
        "match" | "when" | "deny" | "allow" | "limit" | "redact" => "[[rules]]",
        "expect" => "[[tests]]",
        // Other programs' word for upstreams.
        "mcpServers" | "mcp_servers" | "servers" => "mcpServers",
        _ => return None,
    };
    Some(home)
}

/// A table being read key by key, named for messages.
pub(crate) struct SectionReader<'r, 't, 'f> {
    pub(crate) reader: &'r mut ConfigReader<'f>,
    pub(crate) table: &'t TomlTable,
}

impl<'r, 't, 'f> SectionReader<'r, 't, 'f> {
    /// Opens a table and reports every key that does not belong there.
    pub(crate) fn open(
        reader: &'r mut ConfigReader<'f>,
        table: &'t TomlTable,
        where_: &str,
        known: &[&str],
    ) -> Self {
        reader.unknown_keys(table, where_, known);
        Self { reader, table }
    }

    pub(crate) fn text(&mut self, key: &str, example: &str) -> Option<&'t str> {
        self.table.get(key).and_then(|node| self.reader.text(node, key, example))
    }

    pub(crate) fn truth(&mut self, key: &str, example: &str) -> Option<bool> {
        self.table.get(key).and_then(|node| self.reader.truth(node, key, example))
    }

    pub(crate) fn word<W: FromStr<Err = UnknownWord>>(&mut self, key: &str, example: &str) -> Option<W> {
        self.table.get(key).and_then(|node| self.reader.word(node, key, example))
    }

    pub(crate) fn span(&mut self, key: &str, example: &str) -> Option<Duration> {
        self.table.get(key).and_then(|node| self.reader.span(node, key, example))
    }

    pub(crate) fn size(&mut self, key: &str, example: &str) -> Option<u64> {
        self.table.get(key).and_then(|node| self.reader.size(node, key, example))
    }
}
