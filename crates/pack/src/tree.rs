//! The files of a module or an overlay. What leads outside, has a name that hides something, or is no file is refused
//! here, before anything else sees it.

use std::path::{Path, PathBuf};

use countersign_core::refusal::{Code, Refusal};

use crate::stop::{Outcome, Stop, shown};
use crate::system::{self, Found, Kind, Stamp, System};

/// A file below a root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeFile {
    /// Its path from the root, with forward slashes.
    pub name: String,
    /// Where it is.
    pub path: PathBuf,
    /// Its stamp.
    pub stamp: Stamp,
}

/// Folders that are never part of a module: git's own, and what an overlay says about itself.
const RESERVED: [&str; 2] = [".git", ".agentpack"];
/// Deeper than anybody keeps files; a tree that goes on is a trap.
const DEPTH: usize = 64;

/// The files below a root, or the root itself if it is a file, in the order of their names.
pub fn files(system: &dyn System, root: &Path) -> Outcome<Vec<TreeFile>> {
    let look = |path: &Path| system.look(path).map_err(|error| Stop::io("read", path, &error));
    let mut found = Vec::new();
    match look(root)? {
        Found::File(stamp) => {
            let name = checked(root.file_name().unwrap_or_default(), root)?;
            found.push(TreeFile { name, path: root.to_path_buf(), stamp });
        }
        Found::Folder => {
            let mut seen = Vec::new();
            walk(system, root, root, "", 0, &mut seen, &mut found)?;
            let paths: Vec<&Path> = seen.iter().map(|(_, path)| path.as_path()).collect();
            let looked = system::look_all(system, &paths);
            for ((name, path), looked) in seen.into_iter().zip(looked) {
                // What is no file any more was removed meanwhile.
                if let Found::File(stamp) = looked.map_err(|error| Stop::io("read", &path, &error))? {
                    found.push(TreeFile { name, path, stamp });
                }
            }
        }
        Found::Missing => {
            let message = format!("`{}` is not there", shown(root));
            return Err(Stop::refused(Code::ConfigInvalid, message));
        }
        Found::Link => return Err(link(root).into()),
        Found::Other => return Err(odd(root).into()),
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(found)
}

fn walk(
    system: &dyn System,
    root: &Path,
    folder: &Path,
    prefix: &str,
    depth: usize,
    seen: &mut Vec<(String, PathBuf)>,
    found: &mut Vec<TreeFile>,
) -> Outcome<()> {
    if depth > DEPTH {
        let message = format!("`{}` is nested deeper than {DEPTH} folders", shown(folder));
        return Err(Stop::refused(Code::IoInvalidPath, message));
    }
    for (entry, kind) in system.list(folder).map_err(|error| Stop::io("list", folder, &error))? {
        let path = folder.join(&entry);
        let part = checked(&entry, &path)?;
        if prefix.is_empty() && RESERVED.contains(&part.as_str()) {
            continue;
        }
        let name = if prefix.is_empty() { part } else { format!("{prefix}/{part}") };
        match kind {
            Kind::File => seen.push((name, path)),
            Kind::Folder => walk(system, root, &path, &name, depth + 1, seen, found)?,
            Kind::Link => found.push(linked(system, root, name, &path)?),
            Kind::Other => return Err(odd(&path).into()),
        }
    }
    Ok(())
}

/// A link is the file it leads to, as long as that is below the same root.
fn linked(system: &dyn System, root: &Path, name: String, path: &Path) -> Outcome<TreeFile> {
    let real_root = root.canonicalize().map_err(|error| Stop::io("read", root, &error))?;
    let inside =
        path.canonicalize().ok().filter(|real| real.starts_with(&real_root)).ok_or_else(|| link(path))?;
    match system.look(&inside).map_err(|error| Stop::io("read", &inside, &error))? {
        Found::File(stamp) => Ok(TreeFile { name, path: inside, stamp }),
        Found::Missing | Found::Folder | Found::Link | Found::Other => Err(link(path).into()),
    }
}

/// A name that is text and shows everything it is.
fn checked(name: &std::ffi::OsStr, path: &Path) -> Outcome<String> {
    match name.to_str() {
        Some(text) if !text.is_empty() && !text.chars().any(is_hidden) => Ok(text.to_owned()),
        _ => {
            let message =
                format!("`{}` has a name with control characters or bytes that are no text", shown(path));
            Err(Refusal::new(Code::IoInvalidPath, message).because("path_has_control_characters").into())
        }
    }
}

/// Characters that make a name look like another: controls, and marks that turn the reading direction.
pub(crate) fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
        || c == '\\'
}

pub(crate) fn link(path: &Path) -> Refusal {
    let message = format!("`{}` is a link that leads outside, to a folder, or nowhere", shown(path));
    Refusal::new(Code::IoInvalidPath, message).because("path_is_link").with("path", shown(path))
}

fn odd(path: &Path) -> Refusal {
    let message = format!("`{}` is neither a file nor a folder", shown(path));
    Refusal::new(Code::IoInvalidPath, message).with("path", shown(path))
}
