//! Settings of hosts that answer for the person: what lets a destructive call through without anybody being asked, by the setting's
//! own name and with its fix. Reads only.

use std::fs;
use std::path::{Path, PathBuf};

use jsonc_parser::cst::CstRootNode;
use serde_json::Value;
use toml_edit::{DocumentMut, Item};

use super::server::NAME;
use super::{Ground, Host, marked};

/// A setting that defeats confirmation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unsafe {
    /// Whose.
    pub(crate) host: Host,
    /// Where it is written.
    pub(crate) path: PathBuf,
    /// Its name and value.
    pub(crate) setting: String,
    /// What to do about it.
    pub(crate) fix: String,
}

const DESTRUCTIVE: &str = "call_tool_destructive";

/// Every such setting of every host.
pub(crate) fn unsafe_settings(ground: &Ground) -> Vec<Unsafe> {
    let mut found = Vec::new();
    claude(ground, &mut found);
    codex(ground, &mut found);
    cursor(ground, &mut found);
    code(ground, &mut found);
    gemini(ground, &mut found);
    zed(ground, &mut found);
    found
}

/// A file as JSON with comments; none where it is not there or can't be read, which others report.
fn json(path: &Path) -> Option<Value> {
    let text = fs::read_to_string(path).ok()?;
    CstRootNode::parse(marked(&text).1, &jsonc_parser::ParseOptions::default()).ok()?.to_serde_value()
}

fn toml(path: &Path) -> Option<DocumentMut> {
    marked(&fs::read_to_string(path).ok()?).1.parse().ok()
}

/// Whether a Claude Code rule covers our destructive call tool: the server, all of it, or the tool.
fn covers(rule: &str) -> bool {
    let server = format!("mcp__{NAME}");
    match rule.strip_prefix(&server) {
        Some("") => true,
        Some(rest) => rest.strip_prefix("__").is_some_and(|tool| match tool.strip_suffix('*') {
            Some(start) => DESTRUCTIVE.starts_with(start),
            None => tool == DESTRUCTIVE,
        }),
        None => false,
    }
}

fn claude(ground: &Ground, found: &mut Vec<Unsafe>) {
    let folders = [ground.claude.clone(), ground.project.join(".claude")];
    for path in folders.iter().flat_map(|one| [one.join("settings.json"), one.join("settings.local.json")]) {
        let Some(settings) = json(&path) else { continue };
        let mut say = |setting: String, fix: &str| {
            found.push(Unsafe { host: Host::ClaudeCode, path: path.clone(), setting, fix: fix.to_owned() });
        };
        let allowed = settings.pointer("/permissions/allow").and_then(Value::as_array);
        for rule in allowed.into_iter().flatten().filter_map(Value::as_str).filter(|rule| covers(rule)) {
            say(
                format!("permissions.allow has `{rule}`"),
                "allow `mcp__countersign__call_tool_read` alone, and put the others under `permissions.ask`",
            );
        }
        if settings.pointer("/permissions/defaultMode").and_then(Value::as_str) == Some("bypassPermissions") {
            say("permissions.defaultMode is `bypassPermissions`".to_owned(), "set it to `default`");
        }
    }
}

fn codex(ground: &Ground, found: &mut Vec<Unsafe>) {
    for path in [ground.codex.join("config.toml"), ground.project.join(".codex").join("config.toml")] {
        let Some(config) = toml(&path) else { continue };
        let mut say = |setting: String, fix: &str| {
            found.push(Unsafe { host: Host::Codex, path: path.clone(), setting, fix: fix.to_owned() });
        };
        let Some(ours) = config.get("mcp_servers").and_then(|all| all.get(NAME)) else { continue };
        if ours.get("default_tools_approval_mode").and_then(Item::as_str) == Some("approve") {
            say(
                format!("mcp_servers.{NAME}.default_tools_approval_mode is `approve`"),
                "remove it, or write `writes`",
            );
        }
        let tool = ours.get("tools").and_then(|tools| tools.get(DESTRUCTIVE));
        if tool.and_then(|tool| tool.get("approval_mode")).and_then(Item::as_str) == Some("approve") {
            say(
                format!("mcp_servers.{NAME}.tools.{DESTRUCTIVE}.approval_mode is `approve`"),
                "write `prompt`",
            );
        }
    }
}

fn cursor(ground: &Ground, found: &mut Vec<Unsafe>) {
    let path = ground.home.join(".cursor").join("permissions.json");
    let Some(settings) = json(&path) else { return };
    let list = settings.get("mcpAllowlist").and_then(Value::as_array);
    for rule in list.into_iter().flatten().filter_map(Value::as_str) {
        let (server, tool) = rule.split_once(':').unwrap_or((rule, "*"));
        if matches!(server, NAME | "*") && matches!(tool, DESTRUCTIVE | "*") {
            found.push(Unsafe {
                host: Host::Cursor,
                path: path.clone(),
                setting: format!("mcpAllowlist has `{rule}`"),
                fix: format!("write `{NAME}:call_tool_read` instead"),
            });
        }
    }
}

fn code(ground: &Ground, found: &mut Vec<Unsafe>) {
    let user = ground.config.join("Code").join("User").join("settings.json");
    for path in [user, ground.project.join(".vscode").join("settings.json")] {
        let Some(settings) = json(&path) else { continue };
        let mut say = |setting: String, fix: &str| {
            found.push(Unsafe { host: Host::VsCode, path: path.clone(), setting, fix: fix.to_owned() });
        };
        for name in ["chat.tools.autoApprove", "chat.tools.global.autoApprove"] {
            if settings.get(name) == Some(&Value::Bool(true)) {
                say(format!("`{name}` is true"), "set it to false");
            }
        }
        let default = settings.get("chat.permissions.default").and_then(Value::as_str).unwrap_or_default();
        if ["bypass", "autopilot"].iter().any(|word| default.to_lowercase().contains(word)) {
            say(format!("`chat.permissions.default` is `{default}`"), "set it to `Default`");
        }
    }
}

fn gemini(ground: &Ground, found: &mut Vec<Unsafe>) {
    let folders = [ground.home.join(".gemini"), ground.project.join(".gemini")];
    for folder in &folders {
        let path = folder.join("settings.json");
        let trusted =
            json(&path).and_then(|settings| settings.pointer(&format!("/mcpServers/{NAME}/trust")).cloned());
        if trusted == Some(Value::Bool(true)) {
            let setting = format!("mcpServers.{NAME}.trust is true");
            found.push(Unsafe { host: Host::Gemini, path, setting, fix: "remove `trust`".to_owned() });
        }
        let policies = fs::read_dir(folder.join("policies")).into_iter().flatten().filter_map(Result::ok);
        for path in policies
            .map(|entry| entry.path())
            .filter(|path| path.extension().is_some_and(|one| one == "toml"))
        {
            let Some(policy) = toml(&path) else { continue };
            let rules = policy.get("rule").and_then(Item::as_array_of_tables);
            for rule in rules.into_iter().flatten() {
                let text = |key: &str| rule.get(key).and_then(Item::as_str);
                let server = text("mcpName").is_some_and(|name| name == NAME || name == "*");
                let tool = text("toolName").is_none_or(|tool| tool == DESTRUCTIVE || tool == "*");
                if server && tool && text("decision") == Some("allow") {
                    found.push(Unsafe {
                        host: Host::Gemini,
                        path: path.clone(),
                        setting: format!("a rule allows `{}` of `{NAME}`", text("toolName").unwrap_or("*")),
                        fix: "write `toolName = \"call_tool_read\"`, or `decision = \"ask_user\"`".to_owned(),
                    });
                }
            }
        }
    }
}

fn zed(ground: &Ground, found: &mut Vec<Unsafe>) {
    for path in [ground.zed.join("settings.json"), ground.project.join(".zed").join("settings.json")] {
        let Some(settings) = json(&path) else { continue };
        let tool = format!("mcp:{NAME}:{DESTRUCTIVE}");
        let default = settings
            .pointer("/agent/tool_permissions/tools")
            .and_then(|tools| tools.get(&tool)?.get("default"));
        let mut say = |setting: String, fix: &str| {
            found.push(Unsafe { host: Host::Zed, path: path.clone(), setting, fix: fix.to_owned() });
        };
        if default.and_then(Value::as_str) == Some("allow") {
            say(format!("agent.tool_permissions.tools.\"{tool}\".default is `allow`"), "write `confirm`");
        }
        if settings.pointer("/agent/always_allow_tool_actions") == Some(&Value::Bool(true)) {
            say("agent.always_allow_tool_actions is true".to_owned(), "set it to false");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_that_cover_the_destructive_call() {
        for (rule, expect) in [
            ("mcp__countersign", true),
            ("mcp__countersign__*", true),
            ("mcp__countersign__call_tool_destructive", true),
            ("mcp__countersign__call_tool_*", true),
            ("mcp__countersign__call_tool_read", false),
            ("mcp__countersignatory", false),
            ("mcp__*", false),
            ("Bash(ls)", false),
        ] {
            assert_eq!(covers(rule), expect, "{rule}");
        }
    }
}
