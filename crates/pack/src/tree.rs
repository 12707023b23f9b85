//! The files of a module or an overlay. Refuses links that lead outside, names with hidden characters and special files.

use std::path::{Path, PathBuf};

use countersign_policy::refusal::{Code, Refusal};
use countersign_policy::visible_text;

use crate::error::{PackError, PackResult, shown};
use crate::system::{self, EntryKind, FileStamp, FileSystem, PathStatus};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeFile {
    /// Its path from the root, with forward slashes.
    pub name: String,
    pub path: PathBuf,
    pub stamp: FileStamp,
}

/// Folders that are never part of a module: git's own, and what an overlay says about itself.
const RESERVED: [&str; 2] = [".git", ".agentpack"];
/// Deeper than anybody keeps files; a tree that goes on is a trap.
const DEPTH: usize = 64;

/// The files below a root, or the root itself if it is a file, in the order of their names.
pub(crate) fn files(system: &dyn FileSystem, root: &Path) -> PackResult<Vec<TreeFile>> {
    let path_status =
        |path: &Path| system.path_status(path).map_err(|error| PackError::io("read", path, &error));
    let mut found = Vec::new();
    match path_status(root)? {
        PathStatus::File(stamp) => {
            let name = checked(root.file_name().unwrap_or_default(), root)?;
            found.push(TreeFile { name, path: root.to_path_buf(), stamp });
        }
        PathStatus::Folder => {
            let mut seen = Vec::new();
            walk(system, root, root, "", 0, &mut seen, &mut found)?;
            let paths: Vec<&Path> = seen.iter().map(|(_, path)| path.as_path()).collect();
            let looked = system::look_all(system, &paths);
            for ((name, path), looked) in seen.into_iter().zip(looked) {
                // What is no file any more was removed meanwhile.
                if let PathStatus::File(stamp) =
                    looked.map_err(|error| PackError::io("read", &path, &error))?
                {
                    found.push(TreeFile { name, path, stamp });
                }
            }
        }
        PathStatus::Missing => {
            let message = format!("`{}` is not there", shown(root));
            return Err(PackError::refused(Code::ConfigInvalid, message));
        }
        PathStatus::Link => return Err(link(root).into()),
        PathStatus::Other => return Err(odd(root).into()),
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(found)
}

fn walk(
    system: &dyn FileSystem,
    root: &Path,
    folder: &Path,
    prefix: &str,
    depth: usize,
    seen: &mut Vec<(String, PathBuf)>,
    found: &mut Vec<TreeFile>,
) -> PackResult<()> {
    if depth > DEPTH {
        let message = format!("`{}` is nested deeper than {DEPTH} folders", shown(folder));
        return Err(PackError::refused(Code::IoInvalidPath, message));
    }
    for (entry, kind) in system.list(folder).map_err(|error| PackError::io("list", folder, &error))? {
        let path = folder.join(&entry);
        let part = checked(&entry, &path)?;
        if prefix.is_empty() && RESERVED.contains(&part.as_str()) {
            continue;
        }
        let name = if prefix.is_empty() { part } else { format!("{prefix}/{part}") };
        match kind {
            EntryKind::File => seen.push((name, path)),
            EntryKind::Folder => walk(system, root, &path, &name, depth + 1, seen, found)?,
            EntryKind::Link => found.push(linked(system, root, name, &path)?),
            EntryKind::Other => return Err(odd(&path).into()),
        }
    }
    Ok(())
}

/// A link is the file it leads to, as long as that is below the same root.
fn linked(system: &dyn FileSystem, root: &Path, name: String, path: &Path) -> PackResult<TreeFile> {
    let real_root = root.canonicalize().map_err(|error| PackError::io("read", root, &error))?;
    let inside =
        path.canonicalize().ok().filter(|real| real.starts_with(&real_root)).ok_or_else(|| link(path))?;
    match system.path_status(&inside).map_err(|error| PackError::io("read", &inside, &error))? {
        PathStatus::File(stamp) => Ok(TreeFile { name, path: inside, stamp }),
        PathStatus::Missing | PathStatus::Folder | PathStatus::Link | PathStatus::Other => {
            Err(link(path).into())
        }
    }
}

/// A name that is text and shows everything it is.
fn checked(name: &std::ffi::OsStr, path: &Path) -> PackResult<String> {
    match name.to_str() {
        Some(text) if !text.is_empty() && !hides_something(text) => Ok(text.to_owned()),
        _ => {
            let message =
                format!("`{}` has a name with control characters or bytes that are no text", shown(path));
            Err(Refusal::new(Code::IoInvalidPath, message).because("path_has_control_characters").into())
        }
    }
}

/// Whether a name holds characters that make it look like another one.
pub(crate) fn hides_something(name: &str) -> bool {
    name.contains('\\') || visible_text::line(name) != name
}

pub(crate) fn link(path: &Path) -> Refusal {
    let message = format!("`{}` is a link that leads outside, to a folder, or nowhere", shown(path));
    Refusal::new(Code::IoInvalidPath, message).because("path_is_link").with("path", shown(path))
}

fn odd(path: &Path) -> Refusal {
    let message = format!("`{}` is neither a file nor a folder", shown(path));
    Refusal::new(Code::IoInvalidPath, message).with("path", shown(path))
}
