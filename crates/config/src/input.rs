//! `input = { name = { type = "string", … } }`: what a command tool takes, as a JSON Schema with two words of our own.
//! Required unless it has a default or is `optional = true`. Checks no argument: that is the gate's.

use serde_json::{Map, Value as Json};

use super::config_reader::{ConfigReader, SectionReader};
use super::diagnostic::DiagnosticKind::{BadValue, Conflict};
use super::diagnostic::tick;
use super::tree::{TomlEntry, TomlNode, TomlTable, TomlValue};
use countersign_policy::strict_json;
use countersign_policy::words::words;

/// Whether a call has to bring an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InputPresence {
    Required,
    /// It may; its default holds otherwise.
    Defaulted,
    /// It may; what depends on it disappears otherwise.
    Optional,
}

/// Whether an input is one value or several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InputShape {
    Single,
    List,
}

/// Whether a value may look like a flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeadingDash {
    /// A value that starts with `-` is refused.
    Refused,
    /// The tool copes with it.
    Allowed,
}

words! {
    /// The types of inputs.
    pub enum InputType("type") {
        String = "string",
        Integer = "integer",
        Number = "number",
        Boolean = "boolean",
        Array = "array",
        /// An object, filled in as JSON.
        Object = "object",
    }
}

/// What a command tool takes.
#[derive(Clone, Debug, PartialEq)]
pub struct CommandInput {
    pub name: String,
    pub kind: InputType,
    pub presence: InputPresence,
    pub shape: InputShape,
    /// Whether it may start with `-`.
    pub leading_dash: LeadingDash,
    pub schema: Map<String, Json>,
}

const KEYS: [&str; 24] = [
    "type",
    "title",
    "description",
    "pattern",
    "format",
    "enum",
    "const",
    "default",
    "examples",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "minLength",
    "maxLength",
    "items",
    "minItems",
    "maxItems",
    "uniqueItems",
    "properties",
    "required",
    "optional",
    "leading_dash",
];

pub(crate) fn read_all(reader: &mut ConfigReader<'_>, table: &TomlTable) -> Vec<CommandInput> {
    let Some(node) = table.get("input") else { return Vec::new() };
    let Some(table) = reader.table(node, "input", "{ name = { type = \"string\" } }") else {
        return Vec::new();
    };
    table.entries.iter().filter_map(|entry| read(reader, entry)).collect()
}

fn read(reader: &mut ConfigReader<'_>, entry: &TomlEntry) -> Option<CommandInput> {
    let name = entry.key.as_str();
    let starts = name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_');
    if !starts || !name.chars().all(|one| one.is_ascii_alphanumeric() || one == '_' || one == '-') {
        let help = "write letters, digits, `_` and `-`, a letter first";
        reader.error(entry.place, BadValue, format!("{} is no name for an input", tick(name)), help);
    }
    let table = reader.table(&entry.node, name, "{ type = \"string\" }")?;
    let mut section = SectionReader::open(reader, table, &format!("input `{name}`"), &KEYS);
    let kind = section.word("type", "\"string\"").unwrap_or(InputType::String);
    let optional = section.truth("optional", "true");
    let leading_dash = match section.truth("leading_dash", "true") {
        Some(true) => LeadingDash::Allowed,
        Some(false) | None => LeadingDash::Refused,
    };
    let default = table.get("default");
    if let Some(node) = default.filter(|_| optional == Some(true)) {
        let message = format!("input `{name}` is optional and has a default");
        reader.error(node.place, Conflict, message, "keep one: with a default it is never absent");
    }
    check_pattern(reader, table);
    check_strict(reader, table);
    let mut schema = table.to_json();
    schema.retain(|key, _| key != "optional" && key != "leading_dash");
    schema.insert("type".into(), kind.as_str().into());
    Some(CommandInput {
        name: name.to_owned(),
        kind,
        presence: match (default, optional) {
            (Some(_), _) => InputPresence::Defaulted,
            (None, Some(true)) => InputPresence::Optional,
            (None, Some(false) | None) => InputPresence::Required,
        },
        shape: if kind == InputType::Array { InputShape::List } else { InputShape::Single },
        leading_dash,
        schema,
    })
}

fn check_pattern(reader: &mut ConfigReader<'_>, table: &TomlTable) {
    let Some(node) = table.get("pattern") else { return };
    let Some(pattern) = reader.text(node, "pattern", "\"^[a-z-]+$\"") else { return };
    // Classes by Unicode property are left to the schema's own compiler: this build of the engine does not know them.
    if pattern.contains("\\p") || pattern.contains("\\P") {
        return;
    }
    if let Err(error) = regex::Regex::new(pattern) {
        let why =
            error.to_string().lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned();
        let message = format!("{} is not a pattern: {why}", tick(pattern));
        reader.error(node.place, BadValue, message, "write `pattern = \"^[a-z-]+$\"`");
    }
}

/// What a schema says has to survive being JSON.
fn check_strict(reader: &mut ConfigReader<'_>, table: &TomlTable) {
    for entry in &table.entries {
        check_json(reader, &entry.node, &entry.key);
    }
}

/// Refuses a value that would change on its way through JSON.
pub(crate) fn check_json(reader: &mut ConfigReader<'_>, node: &TomlNode, what: &str) -> Option<Json> {
    if let TomlValue::Datetime(_) = node.value {
        reader.expected(node, what, "a value JSON has", "\"2026-01-01\"");
        return None;
    }
    let json = node.to_json();
    match strict_json::check(&json) {
        Ok(()) => Some(json),
        Err(error) => {
            let message = format!("{} would change on its way through JSON: {error}", tick(what));
            reader.error(node.place, BadValue, message, "write it as text, in quotes");
            None
        }
    }
}
