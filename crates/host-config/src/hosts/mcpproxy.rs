//! mcpproxy: a gateway people switch from. Its servers are imported; its file is left as it is, for those who run both for a while.

use std::path::PathBuf;

use serde_json::Value;

use crate::host::{HostFileError, HostSpec, NextSteps, ServerDialect};
use crate::host_files::{FileLocation, FilePath};
use crate::json_dialect::JsonDialect;
use crate::json_text::{parse, root_object};
use crate::risky_settings::no_settings;
use crate::server_entry::{GatewayEntry, OfferedTools, ServerEntry, ServerEntryKind};

pub(crate) const SPEC: HostSpec = HostSpec {
    name: "mcpproxy",
    title: "mcpproxy",
    program: None,
    files: &[FileLocation::user(FilePath::Home(".mcpproxy/mcp_config.json")).secondary()],
    dialect: &ServerList,
    accepts_url: false,
    passes_config_flag: true,
    next_steps: NextSteps::same("let your hosts use countersign instead, then stop mcpproxy"),
    permissions: None,
    check_settings: no_settings,
};

const KEY: &str = "mcpServers";

/// Servers in a list, each with its name inside.
struct ServerList;

impl ServerDialect for ServerList {
    fn read(&self, text: &str, folder: Option<PathBuf>) -> Result<Vec<ServerEntry>, HostFileError> {
        let root = parse(text)?;
        let Some(object) = root_object(&root)? else { return Ok(Vec::new()) };
        let listed = object.get(KEY).and_then(|member| member.value()?.to_serde_value());
        let listed: Vec<Value> =
            listed.and_then(|value: Value| value.as_array().cloned()).unwrap_or_default();
        let entry = |value: &Value| {
            let name = value.get("name")?.as_str()?.to_owned();
            let path = vec![KEY.to_owned(), name.clone()];
            let kind = kind(&name, value);
            Some(ServerEntry { kind, name, path, folder: folder.clone(), offers: OfferedTools::default() })
        };
        Ok(listed.iter().filter_map(entry).collect())
    }

    fn rewrite(&self, text: &str, _: &[ServerEntry], _: &GatewayEntry) -> Result<String, HostFileError> {
        Ok(text.to_owned())
    }

    fn gateway_url(&self, _: &str) -> Option<String> {
        None
    }

    fn restore(&self, now: &str, _: &str) -> Result<String, HostFileError> {
        Ok(now.to_owned())
    }
}

fn kind(name: &str, value: &Value) -> ServerEntryKind {
    // What its owner has not accepted there is not let in here.
    if value.get("quarantined") == Some(&Value::Bool(true)) {
        return ServerEntryKind::Foreign("mcpproxy keeps it in quarantine".to_owned());
    }
    let mut plain = value.clone();
    if let Some(members) = plain.as_object_mut() {
        let renamed = [("protocol", "type"), ("working_dir", "cwd")];
        for (theirs, common) in renamed {
            if let Some(value) = members.remove(theirs) {
                members.insert(common.to_owned(), value);
            }
        }
        // Both may be there, empty where they do not apply.
        members.retain(|_, value| value.as_str() != Some(""));
    }
    JsonDialect::COMMON.kind(name, &plain)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server_entry::HostServerSpec;
    use crate::testing::check_files_everywhere;

    const FILE: &str = r#"{
  "listen": "127.0.0.1:8080",
  "mcpServers": [
    {"name": "files", "protocol": "stdio", "command": "npx", "args": ["-y", "files", "/srv"], "env": {"A": "b"},
     "working_dir": "/srv", "url": "", "enabled": true, "quarantined": false},
    {"name": "docs", "protocol": "http", "url": "https://docs.example.org/mcp", "headers": {"X-Key": "k"}, "enabled": true},
    {"name": "old", "protocol": "sse", "url": "https://old.example.org/sse", "enabled": true},
    {"name": "off", "command": "off", "enabled": false},
    {"name": "new", "command": "new", "enabled": true, "quarantined": true}
  ]
}
"#;

    #[test]
    fn files() {
        check_files_everywhere(&SPEC, &["~/.mcpproxy/mcp_config.json"]);
    }

    #[test]
    fn servers_of_its_list_are_read_and_its_file_stays() {
        let found = ServerList.read(FILE, None).unwrap();
        let kinds: Vec<(&str, &ServerEntryKind)> =
            found.iter().map(|entry| (entry.name.as_str(), &entry.kind)).collect();
        let stdio = HostServerSpec::Stdio {
            command: "npx".to_owned(),
            args: ["-y", "files", "/srv"].map(str::to_owned).to_vec(),
            env: vec![("A".to_owned(), "b".to_owned())],
            cwd: Some("/srv".to_owned()),
        };
        assert_eq!(kinds[0], ("files", &ServerEntryKind::Server(stdio)));
        let ServerEntryKind::Server(HostServerSpec::Http { url, headers, .. }) = kinds[1].1 else {
            panic!("{kinds:?}");
        };
        assert_eq!(url, "https://docs.example.org/mcp");
        assert_eq!(headers, &[("X-Key".to_owned(), "k".to_owned())]);
        assert!(matches!(kinds[2].1, ServerEntryKind::Foreign(why) if why.contains("SSE")), "{kinds:?}");
        assert_eq!(kinds[3].1, &ServerEntryKind::Disabled);
        assert!(
            matches!(kinds[4].1, ServerEntryKind::Foreign(why) if why.contains("quarantine")),
            "{kinds:?}"
        );
        let ours = crate::testing::command_entry();
        assert_eq!(ServerList.rewrite(FILE, &found, &ours).unwrap(), FILE);
        assert!(ServerList.read("{\"mcpServers\": {}}", None).unwrap().is_empty());
    }
}
