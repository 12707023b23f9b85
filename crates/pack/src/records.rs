//! Target manifests: `.agentpack.manifest.<target>.json` in each root lists our files there. Anybody can write them, so a bad one counts
//! as missing and gives a warning.

use std::path::{Path, PathBuf};

use countersign_policy::digest::Digest;
use serde::{Deserialize, Serialize};

use crate::error::shown;
use crate::manifest::Target;
use crate::place::stays_inside;
use crate::system::{self, FileSystem};
use crate::tree::hides_something;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TargetManifest {
    /// Always 1.
    pub schema_version: u32,
    #[serde(default)]
    pub generated_at: String,
    pub tool: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot_id: Option<String>,
    #[serde(default)]
    pub managed_files: Vec<RecordedFile>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedFile {
    /// From the root, with forward slashes.
    pub path: String,
    pub sha256: String,
    #[serde(default)]
    pub module_ids: Vec<String>,
}

const LIMIT: u64 = 256 * 1024 * 1024;
/// The name manifests had when there was one a folder.
const LEGACY: &str = ".agentpack.manifest.json";

pub fn path_in(root: &Path, target: Target) -> PathBuf {
    root.join(format!(".agentpack.manifest.{target}.json"))
}

/// Whether a name is that of a manifest.
pub(crate) fn is_record(name: &str) -> bool {
    name.starts_with(".agentpack.manifest") && name.ends_with(".json")
}

#[derive(Clone, Debug)]
pub struct FoundRecord {
    pub path: PathBuf,
    pub record: TargetManifest,
}

/// Reads a root's manifest. One that can't be used is none, and a warning says why.
pub(crate) fn read(
    system: &dyn FileSystem,
    root: &Path,
    target: Target,
    warnings: &mut Vec<String>,
) -> Option<FoundRecord> {
    let path = path_in(root, target);
    if let Some(record) = read_one(system, &path, warnings) {
        return Some(FoundRecord { path, record });
    }
    let legacy = root.join(LEGACY);
    let record = read_one(system, &legacy, warnings).filter(|record| record.tool == target.as_str())?;
    warnings.push(format!(
        "`{}` has the old name of a manifest; the next deployment writes `{}`",
        shown(&legacy),
        shown(&path)
    ));
    Some(FoundRecord { path: legacy, record })
}

pub(crate) fn read_one(
    system: &dyn FileSystem,
    path: &Path,
    warnings: &mut Vec<String>,
) -> Option<TargetManifest> {
    let bytes = match system::read_if_there(system, path, LIMIT) {
        Ok(bytes) => bytes?,
        Err(error) => {
            warnings.push(format!("`{}` can't be read and counts as missing: {error}", shown(path)));
            return None;
        }
    };
    let record: TargetManifest = match serde_json::from_slice(&bytes) {
        Ok(record) => record,
        Err(error) => {
            warnings.push(format!("`{}` is not a manifest and counts as missing: {error}", shown(path)));
            return None;
        }
    };
    if record.schema_version != 1 {
        warnings.push(format!(
            "`{}` has version {} and counts as missing",
            shown(path),
            record.schema_version
        ));
        return None;
    }
    Some(record)
}

impl TargetManifest {
    /// The files it may speak for, as paths and digests; entries that lead elsewhere are skipped.
    pub fn files(&self, root: &Path) -> Vec<(PathBuf, Option<Digest>, &RecordedFile)> {
        let mine = self
            .managed_files
            .iter()
            .filter(|file| stays_inside(Path::new(&file.path)) && !hides_something(&file.path));
        mine.map(|file| (root.join(&file.path), file.sha256.parse().ok(), file)).collect()
    }

    pub fn text(&self) -> String {
        // Strings and numbers always have a JSON form.
        serde_json::to_string_pretty(self).unwrap_or_default() + "\n"
    }
}
