//! Hosts that keep servers in JSON, with comments and trailing commas where their authors like them. An edit touches the members it
//! is about and no other byte.

use std::path::PathBuf;

use jsonc_parser::ParseOptions;
use jsonc_parser::cst::{CstArray, CstInputValue, CstNode, CstObject, CstRootNode};
use serde_json::{Map, Value};

use super::server::{NAME, is_our_address, is_ours};
use super::{Broken, Entry, Host, Kind, Offers, Ours, Server};

/// Comments and trailing commas are what hosts accept; anything looser is a mistake they would not read either.
fn options() -> ParseOptions {
    ParseOptions {
        allow_comments: true,
        allow_trailing_commas: true,
        allow_loose_object_property_names: false,
        allow_missing_commas: false,
        allow_single_quoted_strings: false,
        allow_hexadecimal_numbers: false,
        allow_unary_plus_numbers: false,
        allow_bare_decimal_point_numbers: false,
        allow_non_finite_numbers: false,
        allow_extended_string_escapes: false,
    }
}

/// A text as a tree that keeps every byte of it.
pub(super) fn parse(text: &str) -> Result<CstRootNode, Broken> {
    CstRootNode::parse(text, &options())
        .map_err(|error| Broken { line: error.line_display(), why: error.kind().to_string() })
}

/// The object a file is; none where the file is empty.
pub(super) fn whole(root: &CstRootNode) -> Result<Option<CstObject>, Broken> {
    match (root.value(), root.object_value()) {
        (None, _) => Ok(None),
        (Some(_), Some(object)) => Ok(Some(object)),
        (Some(value), None) => Err(Broken { line: line(&value), why: "it is not an object".to_owned() }),
    }
}

/// The line a part of a text begins in.
fn line(node: &CstNode) -> usize {
    let mut breaks = 0_usize;
    let mut here = Some(node.clone());
    while let Some(node) = here {
        let before = node.previous_siblings().map(|sibling| sibling.to_string().matches('\n').count());
        breaks = breaks.saturating_add(before.sum());
        here = node.parent().map(CstNode::Container);
    }
    breaks.saturating_add(1)
}

/// What a member has to be.
trait Shape: Sized {
    const WORD: &'static str;
    fn of(node: &CstNode) -> Option<Self>;
}

impl Shape for CstObject {
    const WORD: &'static str = "an object";
    fn of(node: &CstNode) -> Option<Self> {
        node.as_object()
    }
}

impl Shape for CstArray {
    const WORD: &'static str = "a list";
    fn of(node: &CstNode) -> Option<Self> {
        node.as_array()
    }
}

fn member<T: Shape>(holder: &CstObject, key: &str) -> Result<Option<T>, Broken> {
    let mut members = holder.properties().into_iter();
    let mut named = || members.find(|member| member.decoded_name().as_deref() == Some(key));
    let first = named();
    // Programs take the last of them, people see the first.
    if let Some(again) = named() {
        let line = line(&CstNode::Container(again.into()));
        return Err(Broken { line, why: format!("`{key}` is there twice") });
    }
    let Some(value) = first.and_then(|member| member.value()) else { return Ok(None) };
    let broken = || Broken { line: line(&value), why: format!("`{key}` is not {}", T::WORD) };
    T::of(&value).map(Some).ok_or_else(broken)
}

/// The object under a key; what is there and is none is a mistake, and never overwritten.
pub(super) fn object(holder: &CstObject, key: &str) -> Result<Option<CstObject>, Broken> {
    member(holder, key)
}

/// The list under a key; what is there and is none is a mistake, and never overwritten.
pub(super) fn list(holder: &CstObject, key: &str) -> Result<Option<CstArray>, Broken> {
    member(holder, key)
}

/// The object under a key, made where it is not there.
pub(super) fn object_or_new(holder: &CstObject, key: &str) -> Result<CstObject, Broken> {
    Ok(object(holder, key)?.unwrap_or_else(|| holder.object_value_or_set(key)))
}

/// Every server of a file: those for everywhere, and Claude Code's own ones of single folders.
pub(super) fn read(host: Host, text: &str, folder: Option<PathBuf>) -> Result<Vec<Entry>, Broken> {
    let root = parse(text)?;
    let Some(object) = whole(&root)? else { return Ok(Vec::new()) };
    let mut entries = Vec::new();
    if let Some(servers) = self::object(&object, host.key())? {
        gather(host, &servers, &[host.key()], folder, &mut entries);
    }
    if host == Host::ClaudeCode
        && let Some(projects) = object.object_value("projects")
    {
        for project in projects.properties() {
            let (Some(path), Some(inside)) = (project.decoded_name(), project.object_value()) else {
                continue;
            };
            if let Some(servers) = inside.object_value(host.key()) {
                let keys = ["projects", path.as_str(), host.key()];
                gather(host, &servers, &keys, Some(PathBuf::from(&path)), &mut entries);
            }
        }
    }
    Ok(entries)
}

fn gather(host: Host, servers: &CstObject, keys: &[&str], folder: Option<PathBuf>, into: &mut Vec<Entry>) {
    for member in servers.properties() {
        let Some(name) = member.decoded_name() else { continue };
        let value = member.value().and_then(|value| value.to_serde_value()).unwrap_or_default();
        let path = keys.iter().map(|key| (*key).to_owned()).chain([name.clone()]).collect();
        let (kind, offers) = (kind(host, &name, &value), offers(host, &value));
        into.push(Entry { kind, name, path, folder: folder.clone(), offers });
    }
}

fn kind(host: Host, name: &str, value: &Value) -> Kind {
    let Some(members) = value.as_object() else { return Kind::Foreign("it is not an object".to_owned()) };
    let text = |key: &str| members.get(key).and_then(Value::as_str).map(str::to_owned);
    let url = text("url").or_else(|| text("httpUrl")).or_else(|| text("serverUrl"));
    let program = text("command").is_some_and(|command| is_ours(name, &command, &args(members)));
    if program || url.as_ref().is_some_and(|url| is_our_address(name, url)) {
        return Kind::Countersign;
    }
    let off = members.get("disabled") == Some(&Value::Bool(true))
        || members.get("enabled") == Some(&Value::Bool(false));
    if off {
        return Kind::Disabled;
    }
    // Antigravity goes to the address where an entry has both.
    let away = host == Host::Antigravity && url.is_some();
    // Older Zed files have the program's parts one level down.
    if let Some(Value::Object(inner)) = members.get("command").filter(|_| host == Host::Zed) {
        let command = inner.get("path").and_then(Value::as_str).unwrap_or_default().to_owned();
        return stdio(name, command, inner);
    }
    if let Some(command) = text("command").filter(|_| !away) {
        return stdio(name, command, members);
    }
    match (url, text("type").or_else(|| text("transport")).as_deref()) {
        (Some(_), Some("sse")) => {
            Kind::Foreign("it speaks the old SSE transport, which has no sessions".to_owned())
        }
        (Some(url), _) => Kind::Server(Server::Http {
            url,
            headers: pairs(members.get("headers")),
            bearer_env: None,
            env_headers: Vec::new(),
        }),
        (None, _) => Kind::Foreign("it has neither `command` nor `url`".to_owned()),
    }
}

/// What a host lets through of a server's tools, in whichever words.
fn offers(host: Host, value: &Value) -> Offers {
    let names = |key: &str| -> Option<Vec<String>> {
        Some(value.get(key)?.as_array()?.iter().filter_map(Value::as_str).map(str::to_owned).collect())
    };
    let only = match host {
        Host::Copilot => names("tools").filter(|names| !names.iter().any(|name| name == "*")),
        Host::ClaudeCode
        | Host::ClaudeDesktop
        | Host::Codex
        | Host::Cursor
        | Host::VsCode
        | Host::Gemini
        | Host::Antigravity
        | Host::Windsurf
        | Host::Devin
        | Host::Zed => names("includeTools").or_else(|| names("enabledTools")),
    };
    let without = names("excludeTools").or_else(|| names("disabledTools")).unwrap_or_default();
    Offers { only, without }
}

fn stdio(name: &str, command: String, members: &Map<String, Value>) -> Kind {
    let args = args(members);
    if is_ours(name, &command, &args) {
        return Kind::Countersign;
    }
    Kind::Server(Server::Stdio {
        command,
        args,
        env: pairs(members.get("env")),
        cwd: members.get("cwd").and_then(Value::as_str).map(str::to_owned),
    })
}

fn args(members: &Map<String, Value>) -> Vec<String> {
    members.get("args").and_then(Value::as_array).into_iter().flatten().map(plain).collect()
}

fn pairs(value: Option<&Value>) -> Vec<(String, String)> {
    let members = value.and_then(Value::as_object).into_iter().flatten();
    members.filter(|(_, value)| !value.is_null()).map(|(name, value)| (name.clone(), plain(value))).collect()
}

/// A text as it is, anything else as JSON: hosts turn numbers and truths into texts as well.
fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Removes what was taken over and adds our entry where the host's servers stand.
pub(super) fn rewrite(host: Host, text: &str, taken: &[Entry], ours: &Ours) -> Result<String, Broken> {
    let root = parse(text)?;
    let object = whole(&root)?.unwrap_or_else(|| root.object_value_or_set());
    for entry in taken {
        let Some((name, keys)) = entry.path.split_last() else { continue };
        let holder = keys.iter().try_fold(object.clone(), |here, key| here.object_value(key));
        if let Some(member) = holder.and_then(|holder| holder.get(name)) {
            member.remove();
        }
    }
    let servers = object_or_new(&object, host.key())?;
    if servers.get(NAME).is_none() {
        servers.append(NAME, entry(host, ours));
    }
    Ok(ended(text, root.to_string()))
}

/// A file we made ends with its line.
pub(super) fn ended(before: &str, after: String) -> String {
    if before.is_empty() && !after.ends_with('\n') { format!("{after}\n") } else { after }
}

/// Takes our entry out of a text that its host has changed since, and puts the servers of the old text back.
pub(super) fn give_back(host: Host, now: &str, before: &str) -> Result<String, Broken> {
    let root = parse(now)?;
    let old = parse(before)?;
    let (Some(object), old) = (whole(&root)?, whole(&old)?.unwrap_or_else(|| old.object_value_or_set()))
    else {
        return Ok(now.to_owned());
    };
    let had = |path: &[String]| {
        let (name, keys) = path.split_last()?;
        keys.iter().try_fold(old.clone(), |here, key| here.object_value(key))?.get(name)?.value()
    };
    let key = host.key().to_owned();
    if had(&[key.clone(), NAME.to_owned()]).is_none()
        && let Some(ours) = object.object_value(&key).and_then(|servers| servers.get(NAME))
    {
        ours.remove();
    }
    for entry in read(host, before, None)? {
        let Some((name, keys)) = entry.path.split_last() else { continue };
        let holder = keys.iter().fold(object.clone(), |here, key| here.object_value_or_set(key));
        let value = had(&entry.path).and_then(|value| value.to_serde_value());
        if let (None, Some(value)) = (holder.get(name), value) {
            holder.append(name, input(&value));
        }
    }
    Ok(root.to_string())
}

fn input(value: &Value) -> CstInputValue {
    match value {
        Value::Null => CstInputValue::Null,
        Value::Bool(truth) => CstInputValue::Bool(*truth),
        Value::Number(number) => CstInputValue::Number(number.to_string()),
        Value::String(text) => CstInputValue::String(text.clone()),
        Value::Array(items) => CstInputValue::Array(items.iter().map(input).collect()),
        Value::Object(members) => {
            CstInputValue::Object(members.iter().map(|(name, value)| (name.clone(), input(value))).collect())
        }
    }
}

fn entry(host: Host, ours: &Ours) -> CstInputValue {
    let text = |text: &str| CstInputValue::String(text.to_owned());
    let mut members = Vec::new();
    match host {
        Host::ClaudeCode | Host::VsCode => members.push(("type".to_owned(), text("stdio"))),
        // Every version of Copilot CLI knows this word; `stdio` came later and means the same.
        Host::Copilot => members.push(("type".to_owned(), text("local"))),
        Host::Zed => members.push(("source".to_owned(), text("custom"))),
        Host::ClaudeDesktop
        | Host::Codex
        | Host::Cursor
        | Host::Gemini
        | Host::Antigravity
        | Host::Windsurf
        | Host::Devin => {}
    }
    members.push(("command".to_owned(), text(&ours.command)));
    let args = ours.args.iter().map(|arg| text(arg)).collect();
    members.push(("args".to_owned(), CstInputValue::Array(args)));
    if host == Host::Copilot {
        // Without this an older version offers none of our tools.
        members.push(("tools".to_owned(), CstInputValue::Array(vec![text("*")])));
    }
    CstInputValue::Object(members)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ours() -> Ours {
        Ours { command: "countersign".to_owned(), args: vec!["serve".to_owned()] }
    }

    #[test]
    fn an_edit_keeps_comments_order_and_trailing_commas() {
        let text = "// mine\n{\n\t\"a\": 1, // one\n\t\"servers\": {\n\t\t\"x\": {\"command\": \"npx\", \"args\": [\"-y\", \"x\"],},\n\t},\n\t\"z\": [1,2,],\n}\n";
        let entries = read(Host::VsCode, text, None).unwrap();
        assert_eq!(entries.len(), 1);
        let after = rewrite(Host::VsCode, text, &entries, &ours()).unwrap();
        assert!(after.starts_with("// mine\n{\n\t\"a\": 1, // one\n\t\"servers\": {"), "{after}");
        assert!(after.ends_with("\n\t\"z\": [1,2,],\n}\n"), "{after}");
        assert!(after.contains("\"countersign\"") && !after.contains("npx"), "{after}");
        assert_eq!(read(Host::VsCode, &after, None).unwrap()[0].kind, Kind::Countersign);
        assert_eq!(rewrite(Host::VsCode, &after, &[], &ours()).unwrap(), after);
    }

    #[test]
    fn a_broken_file_is_named_with_its_line() {
        let broken = read(Host::Cursor, "{\n  \"mcpServers\": {\n    \"x\" 1\n}}", None).unwrap_err();
        assert_eq!(broken.line, 3);
        assert!(read(Host::Cursor, "[]", None).is_err());
        for text in ["\n{\n\n  \"mcpServers\": []\n}", "\n{\"a\": [\n1],\n \"mcpServers\": \"x\"}"] {
            let broken = read(Host::Cursor, text, None).unwrap_err();
            assert_eq!((broken.line, broken.why.as_str()), (4, "`mcpServers` is not an object"), "{text}");
            assert_eq!(
                rewrite(Host::Cursor, text, &[], &ours()).unwrap_err().line,
                4,
                "nothing is overwritten"
            );
        }
        let twice = "{\"mcpServers\": {},\n\"a\": 1,\n\"mcpServers\": {\"x\": {\"command\": \"npx\"}}}";
        let broken = read(Host::Cursor, twice, None).unwrap_err();
        assert_eq!((broken.line, broken.why.as_str()), (3, "`mcpServers` is there twice"));
        assert_eq!(read(Host::Cursor, "", None).unwrap(), []);
    }

    #[test]
    fn each_dialect_is_read() {
        let url = |text: &str, host| {
            let kind = read(host, text, None).unwrap().remove(0).kind;
            let Kind::Server(Server::Http { url, .. }) = kind else { panic!("{kind:?}") };
            url
        };
        assert_eq!(
            url(r#"{"mcpServers":{"a":{"serverUrl":"https://a/mcp"}}}"#, Host::Windsurf),
            "https://a/mcp"
        );
        assert_eq!(url(r#"{"mcpServers":{"a":{"httpUrl":"https://b/mcp"}}}"#, Host::Gemini), "https://b/mcp");
        let both = r#"{"mcpServers":{"a":{"command":"npx","serverUrl":"https://c/mcp"}}}"#;
        assert_eq!(url(both, Host::Antigravity), "https://c/mcp");
        let typed = r#"{"mcpServers":{"a":{"type":"http","url":"https://d/mcp","tools":["*"]}}}"#;
        assert_eq!(url(typed, Host::Copilot), "https://d/mcp");
        for key in ["url", "serverUrl"] {
            let text = format!(r#"{{"mcpServers":{{"a":{{"{key}":"https://e/mcp","transport":"http"}}}}}}"#);
            assert_eq!(url(&text, Host::Devin), "https://e/mcp");
            let old = text.replace("http\"", "sse\"");
            let kind = read(Host::Devin, &old, None).unwrap().remove(0).kind;
            assert!(matches!(kind, Kind::Foreign(_)), "{kind:?}");
        }
        let local = r#"{"projects":{"/p":{"mcpServers":{"a":{"command":"x"}}}}}"#;
        let entries = read(Host::ClaudeCode, local, None).unwrap();
        assert_eq!(entries[0].folder, Some(PathBuf::from("/p")));
        let gone = rewrite(Host::ClaudeCode, local, &entries, &ours()).unwrap();
        let value: Value = serde_json::from_str(&gone).unwrap();
        assert_eq!(value["projects"]["/p"]["mcpServers"], serde_json::json!({}));
        assert_eq!(value["mcpServers"]["countersign"]["command"], "countersign");
    }

    #[test]
    fn tools_that_are_switched_off() {
        for (host, entry, only, without) in [
            (Host::Gemini, r#""includeTools":["a"],"excludeTools":["b"]"#, Some(&["a"][..]), &["b"][..]),
            (Host::Copilot, r#""tools":["a","b"]"#, Some(&["a", "b"]), &[]),
            (Host::Copilot, r#""tools":["*"]"#, None, &[]),
            (Host::Copilot, r#""tools":[]"#, Some(&[]), &[]),
            (Host::Windsurf, r#""disabledTools":["b"]"#, None, &["b"]),
            (Host::Cursor, r#""tools":["a"]"#, None, &[]),
        ] {
            let text = format!("{{\"mcpServers\":{{\"x\":{{\"command\":\"x\",{entry}}}}}}}");
            let offers = read(host, &text, None).unwrap().remove(0).offers;
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

    #[test]
    fn each_dialect_is_written() {
        for (host, expect) in [
            (Host::ClaudeCode, r#"{"type":"stdio","command":"countersign","args":["serve"]}"#),
            (Host::VsCode, r#"{"type":"stdio","command":"countersign","args":["serve"]}"#),
            (Host::Copilot, r#"{"type":"local","command":"countersign","args":["serve"],"tools":["*"]}"#),
            (Host::Zed, r#"{"source":"custom","command":"countersign","args":["serve"]}"#),
            (Host::Cursor, r#"{"command":"countersign","args":["serve"]}"#),
            (Host::Devin, r#"{"command":"countersign","args":["serve"]}"#),
            (Host::Antigravity, r#"{"command":"countersign","args":["serve"]}"#),
        ] {
            let made = rewrite(host, "", &[], &ours()).unwrap();
            assert!(made.ends_with("}\n"), "{made:?}");
            let value: Value = serde_json::from_str(&made).unwrap();
            let expect: Value = serde_json::from_str(expect).unwrap();
            assert_eq!(value[host.key()]["countersign"], expect, "{host:?}");
            // What was made new and written into since is given back as what was added.
            let grown = made.replacen('{', "{ \"theme\": 1,", 1);
            let back: Value = serde_json::from_str(&give_back(host, &grown, "").unwrap()).unwrap();
            assert_eq!((&back["theme"], back[host.key()].get("countersign")), (&serde_json::json!(1), None));
        }
    }
}
