//! The configuration's file, changed where it has to be and nowhere else, after showing what changes. A change that would not be a
//! good configuration is not written.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use countersign_core::config::{self, Source};
use countersign_core::refusal::{Code, NextAction, Refusal};
use toml_edit::DocumentMut;

use crate::answer::{Answer, Outcome, Refused, Trouble};
use crate::config_file::{self, ConfigFiles};
use crate::line_ends::with_line_ends;
use crate::output::{Format, GOOD, Voice, paint, visible};
use crate::person::{ask, diff};
use crate::private_file;

/// Where a configuration is written when there is none.
pub(crate) const USUAL: &str = "countersign.toml";

/// The files the command line leads to, or a new one here.
pub(crate) fn files(given: &[PathBuf]) -> Result<ConfigFiles, Trouble> {
    let found = config_file::find(given)?;
    Ok(found.unwrap_or_else(|| ConfigFiles { sources: vec![Source::new(USUAL, "")], folder: PathBuf::new() }))
}

/// The names of the upstreams there are.
pub(crate) fn names(files: &ConfigFiles) -> Result<Vec<String>, Trouble> {
    Ok(files.parse()?.upstreams.iter().map(|one| one.id.to_string()).collect())
}

/// One file before and after.
pub(crate) struct Change {
    path: PathBuf,
    before: String,
    after: String,
}

/// Edits the file at this position and checks that the whole is still a configuration.
pub(crate) fn change(
    files: &ConfigFiles,
    at: usize,
    edit: impl FnOnce(&mut DocumentMut),
) -> Result<Change, Trouble> {
    let source = files.sources.get(at).ok_or_else(none)?;
    let mut document: DocumentMut = source.text.parse().map_err(|error: toml_edit::TomlError| {
        let refusal = Refusal::new(Code::ConfigInvalid, error.message().to_owned());
        Trouble::refused(refusal, "countersign policy check")
    })?;
    edit(&mut document);
    checked(files, at, with_line_ends(&source.text, &document.to_string()))
}

/// The file at this position with a new text, if the whole is still a configuration.
pub(crate) fn checked(files: &ConfigFiles, at: usize, after: String) -> Result<Change, Trouble> {
    let Some(source) = files.sources.get(at) else { return Err(none()) };
    let mut sources = files.sources.clone();
    if let Some(edited) = sources.get_mut(at) {
        *edited = Source::new(source.name.clone(), after.clone());
    }
    config::parse(&sources).map_err(|found| match files.invalid(&found) {
        Trouble::Refused(mut refused) => {
            refused.next = Some("nothing was written; mend what was typed".into());
            Trouble::Refused(refused)
        }
        other @ (Trouble::Usage(_) | Trouble::Output(_) | Trouble::Failed(_)) => other,
    })?;
    Ok(Change { path: PathBuf::from(&source.name), before: source.text.to_string(), after })
}

fn none() -> Trouble {
    Trouble::refused(Refusal::new(Code::ConfigInvalid, "there is no file to edit"), "name one: --config PATH")
}

impl Change {
    /// The difference, for a person.
    pub(crate) fn shown(&self) -> String {
        let path = self.path.display().to_string();
        diff::unified((&path, &self.before), (&path, &self.after))
    }

    /// Shows the difference, asks, writes.
    pub(crate) fn settle(
        &self,
        files: &ConfigFiles,
        yes: bool,
        voice: Voice,
        done: &str,
        name: &str,
    ) -> Outcome {
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
            return Err(Trouble::refused(refusal, "the same command, and yes"));
        }
        write(&files.folder, &self.path, &self.after).map_err(|error| {
            Trouble::Output(format!("can't write `{path}`: {}", config_file::why(&error)))
        })?;
        let text = format!("{} {}\n", paint(GOOD, done), visible(name));
        Ok(Answer::text(text).with("name", name).with("path", path).with("change", done))
    }
}

/// Writes the whole file aside and then puts it in place: whoever reads sees the old one or the new one. A link stays a link.
pub(crate) fn write(folder: &Path, path: &Path, text: &str) -> io::Result<()> {
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
        Ok(meta) => fs::set_permissions(&aside, meta.permissions()),
        Err(_) => Ok(()),
    };
    let placed = written.and(kept).and_then(|()| fs::rename(&aside, &path));
    if placed.is_err() {
        // What stands aside helps nobody; the error tells more.
        let _ = fs::remove_file(&aside);
    }
    placed
}
