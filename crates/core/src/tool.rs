//! Tools as their upstreams describe them, and the fingerprint that pins a description.
//! Takes every word of a definition as a claim; whether it is believed is decided in `effect`.

use serde_json::{Map, Value};

use crate::canonical;
use crate::digest::Digest;
use crate::ids::{FullName, ToolName, UpstreamId};

/// A tool's annotations: hints, untrusted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Annotations {
    /// `readOnlyHint`, where given.
    pub read_only: Option<bool>,
    /// `destructiveHint`, where given.
    pub destructive: Option<bool>,
}

impl Annotations {
    /// Reads the hints of a tool's `annotations` object; a hint that is no boolean counts as absent.
    pub fn read(annotations: Option<&Value>) -> Self {
        let hint = |name| annotations.and_then(|value| value.get(name)).and_then(Value::as_bool);
        Self { read_only: hint("readOnlyHint"), destructive: hint("destructiveHint") }
    }
}

/// One tool of one upstream, as it was listed.
#[derive(Clone, Debug, PartialEq)]
pub struct Tool {
    /// Our name of the upstream.
    pub upstream: UpstreamId,
    /// The tool's own name.
    pub name: ToolName,
    /// The whole definition as listed.
    pub definition: Map<String, Value>,
    /// Its hints.
    pub annotations: Annotations,
    /// What it was pinned by, or will be.
    pub fingerprint: Digest,
}

/// A definition without a usable name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a tool definition needs a `name` of 1 to 256 characters")]
pub struct Nameless;

impl Tool {
    /// Reads a definition from an upstream's `tools/list`.
    pub fn read(upstream: UpstreamId, definition: Map<String, Value>) -> Result<Self, Nameless> {
        let name = definition.get("name").and_then(Value::as_str).unwrap_or_default();
        if name.is_empty() || name.chars().count() > 256 {
            return Err(Nameless);
        }
        Ok(Self {
            upstream,
            name: ToolName::new(name),
            annotations: Annotations::read(definition.get("annotations")),
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
            annotations: Annotations::read(Some(&annotations)),
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
            let classified = crate::effect::classify(None, read.annotations, read.name.as_str());
            assert_eq!(classified.effect, crate::effect::Effect::Read, "{tool}");
        }
        assert!(Tool::passage(&FullName::new("vault", "delete_note")).is_none());
    }

    #[test]
    fn the_fingerprint_is_the_plain_hash_of_the_canonical_parts() {
        let expect = Digest::plain(br#"{"description":"d","name":"a"}"#);
        assert_eq!(print(json!({"name": "a", "description": "d"})), expect);
    }

    #[test]
    fn bounds_beyond_a_double_still_tell_definitions_apart() {
        let with = |max: u64| json!({"name": "a", "inputSchema": {"maximum": max}});
        assert_ne!(print(with(u64::MAX)), print(with(u64::MAX - 1)));
    }
}
