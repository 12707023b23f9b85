//! State left by the original tool: its snapshots name no roots and list target manifests among the changes, and its rollbacks keep
//! nothing of what they overwrite.

use countersign_policy::digest::Digest;
use serde_json::{Value, json};

use crate::world::{World, call};

const ROOT: &str = "home/.codex";
const FILE: &str = "home/.codex/AGENTS.md";
const RECORD: &str = "home/.codex/.agentpack.manifest.codex.json";

const MANIFEST: &str = "version: 1
profiles: { default: { include_tags: [base] } }
targets: { codex: { mode: files, scope: user } }
modules:
  - { id: 'instructions:base', type: instructions, tags: [base], source: { local_path: { path: modules/base } } }
";

fn sha(text: &str) -> String {
    Digest::plain(text.as_bytes()).hex()
}

/// What the original leaves behind when it deploys this text.
fn original_deploy(world: &World, id: &str, text: &str) {
    let record = json!({"schema_version": 1, "generated_at": "2026-01-11T00:00:00Z", "tool": "codex", "snapshot_id": id,
        "managed_files": [{"path": "AGENTS.md", "sha256": sha(text), "module_ids": ["instructions:base"]}]});
    let mut changes = Vec::new();
    for (name, after) in [(FILE, text.to_owned()), (RECORD, format!("{record:#}\n"))] {
        let path = world.path(name);
        let path = path.to_str().unwrap();
        let blob: String = sha(path).chars().take(16).collect();
        let before = std::fs::read_to_string(path).ok();
        let backup = format!("pack/state/snapshots/{id}/backup/codex/{blob}");
        let mut change =
            json!({"target": "codex", "op": "create", "path": path, "after_sha256": sha(&after)});
        if let Some(before) = before {
            world.write(&backup, &before);
            change["op"] = "update".into();
            change["before_sha256"] = sha(&before).into();
            change["backup_path"] = world.path(&backup).to_str().into();
        }
        changes.push(change);
        world.write(&format!("pack/state/snapshots/{id}/state/codex/{blob}"), &after);
        world.write(name, &after);
    }
    write_snapshot(world, id, "deploy", text, changes, Value::Null);
}

/// What the original leaves behind when it goes back.
fn original_rollback(world: &World, id: &str, to: &str, text: &str) {
    let path = world.path(FILE);
    let change = json!({"target": "codex", "op": "rollback_restore", "path": path, "before_sha256": sha(&world.read(FILE)),
        "after_sha256": sha(text)});
    world.write(FILE, text);
    write_snapshot(world, id, "rollback", text, vec![change], to.into());
}

fn write_snapshot(world: &World, id: &str, kind: &str, text: &str, changes: Vec<Value>, to: Value) {
    let managed = json!([{"target": "codex", "path": world.path(FILE), "sha256": sha(text)}]);
    let mut snapshot = json!({"kind": kind, "id": id, "created_at": "2026-01-11T00:00:00Z", "targets": ["codex"],
        "managed_files": managed, "changes": changes, "lockfile_sha256": null, "backup_root": ""});
    if to.is_string() {
        snapshot["rolled_back_to"] = to;
    }
    world.write(&format!("pack/state/snapshots/{id}.json"), &snapshot.to_string());
}

fn original_world() -> World {
    let world = World::new();
    world.write("repo/agentpack.yaml", MANIFEST);
    world
}

#[tokio::test]
async fn mixed_chains_of_deploys_roll_back_in_any_order() {
    let world = original_world();
    let (first, second) = ("1768089600000000001", "1768089600000000002");
    original_deploy(&world, first, "one\n");
    original_deploy(&world, second, "two\n");
    world.write("repo/modules/base/AGENTS.md", "three\n");
    let (tools, third) = world.deployed().await;
    assert_eq!(world.read(FILE), "three\n");
    for (to, text) in
        [(first, "one\n"), (&third, "three\n"), (second, "two\n"), (first, "one\n"), (&third, "three\n")]
    {
        let back = call(&tools, "rollback", json!({"to": to, "yes": true})).await;
        assert_eq!((&back["ok"], world.read(FILE).as_str()), (&json!(true), text), "{to}: {back:#}");
        let record: Value = serde_json::from_str(&world.read(RECORD)).unwrap();
        let file = json!({"path": "AGENTS.md", "sha256": sha(text), "module_ids": ["instructions:base"]});
        assert_eq!(record["managed_files"], json!([file]), "{to}");
    }
    call(&tools, "rollback", json!({"to": "initial", "yes": true})).await;
    assert!(!world.path(FILE).exists() && !world.path(RECORD).exists());
    // The root is known although nothing in it says so any more.
    let back = call(&tools, "rollback", json!({"to": second, "yes": true})).await;
    assert_eq!((&back["ok"], world.read(FILE).as_str()), (&json!(true), "two\n"), "{back:#}");
    assert!(world.path(RECORD).exists());
}

#[tokio::test]
async fn rollbacks_of_the_original_are_part_of_the_chain() {
    let world = original_world();
    let (first, second, event) = ("1768089600000000001", "1768089600000000002", "1768089600000000003");
    original_deploy(&world, first, "one\n");
    original_deploy(&world, second, "two\n");
    original_rollback(&world, event, first, "one\n");
    let tools = world.tools().await;
    for (to, text) in [(second, "two\n"), (first, "one\n")] {
        let back = call(&tools, "rollback", json!({"to": to, "yes": true})).await;
        assert_eq!((&back["ok"], world.read(FILE).as_str()), (&json!(true), text), "{to}: {back:#}");
    }
    call(&tools, "rollback", json!({"to": "initial", "yes": true})).await;
    assert!(!world.path(FILE).exists());
}

/// The original restores manifests from the changes of a snapshot, and takes `rolled_back_to` for the id of one.
#[tokio::test]
async fn our_snapshots_are_whole_for_the_original() {
    let world = original_world();
    let (tools, id) = world.deployed().await;
    let snapshot: Value =
        serde_json::from_str(&world.read(&format!("pack/state/snapshots/{id}.json"))).unwrap();
    let path = world.path(RECORD);
    let changes = snapshot["changes"].as_array().unwrap();
    let change = changes.iter().find(|change| change["path"] == path.to_str().unwrap()).unwrap();
    assert_eq!((&change["op"], &change["target"]), (&json!("create"), &json!("codex")));
    let blob: String = sha(path.to_str().unwrap()).chars().take(16).collect();
    assert_eq!(world.read(&format!("pack/state/snapshots/{id}/state/codex/{blob}")), world.read(RECORD));
    let back = call(&tools, "rollback", json!({"to": "initial", "yes": true})).await;
    let event = back["data"]["event_snapshot_id"].as_str().unwrap();
    let event: Value =
        serde_json::from_str(&world.read(&format!("pack/state/snapshots/{event}.json"))).unwrap();
    assert_eq!((&event["rolled_back_to"], &event["before_first"]), (&Value::Null, &json!(true)));
    assert!(!world.path(ROOT).join("AGENTS.md").exists());
}
