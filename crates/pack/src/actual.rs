//! What is on disk: which files are ours, and the digest of every file that matters. Only looks.

use std::collections::{BTreeMap, HashSet};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use countersign_core::digest::Digest;
use countersign_core::refusal::{Code, Refusal};

use crate::bootstrap::is_operator;
use crate::desired::{Desired, Key, key};
use crate::digests::Digests;
use crate::manifest::Target;
use crate::records::{self, FoundRecord};
use crate::snapshot::{self, Snapshot};
use crate::stop::{Outcome, Stop, shown};
use crate::system::{self, Found, System};
use crate::targets::Root;
use crate::tree;

/// What is on disk.
#[derive(Debug, Default)]
pub struct Actual {
    /// The digest of each file that is wanted or ours; none where nothing is.
    pub files: BTreeMap<Key, Option<Digest>>,
    /// Files that are ours, with the digest they were deployed with.
    pub managed: BTreeMap<Key, Option<Digest>>,
    /// Files that are ours and stay ours though nobody asks for them here, with whose they are.
    pub kept: BTreeMap<Key, Vec<String>>,
    /// The manifest of each root, in the roots' order.
    pub records: Vec<Option<FoundRecord>>,
    /// What should be known.
    pub warnings: Vec<String>,
}

/// Looks at everything a plan needs.
pub fn actual(
    desired: &Desired,
    snapshots: &Path,
    system: &dyn System,
    digests: &mut Digests,
) -> Outcome<Actual> {
    let mut actual = Actual::default();
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
    let mut checked = Checked::default();
    let unasked = actual.managed.keys().filter(|key| !desired.outputs.contains_key(*key));
    let unasked = unasked.filter_map(|key| Some((key, desired.root_of(key.0, &key.1)?)));
    let asked = desired.outputs.iter();
    let asked = asked.filter_map(|(key, output)| Some((key, desired.roots.get(output.root)?)));
    let keys: Vec<(&Key, &Root)> = asked.chain(unasked).collect();
    for (key, root) in &keys {
        no_links(system, root, &key.1, &mut checked)?;
    }
    let paths: Vec<&Path> = keys.iter().map(|(key, _)| &*key.1).collect();
    for ((key, _), found) in keys.iter().zip(system::look_all(system, &paths)) {
        let path: &Path = &key.1;
        let digest = match found.map_err(|error| Stop::io("read", path, &error))? {
            Found::Missing => None,
            Found::File(stamp) => {
                Some(digests.of(system, path, stamp).map_err(|error| Stop::io("read", path, &error))?)
            }
            Found::Link => return Err(tree::link(path).into()),
            Found::Folder | Found::Other => {
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
    desired: &Desired,
    snapshots: &Path,
    system: &dyn System,
    actual: &mut Actual,
) -> Outcome<()> {
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

fn look(system: &dyn System, path: &Path) -> Outcome<Found> {
    system.look(path).map_err(|error| Stop::io("read", path, &error))
}

/// Folders that are known to be folders, with nothing but folders above them.
#[derive(Debug, Default)]
pub struct Checked {
    folders: HashSet<OsString>,
    /// The root and the folder of the last file: the next one is most often beside it.
    last: (OsString, OsString),
}

impl Checked {
    fn knows(&self, root: &Root, path: &Path) -> bool {
        let (last_root, last_folder) = &self.last;
        let beside = path.parent().is_some_and(|folder| folder.as_os_str() == last_folder);
        beside && path.file_name().is_some() && root.path.as_os_str() == last_root
    }
}

/// Refuses a path that goes through a link, or out of its root.
pub fn no_links(system: &dyn System, root: &Root, path: &Path, checked: &mut Checked) -> Outcome<()> {
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
        match look(system, &here)? {
            Found::Folder => {
                checked.folders.insert(here.clone().into_os_string());
            }
            Found::Missing => return Ok(()),
            Found::Link => return Err(tree::link(&here).into()),
            Found::File(_) | Found::Other => {
                let message = format!("`{}` is in the way: it is not a folder", shown(&here));
                return Err(Refusal::new(Code::IoInvalidPath, message).with("path", shown(&here)).into());
            }
        }
    }
    let folder = path.parent().map(|folder| folder.as_os_str().to_owned());
    checked.last = (root.path.as_os_str().to_owned(), folder.unwrap_or_default());
    Ok(())
}
