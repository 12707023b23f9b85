//! Diffs: what a plan changes, line by line, for people and for programs. Leaves out what is large or no text, and says so.

use serde_json::{Map, Value};

use crate::plan::{Change, Op};
use crate::reply::put_path;
use crate::stop::{Outcome, Stop, shown};
use crate::survey::Survey;
use crate::system::{self, System};

/// The largest file that is compared line by line.
pub const LIMIT: u64 = 100 * 1024;

/// What changes in one file.
#[derive(Clone, Debug)]
pub struct FileDiff<'a> {
    /// The change.
    pub change: &'a Change,
    /// The root the file is below.
    pub root: std::path::PathBuf,
    /// The lines, unless there are too many or they are none.
    pub text: Lines,
}

/// The lines of a diff.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lines {
    /// A unified diff.
    Unified(String),
    /// Longer than [`LIMIT`].
    TooLong,
    /// Not UTF-8 text.
    Binary,
}

/// The diff of every change.
pub fn diffs<'a>(survey: &'a Survey, system: &dyn System) -> Outcome<Vec<FileDiff<'a>>> {
    survey.plan.changes.iter().map(|change| diff(survey, change, system)).collect()
}

/// The diff of one change.
pub fn diff<'a>(survey: &Survey, change: &'a Change, system: &dyn System) -> Outcome<FileDiff<'a>> {
    let root = survey.desired.root_of(change.target, &change.path);
    let root = root.map_or_else(|| change.path.clone(), |root| root.path.clone());
    let io = |error: std::io::Error| {
        if error.kind() == std::io::ErrorKind::FileTooLarge {
            None
        } else {
            Some(Stop::io("read", &change.path, &error))
        }
    };
    let before = match change.before {
        None => Ok(Vec::new()),
        Some(_) => system::read(system, &change.path, LIMIT),
    };
    let output = survey.desired.outputs.get(&crate::desired::key(change.target, &change.path));
    let after = match output.filter(|_| change.op != Op::Delete) {
        None => Ok(Vec::new()),
        Some(output) => output.content.bytes(system, LIMIT),
    };
    let text = match (before, after) {
        (Ok(before), Ok(after)) => {
            let name = shown(change.path.strip_prefix(&root).unwrap_or(&change.path));
            lines(&name, change.op, before, after)
        }
        (Err(error), _) | (_, Err(error)) => match io(error) {
            None => Lines::TooLong,
            Some(stop) => return Err(stop),
        },
    };
    Ok(FileDiff { change, root, text })
}

/// The lines between two contents under a name; no name on a side where nothing is.
pub fn lines(name: &str, op: Op, before: Vec<u8>, after: Vec<u8>) -> Lines {
    if [&before, &after].iter().any(|bytes| bytes.len() as u64 > LIMIT) {
        return Lines::TooLong;
    }
    let (Ok(before), Ok(after)) = (String::from_utf8(before), String::from_utf8(after)) else {
        return Lines::Binary;
    };
    if before.contains('\0') || after.contains('\0') {
        return Lines::Binary;
    }
    let side =
        |prefix: &str, there: bool| if there { format!("{prefix}/{name}") } else { "/dev/null".to_owned() };
    let mut options = diffy::DiffOptions::new();
    options.set_original_filename(side("a", op != Op::Create));
    options.set_modified_filename(side("b", op != Op::Delete));
    Lines::Unified(options.create_patch(&before, &after).to_string())
}

/// `files[]` as programs read it, with warnings for what is left out.
pub fn files_value(diffs: &[FileDiff<'_>]) -> (Value, Vec<String>) {
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
            Lines::Unified(text) => {
                file.insert("unified".into(), text.as_str().into());
            }
            Lines::TooLong => warnings.push(format!(
                "`{}` is longer than {} KiB: its diff is left out",
                shown(&change.path),
                LIMIT / 1024
            )),
            Lines::Binary => {
                warnings.push(format!("`{}` is not UTF-8 text: its diff is left out", shown(&change.path)))
            }
        }
        Value::Object(file)
    });
    let files = files.collect();
    (files, warnings)
}
