//! Claude Code: servers of the person, of folders and of projects; settings of the person, the project and the administrator.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::host::{HostSpec, NextSteps, ServerDialect};
use crate::host_files::{FileLocation, FilePath};
use crate::json_dialect::JsonDialect;
use crate::permission_lists::{add_allow_and_ask, remove_allow_and_ask};
use crate::permission_rules::{PermissionRules, RuleLocation};
use crate::platform::{HostEnvironment, Os};
use crate::risky_settings::{
    ADMINISTRATOR, FileFindings, SettingFindings, SettingRisk, covers, files_in, loose_rules, read_json,
    strings_at,
};
use crate::server_entry::{GATEWAY_NAME, ServerEntry, ServerEntryKind};

const DIALECT: JsonDialect = JsonDialect {
    project_servers: true,
    stdio_tag: Some(("type", "stdio")),
    url_tag: Some(("type", "http")),
    ..JsonDialect::COMMON
};

pub(crate) const SPEC: HostSpec = HostSpec {
    name: "claude-code",
    title: "Claude Code",
    program: Some("claude"),
    files: &[FileLocation::user(FilePath::Computed(servers_file)), FileLocation::project(".mcp.json")],
    dialect: &DIALECT,
    accepts_url: true,
    passes_config_flag: true,
    next_steps: NextSteps {
        user: "restart it; /mcp lists `countersign`",
        project: "start it in this folder and accept `countersign` when it asks, or in /mcp: until then it is pending",
    },
    permissions: Some(PermissionRules {
        file: RuleLocation::Settings {
            user: FilePath::Computed(|environment| settings_folder(environment).join("settings.json")),
            project: Some(FilePath::Project(".claude/settings.json")),
        },
        add: |text, who| add_allow_and_ask(text, "mcp__countersign__", "", who),
        remove: |now, before| remove_allow_and_ask(now, before, "mcp__countersign__", ""),
    }),
    check_settings,
};

fn servers_file(environment: &HostEnvironment) -> PathBuf {
    environment.variable("CLAUDE_CONFIG_DIR").as_ref().unwrap_or(&environment.home).join(".claude.json")
}

fn settings_folder(environment: &HostEnvironment) -> PathBuf {
    environment.variable_or_home("CLAUDE_CONFIG_DIR", ".claude")
}

/// Where administrators write.
fn managed_folder(environment: &HostEnvironment) -> PathBuf {
    match environment.os {
        Os::Linux => environment.root.join("etc").join("claude-code"),
        Os::Mac => environment.root.join("Library").join("Application Support").join("ClaudeCode"),
        Os::Windows => {
            let programs = environment.variable("ProgramFiles");
            programs.unwrap_or_else(|| PathBuf::from(r"C:\Program Files")).join("ClaudeCode")
        }
    }
}

fn check_settings(environment: &HostEnvironment, findings: &mut SettingFindings<'_>) {
    let mut files = Vec::new();
    for folder in [settings_folder(environment), environment.in_project(".claude")] {
        files.extend(["settings.json", "settings.local.json"].map(|name| folder.join(name)));
    }
    let own = files.len();
    let managed = managed_folder(environment);
    files.push(managed.join("managed-settings.json"));
    files.extend(files_in(&managed.join("managed-settings.d"), "json"));
    let read: Vec<(usize, &PathBuf, Value)> =
        files.iter().enumerate().filter_map(|(at, path)| Some((at, path, read_json(path)?))).collect();
    // Rules of all files apply together, the strictest first.
    let stricter: Vec<&str> = read
        .iter()
        .flat_map(|(_, _, value)| ["/permissions/deny", "/permissions/ask"].map(|at| strings_at(value, at)))
        .flatten()
        .collect();
    for (at, path, value) in &read {
        let mut file = findings.file(path);
        let fix = |fix: &str| if *at < own { fix.to_owned() } else { ADMINISTRATOR.to_owned() };
        check_permissions(value, &stricter, &fix, &mut file);
        check_server_lists(value, &fix, &mut file);
    }
    let accepted = read.iter().any(|(_, _, value)| {
        value.get("enableAllProjectMcpServers") == Some(&Value::Bool(true))
            || strings_at(value, "/enabledMcpjsonServers").contains(&GATEWAY_NAME)
    });
    if !accepted {
        check_acceptance(environment, findings);
    }
    check_managed_servers(environment, findings);
    check_disabled(environment, findings);
}

fn entries(path: &Path) -> Option<Vec<ServerEntry>> {
    DIALECT.read(crate::host::split_mark(&fs::read_to_string(path).ok()?).1, None).ok()
}

/// Servers of a project are used once the person has accepted them.
fn check_acceptance(environment: &HostEnvironment, findings: &mut SettingFindings<'_>) {
    let has_gateway = |path: &Path| {
        entries(path).is_some_and(|all| {
            all.iter().any(|one| one.name == GATEWAY_NAME && one.kind == ServerEntryKind::Countersign)
        })
    };
    let path = environment.in_project(".mcp.json");
    let own = project_state(environment);
    let accepted =
        own.is_some_and(|inside| strings_at(&inside, "/enabledMcpjsonServers").contains(&GATEWAY_NAME));
    if has_gateway(&path) && !has_gateway(&servers_file(environment)) && !accepted {
        findings.file(&path).add(
            SettingRisk::AwaitsAcceptance,
            format!("`{GATEWAY_NAME}` waits to be accepted"),
            "claude  # in this folder: accept it when it asks, or in /mcp",
        );
    }
}

/// What Claude Code itself keeps about the folder worked in.
fn project_state(environment: &HostEnvironment) -> Option<Value> {
    let project = environment.project.display().to_string();
    read_json(&servers_file(environment))?.get("projects")?.get(&project).cloned()
}

fn check_permissions(
    value: &Value,
    stricter: &[&str],
    fix: &dyn Fn(&str) -> String,
    file: &mut FileFindings<'_>,
) {
    for rule in loose_rules(&strings_at(value, "/permissions/allow"), stricter, covers) {
        file.add(
            SettingRisk::Approves,
            format!("permissions.allow has `{rule}`"),
            fix("allow `mcp__countersign__call_tool_read` alone, and put the others under `permissions.ask`"),
        );
    }
    // A tool with a rule of its own is asked about in these modes too.
    let open = !loose_rules(&[ALL_TOOLS_RULE], stricter, covers).is_empty();
    match value.pointer("/permissions/defaultMode").and_then(Value::as_str).filter(|_| open) {
        Some("bypassPermissions") => file.add(
            SettingRisk::Approves,
            "permissions.defaultMode is `bypassPermissions`",
            fix("set it to `default`, or let our tools ask anyway: countersign init --permissions"),
        ),
        Some("auto") => file.add(
            SettingRisk::ModelApproves,
            "permissions.defaultMode is `auto`",
            fix("set it to `default`, or let our tools ask anyway: countersign init --permissions"),
        ),
        Some(_) | None => {}
    }
    if value.get("skipDangerousModePermissionPrompt") == Some(&Value::Bool(true)) {
        file.add(SettingRisk::HidesWarning, "skipDangerousModePermissionPrompt is true", fix("remove it"));
    }
}

/// A rule for all of us.
const ALL_TOOLS_RULE: &str = "mcp__countersign";

fn check_server_lists(value: &Value, fix: &dyn Fn(&str) -> String, file: &mut FileFindings<'_>) {
    if value.get("enableAllProjectMcpServers") == Some(&Value::Bool(true)) {
        file.add(
            SettingRisk::BypassesGateway,
            "enableAllProjectMcpServers is true",
            fix("remove it, and accept servers one by one"),
        );
    }
    if strings_at(value, "/disabledMcpjsonServers").contains(&GATEWAY_NAME) {
        file.add(
            SettingRisk::DisablesGateway,
            format!("disabledMcpjsonServers has `{GATEWAY_NAME}`"),
            fix("take it out of the list"),
        );
    }
    let entries = |key: &str| value.get(key).and_then(Value::as_array);
    let denied = entries("deniedMcpServers").into_iter().flatten();
    if denied.into_iter().any(is_gateway) {
        file.add(
            SettingRisk::DisablesGateway,
            format!("deniedMcpServers has `{GATEWAY_NAME}`"),
            fix("take it out of the list"),
        );
    }
    if let Some(allowed) = entries("allowedMcpServers") {
        // Where commands are listed, a name alone admits no command.
        let commands = allowed.iter().any(|entry| entry.get("serverCommand").is_some());
        let admits =
            |entry: &&Value| is_gateway(entry) && (!commands || entry.get("serverCommand").is_some());
        if !allowed.iter().any(|entry| admits(&entry)) {
            file.add(
                SettingRisk::DisablesGateway,
                format!("allowedMcpServers does not have `{GATEWAY_NAME}`"),
                fix("add {\"serverName\": \"countersign\"} to it"),
            );
        }
    }
}

fn is_gateway(entry: &Value) -> bool {
    let program = entry.get("serverCommand").and_then(Value::as_array).and_then(|words| words.first());
    let program = program.and_then(Value::as_str).map(Path::new).and_then(Path::file_stem);
    entry.get("serverName").and_then(Value::as_str) == Some(GATEWAY_NAME)
        || program.is_some_and(|stem| stem == GATEWAY_NAME)
}

/// An administrator's list of servers is the only one that counts.
fn check_managed_servers(environment: &HostEnvironment, findings: &mut SettingFindings<'_>) {
    let path = managed_folder(environment).join("managed-mcp.json");
    if !path.is_file() {
        return;
    }
    let entries = entries(&path).unwrap_or_default();
    let mut file = findings.file(&path);
    if !entries.iter().any(|entry| entry.kind == ServerEntryKind::Countersign) {
        file.add(
            SettingRisk::DisablesGateway,
            "only the servers of this file are used",
            format!("{ADMINISTRATOR} to put `{GATEWAY_NAME}` into it"),
        );
    }
    let others = entries.iter().filter(|entry| matches!(entry.kind, ServerEntryKind::Server(_)));
    let others: Vec<&str> = others.map(|entry| entry.name.as_str()).collect();
    if !others.is_empty() {
        let setting = format!("mcpServers has {}", others.join(", "));
        file.add(SettingRisk::BypassesGateway, setting, ADMINISTRATOR);
    }
}

/// The person may have switched the gateway off for a folder.
fn check_disabled(environment: &HostEnvironment, findings: &mut SettingFindings<'_>) {
    let Some(inside) = project_state(environment) else { return };
    let project = environment.project.display();
    for key in ["disabledMcpServers", "disabledMcpjsonServers"] {
        if strings_at(&inside, &format!("/{key}")).contains(&GATEWAY_NAME) {
            let setting = format!("projects.\"{project}\".{key} has `{GATEWAY_NAME}`");
            let path = servers_file(environment);
            findings.file(&path).add(SettingRisk::DisablesGateway, setting, "claude  # switch it on in /mcp");
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::permission_rules::WhoAsks;
    use crate::testing::{
        added_rules, check_entries, check_files_everywhere, check_files_on, check_rules, check_settings,
        command_entry, environment, json_value, rule_file, shown,
    };

    #[test]
    fn files() {
        check_files_everywhere(&SPEC, &["~/.claude.json", "PROJECT/.mcp.json"]);
        let moved = ["/c/.claude.json", "PROJECT/.mcp.json"];
        check_files_on(&SPEC, Os::Linux, &[("CLAUDE_CONFIG_DIR", "/c")], &moved);
        for (os, expect) in [
            (Os::Linux, "/etc/claude-code"),
            (Os::Mac, "/Library/Application Support/ClaudeCode"),
            (Os::Windows, "C:/Program Files/ClaudeCode"),
        ] {
            let environment = environment(os, &[]);
            assert_eq!(shown(&environment, &managed_folder(&environment)), expect);
        }
    }

    #[test]
    fn entries_of_the_gateway() {
        let command = r#"{"type":"stdio","command":"countersign","args":["serve"]}"#;
        check_entries(&SPEC, "mcpServers", command, r#"{"type":"http","url":URL,AUTH}"#);
    }

    #[test]
    fn servers_of_single_folders() {
        let local = r#"{"projects":{"/p":{"mcpServers":{"a":{"command":"x"}}}}}"#;
        let entries = DIALECT.read(local, None).unwrap();
        assert_eq!(entries[0].folder, Some(PathBuf::from("/p")));
        let value = json_value(&DIALECT.rewrite(local, &entries, &command_entry()).unwrap());
        assert_eq!(value["projects"]["/p"]["mcpServers"], json!({}));
        assert_eq!(value["mcpServers"]["countersign"]["command"], "countersign");
    }

    #[test]
    fn rules_go_into_two_lists() {
        check_rules(&SPEC, "{\r\n  \"permissions\": {\"allow\": [\"Bash(ls)\"]},\r\n}\r\n");
        let made = added_rules("claude-code", None, WhoAsks::Host);
        assert!(made.ends_with("}\n") && made.contains("\n    \"allow\": [\n      \"mcp__"), "{made}");
        let permissions = &json_value(&made)["permissions"];
        assert_eq!(permissions["allow"][0], "mcp__countersign__call_tool_read");
        assert_eq!(
            permissions["ask"],
            json!([
                "mcp__countersign__call_tool_write",
                "mcp__countersign__call_tool_destructive",
                "mcp__countersign__run_plan"
            ])
        );
        assert!(!made.contains('*'), "{made}");
    }

    #[test]
    fn stricter_rules_of_the_person_stay() {
        // A looser rule of ours is not written beside them.
        let strict = "{\n\t// mine\n\t\"permissions\": {\n\t\t\"ask\": [\"mcp__countersign__get_run\"],\n\t\t\"deny\": [\n\t\t\t\"mcp__countersign__run_plan\", // never\n\t\t],\n\t\t\"allow\": [\"Bash(ls)\"],\n\t},\n\t\"model\": \"x\",\n}\n";
        let after = added_rules("claude-code", Some(strict), WhoAsks::Host);
        let permissions = &json_value(&after)["permissions"];
        assert_eq!(permissions["deny"], json!(["mcp__countersign__run_plan"]));
        let list = |key: &str| permissions[key].as_array().unwrap().len();
        assert_eq!((list("allow"), list("ask")), (9, 3), "{after}");
        assert!(after.contains("// mine") && after.contains("// never"), "{after}");
        assert!(after.ends_with("\t\"model\": \"x\",\n}\n"), "{after}");
        // What the person wrote before is not removed.
        let mine = "{\"permissions\":{\"ask\":[\"mcp__countersign__run_plan\"]}}";
        let after = added_rules("claude-code", Some(mine), WhoAsks::Host);
        let remove = SPEC.permissions.as_ref().unwrap().remove;
        assert_eq!(json_value(&remove(&after, mine).unwrap()), json_value(mine));
    }

    #[test]
    fn settings_that_are_not_what_they_should_be_are_never_overwritten() {
        for (text, line) in [
            ("{\n\"permissions\": [],\n}", 2),
            ("{\n\"permissions\": {\n\"ask\": \"x\"}}", 3),
            ("{\n\"permissions\" {}}", 2),
        ] {
            assert_eq!(
                rule_file("claude-code").add(Some(text), WhoAsks::Host).unwrap_err().line,
                line,
                "{text}"
            );
        }
    }

    #[test]
    fn settings_of_administrators() {
        let settings = "/etc/claude-code/managed-settings.json";
        check_settings(
            &[(
                settings,
                r#"{"permissions":{"allow":["mcp__countersign__*"],"defaultMode":"bypassPermissions"}}"#,
            )],
            &[
                (SettingRisk::Approves, "permissions.allow has `mcp__countersign__*`"),
                (SettingRisk::Approves, "permissions.defaultMode is `bypassPermissions`"),
            ],
        );
        let denied = r#"{"deniedMcpServers":[{"serverName":"countersign"}]}"#;
        check_settings(
            &[(settings, denied)],
            &[(SettingRisk::DisablesGateway, "deniedMcpServers has `countersign`")],
        );
        let drop_in = "/etc/claude-code/managed-settings.d/10-mcp.json";
        let lists = "allowedMcpServers does not have `countersign`";
        for (text, shut) in [
            (r#"{"allowedMcpServers":[]}"#, true),
            (r#"{"allowedMcpServers":[{"serverName":"github"}]}"#, true),
            (r#"{"allowedMcpServers":[{"serverName":"countersign"}]}"#, false),
            (
                r#"{"allowedMcpServers":[{"serverName":"countersign"},{"serverCommand":["npx","-y","x"]}]}"#,
                true,
            ),
            (r#"{"allowedMcpServers":[{"serverCommand":["/usr/bin/countersign","serve"]}]}"#, false),
        ] {
            let expect = [(SettingRisk::DisablesGateway, lists)];
            check_settings(&[(drop_in, text)], if shut { &expect } else { &[] });
        }
        let alone = "/etc/claude-code/managed-mcp.json";
        check_settings(
            &[(alone, r#"{"mcpServers":{"docs":{"command":"docs"}}}"#)],
            &[
                (SettingRisk::DisablesGateway, "only the servers of this file are used"),
                (SettingRisk::BypassesGateway, "mcpServers has docs"),
            ],
        );
        check_settings(
            &[(alone, r#"{"mcpServers":{"countersign":{"command":"countersign","args":["serve"]}}}"#)],
            &[],
        );
    }

    #[test]
    fn settings_of_the_person() {
        check_settings(
            &[(
                "~/.claude/settings.json",
                r#"{"skipDangerousModePermissionPrompt":true,"permissions":{"defaultMode":"auto"},"enableAllProjectMcpServers":true,"disabledMcpjsonServers":["countersign"]}"#,
            )],
            &[
                (SettingRisk::ModelApproves, "permissions.defaultMode is `auto`"),
                (SettingRisk::HidesWarning, "skipDangerousModePermissionPrompt is true"),
                (SettingRisk::BypassesGateway, "enableAllProjectMcpServers is true"),
                (SettingRisk::DisablesGateway, "disabledMcpjsonServers has `countersign`"),
            ],
        );
        // A stricter rule anywhere wins.
        check_settings(
            &[
                (
                    "~/.claude/settings.json",
                    r#"{"permissions":{"allow":["mcp__countersign"],"defaultMode":"auto"}}"#,
                ),
                (
                    "project/.claude/settings.json",
                    r#"{"permissions":{"ask":["mcp__countersign__call_tool_destructive"],"deny":["mcp__countersign__run_plan"]}}"#,
                ),
            ],
            &[],
        );
        check_settings(
            &[("~/.claude.json", r#"{"projects":{"PROJECT":{"disabledMcpServers":["countersign"]}}}"#)],
            &[(SettingRisk::DisablesGateway, "projects.\"PROJECT\".disabledMcpServers has `countersign`")],
        );
    }

    #[test]
    fn a_server_of_a_project_waits_to_be_accepted() {
        let ours = r#"{"mcpServers":{"countersign":{"command":"countersign","args":["serve"]}}}"#;
        let shared = ("project/.mcp.json", ours);
        check_settings(&[shared], &[(SettingRisk::AwaitsAcceptance, "`countersign` waits to be accepted")]);
        for accepted in [
            ("project/.claude/settings.local.json", r#"{"enabledMcpjsonServers":["countersign"]}"#),
            ("~/.claude.json", r#"{"projects":{"PROJECT":{"enabledMcpjsonServers":["countersign"]}}}"#),
            // The person has it everywhere.
            ("~/.claude.json", ours),
        ] {
            check_settings(&[shared, accepted], &[]);
        }
        check_settings(&[("project/.mcp.json", r#"{"mcpServers":{"docs":{"command":"docs"}}}"#)], &[]);
    }
}
