//! Windsurf.

use crate::host::{HostSpec, NextSteps};
use crate::host_files::{FileLocation, FilePath};
use crate::json_dialect::JsonDialect;
use crate::risky_settings::no_settings;

pub(crate) const SPEC: HostSpec = HostSpec {
    name: "windsurf",
    title: "Windsurf",
    program: None,
    files: &[FileLocation::user(FilePath::Home(".codeium/windsurf/mcp_config.json"))],
    dialect: &JsonDialect { url_key: "serverUrl", ..JsonDialect::COMMON },
    accepts_url: true,
    passes_config_flag: true,
    next_steps: NextSteps::same("press the refresh button of its MCP servers"),
    permissions: None,
    check_settings: no_settings,
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{check_entries, check_files_everywhere};

    #[test]
    fn files() {
        check_files_everywhere(&SPEC, &["~/.codeium/windsurf/mcp_config.json"]);
    }

    #[test]
    fn entries() {
        let command = r#"{"command":"countersign","args":["serve"]}"#;
        check_entries(&SPEC, "mcpServers", command, r#"{"serverUrl":URL,AUTH}"#);
    }
}
