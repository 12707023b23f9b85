//! Rules go in beside what is there, once, and come out again.

use serde_json::{Value, json};

use super::*;

fn file(host: Host) -> RuleFile {
    RuleFile { host, scope: Scope::User, path: PathBuf::new(), form: form(host).unwrap() }
}

#[track_caller]
fn added(host: Host, text: Option<&str>) -> String {
    match file(host).add(text).unwrap() {
        Offered::Text(text) => text,
        Offered::Not(why) => panic!("{why}"),
    }
}

fn value(text: &str) -> Value {
    json::parse(text).unwrap().to_serde_value().unwrap()
}

/// Everything of ours that only looks is allowed, everything that changes something asks, and no name is made up.
#[test]
fn the_tools_are_those_the_gateway_has() {
    use countersign_gateway::surfaces::definitions::{OWN, ROUTER};
    let mut told = Vec::new();
    for definition in OWN.iter().chain(ROUTER.iter()) {
        let definition: Value = serde_json::from_str(definition.get()).unwrap();
        let name = definition["name"].as_str().unwrap().to_owned();
        let looks = definition["annotations"]["readOnlyHint"] == true;
        assert_eq!(LOOK.contains(&name.as_str()), looks, "{name}");
        if definition["annotations"]["destructiveHint"] == true {
            assert!(CHANGE.contains(&name.as_str()), "{name}");
        }
        told.push(name);
    }
    assert!(LOOK.iter().chain(&CHANGE).all(|tool| told.iter().any(|name| name == tool)), "{told:?}");
}

#[test]
fn two_lists() {
    let made = added(Host::ClaudeCode, None);
    assert!(made.ends_with("}\n") && made.contains("\n    \"allow\": [\n      \"mcp__"), "{made}");
    let permissions = &value(&made)["permissions"];
    assert_eq!(permissions["allow"][0], "mcp__countersign__call_tool_read");
    assert_eq!(
        permissions["ask"],
        json!([
            "mcp__countersign__call_tool_write",
            "mcp__countersign__call_tool_destructive",
            "mcp__countersign__run_plan"
        ])
    );
    assert!(!made.contains('*'), "{made}");
    // What a person decided more strictly stays; a looser wish of ours is not written beside it.
    let strict = "{\n\t// mine\n\t\"permissions\": {\n\t\t\"ask\": [\"mcp__countersign__get_run\"],\n\t\t\"deny\": [\n\t\t\t\"mcp__countersign__run_plan\", // never\n\t\t],\n\t\t\"allow\": [\"Bash(ls)\"],\n\t},\n\t\"model\": \"x\",\n}\n";
    let after = added(Host::ClaudeCode, Some(strict));
    let permissions = &value(&after)["permissions"];
    assert_eq!(permissions["deny"], json!(["mcp__countersign__run_plan"]));
    let list = |key: &str| permissions[key].as_array().unwrap().len();
    assert_eq!((list("allow"), list("ask")), (6, 3), "{after}");
    assert!(
        after.contains("// mine")
            && after.contains("// never")
            && after.ends_with("\t\"model\": \"x\",\n}\n"),
        "{after}"
    );
    let antigravity = added(Host::Antigravity, Some("{}"));
    assert_eq!(value(&antigravity)["permissions"]["allow"][0], "mcp(countersign/call_tool_read)");
    assert!(matches!(file(Host::Antigravity).add(None), Ok(Offered::Not(_))));
}

#[test]
fn one_list_where_there_is_one() {
    for text in [None, Some(""), Some("{}"), Some("{\"terminalAllowlist\": [\"ls\"]}")] {
        assert!(matches!(file(Host::Cursor).add(text), Ok(Offered::Not(_))), "{text:?}");
    }
    let after = added(Host::Cursor, Some("{ \"mcpAllowlist\": [\"gh:list\"] }"));
    assert_eq!(value(&after)["mcpAllowlist"][1], "countersign:call_tool_read");
    assert!(!after.contains("call_tool_write"), "{after}");
}

#[test]
fn tables_beside_the_server() {
    let text = "# mine\n[mcp_servers.countersign]\ncommand = \"countersign\"\n\n[mcp_servers.countersign.tools.call_tool_write]\napproval_mode = \"approve\" # I know\n\n[tui]\na = 1\n";
    let after = added(Host::Codex, Some(text));
    let document: DocumentMut = after.parse().unwrap();
    let mode =
        |tool: &str| document["mcp_servers"]["countersign"]["tools"][tool]["approval_mode"].as_str().unwrap();
    assert_eq!((mode("call_tool_read"), mode("call_tool_destructive")), ("approve", "prompt"));
    assert_eq!(mode("call_tool_write"), "approve", "what was decided stays");
    assert!(after.contains("# I know") && after.contains("[tui]\na = 1\n"), "{after}");
    let inline = "mcp_servers = { countersign = { command = \"countersign\" } }\n";
    let after: DocumentMut = added(Host::Codex, Some(inline)).parse().unwrap();
    let tools = &after["mcp_servers"]["countersign"]["tools"];
    assert_eq!(tools["get_plan"]["approval_mode"].as_str(), Some("approve"));
    assert_eq!(added(Host::Codex, Some("a = 1\n")), "a = 1\n", "no server, no rules");
}

#[test]
fn a_policy_of_its_own() {
    let made = added(Host::Gemini, None);
    let document: DocumentMut = made.parse().unwrap();
    let rules = document["rule"].as_array_of_tables().unwrap();
    let decisions: Vec<_> = rules.iter().map(|rule| rule["decision"].as_str().unwrap()).collect();
    assert_eq!(decisions, ["allow", "ask_user"]);
    // Only what no rule is about is added.
    let mine = "[[rule]]\r\nmcpName = \"countersign\"\r\ntoolName = \"call_tool_read\"\r\ndecision = \"deny\"\r\npriority = 1";
    let after = added(Host::Gemini, Some(mine));
    assert!(after.starts_with(mine) && after.matches("call_tool_read").count() == 1, "{after}");
    assert_eq!(after.matches('\n').count(), after.matches("\r\n").count(), "{after:?}");
}

#[test]
fn levels_in_the_settings() {
    let text = "{\n  // editor\n  \"agent\": { \"tool_permissions\": { \"tools\": { \"mcp:countersign:call_tool_write\": { \"default\": \"deny\" } } } },\n}\n";
    let after = added(Host::Zed, Some(text));
    let tools = &value(&after)["agent"]["tool_permissions"]["tools"];
    assert_eq!(tools["mcp:countersign:call_tool_read"]["default"], "allow");
    assert_eq!(tools["mcp:countersign:call_tool_destructive"]["default"], "confirm");
    assert_eq!(tools["mcp:countersign:call_tool_write"]["default"], "deny", "what was decided stays");
    assert!(after.starts_with("{\n  // editor\n"), "{after}");
}

const ALL: [(Host, &str); 6] = [
    (Host::ClaudeCode, "{\r\n  \"permissions\": {\"allow\": [\"Bash(ls)\"]},\r\n}\r\n"),
    (Host::Devin, "\u{feff}{}"),
    (Host::Cursor, "{\"mcpAllowlist\":[]}"),
    (Host::Zed, "{\r\n\t\"vim_mode\": true, // yes\r\n}\r\n"),
    (Host::Codex, "\u{feff}[mcp_servers.countersign]\r\ncommand = \"countersign\"\r\n"),
    (Host::Gemini, "\u{feff}# mine\r\n"),
];

#[test]
fn a_second_time_changes_nothing_and_marks_and_line_ends_stay() {
    for (host, text) in ALL {
        let after = added(host, Some(text));
        assert_ne!(after, text, "{host:?}");
        assert_eq!(added(host, Some(&after)), after, "{host:?}");
        assert_eq!(after.matches('\u{feff}').count(), text.matches('\u{feff}').count(), "{after:?}");
        if text.contains('\n') {
            assert_eq!(after.matches('\n').count(), after.matches("\r\n").count(), "{after:?}");
        }
    }
}

#[test]
fn they_come_out_of_a_file_its_host_has_written_into() {
    for (host, text) in &ALL[..4] {
        let (text, after) = (marked(text).1, added(*host, Some(text)));
        let grown = marked(&after).1.replacen('{', "{ \"more\": [1],", 1);
        let back = value(&withdraw(*host, &grown, text).unwrap());
        let mut expect = value(text);
        expect["more"] = json!([1]);
        assert_eq!(back, expect, "{host:?}");
        // Nor is anything left where there was no file.
        if *host != Host::Cursor {
            let made = added(*host, Some(""));
            assert_eq!(value(&withdraw(*host, &made, "").unwrap()), json!({}), "{host:?}");
        }
    }
    // What the person wrote before, or wrote otherwise since, stays.
    let mine = "{\"permissions\":{\"ask\":[\"mcp__countersign__run_plan\"]}}";
    let after = added(Host::ClaudeCode, Some(mine));
    assert_eq!(value(&withdraw(Host::ClaudeCode, &after, mine).unwrap()), value(mine));
    let after = added(Host::Zed, Some("{}")).replacen("\"allow\"", "\"deny\"", 1);
    let back = value(&withdraw(Host::Zed, &after, "{}").unwrap());
    assert_eq!(
        back,
        json!({"agent": {"tool_permissions": {"tools": {"mcp:countersign:call_tool_read": {"default": "deny"}}}}})
    );
}

#[test]
fn what_is_not_what_it_should_be_is_named_with_its_line_and_never_overwritten() {
    for (host, text, line) in [
        (Host::ClaudeCode, "{\n\"permissions\": [],\n}", 2),
        (Host::ClaudeCode, "{\n\"permissions\": {\n\"ask\": \"x\"}}", 3),
        (Host::ClaudeCode, "{\n\"permissions\" {}}", 2),
        (Host::Cursor, "{\n\n\"mcpAllowlist\": {}}", 3),
        (Host::Zed, "{\n\"agent\": {\n\n\"tool_permissions\": true}}", 4),
        (Host::Codex, "[mcp_servers.countersign]\ntools = 3\n", 1),
        (Host::Gemini, "a = 1\nrule = \n", 2),
        (Host::Gemini, "rule = 1\n", 1),
    ] {
        assert_eq!(file(host).add(Some(text)).unwrap_err().line, line, "{host:?}: {text}");
    }
}
