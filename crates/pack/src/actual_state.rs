//! The actual state: which files on disk are ours, and the digest of every file that matters. Reads only.

use std::collections::{BTreeMap, HashSet};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use countersign_policy::digest::Digest;
use countersign_policy::refusal::{Code, Refusal};

use crate::bootstrap::is_operator;
use crate::desired_state::{DesiredState, FileKey, key};
use crate::digests::DigestCache;
use crate::error::{PackError, PackResult, shown};
use crate::manifest::Target;
use crate::records::{self, FoundRecord};
use crate::snapshot::{self, Snapshot};
use crate::system::{self, FileSystem, PathStatus};
use crate::targets::TargetRoot;
use crate::tree;

#[derive(Debug, Default)]
pub(crate) struct ActualState {
    /// The digest of each file that is wanted or ours; none where nothing is.
    pub files: BTreeMap<FileKey, Option<Digest>>,
    /// Files that are ours, with the digest they were deployed with.
    pub managed: BTreeMap<FileKey, Option<Digest>>,
    /// Files that are ours and stay ours though nobody asks for them here, with whose they are.
    pub kept: BTreeMap<FileKey, Vec<String>>,
    /// The manifest of each root, in the roots' order.
    pub records: Vec<Option<FoundRecord>>,
    pub warnings: Vec<String>,
}

pub(crate) fn actual(
    desired: &DesiredState,
    snapshots: &Path,
    system: &dyn FileSystem,
    digests: &mut DigestCache,
) -> PackResult<ActualState> {
    let mut actual = ActualState::default();
    for root in &desired.roots {
        let found = records::read(system, &root.path, root.target, &mut actual.warnings);
        for (path, digest, file) in found.iter().flat_map(|found| found.record.files(&root.path)) {
            if is_operator(&file.module_ids) {
                actual.kept.insert(key(root.target, &path), file.module_ids.clone());
            }
            actual.managed.insert((root.target, path.into()), digest);
        }
        actual.records.push(found);
    }
    if actual.records.iter().all(Option::is_none) {
        from_snapshot(desired, snapshots, system, &mut actual)?;
    }
    let mut checked = CheckedFolders::default();
    let unasked = actual.managed.keys().filter(|key| !desired.outputs.contains_key(*key));
    let unasked = unasked.filter_map(|key| Some((key, desired.root_of(key.0, &key.1)?)));
    let asked = desired.outputs.iter();
    let asked = asked.filter_map(|(key, output)| Some((key, desired.roots.get(output.root)?)));
    let keys: Vec<(&FileKey, &TargetRoot)> = asked.chain(unasked).collect();
    for (key, root) in &keys {
        no_links(system, root, &key.1, &mut checked)?;
    }
    let paths: Vec<&Path> = keys.iter().map(|(key, _)| &*key.1).collect();
    for ((key, _), found) in keys.iter().zip(system::look_all(system, &paths)) {
        let path: &Path = &key.1;
        let digest = match found.map_err(|error| PackError::io("read", path, &error))? {
            PathStatus::Missing => None,
            PathStatus::File(stamp) => {
                Some(digests.of(system, path, stamp).map_err(|error| PackError::io("read", path, &error))?)
            }
            PathStatus::Link => return Err(tree::link(path).into()),
            PathStatus::Folder | PathStatus::Other => {
                let message = format!("`{}` is in the way: it is not a file", shown(path));
                return Err(Refusal::new(Code::IoInvalidPath, message).with("path", shown(path)).into());
            }
        };
        actual.files.insert((*key).clone(), digest);
    }
    Ok(actual)
}

/// Without manifests, what the last deployment wrote below these roots is ours.
fn from_snapshot(
    desired: &DesiredState,
    snapshots: &Path,
    system: &dyn FileSystem,
    actual: &mut ActualState,
) -> PackResult<()> {
    let Some(last) = snapshot::list(system, snapshots, &mut actual.warnings)?.pop() else { return Ok(()) };
    let Snapshot { managed_files, .. } = last;
    for file in managed_files {
        let (Ok(target), path) = (file.target.parse::<Target>(), PathBuf::from(file.path)) else { continue };
        if desired.root_of(target, &path).is_some() {
            if is_operator(&file.module_ids) {
                actual.kept.insert(key(target, &path), file.module_ids);
            }
            actual.managed.insert((target, path.into()), file.sha256.parse().ok());
        }
    }
    Ok(())
}

fn path_status(system: &dyn FileSystem, path: &Path) -> PackResult<PathStatus> {
    system.path_status(path).map_err(|error| PackError::io("read", path, &error))
}

/// Folders that are known to be folders, with nothing but folders above them.
#[derive(Debug, Default)]
pub(crate) struct CheckedFolders {
    folders: HashSet<OsString>,
    /// The root and the folder of the last file: the next one is most often beside it.
    last: (OsString, OsString),
}

impl CheckedFolders {
    fn knows(&self, root: &TargetRoot, path: &Path) -> bool {
        let (last_root, last_folder) = &self.last;
        let beside = path.parent().is_some_and(|folder| folder.as_os_str() == last_folder);
        beside && path.file_name().is_some() && root.path.as_os_str() == last_root
    }
}

/// Refuses a path that goes through a link, or out of its root.
pub(crate) fn no_links(
    system: &dyn FileSystem,
    root: &TargetRoot,
    path: &Path,
    checked: &mut CheckedFolders,
) -> PackResult<()> {
    if checked.knows(root, path) {
        return Ok(());
    }
    let outside = || {
        let message = format!("`{}` is not below `{}`", shown(path), shown(&root.path));
        Refusal::new(Code::IoInvalidPath, message).because("path_escapes").with("path", shown(path))
    };
    let below = path
        .strip_prefix(&root.base)
        .ok()
        .filter(|below| crate::place::stays_inside(below))
        .ok_or_else(outside)?;
    if !path.starts_with(&root.path) {
        return Err(outside().into());
    }
    let Some(folders) = below.parent() else { return Ok(()) };
    let mut here = root.base.clone();
    for part in folders.components() {
        here.push(part);
        if checked.folders.contains(here.as_os_str()) {
            continue;
        }
        match path_status(system, &here)? {
            PathStatus::Folder => {
                checked.folders.insert(here.clone().into_os_string());
            }
            PathStatus::Missing => return Ok(()),
            PathStatus::Link => return Err(tree::link(&here).into()),
            PathStatus::File(_) | PathStatus::Other => {
                let message = format!("`{}` is in the way: it is not a folder", shown(&here));
                return Err(Refusal::new(Code::IoInvalidPath, message).with("path", shown(&here)).into());
            }
        }
    }
    let folder = path.parent().map(|folder| folder.as_os_str().to_owned());
    checked.last = (root.path.as_os_str().to_owned(), folder.unwrap_or_default());
    Ok(())
}
