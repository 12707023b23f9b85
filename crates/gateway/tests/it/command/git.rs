//! The preset for git, with the real git in real repositories: looking and previewing leave every byte as it is, doing does what
//! the preview said.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use countersign_policy::effect::Effect;
use countersign_policy::gate::Verdict;
use countersign_policy::mode::Mode;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::bench::{Bench, texts};

fn preset() -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../presets/git.toml");
    std::fs::read_to_string(path).unwrap()
}

fn git(folder: &Path, args: &[&str]) -> String {
    let mut command = Command::new("git");
    command.args(args).current_dir(folder).env_clear().env("HOME", folder.join("home"));
    command.env("PATH", std::env::var_os("PATH").unwrap());
    let output = command.output().unwrap();
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// A repository with two commits, a branch that goes on, a remote, and work that is not committed.
fn repository() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    std::fs::create_dir(here.join("home")).unwrap();
    let config = "[user]\nname = Ada\nemail = ada@example.com\n[init]\ndefaultBranch = main\n";
    std::fs::write(here.join("home/.gitconfig"), config).unwrap();
    git(here, &["init", "-q"]);
    git(here, &["init", "-q", "--bare", "home/remote.git"]);
    git(here, &["remote", "add", "origin", "home/remote.git"]);
    std::fs::write(here.join(".git/info/exclude"), "home\nruns\nc.db*\n*.key\n").unwrap();
    std::fs::write(here.join("a.txt"), "one\n").unwrap();
    git(here, &["add", "a.txt"]);
    git(here, &["commit", "-qm", "first"]);
    git(here, &["push", "-q", "origin", "main"]);
    git(here, &["switch", "-qc", "topic"]);
    std::fs::write(here.join("t.txt"), "topic\n").unwrap();
    git(here, &["add", "t.txt"]);
    git(here, &["commit", "-qm", "on topic"]);
    git(here, &["switch", "-q", "main"]);
    std::fs::write(here.join("a.txt"), "one\ntwo\n").unwrap();
    std::fs::write(here.join("new file;.txt"), "new\n").unwrap();
    folder
}

/// Every file of the repository and its remote, and what is in it.
fn bytes(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut all = BTreeMap::new();
    let mut open = vec![folder.to_owned()];
    while let Some(here) = open.pop() {
        for entry in std::fs::read_dir(here).unwrap() {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            if entry.file_type().unwrap().is_dir() {
                if name != "runs" {
                    open.push(entry.path());
                }
            } else if !name.starts_with("c.db") {
                all.insert(entry.path(), std::fs::read(entry.path()).unwrap());
            }
        }
    }
    all
}

async fn bench() -> Bench {
    Bench::with(&preset(), repository()).await
}

/// Does it, as a call that was agreed to would.
async fn does(bench: &Bench, tool: &str, arguments: Value) -> Value {
    let result = bench.dry_run(tool, arguments).await.unwrap();
    assert_eq!(result["isError"], false, "{tool}: {result}");
    result
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn looking_runs_in_every_mode_and_leaves_every_byte() {
    let bench = bench().await;
    let before = bytes(bench.folder.path());
    let looks = [
        ("status", json!({}), "1 .M N... "),
        ("log", json!({}), "Ada: first"),
        ("log", json!({"ref": "main..topic", "limit": 5}), "Ada: on topic"),
        ("log", json!({"ref": "topic", "paths": ["a.txt"]}), "Ada: first"),
        ("show", json!({"ref": "topic"}), "+topic"),
        ("diff", json!({}), "+two"),
        ("diff", json!({"ref": "main..topic", "paths": ["t.txt"]}), "+topic"),
        ("diff_staged", json!({}), "wrote nothing"),
        ("read_file", json!({"path": "a.txt"}), "one\n"),
        ("list_files", json!({}), "a.txt"),
        ("grep", json!({"text": "on"}), "a.txt:1:one"),
        ("grep", json!({"text": "--no-such-text"}), "wrote nothing"),
        ("blame", json!({"path": "a.txt"}), "Ada"),
        ("branches", json!({}), "topic "),
        ("tags", json!({}), "wrote nothing"),
        ("remotes", json!({}), "origin"),
        ("stashes", json!({}), "wrote nothing"),
    ];
    for (tool, arguments, expect) in looks {
        for mode in Mode::ALL {
            let verdict = bench.judge(tool, &arguments, *mode);
            assert!(matches!(verdict, Verdict::Go(_)), "{tool} in {mode}: {verdict:?}");
        }
        let result = bench.call(tool, arguments).await.unwrap();
        assert_eq!(result["isError"], false, "{tool}: {result}");
        assert!(texts(&result)[0].contains(expect), "{tool}: {result}");
    }
    assert!(bytes(bench.folder.path()) == before, "looking changed something");
}

/// A write in the three modes: explained, previewed, held; and what the preview shows.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_are_explained_previewed_and_held_and_nothing_moves() {
    let bench = bench().await;
    let here = bench.folder.path();
    git(here, &["branch", "old", "topic~1"]);
    git(here, &["tag", "v1"]);
    std::fs::write(here.join("a.txt"), "aside\n").unwrap();
    git(here, &["stash", "-q"]);
    std::fs::write(here.join("a.txt"), "one\ntwo\n").unwrap();
    let before = bytes(here);
    let changes = [
        ("add", json!({"paths": ["new file;.txt"]}), "simple host", "add 'new file;.txt'"),
        ("unstage", json!({"paths": ["a.txt"]}), "simple host", ""),
        ("commit", json!({"message": "-m is no flag"}), "simple host", ""),
        ("create_branch", json!({"name": "next"}), "simple host", "the branch would start at"),
        ("switch", json!({"branch": "topic"}), "simple host", "t.txt"),
        ("merge", json!({"branch": "topic"}), "simple host", "+topic"),
        ("revert", json!({"commit": "HEAD"}), "simple host", "+one"),
        ("tag", json!({"name": "v2"}), "simple host", "the tag would name"),
        ("stash", json!({"message": "for later"}), "simple host", "a.txt"),
        ("unstash", json!({}), "simple host", "+aside"),
        ("pull", json!({"branch": "main"}), "simple host", "refs/heads/main"),
        (
            "push",
            json!({"branch": "topic"}),
            "preview host",
            "refs/heads/topic:refs/heads/topic\t[new branch]",
        ),
        ("restore", json!({"path": "a.txt"}), "type human", "+two"),
        ("remove", json!({"path": "a.txt"}), "type human", ""),
        ("clean", json!({"path": "new file;.txt"}), "type human", "Would remove new file;.txt"),
        ("reset_hard", json!({"ref": "HEAD"}), "type human", "-two"),
        ("delete_branch", json!({"name": "topic"}), "type human", "only here: "),
        ("delete_branch", json!({"name": "old"}), "type human", "wrote nothing"),
        ("delete_tag", json!({"name": "v1"}), "type human", "it names"),
        ("drop_stash", json!({"index": "0"}), "type human", "+aside"),
        ("force_push", json!({"branch": "main"}), "type human", "[up to date]"),
        ("delete_remote_branch", json!({"branch": "main"}), "type human", "[deleted]"),
    ];
    for (tool, arguments, need, expect) in changes {
        assert!(matches!(bench.judge(tool, &arguments, Mode::Ask), Verdict::Explain(_)), "{tool}");
        assert!(matches!(bench.judge(tool, &arguments, Mode::Execute), Verdict::Hold(_)), "{tool}");
        let Verdict::Preview(draft) = bench.judge(tool, &arguments, Mode::Plan) else { panic!("{tool}") };
        assert_eq!(format!("{} {}", draft.requirement.kind, draft.requirement.strength), need, "{tool}");
        assert_ne!(draft.classified.effect, Effect::Read, "{tool}");
        let dry = draft.dry_run().unwrap();
        let result = bench.dry_run(dry.tool.as_str(), arguments).await.unwrap();
        // `git rm` says by itself that it would not.
        assert_eq!(result["isError"], tool == "remove", "{tool}: {result}");
        assert!(texts(&result).concat().contains(expect), "{tool}: {result}");
    }
    assert!(bytes(here) == before, "a preview changed something");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_agreed_to_happens() {
    let bench = bench().await;
    let here = bench.folder.path().to_owned();
    does(&bench, "add", json!({"paths": ["a.txt", "new file;.txt"]})).await;
    does(&bench, "commit", json!({"message": "-second\n\nwith `touch pwned` and $(more)"})).await;
    assert_eq!(git(&here, &["log", "-1", "--format=%B"]).trim(), "-second\n\nwith `touch pwned` and $(more)");
    does(&bench, "merge", json!({"branch": "topic"})).await;
    does(&bench, "create_branch", json!({"name": "next"})).await;
    does(&bench, "switch", json!({"branch": "next"})).await;
    does(&bench, "tag", json!({"name": "v1"})).await;
    does(&bench, "push", json!({"branch": "main"})).await;
    assert_eq!(
        git(&here, &["rev-parse", "main"]),
        git(&here.join("home/remote.git"), &["rev-parse", "main"])
    );
    does(&bench, "fetch", json!({})).await;
    does(&bench, "pull", json!({"branch": "main"})).await;
    std::fs::write(here.join("a.txt"), "spoiled\n").unwrap();
    does(&bench, "stash", json!({"message": "--all"})).await;
    does(&bench, "unstash", json!({})).await;
    does(&bench, "restore", json!({"path": "a.txt"})).await;
    assert_eq!(bench.read("a.txt"), "one\ntwo\n");
    does(&bench, "remove", json!({"path": "t.txt"})).await;
    does(&bench, "reset_hard", json!({"ref": "HEAD~1"})).await;
    std::fs::write(here.join("junk"), "").unwrap();
    does(&bench, "clean", json!({"path": "junk"})).await;
    assert!(!here.join("junk").exists());
    does(&bench, "delete_tag", json!({"name": "v1"})).await;
    does(&bench, "delete_branch", json!({"name": "topic"})).await;
    does(&bench, "switch", json!({"branch": "main"})).await;
    does(&bench, "reset_hard", json!({"ref": "HEAD~1"})).await;
    does(&bench, "force_push", json!({"branch": "main"})).await;
    std::fs::write(here.join("a.txt"), "late\n").unwrap();
    does(&bench, "add", json!({"paths": ["a.txt"]})).await;
    does(&bench, "unstage", json!({"paths": ["a.txt"]})).await;
    does(&bench, "stash", json!({})).await;
    does(&bench, "drop_stash", json!({"index": "0"})).await;
    does(&bench, "revert", json!({"commit": "HEAD"})).await;
    does(&bench, "push", json!({"branch": "next"})).await;
    does(&bench, "delete_remote_branch", json!({"branch": "next"})).await;
    assert_eq!(git(&here.join("home/remote.git"), &["branch", "--list", "next"]), "");
    assert!(!here.join("pwned").exists());
    let bad = bench.dry_run("switch", json!({"branch": "no such branch"})).await.unwrap();
    assert_eq!(bad["isError"], true);
    assert!(texts(&bad)[1].contains("invalid reference"), "{bad}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_that_are_flags_or_more_than_names_do_not_get_through() {
    let bench = bench().await;
    let here = bench.folder.path();
    let before = bytes(here);
    let refused = [
        ("log", json!({"ref": "--output=pwned"})),
        ("show", json!({"ref": "-O/etc/passwd"})),
        ("fetch", json!({"remote": "ext::sh -c 'touch pwned'"})),
        ("fetch", json!({"remote": "--upload-pack=touch pwned"})),
        ("push", json!({"remote": "https://evil.example/x", "branch": "main"})),
        ("push", json!({"branch": "+main"})),
        ("push", json!({"branch": "main:refs/heads/other"})),
        ("clean", json!({"path": "-x"})),
        ("add", json!({"paths": ["--force"]})),
        ("drop_stash", json!({"index": "0 1"})),
    ];
    for (tool, arguments) in refused {
        let Verdict::Refuse(refused) = bench.judge(tool, &arguments, Mode::Execute) else {
            panic!("{tool} {arguments}")
        };
        assert_eq!(refused.refusal.code.as_str(), "E_ARGUMENTS_INVALID", "{tool}");
    }
    // These are names to git, of nothing there is.
    for (tool, arguments) in [
        ("log", json!({"ref": "main; touch pwned"})),
        ("read_file", json!({"path": "a.txt", "ref": "$(touch pwned)"})),
        ("diff", json!({"ref": "main", "paths": ["*.txt\u{a0}"]})),
    ] {
        let result = bench.call(tool, arguments.clone()).await.unwrap();
        assert!(result["isError"] == true || texts(&result)[0].contains("wrote nothing"), "{tool} {result}");
    }
    assert!(bytes(here) == before);
}
