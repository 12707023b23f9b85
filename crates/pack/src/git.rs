//! The `git` program, told to trust nothing: no system or user configuration, no hooks, no prompts, only the transports we
//! know, and arguments that can't be taken for options. Fetches modules and commits proposals; rewrites no history.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use countersign_core::refusal::{Code, Refusal};

use crate::place::Place;
use crate::stop::{Outcome, Stop, shown};

/// A git repository and how to talk about it.
#[derive(Debug)]
pub struct Git<'a> {
    place: &'a Place,
    folder: PathBuf,
    identity: Identity,
}

/// Whether the user's own git configuration counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Identity {
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

impl<'a> Git<'a> {
    /// The config repo, with the user's own configuration.
    pub fn own(place: &'a Place) -> Self {
        Self { place, folder: place.repo.clone(), identity: Identity::User }
    }

    /// A checkout of somebody else's.
    pub fn foreign(place: &'a Place, folder: &Path) -> Self {
        Self { place, folder: folder.to_path_buf(), identity: Identity::Nobody }
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new("git");
        command.env_clear().current_dir(&self.folder).stdin(Stdio::null());
        command.env("HOME", &self.place.home).env("GIT_TERMINAL_PROMPT", "0").env("LC_ALL", "C");
        command.env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_OPTIONAL_LOCKS", "0");
        if let Some(path) = &self.place.path {
            command.env("PATH", path);
        }
        if self.identity == Identity::Nobody {
            command.env("GIT_CONFIG_GLOBAL", "/dev/null");
            command.args(HARDENED);
            // A repository of this machine is somebody's own: a path that was written down is meant.
            command.args(["-c", "protocol.file.allow=always"]);
        }
        command.args(args);
        command
    }

    /// Runs git; what it printed, or why not.
    pub fn run(&self, args: &[&str]) -> Outcome<String> {
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
    pub fn try_run(&self, args: &[&str]) -> Outcome<(bool, String, String)> {
        let output = self.command(args).output().map_err(|error| {
            if error.kind() == std::io::ErrorKind::NotFound && self.folder.is_dir() {
                Stop::refused(Code::GitNotFound, "the `git` program was not found")
            } else {
                Stop::io("run git in", &self.folder, &error)
            }
        })?;
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Ok((output.status.success(), text(output.stdout), text(output.stderr)))
    }

    /// Refuses unless this folder is the top of a git work tree.
    pub fn require_repo(&self) -> Outcome<()> {
        let (ok, out, _) = self.try_run(&["rev-parse", "--is-inside-work-tree"])?;
        if ok && out.trim() == "true" {
            return Ok(());
        }
        let message = format!("`{}` is not a git repository", shown(&self.folder));
        Err(Refusal::new(Code::GitRepoRequired, message).with("repo", shown(&self.folder)).into())
    }

    /// Refuses if something is not committed.
    pub fn require_clean(&self) -> Outcome<()> {
        let status = self.run(&["status", "--porcelain", "--untracked-files=all"])?;
        match status.lines().next() {
            None => Ok(()),
            Some(first) => {
                let message = format!(
                    "the config repo has changes that are not committed, such as `{}`",
                    clean(first.trim())
                );
                Err(Stop::refused(Code::GitWorktreeDirty, message))
            }
        }
    }

    /// The branch that is checked out.
    pub fn branch(&self) -> Outcome<String> {
        let (ok, out, _) = self.try_run(&["symbolic-ref", "--quiet", "--short", "HEAD"])?;
        if ok {
            Ok(out.trim().to_owned())
        } else {
            Err(Stop::refused(Code::GitDetachedHead, "the config repo is not on a branch"))
        }
    }

    /// Refuses if there is no such remote.
    pub fn require_remote(&self, name: &str) -> Outcome<()> {
        not_an_option("remote", name)?;
        let remotes = self.run(&["remote"])?;
        if remotes.lines().any(|remote| remote == name) {
            return Ok(());
        }
        Err(Stop::refused(Code::GitRemoteMissing, format!("the config repo has no remote `{}`", clean(name))))
    }
}

/// Refuses a value that git could take for an option, or a URL that runs something.
pub fn not_an_option(what: &str, value: &str) -> Outcome<()> {
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
    countersign_core::redact::Redactor::default().clean_text(one_line.trim())
}
