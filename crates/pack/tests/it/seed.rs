//! The scenarios of the seed that need no protocol, each by its name. Those that do are tested through the binary.

use serde_json::{Value, json};

use crate::world::{World, call, code, result};

const TOOLS: [&str; 11] = [
    "plan",
    "diff",
    "preview",
    "status",
    "doctor",
    "deploy",
    "deploy_apply",
    "rollback",
    "evolve_propose",
    "evolve_restore",
    "explain",
];

#[test]
fn tools_list_includes_the_stabilized_tool_set() {
    let definitions = countersign_pack::tools::definitions();
    let names: Vec<&str> = definitions.iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    assert_eq!(names, TOOLS);
    let plan = &definitions[0]["inputSchema"];
    assert_eq!(
        plan["properties"]["target"]["enum"],
        json!(["all", "codex", "claude_code", "cursor", "vscode"])
    );
    assert_eq!(definitions[6]["inputSchema"]["required"], json!(["yes", "confirm_token"]));
    assert_eq!(definitions[6]["inputSchema"]["properties"]["yes"]["const"], true);
    for tool in &definitions {
        assert_eq!(tool["inputSchema"]["additionalProperties"], false, "{tool:?}");
        let changes = ["deploy_apply", "rollback", "evolve_propose", "evolve_restore"]
            .contains(&tool["name"].as_str().unwrap());
        assert_eq!(tool["annotations"]["readOnlyHint"], !changes, "{tool:?}");
    }
}

#[tokio::test]
async fn plan_tool_returns_an_agentpack_envelope() {
    let world = World::new();
    let tools = world.tools().await;
    for (tool, arguments, command) in [
        ("plan", json!({}), "plan"),
        ("diff", json!({}), "diff"),
        ("preview", json!({"diff": true}), "preview"),
        ("status", json!({"only": ["missing"]}), "status"),
        ("doctor", json!({}), "doctor"),
        ("deploy", json!({}), "deploy"),
        ("evolve_propose", json!({"dry_run": true}), "evolve.propose"),
        ("evolve_restore", json!({"dry_run": true}), "evolve.restore"),
        ("explain", json!({"kind": "plan"}), "explain.plan"),
        ("explain", json!({"kind": "diff"}), "explain.diff"),
        ("explain", json!({"kind": "status"}), "explain.status"),
    ] {
        let envelope = call(&tools, tool, arguments).await;
        assert_eq!((&envelope["schema_version"], &envelope["ok"]), (&json!(1), &json!(true)), "{envelope:#}");
        assert_eq!(envelope["command"], command);
        assert!(envelope["version"].is_string());
    }
    let unknown = result(&tools, "nonsense", json!({})).await;
    assert_eq!(unknown["content"][0]["text"], "unknown tool: nonsense", "{unknown:#}");
    assert_eq!(unknown["isError"], true);
    let plan = call(&tools, "plan", json!({})).await;
    assert_eq!(plan["data"]["summary"], json!({"create": 11, "update": 0, "delete": 0}), "{plan:#}");
}

#[tokio::test]
async fn deploy_apply_without_yes_is_refused() {
    let world = World::new();
    let tools = world.tools().await;
    for arguments in [
        json!({}),
        json!({"yes": false}),
        json!({"confirm_token": "x"}),
        json!({"yes": false, "dry_run": true}),
        json!({"yes": "true"}),
        json!({"yes": 1, "target": "nowhere", "bogus": []}),
    ] {
        let envelope = call(&tools, "deploy_apply", arguments).await;
        assert_eq!(code(&envelope), "E_CONFIRM_REQUIRED");
        assert_eq!(envelope["errors"][0]["details"]["next_actions"], json!(["retry_with_yes"]));
        assert_eq!(envelope["command"], "deploy");
    }
    for (tool, arguments) in [
        ("rollback", json!({"to": "1"})),
        ("rollback", json!({})),
        ("evolve_restore", json!({"yes": null})),
        ("evolve_propose", json!({})),
        ("evolve_restore", json!({"yes": false})),
    ] {
        assert_eq!(code(&call(&tools, tool, arguments).await), "E_CONFIRM_REQUIRED", "{tool}");
    }
    assert!(!world.path("project/AGENTS.md").exists());
}

#[tokio::test]
async fn deploy_tool_returns_a_confirm_token() {
    let world = World::new();
    let tools = world.tools().await;
    let envelope = call(&tools, "deploy", json!({})).await;
    let data = &envelope["data"];
    assert!(data["confirm_token"].as_str().unwrap().len() >= 32);
    assert_eq!(data["confirm_plan_hash"].as_str().unwrap().len(), 64);
    let expires: jiff::Timestamp = data["confirm_token_expires_at"].as_str().unwrap().parse().unwrap();
    let life = expires.as_second() - jiff::Timestamp::now().as_second();
    assert!((200..=600).contains(&life), "{life}");
    assert_eq!(data["applied"], false);
    assert!(!world.path("project/AGENTS.md").exists(), "nothing is written");
}

#[tokio::test]
async fn deploy_apply_with_mismatched_token_is_refused() {
    let world = World::new();
    let tools = world.tools().await;
    let refused = |envelope: &Value, expect: &str, reason: &str| {
        assert_eq!(code(envelope), expect);
        let details = &envelope["errors"][0]["details"];
        assert_eq!(details["reason_code"], reason, "{envelope:#}");
        assert_eq!(details["next_actions"], json!(["call_deploy", "retry_deploy_apply"]));
    };
    let foreign = call(&tools, "deploy_apply", json!({"yes": true, "confirm_token": "made-up"})).await;
    refused(&foreign, "E_CONFIRM_TOKEN_MISMATCH", "confirm_token_mismatch");
    for missing in [json!({"yes": true}), json!({"yes": true, "confirm_token": ""})] {
        let envelope = call(&tools, "deploy_apply", missing).await;
        refused(&envelope, "E_CONFIRM_TOKEN_REQUIRED", "confirm_token_required");
    }
    let planned = call(&tools, "deploy", json!({})).await;
    let token = planned["data"]["confirm_token"].clone();
    let other =
        call(&tools, "deploy_apply", json!({"yes": true, "confirm_token": token, "target": "codex"})).await;
    refused(&other, "E_CONFIRM_TOKEN_MISMATCH", "confirm_token_mismatch");
    world.write("repo/modules/base/AGENTS.md", "changed since\n");
    let drifted = call(&tools, "deploy_apply", json!({"yes": true, "confirm_token": token})).await;
    refused(&drifted, "E_CONFIRM_TOKEN_MISMATCH", "plan_drifted");
    let details = &drifted["errors"][0]["details"];
    assert_eq!(details["expected_confirm_plan_hash"], planned["data"]["confirm_plan_hash"]);
    assert_ne!(details["confirm_plan_hash"], details["expected_confirm_plan_hash"]);
    assert!(!world.path("project/AGENTS.md").exists());
}

#[tokio::test]
async fn deploy_apply_with_mismatched_token_includes_refusal_details() {
    let world = World::new();
    let tools = world.tools().await;
    let planned = call(&tools, "deploy", json!({"target": "codex"})).await;
    let token = planned["data"]["confirm_token"].clone();
    let refused = call(&tools, "deploy_apply", json!({"yes": true, "confirm_token": token})).await;
    assert_eq!(code(&refused), "E_CONFIRM_TOKEN_MISMATCH", "a token of another plan");
    let details = &refused["errors"][0]["details"];
    assert_eq!(details["reason_code"], "confirm_token_mismatch", "{refused:#}");
    assert_eq!(details["next_actions"], json!(["call_deploy", "retry_deploy_apply"]), "{refused:#}");
    assert!(!world.path("home/.codex/AGENTS.md").exists());
}

#[tokio::test]
async fn deploy_apply_without_adopt_includes_refusal_details() {
    let world = World::new();
    world.write("home/.codex/AGENTS.md", "mine\n");
    let tools = world.tools().await;
    let token = call(&tools, "deploy", json!({})).await["data"]["confirm_token"].clone();
    let refused =
        call(&tools, "deploy_apply", json!({"yes": true, "confirm_token": token, "adopt": false})).await;
    assert_eq!(code(&refused), "E_ADOPT_CONFIRM_REQUIRED");
    assert_eq!(refused["errors"][0]["details"]["next_actions"], json!(["retry_with_adopt"]));
    assert_eq!(refused["errors"][0]["details"]["adopt_updates"], 1);
    assert_eq!(world.read("home/.codex/AGENTS.md"), "mine\n");
    // The token is still good.
    let applied =
        call(&tools, "deploy_apply", json!({"yes": true, "confirm_token": token, "adopt": true})).await;
    assert_eq!(applied["data"]["applied"], true, "{applied:#}");
    assert!(world.read("home/.codex/AGENTS.md").contains("be kind"));
}

#[tokio::test]
async fn a_deployment_from_plan_to_rollback() {
    let world = World::new();
    world.write("project/AGENTS.md", "ours before\n");
    let tools = world.tools().await;
    let token =
        call(&tools, "deploy", json!({"profile": "default", "target": "all"})).await["data"]["confirm_token"]
            .clone();
    // Left out or given, the resolved parameters are the same.
    let applied =
        call(&tools, "deploy_apply", json!({"yes": true, "confirm_token": token, "adopt": true})).await;
    let first = applied["data"]["snapshot_id"].as_str().unwrap().to_owned();
    assert_eq!(
        world.read("project/AGENTS.md"),
        "<!-- agentpack:module=instructions:base -->\nbe kind\n<!-- /agentpack -->\n\n---\n\n<!-- agentpack:module=instructions:more -->\nbe brief\n<!-- /agentpack -->"
    );
    assert_eq!(world.read("project/.github/prompts/draft.prompt.md"), "draft it\n");
    let again =
        call(&tools, "deploy_apply", json!({"yes": true, "confirm_token": token, "adopt": true})).await;
    assert_eq!(code(&again), "E_CONFIRM_TOKEN_USED");
    let status = call(&tools, "status", json!({})).await;
    assert_eq!(status["data"]["summary"], json!({"modified": 0, "missing": 0, "extra": 0}), "{status:#}");
    world.write("project/.claude/commands/go.md", "edited\n");
    std::fs::remove_file(world.path("home/.codex/prompts/draft.md")).unwrap();
    world.write("home/.codex/prompts/own.md", "own\n");
    let status = call(&tools, "status", json!({"only": ["modified", "extra"]})).await;
    assert_eq!(status["data"]["summary"], json!({"modified": 1, "missing": 0, "extra": 1}), "{status:#}");
    assert_eq!(status["data"]["summary_total"], json!({"modified": 1, "missing": 1, "extra": 1}));
    let restored = call(&tools, "evolve_restore", json!({"yes": true})).await;
    assert_eq!(restored["data"]["summary"]["restored"], 1, "{restored:#}");
    assert_eq!(world.read("home/.codex/prompts/draft.md"), "draft it\n");
    let unknown = call(&tools, "rollback", json!({"to": "12345", "yes": true})).await;
    assert_eq!(code(&unknown), "E_SNAPSHOT_NOT_FOUND");
    assert_eq!(unknown["errors"][0]["details"]["snapshots"], json!([first]));
    let back = call(&tools, "rollback", json!({"to": first, "yes": true})).await;
    assert_eq!(back["data"]["rolled_back_to"], first.as_str(), "{back:#}");
    assert!(world.read("project/.claude/commands/go.md").contains("goes"));
    let initial = call(&tools, "rollback", json!({"to": "initial", "yes": true})).await;
    assert_eq!(initial["ok"], true, "{initial:#}");
    assert_eq!(world.read("project/AGENTS.md"), "ours before\n");
    assert!(!world.path("project/.claude/commands/go.md").exists());
    assert_eq!(world.read("home/.codex/prompts/own.md"), "own\n");
}

#[tokio::test]
async fn edits_come_back_as_overlays_on_a_branch() {
    let world = World::new();
    let git = |args: &[&str]| {
        let mut command = std::process::Command::new("git");
        command.current_dir(world.path("repo")).env("HOME", world.path("home")).args(args);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let tools = world.tools().await;
    let token = call(&tools, "deploy", json!({})).await["data"]["confirm_token"].clone();
    call(&tools, "deploy_apply", json!({"yes": true, "confirm_token": token})).await;
    let joined = world.read("project/AGENTS.md").replace("be brief", "be very brief");
    world.write("project/AGENTS.md", &joined);
    world.write("project/.claude/commands/go.md", "---\ndescription: goes\n---\ngo faster\n");
    assert_eq!(code(&call(&tools, "evolve_propose", json!({"yes": true})).await), "E_GIT_REPO_REQUIRED");
    git(&["init", "--quiet", "-b", "main"]);
    git(&["config", "user.name", "t"]);
    git(&["config", "user.email", "t@example.com"]);
    assert_eq!(code(&call(&tools, "evolve_propose", json!({"yes": true})).await), "E_GIT_WORKTREE_DIRTY");
    git(&["add", "."]);
    git(&["commit", "--quiet", "-m", "first"]);
    let dry = call(&tools, "evolve_propose", json!({"dry_run": true})).await;
    assert_eq!(dry["data"]["candidates"].as_array().unwrap().len(), 2, "{dry:#}");
    let proposed = call(&tools, "evolve_propose", json!({"yes": true})).await;
    assert_eq!(
        (&proposed["data"]["created"], &proposed["data"]["committed"]),
        (&json!(true), &json!(true)),
        "{proposed:#}"
    );
    let branch = proposed["data"]["branch"].as_str().unwrap();
    assert!(branch.starts_with("evolve/propose-global-multi-"), "{branch}");
    assert_eq!(git(&["branch", "--show-current"]).trim(), "main");
    assert_eq!(git(&["status", "--porcelain"]), "");
    git(&["merge", "--quiet", branch]);
    // What was edited is now what should be there.
    let plan = call(&tools, "plan", json!({"target": "codex"})).await;
    let changed: Vec<&str> = plan["data"]["changes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|change| change["path"].as_str().unwrap())
        .collect();
    assert_eq!(changed, [world.path("home/.codex/AGENTS.md").to_str().unwrap()], "{plan:#}");
    let why = call(&tools, "explain", json!({"kind": "plan", "target": "claude_code"})).await;
    assert_eq!(why["data"]["changes"][0]["modules"][0]["layer"], "global", "{why:#}");
    let none = call(&tools, "evolve_propose", json!({"yes": true, "module_id": "prompt:draft"})).await;
    assert_eq!((&none["data"]["created"], &none["data"]["reason"]), (&json!(false), &json!("no_drift")));
}

#[tokio::test]
async fn arguments_that_do_not_fit_are_refused() {
    let world = World::new();
    let tools = world.tools().await;
    for (tool, arguments, expect) in [
        ("plan", json!({"nonsense": 1}), "E_ARGUMENTS_INVALID"),
        ("plan", json!({"profile": 1}), "E_ARGUMENTS_INVALID"),
        ("plan", json!({"dry_run": "yes"}), "E_ARGUMENTS_INVALID"),
        ("plan", json!({"target": "emacs"}), "E_TARGET_UNSUPPORTED"),
        ("plan", json!({"profile": "nobody"}), "E_CONFIG_INVALID"),
        ("plan", json!({"repo": "/nowhere"}), "E_CONFIG_MISSING"),
        ("status", json!({"only": ["gone"]}), "E_ARGUMENTS_INVALID"),
        ("explain", json!({}), "E_ARGUMENTS_INVALID"),
        ("rollback", json!({"yes": true}), "E_ARGUMENTS_INVALID"),
    ] {
        assert_eq!(code(&call(&tools, tool, arguments.clone()).await), expect, "{tool} {arguments}");
    }
    let failed = call(&tools, "deploy", json!({"repo": "/nowhere"})).await;
    assert_eq!(failed["data"], json!({}), "no token with a failed plan");
}
