//! Machines that keep in step over a remote, and notes on how modules do; and overlays from making to rebasing.

use std::io::Write as _;
use std::process::Stdio;

use serde_json::{Value, json};

use super::{code, pack, packed};
use crate::world::World;

fn git(world: &World, folder: &std::path::Path, args: &[&str]) -> String {
    let identity = ["-c", "user.name=t", "-c", "user.email=t@example.com"];
    let output = world.command("git").current_dir(folder).args(identity).args(args).output().unwrap();
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn two_machines_meet_at_a_remote() {
    let world = packed();
    let repo = world.home().join(".agentpack/repo");
    let sync = |expect: &str| {
        let said = pack(&world, &["sync", "--yes", "--json"]);
        assert_eq!((said.code, code(&said.envelope())), (Some(3), expect), "{said}");
    };
    sync("E_GIT_REPO_REQUIRED");
    git(&world, &repo, &["init", "-q", "-b", "main"]);
    sync("E_GIT_WORKTREE_DIRTY");
    git(&world, &repo, &["add", "."]);
    git(&world, &repo, &["commit", "-qm", "one"]);
    sync("E_GIT_REMOTE_MISSING");
    let meeting = world.work().join("meeting.git");
    git(&world, &world.work(), &["init", "-q", "--bare", "-b", "main", "meeting.git"]);
    let url = meeting.to_str().unwrap();
    assert_eq!(code(&pack(&world, &["remote", "set", url, "--json"]).envelope()), "E_CONFIRM_REQUIRED");
    for bad in ["--upload-pack=x", "ext::sh -c id"] {
        assert_eq!(
            code(&pack(&world, &["remote", "set", "--yes", "--json", "--", bad]).envelope()),
            "E_GIT_FAILED",
            "{bad}"
        );
    }
    let set = pack(&world, &["remote", "set", url, "--yes", "--json"]).envelope();
    assert_eq!(
        (&set["command"], &set["data"]["remote"]),
        (&json!("remote.set"), &json!("origin")),
        "{set:#}"
    );
    let synced = pack(&world, &["sync", "--rebase", "--yes", "--json"]).envelope();
    assert_eq!(synced["data"]["branch"], "main", "{synced:#}");
    git(&world, &world.work(), &["clone", "-q", url, "other"]);
    std::fs::write(world.work().join("other/from-there"), "x").unwrap();
    git(&world, &world.work().join("other"), &["add", "."]);
    git(&world, &world.work().join("other"), &["commit", "-qm", "there"]);
    git(&world, &world.work().join("other"), &["push", "-q"]);
    std::fs::write(repo.join("from-here"), "y").unwrap();
    git(&world, &repo, &["add", "."]);
    git(&world, &repo, &["commit", "-qm", "here"]);
    git(&world, &repo, &["config", "user.name", "t"]);
    git(&world, &repo, &["config", "user.email", "t@example.com"]);
    let apart = pack(&world, &["sync", "--yes", "--json"]);
    assert_eq!(code(&apart.envelope()), "E_GIT_FAILED", "only --rebase joins two histories: {apart}");
    assert_eq!(pack(&world, &["sync", "--rebase"]).code, Some(0));
    assert!(repo.join("from-there").exists());
    assert!(git(&world, &meeting, &["log", "--format=%s"]).contains("here"));
    git(&world, &repo, &["checkout", "-q", "--detach"]);
    sync("E_GIT_DETACHED_HEAD");
}

#[test]
fn how_modules_do_is_noted_and_counted() {
    let world = packed();
    let record = |event: &str, flags: &[&str]| {
        let mut command = world.countersign(&["pack", "record"]);
        let mut child = command
            .args(flags)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(event.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        serde_json::from_slice::<Value>(&output.stdout).unwrap_or_default()
    };
    let json = ["--json", "--yes"];
    assert_eq!(code(&record("{}", &["--json"])), "E_CONFIRM_REQUIRED");
    assert_eq!(code(&record("not json", &json)), "E_ARGUMENTS_INVALID");
    for event in [
        r#"{"module_id":"command:go","success":true}"#,
        r#"{"moduleId":"command:go","ok":false}"#,
        r#"{"module_id":"skill:x"}"#,
    ] {
        assert_eq!(record(event, &json)["data"]["recorded"], true, "{event}");
    }
    let log = world.home().join(".agentpack/state/logs/events.jsonl");
    let mut text = std::fs::read_to_string(&log).unwrap();
    text.push_str("{ torn\n{\"schema_version\": 9}\n");
    std::fs::write(&log, text).unwrap();
    let score = pack(&world, &["score", "--json"]).envelope();
    let first = &score["data"]["modules"][0];
    assert_eq!((&first["module_id"], &first["total"]), (&json!("command:go"), &json!(2)), "{score:#}");
    assert_eq!((&first["failures"], &first["failure_rate"]), (&json!(1), &json!(0.5)));
    assert!(first["last_seen_at"].is_string(), "{score:#}");
    assert_eq!(
        score["data"]["read_stats"],
        json!({
            "lines_total": 5, "lines_empty": 0, "records_ok": 3, "skipped_total": 2, "skipped_malformed_json": 2,
            "skipped_unsupported_schema_version": 0, "skipped_io_errors": 0,
        })
    );
    assert!(score["warnings"][0].as_str().unwrap().contains("line 4"), "{score:#}");
    assert!(pack(&world, &["score"]).stdout.contains("command:go  1 of 2 failed"));
}

#[test]
fn overlays_layer_and_follow_their_module() {
    let world = packed();
    let repo = world.home().join(".agentpack/repo");
    let module = repo.join("modules/base/AGENTS.md");
    std::fs::write(&module, "one\ntwo\nthree\nfour\nfive\n").unwrap();
    let folder = |scope: &str| {
        let said =
            pack(&world, &["overlay", "path", "instructions:base", "--scope", scope, "--json"]).envelope();
        let room = world.home().parent().unwrap().to_str().unwrap().to_owned();
        std::path::PathBuf::from(said["data"]["overlay_dir"].as_str().unwrap().replace("<room>", &room))
    };
    let deployed = || {
        pack(&world, &["deploy", "--apply", "--yes"]);
        world.read("AGENTS.md")
    };
    assert_eq!(
        code(&pack(&world, &["overlay", "rebase", "instructions:base", "--yes", "--json"]).envelope()),
        "E_OVERLAY_NOT_FOUND"
    );
    pack(&world, &["overlay", "edit", "instructions:base"]);
    std::fs::write(folder("global").join("AGENTS.md"), "one\ntwo\nthree\nfour\nFIVE\n").unwrap();
    assert_eq!(deployed(), "one\ntwo\nthree\nfour\nFIVE\n");
    pack(&world, &["overlay", "edit", "instructions:base", "--project", "--sparse"]);
    assert!(!folder("project").join("AGENTS.md").exists(), "sparse starts empty");
    std::fs::write(folder("project").join("AGENTS.md"), "project\n").unwrap();
    pack(&world, &["overlay", "edit", "instructions:base", "--scope", "machine", "--sparse"]);
    std::fs::write(folder("machine").join("AGENTS.md"), "machine\n").unwrap();
    assert_eq!(deployed(), "project\n", "project over machine over global");
    std::fs::remove_dir_all(folder("project")).unwrap();
    assert_eq!(deployed(), "machine\n");
    std::fs::remove_dir_all(folder("machine")).unwrap();
    // The module moves on: its news and the overlay's own change both stay.
    std::fs::write(&module, "ONE\ntwo\nthree\nfour\nfive\n").unwrap();
    let rebased = pack(&world, &["overlay", "rebase", "instructions:base", "--yes", "--json"]).envelope();
    assert_eq!(rebased["data"]["updated"], json!(["AGENTS.md"]), "{rebased:#}");
    assert_eq!(deployed(), "ONE\ntwo\nthree\nfour\nFIVE\n");
    std::fs::write(&module, "ONE\ntwo\nthree\nfour\nsix\n").unwrap();
    let conflict = pack(&world, &["overlay", "rebase", "instructions:base", "--yes", "--json"]).envelope();
    assert_eq!(code(&conflict), "E_OVERLAY_REBASE_CONFLICT");
    assert_eq!(conflict["errors"][0]["details"]["conflicts"], json!(["AGENTS.md"]));
    std::fs::remove_dir_all(folder("global")).unwrap();
    // Patches, and a folder that mixes both.
    pack(&world, &["overlay", "edit", "instructions:base", "--kind", "patch"]);
    let patches = folder("global").join(".agentpack/patches");
    let patch = "--- a/AGENTS.md\n+++ b/AGENTS.md\n@@ -1,2 +1,2 @@\n-ONE\n+uno\n two\n";
    std::fs::write(patches.join("AGENTS.md.patch"), patch).unwrap();
    assert_eq!(deployed(), "uno\ntwo\nthree\nfour\nsix\n");
    std::fs::write(patches.join("AGENTS.md.patch"), patch.replace("ONE", "none")).unwrap();
    assert_eq!(code(&pack(&world, &["plan", "--json"]).envelope()), "E_OVERLAY_PATCH_APPLY_FAILED");
    std::fs::write(patches.join("AGENTS.md.patch"), patch.replace("AGENTS.md", "OTHER.md")).unwrap();
    assert_eq!(code(&pack(&world, &["plan", "--json"]).envelope()), "E_OVERLAY_PATCH_APPLY_FAILED");
    std::fs::write(folder("global").join("AGENTS.md"), "whole\n").unwrap();
    assert_eq!(code(&pack(&world, &["plan", "--json"]).envelope()), "E_CONFIG_INVALID");
}
