//! What our own words cost a model, measured on the tools of real servers: bytes / 4 stands for tokens.

use std::path::PathBuf;

use serde_json::{Map, Value, json};

use super::client::{Client, Host, Reply, Way};
use super::scene::Scene;
use crate::world::World;

const EXECUTE: &str = "[gateway]\nmode = \"execute\"\n";

fn tokens(text: &str) -> usize {
    text.len().div_ceil(4)
}

/// The definitions of all labelled servers, each name once, described as tools usually are.
fn real_tools() -> Vec<Value> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/servers/tool-labels.json");
    let labels: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let mut tools = Map::new();
    for tool in labels["servers"].as_object().unwrap().values().flat_map(|tools| tools.as_array().unwrap()) {
        let name = tool["name"].as_str().unwrap();
        let mut properties = tool["properties"].as_object().unwrap().clone();
        for (name, property) in &mut properties {
            // The labels keep the type of an array's items only.
            if let Some(kind) = property.get("items").filter(|items| items.is_string()).cloned() {
                property["items"] = json!({ "type": kind });
            }
            property["description"] =
                json!(format!("The {name} to use; see the server's own pages for what it takes"));
        }
        let mut definition = json!({
            "name": name,
            "description": format!("{}.\n\nMore about it, as servers write it: when to use it, and what it gives.", name.replace('_', " ")),
            "inputSchema": {"type": "object", "properties": properties, "required": tool["required"]},
        });
        if let Some(annotations) = tool.get("annotations") {
            definition["annotations"] = annotations.clone();
        }
        tools.insert(name.to_owned(), definition);
    }
    tools.into_iter().map(|(_, tool)| tool).collect()
}

fn open(surface: &'static str, config: &str) -> (Scene, Client, Vec<Value>) {
    let world = World::new();
    let tools = real_tools();
    world.write("state.json", &json!({"tools": tools}).to_string());
    let mut scene = Scene::open_in(world, Way::StdioLegacy, surface, config, &[]);
    let line = scene.line(Host::None);
    line.wait_for_upstreams();
    (scene, line, tools)
}

fn text(reply: &Reply) -> &str {
    reply.result()["content"][0]["text"].as_str().unwrap()
}

fn first_key(value: &Value) -> &str {
    value.as_object().unwrap().keys().next().unwrap()
}

#[test]
fn the_list_of_the_router_stays_small_whatever_is_behind_it() {
    let (scene, line, tools) = open("router", "");
    assert!(tools.len() > 300, "{}", tools.len());
    let listed = line.tools();
    let sizes: Vec<(&str, usize)> =
        listed.iter().map(|tool| (tool["name"].as_str().unwrap(), tokens(&tool.to_string()))).collect();
    let all: usize = sizes.iter().map(|(_, size)| size).sum();
    // Ours, and at most 300 for the names of what is behind us.
    assert!(all <= 2_800 + 300, "{all} tokens: {sizes:?}");
    scene.finish(vec![line]);
}

#[test]
fn the_direct_surface_adds_40_tokens_to_a_change_and_nothing_to_the_arguments_of_a_read() {
    let (scene, line, tools) = open("direct", "");
    let listed = line.tools();
    let (mut reads, mut changes) = (0, 0);
    for own in &tools {
        let name = format!("notes__{}", own["name"].as_str().unwrap());
        // What is withheld is not listed.
        let Some(listed) = listed.iter().find(|tool| tool["name"] == name.as_str()) else { continue };
        let more = listed.to_string().len().saturating_sub(own.to_string().len());
        if listed["annotations"]["readOnlyHint"] == true {
            reads += 1;
            assert_eq!(listed["inputSchema"], own["inputSchema"], "{name}");
            assert_eq!(listed["description"], own["description"], "{name}");
        } else {
            changes += 1;
            assert!(more <= 4 * 40 + name.len(), "{name}: {more} bytes: {listed}");
        }
    }
    assert!(reads > 50 && changes > 50, "{reads} reads, {changes} changes");
    scene.finish(vec![line]);
}

#[test]
fn a_default_search_answers_in_1500_tokens_the_first_five_in_full() {
    let (mut scene, line, _) = open("router", "");
    for query in ["create an issue", "read a file", "query the database", "list records"] {
        let found = scene.call(&line, "retrieve_tools", &json!({"query": query}).to_string());
        assert!(tokens(text(&found)) <= 1_500, "{query}: {} tokens", tokens(text(&found)));
        let envelope = found.envelope().unwrap().to_string();
        assert!(tokens(&envelope) <= 1_500, "{query}: {} tokens", tokens(&envelope));
        let tools = found.data()["tools"].as_array().unwrap();
        assert!(tools.len() > 5, "{query}: {}", tools.len());
        for (at, tool) in tools.iter().enumerate() {
            assert_eq!(tool.get("inputSchema").is_some(), at < 5, "{query} {at}: {tool}");
        }
        // The way to more is said, and there.
        assert!(found.data()["total"].is_number(), "{query}");
    }
    scene.finish(vec![line]);
}

#[test]
fn phase_one_takes_150_tokens_and_repeats_no_argument() {
    let (mut scene, line, _) = open("router", EXECUTE);
    let long = "the text that the model has just written ".repeat(100);
    let call = json!({"name": "notes:put_note", "args": {"id": "a", "text": long}, "intent": {"operation_type": "write"}});
    let asked = scene.call(&line, "call_tool_write", &call.to_string());
    assert!(tokens(text(&asked)) <= 150, "{} tokens: {}", tokens(text(&asked)), text(&asked));
    assert!(!text(&asked).contains("just written"), "{}", text(&asked));
    // An upstream's own preview is what the person must see: it comes on top.
    let call =
        json!({"name": "notes:sync_notes", "args": {"id": "a"}, "intent": {"operation_type": "write"}});
    let asked = scene.call(&line, "call_tool_write", &call.to_string());
    let (ours, preview) = text(&asked).split_once("\nPreview:").unwrap();
    assert!(tokens(ours) <= 150 && preview.contains("2 notes would change"), "{}", text(&asked));
    let step = |id: &str| json!({"name": "notes:put_note", "args": {"id": id, "text": long}, "intent": {"operation_type": "write"}});
    let steps: Vec<Value> = (0..20).map(|at| step(&at.to_string())).collect();
    let asked = scene.call(&line, "draft_plan", &json!({"title": "many", "steps": steps}).to_string());
    assert!(tokens(text(&asked)) <= 150, "{} tokens: {}", tokens(text(&asked)), text(&asked));
    scene.finish(vec![line]);
}

#[test]
fn status_and_message_stand_first() {
    let (mut scene, line, _) = open("router", EXECUTE);
    let call = |mode: &str| {
        json!({"name": "notes:put_note", "args": {"id": "a"}, "intent": {"operation_type": "write"}, "mode": mode}).to_string()
    };
    for (mode, status, says) in [
        ("execute", "confirmation_required", "Waiting for confirmation"),
        ("plan", "preview", "Preview only"),
    ] {
        let asked = scene.call(&line, "call_tool_write", &call(mode));
        assert_eq!(
            (first_key(asked.data()), &asked.data()["status"]),
            ("status", &json!(status)),
            "{}",
            asked.text
        );
        assert!(text(&asked).starts_with(says), "{}", text(&asked));
    }
    let step = json!({"name": "notes:put_note", "args": {"id": "b"}, "intent": {"operation_type": "write"}});
    let asked = scene.call(&line, "draft_plan", &json!({"title": "t", "steps": [step]}).to_string());
    assert_eq!(first_key(asked.data()), "status", "{}", asked.text);
    let run = json!({"plan_id": asked.data()["plan_id"], "confirm_token": asked.data()["confirm_token"], "yes": true});
    let ran = scene.call(&line, "run_plan", &run.to_string());
    assert_eq!((first_key(ran.data()), &ran.data()["status"]), ("status", &json!("done")), "{}", ran.text);
    assert!(text(&ran).starts_with(r#"{"status":"done""#), "{}", text(&ran));
    let refused = scene.call(&line, "run_plan", &run.to_string());
    let error = refused.envelope().unwrap()["errors"][0].clone();
    let keys: Vec<&String> = error.as_object().unwrap().keys().take(2).collect();
    assert_eq!(keys, ["code", "message"], "{}", refused.text);
    assert!(text(&refused).starts_with("E_CONFIRM_TOKEN_USED: "), "{}", text(&refused));
    scene.finish(vec![line]);
}

#[test]
fn the_plan_of_a_single_call_runs_without_its_arguments() {
    let (mut scene, line, _) = open("router", EXECUTE);
    let call =
        json!({"name": "notes:put_note", "args": {"id": "single"}, "intent": {"operation_type": "write"}});
    let asked = scene.call(&line, "call_tool_write", &call.to_string());
    let run = json!({"plan_id": asked.data()["plan_id"], "confirm_token": asked.data()["confirm_token"], "yes": true});
    let other = json!({"plan_id": "pln_other", "confirm_token": run["confirm_token"], "yes": true});
    let refused = scene.call(&line, "run_plan", &other.to_string());
    assert_eq!(refused.code(), Some("E_CONFIRM_TOKEN_MISMATCH"), "{}", refused.text);
    assert!(scene.call(&line, "run_plan", &run.to_string()).ran());
    assert_eq!(scene.reached(), [("put_note".to_owned(), json!({"id": "single"}))]);
    let again = scene.call(&line, "run_plan", &run.to_string());
    assert_eq!(again.code(), Some("E_CONFIRM_TOKEN_USED"), "{}", again.text);
    scene.finish(vec![line]);
}

#[test]
fn the_memory_answers_with_its_data_once() {
    let config = format!("{EXECUTE}[upstreams.memory]\nkind = \"memory\"\n");
    let (mut scene, line, _) = open("router", &config);
    let store = json!({"name": "memory:store", "args": {"content": "Retry failed payments twice", "as": "idea"}, "intent": {"operation_type": "write"}});
    let stored = scene.call(&line, "call_tool_write", &store.to_string());
    assert!(stored.ran(), "{}", stored.text);
    let structure = &stored.result()["structuredContent"];
    assert_eq!(structure["schema_version"], 1);
    assert_eq!(serde_json::from_str::<Value>(text(&stored)).unwrap(), structure["data"], "{}", stored.text);
    assert_eq!(first_key(&structure["data"]), "message", "{}", stored.text);
    let recall = json!({"name": "memory:recall_ideas", "args": {"query": "payments"}, "intent": {"operation_type": "read"}});
    let recalled = scene.call(&line, "call_tool_read", &recall.to_string());
    assert!(!text(&recalled).contains("schema_version"), "{}", text(&recalled));
    assert!(text(&recalled).contains("Retry failed payments"), "{}", text(&recalled));
    let bad =
        json!({"name": "memory:recall", "args": {"id": "dec_none"}, "intent": {"operation_type": "read"}});
    // It ran and says no: that is the memory's own answer, not a refusal of the gateway.
    let bad = line.call("call_tool_read", &bad.to_string());
    assert!(bad.result()["isError"] == true && text(&bad).starts_with("E_"), "{}", bad.text);
    scene.finish(vec![line]);
}
