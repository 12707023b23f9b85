//! Tool arguments, read strictly: names a field that is unknown, too long or of the wrong type. Takes snake case for camel case, because
//! models mix them.

use std::str::FromStr;

use countersign_policy::call::Arguments;
use countersign_policy::memory::Scope;
use countersign_policy::nearest::nearest;
use countersign_policy::words::UnknownWord;
use serde_json::{Map, Value};

use crate::error::{MemoryError, MemoryResult};

/// The longest text, in bytes.
pub(crate) const LONGEST_TEXT: usize = 4 * 1024 * 1024;
/// The longest path, in bytes.
pub(crate) const LONGEST_PATH: usize = 1024;
/// The longest name, in bytes.
pub(crate) const LONGEST_NAME: usize = 256;

pub(crate) struct MemoryArguments<'a> {
    fields: Map<String, Value>,
    known: &'a [&'a str],
}

impl<'a> MemoryArguments<'a> {
    /// Takes the arguments of a tool that knows these.
    pub(crate) fn read(arguments: &Map<String, Value>, known: &'a [&'a str]) -> MemoryResult<Self> {
        let mut fields = Map::new();
        for (name, value) in arguments {
            let plain = camel(name);
            if !known.contains(&plain.as_str()) {
                let near = nearest(&plain, known.iter().copied());
                let hint = near.map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
                return Err(MemoryError::field(name, format!("unknown argument `{}`{hint}", short(name))));
            }
            if fields.insert(plain, value.clone()).is_some() {
                return Err(MemoryError::field(name, format!("`{}` is given twice", short(name))));
            }
        }
        Ok(Self { fields, known })
    }

    /// A text, trimmed of nothing; none where it is absent or empty.
    pub(crate) fn text(&self, name: &str, longest: usize) -> MemoryResult<Option<&str>> {
        debug_assert!(self.known.contains(&name), "{name}");
        match self.fields.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) if text.len() > longest => {
                Err(MemoryError::field(name, format!("{name} is longer than {longest} bytes")))
            }
            Some(Value::String(text)) => Ok(Some(text.as_str()).filter(|text| !text.trim().is_empty())),
            Some(Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => {
                Err(MemoryError::field(name, format!("{name} must be a string")))
            }
        }
    }

    /// A text that has to be there.
    pub(crate) fn required(&self, name: &str, longest: usize) -> MemoryResult<&str> {
        self.text(name, longest)?.ok_or_else(|| MemoryError::field(name, format!("{name} is required")))
    }

    /// A text, empty where it is absent.
    pub(crate) fn or_empty(&self, name: &str, longest: usize) -> MemoryResult<String> {
        Ok(self.text(name, longest)?.unwrap_or_default().to_owned())
    }

    pub(crate) fn word<T: FromStr<Err = UnknownWord>>(&self, name: &str) -> MemoryResult<Option<T>> {
        let Some(text) = self.text(name, LONGEST_NAME)? else { return Ok(None) };
        text.parse().map(Some).map_err(|unknown: UnknownWord| {
            MemoryError::field(name, format!("{name} must be {}", unknown.expected))
                .with("given", short(text))
        })
    }

    /// A whole number from 1 to `most`.
    pub(crate) fn count(&self, name: &str, usual: u32, most: u32) -> MemoryResult<u32> {
        match self.fields.get(name) {
            None | Some(Value::Null) => Ok(usual),
            Some(value) => match value.as_u64().and_then(|number| u32::try_from(number).ok()) {
                Some(number) if (1..=most).contains(&number) => Ok(number),
                _ => Err(MemoryError::field(name, format!("{name} must be a whole number from 1 to {most}"))),
            },
        }
    }

    /// A number from 0 to 1, in thousandths.
    pub(crate) fn fraction(&self, name: &str) -> MemoryResult<Option<u32>> {
        match self.fields.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => match value.as_f64() {
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "between 0 and 1000"
                )]
                Some(number) if (0.0..=1.0).contains(&number) => Ok(Some((number * 1000.0).round() as u32)),
                _ => Err(MemoryError::field(name, format!("{name} must be a number from 0 to 1"))),
            },
        }
    }

    pub(crate) fn labels(&self, name: &str) -> MemoryResult<Vec<String>> {
        let bad = || MemoryError::field(name, format!("{name} must be a list of at most 32 short strings"));
        match self.fields.get(name) {
            None | Some(Value::Null) => Ok(Vec::new()),
            Some(Value::Array(items)) if items.len() <= 32 => items
                .iter()
                .map(|item| item.as_str().filter(|text| text.len() <= 100).map(str::to_owned).ok_or_else(bad))
                .collect(),
            Some(_) => Err(bad()),
        }
    }

    /// An object, as it is; empty where it is absent.
    pub(crate) fn object(&self, name: &str) -> MemoryResult<Map<String, Value>> {
        match self.fields.get(name) {
            None | Some(Value::Null) => Ok(Map::new()),
            Some(Value::Object(members)) if Value::Object(members.clone()).to_string().len() <= 65_536 => {
                Ok(members.clone())
            }
            Some(_) => Err(MemoryError::field(name, format!("{name} must be an object of at most 64 KiB"))),
        }
    }

    /// Scope and path; a path without a scope means a file. None where neither is given.
    pub(crate) fn place(&self) -> MemoryResult<Option<(Scope, String)>> {
        place(self.word::<Scope>("scope")?, self.text("scopePath", LONGEST_PATH)?)
    }
}

/// Where something holds, from what was said; none where nothing was.
pub fn place(scope: Option<Scope>, path: Option<&str>) -> MemoryResult<Option<(Scope, String)>> {
    match (scope, path) {
        (None, None) => Ok(None),
        (Some(Scope::Palace), None) => Ok(Some((Scope::Palace, String::new()))),
        (Some(Scope::Palace), Some(_)) => {
            Err(MemoryError::field("scopePath", "scopePath is for the scopes file and room"))
        }
        (Some(Scope::File) | None, Some(path)) => Ok(Some((Scope::File, file_path(path)?))),
        (Some(Scope::Room), Some(path)) => Ok(Some((Scope::Room, path.trim().to_owned()))),
        (Some(scope @ (Scope::File | Scope::Room)), None) => {
            Err(MemoryError::field("scopePath", format!("scopePath is required for scope {scope}")))
        }
    }
}

impl MemoryError {
    fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.0.details.insert(name.to_owned(), value.into());
        self
    }
}

/// A path inside the project, in one spelling: forward slashes, no `.`, no way out.
pub(crate) fn file_path(path: &str) -> MemoryResult<String> {
    let mut parts: Vec<&str> = Vec::new();
    let slashed = path.trim().replace('\\', "/");
    if slashed.starts_with('/') || slashed.get(1..3) == Some(":/") {
        return Err(MemoryError::field("path", "the path must be relative to the project"));
    }
    for part in slashed.split('/') {
        match part {
            "" | "." => {}
            ".." => return Err(MemoryError::field("path", "the path must stay inside the project")),
            other => parts.push(other),
        }
    }
    if parts.is_empty() {
        return Err(MemoryError::field("path", "the path names no file"));
    }
    Ok(parts.join("/"))
}

/// The arguments as the schema has them: models write snake case for camel case, and `null` for what they leave out.
pub(crate) fn normalized(arguments: Arguments, known: &[&str]) -> Arguments {
    let given = arguments.value().clone();
    given.iter().fold(arguments, |arguments, (name, value)| {
        let plain = camel(name);
        if value.is_null() {
            return arguments.without(name);
        }
        if plain != *name && known.contains(&plain.as_str()) && !given.contains_key(&plain) {
            return arguments.without(name).with(&plain, value.clone());
        }
        arguments
    })
}

fn camel(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    let mut raise = false;
    for c in name.chars() {
        match c {
            '_' if !out.is_empty() => raise = true,
            c if raise => {
                out.extend(c.to_uppercase());
                raise = false;
            }
            c => out.push(c),
        }
    }
    out
}

fn short(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(64).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_has_one_spelling_and_no_way_out() {
        assert_eq!(file_path("./src//auth\\mod.rs").unwrap(), "src/auth/mod.rs");
        for bad in ["../x", "a/../../x", "/etc/passwd", "C:/x", "C:\\x", ".", ""] {
            assert!(file_path(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        let check = |value: Value, expect: &str| {
            let fields = value.as_object().unwrap().clone();
            let read = MemoryArguments::read(&fields, &["content", "scope", "scopePath", "limit"]);
            let said = read.and_then(|given| {
                given.required("content", 10)?;
                given.place()?;
                given.count("limit", 10, 50)
            });
            let message = said.err().map(|MemoryError(refusal)| refusal.message).unwrap_or_default();
            assert_eq!(message, expect);
        };
        use serde_json::json;
        check(json!({}), "content is required");
        check(json!({"content": "  "}), "content is required");
        check(json!({"content": 3}), "content must be a string");
        check(json!({"content": "12345678901"}), "content is longer than 10 bytes");
        check(json!({"contents": "x"}), "unknown argument `contents`; did you mean `content`?");
        check(json!({"content": "x", "scope": "file"}), "scopePath is required for scope file");
        check(json!({"content": "x", "scope": "house"}), "scope must be file, room, or palace");
        check(json!({"content": "x", "scope_path": "../a"}), "the path must stay inside the project");
        check(json!({"content": "x", "limit": 0}), "limit must be a whole number from 1 to 50");
        check(json!({"content": "x", "scope_path": "a", "scopePath": "b"}), "`scopePath` is given twice");
        check(json!({"content": "x", "scope_path": "a/b", "limit": 50}), "");
    }
}
