//! Tests of every way an apply can end: done, drifted, and stopped after any step.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::deploy::{ConfirmedPlan, deploy, dry_run, is_needed};
use crate::desired_state::ProfileSelection;
use crate::place::PackEnvironment;
use crate::plan::FileOp;
use crate::rollback;
use crate::survey::{DeploymentSurvey, survey};
use crate::system::{EntryKind, FileAccess, FileSystem, PathStatus, RealFileSystem, WriteSource};

/// A home, a project and a config repo.
struct World {
    room: tempfile::TempDir,
}

const MANIFEST: &str = "version: 1
profiles: { default: { include_tags: [base] } }
targets:
  codex: { mode: files, scope: both }
  claude_code: { mode: files, scope: project }
modules:
  - { id: 'instructions:base', type: instructions, tags: [base], source: { local_path: { path: modules/base } } }
  - { id: 'skill:review', type: skill, tags: [base], source: { local_path: { path: modules/review } } }
  - { id: 'command:go', type: command, tags: [base], source: { local_path: { path: modules/go.md } } }
";

impl World {
    fn new() -> Self {
        let world = Self { room: tempfile::tempdir().unwrap() };
        world.write("repo/agentpack.yaml", MANIFEST);
        world.write("repo/modules/base/AGENTS.md", "be kind\n");
        world.write("repo/modules/review/SKILL.md", "---\nname: review\ndescription: reviews\n---\nlook\n");
        world.write("repo/modules/review/lib/notes.txt", "one\n");
        world.write("repo/modules/go.md", "---\ndescription: goes\n---\ngo\n");
        std::fs::create_dir_all(world.path("project/.git")).unwrap();
        std::fs::create_dir_all(world.path("home")).unwrap();
        world
    }

    fn path(&self, name: &str) -> PathBuf {
        self.room.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap()
    }

    fn place(&self) -> PackEnvironment {
        PackEnvironment {
            home: self.path("home"),
            pack_home: self.path("pack"),
            repo: self.path("repo"),
            codex_home: None,
            cwd: self.path("project"),
            machine: "box".into(),
            variables: Vec::new(),
        }
    }

    fn survey(&self) -> DeploymentSurvey {
        let selection = ProfileSelection { profile: "default".into(), target: "all".into() };
        survey(&self.place(), &selection, &RealFileSystem, jiff::Timestamp::now()).unwrap()
    }

    fn deploy(&self) -> PackResult<ApplyResult> {
        deploy(
            &ConfirmedPlan::in_test(self.survey()),
            &self.place(),
            &FatedFileSystem(NoFailure),
            jiff::Timestamp::now(),
        )
    }

    fn back(&self, to: &str) -> PackResult<ApplyResult> {
        rollback::apply_rollback(
            &rollback::plan(&self.place(), to, &RealFileSystem)?,
            &self.place(),
            &RealFileSystem,
            jiff::Timestamp::now(),
        )
    }

    /// Everything a user sees: home and project, without the moments in manifests.
    fn seen(&self) -> BTreeMap<String, String> {
        let mut seen = BTreeMap::new();
        for top in ["home", "project"] {
            collect(&self.path(top), top, &mut seen);
        }
        seen
    }
}

fn collect(folder: &Path, name: &str, seen: &mut BTreeMap<String, String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let name = format!("{name}/{}", entry.file_name().to_str().unwrap());
        if entry.file_type().unwrap().is_dir() {
            seen.insert(format!("{name}/"), String::new());
            collect(&entry.path(), &name, seen);
        } else {
            let text = std::fs::read_to_string(entry.path()).unwrap();
            let moving =
                |line: &&str| !line.contains("\"generated_at\"") && !line.contains("\"snapshot_id\"");
            seen.insert(name, text.lines().filter(moving).collect::<Vec<_>>().join("\n"));
        }
    }
}

/// What a system in these tests does before a step that changes something.
trait StepFate: Send + Sync {
    /// Gives back whether the step happens: wholly, by halves as the last one, or not at all.
    fn comes(&self, path: &Path) -> StepOutcome;
}

enum StepOutcome {
    Whole,
    Half,
    Not,
    /// Refused by the file system, as it refuses.
    Denied(io::ErrorKind),
}

/// The real file system without waiting for the disk, under a fate.
struct FatedFileSystem<F>(F);

impl<F: StepFate> FatedFileSystem<F> {
    fn step(
        &self,
        path: &Path,
        half: impl FnOnce() -> io::Result<()>,
        whole: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        let dead = || io::Error::other("the machine is off");
        match self.0.comes(path) {
            StepOutcome::Whole => whole(),
            StepOutcome::Half => half().and_then(|()| Err(dead())),
            StepOutcome::Not => Err(dead()),
            StepOutcome::Denied(kind) => Err(io::Error::from(kind)),
        }
    }
}

fn bytes(body: WriteSource<'_>) -> io::Result<Vec<u8>> {
    match body {
        WriteSource::Bytes(bytes) => Ok(bytes.to_vec()),
        WriteSource::CopyOf(from) => std::fs::read(from),
    }
}

impl<F: StepFate> FileSystem for FatedFileSystem<F> {
    fn path_status(&self, path: &Path) -> io::Result<PathStatus> {
        RealFileSystem.path_status(path)
    }
    fn list(&self, folder: &Path) -> io::Result<Vec<(OsString, EntryKind)>> {
        RealFileSystem.list(folder)
    }
    fn open(&self, path: &Path) -> io::Result<Box<dyn Read>> {
        RealFileSystem.open(path)
    }
    fn make_folder(&self, path: &Path) -> io::Result<()> {
        self.step(path, || Ok(()), || RealFileSystem.make_folder(path))
    }
    fn write_new(&self, path: &Path, body: WriteSource<'_>, _: FileAccess) -> io::Result<()> {
        let half = || bytes(body).and_then(|bytes| std::fs::write(path, &bytes[..bytes.len() / 2]));
        self.step(path, half, || std::fs::write(path, bytes(body)?))
    }
    fn share(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.step(to, || Ok(()), || RealFileSystem.share(from, to))
    }
    fn replace(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.step(to, || Ok(()), || RealFileSystem.replace(from, to))
    }
    fn place(&self, from: &Path, to: &Path) -> io::Result<()> {
        // Between the second name and the end of the first.
        self.step(to, || std::fs::hard_link(from, to), || RealFileSystem.place(from, to))
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        self.step(path, || Ok(()), || RealFileSystem.remove(path))
    }
    fn remove_folder(&self, path: &Path) -> io::Result<()> {
        self.step(path, || Ok(()), || RealFileSystem.remove_folder(path))
    }
    fn sync_folder(&self, path: &Path) -> io::Result<()> {
        self.step(path, || Ok(()), || Ok(()))
    }
}

struct NoFailure;

impl StepFate for NoFailure {
    fn comes(&self, _: &Path) -> StepOutcome {
        StepOutcome::Whole
    }
}

/// The world ends at one of its steps: that one is done by halves, the later ones not at all.
struct DiesAtStep {
    lives: AtomicUsize,
}

impl StepFate for DiesAtStep {
    fn comes(&self, _: &Path) -> StepOutcome {
        match self.lives.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |lives| lives.checked_sub(1)) {
            Ok(1) => StepOutcome::Half,
            Ok(_) => StepOutcome::Whole,
            Err(_) => StepOutcome::Not,
        }
    }
}

fn mortal(lives: usize) -> FatedFileSystem<DiesAtStep> {
    FatedFileSystem(DiesAtStep { lives: AtomicUsize::new(lives) })
}

/// Changes a file right before it is to be replaced.
struct EditsAtStep<'a> {
    world: &'a World,
    file: &'a str,
}

impl StepFate for EditsAtStep<'_> {
    fn comes(&self, path: &Path) -> StepOutcome {
        let beside = path.parent() == self.world.path(self.file).parent();
        if beside && path.to_string_lossy().contains("agentpack-tmp") {
            self.world.write(self.file, "meddled with\n");
        }
        StepOutcome::Whole
    }
}

/// A world that was deployed once, with an edit by hand and a second version of the modules waiting.
fn second_version() -> World {
    let world = World::new();
    world.write("home/.codex/AGENTS.md", "mine\n");
    world.deploy().unwrap();
    world.write("repo/modules/base/AGENTS.md", "be kinder\n");
    world.write("repo/modules/review/lib/more.txt", "two\n");
    std::fs::remove_file(world.path("repo/modules/review/lib/notes.txt")).unwrap();
    world.write("project/.claude/commands/go.md", "edited by hand\n");
    world
}

/// Dies after every step in turn; the next start must find everything as before or as after.
fn dies_everywhere(
    act: impl Fn(&World, &dyn FileSystem) -> PackResult<ApplyResult>,
) -> (usize, usize, usize) {
    let (mut untouched, mut finished, mut undone) = (0, 0, 0);
    let whole = second_version();
    act(&whole, &FatedFileSystem(NoFailure)).unwrap();
    let whole = whole.seen();
    for lives in 1.. {
        let world = second_version();
        let before = world.seen();
        let mortal = mortal(lives);
        let died = act(&world, &mortal).is_err();
        let snapshots = world.place().snapshots();
        let recovery = recover(&snapshots, &FatedFileSystem(NoFailure)).unwrap();
        let after = world.seen();
        assert!(ApplyJournal::read(&snapshots, &RealFileSystem).unwrap().is_none(), "{lives}");
        assert!(!after.keys().any(|name| name.contains("agentpack-tmp")), "{lives}: {:?}", after.keys());
        match &recovery {
            // Before it began, or when only its own traces were left to remove.
            None if died => {
                assert!(before == after || whole == after, "{lives}: half of it is there");
                untouched += 1;
            }
            Some(ApplyRecovery::Finished { .. }) => {
                assert!(died, "{lives}");
                assert_eq!(after, whole, "{lives}: finished, and differs");
                finished += 1;
            }
            Some(ApplyRecovery::Undone { left, .. }) => {
                assert!(left.is_empty());
                assert_eq!(before, after, "{lives}: undone, and differs");
                undone += 1;
            }
            None => return (untouched, finished, undone),
        }
        // Whatever became of it, the next one works.
        if lives % 5 == 0 {
            world.deploy().unwrap();
            assert!(!is_needed(&world.survey()), "{lives}");
        }
    }
    unreachable!()
}

#[test]
fn a_deployment_survives_dying_after_every_step() {
    let (untouched, finished, undone) = dies_everywhere(|world, system| {
        let confirmed = ConfirmedPlan::in_test(world.survey());
        deploy(&confirmed, &world.place(), system, jiff::Timestamp::now())
    });
    assert!(untouched > 10 && finished > 10, "{untouched} untouched, {finished} finished, {undone} undone");
}

#[test]
fn going_back_survives_dying_after_every_step() {
    let (untouched, finished, undone) = dies_everywhere(|world, system| {
        let place = world.place();
        rollback::apply_rollback(
            &rollback::plan(&place, rollback::INITIAL, &RealFileSystem)?,
            &place,
            system,
            jiff::Timestamp::now(),
        )
    });
    assert!(untouched > 5 && finished > 5, "{untouched} untouched, {finished} finished, {undone} undone");
}

#[test]
fn what_died_and_was_edited_since_is_undone_and_the_edit_stays() {
    // Late enough that files are written, early enough that some are not.
    let mut seen_undo = false;
    for lives in 1..200 {
        let world = second_version();
        let before = world.seen();
        let mortal = mortal(lives);
        let confirmed = ConfirmedPlan::in_test(world.survey());
        if deploy(&confirmed, &world.place(), &mortal, jiff::Timestamp::now()).is_ok() {
            break;
        }
        world.write("project/AGENTS.md", "a person was here\n");
        if let Some(ApplyRecovery::Undone { left, why, .. }) =
            recover(&world.place().snapshots(), &RealFileSystem).unwrap()
        {
            seen_undo = true;
            assert_eq!(left, [world.path("project/AGENTS.md")], "{lives}: {why}");
            let mut after = world.seen();
            assert_eq!(
                after.insert("project/AGENTS.md".into(), "be kind".into()).unwrap(),
                "a person was here"
            );
            assert_eq!(before, after, "{lives}");
        }
        assert_eq!(world.read("project/AGENTS.md"), "a person was here\n", "{lives}");
    }
    assert!(seen_undo);
}

#[test]
fn a_file_that_changes_in_between_stops_the_apply_and_undoes_it() {
    let world = second_version();
    let confirmed = ConfirmedPlan::in_test(world.survey());
    world.write("project/AGENTS.md", "changed in between\n");
    let before = world.seen();
    let stop = deploy(&confirmed, &world.place(), &RealFileSystem, jiff::Timestamp::now()).unwrap_err();
    assert_eq!(stop.code(), "E_APPLY_DRIFTED", "{stop}");
    assert_eq!(before, world.seen());
    assert!(ApplyJournal::read(&world.place().snapshots(), &RealFileSystem).unwrap().is_none());
}

#[test]
fn the_last_moment_counts_and_what_was_done_is_said() {
    let world = second_version();
    let confirmed = ConfirmedPlan::in_test(world.survey());
    let mut expect = world.seen();
    let file = "project/.codex/skills/review/lib/more.txt";
    let stop = deploy(
        &confirmed,
        &world.place(),
        &FatedFileSystem(EditsAtStep { world: &world, file }),
        jiff::Timestamp::now(),
    )
    .unwrap_err();
    assert_eq!(stop.code(), "E_APPLY_DRIFTED", "{stop}");
    let details = &stop.refusal().unwrap().details;
    let count = |name: &str| details[name].as_array().unwrap().len();
    assert_eq!(count("done"), 0, "{details:?}");
    assert!(count("undone") > 0 && count("not_done") > 0, "{details:?}");
    expect.insert(file.into(), "meddled with".into());
    assert_eq!(expect, world.seen());
}

#[test]
fn deploy_change_by_hand_deploy_again_roll_back() {
    let world = World::new();
    world.write("home/.codex/AGENTS.md", "mine\n");
    let untouched = world.seen();
    let first = world.deploy().unwrap();
    let after_first = world.seen();
    assert_eq!(world.read("project/AGENTS.md"), "be kind\n");
    assert!(!is_needed(&world.survey()));
    world.write("repo/modules/base/AGENTS.md", "be kinder\n");
    world.write("home/.codex/prompts/own.md", "not ours\n");
    let second = world.deploy().unwrap();
    assert!(second.snapshot_id > first.snapshot_id);
    world.write("project/AGENTS.md", "edited by hand\n");
    world.back(&first.snapshot_id).unwrap();
    let mut back = world.seen();
    assert_eq!(back.remove("home/.codex/prompts/own.md").unwrap(), "not ours");
    back.remove("home/.codex/prompts/");
    assert_eq!(back, after_first);
    let event =
        snapshot::list(&RealFileSystem, &world.place().snapshots(), &mut Vec::new()).unwrap().pop().unwrap();
    let edit = event.changes.iter().find(|change| change.path.ends_with("project/AGENTS.md")).unwrap();
    assert_eq!(std::fs::read_to_string(edit.backup_path.as_ref().unwrap()).unwrap(), "edited by hand\n");
    assert_eq!(world.back(&event.id).unwrap_err().code(), "E_SNAPSHOT_NOT_FOUND");
    world.back(rollback::INITIAL).unwrap();
    let mut initial = world.seen();
    assert_eq!(initial.remove("home/.codex/prompts/own.md").unwrap(), "not ours");
    initial.retain(|name, _| !name.ends_with('/'));
    assert_eq!(initial, untouched.into_iter().filter(|(name, _)| !name.ends_with('/')).collect());
    for bad in ["", "1", "../../x", "99999999999999999999", "last"] {
        assert_eq!(world.back(bad).unwrap_err().code(), "E_SNAPSHOT_NOT_FOUND", "{bad}");
    }
}

#[test]
fn a_dry_run_is_the_same_code_and_changes_nothing() {
    let world = second_version();
    let before = world.seen();
    let place = world.place();
    let kept = std::fs::read_dir(place.snapshots()).unwrap().count();
    let (applied, survey) = dry_run(world.survey(), &place, jiff::Timestamp::now()).unwrap();
    assert_eq!(applied.files, survey.plan.changes.len());
    assert_eq!(before, world.seen());
    assert_eq!(std::fs::read_dir(place.snapshots()).unwrap().count(), kept);
    assert!(!ApplyJournal::path(&place.snapshots()).exists());
}

#[test]
fn files_that_go_are_removed_and_those_of_others_are_not_overwritten_unasked() {
    let world = second_version();
    let survey = world.survey();
    let deletes: Vec<String> = survey
        .plan
        .changes
        .iter()
        .filter(|change| change.op == FileOp::Delete)
        .map(|change| shown(&change.path))
        .collect();
    assert!(deletes.iter().all(|path| path.ends_with("lib/notes.txt")) && deletes.len() == 2, "{deletes:?}");
    let world = World::new();
    world.write("home/.codex/AGENTS.md", "mine\n");
    let refusal = world.survey().plan.check_adopt(crate::plan::AdoptPolicy::Refused).unwrap_err();
    assert_eq!(
        (refusal.code.as_str(), refusal.reason_code),
        ("E_ADOPT_CONFIRM_REQUIRED", "adopt_confirm_required")
    );
    assert_eq!(refusal.details["adopt_updates"], 1);
}

struct ReadOnly<'a>(&'a World, io::ErrorKind);

impl StepFate for ReadOnly<'_> {
    fn comes(&self, path: &Path) -> StepOutcome {
        // What is there can still be synced.
        let denied = path.starts_with(self.0.path("project/.codex")) && !path.is_dir();
        if denied { StepOutcome::Denied(self.1) } else { StepOutcome::Whole }
    }
}

#[test]
fn a_read_only_target_is_said_by_its_code_and_everything_is_as_before() {
    for kind in [io::ErrorKind::PermissionDenied, io::ErrorKind::ReadOnlyFilesystem] {
        let world = second_version();
        let before = world.seen();
        let confirmed = ConfirmedPlan::in_test(world.survey());
        let system = FatedFileSystem(ReadOnly(&world, kind));
        let stop = deploy(&confirmed, &world.place(), &system, jiff::Timestamp::now()).unwrap_err();
        assert_eq!(stop.code(), "E_IO_PERMISSION_DENIED", "{stop}");
        let details = &stop.refusal().unwrap().details;
        assert!(details["path"].as_str().unwrap().contains("project/.codex"), "{details:?}");
        assert!(!details["undone"].as_array().unwrap().is_empty(), "{details:?}");
        assert_eq!(before, world.seen());
        assert!(ApplyJournal::read(&world.place().snapshots(), &RealFileSystem).unwrap().is_none());
    }
}

#[test]
fn the_next_start_says_which_it_was() {
    let mut said = std::collections::BTreeSet::new();
    for lives in (1..400).step_by(7) {
        let world = second_version();
        let confirmed = ConfirmedPlan::in_test(world.survey());
        if deploy(&confirmed, &world.place(), &mortal(lives), jiff::Timestamp::now()).is_ok() {
            break;
        }
        if lives % 2 == 0 {
            world.write("project/AGENTS.md", "a person was here\n");
        }
        if let Some(recovery) = crate::lock::recover_if_stale(&world.place()).unwrap() {
            let message = recovery.message();
            assert!(message.starts_with("an apply that had stopped halfway (snapshot "), "{message}");
            said.insert(if message.contains("was finished") { "finished" } else { "undone" });
            assert_eq!(crate::lock::recover_if_stale(&world.place()).unwrap(), None, "it is said once");
        }
    }
    assert_eq!(said.into_iter().collect::<Vec<_>>(), ["finished", "undone"]);
}

#[test]
fn what_its_owner_put_there_between_two_deployments_comes_back() {
    let world = World::new();
    world.deploy().unwrap();
    world.back(rollback::INITIAL).unwrap();
    assert!(!world.seen().contains_key("project/AGENTS.md"));
    world.write("project/AGENTS.md", "mine\n");
    let adopted = world.deploy().unwrap();
    world.write("repo/modules/base/AGENTS.md", "be kinder\n");
    world.deploy().unwrap();
    world.back(rollback::INITIAL).unwrap();
    assert_eq!(world.read("project/AGENTS.md"), "mine\n");
    world.back(&adopted.snapshot_id).unwrap();
    assert_eq!(world.read("project/AGENTS.md"), "be kind\n");
    world.back(rollback::INITIAL).unwrap();
    assert_eq!(world.read("project/AGENTS.md"), "mine\n");
}
