//! Estimates the cost of checking a value against a schema before it is checked. Builds a graph of which parts of the schema apply
//! where, references included. Walking it never takes fewer steps than the real check.

use std::collections::{HashMap, VecDeque};

use serde_json::{Map, Value};

/// The most parts of one schema.
const MOST_PARTS: usize = 5_000;
/// How deep the check of one value may recurse: a stack is no place for surprises.
const DEEPEST: usize = 300;
/// What a reference to a well-known meta-schema costs.
const META: u64 = 1_000;

/// Which engine runs the patterns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Patterns {
    /// Linear in the text.
    Linear,
    /// Turns back, at most so often for each match.
    Turning,
}

/// One part of a schema: what it applies to the value itself, its members and its items.
#[derive(Debug, Default)]
struct SchemaPart {
    /// Steps of its own: keywords, and values to compare with.
    own: u64,
    /// Patterns for the value itself, and for each member's name.
    pattern: u64,
    name_patterns: u64,
    /// How often what is applied here is looked through once more, for what was left unevaluated.
    again: u64,
    here: Vec<usize>,
    named: HashMap<String, usize>,
    members: Vec<usize>,
    placed: Vec<usize>,
    items: Vec<usize>,
}

#[derive(Debug)]
pub(super) struct SchemaGraph {
    parts: Vec<SchemaPart>,
    pub(super) patterns: Patterns,
}

impl SchemaGraph {
    /// Draws the graph; fails on references that leave the schema and on schemas of too many parts.
    pub(super) fn of(schema: &Value) -> Result<Self, String> {
        let mut drawing = SchemaGraphBuilder::new(schema);
        drawing.part(schema, schema);
        while let Some((index, value, base)) = drawing.open.pop_front() {
            let part = drawing.draw(value, base)?;
            if drawing.known.len() > MOST_PARTS {
                return Err(format!("its schema has more than {MOST_PARTS} parts"));
            }
            drawing.parts.insert(index, part);
        }
        let count = drawing.known.len();
        let parts = (0..count).map(|index| drawing.parts.remove(&index).unwrap_or_default()).collect();
        Ok(Self { parts, patterns: Patterns::Linear })
    }

    /// Whether checking the value takes no more than so many steps.
    pub(super) fn within(&self, value: &Value, steps: u64) -> bool {
        let mut left = steps;
        self.spend(0, value, &mut left, 0).is_some()
    }

    fn spend(&self, part: usize, value: &Value, left: &mut u64, depth: usize) -> Option<()> {
        let part = self.parts.get(part)?;
        if depth > DEEPEST {
            return None;
        }
        *left = left.checked_sub(1 + part.own)?;
        for _ in 0..=part.again {
            for other in &part.here {
                self.spend(*other, value, left, depth + 1)?;
            }
        }
        match value {
            Value::String(text) => *left = left.checked_sub(part.pattern * self.matching(text))?,
            Value::Array(items) => {
                // Whether items are unique is asked by hash.
                *left = left.checked_sub(items.len() as u64)?;
                for (index, item) in items.iter().enumerate() {
                    for other in part.items.iter().chain(part.placed.get(index)) {
                        self.spend(*other, item, left, depth + 1)?;
                    }
                }
            }
            Value::Object(members) => self.spend_members(part, members, left, depth)?,
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
        Some(())
    }

    fn spend_members(
        &self,
        part: &SchemaPart,
        members: &Map<String, Value>,
        left: &mut u64,
        depth: usize,
    ) -> Option<()> {
        for (name, member) in members {
            *left = left.checked_sub(1 + part.name_patterns * self.matching(name))?;
            for other in part.members.iter().chain(part.named.get(name)) {
                self.spend(*other, member, left, depth + 1)?;
            }
        }
        Some(())
    }

    /// What matching one pattern costs.
    fn matching(&self, text: &str) -> u64 {
        let length = text.len() as u64;
        match self.patterns {
            Patterns::Linear => 1 + length / 32,
            Patterns::Turning => 1 + length * length.min(super::TURNS as u64) / 64,
        }
    }
}

/// Where a reference may point: by `$id`, and by anchor.
#[derive(Default)]
struct ReferenceIndex<'s> {
    ids: HashMap<&'s str, Vec<&'s Value>>,
    anchors: HashMap<&'s str, Vec<&'s Value>>,
}

impl<'s> ReferenceIndex<'s> {
    fn collect(&mut self, value: &'s Value) {
        match value {
            Value::Array(items) => items.iter().for_each(|item| self.collect(item)),
            Value::Object(members) => {
                for (name, member) in members {
                    match (name.as_str(), member.as_str()) {
                        ("$id" | "id", Some(id)) => match id.strip_prefix('#') {
                            Some(anchor) => self.anchors.entry(anchor).or_default().push(value),
                            None => self.ids.entry(id.trim_end_matches('#')).or_default().push(value),
                        },
                        ("$anchor" | "$dynamicAnchor", Some(anchor)) => {
                            self.anchors.entry(anchor).or_default().push(value);
                        }
                        _ => self.collect(member),
                    }
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
}

struct SchemaGraphBuilder<'s> {
    root: &'s Value,
    marks: ReferenceIndex<'s>,
    known: HashMap<*const Value, usize>,
    parts: HashMap<usize, SchemaPart>,
    /// Parts to be drawn, each with the resource its references start from.
    open: VecDeque<(usize, &'s Value, &'s Value)>,
}

impl<'s> SchemaGraphBuilder<'s> {
    fn new(root: &'s Value) -> Self {
        let mut marks = ReferenceIndex::default();
        marks.collect(root);
        Self { root, marks, known: HashMap::new(), parts: HashMap::new(), open: VecDeque::new() }
    }

    /// The number of a part, to be drawn if it is new.
    fn part(&mut self, value: &'s Value, base: &'s Value) -> usize {
        let next = self.known.len();
        let base = if has_id(value) { value } else { base };
        *self.known.entry(std::ptr::from_ref(value)).or_insert_with(|| {
            self.open.push_back((next, value, base));
            next
        })
    }

    fn all(&mut self, values: impl IntoIterator<Item = &'s Value>, base: &'s Value) -> Vec<usize> {
        values.into_iter().map(|value| self.part(value, base)).collect()
    }

    fn draw(&mut self, schema: &'s Value, base: &'s Value) -> Result<SchemaPart, String> {
        let Value::Object(keywords) = schema else { return Ok(SchemaPart::default()) };
        let mut part = SchemaPart { own: keywords.len() as u64, ..SchemaPart::default() };
        for (keyword, value) in keywords {
            match (keyword.as_str(), value) {
                ("$ref" | "$dynamicRef" | "$recursiveRef", Value::String(to)) => {
                    for target in self.find(to, base, keyword != "$ref")? {
                        match target {
                            ReferenceTarget::Part(value, base) => part.here.push(self.part(value, base)),
                            ReferenceTarget::Meta => part.own += META,
                        }
                    }
                }
                ("allOf" | "anyOf" | "oneOf", Value::Array(values)) => {
                    part.here.extend(self.all(values, base))
                }
                ("not" | "if" | "then" | "else", _) => part.here.push(self.part(value, base)),
                ("dependentSchemas" | "dependencies", Value::Object(values)) => {
                    part.here.extend(self.all(values.values().filter(|value| !value.is_array()), base));
                }
                ("properties", Value::Object(values)) => {
                    for (name, value) in values {
                        let index = self.part(value, base);
                        part.named.insert(name.clone(), index);
                    }
                }
                ("patternProperties", Value::Object(values)) => {
                    part.name_patterns += values.len() as u64;
                    part.members.extend(self.all(values.values(), base));
                }
                ("additionalProperties" | "unevaluatedProperties" | "propertyNames", _) => {
                    part.members.push(self.part(value, base));
                    part.again += u64::from(keyword == "unevaluatedProperties");
                }
                ("prefixItems" | "items", Value::Array(values)) => part.placed.extend(self.all(values, base)),
                ("items" | "additionalItems" | "unevaluatedItems" | "contains", _) => {
                    part.items.push(self.part(value, base));
                    part.again += u64::from(keyword == "unevaluatedItems");
                }
                ("pattern", _) => part.pattern += 1,
                ("enum", Value::Array(values)) => part.own += values.iter().map(size).sum::<u64>(),
                ("const", _) => part.own += size(value),
                _ => {}
            }
        }
        Ok(part)
    }

    /// Everything a reference may mean: more than one where that is only known while checking.
    fn find(&self, to: &'s str, base: &'s Value, dynamic: bool) -> Result<Vec<ReferenceTarget<'s>>, String> {
        let outside = || format!("its schema refers to `{}`, outside itself", crate::escape::excerpt(to, 80));
        let (resource, fragment) = to.split_once('#').unwrap_or((to, ""));
        if resource.starts_with("http://json-schema.org/") || resource.starts_with("https://json-schema.org/")
        {
            return Ok(vec![ReferenceTarget::Meta]);
        }
        let bases: Vec<&'s Value> = match resource {
            // A dynamic reference may end at the outermost resource.
            "" if dynamic && !std::ptr::eq(base, self.root) => vec![base, self.root],
            "" => vec![base],
            _ => self.named(resource).ok_or_else(outside)?,
        };
        let found: Vec<ReferenceTarget<'s>> = match fragment {
            "" => bases.into_iter().map(|base| ReferenceTarget::Part(base, base)).collect(),
            pointer if pointer.starts_with('/') => {
                bases.into_iter().filter_map(|base| follow(base, pointer)).collect()
            }
            anchor => {
                let all = self.marks.anchors.get(anchor).map(Vec::as_slice).unwrap_or_default();
                all.iter().map(|value| ReferenceTarget::Part(value, self.root)).collect()
            }
        };
        if found.is_empty() { Err(outside()) } else { Ok(found) }
    }

    /// The resources of this name; a relative name is the end of an absolute one.
    fn named(&self, resource: &str) -> Option<Vec<&'s Value>> {
        if let Some(values) = self.marks.ids.get(resource) {
            return Some(values.clone());
        }
        let end = format!("/{}", resource.trim_start_matches("./").trim_start_matches('/'));
        let values: Vec<&'s Value> = self
            .marks
            .ids
            .iter()
            .filter(|(id, _)| id.ends_with(&end))
            .flat_map(|(_, values)| values.iter().copied())
            .collect();
        (!values.is_empty()).then_some(values)
    }
}

/// Where a reference ends.
enum ReferenceTarget<'s> {
    Part(&'s Value, &'s Value),
    Meta,
}

fn has_id(value: &Value) -> bool {
    let id = value.get("$id").or_else(|| value.get("id")).and_then(Value::as_str);
    id.is_some_and(|id| !id.starts_with('#'))
}

/// The part at a JSON pointer, and the resource it belongs to.
fn follow<'s>(base: &'s Value, pointer: &str) -> Option<ReferenceTarget<'s>> {
    let (mut here, mut home) = (base, base);
    for step in pointer.split('/').skip(1) {
        let step = percent_decoded(step).replace("~1", "/").replace("~0", "~");
        here = match here {
            Value::Object(members) => members.get(&step)?,
            Value::Array(items) => items.get(step.parse::<usize>().ok()?)?,
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => return None,
        };
        home = if has_id(here) { here } else { home };
    }
    Some(ReferenceTarget::Part(here, home))
}

fn percent_decoded(text: &str) -> String {
    let bytes = text.as_bytes();
    let digit = |at: usize| bytes.get(at).and_then(|byte| char::from(*byte).to_digit(16));
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        match (byte, digit(at + 1), digit(at + 2)) {
            (b'%', Some(high), Some(low)) => {
                out.push(u8::try_from(high * 16 + low).unwrap_or(b'%'));
                at += 3;
            }
            _ => {
                out.push(*byte);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// How many values a value holds, itself included.
fn size(value: &Value) -> u64 {
    match value {
        Value::Array(items) => 1 + items.iter().map(size).sum::<u64>(),
        Value::Object(members) => 1 + members.values().map(size).sum::<u64>(),
        Value::String(text) => 1 + text.len() as u64 / 64,
        Value::Null | Value::Bool(_) | Value::Number(_) => 1,
    }
}
