//! What a change of several files needs to be taken back: every file as it was, kept before the first one is touched. Taking back
//! restores byte for byte, and removes the secrets that were put into the keyring. Where a host went on writing into its own file, only the servers are put back; what somebody changed about
//! the servers is left alone.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use countersign_core::digest::{Digest, Domain};
use countersign_core::ids::Secret;
use serde_json::{Value, json};

use crate::config_change::write;
use crate::hosts::{Host, Place, Scope};
use crate::private_file;

const LIST: &str = "files.json";
const UNDONE: &str = ".undone";

/// One file before and after.
pub(super) struct Change {
    /// Which.
    pub(super) path: PathBuf,
    /// The host it belongs to; none for a file of ours.
    pub(super) host: Option<Host>,
    /// Its text before; none if it was not there.
    pub(super) before: Option<String>,
    /// Its text after.
    pub(super) after: String,
}

/// What became of a file when a change was taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// It is as it was.
    Restored,
    /// It was made by the change, and is gone.
    Removed,
    /// Its host has written into it since: its servers are as they were, everything else as the host wants it.
    GivenBack,
    /// Somebody changed it since: left alone.
    Changed,
}

impl Fate {
    /// Its name.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Restored => "restored",
            Self::Removed => "removed",
            Self::GivenBack => "ours taken out, servers put back, what its host changed since is kept",
            Self::Changed => "changed since, left alone",
        }
    }
}

fn digest(text: &str) -> String {
    Digest::of(Domain::Outcome, text.as_bytes()).to_string()
}

/// Why a change was not made. Every file is as it was, unless even that could not be had.
pub(super) enum NotMade {
    /// Somebody changed this one since it was read.
    Drifted(PathBuf),
    /// This one can't be written.
    Unwritable(PathBuf, io::Error),
    /// What was written before something went wrong could not be taken back.
    Half(PathBuf, io::Error),
}

/// Keeps every file as it is under `folder`, then writes every secret and every file as it shall be: all of them, or none.
pub(super) fn apply(folder: &Path, changes: &[Change], secrets: &[Kept<'_>]) -> Result<(), NotMade> {
    for change in changes {
        undrifted(change)?;
    }
    keep(folder, changes, secrets).map_err(|error| NotMade::Unwritable(folder.to_owned(), error))?;
    let taken_back =
        |why: NotMade, path: &Path| match undo(folder).and_then(|_| fs::write(folder.join(UNDONE), "")) {
            Ok(()) => why,
            Err(error) => NotMade::Half(path.to_owned(), error),
        };
    for Kept { path, secret } in secrets {
        if let Err(error) = keep_secret(path, secret) {
            return Err(taken_back(NotMade::Unwritable(path.clone(), error), path));
        }
    }
    for change in changes {
        let written = undrifted(change).and_then(|()| {
            let parent = change.path.parent().map_or(Ok(()), fs::create_dir_all);
            let done = parent.and_then(|()| write(Path::new("."), &change.path, &change.after));
            done.map_err(|error| NotMade::Unwritable(change.path.clone(), error))
        });
        written.map_err(|why| taken_back(why, &change.path))?;
    }
    Ok(())
}

/// A secret the keyring does not have yet.
pub(super) struct Kept<'a> {
    /// Its file.
    pub(super) path: PathBuf,
    /// What is kept in it.
    pub(super) secret: &'a Secret,
}

fn keep_secret(path: &Path, secret: &Secret) -> io::Result<()> {
    path.parent().map_or(Ok(()), private_file::make_folder)?;
    private_file::write(path, secret.expose().as_bytes())
}

/// A file is still what the plan was made from: hosts write into their own files at any time.
fn undrifted(change: &Change) -> Result<(), NotMade> {
    let now = match fs::read_to_string(&change.path) {
        Ok(text) => Some(text),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => None,
        Err(error) => return Err(NotMade::Unwritable(change.path.clone(), error)),
    };
    if now == change.before { Ok(()) } else { Err(NotMade::Drifted(change.path.clone())) }
}

fn keep(folder: &Path, changes: &[Change], secrets: &[Kept<'_>]) -> io::Result<()> {
    private_file::make_folder(folder)?;
    let mut list = Vec::new();
    for (index, change) in changes.iter().enumerate() {
        let kept = index.to_string();
        if let Some(before) = &change.before {
            private_file::write(&folder.join(&kept), before.as_bytes())?;
        }
        let written = format!("{kept}.after");
        private_file::write(&folder.join(&written), change.after.as_bytes())?;
        list.push(json!({
            "path": change.path, "kept": change.before.as_ref().map(|_| kept), "after": digest(&change.after),
            "written": written, "host": change.host.map(Host::word),
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
    let list = json!({"version": 1, "files": list, "folders": folders, "secrets": secrets});
    let list = serde_json::to_string_pretty(&list)?;
    write(folder, &folder.join(LIST), &list)
}

/// The newest change that was not taken back.
pub(super) fn newest(backups: &Path) -> Option<PathBuf> {
    let mut all: Vec<PathBuf> =
        fs::read_dir(backups).ok()?.filter_map(Result::ok).map(|entry| entry.path()).collect();
    all.sort();
    all.into_iter().rev().find(|folder| folder.join(LIST).exists() && !folder.join(UNDONE).exists())
}

/// Takes a change back, file by file.
pub(super) fn undo(folder: &Path) -> io::Result<Vec<(PathBuf, Fate)>> {
    let list: Value = serde_json::from_str(&fs::read_to_string(folder.join(LIST))?)?;
    let mut fates = Vec::new();
    for file in list.get("files").and_then(Value::as_array).into_iter().flatten() {
        let text = |key: &str| file.get(key).and_then(Value::as_str);
        let Some(path) = text("path").map(PathBuf::from) else { continue };
        let before = text("kept").map(|kept| fs::read_to_string(folder.join(kept))).transpose()?;
        let now = fs::read_to_string(&path).ok();
        let fate = match (now, before) {
            // It was never written, or is back already.
            (now, before) if now == before => Fate::Restored,
            (Some(now), before) if Some(digest(&now).as_str()) == text("after") => match before {
                Some(before) => {
                    write(Path::new("."), &path, &before)?;
                    Fate::Restored
                }
                None => {
                    fs::remove_file(&path)?;
                    Fate::Removed
                }
            },
            (Some(now), before) => {
                let before = before.unwrap_or_default();
                match given_back(folder, file, &path, &now, &before) {
                    Some(text) => {
                        write(Path::new("."), &path, &text)?;
                        Fate::GivenBack
                    }
                    None => Fate::Changed,
                }
            }
            (None, _) => Fate::Changed,
        };
        fates.push((path, fate));
    }
    if fates.iter().all(|(_, fate)| *fate != Fate::Changed) {
        fates.append(&mut forget(&list)?);
        for folder in list.get("folders").and_then(Value::as_array).into_iter().flatten() {
            // One that has something in it by now stays.
            let _ = folder.as_str().map(fs::remove_dir);
        }
        fs::write(folder.join(UNDONE), "")?;
    }
    Ok(fates)
}

/// Removes the secrets the change put into the keyring; one that is another by now is somebody else's.
fn forget(list: &Value) -> io::Result<Vec<(PathBuf, Fate)>> {
    let mut fates = Vec::new();
    for secret in list.get("secrets").and_then(Value::as_array).into_iter().flatten() {
        let text = |key: &str| secret.get(key).and_then(Value::as_str);
        let Some(path) = text("path").map(PathBuf::from) else { continue };
        let now = fs::read_to_string(&path).ok();
        if now.is_some_and(|now| Some(digest(&now).as_str()) == text("digest")) {
            fs::remove_file(&path)?;
            fates.push((path, Fate::Removed));
        }
    }
    Ok(fates)
}

/// A host's file with its servers put back.
fn given_back(folder: &Path, file: &Value, path: &Path, now: &str, before: &str) -> Option<String> {
    let text = |key: &str| file.get(key).and_then(Value::as_str);
    let after = fs::read_to_string(folder.join(text("written")?)).ok()?;
    let place = Place::new(Host::named(text("host")?)?, Scope::User, path.to_owned());
    place.give_back(now, &after, before)
}
