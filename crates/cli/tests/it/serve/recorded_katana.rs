//! The real Katana server's answers, recorded: JSON in the text, a tree of window parts in the structure. Its changes are read, its
//! `BLOCK:` is honoured, its card and one coaching stay. `tests/katana` runs the server itself.

use std::path::PathBuf;

use serde_json::{Value, json};

use super::client::{Client, Host, Way};
use super::gateway::Gateway;
use crate::world::World;

/// Answers as the real server did when `tests/katana/run` recorded it; what is applied is a line of `applied.log`.
const REPLAY: &str = r#"
import json, sys
CALLS = {call["definition"]["name"]: call for call in json.load(open("katana.json"))}
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message or "method" not in message:
        continue
    method, params = message["method"], message.get("params") or {}
    reply = {"jsonrpc": "2.0", "id": message["id"]}
    if method == "initialize":
        reply["result"] = {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}},
                           "serverInfo": {"name": "katana-erp", "version": "0.122.0"}}
    elif method == "tools/list":
        reply["result"] = {"tools": [call["definition"] for call in CALLS.values()]}
    elif method == "tools/call" and params["arguments"].get("preview", True):
        reply["result"] = CALLS[params["name"]]["result"]
    elif method == "tools/call":
        open("applied.log", "a").write(params["name"] + chr(10))
        reply["result"] = {"content": [{"type": "text", "text": "applied"}]}
    else:
        reply["error"] = {"code": -32601, "message": "not found"}
    print(json.dumps(reply), flush=True)
"#;

/// A gateway in front of the recorded server.
struct RecordedKatana {
    world: World,
    calls: Value,
    _gateway: Gateway,
    client: Client,
}

impl RecordedKatana {
    fn start(host: Host, surface: &str) -> Self {
        let recorded = include_str!("../../data/katana.json");
        let world = World::new();
        world.write("katana.json", recorded).write("replay.py", REPLAY);
        world.write(
            "countersign.toml",
            "[gateway]\nmode = \"execute\"\n[confirm]\nhold = \"0s\"\n[upstreams.katana]\ncommand = \"python3\"\nargs = [\"replay.py\"]\n",
        );
        let preset =
            PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../presets/katana.toml").display().to_string();
        let mut gateway = Gateway::start(
            &world,
            &["--config", "countersign.toml", "--config", &preset, "--surface", surface],
        );
        let (stdin, stdout) = gateway.pipes.take().unwrap();
        let client = Client::stdio(Way::StdioLegacy, host, stdin, stdout);
        client.wait_for_upstreams();
        let calls = serde_json::from_str(recorded).unwrap();
        Self { world, calls, _gateway: gateway, client }
    }

    fn arguments(&self, tool: &str) -> Value {
        let calls = self.calls.as_array().unwrap();
        calls.iter().find(|call| call["definition"]["name"] == tool).unwrap()["args"].clone()
    }

    fn call(&self, effect: &str, tool: &str) -> Value {
        let asked = json!({"name": format!("katana:{tool}"), "args": self.arguments(tool), "intent": {"operation_type": effect}});
        self.client.call(&format!("call_tool_{effect}"), &asked.to_string()).result().clone()
    }
}

#[test]
fn recorded_changes_are_read_from_the_text() {
    let katana = RecordedKatana::start(Host::None, "router");
    let held = katana.call("destructive", "modify_purchase_order");
    let data = &held["structuredContent"]["data"];
    assert_eq!(data["status"], "confirmation_required", "{held}");
    assert!(!held.to_string().contains("$prefab"), "the tree is not for models: {held}");
    let plan = data["plan_id"].as_str().unwrap();
    let shown = katana.world.run(&["plans", "show", plan]);
    assert!(shown.stdout.contains("+ additional_info  by Friday"), "{shown}");
    assert!(!shown.stdout.contains("\"actions\""), "no raw JSON: {shown}");
    assert_eq!(katana.world.run(&["approve", plan, "--yes"]).code, Some(0));
    let ran = katana.call("destructive", "modify_purchase_order");
    assert_eq!(ran["content"][0]["text"], "applied", "{ran}");
    let applied = std::fs::read_to_string(katana.world.work().join("applied.log")).unwrap();
    assert_eq!(applied, "modify_purchase_order\n");
}

#[test]
fn recorded_block_gets_no_token() {
    let katana = RecordedKatana::start(Host::None, "router");
    let held = katana.call("write", "create_stock_transfer");
    let data = &held["structuredContent"]["data"];
    assert!(data["blocks"][0].as_str().unwrap().starts_with("Source and destination are the same"), "{held}");
    assert!(data.get("confirm_token").is_none() && data.get("approve_command").is_none(), "{held}");
    let text = held["content"][0]["text"].as_str().unwrap();
    assert!(text.contains("can't run like this") && !text.contains("run_plan"), "{text}");
    let approved = katana.world.run(&["approve", data["plan_id"].as_str().unwrap(), "--yes"]);
    assert_eq!(approved.code, Some(3), "{approved}");
}

#[test]
fn recorded_card_is_kept_and_our_confirmation_is_beside_it() {
    let katana = RecordedKatana::start(Host::Cards, "direct");
    let listed = katana.client.tools();
    let tool = listed.iter().find(|tool| tool["name"] == "katana__create_customer").unwrap();
    let own = tool["_meta"]["ui"]["resourceUri"].as_str().unwrap();
    assert!(own.starts_with("ui://prefab/"), "{own}");
    let plain = listed.iter().find(|tool| tool["name"] == "katana__create_stock_transfer").unwrap();
    assert_eq!(plain["_meta"]["ui"]["resourceUri"], "ui://countersign/plan", "one without a card gets ours");
    let args = katana.arguments("create_customer").to_string();
    let held = katana.client.call("katana__create_customer", &args).result().clone();
    assert!(held["structuredContent"]["$prefab"].is_object(), "its own card is drawn: {held}");
    let tree = held["structuredContent"].to_string();
    assert!(
        tree.contains("\"action\":\"sendMessage\",\"content\":\"Apply: call katana__create_customer("),
        "{tree}"
    );
    assert!(!tree.contains("\"toolCall\""), "no button goes past the gateway: {tree}");
    let answer = &held["_meta"]["countersign/answer"]["data"];
    assert_eq!(answer["status"], "confirmation_required", "{held}");
    let text = held["content"][0]["text"].as_str().unwrap();
    assert!(text.contains("Waiting for confirmation") && text.contains("countersign approve"), "{text}");
}

#[test]
fn recorded_tools_carry_one_coaching() {
    let katana = RecordedKatana::start(Host::None, "direct");
    for tool in
        katana.client.tools().iter().filter(|tool| tool["name"].as_str().unwrap().starts_with("katana__"))
    {
        let said = tool["description"].as_str().unwrap();
        assert!(!said.contains("iframe"), "{said}");
        assert!(said.matches("re-issue").count() <= 1, "{said}");
    }
    let router = RecordedKatana::start(Host::None, "router");
    let asked = json!({"query": "create customer", "detail": "full"}).to_string();
    let found = router.client.call("retrieve_tools", &asked);
    assert!(!found.text.contains("iframe") && found.text.contains("Two-step flow"), "{}", found.text);
    let usage = "Use call_tool_read for read-only operations, call_tool_write for modifications, \
        call_tool_destructive for deletions. Intent must match tool variant.";
    assert_eq!(found.data()["usage_instructions"], usage, "seed 004, word for word");
}
