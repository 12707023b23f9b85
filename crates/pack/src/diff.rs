//! Diffs of a plan, line by line, for people and programs. Leaves out large and binary files, and says so.

use serde_json::{Map, Value};

use crate::error::{PackError, PackResult, shown};
use crate::plan::{FileChange, FileOp};
use crate::reply::put_path;
use crate::survey::DeploymentSurvey;
use crate::system::{self, FileSystem};

/// The largest file that is compared line by line.
pub const LIMIT: u64 = 100 * 1024;

#[derive(Clone, Debug)]
pub struct FileDiff<'a> {
    pub change: &'a FileChange,
    pub root: std::path::PathBuf,
    /// The lines, unless there are too many or they are none.
    pub text: DiffBody,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DiffBody {
    Unified(String),
    /// Longer than [`LIMIT`].
    TooLong,
    /// Not UTF-8 text.
    Binary,
}

pub fn diffs<'a>(survey: &'a DeploymentSurvey, system: &dyn FileSystem) -> PackResult<Vec<FileDiff<'a>>> {
    survey.plan.changes.iter().map(|change| diff(survey, change, system)).collect()
}

pub fn diff<'a>(
    survey: &DeploymentSurvey,
    change: &'a FileChange,
    system: &dyn FileSystem,
) -> PackResult<FileDiff<'a>> {
    let root = survey.desired.root_of(change.target, &change.path);
    let root = root.map_or_else(|| change.path.clone(), |root| root.path.clone());
    let io = |error: std::io::Error| {
        if error.kind() == std::io::ErrorKind::FileTooLarge {
            None
        } else {
            Some(PackError::io("read", &change.path, &error))
        }
    };
    let before = match change.before {
        None => Ok(Vec::new()),
        Some(_) => system::read(system, &change.path, LIMIT),
    };
    let output = survey.desired.outputs.get(&crate::desired_state::key(change.target, &change.path));
    let after = match output.filter(|_| change.op != FileOp::Delete) {
        None => Ok(Vec::new()),
        Some(output) => output.content.bytes(system, LIMIT),
    };
    let text = match (before, after) {
        (Ok(before), Ok(after)) => {
            let name = shown(change.path.strip_prefix(&root).unwrap_or(&change.path));
            lines(&name, change.op, before, after)
        }
        (Err(error), _) | (_, Err(error)) => match io(error) {
            None => DiffBody::TooLong,
            Some(stop) => return Err(stop),
        },
    };
    Ok(FileDiff { change, root, text })
}

/// The lines between two contents under a name; no name on a side where nothing is.
pub fn lines(name: &str, op: FileOp, before: Vec<u8>, after: Vec<u8>) -> DiffBody {
    if [&before, &after].iter().any(|bytes| bytes.len() as u64 > LIMIT) {
        return DiffBody::TooLong;
    }
    let (Ok(before), Ok(after)) = (String::from_utf8(before), String::from_utf8(after)) else {
        return DiffBody::Binary;
    };
    if before.contains('\0') || after.contains('\0') {
        return DiffBody::Binary;
    }
    let side =
        |prefix: &str, there: bool| if there { format!("{prefix}/{name}") } else { "/dev/null".to_owned() };
    let mut options = diffy::DiffOptions::new();
    options.set_original_filename(side("a", op != FileOp::Create));
    options.set_modified_filename(side("b", op != FileOp::Delete));
    DiffBody::Unified(options.create_patch(&before, &after).to_string())
}

/// `files[]` as programs read it, with warnings for what is left out.
pub(crate) fn files_value(diffs: &[FileDiff<'_>]) -> (Value, Vec<String>) {
    let mut warnings = Vec::new();
    let files = diffs.iter().map(|diff| {
        let change = diff.change;
        let mut file = Map::new();
        file.insert("target".into(), change.target.as_str().into());
        put_path(&mut file, "root", &diff.root);
        put_path(&mut file, "path", change.path.strip_prefix(&diff.root).unwrap_or(&change.path));
        file.insert("op".into(), change.op.as_str().into());
        for (name, digest) in [("before_hash", change.before), ("after_hash", change.after)] {
            file.insert(name.into(), digest.map_or(Value::Null, |digest| format!("sha256:{digest}").into()));
        }
        match &diff.text {
            DiffBody::Unified(text) => {
                file.insert("unified".into(), text.as_str().into());
            }
            DiffBody::TooLong => warnings.push(format!(
                "`{}` is longer than {} KiB: its diff is left out",
                shown(&change.path),
                LIMIT / 1024
            )),
            DiffBody::Binary => {
                warnings.push(format!("`{}` is not UTF-8 text: its diff is left out", shown(&change.path)))
            }
        }
        Value::Object(file)
    });
    let files = files.collect();
    (files, warnings)
}
