//! Tools as their upstreams describe them, and the fingerprint that pins a description.
//! Takes every word of a definition as a claim; whether it is believed is decided in `effect`.

use serde_json::{Map, Value};

use crate::canonical;
use crate::digest::Digest;
use crate::ids::{FullName, ToolName, UpstreamId};

/// A tool's annotations: hints, untrusted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ToolAnnotations {
    /// `readOnlyHint`, where given.
    pub read_only: Option<bool>,
    /// `destructiveHint`, where given.
    pub destructive: Option<bool>,
}

impl ToolAnnotations {
    /// Reads the hints of a tool's `annotations` object; a hint that is no boolean counts as absent.
    pub fn read(annotations: Option<&Value>) -> Self {
        let hint = |name| annotations.and_then(|value| value.get(name)).and_then(Value::as_bool);
        Self { read_only: hint("readOnlyHint"), destructive: hint("destructiveHint") }
    }
}

/// One tool of one upstream, as it was listed.
#[derive(Clone, Debug, PartialEq)]
pub struct Tool {
    pub upstream: UpstreamId,
    pub name: ToolName,
    pub definition: Map<String, Value>,
    pub annotations: ToolAnnotations,
    /// What it was pinned by, or will be.
    pub fingerprint: Digest,
}

/// A definition without a usable name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a tool definition needs a `name` of 1 to 256 characters")]
pub struct MissingToolName;

impl Tool {
    /// Reads a definition from an upstream's `tools/list`.
    pub fn read(upstream: UpstreamId, definition: Map<String, Value>) -> Result<Self, MissingToolName> {
        let name = definition.get("name").and_then(Value::as_str).unwrap_or_default();
        if name.is_empty() || name.chars().count() > 256 {
            return Err(MissingToolName);
        }
        Ok(Self {
            upstream,
            name: ToolName::new(name),
            annotations: ToolAnnotations::read(definition.get("annotations")),
            fingerprint: fingerprint(&definition),
            definition,
        })
    }

    /// The read that stands for a resource (`resource:URI`), a prompt (`prompt:NAME`) or a listed method (`method:NAME`), so that
    /// the gate judges it as it judges a tool; none for any other name.
    pub fn passage(name: &FullName) -> Option<Self> {
        if !PASSAGES.iter().any(|kind| name.tool.as_str().starts_with(kind)) {
            return None;
        }
        let annotations = serde_json::json!({"readOnlyHint": true});
        let definition = Map::from_iter([
            ("name".to_owned(), Value::from(name.tool.as_str())),
            ("annotations".to_owned(), annotations.clone()),
        ]);
        Some(Self {
            upstream: name.upstream.clone(),
            // Neutral: words in a URI or in a prompt's name say nothing about what reading it does.
            name: ToolName::new("read"),
            annotations: ToolAnnotations::read(Some(&annotations)),
            fingerprint: fingerprint(&definition),
            definition,
        })
    }

    /// `upstream:tool`.
    pub fn full_name(&self) -> FullName {
        FullName { upstream: self.upstream.clone(), tool: self.name.clone() }
    }

    /// The description, where there is one.
    pub fn description(&self) -> &str {
        self.definition.get("description").and_then(Value::as_str).unwrap_or_default()
    }

    /// The input schema; an absent one accepts any object.
    pub fn input_schema(&self) -> Value {
        self.definition.get("inputSchema").cloned().unwrap_or_else(|| serde_json::json!({"type": "object"}))
    }
}

/// How the names of resources, prompts and listed methods begin where rules and rows name them.
const PASSAGES: [&str; 3] = ["resource:", "prompt:", "method:"];

/// The parts of a definition that are pinned.
const PINNED: [&str; 6] = ["name", "title", "description", "inputSchema", "outputSchema", "annotations"];

/// SHA-256 over the canonical JSON of the pinned parts that are there.
///
/// A definition may hold numbers that a double can't carry (64-bit bounds in schemas are common). They
/// are hashed as marked text, so that every change shows and no tool is lost over its schema's bounds.
pub fn fingerprint(definition: &Map<String, Value>) -> Digest {
    let pinned: Map<String, Value> = PINNED
        .into_iter()
        .filter_map(|name| definition.get(name).map(|value| (name.to_owned(), hashable(value, 0))))
        .collect();
    Digest::plain(canonical::to_string(&Value::Object(pinned)).as_bytes())
}

/// Whether two definitions differ only in the order of things that have none: `enum`, `required` and `type` lists of their schemas,
/// and defaults that are sets.
///
/// Deliberately narrow, because an upstream chooses what it lists. Everything else keeps its order: `prefixItems` and `examples` are
/// read in order, branches of `anyOf` are often shown in order, and a list that is a default may be a command line. A default
/// counts as a set where its schema says `uniqueItems`, or where it is a text of plain names whose description says that it is
/// comma-separated; no name may appear or vanish.
pub fn means_the_same(one: &Map<String, Value>, other: &Map<String, Value>) -> bool {
    let normal = |definition: &Map<String, Value>| {
        let mut definition = definition.clone();
        for schema in ["inputSchema", "outputSchema"] {
            if let Some(schema) = definition.get_mut(schema) {
                unorder(schema, 0);
            }
        }
        fingerprint(&definition)
    };
    fingerprint(one) == fingerprint(other) || normal(one) == normal(other)
}

/// Sorts what has no order in a schema; beyond the depth a schema may have, nothing.
fn unorder(schema: &mut Value, depth: usize) {
    let Value::Object(members) = schema else { return };
    if depth > 128 {
        return;
    }
    let is_set = members.get("uniqueItems") == Some(&Value::Bool(true));
    let says_comma = members
        .get("description")
        .and_then(Value::as_str)
        .is_some_and(|text| text.to_ascii_lowercase().contains("comma-separated"));
    for (name, member) in members.iter_mut() {
        match (name.as_str(), member) {
            ("enum" | "required" | "type", Value::Array(items)) => sort(items),
            ("default", Value::Array(items)) if is_set => sort(items),
            ("default", Value::String(text)) if says_comma => *text = sorted_names(text),
            (
                "properties" | "patternProperties" | "$defs" | "definitions" | "dependentSchemas",
                Value::Object(named),
            ) => {
                named.values_mut().for_each(|schema| unorder(schema, depth + 1));
            }
            ("allOf" | "anyOf" | "oneOf" | "prefixItems", Value::Array(branches)) => {
                branches.iter_mut().for_each(|schema| unorder(schema, depth + 1));
            }
            (
                "items"
                | "additionalProperties"
                | "contains"
                | "not"
                | "if"
                | "then"
                | "else"
                | "propertyNames",
                schema,
            ) => {
                unorder(schema, depth + 1);
            }
            _ => {}
        }
    }
}

fn sort(items: &mut [Value]) {
    items.sort_by_cached_key(|item| canonical::to_string(&hashable(item, 0)));
}

/// `b,a` as `a,b`; a text that is not only plain names is left as it is.
fn sorted_names(text: &str) -> String {
    let plain = |name: &str| {
        !name.is_empty()
            && name.chars().all(|one| one.is_ascii_alphanumeric() || matches!(one, '_' | '.' | '*' | '-'))
    };
    let mut names: Vec<&str> = text.split(',').map(str::trim).collect();
    if !names.iter().all(|name| plain(name)) {
        return text.to_owned();
    }
    names.sort_unstable();
    names.join(",")
}

fn hashable(value: &Value, depth: usize) -> Value {
    if depth > 128 {
        return Value::String(format!("\u{0}deep:{value}"));
    }
    match value {
        Value::Number(number) => {
            if crate::strict_json::check(value).is_ok() {
                value.clone()
            } else {
                Value::String(format!("\u{0}number:{number}"))
            }
        }
        Value::Array(items) => Value::Array(items.iter().map(|item| hashable(item, depth + 1)).collect()),
        Value::Object(members) => Value::Object(
            members.iter().map(|(name, member)| (name.clone(), hashable(member, depth + 1))).collect(),
        ),
        Value::Null | Value::Bool(_) | Value::String(_) => value.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn print(value: Value) -> Digest {
        fingerprint(value.as_object().unwrap())
    }

    #[test]
    fn every_pinned_part_changes_the_fingerprint_and_nothing_else_does() {
        let base = json!({"name": "a", "description": "d", "inputSchema": {"type": "object"}});
        for (part, value) in [
            ("name", json!("b")),
            ("title", json!("t")),
            ("description", json!("d ")),
            ("inputSchema", json!({"type": "object", "x": 1})),
            ("outputSchema", json!({})),
            ("annotations", json!({"readOnlyHint": true})),
        ] {
            let mut changed = base.clone();
            changed[part] = value;
            assert_ne!(print(base.clone()), print(changed), "{part}");
        }
        let mut same = base.clone();
        same["execution"] = json!({"taskSupport": "optional"});
        assert_eq!(print(base.clone()), print(same));
        assert_eq!(
            print(json!({"inputSchema": {"type": "object"}, "description": "d", "name": "a"})),
            print(base)
        );
    }

    #[test]
    fn attack_10_a_resource_or_prompt_is_a_read_whatever_its_name_says() {
        for tool in ["resource:file:///etc/delete_me", "prompt:wipe_all", "method:acme/drop"] {
            let read = Tool::passage(&FullName::new("vault", tool)).unwrap();
            let classified = crate::effect::classify(None, &read);
            assert_eq!(classified.effect, crate::effect::Effect::Read, "{tool}");
        }
        assert!(Tool::passage(&FullName::new("vault", "delete_note")).is_none());
    }

    #[test]
    fn the_fingerprint_is_the_plain_hash_of_the_canonical_parts() {
        let expect = Digest::plain(br#"{"description":"d","name":"a"}"#);
        assert_eq!(print(json!({"name": "a", "description": "d"})), expect);
    }

    fn same(one: &Value, other: &Value) -> bool {
        let with = |schema: &Value| {
            json!({"name": "a", "inputSchema": {"properties": {"p": schema}}}).as_object().unwrap().clone()
        };
        assert_ne!(fingerprint(&with(one)), fingerprint(&with(other)));
        means_the_same(&with(one), &with(other))
    }

    #[test]
    fn what_has_no_order_in_a_schema_may_be_listed_in_any() {
        for (one, other) in [
            (json!({"enum": ["a", "b"]}), json!({"enum": ["b", "a"]})),
            (json!({"type": ["string", "null"]}), json!({"type": ["null", "string"]})),
            (json!({"required": ["x", "y"]}), json!({"required": ["y", "x"]})),
            (
                json!({"default": [1, 2], "uniqueItems": true}),
                json!({"default": [2, 1], "uniqueItems": true}),
            ),
            (
                json!({"default": "b,a", "description": "Comma-separated fields"}),
                json!({"default": "a,b", "description": "Comma-separated fields"}),
            ),
            (
                json!({"anyOf": [{"items": {"enum": [1, 2]}}]}),
                json!({"anyOf": [{"items": {"enum": [2, 1]}}]}),
            ),
        ] {
            assert!(same(&one, &other), "{one} {other}");
        }
    }

    #[test]
    fn attack_whatever_could_change_the_meaning_is_a_change() {
        let comma = "Comma-separated";
        for (one, other) in [
            (json!({"enum": ["a", "b"]}), json!({"enum": ["a", "b", "c"]})),
            (json!({"enum": ["a", "b"]}), json!({"enum": ["a", "a", "b"]})),
            (json!({"required": ["x", "y"]}), json!({"required": ["x"]})),
            (
                json!({"prefixItems": [{"type": "string"}, {}]}),
                json!({"prefixItems": [{}, {"type": "string"}]}),
            ),
            (json!({"examples": ["a", "b"]}), json!({"examples": ["b", "a"]})),
            (json!({"default": ["rm", "x"]}), json!({"default": ["x", "rm"]})),
            (json!({"default": "a,b"}), json!({"default": "b,a"})),
            (
                json!({"default": "a,b", "description": comma}),
                json!({"default": "a,c", "description": comma}),
            ),
            (
                json!({"default": "a b,c", "description": comma}),
                json!({"default": "c,a b", "description": comma}),
            ),
            (json!({"const": ["a", "b"]}), json!({"const": ["b", "a"]})),
            (
                json!({"properties": {"enum": {"default": [1, 2]}}}),
                json!({"properties": {"enum": {"default": [2, 1]}}}),
            ),
        ] {
            assert!(!same(&one, &other), "{one} {other}");
        }
        let described = |text: &str| json!({"name": "a", "description": text}).as_object().unwrap().clone();
        assert!(!means_the_same(&described("reads a, b"), &described("reads b, a")));
    }

    #[test]
    fn bounds_beyond_a_double_still_tell_definitions_apart() {
        let with = |max: u64| json!({"name": "a", "inputSchema": {"maximum": max}});
        assert_ne!(print(with(u64::MAX)), print(with(u64::MAX - 1)));
    }
}
