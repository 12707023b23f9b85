//! The desired state: every file of every target, from the modules of a profile. Writes nothing and reads no target folder.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use countersign_policy::digest::Digest;
use countersign_policy::refusal::{Code, Refusal};
use serde_json::{Value, json};

use crate::digests::DigestCache;
use crate::error::{PackError, PackResult, shown};
use crate::manifest::{Manifest, Target};
use crate::place::{PackEnvironment, Project};
use crate::render::{self, FileContent, RenderedModule};
use crate::sources;
use crate::system::FileSystem;
use crate::targets::{self, LayoutRequest, TargetFile, TargetRoot};

pub(crate) type FileKey = (Target, LookupPath);

/// A path to look things up by. Compared as bytes: std compares paths part by part, which costs more than the rest of a plan.
#[derive(Clone, Debug)]
pub struct LookupPath(PathBuf);

impl LookupPath {
    fn bytes(&self) -> &[u8] {
        self.0.as_os_str().as_encoded_bytes()
    }
}
impl From<PathBuf> for LookupPath {
    fn from(path: PathBuf) -> Self {
        Self(path)
    }
}
impl std::ops::Deref for LookupPath {
    type Target = Path;
    fn deref(&self) -> &Path {
        &self.0
    }
}
impl PartialEq for LookupPath {
    fn eq(&self, other: &Self) -> bool {
        self.bytes() == other.bytes()
    }
}
impl Eq for LookupPath {}
impl PartialOrd for LookupPath {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for LookupPath {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.bytes().cmp(other.bytes())
    }
}

pub fn key(target: Target, path: &Path) -> FileKey {
    (target, LookupPath(path.to_path_buf()))
}

#[derive(Clone, Debug)]
pub struct OutputFile {
    pub(crate) content: FileContent,
    pub digest: Digest,
    /// The modules it is for, sorted.
    pub module_ids: Vec<String>,
    /// Its root, by its place in the list.
    pub root: usize,
    /// The name of the module's file it comes from.
    pub source: String,
}

#[derive(Debug, Default)]
pub struct DesiredState {
    pub outputs: BTreeMap<FileKey, OutputFile>,
    pub(crate) roots: Vec<TargetRoot>,
    /// The modules, with the layer each file comes from.
    pub(crate) modules: Vec<RenderedModule>,
}

/// Profile and target of a command, resolved: nothing is left to a default.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProfileSelection {
    pub profile: String,
    /// `all`, or one target.
    pub target: String,
}

/// Works out what should be on disk.
pub(crate) fn desired(
    place: &PackEnvironment,
    project: &Project,
    manifest: &Manifest,
    selection: &ProfileSelection,
    system: &dyn FileSystem,
    digests: &mut DigestCache,
) -> PackResult<DesiredState> {
    let chosen = manifest.targets(&selection.target)?;
    let lock = sources::lockfile(place)?;
    let mut modules = Vec::new();
    for module in manifest.selected(&selection.profile)? {
        modules.push(render::module(place, project, system, module, lock.as_ref())?);
    }
    let mut desired = DesiredState::default();
    for (target, config) in chosen {
        let goes = modules.iter().filter(|module| module.goes_to(target.as_str())).collect();
        let request = LayoutRequest { place, project: &project.root, config, modules: goes, system };
        let layout = targets::layout(target, &request)?;
        let first = desired.roots.len();
        desired.roots.extend(layout.roots);
        for mut wanted in layout.files {
            wanted.root += first;
            desired.add(target, wanted, system, digests)?;
        }
    }
    desired.modules = modules;
    Ok(desired)
}

/// The folders of the chosen targets, with nothing in them.
pub fn bare(
    place: &PackEnvironment,
    project: &Project,
    manifest: &Manifest,
    selection: &ProfileSelection,
    system: &dyn FileSystem,
) -> PackResult<DesiredState> {
    let mut desired = DesiredState::default();
    for (target, config) in manifest.targets(&selection.target)? {
        let request = LayoutRequest { place, project: &project.root, config, modules: Vec::new(), system };
        desired.roots.extend(targets::layout(target, &request)?.roots);
    }
    Ok(desired)
}

impl DesiredState {
    fn add(
        &mut self,
        target: Target,
        wanted: TargetFile,
        system: &dyn FileSystem,
        digests: &mut DigestCache,
    ) -> PackResult<()> {
        let digest = wanted.content.digest(system, digests).map_err(|error| {
            let source = match &wanted.content {
                FileContent::CopyOf(path, _) => path.as_path(),
                FileContent::Bytes(_) => wanted.path.as_path(),
            };
            PackError::io("read", source, &error)
        })?;
        let key = (target, LookupPath(wanted.path));
        match self.outputs.get_mut(&key) {
            None => {
                let TargetFile { content, mut module_ids, root, source, .. } = wanted;
                module_ids.sort();
                self.outputs.insert(key, OutputFile { content, digest, module_ids, root, source });
            }
            Some(known) if known.digest == digest => {
                known.module_ids.extend(wanted.module_ids);
                known.module_ids.sort();
                known.module_ids.dedup();
            }
            Some(known) => return Err(conflict(&key, known, digest, &wanted.module_ids)),
        }
        Ok(())
    }

    /// The root a path belongs to: the deepest one of its target.
    pub(crate) fn root_of(&self, target: Target, path: &Path) -> Option<&TargetRoot> {
        let of_target =
            self.roots.iter().filter(|root| root.target == target && path.starts_with(&root.path));
        of_target.max_by_key(|root| root.path.components().count())
    }

    /// The names of the targets, sorted.
    pub(crate) fn target_names(&self) -> Vec<&'static str> {
        let mut names: Vec<&str> = self.roots.iter().map(|root| root.target.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        names
    }
}

fn conflict((target, path): &FileKey, known: &OutputFile, digest: Digest, modules: &[String]) -> PackError {
    let names = |ids: &[String]| ids.iter().map(|id| format!("`{id}`")).collect::<Vec<_>>().join(", ");
    let message = format!(
        "{} and {} want different content in `{}`",
        names(&known.module_ids),
        names(modules),
        shown(path)
    );
    let existing: Value = json!({"sha256": known.digest, "module_ids": known.module_ids});
    Refusal::new(Code::DesiredStateConflict, message)
        .with("target", target.as_str())
        .with("path", shown(path))
        .with("existing", existing)
        .with("new", json!({"sha256": digest, "module_ids": modules}))
        .into()
}
