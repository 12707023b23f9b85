//! The command line itself: help, mistakes, envelopes, colours, closed pipes.

use std::io::Read as _;
use std::process::Stdio;

use crate::world::{World, all};

#[test]
fn who_it_is_and_what_it_can() {
    let world = World::new();
    let masks = [(std::env::consts::ARCH, "<arch>"), (std::env::consts::OS, "<os>")];
    let runs = [vec!["version"], vec!["--version"], vec!["version", "--json"]];
    insta::assert_snapshot!(all(runs.map(|args| world.run(&args).masked(&masks))));
    // Nothing but the name: what there is to type, and how it will end.
    let bare = world.run(&[]);
    assert!(bare.code == Some(0) && bare.stderr.is_empty(), "{bare}");
    assert!(
        bare.stdout.contains("\nCommands:\n") && bare.stdout.contains("\nExit codes: 0 ok, 1 fault"),
        "{bare}"
    );
}

/// The commands that a help text lists.
fn listed(help: &str) -> Vec<&str> {
    let (_, rest) = help.split_once("Commands:\n").unwrap();
    let (list, _) = rest.split_once("\n\n").unwrap();
    list.lines().map(|line| line.split_whitespace().next().unwrap()).collect()
}

#[test]
fn help_lists_eight_commands_first_and_all_when_asked() {
    let world = World::new();
    let first = ["demo", "init", "doctor", "serve", "open", "plans", "approve", "activity"];
    for args in [&[][..], &["--help"], &["-h"], &["help"]] {
        let help = world.run(args);
        assert_eq!(listed(&help.stdout), first, "{help}");
        assert!(help.stdout.contains("countersign help --all"), "{help}");
    }
    let all = world.run(&["help", "--all"]);
    let names = listed(&all.stdout);
    assert!(first.iter().chain(&["reject", "pack", "memory", "policy"]).all(|name| names.contains(name)));
    let guide = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide/commands.md");
    let guide = std::fs::read_to_string(guide).unwrap();
    // What is not listed first is also explained and run.
    for name in names {
        assert!(guide.contains(&format!("`{name}")), "docs/guide/commands.md does not name `{name}`");
        let explained = world.run(&["help", name]);
        assert_eq!(explained.code, Some(0), "{explained}");
        assert_eq!(explained.stdout, world.run(&[name, "--help"]).stdout);
    }
    assert_eq!(world.run(&["help", "polcy"]).code, Some(2));
    assert_eq!(world.run(&["help", "--all", "policy"]).code, Some(2));
}

#[test]
fn mistakes_say_what_to_type_instead() {
    let world = World::new();
    let runs: [&[&str]; 12] = [
        &["polcy"],
        &["policy"],
        &["policy", "chek"],
        &["--jsn", "version"],
        &["version", "extra"],
        &["completions"],
        &["completions", "bsh"],
        &["--color=red", "version"],
        &["version", "--color"],
        &["policy", "explain"],
        &["policy", "explain", "--tool", "x:y", "--mode", "exec"],
        &["\u{1b}[31mred"],
    ];
    insta::assert_snapshot!(all(runs.map(|args| world.run(args))));
}

#[test]
fn a_mistake_is_an_envelope_too() {
    let world = World::new();
    let check = |args: &[&str], command: &str, reason: &str| {
        let transcript = world.run(args);
        let envelope = transcript.envelope();
        assert_eq!((transcript.code, transcript.stderr.as_str()), (Some(2), ""), "{transcript}");
        assert_eq!(envelope["command"], command, "{transcript}");
        assert_eq!(envelope["errors"][0]["code"], "E_USAGE", "{transcript}");
        assert_eq!(envelope["errors"][0]["details"]["reason_code"], reason, "{transcript}");
        assert!(envelope["errors"][0]["details"]["next_actions"].is_array(), "{transcript}");
    };
    check(&["--json"], "countersign", "command_missing");
    check(&["--json", "policy"], "policy", "command_missing");
    check(&["polcy", "--json"], "countersign", "unknown_command");
    check(&["policy", "check", "--nope", "--json"], "policy.check", "unknown_argument");
    check(
        &["--config", "policy", "activity", "list", "--limit", "many", "--json"],
        "activity.list",
        "invalid_value",
    );
    check(&["policy", "explain", "--json"], "policy.explain", "argument_missing");
}

#[test]
fn help_is_an_envelope_when_asked() {
    let envelope = World::new().run(&["policy", "check", "--help", "--json"]).envelope();
    assert_eq!(envelope["command"], "policy.check");
    assert!(envelope["data"]["help"].as_str().unwrap().contains("Examples:"));
}

#[test]
fn a_mistyped_command_names_the_one_that_was_meant() {
    let world = World::new();
    for (typed, meant) in [
        ("aprove", "approve"),
        ("plan", "plans"),
        ("tols", "tools"),
        ("rejct", "reject"),
        ("activ", "activity"),
    ] {
        let refused = world.run(&[typed]);
        assert_eq!(refused.code, Some(2), "{refused}");
        assert!(refused.stderr.contains(&format!("did you mean `{meant}`?")), "{refused}");
        assert!(refused.stderr.contains(&format!("next: countersign {meant} --help")), "{refused}");
    }
    let refused = world.run(&["plans", "wach"]);
    assert!(refused.stderr.contains("did you mean `watch`?"), "{refused}");
    assert!(!world.run(&["xyzzy"]).stderr.contains("did you mean"));
}

#[test]
fn every_shell_gets_its_completions() {
    let world = World::new();
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let transcript = world.run(&["completions", shell]);
        assert!(transcript.code == Some(0) && transcript.stdout.contains("COUNTERSIGN_COMPLETE"), "{shell}");
        assert_eq!(
            world.run(&["completions", shell, "--json"]).envelope()["data"]["script"],
            transcript.stdout
        );
    }
}

#[test]
fn colours_are_for_those_who_want_them() {
    let world = World::new();
    let coloured = |variables: &[(&str, &str)], args: &[&str]| {
        let transcript = world.run_with(variables, args);
        format!("{}{}", transcript.stdout, transcript.stderr).contains('\u{1b}')
    };
    assert!(!coloured(&[], &["polcy"]), "plain when piped");
    assert!(!coloured(&[], &["--help"]));
    assert!(coloured(&[], &["polcy", "--color", "always"]));
    assert!(coloured(&[], &["--help", "--color=always"]));
    assert!(!coloured(&[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")], &["polcy"]));
    assert!(!coloured(&[("CLICOLOR_FORCE", "1")], &["polcy", "--color", "never"]));
}

#[test]
fn a_reader_that_has_seen_enough_is_no_trouble() {
    let world = World::new();
    let mut child = world
        .countersign(&["completions", "bash"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // Closed before a byte is read: every write of the child meets a broken pipe.
    drop(child.stdout.take());
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!((child.wait().unwrap().code(), said.as_str()), (Some(0), ""));
}

#[cfg(target_os = "linux")]
#[test]
fn an_answer_that_can_not_be_written_is_a_fault() {
    let world = World::new();
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output = world.countersign(&["version"]).stdout(full).output().unwrap();
    let transcript = world.transcript("version > /dev/full", output);
    assert_eq!(transcript.code, Some(1), "{transcript}");
    assert!(transcript.stderr.starts_with("fault E_OUTPUT: can't write the answer"), "{transcript}");
}

#[test]
fn an_address_that_is_taken_is_a_fault_that_names_a_remedy() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let said = World::new().run(&["serve", "--http", &address]);
    assert_eq!(said.code, Some(1), "{said}");
    assert!(said.stderr.contains("fault E_UNEXPECTED: can't listen on"), "{said}");
    assert!(said.stderr.contains("countersign serve --http 127.0.0.1:0"), "{said}");
}
