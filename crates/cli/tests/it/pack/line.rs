//! `pack mcp serve` as an agent speaks to it: the scenarios of the seed that need the protocol, by their names.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use serde_json::{Value, json};

use super::packed;
use crate::world::World;

/// One server on a line.
pub(super) struct Server {
    child: Child,
    to: Option<ChildStdin>,
    from: BufReader<ChildStdout>,
    next: u64,
}

impl Server {
    /// Starts it and opens the session.
    pub(super) fn start(world: &World) -> Self {
        let mut server = Self::bare(world);
        server.ask("initialize", &opening("2025-06-18"));
        server.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        server
    }

    fn bare(world: &World) -> Self {
        let mut command = world.countersign(&["pack", "mcp", "serve"]);
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (to, from) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()));
        Self { child, to, from, next: 0 }
    }

    fn send(&mut self, message: &Value) {
        writeln!(self.to.as_mut().unwrap(), "{message}").unwrap();
    }

    /// Sends a request without waiting.
    pub(super) fn begin(&mut self, method: &str, params: &Value) -> u64 {
        self.next += 1;
        let id = self.next;
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        id
    }

    /// The reply to a request; every line on stdout must be JSON-RPC.
    pub(super) fn reply(&mut self, id: u64) -> Value {
        loop {
            let mut line = String::new();
            assert!(self.from.read_line(&mut line).unwrap() > 0, "the line closed");
            let message: Value = serde_json::from_str(&line).unwrap();
            assert_eq!(message["jsonrpc"], "2.0", "{line}");
            if message["id"] == id {
                return message;
            }
        }
    }

    fn ask(&mut self, method: &str, params: &Value) -> Value {
        let id = self.begin(method, params);
        self.reply(id)
    }

    /// Calls a tool; the envelope, which is the text as well.
    pub(super) fn call(&mut self, tool: &str, arguments: &Value) -> Value {
        let reply = self.ask("tools/call", &json!({"name": tool, "arguments": arguments}));
        envelope(&reply)
    }

    /// Closes the line; the server ends by itself and well.
    pub(super) fn end(mut self) {
        drop(self.to.take());
        assert!(self.child.wait().unwrap().success());
    }
}

/// The envelope of a tool's reply, whose three forms must agree.
#[track_caller]
pub(super) fn envelope(reply: &Value) -> Value {
    let result = &reply["result"];
    let text: Value = serde_json::from_str(result["content"][0]["text"].as_str().unwrap()).unwrap();
    assert_eq!(text, result["structuredContent"], "{reply:#}");
    assert_eq!(result["isError"].as_bool().unwrap(), !text["ok"].as_bool().unwrap());
    text
}

fn opening(version: &str) -> Value {
    json!({"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}})
}

#[test]
fn client_can_initialize_the_server() {
    let world = packed();
    for (asked, answered) in [
        ("2025-06-18", "2025-06-18"),
        ("2025-03-26", "2025-03-26"),
        ("2025-11-25", "2025-11-25"),
        ("2024-11-05", "2025-06-18"),
        ("1999-01-01", "2025-06-18"),
    ] {
        let mut server = Server::bare(&world);
        let reply = server.ask("initialize", &opening(asked));
        assert_eq!(reply["result"]["protocolVersion"], answered, "{reply:#}");
        assert!(reply["result"]["capabilities"]["tools"].is_object());
        assert_eq!(reply["result"]["serverInfo"]["name"], "agentpack");
        server.end();
    }
}

#[test]
fn server_does_not_corrupt_stdio_transport() {
    let world = packed();
    let mut server = Server::start(&world);
    let tools = server.ask("tools/list", &json!({}));
    assert_eq!(tools["result"]["tools"].as_array().unwrap().len(), 11, "{tools:#}");
    for tool in ["plan", "diff", "preview", "status", "doctor"] {
        let envelope = server.call(tool, &json!({}));
        assert_eq!(
            (&envelope["schema_version"], &envelope["ok"], &envelope["command"]),
            (&json!(1), &json!(true), &json!(tool))
        );
    }
    let unknown = server.ask("tools/call", &json!({"name": "nope", "arguments": {}}));
    assert_eq!(unknown["result"]["isError"], true);
    assert_eq!(server.ask("no/such/method", &json!({}))["error"]["code"], -32601);
    server.end();
}

#[test]
fn a_deployment_over_the_line_and_across_a_restart() {
    let world = packed();
    let mut server = Server::start(&world);
    let refused = server.call("deploy_apply", &json!({}));
    assert_eq!(refused["errors"][0]["code"], "E_CONFIRM_REQUIRED");
    let deploy = server.call("deploy", &json!({}));
    let token = deploy["data"]["confirm_token"].clone();
    assert_eq!(deploy["data"]["confirm_plan_hash"].as_str().unwrap().len(), 64);
    server.end();
    let mut server = Server::start(&world);
    let applied = server.call("deploy_apply", &json!({"yes": true, "confirm_token": token}));
    assert_eq!(applied["data"]["applied"], true, "{applied:#}");
    assert_eq!(world.read("AGENTS.md"), "be kind\n");
    let used = server.call("deploy_apply", &json!({"yes": true, "confirm_token": token}));
    assert_eq!(used["errors"][0]["code"], "E_CONFIRM_TOKEN_USED");
    let back = server.call("rollback", &json!({"to": "initial", "yes": true}));
    assert_eq!(back["ok"], true, "{back:#}");
    assert!(!world.work().join("AGENTS.md").exists());
    server.end();
}

/// The same engine as everywhere else: how long a token lives is what the configuration says.
#[test]
fn tokens_live_as_long_as_the_configuration_says() {
    let world = packed();
    world.write("countersign.toml", "[confirm]\nttl = \"1s\"\n");
    let mut server = Server::start(&world);
    let token = server.call("deploy", &json!({}))["data"]["confirm_token"].clone();
    std::thread::sleep(std::time::Duration::from_millis(1_100));
    let late = server.call("deploy_apply", &json!({"yes": true, "confirm_token": token}));
    assert_eq!(late["errors"][0]["code"], "E_CONFIRM_TOKEN_EXPIRED", "{late:#}");
    assert!(late["errors"][0]["details"]["next_actions"].is_array());
    server.end();
    // One that lies around and is broken is no reason not to serve; one that is named is.
    world.write("countersign.toml", "[confirm]\nttl = 5\n");
    Server::start(&world).end();
    let named = world.run(&["pack", "mcp", "serve", "--config", "countersign.toml"]);
    assert_eq!(named.code, Some(3), "{named}");
}

/// A line that is too long is refused piece by piece, and the server goes on.
#[test]
fn a_line_without_end_is_refused_and_the_next_one_is_not() {
    let world = packed();
    let mut server = Server::start(&world);
    let piece = vec![b'x'; 1 << 20];
    for _ in 0..17 {
        server.to.as_mut().unwrap().write_all(&piece).unwrap();
    }
    writeln!(server.to.as_mut().unwrap()).unwrap();
    let mut line = String::new();
    server.from.read_line(&mut line).unwrap();
    let refused: Value = serde_json::from_str(&line).unwrap();
    assert_eq!(refused["error"]["code"], -32600, "{line}");
    assert_eq!(server.call("plan", &json!({}))["ok"], true);
    server.end();
}
