//! Overlays: changes to a module that outlive its updates, in layers global < machine < project, as whole files or as patches.
//! Finds and reads them; `overlay/edit.rs` makes and rebases them.

mod edit;

use std::path::{Path, PathBuf};

use countersign_core::refusal::{Code, Refusal};
use serde_json::Value;

pub use edit::{Edited, Fill, Rebased, Sparsity, edit, rebase};

use crate::place::{Place, Project, fs_key};
use crate::stop::{Outcome, Stop, shown};
use crate::system::{self, Found, System};
use crate::tree::{self, TreeFile};
use countersign_core::words::words;

words! {
    /// A layer of overlays, lowest first.
    pub enum Layer("overlay scope") {
        /// Everywhere.
        Global = "global",
        /// On this machine.
        Machine = "machine",
        /// In this project.
        Project = "project",
    }
}

words! {
    /// How an overlay is kept.
    pub enum OverlayKind("overlay kind") {
        /// Whole files.
        Dir = "dir",
        /// Patches.
        Patch = "patch",
    }
}

/// Metadata of an overlay are small.
const META_LIMIT: u64 = 64 * 1024 * 1024;

/// The folder of a module's overlay in a layer.
pub fn folder(place: &Place, project: &Project, layer: Layer, module_id: &str) -> PathBuf {
    let key = fs_key(module_id);
    match layer {
        Layer::Global => place.repo.join("overlays").join(key),
        Layer::Machine => place.repo.join("overlays").join("machines").join(&place.machine).join(key),
        Layer::Project => place.repo.join("projects").join(&project.id).join("overlays").join(key),
    }
}

/// An overlay as it is on disk.
#[derive(Clone, Debug)]
pub struct Overlay {
    /// Its layer.
    pub layer: Layer,
    /// Its folder.
    pub folder: PathBuf,
    /// What it holds.
    pub changes: Changes,
}

/// What an overlay holds.
#[derive(Clone, Debug)]
pub enum Changes {
    /// Files that take the place of the module's.
    Files(Vec<TreeFile>),
    /// Patches to the module's files.
    Patches(Vec<PatchFile>),
}

/// A patch to one file.
#[derive(Clone, Debug)]
pub struct PatchFile {
    /// The file it changes.
    pub name: String,
    /// Where the patch is.
    pub path: PathBuf,
}

/// Reads the overlay in a folder, if there is one.
pub fn read(system: &dyn System, layer: Layer, folder: PathBuf) -> Outcome<Option<Overlay>> {
    match system.look(&folder).map_err(|error| Stop::io("read", &folder, &error))? {
        Found::Missing => return Ok(None),
        Found::Folder => {}
        Found::Link => return Err(tree::link(&folder).into()),
        Found::File(_) | Found::Other => {
            let message = format!("`{}` should be an overlay's folder", shown(&folder));
            return Err(Stop::refused(Code::ConfigInvalid, message));
        }
    }
    let files = tree::files(system, &folder)?;
    let patches = folder.join(".agentpack").join("patches");
    let patches = match system.look(&patches).map_err(|error| Stop::io("read", &patches, &error))? {
        Found::Folder => tree::files(system, &patches)?,
        Found::Missing | Found::File(_) | Found::Link | Found::Other => Vec::new(),
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
        OverlayKind::Dir => Changes::Files(files),
        OverlayKind::Patch => {
            let named = patches.into_iter().map(|file| {
                let name = file.name.strip_suffix(".patch").map(str::to_owned);
                let name = name.ok_or_else(|| {
                    let message =
                        format!("`{}` is among the patches and does not end in `.patch`", shown(&file.path));
                    Stop::refused(Code::ConfigInvalid, message)
                })?;
                Ok(PatchFile { name, path: file.path })
            });
            Changes::Patches(named.collect::<Outcome<_>>()?)
        }
    };
    Ok(Some(Overlay { layer, folder, changes }))
}

/// What an overlay says it is.
pub fn kind(system: &dyn System, folder: &Path) -> Outcome<OverlayKind> {
    let path = folder.join(".agentpack").join("overlay.json");
    let Some(bytes) =
        system::read_if_there(system, &path, META_LIMIT).map_err(|error| Stop::io("read", &path, &error))?
    else {
        return Ok(OverlayKind::Dir);
    };
    let value: Option<Value> = serde_json::from_slice(&bytes).ok();
    let word = value.as_ref().and_then(|value| value.get("overlay_kind")).and_then(Value::as_str);
    word.and_then(|word| word.parse().ok()).ok_or_else(|| {
        let message = format!("`{}` does not say `overlay_kind` `dir` or `patch`", shown(&path));
        Stop::refused(Code::ConfigInvalid, message)
    })
}

/// A file's text with a patch applied.
pub fn apply_patch(system: &dyn System, patch: &PatchFile, before: &[u8]) -> Outcome<Vec<u8>> {
    let fails = |why: &str| {
        let message = format!("the patch `{}` does not fit: {why}", shown(&patch.path));
        let refusal = Refusal::new(Code::OverlayPatchApplyFailed, message);
        Stop::from(refusal.with("patch", shown(&patch.path)).with("file", patch.name.as_str()))
    };
    let bytes = system::read(system, &patch.path, META_LIMIT)
        .map_err(|error| Stop::io("read", &patch.path, &error))?;
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
