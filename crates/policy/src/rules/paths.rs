//! `under(path, dir)`: whether a path leads into a folder. Compares whole names of resolved paths, never letters. Follows no link
//! itself: a [`PathResolver`] with access to files does, and rules without one are judged by the text of the path.

use std::borrow::Cow;
use std::collections::BTreeMap;

use crate::fold::folded;
use crate::ids::FullName;

/// The longest path in bytes: no system opens a longer one.
pub const LONGEST_PATH: usize = 4_096;

/// Whether this system's own file systems usually take `A` for `a`.
const FOLDS_CASE: bool = cfg!(any(target_os = "macos", target_os = "ios", windows));

/// Finds out where a path of a call leads.
pub trait PathResolver: std::fmt::Debug + Send + Sync {
    /// The absolute path without `.`, `..`, repeated separators and links, or why that can't be told.
    fn resolve(&self, tool: &FullName, path: &str) -> Result<String, String>;

    /// The home folder, for `~` in a rule's folder.
    fn home(&self) -> Option<&str>;

    /// Whether names that differ by case are one file.
    fn folds_case(&self) -> bool {
        FOLDS_CASE
    }
}

/// Where relative paths of an upstream begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathBase {
    /// In this folder, an absolute path.
    Folder(String),
    /// On another machine, whose files nobody here can look at.
    Remote,
}

/// Where the relative paths of every upstream begin, and where home is.
#[derive(Clone, Debug, Default)]
pub struct PathBases {
    /// The home folder, where it is known.
    pub home: Option<String>,
    /// By `upstream`, or `upstream:tool` where a tool has its own.
    pub bases: BTreeMap<String, PathBase>,
}

impl PathBases {
    /// The folder in which a path begins; none for one that begins at the root.
    pub fn folder_for(&self, tool: &FullName, path: &str) -> Result<Option<&str>, String> {
        let by_tool = self.bases.get(&tool.to_string());
        let upstream = tool.upstream.as_str();
        match by_tool.or_else(|| self.bases.get(upstream)) {
            Some(PathBase::Remote) => {
                Err(format!("the files of `{upstream}` are on another machine and can't be looked at"))
            }
            Some(PathBase::Folder(_)) | None if is_absolute(path) => Ok(None),
            Some(PathBase::Folder(folder)) => Ok(Some(folder)),
            None => Err(format!("the path is relative, and where `{upstream}` runs is not known")),
        }
    }
}

/// Resolves paths by their text alone.
#[derive(Clone, Debug, Default)]
pub struct LexicalPaths(pub PathBases);

impl PathResolver for LexicalPaths {
    fn resolve(&self, tool: &FullName, path: &str) -> Result<String, String> {
        Ok(match self.0.folder_for(tool, path)? {
            Some(folder) => normalized(&format!("{folder}/{path}")),
            None => normalized(path),
        })
    }

    fn home(&self) -> Option<&str> {
        self.0.home.as_deref()
    }
}

/// An absolute path without `.`, `..` and repeated separators, by its text.
pub fn normalized(path: &str) -> String {
    let mut kept: Vec<&str> = Vec::new();
    for name in names(path) {
        match name {
            "." => {}
            ".." => drop(kept.pop()),
            name => kept.push(name),
        }
    }
    let root = if cfg!(windows) { "" } else { "/" };
    format!("{root}{}", kept.join("/"))
}

/// Whether a path says where it begins.
pub fn is_absolute(path: &str) -> bool {
    let drive = || matches!(path.as_bytes(), [letter, b':', mark, ..] if letter.is_ascii_alphabetic() && is_separator(char::from(*mark)));
    if cfg!(windows) { drive() || path.starts_with("\\\\") } else { path.starts_with('/') }
}

/// Whether `path` is `dir` or inside it.
pub(super) fn under(
    resolver: &dyn PathResolver,
    tool: &FullName,
    path: &str,
    dir: &str,
) -> Result<bool, String> {
    // Some servers expand these, others do not: both readings can't be judged at once.
    if path.starts_with(['~', '$', '%']) {
        return Err("the path begins with what some servers expand; send the whole path".to_owned());
    }
    let path = resolver.resolve(tool, checked(path)?)?;
    let dir = resolver.resolve(tool, &from_home(resolver, checked(dir)?)?)?;
    let name = |name| if resolver.folds_case() { folded(name) } else { Cow::Borrowed(name) };
    let mut inner = names(&path).map(name);
    Ok(names(&dir).map(name).all(|outer| inner.next() == Some(outer)))
}

/// Refuses what no file is called. The messages name no path: refusals are recorded, and the path may be one that records must not show.
fn checked(path: &str) -> Result<&str, String> {
    if path.is_empty() {
        return Err("the path is empty".to_owned());
    }
    if path.len() > LONGEST_PATH {
        return Err(format!("the path has {} bytes; at most {LONGEST_PATH} are allowed", path.len()));
    }
    if path.contains('\0') {
        return Err("the path contains NUL, where some servers stop reading".to_owned());
    }
    if path.contains("://") {
        return Err("the path is an address".to_owned());
    }
    Ok(path)
}

/// A rule's folder with `~` written out.
fn from_home<'d>(resolver: &dyn PathResolver, dir: &'d str) -> Result<Cow<'d, str>, String> {
    let Some(rest) = dir.strip_prefix('~') else { return Ok(Cow::Borrowed(dir)) };
    if !(rest.is_empty() || rest.starts_with(is_separator)) {
        return Err("the folder is in the home of somebody else; write the whole path".to_owned());
    }
    match resolver.home() {
        Some(home) => Ok(Cow::Owned(format!("{home}{rest}"))),
        None => Err("`~` can't be written out: the home folder is not known".to_owned()),
    }
}

/// The names of a path, from the root on.
fn names(path: &str) -> impl Iterator<Item = &str> {
    path.split(is_separator).filter(|name| !name.is_empty())
}

fn is_separator(mark: char) -> bool {
    mark == '/' || (cfg!(windows) && mark == '\\')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool() -> FullName {
        FullName::new("files", "read")
    }

    fn paths() -> LexicalPaths {
        let bases = BTreeMap::from([
            ("files".to_owned(), PathBase::Folder("/srv/app".to_owned())),
            ("away".to_owned(), PathBase::Remote),
        ]);
        LexicalPaths(PathBases { home: Some("/home/ada".to_owned()), bases })
    }

    #[cfg(unix)]
    #[test]
    fn whole_names_are_compared_after_dots_and_separators_are_gone() {
        for (path, dir, expect) in [
            ("/a/b", "/a/b", true),
            ("/a/b/", "/a/b", true),
            ("/a/b", "/a/b/", true),
            ("/a/b/c", "/a/b", true),
            ("//a///b/./c/.", "/a/b", true),
            ("/a/x/../b/c", "/a/b", true),
            ("/a/bc", "/a/b", false),
            ("/a/b/../../etc/passwd", "/a/b", false),
            ("/a/b/../c", "/a/b", false),
            ("/../../a/b", "/a", true),
            ("/a", "/a/b", false),
            ("/anything", "/", true),
            ("/home/ada/x", "~", true),
            ("/home/ada/.ssh/id", "~/.ssh", true),
            ("/home/adam/.ssh/id", "~", false),
            ("cart.js", "/srv/app", true),
            ("cart.js", ".", true),
            ("lib/../../other", "/srv/app", false),
            ("lib/a", "lib", true),
            ("/a/B", "/a/b", FOLDS_CASE),
        ] {
            assert_eq!(under(&paths(), &tool(), path, dir), Ok(expect), "{path} {dir}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn what_can_not_be_judged_is_an_error() {
        let none = LexicalPaths::default();
        let long = format!("/{}", "x".repeat(LONGEST_PATH));
        for (path, dir, expect) in [
            ("", "/a", "empty"),
            ("/a/b\0/etc", "/a", "NUL"),
            ("/a", "/a\0", "NUL"),
            ("~/x", "/a", "expand"),
            ("$HOME/x", "/a", "expand"),
            ("file:///etc/passwd", "/a", "an address"),
            ("/a", "~bob", "somebody else"),
            (&long, "/a", "4096"),
        ] {
            let said = under(&paths(), &tool(), path, dir).unwrap_err();
            assert!(said.contains(expect), "{path} {dir}: {said}");
        }
        for (path, dir, expect) in [("a", "/a", "relative"), ("/a", "b", "relative"), ("/a", "~", "home")] {
            let said = under(&none, &tool(), path, dir).unwrap_err();
            assert!(said.contains(expect), "{path} {dir}: {said}");
        }
        let away = under(&paths(), &FullName::new("away", "read"), "/a", "/a").unwrap_err();
        assert!(away.contains("another machine"), "{away}");
    }

    /// A file system that takes `A` for `a`.
    #[derive(Debug)]
    struct Folding;

    impl PathResolver for Folding {
        fn resolve(&self, _: &FullName, path: &str) -> Result<String, String> {
            Ok(normalized(path))
        }

        fn home(&self) -> Option<&str> {
            None
        }

        fn folds_case(&self) -> bool {
            true
        }
    }

    #[test]
    fn case_is_folded_where_files_are() {
        for (path, expect) in [("/Srv/APP/x", true), ("/srv/app", true), ("/srv/apps", false)] {
            assert_eq!(under(&Folding, &tool(), path, "/srv/App"), Ok(expect), "{path}");
        }
    }
}
