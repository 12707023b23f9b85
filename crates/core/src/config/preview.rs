//! `preview` of a rule: an argument that makes the tool a dry run, another tool, a command that looks, or none of them. Runs nothing.

use std::sync::Arc;

use serde_json::{Value as Json, json};

use super::command::{Argv, argv, exits, shown_words, templates};
use super::diagnostic::Problem;
use super::input::check_json;
use super::reading::{Reader, Section};
use super::template::{self, Gaps, Template};
use super::tree::{Node, Table, Value};
use super::upstream::{Pair, environment};
use crate::preview::Style;

/// A command that shows what a call would do. `{name}` in its words is an argument of the call; all of them come to its stdin as JSON.
#[derive(Clone, Debug, PartialEq)]
pub struct PreviewCommand {
    /// The command.
    pub run: Argv,
    /// Texts whose lines do not count when two previews are compared.
    pub ignore: Vec<String>,
    /// Where it runs, if not in the folder of the configuration.
    pub cwd: Option<Template>,
    /// What its environment has besides the basics.
    pub env: Vec<Pair>,
    /// Exit codes that mean success.
    pub ok_exit: Vec<i32>,
}

const KEYS: [&str; 10] =
    ["arg", "preview", "apply", "tool", "digest", "run", "ignore", "cwd", "env", "ok_exit"];

/// `{arg, preview, apply}`, `{tool, digest}`, `{run, …}`, a command's words, or `false`.
pub(super) fn read(reader: &mut Reader<'_>, node: &Node) -> Option<Style> {
    let example = "{ arg = \"dry_run\", preview = true, apply = false }";
    let expected = "a table with `arg`, `tool` or `run`, the words of a command, or `false`";
    match &node.value {
        Value::Boolean(false) => Some(Style::Computed),
        Value::Array(_) => {
            let run = argv(reader, node, "preview", &[], Gaps::Arguments)?;
            Some(Style::Command(Arc::new(PreviewCommand::of(run))))
        }
        Value::Table(table) if table.get("tool").is_some() => companion(reader, table),
        Value::Table(table) if table.get("arg").is_some() => argument(reader, node, table),
        Value::Table(table) if table.get("run").is_some() => command(reader, table),
        Value::Table(table) => {
            reader.unknown_keys(table, "`preview`", &KEYS);
            let message = "`preview` names neither an argument nor a tool nor a command";
            let help = format!(
                "write `preview = {example}`, `{{ tool = \"plan\" }}`, or `[\"git\", \"diff\", \"{{branch}}\"]`"
            );
            reader.error(node.place, Problem::MissingKey, message, help);
            None
        }
        Value::Boolean(true)
        | Value::String(_)
        | Value::Integer(_)
        | Value::Float(_)
        | Value::Datetime(_) => {
            reader.expected(node, "preview", expected, example);
            None
        }
    }
}

fn companion(reader: &mut Reader<'_>, table: &Table) -> Option<Style> {
    let mut section = Section::open(reader, table, "`preview`", &["tool", "digest"]);
    let tool = section.text("tool", "\"plan\"")?.to_owned();
    let digest = table.get("digest").map(|node| reader.texts(node, "digest", "[\"data.changes\"]"));
    Some(Style::Companion {
        tool,
        digest: digest.unwrap_or_default().into_iter().map(|(path, _)| path.to_owned()).collect(),
    })
}

fn argument(reader: &mut Reader<'_>, node: &Node, table: &Table) -> Option<Style> {
    let mut section = Section::open(reader, table, "`preview`", &["arg", "preview", "apply"]);
    let arg = section.text("arg", "\"dry_run\"")?.to_owned();
    let mut side = |key: &str, or: bool| match table.get(key) {
        Some(node) => check_json(reader, node, key),
        None => Some(Json::Bool(or)),
    };
    let (preview, apply) = (side("preview", true)?, side("apply", false)?);
    if preview == apply {
        let message = format!("`{arg}` is the same for the preview and for the real call");
        let help = "write `preview = { arg = \"dry_run\", preview = true, apply = false }`".to_owned();
        reader.error(node.place, Problem::Conflict, message, help);
        return None;
    }
    Some(Style::Argument { arg, preview, apply })
}

fn command(reader: &mut Reader<'_>, table: &Table) -> Option<Style> {
    Section::open(reader, table, "`preview`", &["run", "ignore", "cwd", "env", "ok_exit"]);
    let run = table.get("run").and_then(|node| argv(reader, node, "run", &[], Gaps::Arguments));
    let ignore = table.get("ignore").map(|node| reader.texts(node, "ignore", "[\": Reading...\"]"));
    let cwd = table
        .get("cwd")
        .and_then(|node| template::read(reader, node, "cwd", "\"/srv/work\"", Gaps::References));
    let env = environment(reader, table);
    let ok_exit = table.get("ok_exit").map(|node| exits(reader, node));
    let mut command = PreviewCommand::of(run?);
    command.ignore = ignore.unwrap_or_default().into_iter().map(|(text, _)| text.to_owned()).collect();
    (command.cwd, command.env) = (cwd, env);
    command.ok_exit = ok_exit.unwrap_or(command.ok_exit);
    Some(Style::Command(Arc::new(command)))
}

impl PreviewCommand {
    /// A command with nothing else said of it.
    pub fn of(run: Argv) -> Self {
        Self { run, ignore: Vec::new(), cwd: None, env: Vec::new(), ok_exit: vec![0] }
    }

    /// As it was written, without what was looked up.
    pub fn shown(&self) -> Json {
        let mut shown = json!({"run": shown_words(&self.run)});
        let Some(members) = shown.as_object_mut() else { return shown };
        if !self.ignore.is_empty() {
            members.insert("ignore".into(), json!(self.ignore));
        }
        members.extend(self.cwd.as_ref().map(|cwd| ("cwd".to_owned(), cwd.shown().into())));
        if !self.env.is_empty() {
            let names: Vec<&str> = self.env.iter().map(|(name, _)| name.as_str()).collect();
            members.insert("env".into(), json!(names));
        }
        if self.ok_exit != [0] {
            members.insert("ok_exit".into(), json!(self.ok_exit));
        }
        shown
    }

    /// Every text of it that may have to be looked up.
    pub(super) fn templates(&mut self) -> impl Iterator<Item = &mut Template> {
        let env = self.env.iter_mut().map(|(_, value)| value);
        templates(&mut self.run).chain(&mut self.cwd).chain(env)
    }
}
