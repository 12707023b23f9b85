//! A transparent proxy over the protocol crate alone, and a benchmark for it: what that crate itself adds to a call.
//! `relay [--http ADDR] PROGRAM ARGS…` (or a URL) relays stdio or HTTP to an upstream; `relay --bench` measures it.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::indexing_slicing,
    reason = "a measuring tool may fail loudly"
)]

use std::ffi::OsString;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use countersign_mcp::client::{
    ClientIdentity, Deadline, HttpSpec, Observer, Questions, RequestOptions, StdioSpec, Upstream,
    UpstreamOptions, UpstreamSpec,
};
use countersign_mcp::fault::RequestFailure;
use countersign_mcp::jsonrpc::{Notification, Reply, Request, RpcError};
use countersign_mcp::raw;
use countersign_mcp::server::{
    CallerIdentity, CallerInfo, ConnectionLimits, HttpOptions, HttpRefusal, HttpServer, RequestContext,
    SealKey, ServeOptions, Service, ServiceDescription, Session, SessionEnd, SessionId, StdioOptions, listen,
    serve_stdio,
};

struct Relay(Upstream, Arc<News>);

/// Passes on what belongs to no request to every open session.
#[derive(Default)]
struct News(Mutex<Vec<Arc<Session>>>);

impl Observer for News {
    fn notification(&self, notification: Notification) {
        let sessions = self.0.lock().unwrap().clone();
        tokio::spawn(async move {
            for session in sessions {
                let _ = session.notify(&notification.method, notification.params.as_deref()).await;
            }
        });
    }
}

impl Service for Relay {
    async fn authenticate(&self, _: &CallerInfo<'_>) -> Result<CallerIdentity, HttpRefusal> {
        Ok(CallerIdentity::new("anyone", Arc::new(())))
    }

    async fn describe(&self, _: &Arc<Session>) -> ServiceDescription {
        ServiceDescription {
            server_info: self.0.server_info().map_or_else(raw::empty_object, ToOwned::to_owned),
            capabilities: self.0.capabilities().to_owned(),
            instructions: None,
            ttl_ms: 0,
        }
    }

    async fn opened(&self, session: Arc<Session>) {
        self.1.0.lock().unwrap().push(session);
    }

    async fn closed(&self, session: Arc<Session>, _: SessionEnd) {
        self.1.0.lock().unwrap().retain(|other| !Arc::ptr_eq(other, &session));
    }

    async fn request(&self, ctx: RequestContext, request: Request) -> Reply {
        let options = RequestOptions {
            deadline: Deadline::Total(Duration::from_secs(60)),
            relay: Some(Arc::new(ctx.clone())),
            questions: Questions::Bridge(Arc::new(ctx.clone())),
            ..RequestOptions::default()
        };
        let sent = self.0.request(&request.method, request.params.as_deref(), options);
        let outcome = tokio::select! {
            outcome = sent => outcome,
            () = ctx.cancelled() => return Err(RpcError::new(-32603, "cancelled")),
        };
        outcome.map_err(|failure| match failure {
            RequestFailure::Rpc(error) => error,
            RequestFailure::Wire(fault) => RpcError::new(-32603, &fault.to_string()),
        })
    }
}

async fn connect(spec: UpstreamSpec) -> Relay {
    let client_info = raw::to_raw(&serde_json::json!({ "name": "relay", "version": "0" }));
    let capabilities = raw::to_raw(&serde_json::json!({ "elicitation": {}, "sampling": {}, "roots": {} }));
    let identity = ClientIdentity { client_info, capabilities };
    let news = Arc::new(News::default());
    let upstream = Upstream::connect(&spec, UpstreamOptions::new(identity, news.clone())).await.unwrap();
    Relay(upstream, news)
}

fn spec(program: OsString, args: impl Iterator<Item = OsString>) -> UpstreamSpec {
    match program.to_str() {
        Some(url) if url.starts_with("http") => UpstreamSpec::Http(HttpSpec::new(url)),
        _ => {
            let mut spec = StdioSpec::new(program, args);
            spec.env.extend(std::env::vars_os().filter(|(name, _)| name == "PATH" || name == "HOME"));
            UpstreamSpec::Stdio(spec)
        }
    }
}

async fn serve_http(relay: Relay, address: &str) {
    let options = HttpOptions::loopback(ServeOptions::new(SealKey::random()));
    let front = HttpServer::new(Arc::new(relay), options);
    let listener = tokio::net::TcpListener::bind(address).await.unwrap();
    println!("http://{}/mcp", listener.local_addr().unwrap());
    listen(listener, None, front.routes("/mcp"), ConnectionLimits::default(), std::future::pending())
        .await
        .unwrap();
}

async fn measure(name: &str, upstream: &Upstream) -> f64 {
    let params = raw::from_text(r#"{"name":"echo","arguments":{"message":"hello"}}"#).unwrap();
    let mut times = Vec::new();
    for round in 0..6000 {
        let start = Instant::now();
        upstream.request("tools/call", Some(&params), RequestOptions::default()).await.unwrap();
        if round >= 1000 {
            times.push(start.elapsed().as_secs_f64() * 1e6);
        }
    }
    times.sort_by(f64::total_cmp);
    let start = Instant::now();
    let mut all = tokio::task::JoinSet::new();
    for _ in 0..32 {
        let (upstream, params) = (upstream.clone(), params.clone());
        all.spawn(async move {
            for _ in 0..1000 {
                upstream.request("tools/call", Some(&params), RequestOptions::default()).await.unwrap();
            }
        });
    }
    all.join_all().await;
    let rate = 32_000.0 / start.elapsed().as_secs_f64();
    let (p50, p99) = (times[times.len() / 2], times[times.len() * 99 / 100]);
    println!("{name:12} p50 {p50:7.1} µs   p99 {p99:7.1} µs   32 in flight {rate:8.0}/s");
    p50
}

async fn bench() {
    let own = std::env::current_exe().unwrap();
    let peer = own.with_file_name("peer");
    let direct = connect(UpstreamSpec::Stdio(StdioSpec::new(&peer, ["legacy"]))).await;
    let relayed =
        connect(UpstreamSpec::Stdio(StdioSpec::new(&own, [peer.as_os_str(), "legacy".as_ref()]))).await;
    let base = measure("direct", &direct.0).await;
    let stdio = measure("relay stdio", &relayed.0).await;
    let options = HttpOptions::loopback(ServeOptions::new(SealKey::random()));
    let front = HttpServer::new(Arc::new(direct), options);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    tokio::spawn(listen(
        listener,
        None,
        front.routes("/mcp"),
        ConnectionLimits::default(),
        std::future::pending(),
    ));
    let http = measure("relay http", &connect(UpstreamSpec::Http(HttpSpec::new(url))).await.0).await;
    println!(
        "added p50: stdio {:.1} µs, http {:.1} µs (client, front and upstream in one process)",
        stdio - base,
        http - base
    );
}

fn main() {
    // One thread is quicker for one line: no worker is woken to steal what the next step needs.
    let many = std::env::args_os().nth(1).is_some_and(|first| first == "--bench");
    let mut builder = if many {
        tokio::runtime::Builder::new_multi_thread()
    } else {
        tokio::runtime::Builder::new_current_thread()
    };
    let runtime = builder.enable_all().build().unwrap();
    let mut args = std::env::args_os().skip(1);
    let program = args.next().unwrap();
    runtime.block_on(async {
        if program == "--bench" {
            return bench().await;
        }
        if program == "--http" {
            let address = args.next().unwrap().into_string().unwrap();
            let relay = connect(spec(args.next().unwrap(), args)).await;
            return serve_http(relay, &address).await;
        }
        let relay = connect(spec(program, args)).await;
        let upstream = relay.0.clone();
        let options = StdioOptions::new(ServeOptions::new(SealKey::random()), SessionId::new("relay"));
        serve_stdio(Arc::new(relay), options).await.unwrap();
        upstream.close().await;
    });
}
