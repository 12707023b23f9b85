//! `countersign upstreams add` and `upstreams remove`: the configuration's file, changed where it has to be and nowhere
//! else, after showing what changes. A change that would not be a good configuration is not written.

use clap::Args;
use countersign_config::Source;
use countersign_policy::redact::Redactor;
use toml_edit::{Array, DocumentMut, InlineTable, Item, Table, value};

use super::health::unknown;
use crate::cli::Cli;
use crate::command_result::{CommandError, CommandResult};
use crate::config_change::{self, change, names};
use crate::config_file;
use crate::output::{OutputSettings, visible};

pub(crate) const ADD_EXAMPLES: &str = "Examples:
  countersign upstreams add notes --command npx -- -y notes-server
  countersign upstreams add docs --url https://docs.example.com/mcp --yes";

pub(crate) const REMOVE_EXAMPLES: &str = "Examples:
  countersign upstreams remove notes --yes";

#[derive(Args, Debug)]
pub(crate) struct UpstreamAddArgs {
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

#[derive(Args, Debug)]
pub(crate) struct UpstreamRemoveArgs {
    /// Its name in the configuration
    name: String,

    /// Write without being asked; needed off a terminal
    #[arg(long)]
    yes: bool,
}

pub(super) fn add(args: &UpstreamAddArgs, cli: &Cli, voice: OutputSettings) -> CommandResult {
    let files = config_change::files(&cli.config)?;
    let names = names(&files)?;
    if names.contains(&args.name) {
        let message = format!("there is an upstream `{}` already", visible(&args.name));
        let next = format!("choose another name, or countersign upstreams remove {}", args.name);
        return Err(CommandError::usage("invalid_value", message, next));
    }
    if args.command.is_none() && args.url.is_none() {
        let message = "an upstream needs `--command PROGRAM` or `--url URL`";
        return Err(CommandError::usage("argument_missing", message, "countersign upstreams add --help"));
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

fn variables(pairs: &[String]) -> Result<InlineTable, CommandError> {
    let pair = |text: &String| {
        let (name, value) = text.split_once('=').filter(|(name, _)| !name.is_empty()).ok_or_else(|| {
            let message = format!("`{}` does not fit `--env`: write NAME=VALUE", visible(text));
            CommandError::usage("invalid_value", message, "countersign upstreams add --help")
        })?;
        Ok((name.to_owned(), value.to_owned()))
    };
    pairs.iter().map(pair).collect::<Result<Vec<_>, CommandError>>().map(|all| all.into_iter().collect())
}

pub(super) fn remove(args: &UpstreamRemoveArgs, cli: &Cli, voice: OutputSettings) -> CommandResult {
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
