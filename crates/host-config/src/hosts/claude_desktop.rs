//! Claude Desktop.

use crate::host::{HostSpec, NextSteps};
use crate::host_files::{FileLocation, FilePath};
use crate::json_dialect::JsonDialect;
use crate::risky_settings::no_settings;

pub(crate) const SPEC: HostSpec = HostSpec {
    name: "claude-desktop",
    title: "Claude Desktop",
    program: None,
    files: &[FileLocation::user(FilePath::Config("Claude/claude_desktop_config.json"))],
    dialect: &JsonDialect::COMMON,
    // Remote servers are connectors of the account, and in no file.
    accepts_url: false,
    passes_config_flag: true,
    next_steps: NextSteps::same("quit it and start it again; it reads the file only then"),
    permissions: None,
    check_settings: no_settings,
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::check_files;

    #[test]
    fn files() {
        check_files(
            &SPEC,
            &["~/.config/Claude/claude_desktop_config.json"],
            &["~/Library/Application Support/Claude/claude_desktop_config.json"],
            &["~/AppData/Roaming/Claude/claude_desktop_config.json"],
        );
    }
}
