//! Zed.

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::host::{HostFileError, HostSpec, NextSteps};
use crate::host_files::{FileLocation, FilePath};
use crate::json_dialect::{CommandShape, JsonDialect};
use crate::json_text::{self, parse_object, with_final_break};
use crate::permission_lists::{append_members, remove_members};
use crate::permission_rules::{PermissionRules, RuleFileEdit, RuleLocation, WhoAsks, all_tools};
use crate::platform::{HostEnvironment, Os};
use crate::risky_settings::{DESTRUCTIVE_TOOLS, SettingFindings, SettingRisk};
use crate::server_entry::GATEWAY_NAME;

pub(crate) const SPEC: HostSpec = HostSpec {
    name: "zed",
    title: "Zed",
    program: None,
    files: &[FileLocation::user(FilePath::Computed(settings)), FileLocation::project(".zed/settings.json")],
    dialect: &JsonDialect {
        key: "context_servers",
        command: CommandShape::PlainOrNested,
        stdio_tag: Some(("source", "custom")),
        url_tag: Some(("source", "custom")),
        ..JsonDialect::COMMON
    },
    accepts_url: true,
    passes_config_flag: true,
    next_steps: NextSteps::same(
        "nothing: it reads the file at once; the agent panel's settings list `countersign`",
    ),
    permissions: Some(PermissionRules {
        // What a person allows there is not a project's to say.
        file: RuleLocation::Settings { user: FilePath::Computed(settings), project: None },
        add: add_rules,
        remove: |now, before| remove_members(now, before, &TOOLS, rule),
    }),
    check_settings,
};

fn settings(environment: &HostEnvironment) -> PathBuf {
    let folder = if environment.os == Os::Windows { "Zed" } else { "zed" };
    environment.in_dot_config(folder).join("settings.json")
}

const TOOLS: [&str; 3] = ["agent", "tool_permissions", "tools"];

fn rule(tool: &str, who: WhoAsks) -> (String, Value) {
    let level = if who.asks(tool) { "confirm" } else { "allow" };
    (format!("mcp:{GATEWAY_NAME}:{tool}"), json!({"default": level}))
}

fn add_rules(text: Option<&str>, who: WhoAsks) -> Result<RuleFileEdit, HostFileError> {
    let text = text.unwrap_or_default();
    let (root, object) = parse_object(text)?;
    let mut tools = Some(object.clone());
    for key in TOOLS {
        tools = match tools {
            Some(holder) => json_text::object(&holder, key)?,
            None => None,
        };
    }
    let mut missing = Vec::new();
    for (name, value) in all_tools().map(|tool| rule(tool, who)) {
        let there = tools.as_ref().map(|tools| json_text::object(tools, &name)).transpose()?.flatten();
        if there.is_none_or(|tool| tool.get("default").is_none()) {
            missing.push((name, value));
        }
    }
    if missing.is_empty() {
        return Ok(RuleFileEdit::Text(text.to_owned()));
    }
    append_members(&object, &TOOLS, missing)?;
    Ok(RuleFileEdit::Text(with_final_break(text, root.to_string())))
}

fn check_settings(environment: &HostEnvironment, findings: &mut SettingFindings<'_>) {
    let files = [settings(environment), environment.in_project(".zed/settings.json")];
    findings.check_json(files, |value, file| {
        let permissions = value.pointer("/agent/tool_permissions");
        let default = |tool: &str| {
            permissions?.get("tools")?.get(format!("mcp:{GATEWAY_NAME}:{tool}"))?.get("default")?.as_str()
        };
        for tool in DESTRUCTIVE_TOOLS.into_iter().filter(|tool| default(tool) == Some("allow")) {
            let setting =
                format!("agent.tool_permissions.tools.\"mcp:{GATEWAY_NAME}:{tool}\".default is `allow`");
            file.add(SettingRisk::Approves, setting, "write `confirm`");
        }
        let all = permissions.and_then(|all| all.get("default")).and_then(Value::as_str);
        if all == Some("allow") && DESTRUCTIVE_TOOLS.into_iter().any(|tool| default(tool).is_none()) {
            file.add(
                SettingRisk::Approves,
                "agent.tool_permissions.default is `allow`",
                "set it to `confirm`, or let our tools ask: countersign init --permissions",
            );
        }
        if value.pointer("/agent/always_allow_tool_actions") == Some(&Value::Bool(true)) {
            file.add(SettingRisk::Approves, "agent.always_allow_tool_actions is true", "set it to false");
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{
        added_rules, check_entries, check_files, check_rules, check_settings, json_value, rule_file,
    };

    #[test]
    fn files() {
        let unix = ["~/.config/zed/settings.json", "PROJECT/.zed/settings.json"];
        check_files(
            &SPEC,
            &unix,
            &unix,
            &["~/AppData/Roaming/Zed/settings.json", "PROJECT/.zed/settings.json"],
        );
    }

    #[test]
    fn entries() {
        let command = r#"{"source":"custom","command":"countersign","args":["serve"]}"#;
        check_entries(&SPEC, "context_servers", command, r#"{"source":"custom","url":URL,AUTH}"#);
    }

    #[test]
    fn rules_are_levels_for_each_tool() {
        check_rules(&SPEC, "{\r\n\t\"vim_mode\": true, // yes\r\n}\r\n");
        let text = "{\n  // editor\n  \"agent\": { \"tool_permissions\": { \"tools\": { \"mcp:countersign:call_tool_write\": { \"default\": \"deny\" } } } },\n}\n";
        let after = added_rules("zed", Some(text), WhoAsks::Host);
        let tools = &json_value(&after)["agent"]["tool_permissions"]["tools"];
        assert_eq!(tools["mcp:countersign:call_tool_read"]["default"], "allow");
        assert_eq!(tools["mcp:countersign:call_tool_destructive"]["default"], "confirm");
        assert_eq!(tools["mcp:countersign:call_tool_write"]["default"], "deny", "what was decided stays");
        assert!(after.starts_with("{\n  // editor\n"), "{after}");
        let broken = "{\n\"agent\": {\n\n\"tool_permissions\": true}}";
        assert_eq!(rule_file("zed").add(Some(broken), WhoAsks::Host).unwrap_err().line, 4);
    }

    #[test]
    fn a_level_that_was_changed_since_stays() {
        let after = added_rules("zed", Some("{}"), WhoAsks::Host).replacen("\"allow\"", "\"deny\"", 1);
        let remove = SPEC.permissions.as_ref().unwrap().remove;
        assert_eq!(
            json_value(&remove(&after, "{}").unwrap()),
            json!({"agent": {"tool_permissions": {"tools": {"mcp:countersign:call_tool_read": {"default": "deny"}}}}})
        );
    }

    #[test]
    fn settings_that_approve() {
        check_settings(
            &[("~/.config/zed/settings.json", r#"{"agent":{"tool_permissions":{"default":"allow"}}}"#)],
            &[(SettingRisk::Approves, "agent.tool_permissions.default is `allow`")],
        );
    }
}
