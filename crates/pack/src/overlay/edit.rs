//! Creates overlays and rebases them. Stores what an overlay was made from beside it, so that changes of the module can be merged
//! with the overlay's own. Changes only the overlay's folder.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use countersign_policy::refusal::{Code, Refusal};
use serde_json::{Value, json};

use super::{OverlayChanges, OverlayKind, OverlayLayer, PatchFile, apply_patch, folder, read};
use crate::error::{PackError, PackResult, shown};
use crate::lockfile::{self, LockedFile};
use crate::manifest::{Manifest, Module};
use crate::place::{PackEnvironment, Project};
use crate::render::TEXT_LIMIT;
use crate::sources;
use crate::system::{self, FileSystem, PathStatus};
use crate::tree;

/// How much of the module a new overlay starts with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OverlayFill {
    #[default]
    Whole,
    /// None: only what is changed is added.
    Sparse,
    Materialize,
}

/// Whether files that equal the module's stay in the overlay after a rebase.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RebaseSparsity {
    #[default]
    Keep,
    Sparsify,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OverlayEditResult {
    pub folder: PathBuf,
    pub created: bool,
    pub copied: usize,
}

fn io(doing: &'static str, path: &Path) -> impl Fn(std::io::Error) -> PackError {
    move |error| PackError::io(doing, path, &error)
}

/// Makes an overlay, or adds what it lacks.
pub fn edit(
    place: &PackEnvironment,
    project: &Project,
    module: &Module,
    layer: OverlayLayer,
    kind: OverlayKind,
    fill: OverlayFill,
    system: &dyn FileSystem,
) -> PackResult<OverlayEditResult> {
    let folder = folder(place, project, layer, &module.id);
    sources::no_links_below(&place.repo, &folder)?;
    let there = read(system, layer, folder.clone())?;
    let created = there.is_none();
    let lock = sources::lockfile(place)?;
    let origin = sources::origin(place, module, lock.as_ref())?;
    if created {
        let meta = json!({"overlay_kind": kind});
        write_meta(system, &folder, "overlay.json", &meta)?;
        write_text(
            system,
            &folder.join(".agentpack").join("module_id"),
            format!("{}\n", module.id).as_bytes(),
        )?;
        write_baseline(system, &folder, &origin.root, &origin.version)?;
    }
    let fills = match (kind, fill, created) {
        (OverlayKind::Patch, _, _)
        | (OverlayKind::Dir, OverlayFill::Sparse, _)
        | (OverlayKind::Dir, OverlayFill::Whole, false) => false,
        (OverlayKind::Dir, OverlayFill::Whole, true) | (OverlayKind::Dir, OverlayFill::Materialize, _) => {
            true
        }
    };
    let mut copied = 0;
    if kind == OverlayKind::Patch && created {
        let patches = folder.join(".agentpack").join("patches");
        system::make_folders(system, &patches).map_err(io("make", &patches))?;
    }
    for file in if fills { tree::files(system, &origin.root)? } else { Vec::new() } {
        let path = folder.join(&file.name);
        if system.path_status(&path).map_err(io("read", &path))? == PathStatus::Missing {
            let bytes = system::read(system, &file.path, u64::MAX - 1).map_err(io("read", &file.path))?;
            write_text(system, &path, &bytes)?;
            copied += 1;
        }
    }
    Ok(OverlayEditResult { folder, created, copied })
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RebaseResult {
    pub folder: PathBuf,
    /// Files that were brought up to date or merged.
    pub updated: Vec<String>,
    pub deleted: Vec<String>,
    pub unchanged: Vec<String>,
    /// Files with conflicts to resolve by hand.
    pub conflicts: Vec<String>,
}

/// Merges a module's news into an overlay.
pub fn rebase(
    place: &PackEnvironment,
    project: &Project,
    module: &Module,
    layer: OverlayLayer,
    sparsity: RebaseSparsity,
    system: &dyn FileSystem,
) -> PackResult<RebaseResult> {
    let folder = folder(place, project, layer, &module.id);
    sources::no_links_below(&place.repo, &folder)?;
    let overlay = read(system, layer, folder.clone())?.ok_or_else(|| {
        let message = format!("module `{}` has no {layer} overlay", module.id);
        let hint = format!("`agentpack overlay edit {}` makes one", module.id);
        Refusal::new(Code::OverlayNotFound, message).with("overlay_dir", shown(&folder)).with("hint", hint)
    })?;
    let base = OverlayBaseline::read(system, &folder)?;
    let lock = sources::lockfile(place)?;
    let origin = sources::origin(place, module, lock.as_ref())?;
    let upstream: BTreeMap<String, PathBuf> =
        tree::files(system, &origin.root)?.into_iter().map(|file| (file.name, file.path)).collect();
    let mut done = RebaseResult { folder: folder.clone(), ..RebaseResult::default() };
    match overlay.changes {
        OverlayChanges::Files(files) => {
            for file in files {
                let ours = system::read(system, &file.path, TEXT_LIMIT).map_err(io("read", &file.path))?;
                rebase_file(&base, &upstream, &file.name, &file.path, &ours, sparsity, system, &mut done)?;
            }
        }
        OverlayChanges::Patches(patches) => {
            for patch in &patches {
                rebase_patch(&base, &upstream, patch, &folder, system, &mut done)?;
            }
        }
    }
    if !done.conflicts.is_empty() {
        let message =
            format!("overlay and module changed the same lines of `{}`", done.conflicts.join("`, `"));
        let refusal = Refusal::new(Code::OverlayRebaseConflict, message);
        return Err(refusal.with("conflicts", done.conflicts).with("overlay_dir", shown(&folder)).into());
    }
    write_baseline(system, &folder, &origin.root, &origin.version)?;
    Ok(done)
}

/// Overlays whose module has changed since they were made: `overlay rebase` is due.
pub fn drift_warnings(
    place: &PackEnvironment,
    project: &Project,
    system: &dyn FileSystem,
) -> PackResult<Vec<String>> {
    let (manifest, _) = Manifest::load(place)?;
    let lock = sources::lockfile(place).ok().flatten();
    let mut warnings = Vec::new();
    for module in manifest.modules.iter().filter(|module| module.enabled) {
        for layer in OverlayLayer::ALL.iter().copied() {
            let path = folder(place, project, layer, &module.id).join(".agentpack").join("baseline.json");
            let Ok(Some(bytes)) = system::read_if_there(system, &path, super::META_LIMIT) else { continue };
            let baseline: Value = serde_json::from_slice(&bytes).unwrap_or_default();
            // What can't be read here is reported by the commands that need it.
            let Ok(origin) = sources::origin(place, module, lock.as_ref()) else { continue };
            let Ok(files) = lockfile::file_manifest(system, &origin.root) else { continue };
            let now = lockfile::over(&files);
            match baseline.get("upstream_sha256").and_then(Value::as_str) {
                Some(was) if was != now => warnings.push(format!(
                    "overlay drift ({layer}) module {}: the module changed ({was} -> {now}); `overlay rebase` merges",
                    module.id
                )),
                Some(_) | None => {}
            }
        }
    }
    Ok(warnings)
}

fn rebase_file(
    base: &OverlayBaseline,
    upstream: &BTreeMap<String, PathBuf>,
    name: &str,
    path: &Path,
    ours: &[u8],
    sparsity: RebaseSparsity,
    system: &dyn FileSystem,
    done: &mut RebaseResult,
) -> PackResult<()> {
    let theirs = upstream
        .get(name)
        .map(|path| system::read(system, path, TEXT_LIMIT).map_err(io("read", path)))
        .transpose()?;
    let was = base.content(system, name, theirs.as_deref())?;
    let merged = match (&was, &theirs) {
        // The overlay's own file, or one the module has dropped: it stays.
        (_, None) | (None, Some(_)) => ours.to_vec(),
        (Some(was), Some(theirs)) if ours == was.as_slice() => theirs.clone(),
        (Some(was), Some(theirs)) => match merge(was, ours, theirs) {
            Ok(merged) => merged,
            Err(marked) => {
                write_text(system, path, &marked)?;
                done.conflicts.push(name.to_owned());
                return Ok(());
            }
        },
    };
    if sparsity == RebaseSparsity::Sparsify && theirs.as_deref() == Some(merged.as_slice()) {
        system.remove(path).map_err(io("remove", path))?;
        done.deleted.push(name.to_owned());
    } else if merged == ours {
        done.unchanged.push(name.to_owned());
    } else {
        write_text(system, path, &merged)?;
        done.updated.push(name.to_owned());
    }
    Ok(())
}

fn rebase_patch(
    base: &OverlayBaseline,
    upstream: &BTreeMap<String, PathBuf>,
    patch: &PatchFile,
    folder: &Path,
    system: &dyn FileSystem,
    done: &mut RebaseResult,
) -> PackResult<()> {
    let theirs = upstream
        .get(&patch.name)
        .map(|path| system::read(system, path, TEXT_LIMIT).map_err(io("read", path)));
    let theirs = theirs.transpose()?.ok_or_else(|| {
        let message = format!("the module has no file `{}` any more", patch.name);
        PackError::refused(Code::OverlayPatchApplyFailed, message)
    })?;
    let was = base.content(system, &patch.name, Some(&theirs))?.ok_or_else(|| unsupported(&patch.name))?;
    let ours = apply_patch(system, patch, &was)?;
    match merge(&was, &ours, &theirs) {
        Err(marked) => {
            write_text(system, &folder.join(".agentpack").join("conflicts").join(&patch.name), &marked)?;
            done.conflicts.push(patch.name.clone());
        }
        Ok(merged) if merged == theirs => {
            system.remove(&patch.path).map_err(io("remove", &patch.path))?;
            done.deleted.push(patch.name.clone());
        }
        Ok(merged) => {
            let (from, to) = (String::from_utf8_lossy(&theirs), String::from_utf8_lossy(&merged));
            let mut options = diffy::DiffOptions::new();
            options.set_original_filename(format!("a/{}", patch.name));
            options.set_modified_filename(format!("b/{}", patch.name));
            write_text(system, &patch.path, options.create_patch(&from, &to).to_string().as_bytes())?;
            done.updated.push(patch.name.clone());
        }
    }
    Ok(())
}

fn merge(was: &[u8], ours: &[u8], theirs: &[u8]) -> Result<Vec<u8>, Vec<u8>> {
    if was == theirs || ours == theirs {
        return Ok(ours.to_vec());
    }
    diffy::merge_bytes(was, ours, theirs)
}

struct OverlayBaseline {
    folder: PathBuf,
    files: Vec<LockedFile>,
}

impl OverlayBaseline {
    fn read(system: &dyn FileSystem, folder: &Path) -> PackResult<Self> {
        let path = folder.join(".agentpack").join("baseline.json");
        let bytes = system::read_if_there(system, &path, super::META_LIMIT).map_err(io("read", &path))?;
        let bytes = bytes.ok_or_else(|| {
            let message =
                format!("`{}` is missing: what the overlay was made from is not known", shown(&path));
            PackError::refused(Code::OverlayBaselineMissing, message)
        })?;
        let value: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        let files = value.get("file_manifest").or(value.get("files")).cloned().unwrap_or_default();
        let files = serde_json::from_value(files).map_err(|_| {
            let message = format!("`{}` does not list the files the overlay was made from", shown(&path));
            PackError::refused(Code::OverlayBaselineUnsupported, message)
        })?;
        Ok(Self { folder: folder.join(".agentpack").join("base"), files })
    }

    /// The content of a file the overlay was made from; none if the module did not have it.
    fn content(
        &self,
        system: &dyn FileSystem,
        name: &str,
        theirs: Option<&[u8]>,
    ) -> PackResult<Option<Vec<u8>>> {
        let Some(file) = self.files.iter().find(|file| file.path == name) else { return Ok(None) };
        let fits = |bytes: &[u8]| countersign_policy::digest::Digest::plain(bytes).hex() == file.sha256;
        let path = self.folder.join(name);
        let kept = system::read_if_there(system, &path, TEXT_LIMIT).map_err(io("read", &path))?;
        if let Some(kept) = kept.filter(|kept| fits(kept)) {
            return Ok(Some(kept));
        }
        match theirs.filter(|theirs| fits(theirs)) {
            Some(theirs) => Ok(Some(theirs.to_vec())),
            None => Err(unsupported(name)),
        }
    }
}

fn unsupported(name: &str) -> PackError {
    let message = format!("the version of `{name}` that the overlay was made from can't be found any more");
    PackError::refused(Code::OverlayBaselineUnsupported, message)
}

/// Writes what the overlay is made from: digests, and the contents themselves.
fn write_baseline(system: &dyn FileSystem, folder: &Path, root: &Path, version: &str) -> PackResult<()> {
    let files = lockfile::file_manifest(system, root)?;
    for file in tree::files(system, root)? {
        if file.stamp.bytes > TEXT_LIMIT {
            continue;
        }
        let path = folder.join(".agentpack").join("base").join(&file.name);
        let bytes = system::read(system, &file.path, TEXT_LIMIT).map_err(io("read", &file.path))?;
        write_text(system, &path, &bytes)?;
    }
    let meta = json!({
        "version": 1,
        "upstream_version": version,
        "upstream_sha256": lockfile::over(&files),
        "file_manifest": files,
    });
    write_meta(system, folder, "baseline.json", &meta)
}

fn write_meta(system: &dyn FileSystem, folder: &Path, name: &str, value: &Value) -> PackResult<()> {
    write_text(system, &folder.join(".agentpack").join(name), format!("{value:#}\n").as_bytes())
}

fn write_text(system: &dyn FileSystem, path: &Path, bytes: &[u8]) -> PackResult<()> {
    system::write_whole(system, path, bytes).map_err(io("write", path))
}
