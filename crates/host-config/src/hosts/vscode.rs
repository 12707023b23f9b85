//! VS Code.

use serde_json::Value;

use crate::host::{HostSpec, NextSteps};
use crate::host_files::{FileLocation, FilePath};
use crate::json_dialect::JsonDialect;
use crate::platform::HostEnvironment;
use crate::risky_settings::{SettingFindings, SettingRisk};

pub(crate) const SPEC: HostSpec = HostSpec {
    name: "vscode",
    title: "VS Code",
    program: None,
    files: &[
        FileLocation::user(FilePath::Config("Code/User/mcp.json")),
        FileLocation::project(".vscode/mcp.json"),
    ],
    dialect: &JsonDialect {
        key: "servers",
        stdio_tag: Some(("type", "stdio")),
        url_tag: Some(("type", "http")),
        ..JsonDialect::COMMON
    },
    accepts_url: true,
    passes_config_flag: true,
    next_steps: NextSteps {
        user: "run `MCP: List Servers`, start `countersign` and trust it",
        project: "open this folder, run `MCP: List Servers`, start `countersign` and trust it",
    },
    permissions: None,
    check_settings,
};

fn check_settings(environment: &HostEnvironment, findings: &mut SettingFindings<'_>) {
    let user = environment.in_config("Code/User/settings.json");
    findings.check_json([user, environment.in_project(".vscode/settings.json")], |value, file| {
        for name in ["chat.tools.autoApprove", "chat.tools.global.autoApprove"] {
            if value.get(name) == Some(&Value::Bool(true)) {
                file.add(SettingRisk::Approves, format!("`{name}` is true"), "set it to false");
            }
        }
        let default = value.get("chat.permissions.default").and_then(Value::as_str).unwrap_or_default();
        let loose = ["bypass", "autopilot", "autoapprove"];
        if loose.iter().any(|word| default.to_lowercase().contains(word)) {
            let setting = format!("`chat.permissions.default` is `{default}`");
            file.add(SettingRisk::Approves, setting, "set it to `default`");
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{check_entries, check_files};

    #[test]
    fn files() {
        check_files(
            &SPEC,
            &["~/.config/Code/User/mcp.json", "PROJECT/.vscode/mcp.json"],
            &["~/Library/Application Support/Code/User/mcp.json", "PROJECT/.vscode/mcp.json"],
            &["~/AppData/Roaming/Code/User/mcp.json", "PROJECT/.vscode/mcp.json"],
        );
    }

    #[test]
    fn entries() {
        let command = r#"{"type":"stdio","command":"countersign","args":["serve"]}"#;
        check_entries(&SPEC, "servers", command, r#"{"type":"http","url":URL,AUTH}"#);
    }

    #[test]
    fn settings_that_approve() {
        for (value, bad) in [("autoApprove", true), ("autopilot", true), ("default", false)] {
            let setting = format!("`chat.permissions.default` is `{value}`");
            let expect = [(SettingRisk::Approves, setting.as_str())];
            let text = format!("{{\"chat.permissions.default\": \"{value}\"}}");
            let files = [("~/.config/Code/User/settings.json", text.as_str())];
            crate::testing::check_settings(&files, if bad { &expect } else { &[] });
        }
    }
}
