//! A look at the places things are deployed to: there, writable, and not committed by accident. `fix` only adds a line to a
//! `.gitignore`.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use crate::place::Place;
use crate::reply::{Reply, put_path};
use crate::stop::{Outcome, Stop, shown};
use crate::survey::Survey;
use crate::system::{self, Access, Body, Found, System};
use crate::targets::{Extras, Root};

/// The line that keeps manifests out of commits.
pub const IGNORED: &str = ".agentpack.manifest*.json";

/// Whether what can be mended is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mend {
    /// Only look.
    #[default]
    Look,
    /// Mend it.
    Fix,
}

/// The answer of `doctor`.
pub fn doctor(place: &Place, survey: &Survey, mend: Mend, system: &dyn System) -> Outcome<Reply> {
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
    for repository in repositories {
        let path = repository.join(".gitignore");
        let bytes = system::read_if_there(system, &path, 16 * 1024 * 1024)
            .map_err(|error| Stop::io("read", &path, &error))?;
        let mut text = String::from_utf8_lossy(&bytes.unwrap_or_default()).into_owned();
        let ignored = text.lines().any(|line| line.trim().trim_start_matches('/') == IGNORED);
        if !ignored && mend == Mend::Look {
            warnings.push(format!(
                "git in `{}` does not ignore `{IGNORED}`; `doctor --fix` adds the line",
                shown(&repository)
            ));
        }
        if mend == Mend::Fix {
            if !ignored {
                if !text.is_empty() && !text.ends_with('\n') {
                    text.push('\n');
                }
                text.push_str(&format!("{IGNORED}\n"));
                system::write_whole(system, &path, text.as_bytes())
                    .map_err(|error| Stop::io("write", &path, &error))?;
            }
            let mut fix = Map::new();
            put_path(&mut fix, "repo_root", &repository);
            put_path(&mut fix, "gitignore_path", &path);
            fix.insert("updated".into(), (!ignored).into());
            fixes.push(Value::Object(fix));
        }
    }
    let mut reply = Reply::default().with("machine_id", place.machine.as_str()).with("roots", reports);
    if mend == Mend::Fix {
        reply = reply.with("gitignore_fixes", fixes);
    }
    Ok(reply.warn(warnings))
}

fn report(root: &Root, system: &dyn System) -> Outcome<Value> {
    let found = system.look(&root.path).map_err(|error| Stop::io("read", &root.path, &error))?;
    let writable = found == Found::Folder && is_writable(&root.path, system);
    let (issue, suggestion) = match (found, writable) {
        (Found::Folder, true) => (None, None),
        (Found::Folder, false) => (Some("not_writable"), Some("make it writable for you".to_owned())),
        (Found::Missing, _) => (Some("missing"), Some(format!("mkdir -p {}", shown(&root.path)))),
        (Found::File(_) | Found::Link | Found::Other, _) => {
            (Some("not_a_directory"), Some("move away what is there".to_owned()))
        }
    };
    let mut report = Map::new();
    report.insert("target".into(), root.target.as_str().into());
    put_path(&mut report, "root", &root.path);
    report.insert("exists".into(), (found != Found::Missing).into());
    report.insert("writable".into(), writable.into());
    report.insert("scan_extras".into(), (root.extras == Extras::Reported).into());
    report.insert("issues".into(), issue.into_iter().map(Value::from).collect());
    if let Some(suggestion) = suggestion {
        report.insert("suggestion".into(), suggestion.into());
    }
    Ok(Value::Object(report))
}

/// Only writing tells: permissions, mounts and quotas all have their say.
fn is_writable(folder: &Path, system: &dyn System) -> bool {
    let probe = folder.join(format!(".agentpack-probe-{}", uuid::Uuid::new_v4().simple()));
    let wrote = system.write_new(&probe, Body::Bytes(b""), Access::Plain).is_ok();
    wrote && system.remove(&probe).is_ok()
}
