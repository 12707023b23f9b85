//! The client side: connects to an MCP server over stdio or HTTP, detects its era, sends requests and receives notifications. It never
//! retries a request by itself and never decides whether one may be sent.

pub(crate) mod address_rule;
mod child_process;
mod connection;

mod http;
pub(crate) mod http_transport;
mod orphan_keeper;
mod pending_requests;
mod process_group;
mod request;
mod sse;
mod stdio;

use std::ffi::OsString;
use std::future::Future;
use std::net::IpAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;

pub use self::address_rule::default_address_rule;
pub use self::connection::Upstream;
pub use self::orphan_keeper::{keep_orphans, use_keeper};
pub use self::process_group::ProcessGroup;
use crate::era::Era;
use crate::fault::TransportFault;
use crate::jsonrpc::{FrameLimits, Notification, Reply};
use crate::mirrored_headers::MirroredHeaders;
use crate::raw::RawJson;
use crate::server::ListenFilter;

pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

#[derive(Debug, Clone)]
pub struct StdioSpec {
    /// Looked up in the `PATH` of `env` if it has no slash.
    pub program: OsString,
    /// Passed without a shell.
    pub args: Vec<OsString>,
    /// The whole environment: nothing of ours is inherited.
    pub env: Vec<(OsString, OsString)>,
    pub cwd: Option<PathBuf>,
    /// How much of its stderr is kept.
    pub stderr_bytes: usize,
    /// How long it may take to exit after its stdin closed, before its group is killed.
    pub grace: Duration,
}

impl StdioSpec {
    pub fn new(program: impl Into<OsString>, args: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        Self {
            program: program.into(),
            args: args.into_iter().map(Into::into).collect(),
            env: Vec::new(),
            cwd: None,
            stderr_bytes: 64 << 10,
            grace: Duration::from_millis(500),
        }
    }
}

/// Provides the bearer token of every request, so that tokens can be refreshed elsewhere.
pub trait TokenProvider: Send + Sync + std::fmt::Debug {
    fn token(&self) -> BoxFuture<'_, Option<String>>;

    /// The upstream rejected a request made with `token` before processing it (401, or 403 with a challenge). If there is another
    /// token now, the request is sent once more.
    fn refused<'a>(
        &'a self,
        token: Option<&'a str>,
        status: u16,
        challenge: &'a str,
    ) -> BoxFuture<'a, RetryDecision> {
        let _ = (token, status, challenge);
        Box::pin(std::future::ready(RetryDecision::No))
    }

    /// What to do about the rejection, where it is not that a person signs in.
    fn advice(&self) -> Option<String> {
        None
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetryDecision {
    Yes,
    No,
}

/// Which addresses may be connected to. Checked with the resolved address right before connecting.
pub type AddressRule = Arc<dyn Fn(IpAddr) -> bool + Send + Sync>;

#[derive(Clone)]
pub struct HttpSpec {
    pub url: String,
    pub headers: Vec<(String, String)>,
    pub bearer: Option<Arc<dyn TokenProvider>>,
    /// `default_address_rule` when `None`.
    pub addresses: Option<AddressRule>,
    pub connect_timeout: Duration,
}

impl HttpSpec {
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            headers: Vec::new(),
            bearer: None,
            addresses: None,
            connect_timeout: Duration::from_secs(10),
        }
    }
}

impl std::fmt::Debug for HttpSpec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Header values and tokens are secrets.
        f.debug_struct("HttpSpec").field("url", &self.url).finish_non_exhaustive()
    }
}

#[derive(Debug, Clone)]
pub enum UpstreamSpec {
    Stdio(StdioSpec),
    Http(HttpSpec),
}

/// How we identify ourselves to an upstream.
#[derive(Debug, Clone)]
pub struct ClientIdentity {
    pub client_info: RawJson,
    pub capabilities: RawJson,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum EraChoice {
    /// Probe with `server/discover`. `Upstream::era` tells the result, for `Known` next time.
    #[default]
    Probe,
    Known(Era),
}

#[derive(Clone)]
pub struct UpstreamOptions {
    pub identity: ClientIdentity,
    pub era: EraChoice,
    /// Receives everything that belongs to no request.
    pub observer: Arc<dyn Observer>,
    pub limits: FrameLimits,
    /// How long `server/discover` may take before the legacy era is tried in parallel.
    pub probe_timeout: Duration,
    /// The time limit of the whole opening.
    pub open_timeout: Duration,
    /// The notifications to subscribe to at a modern upstream, as far as it offers them.
    pub listen: ListenFilter,
}

impl UpstreamOptions {
    /// The usual limits, and all list changes.
    pub fn new(identity: ClientIdentity, observer: Arc<dyn Observer>) -> Self {
        Self {
            identity,
            era: EraChoice::Probe,
            observer,
            limits: FrameLimits::default(),
            probe_timeout: Duration::from_secs(10),
            open_timeout: Duration::from_secs(60),
            listen: ListenFilter::all_lists(),
        }
    }
}

/// Receives what belongs to no request. Called by the reader, in order: must not block.
pub trait Observer: Send + Sync {
    fn notification(&self, notification: Notification);

    /// The connection ended; requests in flight have failed already.
    fn closed(&self, fault: &TransportFault) {
        let _ = fault;
    }

    fn anomaly(&self, oddity: UpstreamAnomaly) {
        let _ = oddity;
    }

    /// A request of the server that belongs to no request in flight; `None` answers "method not found".
    fn ask(&self, method: &str, params: Option<RawJson>) -> Option<BoxFuture<'static, Reply>> {
        let _ = (method, params);
        None
    }
}

/// Anomalies that need no action.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UpstreamAnomaly {
    /// A reply to a request that was cancelled or timed out.
    LateReply(u64),
    /// A reply to an id that is not in flight and was not given up: a duplicate or a forgery.
    UnknownReply(String),
    /// The first bytes of a line that is no JSON-RPC message.
    Noise(String),
    TooLong(usize),
    StrayProgress,
    /// Progress dropped because its receiver is too slow.
    SlowReceiver(u64),
}

/// Receives what belongs to one request, in order and before its result.
pub trait NotificationRelay: Send + Sync {
    /// A progress or log notification, with the progress token of the request.
    fn notification(&self, notification: Notification) -> BoxFuture<'_, ()>;
}

/// Answers questions that an upstream asks during a request.
pub trait QuestionResponder: Send + Sync {
    /// `elicitation/create`, `sampling/createMessage` or `roots/list`.
    fn ask<'a>(&'a self, method: &'a str, params: Option<RawJson>) -> BoxFuture<'a, Reply>;

    /// The result for a client that answers `input_required` itself. `None` passes each question to [`QuestionResponder::ask`] and sends
    /// the request again with the answers.
    fn pass_on<'a>(&'a self, result: &'a RawValue) -> BoxFuture<'a, Option<RawJson>> {
        let _ = result;
        Box::pin(std::future::ready(None))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deadline {
    /// Since the request was sent.
    Total(Duration),
    /// Since the last sign of life: the request, progress, or an answered question.
    Quiet(Duration),
    Never,
}

impl Deadline {
    pub fn limit(self) -> Option<Duration> {
        match self {
            Deadline::Total(limit) | Deadline::Quiet(limit) => Some(limit),
            Deadline::Never => None,
        }
    }
}

/// How an `input_required` result of a modern upstream is handled.
#[derive(Clone, Default)]
pub enum Questions {
    /// Returned as it is.
    #[default]
    PassThrough,
    /// The handler decides whether the client gets the result. Otherwise it answers every question, and the request is sent again
    /// until it completes.
    Bridge(Arc<dyn QuestionResponder>),
}

/// Options of one request. Dropping the request's future cancels it upstream.
#[derive(Clone)]
pub struct RequestOptions {
    pub deadline: Deadline,
    pub relay: Option<Arc<dyn NotificationRelay>>,
    /// Legacy questions need `Bridge`; without it they are answered with an error.
    pub questions: Questions,
    /// Identify as this client instead of the connection's identity (modern upstreams only).
    pub identity: Option<ClientIdentity>,
    /// The log level of the client's session as JSON (modern upstreams only; a level in the params wins).
    pub log_level: Option<String>,
    /// The arguments to mirror as `Mcp-Param-*` headers (modern HTTP upstreams only).
    pub mirrors: Option<Arc<MirroredHeaders>>,
}

impl Default for RequestOptions {
    fn default() -> Self {
        Self {
            deadline: Deadline::Total(Duration::from_secs(60)),
            relay: None,
            questions: Questions::PassThrough,
            identity: None,
            log_level: None,
            mirrors: None,
        }
    }
}
