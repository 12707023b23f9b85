//! What planning costs: a plan over many deployed files, warm, against `git status` on the same tree in the same run. Prints one
//! line a size; `cargo bench -p countersign-pack` runs it.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a bench prints, and one that cannot go on has failed"
)]

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use countersign_pack::desired_state::ProfileSelection;
use countersign_pack::manifest::Target;
use countersign_pack::place::PackEnvironment;
use countersign_pack::records::{self, RecordedFile, TargetManifest};
use countersign_pack::survey::survey;
use countersign_pack::system::RealFileSystem;

const MANIFEST: &str = "version: 1
profiles: { default: { include_tags: [base] } }
targets: { codex: { mode: files, scope: project } }
modules:
  - { id: 'skill:big', type: skill, tags: [base], source: { local_path: { path: modules/big } } }
";

fn main() {
    println!("{:>7}  {:>10}  {:>10}  {:>6}  {:>9}", "files", "plan", "git status", "ratio", "peak");
    for files in [5_000, 50_000] {
        measure(files);
    }
}

fn measure(files: usize) {
    let room = tempfile::tempdir().unwrap();
    let place = prepare(room.path(), files);
    let selection = ProfileSelection { profile: "default".into(), target: "all".into() };
    let take = || survey(&place, &selection, &RealFileSystem, jiff::Timestamp::now()).unwrap();
    // The files as a deployment would leave them: copied, since syncing each is not what is measured here.
    let before = take();
    assert_eq!(before.plan.changes.len(), files + 1);
    let skills = room.path().join("project/.codex/skills");
    let mut managed_files = Vec::new();
    for ((_, path), output) in &before.desired.outputs {
        let inside = path.strip_prefix(&skills).unwrap();
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::copy(room.path().join("repo/modules").join(inside), &**path).unwrap();
        let (path, sha256) = (inside.to_str().unwrap().to_owned(), output.digest.hex());
        managed_files.push(RecordedFile { path, sha256, module_ids: output.module_ids.clone() });
    }
    let (generated_at, tool) = (String::new(), "codex".to_owned());
    let record = TargetManifest { schema_version: 1, generated_at, tool, snapshot_id: None, managed_files };
    std::fs::write(records::path_in(&skills, Target::Codex), record.text()).unwrap();
    drop(before);
    let project = room.path().join("project");
    for args in [
        &["init", "--quiet"][..],
        &["add", "."],
        &["-c", "user.name=b", "-c", "user.email=b@b", "commit", "--quiet", "-m", "x"],
    ] {
        assert!(git(&project, args).status().unwrap().success());
    }
    // Young files are read again each time, here and in git: both are warm only when the files are older than that.
    std::thread::sleep(Duration::from_millis(2_500));
    assert!(take().plan.changes.is_empty());
    let plan = median(|| assert!(take().plan.changes.is_empty()));
    git(&project, &["status", "--porcelain"]).output().unwrap();
    let status =
        median(|| assert!(git(&project, &["status", "--porcelain"]).output().unwrap().stdout.is_empty()));
    let ratio = plan.as_secs_f64() / status.as_secs_f64();
    println!("{files:>7}  {plan:>10.1?}  {status:>10.1?}  {ratio:>6.2}  {:>9}", peak());
}

fn prepare(room: &Path, files: usize) -> PackEnvironment {
    let write = |name: &str, text: &str| {
        let path = room.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    write("repo/agentpack.yaml", MANIFEST);
    write("repo/modules/big/SKILL.md", "---\nname: big\ndescription: many files\n---\n");
    for file in 0..files {
        let text = format!("file {file}\n{}", "some words on a line\n".repeat(20));
        write(&format!("repo/modules/big/d{:03}/f{file}.md", file / 100), &text);
    }
    std::fs::create_dir_all(room.join("project")).unwrap();
    PackEnvironment {
        home: room.join("home"),
        pack_home: room.join("pack"),
        repo: room.join("repo"),
        codex_home: None,
        cwd: room.join("project"),
        machine: "bench".into(),
        variables: Vec::new(),
    }
}

fn git(folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new("git");
    command.current_dir(folder).args(args);
    command
}

fn median(mut work: impl FnMut()) -> Duration {
    let mut times: Vec<Duration> = (0..9)
        .map(|_| {
            let began = Instant::now();
            work();
            began.elapsed()
        })
        .collect();
    times.sort();
    times.get(times.len() / 2).copied().unwrap()
}

/// The most memory this process ever held, where the platform tells.
fn peak() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.map_or_else(|| "unknown".to_owned(), |text| text.trim().to_owned())
}
