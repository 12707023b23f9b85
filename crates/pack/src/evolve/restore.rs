//! Restoring: creates deployed files that are missing. Overwrites nothing; writes neither snapshot nor manifest.

use std::io;
use std::path::PathBuf;

use countersign_policy::digest::Digest;
use serde_json::{Map, Value, json};

use crate::actual_state::{CheckedFolders, no_links};
use crate::desired_state::key;
use crate::error::{PackError, PackResult};
use crate::manifest::Target;
use crate::plan::FileOp;
use crate::render::FileContent;
use crate::reply::{PackCommandReply, put_path};
use crate::survey::DeploymentSurvey;
use crate::system::{self, FileSystem, PathStatus, WriteSource};

/// A file that should be there and is not.
#[derive(Clone, Debug)]
pub struct MissingFile {
    pub target: Target,
    pub path: PathBuf,
    pub module_ids: Vec<String>,
    pub after: Digest,
}

/// The files that should be there and are not.
pub fn missing(survey: &DeploymentSurvey, module_id: Option<&str>) -> Vec<MissingFile> {
    let creates = survey.plan.changes.iter().filter(|change| change.op == FileOp::Create);
    creates
        .filter_map(|change| {
            let output = survey.desired.outputs.get(&key(change.target, &change.path))?;
            let module_ids = output.module_ids.clone();
            let meant = module_id.is_none_or(|only| module_ids.iter().any(|id| id == only));
            meant.then_some(MissingFile {
                target: change.target,
                path: change.path.clone(),
                module_ids,
                after: output.digest,
            })
        })
        .collect()
}

/// Writes them, those that are still missing.
pub fn restore(
    survey: &DeploymentSurvey,
    missing: &[MissingFile],
    module_id: Option<&str>,
    system: &dyn FileSystem,
) -> PackResult<PackCommandReply> {
    let (mut restored, mut unread) = (Vec::new(), 0);
    let mut existing = existing(survey, missing, module_id);
    let mut warnings = Vec::new();
    for file in missing {
        let key = key(file.target, &file.path);
        let (Some(output), Some(root)) =
            (survey.desired.outputs.get(&key), survey.desired.root_of(file.target, &file.path))
        else {
            continue;
        };
        no_links(system, root, &file.path, &mut CheckedFolders::default())?;
        match create(file, &output.content, system) {
            Ok(()) => restored.push(file),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => existing += 1,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                unread += 1;
                warnings.push(format!(
                    "the source of `{}` can't be read: {error}",
                    crate::error::shown(&file.path)
                ));
            }
            Err(error) => return Err(PackError::io("write", &file.path, &error)),
        }
    }
    let reason = if missing.is_empty() { "no_missing" } else { "restored" };
    let files: Vec<Value> = restored.iter().map(|file| value(file)).collect();
    let summary = json!({
        "missing": missing.len(),
        "restored": files.len(),
        "skipped_existing": existing,
        "skipped_read_error": unread,
    });
    Ok(PackCommandReply::default()
        .with("restored", files)
        .with("summary", summary)
        .with("reason", reason)
        .warn(warnings))
}

fn create(file: &MissingFile, content: &FileContent, system: &dyn FileSystem) -> io::Result<()> {
    let folder = file.path.parent().unwrap_or(&file.path);
    system::make_folders(system, folder)?;
    let mut name = std::ffi::OsString::from(".");
    name.push(file.path.file_name().unwrap_or_default());
    name.push(".agentpack-tmp");
    let temporary = folder.join(name);
    if system.path_status(&temporary)? != PathStatus::Missing {
        system.remove(&temporary)?;
    }
    let body = match content {
        FileContent::CopyOf(path, _) => WriteSource::CopyOf(path),
        FileContent::Bytes(bytes) => WriteSource::Bytes(bytes),
    };
    system.write_new(&temporary, body, content.access())?;
    let placed = system.place(&temporary, &file.path);
    if placed.is_err() {
        let _ = system.remove(&temporary);
    }
    placed?;
    system.sync_folder(folder)
}

pub(crate) fn value(file: &MissingFile) -> Value {
    let mut entry = Map::new();
    entry.insert("target".into(), file.target.as_str().into());
    put_path(&mut entry, "path", &file.path);
    entry.insert("module_ids".into(), json!(file.module_ids));
    entry.insert("after_sha256".into(), file.after.hex().into());
    Value::Object(entry)
}

/// The files that should be there and are.
fn existing(survey: &DeploymentSurvey, missing: &[MissingFile], module_id: Option<&str>) -> usize {
    let outputs = survey.desired.outputs.values();
    let meant = |ids: &[String]| module_id.is_none_or(|only| ids.iter().any(|id| id == only));
    outputs.filter(|output| meant(&output.module_ids)).count().saturating_sub(missing.len())
}

/// What restoring would do.
pub fn dry_reply(
    survey: &DeploymentSurvey,
    missing: &[MissingFile],
    module_id: Option<&str>,
) -> PackCommandReply {
    let reason = if missing.is_empty() { "no_missing" } else { "dry_run" };
    let existing = existing(survey, missing, module_id);
    let summary = json!({"missing": missing.len(), "restored": 0, "skipped_existing": existing, "skipped_read_error": 0});
    let files: Vec<Value> = missing.iter().map(value).collect();
    PackCommandReply::default()
        .with("restored", files.clone())
        .with("missing", files)
        .with("summary", summary)
        .with("reason", reason)
}
