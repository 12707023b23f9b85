//! What a change of several files needs to be taken back: every file as it was, kept before the first one is touched. Taking back
//! restores byte for byte, and removes the secrets that were put into the keyring. Where a file was written into since, our entry goes,
//! the servers that were taken over come back, and what was added is kept. No host is left pointing at what is gone.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use countersign_host_config::{Host, HostFile, HostFileScope};
use countersign_policy::digest::{Digest, DigestDomain};
use countersign_policy::ids::Secret;
use serde_json::{Value, json};

use crate::config_change::{FileMode, write, write_as};
use crate::output::visible;
use crate::private_file;

const LIST: &str = "files.json";
const UNDONE: &str = ".undone";

pub(super) struct HostFileChange {
    pub(super) path: PathBuf,
    /// The host it belongs to; none for a file of ours.
    pub(super) host: Option<Host>,
    /// Its text before; none if it was not there.
    pub(super) before: Option<String>,
    pub(super) after: String,
    pub(super) mode: FileMode,
}

/// What became of a file when a change was taken back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum UndoOutcome {
    Restored,
    /// It was made by the change, and is gone.
    Removed,
    /// It was written into since: its servers are as they were, what was added since (these servers among it) is kept.
    Merged(Vec<String>),
    /// A file of ours that somebody changed since. No host leads to it any more.
    Kept,
    /// A file of ours that a host which could not be changed back still needs.
    Needed,
    /// A host's file that can't be understood any more: left alone.
    Changed,
}

impl UndoOutcome {
    pub(super) fn words(&self) -> String {
        match self {
            Self::Restored => "restored".to_owned(),
            Self::Removed => "removed".to_owned(),
            Self::Merged(added) if added.is_empty() => {
                "ours taken out, servers put back, what its host changed since is kept".to_owned()
            }
            Self::Merged(added) => {
                let added: Vec<String> = added.iter().map(|name| format!("`{}`", visible(name))).collect();
                format!("ours taken out, servers put back, {} added since is kept", added.join(", "))
            }
            Self::Kept => "changed since, kept; no host leads to it any more".to_owned(),
            Self::Needed => "kept: a host still leads to it".to_owned(),
            Self::Changed => "changed since and not to be understood, left alone".to_owned(),
        }
    }
}

fn digest(text: &str) -> String {
    Digest::of(DigestDomain::Outcome, text.as_bytes()).to_string()
}

/// Why a change was not made. Every file is as it was, unless even that could not be had.
pub(super) enum NotMade {
    /// Somebody changed this one since it was read.
    Drifted(PathBuf),
    Unwritable(PathBuf, io::Error),
    /// What was written before something went wrong could not be taken back.
    Half(PathBuf, io::Error),
}

/// What comes with a change and is no file; [`list`] gives it back.
pub(super) struct BesidesFiles {
    pub(super) credentials: Value,
    /// What runs the service that was made.
    pub(super) service: Option<&'static str>,
}

/// Keeps every file as it is under `folder`, then writes every secret and every file as it shall be: all of them, or none.
pub(super) fn apply(
    folder: &Path,
    changes: &[HostFileChange],
    secrets: &[PendingSecret<'_>],
    besides: &BesidesFiles,
) -> Result<(), NotMade> {
    for change in changes {
        undrifted(change)?;
    }
    keep(folder, changes, secrets, besides).map_err(|error| NotMade::Unwritable(folder.to_owned(), error))?;
    let taken_back = |why: NotMade, path: &Path| match undo(folder).and_then(|_| mark_undone(folder)) {
        Ok(()) => why,
        Err(error) => NotMade::Half(path.to_owned(), error),
    };
    for PendingSecret { path, secret } in secrets {
        if let Err(error) = keep_secret(path, secret) {
            return Err(taken_back(NotMade::Unwritable(path.clone(), error), path));
        }
    }
    for change in changes {
        let written = undrifted(change).and_then(|()| {
            let parent = change.path.parent().map_or(Ok(()), fs::create_dir_all);
            let done =
                parent.and_then(|()| write_as(Path::new("."), &change.path, &change.after, change.mode));
            done.map_err(|error| NotMade::Unwritable(change.path.clone(), error))
        });
        written.map_err(|why| taken_back(why, &change.path))?;
    }
    Ok(())
}

/// A secret the keyring does not have yet.
pub(super) struct PendingSecret<'a> {
    pub(super) path: PathBuf,
    pub(super) secret: &'a Secret,
}

fn keep_secret(path: &Path, secret: &Secret) -> io::Result<()> {
    path.parent().map_or(Ok(()), private_file::make_folder)?;
    private_file::write(path, secret.expose().as_bytes())
}

/// A file is still what the plan was made from: hosts write into their own files at any time.
fn undrifted(change: &HostFileChange) -> Result<(), NotMade> {
    let now = match fs::read_to_string(&change.path) {
        Ok(text) => Some(text),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => None,
        Err(error) => return Err(NotMade::Unwritable(change.path.clone(), error)),
    };
    if now == change.before { Ok(()) } else { Err(NotMade::Drifted(change.path.clone())) }
}

fn keep(
    folder: &Path,
    changes: &[HostFileChange],
    secrets: &[PendingSecret<'_>],
    besides: &BesidesFiles,
) -> io::Result<()> {
    private_file::make_folder(folder)?;
    let mut list = Vec::new();
    for (index, change) in changes.iter().enumerate() {
        let kept = index.to_string();
        if let Some(before) = &change.before {
            private_file::write(&folder.join(&kept), before.as_bytes())?;
        }
        list.push(json!({
            "path": change.path, "kept": change.before.as_ref().map(|_| kept), "after": digest(&change.after),
            "host": change.host.map(|host| host.name),
            "mode": (change.mode == FileMode::Private).then(|| mode_of(&change.path)).flatten(),
        }));
    }
    let secrets: Vec<Value> = secrets
        .iter()
        .map(|kept| json!({"path": kept.path, "digest": digest(kept.secret.expose())}))
        .collect();
    // Folders that are made for new files, the innermost first.
    let new = changes.iter().filter(|change| change.before.is_none());
    let mut folders: Vec<&Path> =
        new.flat_map(|change| change.path.ancestors().skip(1).take_while(|one| !one.exists())).collect();
    folders.sort_by_key(|one| std::cmp::Reverse(one.components().count()));
    folders.dedup();
    let list = json!({
        "version": 1, "files": list, "folders": folders, "secrets": secrets,
        "credentials": besides.credentials, "service": besides.service,
    });
    let list = serde_json::to_string_pretty(&list)?;
    write(folder, &folder.join(LIST), &list)
}

fn mark_undone(folder: &Path) -> io::Result<()> {
    match private_file::write(&folder.join(UNDONE), b"") {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        written => written,
    }
}

/// The newest change that was not taken back.
pub(super) fn newest(backups: &Path) -> Option<PathBuf> {
    let mut all: Vec<PathBuf> =
        fs::read_dir(backups).ok()?.filter_map(Result::ok).map(|entry| entry.path()).collect();
    all.sort();
    all.into_iter().rev().find(|folder| folder.join(LIST).exists() && !folder.join(UNDONE).exists())
}

/// What a change consists of, as it was written down before it was made.
pub(super) fn list(folder: &Path) -> io::Result<Value> {
    Ok(serde_json::from_str(&fs::read_to_string(folder.join(LIST))?)?)
}

/// Takes a change back, file by file. The hosts' files come first: what they lead to is removed only when none of them does any more.
pub(super) fn undo(folder: &Path) -> io::Result<Vec<(PathBuf, UndoOutcome)>> {
    let list = list(folder)?;
    let files: Vec<&Value> = list.get("files").and_then(Value::as_array).into_iter().flatten().collect();
    let (hosts, ours): (Vec<&Value>, Vec<&Value>) =
        files.into_iter().partition(|file| file.get("host").is_some_and(Value::is_string));
    let mut fates = Vec::new();
    for file in hosts {
        fates.extend(undo_file(folder, file)?);
    }
    if fates.iter().any(|(_, fate)| *fate == UndoOutcome::Changed) {
        let kept = ours.iter().filter_map(|file| file.get("path").and_then(Value::as_str));
        fates.extend(kept.map(|path| (PathBuf::from(path), UndoOutcome::Needed)));
        return Ok(fates);
    }
    for file in ours {
        fates.extend(undo_file(folder, file)?);
    }
    // A configuration that is kept goes on needing its secrets.
    if fates.iter().all(|(_, fate)| *fate != UndoOutcome::Kept) {
        fates.append(&mut forget(&list)?);
    }
    for folder in list.get("folders").and_then(Value::as_array).into_iter().flatten() {
        // One that has something in it by now stays.
        let _ = folder.as_str().map(fs::remove_dir);
    }
    mark_undone(folder)?;
    Ok(fates)
}

fn undo_file(folder: &Path, file: &Value) -> io::Result<Option<(PathBuf, UndoOutcome)>> {
    let text = |key: &str| file.get(key).and_then(Value::as_str);
    let Some(path) = text("path").map(PathBuf::from) else { return Ok(None) };
    let before = text("kept").map(|kept| fs::read_to_string(folder.join(kept))).transpose()?;
    let now = fs::read_to_string(&path).ok();
    let fate = match (now, before) {
        // It was never written, or is back already.
        (now, before) if now == before => UndoOutcome::Restored,
        (Some(now), before) if Some(digest(&now).as_str()) == text("after") => match before {
            Some(before) => {
                write(Path::new("."), &path, &before)?;
                UndoOutcome::Restored
            }
            None => {
                fs::remove_file(&path)?;
                UndoOutcome::Removed
            }
        },
        (Some(now), before) => match text("host").and_then(Host::named) {
            Some(host) => {
                let place = HostFile::new(host, HostFileScope::User, path.clone());
                match place.restore(&now, &before.unwrap_or_default()) {
                    Some((text, added)) => {
                        write(Path::new("."), &path, &text)?;
                        UndoOutcome::Merged(added)
                    }
                    None => UndoOutcome::Changed,
                }
            }
            None => UndoOutcome::Kept,
        },
        // Somebody removed it: nothing leads anywhere from there.
        (None, _) => UndoOutcome::Kept,
    };
    if fate != UndoOutcome::Changed
        && let Some(mode) = file.get("mode").and_then(Value::as_u64)
    {
        restore_mode(&path, mode)?;
    }
    Ok(Some((path, fate)))
}

#[cfg(unix)]
fn mode_of(path: &Path) -> Option<u32> {
    use std::os::unix::fs::PermissionsExt as _;
    fs::metadata(path).ok().map(|meta| meta.permissions().mode() & 0o7777)
}

#[cfg(not(unix))]
fn mode_of(_: &Path) -> Option<u32> {
    None
}

/// Gives a file the mode it had before a secret was written into it.
#[cfg(unix)]
fn restore_mode(path: &Path, mode: u64) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    match u32::try_from(mode) {
        Ok(mode) if path.exists() => fs::set_permissions(path, fs::Permissions::from_mode(mode & 0o7777)),
        Ok(_) | Err(_) => Ok(()),
    }
}

#[cfg(not(unix))]
fn restore_mode(_: &Path, _: u64) -> io::Result<()> {
    Ok(())
}

/// Removes the secrets the change put into the keyring; one that is another by now is somebody else's.
fn forget(list: &Value) -> io::Result<Vec<(PathBuf, UndoOutcome)>> {
    let mut fates = Vec::new();
    for secret in list.get("secrets").and_then(Value::as_array).into_iter().flatten() {
        let text = |key: &str| secret.get(key).and_then(Value::as_str);
        let Some(path) = text("path").map(PathBuf::from) else { continue };
        let now = fs::read_to_string(&path).ok();
        if now.is_some_and(|now| Some(digest(&now).as_str()) == text("digest")) {
            fs::remove_file(&path)?;
            fates.push((path, UndoOutcome::Removed));
        }
    }
    Ok(fates)
}
