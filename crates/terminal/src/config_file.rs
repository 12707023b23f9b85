//! The configuration's files: where they are looked for, how they are read, and what `${…}` in them stands for.
//! The `config` crate parses and checks them.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use countersign_config::{self as config, Config, Diagnostic, Origin, Reference, Source};
use countersign_policy::ids::Secret;
use countersign_policy::refusal::{Code, Refusal};
use serde_json::json;

use crate::command_result::{CommandError, Refused};
use crate::environment;
use crate::output::{counts, diagnostic};

const NAME: &str = "countersign.toml";

/// No configuration is that long; a device file would be endless.
const LONGEST: u64 = 8 << 20;
/// No secret is that long.
const LONGEST_SECRET: u64 = 64 << 10;

#[derive(Clone, Debug)]
pub struct ConfigFiles {
    /// Name and text of each, in the order in which later ones win.
    pub sources: Vec<Source>,
    /// The folder of the first that is no preset: relative paths in a configuration start here.
    pub folder: PathBuf,
}

/// Where a configuration is looked for when none is named.
fn places() -> Vec<PathBuf> {
    let folder = environment::config_folder().map(|folder| folder.join("countersign").join(NAME));
    [Some(PathBuf::from(NAME)), folder].into_iter().flatten().collect()
}

/// The files the command line and the environment lead to; none if there is no configuration anywhere.
pub fn find(given: &[PathBuf]) -> Result<Option<ConfigFiles>, CommandError> {
    if !given.is_empty() {
        return read(given).map(Some);
    }
    if let Some(path) = environment::path("COUNTERSIGN_CONFIG") {
        return read(&[path]).map(Some);
    }
    let found = places().into_iter().find(|place| place.exists());
    found.map(|path| read(&[path])).transpose()
}

/// Where a configuration is looked for, for people.
pub fn looked_for() -> String {
    let places: Vec<String> = places().iter().map(|place| format!("`{}`", place.display())).collect();
    places.join(" and ")
}

/// The files, for a command that can't do without.
pub fn require(given: &[PathBuf]) -> Result<ConfigFiles, CommandError> {
    find(given)?.ok_or_else(|| {
        let message = format!("there is no configuration: looked for {}", looked_for());
        let refusal = Refusal::new(Code::ConfigInvalid, message).because("config_unreadable");
        CommandError::refused(refusal, format!("write {NAME} here, or name a file: --config PATH"))
    })
}

pub fn read(paths: &[PathBuf]) -> Result<ConfigFiles, CommandError> {
    let sources = paths.iter().map(|path| {
        let text = read_text(path, LONGEST).map_err(|why| unreadable(path, &why))?;
        Ok(Source::new(path.display().to_string(), text))
    });
    let sources = sources.collect::<Result<_, CommandError>>()?;
    Ok(ConfigFiles { sources, folder: folder_of(paths.iter().find(|path| !is_preset(path))) })
}

/// Whether a file is one of a collection that is used where it lies, and no home of records: where only such are named, the current
/// folder is.
fn is_preset(path: &Path) -> bool {
    path.parent().and_then(Path::file_name).is_some_and(|folder| folder == "presets")
}

/// The folder of a file; empty for the current one.
fn folder_of(path: Option<&PathBuf>) -> PathBuf {
    path.and_then(|path| path.parent()).map(Path::to_path_buf).unwrap_or_default()
}

fn unreadable(path: &Path, why: &str) -> CommandError {
    let message = format!("can't read `{}`: {why}", path.display());
    let refusal = Refusal::new(Code::ConfigInvalid, message).because("config_unreadable");
    CommandError::refused(refusal, "name a file that can be read: --config PATH")
}

/// A file's text, or why there is none.
pub fn read_text(path: &Path, longest: u64) -> Result<String, String> {
    let meta = fs::metadata(path).map_err(|error| why(&error))?;
    if meta.is_dir() {
        return Err("it is a folder".to_owned());
    }
    if meta.len() > longest {
        return Err(format!("it is longer than {longest} bytes"));
    }
    fs::read_to_string(path).map_err(|error| why(&error))
}

/// What the system said, in words of ours where it is something usual.
pub fn why(error: &io::Error) -> String {
    if error.kind() == io::ErrorKind::NotFound {
        "there is no such file".to_owned()
    } else if error.kind() == io::ErrorKind::PermissionDenied {
        "permission denied".to_owned()
    } else if error.kind() == io::ErrorKind::InvalidData {
        "it is not UTF-8 text".to_owned()
    } else {
        error.to_string()
    }
}

impl ConfigFiles {
    /// No file: everything as it is by default.
    pub fn none() -> Self {
        Self { sources: Vec::new(), folder: PathBuf::new() }
    }

    /// The typed configuration, for commands that are not about its mistakes.
    pub fn parse(&self) -> Result<Config, CommandError> {
        let config = config::parse(&self.sources).map_err(|found| self.invalid(&found))?;
        Ok(self.placed(config))
    }

    /// A configuration whose rules know where relative paths and `~` begin.
    pub fn placed(&self, config: Config) -> Config {
        // An empty path means here, and only `.` can be made absolute.
        let folder = if self.folder.as_os_str().is_empty() { Path::new(".") } else { &self.folder };
        let folder = std::path::absolute(folder).ok();
        let home = environment::home().and_then(|home| home.to_str().map(str::to_owned));
        config.placed(folder.as_deref().and_then(Path::to_str), home)
    }

    pub fn invalid(&self, found: &[Diagnostic]) -> CommandError {
        let message = format!("the configuration can't be used: {}", counts(found));
        let refusal = Refusal::new(Code::ConfigInvalid, message).with("diagnostics", json!(found));
        let mut refused = Refused::from(refusal);
        refused.reasons = found.iter().map(diagnostic).collect();
        refused.next = Some(format!("mend {}, then countersign policy check", self.names().join(" and ")));
        refused.into()
    }

    /// The same files as they are now.
    pub fn reread(&self) -> Result<Self, CommandError> {
        let paths: Vec<PathBuf> = self.sources.iter().map(|source| PathBuf::from(&source.name)).collect();
        read(&paths)
    }

    pub fn names(&self) -> Vec<String> {
        self.sources.iter().map(|source| source.name.clone()).collect()
    }

    pub fn look_up(&self, reference: &Reference) -> Result<Secret, String> {
        let text = match reference.origin {
            Origin::Env => environment::variable(&reference.name).ok_or("it is not set")?,
            Origin::File => read_secret(&self.folder.join(&reference.name))?,
            Origin::Keyring => read_secret(&keyring_file(&reference.name)?)?,
        };
        Ok(Secret::new(text))
    }
}

/// A secret from a file: editors and `echo` leave a line end that is no part of it.
fn read_secret(path: &Path) -> Result<String, String> {
    let text = read_text(path, LONGEST_SECRET)?;
    Ok(text.strip_suffix("\r\n").or_else(|| text.strip_suffix('\n')).unwrap_or(&text).to_owned())
}

/// Our keyring is a folder of files that only their owner may read: a desktop's keyring hangs where nobody is logged in.
fn keyring_file(name: &str) -> Result<PathBuf, String> {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "._-".contains(letter);
    if name.starts_with('.') || !name.chars().all(plain) {
        return Err("a name in the keyring is made of letters, digits, `.`, `_` and `-`".to_owned());
    }
    let folder = environment::config_folder().ok_or("there is no home folder")?;
    let path = folder.join("countersign").join("keyring").join(name);
    refuse_shared(&path)?;
    Ok(path)
}

/// What the keyring has under a name; nothing of it where it can't be read.
pub fn keyring_secret(name: &str) -> Option<Secret> {
    let path = environment::config_folder()?.join("countersign").join("keyring").join(name);
    let there = path.symlink_metadata().is_ok();
    there.then(|| Secret::new(keyring_file(name).and_then(|path| read_secret(&path)).unwrap_or_default()))
}

#[cfg(unix)]
fn refuse_shared(path: &Path) -> Result<(), String> {
    use std::os::unix::fs::PermissionsExt as _;
    let mode = fs::metadata(path).map_err(|error| why(&error))?.permissions().mode();
    if mode & 0o077 == 0 { Ok(()) } else { Err("others may read its file: chmod 600".to_owned()) }
}

#[cfg(not(unix))]
fn refuse_shared(_: &Path) -> Result<(), String> {
    Ok(())
}
