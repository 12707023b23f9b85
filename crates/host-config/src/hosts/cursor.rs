//! Cursor.

use crate::host::{HostFileError, HostSpec, NextSteps};
use crate::host_files::{FileLocation, FilePath};
use crate::json_dialect::JsonDialect;
use crate::json_text;
use crate::permission_lists::{extend, remove_from_lists, strings, tool_rules};
use crate::permission_rules::{PermissionRules, RuleFileEdit, RuleLocation, WhoAsks};
use crate::platform::HostEnvironment;
use crate::risky_settings::{DESTRUCTIVE_TOOLS, SettingFindings, SettingRisk, strings_at};
use crate::server_entry::GATEWAY_NAME;

pub(crate) const SPEC: HostSpec = HostSpec {
    name: "cursor",
    title: "Cursor",
    program: None,
    files: &[
        FileLocation::user(FilePath::Home(".cursor/mcp.json")),
        FileLocation::project(".cursor/mcp.json"),
    ],
    dialect: &JsonDialect::COMMON,
    accepts_url: true,
    passes_config_flag: true,
    next_steps: NextSteps::same("switch `countersign` on in its settings, under MCP"),
    permissions: Some(PermissionRules {
        file: RuleLocation::Settings {
            user: FilePath::Home(".cursor/permissions.json"),
            project: Some(FilePath::Project(".cursor/permissions.json")),
        },
        add: add_rules,
        remove: |now, before| {
            let rules = tool_rules(&WhoAsks::Gateway.allowed(), "countersign:", "");
            remove_from_lists(now, before, &[(&[ALLOWLIST], rules)])
        },
    }),
    check_settings,
};

const ALLOWLIST: &str = "mcpAllowlist";

/// Adds to the list only where there is one: a new one would replace the list in the host's settings.
fn add_rules(text: Option<&str>, who: WhoAsks) -> Result<RuleFileEdit, HostFileError> {
    let root = json_text::parse(text.unwrap_or_default())?;
    let object = json_text::root_object(&root)?;
    let list = object.as_ref().map(|object| json_text::list(object, ALLOWLIST)).transpose()?.flatten();
    let (Some(object), Some(list)) = (object, list) else {
        return Ok(RuleFileEdit::Not(
            "it has no `mcpAllowlist` in a file, and a new one would replace the list in its settings: \
             allow `countersign:call_tool_read` there",
        ));
    };
    let have = strings(Some(&list));
    let mut rules = tool_rules(&who.allowed(), "countersign:", "");
    rules.retain(|rule| !have.contains(rule));
    extend(&object, ALLOWLIST, &rules)?;
    Ok(RuleFileEdit::Text(root.to_string()))
}

fn check_settings(environment: &HostEnvironment, findings: &mut SettingFindings<'_>) {
    let file = ".cursor/permissions.json";
    findings.check_json([environment.at_home(file), environment.in_project(file)], |value, file| {
        for rule in strings_at(value, "/mcpAllowlist") {
            let (server, tool) = rule.split_once(':').unwrap_or((rule, "*"));
            if matches!(server, GATEWAY_NAME | "*") && (tool == "*" || DESTRUCTIVE_TOOLS.contains(&tool)) {
                let setting = format!("mcpAllowlist has `{rule}`");
                let fix = format!("write `{GATEWAY_NAME}:call_tool_read` instead");
                file.add(SettingRisk::Approves, setting, fix);
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{
        added_rules, check_entries, check_files_everywhere, check_rules, check_settings, json_value,
        rule_file,
    };

    #[test]
    fn files() {
        check_files_everywhere(&SPEC, &["~/.cursor/mcp.json", "PROJECT/.cursor/mcp.json"]);
    }

    #[test]
    fn entries() {
        let command = r#"{"command":"countersign","args":["serve"]}"#;
        check_entries(&SPEC, "mcpServers", command, r#"{"url":URL,AUTH}"#);
    }

    #[test]
    fn rules_go_into_a_list_that_exists() {
        check_rules(&SPEC, "{\"mcpAllowlist\":[]}");
        for text in [None, Some(""), Some("{}"), Some("{\"terminalAllowlist\": [\"ls\"]}")] {
            let added = rule_file("cursor").add(text, WhoAsks::Host);
            assert!(matches!(added, Ok(RuleFileEdit::Not(_))), "{text:?}");
        }
        let after = added_rules("cursor", Some("{ \"mcpAllowlist\": [\"gh:list\"] }"), WhoAsks::Host);
        assert_eq!(json_value(&after)["mcpAllowlist"][1], "countersign:call_tool_read");
        assert!(!after.contains("call_tool_write"), "{after}");
        let broken = rule_file("cursor").add(Some("{\n\n\"mcpAllowlist\": {}}"), WhoAsks::Host).unwrap_err();
        assert_eq!(broken.line, 3);
    }

    #[test]
    fn settings_that_approve() {
        check_settings(
            &[(
                "project/.cursor/permissions.json",
                "{\"mcpAllowlist\":[\"countersign:run_plan\",\"countersign:get_run\"]}",
            )],
            &[(SettingRisk::Approves, "mcpAllowlist has `countersign:run_plan`")],
        );
    }
}
