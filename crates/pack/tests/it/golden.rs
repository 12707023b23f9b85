//! The behaviours people of the original tool rely on: which file goes where, what manifests, snapshots and lockfiles look like, how a
//! plan decides, what `status`, `doctor` and `explain` answer. Repositories, manifests and snapshots of the original as they are.

use countersign_pack::place::{PackEnvironment, fs_key};
use countersign_policy::digest::Digest;
use serde_json::{Value, json};

use crate::world::{MANIFEST, World, call, code};

fn paths(world: &World, plan: &Value) -> Vec<String> {
    let room = world.path("").to_str().unwrap().to_owned();
    let changes = plan["data"]["changes"].as_array().unwrap().iter();
    changes.map(|change| change["path"].as_str().unwrap().replace(&room, "")).collect()
}

#[tokio::test]
async fn every_target_has_its_files_where_its_host_looks() {
    let world = World::new();
    let more =
        "  jetbrains: { mode: files, scope: project }\n  zed: { mode: files, scope: project }\nmodules:";
    let skills = MANIFEST.replace(
        "claude_code: { mode: files, scope: both }",
        "claude_code: { mode: files, scope: both, options: { write_repo_skills: true } }",
    );
    world.write("repo/agentpack.yaml", &skills.replace("modules:", more));
    let tools = world.tools().await;
    let plan = call(&tools, "plan", json!({})).await;
    let (base, rest) = (fs_key("instructions:base"), fs_key("instructions:more"));
    assert_eq!(
        paths(&world, &plan),
        [
            "home/.claude/commands/go.md".to_owned(),
            "project/.claude/commands/go.md".to_owned(),
            "project/.claude/skills/review/SKILL.md".to_owned(),
            "home/.codex/AGENTS.md".to_owned(),
            "home/.codex/prompts/draft.md".to_owned(),
            "home/.codex/skills/review/SKILL.md".to_owned(),
            "project/.codex/skills/review/SKILL.md".to_owned(),
            "project/AGENTS.md".to_owned(),
            format!("project/.cursor/rules/{base}.mdc"),
            format!("project/.cursor/rules/{rest}.mdc"),
            "project/.junie/guidelines.md".to_owned(),
            "project/.github/copilot-instructions.md".to_owned(),
            "project/.github/prompts/draft.prompt.md".to_owned(),
            "project/.rules".to_owned(),
        ],
        "{plan:#}"
    );
    assert_eq!(
        plan["data"]["targets"],
        json!(["claude_code", "codex", "cursor", "jetbrains", "vscode", "zed"])
    );
    world.deployed().await;
    let rule = world.read(&format!("project/.cursor/rules/{base}.mdc"));
    assert_eq!(
        rule,
        "---\ndescription: \"agentpack: instructions:base\"\nglobs: []\nalwaysApply: true\n---\n\nbe kind\n"
    );
    assert_eq!(world.read("project/AGENTS.md"), world.read("project/.github/copilot-instructions.md"));
}

#[tokio::test]
async fn the_option_wins_over_the_variable_for_codex() {
    let world = World::new();
    let home = world.path("elsewhere");
    let place = PackEnvironment { codex_home: Some(home.clone()), ..world.place() };
    let plan = call(&world.server_at(place.clone()).await, "plan", json!({"target": "codex"})).await;
    assert!(paths(&world, &plan).contains(&"elsewhere/AGENTS.md".to_owned()), "{plan:#}");
    let option = "codex: { mode: files, scope: both, options: { codex_home: '~/own' } }";
    world.write("repo/agentpack.yaml", &MANIFEST.replace("codex: { mode: files, scope: both }", option));
    let plan = call(&world.server_at(place).await, "plan", json!({"target": "codex"})).await;
    assert!(paths(&world, &plan).contains(&"home/own/AGENTS.md".to_owned()), "{plan:#}");
}

#[tokio::test]
async fn a_profile_takes_what_its_tags_and_names_say() {
    let world = World::new();
    let profiles = "profiles:
  default: { include_tags: [nothing] }
  work: { include_tags: [base], include_modules: [], exclude_modules: ['command:go', 'instructions:more'] }
  one: { include_modules: ['prompt:draft'] }";
    let text = MANIFEST.replace("profiles: { default: { include_tags: [base] } }", profiles);
    let text =
        text.replace("'skill:review', type: skill,", "'skill:review', type: skill, targets: [claude_code],");
    world.write("repo/agentpack.yaml", &text);
    let tools = world.tools().await;
    assert_eq!(paths(&world, &call(&tools, "plan", json!({})).await).len(), 0, "no tag matches");
    let one = call(&tools, "plan", json!({"profile": "one", "target": "codex"})).await;
    assert_eq!(paths(&world, &one), ["home/.codex/prompts/draft.md"]);
    let work = call(&tools, "plan", json!({"profile": "work", "target": "codex"})).await;
    assert_eq!(
        paths(&world, &work),
        ["home/.codex/AGENTS.md", "home/.codex/prompts/draft.md", "project/AGENTS.md"]
    );
    world.write(
        "repo/agentpack.yaml",
        &MANIFEST.replace("'prompt:draft', ", "'prompt:draft', enabled: false, "),
    );
    let plan = call(&tools, "plan", json!({})).await;
    assert!(!paths(&world, &plan).iter().any(|path| path.contains("draft")), "{plan:#}");
}

#[tokio::test]
async fn a_change_says_what_it_is_and_why() {
    let world = World::new();
    world.write("project/AGENTS.md", "others\n");
    let (tools, _) = world.deployed().await;
    world.write("repo/modules/draft.md", "draft again\n");
    std::fs::remove_file(world.path("project/AGENTS.md")).unwrap();
    std::fs::remove_file(world.path("project/.agentpack.manifest.codex.json")).unwrap();
    world.write("project/AGENTS.md", "somebody's\n");
    std::fs::remove_file(world.path("project/.claude/commands/go.md")).unwrap();
    world.write(
        "repo/agentpack.yaml",
        &MANIFEST
            .replace("'skill:review', type: skill, tags: [base]", "'skill:review', type: skill, tags: []"),
    );
    let plan = call(&tools, "plan", json!({})).await;
    let facts: Vec<(&str, Option<&str>, &str)> = plan["data"]["changes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|change| {
            assert_eq!(change["path"], change["path_posix"]);
            (
                change["op"].as_str().unwrap(),
                change["update_kind"].as_str(),
                change["reason"].as_str().unwrap(),
            )
        })
        .collect();
    assert_eq!(
        facts,
        [
            ("create", None, "file missing"),
            ("update", Some("managed_update"), "content differs"),
            ("delete", None, "no longer managed"),
            ("delete", None, "no longer managed"),
            ("update", Some("adopt_update"), "would overwrite unmanaged existing file"),
            ("update", Some("managed_update"), "content differs"),
        ],
        "{plan:#}"
    );
    let update = &plan["data"]["changes"][4];
    assert_eq!(update["before_sha256"], Digest::plain(b"somebody's\n").hex());
    assert!(plan["data"]["changes"][2]["after_sha256"].is_null());
    let preview = call(&tools, "preview", json!({"diff": true, "target": "vscode"})).await;
    let file = &preview["data"]["diff"]["files"][0];
    assert_eq!((&file["op"], &file["path"]), (&json!("update"), &json!("draft.prompt.md")), "{preview:#}");
    assert!(file["before_hash"].as_str().unwrap().starts_with("sha256:"));
    assert!(file["unified"].as_str().unwrap().contains("-draft it\n+draft again\n"), "{file:#}");
}

#[tokio::test]
async fn two_modules_may_agree_on_a_file_and_may_not_differ() {
    let world = World::new();
    let twin = "  - { id: 'command:twin', type: command, tags: [base], source: { local_path: { path: modules/twin/go.md } } }\n";
    world.write("repo/agentpack.yaml", &format!("{MANIFEST}{twin}"));
    world.write("repo/modules/twin/go.md", "---\ndescription: goes\n---\ngo\n");
    let tools = world.tools().await;
    let why = call(&tools, "explain", json!({"kind": "plan", "target": "claude_code"})).await;
    let ids: Vec<&str> = why["data"]["changes"][0]["modules"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["module_id"].as_str().unwrap())
        .collect();
    assert_eq!(ids, ["command:go", "command:twin"], "{why:#}");
    world.write("repo/modules/twin/go.md", "---\ndescription: goes\n---\nelsewhere\n");
    let refused = call(&tools, "plan", json!({})).await;
    assert_eq!(code(&refused), "E_DESIRED_STATE_CONFLICT");
    let details = &refused["errors"][0]["details"];
    assert_eq!(details["existing"]["module_ids"], json!(["command:go"]), "{refused:#}");
    assert!(
        details["new"]["sha256"].is_string() && details["target"].is_string() && details["path"].is_string()
    );
}

#[tokio::test]
async fn manifests_and_snapshots_are_those_of_the_format() {
    let world = World::new();
    world.write("project/AGENTS.md", "before\n");
    let (_, id) = world.deployed().await;
    let record: Value =
        serde_json::from_str(&world.read("home/.codex/prompts/.agentpack.manifest.codex.json")).unwrap();
    assert_eq!(
        (&record["schema_version"], &record["tool"], &record["snapshot_id"]),
        (&json!(1), &json!("codex"), &json!(id))
    );
    assert_eq!(
        record["managed_files"],
        json!([{"path": "draft.md", "sha256": Digest::plain(b"draft it\n").hex(), "module_ids": ["prompt:draft"]}])
    );
    let snapshot: Value =
        serde_json::from_str(&world.read(&format!("pack/state/snapshots/{id}.json"))).unwrap();
    assert_eq!((&snapshot["kind"], &snapshot["id"]), (&json!("deploy"), &json!(id)));
    let path = world.path("project/AGENTS.md");
    let name: String = Digest::plain(path.to_str().unwrap().as_bytes()).hex().chars().take(16).collect();
    assert_eq!(world.read(&format!("pack/state/snapshots/{id}/backup/codex/{name}")), "before\n");
    assert!(world.read(&format!("pack/state/snapshots/{id}/state/codex/{name}")).contains("be kind"));
    let change = snapshot["changes"]
        .as_array()
        .unwrap()
        .iter()
        .find(|change| change["path"] == path.to_str().unwrap())
        .unwrap();
    assert_eq!((&change["op"], &change["target"]), (&json!("update"), &json!("codex")));
    assert!(
        change["backup_path"].is_string()
            && change["before_sha256"].is_string()
            && change["after_sha256"].is_string()
    );
}

/// A snapshot as the original writes it: no roots, no modules; and an old one without `state`.
#[tokio::test]
async fn snapshots_of_the_original_can_be_gone_back_to() {
    for with_state in [true, false] {
        let world = World::new();
        world.write("project/AGENTS.md", "one\n");
        let path = world.path("project/AGENTS.md");
        let path = path.to_str().unwrap();
        let name: String = Digest::plain(path.as_bytes()).hex().chars().take(16).collect();
        let sha = |text: &str| Digest::plain(text.as_bytes()).hex();
        let snapshot = |id: &str, before: Option<&str>, after: &str| {
            let change = match before {
                Some(before) => {
                    json!({"target": "codex", "op": "update", "path": path, "before_sha256": sha(before), "after_sha256": sha(after),
                    "backup_path": world.path(&format!("pack/state/snapshots/{id}/backup/codex/{name}"))})
                }
                None => json!({"target": "codex", "op": "create", "path": path, "after_sha256": sha(after)}),
            };
            let whole = json!({"kind": "deploy", "id": id, "created_at": "2026-01-11T00:00:00Z", "targets": ["codex"],
                "managed_files": [{"target": "codex", "path": path, "sha256": sha(after)}], "changes": [change],
                "backup_root": world.path(&format!("pack/state/snapshots/{id}/backup"))});
            world.write(&format!("pack/state/snapshots/{id}.json"), &whole.to_string());
            if with_state {
                world.write(&format!("pack/state/snapshots/{id}/state/codex/{name}"), after);
            }
            if let Some(before) = before {
                world.write(&format!("pack/state/snapshots/{id}/backup/codex/{name}"), before);
            }
        };
        snapshot("1768089600000000001", None, "one\n");
        snapshot("1768089600000000002", Some("one\n"), "two\n");
        world.write("project/AGENTS.md", "two\n");
        let tools = world.tools().await;
        // What the last snapshot says is ours: an update of our own file.
        let plan = call(&tools, "plan", json!({"target": "codex"})).await;
        let update =
            plan["data"]["changes"].as_array().unwrap().iter().find(|change| change["path"] == path).unwrap();
        assert_eq!(update["update_kind"], "managed_update", "{plan:#}");
        let back = call(&tools, "rollback", json!({"to": "1768089600000000001", "yes": true})).await;
        assert_eq!(back["ok"], true, "{back:#}");
        assert_eq!(world.read("project/AGENTS.md"), "one\n");
        let event = back["data"]["event_snapshot_id"].as_str().unwrap();
        assert_eq!(
            code(&call(&tools, "rollback", json!({"to": event, "yes": true})).await),
            "E_SNAPSHOT_NOT_FOUND"
        );
        call(&tools, "rollback", json!({"to": "initial", "yes": true})).await;
        assert!(!world.path("project/AGENTS.md").exists());
    }
}

#[tokio::test]
async fn manifests_that_can_not_be_used_count_as_missing() {
    let world = World::new();
    let (tools, _) = world.deployed().await;
    let name = "project/.agentpack.manifest.codex.json";
    let text = world.read(name);
    std::fs::rename(world.path(name), world.path("project/.agentpack.manifest.json")).unwrap();
    let legacy = call(&tools, "status", json!({"target": "codex"})).await;
    assert!(legacy["warnings"].to_string().contains("old name"), "{legacy:#}");
    assert_eq!(legacy["data"]["summary"], json!({"modified": 0, "missing": 0, "extra": 0}));
    std::fs::remove_file(world.path("project/.agentpack.manifest.json")).unwrap();
    for bad in [text.replace("\"schema_version\": 1", "\"schema_version\": 2"), "{ torn".to_owned()] {
        world.write(name, &bad);
        let status = call(&tools, "status", json!({"target": "codex"})).await;
        assert!(status["warnings"].to_string().contains("counts as missing"), "{status:#}");
    }
    // Nothing to change, and a manifest that is missing is written.
    std::fs::remove_file(world.path(name)).unwrap();
    world.deployed().await;
    assert!(world.path(name).exists());
}

#[tokio::test]
async fn status_and_doctor_say_what_to_do() {
    let world = World::new();
    let (tools, _) = world.deployed().await;
    world.write("project/AGENTS.md", "edited\n");
    std::fs::remove_file(world.path("project/.claude/commands/go.md")).unwrap();
    world.write("project/.cursor/rules/own.mdc", "own\n");
    let status = call(&tools, "status", json!({})).await;
    let drift: Vec<(&str, &str)> = status["data"]["drift"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| (item["target"].as_str().unwrap(), item["kind"].as_str().unwrap()))
        .collect();
    assert_eq!(drift, [("claude_code", "missing"), ("codex", "modified"), ("cursor", "extra")], "{status:#}");
    let modified = &status["data"]["drift"][1];
    assert_eq!(modified["actual"], format!("sha256:{}", Digest::plain(b"edited\n").hex()));
    assert!(
        modified["expected"].is_string()
            && modified["root"].is_string()
            && modified["root_posix"].is_string()
    );
    assert_eq!(status["data"]["summary_by_root"].as_array().unwrap().len(), 3, "{status:#}");
    let actions: Vec<&str> = status["data"]["next_actions_detailed"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["action"].as_str().unwrap())
        .collect();
    let (bootstrap, rest) = actions.split_at(4);
    assert!(bootstrap.iter().all(|action| *action == "bootstrap"), "{status:#}");
    assert_eq!(rest, ["preview_diff", "deploy_apply", "evolve_propose"]);
    assert!(status["warnings"].to_string().contains("operator assets"), "{status:#}");
    let why = call(&tools, "explain", json!({"kind": "status"})).await;
    assert_eq!(
        why["data"]["drift"][1]["modules"],
        json!(["instructions:base", "instructions:more"]),
        "{why:#}"
    );
    std::fs::remove_dir_all(world.path("home/.codex/prompts")).unwrap();
    let doctor = call(&tools, "doctor", json!({"target": "codex"})).await;
    assert_eq!(doctor["data"]["machine_id"], "box");
    let roots = doctor["data"]["roots"].as_array().unwrap();
    let gone = roots.iter().find(|root| root["root"].as_str().unwrap().ends_with("prompts")).unwrap();
    assert_eq!((&gone["exists"], &gone["issues"]), (&json!(false), &json!(["missing"])), "{doctor:#}");
    assert!(gone["suggestion"].as_str().unwrap().starts_with("create directory: mkdir -p "));
    let mends = doctor["data"]["next_actions"].to_string();
    assert!(
        mends.contains("mkdir -p ") && mends.contains("agentpack --target codex doctor --fix"),
        "{doctor:#}"
    );
    assert!(doctor["warnings"].to_string().contains(".agentpack.manifest*.json"), "{doctor:#}");
    let left: Vec<_> =
        std::fs::read_dir(world.path("project")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(!left.iter().any(|name| name.to_string_lossy().contains("probe")), "{left:?}");
}

#[tokio::test]
async fn modules_are_what_their_type_says() {
    for (file, text, why) in [
        ("repo/modules/review/SKILL.md", "no front matter\n", "front matter"),
        ("repo/modules/review/SKILL.md", "---\nname: x\n---\n", "description"),
        ("repo/modules/go.md", "---\ndescription: x\n---\n!`ls`\n", "allowed-tools"),
        ("repo/modules/go.md", "go\n", "description"),
    ] {
        let world = World::new();
        world.write(file, text);
        let refused = call(&world.tools().await, "plan", json!({})).await;
        assert_eq!(code(&refused), "E_CONFIG_INVALID");
        assert!(refused["errors"][0]["message"].as_str().unwrap().contains(why), "{refused:#}");
    }
    let world = World::new();
    std::fs::rename(world.path("repo/modules/base/AGENTS.md"), world.path("repo/modules/base/OTHER.md"))
        .unwrap();
    assert_eq!(code(&call(&world.tools().await, "plan", json!({})).await), "E_CONFIG_INVALID");
    for (text, expect) in [
        (MANIFEST.replace("version: 1", "version: 2"), "E_CONFIG_UNSUPPORTED_VERSION"),
        (MANIFEST.replace("default:", "other:"), "E_CONFIG_INVALID"),
        (MANIFEST.replace("mode: files, scope: both", "mode: links, scope: both"), "E_CONFIG_INVALID"),
        (
            MANIFEST
                .replace("cursor: { mode: files, scope: project }", "cursor: { mode: files, scope: user }"),
            "E_CONFIG_INVALID",
        ),
        (MANIFEST.replace("cursor:", "emacs:"), "E_TARGET_UNSUPPORTED"),
        (MANIFEST.replace("instructions:more", "instructions:base"), "E_CONFIG_INVALID"),
    ] {
        let world = World::new();
        world.write("repo/agentpack.yaml", &text);
        assert_eq!(code(&call(&world.tools().await, "plan", json!({})).await), expect, "{text}");
    }
}
