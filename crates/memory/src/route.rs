//! Routes: what to read first for an intent, in order, with reasons and the calls that fetch it. A fixed rule over rooms
//! and approved records; the same question gives the same route.

use std::collections::HashSet;

use countersign_policy::memory::{RecordKind, Scope};
use countersign_store::memory::MemoryRecord;
use serde_json::{Map, Value, json};

use crate::Memory;
use crate::arguments::{LONGEST_TEXT, MemoryArguments};
use crate::error::{MemoryResult, MemoryToolReply};
use crate::recall::{candidates, chain, matches};
use crate::rooms::ProjectRooms;
use crate::words;

const RULE: &str = "v1.0";
/// How many nodes a route has at most.
const MOST: usize = 10;
/// Learnings less sure than this are no guides, in thousandths.
const SURE: u32 = 700;

/// One thing to read. Scores are in thousandths, so that they add up the same everywhere.
#[derive(Clone, Debug, PartialEq, Eq)]
struct RouteNode {
    kind: &'static str,
    id: String,
    score: u32,
    reason: String,
}

/// The tool `get_route`.
pub(crate) async fn get_route(memory: &Memory, given: &MemoryArguments<'_>) -> MemoryResult<MemoryToolReply> {
    let intent = given.required("intent", LONGEST_TEXT)?;
    let (scope, path) = given.place()?.unwrap_or((Scope::Palace, String::new()));
    let query_terms = words::query_terms(intent);
    let rooms = memory.rooms();
    // The palace is everything in it; a file or a room is what holds there.
    let places = match scope {
        Scope::Palace => Vec::new(),
        Scope::File | Scope::Room => chain(scope, &path, &rooms),
    };
    let kinds = [RecordKind::Decision, RecordKind::Learning];
    let records = if query_terms.is_empty() {
        Vec::new()
    } else {
        candidates(&memory.store, &kinds, &places, &query_terms).await?
    };
    let mut nodes = of_rooms(&rooms, &query_terms);
    nodes.extend(records.iter().filter_map(|record| of_record(record, &query_terms)));
    if scope == Scope::File {
        nodes.push(RouteNode {
            kind: "file",
            id: path,
            score: 500,
            reason: "it is the file asked about".into(),
        });
    }
    let nodes = best(nodes);
    let shown: Vec<Value> = nodes.iter().enumerate().map(|(at, node)| show(at + 1, node)).collect();
    Ok(MemoryToolReply::with_message(format!("{} to read, in this order", shown.len()))
        .with("meta", json!({"rule_version": RULE, "node_count": shown.len()}))
        .with("nodes", shown)
        .warn(rooms.warning.clone()))
}

/// Each thing once, the best first; of equals by name.
fn best(mut nodes: Vec<RouteNode>) -> Vec<RouteNode> {
    nodes.sort_by(|left, right| {
        right.score.cmp(&left.score).then(left.id.cmp(&right.id)).then(left.kind.cmp(right.kind))
    });
    let mut seen = HashSet::new();
    nodes.retain(|node| seen.insert((node.kind, node.id.clone())));
    nodes.truncate(MOST);
    nodes
}

fn of_rooms(rooms: &ProjectRooms, query_terms: &[String]) -> Vec<RouteNode> {
    let mut nodes = Vec::new();
    for room in &rooms.all {
        let (name, summary) = (matches(&room.name, query_terms), matches(&room.summary, query_terms));
        let score = name * 1000 + summary * 500;
        if score == 0 {
            continue;
        }
        let reason = format!("room: {name} of your words in its name, {summary} in its summary");
        nodes.push(RouteNode { kind: "room", id: room.name.clone(), score, reason });
        nodes.extend(room.entry_points.iter().map(|entry| RouteNode {
            kind: "file",
            id: entry.clone(),
            score: score * 8 / 10,
            reason: format!("entry point of room {}", room.name),
        }));
    }
    nodes
}

fn of_record(record: &MemoryRecord, query_terms: &[String]) -> Option<RouteNode> {
    let content = matches(&record.body.content, query_terms);
    let (kind, score, reason) = match record.kind {
        RecordKind::Decision => {
            let rationale = matches(&record.body.rationale, query_terms);
            let reason = format!("decision: {content} of your words in it, {rationale} in its rationale");
            ("decision", content * 800 + rationale * 300, reason)
        }
        RecordKind::Learning if record.confidence >= SURE && content > 0 => {
            let reason = format!("learning: {content} of your words in it");
            ("learning", content * 600 + record.confidence * 4 / 10, reason)
        }
        RecordKind::Learning | RecordKind::Idea => return None,
    };
    (score > 0).then(|| RouteNode { kind, id: record.id.clone(), score, reason })
}

/// A node with the call that fetches it: `fetch_ref` for readers, `fetch` for programs.
fn show(order: usize, node: &RouteNode) -> Value {
    let (fetch_ref, tool, argument) = match node.kind {
        "room" => ("explore_rooms".to_owned(), "explore_rooms", "room"),
        "decision" => (format!("recall_decisions --id {}", node.id), "recall_decisions", "id"),
        "learning" => (format!("recall --id {}", node.id), "recall", "id"),
        _ => (format!("explore_file --file {}", node.id), "explore_file", "file"),
    };
    let arguments = Map::from_iter([(argument.to_owned(), Value::from(node.id.as_str()))]);
    json!({
        "order": order,
        "kind": node.kind,
        "id": node.id,
        "score": f64::from(node.score) / 1000.0,
        "reason": node.reason,
        "fetch_ref": fetch_ref,
        "fetch": {"tool": tool, "arguments": arguments},
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_comes_first_and_equals_by_name() {
        let node =
            |id: &str, score| RouteNode { kind: "decision", id: id.into(), score, reason: String::new() };
        let mut many = vec![node("b", 800), node("a", 800), node("c", 1600), node("a", 800)];
        many.extend((0..20).map(|number| node(&format!("z{number:02}"), 300)));
        let ids: Vec<String> = best(many).into_iter().map(|node| node.id).collect();
        assert_eq!(ids, ["c", "a", "b", "z00", "z01", "z02", "z03", "z04", "z05", "z06"]);
    }
}
