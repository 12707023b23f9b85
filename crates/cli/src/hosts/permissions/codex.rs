//! Codex: the configuration of the person, of a project and of whoever administers the machine.

use std::path::Path;

use toml_edit::{Item, TableLike};

use super::super::{Ground, Host, NAME};
use super::{ADMINISTRATOR, DESTRUCTIVE, Harm, Page, Setting, toml};

pub(super) fn look(ground: &Ground, found: &mut Vec<Setting>) {
    let machine = &ground.codex_managed;
    for (path, own) in [
        (ground.codex.join("config.toml"), true),
        (ground.project.join(".codex").join("config.toml"), true),
        (machine.join("config.toml"), false),
        (machine.join("managed_config.toml"), false),
    ] {
        let Some(config) = toml(&path) else { continue };
        let mut page = Page { host: Host::Codex, path: &path, found: &mut *found };
        let mine = |fix: &str| if own { fix.to_owned() } else { ADMINISTRATOR.to_owned() };
        let servers = config.get("mcp_servers").and_then(Item::as_table_like);
        if let Some(ours) = servers.and_then(|servers| servers.get(NAME)) {
            tools(ours, &mine, &mut page);
        }
        if !own && let Some(servers) = servers {
            around(servers, &mut page);
        }
        answers("", config.as_table(), &mine, &mut page);
        let profiles = config.get("profiles").and_then(Item::as_table_like);
        for (name, profile) in profiles.into_iter().flat_map(TableLike::iter) {
            if let Some(profile) = profile.as_table_like() {
                answers(&format!("profiles.{name}."), profile, &mine, &mut page);
            }
        }
    }
    required(&machine.join("requirements.toml"), found);
}

fn text<'a>(table: &'a dyn TableLike, key: &str) -> Option<&'a str> {
    table.get(key).and_then(Item::as_str)
}

fn tools(ours: &Item, mine: &dyn Fn(&str) -> String, page: &mut Page<'_>) {
    if ours.get("default_tools_approval_mode").and_then(Item::as_str) == Some("approve") {
        page.say(
            Harm::Answers,
            format!("mcp_servers.{NAME}.default_tools_approval_mode is `approve`"),
            mine("remove it, or write `writes`"),
        );
    }
    if ours.get("enabled").and_then(Item::as_bool) == Some(false) {
        page.say(
            Harm::ShutsOut,
            format!("mcp_servers.{NAME}.enabled is false"),
            mine("remove it, or write true"),
        );
    }
    for tool in DESTRUCTIVE {
        let table = ours.get("tools").and_then(|tools| tools.get(tool));
        if table.and_then(|table| table.get("approval_mode")).and_then(Item::as_str) == Some("approve") {
            page.say(
                Harm::Answers,
                format!("mcp_servers.{NAME}.tools.{tool}.approval_mode is `approve`"),
                mine("write `prompt`"),
            );
        }
    }
}

/// What is never asked for and runs unhindered is not asked for here either.
fn answers(prefix: &str, table: &dyn TableLike, mine: &dyn Fn(&str) -> String, page: &mut Page<'_>) {
    let free = text(table, "sandbox_mode") == Some("danger-full-access");
    if free && text(table, "approval_policy") == Some("never") {
        page.say(
            Harm::Answers,
            format!("{prefix}approval_policy is `never` with sandbox_mode `danger-full-access`"),
            mine("set approval_policy to `on-request`"),
        );
    }
    if let Some(reviewer @ ("auto_review" | "guardian_subagent")) = text(table, "approvals_reviewer") {
        page.say(
            Harm::Judges,
            format!("{prefix}approvals_reviewer is `{reviewer}`"),
            mine("set it to `user`"),
        );
    }
}

fn around(servers: &dyn TableLike, page: &mut Page<'_>) {
    let names: Vec<&str> = servers.iter().map(|(name, _)| name).filter(|name| *name != NAME).collect();
    if !names.is_empty() {
        page.say(Harm::LetsIn, format!("mcp_servers has {}", names.join(", ")), ADMINISTRATOR);
    }
}

/// Where servers are listed that may be used, others are switched off.
fn required(path: &Path, found: &mut Vec<Setting>) {
    let Some(servers) = toml(path) else { return };
    let Some(servers) = servers.get("mcp_servers").and_then(Item::as_table_like) else { return };
    if servers.get(NAME).is_none() {
        Page { host: Host::Codex, path, found }.say(
            Harm::ShutsOut,
            format!("mcp_servers does not have `{NAME}`"),
            format!("{ADMINISTRATOR} to add `[mcp_servers.{NAME}.identity]` with our `command`"),
        );
    }
}
