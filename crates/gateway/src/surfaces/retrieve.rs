//! `retrieve_tools`: the tools that fit a few words, the first in full and the others in a line each. Its default answer is kept
//! short: models pay for every word of it. What is left out here is left out of the answer alone; calls are judged by the whole.

use countersign_policy::call::Caller;
use countersign_policy::effect::Effect;
use countersign_policy::envelope::Envelope;
use countersign_policy::ids::UpstreamId;
use countersign_policy::intent::CallToolVariant;
use countersign_policy::refusal::Refusal;
use countersign_policy::role::Role;
use serde_json::{Map, Value, json};

use super::definitions::USAGE;
use super::own::read_count;
use crate::catalog::Listed;
use crate::escape;
use crate::pipeline::request::invalid;
use crate::search::SearchQuery;
use crate::state::GatewayState;

/// How many tools are described in full.
const IN_FULL: usize = 5;
/// How many characters the tools of a default answer may take together: with everything around them about 1,500 tokens.
const MOST_CHARACTERS: usize = 4_800;
/// How long the one line of a tool is that is not told in full, in characters.
const LINE: usize = 80;

/// How much of a tool is described.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Detail {
    /// Everything.
    Full,
    /// The description of the tool and those of its arguments are cut to so many characters; no others are included.
    Cut(usize),
    /// The names and types of its arguments.
    Names,
    /// A line.
    Line,
}

/// From the fullest description to the shortest, for answers that would be too long.
const STEPS: [Detail; 5] = [Detail::Full, Detail::Cut(160), Detail::Cut(60), Detail::Cut(0), Detail::Names];

/// Searches, and tells what was found.
pub(super) fn retrieve_tools(
    gateway: &GatewayState,
    caller: &Caller,
    given: &Map<String, Value>,
) -> Result<Envelope, Refusal> {
    let query = match given.get("query") {
        None | Some(Value::Null) => return Err(invalid("query", "is required: what the tool should do")),
        Some(Value::String(text)) => text,
        Some(_) => return Err(invalid("query", "must be a string")),
    };
    let limit = read_count(given, "limit", 15, 100)?;
    let effect = match given.get("effect") {
        None | Some(Value::Null) => None,
        Some(value) => {
            let known = value.as_str().and_then(|text| text.parse::<Effect>().ok());
            Some(known.ok_or_else(|| invalid("effect", "must be read, write, or destructive"))?)
        }
    };
    let upstream = match given.get("upstream") {
        None | Some(Value::Null) => None,
        Some(Value::String(text)) => Some(text.as_str()),
        Some(_) => return Err(invalid("upstream", "must be a string")),
    };
    let in_full = match given.get("detail") {
        None | Some(Value::Null) => false,
        Some(Value::String(text)) if text == "full" => true,
        Some(_) => return Err(invalid("detail", "must be full, or left out")),
    };
    let catalog = gateway.catalog.load();
    let visible = |doc: usize| {
        catalog.indexed(doc).is_some_and(|listed| {
            effect.is_none_or(|effect| listed.outlook.effect == effect)
                && caller.scopes.upstreams.as_ref().is_none_or(|all| all.contains(&listed.tool.upstream))
                && !(caller.role == Role::Agent && listed.outlook.role == Some(Role::Human))
        })
    };
    let found = catalog.index().search(&SearchQuery { text: query, limit, upstream, keep: Some(&visible) });
    let hits: Vec<(&Listed, f64)> = found
        .hits
        .iter()
        .filter_map(|hit| catalog.indexed(hit.doc).map(|listed| (listed, hit.score)))
        .collect();
    let tools = if in_full { told(&hits, hits.len(), Detail::Full) } else { short(&hits) };
    Ok(Envelope::ok("retrieve_tools", Map::new())
        .with("tools", tools)
        .with("total", found.total)
        .with("starting", starting(gateway, caller))
        .with("usage_instructions", USAGE))
}

/// The upstreams of the caller that have not listed their tools yet.
fn starting(gateway: &GatewayState, caller: &Caller) -> Vec<String> {
    let reached = |id: &UpstreamId| caller.scopes.upstreams.as_ref().is_none_or(|all| all.contains(id));
    gateway.startup.starting().into_iter().filter(reached).map(|id| id.to_string()).collect()
}

/// The default answer: as much of the first tools as there is room for.
fn short(hits: &[(&Listed, f64)]) -> Vec<Value> {
    for detail in STEPS {
        let tools = told(hits, IN_FULL, detail);
        if size(&tools) <= MOST_CHARACTERS {
            return tools;
        }
    }
    // Hundreds of arguments: then fewer of them in more than a line.
    let fewer = (0..IN_FULL).rev().map(|first| told(hits, first, Detail::Names));
    fewer
        .into_iter()
        .find(|tools| size(tools) <= MOST_CHARACTERS)
        .unwrap_or_else(|| told(hits, 0, Detail::Line))
}

fn size(tools: &[Value]) -> usize {
    tools.iter().map(|tool| tool.to_string().chars().count()).sum()
}

fn told(hits: &[(&Listed, f64)], first: usize, detail: Detail) -> Vec<Value> {
    let told = |(at, (listed, score)): (usize, &(&Listed, f64))| {
        tell(listed, *score, if at < first { detail } else { Detail::Line })
    };
    hits.iter().enumerate().map(told).collect()
}

fn tell(listed: &Listed, score: f64, detail: Detail) -> Value {
    let name = listed.tool.full_name().to_string();
    let call_with = CallToolVariant::for_effect(listed.outlook.effect).call_tool();
    let description = listed.tool.description();
    let (description, schema) = match detail {
        Detail::Line => {
            let description = cut(description, LINE);
            return json!({"name": name, "description": description, "effect": listed.outlook.effect,
                "call_with": call_with});
        }
        Detail::Full => (description.to_owned(), listed.tool.input_schema()),
        Detail::Cut(most) => {
            let mut schema = listed.tool.input_schema();
            shorten(&mut schema, most);
            (cut(description, most.max(LINE)), schema)
        }
        Detail::Names => (cut(description, LINE), names(&listed.tool.input_schema())),
    };
    let mut told = json!({
        "name": name,
        "description": description,
        "inputSchema": schema,
        "score": score,
        "server": listed.tool.upstream,
        "annotations": listed.tool.definition.get("annotations").cloned().unwrap_or_else(|| json!({})),
        "effect": listed.outlook.effect,
        "confirm": listed.outlook.kind,
        "strength": listed.outlook.strength,
        "call_with": call_with,
    });
    if let (false, Some(members)) = (detail == Detail::Full, told.as_object_mut()) {
        members.insert("shortened".to_owned(), true.into());
    }
    told
}

/// The first line of a text, at most so many characters of it.
fn cut(text: &str, most: usize) -> String {
    let first = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    let mut kept: String = first.chars().take(most).collect();
    if kept.len() < first.len() {
        kept.push('…');
    }
    escape::line(&kept).into_owned()
}

/// A schema without what explains it, or with so many characters of each explanation. What it asks for stays.
fn shorten(schema: &mut Value, most: usize) {
    match schema {
        Value::Array(items) => items.iter_mut().for_each(|item| shorten(item, most)),
        Value::Object(members) => {
            for noise in ["$schema", "examples", "$comment"] {
                members.remove(noise);
            }
            // A property may be called `description` or `title`: those are schemas, not texts.
            members.retain(|name, value| !(name == "title" && value.is_string()));
            members.retain(|name, value| !(name == "description" && value.is_string() && most == 0));
            for (name, value) in members.iter_mut() {
                match (name.as_str(), &mut *value) {
                    ("description", Value::String(text)) => *text = cut(text, most),
                    ("enum" | "const" | "default" | "required", _) => {}
                    (_, other) => shorten(other, most),
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// The arguments by name and type alone.
fn names(schema: &Value) -> Value {
    let properties = schema.get("properties").and_then(Value::as_object);
    let named: Map<String, Value> = properties
        .into_iter()
        .flatten()
        .map(|(name, schema)| {
            let kind = schema.get("type").cloned().map_or_else(|| json!({}), |kind| json!({"type": kind}));
            (name.clone(), kind)
        })
        .collect();
    let mut all = json!({"type": "object", "properties": named});
    if let (Some(required), Some(members)) = (schema.get("required"), all.as_object_mut()) {
        members.insert("required".to_owned(), required.clone());
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shortened_schema_asks_for_the_same_in_fewer_words() {
        let mut schema = json!({"$schema": "x", "type": "object", "required": ["title"], "properties": {
            "title": {"type": "string", "title": "Title", "description": "the title\nand more"},
            "description": {"type": "string", "enum": ["description", "title"]},
        }});
        let whole = schema.clone();
        shorten(&mut schema, 5);
        assert_eq!(
            schema,
            json!({"type": "object", "required": ["title"], "properties": {
                "title": {"type": "string", "description": "the t…"},
                "description": {"type": "string", "enum": ["description", "title"]},
            }})
        );
        shorten(&mut schema, 0);
        assert_eq!(schema["properties"]["title"], json!({"type": "string"}));
        assert_eq!(
            names(&whole),
            json!({"type": "object", "required": ["title"],
                "properties": {"title": {"type": "string"}, "description": {"type": "string"}}})
        );
    }
}
