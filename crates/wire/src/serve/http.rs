//! Serving clients over streamable HTTP, both eras on one endpoint: sessions with an id for the older revisions, one POST per
//! request for the stateless one. It checks where a request comes from; who it is, the service says.

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

pub use self::body::{NoBody, read_body};

use super::connections::Guarded;
use super::dispatch::Front;
use super::events::EventLog;
use super::session::{Client, Outlet, Saved, Seat, Session, SessionId, lock};
use super::turns::Turns;
use super::{End, HttpRefusal, Opening, ServeOptions, Service, Shown, Tag, Transport};
use crate::era::Version;

pub(super) const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
pub(super) const VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
pub(super) const LAST_EVENT: HeaderName = HeaderName::from_static("last-event-id");
/// How many event streams of one session can be taken up again.
const KEEP_STREAMS: usize = 32;
/// How many bytes of them are kept when another begins.
const KEEP_BYTES: usize = 8 << 20;

/// How HTTP is served.
#[derive(Debug, Clone)]
pub struct HttpOptions {
    /// What all fronts share.
    pub serve: ServeOptions,
    /// Names this server is called by, with or without a port; `*` allows every name.
    pub allowed_hosts: Vec<String>,
    /// Origins besides our own that browsers may call from, such as `https://app.example.com`.
    pub allowed_origins: Vec<String>,
    /// How often a quiet stream says that it is alive.
    pub keep_alive: Duration,
    /// How long a reply may take before its client gets a stream to wait on instead of silence.
    pub stream_after: Duration,
    /// How long a session may go unused.
    pub session_idle: Duration,
    /// How long the session of a caller without a credential may go unused.
    pub anonymous_idle: Duration,
    /// How many sessions may be open.
    pub max_sessions: usize,
    /// How many of them may be one principal's; its least recently used idle one gives way to a new one.
    pub sessions_per_principal: usize,
    /// How many requests of one principal may be open at once, streams included.
    pub requests_per_principal: usize,
}

impl HttpOptions {
    /// For a listener on loopback.
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

/// A legacy session with its streams.
pub(super) struct Entry {
    pub(super) session: Arc<Session>,
    /// The stream of messages that belong to no request.
    pub(super) news: Arc<EventLog>,
    streams: Mutex<Vec<Arc<EventLog>>>,
    next_stream: AtomicU64,
    used: Mutex<Instant>,
}

impl Entry {
    /// A stream for the messages of one POST.
    pub(super) fn new_stream(&self) -> Arc<EventLog> {
        let log = EventLog::new(self.next_stream.fetch_add(1, Ordering::Relaxed));
        let mut streams = lock(&self.streams);
        let mut kept: usize = streams.iter().map(|log| log.bytes()).sum();
        while streams.len() >= KEEP_STREAMS || kept > KEEP_BYTES && !streams.is_empty() {
            kept = kept.saturating_sub(streams.remove(0).bytes());
        }
        streams.push(log.clone());
        log
    }

    /// Whether nobody is at it: no request in flight, no reader of its stream.
    fn is_idle(&self) -> bool {
        self.session.in_flight() == 0 && !self.news.is_read()
    }

    pub(super) fn stream(&self, number: u64) -> Option<Arc<EventLog>> {
        if number == self.news.stream {
            return Some(self.news.clone());
        }
        lock(&self.streams).iter().find(|log| log.stream == number).cloned()
    }
}

/// The HTTP face of a service; mount its routes where they belong.
pub struct HttpFront<S> {
    pub(super) front: Arc<Front<S>>,
    pub(super) options: HttpOptions,
    sessions: Mutex<HashMap<SessionId, Arc<Entry>>>,
    /// What each principal has running, whatever its sessions.
    turns: Mutex<HashMap<Arc<str>, Weak<Turns>>>,
}

impl<S: Service> HttpFront<S> {
    /// A front for a service.
    pub fn new(service: Arc<S>, options: HttpOptions) -> Arc<Self> {
        Arc::new(Self {
            front: Front::new(service, options.serve.clone()),
            options,
            sessions: Mutex::default(),
            turns: Mutex::default(),
        })
    }

    /// The MCP endpoint at `path`; merge as many as there are paths.
    pub fn routes(self: &Arc<Self>, path: &str) -> Router {
        let front = self.clone();
        let own: Arc<str> = path.into();
        Router::new().route(
            path,
            any(move |request: Request| {
                let (front, path) = (front.clone(), own.clone());
                async move { front.handle(path, request).await }
            }),
        )
    }

    /// Whether `Host` and `Origin` may call; for routes outside of MCP too.
    pub fn check_source(&self, headers: &HeaderMap) -> Result<(), HttpRefusal> {
        guard::check_source(&self.options, headers)
    }

    /// How many sessions are open.
    pub fn session_count(&self) -> usize {
        lock(&self.sessions).len()
    }

    /// Ends the streams that belong to no request: those that listen would keep a listener open that is to close.
    pub fn hush(&self) {
        lock(&self.sessions).values().for_each(|entry| entry.news.finish());
    }

    /// Ends all sessions; persisted ones may come back after a restart.
    pub async fn shutdown(&self) {
        let all: Vec<Arc<Entry>> = lock(&self.sessions).drain().map(|(_, entry)| entry).collect();
        for entry in all {
            self.end(&entry, End::Shutdown).await;
        }
    }

    async fn handle(self: Arc<Self>, path: Arc<str>, request: Request) -> Response {
        if let Err(refusal) = self.check_source(request.headers()) {
            return guard::refuse(refusal);
        }
        let peer = request.extensions().get::<ConnectInfo<SocketAddr>>().map(|info| info.0);
        let opening = Opening { transport: Transport::Http, path: &path, headers: request.headers(), peer };
        let tag = match self.front.service.authenticate(&opening).await {
            Ok(tag) => tag,
            Err(refusal) => return guard::refuse(refusal),
        };
        let Some(place) = self.turns(&tag).open_request(self.options.requests_per_principal) else {
            return guard::busy(
                StatusCode::TOO_MANY_REQUESTS,
                "too many requests of this principal are open",
            );
        };
        let response = match *request.method() {
            Method::POST => self.post(path, tag, request).await,
            Method::GET => self.get(&tag, request.headers()).await,
            Method::DELETE => self.delete(&tag, request.headers()).await,
            _ => guard::not_allowed(),
        };
        response.map(|body| Body::new(Guarded { body, _guard: place }))
    }

    /// Opens a legacy session.
    pub(super) async fn open(
        &self,
        path: Arc<str>,
        tag: Tag,
        version: Version,
        client: Client,
    ) -> Option<Arc<Entry>> {
        self.sweep().await;
        let entry = self.seat(new_id()?, path, tag, version, client);
        let kept = self.admit(entry.clone()).await?;
        self.front.service.opened(kept.session.clone()).await;
        Some(kept)
    }

    /// Adds a session to those that are open; `None` where there are too many and none can give way.
    ///
    /// A principal that has too many loses its own oldest idle one, so that nobody can use up the places of others.
    async fn admit(&self, entry: Arc<Entry>) -> Option<Arc<Entry>> {
        let (kept, ended) = {
            let mut sessions = lock(&self.sessions);
            // Two requests may bring the same session back at once: the first one stays.
            if let Some(known) = sessions.get(entry.session.id()) {
                return Some(known.clone());
            }
            let tag = entry.session.tag();
            let own = sessions.values().filter(|open| open.session.tag().key == tag.key).count();
            let ended = if own >= self.options.sessions_per_principal {
                Some(evict(&mut sessions, |open| open.key == tag.key)?)
            } else if sessions.len() >= self.options.max_sessions {
                let anonymous = evict(&mut sessions, |open| open.credential == Shown::No);
                Some(anonymous.or_else(|| evict(&mut sessions, |open| open.key == tag.key))?)
            } else {
                None
            };
            sessions.insert(entry.session.id().clone(), entry.clone());
            (entry, ended)
        };
        if let Some(ended) = ended {
            self.end(&ended, End::Expired).await;
        }
        Some(kept)
    }

    fn seat(&self, id: SessionId, path: Arc<str>, tag: Tag, version: Version, client: Client) -> Arc<Entry> {
        let news = EventLog::new(0);
        let turns = self.turns(&tag);
        let session = Session::new(
            Seat {
                id,
                transport: Transport::Http,
                version,
                path,
                tag,
                client,
                outlet: Outlet::Log(news.clone()),
                parking: self.front.parking.clone(),
            },
            turns,
        );
        Arc::new(Entry {
            session,
            news,
            streams: Mutex::default(),
            next_stream: AtomicU64::new(1),
            used: Mutex::new(Instant::now()),
        })
    }

    /// The turns of a principal, shared by all its requests.
    pub(super) fn turns(&self, tag: &Tag) -> Arc<Turns> {
        let mut all = lock(&self.turns);
        if let Some(turns) = all.get(&tag.key).and_then(Weak::upgrade) {
            return turns;
        }
        all.retain(|_, turns| turns.strong_count() > 0);
        let turns = Turns::new(self.options.serve.in_flight);
        all.insert(tag.key.clone(), Arc::downgrade(&turns));
        turns
    }

    /// The session a request names: known, or brought back by the service; only for its own principal.
    pub(super) async fn find(&self, tag: &Tag, headers: &HeaderMap) -> Result<Arc<Entry>, Response> {
        let Some(name) = headers.get(&SESSION).and_then(|value| value.to_str().ok()) else {
            return Err(guard::plain(StatusCode::BAD_REQUEST, "header `Mcp-Session-Id` is required"));
        };
        // Unknown and foreign sessions look the same.
        let unknown = || guard::plain(StatusCode::NOT_FOUND, "the session is unknown or has ended");
        let id = SessionId::new(name);
        let known = lock(&self.sessions).get(&id).cloned();
        let entry = match known {
            Some(entry) => entry,
            None => self.restore(id, tag).await.ok_or_else(unknown)?,
        };
        if entry.session.tag().key != tag.key || entry.session.is_ended() {
            return Err(unknown());
        }
        *lock(&entry.used) = Instant::now();
        Ok(entry)
    }

    async fn restore(&self, id: SessionId, tag: &Tag) -> Option<Arc<Entry>> {
        let saved = self.front.service.restore(&id, tag).await?;
        let Saved { tag_key, version, path, client_info, capabilities } = saved;
        if *tag_key != *tag.key {
            return None;
        }
        let client = Client { info: client_info, capabilities };
        let entry = self.seat(id, path.into(), tag.clone(), version, client);
        let kept = self.admit(entry.clone()).await?;
        if Arc::ptr_eq(&kept, &entry) {
            self.front.service.restored(entry.session.clone()).await;
        }
        Some(kept)
    }

    async fn delete(&self, tag: &Tag, headers: &HeaderMap) -> Response {
        if !headers.contains_key(&SESSION) || guard::is_modern(headers) {
            return guard::not_allowed();
        }
        let entry = match self.find(tag, headers).await {
            Ok(entry) => entry,
            Err(response) => return response,
        };
        lock(&self.sessions).remove(entry.session.id());
        self.end(&entry, End::Deleted).await;
        guard::empty(StatusCode::NO_CONTENT)
    }

    async fn end(&self, entry: &Entry, end: End) {
        entry.news.finish();
        if entry.session.end() {
            self.front.service.closed(entry.session.clone(), end).await;
        }
    }

    /// Ends sessions nobody used for long.
    async fn sweep(&self) {
        let stale: Vec<Arc<Entry>> = {
            let mut sessions = lock(&self.sessions);
            let old = |entry: &Arc<Entry>| {
                let idle = match entry.session.tag().credential {
                    Shown::Yes => self.options.session_idle,
                    Shown::No => self.options.anonymous_idle,
                };
                lock(&entry.used).elapsed() > idle && entry.is_idle()
            };
            let names: Vec<SessionId> =
                sessions.iter().filter(|(_, entry)| old(entry)).map(|(name, _)| name.clone()).collect();
            names.iter().filter_map(|name| sessions.remove(name)).collect()
        };
        for entry in stale {
            self.end(&entry, End::Expired).await;
        }
    }
}

/// Takes out the least recently used idle session among those of some callers.
fn evict(sessions: &mut HashMap<SessionId, Arc<Entry>>, of: impl Fn(&Tag) -> bool) -> Option<Arc<Entry>> {
    let idle = sessions.values().filter(|entry| of(entry.session.tag()) && entry.is_idle());
    let oldest = idle.min_by_key(|entry| *lock(&entry.used))?.session.id().clone();
    sessions.remove(&oldest)
}

/// A session id nobody can guess.
fn new_id() -> Option<SessionId> {
    let mut bytes = [0u8; 16];
    SystemRandom::new().fill(&mut bytes).ok()?;
    let text: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    Some(SessionId::new(text))
}

pub(super) fn full(bytes: Vec<u8>) -> Body {
    Body::from(bytes)
}
