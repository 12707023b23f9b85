//! Overlays: changes to a module that survive its updates, in layers global < machine < project, as whole files or as patches.
//! Finds and reads them; `overlay/edit.rs` creates and rebases them.

mod edit;

use std::path::{Path, PathBuf};

use countersign_policy::refusal::{Code, Refusal};
use serde_json::Value;

pub use edit::{OverlayEditResult, OverlayFill, RebaseResult, RebaseSparsity, drift_warnings, edit, rebase};

use crate::error::{PackError, PackResult, shown};
use crate::place::{PackEnvironment, Project, fs_key};
use crate::system::{self, FileSystem, PathStatus};
use crate::tree::{self, TreeFile};
use countersign_policy::words::words;

words! {
    /// A layer of overlays, lowest first.
    pub enum OverlayLayer("overlay scope") {
        Global = "global",
        Machine = "machine",
        Project = "project",
    }
}

words! {
    pub enum OverlayKind("overlay kind") {
        Dir = "dir",
        Patch = "patch",
    }
}

const META_LIMIT: u64 = 64 * 1024 * 1024;

/// The folder of a module's overlay in a layer.
pub fn folder(place: &PackEnvironment, project: &Project, layer: OverlayLayer, module_id: &str) -> PathBuf {
    let key = fs_key(module_id);
    match layer {
        OverlayLayer::Global => place.repo.join("overlays").join(key),
        OverlayLayer::Machine => place.repo.join("overlays").join("machines").join(&place.machine).join(key),
        OverlayLayer::Project => place.repo.join("projects").join(&project.id).join("overlays").join(key),
    }
}

/// An overlay as it is on disk.
#[derive(Clone, Debug)]
pub struct Overlay {
    pub layer: OverlayLayer,
    pub folder: PathBuf,
    pub(crate) changes: OverlayChanges,
}

#[derive(Clone, Debug)]
pub enum OverlayChanges {
    /// Files that take the place of the module's.
    Files(Vec<TreeFile>),
    Patches(Vec<PatchFile>),
}

#[derive(Clone, Debug)]
pub struct PatchFile {
    pub name: String,
    pub path: PathBuf,
}

/// Reads the overlay in a folder, if there is one.
pub fn read(system: &dyn FileSystem, layer: OverlayLayer, folder: PathBuf) -> PackResult<Option<Overlay>> {
    match system.path_status(&folder).map_err(|error| PackError::io("read", &folder, &error))? {
        PathStatus::Missing => return Ok(None),
        PathStatus::Folder => {}
        PathStatus::Link => return Err(tree::link(&folder).into()),
        PathStatus::File(_) | PathStatus::Other => {
            let message = format!("`{}` should be an overlay's folder", shown(&folder));
            return Err(PackError::refused(Code::ConfigInvalid, message));
        }
    }
    let files = tree::files(system, &folder)?;
    let patches = folder.join(".agentpack").join("patches");
    let patches =
        match system.path_status(&patches).map_err(|error| PackError::io("read", &patches, &error))? {
            PathStatus::Folder => tree::files(system, &patches)?,
            PathStatus::Missing | PathStatus::File(_) | PathStatus::Link | PathStatus::Other => Vec::new(),
        };
    let kind = kind(system, &folder)?;
    let mixed = match kind {
        OverlayKind::Dir => !patches.is_empty(),
        OverlayKind::Patch => !files.is_empty(),
    };
    if mixed {
        let message = format!("the overlay `{}` mixes whole files and patches", shown(&folder));
        return Err(Refusal::new(Code::ConfigInvalid, message).with("overlay_dir", shown(&folder)).into());
    }
    let changes = match kind {
        OverlayKind::Dir => OverlayChanges::Files(files),
        OverlayKind::Patch => {
            let named = patches.into_iter().map(|file| {
                let name = file.name.strip_suffix(".patch").map(str::to_owned);
                let name = name.ok_or_else(|| {
                    let message =
                        format!("`{}` is among the patches and does not end in `.patch`", shown(&file.path));
                    PackError::refused(Code::ConfigInvalid, message)
                })?;
                Ok(PatchFile { name, path: file.path })
            });
            OverlayChanges::Patches(named.collect::<PackResult<_>>()?)
        }
    };
    Ok(Some(Overlay { layer, folder, changes }))
}

pub fn kind(system: &dyn FileSystem, folder: &Path) -> PackResult<OverlayKind> {
    let path = folder.join(".agentpack").join("overlay.json");
    let Some(bytes) = system::read_if_there(system, &path, META_LIMIT)
        .map_err(|error| PackError::io("read", &path, &error))?
    else {
        return Ok(OverlayKind::Dir);
    };
    let value: Option<Value> = serde_json::from_slice(&bytes).ok();
    let word = value.as_ref().and_then(|value| value.get("overlay_kind")).and_then(Value::as_str);
    word.and_then(|word| word.parse().ok()).ok_or_else(|| {
        let message = format!("`{}` does not say `overlay_kind` `dir` or `patch`", shown(&path));
        PackError::refused(Code::ConfigInvalid, message)
    })
}

/// A file's text with a patch applied.
pub(crate) fn apply_patch(system: &dyn FileSystem, patch: &PatchFile, before: &[u8]) -> PackResult<Vec<u8>> {
    let fails = |why: &str| {
        let message = format!("the patch `{}` does not fit: {why}", shown(&patch.path));
        let refusal = Refusal::new(Code::OverlayPatchApplyFailed, message);
        PackError::from(refusal.with("patch", shown(&patch.path)).with("file", patch.name.as_str()))
    };
    let bytes = system::read(system, &patch.path, META_LIMIT)
        .map_err(|error| PackError::io("read", &patch.path, &error))?;
    let text = std::str::from_utf8(&bytes).map_err(|_| fails("it is not UTF-8 text"))?;
    let before = std::str::from_utf8(before).map_err(|_| fails("the file is not UTF-8 text"))?;
    let parsed = diffy::Patch::from_str(text).map_err(|error| fails(&error.to_string()))?;
    for named in [parsed.original(), parsed.modified()].into_iter().flatten() {
        let plain = named.strip_prefix("a/").or_else(|| named.strip_prefix("b/")).unwrap_or(named);
        if plain != patch.name && plain != "/dev/null" {
            return Err(fails(&format!("it names `{plain}`, its own name says `{}`", patch.name)));
        }
    }
    diffy::apply(before, &parsed).map(String::into_bytes).map_err(|error| fails(&error.to_string()))
}
