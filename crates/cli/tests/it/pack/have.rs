//! What people already have: imported as modules; and what teaches agents to use the pack: installed, kept by deployments, taken back.

use serde_json::{Value, json};

use super::{code, pack, packed};
use crate::world::World;

fn ids(envelope: &Value, op: &str) -> Vec<String> {
    let plan = envelope["data"]["plan"].as_array().unwrap().iter();
    plan.filter(|item| item["op"] == op).map(|item| item["module_id"].as_str().unwrap().to_owned()).collect()
}

/// A project and a home with things worth keeping.
fn lived_in() -> World {
    let world = World::new();
    for (name, text) in [
        ("AGENTS.md", "project rules\n"),
        (".claude/commands/ship.md", "---\ndescription: ships\n---\nship\n"),
        (".codex/skills/local/SKILL.md", "---\nname: local\ndescription: here\n---\n"),
        ("../home/.codex/AGENTS.md", "my rules\n"),
        ("../home/.codex/prompts/draft.md", "draft\n"),
        ("../home/.codex/prompts/notes.txt", "no prompt\n"),
        ("../home/.codex/skills/review/SKILL.md", "---\nname: review\ndescription: reviews\n---\n"),
        ("../home/.codex/skills/review/lib/more.md", "more\n"),
        ("../home/.codex/skills/broken/SKILL.md", "no front matter\n"),
        ("../home/.claude/commands/go.md", "---\ndescription: goes\n---\ngo\n"),
    ] {
        world.write(name, text);
    }
    std::fs::create_dir(world.work().join(".git")).unwrap();
    std::fs::write(
        world.work().join(".git/config"),
        "[remote \"origin\"]\n\turl = https://example.com/a/b.git\n",
    )
    .unwrap();
    assert_eq!(pack(&world, &["init"]).code, Some(0));
    world
}

#[test]
fn what_people_have_becomes_modules() {
    let world = lived_in();
    let looked = pack(&world, &["import", "--json"]).envelope();
    assert_eq!(
        (&looked["command"], &looked["data"]["reason"]),
        (&json!("import"), &json!("dry_run")),
        "{looked:#}"
    );
    let project = looked["data"]["project"]["project_id"].as_str().unwrap();
    let mut expect = vec![
        "command:go".to_owned(),
        format!("command:project-{project}-ship"),
        format!("instructions:project-{project}"),
        "instructions:user".to_owned(),
        "prompt:draft".to_owned(),
        format!("skill:project-{project}-local"),
        "skill:review".to_owned(),
    ];
    expect.sort();
    assert_eq!(ids(&looked, "create"), expect, "{looked:#}");
    assert_eq!(ids(&looked, "skip_invalid"), ["skill:broken"]);
    assert_eq!(code(&pack(&world, &["import", "--apply", "--json"]).envelope()), "E_CONFIRM_REQUIRED");
    let repo = world.home().join(".agentpack/repo");
    assert!(!repo.join("modules/prompts/imported").exists(), "looking changes nothing");
    let done = pack(&world, &["import", "--apply", "--yes", "--json"]).envelope();
    assert_eq!(
        (&done["data"]["applied"], &done["command_id"]),
        (&json!(true), &json!("import --apply")),
        "{done:#}"
    );
    for (name, text) in [
        ("modules/prompts/imported/draft.md", "draft\n"),
        ("modules/claude-commands/imported/user/go.md", "---\ndescription: goes\n---\ngo\n"),
        ("modules/skills/imported/review/lib/more.md", "more\n"),
    ] {
        assert_eq!(std::fs::read_to_string(repo.join(name)).unwrap(), text);
    }
    assert!(repo.join(format!("modules/claude-commands/imported/project-{project}/ship.md")).is_file());
    assert!(repo.join(format!("modules/instructions/imported/{project}/AGENTS.md")).is_file());
    // What is the user's is deployed by the default profile.
    let plan = pack(&world, &["plan", "--json"]).envelope()["data"].to_string();
    assert!(plan.contains("/.codex/skills/review/SKILL.md") && !plan.contains("ship.md"), "{plan}");
    // Under the project's own profile they are what is deployed already, so that only others' files are to be adopted.
    let profile = format!("project-{project}");
    let plan = pack(&world, &["plan", "--profile", &profile, "--json"]).envelope();
    assert_eq!(plan["ok"], true, "{plan:#}");
    let again = pack(&world, &["import", "--json"]).envelope();
    assert_eq!((ids(&again, "create").len(), &again["data"]["reason"]), (0, &json!("dry_run")), "{again:#}");
    let rows = world.run(&[
        "activity",
        "list",
        "--json",
        "--store",
        &format!("sqlite:{}", world.home().join(".agentpack/state/countersign.db").display()),
    ]);
    assert!(rows.stdout.contains("\"import\""), "every change is in the ledger: {rows}");
}

#[test]
fn an_import_overwrites_nothing_and_names_what_is_twice() {
    let world = lived_in();
    world.write("../home/.codex/skills/review!/SKILL.md", "---\nname: review\ndescription: again\n---\n");
    let looked = pack(&world, &["import", "--json"]).envelope();
    let conflict = &looked["data"]["conflicts"][0];
    assert_eq!(
        (&conflict["kind"], &conflict["count"]),
        (&json!("duplicate_module_id_in_scan"), &json!(2)),
        "{looked:#}"
    );
    let taken = world.home().join(".agentpack/repo/modules/prompts/imported/draft.md");
    std::fs::create_dir_all(taken.parent().unwrap()).unwrap();
    std::fs::write(&taken, "mine\n").unwrap();
    let refused = pack(&world, &["import", "--apply", "--yes", "--json"]);
    let envelope = refused.envelope();
    assert_eq!((refused.code, code(&envelope)), (Some(3), "E_IMPORT_CONFLICT"), "{refused}");
    let details = &envelope["errors"][0]["details"];
    assert_eq!(details["next_actions"], json!(["resolve_import_conflict", "retry_import_apply"]));
    assert_eq!(details["count"], 1);
    assert_eq!(std::fs::read_to_string(&taken).unwrap(), "mine\n");
    let elsewhere = pack(&world, &["import", "--home-root", "nowhere", "--json"]).envelope();
    assert!(ids(&elsewhere, "create").iter().all(|id| id.contains("project-")), "{elsewhere:#}");
}

#[cfg(unix)]
#[test]
fn links_are_followed_only_at_home() {
    let world = lived_in();
    let skills = world.home().join(".codex/skills");
    world.write("../home/shared/copy/SKILL.md", "---\nname: copy\ndescription: copies\n---\n");
    world.write("../elsewhere/SKILL.md", "---\nname: evil\ndescription: evil\n---\n");
    std::os::unix::fs::symlink(world.home().join("shared/copy"), skills.join("copy")).unwrap();
    std::os::unix::fs::symlink(world.work().join("../elsewhere"), skills.join("evil")).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", skills.join("review/passwd")).unwrap();
    let looked = pack(&world, &["import", "--json"]).envelope();
    assert!(ids(&looked, "create").contains(&"skill:copy".to_owned()), "{looked:#}");
    assert_eq!(ids(&looked, "skip_invalid"), ["skill:broken", "skill:evil", "skill:review"]);
    assert!(looked["warnings"][0].as_str().unwrap().contains("dereferenced"), "{looked:#}");
}

#[test]
fn operator_assets_are_installed_kept_and_taken_back() {
    let world = packed();
    let skill = world.home().join(".codex/skills/agentpack-operator/SKILL.md");
    assert_eq!(code(&pack(&world, &["bootstrap", "--json"]).envelope()), "E_CONFIRM_REQUIRED");
    let dry = pack(&world, &["bootstrap", "--dry-run", "--json"]).envelope();
    assert_eq!(
        (&dry["data"]["applied"], &dry["data"]["reason"]),
        (&json!(false), &json!("dry_run")),
        "{dry:#}"
    );
    assert!(!skill.exists());
    pack(&world, &["deploy", "--apply", "--yes"]);
    let done = pack(&world, &["bootstrap", "--yes", "--json"]).envelope();
    assert_eq!((&done["command"], &done["data"]["applied"]), (&json!("bootstrap"), &json!(true)), "{done:#}");
    assert!(std::fs::read_to_string(&skill).unwrap().contains("agentpack_version"));
    let slash = world.work().join(".claude/commands/ap-plan.md");
    assert!(
        std::fs::read_to_string(&slash)
            .unwrap()
            .contains("allowed-tools: Bash(countersign pack plan --json)")
    );
    // A deployment neither takes them for its own nor deletes them.
    let plan = pack(&world, &["plan", "--json"]).envelope();
    assert_eq!(plan["data"]["changes"], json!([]), "{plan:#}");
    let status = pack(&world, &["status", "--json"]).envelope();
    assert_eq!(status["data"]["drift"], json!([]), "{status:#}");
    std::fs::write(world.home().join(".agentpack/repo/modules/base/AGENTS.md"), "new\n").unwrap();
    pack(&world, &["deploy", "--apply", "--yes"]);
    assert_eq!((world.read("AGENTS.md"), slash.exists()), ("new\n".to_owned(), true));
    assert_eq!(pack(&world, &["bootstrap", "--yes", "--json"]).envelope()["data"]["reason"], "no_changes");
    std::fs::write(&slash, "edited\n").unwrap();
    let status = pack(&world, &["status", "--json"]).envelope();
    assert_eq!(status["data"]["summary"]["modified"], 1, "{status:#}");
    let listed = pack(&world, &["snapshots", "--json"]).envelope();
    let kinds: Vec<&str> = listed["data"]["snapshots"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["kind"].as_str().unwrap())
        .collect();
    assert_eq!(kinds, ["deploy", "bootstrap", "deploy"], "newest first");
    let first = listed["data"]["snapshots"][2]["snapshot_id"].as_str().unwrap();
    assert_eq!(pack(&world, &["rollback", "--to", first, "--yes"]).code, Some(0));
    assert!(!slash.exists() && !skill.exists() && world.work().join(".claude/commands/go.md").exists());
    let shown = pack(&world, &["snapshots"]);
    assert!(shown.stdout.lines().next().unwrap().contains("rollback"), "{shown}");
}

#[test]
fn operator_assets_overwrite_nobody_and_old_ones_are_pointed_at() {
    let world = packed();
    world.write(".claude/commands/ap-plan.md", "mine\n");
    let refused = pack(&world, &["bootstrap", "--scope", "project", "--yes", "--json"]);
    assert_eq!(code(&refused.envelope()), "E_ADOPT_CONFIRM_REQUIRED", "{refused}");
    assert_eq!(world.read(".claude/commands/ap-plan.md"), "mine\n");
    pack(&world, &["bootstrap", "--scope", "project", "--target", "codex", "--yes"]);
    assert!(world.work().join(".codex/skills/agentpack-operator/SKILL.md").exists());
    assert!(!world.home().join(".codex/skills").exists(), "only the project was meant");
    // As an older version would have left it.
    let record = world.work().join(".codex/skills/.agentpack.manifest.codex.json");
    let text = std::fs::read_to_string(&record).unwrap();
    let (_, digest) = text.split_once("\"sha256\": \"").unwrap();
    std::fs::write(&record, text.replace(&digest[..64], &"0".repeat(64))).unwrap();
    let status = pack(&world, &["status", "--json"]).envelope();
    assert!(status["warnings"].to_string().contains("operator assets"), "{status:#}");
    assert_eq!(status["data"]["next_actions_detailed"][0]["action"], "bootstrap", "{status:#}");
}
