//! The configuration's file, changed where it has to be and nowhere else, after showing what changes. A change that would not be a
//! good configuration is not written.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use countersign_config::{self as config, Source};
use countersign_host_config::with_line_ends;
use countersign_policy::refusal::{Code, NextAction, Refusal};
use toml_edit::DocumentMut;

use crate::command_result::{Answer, CommandError, CommandResult, Refused};
use crate::config_file::{self, ConfigFiles};
use crate::output::{Format, GOOD, OutputSettings, paint, visible};
use crate::person::{ask, diff};
use crate::private_file;

/// Where a configuration is written when there is none.
pub(crate) const USUAL: &str = "countersign.toml";

/// The files the command line leads to, or a new one here.
pub(crate) fn files(given: &[PathBuf]) -> Result<ConfigFiles, CommandError> {
    let found = config_file::find(given)?;
    Ok(found.unwrap_or_else(|| ConfigFiles { sources: vec![Source::new(USUAL, "")], folder: PathBuf::new() }))
}

/// The names of the upstreams there are.
pub(crate) fn names(files: &ConfigFiles) -> Result<Vec<String>, CommandError> {
    Ok(files.parse()?.upstreams.iter().map(|one| one.id.to_string()).collect())
}

pub(crate) struct ConfigFileChange {
    path: PathBuf,
    before: String,
    after: String,
}

/// Edits the file at this position and checks that the whole is still a configuration.
pub(crate) fn change(
    files: &ConfigFiles,
    at: usize,
    edit: impl FnOnce(&mut DocumentMut),
) -> Result<ConfigFileChange, CommandError> {
    let source = files.sources.get(at).ok_or_else(none)?;
    let mut document: DocumentMut = source.text.parse().map_err(|error: toml_edit::TomlError| {
        let refusal = Refusal::new(Code::ConfigInvalid, error.message().to_owned());
        CommandError::refused(refusal, "countersign policy check")
    })?;
    edit(&mut document);
    checked(files, at, with_line_ends(&source.text, &document.to_string()))
}

/// The file at this position with a new text, if the whole is still a configuration.
pub(crate) fn checked(
    files: &ConfigFiles,
    at: usize,
    after: String,
) -> Result<ConfigFileChange, CommandError> {
    let Some(source) = files.sources.get(at) else { return Err(none()) };
    let mut sources = files.sources.clone();
    if let Some(edited) = sources.get_mut(at) {
        *edited = Source::new(source.name.clone(), after.clone());
    }
    config::parse(&sources).map_err(|found| match files.invalid(&found) {
        CommandError::Refused(mut refused) => {
            refused.next = Some("nothing was written; mend what was typed".into());
            CommandError::Refused(refused)
        }
        other @ (CommandError::Usage(_)
        | CommandError::Output(_)
        | CommandError::Fault(_)
        | CommandError::Failed(_)) => other,
    })?;
    Ok(ConfigFileChange { path: PathBuf::from(&source.name), before: source.text.to_string(), after })
}

fn none() -> CommandError {
    CommandError::refused(
        Refusal::new(Code::ConfigInvalid, "there is no file to edit"),
        "name one: --config PATH",
    )
}

impl ConfigFileChange {
    pub(crate) fn shown(&self) -> String {
        let path = self.path.display().to_string();
        diff::unified((&path, &self.before), (&path, &self.after))
    }

    pub(crate) fn settle(
        &self,
        files: &ConfigFiles,
        yes: bool,
        voice: OutputSettings,
        done: &str,
        name: &str,
    ) -> CommandResult {
        let path = self.path.display().to_string();
        let differs = self.shown();
        let asks = !yes && ask::can_ask(voice);
        if !yes && !asks {
            let refusal =
                Refusal::new(Code::ConfirmRequired, "nobody can be asked here: this is no terminal")
                    .next(&[NextAction::RetryWithYes]);
            let mut refused = Refused::from(refusal);
            refused.findings = differs;
            refused.next = Some("the same command with --yes".into());
            return Err(refused.into());
        }
        if voice.format == Format::Text {
            voice.tell(&format!("{differs}\n"));
        }
        if asks && !ask::yes(voice, &format!("Write this to {}?", visible(&path))) {
            let refusal = Refusal::new(Code::ConfirmRequired, format!("`{path}` was left as it is"));
            return Err(CommandError::refused(refusal, "the same command, and yes"));
        }
        write(&files.folder, &self.path, &self.after).map_err(|error| {
            CommandError::Output(format!("can't write `{path}`: {}", config_file::why(&error)))
        })?;
        let text = format!("{} {}\n", paint(GOOD, done), visible(name));
        Ok(Answer::text(text).with("name", name).with("path", path).with("change", done))
    }
}

/// Which mode a file gets when it is written anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileMode {
    /// The one it had; a new file is this account's alone.
    Kept,
    /// This account's alone, whatever it was: a secret is in it.
    Private,
}

/// Writes the whole file beside the old one and renames it: a reader sees the old one or the new one. A link stays a link.
pub(crate) fn write(folder: &Path, path: &Path, text: &str) -> io::Result<()> {
    write_as(folder, path, text, FileMode::Kept)
}

/// The same, with the mode it shall have.
pub(crate) fn write_as(folder: &Path, path: &Path, text: &str, mode: FileMode) -> io::Result<()> {
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let folder = path.parent().filter(|one| !one.as_os_str().is_empty()).unwrap_or(folder);
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let aside = folder.join(format!(".{name}.{}", std::process::id()));
    // What the old file's mode kept from others must not be readable aside: the mode comes last.
    let written = private_file::write(&aside, text.as_bytes());
    if written.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::AlreadyExists) {
        return written;
    }
    let kept = match fs::metadata(&path) {
        Ok(meta) if mode == FileMode::Kept => fs::set_permissions(&aside, meta.permissions()),
        Ok(_) | Err(_) => Ok(()),
    };
    let placed = written.and(kept).and_then(|()| fs::rename(&aside, &path));
    if placed.is_err() {
        // The temporary file is of no use; the error says more.
        let _ = fs::remove_file(&aside);
    }
    placed
}
