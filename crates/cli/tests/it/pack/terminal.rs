//! The pack at a terminal: what it asks, what it opens, what it says of itself. `script` gives the terminal.
#![cfg(target_os = "linux")]

use std::io::Write as _;
use std::process::Stdio;

use serde_json::json;

use super::{code, pack, packed};
use crate::world::{World, binary};

/// Runs a command at a terminal with these answers; what it showed. None where there is no way to make a terminal.
fn at_terminal(world: &World, variables: &[(&str, &str)], args: &[&str], answers: &str) -> Option<String> {
    let line = std::iter::once(binary().to_str().unwrap()).chain(["pack"]).chain(args.iter().copied());
    let line = line.map(|word| format!("'{word}'")).collect::<Vec<_>>().join(" ");
    let mut command = world.command("script");
    command.env("TERM", "xterm").envs(variables.iter().copied()).args(["-qefc", &line, "/dev/null"]);
    let spawned = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let Ok(mut child) = spawned else {
        let _ = writeln!(std::io::stderr(), "left out: `script` is not here");
        return None;
    };
    child.stdin.take().unwrap().write_all(answers.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    Some(String::from_utf8_lossy(&output.stdout).replace('\r', ""))
}

#[test]
fn a_guided_start_asks_and_writes_what_was_answered() {
    let world = World::new();
    for format in [&["init", "--guided", "--json", "--yes"][..], &["init", "--guided"]] {
        let refused = pack(&world, format);
        assert_eq!(refused.code, Some(3), "{refused}");
        assert!(format!("{refused}").contains("E_TTY_REQUIRED"), "{refused}");
    }
    assert!(!world.home().join(".agentpack/repo").exists(), "nothing is written");
    let Some(shown) = at_terminal(&world, &[], &["init", "--guided"], "emacs\ncodex,cursor\nproject\nyes\n")
    else {
        return;
    };
    assert!(shown.contains("Targets, of") && shown.contains("emacs"), "{shown}");
    let repo = world.home().join(".agentpack/repo");
    let manifest = std::fs::read_to_string(repo.join("agentpack.yaml")).unwrap();
    assert!(manifest.contains("  codex:\n    mode: files\n    scope: project\n  cursor:\n"), "{manifest}");
    assert!(repo.join(".codex/skills/agentpack-operator/SKILL.md").exists(), "{shown}");
    assert!(!world.home().join(".codex").exists());
}

#[test]
fn an_overlay_opens_in_the_persons_editor() {
    let world = packed();
    let editor = world.work().join("editor");
    std::fs::write(&editor, "#!/bin/sh\necho \"$1 $2\" > \"$HOME/opened\"\n").unwrap();
    std::fs::set_permissions(&editor, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let command = format!("{} --wait", editor.display());
    let variables = [("EDITOR", command.as_str())];
    world.run_with(&variables, &["pack", "overlay", "edit", "instructions:base"]);
    assert!(!world.home().join("opened").exists(), "a pipe opens no editor");
    if at_terminal(&world, &variables, &["overlay", "edit", "instructions:base"], "").is_some() {
        let opened = std::fs::read_to_string(world.home().join("opened")).unwrap();
        assert!(
            opened.starts_with("--wait ") && opened.contains("/overlays/instructions_base--"),
            "{opened}"
        );
        let broken =
            at_terminal(&world, &[("EDITOR", "/no/such")], &["overlay", "edit", "instructions:base"], "")
                .unwrap();
        assert!(broken.contains("can't be started"), "{broken}");
    }
}

#[test]
fn a_person_is_shown_the_diff_and_asked() {
    let world = packed();
    world.write("AGENTS.md", "mine\n");
    let Some(no) = at_terminal(&world, &[], &["deploy", "--apply", "--adopt"], "n\n") else { return };
    assert!(no.contains("-mine") && no.contains("Apply these changes? [y/N]"), "{no}");
    assert_eq!(world.read("AGENTS.md"), "mine\n");
    let yes = at_terminal(&world, &[], &["deploy", "--apply", "--adopt"], "y\n").unwrap();
    assert!(yes.contains("\u{1b}[32m+be kind") && yes.contains("Applied."), "{yes}");
    assert_eq!(world.read("AGENTS.md"), "be kind\n");
    let plain = at_terminal(&world, &[("NO_COLOR", "1")], &["diff"], "").unwrap();
    assert!(!plain.contains("\u{1b}[3"), "{plain}");
}

/// Work that takes its time says that it goes on, where a person watches, and nowhere else.
#[test]
fn long_work_shows_that_it_goes_on() {
    let world = packed();
    // A git that takes its time.
    let bin = world.work().join("slow");
    std::fs::create_dir(&bin).unwrap();
    let git = bin.join("git");
    std::fs::write(&git, "#!/bin/sh\nsleep 1\nPATH=${PATH#*:} exec git \"$@\"\n").unwrap();
    std::fs::set_permissions(&git, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let variables = [("PATH", path.as_str())];
    let upstream = world.work().join("upstream");
    std::fs::create_dir(&upstream).unwrap();
    let made = world.command("git").args(["init", "--quiet", "-b", "main"]).current_dir(&upstream).status();
    assert!(made.unwrap().success());
    let url = format!("git:{}#ref=main", upstream.display());
    assert_eq!(pack(&world, &["add", "prompt", &url, "--id", "prompt:p", "--yes"]).code, Some(0));
    let Some(shown) = at_terminal(&world, &variables, &["lock", "--yes"], "") else { return };
    assert!(shown.contains("working · ") && shown.contains(" s"), "{shown}");
    let piped = world.run_with(&variables, &["pack", "lock", "--yes"]);
    assert!(!format!("{piped}").contains("working"), "{piped}");
}

#[test]
fn under_its_own_name_it_speaks_of_itself() {
    let world = packed();
    let alias = world.work().join("agentpack");
    std::os::unix::fs::symlink(binary(), &alias).unwrap();
    let run = |args: &[&str]| {
        let output = world.command(&alias).args(args).output().unwrap();
        world.transcript(&args.join(" "), output)
    };
    for args in [&["--help"][..], &["help"], &["deploy", "--help"]] {
        let help = run(args);
        assert_eq!(help.code, Some(0), "{help}");
        assert!(help.stdout.contains("Usage: agentpack"), "{help}");
        assert!(!help.stdout.contains("countersign pack"), "{help}");
    }
    let wrong = run(&["deplyo"]);
    assert_eq!(wrong.code, Some(2), "{wrong}");
    assert!(wrong.stderr.contains("deploy"), "{wrong}");
    let help = run(&["help", "--json"]).envelope();
    let commands: Vec<&str> =
        help["data"]["commands"].as_array().unwrap().iter().map(|one| one["id"].as_str().unwrap()).collect();
    for command in [
        "init",
        "import",
        "bootstrap",
        "policy lint",
        "policy audit",
        "policy lock",
        "remote set",
        "sync",
        "record",
        "score",
        "snapshots",
        "mcp serve",
        "completions",
    ] {
        assert!(commands.contains(&command), "{command}: {commands:?}");
    }
    for command in ["import --apply", "bootstrap", "policy lock", "deploy --apply", "rollback"] {
        assert!(help["data"]["mutating_commands"].as_array().unwrap().contains(&json!(command)), "{command}");
    }
    let page = run(&["help", "--markdown"]).stdout;
    assert!(page.contains("| `agentpack policy lint` |"), "{page}");
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let script = run(&["completions", shell]).stdout;
        assert!(script.contains("agentpack") && script.contains("bootstrap"), "{shell}");
    }
    assert_eq!(
        run(&["schema", "--json"]).envelope()["data"]["commands"]["policy.lint"],
        json!({"data_fields": ["root", "issues", "summary"]})
    );
    assert_eq!(code(&run(&["lock", "--json"]).envelope()), "E_CONFIRM_REQUIRED");
    assert_eq!(run(&["mcp", "serve", "--json"]).code, Some(2));
}
