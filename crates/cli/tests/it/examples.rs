//! Every example of every help text is run as it stands.

use std::env::join_paths;

use crate::ledger;
use crate::people::kit;
use crate::policy::GOOD;
use crate::world::{World, binary};

/// Commands whose examples do not end by themselves, reach for a network or need a config repo: their help is read, not run.
const NEED_THE_WORLD: [&str; 7] = ["serve", "open", "call", "tools", "upstreams", "pack", "doctor"];

/// Every command there is, as the help texts tell it, each with its own help.
fn commands(world: &World, path: &[String], found: &mut Vec<(Vec<String>, String)>) {
    let args: Vec<&str> = path.iter().map(String::as_str).chain(["--help"]).collect();
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
    // A checkpoint is made before it is verified against.
    found.sort_by_key(|(path, _)| !path.ends_with(&["checkpoint".to_owned()]));
    for (path, help) in found {
        let (_, examples) =
            help.split_once("Examples:\n").unwrap_or_else(|| panic!("`{}` has no example", path.join(" ")));
        let lines = examples.lines().map(str::trim).take_while(|line| line.starts_with("countersign "));
        for line in lines {
            assert!(line.len() <= 76, "wraps on a narrow terminal: {line}");
            assert!(line.starts_with(&format!("countersign {}", path.join(" "))), "{line}");
            if NEED_THE_WORLD.contains(&path[0].as_str()) {
                continue;
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

/// What README.md shows below a marker is what the command prints.
#[test]
fn the_readme_shows_true_outputs() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = std::fs::read_to_string(root.join("README.md")).unwrap();
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
