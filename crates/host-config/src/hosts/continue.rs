//! Continue.

use crate::host::{HostSpec, NextSteps};
use crate::host_files::{FileLocation, FilePath};
use crate::json_dialect::JsonDialect;
use crate::risky_settings::no_settings;

pub(crate) const SPEC: HostSpec = HostSpec {
    name: "continue",
    title: "Continue",
    program: None,
    files: &[
        FileLocation::user(FilePath::Home(".continue/mcpServers/mcp.json")),
        FileLocation::project(".continue/mcpServers/mcp.json"),
    ],
    dialect: &JsonDialect { url_tag: Some(("type", "http")), ..JsonDialect::COMMON },
    accepts_url: true,
    passes_config_flag: true,
    next_steps: NextSteps::same("reload its window; the tools list shows `countersign` in agent mode"),
    permissions: None,
    check_settings: no_settings,
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{check_entries, check_files_everywhere};

    #[test]
    fn files() {
        check_files_everywhere(
            &SPEC,
            &["~/.continue/mcpServers/mcp.json", "PROJECT/.continue/mcpServers/mcp.json"],
        );
    }

    #[test]
    fn entries() {
        let command = r#"{"command":"countersign","args":["serve"]}"#;
        check_entries(&SPEC, "mcpServers", command, r#"{"type":"http","url":URL,AUTH}"#);
    }
}
