//! `git` as the pack runs it: with the user's environment, and proposals that are made whole or not at all.

use std::path::Path;

use countersign_pack::place::PackEnvironment;
use countersign_pack::repo;
use countersign_pack::system::RealFileSystem;
use serde_json::json;

use crate::world::{World, call, code};

fn git(folder: &Path, home: &Path, args: &[&str]) -> String {
    let mut command = std::process::Command::new("git");
    command.current_dir(folder).env_clear().env("PATH", "/usr/bin:/bin").env("HOME", home).args(args);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn with_variables(world: &World, variables: &[(&str, &str)]) -> PackEnvironment {
    let mut place = world.place();
    place.variables.extend(variables.iter().map(|(name, value)| (name.into(), value.into())));
    place
}

/// A deployed world whose config repo is committed, with an edit to propose.
async fn edited() -> World {
    let world = World::new();
    world.deployed().await;
    world.write("project/.claude/commands/go.md", "---\ndescription: goes\n---\ngo faster\n");
    let run = |args: &[&str]| git(&world.path("repo"), &world.path("home"), args);
    run(&["init", "--quiet", "-b", "main"]);
    run(&["config", "user.useConfigOnly", "true"]);
    run(&["add", "."]);
    run(&["-c", "user.name=t", "-c", "user.email=t@example.com", "commit", "--quiet", "-m", "first"]);
    world
}

#[cfg(unix)]
#[test]
fn git_gets_the_users_environment() {
    use std::os::unix::fs::PermissionsExt as _;
    let world = World::new();
    let script = world.path("ssh");
    world.write("ssh", &format!("#!/bin/sh\nenv > {}\nexit 1\n", world.path("seen").display()));
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o700)).unwrap();
    let manifest = world.read("repo/agentpack.yaml");
    let far = "git: { url: 'ssh://git@127.0.0.1/x.git' }";
    world.write("repo/agentpack.yaml", &manifest.replace("local_path: { path: modules/base }", far));
    let passed = [
        ("GIT_SSH_COMMAND", script.to_str().unwrap()),
        ("SSH_AUTH_SOCK", "/run/agent"),
        ("HTTPS_PROXY", "http://127.0.0.1:9"),
        ("XDG_CONFIG_HOME", "/nowhere/config"),
        ("GIT_AUTHOR_NAME", "Ada"),
    ];
    let mut all = passed.to_vec();
    all.push(("GIT_DIR", "/nowhere/else"));
    let refused = repo::lock(&with_variables(&world, &all), &RealFileSystem).unwrap_err();
    assert_eq!(refused.code(), "E_GIT_FAILED");
    let seen = world.read("seen");
    for (name, value) in passed {
        assert!(seen.lines().any(|line| line == format!("{name}={value}")), "{name}: {seen}");
    }
    assert!(!seen.contains("/nowhere/else"), "{seen}");
}

#[tokio::test]
async fn a_proposal_has_the_author_of_the_environment() {
    let world = edited().await;
    let name =
        |who: &'static str| [(format!("GIT_{who}_NAME"), "Ada"), (format!("GIT_{who}_EMAIL"), "a@b.c")];
    let variables: Vec<(String, &str)> = ["AUTHOR", "COMMITTER"].into_iter().flat_map(name).collect();
    let variables: Vec<(&str, &str)> =
        variables.iter().map(|(name, value)| (name.as_str(), *value)).collect();
    let tools = world.server_at(with_variables(&world, &variables)).await;
    let proposed = call(&tools, "evolve_propose", json!({"yes": true, "branch": "evolve/mine"})).await;
    assert_eq!(proposed["data"]["committed"], true, "{proposed:#}");
    let run = |args: &[&str]| git(&world.path("repo"), &world.path("home"), args);
    assert_eq!(
        run(&["log", "-1", "--format=%an %s", "evolve/mine"]).trim(),
        "Ada chore(evolve): propose overlay updates"
    );
    assert_eq!(run(&["worktree", "list", "--porcelain"]).matches("worktree ").count(), 1);
}

#[tokio::test]
async fn a_proposal_that_can_not_be_committed_leaves_nothing() {
    let world = edited().await;
    let tools = world.tools().await;
    let refused = call(&tools, "evolve_propose", json!({"yes": true, "branch": "evolve/mine"})).await;
    assert_eq!(code(&refused), "E_GIT_FAILED", "{refused:#}");
    let run = |args: &[&str]| git(&world.path("repo"), &world.path("home"), args);
    assert_eq!(run(&["branch", "--format=%(refname:short)"]).trim(), "main");
    assert_eq!(
        (run(&["branch", "--show-current"]).trim(), run(&["status", "--porcelain"]).as_str()),
        ("main", "")
    );
    assert_eq!(run(&["worktree", "list", "--porcelain"]).matches("worktree ").count(), 1);
    let state: Vec<_> = std::fs::read_dir(world.path("pack/state")).unwrap().flatten().collect();
    assert!(
        !state.iter().any(|entry| entry.file_name().to_string_lossy().starts_with("checkout-")),
        "{state:?}"
    );
}
