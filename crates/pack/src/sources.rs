//! Finds a module's files: a folder of the config repo, or a checkout of the commit the lockfile pins. Fetches a missing checkout;
//! never follows a branch by itself.

use std::path::{Path, PathBuf};

use countersign_policy::refusal::{Code, Refusal};

use crate::error::{PackError, PackResult};
use crate::git::{GitRepo, not_an_option};
use crate::lockfile::Lockfile;
use crate::manifest::{GitSource, Module, inside_repo};
use crate::place::{PackEnvironment, fs_key, stays_inside};
use crate::system::{self, FileSystem as _, PathStatus, RealFileSystem};
use crate::tree;

/// A module's files and which version they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ModuleOrigin {
    pub root: PathBuf,
    /// `local`, or the commit.
    pub version: String,
}

/// The files of a module as the lockfile pins it.
pub(crate) fn origin(
    place: &PackEnvironment,
    module: &Module,
    lock: Option<&Lockfile>,
) -> PackResult<ModuleOrigin> {
    let of = format!("module `{}`", module.id);
    if let Some(local) = &module.source.local_path {
        let root = inside_repo(place, &local.path, &of)?;
        no_links_below(&place.repo, &root)?;
        return Ok(ModuleOrigin { root, version: "local".to_owned() });
    }
    let Some(git) = &module.source.git else {
        return Err(PackError::refused(Code::ConfigInvalid, format!("{of} has no source")));
    };
    let pinned = lock.and_then(|lock| lock.module(&module.id)).ok_or_else(|| {
        let reason = if lock.is_some() { "lockfile_entry_missing" } else { "lockfile_missing" };
        let message = format!("{of} comes from git and no lockfile pins it");
        PackError::from(
            Refusal::new(Code::LockfileMissing, message)
                .because(reason)
                .with("module_id", module.id.as_str()),
        )
    })?;
    let commit = pinned.resolved_version.clone();
    let checkout = fetch(place, &module.id, git, &commit)?;
    Ok(ModuleOrigin { root: subdir(&checkout, git, &of)?, version: commit })
}

/// The commit a git source means now.
pub(crate) fn resolve(place: &PackEnvironment, git: &GitSource) -> PackResult<String> {
    not_an_option("url", &git.url)?;
    not_an_option("ref", &git.reference)?;
    if is_commit(&git.reference) {
        return Ok(git.reference.to_lowercase());
    }
    std::fs::create_dir_all(&place.pack_home)
        .map_err(|error| PackError::io("make", &place.pack_home, &error))?;
    let anywhere = GitRepo::foreign(place, &place.pack_home);
    let peeled = format!("{}^{{}}", git.reference);
    let listed = anywhere.run(&["ls-remote", "--", &git.url, &git.reference, &peeled])?;
    let rows: Vec<(&str, &str)> = listed.lines().filter_map(|line| line.split_once('\t')).collect();
    // An annotated tag is listed as itself and as what it stands for; the latter is the commit.
    let wanted = [
        format!("refs/tags/{peeled}"),
        format!("refs/tags/{}", git.reference),
        format!("refs/heads/{}", git.reference),
        git.reference.clone(),
    ];
    let found = wanted.iter().find_map(|name| rows.iter().find(|(_, row)| row == name));
    found.map(|(commit, _)| (*commit).to_owned()).ok_or_else(|| {
        let message = format!("`{}` has no branch or tag `{}`", git.url, git.reference);
        PackError::refused(Code::GitFailed, message)
    })
}

fn is_commit(text: &str) -> bool {
    text.len() == 40 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// The checkout of a commit in the cache, fetched if it is not there.
pub(crate) fn fetch(place: &PackEnvironment, id: &str, git: &GitSource, commit: &str) -> PackResult<PathBuf> {
    not_an_option("url", &git.url)?;
    if !is_commit(commit) {
        let message = format!("module `{id}` is pinned to `{commit}`, which is not a commit");
        return Err(PackError::refused(Code::LockfileInvalid, message));
    }
    let shelf = place.pack_home.join("cache").join("git").join(fs_key(id));
    let checkout = shelf.join(commit);
    if checkout.is_dir() {
        return Ok(checkout);
    }
    std::fs::create_dir_all(&shelf).map_err(|error| PackError::io("make", &shelf, &error))?;
    // Made beside and renamed when it is whole: a checkout that is there is complete.
    let half = shelf.join(format!(".{commit}.{}", uuid::Uuid::new_v4().simple()));
    let made = check_out(place, git, commit, &half);
    let placed = made.and_then(|()| match std::fs::rename(&half, &checkout) {
        Ok(()) => Ok(()),
        // Somebody else was faster; theirs is the same commit.
        Err(_) if checkout.is_dir() => Ok(()),
        Err(error) => Err(PackError::io("make", &checkout, &error)),
    });
    let _ = std::fs::remove_dir_all(&half);
    placed.map(|()| checkout)
}

fn check_out(place: &PackEnvironment, git: &GitSource, commit: &str, folder: &Path) -> PackResult<()> {
    std::fs::create_dir_all(folder).map_err(|error| PackError::io("make", folder, &error))?;
    let checkout = GitRepo::foreign(place, folder);
    checkout.run(&["init", "--quiet", "--template="])?;
    let shallow = ["fetch", "--quiet", "--no-tags", "--depth=1", "--", &git.url, commit];
    let by_commit = git.shallow && checkout.try_run(&shallow)?.0;
    if !by_commit {
        // Not every server gives out a commit by its name: then everything, and the commit is in it.
        checkout.run(&[
            "fetch",
            "--quiet",
            "--tags",
            "--",
            &git.url,
            "+refs/heads/*:refs/remotes/origin/*",
        ])?;
    }
    checkout.run(&["checkout", "--quiet", "--detach", commit])?;
    let head = checkout.run(&["rev-parse", "HEAD"])?;
    if head.trim() != commit {
        return Err(PackError::refused(
            Code::LockfileInvalid,
            format!("`{}` gave another commit than `{commit}`", git.url),
        ));
    }
    Ok(())
}

fn subdir(checkout: &Path, git: &GitSource, of: &str) -> PackResult<PathBuf> {
    if git.subdir.is_empty() || git.subdir == "." {
        return Ok(checkout.to_path_buf());
    }
    if !stays_inside(Path::new(&git.subdir)) {
        let message = format!("{of}: `subdir` `{}` leads out of the repository", git.subdir);
        return Err(Refusal::new(Code::IoInvalidPath, message).because("path_escapes").into());
    }
    let root = checkout.join(&git.subdir);
    no_links_below(checkout, &root)?;
    Ok(root)
}

/// Refuses a path that goes through a link below a root, or through something that is no folder.
pub(crate) fn no_links_below(root: &Path, path: &Path) -> PackResult<()> {
    let Ok(below) = path.strip_prefix(root) else {
        let message = format!("`{}` is not below `{}`", crate::error::shown(path), crate::error::shown(root));
        return Err(Refusal::new(Code::IoInvalidPath, message).because("path_escapes").into());
    };
    let mut here = root.to_path_buf();
    for part in below.components() {
        here.push(part);
        match RealFileSystem.path_status(&here).map_err(|error| PackError::io("read", &here, &error))? {
            PathStatus::Link => return Err(tree::link(&here).into()),
            PathStatus::Missing => return Ok(()),
            PathStatus::File(_) | PathStatus::Folder | PathStatus::Other => {}
        }
    }
    Ok(())
}

/// The lockfile of the config repo, where there is one.
pub(crate) fn lockfile(place: &PackEnvironment) -> PackResult<Option<Lockfile>> {
    let path = place.repo.join(crate::place::LOCKFILE);
    let read = system::read_if_there(&RealFileSystem, &path, 256 * 1024 * 1024);
    match read.map_err(|error| PackError::io("read", &path, &error))? {
        Some(bytes) => Lockfile::parse(&bytes, &path).map(Some),
        None => Ok(None),
    }
}
