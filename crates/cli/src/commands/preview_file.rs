//! `countersign preview-file`: what a call that writes or moves a file would change, for the `preview` of a rule. Reads the call's
//! arguments as JSON from stdin, and files only below the folders it is given: an agent must not read others by asking for a preview.

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::Value;

use crate::command_result::{Answer, CommandError, CommandResult};
use crate::output::plural;

/// Files and contents beyond this are not compared.
const LARGEST: u64 = 256 << 10;

#[derive(Args, Debug)]
pub(crate) struct PreviewFileArgs {
    /// A folder whose files may be shown; may be given several times
    #[arg(long = "in", value_name = "DIR", required = true)]
    folders: Vec<PathBuf>,
}

pub(crate) fn run(args: &PreviewFileArgs) -> CommandResult {
    let mut text = String::new();
    let read = std::io::stdin().read_to_string(&mut text);
    read.map_err(|error| CommandError::fault("the arguments could not be read", error))?;
    let call: Value = serde_json::from_str(&text).unwrap_or_default();
    let member = |name: &str| call.get(name).and_then(Value::as_str);
    let shown = match (member("path"), member("content"), member("source"), member("destination")) {
        (Some(path), Some(content), _, _) => written(path, content, &args.folders),
        (_, _, Some(source), Some(destination)) => moved(source, destination, &args.folders),
        _ => {
            let message = "the call has neither `path` and `content` nor `source` and `destination`";
            return Err(CommandError::usage("invalid_value", message, "countersign preview-file --in DIR"));
        }
    };
    Ok(Answer::text(shown))
}

/// What is at a path now, as far as it may be looked at.
enum PresentFile {
    Text(String),
    Missing,
    /// Why it is not shown.
    Hidden(&'static str),
}

fn present(path: &str, folders: &[PathBuf]) -> PresentFile {
    let path = Path::new(path);
    // Which file a relative path means is known to the server only.
    if !path.is_absolute() {
        return PresentFile::Hidden("the path is relative");
    }
    // A new file is where its folder is. Links are followed first: they may lead out.
    let real = match (fs::canonicalize(path), path.parent(), path.file_name()) {
        (Ok(real), _, _) => real,
        (Err(_), Some(folder), Some(name)) => match fs::canonicalize(folder) {
            Ok(folder) => folder.join(name),
            Err(_) => return PresentFile::Hidden("its folder is not there"),
        },
        (Err(_), _, _) => return PresentFile::Hidden("it is no path of a file"),
    };
    let is_inside = |folder: &PathBuf| fs::canonicalize(folder).is_ok_and(|folder| real.starts_with(folder));
    if !folders.iter().any(is_inside) {
        return PresentFile::Hidden("it is outside of the folders in the configuration");
    }
    match fs::symlink_metadata(&real) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => PresentFile::Missing,
        Ok(meta) if meta.is_file() && meta.len() <= LARGEST => match fs::read_to_string(&real) {
            Ok(text) => PresentFile::Text(text),
            Err(_) => PresentFile::Hidden("it is no text that can be read"),
        },
        Ok(meta) if meta.is_file() => PresentFile::Hidden("it is too large to be compared"),
        Ok(_) | Err(_) => PresentFile::Hidden("it is no file"),
    }
}

fn written(path: &str, content: &str, folders: &[PathBuf]) -> String {
    let lines = plural(content.lines().count(), "line");
    let is_large = content.len() as u64 > LARGEST;
    match present(path, folders) {
        PresentFile::Text(now) if now == content => format!("{path} stays as it is\n"),
        PresentFile::Text(now) if !is_large => difference((path, &now), (path, content)),
        PresentFile::Missing if !is_large => difference(("/dev/null", ""), (path, content)),
        PresentFile::Text(_) | PresentFile::Missing => {
            format!("writes {lines} to {path}; not compared: the content is too large\n")
        }
        PresentFile::Hidden(why) => {
            format!("writes {lines} to {path}; what is there now is not shown: {why}\n")
        }
    }
}

fn moved(source: &str, destination: &str, folders: &[PathBuf]) -> String {
    let first = match present(source, folders) {
        PresentFile::Missing => format!("there is nothing at {source}\n"),
        PresentFile::Text(_) | PresentFile::Hidden(_) => format!("moves {source}\n   to {destination}\n"),
    };
    let second = match present(destination, folders) {
        PresentFile::Missing => String::new(),
        PresentFile::Text(now) => {
            format!("replaces what is there:\n{}", difference((destination, &now), ("/dev/null", "")))
        }
        PresentFile::Hidden(why) => format!("what is there now is not shown: {why}\n"),
    };
    format!("{first}{second}")
}

fn difference(before: (&str, &str), after: (&str, &str)) -> String {
    let mut options = diffy::DiffOptions::new();
    options.set_original_filename(before.0.to_owned()).set_modified_filename(after.0.to_owned());
    options.create_patch(before.1, after.1).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_is_shown_as_a_difference_against_the_file() {
        let room = tempfile::tempdir().unwrap();
        let folders = [room.path().to_owned()];
        let path = room.path().join("cart.js").display().to_string();
        let new = written(&path, "a\nb\n", &folders);
        assert!(new.starts_with("--- /dev/null\n+++ ") && new.contains("\n+a\n+b\n"), "{new}");
        fs::write(&path, "a\nold\n").unwrap();
        let changed = written(&path, "a\nnew\n", &folders);
        assert!(changed.contains("\n a\n-old\n+new\n"), "{changed}");
        assert_eq!(written(&path, "a\nold\n", &folders), format!("{path} stays as it is\n"));
        let other = room.path().join("other.js").display().to_string();
        assert_eq!(moved(&path, &other, &folders), format!("moves {path}\n   to {other}\n"));
        fs::write(&other, "mine\n").unwrap();
        assert!(moved(&path, &other, &folders).contains("replaces what is there:\n"), "{other}");
    }

    #[test]
    fn attack_a_preview_reads_nothing_outside_of_its_folders() {
        let room = tempfile::tempdir().unwrap();
        let (inside, outside) = (room.path().join("in"), room.path().join("secret.txt"));
        fs::create_dir(&inside).unwrap();
        fs::write(&outside, "hunter2\n").unwrap();
        #[cfg(unix)]
        std::os::unix::fs::symlink(&outside, inside.join("link")).unwrap();
        let folders = [inside.clone()];
        for path in [
            outside.display().to_string(),
            inside.join("../secret.txt").display().to_string(),
            inside.join("link").display().to_string(),
            "secret.txt".to_owned(),
            "~/secret.txt".to_owned(),
            inside.display().to_string(),
        ] {
            for shown in [written(&path, "x\n", &folders), moved("/nowhere", &path, &folders)] {
                assert!(!shown.contains("hunter2") && shown.contains("is not shown"), "{path}: {shown}");
            }
        }
    }
}
