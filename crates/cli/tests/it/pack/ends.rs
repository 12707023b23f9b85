//! Processes that end where nobody planned it, and files larger than the memory there is.
#![cfg(unix)]

use std::collections::BTreeSet;
use std::process::Stdio;
use std::time::Duration;

use super::{pack, packed};

/// Killed at any moment, the next command leaves the old files or the new ones, all of them, and says what it did.
#[test]
fn a_killed_deployment_is_whole_after_the_next_command() {
    let rounds = if std::env::var_os("COUNTERSIGN_TEST_LONG").is_some() { 60 } else { 8 };
    let world = packed();
    let repo = world.home().join(".agentpack/repo");
    let skill = "  - { id: 'skill:many', type: skill, tags: [base], source: { local_path: { path: modules/many } } }\n";
    let manifest = std::fs::read_to_string(repo.join("agentpack.yaml")).unwrap();
    std::fs::write(repo.join("agentpack.yaml"), manifest + skill).unwrap();
    std::fs::create_dir(repo.join("modules/many")).unwrap();
    std::fs::write(repo.join("modules/many/SKILL.md"), "---\nname: many\ndescription: m\n---\n").unwrap();
    let version = |number: usize| {
        for file in 0..40 {
            std::fs::write(repo.join(format!("modules/many/f{file}")), format!("version {number}\n"))
                .unwrap();
        }
    };
    let deployed = || -> BTreeSet<String> {
        let read = |file: usize| {
            std::fs::read_to_string(world.work().join(format!(".codex/skills/many/f{file}"))).unwrap()
        };
        (0..40).map(read).collect()
    };
    version(0);
    assert_eq!(pack(&world, &["deploy", "--apply", "--yes"]).code, Some(0));
    let mut said = 0;
    for round in 1..=rounds {
        version(round);
        let mut command = world.countersign(&["pack", "deploy", "--apply", "--yes"]);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(u64::try_from(round * 53 % 900).unwrap()));
        child.kill().unwrap();
        child.wait().unwrap();
        let status = pack(&world, &["status", "--json"]).envelope();
        assert_eq!(status["ok"], true, "{status:#}");
        said += usize::from(status["warnings"].to_string().contains("stopped halfway"));
        assert_eq!(deployed().len(), 1, "round {round}: {:?}\n{status:#}", deployed());
        let left = std::fs::read_dir(world.work().join(".codex/skills/many")).unwrap();
        assert!(left.flatten().all(|entry| !entry.file_name().to_string_lossy().contains("agentpack-tmp")));
    }
    assert_eq!(pack(&world, &["deploy", "--apply", "--yes"]).code, Some(0), "after {said} recoveries");
    assert_eq!(deployed(), BTreeSet::from([format!("version {rounds}\n")]));
}

/// A plan and an apply over more than the memory they are given: contents pass through, they are not held.
#[cfg(target_os = "linux")]
#[test]
fn contents_are_not_held_in_memory() {
    let world = packed();
    let repo = world.home().join(".agentpack/repo");
    let skill =
        "  - { id: 'skill:big', type: skill, tags: [base], source: { local_path: { path: modules/big } } }\n";
    let manifest = std::fs::read_to_string(repo.join("agentpack.yaml"))
        .unwrap()
        .replace("scope: both", "scope: project");
    std::fs::write(repo.join("agentpack.yaml"), manifest + skill).unwrap();
    std::fs::create_dir(repo.join("modules/big")).unwrap();
    std::fs::write(repo.join("modules/big/SKILL.md"), "---\nname: big\ndescription: b\n---\n").unwrap();
    for file in 0..4 {
        let made = std::fs::File::create(repo.join(format!("modules/big/f{file}"))).unwrap();
        made.set_len(100 * 1024 * 1024).unwrap();
    }
    // 400 MB of contents and at most 250 MB of data for the process.
    let limited = |line: &str| {
        let program = crate::world::binary().display().to_string();
        let mut command = world.command("sh");
        let output = command
            .args(["-c", &format!("ulimit -d 250000 && exec '{program}' pack {line}")])
            .output()
            .unwrap();
        world.transcript(line, output)
    };
    let plan = limited("preview --diff --json");
    assert_eq!(plan.envelope()["data"]["plan"]["summary"]["create"], 7, "{plan}");
    let applied = limited("deploy --apply --yes --json");
    assert_eq!(applied.envelope()["data"]["applied"], true, "{applied}");
    assert_eq!(
        std::fs::metadata(world.work().join(".codex/skills/big/f3")).unwrap().len(),
        100 * 1024 * 1024
    );
}
