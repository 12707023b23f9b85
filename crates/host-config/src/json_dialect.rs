//! Hosts that keep servers in JSON. An edit touches the members it is about and no other byte.

use std::path::PathBuf;

use serde_json::{Map, Value, json};

use crate::host::{HostFileError, ServerDialect};
use crate::json_text::{self, descend, input, parse, parse_object, root_object, with_final_break};
use crate::server_entry::{
    GATEWAY_NAME, GatewayEntry, HostServerSpec, OfferedTools, ServerEntry, ServerEntryKind,
    is_gateway_command, is_gateway_url,
};

/// How one host writes servers in JSON.
pub(crate) struct JsonDialect {
    /// The key the servers are under.
    pub(crate) key: &'static str,
    /// Whether `projects.PATH` has servers of single folders too.
    pub(crate) project_servers: bool,
    pub(crate) command: CommandShape,
    /// Whether the URL counts where an entry has a command as well.
    pub(crate) prefers_url: bool,
    /// Whether the entry lists the offered tools under `tools`.
    pub(crate) lists_tools: bool,
    /// The member that marks our entry as a program.
    pub(crate) stdio_tag: Option<(&'static str, &'static str)>,
    /// The member our URL is under. Reading accepts every spelling.
    pub(crate) url_key: &'static str,
    /// The member that names the transport of a URL: without it several hosts try the old SSE transport first.
    pub(crate) url_tag: Option<(&'static str, &'static str)>,
}

/// How an entry writes its program.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum CommandShape {
    /// `command`, `args` and `env`.
    Plain,
    /// As `Plain`; older files have the parts one level down, with the program under `path`.
    PlainOrNested,
    /// Program and arguments in one list; variables under `environment`.
    List,
}

impl JsonDialect {
    /// What most hosts copied from Claude Desktop.
    pub(crate) const COMMON: Self = Self {
        key: "mcpServers",
        project_servers: false,
        command: CommandShape::Plain,
        prefers_url: false,
        lists_tools: false,
        stdio_tag: None,
        url_key: "url",
        url_tag: None,
    };

    pub(crate) fn kind(&self, name: &str, value: &Value) -> ServerEntryKind {
        let Some(members) = value.as_object() else {
            return ServerEntryKind::Foreign("it is not an object".to_owned());
        };
        let text = |key: &str| members.get(key).and_then(Value::as_str).map(str::to_owned);
        let url = url_of(value);
        let program =
            text("command").is_some_and(|command| is_gateway_command(name, &command, &args(members)));
        if program || url.as_ref().is_some_and(|url| is_gateway_url(name, url)) {
            return ServerEntryKind::Countersign;
        }
        let off = members.get("disabled") == Some(&Value::Bool(true))
            || members.get("enabled") == Some(&Value::Bool(false));
        if off {
            return ServerEntryKind::Disabled;
        }
        match (self.command, members.get("command")) {
            (CommandShape::PlainOrNested, Some(Value::Object(inner))) => {
                let command = inner.get("path").and_then(Value::as_str).unwrap_or_default().to_owned();
                return stdio(name, command, inner);
            }
            (CommandShape::List, Some(Value::Array(words))) => {
                let mut words = words.iter().map(to_text);
                let command = words.next().unwrap_or_default();
                let mut inner = members.clone();
                inner.insert("args".to_owned(), words.collect());
                inner.insert("env".to_owned(), members.get("environment").cloned().unwrap_or_default());
                return stdio(name, command, &inner);
            }
            (CommandShape::Plain | CommandShape::PlainOrNested | CommandShape::List, _) => {}
        }
        if let Some(command) = text("command").filter(|_| !(self.prefers_url && url.is_some())) {
            return stdio(name, command, members);
        }
        match (url, text("type").or_else(|| text("transport")).as_deref()) {
            (Some(_), Some("sse")) => {
                ServerEntryKind::Foreign("it speaks the old SSE transport, which has no sessions".to_owned())
            }
            (Some(url), _) => ServerEntryKind::Server(HostServerSpec::Http {
                url,
                headers: pairs(members.get("headers")),
                bearer_env: None,
                env_headers: Vec::new(),
            }),
            (None, _) => ServerEntryKind::Foreign("it has neither `command` nor `url`".to_owned()),
        }
    }

    fn offered_tools(&self, value: &Value) -> OfferedTools {
        let names = |key: &str| -> Option<Vec<String>> {
            Some(value.get(key)?.as_array()?.iter().filter_map(Value::as_str).map(str::to_owned).collect())
        };
        let only = if self.lists_tools {
            names("tools").filter(|names| !names.iter().any(|name| name == "*"))
        } else {
            names("includeTools").or_else(|| names("enabledTools"))
        };
        let without = names("excludeTools").or_else(|| names("disabledTools")).unwrap_or_default();
        OfferedTools { only, without }
    }

    fn entry(&self, ours: &GatewayEntry) -> Value {
        let mut members = Map::new();
        let mut add = |key: &str, value: Value| drop(members.insert(key.to_owned(), value));
        match ours {
            GatewayEntry::Command { command, args, env } => {
                self.stdio_tag.into_iter().for_each(|(key, word)| add(key, word.into()));
                let variables =
                    || env.iter().map(|(name, value)| (name.clone(), value.clone().into())).collect();
                let env_key = if self.command == CommandShape::List {
                    add("command", [command].into_iter().chain(args).map(String::as_str).collect());
                    "environment"
                } else {
                    add("command", command.as_str().into());
                    add("args", args.iter().map(String::as_str).collect());
                    "env"
                };
                if !env.is_empty() {
                    add(env_key, Value::Object(variables()));
                }
            }
            GatewayEntry::Address { url, secret } => {
                self.url_tag.into_iter().for_each(|(key, word)| add(key, word.into()));
                add(self.url_key, url.as_str().into());
                add("headers", json!({"Authorization": GatewayEntry::authorization(secret)}));
            }
        }
        if self.lists_tools {
            // Without this an older version offers none of our tools.
            add("tools", json!(["*"]));
        }
        Value::Object(members)
    }
}

impl ServerDialect for JsonDialect {
    fn read(&self, text: &str, folder: Option<PathBuf>) -> Result<Vec<ServerEntry>, HostFileError> {
        let root = parse(text)?;
        let Some(object) = root_object(&root)? else { return Ok(Vec::new()) };
        let mut holders = Vec::new();
        if let Some(servers) = json_text::object(&object, self.key)? {
            holders.push((servers, vec![self.key.to_owned()], folder));
        }
        let projects = object.object_value("projects").filter(|_| self.project_servers);
        for project in projects.iter().flat_map(|projects| projects.properties()) {
            let (Some(path), Some(inside)) = (project.decoded_name(), project.object_value()) else {
                continue;
            };
            if let Some(servers) = inside.object_value(self.key) {
                let keys = vec!["projects".to_owned(), path.clone(), self.key.to_owned()];
                holders.push((servers, keys, Some(PathBuf::from(path))));
            }
        }
        let mut entries = Vec::new();
        for (servers, keys, folder) in holders {
            for member in servers.properties() {
                let Some(name) = member.decoded_name() else { continue };
                let value = member.value().and_then(|value| value.to_serde_value()).unwrap_or_default();
                let path = keys.iter().cloned().chain([name.clone()]).collect();
                let (kind, offers) = (self.kind(&name, &value), self.offered_tools(&value));
                entries.push(ServerEntry { kind, name, path, folder: folder.clone(), offers });
            }
        }
        Ok(entries)
    }

    fn rewrite(
        &self,
        text: &str,
        imported: &[ServerEntry],
        ours: &GatewayEntry,
    ) -> Result<String, HostFileError> {
        let (root, object) = parse_object(text)?;
        for entry in imported {
            let Some((name, keys)) = entry.path.split_last() else { continue };
            if let Some(member) = descend(&object, keys).and_then(|holder| holder.get(name)) {
                member.remove();
            }
        }
        let servers = json_text::object_or_new(&object, self.key)?;
        match (servers.get(GATEWAY_NAME), ours) {
            (None, _) => drop(servers.append(GATEWAY_NAME, input(&self.entry(ours)))),
            (Some(member), GatewayEntry::Address { url, .. }) => {
                let current = member.value().and_then(|value| value.to_serde_value());
                if current.as_ref().and_then(url_of).as_ref() != Some(url) {
                    member.set_value(input(&self.entry(ours)));
                }
            }
            (Some(_), GatewayEntry::Command { .. }) => {}
        }
        Ok(with_final_break(text, root.to_string()))
    }

    fn gateway_url(&self, text: &str) -> Option<String> {
        let object = parse(text).ok()?.object_value()?;
        url_of(&object.object_value(self.key)?.get(GATEWAY_NAME)?.value()?.to_serde_value()?)
    }

    fn restore(&self, now: &str, before: &str) -> Result<String, HostFileError> {
        let root = parse(now)?;
        let Some(object) = root_object(&root)? else { return Ok(now.to_owned()) };
        let (_, old) = parse_object(before)?;
        let had = |path: &[String]| {
            let (name, keys) = path.split_last()?;
            descend(&old, keys)?.get(name)?.value()?.to_serde_value()
        };
        if let Some(ours) = object.object_value(self.key).and_then(|servers| servers.get(GATEWAY_NAME)) {
            match had(&[self.key.to_owned(), GATEWAY_NAME.to_owned()]) {
                Some(value) => ours.set_value(input(&value)),
                None => ours.remove(),
            }
        }
        for entry in self.read(before, None)? {
            let Some((name, keys)) = entry.path.split_last() else { continue };
            let holder = keys.iter().fold(object.clone(), |here, key| here.object_value_or_set(key));
            if let (None, Some(value)) = (holder.get(name), had(&entry.path)) {
                holder.append(name, input(&value));
            }
        }
        Ok(root.to_string())
    }
}

/// The URL of a server, under whichever name its host has for it.
fn url_of(value: &Value) -> Option<String> {
    let mut keys = ["url", "httpUrl", "serverUrl"].iter();
    keys.find_map(|key| value.get(key).and_then(Value::as_str).map(str::to_owned))
}

fn stdio(name: &str, command: String, members: &Map<String, Value>) -> ServerEntryKind {
    let args = args(members);
    if is_gateway_command(name, &command, &args) {
        return ServerEntryKind::Countersign;
    }
    ServerEntryKind::Server(HostServerSpec::Stdio {
        command,
        args,
        env: pairs(members.get("env")),
        cwd: members.get("cwd").and_then(Value::as_str).map(str::to_owned),
    })
}

fn args(members: &Map<String, Value>) -> Vec<String> {
    members.get("args").and_then(Value::as_array).into_iter().flatten().map(to_text).collect()
}

fn pairs(value: Option<&Value>) -> Vec<(String, String)> {
    let members = value.and_then(Value::as_object).into_iter().flatten();
    members
        .filter(|(_, value)| !value.is_null())
        .map(|(name, value)| (name.clone(), to_text(value)))
        .collect()
}

/// A string as it is, anything else as JSON: hosts turn numbers and booleans into strings as well.
fn to_text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::Host;
    use crate::testing::command_entry;

    fn read(host: &str, text: &str) -> Result<Vec<ServerEntry>, HostFileError> {
        Host::named(host).unwrap().dialect.read(text, None)
    }

    fn rewrite(host: &str, text: &str, imported: &[ServerEntry]) -> Result<String, HostFileError> {
        Host::named(host).unwrap().dialect.rewrite(text, imported, &command_entry())
    }

    #[test]
    fn an_edit_keeps_comments_order_and_trailing_commas() {
        let text = "// mine\n{\n\t\"a\": 1, // one\n\t\"servers\": {\n\t\t\"x\": {\"command\": \"npx\", \"args\": [\"-y\", \"x\"],},\n\t},\n\t\"z\": [1,2,],\n}\n";
        let entries = read("vscode", text).unwrap();
        assert_eq!(entries.len(), 1);
        let after = rewrite("vscode", text, &entries).unwrap();
        assert!(after.starts_with("// mine\n{\n\t\"a\": 1, // one\n\t\"servers\": {"), "{after}");
        assert!(after.ends_with("\n\t\"z\": [1,2,],\n}\n"), "{after}");
        assert!(after.contains("\"countersign\"") && !after.contains("npx"), "{after}");
        assert_eq!(read("vscode", &after).unwrap()[0].kind, ServerEntryKind::Countersign);
        assert_eq!(rewrite("vscode", &after, &[]).unwrap(), after);
    }

    #[test]
    fn a_broken_file_is_named_with_its_line() {
        let broken = read("cursor", "{\n  \"mcpServers\": {\n    \"x\" 1\n}}").unwrap_err();
        assert_eq!(broken.line, 3);
        assert!(read("cursor", "[]").is_err());
        for text in ["\n{\n\n  \"mcpServers\": []\n}", "\n{\"a\": [\n1],\n \"mcpServers\": \"x\"}"] {
            let broken = read("cursor", text).unwrap_err();
            assert_eq!((broken.line, broken.reason.as_str()), (4, "`mcpServers` is not an object"), "{text}");
            assert_eq!(rewrite("cursor", text, &[]).unwrap_err().line, 4, "nothing is overwritten");
        }
        let twice = "{\"mcpServers\": {},\n\"a\": 1,\n\"mcpServers\": {\"x\": {\"command\": \"npx\"}}}";
        let broken = read("cursor", twice).unwrap_err();
        assert_eq!((broken.line, broken.reason.as_str()), (3, "`mcpServers` is there twice"));
        assert_eq!(read("cursor", "").unwrap(), []);
    }

    #[test]
    fn each_dialect_is_read() {
        let url = |text: &str, host: &str| {
            let kind = read(host, text).unwrap().remove(0).kind;
            let ServerEntryKind::Server(HostServerSpec::Http { url, .. }) = kind else { panic!("{kind:?}") };
            url
        };
        assert_eq!(url(r#"{"mcpServers":{"a":{"serverUrl":"https://a/mcp"}}}"#, "windsurf"), "https://a/mcp");
        assert_eq!(url(r#"{"mcpServers":{"a":{"httpUrl":"https://b/mcp"}}}"#, "gemini"), "https://b/mcp");
        let both = r#"{"mcpServers":{"a":{"command":"npx","serverUrl":"https://c/mcp"}}}"#;
        assert_eq!(url(both, "antigravity"), "https://c/mcp");
        let typed = r#"{"mcpServers":{"a":{"type":"http","url":"https://d/mcp","tools":["*"]}}}"#;
        assert_eq!(url(typed, "copilot"), "https://d/mcp");
        for key in ["url", "serverUrl"] {
            let text = format!(r#"{{"mcpServers":{{"a":{{"{key}":"https://e/mcp","transport":"http"}}}}}}"#);
            assert_eq!(url(&text, "devin"), "https://e/mcp");
            let old = text.replace("http\"", "sse\"");
            let kind = read("devin", &old).unwrap().remove(0).kind;
            assert!(matches!(kind, ServerEntryKind::Foreign(_)), "{kind:?}");
        }
        let list = r#"{"mcp":{"a":{"type":"local","command":["npx","-y","x"],"environment":{"K":"v"}},"b":{"type":"remote","url":"https://f/mcp"},"c":{"type":"local","command":["countersign","serve"]}}}"#;
        let entries = read("opencode", list).unwrap();
        let ServerEntryKind::Server(HostServerSpec::Stdio { command, args, env, .. }) = &entries[0].kind
        else {
            panic!()
        };
        assert_eq!((command.as_str(), args.len(), env.len()), ("npx", 2, 1));
        assert!(
            matches!(&entries[1].kind, ServerEntryKind::Server(HostServerSpec::Http { url, .. }) if url == "https://f/mcp")
        );
        assert_eq!(entries[2].kind, ServerEntryKind::Countersign);
    }

    #[test]
    fn tools_that_are_switched_off() {
        for (host, entry, only, without) in [
            ("gemini", r#""includeTools":["a"],"excludeTools":["b"]"#, Some(&["a"][..]), &["b"][..]),
            ("copilot", r#""tools":["a","b"]"#, Some(&["a", "b"]), &[]),
            ("copilot", r#""tools":["*"]"#, None, &[]),
            ("copilot", r#""tools":[]"#, Some(&[]), &[]),
            ("windsurf", r#""disabledTools":["b"]"#, None, &["b"]),
            ("cursor", r#""tools":["a"]"#, None, &[]),
        ] {
            let text = format!("{{\"mcpServers\":{{\"x\":{{\"command\":\"x\",{entry}}}}}}}");
            let offers = read(host, &text).unwrap().remove(0).offers;
            assert_eq!(
                offers
                    .only
                    .as_deref()
                    .map(|all| all.iter().map(String::as_str).collect::<Vec<_>>())
                    .as_deref(),
                only,
                "{text}"
            );
            assert_eq!(offers.without, without, "{text}");
        }
    }
}
