//! Target manifests: `.agentpack.manifest.<target>.json` in each root says which files there are ours. Read with care, since
//! anybody can write them; a bad one counts as missing and is pointed at.

use std::path::{Path, PathBuf};

use countersign_core::digest::Digest;
use serde::{Deserialize, Serialize};

use crate::manifest::Target;
use crate::place::stays_inside;
use crate::stop::shown;
use crate::system::{self, System};
use crate::tree::is_hidden;

/// A target manifest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Always 1.
    pub schema_version: u32,
    /// When it was written.
    #[serde(default)]
    pub generated_at: String,
    /// The target.
    pub tool: String,
    /// The deployment that wrote it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot_id: Option<String>,
    /// The files that are ours.
    #[serde(default)]
    pub managed_files: Vec<RecordedFile>,
}

/// A file that is ours.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedFile {
    /// From the root, with forward slashes.
    pub path: String,
    /// As it was deployed.
    pub sha256: String,
    /// For which modules.
    #[serde(default)]
    pub module_ids: Vec<String>,
}

/// The largest manifest that is read.
const LIMIT: u64 = 256 * 1024 * 1024;
/// The name manifests had when there was one a folder.
const LEGACY: &str = ".agentpack.manifest.json";

/// A target's manifest in a root.
pub fn path_in(root: &Path, target: Target) -> PathBuf {
    root.join(format!(".agentpack.manifest.{target}.json"))
}

/// Whether a name is that of a manifest.
pub fn is_record(name: &str) -> bool {
    name.starts_with(".agentpack.manifest") && name.ends_with(".json")
}

/// What was found in a root.
#[derive(Clone, Debug)]
pub struct FoundRecord {
    /// Where.
    pub path: PathBuf,
    /// What it says.
    pub record: Record,
}

/// Reads a root's manifest. One that can't be used is none, and a warning says why.
pub fn read(
    system: &dyn System,
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

fn read_one(system: &dyn System, path: &Path, warnings: &mut Vec<String>) -> Option<Record> {
    let bytes = match system::read_if_there(system, path, LIMIT) {
        Ok(bytes) => bytes?,
        Err(error) => {
            warnings.push(format!("`{}` can't be read and counts as missing: {error}", shown(path)));
            return None;
        }
    };
    let record: Record = match serde_json::from_slice(&bytes) {
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

impl Record {
    /// The files it may speak for, as paths and digests; entries that lead elsewhere are skipped.
    pub fn files(&self, root: &Path) -> Vec<(PathBuf, Option<Digest>, &RecordedFile)> {
        let mine = self
            .managed_files
            .iter()
            .filter(|file| stays_inside(Path::new(&file.path)) && !file.path.chars().any(is_hidden));
        mine.map(|file| (root.join(&file.path), file.sha256.parse().ok(), file)).collect()
    }

    /// Its text.
    pub fn text(&self) -> String {
        // Strings and numbers always have a JSON form.
        serde_json::to_string_pretty(self).unwrap_or_default() + "\n"
    }
}
