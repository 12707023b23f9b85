//! Resolves paths of calls for `under(path, dir)` in rules. Every link is followed, dangling ones too. The result holds for this
//! moment only: the upstream opens the path later.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::{Component, Path, PathBuf};

use countersign_policy::ids::FullName;
use countersign_policy::rules::{PathBases, PathResolver, normalized};

/// Links are followed as far as systems follow them.
const MOST_LINKS: usize = 40;

/// Resolves paths by the files that are there.
#[derive(Clone, Debug)]
pub(crate) struct FilePaths(pub(crate) PathBases);

impl PathResolver for FilePaths {
    fn resolve(&self, tool: &FullName, path: &str) -> Result<String, String> {
        // A process knows the folder it runs in by its real name.
        let whole = match self.0.folder_for(tool, path)? {
            Some(folder) => text(follow(Path::new(folder))?.join(path))?,
            None => path.to_owned(),
        };
        let reached = follow(Path::new(&whole))?;
        // The system follows a link before it goes up from where the link leads; many programs take `..` out of the text first.
        if Path::new(&whole).components().any(|part| part == Component::ParentDir)
            && follow(Path::new(&normalized(&whole)))? != reached
        {
            return Err(
                "`..` behind a link leads to another file for the system than for some programs".into()
            );
        }
        text(reached)
    }

    fn home(&self) -> Option<&str> {
        self.0.home.as_deref()
    }
}

fn text(path: PathBuf) -> Result<String, String> {
    path.into_os_string().into_string().map_err(|_| "the path leads to a name that is no text".to_owned())
}

/// A part of the path that is still to be walked.
enum PathStep {
    Root(PathBuf),
    Up,
    Name(OsString),
}

fn steps(path: &Path) -> impl DoubleEndedIterator<Item = PathStep> {
    // `C:` and `\` are two components and one beginning.
    let root: PathBuf = path
        .components()
        .take_while(|part| matches!(part, Component::Prefix(_) | Component::RootDir))
        .collect();
    let root = (!root.as_os_str().is_empty()).then_some(PathStep::Root(root));
    let rest = path.components().filter_map(|part| match part {
        Component::Prefix(_) | Component::RootDir | Component::CurDir => None,
        Component::ParentDir => Some(PathStep::Up),
        Component::Normal(name) => Some(PathStep::Name(name.to_owned())),
    });
    root.into_iter().chain(rest)
}

/// Walks an absolute path as the system does. What is not there yet leads where it would be made.
fn follow(path: &Path) -> Result<PathBuf, String> {
    let mut left: VecDeque<PathStep> = steps(path).collect();
    let (mut here, mut links) = (PathBuf::new(), 0);
    while let Some(step) = left.pop_front() {
        match step {
            PathStep::Root(root) => here = root,
            PathStep::Up => drop(here.pop()),
            PathStep::Name(name) => {
                here.push(name);
                let Some(target) = link_target(&here)? else { continue };
                links += 1;
                if links > MOST_LINKS {
                    return Err(format!("the path goes through more than {MOST_LINKS} links"));
                }
                here.pop();
                steps(&target).rev().for_each(|step| left.push_front(step));
            }
        }
    }
    Ok(as_spelled(here))
}

/// Where a link leads; none for anything else, and for what is not there.
fn link_target(path: &Path) -> Result<Option<PathBuf>, String> {
    let cannot = |error: std::io::Error| format!("the path can't be followed: {}", error.kind());
    match path.symlink_metadata() {
        Ok(meta) if meta.is_symlink() => path.read_link().map(Some).map_err(cannot),
        Ok(_) => Ok(None),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(None),
        Err(error) => Err(cannot(error)),
    }
}

/// The path as the disk spells it, where names have other spellings: in another case, or cut to eight letters.
fn as_spelled(path: PathBuf) -> PathBuf {
    if cfg!(not(any(target_os = "macos", windows))) {
        return path;
    }
    let there = path.ancestors().find_map(|above| Some((above, above.canonicalize().ok()?)));
    match there.and_then(|(above, real)| Some(real.join(path.strip_prefix(above).ok()?))) {
        Some(spelled) => spelled,
        None => path,
    }
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use std::fs;
    use std::os::unix::fs::symlink;

    use countersign_policy::rules::PathBase;

    struct Tree {
        room: tempfile::TempDir,
        paths: FilePaths,
    }

    /// `box/` with a file, a folder and links, and `outside/` beside it.
    fn tree() -> Tree {
        let room = tempfile::tempdir().unwrap();
        let at = |name: &str| room.path().join(name);
        for folder in ["box/inner", "outside/deep", "box-other"] {
            fs::create_dir_all(at(folder)).unwrap();
        }
        fs::write(at("box/file"), "x").unwrap();
        fs::write(at("outside/secret"), "x").unwrap();
        symlink(at("outside"), at("box/out")).unwrap();
        symlink("../outside/deep", at("box/deep")).unwrap();
        symlink("inner", at("box/in")).unwrap();
        symlink(at("outside/not-there"), at("box/dangling")).unwrap();
        symlink("round", at("box/round")).unwrap();
        symlink(at("box"), at("outside/deep/way-in")).unwrap();
        let base = PathBase::Folder(at("outside/deep/way-in").display().to_string());
        let bases = PathBases { home: None, bases: BTreeMap::from([("files".to_owned(), base)]) };
        Tree { room, paths: FilePaths(bases) }
    }

    impl Tree {
        fn resolve(&self, path: &str) -> Result<String, String> {
            let name = FullName::new("files", "read");
            let whole = path.replace("ROOM", self.room.path().to_str().unwrap());
            let real = self.room.path().canonicalize().unwrap();
            self.paths.resolve(&name, &whole).map(|found| found.replace(real.to_str().unwrap(), "ROOM"))
        }
    }

    #[test]
    fn every_link_is_followed_also_into_nothing() {
        let tree = tree();
        for (path, expect) in [
            ("ROOM/box/file", "ROOM/box/file"),
            ("ROOM/box/file/", "ROOM/box/file"),
            ("ROOM//box/./inner/../file", "ROOM/box/file"),
            ("ROOM/box/new/leaf.txt", "ROOM/box/new/leaf.txt"),
            ("ROOM/box/out/secret", "ROOM/outside/secret"),
            ("ROOM/box/deep/new", "ROOM/outside/deep/new"),
            ("ROOM/box/in/x", "ROOM/box/inner/x"),
            ("ROOM/box/dangling", "ROOM/outside/not-there"),
            ("ROOM/box/dangling/x", "ROOM/outside/not-there/x"),
            ("ROOM/outside/deep/way-in/file", "ROOM/box/file"),
            ("ROOM/box/file/below", "ROOM/box/file/below"),
            ("ROOM/box/nothing/../../outside", "ROOM/outside"),
            // From the upstream's folder, which is a link itself.
            ("file", "ROOM/box/file"),
            ("../outside/secret", "ROOM/outside/secret"),
        ] {
            assert_eq!(tree.resolve(path).as_deref(), Ok(expect), "{path}");
        }
    }

    #[test]
    fn a_path_of_two_meanings_or_none_is_an_error() {
        let tree = tree();
        // `outside/box` for the system, `box/x` by the text.
        for (path, why) in [
            ("ROOM/box/deep/../x", "`..` behind a link"),
            ("ROOM/box/round", "links"),
            ("ROOM/box/round/x", "links"),
        ] {
            let said = tree.resolve(path).unwrap_err();
            assert!(said.contains(why), "{path}: {said}");
        }
    }
}
