//! An organisation's rules: linted, audited, pinned. No other command reads them.

use serde_json::{Value, json};

use super::{code, pack, packed};
use crate::world::World;

fn org(world: &World, text: &str) {
    std::fs::write(world.home().join(".agentpack/repo/agentpack.org.yaml"), text).unwrap();
}

/// The rules that a lint finds broken.
fn broken(world: &World) -> Vec<String> {
    let lint = pack(world, &["policy", "lint", "--json"]);
    let envelope = lint.envelope();
    assert_eq!(envelope["command"], "policy.lint");
    if lint.code == Some(0) {
        assert_eq!(envelope["data"]["issues"], json!([]));
        return Vec::new();
    }
    assert_eq!((lint.code, code(&envelope)), (Some(3), "E_POLICY_VIOLATIONS"), "{lint}");
    let details = &envelope["errors"][0]["details"];
    assert_eq!(details["next_actions"], json!(["fix_policy_violations", "retry_policy_lint"]));
    assert!(details["root"].is_string() && details["summary"]["violations"].as_u64().unwrap() > 0);
    details["issues"]
        .as_array()
        .unwrap()
        .iter()
        .map(|issue| issue["rule"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn skills_and_commands_are_held_to_the_rules() {
    let world = packed();
    assert_eq!(broken(&world), Vec::<String>::new());
    let repo = world.home().join(".agentpack/repo");
    std::fs::create_dir_all(repo.join("modules/skills/x")).unwrap();
    std::fs::write(repo.join("modules/skills/x/SKILL.md"), "---\nname: x\n---\n").unwrap();
    std::fs::create_dir_all(repo.join("modules/claude-commands")).unwrap();
    std::fs::write(repo.join("modules/claude-commands/a.md"), "---\ndescription: a\n---\n!`ls`\n").unwrap();
    let careless =
        "---\ndescription: b\nallowed-tools: Bash(agentpack:*)\n---\n!`agentpack deploy --apply`\n";
    std::fs::write(repo.join("modules/claude-commands/b.md"), careless).unwrap();
    assert_eq!(broken(&world), ["claude_command_allowed_tools", "dangerous_defaults", "skill_frontmatter"]);
    let shown = pack(&world, &["policy", "lint"]);
    assert!(
        shown.stderr.contains("dangerous_defaults") && shown.stderr.contains("without `--json` and `--yes`"),
        "{shown}"
    );
}

#[test]
fn what_must_be_there_and_where_it_may_come_from() {
    let world = packed();
    org(
        &world,
        "version: 1\ndistribution_policy: { required_targets: [codex, vscode], required_modules: ['instructions:base', 'skill:x'] }\n",
    );
    assert_eq!(broken(&world), ["distribution_required_modules", "distribution_required_targets"]);
    let manifest = world.home().join(".agentpack/repo/agentpack.yaml");
    let text = std::fs::read_to_string(&manifest).unwrap();
    let with_git = "  - { id: 'skill:g', type: skill, tags: [base], source: { git: { url: 'https://example.com/evil/x.git' } } }\n";
    std::fs::write(&manifest, text + with_git).unwrap();
    org(
        &world,
        "version: 1\nsupply_chain_policy: { allowed_git_remotes: ['example.com/acme/'], require_lockfile: true }\n",
    );
    assert_eq!(broken(&world), ["supply_chain_lockfile_missing", "supply_chain_allowed_git_remotes"]);
    org(&world, "version: 1\nsupply_chain_policy: { allowed_git_remotes: ['example.com/'] }\n");
    assert_eq!(broken(&world), Vec::<String>::new());
    // Nothing else reads these rules.
    org(&world, "version: 7\n");
    assert_eq!(pack(&world, &["status", "--json"]).envelope()["errors"][0]["code"], "E_LOCKFILE_MISSING");
}

#[test]
fn the_policy_pack_is_pinned_and_the_pin_is_checked() {
    let world = packed();
    let lock = |expect: &str| {
        let said = pack(&world, &["policy", "lock", "--yes", "--json"]);
        assert_eq!(code(&said.envelope()), expect, "{said}");
    };
    lock("E_POLICY_CONFIG_MISSING");
    for (text, expect) in [
        ("version: 2\npolicy_pack: { source: 'local:rules' }\n", "E_POLICY_CONFIG_UNSUPPORTED_VERSION"),
        ("policy_pack: 3\n", "E_POLICY_CONFIG_INVALID"),
        ("version: 1\npolicy_pack: { source: 'rules' }\n", "E_POLICY_CONFIG_INVALID"),
        ("version: 1\n", "E_POLICY_CONFIG_INVALID"),
        ("version: 1\npolicy_pack: { source: 'local:../out' }\n", "E_IO_INVALID_PATH"),
        (
            "version: 1\npolicy_pack: { source: 'git:https://example.com/x.git' }\nsupply_chain_policy: { allowed_git_remotes: ['example.com/acme'] }\n",
            "E_POLICY_CONFIG_INVALID",
        ),
    ] {
        org(&world, text);
        lock(expect);
    }
    let repo = world.home().join(".agentpack/repo");
    std::fs::create_dir(repo.join("rules")).unwrap();
    std::fs::write(repo.join("rules/one.txt"), "one\n").unwrap();
    org(&world, "version: 1\npolicy_pack: { source: 'local:rules' }\n");
    assert_eq!(broken(&world), ["policy_pack_lock"]);
    assert_eq!(code(&pack(&world, &["policy", "lock", "--json"]).envelope()), "E_CONFIRM_REQUIRED");
    let locked = pack(&world, &["policy", "lock", "--yes", "--json"]).envelope();
    assert_eq!(
        (&locked["command"], &locked["data"]["files"]),
        (&json!("policy.lock"), &json!(1)),
        "{locked:#}"
    );
    let first = std::fs::read_to_string(repo.join("agentpack.org.lock.json")).unwrap();
    let value: Value = serde_json::from_str(&first).unwrap();
    assert_eq!(value["policy_pack"]["source"]["local_path"]["path"], "rules");
    assert_eq!(value["policy_pack"]["resolved_version"], "local");
    pack(&world, &["policy", "lock"]);
    assert_eq!(
        std::fs::read_to_string(repo.join("agentpack.org.lock.json")).unwrap(),
        first,
        "the same bytes again"
    );
    assert_eq!(broken(&world), Vec::<String>::new());
    std::fs::write(repo.join("rules/one.txt"), "two\n").unwrap();
    assert_eq!(broken(&world), ["policy_pack_lock"]);
}

#[test]
fn an_audit_says_where_everything_comes_from() {
    let world = packed();
    assert_eq!(code(&pack(&world, &["policy", "audit", "--json"]).envelope()), "E_LOCKFILE_MISSING");
    pack(&world, &["lock"]);
    let repo = world.home().join(".agentpack/repo");
    let git = |args: &[&str]| {
        let identity = ["-c", "user.name=t", "-c", "user.email=t@example.com"];
        assert!(
            world.command("git").current_dir(&repo).args(identity).args(args).status().unwrap().success()
        );
    };
    git(&["init", "-q"]);
    git(&["add", "."]);
    git(&["commit", "-qm", "one"]);
    std::fs::write(repo.join("modules/base/AGENTS.md"), "kinder\n").unwrap();
    pack(&world, &["lock"]);
    git(&["commit", "-qam", "two"]);
    let audit = pack(&world, &["policy", "audit", "--json"]).envelope();
    let data = &audit["data"];
    assert_eq!(
        (&audit["command"], data["modules"].as_array().unwrap().len()),
        (&json!("policy.audit"), 2),
        "{audit:#}"
    );
    assert_eq!(data["modules"][1]["resolved_source"]["local_path"]["path"], "modules/base");
    assert_eq!(data["change_summary"]["modules_changed"][0]["id"], "instructions:base", "{audit:#}");
    let shown = pack(&world, &["policy", "audit"]);
    assert!(shown.stdout.contains("0 added, 0 removed, 1 changed"), "{shown}");
}
