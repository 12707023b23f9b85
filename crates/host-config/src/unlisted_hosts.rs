//! Hosts that call MCP servers and whose files `init` does not edit. Finds those that have servers; writes nothing.

use std::fs;
use std::path::{Path, PathBuf};

use crate::platform::HostEnvironment;
use crate::server_entry::GATEWAY_NAME;

/// A file with servers of a host we can't edit.
pub struct UnlistedHost {
    pub title: &'static str,
    pub path: PathBuf,
}

const MAX_BYTES: u64 = 8 << 20;

/// Every such file that has servers and does not name the gateway.
pub fn unlisted_hosts(environment: &HostEnvironment) -> Vec<UnlistedHost> {
    let home = |relative: &str| environment.at_home(relative);
    let config = |relative: &str| environment.in_xdg_config(relative);
    let project = |relative: &str| environment.in_project(relative);
    let roo_code = environment.in_vscode_extension("rooveterinaryinc.roo-cline", "mcp_settings.json");
    // The last column is the text before the servers.
    let all = [
        ("Continue", home(".continue/config.yaml"), "mcpServers:"),
        ("Continue", home(".continue/config.json"), "mcpServers"),
        ("Goose", config("goose/config.yaml"), "extensions:"),
        ("Amazon Q", home(".aws/amazonq/mcp.json"), "mcpServers"),
        ("Kiro", home(".kiro/settings/mcp.json"), "mcpServers"),
        ("LM Studio", home(".lmstudio/mcp.json"), "mcpServers"),
        ("Junie", home(".junie/mcp/mcp.json"), "mcpServers"),
        ("Factory", home(".factory/mcp.json"), "mcpServers"),
        ("Roo Code", roo_code, "mcpServers"),
        ("Roo Code", project(".roo/mcp.json"), "mcpServers"),
        ("Kilo Code", project(".kilocode/mcp.json"), "mcpServers"),
        ("Amp", config("amp/settings.json"), "mcpServers"),
        ("Crush", config("crush/crush.json"), "\"mcp\""),
    ];
    let found = all.into_iter().filter(|(_, path, key)| has_servers(path, key));
    found.map(|(title, path, _)| UnlistedHost { title, path }).collect()
}

fn has_servers(path: &Path, key: &str) -> bool {
    fs::metadata(path).is_ok_and(|meta| meta.is_file() && meta.len() <= MAX_BYTES)
        && fs::read_to_string(path).is_ok_and(|text| text.contains(key) && !text.contains(GATEWAY_NAME))
}
