//! Serves clients over streamable HTTP, both eras on one endpoint: sessions with an id for the legacy revisions, one POST per request
//! for the stateless one. It checks `Host` and `Origin`; the service authenticates.

mod body;
mod guard;
mod post;
mod stream;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use ::http::{HeaderMap, HeaderName, Method, StatusCode};
use axum::Router;
use axum::body::Body;
use axum::extract::{ConnectInfo, Request};
use axum::response::Response;
use axum::routing::any;
use ring::rand::{SecureRandom, SystemRandom};

pub use self::body::{BodyError, read_body};

use super::concurrency::ConcurrencyLimiter;
use super::connections::GuardedBody;
use super::dispatcher::Dispatcher;
use super::event_log::EventLog;
use super::session::{ClientInfo, SavedSession, Session, SessionId, SessionOutlet, SessionParams, lock};
use super::{
    CallerIdentity, CallerInfo, CredentialStatus, HttpRefusal, ServeOptions, Service, SessionEnd, Transport,
};
use crate::era::Version;

pub(super) const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
pub(super) const VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
pub(super) const LAST_EVENT: HeaderName = HeaderName::from_static("last-event-id");
/// How many event streams of one session can be resumed.
const KEEP_STREAMS: usize = 32;
/// How many of their bytes are kept when another stream begins.
const KEEP_BYTES: usize = 8 << 20;

#[derive(Debug, Clone)]
pub struct HttpOptions {
    pub serve: ServeOptions,
    /// Accepted `Host` names, with or without a port; `*` accepts all.
    pub allowed_hosts: Vec<String>,
    /// Accepted origins besides our own, such as `https://app.example.com`.
    pub allowed_origins: Vec<String>,
    /// The interval of keep-alive comments on a quiet stream.
    pub keep_alive: Duration,
    /// After how long a slow reply gets a stream.
    pub stream_after: Duration,
    pub session_idle: Duration,
    /// The idle timeout of callers without a credential.
    pub anonymous_idle: Duration,
    pub max_sessions: usize,
    /// The least recently used idle session of a principal is evicted for a new one.
    pub sessions_per_principal: usize,
    /// Open requests of one principal, streams included.
    pub requests_per_principal: usize,
}

impl HttpOptions {
    pub fn loopback(serve: ServeOptions) -> Self {
        Self {
            serve,
            allowed_hosts: ["localhost", "127.0.0.1", "[::1]"].map(str::to_owned).to_vec(),
            allowed_origins: Vec::new(),
            keep_alive: Duration::from_secs(15),
            stream_after: Duration::from_millis(200),
            session_idle: Duration::from_secs(24 * 3600),
            anonymous_idle: Duration::from_secs(30 * 60),
            max_sessions: 10_000,
            sessions_per_principal: 64,
            requests_per_principal: 256,
        }
    }
}

/// A legacy session with its event streams.
pub(super) struct LegacySession {
    pub(super) session: Arc<Session>,
    /// The stream of notifications that belong to no request.
    pub(super) news: Arc<EventLog>,
    streams: Mutex<Vec<Arc<EventLog>>>,
    next_stream: AtomicU64,
    used: Mutex<Instant>,
}

impl LegacySession {
    /// A stream for the messages of one POST.
    pub(super) fn new_stream(&self) -> Arc<EventLog> {
        let log = EventLog::new(self.next_stream.fetch_add(1, Ordering::Relaxed));
        let mut streams = lock(&self.streams);
        let mut kept: usize = streams.iter().map(|log| log.bytes()).sum();
        // Oldest first: a client resumes the stream it lost last.
        while streams.len() >= KEEP_STREAMS || kept > KEEP_BYTES && !streams.is_empty() {
            kept = kept.saturating_sub(streams.remove(0).bytes());
        }
        streams.push(log.clone());
        log
    }

    /// Whether it has no request in flight and no reader of its stream.
    fn is_idle(&self) -> bool {
        // A connected but quiet client is not idle: ending its session would lose its notifications.
        self.session.in_flight() == 0 && !self.news.is_read()
    }

    pub(super) fn stream(&self, number: u64) -> Option<Arc<EventLog>> {
        if number == self.news.stream {
            return Some(self.news.clone());
        }
        lock(&self.streams).iter().find(|log| log.stream == number).cloned()
    }
}

/// Serves a service over HTTP; mount its routes in a router.
pub struct HttpServer<S> {
    pub(super) dispatcher: Arc<Dispatcher<S>>,
    pub(super) options: HttpOptions,
    sessions: Mutex<HashMap<SessionId, Arc<LegacySession>>>,
    /// The running requests of each principal, across its sessions.
    limiter: Mutex<HashMap<Arc<str>, Weak<ConcurrencyLimiter>>>,
}

impl<S: Service> HttpServer<S> {
    pub fn new(service: Arc<S>, options: HttpOptions) -> Arc<Self> {
        Arc::new(Self {
            dispatcher: Dispatcher::new(service, options.serve.clone()),
            options,
            sessions: Mutex::default(),
            limiter: Mutex::default(),
        })
    }

    /// The MCP endpoint at `path`.
    pub fn routes(self: &Arc<Self>, path: &str) -> Router {
        let dispatcher = self.clone();
        let own: Arc<str> = path.into();
        Router::new().route(
            path,
            any(move |request: Request| {
                let (dispatcher, path) = (dispatcher.clone(), own.clone());
                async move { dispatcher.handle(path, request).await }
            }),
        )
    }

    /// Checks `Host` and `Origin`; for routes outside of MCP too.
    pub fn check_source(&self, headers: &HeaderMap) -> Result<(), HttpRefusal> {
        guard::check_source(&self.options, headers)
    }

    pub fn session_count(&self) -> usize {
        lock(&self.sessions).len()
    }

    /// Ends the streams that belong to no request: open GET streams would keep a closing listener alive.
    pub fn close_event_streams(&self) {
        lock(&self.sessions).values().for_each(|entry| entry.news.finish());
    }

    /// Ends all sessions; persisted ones may be restored after a restart.
    pub async fn shutdown(&self) {
        let all: Vec<Arc<LegacySession>> = lock(&self.sessions).drain().map(|(_, entry)| entry).collect();
        for entry in all {
            self.end(&entry, SessionEnd::Shutdown).await;
        }
    }

    async fn handle(self: Arc<Self>, path: Arc<str>, request: Request) -> Response {
        // Before authentication: a web page must not even learn whether a credential is valid.
        if let Err(refusal) = self.check_source(request.headers()) {
            return guard::refuse(refusal);
        }
        let peer = request.extensions().get::<ConnectInfo<SocketAddr>>().map(|info| info.0);
        let opening =
            CallerInfo { transport: Transport::Http, path: &path, headers: request.headers(), peer };
        let identity = match self.dispatcher.service.authenticate(&opening).await {
            Ok(identity) => identity,
            Err(refusal) => return guard::refuse(refusal),
        };
        // After authentication, so that the limit is per principal; before the body is read, so that a flood costs no
        // memory.
        let Some(place) = self.limiter(&identity).open_request(self.options.requests_per_principal) else {
            return guard::busy(
                StatusCode::TOO_MANY_REQUESTS,
                "too many requests of this principal are open",
            );
        };
        let response = match *request.method() {
            Method::POST => self.post(path, identity, request).await,
            Method::GET => self.get(&identity, request.headers()).await,
            Method::DELETE => self.delete(&identity, request.headers()).await,
            _ => guard::not_allowed(),
        };
        // The place is held until the body is sent: an open stream is an open request.
        response.map(|body| Body::new(GuardedBody { body, _guard: place }))
    }

    pub(super) async fn open(
        &self,
        path: Arc<str>,
        identity: CallerIdentity,
        version: Version,
        client: ClientInfo,
    ) -> Option<Arc<LegacySession>> {
        // Swept when a session opens, not by a timer: only then does the number matter.
        self.sweep().await;
        let entry = self.new_session(new_id()?, path, identity, version, client);
        let kept = self.admit(entry.clone()).await?;
        self.dispatcher.service.opened(kept.session.clone()).await;
        Some(kept)
    }

    /// Registers a session; `None` where there are too many and none can be evicted.
    ///
    /// A principal with too many loses its own oldest idle one, so that nobody can use up the places of others.
    async fn admit(&self, entry: Arc<LegacySession>) -> Option<Arc<LegacySession>> {
        let (kept, ended) = {
            let mut sessions = lock(&self.sessions);
            // Two requests may restore the same session concurrently: the first wins.
            if let Some(known) = sessions.get(entry.session.id()) {
                return Some(known.clone());
            }
            let identity = entry.session.identity();
            let own = sessions.values().filter(|open| open.session.identity().key == identity.key).count();
            let ended = if own >= self.options.sessions_per_principal {
                Some(evict(&mut sessions, |open| open.key == identity.key)?)
            } else if sessions.len() >= self.options.max_sessions {
                // Callers without a credential give way first: anybody can open such sessions.
                let anonymous = evict(&mut sessions, |open| open.credential == CredentialStatus::No);
                Some(anonymous.or_else(|| evict(&mut sessions, |open| open.key == identity.key))?)
            } else {
                None
            };
            sessions.insert(entry.session.id().clone(), entry.clone());
            (entry, ended)
        };
        if let Some(ended) = ended {
            self.end(&ended, SessionEnd::Expired).await;
        }
        Some(kept)
    }

    fn new_session(
        &self,
        id: SessionId,
        path: Arc<str>,
        identity: CallerIdentity,
        version: Version,
        client: ClientInfo,
    ) -> Arc<LegacySession> {
        let news = EventLog::new(0);
        let limiter = self.limiter(&identity);
        let session = Session::new(
            SessionParams {
                id,
                transport: Transport::Http,
                version,
                path,
                identity,
                client,
                outlet: SessionOutlet::Log(news.clone()),
                parking: self.dispatcher.parking.clone(),
            },
            limiter,
        );
        Arc::new(LegacySession {
            session,
            news,
            streams: Mutex::default(),
            next_stream: AtomicU64::new(1),
            used: Mutex::new(Instant::now()),
        })
    }

    /// The limiter of a principal, shared by all its requests.
    pub(super) fn limiter(&self, identity: &CallerIdentity) -> Arc<ConcurrencyLimiter> {
        let mut all = lock(&self.limiter);
        if let Some(limiter) = all.get(&identity.key).and_then(Weak::upgrade) {
            return limiter;
        }
        // Principals come and go; without this the map would grow with every name ever seen.
        all.retain(|_, limiter| limiter.strong_count() > 0);
        let limiter = ConcurrencyLimiter::new(self.options.serve.in_flight);
        all.insert(identity.key.clone(), Arc::downgrade(&limiter));
        limiter
    }

    /// Finds the session a request names, in memory or through the service; only for its own principal.
    pub(super) async fn find(
        &self,
        identity: &CallerIdentity,
        headers: &HeaderMap,
    ) -> Result<Arc<LegacySession>, Response> {
        let Some(name) = headers.get(&SESSION).and_then(|value| value.to_str().ok()) else {
            return Err(guard::plain(StatusCode::BAD_REQUEST, "header `Mcp-Session-Id` is required"));
        };
        // Unknown and foreign sessions get the same answer.
        let unknown = || guard::plain(StatusCode::NOT_FOUND, "the session is unknown or has ended");
        let id = SessionId::new(name);
        let known = lock(&self.sessions).get(&id).cloned();
        let entry = match known {
            Some(entry) => entry,
            None => self.restore(id, identity).await.ok_or_else(unknown)?,
        };
        if entry.session.identity().key != identity.key || entry.session.is_ended() {
            return Err(unknown());
        }
        *lock(&entry.used) = Instant::now();
        Ok(entry)
    }

    async fn restore(&self, id: SessionId, identity: &CallerIdentity) -> Option<Arc<LegacySession>> {
        let saved = self.dispatcher.service.restore(&id, identity).await?;
        let SavedSession { identity_key, version, path, client_info, capabilities } = saved;
        // The id alone must not open a session: it may have leaked in a log of the client.
        if *identity_key != *identity.key {
            return None;
        }
        let client = ClientInfo { info: client_info, capabilities };
        let entry = self.new_session(id, path.into(), identity.clone(), version, client);
        let kept = self.admit(entry.clone()).await?;
        // Another request may have restored it at the same time; the service hears of it once.
        if Arc::ptr_eq(&kept, &entry) {
            self.dispatcher.service.restored(entry.session.clone()).await;
        }
        Some(kept)
    }

    async fn delete(&self, identity: &CallerIdentity, headers: &HeaderMap) -> Response {
        if !headers.contains_key(&SESSION) || guard::is_modern(headers) {
            return guard::not_allowed();
        }
        let entry = match self.find(identity, headers).await {
            Ok(entry) => entry,
            Err(response) => return response,
        };
        // Removed first, so that no new request finds a session that is ending.
        lock(&self.sessions).remove(entry.session.id());
        self.end(&entry, SessionEnd::Deleted).await;
        guard::empty(StatusCode::NO_CONTENT)
    }

    async fn end(&self, entry: &LegacySession, end: SessionEnd) {
        entry.news.finish();
        if entry.session.end() {
            self.dispatcher.service.closed(entry.session.clone(), end).await;
        }
    }

    /// Ends sessions that were idle for too long.
    async fn sweep(&self) {
        let stale: Vec<Arc<LegacySession>> = {
            let mut sessions = lock(&self.sessions);
            let old = |entry: &Arc<LegacySession>| {
                let idle = match entry.session.identity().credential {
                    CredentialStatus::Yes => self.options.session_idle,
                    CredentialStatus::No => self.options.anonymous_idle,
                };
                lock(&entry.used).elapsed() > idle && entry.is_idle()
            };
            let names: Vec<SessionId> =
                sessions.iter().filter(|(_, entry)| old(entry)).map(|(name, _)| name.clone()).collect();
            names.iter().filter_map(|name| sessions.remove(name)).collect()
        };
        for entry in stale {
            self.end(&entry, SessionEnd::Expired).await;
        }
    }
}

/// Removes the least recently used idle session of some callers.
fn evict(
    sessions: &mut HashMap<SessionId, Arc<LegacySession>>,
    of: impl Fn(&CallerIdentity) -> bool,
) -> Option<Arc<LegacySession>> {
    let idle = sessions.values().filter(|entry| of(entry.session.identity()) && entry.is_idle());
    let oldest = idle.min_by_key(|entry| *lock(&entry.used))?.session.id().clone();
    sessions.remove(&oldest)
}

fn new_id() -> Option<SessionId> {
    // 128 random bits: over HTTP the id is the only link between requests and must not be guessable.
    let mut bytes = [0u8; 16];
    SystemRandom::new().fill(&mut bytes).ok()?;
    let text: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    Some(SessionId::new(text))
}

pub(super) fn full(bytes: Vec<u8>) -> Body {
    Body::from(bytes)
}
