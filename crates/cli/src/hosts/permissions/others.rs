//! Cursor, VS Code, Copilot CLI, Antigravity, Devin, Zed: a few settings each.

use std::path::PathBuf;

use serde_json::Value;

use super::super::{Ground, Host, NAME};
use super::{DESTRUCTIVE, Harm, Page, Setting, covers, json, loose, texts};

pub(super) fn look(ground: &Ground, found: &mut Vec<Setting>) {
    cursor(ground, found);
    code(ground, found);
    copilot(ground, found);
    antigravity(ground, found);
    devin(ground, found);
    zed(ground, found);
}

/// Goes through those of these files that are there.
pub(super) fn each(
    host: Host,
    files: impl IntoIterator<Item = PathBuf>,
    found: &mut Vec<Setting>,
    look: impl Fn(&Value, &mut Page<'_>),
) {
    for path in files {
        if let Some(value) = json(&path) {
            look(&value, &mut Page { host, path: &path, found: &mut *found });
        }
    }
}

fn cursor(ground: &Ground, found: &mut Vec<Setting>) {
    let files = [&ground.home, &ground.project].map(|one| one.join(".cursor").join("permissions.json"));
    each(Host::Cursor, files, found, |value, page| {
        for rule in texts(value, "/mcpAllowlist") {
            let (server, tool) = rule.split_once(':').unwrap_or((rule, "*"));
            if matches!(server, NAME | "*") && (tool == "*" || DESTRUCTIVE.contains(&tool)) {
                let setting = format!("mcpAllowlist has `{rule}`");
                page.say(Harm::Answers, setting, format!("write `{NAME}:call_tool_read` instead"));
            }
        }
    });
}

fn code(ground: &Ground, found: &mut Vec<Setting>) {
    let user = ground.config.join("Code").join("User").join("settings.json");
    let files = [user, ground.project.join(".vscode").join("settings.json")];
    each(Host::VsCode, files, found, |value, page| {
        for name in ["chat.tools.autoApprove", "chat.tools.global.autoApprove"] {
            if value.get(name) == Some(&Value::Bool(true)) {
                page.say(Harm::Answers, format!("`{name}` is true"), "set it to false");
            }
        }
        let default = value.get("chat.permissions.default").and_then(Value::as_str).unwrap_or_default();
        let loose = ["bypass", "autopilot", "autoapprove"];
        if loose.iter().any(|word| default.to_lowercase().contains(word)) {
            let setting = format!("`chat.permissions.default` is `{default}`");
            page.say(Harm::Answers, setting, "set it to `default`");
        }
    });
}

fn copilot(ground: &Ground, found: &mut Vec<Setting>) {
    let project = ground.project.join(".github").join("copilot");
    let files = [
        ground.copilot.join("settings.json"),
        project.join("settings.json"),
        project.join("settings.local.json"),
    ];
    each(Host::Copilot, files, found, |value, page| {
        match value.get("defaultPermissionMode").and_then(Value::as_str) {
            Some("allow-all") => {
                page.say(Harm::Answers, "defaultPermissionMode is `allow-all`", "set it to `manual`");
            }
            Some("assisted") => {
                page.say(Harm::Judges, "defaultPermissionMode is `assisted`", "set it to `manual`");
            }
            Some(_) | None => {}
        }
        if texts(value, "/disabledMcpServers").contains(&NAME) {
            let setting = format!("disabledMcpServers has `{NAME}`");
            page.say(Harm::ShutsOut, setting, format!("copilot mcp enable {NAME}"));
        }
    });
    // What was answered with "and don't ask again".
    let answered = ground.copilot.join("permissions-config.json");
    each(Host::Copilot, [answered], found, |value, page| {
        let locations = value.get("locations").and_then(Value::as_object);
        for (location, inside) in locations.into_iter().flatten() {
            let approvals = inside.get("tool_approvals").and_then(Value::as_array);
            for approval in approvals.into_iter().flatten() {
                let text = |key: &str| approval.get(key).and_then(Value::as_str);
                let ours = text("kind") == Some("mcp") && text("serverName") == Some(NAME);
                if ours && text("toolName").is_none_or(|tool| DESTRUCTIVE.contains(&tool)) {
                    let tool = text("toolName").unwrap_or("every tool");
                    let setting = format!("locations.\"{location}\".tool_approvals has {tool} of `{NAME}`");
                    page.say(Harm::Answers, setting, "take it out of the list");
                }
            }
        }
    });
}

fn antigravity(ground: &Ground, found: &mut Vec<Setting>) {
    let path = ground.home.join(".gemini").join("antigravity-cli").join("settings.json");
    each(Host::Antigravity, [path], found, |value, page| {
        if value.get("toolPermission").and_then(Value::as_str) == Some("always-proceed") {
            page.say(Harm::Answers, "toolPermission is `always-proceed`", "set it to `request-review`");
        }
        let lists = ["/permissions/deny", "/permissions/ask"].map(|at| texts(value, at)).concat();
        for rule in loose(&texts(value, "/permissions/allow"), &lists, covers_in_brackets) {
            let setting = format!("permissions.allow has `{rule}`");
            page.say(Harm::Answers, setting, format!("write `mcp({NAME}/call_tool_read)` instead"));
        }
    });
}

/// `mcp(*)`, `mcp(server/*)`, `mcp(server/tool)`.
fn covers_in_brackets(rule: &str, tool: &str) -> bool {
    let Some(inside) = rule.strip_prefix("mcp(").and_then(|rest| rest.strip_suffix(')')) else {
        return false;
    };
    let (server, wanted) = inside.split_once('/').unwrap_or((inside, "*"));
    matches!(server, NAME | "*") && (wanted == "*" || wanted == tool)
}

fn devin(ground: &Ground, found: &mut Vec<Setting>) {
    let project = ground.project.join(".devin");
    let files =
        [ground.devin.join("config.json"), project.join("config.json"), project.join("config.local.json")];
    each(Host::Devin, files, found, |value, page| {
        let lists = ["/permissions/deny", "/permissions/ask"].map(|at| texts(value, at)).concat();
        let covers = |rule: &str, tool: &str| matches!(rule, "mcp__*" | "*") || covers(rule, tool);
        for rule in loose(&texts(value, "/permissions/allow"), &lists, covers) {
            page.say(
                Harm::Answers,
                format!("permissions.allow has `{rule}`"),
                "allow `mcp__countersign__call_tool_read` alone, and put the others under `permissions.ask`",
            );
        }
    });
}

fn zed(ground: &Ground, found: &mut Vec<Setting>) {
    let files = [ground.zed.join("settings.json"), ground.project.join(".zed").join("settings.json")];
    each(Host::Zed, files, found, |value, page| {
        let permissions = value.pointer("/agent/tool_permissions");
        let default = |tool: &str| {
            permissions?.get("tools")?.get(format!("mcp:{NAME}:{tool}"))?.get("default")?.as_str()
        };
        for tool in DESTRUCTIVE.into_iter().filter(|tool| default(tool) == Some("allow")) {
            let setting = format!("agent.tool_permissions.tools.\"mcp:{NAME}:{tool}\".default is `allow`");
            page.say(Harm::Answers, setting, "write `confirm`");
        }
        let all = permissions.and_then(|all| all.get("default")).and_then(Value::as_str);
        if all == Some("allow") && DESTRUCTIVE.into_iter().any(|tool| default(tool).is_none()) {
            page.say(
                Harm::Answers,
                "agent.tool_permissions.default is `allow`",
                "set it to `confirm`, or let our tools ask: countersign init --permissions",
            );
        }
        if value.pointer("/agent/always_allow_tool_actions") == Some(&Value::Bool(true)) {
            page.say(Harm::Answers, "agent.always_allow_tool_actions is true", "set it to false");
        }
    });
}
