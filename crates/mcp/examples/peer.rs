//! A scripted MCP server for tests: it speaks one era or both, and misbehaves on request. Not part of the product.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test peer may fail loudly"
)]

use std::io::Write;
use std::sync::Arc;

use countersign_mcp::client::{
    ClientIdentity, Observer, RequestOptions, StdioSpec, Upstream, UpstreamOptions, UpstreamSpec,
};
use countersign_mcp::jsonrpc::{
    self, Frame, FrameLimits, JsonRpcId, Message, Notification, Reply, Request, RpcError,
};
use countersign_mcp::raw::{self, RawJson};

#[derive(PartialEq, Clone, Copy)]
enum Era {
    Legacy,
    Modern,
}

struct Peer {
    /// What it offers.
    legacy: bool,
    modern: bool,
    /// What it was opened with.
    era: Option<Era>,
    input: std::io::Lines<std::io::StdinLock<'static>>,
    cancelled: Vec<String>,
    listen: Option<JsonRpcId>,
    /// Whether the first version it is asked for is refused, whatever it is.
    fussy: bool,
}

fn write(bytes: &[u8]) {
    let mut out = std::io::stdout().lock();
    out.write_all(bytes).unwrap();
    out.write_all(b"\n").unwrap();
    out.flush().unwrap();
}

fn reply(id: &JsonRpcId, reply: &Reply) {
    let mut bytes = Vec::new();
    jsonrpc::write_response(&mut bytes, Some(id), reply);
    write(&bytes);
}

fn notify(method: &str, params: &str) {
    let mut bytes = Vec::new();
    jsonrpc::write_notification(&mut bytes, method, Some(params));
    write(&bytes);
}

impl Peer {
    fn next(&mut self) -> Option<Message> {
        loop {
            let line = self.input.next()?.ok()?;
            match jsonrpc::parse(line.as_bytes(), FrameLimits::default()) {
                Ok(Frame::One(message)) => return Some(message),
                Ok(Frame::Batch(_)) | Err(_) => continue,
            }
        }
    }

    fn run(&mut self) {
        while let Some(message) = self.next() {
            match message {
                Message::Request(request) => self.request(&request),
                Message::Notification(notification) => {
                    if &*notification.method == "notifications/cancelled" {
                        let id = raw::get(notification.params.as_deref().unwrap(), "requestId").unwrap();
                        self.cancelled.push(id.get().to_owned());
                    }
                }
                Message::Response(_) => {}
            }
        }
    }

    fn request(&mut self, request: &Request) {
        let outcome = match &*request.method {
            "initialize" if self.legacy && self.era != Some(Era::Modern) => {
                self.era = Some(Era::Legacy);
                let asked = raw::get_str(request.params.as_deref().unwrap(), "protocolVersion").unwrap().into_owned();
                Ok(raw::to_raw(&serde_json::json!({
                    "protocolVersion": asked,
                    "capabilities": { "tools": { "listChanged": true } },
                    "serverInfo": { "name": "peer", "version": "1" },
                })))
            }
            "server/discover" if self.fussy => {
                self.fussy = false;
                let data = serde_json::json!({ "supported": ["2026-07-28"], "requested": "2026-07-28" });
                Err(RpcError::with_data(-32022, "not that one", &data))
            }
            "server/discover" if self.modern => {
                self.era = Some(Era::Modern);
                Ok(raw::to_raw(&serde_json::json!({
                    "resultType": "complete", "supportedVersions": ["2026-07-28"], "ttlMs": 0, "cacheScope": "private",
                    "capabilities": { "tools": { "listChanged": true } },
                    "_meta": { "io.modelcontextprotocol/serverInfo": { "name": "peer", "version": "1" } },
                })))
            }
            "subscriptions/listen" => {
                self.listen = Some(request.id.clone());
                let meta = format!(r#"{{"io.modelcontextprotocol/subscriptionId":{}}}"#, request.id);
                notify(
                    "notifications/subscriptions/acknowledged",
                    &format!(r#"{{"_meta":{meta},"notifications":{{"toolsListChanged":true}}}}"#),
                );
                return;
            }
            "tools/list" => Ok(self.done(
                r#"{"tools":[{"name":"echo","inputSchema":{"z":1,"a":2},"execution":{"taskSupport":"optional"},"annotations":{"vendor/x":12345678901234567890123}}],"odd":1.50}"#,
            )),
            "tools/call" => match self.call(request) {
                Some(outcome) => outcome,
                None => return,
            },
            other => Err(RpcError::method_not_found(other)),
        };
        reply(&request.id, &outcome);
    }

    /// A result in the era spoken.
    fn done(&self, text: &str) -> RawJson {
        let result = raw::from_text(text).unwrap();
        match self.era {
            Some(Era::Modern) => raw::set(&result, "resultType", &raw::to_raw("complete")).unwrap(),
            Some(Era::Legacy) | None => result,
        }
    }

    fn call(&mut self, request: &Request) -> Option<Reply> {
        let params = request.params.clone().unwrap();
        let name = raw::get_str(&params, "name").unwrap().into_owned();
        let arguments = raw::get(&params, "arguments").map_or("{}", |arguments| arguments.get());
        let count =
            raw::get_text(arguments, "count").and_then(|count| count.parse::<usize>().ok()).unwrap_or(0);
        let token = raw::get_in(&params, &["_meta", "progressToken"]);
        Some(Ok(match &*name {
            "echo" => self.done(&format!(r#"{{"content":[],"params":{}}}"#, params.get())),
            "progress" => {
                if let Some(token) = token {
                    for n in 1..=count {
                        notify(
                            "notifications/progress",
                            &format!(r#"{{"progressToken":{token},"progress":{n}}}"#),
                        );
                    }
                }
                self.done(r#"{"content":[]}"#)
            }
            "ask" => return self.ask(&params),
            "big" => {
                self.done(&format!(r#"{{"content":[{{"type":"text","text":"{}"}}]}}"#, "x".repeat(count)))
            }
            "news" => {
                let params = match &self.listen {
                    Some(id) => format!(r#"{{"_meta":{{"io.modelcontextprotocol/subscriptionId":{id}}}}}"#),
                    None => "{}".to_owned(),
                };
                notify("notifications/tools/list_changed", &params);
                self.done("{}")
            }
            "environment" => {
                let names: Vec<String> = std::env::vars().map(|(name, _)| name).collect();
                self.done(&raw::to_raw(&serde_json::json!({ "names": names })).to_string())
            }
            "cancelled" => self.done(&raw::to_raw(&serde_json::json!({ "ids": self.cancelled })).to_string()),
            "twice" => {
                reply(&request.id, &Ok(self.done("{}")));
                self.done("{}")
            }
            "noise" => {
                write(b"npm notice: hello");
                write(b"\xff\xfe not utf-8");
                write(br#"{"jsonrpc":"2.0","id":987654,"result":{}}"#);
                self.done("{}")
            }
            "broken" => {
                write(format!(r#"{{"jsonrpc":"2.0","id":{},"result":{{"#, request.id).as_bytes());
                return None;
            }
            "hang" => {
                // Answers only after it was told that nobody waits.
                loop {
                    if let Message::Notification(notification) =
                        self.next().unwrap_or_else(|| std::process::exit(0))
                        && &*notification.method == "notifications/cancelled"
                    {
                        break;
                    }
                }
                self.done("{}")
            }
            "die" => {
                eprintln!("peer: dying as told");
                std::process::exit(7)
            }
            "fork" => {
                let mut child = std::process::Command::new("/bin/sleep").arg("600").spawn().unwrap();
                let pid = child.id();
                std::thread::spawn(move || child.wait());
                self.done(&format!(r#"{{"pid":{pid}}}"#))
            }
            _ => return Some(Err(RpcError::invalid_params("no such tool"))),
        }))
    }

    fn ask(&mut self, params: &RawJson) -> Option<Reply> {
        let question = r#"{"message":"sure?","requestedSchema":{"type":"object","properties":{}}}"#;
        if self.era == Some(Era::Modern) {
            if let Some(answer) = raw::get_in(params, &["inputResponses", "sure"]) {
                let state = raw::get_str(params, "requestState").unwrap();
                assert_eq!(state, "peer state");
                return Some(Ok(self.done(&format!(r#"{{"answer":{answer}}}"#))));
            }
            let result = format!(
                r#"{{"resultType":"input_required","inputRequests":{{"sure":{{"method":"elicitation/create","params":{question}}}}},"requestState":"peer state"}}"#
            );
            return Some(Ok(raw::from_text(result).unwrap()));
        }
        let mut bytes = Vec::new();
        let id = raw::to_raw("question-1");
        jsonrpc::write_request(
            &mut bytes,
            &JsonRpcId::from_raw(&id).unwrap(),
            "elicitation/create",
            Some(question),
        );
        write(&bytes);
        loop {
            match self.next()? {
                Message::Response(response) => {
                    return Some(match response.reply {
                        Ok(answer) => Ok(self.done(&format!(r#"{{"answer":{answer}}}"#))),
                        Err(error) => Err(error),
                    });
                }
                Message::Request(other) => reply(&other.id, &Err(RpcError::invalid_params("busy"))),
                Message::Notification(_) => {}
            }
        }
    }
}

fn main() {
    let mode = std::env::args().nth(1).unwrap_or_default();
    let mut peer = Peer {
        legacy: mode != "modern",
        modern: mode != "legacy",
        era: None,
        input: std::io::stdin().lines(),
        cancelled: Vec::new(),
        listen: None,
        fussy: mode == "fussy",
    };
    if mode == "parent" {
        return parent();
    }
    if mode == "stuck" {
        // Never answers and never leaves by itself.
        eprintln!("peer: stuck");
        loop {
            std::thread::park();
        }
    }
    peer.run();
}

struct Deaf;

impl Observer for Deaf {
    fn notification(&self, _: Notification) {}
}

/// Starts a peer of its own with a child in its group, tells their process ids, and waits to be killed.
fn parent() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let spec = UpstreamSpec::Stdio(StdioSpec::new(std::env::current_exe().unwrap(), ["legacy"]));
        let identity = ClientIdentity { client_info: raw::empty_object(), capabilities: raw::empty_object() };
        let upstream =
            Upstream::connect(&spec, UpstreamOptions::new(identity, Arc::new(Deaf))).await.unwrap();
        let call = raw::from_text(r#"{"name":"fork"}"#).unwrap();
        let forked = upstream.request("tools/call", Some(&call), RequestOptions::default()).await.unwrap();
        let grandchild = raw::get(&forked, "pid").unwrap();
        write(format!("{} {grandchild}", upstream.process_id().unwrap()).as_bytes());
        std::future::pending::<()>().await;
    });
}
