//! Event streams to clients: the body of an SSE response with keep-alive comments, and the GET that resumes a stream. A dropped
//! stream cancels its request (stateless era) or waits for the client to resume it (legacy).

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use ::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use ::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use http_body::Frame;
use tokio::sync::mpsc;
use tokio::time::{Instant, Sleep};

use super::guard;
use super::{HttpServer, LAST_EVENT, SESSION};
use crate::framing::{FrameOutcome, OutgoingFrame};
use crate::jsonrpc::JsonRpcId;
use crate::server::event_log::EventReader;
use crate::server::request_context::RequestContext;
use crate::server::{CallerIdentity, Service};

/// When a client that lost its stream should reconnect.
const RETRY_MS: u32 = 1000;

/// Cancels a request when its client disconnects.
pub(super) struct CancelOnHangup {
    ctx: RequestContext,
    id: JsonRpcId,
}

impl CancelOnHangup {
    pub(super) fn new(ctx: RequestContext, id: JsonRpcId) -> Self {
        Self { ctx, id }
    }
}

impl Drop for CancelOnHangup {
    fn drop(&mut self) {
        self.ctx.disconnected(&self.id);
    }
}

/// An SSE body fed by a queue of prepared chunks or by a request's messages.
struct EventBody {
    source: StreamSource,
    pulse: Pin<Box<Sleep>>,
    every: Duration,
    _hangup: Option<CancelOnHangup>,
}

enum StreamSource {
    Messages { first: Option<OutgoingFrame>, rest: mpsc::Receiver<OutgoingFrame>, ended: bool },
    Chunks(mpsc::Receiver<Bytes>),
}

impl StreamSource {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        match self {
            StreamSource::Chunks(chunks) => chunks.poll_recv(cx),
            StreamSource::Messages { ended: true, .. } => Poll::Ready(None),
            StreamSource::Messages { first, rest, ended } => {
                let out = match first.take() {
                    Some(out) => Poll::Ready(Some(out)),
                    None => rest.poll_recv(cx),
                };
                out.map(|out| {
                    let out = out?;
                    // The reply is the last message on its stream.
                    *ended = out.end != FrameOutcome::Open;
                    Some(chunk(None, &out.bytes))
                })
            }
        }
    }
}

impl http_body::Body for EventBody {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let this = &mut *self;
        if let Poll::Ready(next) = this.source.poll(cx) {
            this.pulse.as_mut().reset(Instant::now() + this.every);
            return Poll::Ready(next.map(|bytes| Ok(Frame::data(bytes))));
        }
        if this.pulse.as_mut().poll(cx).is_ready() {
            this.pulse.as_mut().reset(Instant::now() + this.every);
            // Poll again so that the timer is registered anew.
            cx.waker().wake_by_ref();
            return Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b": alive\n\n")))));
        }
        Poll::Pending
    }
}

/// One event; JSON messages contain no line ends.
fn chunk(id: Option<&str>, data: &[u8]) -> Bytes {
    let mut bytes = Vec::with_capacity(data.len() + 32);
    if let Some(id) = id {
        bytes.extend_from_slice(b"id: ");
        bytes.extend_from_slice(id.as_bytes());
        bytes.push(b'\n');
    }
    bytes.extend_from_slice(b"data: ");
    bytes.extend_from_slice(data);
    bytes.extend_from_slice(b"\n\n");
    bytes.into()
}

fn respond(source: StreamSource, hangup: Option<CancelOnHangup>, every: Duration) -> Response {
    let body = EventBody { source, pulse: Box::pin(tokio::time::sleep(every)), every, _hangup: hangup };
    let mut response = Response::new(Body::new(body));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));
    response
}

/// The messages of one stateless request.
pub(super) fn from_messages(
    first: Option<OutgoingFrame>,
    rest: mpsc::Receiver<OutgoingFrame>,
    hangup: Option<CancelOnHangup>,
    every: Duration,
) -> Response {
    respond(StreamSource::Messages { first, rest, ended: false }, hangup, every)
}

/// The numbered events of one stream of a session.
pub(super) fn from_log(mut reader: EventReader, every: Duration, primed: bool) -> Response {
    let (chunks, body) = mpsc::channel(16);
    tokio::spawn(async move {
        let stream = reader.stream();
        if primed {
            // An event without data: from now on the client can resume, and knows when.
            let prime = format!("id: {stream}-{}\nretry: {RETRY_MS}\ndata: \n\n", reader.position());
            if chunks.send(prime.into()).await.is_err() {
                return;
            }
        }
        loop {
            let event = tokio::select! {
                event = reader.next() => event,
                () = chunks.closed() => return,
            };
            let Some(event) = event else { return };
            let id = format!("{stream}-{}", event.number);
            if chunks.send(chunk(Some(&id), &event.data)).await.is_err() {
                reader.put_back(event.number);
                return;
            }
        }
    });
    respond(StreamSource::Chunks(body), None, every)
}

impl<S: Service> HttpServer<S> {
    pub(super) async fn get(&self, identity: &CallerIdentity, headers: &HeaderMap) -> Response {
        if guard::is_modern(headers) || !headers.contains_key(&SESSION) {
            return guard::not_allowed();
        }
        if !guard::accepts(headers, "text/event-stream") {
            return guard::plain(StatusCode::NOT_ACCEPTABLE, "the client must accept `text/event-stream`");
        }
        let entry = match self.find(identity, headers).await {
            Ok(entry) => entry,
            Err(response) => return response,
        };
        let last = headers.get(&LAST_EVENT).and_then(|value| value.to_str().ok());
        let reader = match last.and_then(|last| last.split_once('-')) {
            Some((stream, event)) => {
                let (Ok(stream), Ok(event)) = (stream.parse(), event.parse()) else {
                    return guard::plain(
                        StatusCode::BAD_REQUEST,
                        "header `Last-Event-ID` names no event of ours",
                    );
                };
                match entry.stream(stream) {
                    Some(log) => log.attach(event),
                    // Too old to be kept: the client can only get what comes from now on.
                    None => entry.news.attach_unread(),
                }
            }
            None => entry.news.attach_unread(),
        };
        let primed = entry.session.version() >= crate::era::Version::V2025_11_25;
        from_log(reader, self.options.keep_alive, primed)
    }
}
