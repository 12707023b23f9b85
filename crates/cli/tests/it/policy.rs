//! `policy check`, `explain` and `test`, as a person and as a program sees them.

use crate::world::{World, all};

/// A small configuration with nothing wrong.
pub(crate) const GOOD: &str = r#"[gateway]
mode = "ask"
store = "sqlite:countersign.db"

[upstreams.github]
command = "npx"

[[rules]]
match = "github:delete_*"
effect = "destructive"
confirm = "type"
type_field = "repo"
strength = "human"

[[rules]]
match = "github:create_*"
when = "has(intent.data_sensitivity) && intent.data_sensitivity == 'private'"
deny = "private data stays"

[[tests]]
name = "deleting takes a person"
tool = "github:delete_repo"
args = { repo = "acme/site" }
mode = "execute"
expect = { verdict = "hold", confirm = "type", strength = "human" }
"#;

/// One of each mistake that people make.
const BAD: &str = r#"[gateway]
mode = "exec"
listn = "127.0.0.1:7878"

[confirm]
ttl = 300

[upstreams.github]
command = "npx"

[[rules]]
match = "github:{delete_*"
confirm = "type"

[[rules]]
match = "github:create_*"
when = "args.amount >"
deny = true
"#;

/// Paths judged by the command line: from the configuration's folder, by their text.
#[cfg(unix)]
#[test]
fn check_explain_and_test_know_folders() {
    const PATHS: &str = r#"[upstreams.files]
command = "npx"

[[rules]]
match = "files:*"
when = "args.path.under('.') && !under(args.path, '~')"
effect = "read"

[[tests]]
tool = "files:look"
args = { path = "src/../a.txt" }
expect = { verdict = "go", effect = "read" }

[[tests]]
tool = "files:look"
args = { path = "../../etc/passwd" }
mode = "execute"
expect = { verdict = "hold" }

[[tests]]
tool = "files:look"
args = { path = 7 }
mode = "execute"
expect = { verdict = "refuse", code = "E_RULE_ERROR" }
"#;
    let world = World::new();
    world.write("countersign.toml", PATHS);
    for command in [["policy", "check"], ["policy", "test"]] {
        let said = world.run(&command);
        assert_eq!((said.code, said.stderr.contains("warning")), (Some(0), false), "{said}");
    }
    let home = world.home().display().to_string();
    for (path, expect) in [("a.txt", "read"), ("../a.txt", "write"), (home.as_str(), "write")] {
        let args = format!(r#"{{"path": "{path}"}}"#);
        let said = world.run(&["policy", "explain", "--tool", "files:look", "--args", &args, "--json"]);
        assert_eq!(said.envelope()["data"]["explained"]["effect"], expect, "{path}: {said}");
    }
    world.write("countersign.toml", &PATHS.replace("args.path.under('.')", "args.path.startsWith('/srv')"));
    let warned = world.run(&["policy", "check"]).to_string();
    assert!(warned.contains("write `under(args.path, '/dir')`"), "{warned}");
}

/// Nothing is misspelt, and still two rules never do anything.
const IDLE: &str = r#"[upstreams.github]
command = "npx"

[[rules]]
match = "github:*"
confirm = "preview"

[[rules]]
match = "gihub:delete_*"
confirm = "type"
type_field = "repo"

[[rules]]
match = "delete_everything"
deny = "no"

[[rules]]
match = "github:push"
confirm = "simple"
"#;

fn with(text: &str) -> World {
    let world = World::new();
    world.write("countersign.toml", text);
    world
}

#[test]
fn a_good_configuration_checks_out() {
    insta::assert_snapshot!(all([
        with(GOOD).run(&["policy", "check"]),
        with(GOOD).run(&["policy", "check", "--json"])
    ]));
}

#[test]
fn mistakes_come_with_place_and_remedy() {
    insta::assert_snapshot!(with(BAD).run(&["policy", "check"]));
}

#[test]
fn rules_that_never_match_are_found() {
    insta::assert_snapshot!(with(IDLE).run(&["policy", "check"]));
}

#[test]
fn a_program_gets_every_diagnostic() {
    let transcript = with(BAD).run(&["policy", "check", "--json"]);
    let envelope = transcript.envelope();
    assert_eq!((transcript.code, transcript.stderr.as_str()), (Some(3), ""), "{transcript}");
    assert_eq!(envelope["errors"][0]["code"], "E_CONFIG_INVALID");
    assert_eq!(envelope["errors"][0]["details"]["reason_code"], "config_invalid");
    let found = envelope["data"]["diagnostics"].as_array().unwrap();
    assert_eq!(envelope["data"]["errors"], found.len());
    let kinds: Vec<&str> = found.iter().map(|one| one["code"].as_str().unwrap()).collect();
    for kind in ["unknown-word", "unknown-key", "wrong-type", "bad-glob", "bad-condition"] {
        assert!(kinds.contains(&kind), "{kind} is missing from {kinds:?}");
    }
    for one in found {
        assert!(one["line"].as_u64().unwrap() > 0 && one["column"].as_u64().unwrap() > 0, "{one}");
        assert!(one["help"].is_string(), "what to write instead: {one}");
    }
}

#[test]
fn colours_mark_what_is_wrong() {
    insta::assert_snapshot!(
        with("[gateway]\nmode = \"exec\"\n")
            .run(&["policy", "check", "--color", "always"])
            .stdout
            .replace('\u{1b}', "␛")
    );
}

#[test]
fn a_mistake_stops_the_other_commands_too() {
    let world = with("[gateway]\nmode = \"exec\"\n");
    let runs: [&[&str]; 3] =
        [&["policy", "explain", "--tool", "a:b"], &["policy", "test"], &["activity", "list"]];
    insta::assert_snapshot!(all(runs.map(|args| world.run(args))));
    let envelope = world.run(&["policy", "test", "--json"]).envelope();
    assert_eq!(envelope["errors"][0]["details"]["diagnostics"][0]["line"], 2);
}

#[test]
fn secrets_that_are_not_here_are_worth_a_word() {
    let world = with(
        "[upstreams.github]\ncommand = \"npx\"\nenv = { T = \"${env:TOKEN}\", F = \"${file:f}\", K = \"${keyring:k}\" }\n",
    );
    insta::assert_snapshot!(world.run(&["policy", "check"]));
    world.write("f", "secret\n");
    world.write("../home/.config/countersign/keyring/k", "secret\n");
    let shared = world.run_with(&[("TOKEN", "x")], &["policy", "check"]);
    let keyring = world.home().join(".config/countersign/keyring/k");
    restrict(&keyring);
    let found = world.run_with(&[("TOKEN", "x")], &["policy", "check"]);
    assert!(found.stdout.starts_with('✓') && !found.stdout.contains("warning"), "{found}");
    if cfg!(unix) {
        assert!(shared.stdout.contains("others may read its file: chmod 600"), "{shared}");
    }
    assert!(!format!("{shared}{found}").contains("secret"));
}

#[cfg(unix)]
fn restrict(path: &std::path::Path) {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
}

#[cfg(not(unix))]
fn restrict(_: &std::path::Path) {}

#[test]
fn explaining_tells_who_decided_what() {
    let world = with(GOOD);
    let delete = ["policy", "explain", "--tool", "github:delete_repo", "--args", r#"{"repo":"acme/site"}"#];
    let with = |more: &[&'static str]| world.run(&[&delete, more].concat());
    let other = |args: &[&'static str]| world.run(&[&["policy", "explain", "--tool"], args].concat());
    insta::assert_snapshot!(all([
        with(&["--mode", "execute"]),
        with(&[]),
        with(&["--mode", "plan", "--variant", "read"]),
        other(&["github:create_issue", "--sensitivity", "private", "--mode", "execute"]),
        other(&["github:get_issue", "--annotations", r#"{"readOnlyHint":true}"#]),
        other(&[
            "gihub:wipe_all",
            "--annotations",
            r#"{"readOnlyHint":true}"#,
            "--mode",
            "execute",
            "--role",
            "human"
        ]),
    ]));
}

#[test]
fn explaining_to_a_program() {
    let world = with(GOOD);
    let args = [
        "policy",
        "explain",
        "--tool",
        "github:delete_repo",
        "--args",
        r#"{"repo":"a/b"}"#,
        "--mode",
        "execute",
        "--json",
    ];
    let envelope = world.run(&args).envelope();
    let explained = &envelope["data"]["explained"];
    assert_eq!((&envelope["command"], &explained["verdict"]), (&"policy.explain".into(), &"hold".into()));
    let confirm =
        explained["decided"].as_array().unwrap().iter().find(|one| one["field"] == "confirm").unwrap();
    assert_eq!((&confirm["value"], &confirm["rule"]), (&"type".into(), &"countersign.toml:8".into()));
}

#[test]
fn explaining_without_a_configuration_tells_the_defaults() {
    insta::assert_snapshot!(World::new().run(&[
        "policy",
        "explain",
        "--tool",
        "files:remove",
        "--mode",
        "execute"
    ]));
}

#[test]
fn arguments_are_taken_as_strictly_as_the_gateway_does() {
    let world = with(GOOD);
    let with = |args: &'static str| world.run(&["policy", "explain", "--tool", "a:b", "--args", args]);
    insta::assert_snapshot!(all([
        with(r#"{"a":1,"a":2}"#),
        with("[1]"),
        with("{'a':1}"),
        world.run(&["policy", "explain", "--tool", "ab"]),
        world.run(&["policy", "explain", "--tool", "a:b", "--annotations", "true"]),
    ]));
}

#[test]
fn tests_pass_or_say_what_differs() {
    let world = with(GOOD);
    world.write(
        "more.toml",
        "[[tests]]\nname = \"creating is shown first\"\ntool = \"github:create_issue\"\nmode = \"execute\"\n\
         expect = { verdict = \"hold\", confirm = \"preview\", rule = \"countersign.toml:8\" }\n\n\
         [[tests]]\ntool = \"github:get_issue\"\nannotations = { readOnlyHint = true }\nexpect = { verdict = \"go\" }\n",
    );
    insta::assert_snapshot!(all([
        world.run(&["policy", "test"]),
        world.run(&["policy", "test", "countersign.toml"]),
        world.run(&["policy", "test", "more.toml"]),
        world.run(&["policy", "test", "absent.toml"]),
    ]));
    let transcript = world.run(&["policy", "test", "more.toml", "--json"]);
    let envelope = transcript.envelope();
    assert_eq!(transcript.code, Some(3));
    assert_eq!(envelope["errors"][0]["details"]["reason_code"], "tests_failed");
    assert_eq!((&envelope["data"]["passed"], &envelope["data"]["failed"]), (&2.into(), &1.into()));
    assert_eq!(envelope["data"]["tests"][1]["differences"][0]["field"], "confirm");
}

#[test]
fn no_tests_prove_nothing() {
    insta::assert_snapshot!(with("[gateway]\nmode = \"ask\"\n").run(&["policy", "test"]));
}
