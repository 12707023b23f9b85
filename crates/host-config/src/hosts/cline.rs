//! Cline: its command line and its extension for VS Code.

use crate::host::{HostFileError, HostSpec, NextSteps};
use crate::host_files::{FileLocation, FilePath};
use crate::json_dialect::JsonDialect;
use crate::json_text::{self, parse_object, with_final_break};
use crate::permission_lists::{extend, strings, tool_rules};
use crate::permission_rules::{PermissionRules, RuleFileEdit, RuleLocation, WhoAsks, keep};
use crate::risky_settings::no_settings;
use crate::server_entry::GATEWAY_NAME;

const DIALECT: JsonDialect = JsonDialect { url_tag: Some(("type", "streamableHttp")), ..JsonDialect::COMMON };

pub(crate) const SPEC: HostSpec = HostSpec {
    name: "cline",
    title: "Cline",
    program: Some("cline"),
    files: &[
        FileLocation::user(FilePath::Computed(|environment| {
            let file = ".cline/data/settings/cline_mcp_settings.json";
            environment.variable_or_home("CLINE_MCP_SETTINGS_PATH", file)
        })),
        FileLocation::user(FilePath::Computed(|environment| {
            environment.in_vscode_extension("saoudrizwan.claude-dev", "cline_mcp_settings.json")
        }))
        .secondary(),
    ],
    dialect: &DIALECT,
    accepts_url: true,
    passes_config_flag: false,
    next_steps: NextSteps::same("nothing: it reads the file at once; its MCP servers list `countersign`"),
    permissions: Some(PermissionRules { file: RuleLocation::WithServer, add: add_rules, remove: keep }),
    check_settings: no_settings,
};

/// Adds to the list `autoApprove` of the server entry.
fn add_rules(text: Option<&str>, who: WhoAsks) -> Result<RuleFileEdit, HostFileError> {
    let text = text.unwrap_or_default();
    let unchanged = || RuleFileEdit::Text(text.to_owned());
    let (root, object) = parse_object(text)?;
    let server =
        json_text::object(&object, DIALECT.key)?.map(|servers| json_text::object(&servers, GATEWAY_NAME));
    let Some(server) = server.transpose()?.flatten() else { return Ok(unchanged()) };
    let have = strings(json_text::list(&server, "autoApprove")?.as_ref());
    let mut tools = tool_rules(&who.allowed(), "", "");
    tools.retain(|tool| !have.contains(tool));
    if tools.is_empty() {
        return Ok(unchanged());
    }
    extend(&server, "autoApprove", &tools)?;
    Ok(RuleFileEdit::Text(with_final_break(text, root.to_string())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::Os;
    use crate::testing::{check_entries, check_files, check_files_on, check_rules};

    #[test]
    fn files() {
        let program = "~/.cline/data/settings/cline_mcp_settings.json";
        let extension = "Code/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json";
        let linux = format!("~/.config/{extension}");
        check_files(
            &SPEC,
            &[program, &linux],
            &[program, &format!("~/Library/Application Support/{extension}")],
            &[program, &format!("~/AppData/Roaming/{extension}")],
        );
        check_files_on(&SPEC, Os::Linux, &[("CLINE_MCP_SETTINGS_PATH", "/c.json")], &["/c.json", &linux]);
    }

    #[test]
    fn entries() {
        let command = r#"{"command":"countersign","args":["serve"]}"#;
        check_entries(&SPEC, "mcpServers", command, r#"{"type":"streamableHttp","url":URL,AUTH}"#);
    }

    #[test]
    fn rules_go_beside_the_server() {
        check_rules(&SPEC, "{ \"mcpServers\": { \"countersign\": { \"command\": \"countersign\" } } }");
    }
}
