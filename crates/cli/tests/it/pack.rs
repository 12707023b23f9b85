//! The pack through the binary: its commands as people type them, its server as agents speak to it, and one token between two
//! processes.

mod ends;
mod have;
mod line;
mod policy;
mod race;
mod terminal;
mod together;

use serde_json::{Value, json};

use crate::world::{Transcript, World, binary};

const MANIFEST: &str = "version: 1
profiles: { default: { include_tags: [base] } }
targets:
  codex: { mode: files, scope: both }
  claude_code: { mode: files, scope: project }
modules:
  - { id: 'instructions:base', type: instructions, tags: [base], source: { local_path: { path: modules/base } } }
  - { id: 'command:go', type: command, tags: [base], source: { local_path: { path: modules/go.md } } }
";

/// A project with a config repo beside it, in the fake home.
fn packed() -> World {
    let world = World::new();
    std::fs::create_dir(world.work().join(".git")).unwrap();
    let repo = world.home().join(".agentpack/repo");
    std::fs::create_dir_all(repo.join("modules/base")).unwrap();
    std::fs::write(repo.join("agentpack.yaml"), MANIFEST).unwrap();
    std::fs::write(repo.join("modules/base/AGENTS.md"), "be kind\n").unwrap();
    std::fs::write(repo.join("modules/go.md"), "---\ndescription: goes\n---\ngo\n").unwrap();
    world
}

fn pack(world: &World, args: &[&str]) -> Transcript {
    let whole: Vec<&str> = ["pack"].iter().chain(args).copied().collect();
    world.run_with(&[("HOSTNAME", "box")], &whole)
}

#[track_caller]
fn code(envelope: &Value) -> &str {
    let details = &envelope["errors"][0]["details"];
    assert!(details["reason_code"].is_string() && details["next_actions"].is_array(), "{envelope:#}");
    envelope["errors"][0]["code"].as_str().unwrap()
}

#[test]
fn a_plan_reads_like_one() {
    let world = packed();
    world.write("AGENTS.md", "mine\n");
    let plan = pack(&world, &["plan"]);
    assert_eq!(
        plan.stdout,
        "claude_code\n  + <room>/work/.claude/commands/go.md\ncodex\n  + <room>/home/.codex/AGENTS.md\n  ~ <room>/work/AGENTS.md  (not managed: needs --adopt)\n\nPlan: 2 to create, 1 to update, 0 to delete.\n",
        "{plan}"
    );
    assert_eq!((plan.code, plan.stderr.as_str()), (Some(0), ""));
    let diff = pack(&world, &["diff"]);
    assert!(diff.stdout.contains("    -mine\n    +be kind\n"), "{diff}");
    assert!(pack(&world, &["plan", "--color", "always"]).stdout.contains("\u{1b}[32m+"));
}

#[test]
fn deploying_asks_first_and_can_be_undone() {
    let world = packed();
    world.write("AGENTS.md", "mine\n");
    let unasked = pack(&world, &["deploy", "--apply", "--adopt"]);
    assert_eq!(unasked.code, Some(4), "{unasked}");
    let adopt = pack(&world, &["deploy", "--apply", "--yes", "--json"]);
    assert_eq!((adopt.code, code(&adopt.envelope())), (Some(4), "E_ADOPT_CONFIRM_REQUIRED"), "{adopt}");
    let dry = pack(&world, &["deploy", "--apply", "--adopt", "--dry-run", "--json"]).envelope();
    assert_eq!((&dry["data"]["applied"], &dry["data"]["reason"]), (&json!(false), &json!("dry_run")));
    assert_eq!(world.read("AGENTS.md"), "mine\n");
    let applied = pack(&world, &["deploy", "--apply", "--adopt", "--yes", "--json"]).envelope();
    assert_eq!(applied["data"]["applied"], true, "{applied:#}");
    assert_eq!((&applied["command"], &applied["command_id"]), (&json!("deploy"), &json!("deploy --apply")));
    assert_eq!(applied["command_path"], json!(["deploy", "--apply"]));
    assert_eq!(world.read("AGENTS.md"), "be kind\n");
    let again = pack(&world, &["deploy", "--apply", "--yes", "--json"]).envelope();
    assert_eq!(again["data"]["reason"], "no_changes");
    let unknown = pack(&world, &["rollback", "--to", "12", "--yes", "--json"]);
    assert_eq!((unknown.code, code(&unknown.envelope())), (Some(3), "E_SNAPSHOT_NOT_FOUND"), "{unknown}");
    let back = pack(&world, &["rollback", "--to", "initial", "--yes"]);
    assert_eq!(back.code, Some(0), "{back}");
    assert_eq!(world.read("AGENTS.md"), "mine\n");
}

#[test]
fn drift_is_reported_and_is_no_failure() {
    let world = packed();
    pack(&world, &["deploy", "--apply", "--yes"]);
    world.write("AGENTS.md", "edited\n");
    let status = pack(&world, &["status"]);
    assert_eq!(status.code, Some(0), "{status}");
    assert!(status.stdout.contains("~ modified  codex        <room>/work/AGENTS.md"), "{status}");
    let none = pack(&world, &["status", "--only", "missing,extra", "--json"]).envelope();
    assert_eq!(none["data"]["drift"], json!([]));
    assert_eq!(none["data"]["summary_total"]["modified"], 1);
    let wrong = pack(&world, &["status", "--only", "gone"]);
    assert_eq!(wrong.code, Some(2), "{wrong}");
}

#[test]
fn a_repo_from_nothing() {
    let world = World::new();
    let missing = pack(&world, &["plan", "--json"]);
    assert_eq!((missing.code, code(&missing.envelope())), (Some(3), "E_CONFIG_MISSING"), "{missing}");
    assert_eq!(code(&pack(&world, &["init", "--json"]).envelope()), "E_CONFIRM_REQUIRED");
    assert_eq!(pack(&world, &["init", "--git"]).code, Some(0));
    let repo = world.home().join(".agentpack/repo");
    assert!(repo.join(".git").is_dir());
    for starter in ["instructions/base/AGENTS.md", "claude-commands/ap-plan.md", "prompts/draftpr.md"] {
        assert!(repo.join("modules").join(starter).is_file(), "{starter}");
    }
    std::fs::create_dir(repo.join("modules/base")).unwrap();
    std::fs::write(repo.join("modules/base/AGENTS.md"), "hello\n").unwrap();
    let dry = pack(&world, &["add", "instructions", "local:modules/base", "--tags", "base", "--dry-run"]);
    assert_eq!(dry.code, Some(0), "{dry}");
    assert!(!std::fs::read_to_string(repo.join("agentpack.yaml")).unwrap().contains("modules/base"));
    pack(&world, &["add", "instructions", "local:modules/base", "--tags", "base"]);
    let outside = pack(&world, &["add", "prompt", "local:../../x.md", "--json", "--yes"]);
    assert_eq!(code(&outside.envelope()), "E_IO_INVALID_PATH", "{outside}");
    let update = pack(&world, &["update", "--json", "--yes"]).envelope();
    assert_eq!(update["data"]["steps"][0]["name"], "lock", "{update:#}");
    assert!(repo.join("agentpack.lock.json").is_file());
    let plan = pack(&world, &["plan", "--json"]).envelope();
    assert_eq!(plan["data"]["summary"]["create"], 2, "{plan:#}");
    let path = pack(&world, &["overlay", "path", "instructions:base"]);
    assert!(path.stdout.starts_with("<room>/home/.agentpack/repo/overlays/instructions_base--"), "{path}");
    pack(&world, &["overlay", "edit", "instructions:base"]);
    std::fs::write(
        path.stdout.trim().replace("<room>", world.home().parent().unwrap().to_str().unwrap()) + "/AGENTS.md",
        "hello there\n",
    )
    .unwrap();
    let explained = pack(&world, &["explain", "plan", "--json"]).envelope();
    assert_eq!(explained["data"]["changes"][0]["modules"][0]["layer"], "global", "{explained:#}");
    pack(&world, &["remove", "instructions:base"]);
    assert_eq!(pack(&world, &["plan", "--json"]).envelope()["data"]["summary"]["create"], 0);
}

#[test]
fn a_module_from_git_is_pinned_and_checked() {
    let world = World::new();
    let git = |folder: &str, args: &[&str]| {
        let mut command = world.command("git");
        command.current_dir(world.work().join(folder)).args([
            "-c",
            "user.name=t",
            "-c",
            "user.email=t@example.com",
        ]);
        let output = command.args(args).output().unwrap();
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    };
    world.write("upstream/skills/review/SKILL.md", "---\nname: review\ndescription: r\n---\nv1\n");
    git("upstream", &["init", "--quiet", "-b", "main"]);
    git("upstream", &["add", "."]);
    git("upstream", &["commit", "--quiet", "-m", "one"]);
    pack(&world, &["init"]);
    let url = format!("git:{}#ref=main&subdir=skills/review", world.work().join("upstream").display());
    let added = pack(&world, &["add", "skill", &url, "--tags", "base", "--id", "skill:review"]);
    assert_eq!(added.code, Some(0), "{added}");
    assert_eq!(code(&pack(&world, &["plan", "--json"]).envelope()), "E_LOCKFILE_MISSING");
    let locked = pack(&world, &["update", "--yes", "--json"]).envelope();
    assert_eq!(locked["ok"], true, "{locked:#}");
    world.write("upstream/skills/review/SKILL.md", "---\nname: review\ndescription: r\n---\nv2\n");
    git("upstream", &["commit", "--quiet", "-am", "two"]);
    pack(&world, &["deploy", "--apply", "--yes"]);
    let deployed = world.home().join(".codex/skills/review/SKILL.md");
    assert!(
        std::fs::read_to_string(&deployed).unwrap().ends_with("v1\n"),
        "what is pinned, not what is newest"
    );
    pack(&world, &["lock"]);
    pack(&world, &["deploy", "--apply", "--yes"]);
    assert!(std::fs::read_to_string(&deployed).unwrap().ends_with("v2\n"));
    for bad in ["git:ext::sh -c id", "git:--upload-pack=x"] {
        let refused = pack(&world, &["add", "skill", bad, "--yes", "--json"]);
        assert_eq!(code(&refused.envelope()), "E_GIT_FAILED", "{refused}");
    }
}

#[cfg(unix)]
#[test]
fn the_binary_is_agentpack_under_that_name() {
    let world = packed();
    let alias = world.work().join("agentpack");
    std::os::unix::fs::symlink(binary(), &alias).unwrap();
    let output = world.command(&alias).args(["plan", "--json"]).output().unwrap();
    let plan: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&plan["command"], &plan["ok"]), (&json!("plan"), &json!(true)), "{plan:#}");
    let said = |args: &[&str]| world.command(&alias).args(args).output().unwrap().stdout;
    let mistyped: Value = serde_json::from_slice(&said(&["status", "--only", "x", "--json"])).unwrap();
    assert_eq!((&mistyped["command"], &mistyped["command_path"]), (&json!("status"), &json!(["status"])));
    assert_eq!(mistyped["errors"][0]["details"]["hint"], "agentpack status --help", "{mistyped:#}");
    assert!(said(&["--version"]).starts_with(b"agentpack "));
    let help: Value = pack(&world, &["help", "--json"]).envelope();
    assert!(help["data"]["mutating_commands"].as_array().unwrap().contains(&json!("deploy --apply")));
    assert!(help["data"]["targets"].as_array().unwrap().contains(&json!("codex")));
    assert_eq!(pack(&world, &["schema", "--json"]).envelope()["ok"], true);
    assert!(pack(&world, &["completions", "bash"]).stdout.contains("agentpack"));
}

#[cfg(unix)]
#[test]
fn a_folder_that_can_not_be_written_is_said_by_its_code() {
    use std::os::unix::fs::PermissionsExt as _;
    let world = packed();
    let folder = world.home().join(".codex");
    std::fs::create_dir(&folder).unwrap();
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o555)).unwrap();
    // Permissions do not stop root, so the test runs as the user nobody.
    let all_mighty = std::fs::write(folder.join("probe"), "").is_ok();
    let room = world.work().parent().unwrap().to_path_buf();
    let nobody = ["--reuid=65534", "--regid=65534", "--clear-groups"];
    let deploy = ["pack", "deploy", "--apply", "--yes", "--json"];
    let output = if all_mighty {
        let given = std::process::Command::new("chown").args(["-R", "65534:65534"]).arg(&room).status();
        assert!(given.unwrap().success());
        let mut command = world.command("setpriv");
        let Ok(output) = command.args(nobody).arg(binary()).args(deploy).output() else {
            println!("skipped: there is no setpriv to become somebody else with");
            return;
        };
        output
    } else {
        world.countersign(&deploy).output().unwrap()
    };
    let refused = world.transcript("deploy", output);
    assert_eq!(code(&refused.envelope()), "E_IO_PERMISSION_DENIED", "{refused}");
    assert_eq!(refused.code, Some(3));
    assert!(!world.work().join(".claude/commands/go.md").exists(), "what was done before is undone");
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o755)).unwrap();
}
