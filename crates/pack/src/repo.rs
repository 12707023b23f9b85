//! The config repo: creates one, adds, removes, pins and fetches modules, and syncs with a remote. Touches nothing deployed.

use std::path::PathBuf;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::doctor::IGNORED;
use crate::error::{PackError, PackResult};
use crate::git::{GitRepo, not_an_option};
use crate::lockfile;
use crate::manifest::{self, Manifest, Module, ModuleSource, ModuleType, Target, TargetScope, inside_repo};
use crate::place::{LOCKFILE, MANIFEST, PackEnvironment};
use crate::reply::{PackCommandReply, put_path};
use crate::sources;
use crate::system::{self, FileSystem, PathStatus};

const SKELETON: &str = include_str!("repo/agentpack.yaml");

/// What a new config repo has to start from; no module of the manifest names them yet.
const STARTERS: [(&str, &str); 3] = [
    ("modules/instructions/base/AGENTS.md", include_str!("repo/base.md")),
    ("modules/claude-commands/ap-plan.md", include_str!("repo/plan_command.md")),
    ("modules/prompts/draftpr.md", include_str!("repo/draft_prompt.md")),
];

/// A manifest for these targets, with a profile and no modules yet.
pub fn skeleton(targets: &[Target], scope: TargetScope) -> String {
    let (head, rest) = SKELETON.split_once("targets:\n").unwrap_or((SKELETON, ""));
    let tail = rest.split_once("\n\n").map_or("", |(_, tail)| tail);
    let each = targets.iter().map(|target| format!("  {target}:\n    mode: files\n    scope: {scope}\n"));
    format!("{head}targets:\n{}\n{tail}", each.collect::<String>())
}

/// Whether something is also done with git.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WithGit {
    Yes,
    No,
}

fn write(system: &dyn FileSystem, path: &std::path::Path, text: &str) -> PackResult<()> {
    system::write_whole(system, path, text.as_bytes()).map_err(|error| PackError::io("write", path, &error))
}

/// Makes a config repo, with this manifest or the usual one. What is there stays.
pub fn init(
    place: &PackEnvironment,
    git: WithGit,
    manifest_text: Option<&str>,
    system: &dyn FileSystem,
) -> PackResult<PackCommandReply> {
    let manifest = place.repo.join(MANIFEST);
    let there = system.path_status(&manifest).map_err(|error| PackError::io("read", &manifest, &error))?
        != PathStatus::Missing;
    for (name, text) in STARTERS {
        let path = place.repo.join(name);
        if system.path_status(&path).is_ok_and(|found| found == PathStatus::Missing) {
            let folder = path.parent().unwrap_or(&place.repo);
            system::make_folders(system, folder).map_err(|error| PackError::io("make", folder, &error))?;
            write(system, &path, text)?;
        }
    }
    if !there {
        write(system, &manifest, manifest_text.unwrap_or(SKELETON))?;
    }
    let mut reply =
        PackCommandReply::default().with_path("repo", &place.repo).with_path("manifest", &manifest);
    if git == WithGit::Yes {
        GitRepo::own(place).run(&["init", "--quiet"])?;
        let ignore = place.repo.join(".gitignore");
        let bytes = system::read_if_there(system, &ignore, 16 << 20)
            .map_err(|error| PackError::io("read", &ignore, &error))?;
        let text = String::from_utf8_lossy(&bytes.unwrap_or_default()).into_owned();
        let ignored = text.lines().any(|line| line.trim() == IGNORED);
        if !ignored {
            write(system, &ignore, &format!("{text}{IGNORED}\n"))?;
        }
        let mut made = Map::new();
        made.insert("initialized".into(), true.into());
        put_path(&mut made, "gitignore_path", &ignore);
        made.insert("gitignore_updated".into(), (!ignored).into());
        reply = reply.with("git", made);
    }
    Ok(reply.with("created", !there))
}

/// The arguments of `add`.
#[derive(Clone, Debug)]
pub struct ModuleAddition {
    pub kind: ModuleType,
    /// `local:PATH` or `git:URL…`.
    pub source: String,
    /// Its id; one is made where none is given.
    pub id: Option<String>,
    pub tags: Vec<String>,
    pub targets: Vec<String>,
}

pub fn add(
    place: &PackEnvironment,
    addition: &ModuleAddition,
    system: &dyn FileSystem,
) -> PackResult<PackCommandReply> {
    let source = ModuleSource::parse(&addition.source)?;
    let named = match (&source.local_path, &source.git) {
        (Some(local), _) => {
            inside_repo(place, &local.path, "the module")?;
            local.path.clone()
        }
        (None, Some(git)) => {
            not_an_option("url", &git.url)?;
            not_an_option("ref", &git.reference)?;
            if git.subdir.is_empty() { git.url.clone() } else { git.subdir.clone() }
        }
        (None, None) => String::new(),
    };
    let stem = named.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
    let stem = stem.trim_end_matches(".git").trim_end_matches(".md").trim_end_matches(".prompt");
    let id = addition.id.clone().unwrap_or_else(|| format!("{}:{stem}", addition.kind));
    let module = Module {
        id: id.clone(),
        kind: addition.kind,
        enabled: true,
        tags: addition.tags.clone(),
        targets: addition.targets.clone(),
        source,
    };
    module.check_targets()?;
    let (path, text) = manifest_text(place, system)?;
    write(system, &path, &manifest::add(&text, &module, &path)?)?;
    Ok(PackCommandReply::default()
        .with("module_id", id)
        .with("type", addition.kind.as_str())
        .with_path("manifest", &path))
}

pub fn remove(place: &PackEnvironment, id: &str, system: &dyn FileSystem) -> PackResult<PackCommandReply> {
    let (path, text) = manifest_text(place, system)?;
    write(system, &path, &manifest::remove(&text, id, &path)?)?;
    Ok(PackCommandReply::default().with("module_id", id).with_path("manifest", &path))
}

fn manifest_text(place: &PackEnvironment, system: &dyn FileSystem) -> PackResult<(PathBuf, String)> {
    Manifest::load(place)?;
    let path = place.repo.join(MANIFEST);
    let bytes =
        system::read(system, &path, 16 << 20).map_err(|error| PackError::io("read", &path, &error))?;
    String::from_utf8(bytes)
        .map(|text| (path, text))
        .map_err(|error| PackError::broken("read the manifest", error))
}

pub fn lock(place: &PackEnvironment, system: &dyn FileSystem) -> PackResult<PackCommandReply> {
    let (manifest, warnings) = Manifest::load(place)?;
    let locked = lockfile::lock(place, &manifest, Timestamp::now())?;
    let path = place.repo.join(LOCKFILE);
    write(system, &path, &locked.text()?)?;
    Ok(PackCommandReply::default()
        .with_path("lockfile", &path)
        .with("modules", locked.modules.len())
        .warn(warnings))
}

pub fn fetch(place: &PackEnvironment) -> PackResult<PackCommandReply> {
    let (manifest, warnings) = Manifest::load(place)?;
    let locked = sources::lockfile(place)?.ok_or_else(|| lockfile::missing(place))?;
    let fetched = lockfile::fetch(place, &manifest, &locked)?;
    let values: Vec<Value> = fetched.iter().map(Value::from).collect();
    let reply = PackCommandReply::default()
        .with_path("store", &place.pack_home.join("cache"))
        .with("git_modules_fetched", fetched.len());
    Ok(reply.with("fetched", fetched.len()).with("modules", values).warn(warnings))
}

/// Whether a step of `update` is done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StepPreference {
    #[default]
    Usual,
    Do,
    Leave,
}

/// Pins where nothing is pinned, and fetches.
pub fn update(
    place: &PackEnvironment,
    lock_wish: StepPreference,
    fetch_wish: StepPreference,
    system: &dyn FileSystem,
) -> PackResult<PackCommandReply> {
    let locks = match lock_wish {
        StepPreference::Do => true,
        StepPreference::Leave => false,
        StepPreference::Usual => {
            system.path_status(&place.repo.join(LOCKFILE)).is_ok_and(|found| found == PathStatus::Missing)
        }
    };
    let mut steps = Vec::new();
    let mut warnings = Vec::new();
    let mut fetched = None;
    if locks {
        let reply = lock(place, system)?;
        steps.push(json!({"name": "lock", "ok": true, "detail": reply.data}));
        warnings.extend(reply.warnings);
    }
    if fetch_wish != StepPreference::Leave {
        let reply = fetch(place)?;
        fetched = reply.data.get("git_modules_fetched").cloned();
        steps.push(json!({"name": "fetch", "ok": true, "detail": reply.data}));
        warnings.extend(reply.warnings);
    }
    warnings.dedup();
    let reply = PackCommandReply::default().with_path("lockfile", &place.repo.join(LOCKFILE));
    let reply = reply.with("git_modules_fetched", fetched.unwrap_or(json!(0)));
    Ok(reply.with_path("store", &place.pack_home.join("cache")).with("steps", steps).warn(warnings))
}

/// Names the remote that machines meet at.
pub fn set_remote(place: &PackEnvironment, url: &str, name: &str) -> PackResult<PackCommandReply> {
    not_an_option("url", url)?;
    not_an_option("remote", name)?;
    let git = GitRepo::own(place);
    if git.require_repo("remote set").is_err() {
        git.run(&["init", "--quiet"])?;
    }
    let known = git.run(&["remote"])?.lines().any(|remote| remote == name);
    git.run(&["remote", if known { "set-url" } else { "add" }, name, url])?;
    Ok(PackCommandReply::default().with_path("repo", &place.repo).with("remote", name).with("url", url))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PullStrategy {
    Rebase,
    /// Only if ours has nothing of its own.
    FastForward,
}

pub fn sync(place: &PackEnvironment, join: PullStrategy, remote: &str) -> PackResult<PackCommandReply> {
    let git = GitRepo::own(place);
    git.require_repo("sync")?;
    git.require_clean("sync")?;
    let branch = git.branch("sync")?;
    git.require_remote(remote, "sync")?;
    let mut ran = Vec::new();
    if git.try_run(&["ls-remote", "--exit-code", "--heads", remote, &branch])?.0 {
        let (how, said) = match join {
            PullStrategy::Rebase => ("--rebase", "pull --rebase"),
            PullStrategy::FastForward => ("--ff-only", "pull"),
        };
        git.run(&["pull", "--quiet", how, remote, &branch])?;
        ran.push(format!("git {said} {remote} {branch}"));
    }
    git.run(&["push", "--quiet", "--set-upstream", remote, &branch])?;
    ran.push(format!("git push {remote} {branch}"));
    Ok(PackCommandReply::default()
        .with_path("repo", &place.repo)
        .with("remote", remote)
        .with("branch", branch)
        .with("rebase", join == PullStrategy::Rebase)
        .with("commands", ran))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manifest_for_chosen_targets_is_one() {
        let text = skeleton(&[Target::Codex, Target::Vscode], TargetScope::Project);
        let (manifest, warnings) = Manifest::parse(&text, std::path::Path::new(MANIFEST)).unwrap();
        let names: Vec<&str> = manifest.targets.keys().map(String::as_str).collect();
        assert_eq!((names, warnings), (vec!["codex", "vscode"], Vec::new()), "{text}");
        assert!(manifest.targets.values().all(|target| target.scope == TargetScope::Project));
    }
}
