//! A configuration file as a tree that remembers where everything stands, and how several files become one.
//! Later files win: tables merge key by key, anything else is replaced; `rules` of later files come first, because the
//! first match wins; `tests` are added.

use serde_json::Value as Json;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::diagnostic::DiagnosticKind::{BadValue, DuplicateKey, Syntax};
use super::diagnostic::{Diagnostic, DiagnosticSeverity};
use super::source::SourceFiles;
use countersign_policy::command_template::Place;

/// A value and where it stands.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TomlNode {
    pub(crate) place: Place,
    pub(crate) value: TomlValue,
}

/// A TOML value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum TomlValue {
    String(String),
    Integer(i64),
    Float(f64),
    Boolean(bool),
    Datetime(String),
    Array(Vec<TomlNode>),
    Table(TomlTable),
}

/// A table, in the order of the file.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct TomlTable {
    pub(crate) entries: Vec<TomlEntry>,
}

/// A key and its value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TomlEntry {
    pub(crate) key: String,
    pub(crate) place: Place,
    pub(crate) node: TomlNode,
}

impl TomlTable {
    pub(crate) fn entry(&self, key: &str) -> Option<&TomlEntry> {
        self.entries.iter().find(|entry| entry.key == key)
    }

    pub(crate) fn get(&self, key: &str) -> Option<&TomlNode> {
        self.entry(key).map(|entry| &entry.node)
    }

    /// Lays a later file's table over this one.
    pub(crate) fn overlay(&mut self, later: TomlTable) {
        for entry in later.entries {
            let Some(mine) = self.entries.iter_mut().find(|mine| mine.key == entry.key) else {
                self.entries.push(entry);
                continue;
            };
            match (&mut mine.node.value, entry.node.value) {
                (TomlValue::Table(mine), TomlValue::Table(later)) => mine.overlay(later),
                (_, value) => {
                    *mine = TomlEntry {
                        key: entry.key,
                        place: entry.place,
                        node: TomlNode { place: entry.node.place, value },
                    };
                }
            }
        }
    }
}

/// What a whole file becomes: `rules` and `tests` are not merged but joined.
pub(crate) fn overlay_file(whole: &mut TomlTable, mut later: TomlTable) {
    for (key, later_first) in [("rules", true), ("tests", false)] {
        let mine = whole.entries.iter_mut().find(|entry| entry.key == key);
        let Some(at) = later.entries.iter().position(|entry| entry.key == key) else { continue };
        if let Some(TomlEntry { node: TomlNode { value: TomlValue::Array(mine), .. }, .. }) = mine
            && let Some(TomlEntry { node: TomlNode { value: TomlValue::Array(more), .. }, .. }) =
                later.entries.get_mut(at)
        {
            let index = if later_first { 0 } else { mine.len() };
            mine.splice(index..index, std::mem::take(more));
            later.entries.remove(at);
        }
    }
    whole.overlay(later);
}

impl TomlNode {
    /// The text, where it is one.
    pub(crate) fn as_text(&self) -> Option<&str> {
        if let TomlValue::String(text) = &self.value { Some(text) } else { None }
    }

    pub(crate) fn as_integer(&self) -> Option<i64> {
        if let TomlValue::Integer(number) = self.value { Some(number) } else { None }
    }

    /// The items, where it is a list.
    pub(crate) fn as_items(&self) -> Option<&[TomlNode]> {
        if let TomlValue::Array(items) = &self.value { Some(items) } else { None }
    }

    /// The table, where it is one.
    pub(crate) fn as_table(&self) -> Option<&TomlTable> {
        if let TomlValue::Table(table) = &self.value { Some(table) } else { None }
    }

    pub(crate) fn kind(&self) -> &'static str {
        match &self.value {
            TomlValue::String(_) => "a string",
            TomlValue::Integer(_) => "an integer",
            TomlValue::Float(_) => "a number",
            TomlValue::Boolean(true) => "`true`",
            TomlValue::Boolean(false) => "`false`",
            TomlValue::Datetime(_) => "a date",
            TomlValue::Array(_) => "a list",
            TomlValue::Table(_) => "a table",
        }
    }

    /// As JSON. Dates become text; what JSON can't say becomes null, which the strict check then refuses.
    pub(crate) fn to_json(&self) -> Json {
        match &self.value {
            TomlValue::String(text) | TomlValue::Datetime(text) => Json::String(text.clone()),
            TomlValue::Integer(number) => Json::from(*number),
            TomlValue::Float(number) => {
                serde_json::Number::from_f64(*number).map_or(Json::Null, Json::Number)
            }
            TomlValue::Boolean(truth) => Json::Bool(*truth),
            TomlValue::Array(items) => Json::Array(items.iter().map(TomlNode::to_json).collect()),
            TomlValue::Table(table) => Json::Object(table.to_json()),
        }
    }
}

impl TomlTable {
    pub(crate) fn to_json(&self) -> serde_json::Map<String, Json> {
        self.entries.iter().map(|entry| (entry.key.clone(), entry.node.to_json())).collect()
    }
}

/// So many places that are not TOML are reported.
const MOST_BREAKS: usize = 20;

/// Reads one file. What can be read is in the tree even where something is wrong.
pub(crate) fn read(files: &SourceFiles, file: usize, found: &mut Vec<Diagnostic>) -> TomlTable {
    let text = files.all().get(file).map_or("", |source| source.text.as_str());
    let (document, errors) = DeTable::parse_recoverable(text);
    // What is no TOML at all has a mistake in every line: the first ones say enough.
    for error in errors.into_iter().take(MOST_BREAKS) {
        let span = error.span().unwrap_or(0..0);
        let place = Place { file, start: span.start, end: span.end };
        found.push(syntax(files, place, error.message()));
    }
    TomlTreeBuilder { files, file, found }.table(document.get_ref())
}

fn syntax(files: &SourceFiles, place: Place, message: &str) -> Diagnostic {
    let error = DiagnosticSeverity::Error;
    if message == "duplicate key" {
        let text = files.all().get(place.file).and_then(|source| source.text.get(place.start..place.end));
        let message = format!("the key `{}` is written twice", text.unwrap_or_default());
        let help = "keep one of the two; a table is opened by one `[header]` only".to_owned();
        return files.diagnostic(place, error, DuplicateKey, message, help);
    }
    let help = match message {
        _ if message.contains("must be quoted") => Some("write text in quotes: `key = \"value\"`"),
        _ if message.contains("key with no value") => Some("write `key = value`; a comment starts with `#`"),
        _ if message.contains("unclosed table") => {
            Some("close the header: `[name]`, or `[[name]]` for one of several")
        }
        _ if message.contains("string") => Some("close the string with the quote that opened it"),
        _ => None,
    };
    files.diagnostic(place, error, Syntax, format!("not TOML: {message}"), help.map(str::to_owned))
}

struct TomlTreeBuilder<'a> {
    files: &'a SourceFiles,
    file: usize,
    found: &'a mut Vec<Diagnostic>,
}

impl TomlTreeBuilder<'_> {
    fn place<T>(&self, spanned: &Spanned<T>) -> Place {
        let span = spanned.span();
        Place { file: self.file, start: span.start, end: span.end }
    }

    fn table(&mut self, table: &DeTable<'_>) -> TomlTable {
        let mut entries: Vec<TomlEntry> = Vec::new();
        for (key, value) in table {
            if let Some(node) = self.node(value) {
                entries.push(TomlEntry { key: key.get_ref().to_string(), place: self.place(key), node });
            }
        }
        entries.sort_by_key(|entry| entry.place.start);
        TomlTable { entries }
    }

    fn node(&mut self, spanned: &Spanned<DeValue<'_>>) -> Option<TomlNode> {
        let place = self.place(spanned);
        let value = match spanned.get_ref() {
            DeValue::String(text) => TomlValue::String(text.to_string()),
            DeValue::Integer(number) => match i64::from_str_radix(number.as_str(), number.radix()) {
                Ok(number) => TomlValue::Integer(number),
                Err(_) => return self.too_large(place),
            },
            DeValue::Float(number) => match number.as_str().parse::<f64>() {
                Ok(real) if real.is_finite() => TomlValue::Float(real),
                Ok(_) | Err(_) => return self.too_large(place),
            },
            DeValue::Boolean(truth) => TomlValue::Boolean(*truth),
            DeValue::Datetime(moment) => TomlValue::Datetime(moment.to_string()),
            DeValue::Array(items) => {
                TomlValue::Array(items.iter().filter_map(|item| self.node(item)).collect())
            }
            DeValue::Table(table) => TomlValue::Table(self.table(table)),
        };
        Some(TomlNode { place, value })
    }

    fn too_large(&mut self, place: Place) -> Option<TomlNode> {
        let message = "the number does not fit: whole numbers have 64 bits, others must be finite";
        let help = "write a smaller number, or the text of it in quotes".to_owned();
        self.found.push(self.files.diagnostic(place, DiagnosticSeverity::Error, BadValue, message, help));
        None
    }
}
