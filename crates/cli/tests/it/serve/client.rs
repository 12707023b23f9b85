//! A host as the tests need one: the same calls over stdio and HTTP, with sessions or stateless, and a user interface
//! that answers, declines or stays silent when it is asked. Frames are written as text, so that nothing is tidied on the way.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{ChildStdin, ChildStdout};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::http::{self, PATIENCE};

/// A transport and an era.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    StdioLegacy,
    StdioModern,
    HttpLegacy,
    HttpModern,
}

impl Way {
    pub(crate) const ALL: [Self; 4] =
        [Self::StdioLegacy, Self::StdioModern, Self::HttpLegacy, Self::HttpModern];

    /// Plays over these ways, all at the same time: most of it is waiting.
    #[track_caller]
    pub(crate) fn each(ways: &[Self], play: impl Fn(Self) + Sync) {
        let failed: Vec<Self> = std::thread::scope(|scope| {
            let play = &play;
            let start = |way: Self| {
                let named = std::thread::Builder::new().name(format!("{way:?}"));
                (way, named.spawn_scoped(scope, move || play(way)).unwrap())
            };
            let plays: Vec<_> = ways.iter().copied().map(start).collect();
            plays.into_iter().filter_map(|(way, play)| play.join().is_err().then_some(way)).collect()
        });
        assert!(failed.is_empty(), "does not hold over {failed:?}");
    }

    pub(crate) fn is_http(self) -> bool {
        matches!(self, Self::HttpLegacy | Self::HttpModern)
    }

    pub(crate) fn is_modern(self) -> bool {
        matches!(self, Self::StdioModern | Self::HttpModern)
    }
}

/// Longer than an answer that counts as automatic.
const PERSON: Duration = Duration::from_millis(450);

/// What the host's user interface does when it is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Host {
    /// It offers no such thing.
    None,
    Accepts,
    Declines,
    /// It answers by itself, as programs do: at once.
    AcceptsAtOnce,
    DeclinesAtOnce,
    Cancels,
    /// It claims to ask and never does.
    Silent,
    /// It opens addresses, too.
    Opens,
    /// It could open addresses, and the person said no.
    KeepsShut,
    /// It could open addresses, and the person closed its question.
    LooksAway,
    /// It claims to open addresses and never does.
    NeverOpens,
    /// It claims to open addresses and does not understand the question: an error, and in the stateless era nothing at all.
    CannotOpen,
    /// It shows cards, and asks nothing.
    Cards,
    /// It has folders of its own, and asks nothing.
    HasRoots,
}

impl Host {
    fn action(self) -> Option<&'static str> {
        match self {
            Self::Accepts | Self::AcceptsAtOnce | Self::Opens => Some("accept"),
            Self::Declines | Self::DeclinesAtOnce | Self::KeepsShut => Some("decline"),
            Self::Cancels | Self::LooksAway => Some("cancel"),
            Self::None
            | Self::Silent
            | Self::NeverOpens
            | Self::CannotOpen
            | Self::Cards
            | Self::HasRoots => None,
        }
    }

    /// What its user answers, after the time a person takes over it.
    fn answer(self) -> Option<&'static str> {
        let action = self.action()?;
        if !matches!(self, Self::AcceptsAtOnce | Self::DeclinesAtOnce) {
            std::thread::sleep(PERSON);
        }
        Some(action)
    }

    /// The frame that answers a question sent as a request.
    fn answer_frame(self, id: &Value) -> Option<Value> {
        if self == Self::CannotOpen {
            let error = json!({"code": -32602, "message": "Invalid params"});
            return Some(json!({"jsonrpc": "2.0", "id": id, "error": error}));
        }
        let action = self.answer()?;
        Some(json!({"jsonrpc": "2.0", "id": id, "result": {"action": action, "content": {}}}))
    }

    fn capabilities(self) -> Value {
        match self {
            Self::None => json!({}),
            Self::HasRoots => json!({"roots": {}}),
            Self::Cards => json!({"extensions": {"io.modelcontextprotocol/ui": {}}}),
            Self::Accepts
            | Self::Declines
            | Self::AcceptsAtOnce
            | Self::DeclinesAtOnce
            | Self::Cancels
            | Self::Silent => json!({"elicitation": {}}),
            Self::Opens | Self::KeepsShut | Self::LooksAway | Self::NeverOpens | Self::CannotOpen => {
                json!({"elicitation": {"form": {}, "url": {}}})
            }
        }
    }
}

/// What came back for a request: the frame as it was, and read.
#[derive(Clone, Debug)]
pub(crate) struct Reply {
    pub(crate) text: String,
    pub(crate) frame: Value,
    /// The HTTP status, where there is one.
    pub(crate) status: Option<u16>,
}

impl Reply {
    fn read(text: String, status: Option<u16>) -> Self {
        let frame = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
        Self { text, frame, status }
    }

    pub(crate) fn result(&self) -> &Value {
        &self.frame["result"]
    }

    /// Our envelope, if it is an answer of ours.
    pub(crate) fn envelope(&self) -> Option<&Value> {
        Some(&self.result()["structuredContent"]).filter(|content| content["schema_version"] == 1)
    }

    /// The data of our envelope.
    #[track_caller]
    pub(crate) fn data(&self) -> &Value {
        &self.envelope().unwrap_or_else(|| panic!("no envelope: {}", self.text))["data"]
    }

    /// The code of a refusal.
    pub(crate) fn code(&self) -> Option<&str> {
        self.envelope()
            .and_then(|envelope| envelope["errors"][0]["code"].as_str())
            .or(self.frame["error"]["data"]["code"].as_str())
    }

    /// Whether it is a no of any kind: an envelope that is not ok, or a JSON-RPC error.
    pub(crate) fn is_refusal(&self) -> bool {
        self.code().is_some() || self.frame.get("error").is_some()
    }

    /// Whether an upstream ran and this is what it said.
    pub(crate) fn ran(&self) -> bool {
        self.result()["_meta"]["countersign"]["ledger_id"].is_string()
    }
}

/// One host on one line.
pub(crate) struct Client {
    pub(crate) way: Way,
    host: Host,
    next: AtomicU64,
    wire: Wire,
    /// What the host's user interface was asked.
    pub(crate) asked: Arc<Mutex<Vec<Value>>>,
}

enum Wire {
    Stdio(Stdio),
    Http(Http),
}

struct Stdio {
    writer: Arc<Mutex<ChildStdin>>,
    heard: Arc<Heard>,
}

/// What came over stdout, sorted.
#[derive(Default)]
struct Heard {
    waiting: Mutex<HashMap<String, SyncSender<String>>>,
    notes: Mutex<Vec<Value>>,
    /// Lines that are no protocol: there must never be any.
    noise: Mutex<Vec<String>>,
}

struct Http {
    address: Mutex<String>,
    path: &'static str,
    /// The session's id of the older era, or its name in the newer.
    session: Mutex<String>,
    bearer: Option<String>,
}

impl Client {
    /// A host on the pipes of a process.
    pub(crate) fn stdio(way: Way, host: Host, stdin: ChildStdin, stdout: ChildStdout) -> Self {
        let (writer, heard) = (Arc::new(Mutex::new(stdin)), Arc::new(Heard::default()));
        let asked = Arc::default();
        // The listener must not keep the line open: the client leaves by dropping its end.
        let ear = (Arc::clone(&heard), Arc::downgrade(&writer), Arc::clone(&asked));
        std::thread::spawn(move || listen(stdout, host, &ear.0, &ear.1, &ear.2));
        let client =
            Self { way, host, next: AtomicU64::new(1), wire: Wire::Stdio(Stdio { writer, heard }), asked };
        client.open();
        client
    }

    /// A host that speaks HTTP, with a credential if it has one; `session` names the session where the era lets the client
    /// name it.
    pub(crate) fn http_as(
        way: Way,
        host: Host,
        address: &str,
        path: &'static str,
        session: &str,
        bearer: Option<String>,
    ) -> Self {
        let (address, session) = (Mutex::new(address.to_owned()), Mutex::new(session.to_owned()));
        let wire = Wire::Http(Http { address, path, session, bearer });
        let client = Self { way, host, next: AtomicU64::new(1), wire, asked: Arc::default() };
        client.open();
        client
    }

    /// The same session at another address: the gateway came back.
    pub(crate) fn moved(&self, to: &str) {
        if let Wire::Http(http) = &self.wire {
            to.clone_into(&mut http.address.lock().unwrap());
        }
    }

    fn open(&self) {
        if self.way.is_modern() {
            return;
        }
        let info = json!({"name": "transcript", "version": "1"});
        let params = json!({"protocolVersion": "2025-11-25", "capabilities": self.host.capabilities(), "clientInfo": info});
        let reply = self.request("initialize", None, &params.to_string());
        assert_eq!(reply.result()["serverInfo"]["name"], "countersign", "{}", reply.text);
        self.send(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
    }

    /// Calls a tool with arguments as text.
    pub(crate) fn call(&self, tool: &str, arguments: &str) -> Reply {
        let (name, meta) = (Value::from(tool), self.meta());
        let params = match &meta {
            Some(meta) => format!(r#"{{"name":{name},"arguments":{arguments},"_meta":{meta}}}"#),
            None => format!(r#"{{"name":{name},"arguments":{arguments}}}"#),
        };
        self.finish("tools/call", tool, params)
    }

    /// A call that says more about itself: members of `_meta`, as text.
    pub(crate) fn call_saying(&self, tool: &str, arguments: &str, more: &str) -> Reply {
        let meta = self.meta().map(|meta| meta.to_string()).unwrap_or_else(|| "{}".to_owned());
        let meta = match meta.strip_suffix('}') {
            Some("{") => format!("{{{more}}}"),
            Some(begun) => format!("{begun},{more}}}"),
            None => panic!("{meta}"),
        };
        let name = Value::from(tool);
        self.finish(
            "tools/call",
            tool,
            format!(r#"{{"name":{name},"arguments":{arguments},"_meta":{meta}}}"#),
        )
    }

    /// A stateless call again, with answers to what was asked and the state that came with the question.
    pub(crate) fn retry(&self, tool: &str, arguments: &str, answers: &str, state: &Value) -> Reply {
        std::thread::sleep(PERSON);
        let (name, meta) = (Value::from(tool), self.meta().unwrap());
        let params = format!(
            r#"{{"name":{name},"arguments":{arguments},"_meta":{meta},"inputResponses":{answers},"requestState":{state}}}"#
        );
        self.request("tools/call", Some(tool), &params)
    }

    /// A call without a waiter: its reply is kept.
    pub(crate) fn start_call(&self, tool: &str, arguments: &str) {
        let meta = self.meta().map(|meta| format!(r#","_meta":{meta}"#)).unwrap_or_default();
        let frame = format!(
            r#"{{"jsonrpc":"2.0","id":"alone","method":"tools/call","params":{{"name":"{tool}","arguments":{arguments}{meta}}}}}"#
        );
        match &self.wire {
            Wire::Stdio(stdio) => stdio.write(frame.as_bytes()),
            Wire::Http(http) => {
                let headers = http.headers(self.way, "tools/call", Some(tool));
                let (address, path) = (http.address(), http.path);
                std::thread::spawn(move || {
                    let Ok(mut answer) = http::send(&address, "POST", path, &headers, &frame) else { return };
                    // Closing the connection would cancel the call, so it stays open to the end.
                    while answer.is_stream() && matches!(answer.event(), Ok(Some(_))) {}
                });
            }
        }
    }

    /// The tools this line lists.
    pub(crate) fn tools(&self) -> Vec<Value> {
        let params = self.meta().map_or_else(|| json!({}), |meta| json!({"_meta": meta}));
        let reply = self.request("tools/list", None, &params.to_string());
        reply.result()["tools"].as_array().unwrap_or_else(|| panic!("{}", reply.text)).clone()
    }

    /// Waits until every upstream was listed or has failed: a first list does not wait for that.
    #[track_caller]
    pub(crate) fn wait_for_upstreams(&self) {
        self.wait_for_upstreams_but(&[]);
    }

    /// Waits until only these upstreams have neither been listed nor failed.
    #[track_caller]
    pub(crate) fn wait_for_upstreams_but(&self, starting: &[&str]) {
        let start = Instant::now();
        loop {
            let found = self.call("retrieve_tools", r#"{"query":"x","limit":1}"#);
            // With `prefix = false` there is no such tool, and the call itself has waited for the only upstream.
            if found.code() == Some("E_TOOL_NOT_FOUND") || found.data()["starting"] == json!(starting) {
                return;
            }
            assert!(start.elapsed() < Duration::from_secs(60), "{}", found.text);
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// What every request of the stateless era says about itself.
    pub(crate) fn meta(&self) -> Option<Value> {
        if !self.way.is_modern() {
            return None;
        }
        let mut meta = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": self.host.capabilities(),
            "io.modelcontextprotocol/clientInfo": {"name": "transcript", "version": "1"},
        });
        if let Wire::Http(http) = &self.wire {
            meta["countersign/session"] = http.session.lock().unwrap().as_str().into();
        }
        Some(meta)
    }

    /// A request, and where the host is asked in between, the request again with its answer.
    fn finish(&self, method: &str, name: &str, params: String) -> Reply {
        let mut reply = self.request(method, Some(name), &params);
        while reply.result()["resultType"] == "input_required" {
            let questions = reply.result()["inputRequests"].as_object().unwrap();
            self.asked.lock().unwrap().extend(questions.values().cloned());
            let Some(action) = self.host.answer() else { return reply };
            let answer = |name: &String| (name.clone(), json!({"action": action, "content": {}}));
            let answers: serde_json::Map<String, Value> = questions.keys().map(answer).collect();
            // Each round answers the first request with the newest state: nothing stands in it twice.
            let again = format!(
                r#"{},"inputResponses":{},"requestState":{}}}"#,
                params.strip_suffix('}').unwrap(),
                Value::Object(answers),
                reply.result()["requestState"]
            );
            reply = self.request(method, Some(name), &again);
        }
        reply
    }

    /// One request, one reply.
    pub(crate) fn request(&self, method: &str, name: Option<&str>, params: &str) -> Reply {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let frame = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#);
        match &self.wire {
            Wire::Stdio(stdio) => Reply::read(stdio.ask(&id.to_string(), frame.as_bytes()), None),
            Wire::Http(http) => {
                let headers = http.headers(self.way, method, name);
                self.post(http, &headers, &frame)
            }
        }
    }

    /// A frame nobody answers.
    pub(crate) fn send(&self, frame: &str) {
        match &self.wire {
            Wire::Stdio(stdio) => stdio.write(frame.as_bytes()),
            Wire::Http(http) => {
                let headers = http.headers(self.way, "", None);
                http::send(&http.address(), "POST", http.path, &headers, frame).unwrap();
            }
        }
    }

    /// A frame of any kind on stdio, answered under this id (`null` where the gateway could not read one).
    pub(crate) fn raw(&self, frame: &[u8], id: &str) -> Reply {
        let Wire::Stdio(stdio) = &self.wire else { panic!("only a line takes any bytes") };
        Reply::read(stdio.ask(id, frame), None)
    }

    /// A POST with headers of the caller's choice.
    pub(crate) fn post_with(&self, method: &str, name: &str, frame: &str) -> Reply {
        let Wire::Http(http) = &self.wire else { panic!("only HTTP has headers") };
        self.post(http, &http.headers(self.way, method, Some(name)), frame)
    }

    fn post(&self, http: &Http, headers: &[(String, String)], frame: &str) -> Reply {
        let mut answer = http::send(&http.address(), "POST", http.path, headers, frame).unwrap();
        let status = answer.status;
        if let Some(id) = answer.header("mcp-session-id") {
            id.clone_into(&mut http.session.lock().unwrap());
        }
        if !answer.is_stream() {
            return Reply::read(answer.text().unwrap(), Some(status));
        }
        while let Some(data) = answer.event().unwrap() {
            let message: Value = serde_json::from_str(&data).unwrap();
            match (message.get("method"), message.get("id")) {
                (Some(_), Some(id)) => {
                    self.asked.lock().unwrap().push(message.clone());
                    if let Some(answer) = self.host.answer_frame(id) {
                        self.send(&answer.to_string());
                    }
                }
                (Some(_), None) => {}
                (None, _) => return Reply::read(data, Some(status)),
            }
        }
        panic!("the stream ended without a reply")
    }

    /// The id or name of its session over HTTP.
    pub(crate) fn session(&self) -> String {
        match &self.wire {
            Wire::Stdio(_) => String::new(),
            Wire::Http(http) => http.session.lock().unwrap().clone(),
        }
    }

    /// Lines on stdout that were no protocol.
    pub(crate) fn noise(&self) -> Vec<String> {
        match &self.wire {
            Wire::Stdio(stdio) => stdio.heard.noise.lock().unwrap().clone(),
            Wire::Http(_) => Vec::new(),
        }
    }

    /// The stream of notifications over HTTP: of the session, or of the lists a stateless client listens to.
    pub(crate) fn notification_stream(&self) -> http::Answer {
        let Wire::Http(http) = &self.wire else { panic!("stdio has no stream of its own for them") };
        let (method, frame) = match self.listen_frame() {
            Some(frame) => ("POST", frame),
            None => ("GET", String::new()),
        };
        let headers = http.headers(self.way, "subscriptions/listen", None);
        let answer = http::send(&http.address(), method, http.path, &headers, &frame).unwrap();
        assert!(answer.is_stream(), "{}", answer.status);
        answer
    }

    /// How a stateless client listens to changes of the tool list.
    pub(crate) fn listen_frame(&self) -> Option<String> {
        let params = json!({"notifications": {"toolsListChanged": true}, "_meta": self.meta()?});
        Some(format!(
            r#"{{"jsonrpc":"2.0","id":"listen","method":"subscriptions/listen","params":{params}}}"#
        ))
    }

    /// Notifications that came over stdout.
    pub(crate) fn notes(&self) -> Vec<Value> {
        match &self.wire {
            Wire::Stdio(stdio) => stdio.heard.notes.lock().unwrap().clone(),
            Wire::Http(_) => Vec::new(),
        }
    }
}

impl Stdio {
    fn write(&self, frame: &[u8]) {
        let mut writer = self.writer.lock().unwrap();
        writer.write_all(frame).unwrap();
        writer.write_all(b"\n").unwrap();
        writer.flush().unwrap();
    }

    fn ask(&self, id: &str, frame: &[u8]) -> String {
        let (tell, told): (SyncSender<String>, Receiver<String>) = sync_channel(1);
        self.heard.waiting.lock().unwrap().insert(id.to_owned(), tell);
        self.write(frame);
        told.recv_timeout(PATIENCE)
            .unwrap_or_else(|error| panic!("{error}: no reply to {}", String::from_utf8_lossy(frame)))
    }
}

/// Reads stdout to its end: replies go to their waiters, questions to the host, everything else is kept.
fn listen(
    stdout: ChildStdout,
    host: Host,
    heard: &Heard,
    writer: &Weak<Mutex<ChildStdin>>,
    asked: &Mutex<Vec<Value>>,
) {
    for line in BufReader::new(stdout).lines().map_while(Result::ok) {
        let Ok(message) = serde_json::from_str::<Value>(&line) else {
            heard.noise.lock().unwrap().push(line);
            continue;
        };
        if message["jsonrpc"] != "2.0" {
            heard.noise.lock().unwrap().push(line);
            continue;
        }
        match (message.get("method"), message.get("id")) {
            (Some(_), Some(id)) => {
                asked.lock().unwrap().push(message.clone());
                if let Some((answer, writer)) = host.answer_frame(id).zip(writer.upgrade()) {
                    let mut writer = writer.lock().unwrap();
                    let _ = writeln!(writer, "{answer}").and_then(|()| writer.flush());
                }
            }
            (Some(_), None) => heard.notes.lock().unwrap().push(message),
            (None, id) => {
                let id = id.map(ToString::to_string).unwrap_or_default();
                match heard.waiting.lock().unwrap().remove(&id) {
                    Some(waiting) => waiting.send(line).unwrap_or_default(),
                    None => heard.noise.lock().unwrap().push(line),
                }
            }
        }
    }
}

impl Http {
    fn address(&self) -> String {
        self.address.lock().unwrap().clone()
    }

    fn headers(&self, way: Way, method: &str, name: Option<&str>) -> Vec<(String, String)> {
        let mut headers = vec![
            ("Content-Type".to_owned(), "application/json".to_owned()),
            ("Accept".to_owned(), "application/json, text/event-stream".to_owned()),
        ];
        let mut add = |name: &str, value: &str| headers.push((name.to_owned(), value.to_owned()));
        if let Some(bearer) = &self.bearer {
            add("Authorization", &format!("Bearer {bearer}"));
        }
        if way.is_modern() {
            add("MCP-Protocol-Version", "2026-07-28");
            add("Mcp-Method", method);
            if let Some(name) = name {
                add("Mcp-Name", name);
            }
        } else {
            let session = self.session.lock().unwrap();
            if method != "initialize" {
                add("MCP-Protocol-Version", "2025-11-25");
                add("Mcp-Session-Id", &session);
            }
        }
        headers
    }
}
