//! `preview` of a rule: an argument that makes the tool a dry run, another tool, a command that looks, or none of them. Runs nothing.

use std::sync::Arc;

use serde_json::Value as Json;

use super::command::{argv, exits};
use super::config_reader::{ConfigReader, SectionReader};
use super::diagnostic::DiagnosticKind::{Conflict, MissingKey};

use super::input::check_json;
use super::template::{self, AllowedPlaceholders};
use super::tree::{TomlNode, TomlTable, TomlValue};
use super::upstream::environment;
use countersign_policy::command_template::PreviewCommand;
use countersign_policy::preview::PreviewStyle;

const KEYS: [&str; 10] =
    ["arg", "preview", "apply", "tool", "digest", "run", "ignore", "cwd", "env", "ok_exit"];

/// `{arg, preview, apply}`, `{tool, digest}`, `{run, …}`, a command's words, or `false`.
pub(crate) fn read(reader: &mut ConfigReader<'_>, node: &TomlNode) -> Option<PreviewStyle> {
    let example = "{ arg = \"dry_run\", preview = true, apply = false }";
    let expected = "a table with `arg`, `tool` or `run`, the words of a command, or `false`";
    match &node.value {
        TomlValue::Boolean(false) => Some(PreviewStyle::Computed),
        TomlValue::Array(_) => {
            let run = argv(reader, node, "preview", &[], AllowedPlaceholders::Arguments)?;
            Some(PreviewStyle::Command(Arc::new(PreviewCommand::new(run))))
        }
        TomlValue::Table(table) if table.get("tool").is_some() => companion(reader, table),
        TomlValue::Table(table) if table.get("arg").is_some() => argument(reader, node, table),
        TomlValue::Table(table) if table.get("run").is_some() => command(reader, table),
        TomlValue::Table(table) => {
            reader.unknown_keys(table, "`preview`", &KEYS);
            let message = "`preview` names neither an argument nor a tool nor a command";
            let help = format!(
                "write `preview = {example}`, `{{ tool = \"plan\" }}`, or `[\"git\", \"diff\", \"{{branch}}\"]`"
            );
            reader.error(node.place, MissingKey, message, help);
            None
        }
        TomlValue::Boolean(true)
        | TomlValue::String(_)
        | TomlValue::Integer(_)
        | TomlValue::Float(_)
        | TomlValue::Datetime(_) => {
            reader.expected(node, "preview", expected, example);
            None
        }
    }
}

fn companion(reader: &mut ConfigReader<'_>, table: &TomlTable) -> Option<PreviewStyle> {
    let mut section = SectionReader::open(reader, table, "`preview`", &["tool", "digest"]);
    let tool = section.text("tool", "\"plan\"")?.to_owned();
    let digest = table.get("digest").map(|node| reader.texts(node, "digest", "[\"data.changes\"]"));
    Some(PreviewStyle::Companion {
        tool,
        digest: digest.unwrap_or_default().into_iter().map(|(path, _)| path.to_owned()).collect(),
    })
}

fn argument(reader: &mut ConfigReader<'_>, node: &TomlNode, table: &TomlTable) -> Option<PreviewStyle> {
    let mut section = SectionReader::open(reader, table, "`preview`", &["arg", "preview", "apply"]);
    let arg = section.text("arg", "\"dry_run\"")?.to_owned();
    let mut side = |key: &str, or: bool| match table.get(key) {
        Some(node) => check_json(reader, node, key),
        None => Some(Json::Bool(or)),
    };
    let (preview, apply) = (side("preview", true)?, side("apply", false)?);
    if preview == apply {
        let message = format!("`{arg}` is the same for the preview and for the real call");
        let help = "write `preview = { arg = \"dry_run\", preview = true, apply = false }`";
        reader.error(node.place, Conflict, message, help);
        return None;
    }
    Some(PreviewStyle::Argument { arg, preview, apply })
}

fn command(reader: &mut ConfigReader<'_>, table: &TomlTable) -> Option<PreviewStyle> {
    SectionReader::open(reader, table, "`preview`", &["run", "ignore", "cwd", "env", "ok_exit"]);
    let run =
        table.get("run").and_then(|node| argv(reader, node, "run", &[], AllowedPlaceholders::Arguments));
    let ignore = table.get("ignore").map(|node| reader.texts(node, "ignore", "[\": Reading...\"]"));
    let cwd = table.get("cwd").and_then(|node| {
        template::read(reader, node, "cwd", "\"/srv/work\"", AllowedPlaceholders::References)
    });
    let env = environment(reader, table);
    let ok_exit = table.get("ok_exit").map(|node| exits(reader, node));
    let mut command = PreviewCommand::new(run?);
    command.ignore = ignore.unwrap_or_default().into_iter().map(|(text, _)| text.to_owned()).collect();
    (command.cwd, command.env) = (cwd, env);
    command.ok_exit = ok_exit.unwrap_or(command.ok_exit);
    Some(PreviewStyle::Command(Arc::new(command)))
}
