//! `agentpack.lock.json`: the commit and the bytes each module is pinned to. Written so that its diff is readable.

use std::path::Path;

use countersign_policy::digest::Digest;
use countersign_policy::refusal::{Code, Refusal};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::error::{PackError, PackResult, shown};
use crate::manifest::{Manifest, Module, ModuleType};
use crate::place::{LOCKFILE, PackEnvironment};
use crate::sources;
use crate::system::{self, FileSystem, RealFileSystem};
use crate::tree;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Lockfile {
    /// Always 1.
    pub version: u32,
    #[serde(default)]
    pub generated_at: String,
    /// The modules, sorted by id.
    pub modules: Vec<LockedModule>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct LockedModule {
    pub id: String,
    #[serde(rename = "type")]
    pub kind: ModuleType,
    /// Where it came from, with the commit.
    pub resolved_source: Value,
    /// `local`, or the commit.
    pub resolved_version: String,
    /// Over all of its files.
    pub sha256: String,
    pub file_manifest: Vec<LockedFile>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LockedFile {
    /// From the module's root, with forward slashes.
    pub path: String,
    /// Of its content.
    pub sha256: String,
    pub bytes: u64,
}

const MAKE_ANEW: &str = "`agentpack lock` makes the lockfile anew";

/// There is no lockfile, and there has to be one.
pub(crate) fn missing(place: &PackEnvironment) -> PackError {
    let message = format!("there is no `{LOCKFILE}` in `{}`", shown(&place.repo));
    let refusal = Refusal::new(Code::LockfileMissing, message);
    refusal.with("path", shown(&place.repo.join(LOCKFILE))).with("hint", "`agentpack update` makes it").into()
}

impl Lockfile {
    pub(crate) fn parse(bytes: &[u8], path: &Path) -> PackResult<Self> {
        let invalid = |why: String| {
            let refusal = Refusal::new(Code::LockfileInvalid, format!("`{}`: {why}", shown(path)));
            PackError::from(refusal.with("path", shown(path)).with("error", why).with("hint", MAKE_ANEW))
        };
        let loose: Value = serde_json::from_slice(bytes).map_err(|error| invalid(error.to_string()))?;
        match loose.get("version").and_then(Value::as_u64) {
            Some(1) => serde_json::from_value(loose).map_err(|error| invalid(error.to_string())),
            Some(other) => {
                let message = format!("`{}` has version {other}; this program reads version 1", shown(path));
                let refusal = Refusal::new(Code::LockfileUnsupportedVersion, message);
                let refusal = refusal.with("path", shown(path)).with("version", other);
                Err(refusal.with("supported", vec![1]).with("hint", MAKE_ANEW).into())
            }
            None => Err(invalid("`version` is missing".to_owned())),
        }
    }

    pub(crate) fn module(&self, id: &str) -> Option<&LockedModule> {
        self.modules.iter().find(|locked| locked.id == id)
    }

    pub(crate) fn text(&self) -> PackResult<String> {
        let text = serde_json::to_string_pretty(self)
            .map_err(|error| PackError::broken("write the lockfile", error))?;
        Ok(text + "\n")
    }
}

/// Pins every module of the manifest to what it means now.
pub(crate) fn lock(
    place: &PackEnvironment,
    manifest: &Manifest,
    now: jiff::Timestamp,
) -> PackResult<Lockfile> {
    let mut modules = Vec::new();
    for module in manifest.modules.iter().filter(|module| module.enabled) {
        modules.push(lock_module(place, module)?);
    }
    modules.sort_by(|a, b| a.id.cmp(&b.id));
    Ok(Lockfile { version: 1, generated_at: now.to_string(), modules })
}

/// Pins one module to what it means now.
pub(crate) fn lock_module(place: &PackEnvironment, module: &Module) -> PackResult<LockedModule> {
    let (version, resolved_source) = match (&module.source.git, &module.source.local_path) {
        (Some(git), _) => {
            let commit = sources::resolve(place, git)?;
            let mut source =
                json!({"url": git.url, "commit": commit, "subdir": git.subdir, "shallow": git.shallow});
            if let Some(members) = source.as_object_mut() {
                members.insert("ref".into(), git.reference.as_str().into());
            }
            (commit, json!({"git": source, "local_path": null}))
        }
        (None, local) => {
            let path = local.as_ref().map(|local| local.path.as_str()).unwrap_or_default();
            ("local".to_owned(), json!({"local_path": {"path": path}, "git": null}))
        }
    };
    let pinned = LockedModule {
        id: module.id.clone(),
        kind: module.kind,
        resolved_source,
        resolved_version: version,
        sha256: String::new(),
        file_manifest: Vec::new(),
    };
    let alone = Lockfile { version: 1, generated_at: String::new(), modules: vec![pinned.clone()] };
    let origin = sources::origin(place, module, Some(&alone))?;
    let files = file_manifest(&RealFileSystem, &origin.root)?;
    Ok(LockedModule { sha256: over(&files), file_manifest: files, ..pinned })
}

/// The files of a module with their digests.
pub(crate) fn file_manifest(system: &dyn FileSystem, root: &Path) -> PackResult<Vec<LockedFile>> {
    let files = tree::files(system, root)?;
    files
        .into_iter()
        .map(|file| {
            let digest = system::digest(system, &file.path)
                .map_err(|error| PackError::io("read", &file.path, &error))?;
            Ok(LockedFile { path: file.name, sha256: digest.hex(), bytes: file.stamp.bytes })
        })
        .collect()
}

/// One digest over paths, digests and sizes, in order: the original's, so that each accepts the other's lockfile.
pub(crate) fn over(files: &[LockedFile]) -> String {
    let mut text = String::new();
    for file in files {
        text.push_str(&format!("{}\n{}\n{}\n", file.path, file.sha256, file.bytes));
    }
    Digest::plain(text.as_bytes()).hex()
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FetchedModule {
    pub id: String,
    /// The commit.
    pub commit: String,
}

/// Fetches what the lockfile pins and compares every byte with it.
pub(crate) fn fetch(
    place: &PackEnvironment,
    manifest: &Manifest,
    lock: &Lockfile,
) -> PackResult<Vec<FetchedModule>> {
    let mut fetched = Vec::new();
    for module in manifest.modules.iter().filter(|module| module.enabled && module.source.git.is_some()) {
        let origin = sources::origin(place, module, Some(lock))?;
        let files = file_manifest(&RealFileSystem, &origin.root)?;
        let pinned =
            lock.module(&module.id).map(|locked| locked.file_manifest.as_slice()).unwrap_or_default();
        if files != pinned {
            let message = format!("module `{}`: what was fetched is not what `{LOCKFILE}` pins", module.id);
            let refusal = Refusal::new(Code::LockfileInvalid, message).because("content_mismatch");
            return Err(refusal.with("module_id", module.id.as_str()).into());
        }
        fetched.push(FetchedModule { id: module.id.clone(), commit: origin.version });
    }
    Ok(fetched)
}

impl From<&FetchedModule> for Value {
    fn from(fetched: &FetchedModule) -> Self {
        let mut members = Map::new();
        members.insert("module_id".into(), fetched.id.as_str().into());
        members.insert("commit".into(), fetched.commit.as_str().into());
        Value::Object(members)
    }
}
