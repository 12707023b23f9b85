//! What the tests share: a service that shows what it is given, one that relays to an upstream, a scripted client.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use countersign_mcp::client::{
    ClientIdentity, Deadline, EraChoice, Observer, Questions, RequestOptions, StdioSpec, Upstream,
    UpstreamAnomaly, UpstreamOptions, UpstreamSpec,
};
use countersign_mcp::fault::RequestFailure;
use countersign_mcp::jsonrpc::{Notification, Reply, Request, RpcError};
use countersign_mcp::mirrored_headers::MirroredHeaders;
use countersign_mcp::raw::{self, RawJson};
use countersign_mcp::server::{
    CallerIdentity, CallerInfo, ClientAnomaly, ConnectionLimits, HttpOptions, HttpRefusal, HttpServer,
    ReplyDelivery, RequestContext, SealKey, ServeOptions, Service, ServiceDescription, Session, SessionEnd,
    SessionId, StdioOptions, listen, serve_stream,
};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream};
use tokio::sync::mpsc;

/// Longest wait for anything that should come.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) fn raw(text: impl Into<String>) -> RawJson {
    raw::from_text(text).expect("JSON")
}

/// Awaits something that must come.
pub(crate) async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.expect("came in time")
}

/// A service that answers by itself, or through an upstream where it has one.
pub(crate) struct House {
    pub(crate) upstream: Option<Upstream>,
    pub(crate) seen: mpsc::UnboundedSender<Event>,
    pub(crate) sessions: Mutex<Vec<Arc<Session>>>,
    pub(crate) saved: Mutex<Vec<(SessionId, countersign_mcp::server::SavedSession)>>,
    pub(crate) streamed: AtomicBool,
}

/// What the service noticed.
#[derive(Debug)]
pub(crate) enum Event {
    Notification(Notification),
    Cancelled,
    Closed(SessionEnd),
    Notice(ClientAnomaly),
}

impl House {
    pub(crate) fn new(upstream: Option<Upstream>) -> (Arc<Self>, mpsc::UnboundedReceiver<Event>) {
        let (seen, events) = mpsc::unbounded_channel();
        let house = Self {
            upstream,
            seen,
            sessions: Mutex::default(),
            saved: Mutex::default(),
            streamed: AtomicBool::new(false),
        };
        (Arc::new(house), events)
    }

    fn tell(&self, event: Event) {
        let _ = self.seen.send(event);
    }

    async fn relay(&self, upstream: &Upstream, ctx: &RequestContext, request: &Request) -> Reply {
        let options = RequestOptions {
            deadline: Deadline::Total(PATIENCE),
            relay: Some(Arc::new(ctx.clone())),
            questions: Questions::Bridge(Arc::new(ctx.clone())),
            log_level: ctx.session().log_level(),
            ..RequestOptions::default()
        };
        let sent = upstream.request(&request.method, request.params.as_deref(), options);
        let outcome = tokio::select! {
            outcome = sent => outcome,
            () = ctx.cancelled() => {
                self.tell(Event::Cancelled);
                return Err(RpcError::new(-32603, "cancelled"));
            }
        };
        outcome.map_err(|failure| match failure {
            RequestFailure::Rpc(error) => error,
            RequestFailure::Wire(fault) => RpcError::new(-32603, &fault.to_string()),
        })
    }

    async fn call(&self, ctx: &RequestContext, request: &Request) -> Reply {
        let params = request.params.clone().unwrap();
        let name = raw::get_str(&params, "name").unwrap().into_owned();
        match &*name {
            "echo" => Ok(raw(format!(r#"{{"params":{params}}}"#))),
            "wait" => {
                ctx.cancelled().await;
                self.tell(Event::Cancelled);
                Ok(raw("{}"))
            }
            "wait off turn" => {
                ctx.without_slot(ctx.cancelled()).await;
                Ok(raw("{}"))
            }
            "late" => {
                tokio::time::sleep(Duration::from_millis(300)).await;
                Ok(raw("{}"))
            }
            "log" => {
                for level in ["info", "error"] {
                    let params = raw(format!(r#"{{"level":"{level}","data":"said"}}"#));
                    ctx.notify("notifications/message", Some(&params)).await.unwrap();
                }
                Ok(raw("{}"))
            }
            "panic" => panic!("as told"),
            "progress" => {
                let token = raw::get_in(&params, &["_meta", "progressToken"]).unwrap();
                for n in 1..=50 {
                    let params = raw(format!(r#"{{"progressToken":{token},"progress":{n}}}"#));
                    ctx.notify("notifications/progress", Some(&params)).await.unwrap();
                }
                Ok(raw("{}"))
            }
            "ask" => {
                let question = raw(r#"{"message":"sure?"}"#);
                let answer = ctx.ask("elicitation/create", Some(&question)).await;
                answer.map(|answer| raw(format!(r#"{{"answer":{answer}}}"#))).map_err(RpcError::from)
            }
            "ask twice" => {
                let question = raw(r#"{"message":"sure?"}"#);
                let first = ctx.ask("elicitation/create", Some(&question)).await.map_err(RpcError::from)?;
                let second = ctx.ask("elicitation/create", Some(&question)).await.map_err(RpcError::from)?;
                Ok(raw(format!(r#"{{"answers":[{first},{second}]}}"#)))
            }
            "ask both" => {
                let question = raw(r#"{"message":"sure?"}"#);
                let ask = || ctx.ask("elicitation/create", Some(&question));
                let (first, second) = tokio::join!(ask(), ask());
                Ok(raw(format!(r#"{{"answers":[{},{}]}}"#, first.unwrap(), second.unwrap())))
            }
            "ask and go on" => {
                let question = raw(r#"{"message":"sure?"}"#);
                tokio::select! {
                    biased;
                    _ = ctx.ask("elicitation/create", Some(&question)) => Ok(raw(r#"{"asked":true}"#)),
                    () = std::future::ready(()) => Ok(raw(r#"{"asked":false}"#)),
                }
            }
            "ask briefly" => {
                let question = raw(r#"{"message":"sure?"}"#);
                let asked = ctx.ask("elicitation/create", Some(&question));
                let given_up = tokio::time::timeout(Duration::from_millis(20), asked).await.is_err();
                Ok(raw(json!({ "given_up": given_up }).to_string()))
            }
            _ => Err(RpcError::invalid_params("no such tool")),
        }
    }
}

impl Service for House {
    async fn authenticate(&self, opening: &CallerInfo<'_>) -> Result<CallerIdentity, HttpRefusal> {
        let who =
            opening.headers.get("authorization").and_then(|value| value.to_str().ok()).unwrap_or("nobody");
        if who == "Bearer wrong" {
            let headers = vec![("WWW-Authenticate".to_owned(), "Bearer".to_owned())];
            return Err(HttpRefusal { status: 401, headers, message: "who are you".into() });
        }
        let tag = CallerIdentity::new(who, Arc::new(who.to_owned()));
        Ok(if who == "nobody" { tag.anonymous() } else { tag })
    }

    async fn describe(&self, _: &Arc<Session>) -> ServiceDescription {
        ServiceDescription {
            server_info: raw(r#"{"name":"house","version":"1"}"#),
            capabilities: raw(r#"{"tools":{"listChanged":true}}"#),
            instructions: Some("be kind".into()),
            ttl_ms: 1000,
        }
    }

    async fn opened(&self, session: Arc<Session>) {
        self.saved.lock().unwrap().push((session.id().clone(), session.saved()));
        self.sessions.lock().unwrap().push(session);
    }

    async fn closed(&self, session: Arc<Session>, end: SessionEnd) {
        if end == SessionEnd::Deleted {
            self.saved.lock().unwrap().retain(|(id, _)| id != session.id());
        }
        self.tell(Event::Closed(end));
    }

    async fn restore(
        &self,
        id: &SessionId,
        _: &CallerIdentity,
    ) -> Option<countersign_mcp::server::SavedSession> {
        self.saved.lock().unwrap().iter().find(|(known, _)| known == id).map(|(_, saved)| saved.clone())
    }

    async fn request(&self, ctx: RequestContext, request: Request) -> Reply {
        if let Some(upstream) = &self.upstream {
            return self.relay(upstream, &ctx, &request).await;
        }
        match &*request.method {
            "tools/call" => self.call(&ctx, &request).await,
            "tools/list" => Ok(raw(r#"{"tools":[]}"#)),
            "logging/setLevel" => Ok(raw("{}")),
            other => Err(RpcError::method_not_found(other)),
        }
    }

    async fn notification(&self, _: Arc<Session>, notification: Notification) {
        self.tell(Event::Notification(notification));
    }

    async fn mirrors(&self, _: &Arc<Session>, tool: &str) -> Option<Arc<MirroredHeaders>> {
        let schema = raw(r#"{"properties":{"region":{"type":"string","x-mcp-header":"Region"}}}"#);
        (tool == "echo").then(|| Arc::new(MirroredHeaders::of_schema(&schema).unwrap()))
    }

    fn replies(&self, _: &Session) -> ReplyDelivery {
        if self.streamed.load(Ordering::Relaxed) { ReplyDelivery::Streamed } else { ReplyDelivery::Plain }
    }

    fn client_anomaly(&self, _: Option<&Session>, notice: ClientAnomaly) {
        self.tell(Event::Notice(notice));
    }
}

pub(crate) fn serve_options() -> ServeOptions {
    ServeOptions::new(SealKey::new(&[9; 32]))
}

/// A client at the other end of an in-memory line.
pub(crate) struct LineClient {
    pub(crate) to: tokio::io::WriteHalf<DuplexStream>,
    from: tokio::io::Lines<BufReader<tokio::io::ReadHalf<DuplexStream>>>,
    pub(crate) server: tokio::task::JoinHandle<std::io::Result<()>>,
}

impl LineClient {
    pub(crate) fn connect(house: Arc<House>) -> Self {
        let (ours, theirs) = tokio::io::duplex(64 << 10);
        let (reader, writer) = tokio::io::split(theirs);
        let options = StdioOptions::new(serve_options(), SessionId::new("line"));
        let server = tokio::spawn(serve_stream(house, reader, writer, options));
        let (from, to) = tokio::io::split(ours);
        Self { to, from: BufReader::new(from).lines(), server }
    }

    pub(crate) async fn send(&mut self, text: &str) {
        self.to.write_all(text.as_bytes()).await.unwrap();
        self.to.write_all(b"\n").await.unwrap();
    }

    /// The next line as it came.
    pub(crate) async fn line(&mut self) -> String {
        soon(self.from.next_line()).await.unwrap().expect("a line")
    }

    pub(crate) async fn value(&mut self) -> Value {
        serde_json::from_str(&self.line().await).unwrap()
    }

    /// A request and the next message.
    pub(crate) async fn exchange(&mut self, text: &str) -> Value {
        self.send(text).await;
        self.value().await
    }

    pub(crate) async fn initialize(&mut self, version: &str, capabilities: &str) -> Value {
        let answer = self
            .exchange(&format!(
                r#"{{"jsonrpc":"2.0","id":0,"method":"initialize","params":{{"protocolVersion":"{version}","capabilities":{capabilities},"clientInfo":{{"name":"t","version":"1"}}}}}}"#
            ))
            .await;
        self.send(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#).await;
        answer
    }

    pub(crate) async fn close(self) {
        drop(self.to);
        drop(self.from);
        soon(self.server).await.unwrap().unwrap();
    }
}

/// The `_meta` of a modern request.
pub(crate) fn modern_meta(capabilities: &str) -> String {
    format!(
        r#""io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{capabilities},"io.modelcontextprotocol/clientInfo":{{"name":"t","version":"1"}}"#
    )
}

/// Collects what an upstream says outside of requests.
#[derive(Default)]
pub(crate) struct Ears {
    pub(crate) heard: Mutex<Vec<String>>,
    pub(crate) anomaly: Mutex<Vec<UpstreamAnomaly>>,
    pub(crate) changed: tokio::sync::Notify,
}

impl Observer for Ears {
    fn notification(&self, notification: Notification) {
        let params = notification.params.map(|params| params.get().to_owned()).unwrap_or_default();
        self.heard.lock().unwrap().push(format!("{} {params}", notification.method).trim().to_owned());
        self.changed.notify_waiters();
    }

    fn closed(&self, fault: &countersign_mcp::fault::TransportFault) {
        self.heard.lock().unwrap().push(format!("closed: {fault}"));
        self.changed.notify_waiters();
    }

    fn anomaly(&self, oddity: UpstreamAnomaly) {
        self.anomaly.lock().unwrap().push(oddity);
        self.changed.notify_waiters();
    }
}

impl Ears {
    pub(crate) async fn until(&self, done: impl Fn(&Self) -> bool) {
        soon(async {
            loop {
                let changed = self.changed.notified();
                if done(self) {
                    return;
                }
                changed.await;
            }
        })
        .await;
    }
}

/// The scripted peer as a child.
pub(crate) fn peer(mode: &str) -> StdioSpec {
    let mut path = std::env::current_exe().unwrap();
    path.pop();
    path.pop();
    path.push("examples");
    path.push("peer");
    assert!(path.exists(), "the peer example is built with the tests");
    StdioSpec::new(path, [mode])
}

pub(crate) fn plan(ears: &Arc<Ears>) -> UpstreamOptions {
    let identity = ClientIdentity {
        client_info: raw(r#"{"name":"wire","version":"1"}"#),
        capabilities: raw(r#"{"elicitation":{"form":{},"url":{}}}"#),
    };
    UpstreamOptions::new(identity, ears.clone())
}

pub(crate) async fn connect(mode: &str) -> (Upstream, Arc<Ears>) {
    let ears = Arc::new(Ears::default());
    let upstream = soon(Upstream::connect(&UpstreamSpec::Stdio(peer(mode)), plan(&ears))).await.unwrap();
    (upstream, ears)
}

pub(crate) async fn connect_as(mode: &str, era: EraChoice) -> (Upstream, Arc<Ears>) {
    let ears = Arc::new(Ears::default());
    let connect = UpstreamOptions { era, ..plan(&ears) };
    let upstream = soon(Upstream::connect(&UpstreamSpec::Stdio(peer(mode)), connect)).await.unwrap();
    (upstream, ears)
}

pub(crate) fn call(name: &str, arguments: &str) -> RawJson {
    raw(format!(r#"{{"name":"{name}","arguments":{arguments}}}"#))
}

/// A front on a loopback port; it lives as long as the test's runtime.
pub(crate) struct HttpHouse {
    pub(crate) front: Arc<HttpServer<House>>,
    pub(crate) address: std::net::SocketAddr,
}

impl HttpHouse {
    pub(crate) async fn open(house: Arc<House>) -> Self {
        Self::open_with(house, HttpOptions::loopback(serve_options())).await
    }

    pub(crate) async fn open_with(house: Arc<House>, options: HttpOptions) -> Self {
        let front = HttpServer::new(house, options);
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = front.routes("/mcp").merge(front.routes("/mcp/direct"));
        tokio::spawn(listen(listener, None, router, ConnectionLimits::default(), std::future::pending()));
        Self { front, address }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/mcp", self.address)
    }
}

/// An HTTP answer, read as far as the test wants.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: http::HeaderMap,
    body: hyper::body::Incoming,
    buffer: String,
}

impl Answer {
    pub(crate) async fn text(mut self) -> String {
        while self.more().await {}
        self.buffer
    }

    pub(crate) async fn json(self) -> Value {
        let text = self.text().await;
        serde_json::from_str(&text).unwrap_or_else(|_| panic!("JSON, not {text:?}"))
    }

    async fn more(&mut self) -> bool {
        use http_body_util::BodyExt;
        match soon(self.body.frame()).await {
            Some(frame) => {
                self.buffer.push_str(std::str::from_utf8(frame.unwrap().data_ref().unwrap()).unwrap());
                true
            }
            None => false,
        }
    }

    /// The next event: its id and data; `None` at the end of the stream.
    pub(crate) async fn event(&mut self) -> Option<(String, String)> {
        loop {
            if let Some((event, rest)) = self.buffer.split_once("\n\n") {
                let field = |name: &str| {
                    let found = event.lines().find_map(|line| line.strip_prefix(name));
                    found.unwrap_or_default().trim().to_owned()
                };
                let found = (field("id:"), field("data:"));
                let is_comment = event.starts_with(':');
                self.buffer = rest.to_owned();
                if is_comment {
                    continue;
                }
                return Some(found);
            }
            if !self.more().await {
                return None;
            }
        }
    }

    pub(crate) async fn event_value(&mut self) -> Value {
        let (_, data) = self.event().await.expect("an event");
        serde_json::from_str(&data).unwrap()
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }
}

/// One HTTP request with the usual headers unless others are given.
pub(crate) async fn http(method: &str, url: &str, headers: &[(&str, &str)], body: &str) -> Answer {
    use http_body_util::Full;
    let client = hyper_util::client::legacy::Client::builder(hyper_util::rt::TokioExecutor::new())
        .pool_max_idle_per_host(0)
        .build_http::<Full<bytes::Bytes>>();
    let mut request = http::Request::builder().method(method).uri(url);
    let given = |name: &str| headers.iter().any(|(other, _)| other.eq_ignore_ascii_case(name));
    if !given("content-type") {
        request = request.header("content-type", "application/json");
    }
    if !given("accept") {
        request = request.header("accept", "application/json, text/event-stream");
    }
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(Full::from(body.to_owned())).unwrap();
    let response = soon(client.request(request)).await.unwrap();
    let (parts, body) = response.into_parts();
    Answer { status: parts.status.as_u16(), headers: parts.headers, body, buffer: String::new() }
}

/// Opens a legacy session and gives its id.
pub(crate) async fn open_session(url: &str, version: &str, capabilities: &str, who: &str) -> String {
    let body = format!(
        r#"{{"jsonrpc":"2.0","id":0,"method":"initialize","params":{{"protocolVersion":"{version}","capabilities":{capabilities},"clientInfo":{{"name":"t"}}}}}}"#
    );
    let answer = http("POST", url, &[("authorization", who)], &body).await;
    assert_eq!(answer.status, 200);
    let id = answer.header("mcp-session-id").to_owned();
    assert_eq!(answer.json().await["result"]["protocolVersion"], version);
    id
}

impl Answer {
    /// The first bytes of the body, comments included.
    pub(crate) async fn first_bytes(mut self) -> String {
        self.more().await;
        self.buffer
    }
}
