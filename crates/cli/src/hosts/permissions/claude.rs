//! Claude Code: the settings of the person, of a project and of whoever administers the machine.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::super::{Ground, Host, Kind, NAME, Place, Scope};
use super::{ADMINISTRATOR, Harm, Page, Setting, covers, json, loose, texts};

pub(super) fn look(ground: &Ground, found: &mut Vec<Setting>) {
    let mut files = Vec::new();
    for folder in [ground.claude.clone(), ground.project.join(".claude")] {
        files.extend(["settings.json", "settings.local.json"].map(|name| folder.join(name)));
    }
    let own = files.len();
    files.extend(managed(&ground.claude_managed));
    let read: Vec<(usize, &PathBuf, Value)> =
        files.iter().enumerate().filter_map(|(at, path)| Some((at, path, json(path)?))).collect();
    // Rules of all files hold together, the strictest first.
    let stricter: Vec<&str> = read
        .iter()
        .flat_map(|(_, _, value)| ["/permissions/deny", "/permissions/ask"].map(|at| texts(value, at)))
        .flatten()
        .collect();
    for (at, path, value) in &read {
        let mut page = Page { host: Host::ClaudeCode, path, found: &mut *found };
        let mine = |fix: &str| if *at < own { fix.to_owned() } else { ADMINISTRATOR.to_owned() };
        rules(value, &stricter, &mine, &mut page);
        servers(value, &mine, &mut page);
    }
    let accepted = read.iter().any(|(_, _, value)| {
        value.get("enableAllProjectMcpServers") == Some(&Value::Bool(true))
            || texts(value, "/enabledMcpjsonServers").contains(&NAME)
    });
    if !accepted {
        waiting(ground, found);
    }
    alone(ground, found);
    switched_off(ground, found);
}

/// Servers of a project are used once the person has accepted them.
fn waiting(ground: &Ground, found: &mut Vec<Setting>) {
    let leads = |path: &Path| {
        let place = Place::new(Host::ClaudeCode, Scope::Project, path.to_owned());
        let entries = fs::read_to_string(path).ok().and_then(|text| place.read(&text, &ground.project).ok());
        entries.is_some_and(|all| all.iter().any(|one| one.name == NAME && one.kind == Kind::Countersign))
    };
    let path = ground.project.join(".mcp.json");
    let own = of_project(ground);
    let accepted = own.is_some_and(|inside| texts(&inside, "/enabledMcpjsonServers").contains(&NAME));
    if leads(&path) && !leads(&ground.claude_json) && !accepted {
        Page { host: Host::ClaudeCode, path: &path, found }.say(
            Harm::Waits,
            format!("`{NAME}` waits to be accepted"),
            "start Claude Code in this folder and accept it when it asks, or in /mcp",
        );
    }
}

/// What Claude Code itself keeps about the folder worked in.
fn of_project(ground: &Ground) -> Option<Value> {
    let project = ground.project.display().to_string();
    json(&ground.claude_json)?.get("projects")?.get(&project).cloned()
}

/// What whoever administers the machine has written: one file, or several beside it.
fn managed(folder: &Path) -> Vec<PathBuf> {
    let more = fs::read_dir(folder.join("managed-settings.d")).into_iter().flatten().filter_map(Result::ok);
    let mut more: Vec<PathBuf> = more
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|one| one == "json"))
        .collect();
    more.sort();
    [vec![folder.join("managed-settings.json")], more].concat()
}

fn rules(value: &Value, stricter: &[&str], mine: &dyn Fn(&str) -> String, page: &mut Page<'_>) {
    for rule in loose(&texts(value, "/permissions/allow"), stricter, covers) {
        page.say(
            Harm::Answers,
            format!("permissions.allow has `{rule}`"),
            mine(
                "allow `mcp__countersign__call_tool_read` alone, and put the others under `permissions.ask`",
            ),
        );
    }
    // What has a rule of its own is asked in these modes too.
    let open = !loose(&[NAME_ALL], stricter, covers).is_empty();
    match value.pointer("/permissions/defaultMode").and_then(Value::as_str).filter(|_| open) {
        Some("bypassPermissions") => page.say(
            Harm::Answers,
            "permissions.defaultMode is `bypassPermissions`",
            mine("set it to `default`, or let our tools ask all the same: countersign init --permissions"),
        ),
        Some("auto") => page.say(
            Harm::Judges,
            "permissions.defaultMode is `auto`",
            mine("set it to `default`, or let our tools ask all the same: countersign init --permissions"),
        ),
        Some(_) | None => {}
    }
    if value.get("skipDangerousModePermissionPrompt") == Some(&Value::Bool(true)) {
        page.say(Harm::Hushes, "skipDangerousModePermissionPrompt is true", mine("remove it"));
    }
}

/// A rule for all of us.
const NAME_ALL: &str = "mcp__countersign";

fn servers(value: &Value, mine: &dyn Fn(&str) -> String, page: &mut Page<'_>) {
    if value.get("enableAllProjectMcpServers") == Some(&Value::Bool(true)) {
        page.say(
            Harm::LetsIn,
            "enableAllProjectMcpServers is true",
            mine("remove it, and accept servers one by one"),
        );
    }
    if texts(value, "/disabledMcpjsonServers").contains(&NAME) {
        page.say(
            Harm::ShutsOut,
            format!("disabledMcpjsonServers has `{NAME}`"),
            mine("take it out of the list"),
        );
    }
    let entries = |key: &str| value.get(key).and_then(Value::as_array);
    let denied = entries("deniedMcpServers").into_iter().flatten();
    if denied.into_iter().any(is_us) {
        page.say(Harm::ShutsOut, format!("deniedMcpServers has `{NAME}`"), mine("take it out of the list"));
    }
    if let Some(allowed) = entries("allowedMcpServers") {
        // Where programs are listed, a name alone lets no program in.
        let commands = allowed.iter().any(|entry| entry.get("serverCommand").is_some());
        let lets = |entry: &&Value| is_us(entry) && (!commands || entry.get("serverCommand").is_some());
        if !allowed.iter().any(|entry| lets(&entry)) {
            page.say(
                Harm::ShutsOut,
                format!("allowedMcpServers does not have `{NAME}`"),
                mine("add {\"serverName\": \"countersign\"} to it"),
            );
        }
    }
}

fn is_us(entry: &Value) -> bool {
    let program = entry.get("serverCommand").and_then(Value::as_array).and_then(|words| words.first());
    let program = program.and_then(Value::as_str).map(Path::new).and_then(Path::file_stem);
    entry.get("serverName").and_then(Value::as_str) == Some(NAME) || program.is_some_and(|stem| stem == NAME)
}

/// A list of servers of whoever administers the machine is the only one.
fn alone(ground: &Ground, found: &mut Vec<Setting>) {
    let path = ground.claude_managed.join("managed-mcp.json");
    let Ok(text) = fs::read_to_string(&path) else { return };
    let place = Place::new(Host::ClaudeCode, Scope::User, path.clone());
    let entries = place.read(&text, &ground.project).unwrap_or_default();
    let mut page = Page { host: Host::ClaudeCode, path: &path, found };
    if !entries.iter().any(|entry| entry.kind == Kind::Countersign) {
        page.say(
            Harm::ShutsOut,
            "only the servers of this file are used",
            format!("{ADMINISTRATOR} to put `{NAME}` into it"),
        );
    }
    let around: Vec<&str> = entries
        .iter()
        .filter(|entry| matches!(entry.kind, Kind::Server(_)))
        .map(|entry| entry.name.as_str())
        .collect();
    if !around.is_empty() {
        page.say(Harm::LetsIn, format!("mcpServers has {}", around.join(", ")), ADMINISTRATOR);
    }
}

/// The person may have switched us off for a folder.
fn switched_off(ground: &Ground, found: &mut Vec<Setting>) {
    let Some(inside) = of_project(ground) else { return };
    let project = ground.project.display();
    for key in ["disabledMcpServers", "disabledMcpjsonServers"] {
        if texts(&inside, &format!("/{key}")).contains(&NAME) {
            let mut page = Page { host: Host::ClaudeCode, path: &ground.claude_json, found: &mut *found };
            page.say(
                Harm::ShutsOut,
                format!("projects.\"{project}\".{key} has `{NAME}`"),
                "switch it on in /mcp",
            );
        }
    }
}
