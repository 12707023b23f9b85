//! Devin.

use crate::host::{HostSpec, NextSteps};
use crate::host_files::{FileLocation, FilePath};
use crate::json_dialect::JsonDialect;
use crate::permission_lists::{add_allow_and_ask, remove_allow_and_ask};
use crate::permission_rules::{PermissionRules, RuleLocation};
use crate::platform::HostEnvironment;
use crate::risky_settings::{SettingFindings, SettingRisk, covers, loose_rules, strings_at};

const SETTINGS: FilePath = FilePath::Computed(|environment| environment.in_dot_config("devin/config.json"));

pub(crate) const SPEC: HostSpec = HostSpec {
    name: "devin",
    title: "Devin",
    program: Some("devin"),
    files: &[
        FileLocation::user(FilePath::Computed(|environment| {
            environment.in_dot_config("devin/mcp_config.json")
        })),
        FileLocation::user(SETTINGS).secondary(),
        FileLocation::project(".devin/mcp_config.json"),
        FileLocation::project(".devin/mcp_config.local.json").secondary(),
        FileLocation::project(".devin/config.json").secondary(),
        FileLocation::project(".devin/config.local.json").secondary(),
    ],
    dialect: &JsonDialect { url_tag: Some(("transport", "http")), ..JsonDialect::COMMON },
    accepts_url: true,
    passes_config_flag: true,
    next_steps: NextSteps::same("start a new session; `devin mcp list` lists `countersign`"),
    permissions: Some(PermissionRules {
        file: RuleLocation::Settings {
            user: SETTINGS,
            project: Some(FilePath::Project(".devin/config.json")),
        },
        add: |text, who| add_allow_and_ask(text, "mcp__countersign__", "", who),
        remove: |now, before| remove_allow_and_ask(now, before, "mcp__countersign__", ""),
    }),
    check_settings,
};

fn check_settings(environment: &HostEnvironment, findings: &mut SettingFindings<'_>) {
    let files = [
        SETTINGS.resolve(environment),
        environment.in_project(".devin/config.json"),
        environment.in_project(".devin/config.local.json"),
    ];
    findings.check_json(files, |value, file| {
        let stricter = ["/permissions/deny", "/permissions/ask"].map(|at| strings_at(value, at)).concat();
        let covers = |rule: &str, tool: &str| matches!(rule, "mcp__*" | "*") || covers(rule, tool);
        for rule in loose_rules(&strings_at(value, "/permissions/allow"), &stricter, covers) {
            file.add(
                SettingRisk::Approves,
                format!("permissions.allow has `{rule}`"),
                "allow `mcp__countersign__call_tool_read` alone, and put the others under `permissions.ask`",
            );
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{check_entries, check_files, check_rules, check_settings};

    const PROJECT: [&str; 4] = [
        "PROJECT/.devin/mcp_config.json",
        "PROJECT/.devin/mcp_config.local.json",
        "PROJECT/.devin/config.json",
        "PROJECT/.devin/config.local.json",
    ];

    #[test]
    fn files() {
        let unix = ["~/.config/devin/mcp_config.json", "~/.config/devin/config.json"];
        let windows = ["~/AppData/Roaming/devin/mcp_config.json", "~/AppData/Roaming/devin/config.json"];
        let [unix, windows] = [unix, windows].map(|user| [&user[..], &PROJECT].concat());
        check_files(&SPEC, &unix, &unix, &windows);
    }

    #[test]
    fn entries() {
        let command = r#"{"command":"countersign","args":["serve"]}"#;
        check_entries(&SPEC, "mcpServers", command, r#"{"transport":"http","url":URL,AUTH}"#);
    }

    #[test]
    fn rules_go_into_two_lists() {
        check_rules(&SPEC, "\u{feff}{}");
    }

    #[test]
    fn settings_that_approve() {
        check_settings(
            &[("project/.devin/config.local.json", r#"{"permissions":{"allow":["mcp__*","Exec(git)"]}}"#)],
            &[(SettingRisk::Approves, "permissions.allow has `mcp__*`")],
        );
    }
}
