//! Event streams to clients: the body of an SSE response, its keep-alive comments, and the GET that takes a stream up.
//! A stream that the client drops tells the request behind it (stateless era) or waits for the client's return.

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
use super::{HttpFront, LAST_EVENT, SESSION};
use crate::frame::Id;
use crate::line::{Ending, Out};
use crate::serve::ctx::Ctx;
use crate::serve::events::Reader;
use crate::serve::{Service, Tag};

/// How soon a client that lost its stream should come back.
const RETRY_MS: u32 = 1000;

/// Cancels a request whose client hung up.
pub(super) struct Hangup {
    ctx: Ctx,
    id: Id,
}

impl Hangup {
    pub(super) fn new(ctx: Ctx, id: Id) -> Self {
        Self { ctx, id }
    }
}

impl Drop for Hangup {
    fn drop(&mut self) {
        self.ctx.disconnected(&self.id);
    }
}

/// An SSE body fed by a queue of ready-made chunks or by a request's messages.
struct EventBody {
    source: Source,
    pulse: Pin<Box<Sleep>>,
    every: Duration,
    _hangup: Option<Hangup>,
}

enum Source {
    Messages { first: Option<Out>, rest: mpsc::Receiver<Out>, ended: bool },
    Chunks(mpsc::Receiver<Bytes>),
}

impl Source {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        match self {
            Source::Chunks(chunks) => chunks.poll_recv(cx),
            Source::Messages { ended: true, .. } => Poll::Ready(None),
            Source::Messages { first, rest, ended } => {
                let out = match first.take() {
                    Some(out) => Poll::Ready(Some(out)),
                    None => rest.poll_recv(cx),
                };
                out.map(|out| {
                    let out = out?;
                    // The reply is the last word on its stream.
                    *ended = out.end != Ending::Open;
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
            // Polled again at once so that the timer is registered anew.
            cx.waker().wake_by_ref();
            return Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b": alive\n\n")))));
        }
        Poll::Pending
    }
}

/// One event; messages never hold line ends.
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

fn respond(source: Source, hangup: Option<Hangup>, every: Duration) -> Response {
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
    first: Option<Out>,
    rest: mpsc::Receiver<Out>,
    hangup: Option<Hangup>,
    every: Duration,
) -> Response {
    respond(Source::Messages { first, rest, ended: false }, hangup, every)
}

/// The events of one stream of a session, numbered so that they can be taken up again.
pub(super) fn from_log(mut reader: Reader, every: Duration, primed: bool) -> Response {
    let (chunks, body) = mpsc::channel(16);
    tokio::spawn(async move {
        let stream = reader.stream();
        if primed {
            // An event without data: from now on the client can come back, and knows when.
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
                reader.unread(event.number);
                return;
            }
        }
    });
    respond(Source::Chunks(body), None, every)
}

impl<S: Service> HttpFront<S> {
    pub(super) async fn get(&self, tag: &Tag, headers: &HeaderMap) -> Response {
        if guard::is_modern(headers) || !headers.contains_key(&SESSION) {
            return guard::not_allowed();
        }
        if !guard::accepts(headers, "text/event-stream") {
            return guard::plain(StatusCode::NOT_ACCEPTABLE, "the client must accept `text/event-stream`");
        }
        let entry = match self.find(tag, headers).await {
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
                    // Too old to be kept: only what comes from now on can be told.
                    None => entry.news.attach_unread(),
                }
            }
            None => entry.news.attach_unread(),
        };
        let primed = entry.session.version() >= crate::era::Version::V2025_11_25;
        from_log(reader, self.options.keep_alive, primed)
    }
}
