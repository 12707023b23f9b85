//! The line to an HTTP upstream: one POST per message, replies as JSON or as an event stream, a GET stream for a legacy
//! session's news. A lost stream may be taken up again; a request is never sent again, and no redirect is followed.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, LOCATION, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, Uri};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use tokio::task::AbortHandle;

use super::address::{check_literal, default_address_rule};
use super::pending::{Back, Hub, Waiter, cancelled_bytes, excerpt};
use super::sse::{SseEvent, SseParser};
use super::transport::{self, Media, connect_fault, media_type, read_limited, unknown};
use super::{Again, HttpSpec, Later, Observer, Oddity};
use crate::era::{Era, Version};
use crate::fault::{FaultKind, WireFault};
use crate::frame::{self, Frame, Limits, Message};
use crate::serve::lock;

const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
const VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
const LAST_EVENT: HeaderName = HeaderName::from_static("last-event-id");
/// How much of an error body is kept.
const ERROR_BYTES: usize = 64 << 10;
/// How often a lost stream is taken up again before its request counts as lost.
const RESUMES: usize = 8;
/// How long to wait before taking a stream up again, unless the upstream says.
const RESUME_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// The connection to one HTTP endpoint.
pub(super) struct HttpLink {
    pub(super) hub: Arc<Hub>,
    client: transport::Client,
    uri: Uri,
    spec: HttpSpec,
    headers: HeaderMap,
    limits: Limits,
    session: Mutex<Option<HeaderValue>>,
    /// The revision named in headers; none while a legacy session is being opened.
    version: Mutex<Option<Version>>,
    news: Mutex<Option<AbortHandle>>,
}

/// The way back to the upstream: a POST of its own.
struct PostBack(Arc<HttpLink>);

impl Back for PostBack {
    fn send(&self, bytes: Vec<u8>) -> Later<'_, Result<(), WireFault>> {
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
        limits: Limits,
    ) -> Result<Arc<Self>, WireFault> {
        let wrong = |reason: String| WireFault::unsent(FaultKind::Connect(reason));
        let uri: Uri = spec.url.parse().map_err(|_| wrong(format!("`{}` is not a URL", spec.url)))?;
        let rule = spec.addresses.clone().unwrap_or_else(|| Arc::new(default_address_rule));
        let host = uri.host().ok_or_else(|| wrong(format!("`{}` names no host", spec.url)))?;
        check_literal(host, &rule)?;
        let mut headers = HeaderMap::new();
        for (name, value) in &spec.headers {
            let name = HeaderName::from_bytes(name.as_bytes())
                .map_err(|_| wrong(format!("`{name}` is no header")))?;
            let mut value = HeaderValue::from_str(value)
                .map_err(|_| wrong(format!("the value of `{name}` cannot be sent")))?;
            value.set_sensitive(true);
            headers.append(name, value);
        }
        let client = transport::client(&uri, rule, spec.connect_timeout)?;
        Ok(Arc::new(Self {
            hub: Hub::new(observer),
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

    /// From now on speak this revision.
    pub(super) fn speak(&self, version: Version) {
        *lock(&self.version) = Some(version);
    }

    fn era(&self) -> Era {
        lock(&self.version).map_or(Era::Legacy, Version::era)
    }

    /// Sends a request; where it is turned away for its token and there is another one, once more with that.
    async fn request(
        &self,
        method: Method,
        body: Bytes,
        extra: &[(HeaderName, HeaderValue)],
    ) -> Result<Response<Incoming>, WireFault> {
        let Some(bearer) = &self.spec.bearer else { return self.send(method, body, extra, None).await };
        let token = bearer.token().await;
        let response = self.send(method.clone(), body.clone(), extra, token.as_deref()).await?;
        let Some((status, challenge)) = turned_away(&response) else { return Ok(response) };
        match bearer.refused(token.as_deref(), status, &challenge).await {
            Again::Yes => {
                let token = bearer.token().await;
                self.send(method, body, extra, token.as_deref()).await
            }
            Again::No => Ok(response),
        }
    }

    async fn send(
        &self,
        method: Method,
        body: Bytes,
        extra: &[(HeaderName, HeaderValue)],
        bearer: Option<&str>,
    ) -> Result<Response<Incoming>, WireFault> {
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

    /// Sends one request and feeds what comes back to the hub, until its reply was there or cannot come any more.
    pub(super) async fn pump(
        self: &Arc<Self>,
        id: u64,
        bytes: Vec<u8>,
        headers: Vec<(HeaderName, HeaderValue)>,
    ) -> Result<(), WireFault> {
        let response = self.request(Method::POST, bytes.into(), &headers).await?;
        if let Some(session) = response.headers().get(&SESSION)
            && self.era() == Era::Legacy
        {
            *lock(&self.session) = Some(session.clone());
        }
        if !response.status().is_success() {
            return self.error_response(id, response).await;
        }
        let back: Arc<dyn Back> = Arc::new(PostBack(self.clone()));
        match media_type(&response) {
            Media::Json => {
                let body = read_limited(response, self.limits.frame).await?;
                self.feed(id, &body, &back).await
            }
            Media::Events => self.follow(id, response, &back).await,
            Media::Other => {
                let said = format!("HTTP {} without a reply", response.status().as_u16());
                Err(WireFault::unknown(FaultKind::Protocol(said)))
            }
        }
    }

    /// One JSON body: the reply, or a batch with it.
    async fn feed(&self, id: u64, body: &[u8], back: &Arc<dyn Back>) -> Result<(), WireFault> {
        match frame::parse(body, self.limits) {
            Ok(Frame::One(message)) => self.hub.incoming(message, Some(id), back).await,
            Ok(Frame::Batch(parts)) => {
                for message in parts.into_iter().flatten() {
                    self.hub.incoming(message, Some(id), back).await;
                }
            }
            Err(_) => {
                self.hub.observer.odd(Oddity::Noise(excerpt(body)));
                return Err(WireFault::unknown(FaultKind::Protocol("the reply cannot be read".into())));
            }
        }
        Ok(())
    }

    /// Follows an event stream, taking it up again where the upstream allows, until the reply has come.
    async fn follow(
        &self,
        id: u64,
        first: Response<Incoming>,
        back: &Arc<dyn Back>,
    ) -> Result<(), WireFault> {
        let mut cursor = Cursor::default();
        let mut response = first;
        for _ in 0..RESUMES {
            if self.read_events(response, Some(id), &mut cursor, back).await? {
                return Ok(());
            }
            let Some(last) = cursor.last.clone().filter(|_| self.era() == Era::Legacy) else { break };
            tokio::time::sleep(cursor.pause()).await;
            response =
                self.request(Method::GET, Bytes::new(), &[(LAST_EVENT, last)]).await.map_err(unknown)?;
            if !response.status().is_success() || media_type(&response) != Media::Events {
                break;
            }
        }
        Err(WireFault::unknown(FaultKind::Closed("the stream ended before the reply".into())))
    }

    /// Reads one stream; true when it carried the reply to `id`.
    async fn read_events(
        &self,
        response: Response<Incoming>,
        id: Option<u64>,
        cursor: &mut Cursor,
        back: &Arc<dyn Back>,
    ) -> Result<bool, WireFault> {
        let mut body = response.into_body();
        let mut parser = SseParser::new(self.limits.frame + 1024);
        while let Some(Ok(piece)) = body.frame().await {
            let Some(data) = piece.data_ref() else { continue };
            let events =
                parser.push(data).map_err(|_| WireFault::unknown(FaultKind::TooLarge(self.limits.frame)))?;
            for event in events {
                cursor.note(&event);
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

    /// Takes one event; true when it was the reply to `id`.
    async fn event(
        &self,
        event: &SseEvent,
        id: Option<u64>,
        back: &Arc<dyn Back>,
    ) -> Result<bool, WireFault> {
        let messages: Vec<Message> = match frame::parse(&event.data, self.limits) {
            Ok(Frame::One(message)) => vec![message],
            Ok(Frame::Batch(parts)) => parts.into_iter().flatten().collect(),
            Err(broken) => {
                self.hub.observer.odd(Oddity::Noise(excerpt(&event.data)));
                // Where the broken event was the reply, nobody must wait for another.
                if id.is_some() && broken.id.and_then(|id| id.as_number()) == id {
                    return Err(WireFault::unknown(FaultKind::Protocol("the reply cannot be read".into())));
                }
                return Ok(false);
            }
        };
        let mut replied = false;
        for message in messages {
            replied |= matches!(&message, Message::Response(response)
                if id.is_some() && response.id.as_ref().and_then(frame::Id::as_number) == id);
            self.hub.incoming(message, id, back).await;
        }
        Ok(replied)
    }

    /// A status that is no success: a JSON-RPC error in its body is a reply, everything else a fault.
    async fn error_response(&self, id: u64, response: Response<Incoming>) -> Result<(), WireFault> {
        let status = response.status().as_u16();
        let header = |name| {
            let value: Option<&HeaderValue> = response.headers().get(name);
            value.and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
        };
        if response.status().is_redirection() {
            return Err(WireFault::refused(FaultKind::Redirect(header(LOCATION))));
        }
        if let Some((status, challenge)) = turned_away(&response) {
            let advice = self.spec.bearer.as_ref().and_then(|bearer| bearer.advice());
            return Err(WireFault::refused(FaultKind::Unauthorized { status, challenge, advice }));
        }
        if status == 404 && self.era() == Era::Legacy && lock(&self.session).is_some() {
            return Err(WireFault::refused(FaultKind::SessionExpired));
        }
        let body = read_limited(response, ERROR_BYTES).await.unwrap_or_default();
        if let Ok(Frame::One(Message::Response(reply))) = frame::parse(&body, self.limits)
            && reply.reply.is_err()
        {
            // Errors before the id was read carry none; it is ours all the same.
            let reply = frame::Response { id: Some(frame::Id::number(id)), reply: reply.reply };
            let back: Arc<dyn Back> = Arc::new(NoBack);
            self.hub.incoming(Message::Response(reply), Some(id), &back).await;
            return Ok(());
        }
        let kind = FaultKind::Status { status, body: excerpt(&body) };
        // Below 500 the upstream says it did not act; above, nobody knows.
        Err(if status < 500 { WireFault::refused(kind) } else { WireFault::unknown(kind) })
    }

    /// Posts a notification or an answer; nothing comes back.
    pub(super) async fn post_notice(&self, bytes: Vec<u8>) -> Result<(), WireFault> {
        let method = crate::raw::from_text(String::from_utf8_lossy(&bytes))
            .and_then(|message| crate::raw::get_str(&message, "method").map(|method| method.into_owned()));
        let headers = match (self.era(), method) {
            (Era::Modern, Some(method)) => crate::mirror::outgoing(&method, None, None),
            (Era::Modern, None) | (Era::Legacy, _) => Vec::new(),
        };
        let response = self.request(Method::POST, bytes.into(), &headers).await?;
        match response.status().as_u16() {
            200..=299 => Ok(()),
            404 if lock(&self.session).is_some() => Err(WireFault::refused(FaultKind::SessionExpired)),
            status => Err(WireFault::refused(FaultKind::Status { status, body: String::new() })),
        }
    }

    /// Nobody waits any more: a legacy upstream is told, a modern one sees the stream close.
    pub(super) fn cancel(self: &Arc<Self>, waiter: &Waiter, reason: &str) {
        if waiter.abandon() && self.era() == Era::Legacy && lock(&self.session).is_some() {
            PostBack(self.clone()).send_now(cancelled_bytes(waiter.id, reason));
        }
    }

    /// Opens the stream on which a legacy upstream tells what belongs to no request.
    pub(super) fn open_news(self: &Arc<Self>) {
        let link = Arc::downgrade(self);
        *lock(&self.news) = Some(tokio::spawn(follow_news(link)).abort_handle());
    }

    /// Ends the streams.
    pub(super) fn shut(&self) {
        if let Some(task) = lock(&self.news).take() {
            task.abort();
        }
        self.hub.close(WireFault::unknown(FaultKind::Closed("closed by us".into())));
    }

    /// Ends the session.
    pub(super) async fn close(&self) {
        self.shut();
        let session = lock(&self.session).take();
        if let (Some(session), Era::Legacy) = (session, self.era()) {
            let headers = [(SESSION, session)];
            let farewell = self.request(Method::DELETE, Bytes::new(), &headers);
            let _ = tokio::time::timeout(Duration::from_secs(2), farewell).await;
        }
    }
}

/// Whether a request was turned away for lack of a token that suffices, and what was said about it.
fn turned_away(response: &Response<Incoming>) -> Option<(u16, String)> {
    let status = response.status().as_u16();
    let said = response.headers().get_all(WWW_AUTHENTICATE).iter().filter_map(|value| value.to_str().ok());
    let challenge = said.collect::<Vec<&str>>().join(", ");
    (status == 401 || status == 403 && !challenge.is_empty()).then_some((status, challenge))
}

/// Nothing can be asked in an error body.
struct NoBack;

impl Back for NoBack {
    fn send(&self, _: Vec<u8>) -> Later<'_, Result<(), WireFault>> {
        Box::pin(std::future::ready(Ok(())))
    }
    fn send_now(&self, _: Vec<u8>) {}
}

/// Where a stream stands, so that it can be taken up again.
#[derive(Default)]
struct Cursor {
    last: Option<HeaderValue>,
    retry: Option<u64>,
}

impl Cursor {
    fn note(&mut self, event: &SseEvent) {
        if let Some(id) = &event.id {
            self.last = HeaderValue::from_str(id).ok();
        }
        self.retry = event.retry.or(self.retry);
    }

    fn pause(&self) -> Duration {
        self.retry.map_or(RESUME_PAUSE, Duration::from_millis).min(LONGEST_PAUSE)
    }
}

async fn follow_news(link: std::sync::Weak<HttpLink>) {
    let mut cursor = Cursor::default();
    let mut pause = RESUME_PAUSE;
    loop {
        let Some(link) = link.upgrade() else { return };
        let headers: Vec<_> = cursor.last.iter().map(|last| (LAST_EVENT, last.clone())).collect();
        match link.request(Method::GET, Bytes::new(), &headers).await {
            Ok(response) if response.status().is_success() && media_type(&response) == Media::Events => {
                pause = RESUME_PAUSE;
                let back: Arc<dyn Back> = Arc::new(PostBack(link.clone()));
                let _ = link.read_events(response, None, &mut cursor, &back).await;
            }
            // No such stream here (405), or the session is gone (404): there is nothing to wait for.
            Ok(response) if response.status().is_client_error() => return,
            Ok(_) | Err(_) => pause = (pause * 2).min(LONGEST_PAUSE),
        }
        drop(link);
        tokio::time::sleep(pause.max(cursor.pause())).await;
    }
}
