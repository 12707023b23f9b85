//! Checks the folders assets are deployed to: they exist, are writable and are not committed by accident. `fix` only adds a line to a
//! `.gitignore`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use crate::error::{PackError, PackResult, shown};
use crate::overlay;
use crate::place::PackEnvironment;
use crate::reply::{PackCommandReply, put_path};
use crate::survey::DeploymentSurvey;
use crate::system::{self, FileAccess, FileSystem, PathStatus, WriteSource};
use crate::targets::{ExtraFiles, TargetRoot};

/// The line that keeps manifests out of commits.
pub(crate) const IGNORED: &str = ".agentpack.manifest*.json";

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RepairMode {
    #[default]
    Look,
    Fix,
}

/// The answer of `doctor`.
pub fn doctor(
    place: &PackEnvironment,
    survey: &DeploymentSurvey,
    mend: RepairMode,
    system: &dyn FileSystem,
) -> PackResult<PackCommandReply> {
    let mut warnings = survey.warnings.clone();
    let mut reports = Vec::new();
    let mut repositories: Vec<PathBuf> = Vec::new();
    for root in &survey.desired.roots {
        reports.push(report(root, system)?);
        repositories
            .extend(root.path.ancestors().find(|folder| folder.join(".git").exists()).map(Path::to_path_buf));
    }
    repositories.sort();
    repositories.dedup();
    let mut fixes = Vec::new();
    let mut needs_fix = false;
    for repository in repositories {
        let path = repository.join(".gitignore");
        let bytes = system::read_if_there(system, &path, 16 * 1024 * 1024)
            .map_err(|error| PackError::io("read", &path, &error))?;
        let mut text = String::from_utf8_lossy(&bytes.unwrap_or_default()).into_owned();
        let ignored = text.lines().any(|line| line.trim().trim_start_matches('/') == IGNORED);
        needs_fix |= !ignored;
        if !ignored && mend == RepairMode::Look {
            warnings.push(format!(
                "git in `{}` does not ignore `{IGNORED}`; `doctor --fix` adds the line",
                shown(&repository)
            ));
        }
        if mend == RepairMode::Fix && !ignored {
            if !text.is_empty() && !text.ends_with('\n') {
                text.push('\n');
            }
            text.push_str(&format!("{IGNORED}\n"));
            system::write_whole(system, &path, text.as_bytes())
                .map_err(|error| PackError::io("write", &path, &error))?;
            let mut fix = Map::new();
            put_path(&mut fix, "repo_root", &repository);
            put_path(&mut fix, "gitignore_path", &path);
            fix.insert("updated".into(), true.into());
            fixes.push(Value::Object(fix));
        }
    }
    warnings.extend(overlay::drift_warnings(place, &survey.project, system)?);
    let mut actions: BTreeSet<String> = BTreeSet::new();
    if needs_fix && mend == RepairMode::Look {
        actions.insert(format!("{} doctor --fix --yes --json", survey.command_prefix()));
    }
    let folders = reports.iter().filter_map(|report| report.get("suggestion").and_then(Value::as_str));
    actions.extend(folders.filter_map(|suggestion| Some(suggestion.split_once(": ")?.1.to_owned())));
    Ok(PackCommandReply::default()
        .with("machine_id", place.machine.as_str())
        .with("roots", reports)
        .with("gitignore_fixes", fixes)
        .with("next_actions", actions.into_iter().collect::<Vec<_>>())
        .warn(warnings))
}

fn report(root: &TargetRoot, system: &dyn FileSystem) -> PackResult<Value> {
    let found = system.path_status(&root.path).map_err(|error| PackError::io("read", &root.path, &error))?;
    let writable = found == PathStatus::Folder && is_writable(&root.path, system);
    let (issue, suggestion) = match (found, writable) {
        (PathStatus::Folder, true) => (None, None),
        (PathStatus::Folder, false) => (Some("not_writable"), Some("make it writable for you".to_owned())),
        (PathStatus::Missing, _) => {
            (Some("missing"), Some(format!("create directory: mkdir -p {}", shown(&root.path))))
        }
        (PathStatus::File(_) | PathStatus::Link | PathStatus::Other, _) => {
            (Some("not_a_directory"), Some("move away what is there".to_owned()))
        }
    };
    let mut report = Map::new();
    report.insert("target".into(), root.target.as_str().into());
    put_path(&mut report, "root", &root.path);
    report.insert("exists".into(), (found != PathStatus::Missing).into());
    report.insert("writable".into(), writable.into());
    report.insert("scan_extras".into(), (root.extras == ExtraFiles::Reported).into());
    report.insert("issues".into(), issue.into_iter().map(Value::from).collect());
    report.insert("suggestion".into(), suggestion.into());
    Ok(Value::Object(report))
}

/// Only writing tells: permissions, mounts and quotas all have their say.
fn is_writable(folder: &Path, system: &dyn FileSystem) -> bool {
    let probe = folder.join(format!(".agentpack-probe-{}", uuid::Uuid::new_v4().simple()));
    let wrote = system.write_new(&probe, WriteSource::Bytes(b""), FileAccess::Plain).is_ok();
    wrote && system.remove(&probe).is_ok()
}
