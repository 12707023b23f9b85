//! A transparent proxy on the wire alone, and a stopwatch for it: what the protocol room itself adds to a call.
//! `relay PROGRAM ARGS…` relays stdio to a child; `relay --bench` measures the peer direct and through the relay.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::indexing_slicing,
    reason = "a measuring tool may fail loudly"
)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use countersign_wire::fault::Failure;
use countersign_wire::frame::{Notification, Reply, Request, RpcError};
use countersign_wire::raw;
use countersign_wire::serve::{
    Ctx, Description, HttpFront, HttpOptions, HttpRefusal, Opening, SealKey, ServeOptions, Service, Session,
    SessionId, StdioOptions, Tag, listen_http, serve_stdio,
};
use countersign_wire::upstream::{
    Connect, Deadline, HttpSpec, Identity, Observer, Questions, RequestOptions, Spec, StdioSpec, Upstream,
};

struct Relay(Upstream);

struct Deaf;

impl Observer for Deaf {
    fn notification(&self, _: Notification) {}
}

impl Service for Relay {
    async fn authenticate(&self, _: &Opening<'_>) -> Result<Tag, HttpRefusal> {
        Ok(Tag::new("anyone", Arc::new(())))
    }

    async fn describe(&self, _: &Arc<Session>) -> Description {
        Description {
            server_info: self.0.server_info().map_or_else(raw::empty_object, ToOwned::to_owned),
            capabilities: self.0.capabilities().to_owned(),
            instructions: None,
            ttl_ms: 0,
        }
    }

    async fn request(&self, ctx: Ctx, request: Request) -> Reply {
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
            Failure::Rpc(error) => error,
            Failure::Wire(fault) => RpcError::new(-32603, &fault.to_string()),
        })
    }
}

async fn connect(spec: Spec) -> Upstream {
    let client_info = raw::to_raw(&serde_json::json!({ "name": "relay", "version": "0" }));
    let identity = Identity { client_info, capabilities: raw::empty_object() };
    Upstream::connect(&spec, Connect::new(identity, Arc::new(Deaf))).await.unwrap()
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
    let direct = connect(Spec::Stdio(StdioSpec::new(&peer, ["legacy"]))).await;
    let relayed = connect(Spec::Stdio(StdioSpec::new(&own, [peer.as_os_str(), "legacy".as_ref()]))).await;
    let base = measure("direct", &direct).await;
    let stdio = measure("relay stdio", &relayed).await;
    let options = HttpOptions::loopback(ServeOptions::new(SealKey::random()));
    let front = HttpFront::new(Arc::new(Relay(direct.clone())), options);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    tokio::spawn(listen_http(listener, front.routes("/mcp"), std::future::pending()));
    let http = measure("relay http", &connect(Spec::Http(HttpSpec::new(url))).await).await;
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
        let upstream = connect(Spec::Stdio(StdioSpec::new(program, args))).await;
        let options = StdioOptions::new(ServeOptions::new(SealKey::random()), SessionId::new("relay"));
        serve_stdio(Arc::new(Relay(upstream.clone())), options).await.unwrap();
        upstream.close().await;
    });
}
