//! Repositories and folders that mean harm, or are merely odd: clear codes, and nothing written outside the roots.

use serde_json::json;

use crate::world::{MANIFEST, World, call, code};

/// Plans with one thing changed and expects this code, and that nothing outside is touched.
async fn refused(spoil: impl FnOnce(&World), expect: &str) {
    let world = World::new();
    world.write("outside/secret", "secret\n");
    spoil(&world);
    let tools = world.tools().await;
    for tool in ["plan", "deploy"] {
        let envelope = call(&tools, tool, json!({})).await;
        assert_eq!(code(&envelope), expect, "{envelope:#}");
        assert!(envelope["data"]["confirm_token"].is_null());
    }
    let outside: Vec<_> =
        std::fs::read_dir(world.path("outside")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(outside, ["secret"]);
    assert_eq!(world.read("outside/secret"), "secret\n");
    assert!(!world.path("project/.claude/commands/go.md").exists());
}

fn manifest(world: &World, from: &str, to: &str) {
    assert!(MANIFEST.contains(from));
    world.write("repo/agentpack.yaml", &MANIFEST.replace(from, to));
}

#[tokio::test]
async fn paths_that_lead_out_of_the_repo() {
    for path in ["../outside", "modules/../../outside", "/etc", "modules/base/../../../outside"] {
        refused(|world| manifest(world, "modules/base", path), "E_IO_INVALID_PATH").await;
    }
}

#[cfg(unix)]
#[tokio::test]
async fn links_that_lead_out() {
    use std::os::unix::fs::symlink;
    refused(
        |world| symlink(world.path("outside/secret"), world.path("repo/modules/review/notes")).unwrap(),
        "E_IO_INVALID_PATH",
    )
    .await;
    refused(
        |world| symlink(world.path("outside"), world.path("repo/modules/review/folder")).unwrap(),
        "E_IO_INVALID_PATH",
    )
    .await;
    refused(
        |world| symlink(world.path("nowhere"), world.path("repo/modules/review/broken")).unwrap(),
        "E_IO_INVALID_PATH",
    )
    .await;
    refused(
        |world| {
            std::fs::remove_dir_all(world.path("repo/modules/base")).unwrap();
            symlink(world.path("outside"), world.path("repo/modules/base")).unwrap();
        },
        "E_IO_INVALID_PATH",
    )
    .await;
}

#[cfg(unix)]
#[tokio::test]
async fn a_target_folder_that_is_a_link() {
    use std::os::unix::fs::symlink;
    refused(|world| symlink(world.path("outside"), world.path("home/.codex")).unwrap(), "E_IO_INVALID_PATH")
        .await;
    refused(
        |world| {
            std::fs::create_dir(world.path("project/.claude")).unwrap();
            symlink(world.path("outside"), world.path("project/.claude/commands")).unwrap();
        },
        "E_IO_INVALID_PATH",
    )
    .await;
    refused(
        |world| symlink(world.path("outside/secret"), world.path("project/AGENTS.md")).unwrap(),
        "E_IO_INVALID_PATH",
    )
    .await;
}

#[cfg(unix)]
#[tokio::test]
async fn names_that_hide_something() {
    for name in ["a\nb.md", "a\u{202e}dm.b", "tab\there"] {
        refused(|world| world.write(&format!("repo/modules/review/{name}"), "x"), "E_IO_INVALID_PATH").await;
    }
}

#[tokio::test]
async fn a_link_inside_the_module_is_the_file_it_leads_to() {
    let world = World::new();
    #[cfg(unix)]
    std::os::unix::fs::symlink("SKILL.md", world.path("repo/modules/review/COPY.md")).unwrap();
    let tools = world.tools().await;
    let token = call(&tools, "deploy", json!({})).await["data"]["confirm_token"].clone();
    let applied = call(&tools, "deploy_apply", json!({"yes": true, "confirm_token": token})).await;
    assert_eq!(applied["ok"], true, "{applied:#}");
    #[cfg(unix)]
    {
        let copy = world.path("home/.codex/skills/review/COPY.md");
        assert!(copy.symlink_metadata().unwrap().is_file());
        assert_eq!(
            world.read("home/.codex/skills/review/COPY.md"),
            world.read("repo/modules/review/SKILL.md")
        );
    }
}

#[tokio::test]
async fn a_manifest_of_a_target_that_names_files_elsewhere() {
    let world = World::new();
    world.write("outside/secret", "secret\n");
    let record = json!({
        "schema_version": 1, "generated_at": "", "tool": "codex",
        "managed_files": [
            {"path": "../../outside/secret", "sha256": "0", "module_ids": []},
            {"path": world.path("outside/secret"), "sha256": "0", "module_ids": []},
        ],
    });
    world.write("project/.agentpack.manifest.codex.json", &record.to_string());
    let tools = world.tools().await;
    let plan = call(&tools, "plan", json!({})).await;
    assert_eq!(plan["data"]["summary"]["delete"], 0, "{plan:#}");
    world.write("project/.agentpack.manifest.codex.json", "{ not json");
    let plan = call(&tools, "plan", json!({})).await;
    assert!(plan["warnings"][0].as_str().unwrap().contains("counts as missing"), "{plan:#}");
}

#[tokio::test]
async fn large_and_binary_files_are_deployed_and_not_shown() {
    let world = World::new();
    let large = 100 * 1024 * 1024;
    let file = std::fs::File::create(world.path("repo/modules/review/large.bin")).unwrap();
    file.set_len(large).unwrap();
    std::fs::write(world.path("repo/modules/review/odd.bin"), [0xff, 0xfe, 0, 1]).unwrap();
    world.write("repo/agentpack.yaml", &MANIFEST.replace("scope: both", "scope: project"));
    let tools = world.tools().await;
    let diff = call(&tools, "diff", json!({"target": "codex"})).await;
    let warnings = diff["warnings"].to_string();
    assert!(warnings.contains("large.bin") && warnings.contains("odd.bin"), "{warnings}");
    let token = call(&tools, "deploy", json!({"target": "codex"})).await["data"]["confirm_token"].clone();
    let applied =
        call(&tools, "deploy_apply", json!({"yes": true, "confirm_token": token, "target": "codex"})).await;
    assert_eq!(applied["data"]["applied"], true, "{applied:#}");
    let deployed = world.path("project/.codex/skills/review/large.bin");
    assert_eq!(deployed.metadata().unwrap().len(), large);
}

#[tokio::test]
async fn something_in_the_way_is_refused() {
    refused(|world| world.write("home/.codex", "a file"), "E_IO_INVALID_PATH").await;
}

#[tokio::test]
async fn without_git_what_needs_it_says_so() {
    let world = World::new();
    manifest(&world, "local_path: { path: modules/base }", "git: { url: 'https://example.com/x.git' }");
    let tools = world.tools().await;
    assert_eq!(code(&call(&tools, "plan", json!({})).await), "E_LOCKFILE_MISSING");
    let variables = vec![("PATH".into(), "/nowhere".into())];
    let place = countersign_pack::place::PackEnvironment { variables, ..world.place() };
    let tools = world.server_at(place).await;
    manifest(&world, "version: 1", "version: 1");
    let token = call(&tools, "deploy", json!({})).await["data"]["confirm_token"].clone();
    call(&tools, "deploy_apply", json!({"yes": true, "confirm_token": token})).await;
    world.write("project/.claude/commands/go.md", "edited\n");
    assert_eq!(code(&call(&tools, "evolve_propose", json!({"yes": true})).await), "E_GIT_NOT_FOUND");
}

#[tokio::test]
async fn ids_machines_and_branches_lead_nowhere() {
    let world = World::new();
    world.write("outside/secret", "secret\n");
    let evil = MANIFEST
        .replace("'skill:review'", "'skill:../../../outside'")
        .replace("'command:go'", "'command:..'");
    world.write("repo/agentpack.yaml", &evil);
    let tools = world.tools().await;
    let token =
        call(&tools, "deploy", json!({"machine": "../../outside"})).await["data"]["confirm_token"].clone();
    let arguments = json!({"yes": true, "confirm_token": token, "machine": "../../outside"});
    let applied = call(&tools, "deploy_apply", arguments).await;
    assert_eq!(applied["data"]["applied"], true, "{applied:#}");
    for change in applied["data"]["changes"].as_array().unwrap() {
        let path = std::path::Path::new(change["path"].as_str().unwrap());
        assert!(
            path.starts_with(world.path("home")) || path.starts_with(world.path("project")),
            "{change:#}"
        );
        assert!(!path.components().any(|part| part == std::path::Component::ParentDir), "{change:#}");
    }
    assert_eq!(std::fs::read_dir(world.path("outside")).unwrap().count(), 1);
    for to in ["../../outside/secret", "1/../2", "", "initial/..", "\u{0}"] {
        let refused = call(&tools, "rollback", json!({"to": to, "yes": true})).await;
        assert_eq!(code(&refused), "E_SNAPSHOT_NOT_FOUND", "{to:?}");
    }
}

/// A manifest that would grow without end when it is read, and one that is nested without end.
#[tokio::test]
async fn a_manifest_that_explodes_is_refused_at_once() {
    let mut bomb = "version: 1\na: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..12 {
        let below = format!("*a{}", level - 1);
        bomb.push_str(&format!("b{level}: &a{level} [{}]\n", [below.as_str(); 9].join(", ")));
    }
    let deep = format!("version: 1\nprofiles: {}{}\n", "[".repeat(5_000), "]".repeat(5_000));
    for text in
        [bomb, deep, "version: 1\nprofiles: &a { default: *a }\n".to_owned(), "\u{feff}\u{0}".to_owned()]
    {
        let world = World::new();
        world.write("repo/agentpack.yaml", &text);
        let began = std::time::Instant::now();
        let refused = call(&world.tools().await, "plan", json!({})).await;
        assert_eq!(code(&refused), "E_CONFIG_INVALID", "{refused:#}");
        assert!(began.elapsed() < std::time::Duration::from_secs(20), "{:?}", began.elapsed());
    }
}

/// What a lockfile says is not trusted either.
#[tokio::test]
async fn a_lockfile_that_lies_is_refused() {
    let world = World::new();
    manifest(&world, "local_path: { path: modules/base }", "git: { url: '/nowhere', ref: main }");
    let lock = |version: &str| {
        json!({"version": 1, "modules": [{"id": "instructions:base", "type": "instructions", "resolved_source": {},
            "resolved_version": version, "sha256": "", "file_manifest": []}]})
    };
    for (text, expect) in [
        (lock("../../../outside").to_string(), "E_LOCKFILE_INVALID"),
        (lock("--upload-pack=touch /tmp/x").to_string(), "E_LOCKFILE_INVALID"),
        (json!({"version": 9, "modules": []}).to_string(), "E_LOCKFILE_UNSUPPORTED_VERSION"),
        ("{ torn".to_owned(), "E_LOCKFILE_INVALID"),
        (json!({"version": 1, "modules": []}).to_string(), "E_LOCKFILE_MISSING"),
    ] {
        world.write("repo/agentpack.lock.json", &text);
        assert_eq!(code(&call(&world.tools().await, "plan", json!({})).await), expect, "{text}");
    }
}
