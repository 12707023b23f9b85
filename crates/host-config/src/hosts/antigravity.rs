//! Antigravity.

use serde_json::Value;

use crate::host::{HostSpec, NextSteps};
use crate::host_files::{FileLocation, FilePath};
use crate::json_dialect::JsonDialect;
use crate::permission_lists::{add_allow_and_ask, remove_allow_and_ask};
use crate::permission_rules::{PermissionRules, RuleFileEdit, RuleLocation};
use crate::platform::HostEnvironment;
use crate::risky_settings::{SettingFindings, SettingRisk, loose_rules, strings_at};
use crate::server_entry::GATEWAY_NAME;

const SETTINGS: &str = ".gemini/antigravity-cli/settings.json";

pub(crate) const SPEC: HostSpec = HostSpec {
    name: "antigravity",
    title: "Antigravity",
    program: None,
    files: &[
        FileLocation::user(FilePath::Home(".gemini/config/mcp_config.json")),
        FileLocation::user(FilePath::Home(".gemini/antigravity/mcp_config.json")).secondary(),
        FileLocation::project(".agents/mcp_config.json"),
    ],
    dialect: &JsonDialect { prefers_url: true, url_key: "serverUrl", ..JsonDialect::COMMON },
    accepts_url: true,
    passes_config_flag: true,
    next_steps: NextSteps::same("open Manage MCP Servers and press Refresh"),
    permissions: Some(PermissionRules {
        // What a person allows there is not a project's to say.
        file: RuleLocation::Settings { user: FilePath::Home(SETTINGS), project: None },
        add: |text, who| match text {
            Some(_) => add_allow_and_ask(text, "mcp(countersign/", ")", who),
            None => Ok(RuleFileEdit::Not("its rules are kept in its settings: allow reading there")),
        },
        remove: |now, before| remove_allow_and_ask(now, before, "mcp(countersign/", ")"),
    }),
    check_settings,
};

fn check_settings(environment: &HostEnvironment, findings: &mut SettingFindings<'_>) {
    findings.check_json([environment.at_home(SETTINGS)], |value, file| {
        if value.get("toolPermission").and_then(Value::as_str) == Some("always-proceed") {
            let setting = "toolPermission is `always-proceed`";
            file.add(SettingRisk::Approves, setting, "set it to `request-review`");
        }
        let stricter = ["/permissions/deny", "/permissions/ask"].map(|at| strings_at(value, at)).concat();
        for rule in loose_rules(&strings_at(value, "/permissions/allow"), &stricter, covers) {
            let setting = format!("permissions.allow has `{rule}`");
            let fix = format!("write `mcp({GATEWAY_NAME}/call_tool_read)` instead");
            file.add(SettingRisk::Approves, setting, fix);
        }
    });
}

/// Rules are `mcp(*)`, `mcp(server/*)` or `mcp(server/tool)`.
fn covers(rule: &str, tool: &str) -> bool {
    let Some(inside) = rule.strip_prefix("mcp(").and_then(|rest| rest.strip_suffix(')')) else {
        return false;
    };
    let (server, wanted) = inside.split_once('/').unwrap_or((inside, "*"));
    matches!(server, GATEWAY_NAME | "*") && (wanted == "*" || wanted == tool)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::permission_rules::WhoAsks;
    use crate::testing::{
        added_rules, check_entries, check_files_everywhere, check_settings, json_value, rule_file,
    };

    #[test]
    fn files() {
        check_files_everywhere(
            &SPEC,
            &[
                "~/.gemini/config/mcp_config.json",
                "~/.gemini/antigravity/mcp_config.json",
                "PROJECT/.agents/mcp_config.json",
            ],
        );
    }

    #[test]
    fn entries() {
        let command = r#"{"command":"countersign","args":["serve"]}"#;
        check_entries(&SPEC, "mcpServers", command, r#"{"serverUrl":URL,AUTH}"#);
    }

    #[test]
    fn rules_go_into_settings_that_exist() {
        let after = added_rules("antigravity", Some("{}"), WhoAsks::Host);
        assert_eq!(json_value(&after)["permissions"]["allow"][0], "mcp(countersign/call_tool_read)");
        assert!(matches!(rule_file("antigravity").add(None, WhoAsks::Host), Ok(RuleFileEdit::Not(_))));
    }

    #[test]
    fn settings_that_approve() {
        check_settings(
            &[(
                "~/.gemini/antigravity-cli/settings.json",
                r#"{"toolPermission":"always-proceed","permissions":{"allow":["mcp(countersign/*)","mcp(countersign/get_run)","command(ls)"]}}"#,
            )],
            &[
                (SettingRisk::Approves, "toolPermission is `always-proceed`"),
                (SettingRisk::Approves, "permissions.allow has `mcp(countersign/*)`"),
            ],
        );
    }
}
