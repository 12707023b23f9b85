//! `countersign upstreams add` and `upstreams remove`: the configuration's file, changed where it has to be and nowhere
//! else, after showing what changes. A change that would not be a good configuration is not written.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use clap::Args;
use countersign_core::config::{self, Source};
use countersign_core::redact::Redactor;
use countersign_core::refusal::{Code, NextAction, Refusal};
use toml_edit::{Array, DocumentMut, InlineTable, Item, Table, value};

use super::health::unknown;
use crate::answer::{Answer, Outcome, Refused, Trouble};
use crate::cli::Cli;
use crate::config_file::{self, ConfigFiles};
use crate::output::{Format, GOOD, Voice, paint, visible};
use crate::person::{ask, diff};

/// Shown under the help.
pub(crate) const ADD_EXAMPLES: &str = "Examples:
  countersign upstreams add notes --command npx -- -y notes-server
  countersign upstreams add docs --url https://docs.example.com/mcp --yes";

/// Shown under the help.
pub(crate) const REMOVE_EXAMPLES: &str = "Examples:
  countersign upstreams remove notes --yes";

const USUAL: &str = "countersign.toml";

/// What `upstreams add` takes.
#[derive(Args, Debug)]
pub(crate) struct Add {
    /// Our name of it
    name: String,

    /// The program that is an MCP server on stdio; its arguments follow after `--`
    #[arg(long, value_name = "PROGRAM")]
    command: Option<String>,

    /// The address of an MCP server over HTTP
    #[arg(long, value_name = "URL", conflicts_with = "command")]
    url: Option<String>,

    /// A variable of its environment; `${env:NAME}` stands for one of ours
    #[arg(long, value_name = "NAME=VALUE", requires = "command")]
    env: Vec<String>,

    /// Write without being asked; needed off a terminal
    #[arg(long)]
    yes: bool,

    /// The program's arguments
    #[arg(last = true, value_name = "ARGUMENT")]
    args: Vec<String>,
}

/// What `upstreams remove` takes.
#[derive(Args, Debug)]
pub(crate) struct Remove {
    /// Its name in the configuration
    name: String,

    /// Write without being asked; needed off a terminal
    #[arg(long)]
    yes: bool,
}

/// Adds one.
pub(super) fn add(args: &Add, cli: &Cli, voice: Voice) -> Outcome {
    let files = config_file::find(&cli.config)?
        .unwrap_or_else(|| ConfigFiles { sources: vec![Source::new(USUAL, "")], folder: PathBuf::new() });
    let names = names(&files)?;
    if names.contains(&args.name) {
        let message = format!("there is an upstream `{}` already", visible(&args.name));
        let next = format!("choose another name, or countersign upstreams remove {}", args.name);
        return Err(Trouble::usage("invalid_value", message, next));
    }
    if args.command.is_none() && args.url.is_none() {
        let message = "an upstream needs `--command PROGRAM` or `--url URL`";
        return Err(Trouble::usage("argument_missing", message, "countersign upstreams add --help"));
    }
    let mut written = Table::new();
    if let Some(command) = &args.command {
        written.insert("command", value(command));
    }
    if !args.args.is_empty() {
        written.insert("args", value(args.args.iter().collect::<Array>()));
    }
    if let Some(url) = &args.url {
        written.insert("url", value(url));
    }
    if !args.env.is_empty() {
        written.insert("env", value(variables(&args.env)?));
    }
    let change = change(&files, 0, |document| {
        let all = document.entry("upstreams").or_insert_with(|| {
            let mut all = Table::new();
            all.set_implicit(true);
            Item::Table(all)
        });
        if let Some(all) = all.as_table_like_mut() {
            all.insert(&args.name, Item::Table(written));
        }
    })?;
    let mut answer = change.settle(&files, args.yes, voice, "added", &args.name)?;
    let plain = Redactor::default();
    let secrets = args.env.iter().chain(&args.args).any(|text| plain.clean_text(text) != *text);
    if secrets {
        answer
            .warnings
            .push("this looks like a secret: write ${env:NAME} or ${keyring:NAME} instead".to_owned());
    }
    Ok(answer)
}

fn variables(pairs: &[String]) -> Result<InlineTable, Trouble> {
    let pair = |text: &String| {
        let (name, value) = text.split_once('=').filter(|(name, _)| !name.is_empty()).ok_or_else(|| {
            let message = format!("`{}` does not fit `--env`: write NAME=VALUE", visible(text));
            Trouble::usage("invalid_value", message, "countersign upstreams add --help")
        })?;
        Ok((name.to_owned(), value.to_owned()))
    };
    pairs.iter().map(pair).collect::<Result<Vec<_>, Trouble>>().map(|all| all.into_iter().collect())
}

/// Removes one.
pub(super) fn remove(args: &Remove, cli: &Cli, voice: Voice) -> Outcome {
    let files = config_file::require(&cli.config)?;
    let holds = |source: &Source| {
        let document: Option<DocumentMut> = source.text.parse().ok();
        document.is_some_and(|document| {
            document.get("upstreams").is_some_and(|all| all.get(&args.name).is_some())
        })
    };
    let Some(at) = files.sources.iter().position(holds) else {
        return Err(unknown(&args.name, &names(&files)?));
    };
    let change = change(&files, at, |document| {
        if let Some(all) = document.get_mut("upstreams").and_then(Item::as_table_like_mut) {
            all.remove(&args.name);
        }
    })?;
    change.settle(&files, args.yes, voice, "removed", &args.name)
}

fn names(files: &ConfigFiles) -> Result<Vec<String>, Trouble> {
    Ok(files.parse()?.upstreams.iter().map(|one| one.id.to_string()).collect())
}

/// One file before and after.
struct Change {
    path: PathBuf,
    before: String,
    after: String,
}

/// Edits the file at this position and checks that the whole is still a configuration.
fn change(files: &ConfigFiles, at: usize, edit: impl FnOnce(&mut DocumentMut)) -> Result<Change, Trouble> {
    let none = || {
        Trouble::refused(
            Refusal::new(Code::ConfigInvalid, "there is no file to edit"),
            "name one: --config PATH",
        )
    };
    let source = files.sources.get(at).ok_or_else(none)?;
    let mut document: DocumentMut = source.text.parse().map_err(|error: toml_edit::TomlError| {
        let refusal = Refusal::new(Code::ConfigInvalid, error.message().to_owned());
        Trouble::refused(refusal, "countersign policy check")
    })?;
    edit(&mut document);
    let after = document.to_string();
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

impl Change {
    /// Shows the difference, asks, writes.
    fn settle(&self, files: &ConfigFiles, yes: bool, voice: Voice, done: &str, name: &str) -> Outcome {
        let path = self.path.display().to_string();
        let differs = diff::unified((&path, &self.before), (&path, &self.after));
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
    let mut file = fs::OpenOptions::new().write(true).create_new(true).open(&aside)?;
    let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
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
