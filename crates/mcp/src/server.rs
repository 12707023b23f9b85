//! The server side: what a gateway implements (`Service`) and what it receives (`RequestContext`, `Session`). Both eras and both
//! transports look the same from here. This module knows who called, never what they may do.

mod client_questions;
mod concurrency;
mod connections;

mod dispatcher;
mod event_log;
mod http;
mod listen_filter;
mod parked_requests;
mod request_context;
mod session;
mod stdio;
mod tls;

use std::any::Any;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

pub use ::http::HeaderMap;

pub use self::client_questions::AskFault;
pub use self::connections::{ConnectionLimits, listen};
pub use self::http::{BodyError, HttpOptions, HttpServer, read_body};
pub use self::listen_filter::ListenFilter;
pub use self::parked_requests::SealKey;
pub use self::request_context::{RequestContext, TimedAnswer};
pub(crate) use self::session::lock;
pub use self::session::{ClientInfo, ClientUnreachable, SavedSession, Session, SessionId};
pub use self::stdio::{StdioOptions, serve_stdio, serve_stream};
pub use self::tls::Certificate;
use crate::jsonrpc::{FrameLimits, Notification, Reply, Request, RpcError};
use crate::mirrored_headers::MirroredHeaders;
use crate::raw::RawJson;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    Stdio,
    Http,
}

/// What is known of a caller before authentication.
#[derive(Debug)]
pub struct CallerInfo<'a> {
    pub transport: Transport,
    /// Empty on stdio.
    pub path: &'a str,
    /// Empty on stdio.
    pub headers: &'a HeaderMap,
    pub peer: Option<SocketAddr>,
}

/// The caller as the service authenticated it. Sessions and parked requests are bound to `key`.
#[derive(Clone)]
pub struct CallerIdentity {
    /// A stable name of the principal: another key cannot use its sessions.
    pub key: Arc<str>,
    /// Data of the service, found again through `Session::identity`.
    pub value: Arc<dyn Any + Send + Sync>,
    pub credential: CredentialStatus,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CredentialStatus {
    /// It did, or came over a transport that needs none.
    Yes,
    /// It did not: its sessions end sooner, and it shares its limits with all such callers.
    No,
}

impl CallerIdentity {
    pub fn new(key: impl Into<Arc<str>>, value: Arc<dyn Any + Send + Sync>) -> Self {
        Self { key: key.into(), value, credential: CredentialStatus::Yes }
    }

    /// The same caller without a credential.
    pub fn anonymous(self) -> Self {
        Self { credential: CredentialStatus::No, ..self }
    }

    /// The service's data, if it is a `T`.
    pub fn get<T: 'static>(&self) -> Option<&T> {
        self.value.downcast_ref()
    }
}

impl std::fmt::Debug for CallerIdentity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("CallerIdentity").field(&self.key).finish()
    }
}

/// An HTTP response that ends a request before it becomes MCP.
#[derive(Debug, Clone)]
pub struct HttpRefusal {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    /// One sentence for the reader of the response.
    pub message: String,
}

/// The contents of `initialize` and `server/discover` results.
#[derive(Debug, Clone)]
pub struct ServiceDescription {
    pub server_info: RawJson,
    pub capabilities: RawJson,
    pub instructions: Option<String>,
    /// How long a modern client may cache this.
    pub ttl_ms: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionEnd {
    /// The byte stream closed (stdio), or the listen stream ended (modern HTTP).
    TransportClosed,
    Deleted,
    Expired,
    /// The gateway stops; a persisted session may be restored later.
    Shutdown,
}

/// What a gateway implements. This crate itself answers `initialize`, `server/discover`, `ping` and `subscriptions/listen`, and
/// consumes `notifications/cancelled`; everything else arrives here.
pub trait Service: Send + Sync + 'static {
    /// Authenticates the caller: once per stdio connection, once per HTTP request.
    fn authenticate(
        &self,
        opening: &CallerInfo<'_>,
    ) -> impl Future<Output = Result<CallerIdentity, HttpRefusal>> + Send;

    /// Describes the server to this client. The session's era and the client's capabilities are known.
    fn describe(&self, session: &Arc<Session>) -> impl Future<Output = ServiceDescription> + Send;

    /// A session opened: `initialize` arrived, a modern stdio client sent its first message, or a modern HTTP listen stream opened.
    /// Plain modern HTTP requests open none. Keep the `Arc` to send notifications later.
    fn opened(&self, session: Arc<Session>) -> impl Future<Output = ()> + Send {
        let _ = session;
        async {}
    }

    /// A session that was opened or restored has ended.
    fn closed(&self, session: Arc<Session>, end: SessionEnd) -> impl Future<Output = ()> + Send {
        let _ = (session, end);
        async {}
    }

    /// Returns what was saved of an unknown HTTP session, if anything. If its key differs from `identity.key`, the client gets 404.
    fn restore(
        &self,
        id: &SessionId,
        identity: &CallerIdentity,
    ) -> impl Future<Output = Option<SavedSession>> + Send {
        let _ = (id, identity);
        async { None }
    }

    /// A session was restored and can receive notifications again.
    fn restored(&self, session: Arc<Session>) -> impl Future<Output = ()> + Send {
        let _ = session;
        async {}
    }

    /// A modern client subscribes to notifications. Returns the part of the filter that will be served.
    fn listening(
        &self,
        session: &Arc<Session>,
        filter: ListenFilter,
    ) -> impl Future<Output = ListenFilter> + Send {
        let _ = session;
        async { filter }
    }

    /// A listen stream of this session ended.
    fn unlistened(&self, session: &Arc<Session>, filter: ListenFilter) -> impl Future<Output = ()> + Send {
        let _ = (session, filter);
        async {}
    }

    /// Whether a request is unambiguous. An ambiguous one is neither answered here nor does it resume a parked request: it goes to
    /// [`Service::request`], which reports the error.
    fn accepts(&self, request: &Request) -> bool {
        let _ = request;
        true
    }

    /// Handles a request. The reply may be of either era: it is translated to the client's.
    /// Runs in a task of its own and is never aborted: watch `ctx.cancelled()`.
    fn request(&self, ctx: RequestContext, request: Request) -> impl Future<Output = Reply> + Send;

    /// A retry carries a `requestState` that resumes nothing, and is not executed. Returns the error for the client.
    fn not_resumed(
        &self,
        ctx: &RequestContext,
        request: &Request,
        error: RpcError,
    ) -> impl Future<Output = RpcError> + Send {
        let _ = (ctx, request);
        async { error }
    }

    /// Handles a notification. Notifications of one client are handled in order, so this must be quick.
    fn notification(
        &self,
        session: Arc<Session>,
        notification: Notification,
    ) -> impl Future<Output = ()> + Send {
        let _ = (session, notification);
        async {}
    }

    /// The arguments of a tool that a modern HTTP client must mirror as headers; `None` checks none.
    fn mirrors(
        &self,
        session: &Arc<Session>,
        tool: &str,
    ) -> impl Future<Output = Option<Arc<MirroredHeaders>>> + Send {
        let _ = (session, tool);
        async { None }
    }

    fn replies(&self, session: &Session) -> ReplyDelivery {
        let _ = session;
        ReplyDelivery::Plain
    }

    /// Reports an anomaly that needs no action.
    fn client_anomaly(&self, session: Option<&Session>, notice: ClientAnomaly) {
        let _ = (session, notice);
    }
}

/// How replies to legacy clients travel over HTTP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplyDelivery {
    /// A quick reply is one JSON body; a slow one gets a stream.
    Plain,
    /// Every reply comes on a resumable stream.
    Streamed,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClientAnomaly {
    /// A frame that is no JSON-RPC message; the error code it was answered with.
    Malformed(i64),
    /// An answer to a question that nobody waits for any more.
    LateAnswer,
    /// A notification was dropped because the client does not read.
    Undelivered,
}

/// Options of both transports.
#[derive(Debug, Clone)]
pub struct ServeOptions {
    pub limits: FrameLimits,
    pub seal: SealKey,
    /// How long a parked request waits for the client's answer.
    pub park_ttl: Duration,
    /// How many requests of one stdio client or one HTTP principal run at once; sixteen times as many may wait.
    pub in_flight: usize,
}

impl ServeOptions {
    pub fn new(seal: SealKey) -> Self {
        Self { limits: FrameLimits::default(), seal, park_ttl: Duration::from_secs(600), in_flight: 256 }
    }
}
