//! Paths and names the pack works with: its home, the config repo, the user's home, the project, this machine. The caller fills them
//! in; nothing here reads the environment.

use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};

use countersign_policy::digest::Digest;

pub const MANIFEST: &str = "agentpack.yaml";
pub(crate) const LOCKFILE: &str = "agentpack.lock.json";

#[derive(Clone, Debug)]
pub struct PackEnvironment {
    pub home: PathBuf,
    /// `$AGENTPACK_HOME`: state, caches, and the config repo unless it is elsewhere.
    pub pack_home: PathBuf,
    pub repo: PathBuf,
    /// `$CODEX_HOME`, where it is set.
    pub codex_home: Option<PathBuf>,
    /// The working folder, which the project is found from.
    pub cwd: PathBuf,
    pub machine: String,
    /// The variables that `git` is started with.
    pub variables: Vec<(OsString, OsString)>,
}

impl PackEnvironment {
    /// `state/` in the pack's home.
    pub fn state(&self) -> PathBuf {
        self.pack_home.join("state")
    }

    pub fn snapshots(&self) -> PathBuf {
        self.state().join("snapshots")
    }

    /// The project the working folder is in: the nearest folder above it with a `.git`, or itself.
    pub fn project_root(&self) -> PathBuf {
        let marked = self.cwd.ancestors().find(|folder| folder.join(".git").symlink_metadata().is_ok());
        marked.unwrap_or(&self.cwd).to_path_buf()
    }

    /// A path with `~` for the home folder, as people write it; relative ones start in the home folder.
    pub fn expand(&self, text: &str) -> PathBuf {
        match text.strip_prefix('~') {
            Some("") => self.home.clone(),
            Some(rest) if rest.starts_with(['/', '\\']) => {
                self.home.join(rest.trim_start_matches(['/', '\\']))
            }
            Some(_) | None => self.home.join(text),
        }
    }
}

/// A machine's name as overlays spell it: lower case, everything but letters and digits one `-`.
pub fn machine_id(name: &str) -> String {
    let mut id = String::new();
    for c in name.trim().chars() {
        match c.to_ascii_lowercase() {
            c if c.is_ascii_alphanumeric() || c == '_' => id.push(c),
            _ if !id.ends_with('-') => id.push('-'),
            _ => {}
        }
    }
    match id.trim_matches('-') {
        "" => "unknown".to_owned(),
        id => id.to_owned(),
    }
}

/// A project as project overlays name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Project {
    pub root: PathBuf,
    /// The first 16 hex digits of a digest: of its origin, or of its path where it has none.
    pub id: String,
    pub origin: Option<String>,
}

impl Project {
    pub fn at(root: &Path) -> Self {
        let origin = origin(root);
        let named = match &origin {
            Some(url) => normal_url(url),
            None => root.canonicalize().unwrap_or_else(|_| root.to_path_buf()).to_string_lossy().into_owned(),
        };
        let id = Digest::plain(named.as_bytes()).hex().chars().take(16).collect();
        Self { root: root.to_path_buf(), id, origin }
    }
}

/// An origin without what differs between ways to reach it.
pub(crate) fn normal_url(url: &str) -> String {
    let url = url.trim().trim_end_matches('/');
    let url = url.strip_suffix(".git").unwrap_or(url);
    let url = match url.split_once("://") {
        Some((_, rest)) => rest.strip_prefix("git@").unwrap_or(rest).to_owned(),
        None => match url.strip_prefix("git@") {
            Some(rest) => rest.replacen(':', "/", 1),
            None => url.to_owned(),
        },
    };
    url.to_lowercase()
}

/// The origin of a checkout, read from its configuration: starting git for it would cost more than planning does.
fn origin(root: &Path) -> Option<String> {
    let text = std::fs::read_to_string(git_folder(root)?.join("config")).ok()?;
    let mut inside = false;
    for line in text.lines().map(str::trim) {
        if line.starts_with('[') {
            inside = line == "[remote \"origin\"]";
        } else if inside && let Some((name, value)) = line.split_once('=') {
            let value = value.trim().trim_matches('"');
            if name.trim().eq_ignore_ascii_case("url") && !value.is_empty() {
                return Some(value.to_owned());
            }
        }
    }
    None
}

/// The folder with the shared configuration of a checkout: its `.git`, or where a worktree's `.git` file leads.
fn git_folder(root: &Path) -> Option<PathBuf> {
    let marker = root.join(".git");
    if marker.is_dir() {
        return Some(marker);
    }
    let text = std::fs::read_to_string(&marker).ok()?;
    let folder = root.join(text.strip_prefix("gitdir:")?.trim());
    match std::fs::read_to_string(folder.join("commondir")) {
        Ok(common) => Some(folder.join(common.trim())),
        Err(_) => Some(folder),
    }
}

/// A name for a module's folders: its id with odd characters replaced, and ten hex digits of the id's digest.
pub fn fs_key(module_id: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '-' || c == '_' { c } else { '_' };
    let mut name: String = module_id.chars().map(plain).take(64).collect();
    if name.is_empty() {
        name.push_str("module");
    }
    let digest: String = Digest::plain(module_id.as_bytes()).hex().chars().take(10).collect();
    format!("{name}--{digest}")
}

/// A path with forward slashes.
pub(crate) fn posix(path: &Path) -> String {
    let text = path.to_string_lossy();
    if cfg!(windows) { text.replace('\\', "/") } else { text.into_owned() }
}

/// Whether a relative path stays where it starts: only plain names.
pub(crate) fn stays_inside(path: &Path) -> bool {
    let mut parts = path.components().peekable();
    parts.peek().is_some() && parts.all(|part| matches!(part, Component::Normal(_)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_that_mean_the_same_are_the_same() {
        for url in [
            "git@github.com:Acme/Tools.git",
            "https://github.com/Acme/Tools",
            "ssh://git@github.com/acme/tools.git",
            "https://github.com/Acme/Tools.git/",
        ] {
            assert_eq!(normal_url(url), "github.com/acme/tools", "{url}");
        }
    }

    #[test]
    fn machines_and_modules_have_plain_names() {
        assert_eq!(machine_id("Ada's MacBook.local"), "ada-s-macbook-local");
        assert_eq!(machine_id("  "), "unknown");
        assert!(fs_key("instructions:base").starts_with("instructions_base--"));
        assert_ne!(fs_key("a:b"), fs_key("a/b"));
        assert_eq!(fs_key(&"x".repeat(200)).len(), 64 + 2 + 10);
    }

    #[test]
    fn only_plain_names_stay_inside() {
        for good in ["a", "a/b", "a/b.c"] {
            assert!(stays_inside(Path::new(good)), "{good}");
        }
        for bad in ["", "..", "a/../b", "/a", "./a/../..", "."] {
            assert!(!stays_inside(Path::new(bad)), "{bad}");
        }
    }
}
