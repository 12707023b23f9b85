//! Gemini CLI: settings, switches, and policies, of which the one with the highest priority holds.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use toml_edit::{Item, Table};

use super::super::rules::tool_names;
use super::super::{Ground, Host, NAME};
use super::others::each;
use super::{DESTRUCTIVE, Harm, Page, Setting, texts, toml};

pub(super) fn look(ground: &Ground, found: &mut Vec<Setting>) {
    // What a project writes gives way to what the person writes.
    let folders = [&ground.project, &ground.home].map(|one| one.join(".gemini"));
    let mut rules = Vec::new();
    for (tier, folder) in folders.iter().enumerate() {
        each(Host::Gemini, [folder.join("settings.json")], found, settings);
        let policies = fs::read_dir(folder.join("policies")).into_iter().flatten().filter_map(Result::ok);
        let mut policies: Vec<PathBuf> = policies
            .map(|entry| entry.path())
            .filter(|path| path.extension().is_some_and(|one| one == "toml"))
            .collect();
        policies.sort();
        for path in policies {
            rules.extend(read(&path, tier));
        }
    }
    let switches = ground.home.join(".gemini").join("mcp-server-enablement.json");
    each(Host::Gemini, [switches], found, |value, page| {
        if value.pointer(&format!("/{NAME}/enabled")) == Some(&Value::Bool(false)) {
            page.say(Harm::ShutsOut, format!("{NAME}.enabled is false"), format!("/mcp enable {NAME}"));
        }
    });
    let mut said: Vec<&Path> = Vec::new();
    for tool in DESTRUCTIVE {
        let about: Vec<&Rule> = rules.iter().filter(|rule| rule.covers(tool)).collect();
        let highest = about.iter().map(|rule| rule.priority).max();
        let holds = about.iter().find(|rule| Some(rule.priority) == highest && rule.decision == "allow");
        if let Some(rule) = holds.filter(|rule| !said.contains(&rule.path.as_path())) {
            said.push(&rule.path);
            Page { host: Host::Gemini, path: &rule.path, found: &mut *found }.say(
                Harm::Answers,
                format!("a rule allows `{tool}` of `{NAME}`"),
                "write `toolName = \"call_tool_read\"`, or `decision = \"ask_user\"`",
            );
        }
    }
}

fn settings(value: &Value, page: &mut Page<'_>) {
    if value.pointer(&format!("/mcpServers/{NAME}/trust")) == Some(&Value::Bool(true)) {
        page.say(Harm::Answers, format!("mcpServers.{NAME}.trust is true"), "remove `trust`");
    }
    let only = value.pointer("/mcp/allowed").is_some_and(Value::is_array);
    if only && !texts(value, "/mcp/allowed").contains(&NAME) {
        let setting = format!("mcp.allowed does not have `{NAME}`");
        page.say(Harm::ShutsOut, setting, format!("add `{NAME}` to it"));
    }
    if texts(value, "/mcp/excluded").contains(&NAME) {
        page.say(Harm::ShutsOut, format!("mcp.excluded has `{NAME}`"), "take it out of the list");
    }
}

/// A rule of a policy that is about tools of servers, whatever their arguments, in the usual mode.
struct Rule {
    path: PathBuf,
    /// Whose word counts more, and then which of theirs.
    priority: (usize, i64),
    decision: String,
    server: Option<String>,
    /// None is every tool.
    tools: Option<Vec<String>>,
}

fn read(path: &Path, tier: usize) -> Vec<Rule> {
    let Some(policy) = toml(path) else { return Vec::new() };
    let rules = policy.get("rule").and_then(Item::as_array_of_tables);
    rules.into_iter().flatten().filter_map(|table| Rule::of(table, path, tier)).collect()
}

impl Rule {
    fn of(table: &Table, path: &Path, tier: usize) -> Option<Self> {
        let text = |key: &str| table.get(key).and_then(Item::as_str).map(str::to_owned);
        if ["argsPattern", "commandPrefix", "commandRegex", "toolAnnotations", "subagent"]
            .iter()
            .any(|key| table.contains_key(key))
        {
            return None;
        }
        let modes = tool_names(table.get("modes"));
        if !modes.is_empty() && !modes.iter().any(|mode| mode == "default") {
            return None;
        }
        Some(Self {
            path: path.to_owned(),
            priority: (tier, table.get("priority").and_then(Item::as_integer).unwrap_or_default()),
            decision: text("decision")?,
            server: text("mcpName"),
            tools: table.contains_key("toolName").then(|| tool_names(table.get("toolName"))),
        })
    }

    fn covers(&self, tool: &str) -> bool {
        let full = format!("mcp_{NAME}_{tool}");
        let ours = |name: &str| match (name, &self.server) {
            ("*", _) => true,
            (name, Some(_)) if name == tool => true,
            (name, _) => like(name, &full),
        };
        let server = self.server.as_ref().is_none_or(|server| server == NAME || server == "*");
        server
            && match &self.tools {
                Some(tools) => tools.iter().any(|name| ours(name)),
                None => self.server.is_some(),
            }
    }
}

/// `mcp_*`, `mcp_server_*`, `mcp_*_tool`: one star stands for anything.
fn like(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        Some((start, end)) => {
            name.len() >= start.len().saturating_add(end.len())
                && name.starts_with(start)
                && name.ends_with(end)
        }
        None => pattern == name,
    }
}
