//! Restoring: files that should be there and are not come back. Only creates; writes neither snapshot nor manifest.

use std::io;
use std::path::PathBuf;

use countersign_core::digest::Digest;
use serde_json::{Map, Value, json};

use crate::actual::{Checked, no_links};
use crate::desired::key;
use crate::manifest::Target;
use crate::plan::Op;
use crate::render::Content;
use crate::reply::{Reply, put_path};
use crate::stop::{Outcome, Stop};
use crate::survey::Survey;
use crate::system::{self, Body, Found, System};

/// A file that should be there and is not.
#[derive(Clone, Debug)]
pub struct Missing {
    /// For which target.
    pub target: Target,
    /// Which file.
    pub path: PathBuf,
    /// For which modules.
    pub module_ids: Vec<String>,
    /// What will be in it.
    pub after: Digest,
}

/// The files that should be there and are not.
pub fn missing(survey: &Survey, module_id: Option<&str>) -> Vec<Missing> {
    let creates = survey.plan.changes.iter().filter(|change| change.op == Op::Create);
    creates
        .filter_map(|change| {
            let output = survey.desired.outputs.get(&key(change.target, &change.path))?;
            let module_ids = output.module_ids.clone();
            let meant = module_id.is_none_or(|only| module_ids.iter().any(|id| id == only));
            meant.then_some(Missing {
                target: change.target,
                path: change.path.clone(),
                module_ids,
                after: output.digest,
            })
        })
        .collect()
}

/// Writes them, those that are still missing.
pub fn restore(survey: &Survey, missing: &[Missing], system: &dyn System) -> Outcome<Reply> {
    let (mut restored, mut existing, mut unread) = (Vec::new(), 0, 0);
    let mut warnings = Vec::new();
    for file in missing {
        let key = key(file.target, &file.path);
        let (Some(output), Some(root)) =
            (survey.desired.outputs.get(&key), survey.desired.root_of(file.target, &file.path))
        else {
            continue;
        };
        no_links(system, root, &file.path, &mut Checked::default())?;
        match create(file, &output.content, system) {
            Ok(()) => restored.push(file),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => existing += 1,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                unread += 1;
                warnings.push(format!(
                    "the source of `{}` can't be read: {error}",
                    crate::stop::shown(&file.path)
                ));
            }
            Err(error) => return Err(Stop::io("write", &file.path, &error)),
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
    Ok(Reply::default()
        .with("restored", files)
        .with("summary", summary)
        .with("reason", reason)
        .warn(warnings))
}

fn create(file: &Missing, content: &Content, system: &dyn System) -> io::Result<()> {
    let folder = file.path.parent().unwrap_or(&file.path);
    system::make_folders(system, folder)?;
    let mut name = std::ffi::OsString::from(".");
    name.push(file.path.file_name().unwrap_or_default());
    name.push(".agentpack-tmp");
    let temporary = folder.join(name);
    if system.look(&temporary)? != Found::Missing {
        system.remove(&temporary)?;
    }
    let body = match content {
        Content::CopyOf(path, _) => Body::CopyOf(path),
        Content::Bytes(bytes) => Body::Bytes(bytes),
    };
    system.write_new(&temporary, body, content.access())?;
    let placed = system.place(&temporary, &file.path);
    if placed.is_err() {
        let _ = system.remove(&temporary);
    }
    placed?;
    system.sync_folder(folder)
}

/// As programs read it.
pub(crate) fn value(file: &Missing) -> Value {
    let mut entry = Map::new();
    entry.insert("target".into(), file.target.as_str().into());
    put_path(&mut entry, "path", &file.path);
    entry.insert("module_ids".into(), json!(file.module_ids));
    entry.insert("after_sha256".into(), file.after.hex().into());
    Value::Object(entry)
}

/// The answer when nothing is written.
pub fn dry_reply(missing: &[Missing]) -> Reply {
    let reason = if missing.is_empty() { "no_missing" } else { "dry_run" };
    let summary =
        json!({"missing": missing.len(), "restored": 0, "skipped_existing": 0, "skipped_read_error": 0});
    let files: Vec<Value> = missing.iter().map(value).collect();
    Reply::default()
        .with("restored", json!([]))
        .with("missing", files)
        .with("summary", summary)
        .with("reason", reason)
}
