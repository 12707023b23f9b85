//! Copilot CLI.

use std::path::PathBuf;

use serde_json::Value;

use crate::host::{HostSpec, NextSteps};
use crate::host_files::{FileLocation, FilePath};
use crate::json_dialect::JsonDialect;
use crate::platform::HostEnvironment;
use crate::risky_settings::{DESTRUCTIVE_TOOLS, SettingFindings, SettingRisk, strings_at};
use crate::server_entry::GATEWAY_NAME;

pub(crate) const SPEC: HostSpec = HostSpec {
    name: "copilot",
    title: "Copilot CLI",
    program: Some("copilot"),
    files: &[
        FileLocation::user(FilePath::Computed(|environment| folder(environment).join("mcp-config.json"))),
        FileLocation::project(".github/mcp.json"),
    ],
    dialect: &JsonDialect {
        lists_tools: true,
        // Every version knows this word; `stdio` came later and means the same.
        stdio_tag: Some(("type", "local")),
        url_tag: Some(("type", "http")),
        ..JsonDialect::COMMON
    },
    accepts_url: true,
    passes_config_flag: true,
    next_steps: NextSteps {
        user: "restart it; /mcp show lists `countersign`",
        project: "start it in this folder and trust the folder: until then the file is not read",
    },
    permissions: None,
    check_settings,
};

fn folder(environment: &HostEnvironment) -> PathBuf {
    environment.variable_or_home("COPILOT_HOME", ".copilot")
}

fn check_settings(environment: &HostEnvironment, findings: &mut SettingFindings<'_>) {
    let files = [
        folder(environment).join("settings.json"),
        environment.in_project(".github/copilot/settings.json"),
        environment.in_project(".github/copilot/settings.local.json"),
    ];
    findings.check_json(files, |value, file| {
        match value.get("defaultPermissionMode").and_then(Value::as_str) {
            Some("allow-all") => {
                file.add(SettingRisk::Approves, "defaultPermissionMode is `allow-all`", "set it to `manual`");
            }
            Some("assisted") => {
                let setting = "defaultPermissionMode is `assisted`";
                file.add(SettingRisk::ModelApproves, setting, "set it to `manual`");
            }
            Some(_) | None => {}
        }
        if strings_at(value, "/disabledMcpServers").contains(&GATEWAY_NAME) {
            let setting = format!("disabledMcpServers has `{GATEWAY_NAME}`");
            file.add(SettingRisk::DisablesGateway, setting, format!("copilot mcp enable {GATEWAY_NAME}"));
        }
    });
    // What was answered with "and don't ask again".
    let answered = folder(environment).join("permissions-config.json");
    findings.check_json([answered], |value, file| {
        let locations = value.get("locations").and_then(Value::as_object);
        for (location, inside) in locations.into_iter().flatten() {
            let approvals = inside.get("tool_approvals").and_then(Value::as_array);
            for approval in approvals.into_iter().flatten() {
                let text = |key: &str| approval.get(key).and_then(Value::as_str);
                let ours = text("kind") == Some("mcp") && text("serverName") == Some(GATEWAY_NAME);
                if ours && text("toolName").is_none_or(|tool| DESTRUCTIVE_TOOLS.contains(&tool)) {
                    let tool = text("toolName").unwrap_or("every tool");
                    let setting =
                        format!("locations.\"{location}\".tool_approvals has {tool} of `{GATEWAY_NAME}`");
                    file.add(SettingRisk::Approves, setting, "take it out of the list");
                }
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::Os;
    use crate::testing::{check_entries, check_files_everywhere, check_files_on, check_settings};

    #[test]
    fn files() {
        check_files_everywhere(&SPEC, &["~/.copilot/mcp-config.json", "PROJECT/.github/mcp.json"]);
        let moved = ["/p/mcp-config.json", "PROJECT/.github/mcp.json"];
        check_files_on(&SPEC, Os::Linux, &[("COPILOT_HOME", "/p")], &moved);
    }

    #[test]
    fn entries() {
        let command = r#"{"type":"local","command":"countersign","args":["serve"],"tools":["*"]}"#;
        check_entries(&SPEC, "mcpServers", command, r#"{"type":"http","url":URL,AUTH,"tools":["*"]}"#);
    }

    #[test]
    fn settings_that_approve_or_disable() {
        for (text, risk, setting) in [
            (
                r#"{"defaultPermissionMode":"allow-all"}"#,
                SettingRisk::Approves,
                "defaultPermissionMode is `allow-all`",
            ),
            (
                r#"{"defaultPermissionMode":"assisted"}"#,
                SettingRisk::ModelApproves,
                "defaultPermissionMode is `assisted`",
            ),
            (
                r#"{"disabledMcpServers":["countersign"]}"#,
                SettingRisk::DisablesGateway,
                "disabledMcpServers has `countersign`",
            ),
        ] {
            check_settings(&[("~/.copilot/settings.json", text)], &[(risk, setting)]);
            check_settings(&[("project/.github/copilot/settings.local.json", text)], &[(risk, setting)]);
        }
        check_settings(
            &[(
                "~/.copilot/permissions-config.json",
                r#"{"locations":{"/w":{"tool_approvals":[{"kind":"mcp","serverName":"countersign","toolName":null},{"kind":"mcp","serverName":"countersign","toolName":"call_tool_read"},{"kind":"mcp","serverName":"gh","toolName":null}]}}}"#,
            )],
            &[(SettingRisk::Approves, "locations.\"/w\".tool_approvals has every tool of `countersign`")],
        );
    }
}
