//! The project's files, walked in a stable order and bounded: no hidden files, nothing built or fetched, no links that lead outside.
//! Reads only.

use std::fs;
use std::path::{Path, PathBuf};

use crate::error::{MemoryError, MemoryResult};

pub(crate) const MOST_FILES: usize = 20_000;
/// The largest file whose text is looked at.
const LARGEST: u64 = 256 * 1024;
const BUILT: &[&str] = &["target", "node_modules", "dist", "build", "vendor", "__pycache__", "venv"];

/// A text file's content and how much was left out.
#[derive(Debug)]
pub(crate) struct TextContent {
    /// Its text, or the beginning of it.
    pub(crate) text: String,
    /// Its size in bytes.
    pub(crate) bytes: u64,
    pub(crate) lines: usize,
    pub(crate) truncated: bool,
}

/// The paths of a project, sorted, with forward slashes.
pub(crate) fn walk(root: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut folders: Vec<(PathBuf, String)> = vec![(root.to_owned(), String::new())];
    while let Some((folder, prefix)) = folders.pop() {
        let Ok(entries) = fs::read_dir(&folder) else { continue };
        let mut names: Vec<(String, fs::FileType)> = entries
            .flatten()
            .filter_map(|entry| Some((entry.file_name().to_str()?.to_owned(), entry.file_type().ok()?)))
            .filter(|(name, _)| !name.starts_with('.'))
            .collect();
        names.sort_by(|left, right| left.0.cmp(&right.0));
        for (name, kind) in names.into_iter().rev() {
            let path = if prefix.is_empty() { name.clone() } else { format!("{prefix}/{name}") };
            if kind.is_dir() && !BUILT.contains(&name.as_str()) {
                folders.push((folder.join(&name), path));
            } else if kind.is_file() {
                found.push(path);
            }
        }
        if found.len() >= MOST_FILES {
            break;
        }
    }
    found.sort();
    found.truncate(MOST_FILES);
    found
}

/// The text of a file of the project, at most `most` bytes of it.
pub(crate) fn read(root: &Path, path: &str, most: usize) -> MemoryResult<TextContent> {
    let absent = || MemoryError::not_found(format!("there is no file `{path}` in the project"));
    if path.split('/').any(|part| part.starts_with('.')) {
        // Hidden files hold secrets more often than knowledge.
        return Err(absent());
    }
    let root = root.canonicalize().map_err(|_| absent())?;
    let full = root.join(path).canonicalize().map_err(|_| absent())?;
    let meta = fs::metadata(&full).map_err(|_| absent())?;
    if !full.starts_with(&root) || !meta.is_file() {
        return Err(absent());
    }
    let mut bytes = Vec::new();
    let file = fs::File::open(&full).map_err(|_| absent())?;
    let read = std::io::Read::read_to_end(&mut std::io::Read::take(file, most as u64), &mut bytes);
    read.map_err(|_| absent())?;
    if bytes.contains(&0) {
        return Ok(TextContent { text: String::new(), bytes: meta.len(), lines: 0, truncated: true });
    }
    let text = match String::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => String::from_utf8_lossy(error.as_bytes()).trim_end_matches('\u{fffd}').to_owned(),
    };
    Ok(TextContent {
        lines: text.lines().count(),
        truncated: (text.len() as u64) < meta.len(),
        bytes: meta.len(),
        text,
    })
}

/// The text of a small file, for searching; none where there is none to search.
pub(crate) fn searchable(root: &Path, path: &str) -> Option<String> {
    let full = root.join(path);
    let meta = fs::symlink_metadata(&full).ok()?;
    if !meta.is_file() || meta.len() > LARGEST {
        return None;
    }
    let text = fs::read_to_string(&full).ok()?;
    (!text.contains('\0')).then_some(text)
}

/// Lines that begin something: a function, a type, a heading. At most sixty.
pub(crate) fn outline(text: &str) -> Vec<String> {
    const BEGINS: &[&str] = &[
        "fn ",
        "pub fn ",
        "async fn ",
        "pub async fn ",
        "struct ",
        "pub struct ",
        "enum ",
        "pub enum ",
        "trait ",
        "pub trait ",
        "impl ",
        "mod ",
        "pub mod ",
        "class ",
        "def ",
        "async def ",
        "function ",
        "export ",
        "func ",
        "type ",
        "interface ",
        "# ",
        "## ",
        "### ",
    ];
    let begins = |line: &&str| BEGINS.iter().any(|begin| line.trim_start().starts_with(begin));
    let cut = |line: &str| line.trim_end().chars().take(160).collect();
    text.lines().filter(begins).map(cut).take(60).collect()
}
