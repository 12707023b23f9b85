//! Qwen Code.

use crate::host::{HostSpec, NextSteps};
use crate::host_files::{FileLocation, FilePath};
use crate::json_dialect::JsonDialect;
use crate::permission_lists::{add_allow_and_ask, remove_allow_and_ask};
use crate::permission_rules::{PermissionRules, RuleLocation};
use crate::risky_settings::no_settings;

const SETTINGS: &str = ".qwen/settings.json";

pub(crate) const SPEC: HostSpec = HostSpec {
    name: "qwen",
    title: "Qwen Code",
    program: Some("qwen"),
    files: &[FileLocation::user(FilePath::Home(SETTINGS)), FileLocation::project(SETTINGS)],
    dialect: &JsonDialect { url_key: "httpUrl", ..JsonDialect::COMMON },
    accepts_url: true,
    passes_config_flag: true,
    next_steps: NextSteps {
        user: "start a new session; /mcp lists `countersign`",
        project: "start it in this folder and trust the folder: until then the file is not read",
    },
    permissions: Some(PermissionRules {
        file: RuleLocation::Settings {
            user: FilePath::Home(SETTINGS),
            project: Some(FilePath::Project(SETTINGS)),
        },
        add: |text, who| add_allow_and_ask(text, "mcp__countersign__", "", who),
        remove: |now, before| remove_allow_and_ask(now, before, "mcp__countersign__", ""),
    }),
    check_settings: no_settings,
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{check_entries, check_files_everywhere, check_rules};

    #[test]
    fn files() {
        check_files_everywhere(&SPEC, &["~/.qwen/settings.json", "PROJECT/.qwen/settings.json"]);
    }

    #[test]
    fn entries() {
        let command = r#"{"command":"countersign","args":["serve"]}"#;
        check_entries(&SPEC, "mcpServers", command, r#"{"httpUrl":URL,AUTH}"#);
    }

    #[test]
    fn rules_go_into_two_lists() {
        check_rules(&SPEC, "{}");
    }
}
