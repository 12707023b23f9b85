//! One way measured: started, called one by one, then many together; time, rate, CPU and memory of the process under test.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use countersign_mcp::client::{
    ClientIdentity, HttpSpec, Observer, RequestOptions, StdioSpec, Upstream, UpstreamOptions, UpstreamSpec,
};
use countersign_mcp::jsonrpc::Notification;
use countersign_mcp::raw::{self, RawJson};
use countersign_policy::ids::PrincipalId;
use countersign_store::{Store, StoreUrl};
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

use crate::{environment, person, records};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BenchRoute {
    DirectStdio,
    ThroughStdio,
    DirectHttp,
    ThroughHttp,
}

impl BenchRoute {
    pub(super) const ALL: [Self; 4] =
        [Self::DirectStdio, Self::ThroughStdio, Self::DirectHttp, Self::ThroughHttp];

    pub(super) fn name(self) -> &'static str {
        match self {
            BenchRoute::DirectStdio => "stdio, direct",
            BenchRoute::ThroughStdio => "stdio, through us",
            BenchRoute::DirectHttp => "HTTP, direct",
            BenchRoute::ThroughHttp => "HTTP, through us",
        }
    }

    pub(super) fn direct(self) -> Option<Self> {
        match self {
            BenchRoute::ThroughStdio => Some(BenchRoute::DirectStdio),
            BenchRoute::ThroughHttp => Some(BenchRoute::DirectHttp),
            BenchRoute::DirectStdio | BenchRoute::DirectHttp => None,
        }
    }
}

#[derive(Debug)]
pub(super) struct Figures {
    pub(super) way: BenchRoute,
    pub(super) p50_us: f64,
    pub(super) p99_us: f64,
    pub(super) calls_per_second: f64,
    pub(super) cpu_us_per_call: f64,
    pub(super) rss_mb: f64,
    pub(super) first_answer_ms: f64,
}

struct BenchNoopObserver;

impl Observer for BenchNoopObserver {
    fn notification(&self, _: Notification) {}
}

/// A server under test and the connection to it.
struct BenchTarget {
    line: Arc<Upstream>,
    pid: Option<i32>,
    /// Keeps an HTTP server running until the measuring ends.
    _server: Option<Child>,
}

pub(super) async fn measure(
    way: BenchRoute,
    program: &Path,
    folder: &Path,
    calls: u32,
    in_flight: u32,
    tools: u32,
) -> Result<Figures, String> {
    let begun = Instant::now();
    let subject = start(way, program, folder, tools).await?;
    let params = params(way);
    call(&subject.line, &params).await?;
    let first_answer_ms = begun.elapsed().as_secs_f64() * 1e3;
    for _ in 0..calls / 10 {
        call(&subject.line, &params).await?;
    }
    let cpu_before = cpu_us(subject.pid);
    let mut samples = Vec::with_capacity(usize::try_from(calls).unwrap_or_default());
    for _ in 0..calls {
        let start = Instant::now();
        call(&subject.line, &params).await?;
        samples.push(start.elapsed().as_secs_f64() * 1e6);
    }
    samples.sort_by(f64::total_cmp);
    let percentile = |share: usize| samples.get(samples.len() * share / 100).copied().unwrap_or_default();
    let many = calls.saturating_mul(10);
    let rate = together(&subject.line, &params, many, in_flight).await?;
    let made = f64::from(calls) + f64::from(many);
    let figures = Figures {
        way,
        p50_us: percentile(50),
        p99_us: percentile(99),
        calls_per_second: rate,
        cpu_us_per_call: (cpu_us(subject.pid) - cpu_before) / made,
        rss_mb: rss_mb(subject.pid),
        first_answer_ms,
    };
    subject.line.close().await;
    Ok(figures)
}

async fn together(line: &Arc<Upstream>, params: &RawJson, many: u32, in_flight: u32) -> Result<f64, String> {
    let start = Instant::now();
    let mut workers = tokio::task::JoinSet::new();
    for _ in 0..in_flight {
        let (line, params, share) = (Arc::clone(line), params.clone(), many / in_flight);
        workers.spawn(async move {
            for _ in 0..share {
                call(&line, &params).await?;
            }
            Ok::<(), String>(())
        });
    }
    while let Some(done) = workers.join_next().await {
        done.map_err(|error| error.to_string())??;
    }
    Ok(f64::from(many / in_flight * in_flight) / start.elapsed().as_secs_f64())
}

async fn call(line: &Upstream, params: &RawJson) -> Result<(), String> {
    let result = line.request("tools/call", Some(params), RequestOptions::default()).await;
    let result = result.map_err(|failure| failure.to_string())?;
    if raw::get(&result, "isError").is_some_and(|flag| flag.get() == "true") {
        return Err(format!("the call was refused: {}", result.get()));
    }
    Ok(())
}

fn params(way: BenchRoute) -> RawJson {
    match way {
        BenchRoute::DirectStdio | BenchRoute::DirectHttp => {
            raw::to_raw(&json!({"name": "echo", "arguments": {"message": "hello"}}))
        }
        BenchRoute::ThroughStdio | BenchRoute::ThroughHttp => raw::to_raw(&json!({
            "name": "call_tool_read",
            "arguments": {"name": "echo:echo", "args": {"message": "hello"}, "intent": {"operation_type": "read"}},
        })),
    }
}

async fn start(way: BenchRoute, program: &Path, folder: &Path, tools: u32) -> Result<BenchTarget, String> {
    let config = folder.join(format!("{way:?}.toml"));
    let text = format!(
        "[gateway]\nstore = \"sqlite:{way:?}.db\"\n\n[upstreams.echo]\ncommand = {}\nargs = [\"bench-echo\", \"--tools\", \"{tools}\"]\n",
        json!(program.display().to_string())
    );
    std::fs::write(&config, text).map_err(|error| error.to_string())?;
    let config = config.display().to_string();
    let tools = tools.to_string();
    let args: Vec<&str> = match way {
        BenchRoute::DirectStdio => vec!["bench-echo", "--tools", &tools],
        BenchRoute::ThroughStdio => vec!["serve", "--config", &config],
        BenchRoute::DirectHttp => vec!["bench-echo", "--tools", &tools, "--http"],
        BenchRoute::ThroughHttp => vec!["serve", "--config", &config, "--http", "127.0.0.1:0"],
    };
    match way {
        BenchRoute::DirectStdio | BenchRoute::ThroughStdio => {
            let mut spec = StdioSpec::new(program, args);
            spec.env = environment::all();
            let line = connect(&UpstreamSpec::Stdio(spec)).await?;
            Ok(BenchTarget { pid: line.process_id(), line, _server: None })
        }
        BenchRoute::DirectHttp | BenchRoute::ThroughHttp => {
            let header = match way {
                BenchRoute::ThroughHttp => Some(credential(folder.join(format!("{way:?}.db"))).await?),
                BenchRoute::DirectStdio | BenchRoute::ThroughStdio | BenchRoute::DirectHttp => None,
            };
            let mut command = Command::new(program);
            command
                .args(args)
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::piped())
                .kill_on_drop(true);
            let mut server = command.spawn().map_err(|error| error.to_string())?;
            let url = address(&mut server).await?;
            let pid = server.id().and_then(|id| i32::try_from(id).ok());
            let mut spec = HttpSpec::new(url);
            spec.headers.extend(header);
            Ok(BenchTarget { line: connect(&UpstreamSpec::Http(spec)).await?, pid, _server: Some(server) })
        }
    }
}

/// The header of a credential that was made for this measurement: a gateway over HTTP wants one.
async fn credential(file: PathBuf) -> Result<(String, String), String> {
    let url = StoreUrl::file(file);
    let store = Store::connect(&url, records::options(&url)).await.map_err(|fault| fault.inside())?;
    let by = PrincipalId::new("bench");
    let secret = person::add_agent(&store, &url, "bench-agent", json!({}), &by).await;
    let secret = secret.map_err(|trouble| format!("{trouble:?}"))?;
    Ok(("Authorization".to_owned(), format!("Bearer {}", secret.expose())))
}

async fn connect(spec: &UpstreamSpec) -> Result<Arc<Upstream>, String> {
    let identity = ClientIdentity {
        client_info: raw::to_raw(&json!({"name": "bench", "version": "1"})),
        capabilities: raw::empty_object(),
    };
    let line = Upstream::connect(spec, UpstreamOptions::new(identity, Arc::new(BenchNoopObserver))).await;
    line.map(Arc::new).map_err(|failure| failure.to_string())
}

/// The address an HTTP server says it listens on.
async fn address(server: &mut Child) -> Result<String, String> {
    let stderr = server.stderr.take().ok_or("the server says nothing")?;
    let mut lines = BufReader::new(stderr).lines();
    let said = tokio::time::timeout(Duration::from_secs(20), async {
        while let Ok(Some(line)) = lines.next_line().await {
            if let Some(url) = line.strip_prefix("listening on ") {
                return Some(url.to_owned());
            }
        }
        None
    });
    said.await.ok().flatten().ok_or_else(|| "the server did not say where it listens".to_owned())
}

/// CPU time a process has used, in microseconds; zero where the system does not tell.
fn cpu_us(pid: Option<i32>) -> f64 {
    let stat =
        pid.and_then(|pid| std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()).unwrap_or_default();
    let after = stat.rsplit_once(')').map_or("", |(_, after)| after);
    let ticks: f64 =
        after.split_whitespace().skip(11).take(2).filter_map(|field| field.parse::<f64>().ok()).sum();
    // Linux counts in hundredths of a second wherever we run.
    ticks * 10_000.0
}

/// Memory a process holds; zero where the system does not tell.
fn rss_mb(pid: Option<i32>) -> f64 {
    let status =
        pid.and_then(|pid| std::fs::read_to_string(format!("/proc/{pid}/status")).ok()).unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|kilobytes| kilobytes.parse::<f64>().ok()).unwrap_or_default()
        / 1024.0
}
