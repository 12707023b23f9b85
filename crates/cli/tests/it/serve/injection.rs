//! Hostile values through the real binary: each arrives as one literal argument of a command, or is refused before anything starts.
//! There is no shell on the way.

use serde_json::{Value, json};

use super::client::{Client, Host, Way};
use super::gateway::{End, Gateway};
use super::scene::agent_credential;
use crate::world::World;

const CONFIG: &str = r#"
[gateway]
mode = "execute"

[upstreams.u]
[[upstreams.u.tools]]
name = "say"
effect = "read"
input = { value = { type = "string" }, list = { type = "array", items = { type = "string" }, optional = true }, free = { type = "string", optional = true, leading_dash = true } }
run = ["printf", "[%s]", "{value}", "--in={value}", "{list}", ["{free}"]]

[[upstreams.u.tools]]
name = "note"
effect = "write"
confirm = "simple"
strength = "caller"
stdin = "{text}"
input = { text = { type = "string" } }
run = ["sh", "-c", "printf '%s' \"$1\" > noted; cat > fed", "sh", "{text}"]
preview = ["printf", "[%s]", "{text}"]
"#;

const LITERAL: [&str; 22] = [
    "; touch pwned",
    "&& touch pwned",
    "| touch pwned",
    "$(touch pwned)",
    "`touch pwned`",
    "${HOME}",
    "$HOME",
    "line\nbreak\r\ntouch pwned\n",
    "*",
    "../*",
    "?[a-z]{a,b}~",
    "'\"\\",
    "> pwned",
    "< /etc/passwd",
    "%s%n%x",
    "{value} {list}",
    "${env:HOME}",
    "a\u{a0}b\u{2003}c\u{3000}d\u{feff}e\u{200b}",
    "\u{2212}minus \u{ff0d}wide",
    "\u{202e}gpj.exe",
    " --flag",
    "",
];

const REFUSED: [&str; 8] =
    ["-", "--", "-rf", "--upload-pack=touch pwned", "-\n", "-o ProxyCommand=x", "nul\u{0}inside", "\u{0}"];

/// The text a tool that ran gave back.
fn said(client: &Client, direct: bool, args: &Value) -> Result<String, (String, String)> {
    let reply = if direct {
        client.call("u__say", &args.to_string())
    } else {
        let asked = json!({"name": "u:say", "args": args, "intent": {"operation_type": "read"}});
        client.call("call_tool_read", &asked.to_string())
    };
    if let Some(code) = reply.code() {
        let message = reply.envelope().unwrap()["errors"][0]["message"].as_str().unwrap();
        return Err((code.to_owned(), message.to_owned()));
    }
    Ok(reply.result()["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{}", reply.text)).to_owned())
}

#[test]
fn one_literal_argument_or_a_refusal() {
    for (way, surface) in [(Way::StdioLegacy, "router"), (Way::StdioModern, "direct")] {
        let world = World::new();
        world.write("countersign.toml", CONFIG);
        let mut gateway = Gateway::start(&world, &["--surface", surface]);
        let (stdin, stdout) = gateway.pipes.take().unwrap();
        let client = Client::stdio(way, Host::None, stdin, stdout);
        let direct = surface == "direct";
        for value in LITERAL {
            let given = json!({"value": value, "list": [value, "two words"], "free": value});
            let expected = format!("[{value}][--in={value}][{value}][two words][{value}]");
            assert_eq!(said(&client, direct, &given), Ok(expected), "{value:?}");
        }
        for value in REFUSED {
            for given in [json!({"value": value}), json!({"value": "fine", "list": ["fine", value]})] {
                let (code, message) = said(&client, direct, &given).unwrap_err();
                assert_eq!(code, "E_ARGUMENTS_INVALID", "{value:?}");
                assert!(
                    message.contains("must not start with `-`, where it could be taken for a flag"),
                    "{message}"
                );
            }
        }
        // Where the tool says so a flag may be given, and still is one argument.
        let free = said(&client, direct, &json!({"value": "v", "free": "--all; x"}));
        assert_eq!(free.as_deref(), Ok("[v][--in=v][--all; x]"));
        let (_, message) = said(&client, direct, &json!({"value": "v", "free": "a\u{0}b"})).unwrap_err();
        assert!(message.contains("must not hold a NUL character"), "{message}");
        assert!(!world.work().join("pwned").exists());
        drop(client);
        gateway.end(End::Closed);
    }
}

/// What is shown is what runs: a hostile value is the same in the preview, in the command's words and in what it reads.
#[test]
fn what_is_shown_is_what_runs() {
    let world = World::new();
    world.write("countersign.toml", CONFIG);
    let gateway = Gateway::start(&world, &["--http", "127.0.0.1:0"]);
    let client = Client::http_as(
        Way::HttpModern,
        Host::None,
        &gateway.address(),
        "/mcp/router",
        "s",
        Some(agent_credential(&world)),
    );
    for value in LITERAL.into_iter().filter(|value| !value.is_empty()) {
        let mut asked =
            json!({"name": "u:note", "args": {"text": value}, "intent": {"operation_type": "write"}});
        let held = client.call("call_tool_write", &asked.to_string());
        let shown = &held.data()["preview"]["shown"]["content"][0]["text"];
        assert_eq!(shown, &json!(format!("[{value}]")), "{}", held.text);
        asked["confirm_token"] = held.data()["confirm_token"].clone();
        asked["yes"] = true.into();
        let done = client.call("call_tool_write", &asked.to_string());
        assert_eq!(done.result()["isError"], false, "{}", done.text);
        assert_eq!((world.read("noted").as_str(), world.read("fed").as_str()), (value, value));
    }
    assert!(!world.work().join("pwned").exists());
    drop(client);
    gateway.end(End::Asked);
}
