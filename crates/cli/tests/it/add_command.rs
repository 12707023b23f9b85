//! A command line becomes a governed tool: from its help at a terminal, from flags off one; what is written works.

use serde_json::json;

use crate::people::kit::typed;
use crate::world::{World, all};

const SHIP: &str = r#"#!/bin/sh
case "$*" in
    *deploy*--help*) cat <<'HELP'
Deploy a stack.

Usage: ship deploy [OPTIONS] <STACK> [REGION]

Options:
  -f, --force            Do not wait for health checks
      --label <LABEL>    A label for the release
      --dry-run          Only say what would happen
HELP
    ;;
    --help) cat <<'HELP'
Ships stacks.

Usage: ship <COMMAND>

Commands:
  deploy    Deploy a stack
  list      List the stacks
HELP
    ;;
    *) for word in "$@"; do printf '[%s]' "$word"; done; echo ;;
esac
"#;

fn world() -> World {
    use std::os::unix::fs::PermissionsExt as _;
    let world = World::new();
    world.write("countersign.toml", "# mine\n[gateway]\nmode = \"execute\"\n").write("ship", SHIP);
    let ship = world.work().join("ship");
    std::fs::set_permissions(ship, std::fs::Permissions::from_mode(0o755)).unwrap();
    world
}

#[test]
fn flags_say_it_off_a_terminal() {
    let world = world();
    let add = |more: &[&str]| {
        let mut args = vec!["upstreams", "add-command", "stacks"];
        args.extend(more);
        world.run(&args)
    };
    let told = [
        add(&["--read-help", "--", "./ship", "deploy"]),
        add(&[
            "--yes",
            "--read-help",
            "--flag",
            "force",
            "--flag",
            "--label",
            "--input",
            "stack",
            "--input",
            "region",
            "--",
            "./ship",
            "deploy",
        ]),
        add(&["--yes", "--", "./ship", "list"]),
        add(&["--yes", "--", "./ship", "list"]),
        add(&[
            "--yes",
            "--tool",
            "size",
            "--input",
            "folder",
            "--description",
            "How much a folder takes",
            "--",
            "du",
            "-sh",
            "{folder}",
        ]),
        add(&["--yes", "--type-field", "stack", "--", "./ship", "destroy"]),
        add(&["--yes", "--tool", "bad name", "--", "./ship", "list"]),
        world.run(&["policy", "check"]),
    ];
    insta::assert_snapshot!(all(told));
    insta::assert_snapshot!("tools_made_of_commands", world.read("countersign.toml"));
    let listed = world.run(&["call", "tool-read", "--tool-name=stacks:list"]);
    assert_eq!(listed.code, Some(0), "{listed}");
    assert!(listed.stdout.contains("[list]"), "{listed}");
    // The preview is the command's own dry run, with what the call says.
    let given = json!({"stack": "blue; rm", "force": "--force", "label": "a b"}).to_string();
    let held =
        world.run(&["call", "tool-write", "--tool-name=stacks:deploy", "--json_args", &given, "--json"]);
    let text = held.stdout.replace("\\\"", "\"");
    assert!(text.contains("[deploy][--dry-run][--force][--label=a b][blue; rm]"), "{held}");
    let odd = world.run(&[
        "call",
        "tool-write",
        "--tool-name=stacks:deploy",
        "--json_args",
        r#"{"stack":"--all"}"#,
    ]);
    assert_eq!(odd.code, Some(3), "{odd}");
    assert!(odd.stderr.contains("E_ARGUMENTS_INVALID"), "{odd}");
}

/// A script that knows no `--help` would do its work: nothing is started unless someone says so.
#[test]
fn nothing_is_started_unasked() {
    let world = world();
    world.write("ship", "#!/bin/sh\ntouch started\n");
    let added = world.run(&["upstreams", "add-command", "stacks", "--yes", "--", "./ship", "deploy"]);
    assert_eq!(added.code, Some(0), "{added}");
    let no = typed(
        &world,
        &["upstreams", "add-command", "stacks", "--", "./ship", "list"],
        &[
            ("what it takes? [y/N] ", "n\n"),
            ("agents set? [none] ", "\n"),
            ("agents give? [none] ", "\n"),
            ("name? [list] ", "\n"),
            ("for agents? [] ", "List them\n"),
            ("destructive? [read] ", "\n"),
            ("countersign.toml? [y/N] ", "y\n"),
        ],
    );
    assert_eq!(no.code, Some(0), "{no}");
    assert!(!world.work().join("started").exists());
}

#[test]
fn a_person_is_asked_at_a_terminal() {
    let world = world();
    let asked = typed(
        &world,
        &["upstreams", "add-command", "stacks", "--", "./ship"],
        &[
            ("what it takes? [y/N] ", "y\n"),
            ("(empty: itself) ", "deploy\n"),
            ("agents set? [none] ", "label\n"),
            ("agents give? [stack, region] ", "stack\n"),
            ("name? [deploy] ", "\n"),
            ("for agents? [Deploy a stack] ", "\n"),
            ("destructive? [write] ", "destructive\n"),
            ("is enough) [stack] ", "\n"),
            ("countersign.toml? [y/N] ", "y\n"),
        ],
    );
    assert_eq!(asked.code, Some(0), "{asked}");
    insta::assert_snapshot!("a_tool_made_at_a_terminal", world.read("countersign.toml"));
    let checked = world.run(&["policy", "check"]);
    assert_eq!(checked.code, Some(0), "{checked}");
}
