//! The downstream face: what a gateway implements (`Service`) and what it is handed (`Ctx`, `Session`).
//! Both eras and both transports look the same from here; the wire knows who called, never what they may do.

mod ask;
mod connections;
mod ctx;
mod dispatch;
mod events;
mod http;
mod listen;
mod parking;
mod session;
mod stdio;
mod tls;
mod turns;

use std::any::Any;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

pub use ::http::HeaderMap;

pub use self::ask::AskFault;
pub use self::connections::{ConnectionLimits, listen};
pub use self::ctx::Ctx;
pub use self::http::{HttpFront, HttpOptions, NoBody, read_body};
pub use self::listen::ListenFilter;
pub use self::parking::SealKey;
pub(crate) use self::session::lock;
pub use self::session::{Client, Gone, Saved, Session, SessionId};
pub use self::stdio::{StdioOptions, serve_line, serve_stdio};
pub use self::tls::Certificate;
use crate::frame::{Limits, Notification, Reply, Request, RpcError};
use crate::mirror::Mirrors;
use crate::raw::Raw;

/// How a line reached us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// Our own stdin and stdout.
    Stdio,
    /// Streamable HTTP.
    Http,
}

/// What is known of a caller before it is let in.
#[derive(Debug)]
pub struct Opening<'a> {
    /// How it came.
    pub transport: Transport,
    /// The path it came in by (HTTP), or empty.
    pub path: &'a str,
    /// HTTP headers; empty on stdio.
    pub headers: &'a HeaderMap,
    /// The peer's address (HTTP).
    pub peer: Option<SocketAddr>,
}

/// Who the service says is on the line. Sessions and parked requests are bound to `key`.
#[derive(Clone)]
pub struct Tag {
    /// A stable name of the principal: another key cannot use this one's sessions.
    pub key: Arc<str>,
    /// Whatever the service wants to find again in `Session::tag`.
    pub value: Arc<dyn Any + Send + Sync>,
    /// Whether the caller showed a credential.
    pub credential: Shown,
}

/// Whether a caller showed a credential.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shown {
    /// It did, or is on a line that needs none.
    Yes,
    /// It did not: its sessions end sooner, and it shares its limits with everybody like it.
    No,
}

impl Tag {
    /// A tag of a key and a value.
    pub fn new(key: impl Into<Arc<str>>, value: Arc<dyn Any + Send + Sync>) -> Self {
        Self { key: key.into(), value, credential: Shown::Yes }
    }

    /// The tag of a caller that showed no credential.
    pub fn anonymous(self) -> Self {
        Self { credential: Shown::No, ..self }
    }

    /// The value, if it is a `T`.
    pub fn get<T: 'static>(&self) -> Option<&T> {
        self.value.downcast_ref()
    }
}

impl std::fmt::Debug for Tag {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Tag").field(&self.key).finish()
    }
}

/// An HTTP answer that ends a request before it becomes MCP.
#[derive(Debug, Clone)]
pub struct HttpRefusal {
    /// The status, such as 401.
    pub status: u16,
    /// Headers to add, such as `WWW-Authenticate`.
    pub headers: Vec<(String, String)>,
    /// A sentence for the person who reads it.
    pub message: String,
}

/// What the service says of itself in `initialize` and `server/discover`.
#[derive(Debug, Clone)]
pub struct Description {
    /// `{name, version, …}`.
    pub server_info: Raw,
    /// The server capabilities object.
    pub capabilities: Raw,
    /// Guidance for the model.
    pub instructions: Option<String>,
    /// How long a modern client may keep this, in milliseconds.
    pub ttl_ms: u64,
}

/// Why a session ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The line closed (stdio), or the listen stream ended (modern HTTP).
    LineClosed,
    /// The client deleted it.
    Deleted,
    /// It was idle for too long.
    Expired,
    /// We are going down; a persisted session may be restored later.
    Shutdown,
}

/// What a gateway implements. The wire itself answers `initialize`, `server/discover`, `ping` and `subscriptions/listen`,
/// and consumes `notifications/cancelled`; everything else arrives here.
pub trait Service: Send + Sync + 'static {
    /// Decides who is calling: once for a stdio line, for every HTTP request.
    fn authenticate(&self, opening: &Opening<'_>) -> impl Future<Output = Result<Tag, HttpRefusal>> + Send;

    /// What to say of ourselves to this client; the session's era and the client's capabilities are known.
    fn describe(&self, session: &Arc<Session>) -> impl Future<Output = Description> + Send;

    /// A session opened: `initialize` came, a modern stdio line sent its first message, or a modern HTTP listen stream opened.
    /// Plain modern HTTP requests open nothing. Keep the `Arc` to send unrelated notifications later.
    fn opened(&self, session: Arc<Session>) -> impl Future<Output = ()> + Send {
        let _ = session;
        async {}
    }

    /// A session that was opened (or restored) ended.
    fn closed(&self, session: Arc<Session>, end: End) -> impl Future<Output = ()> + Send {
        let _ = (session, end);
        async {}
    }

    /// An HTTP session id we do not know: what was saved of it, if anything. The wire has checked nothing yet; the saved
    /// session's tag key must equal `tag.key`, else the client gets 404.
    fn restore(&self, id: &SessionId, tag: &Tag) -> impl Future<Output = Option<Saved>> + Send {
        let _ = (id, tag);
        async { None }
    }

    /// A session was brought back: whoever keeps sessions to tell them something has this one again.
    fn restored(&self, session: Arc<Session>) -> impl Future<Output = ()> + Send {
        let _ = session;
        async {}
    }

    /// A client (modern) wants these notifications from now on; answer the part that will be honoured.
    fn listening(
        &self,
        session: &Arc<Session>,
        filter: ListenFilter,
    ) -> impl Future<Output = ListenFilter> + Send {
        let _ = session;
        async { filter }
    }

    /// A listen stream of this session ended; its filter no longer counts.
    fn unlistened(&self, session: &Arc<Session>, filter: ListenFilter) -> impl Future<Output = ()> + Send {
        let _ = (session, filter);
        async {}
    }

    /// Whether a request can be read in one way only. One that can't is not answered by the wire and resumes nothing: it goes
    /// to [`Service::request`], which says what is wrong with it.
    fn accepts(&self, request: &Request) -> bool {
        let _ = request;
        true
    }

    /// A request. The reply may be of either era: the wire says it in the client's (`resultType` and the like).
    /// Runs in a task of its own and is never aborted: watch `ctx.cancelled()`.
    fn request(&self, ctx: Ctx, request: Request) -> impl Future<Output = Reply> + Send;

    /// A retry whose `requestState` is not one to go on from; nothing of it is done. What the client is told instead of `error`.
    fn not_resumed(
        &self,
        ctx: &Ctx,
        request: &Request,
        error: RpcError,
    ) -> impl Future<Output = RpcError> + Send {
        let _ = (ctx, request);
        async { error }
    }

    /// A notification, in order with the others of its line; the line waits, so be quick.
    fn notification(
        &self,
        session: Arc<Session>,
        notification: Notification,
    ) -> impl Future<Output = ()> + Send {
        let _ = (session, notification);
        async {}
    }

    /// Which arguments of a tool a modern HTTP client must mirror as headers; `None` checks none of them.
    fn mirrors(
        &self,
        session: &Arc<Session>,
        tool: &str,
    ) -> impl Future<Output = Option<Arc<Mirrors>>> + Send {
        let _ = (session, tool);
        async { None }
    }

    /// How a session's replies travel over HTTP.
    fn replies(&self, session: &Session) -> Replies {
        let _ = session;
        Replies::Plain
    }

    /// Something on a line that a person may want to know of; nothing needs doing.
    fn noticed(&self, session: Option<&Session>, notice: Notice) {
        let _ = (session, notice);
    }
}

/// How replies of the session era travel over HTTP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replies {
    /// A reply that is there soon is one JSON body; only one that takes its time gets a stream.
    Plain,
    /// Every reply comes on a stream that can be taken up again.
    Streamed,
}

/// Things worth counting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notice {
    /// A frame that was no JSON-RPC message; it was answered with this error code.
    Malformed(i64),
    /// An answer to a question nobody is waiting for any more.
    LateAnswer,
    /// A notification could not be delivered because the client does not read.
    Undelivered,
}

/// What both fronts need to know.
#[derive(Debug, Clone)]
pub struct ServeOptions {
    /// Frame limits.
    pub limits: Limits,
    /// Seals the `requestState` of parked requests.
    pub seal: SealKey,
    /// How long a parked request waits for the client's answer.
    pub park_ttl: Duration,
    /// At most this many requests of one line (stdio) or principal (HTTP) run at once; sixteen times as many may wait.
    pub in_flight: usize,
}

impl ServeOptions {
    /// The usual limits with the given key.
    pub fn new(seal: SealKey) -> Self {
        Self { limits: Limits::default(), seal, park_ttl: Duration::from_secs(600), in_flight: 256 }
    }
}
