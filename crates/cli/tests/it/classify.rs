//! Proposed reads, at `tools classify` and at `init`: one table and one question for each server, rules about exactly those
//! definitions. And the presets that `init` writes for servers it recognises.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::people::kit::typed;
use crate::world::{Transcript, World};

/// A server without annotations: one tool that surely reads, one that may, one that changes.
const SERVER: &str = r#"
import json, sys
TOOLS = [
    {"name": "get_user", "description": "Look a user up\u202e", "inputSchema": {"type": "object", "properties": {"id": {"type": "string"}}}},
    {"name": "client_list", "inputSchema": {"type": "object"}},
    {"name": "create_user", "inputSchema": {"type": "object"}},
]
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message or "method" not in message:
        continue
    reply = {"jsonrpc": "2.0", "id": message["id"]}
    if message["method"] == "initialize":
        reply["result"] = {"protocolVersion": message["params"]["protocolVersion"], "capabilities": {"tools": {}},
                           "serverInfo": {"name": "people", "version": "1"}}
    elif message["method"] == "tools/list":
        reply["result"] = {"tools": TOOLS}
    else:
        reply["error"] = {"code": -32601, "message": "not found"}
    print(json.dumps(reply), flush=True)
"#;

fn configured() -> World {
    let world = World::new();
    let config = "# mine\n[upstreams.people]\ncommand = \"python3\"\nargs = [\"server.py\"]\n";
    world.write("server.py", SERVER).write("countersign.toml", config);
    world
}

/// A home whose Claude Code has these servers, by name.
fn with_servers(servers: &Value) -> World {
    let world = World::new();
    world.write("server.py", SERVER);
    fs::write(world.home().join(".claude.json"), json!({"mcpServers": servers}).to_string()).unwrap();
    world
}

fn people(world: &World) -> Value {
    json!({"command": "python3", "args": [world.work().join("server.py")]})
}

fn home_config(world: &World) -> PathBuf {
    world.home().join(".config/countersign/countersign.toml")
}

fn host_file(world: &World) -> String {
    fs::read_to_string(world.home().join(".claude.json")).unwrap()
}

/// The tools that a configuration counts as reads while they are defined as they are.
fn reads(text: &str) -> Vec<String> {
    let table: toml_edit::DocumentMut = text.parse().unwrap();
    let rules = table.get("rules").and_then(|rules| rules.as_array_of_tables());
    let pinned = rules.into_iter().flatten().filter(|rule| {
        rule.get("fingerprint").and_then(|one| one.as_str()).is_some_and(|hex| hex.len() == 64)
            && rule.get("effect").and_then(|one| one.as_str()) == Some("read")
    });
    pinned.map(|rule| rule["match"].as_str().unwrap().to_owned()).collect()
}

fn effect(world: &World, tool: &str) -> String {
    let listed = world.run(&["tools", "list", "--json"]).envelope();
    let tools = listed["data"]["tools"].as_array().unwrap();
    let found = tools.iter().find(|one| one["name"] == tool || one["tool"] == tool);
    found.unwrap_or_else(|| panic!("{listed:#}"))["effect"].as_str().unwrap().to_owned()
}

#[test]
fn classify_asks_once_for_each_server_at_a_terminal() {
    for (answers, expect) in [
        (vec![("Enter: the 1 of high", "\n")], vec!["people:get_user"]),
        (vec![("Enter: the 1 of high", "y\n")], vec!["people:get_user", "people:client_list"]),
        (vec![("Enter: the 1 of high", "what?\n"), ("yes, no or details", "n\n")], vec![]),
        // The end of input is no answer.
        (vec![("Enter: the 1 of high", "\u{4}")], vec![]),
        (
            vec![
                ("Enter: the 1 of high", "details\n"),
                ("Count it as a read?", "n\n"),
                ("Count it as a read?", "y\n"),
            ],
            vec!["people:client_list"],
        ),
    ] {
        let world = configured();
        let shown = typed(&world, &["tools", "classify"], &answers);
        assert_eq!(shown.code, Some(0), "{shown}");
        for word in ["people:get_user", "people:client_list", "CONFIDENCE", "`get` in its name"] {
            assert!(shown.stdout.contains(word), "{word}: {shown}");
        }
        assert!(!shown.stdout.contains("create_user"), "{shown}");
        assert!(!shown.stdout.contains('\u{202e}'), "{shown}");
        let mut found = reads(&world.read("countersign.toml"));
        found.sort_by_key(|name| name.contains("client"));
        assert_eq!(found, expect, "{shown}");
        assert!(world.read("countersign.toml").starts_with("# mine\n"));
    }
}

#[test]
fn classify_details_show_what_a_tool_says_and_takes() {
    let world = configured();
    let answers =
        [("Enter: the 1 of high", "d\n"), ("Count it as a read?", "y\n"), ("Count it as a read?", "\n")];
    let shown = typed(&world, &["tools", "classify"], &answers);
    assert!(shown.stdout.contains("Look a user up") && shown.stdout.contains("arguments: id"), "{shown}");
    assert_eq!(reads(&world.read("countersign.toml")), ["people:get_user"], "{shown}");
    assert_eq!(effect(&world, "people:get_user"), "read");
    assert_eq!(effect(&world, "people:client_list"), "write");
}

#[test]
fn classify_writes_into_rules_of_one_line_as_well() {
    let world = configured();
    let text = world.read("countersign.toml");
    let rules = "rules = [{ match = \"people:create_user\", confirm = \"preview\" }]\n";
    world.write("countersign.toml", &format!("{rules}{text}"));
    let done = world.run(&["tools", "classify", "--yes"]);
    assert_eq!(done.code, Some(0), "{done}");
    assert!(world.read("countersign.toml").contains("fingerprint = "), "{}", world.read("countersign.toml"));
    assert_eq!(effect(&world, "people:get_user"), "read");
}

#[test]
fn init_asks_about_proposed_reads_and_writes_them_in_the_same_difference() {
    let world = World::new();
    world.write("server.py", SERVER);
    let servers = json!({"mcpServers": {"people": people(&world)}}).to_string();
    fs::write(world.home().join(".claude.json"), &servers).unwrap();
    let answers = [
        ("Enter: the 1 of high", "\n"),
        ("Who must agree to a change?", "\n"),
        ("How shall sessions begin?", "2\n"),
        ("Write the rules of", "n\n"),
        ("Change 2 files?", "y\n"),
    ];
    let shown = typed(&world, &["init", "--host", "claude-code"], &answers);
    assert_eq!(shown.code, Some(0), "{shown}");
    let difference = shown.stdout.split_once("How shall sessions begin").unwrap().1;
    assert!(difference.contains("+match = \"people:get_user\""), "{shown}");
    assert!(difference.contains("+fingerprint = "), "{shown}");
    assert_eq!(reads(&fs::read_to_string(home_config(&world)).unwrap()), ["people:get_user"]);
    let undone = world.run(&["init", "--undo"]);
    assert_eq!(undone.code, Some(0), "{undone}");
    assert_eq!(host_file(&world), servers);
    assert!(!home_config(&world).exists());
}

#[test]
fn init_with_yes_says_what_is_proposed_and_accepts_only_with_a_flag() {
    let world = World::new();
    world.write("server.py", SERVER);
    let servers = json!({"mcpServers": {"people": people(&world)}}).to_string();
    fs::write(world.home().join(".claude.json"), &servers).unwrap();
    let init = |more: &[&str]| world.run(&[&["init", "--host", "claude-code"], more].concat());
    let shown = init(&["--dry-run", "--classify"]);
    assert!(shown.to_string().contains("+match = \"people:get_user\""), "{shown}");
    assert!(!home_config(&world).exists() && host_file(&world) == servers);

    let said = init(&["--yes"]);
    assert_eq!(said.code, Some(0), "{said}");
    assert!(said.to_string().contains("people:get_user"), "{said}");
    assert!(said.to_string().contains("--classify accepts those of high confidence"), "{said}");
    assert!(said.to_string().contains("countersign tools classify"), "{said}");
    assert_eq!(reads(&fs::read_to_string(home_config(&world)).unwrap()), Vec::<String>::new());
    assert_eq!(world.run(&["init", "--undo"]).code, Some(0));

    let done = init(&["--yes", "--classify", "--json"]).envelope();
    assert_eq!(done["data"]["accepted"], json!(["people:get_user"]), "{done:#}");
    assert_eq!(done["data"]["proposals"].as_array().unwrap().len(), 2, "{done:#}");
    assert_eq!(reads(&fs::read_to_string(home_config(&world)).unwrap()), ["people:get_user"]);
    assert_eq!(world.run(&["init", "--undo"]).code, Some(0));
    assert_eq!(host_file(&world), servers);
}

/// Servers that never answer are waited for together and for a bounded time; what the others propose is there.
#[test]
fn init_does_not_wait_long_for_servers_that_hang() {
    let world = World::new();
    world.write("server.py", SERVER);
    let hang = json!({"command": "sh", "args": ["-c", "trap '' TERM; while :; do sleep 1; done"]});
    let mut servers = json!({"people": people(&world)});
    for name in ["one", "two", "three", "four"] {
        servers[name] = hang.clone();
        servers[name]["env"] = json!({"WHICH": name});
    }
    fs::write(world.home().join(".claude.json"), json!({"mcpServers": servers}).to_string()).unwrap();
    let began = Instant::now();
    let wait = ["--wait", "10", "--host", "claude-code", "--yes", "--classify", "--json"];
    let done = world.run(&[&["init"], &wait[..]].concat());
    let took = began.elapsed();
    assert_eq!(done.envelope()["data"]["accepted"], json!(["people:get_user"]), "{done}");
    assert!(took < Duration::from_secs(25), "{took:?}");
}

fn preset_of(done: &Transcript, name: &str) -> Value {
    let data = done.envelope()["data"].clone();
    let found = data["upstreams"].as_array().unwrap().iter().find(|one| one["name"] == name).cloned();
    found.unwrap_or_else(|| panic!("{data:#}"))["preset"].clone()
}

#[test]
fn init_writes_the_presets_of_servers_it_recognises_for_the_names_they_have() {
    let world = with_servers(&json!({
        "docs": {"command": "npx", "args": ["-y", "@modelcontextprotocol/server-filesystem", "/srv"]},
        "code": {"command": "uvx", "args": ["mcp-server-git", "--repository", "/srv"]},
        "cache": {"command": "uvx", "args": ["--from", "redis-mcp-server@latest", "redis-mcp-server"]},
    }));
    let before = host_file(&world);
    let done = world.run(&["init", "--host", "claude-code", "--no-start", "--yes", "--json"]);
    assert_eq!(done.code, Some(0), "{done}");
    for (name, preset) in [("docs", "filesystem"), ("code", "git"), ("cache", "redis")] {
        assert_eq!(preset_of(&done, name), preset, "{done}");
    }
    let config = home_config(&world).display().to_string();
    let explain = |tool: &str| {
        let said = world.run(&["policy", "explain", "--tool", tool, "--config", &config, "--json"]);
        said.envelope()["data"]["explained"]["effect"].as_str().unwrap().to_owned()
    };
    for (tool, expect) in [
        ("docs:directory_tree", "read"),
        ("docs:write_file", "destructive"),
        ("code:git_log", "read"),
        ("code:git_reset", "destructive"),
        ("cache:dbsize", "read"),
        ("cache:set_vector_in_hash", "destructive"),
        ("docs:git_log", "write"),
    ] {
        assert_eq!(explain(tool), expect, "{tool}");
    }
    let checked = world.run(&["policy", "check", "--config", &config]);
    assert_eq!(checked.code, Some(0), "{checked}");
    assert_eq!(world.run(&["init", "--undo"]).code, Some(0));
    assert_eq!(host_file(&world), before);
}

#[test]
fn attack_a_server_named_like_a_published_one_gets_none_of_its_rules() {
    let world = with_servers(&json!({
        "git": {"command": "/tmp/evil/mcp-server-git", "args": []},
        "filesystem": {"command": "npx", "args": ["-y", "@evil/server-filesystem"]},
        "redis": {"command": "uvx", "args": ["--from", "evil", "redis-mcp-server"]},
    }));
    let done = world.run(&["init", "--host", "claude-code", "--no-start", "--yes", "--json"]);
    for name in ["git", "filesystem", "redis"] {
        assert_eq!(preset_of(&done, name), Value::Null, "{done}");
    }
    assert!(!fs::read_to_string(home_config(&world)).unwrap().contains("[[rules]]"));
}

#[test]
fn presets_are_listed() {
    let world = World::new();
    let shown = world.run(&["init", "--list-presets"]);
    assert_eq!(shown.code, Some(0), "{shown}");
    for word in ["terraform", "pypi:mcp-server-git", "npm:@modelcontextprotocol/server-filesystem"] {
        assert!(shown.stdout.contains(word), "{word}: {shown}");
    }
    let listed = world.run(&["init", "--list-presets", "--json"]).envelope();
    let presets = listed["data"]["presets"].as_array().unwrap();
    assert!(presets.iter().any(|one| one["kind"] == "server" && one["name"] == "redis"), "{listed:#}");
    assert_eq!(world.run(&["init", "--list-presets", "--yes"]).code, Some(2));
}
