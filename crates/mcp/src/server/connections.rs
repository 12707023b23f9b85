//! The HTTP listener: how many connections may be open, and how long each may stall. A connection without a complete request is
//! evicted for a new one, so that half-sent requests lock nobody out.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use ::http::{Request, Response};
use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tower_service::Service as _;

use super::session::lock;
use super::tls::Certificate;
use crate::one_shot_flag::OneShotFlag;

/// How long a new connection is safe from eviction.
const GRACE: Duration = Duration::from_millis(500);
/// The pause before accepting is tried again.
const PAUSE: Duration = Duration::from_millis(50);
/// The longest request head; hyper reads bodies in pieces of at most this size.
const BUFFER: usize = 128 << 10;

#[derive(Debug, Clone, Copy)]
pub struct ConnectionLimits {
    pub total: usize,
    /// Connections of one peer. Peers on this machine are limited by `total` alone.
    pub per_peer: usize,
    /// The time limit of a TLS handshake, and of a request head.
    pub header_timeout: Duration,
    /// How long a connection may have no request, or may not accept our bytes.
    pub idle_timeout: Duration,
}

impl Default for ConnectionLimits {
    fn default() -> Self {
        Self {
            total: 512,
            per_peer: 128,
            header_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(120),
        }
    }
}

/// Serves a router until `until` resolves; over TLS if there is a certificate.
pub async fn listen(
    listener: TcpListener,
    certificate: Option<Certificate>,
    router: Router,
    limits: ConnectionLimits,
    until: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    let tls = certificate.map(Certificate::acceptor);
    let connections = Arc::new(ConnectionRegistry { limits, open: Mutex::default() });
    let closing = Arc::new(OneShotFlag::default());
    let mut tasks = JoinSet::new();
    let mut until = pin!(until);
    let mut number = 0u64;
    loop {
        // Without room, new connections wait in the backlog of the system.
        let room = connections.make_room();
        tokio::select! {
            () = &mut until => break,
            Some(_) = tasks.join_next(), if !tasks.is_empty() => {}
            () = tokio::time::sleep(PAUSE), if !room => {}
            accepted = listener.accept(), if room => match accepted {
                Ok((stream, peer)) => {
                    number += 1;
                    if let Some(link) = connections.admit(number, peer) {
                        let served = ServedConnection { link, router: router.clone(), limits, closing: closing.clone() };
                        let (tls, connections) = (tls.clone(), connections.clone());
                        tasks.spawn(async move {
                            served.serve(stream, tls).await;
                            connections.forget(number);
                        });
                    }
                }
                // Too many open files, for example: evict one that is not in use.
                Err(_) => {
                    lock(&connections.open).evict(None);
                    tokio::time::sleep(PAUSE).await;
                }
            },
        }
    }
    drop(listener);
    closing.raise();
    while tasks.join_next().await.is_some() {}
    Ok(())
}

/// Ordered by how soon a connection may be evicted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    /// An incomplete handshake or head.
    Head,
    Idle,
    /// The head is complete, the body is not.
    Body,
    /// A complete request is being answered.
    Busy,
}

#[derive(Debug)]
struct ConnectionProgress {
    phase: Phase,
    since: Instant,
    /// Since when the peer accepts none of our bytes.
    stalled: Option<Instant>,
}

/// One open connection, as the registry sees it.
#[derive(Debug)]
struct ConnectionHandle {
    peer: SocketAddr,
    state: Mutex<ConnectionProgress>,
    evicted: OneShotFlag,
}

impl ConnectionHandle {
    fn enter(&self, phase: Phase) {
        let mut state = lock(&self.state);
        (state.phase, state.since) = (phase, Instant::now());
    }

    /// Changes the phase if it is `from`.
    fn leave(&self, from: Phase, to: Phase) {
        let mut state = lock(&self.state);
        if state.phase == from {
            (state.phase, state.since) = (to, Instant::now());
        }
    }

    fn stall(&self, is_stalled: bool) {
        let mut state = lock(&self.state);
        state.stalled = if is_stalled { state.stalled.or_else(|| Some(Instant::now())) } else { None };
    }

    fn is_overdue(&self, limits: &ConnectionLimits) -> bool {
        let state = lock(&self.state);
        let stalled = state.stalled.is_some_and(|since| since.elapsed() >= limits.idle_timeout);
        stalled
            || match state.phase {
                Phase::Head => state.since.elapsed() >= limits.header_timeout,
                Phase::Idle => state.since.elapsed() >= limits.idle_timeout,
                // The handlers limit the time of a body and of a response.
                Phase::Body | Phase::Busy => false,
            }
    }

    /// The order of eviction; none for a connection that is in use.
    fn rank(&self) -> Option<(Phase, Instant)> {
        let state = lock(&self.state);
        match state.phase {
            Phase::Busy => None,
            Phase::Head | Phase::Body if state.since.elapsed() < GRACE => None,
            phase @ (Phase::Head | Phase::Idle | Phase::Body) => Some((phase, state.since)),
        }
    }
}

/// The key that counts as one peer; none where only the total counts. The lower half of an IPv6 address is free to choose.
fn peer_key(address: SocketAddr) -> Option<IpAddr> {
    match address.ip().to_canonical() {
        ip if ip.is_loopback() => None,
        IpAddr::V6(ip) => Some(IpAddr::V6(Ipv6Addr::from_bits(ip.to_bits() >> 64 << 64))),
        ip @ IpAddr::V4(_) => Some(ip),
    }
}

#[derive(Debug, Default)]
struct OpenConnections(BTreeMap<u64, Arc<ConnectionHandle>>);

impl OpenConnections {
    /// Evicts the least useful connection, of one peer or of all; false where there is none.
    fn evict(&mut self, of: Option<IpAddr>) -> bool {
        let spare = self.0.iter().filter(|(_, link)| of.is_none() || peer_key(link.peer) == of);
        let spare = spare.filter_map(|(number, link)| Some((link.rank()?, *number))).min();
        let Some(link) = spare.and_then(|(_, number)| self.0.remove(&number)) else { return false };
        link.evicted.raise();
        true
    }
}

struct ConnectionRegistry {
    limits: ConnectionLimits,
    open: Mutex<OpenConnections>,
}

impl ConnectionRegistry {
    /// Whether one more connection can be accepted, after an eviction if need be.
    fn make_room(&self) -> bool {
        let mut open = lock(&self.open);
        open.0.len() < self.limits.total || open.evict(None)
    }

    /// Registers a connection, unless its peer has too many in use.
    fn admit(&self, number: u64, peer: SocketAddr) -> Option<Arc<ConnectionHandle>> {
        let mut open = lock(&self.open);
        if let Some(key) = peer_key(peer) {
            let held = open.0.values().filter(|link| peer_key(link.peer) == Some(key)).count();
            if held >= self.limits.per_peer && !open.evict(Some(key)) {
                return None;
            }
        }
        let state = ConnectionProgress { phase: Phase::Head, since: Instant::now(), stalled: None };
        let link =
            Arc::new(ConnectionHandle { peer, state: Mutex::new(state), evicted: OneShotFlag::default() });
        open.0.insert(number, link.clone());
        Some(link)
    }

    fn forget(&self, number: u64) {
        lock(&self.open).0.remove(&number);
    }
}

struct ServedConnection {
    link: Arc<ConnectionHandle>,
    router: Router,
    limits: ConnectionLimits,
    closing: Arc<OneShotFlag>,
}

impl ServedConnection {
    async fn serve(self, stream: TcpStream, tls: Option<TlsAcceptor>) {
        // A socket without the option is slower, not wrong.
        let _ = stream.set_nodelay(true);
        let Some(tls) = tls else { return self.requests(stream).await };
        let handshake = tokio::select! {
            done = tokio::time::timeout(self.limits.header_timeout, tls.accept(stream)) => done,
            () = self.link.evicted.wait() => return,
            () = self.closing.wait() => return,
        };
        // A failed handshake leaves no way to report why.
        if let Ok(Ok(stream)) = handshake {
            self.link.enter(Phase::Head);
            self.requests(stream).await;
        }
    }

    async fn requests(self, stream: impl AsyncRead + AsyncWrite + Unpin) {
        let Self { link, router, limits, closing } = self;
        let stream = TokioIo::new(WatchedStream { stream, link: link.clone() });
        let answering = link.clone();
        let service = service_fn(move |request| answer(answering.clone(), router.clone(), request));
        let mut connection =
            pin!(http1::Builder::new().max_buf_size(BUFFER).serve_connection(stream, service));
        let tick = (limits.header_timeout.min(limits.idle_timeout) / 4)
            .clamp(Duration::from_millis(10), Duration::from_secs(1));
        let mut is_closing = false;
        loop {
            tokio::select! {
                // A broken connection leaves no one to report to.
                _ = connection.as_mut() => return,
                () = tokio::time::sleep(tick) => {
                    if link.is_overdue(&limits) {
                        return;
                    }
                }
                () = link.evicted.wait() => return,
                () = closing.wait(), if !is_closing => {
                    is_closing = true;
                    if lock(&link.state).phase <= Phase::Idle {
                        return;
                    }
                    connection.as_mut().graceful_shutdown();
                }
            }
        }
    }
}

/// Answers one request and tracks the phase of its connection.
async fn answer(
    link: Arc<ConnectionHandle>,
    mut router: Router,
    mut request: Request<Incoming>,
) -> Result<Response<GuardedBody<AnsweringGuard>>, Infallible> {
    link.enter(if request.body().is_end_stream() { Phase::Busy } else { Phase::Body });
    request.extensions_mut().insert(ConnectInfo(link.peer));
    let arriving = link.clone();
    let request = request.map(|body| Body::new(IncomingBody { body, link: arriving }));
    // A router is always ready.
    let response = router.call(request).await?;
    Ok(response.map(|body| GuardedBody { body, _guard: AnsweringGuard(link) }))
}

struct IncomingBody {
    body: Incoming,
    link: Arc<ConnectionHandle>,
}

impl HttpBody for IncomingBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        if matches!(polled, Poll::Ready(None)) {
            self.link.leave(Phase::Body, Phase::Busy);
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for IncomingBody {
    fn drop(&mut self) {
        self.link.leave(Phase::Body, Phase::Busy);
    }
}

/// A response body with a guard that is dropped after the last byte.
pub(super) struct GuardedBody<G> {
    pub(super) body: Body,
    pub(super) _guard: G,
}

impl<G: Unpin> HttpBody for GuardedBody<G> {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A request being answered; its connection becomes idle when this is dropped.
struct AnsweringGuard(Arc<ConnectionHandle>);

impl Drop for AnsweringGuard {
    fn drop(&mut self) {
        self.0.enter(Phase::Idle);
    }
}

/// Reports reads and stalled writes to the connection's handle.
struct WatchedStream<T> {
    stream: T,
    link: Arc<ConnectionHandle>,
}

impl<T: AsyncRead + Unpin> AsyncRead for WatchedStream<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(cx, buffer);
        if buffer.filled().len() > before {
            // The first byte of the next request.
            self.link.leave(Phase::Idle, Phase::Head);
        }
        polled
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for WatchedStream<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.link.stall(polled.is_pending());
        polled
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write_vectored(cx, parts);
        self.link.stall(polled.is_pending());
        polled
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attack_06_one_peer_is_one_address_or_one_network() {
        let key = |text: &str| peer_key(text.parse().unwrap());
        assert_eq!(key("127.0.0.1:1"), None);
        assert_eq!(key("[::ffff:127.0.0.1]:1"), None);
        assert_eq!(key("192.0.2.1:1"), key("192.0.2.1:2"));
        assert_ne!(key("192.0.2.1:1"), key("192.0.2.2:1"));
        assert_eq!(key("[2001:db8::1]:1"), key("[2001:db8::ffff:1]:9"));
        assert_ne!(key("[2001:db8::1]:1"), key("[2001:db8:0:1::1]:1"));
    }

    #[test]
    fn attack_06_a_peer_has_its_share_and_what_is_in_use_does_not_give_way() {
        let limits = ConnectionLimits { total: 4, per_peer: 2, ..ConnectionLimits::default() };
        let connections = ConnectionRegistry { limits, open: Mutex::default() };
        let (one, other) = ("192.0.2.1:1".parse().unwrap(), "192.0.2.2:1".parse().unwrap());
        let first = connections.admit(1, one).unwrap();
        let second = connections.admit(2, one).unwrap();
        first.enter(Phase::Busy);
        assert!(connections.admit(3, one).is_none(), "a new connection keeps its place for a moment");
        second.enter(Phase::Idle);
        let third = connections.admit(3, one).unwrap();
        assert!(second.evicted.is_raised() && !first.evicted.is_raised());
        third.enter(Phase::Busy);
        assert!(connections.admit(4, one).is_none());
        for number in [5, 6] {
            assert!(connections.make_room());
            connections.admit(number, other).unwrap().enter(Phase::Busy);
        }
        assert!(!connections.make_room());
        first.enter(Phase::Idle);
        assert!(connections.make_room() && first.evicted.is_raised());
    }
}
