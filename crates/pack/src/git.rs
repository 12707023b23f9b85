//! Runs `git` without trusting its surroundings: no system or user configuration, no hooks, no prompts, known transports only, and
//! arguments that can't be taken for options. Fetches modules and commits proposals; rewrites no history.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use countersign_policy::refusal::{Code, Refusal};

use crate::error::{PackError, PackResult, shown};
use crate::place::PackEnvironment;

/// A git repository and how to talk about it.
#[derive(Debug)]
pub(crate) struct GitRepo<'a> {
    place: &'a PackEnvironment,
    folder: PathBuf,
    identity: GitIdentity,
}

/// Whether the user's own git configuration counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GitIdentity {
    /// It does: the user's repository, name and credentials.
    User,
    /// It does not: somebody else's repository.
    Nobody,
}

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
        Self { place, folder: place.repo.clone(), identity: GitIdentity::User }
    }

    pub(crate) fn foreign(place: &'a PackEnvironment, folder: &Path) -> Self {
        Self { place, folder: folder.to_path_buf(), identity: GitIdentity::Nobody }
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new("git");
        command.env_clear().current_dir(&self.folder).stdin(Stdio::null());
        command.env("HOME", &self.place.home).env("GIT_TERMINAL_PROMPT", "0").env("LC_ALL", "C");
        command.env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_OPTIONAL_LOCKS", "0");
        if let Some(path) = &self.place.path {
            command.env("PATH", path);
        }
        if self.identity == GitIdentity::Nobody {
            command.env("GIT_CONFIG_GLOBAL", "/dev/null");
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
                PackError::refused(Code::GitNotFound, "the `git` program was not found")
            } else {
                PackError::io("run git in", &self.folder, &error)
            }
        })?;
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Ok((output.status.success(), text(output.stdout), text(output.stderr)))
    }

    /// Refuses unless this folder is the top of a git work tree.
    pub(crate) fn require_repo(&self) -> PackResult<()> {
        let (ok, out, _) = self.try_run(&["rev-parse", "--is-inside-work-tree"])?;
        if ok && out.trim() == "true" {
            return Ok(());
        }
        let message = format!("`{}` is not a git repository", shown(&self.folder));
        Err(Refusal::new(Code::GitRepoRequired, message).with("repo", shown(&self.folder)).into())
    }

    pub(crate) fn require_clean(&self) -> PackResult<()> {
        let status = self.run(&["status", "--porcelain", "--untracked-files=all"])?;
        match status.lines().next() {
            None => Ok(()),
            Some(first) => {
                let message = format!(
                    "the config repo has changes that are not committed, such as `{}`",
                    clean(first.trim())
                );
                Err(PackError::refused(Code::GitWorktreeDirty, message))
            }
        }
    }

    pub(crate) fn branch(&self) -> PackResult<String> {
        let (ok, out, _) = self.try_run(&["symbolic-ref", "--quiet", "--short", "HEAD"])?;
        if ok {
            Ok(out.trim().to_owned())
        } else {
            Err(PackError::refused(Code::GitDetachedHead, "the config repo is not on a branch"))
        }
    }

    /// Refuses if there is no such remote.
    pub(crate) fn require_remote(&self, name: &str) -> PackResult<()> {
        not_an_option("remote", name)?;
        let remotes = self.run(&["remote"])?;
        if remotes.lines().any(|remote| remote == name) {
            return Ok(());
        }
        Err(PackError::refused(
            Code::GitRemoteMissing,
            format!("the config repo has no remote `{}`", clean(name)),
        ))
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
