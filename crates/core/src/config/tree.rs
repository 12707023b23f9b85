//! A configuration file as a tree that remembers where everything stands, and how several files become one.
//! Later files win: tables merge key by key, anything else is replaced; `rules` of later files come first, because the
//! first match wins; `tests` are added.

use serde_json::Value as Json;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::diagnostic::{Diagnostic, Problem, Severity};
use super::source::{Files, Place};

/// A value and where it stands.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Node {
    pub(super) place: Place,
    pub(super) value: Value,
}

/// A TOML value.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    String(String),
    Integer(i64),
    Float(f64),
    Boolean(bool),
    Datetime(String),
    Array(Vec<Node>),
    Table(Table),
}

/// A table, in the order of the file.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Table {
    pub(super) entries: Vec<Entry>,
}

/// A key and its value.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Entry {
    pub(super) key: String,
    pub(super) place: Place,
    pub(super) node: Node,
}

impl Table {
    pub(super) fn entry(&self, key: &str) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.key == key)
    }

    pub(super) fn get(&self, key: &str) -> Option<&Node> {
        self.entry(key).map(|entry| &entry.node)
    }

    /// Lays a later file's table over this one.
    pub(super) fn overlay(&mut self, later: Table) {
        for entry in later.entries {
            let Some(mine) = self.entries.iter_mut().find(|mine| mine.key == entry.key) else {
                self.entries.push(entry);
                continue;
            };
            match (&mut mine.node.value, entry.node.value) {
                (Value::Table(mine), Value::Table(later)) => mine.overlay(later),
                (_, value) => {
                    *mine = Entry {
                        key: entry.key,
                        place: entry.place,
                        node: Node { place: entry.node.place, value },
                    };
                }
            }
        }
    }
}

/// What a whole file becomes: `rules` and `tests` are not merged but joined.
pub(super) fn overlay_file(whole: &mut Table, mut later: Table) {
    for (key, later_first) in [("rules", true), ("tests", false)] {
        let mine = whole.entries.iter_mut().find(|entry| entry.key == key);
        let Some(at) = later.entries.iter().position(|entry| entry.key == key) else { continue };
        if let Some(Entry { node: Node { value: Value::Array(mine), .. }, .. }) = mine
            && let Some(Entry { node: Node { value: Value::Array(more), .. }, .. }) =
                later.entries.get_mut(at)
        {
            let index = if later_first { 0 } else { mine.len() };
            mine.splice(index..index, std::mem::take(more));
            later.entries.remove(at);
        }
    }
    whole.overlay(later);
}

impl Node {
    /// The text, where it is one.
    pub(super) fn as_text(&self) -> Option<&str> {
        if let Value::String(text) = &self.value { Some(text) } else { None }
    }

    /// The items, where it is a list.
    pub(super) fn as_items(&self) -> Option<&[Node]> {
        if let Value::Array(items) = &self.value { Some(items) } else { None }
    }

    /// The table, where it is one.
    pub(super) fn as_table(&self) -> Option<&Table> {
        if let Value::Table(table) = &self.value { Some(table) } else { None }
    }

    /// What it is, for messages.
    pub(super) fn kind(&self) -> &'static str {
        match &self.value {
            Value::String(_) => "a string",
            Value::Integer(_) => "an integer",
            Value::Float(_) => "a number",
            Value::Boolean(true) => "`true`",
            Value::Boolean(false) => "`false`",
            Value::Datetime(_) => "a date",
            Value::Array(_) => "a list",
            Value::Table(_) => "a table",
        }
    }

    /// As JSON. Dates become text; what JSON can't say becomes null, which the strict check then refuses.
    pub(super) fn to_json(&self) -> Json {
        match &self.value {
            Value::String(text) | Value::Datetime(text) => Json::String(text.clone()),
            Value::Integer(number) => Json::from(*number),
            Value::Float(number) => serde_json::Number::from_f64(*number).map_or(Json::Null, Json::Number),
            Value::Boolean(truth) => Json::Bool(*truth),
            Value::Array(items) => Json::Array(items.iter().map(Node::to_json).collect()),
            Value::Table(table) => Json::Object(table.to_json()),
        }
    }
}

impl Table {
    pub(super) fn to_json(&self) -> serde_json::Map<String, Json> {
        self.entries.iter().map(|entry| (entry.key.clone(), entry.node.to_json())).collect()
    }
}

/// So many places that are not TOML are reported.
const MOST_BREAKS: usize = 20;

/// Reads one file. What can be read is in the tree even where something is wrong.
pub(super) fn read(files: &Files, file: usize, found: &mut Vec<Diagnostic>) -> Table {
    let text = files.all().get(file).map_or("", |source| source.text.as_str());
    let (document, errors) = DeTable::parse_recoverable(text);
    // What is no TOML at all has a mistake in every line: the first ones say enough.
    for error in errors.into_iter().take(MOST_BREAKS) {
        let span = error.span().unwrap_or(0..0);
        let place = Place { file, start: span.start, end: span.end };
        found.push(syntax(files, place, error.message()));
    }
    Planter { files, file, found }.table(document.get_ref())
}

fn syntax(files: &Files, place: Place, message: &str) -> Diagnostic {
    let error = Severity::Error;
    if message == "duplicate key" {
        let text = files.all().get(place.file).and_then(|source| source.text.get(place.start..place.end));
        let message = format!("the key `{}` is written twice", text.unwrap_or_default());
        let help = "keep one of the two; a table is opened by one `[header]` only".to_owned();
        return files.diagnostic(place, error, Problem::DuplicateKey, message, help);
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
    files.diagnostic(place, error, Problem::Syntax, format!("not TOML: {message}"), help.map(str::to_owned))
}

struct Planter<'a> {
    files: &'a Files,
    file: usize,
    found: &'a mut Vec<Diagnostic>,
}

impl Planter<'_> {
    fn place<T>(&self, spanned: &Spanned<T>) -> Place {
        let span = spanned.span();
        Place { file: self.file, start: span.start, end: span.end }
    }

    fn table(&mut self, table: &DeTable<'_>) -> Table {
        let mut entries: Vec<Entry> = Vec::new();
        for (key, value) in table {
            if let Some(node) = self.node(value) {
                entries.push(Entry { key: key.get_ref().to_string(), place: self.place(key), node });
            }
        }
        entries.sort_by_key(|entry| entry.place.start);
        Table { entries }
    }

    fn node(&mut self, spanned: &Spanned<DeValue<'_>>) -> Option<Node> {
        let place = self.place(spanned);
        let value = match spanned.get_ref() {
            DeValue::String(text) => Value::String(text.to_string()),
            DeValue::Integer(number) => match i64::from_str_radix(number.as_str(), number.radix()) {
                Ok(number) => Value::Integer(number),
                Err(_) => return self.too_large(place),
            },
            DeValue::Float(number) => match number.as_str().parse::<f64>() {
                Ok(real) if real.is_finite() => Value::Float(real),
                Ok(_) | Err(_) => return self.too_large(place),
            },
            DeValue::Boolean(truth) => Value::Boolean(*truth),
            DeValue::Datetime(moment) => Value::Datetime(moment.to_string()),
            DeValue::Array(items) => Value::Array(items.iter().filter_map(|item| self.node(item)).collect()),
            DeValue::Table(table) => Value::Table(self.table(table)),
        };
        Some(Node { place, value })
    }

    fn too_large(&mut self, place: Place) -> Option<Node> {
        let message = "the number does not fit: whole numbers have 64 bits, others must be finite";
        let help = "write a smaller number, or the text of it in quotes".to_owned();
        self.found.push(self.files.diagnostic(place, Severity::Error, Problem::BadValue, message, help));
        None
    }
}
