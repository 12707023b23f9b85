//! The upstream face: connect to an MCP server over stdio or HTTP, learn its era, send requests, hear its notifications.
//! It never retries a request by itself and never decides whether one may be sent.

pub(crate) mod address;
mod child;
mod connect;
mod group;
mod http;
pub mod oauth;
mod orphan;
mod pending;
mod request;
mod sse;
mod stdio;
pub(crate) mod transport;

use std::ffi::OsString;
use std::future::Future;
use std::net::IpAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;

pub use self::address::default_address_rule;
pub use self::connect::Upstream;
pub use self::group::Group;
pub use self::orphan::{keep_orphans, use_keeper};
use crate::era::Era;
use crate::fault::WireFault;
use crate::frame::{Limits, Notification, Reply};
use crate::mirror::Mirrors;
use crate::raw::Raw;
use crate::serve::ListenFilter;

/// A boxed future, for traits used behind `dyn`.
pub type Later<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A child process that speaks MCP on stdin and stdout.
#[derive(Debug, Clone)]
pub struct StdioSpec {
    /// The program; looked up in the `PATH` of `env` if it has no slash.
    pub program: OsString,
    /// Its arguments, passed without a shell.
    pub args: Vec<OsString>,
    /// The whole environment: nothing of ours is inherited.
    pub env: Vec<(OsString, OsString)>,
    /// Where it runs.
    pub cwd: Option<PathBuf>,
    /// How much of its stderr is kept.
    pub stderr_bytes: usize,
    /// How long it may take to leave after its stdin closed, before its group is killed.
    pub grace: Duration,
}

impl StdioSpec {
    /// A program with arguments, an empty environment and the usual limits.
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

/// Gives the `Authorization` header anew for every request, so that tokens can be refreshed outside.
pub trait Bearer: Send + Sync + std::fmt::Debug {
    /// The token, or `None` to send none.
    fn token(&self) -> Later<'_, Option<String>>;

    /// The upstream turned a request away unprocessed (401, or 403 with a challenge) that was made with `token`. Whoever has
    /// another token now says so, and the request is sent once more.
    fn refused<'a>(&'a self, token: Option<&'a str>, status: u16, challenge: &'a str) -> Later<'a, Again> {
        let _ = (token, status, challenge);
        Box::pin(std::future::ready(Again::No))
    }

    /// What to do about being turned away, where it is not that a person signs in.
    fn advice(&self) -> Option<String> {
        None
    }
}

/// Whether a request that was turned away is worth sending once more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Again {
    /// There is another token now.
    Yes,
    /// There is not.
    No,
}

/// Which addresses may be connected to, asked with the resolved address right before connecting.
pub type AddressRule = Arc<dyn Fn(IpAddr) -> bool + Send + Sync>;

/// A server behind streamable HTTP.
#[derive(Clone)]
pub struct HttpSpec {
    /// The endpoint; `http` or `https`.
    pub url: String,
    /// Headers sent with every request.
    pub headers: Vec<(String, String)>,
    /// The bearer token, if any.
    pub bearer: Option<Arc<dyn Bearer>>,
    /// Which addresses may be connected to; `default_address_rule` when `None`.
    pub addresses: Option<AddressRule>,
    /// How long connecting may take.
    pub connect_timeout: Duration,
}

impl HttpSpec {
    /// An endpoint with no extra headers.
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

/// What to connect to.
#[derive(Debug, Clone)]
pub enum Spec {
    /// Start a child.
    Stdio(StdioSpec),
    /// Call a URL.
    Http(HttpSpec),
}

/// Whom we say we are to an upstream.
#[derive(Debug, Clone)]
pub struct Identity {
    /// `{name, version, …}`.
    pub client_info: Raw,
    /// The client capabilities we can relay.
    pub capabilities: Raw,
}

/// What is known of an upstream's era before connecting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum EraChoice {
    /// Ask with `server/discover`; `Upstream::era` tells what came out, to be given back as `Known` next time.
    #[default]
    Probe,
    /// Learned before, or configured.
    Known(Era),
}

/// How to connect.
#[derive(Clone)]
pub struct Connect {
    /// Whom we say we are.
    pub identity: Identity,
    /// What is known of the era.
    pub era: EraChoice,
    /// Hears everything that belongs to no request.
    pub observer: Arc<dyn Observer>,
    /// Frame limits.
    pub limits: Limits,
    /// How long `server/discover` may take on a child before it counts as legacy.
    pub probe_timeout: Duration,
    /// How long the whole opening may take.
    pub open_timeout: Duration,
    /// Which notifications to ask a modern upstream for; only those it offers are asked for.
    pub listen: ListenFilter,
}

impl Connect {
    /// The usual limits, all list changes listened to.
    pub fn new(identity: Identity, observer: Arc<dyn Observer>) -> Self {
        Self {
            identity,
            era: EraChoice::Probe,
            observer,
            limits: Limits::default(),
            probe_timeout: Duration::from_secs(10),
            open_timeout: Duration::from_secs(60),
            listen: ListenFilter::all_lists(),
        }
    }
}

/// Hears what an upstream says outside of any request. Called from the reader, in order: never block here.
pub trait Observer: Send + Sync {
    /// A notification: list changes, logging, resource updates, whatever else.
    fn notification(&self, notification: Notification);

    /// The connection ended; requests in flight have failed already.
    fn closed(&self, fault: &WireFault) {
        let _ = fault;
    }

    /// Something odd that was survived.
    fn odd(&self, oddity: Oddity) {
        let _ = oddity;
    }

    /// A server-to-client request that belongs to no request in flight; `None` answers "method not found".
    fn ask(&self, method: &str, params: Option<Raw>) -> Option<Later<'static, Reply>> {
        let _ = (method, params);
        None
    }
}

/// Odd things an upstream did that were survived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Oddity {
    /// A reply to a request that was cancelled or timed out.
    LateReply(u64),
    /// A reply to an id we never used, or used up: a duplicate or a lie.
    UnknownReply(String),
    /// A line that is no JSON-RPC message (the first bytes of it).
    Noise(String),
    /// A message over the limit.
    TooLong(usize),
    /// Progress for a token nobody waits for.
    StrayProgress,
    /// Progress that was dropped because its receiver does not take it.
    SlowReceiver(u64),
}

/// Receives what belongs to one request while it runs, in order and before its result.
pub trait Relay: Send + Sync {
    /// A progress or log notification; the progress token is the one the request carried.
    fn notification(&self, notification: Notification) -> Later<'_, ()>;
}

/// Answers questions an upstream asks in the middle of a request.
pub trait Asks: Send + Sync {
    /// `elicitation/create`, `sampling/createMessage` or `roots/list`.
    fn ask<'a>(&'a self, method: &'a str, params: Option<Raw>) -> Later<'a, Reply>;

    /// What the client gets of an `input_required` result, where the client answers it by itself. `None` puts each of its
    /// questions to [`Asks::ask`] and sends the request again with the answers.
    fn pass_on<'a>(&'a self, result: &'a RawValue) -> Later<'a, Option<Raw>> {
        let _ = result;
        Box::pin(std::future::ready(None))
    }
}

/// How long to wait for a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deadline {
    /// From sending.
    Total(Duration),
    /// Since the last sign of life: sending, progress, or a question answered.
    Quiet(Duration),
    /// For ever.
    Never,
}

impl Deadline {
    /// The time it gives, if any.
    pub fn limit(self) -> Option<Duration> {
        match self {
            Deadline::Total(limit) | Deadline::Quiet(limit) => Some(limit),
            Deadline::Never => None,
        }
    }
}

/// What a modern upstream's `input_required` becomes.
#[derive(Clone, Default)]
pub enum Questions {
    /// The result is returned as it came. Nobody is there to answer.
    #[default]
    PassThrough,
    /// `Asks` decides whether the result goes to the client. Otherwise every question goes to `Asks`, and the request is sent
    /// again with the answers until it completes.
    Bridge(Arc<dyn Asks>),
}

/// How one request is made. Dropping its future cancels it upstream.
#[derive(Clone)]
pub struct RequestOptions {
    /// How long to wait.
    pub deadline: Deadline,
    /// Takes progress and log notifications of this request.
    pub relay: Option<Arc<dyn Relay>>,
    /// What questions of the upstream become. Legacy questions need `Bridge`; without it they are answered with an error.
    pub questions: Questions,
    /// Speak for this client instead of the connection's identity (modern upstreams only).
    pub identity: Option<Identity>,
    /// The log level the client set for its session, as JSON (modern upstreams only; one in the params goes first).
    pub log_level: Option<String>,
    /// Which arguments to mirror as `Mcp-Param-*` headers (modern HTTP upstreams only).
    pub mirrors: Option<Arc<Mirrors>>,
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
