//! Runs every example of every help text.

use std::env::join_paths;
use std::fs;

use crate::ledger;
use crate::people::kit;
use crate::policy::GOOD;
use crate::stage::Stage;
use crate::world::{World, binary};

/// Commands whose examples need more than records: a house with upstreams, a gateway, a config repo.
const NEED_THE_WORLD: [&str; 7] = ["doctor", "call", "tools", "upstreams", "serve", "open", "pack"];

/// Examples that need somebody to sign in, or to answer at a terminal, and the test that does that.
const ELSEWHERE: [(&str, &str); 2] =
    [("countersign upstreams login ", "login.rs"), ("countersign pack init --guided", "pack/terminal.rs")];

/// Every command there is, as the help texts tell it, each with its own help.
fn commands(world: &World, path: &[String], found: &mut Vec<(Vec<String>, String)>) {
    let args: Vec<&str> = match path {
        [] => vec!["help", "--all"],
        path => path.iter().map(String::as_str).chain(["--help"]).collect(),
    };
    let help = world.run(&args).stdout;
    let below = help.split_once("Commands:\n").map_or("", |(_, rest)| rest.split_once("\n\n").unwrap().0);
    for line in below.lines().filter(|line| line.starts_with("  ") && !line.starts_with("   ")) {
        let name = line.split_whitespace().next().unwrap().to_owned();
        commands(world, &[path, &[name]].concat(), found);
    }
    if below.is_empty() {
        found.push((path.to_vec(), help));
    }
}

/// The examples of a command's help.
fn examples<'h>(path: &[String], help: &'h str) -> Vec<&'h str> {
    let (_, examples) =
        help.split_once("Examples:\n").unwrap_or_else(|| panic!("`{}` has no example", path.join(" ")));
    let lines: Vec<&str> =
        examples.lines().map(str::trim).take_while(|line| line.starts_with("countersign ")).collect();
    for line in &lines {
        assert!(line.len() <= 76, "wraps on a narrow terminal: {line}");
        assert!(line.starts_with(&format!("countersign {}", path.join(" "))), "{line}");
    }
    assert!(!lines.is_empty(), "`{}` has no example", path.join(" "));
    lines
}

#[test]
fn every_command_has_examples_and_they_work() {
    let world = World::new();
    let mut found = Vec::new();
    commands(&world, &[], &mut found);
    assert!(found.len() >= 11, "{} commands", found.len());
    world.write("countersign.toml", GOOD);
    world.write("policy-tests.toml", "[[tests]]\ntool = \"a:b\"\nexpect = { verdict = \"explain\" }\n");
    world.write("new-rules.toml", "[[rules]]\nmatch = \"github:delete_*\"\ndeny = \"not any more\"\n");
    let ids = ledger::write(&world.work().join("countersign.db"));
    kit::fill(&world.work().join("countersign.db"));
    crate::memory::fill(&world);
    // A checkpoint is made before it is verified against, and a key exported before it is used.
    found.sort_by_key(|(path, _)| !path.last().is_some_and(|name| name == "checkpoint" || name == "key"));
    for (path, help) in found {
        for line in examples(&path, &help) {
            if NEED_THE_WORLD.contains(&path[0].as_str()) {
                continue;
            }
            if line.contains("sqlite:copy.db") {
                std::fs::copy(world.work().join("countersign.db"), world.work().join("copy.db")).unwrap();
            }
            let real = line.replace("01KA4Z7Q3V9M5T2X8R6W0YBCDE", ids[0].as_str());
            let folders = [binary().parent().unwrap(), "/usr/bin".as_ref(), "/bin".as_ref()];
            let mut shell = world.command("sh");
            let output =
                shell.args(["-c", &real]).env("PATH", join_paths(folders).unwrap()).output().unwrap();
            let transcript = world.transcript(line, output);
            assert_eq!(transcript.code, Some(0), "{transcript}");
        }
    }
}

/// Two upstreams made of commands that do nothing.
const HOUSE: &str = r#"[gateway]
listen = "127.0.0.1:7878"

[upstreams.github]
tools = [
    { name = "get_issue", description = "Read an issue", run = ["echo", "an issue"], effect = "read" },
    { name = "close_issue", description = "Close an issue", run = ["true"] },
    { name = "delete_repo", description = "Delete a repository", run = ["true"], effect = "destructive" },
]
"#;

const NOTES: &str = r#"
[upstreams.notes]
tools = [
    { name = "list", description = "List the notes", input = { n = { type = "integer", optional = true } }, run = ["echo", ["{n}"]], effect = "read" },
    { name = "add", description = "Add a note", run = ["true"] },
    { name = "wipe", description = "Wipe the notes", run = ["true"], preview = ["echo", "all of them"], effect = "destructive" },
]
"#;

/// The world a command's examples speak of.
fn surroundings(command: &str) -> Stage {
    let mut stage = Stage::new("").unwrap();
    let notes = if command == "upstreams" { "" } else { NOTES };
    stage.world.write("countersign.toml", &stage.here(&[HOUSE, notes].concat()));
    match command {
        "open" => stage.start(command, "countersign serve --http 127.0.0.1:7878"),
        "pack" => {
            for (name, value) in [
                ("EDITOR", "true"),
                ("GIT_AUTHOR_NAME", "ada"),
                ("GIT_AUTHOR_EMAIL", "ada@example.com"),
                ("GIT_COMMITTER_NAME", "ada"),
                ("GIT_COMMITTER_EMAIL", "ada@example.com"),
            ] {
                stage.world.set(name, value.to_owned());
            }
            stage.world.write("../home/.codex/AGENTS.md", "Answer in one sentence.\n");
            stage.world.write("event.json", r#"{"module_id":"skill:review","success":true}"#);
            stage.run(command, "git init --quiet --bare ~/team.git");
            stage.means.push((
                "git@example.com:team/agents.git",
                stage.world.home().join("team.git").display().to_string(),
            ));
        }
        _ => {}
    }
    stage
}

/// What has to be there before an example, besides what those before it left.
fn before(line: &str, stage: &Stage) {
    const REPO: &str = "../home/.agentpack/repo";
    if line.starts_with("countersign pack add ") {
        stage
            .world
            .write(&format!("{REPO}/skills/review/SKILL.md"), "---\nname: review\ndescription: r\n---\nv1\n");
    } else if line.starts_with("countersign upstreams remove ") {
        stage.run(line, "countersign upstreams add notes --command npx --yes -- -y notes-server");
    } else if line.starts_with("countersign pack overlay rebase ") {
        stage.run(line, "countersign pack overlay edit skill:review");
    } else if line == "countersign pack policy lock" {
        stage.world.write(&format!("{REPO}/rules/agentpack.policy.yaml"), "version: 1\n");
        stage.world.write(
            &format!("{REPO}/agentpack.org.yaml"),
            "version: 1\npolicy_pack: { source: \"local:rules\" }\n",
        );
    } else if line.starts_with("countersign pack sync ") {
        stage.run(line, "cd ~/.agentpack/repo && git add --all && git commit --quiet --message=all");
    }
}

/// Off a terminal what asks ends with 4 and says so; everything else with 0.
#[test]
fn examples_that_need_a_world_have_one_and_work() {
    let world = World::new();
    let mut found = Vec::new();
    commands(&world, &[], &mut found);
    for command in NEED_THE_WORLD {
        let mut all: Vec<_> = found.iter().filter(|(path, _)| path[0] == command).collect();
        assert!(!all.is_empty(), "there is no `{command}`");
        // What takes away comes last.
        all.sort_by_key(|(path, _)| {
            path[1..].first().is_some_and(|word| ["remove", "rollback"].contains(&word.as_str()))
        });
        let mut stage = surroundings(command);
        for line in all.iter().flat_map(|(path, help)| examples(path, help)) {
            if let Some((_, file)) = ELSEWHERE.iter().find(|(start, _)| line.starts_with(start)) {
                assert!(crate::stage::root().join("crates/cli/tests/it").join(file).exists());
                continue;
            }
            before(line, &stage);
            if line.starts_with("countersign serve --http") {
                stage.start(command, line);
                continue;
            }
            let done = stage.follow(line);
            let asks = format!("{}{}", done.stdout, done.stderr).contains("E_CONFIRM_REQUIRED");
            assert_eq!(done.code, Some(if asks { 4 } else { 0 }), "{done}");
        }
        stage.end(command);
        if command == "open" {
            let opened = fs::read_to_string(stage.world.home().join("opened")).unwrap();
            assert!(opened.contains("#code="), "{opened}");
        }
    }
}

/// What the guide shows below a marker is what the command prints.
#[test]
fn the_guide_shows_true_explanations() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = std::fs::read_to_string(root.join("docs/guide/first-rules.md")).unwrap();
    let world = World::new();
    for (marker, mode) in [("policy explain", "execute"), ("policy explain in ask mode", "ask")] {
        let (_, rest) = page.split_once(&format!("<!-- output: {marker} -->\n```text\n")).unwrap();
        let (shown, _) = rest.split_once("```\n").unwrap();
        let args =
            ["--tool", "github:delete_repo", "--args", r#"{"repo":"acme/site"}"#, "--variant", "destructive"];
        let mut command =
            world.countersign(&["policy", "explain", "--config", "examples/first/countersign.toml"]);
        let output = command.args(args).args(["--mode", mode]).current_dir(&root).output().unwrap();
        assert_eq!(shown, String::from_utf8(output.stdout).unwrap(), "{marker}");
    }
}
