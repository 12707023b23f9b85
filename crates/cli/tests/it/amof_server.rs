//! `presets/amof-server.toml`: the classes of AMOF's mode policy for every tool of its own server, which has no annotations.

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::world::World;

/// Each tool with its effect and the confirmation it needs.
const MATRIX: [(&str, &str, &str); 39] = [
    ("amof_scope_info", "read", "none"),
    ("amof_scope_back", "read", "none"),
    ("amof_use_ecosystem", "read", "none"),
    ("amof_scope_global", "read", "none"),
    ("amof_set_mode", "read", "none"),
    ("amof_confirm", "write", "none"),
    ("amof_cancel_confirm", "read", "none"),
    ("amof_list_ecosystems", "read", "none"),
    ("amof_get_server_status", "read", "none"),
    ("amof_get_active_runs", "read", "none"),
    ("amof_describe_ecosystem", "read", "none"),
    ("amof_get_ecosystem_status", "read", "none"),
    ("amof_validate_manifest", "read", "none"),
    ("amof_ticket_list", "read", "none"),
    ("amof_list_runs", "read", "none"),
    ("amof_get_run_status", "read", "none"),
    ("amof_get_run_logs", "read", "none"),
    ("amof_summarize_run", "read", "none"),
    ("amof_release_status", "read", "none"),
    ("amof_release_validate", "read", "none"),
    ("amof_release_log", "read", "none"),
    ("amof_server_status", "read", "none"),
    ("amof_global_telemetry", "read", "none"),
    ("amof_agent_stats", "read", "none"),
    ("amof_sync_ecosystem", "write", "none"),
    ("amof_ticket_start", "write", "none"),
    ("amof_ticket_switch", "write", "none"),
    ("amof_ticket_end", "write", "none"),
    ("amof_server_start", "write", "none"),
    ("amof_install_ecosystem", "write", "simple"),
    ("amof_server_stop", "write", "simple"),
    ("amof_server_restart", "write", "simple"),
    ("amof_push_ecosystem", "write", "simple"),
    ("amof_archive_ecosystem", "write", "simple"),
    ("amof_spin_deploy", "write", "preview"),
    ("amof_release_bump", "write", "preview"),
    ("amof_release_promote", "write", "preview"),
    ("amof_spin_destroy", "destructive", "preview"),
    ("amof_discard_ecosystem", "destructive", "preview"),
];

fn world() -> World {
    let world = World::new();
    world.write(
        "countersign.toml",
        "[upstreams.amof]\ncommand = \"python3\"\nargs = [\"-m\", \"amof.mcp\"]\n",
    );
    world
}

fn explain(world: &World, tool: &str, args: &Value, mode: &str) -> Value {
    let preset = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../presets/amof-server.toml");
    let (tool, args, preset) = (format!("amof:{tool}"), args.to_string(), preset.display().to_string());
    let asked = ["policy", "explain", "--tool", &tool, "--args", &args, "--mode", mode, "--json"];
    let told = world.run(&[&asked[..], &["--config", "countersign.toml", "--config", &preset]].concat());
    told.envelope()["data"]["explained"].clone()
}

#[test]
fn every_tool_of_the_server_has_its_class() {
    let world = world();
    for (tool, effect, confirm) in MATRIX {
        let told = explain(&world, tool, &json!({}), "execute");
        assert_eq!(
            (told["effect"].as_str(), told["confirm"].as_str()),
            (Some(effect), Some(confirm)),
            "{tool}: {told}"
        );
        let asked = explain(&world, tool, &json!({}), "ask");
        let verdict = if effect == "read" { "go" } else { "explain" };
        assert_eq!(asked["verdict"].as_str(), Some(verdict), "{tool} in ask mode: {asked}");
    }
}

#[test]
fn a_person_types_the_ecosystems_name_before_the_servers_token_is_spent() {
    let told = explain(&world(), "amof_confirm", &json!({"token": "t", "typed_value": "demo"}), "execute");
    assert_eq!(
        (told["effect"].as_str(), told["confirm"].as_str()),
        (Some("destructive"), Some("type")),
        "{told}"
    );
    let decided = told["decided"].as_array().unwrap();
    let typed = decided.iter().find(|one| one["field"] == "type_field").unwrap();
    assert_eq!(typed["value"], "typed_value", "{told}");
}
