//! A host's own permission rules for our tools: what only looks is allowed, what changes something asks. Adds what is missing, leaves
//! what the person decided otherwise, takes out what it added. Never a wildcard; writes no file.

use std::collections::BTreeSet;
use std::path::PathBuf;

use jsonc_parser::cst::{CstArray, CstInputValue, CstObject, CstRootNode};
use serde_json::Value;
use toml_edit::{DocumentMut, Item, Table, value};

use super::server::NAME;
use super::{Broken, Ground, Host, Place, Scope, codex, json, marked};
use crate::line_ends::with_line_ends;

/// Our tools that only look.
pub(super) const LOOK: [&str; 6] =
    ["call_tool_read", "retrieve_tools", "get_status", "get_plan", "list_runs", "get_run"];

/// Our tools that change what is governed.
pub(super) const CHANGE: [&str; 3] = ["call_tool_write", "call_tool_destructive", "run_plan"];

/// How a host writes rules down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// Two lists, `permissions.allow` and `permissions.ask`: a tool's name between these two texts.
    Lists(&'static str, &'static str),
    /// One list of what is allowed, `mcpAllowlist`, only where there is one: a new one would replace the list in the host's settings.
    Allowlist,
    /// A table for each tool beside the server.
    Tables,
    /// `[[rule]]`s in a file of their own.
    Policy,
    /// An object for each tool, three levels down in the settings.
    Levels,
}

/// The file a host keeps such rules in.
#[derive(Clone, Debug)]
pub(crate) struct RuleFile {
    /// Whose.
    pub(crate) host: Host,
    /// To whom it speaks.
    pub(crate) scope: Scope,
    /// Where.
    pub(crate) path: PathBuf,
    form: Form,
}

/// What can be written into a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Offered {
    /// Its text with our rules.
    Text(String),
    /// Nothing, and why not.
    Not(&'static str),
}

/// The files for these hosts: the person's own, or a project's. Hosts that keep no such rules in a file have none.
pub(crate) fn rule_files<'a>(
    places: impl Iterator<Item = &'a Place>,
    ground: &Ground,
    scope: Scope,
) -> Vec<RuleFile> {
    let (mut files, mut seen) = (Vec::new(), BTreeSet::new());
    for place in places {
        if place.host == Host::Codex {
            // Beside the server, in whichever file that is: elsewhere it would be a server that can't be started.
            let path = place.path.clone();
            files.push(RuleFile { host: place.host, scope: place.scope, path, form: Form::Tables });
        } else if seen.insert(place.host)
            && let (Some(form), Some(path)) = (form(place.host), path(place.host, ground, scope))
        {
            files.push(RuleFile { host: place.host, scope, path, form });
        }
    }
    files
}

fn form(host: Host) -> Option<Form> {
    match host {
        Host::ClaudeCode | Host::Devin => Some(Form::Lists("mcp__countersign__", "")),
        Host::Antigravity => Some(Form::Lists("mcp(countersign/", ")")),
        Host::Codex => Some(Form::Tables),
        Host::Cursor => Some(Form::Allowlist),
        Host::Gemini => Some(Form::Policy),
        Host::Zed => Some(Form::Levels),
        // They ask by themselves, keep what was answered where nobody else writes, or look at our annotations.
        Host::ClaudeDesktop | Host::VsCode | Host::Copilot | Host::Windsurf => None,
    }
}

fn path(host: Host, ground: &Ground, scope: Scope) -> Option<PathBuf> {
    let (home, project) = (&ground.home, &ground.project);
    match (host, scope) {
        (Host::ClaudeCode, Scope::User) => Some(ground.claude.join("settings.json")),
        (Host::ClaudeCode, Scope::Project) => Some(project.join(".claude").join("settings.json")),
        (Host::Devin, Scope::User) => Some(ground.devin.join("config.json")),
        (Host::Devin, Scope::Project) => Some(project.join(".devin").join("config.json")),
        (Host::Antigravity, Scope::User) => {
            Some(home.join(".gemini").join("antigravity-cli").join("settings.json"))
        }
        (Host::Cursor, Scope::User) => Some(home.join(".cursor").join("permissions.json")),
        (Host::Cursor, Scope::Project) => Some(project.join(".cursor").join("permissions.json")),
        (Host::Gemini, Scope::User) => Some(home.join(".gemini").join("policies").join("countersign.toml")),
        (Host::Gemini, Scope::Project) => {
            Some(project.join(".gemini").join("policies").join("countersign.toml"))
        }
        (Host::Zed, Scope::User) => Some(ground.zed.join("settings.json")),
        // What a person allows there is not a project's to say.
        (Host::Antigravity | Host::Zed, Scope::Project)
        | (Host::Codex | Host::ClaudeDesktop | Host::VsCode | Host::Copilot | Host::Windsurf, _) => None,
    }
}

impl RuleFile {
    /// The file's text with the rules it lacks; the same text where it lacks none.
    pub(crate) fn add(&self, text: Option<&str>) -> Result<Offered, Broken> {
        let (mark, bare) = marked(text.unwrap_or_default());
        let added = match self.form {
            Form::Lists(..) if text.is_none() && self.host == Host::Antigravity => {
                return Ok(Offered::Not("its rules are kept in its settings: allow reading there"));
            }
            Form::Lists(before, after) => add_to_lists(bare, before, after)?,
            Form::Allowlist => match add_to_allowlist(bare)? {
                Some(added) => added,
                None => {
                    return Ok(Offered::Not(
                        "it has no `mcpAllowlist` in a file, and a new one would replace the list in its settings: \
                         allow `countersign:call_tool_read` there",
                    ));
                }
            },
            Form::Tables => add_tables(bare)?,
            Form::Policy => add_policy(bare)?,
            Form::Levels => add_levels(bare)?,
        };
        Ok(Offered::Text(format!("{mark}{added}")))
    }

    /// The host whose servers are in this file too, or which goes on writing into it: what it writes later stays when the rules are
    /// taken out.
    pub(crate) fn keeper(&self) -> Option<Host> {
        match self.form {
            Form::Lists(..) | Form::Allowlist | Form::Tables | Form::Levels => Some(self.host),
            Form::Policy => None,
        }
    }
}

/// A text that its host has changed since, without the rules the old text did not have.
pub(super) fn withdraw(host: Host, now: &str, before: &str) -> Result<String, Broken> {
    match form(host) {
        Some(Form::Lists(start, end)) => {
            let rules = [("allow", &LOOK[..]), ("ask", &CHANGE[..])];
            let rules = rules.map(|(key, tools)| (["permissions", key], named(tools, start, end)));
            withdraw_from_lists(now, before, rules.iter().map(|(path, rules)| (&path[..], &rules[..])))
        }
        Some(Form::Allowlist) => {
            let rules = named(&LOOK, "countersign:", "");
            withdraw_from_lists(now, before, [(&["mcpAllowlist"][..], &rules[..])].into_iter())
        }
        Some(Form::Levels) => withdraw_levels(now, before),
        // Tables go with the server beside which they are; policies have a file of their own.
        Some(Form::Tables | Form::Policy) | None => Ok(now.to_owned()),
    }
}

fn named(tools: &[&str], start: &str, end: &str) -> Vec<String> {
    tools.iter().map(|tool| format!("{start}{tool}{end}")).collect()
}

fn opened(text: &str) -> Result<(CstRootNode, CstObject), Broken> {
    let root = json::parse(text)?;
    let object = json::whole(&root)?.unwrap_or_else(|| root.object_value_or_set());
    Ok((root, object))
}

fn texts(list: Option<&CstArray>) -> Vec<String> {
    let elements = list.map(CstArray::elements).unwrap_or_default();
    elements.iter().filter_map(|one| one.to_serde_value()?.as_str().map(str::to_owned)).collect()
}

fn add_to_lists(text: &str, start: &str, end: &str) -> Result<String, Broken> {
    let (root, object) = opened(text)?;
    let permissions = json::object(&object, "permissions")?;
    let have = |key: &str| match &permissions {
        Some(permissions) => json::list(permissions, key).map(|list| texts(list.as_ref())),
        None => Ok(Vec::new()),
    };
    let (deny, ask, allow) = (have("deny")?, have("ask")?, have("allow")?);
    let stricter = |rule: &String| deny.contains(rule) || ask.contains(rule);
    let mut look = named(&LOOK, start, end);
    look.retain(|rule| !stricter(rule) && !allow.contains(rule));
    let mut change = named(&CHANGE, start, end);
    change.retain(|rule| !stricter(rule));
    if look.is_empty() && change.is_empty() {
        return Ok(text.to_owned());
    }
    let permissions = json::object_or_new(&object, "permissions")?;
    extend(&permissions, "allow", look)?;
    extend(&permissions, "ask", change)?;
    Ok(json::ended(text, root.to_string()))
}

fn extend(holder: &CstObject, key: &str, rules: Vec<String>) -> Result<(), Broken> {
    if rules.is_empty() {
        return Ok(());
    }
    let rules = rules.into_iter().map(CstInputValue::String);
    match json::list(holder, key)? {
        Some(list) => rules.for_each(|rule| drop(list.append(rule))),
        None => drop(holder.append(key, CstInputValue::Array(rules.collect()))),
    }
    // Names this long are read below each other, or not at all.
    if let Some(list) = holder.array_value(key) {
        list.ensure_multiline();
    }
    Ok(())
}

/// None where there is no such list.
fn add_to_allowlist(text: &str) -> Result<Option<String>, Broken> {
    let root = json::parse(text)?;
    let Some(object) = json::whole(&root)? else { return Ok(None) };
    let Some(list) = json::list(&object, "mcpAllowlist")? else { return Ok(None) };
    let have = texts(Some(&list));
    let mut rules = named(&LOOK, "countersign:", "");
    rules.retain(|rule| !have.contains(rule));
    extend(&object, "mcpAllowlist", rules)?;
    Ok(Some(root.to_string()))
}

fn withdraw_from_lists<'a>(
    now: &str,
    before: &str,
    lists: impl Iterator<Item = (&'a [&'a str], &'a [String])>,
) -> Result<String, Broken> {
    let root = json::parse(now)?;
    let Some(object) = json::whole(&root)? else { return Ok(now.to_owned()) };
    let old = json::parse(before)?.to_serde_value().unwrap_or_default();
    for (path, rules) in lists {
        let had = path.iter().try_fold(&old, |here, key| here.get(key)).and_then(Value::as_array);
        let had = |rule: &str| had.is_some_and(|had| had.iter().any(|one| one.as_str() == Some(rule)));
        let Some((key, up)) = path.split_last() else { continue };
        let holder = up.iter().try_fold(object.clone(), |here, key| here.object_value(key));
        let elements = holder.and_then(|holder| holder.array_value(key)).map(|list| list.elements());
        for element in elements.into_iter().flatten() {
            let rule = element.to_serde_value().and_then(|value| value.as_str().map(str::to_owned));
            if rule.is_some_and(|rule| rules.contains(&rule) && !had(&rule)) {
                element.remove();
            }
        }
        prune(&object, &old, path);
    }
    Ok(root.to_string())
}

/// Takes away what is empty now and was not there before, from the inside out.
fn prune(object: &CstObject, old: &Value, path: &[&str]) {
    for depth in (1..=path.len()).rev() {
        let Some((key, up)) = path.get(..depth).and_then(<[&str]>::split_last) else { return };
        let was = up.iter().chain([key]).try_fold(old, |here, key| here.get(key)).is_some();
        let holder = up.iter().try_fold(object.clone(), |here, key| here.object_value(key));
        let Some(member) = holder.and_then(|holder| holder.get(key)).filter(|_| !was) else { return };
        let empty = match (member.object_value(), member.array_value()) {
            (Some(inside), _) => inside.properties().is_empty(),
            (None, Some(list)) => list.elements().is_empty(),
            (None, None) => false,
        };
        if !empty {
            return;
        }
        member.remove();
    }
}

const LEVELS: [&str; 3] = ["agent", "tool_permissions", "tools"];

/// Every tool under its name there, with what is written about it.
fn levels() -> impl Iterator<Item = (String, &'static str)> {
    let name = |tool: &str| format!("mcp:{NAME}:{tool}");
    let look = LOOK.iter().map(move |tool| (name(tool), "allow"));
    look.chain(CHANGE.iter().map(move |tool| (name(tool), "confirm")))
}

fn add_levels(text: &str) -> Result<String, Broken> {
    let (root, object) = opened(text)?;
    let mut here = Some(object.clone());
    for key in LEVELS {
        here = match here {
            Some(holder) => json::object(&holder, key)?,
            None => None,
        };
    }
    let mut missing = Vec::new();
    for (name, wish) in levels() {
        let there = here.as_ref().map(|tools| json::object(tools, &name)).transpose()?.flatten();
        if there.is_none_or(|tool| tool.get("default").is_none()) {
            missing.push((name, wish));
        }
    }
    if missing.is_empty() {
        return Ok(text.to_owned());
    }
    let mut tools = object;
    for key in LEVELS {
        tools = json::object_or_new(&tools, key)?;
    }
    for (name, wish) in missing {
        let tool = json::object_or_new(&tools, &name)?;
        tool.append("default", CstInputValue::String(wish.to_owned()));
    }
    Ok(json::ended(text, root.to_string()))
}

fn withdraw_levels(now: &str, before: &str) -> Result<String, Broken> {
    let root = json::parse(now)?;
    let Some(object) = json::whole(&root)? else { return Ok(now.to_owned()) };
    let old = json::parse(before)?.to_serde_value().unwrap_or_default();
    let had = LEVELS.iter().try_fold(&old, |here, key| here.get(key));
    if let Some(tools) = LEVELS.iter().try_fold(object.clone(), |here, key| here.object_value(key)) {
        for (name, wish) in levels() {
            let ours = serde_json::json!({ "default": wish });
            let member = tools.get(&name).filter(|_| had.and_then(|had| had.get(&name)).is_none());
            if let Some(member) =
                member.filter(|one| one.value().and_then(|value| value.to_serde_value()) == Some(ours))
            {
                member.remove();
            }
        }
    }
    prune(&object, &old, &LEVELS);
    Ok(root.to_string())
}

fn no_table(what: &str) -> Broken {
    Broken { line: 1, why: format!("`{what}` is no table") }
}

fn add_tables(text: &str) -> Result<String, Broken> {
    let mut document = codex::parse(text)?;
    let server = document.get_mut(Host::Codex.key()).and_then(|all| all.get_mut(NAME));
    let Some(server) = server.and_then(Item::as_table_like_mut) else { return Ok(text.to_owned()) };
    let tools = server.entry("tools").or_insert_with(|| {
        let mut tools = Table::new();
        tools.set_implicit(true);
        Item::Table(tools)
    });
    let broken = || no_table(&format!("mcp_servers.{NAME}.tools"));
    let tools = tools.as_table_like_mut().ok_or_else(broken)?;
    let look = LOOK.iter().map(|tool| (tool, "approve"));
    for (tool, wish) in look.chain(CHANGE.iter().map(|tool| (tool, "prompt"))) {
        let table = tools.entry(tool).or_insert_with(|| Item::Table(Table::new()));
        let broken = || no_table(&format!("mcp_servers.{NAME}.tools.{tool}"));
        let table = table.as_table_like_mut().ok_or_else(broken)?;
        if table.get("approval_mode").is_none() {
            table.insert("approval_mode", value(wish));
        }
    }
    Ok(with_line_ends(text, &document.to_string()))
}

fn add_policy(text: &str) -> Result<String, Broken> {
    let document = codex::parse(text)?;
    let ruled = ruled(&document)?;
    let mut added = text.to_owned();
    if added.is_empty() {
        added.push_str("# Written by `countersign init --permissions`: looking is allowed, changing asks.\n");
    }
    for (tools, decision) in [(&LOOK[..], "allow"), (&CHANGE[..], "ask_user")] {
        let missing: Vec<String> =
            tools.iter().filter(|tool| !ruled.contains(**tool)).map(|tool| format!("\"{tool}\"")).collect();
        if missing.is_empty() {
            continue;
        }
        if !added.ends_with('\n') {
            added.push('\n');
        }
        added.push_str(&format!(
            "\n[[rule]]\nmcpName = \"{NAME}\"\ntoolName = [{}]\ndecision = \"{decision}\"\npriority = 100\n",
            missing.join(", ")
        ));
    }
    Ok(if added == text { added } else { with_line_ends(text, &added) })
}

/// Our tools that some rule of a file is about already.
fn ruled(document: &DocumentMut) -> Result<BTreeSet<String>, Broken> {
    let Some(rules) = document.get("rule") else { return Ok(BTreeSet::new()) };
    let rules = rules.as_array_of_tables().ok_or_else(|| no_table("rule"))?;
    let ours = rules.iter().filter(|rule| rule.get("mcpName").and_then(Item::as_str) == Some(NAME));
    Ok(ours.flat_map(|rule| tool_names(rule.get("toolName"))).collect())
}

/// A name, or a list of names.
pub(super) fn tool_names(item: Option<&Item>) -> Vec<String> {
    let Some(value) = item.and_then(Item::as_value) else { return Vec::new() };
    match (value.as_str(), value.as_array()) {
        (Some(name), _) => vec![name.to_owned()],
        (None, Some(names)) => names.iter().filter_map(|name| name.as_str().map(str::to_owned)).collect(),
        (None, None) => Vec::new(),
    }
}

#[cfg(test)]
mod tests;
