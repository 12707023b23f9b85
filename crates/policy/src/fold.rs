//! Case folding of JSON member names. Go, .NET and others read `Name` where `name` is meant, so two names that fold to one
//! text are refused wherever a call is read. Values are never folded, and nothing is ever rewritten.

use std::borrow::Cow;
use std::collections::HashSet;

use serde_json::{Map, Value};

/// A member name as a reader that folds case would see it.
///
/// Each character is upper-cased and then lower-cased where the result is one character: the simple case folding of Unicode,
/// with U+017F, U+212A, U+0130 and U+0131 included. The name ends at its first NUL, where readers of C strings stop.
pub fn folded(name: &str) -> Cow<'_, str> {
    if is_folded(name) {
        return Cow::Borrowed(name);
    }
    Cow::Owned(name.chars().take_while(|c| *c != '\0').map(folded_char).collect())
}

/// Whether a name folds to itself without a look at Unicode's tables.
fn is_folded(name: &str) -> bool {
    name.bytes().all(|byte| byte.is_ascii() && !byte.is_ascii_uppercase() && byte != 0)
}

fn folded_char(c: char) -> char {
    let mut upper = c.to_uppercase();
    let upper = match (upper.next(), upper.next()) {
        (Some(one), None) => one,
        (_, _) => c,
    };
    // Only U+0130 has more than one character here, and its first is what folding readers take it for.
    upper.to_lowercase().next().unwrap_or(upper)
}

/// The known name that `name` folds onto without being it.
pub fn lookalike<'k>(name: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    let mut own = None;
    known
        .into_iter()
        .find(|known| *known != name && *own.get_or_insert_with(|| folded(name)) == folded(known))
}

/// Collects names of one object and finds two that fold to one text. Equal names count, too.
#[derive(Debug, Default)]
pub struct NameSet<'n> {
    few: Vec<Cow<'n, str>>,
    many: HashSet<Cow<'n, str>>,
}

/// How many names are compared one by one: looking is faster than hashing in a small object.
const FEW: usize = 8;

impl<'n> NameSet<'n> {
    /// Adds a name; false where it folds onto one that is there already.
    pub fn add(&mut self, name: &'n str) -> bool {
        self.add_folded(folded(name))
    }

    /// Adds a name that was decoded on the way.
    pub fn add_cow(&mut self, name: Cow<'n, str>) -> bool {
        self.add_folded(match name {
            Cow::Borrowed(name) => folded(name),
            Cow::Owned(name) => Cow::Owned(folded(&name).into_owned()),
        })
    }

    fn add_folded(&mut self, name: Cow<'n, str>) -> bool {
        if self.many.is_empty() && self.few.len() < FEW {
            let is_new = !self.few.contains(&name);
            self.few.push(name);
            return is_new;
        }
        self.many.extend(self.few.drain(..));
        self.many.insert(name)
    }
}

/// The first name of the object that folds onto another of its names. Looks at this object alone.
pub fn colliding(members: &Map<String, Value>) -> Option<&str> {
    // Names that fold to themselves are distinct already.
    if members.len() < 2 || members.keys().all(|name| is_folded(name)) {
        return None;
    }
    let mut names = NameSet::default();
    members.keys().map(String::as_str).find(|name| !names.add(name))
}

/// The first name at any depth that folds onto another of its object.
pub fn colliding_within(members: &Map<String, Value>) -> Option<&str> {
    colliding(members).or_else(|| members.values().find_map(colliding_inside))
}

fn colliding_inside(value: &Value) -> Option<&str> {
    match value {
        Value::Object(members) => colliding_within(members),
        Value::Array(items) => items.iter().find_map(colliding_inside),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    }
}

/// An argument name that folds onto a property of the schema without being one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lookalike {
    pub path: String,
    pub property: String,
}

/// Subschemas looked at for one object. A schema of an upstream that hides properties behind more only misleads itself.
const MOST_SCHEMAS: usize = 1_000;

/// The first argument, at any depth the schema describes, whose name folds onto a property without being it.
pub fn schema_lookalike(schema: &Value, arguments: &Map<String, Value>) -> Option<Lookalike> {
    SchemaWalker { root: schema }.object(&[schema], arguments, "")
}

struct SchemaWalker<'s> {
    root: &'s Value,
}

impl<'s> SchemaWalker<'s> {
    fn object(&self, schemas: &[&'s Value], members: &Map<String, Value>, path: &str) -> Option<Lookalike> {
        let schemas = self.expanded(schemas);
        let known = || schemas.iter().filter_map(|schema| schema.get("properties")?.as_object());
        for (name, value) in members {
            let is_known = known().any(|properties| properties.contains_key(name));
            let here = || if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
            if !is_known
                && let Some(property) =
                    known().find_map(|all| lookalike(name, all.keys().map(String::as_str)))
            {
                return Some(Lookalike { path: here(), property: property.to_owned() });
            }
            if !is_nested(value) {
                continue;
            }
            let named = known().filter_map(|properties| properties.get(name));
            let other = schemas.iter().filter_map(|schema| schema.get("additionalProperties"));
            let inner: Vec<&Value> = if is_known { named.collect() } else { other.collect() };
            if let Some(found) = self.value(&inner, value, &here()) {
                return Some(found);
            }
        }
        None
    }

    fn value(&self, schemas: &[&'s Value], value: &Value, path: &str) -> Option<Lookalike> {
        match value {
            Value::Object(members) => self.object(schemas, members, path),
            Value::Array(items) => {
                let schemas = self.expanded(schemas);
                let every: Vec<&Value> = schemas.iter().filter_map(|schema| schema.get("items")).collect();
                items.iter().enumerate().filter(|(_, item)| is_nested(item)).find_map(|(index, item)| {
                    let own = schemas.iter().filter_map(|schema| schema.get("prefixItems")?.get(index));
                    let inner: Vec<&Value> = every.iter().copied().chain(own).collect();
                    self.value(&inner, item, &format!("{path}.{index}"))
                })
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
        }
    }

    /// The schemas with everything they are composed of, each once.
    fn expanded(&self, schemas: &[&'s Value]) -> Vec<&'s Value> {
        let mut all: Vec<&'s Value> = Vec::new();
        let mut open: Vec<&'s Value> = schemas.to_vec();
        while let Some(schema) = open.pop() {
            if all.len() >= MOST_SCHEMAS || all.iter().any(|known| std::ptr::eq(*known, schema)) {
                continue;
            }
            all.push(schema);
            for name in ["allOf", "anyOf", "oneOf"] {
                open.extend(schema.get(name).and_then(Value::as_array).into_iter().flatten());
            }
            open.extend(["if", "then", "else"].iter().filter_map(|name| schema.get(*name)));
            let local = schema.get("$ref").and_then(Value::as_str).and_then(|to| to.strip_prefix('#'));
            open.extend(local.and_then(|pointer| self.root.pointer(pointer)));
        }
        all
    }
}

fn is_nested(value: &Value) -> bool {
    matches!(value, Value::Object(_) | Value::Array(_))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn names_fold_as_readers_that_ignore_case_fold_them() {
        for (name, expect) in [
            ("name", "name"),
            ("NAME", "name"),
            ("\u{17f}cope", "scope"),
            ("to\u{212a}en", "token"),
            ("name\0", "name"),
            ("name\0\0", "name"),
            ("name\0x", "name"),
            ("f\u{131}le", "file"),
            ("F\u{130}LE", "file"),
            ("\u{3a3}", "\u{3c3}"),
            ("\u{3c2}", "\u{3c3}"),
            ("\u{2126}", "\u{3c9}"),
            ("\u{1e9e}", "\u{df}"),
            ("stra\u{df}e", "stra\u{df}e"),
        ] {
            assert_eq!(folded(name), expect, "{name:?}");
        }
    }

    #[test]
    fn folding_twice_is_folding_once_for_every_character() {
        for c in '\u{1}'..=char::MAX {
            let once = folded_char(c);
            assert_eq!(folded_char(once), once, "{c:?}");
            let one = |mut cases: Box<dyn Iterator<Item = char>>| match (cases.next(), cases.next()) {
                (Some(one), None) => one,
                (_, _) => c,
            };
            assert_eq!(folded_char(one(Box::new(c.to_lowercase()))), once, "{c:?} and its lower case");
            assert_eq!(folded_char(one(Box::new(c.to_uppercase()))), once, "{c:?} and its upper case");
        }
    }

    #[test]
    fn attack_03_colliding_names_are_found_at_any_depth() {
        let found = |value: Value| colliding_within(value.as_object().unwrap()).map(str::to_owned);
        assert_eq!(found(json!({"a": {"b": 1, "c": [{"x": 1, "y": 2}]}})), None);
        assert_eq!(found(json!({"scope": 1, "\u{17f}cope": 2})).as_deref(), Some("\u{17f}cope"));
        assert!(found(json!({"a": {"b": [1, {"x": 1, "X": 2}]}})).is_some());
        assert!(found(json!({"key": 1, "\u{212a}ey": 2})).is_some());
        assert!(found(json!({"key": 1, "key\0": 2})).is_some());
        let mut many: Map<String, Value> = (0..100).map(|n| (format!("k{n}"), json!(n))).collect();
        assert_eq!(colliding(&many), None);
        many.insert("K42".into(), json!(0));
        assert!(colliding(&many).is_some());
    }

    #[test]
    fn attack_03_names_that_fold_onto_a_schema_property_are_found() {
        let schema = json!({
            "properties": {
                "scope": {"type": "string"},
                "inner": {"$ref": "#/$defs/inner"},
                "list": {"items": {"properties": {"path": {}}}},
            },
            "anyOf": [{"properties": {"other": {}}}],
            "additionalProperties": {"properties": {"deep": {}}},
            "$defs": {"inner": {"properties": {"name": {}, "again": {"$ref": "#/$defs/inner"}}}},
        });
        let found = |arguments: Value| {
            schema_lookalike(&schema, arguments.as_object().unwrap())
                .map(|found| (found.path, found.property))
        };
        let pair = |path: &str, property: &str| Some((path.to_owned(), property.to_owned()));
        assert_eq!(
            found(json!({"scope": "x", "free": {"deep": 1}, "list": [{"path": 1}], "other": 1})),
            None
        );
        assert_eq!(found(json!({"Scope": "x"})), pair("Scope", "scope"));
        assert_eq!(found(json!({"\u{17f}cope": "x"})), pair("\u{17f}cope", "scope"));
        assert_eq!(found(json!({"Other": 1})), pair("Other", "other"));
        assert_eq!(found(json!({"inner": {"Name": 1}})), pair("inner.Name", "name"));
        assert_eq!(found(json!({"inner": {"again": {"NAME": 1}}})), pair("inner.again.NAME", "name"));
        assert_eq!(found(json!({"list": [{"path": 1}, {"Path": 1}]})), pair("list.1.Path", "path"));
        assert_eq!(found(json!({"free": {"Deep": 1}})), pair("free.Deep", "deep"));
    }
}
