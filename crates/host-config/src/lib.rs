//! The configuration files of agent hosts: where each host keeps its MCP servers and permission rules, how it writes them, and which of
//! its settings weaken approval. One file a host in `hosts/`. Plans edits of texts; writes no file, prints nothing and reads no
//! environment variable by itself.

mod host;
mod host_files;
mod hosts;
mod json_dialect;
mod json_text;
mod line_ends;
mod permission_lists;
mod permission_rules;
mod platform;
mod risky_settings;
mod server_entry;
#[cfg(test)]
mod testing;
mod unlisted_hosts;

pub use self::host::{Host, HostFileError, HostSpec, NextSteps};
pub use self::host_files::{HostFile, HostFileScope, HostFileStatus, host_files};
pub use self::hosts::HOSTS;
pub use self::line_ends::with_line_ends;
pub use self::permission_rules::{
    CHANGE_TOOLS, READ_TOOLS, RuleFile, RuleFileEdit, STEER_TOOLS, WhoAsks, rule_files,
};
pub use self::platform::{HostEnvironment, Os};
pub use self::risky_settings::{DESTRUCTIVE_TOOLS, RiskySetting, SettingRisk, risky_settings};
pub use self::server_entry::{GatewayEntry, HostServerSpec, OfferedTools, ServerEntry, ServerEntryKind};
pub use self::unlisted_hosts::{UnlistedHost, unlisted_hosts};
