//! Runs `git` with the user's environment and configuration, so that agents, proxies and credential helpers work. Foreign repositories
//! get no hooks and known transports only. Asks nothing; passes no argument that can be taken for an option; rewrites no history.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use countersign_policy::refusal::{Code, Refusal};

use crate::error::{PackError, PackResult, shown};
use crate::place::{PackEnvironment, posix};

/// A git repository and how to talk about it.
#[derive(Debug)]
pub(crate) struct GitRepo<'a> {
    place: &'a PackEnvironment,
    folder: PathBuf,
    owner: RepoOwner,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RepoOwner {
    User,
    /// Somebody else: what is in the repository must not run anything.
    Foreign,
}

/// Variables that would lead git to another repository, as in a hook that calls us, or run a program on its output.
const LEFT_OUT: [&str; 10] = [
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_OBJECT_DIRECTORY",
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_COMMON_DIR",
    "GIT_NAMESPACE",
    "GIT_PREFIX",
    "GIT_EXTERNAL_DIFF",
    "GIT_PAGER",
];

const HARDENED: [&str; 14] = [
    "-c",
    "core.hooksPath=/dev/null",
    "-c",
    "core.fsmonitor=false",
    "-c",
    "core.symlinks=false",
    "-c",
    "protocol.allow=never",
    "-c",
    "protocol.https.allow=always",
    "-c",
    "protocol.ssh.allow=always",
    "-c",
    "submodule.recurse=false",
];

impl<'a> GitRepo<'a> {
    /// The config repo, with the user's own configuration.
    pub(crate) fn own(place: &'a PackEnvironment) -> Self {
        Self { place, folder: place.repo.clone(), owner: RepoOwner::User }
    }

    pub(crate) fn foreign(place: &'a PackEnvironment, folder: &Path) -> Self {
        Self { place, folder: folder.to_path_buf(), owner: RepoOwner::Foreign }
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new("git");
        command.env_clear().current_dir(&self.folder).stdin(Stdio::null());
        command.envs(
            self.place
                .variables
                .iter()
                .filter(|(name, _)| !LEFT_OUT.iter().any(|left| name == left))
                .cloned(),
        );
        command.env("HOME", &self.place.home).env("GIT_TERMINAL_PROMPT", "0").env("LC_ALL", "C");
        command.env("GIT_OPTIONAL_LOCKS", "0");
        if self.owner == RepoOwner::Foreign {
            command.args(HARDENED);
            // A repository of this machine is somebody's own: a path that was written down is meant.
            command.args(["-c", "protocol.file.allow=always"]);
        }
        command.args(args);
        command
    }

    /// Runs git; what it printed, or why not.
    pub(crate) fn run(&self, args: &[&str]) -> PackResult<String> {
        let (ok, out, err) = self.try_run(args)?;
        if ok {
            return Ok(out);
        }
        let said = err.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it gave no reason").trim();
        let what = args.first().copied().unwrap_or_default();
        let message = format!("git {what} failed in `{}`: {}", shown(&self.folder), clean(said));
        Err(Refusal::new(Code::GitFailed, message).with("stderr", clean(&err)).into())
    }

    /// Runs git; whether it ended well, stdout, stderr.
    pub(crate) fn try_run(&self, args: &[&str]) -> PackResult<(bool, String, String)> {
        let output = self.command(args).output().map_err(|error| {
            if error.kind() == std::io::ErrorKind::NotFound && self.folder.is_dir() {
                Refusal::new(Code::GitNotFound, "the `git` program was not found")
                    .with("cwd", shown(&self.folder))
                    .with("cwd_posix", posix(&self.folder))
                    .with("args", args.iter().map(|arg| clean(arg)).collect::<Vec<_>>())
                    .with("hint", "install git, or add its folder to `PATH`")
                    .into()
            } else {
                PackError::io("run git in", &self.folder, &error)
            }
        })?;
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Ok((output.status.success(), text(output.stdout), text(output.stderr)))
    }

    /// Refuses unless this folder is the top of a git work tree.
    pub(crate) fn require_repo(&self, command: &str) -> PackResult<()> {
        let (ok, out, _) = self.try_run(&["rev-parse", "--is-inside-work-tree"])?;
        if ok && out.trim() == "true" {
            return Ok(());
        }
        let message = format!("`{}` is not a git repository", shown(&self.folder));
        let hint = "`agentpack init --git` makes it one";
        Err(self.refused(Code::GitRepoRequired, message, command, hint).into())
    }

    /// A refusal of a command that works on this repository.
    fn refused(&self, code: Code, message: String, command: &str, hint: &str) -> Refusal {
        Refusal::new(code, message)
            .with("command", command)
            .with("repo", shown(&self.folder))
            .with("repo_posix", posix(&self.folder))
            .with("hint", hint)
    }

    pub(crate) fn require_clean(&self, command: &str) -> PackResult<()> {
        let status = self.run(&["status", "--porcelain", "--untracked-files=all"])?;
        match status.lines().next() {
            None => Ok(()),
            Some(first) => {
                let message = format!(
                    "the config repo has changes that are not committed, such as `{}`",
                    clean(first.trim())
                );
                Err(self.refused(Code::GitWorktreeDirty, message, command, "commit or stash them").into())
            }
        }
    }

    /// A checkout of its own for work on a new branch: the user's files stay as they are whatever happens.
    pub(crate) fn branch_checkout(&self, branch: &str) -> PackResult<BranchCheckout<'a>> {
        let folder = self.place.state().join(format!("checkout-{}", uuid::Uuid::new_v4().simple()));
        let below = self.run(&["rev-parse", "--show-prefix"])?;
        let added = folder.to_string_lossy();
        self.run(&["worktree", "add", "--quiet", "-b", branch, &added])?;
        let repo = folder.join(below.trim_end_matches(['\n', '/']));
        let place = PackEnvironment { repo, ..self.place.clone() };
        let owner = GitRepo { place: self.place, folder: self.folder.clone(), owner: RepoOwner::User };
        Ok(BranchCheckout { owner, folder, place, branch: branch.to_owned(), keeps_branch: false })
    }

    pub(crate) fn branch(&self, command: &str) -> PackResult<String> {
        let (ok, out, _) = self.try_run(&["symbolic-ref", "--quiet", "--short", "HEAD"])?;
        if ok {
            Ok(out.trim().to_owned())
        } else {
            let message = "the config repo is not on a branch".to_owned();
            Err(self.refused(Code::GitDetachedHead, message, command, "check out a branch").into())
        }
    }

    /// Refuses if there is no such remote.
    pub(crate) fn require_remote(&self, name: &str, command: &str) -> PackResult<()> {
        not_an_option("remote", name)?;
        let remotes = self.run(&["remote"])?;
        if remotes.lines().any(|remote| remote == name) {
            return Ok(());
        }
        let message = format!("the config repo has no remote `{}`", clean(name));
        let hint = "`agentpack remote set URL` names it";
        Err(self.refused(Code::GitRemoteMissing, message, command, hint).with("remote", clean(name)).into())
    }
}

/// A branch in a checkout of its own. The checkout goes when this is dropped, and the branch with it unless it was kept.
pub(crate) struct BranchCheckout<'a> {
    owner: GitRepo<'a>,
    folder: PathBuf,
    pub(crate) place: PackEnvironment,
    branch: String,
    keeps_branch: bool,
}

impl BranchCheckout<'_> {
    /// Commits these paths, given from the config repo, and keeps the branch.
    pub(crate) fn commit(mut self, paths: &[String], message: &str) -> PackResult<()> {
        let git = GitRepo::own(&self.place);
        let mut add = vec!["add", "--force", "--"];
        add.extend(paths.iter().map(String::as_str));
        git.run(&add)?;
        git.run(&["commit", "--quiet", "-m", message])?;
        self.keeps_branch = true;
        Ok(())
    }
}

impl Drop for BranchCheckout<'_> {
    fn drop(&mut self) {
        // What can't be removed is only in the way: `git worktree prune` knows it.
        let _ = self.owner.try_run(&["worktree", "remove", "--force", &self.folder.to_string_lossy()]);
        if !self.keeps_branch {
            let _ = self.owner.try_run(&["branch", "--quiet", "-D", &self.branch]);
        }
    }
}

/// Refuses a value that git could take for an option, or a URL that runs something.
pub(crate) fn not_an_option(what: &str, value: &str) -> PackResult<()> {
    let runs = value.contains("::") && !value.starts_with('[') && !value.contains("://[");
    if value.is_empty()
        || value.starts_with('-')
        || value.chars().any(char::is_control)
        || (what == "url" && runs)
    {
        let message = format!("`{}` is not a git {what} this program uses", clean(value));
        return Err(Refusal::new(Code::GitFailed, message)
            .because("git_source_refused")
            .with("field", what)
            .into());
    }
    Ok(())
}

/// git's words without what moves a cursor or carries a password.
fn clean(text: &str) -> String {
    let one_line: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    countersign_policy::redact::Redactor::default().clean_text(one_line.trim())
}
