//! The link to an HTTP upstream: one POST per message, replies as JSON or as an event stream, and a GET stream for the notifications of
//! a legacy session. A lost stream is resumed; a request is never sent again, and no redirect is followed.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, LOCATION, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, Uri};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use tokio::task::AbortHandle;

use super::address_rule::{check_literal, default_address_rule};
use super::http_transport::{self, MediaType, connect_fault, media_type, read_limited, unknown};
use super::pending_requests::{PendingRequests, ReplyWaiter, UpstreamSender, cancelled_bytes, excerpt};
use super::sse::{SseEvent, SseParser};
use super::{BoxFuture, HttpSpec, Observer, RetryDecision, UpstreamAnomaly};
use crate::era::{Era, Version};
use crate::fault::{FaultKind, TransportFault};
use crate::jsonrpc::{self, Frame, FrameLimits, Message};
use crate::server::lock;

const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
const VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
const LAST_EVENT: HeaderName = HeaderName::from_static("last-event-id");
/// How much of an error body is kept.
const ERROR_BYTES: usize = 64 << 10;
/// How often a lost stream is resumed before its request fails.
const RESUMES: usize = 8;
/// The pause before a stream is resumed, unless the upstream sets one.
const RESUME_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

pub(super) struct HttpLink {
    pub(super) pending: Arc<PendingRequests>,
    client: http_transport::PooledHttpClient,
    uri: Uri,
    spec: HttpSpec,
    headers: HeaderMap,
    limits: FrameLimits,
    session: Mutex<Option<HeaderValue>>,
    /// The revision named in headers; none while a legacy session is being opened.
    version: Mutex<Option<Version>>,
    news: Mutex<Option<AbortHandle>>,
}

/// Answers the upstream with a POST of its own.
struct PostSender(Arc<HttpLink>);

impl UpstreamSender for PostSender {
    fn send(&self, bytes: Vec<u8>) -> BoxFuture<'_, Result<(), TransportFault>> {
        Box::pin(self.0.post_notice(bytes))
    }

    fn send_now(&self, bytes: Vec<u8>) {
        let link = self.0.clone();
        tokio::spawn(async move { link.post_notice(bytes).await });
    }
}

impl HttpLink {
    pub(super) fn start(
        spec: &HttpSpec,
        observer: Arc<dyn Observer>,
        limits: FrameLimits,
    ) -> Result<Arc<Self>, TransportFault> {
        let wrong = |reason: String| TransportFault::unsent(FaultKind::Connect(reason));
        let uri: Uri = spec.url.parse().map_err(|_| wrong(format!("`{}` is not a URL", spec.url)))?;
        let rule = spec.addresses.clone().unwrap_or_else(|| Arc::new(default_address_rule));
        let host = uri.host().ok_or_else(|| wrong(format!("`{}` names no host", spec.url)))?;
        // A literal address never reaches the resolver, where names are checked.
        check_literal(host, &rule)?;
        let mut headers = HeaderMap::new();
        for (name, value) in &spec.headers {
            let name = HeaderName::from_bytes(name.as_bytes())
                .map_err(|_| wrong(format!("`{name}` is no header")))?;
            let mut value = HeaderValue::from_str(value)
                .map_err(|_| wrong(format!("the value of `{name}` cannot be sent")))?;
            // Kept out of debug output.
            value.set_sensitive(true);
            headers.append(name, value);
        }
        let client = http_transport::client(&uri, rule, spec.connect_timeout)?;
        Ok(Arc::new(Self {
            pending: PendingRequests::new(observer),
            client,
            uri,
            spec: spec.clone(),
            headers,
            limits,
            session: Mutex::default(),
            version: Mutex::default(),
            news: Mutex::default(),
        }))
    }

    pub(super) fn set_version(&self, version: Version) {
        *lock(&self.version) = Some(version);
    }

    fn era(&self) -> Era {
        lock(&self.version).map_or(Era::Legacy, Version::era)
    }

    /// Sends a request, once more if it was rejected for its token and there is another one.
    async fn request(
        &self,
        method: Method,
        body: Bytes,
        extra: &[(HeaderName, HeaderValue)],
    ) -> Result<Response<Incoming>, TransportFault> {
        let Some(bearer) = &self.spec.bearer else { return self.send(method, body, extra, None).await };
        let token = bearer.token().await;
        let response = self.send(method.clone(), body.clone(), extra, token.as_deref()).await?;
        // The only case in which a request is sent twice: a rejected token proves that it was not processed.
        let Some((status, challenge)) = rejection_challenge(&response) else { return Ok(response) };
        match bearer.refused(token.as_deref(), status, &challenge).await {
            RetryDecision::Yes => {
                let token = bearer.token().await;
                self.send(method, body, extra, token.as_deref()).await
            }
            RetryDecision::No => Ok(response),
        }
    }

    async fn send(
        &self,
        method: Method,
        body: Bytes,
        extra: &[(HeaderName, HeaderValue)],
        bearer: Option<&str>,
    ) -> Result<Response<Incoming>, TransportFault> {
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = method.clone();
        *request.uri_mut() = self.uri.clone();
        let headers = request.headers_mut();
        *headers = self.headers.clone();
        if method == Method::POST {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            headers.insert(ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
        } else {
            headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
        }
        if let Some(token) = bearer
            && let Ok(mut value) = HeaderValue::from_str(&format!("Bearer {token}"))
        {
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
        // None while a legacy session is being opened: there is no agreed version to name yet.
        if let Some(version) = *lock(&self.version) {
            headers.insert(VERSION, HeaderValue::from_static(version.as_str()));
        }
        if let Some(session) = lock(&self.session).clone() {
            headers.insert(SESSION, session);
        }
        for (name, value) in extra {
            headers.insert(name.clone(), value.clone());
        }
        self.client.request(request).await.map_err(|error| connect_fault(&error))
    }

    /// Sends a request and processes what comes back, until the reply is there or cannot come any more.
    pub(super) async fn send_and_read(
        self: &Arc<Self>,
        id: u64,
        bytes: Vec<u8>,
        headers: Vec<(HeaderName, HeaderValue)>,
    ) -> Result<(), TransportFault> {
        let response = self.request(Method::POST, bytes.into(), &headers).await?;
        if let Some(session) = response.headers().get(&SESSION)
            && self.era() == Era::Legacy
        {
            // Taken from every reply: a server may hand out the id later than with `initialize`.
            *lock(&self.session) = Some(session.clone());
        }
        if !response.status().is_success() {
            return self.error_response(id, response).await;
        }
        let back: Arc<dyn UpstreamSender> = Arc::new(PostSender(self.clone()));
        match media_type(&response) {
            MediaType::Json => {
                let body = read_limited(response, self.limits.frame).await?;
                self.feed(id, &body, &back).await
            }
            MediaType::Events => self.read_reply_stream(id, response, &back).await,
            MediaType::Other => {
                // Accepted, so the request may have been carried out: unknown, not failed.
                let said = format!("HTTP {} without a reply", response.status().as_u16());
                Err(TransportFault::unknown(FaultKind::Protocol(said)))
            }
        }
    }

    /// Reads a JSON body: the reply, or a batch that contains it.
    async fn feed(&self, id: u64, body: &[u8], back: &Arc<dyn UpstreamSender>) -> Result<(), TransportFault> {
        match jsonrpc::parse(body, self.limits) {
            Ok(Frame::One(message)) => self.pending.incoming(message, Some(id), back).await,
            Ok(Frame::Batch(parts)) => {
                for message in parts.into_iter().flatten() {
                    self.pending.incoming(message, Some(id), back).await;
                }
            }
            Err(_) => {
                self.pending.observer.anomaly(UpstreamAnomaly::Noise(excerpt(body)));
                return Err(TransportFault::unknown(FaultKind::Protocol("the reply cannot be read".into())));
            }
        }
        Ok(())
    }

    /// Reads an event stream until the reply has come; resumes it where the upstream allows.
    async fn read_reply_stream(
        &self,
        id: u64,
        first: Response<Incoming>,
        back: &Arc<dyn UpstreamSender>,
    ) -> Result<(), TransportFault> {
        let mut cursor = StreamCursor::default();
        let mut response = first;
        for _ in 0..RESUMES {
            if self.read_events(response, Some(id), &mut cursor, back).await? {
                return Ok(());
            }
            // Without event ids there is nothing to resume from; a modern upstream has no resumable streams.
            let Some(last) = cursor.last.clone().filter(|_| self.era() == Era::Legacy) else { break };
            tokio::time::sleep(cursor.pause()).await;
            response =
                self.request(Method::GET, Bytes::new(), &[(LAST_EVENT, last)]).await.map_err(unknown)?;
            if !response.status().is_success() || media_type(&response) != MediaType::Events {
                break;
            }
        }
        Err(TransportFault::unknown(FaultKind::Closed("the stream ended before the reply".into())))
    }

    /// Reads one stream; true when it carried the reply to `id`.
    async fn read_events(
        &self,
        response: Response<Incoming>,
        id: Option<u64>,
        cursor: &mut StreamCursor,
        back: &Arc<dyn UpstreamSender>,
    ) -> Result<bool, TransportFault> {
        let mut body = response.into_body();
        // Room for `data:`, `id:` and line ends around a frame of full size.
        let mut parser = SseParser::new(self.limits.frame + 1024);
        while let Some(Ok(piece)) = body.frame().await {
            let Some(data) = piece.data_ref() else { continue };
            let events = parser
                .push(data)
                .map_err(|_| TransportFault::unknown(FaultKind::TooLarge(self.limits.frame)))?;
            for event in events {
                cursor.update(&event);
                if event.data.trim_ascii().is_empty() {
                    continue;
                }
                if self.event(&event, id, back).await? {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// Processes one event; true when it was the reply to `id`.
    async fn event(
        &self,
        event: &SseEvent,
        id: Option<u64>,
        back: &Arc<dyn UpstreamSender>,
    ) -> Result<bool, TransportFault> {
        let messages: Vec<Message> = match jsonrpc::parse(&event.data, self.limits) {
            Ok(Frame::One(message)) => vec![message],
            Ok(Frame::Batch(parts)) => parts.into_iter().flatten().collect(),
            Err(broken) => {
                self.pending.observer.anomaly(UpstreamAnomaly::Noise(excerpt(&event.data)));
                // The malformed event may have been the reply: its caller must not wait for another.
                if id.is_some() && broken.id.and_then(|id| id.as_number()) == id {
                    return Err(TransportFault::unknown(FaultKind::Protocol(
                        "the reply cannot be read".into(),
                    )));
                }
                return Ok(false);
            }
        };
        let mut replied = false;
        for message in messages {
            replied |= matches!(&message, Message::Response(response)
                if id.is_some() && response.id.as_ref().and_then(jsonrpc::JsonRpcId::as_number) == id);
            self.pending.incoming(message, id, back).await;
        }
        Ok(replied)
    }

    /// Handles an error status: a JSON-RPC error in its body is a reply, everything else a fault.
    async fn error_response(&self, id: u64, response: Response<Incoming>) -> Result<(), TransportFault> {
        let status = response.status().as_u16();
        let header = |name| {
            let value: Option<&HeaderValue> = response.headers().get(name);
            value.and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
        };
        if response.status().is_redirection() {
            // Following it would send arguments and token to a host nobody configured.
            return Err(TransportFault::refused(FaultKind::Redirect(header(LOCATION))));
        }
        if let Some((status, challenge)) = rejection_challenge(&response) {
            let advice = self.spec.bearer.as_ref().and_then(|bearer| bearer.advice());
            return Err(TransportFault::refused(FaultKind::Unauthorized { status, challenge, advice }));
        }
        if status == 404 && self.era() == Era::Legacy && lock(&self.session).is_some() {
            return Err(TransportFault::refused(FaultKind::SessionExpired));
        }
        // An error page can be long, and only its beginning is shown.
        let body = read_limited(response, ERROR_BYTES).await.unwrap_or_default();
        if let Ok(Frame::One(Message::Response(reply))) = jsonrpc::parse(&body, self.limits)
            && reply.reply.is_err()
        {
            // An error from before the id was parsed carries none, and is still ours.
            let reply = jsonrpc::Response { id: Some(jsonrpc::JsonRpcId::number(id)), reply: reply.reply };
            let back: Arc<dyn UpstreamSender> = Arc::new(NullSender);
            self.pending.incoming(Message::Response(reply), Some(id), &back).await;
            return Ok(());
        }
        let kind = FaultKind::Status { status, body: excerpt(&body) };
        // Below 500 the upstream did not act; from 500 on the outcome is unknown.
        Err(if status < 500 { TransportFault::refused(kind) } else { TransportFault::unknown(kind) })
    }

    /// Posts a notification or an answer.
    pub(super) async fn post_notice(&self, bytes: Vec<u8>) -> Result<(), TransportFault> {
        let method = crate::raw::from_text(String::from_utf8_lossy(&bytes))
            .and_then(|message| crate::raw::get_str(&message, "method").map(|method| method.into_owned()));
        let headers = match (self.era(), method) {
            (Era::Modern, Some(method)) => crate::mirrored_headers::outgoing(&method, None, None),
            (Era::Modern, None) | (Era::Legacy, _) => Vec::new(),
        };
        let response = self.request(Method::POST, bytes.into(), &headers).await?;
        match response.status().as_u16() {
            200..=299 => Ok(()),
            404 if lock(&self.session).is_some() => Err(TransportFault::refused(FaultKind::SessionExpired)),
            status => Err(TransportFault::refused(FaultKind::Status { status, body: String::new() })),
        }
    }

    /// Cancels a request: a legacy upstream is notified, a modern one sees the stream close.
    pub(super) fn cancel(self: &Arc<Self>, waiter: &ReplyWaiter, reason: &str) {
        if waiter.abandon() && self.era() == Era::Legacy && lock(&self.session).is_some() {
            PostSender(self.clone()).send_now(cancelled_bytes(waiter.id, reason));
        }
    }

    /// Opens the stream on which a legacy upstream sends what belongs to no request.
    pub(super) fn open_notification_stream(self: &Arc<Self>) {
        // Weak: the stream must not keep a connection alive that everybody else has dropped.
        let link = Arc::downgrade(self);
        *lock(&self.news) = Some(tokio::spawn(read_notification_stream(link)).abort_handle());
    }

    pub(super) fn stop_streams(&self) {
        if let Some(task) = lock(&self.news).take() {
            task.abort();
        }
        self.pending.close(TransportFault::unknown(FaultKind::Closed("closed by us".into())));
    }

    pub(super) async fn close(&self) {
        self.stop_streams();
        let session = lock(&self.session).take();
        if let (Some(session), Era::Legacy) = (session, self.era()) {
            let headers = [(SESSION, session)];
            let farewell = self.request(Method::DELETE, Bytes::new(), &headers);
            let _ = tokio::time::timeout(Duration::from_secs(2), farewell).await;
        }
    }
}

/// The challenge of a request that was rejected for its token.
fn rejection_challenge(response: &Response<Incoming>) -> Option<(u16, String)> {
    let status = response.status().as_u16();
    let said = response.headers().get_all(WWW_AUTHENTICATE).iter().filter_map(|value| value.to_str().ok());
    let challenge = said.collect::<Vec<&str>>().join(", ");
    (status == 401 || status == 403 && !challenge.is_empty()).then_some((status, challenge))
}

/// For error bodies, in which the upstream can ask nothing.
struct NullSender;

impl UpstreamSender for NullSender {
    fn send(&self, _: Vec<u8>) -> BoxFuture<'_, Result<(), TransportFault>> {
        Box::pin(std::future::ready(Ok(())))
    }
    fn send_now(&self, _: Vec<u8>) {}
}

/// The position in a stream, for resuming it.
#[derive(Default)]
struct StreamCursor {
    last: Option<HeaderValue>,
    retry: Option<u64>,
}

impl StreamCursor {
    fn update(&mut self, event: &SseEvent) {
        if let Some(id) = &event.id {
            self.last = HeaderValue::from_str(id).ok();
        }
        self.retry = event.retry.or(self.retry);
    }

    fn pause(&self) -> Duration {
        self.retry.map_or(RESUME_PAUSE, Duration::from_millis).min(LONGEST_PAUSE)
    }
}

async fn read_notification_stream(link: std::sync::Weak<HttpLink>) {
    let mut cursor = StreamCursor::default();
    let mut pause = RESUME_PAUSE;
    loop {
        let Some(link) = link.upgrade() else { return };
        let headers: Vec<_> = cursor.last.iter().map(|last| (LAST_EVENT, last.clone())).collect();
        match link.request(Method::GET, Bytes::new(), &headers).await {
            Ok(response) if response.status().is_success() && media_type(&response) == MediaType::Events => {
                pause = RESUME_PAUSE;
                let back: Arc<dyn UpstreamSender> = Arc::new(PostSender(link.clone()));
                let _ = link.read_events(response, None, &mut cursor, &back).await;
            }
            // No such stream (405), or the session is gone (404): nothing to wait for.
            Ok(response) if response.status().is_client_error() => return,
            // A server that is down gets fewer attempts, not the same rate from every gateway.
            Ok(_) | Err(_) => pause = (pause * 2).min(LONGEST_PAUSE),
        }
        drop(link);
        tokio::time::sleep(pause.max(cursor.pause())).await;
    }
}
