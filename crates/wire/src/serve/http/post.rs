//! One POST: a request, a notification or an answer, of either era. What a header says is compared with the body before
//! anything runs.

use std::sync::Arc;
use std::time::Duration;

use ::http::{HeaderMap, HeaderValue, StatusCode};
use axum::body::HttpBody as _;
use axum::extract::Request as HttpRequest;
use axum::response::Response;
use tokio::sync::mpsc;

use super::body::{NoBody, read_body};
use super::guard::{self, accepts, is_json, is_modern, version_header};
use super::stream::{self, Hangup};
use super::{Entry, HttpFront, SESSION};
use crate::era::{self, Era, Version};
use crate::frame::{self, Frame, Malformed, Message, Notification, Request, RpcError, code};
use crate::line::{Ending, Out};
use crate::mirror;
use crate::raw;
use crate::serve::session::{Client, Outlet, Seat, Session, SessionId};
use crate::serve::{Notice, Replies, Service, Tag, Transport};

/// How many messages of one POST may wait for its client.
const QUEUE: usize = 64;
/// From how many bytes on a body is large.
const LARGE_BODY: u64 = 256 << 10;
/// How long a request with a large body waits for the others.
const LARGE_PATIENCE: Duration = Duration::from_secs(30);
/// The longest params of `initialize`, in bytes.
const LONGEST_OPENING: usize = 64 << 10;

impl<S: Service> HttpFront<S> {
    pub(super) async fn post(self: &Arc<Self>, path: Arc<str>, tag: Tag, request: HttpRequest) -> Response {
        let (parts, body) = request.into_parts();
        let headers = parts.headers;
        if !is_json(&headers) {
            return guard::plain(StatusCode::UNSUPPORTED_MEDIA_TYPE, "the body must be `application/json`");
        }
        if !accepts(&headers, "application/json") || !accepts(&headers, "text/event-stream") {
            let message = "the client must accept `application/json` and `text/event-stream`";
            return guard::plain(StatusCode::NOT_ACCEPTABLE, message);
        }
        let limits = self.options.serve.limits;
        let turns = self.turns(&tag);
        // A large request takes many times its size while it is judged: one principal has a few of them at once.
        let _place = if body.size_hint().upper().is_none_or(|size| size > LARGE_BODY) {
            let Ok(place) = tokio::time::timeout(LARGE_PATIENCE, turns.large_body()).await else {
                let message = "too many large requests of this principal are open";
                return guard::busy(StatusCode::TOO_MANY_REQUESTS, message);
            };
            place
        } else {
            None
        };
        let body = match read_body(body, limits.frame).await {
            Ok(body) => body,
            Err(NoBody::Slow) => {
                return guard::plain(StatusCode::REQUEST_TIMEOUT, "the body did not come in time");
            }
            Err(NoBody::TooLong) => {
                let error = Malformed::too_long(&[], &[], limits.frame).error;
                return guard::error(StatusCode::PAYLOAD_TOO_LARGE, None, error);
            }
            Err(NoBody::Cut) => {
                return guard::plain(StatusCode::BAD_REQUEST, "the body could not be read");
            }
        };
        match frame::parse(&body, limits) {
            Ok(Frame::One(message)) => self.message(path, tag, &headers, message).await,
            Ok(Frame::Batch(parts)) => self.batch(&tag, &headers, parts).await,
            Err(malformed) => {
                self.front.service.noticed(None, Notice::Malformed(malformed.error.code()));
                guard::error(StatusCode::BAD_REQUEST, malformed.id.as_ref(), malformed.error)
            }
        }
    }

    async fn message(
        self: &Arc<Self>,
        path: Arc<str>,
        tag: Tag,
        headers: &HeaderMap,
        message: Message,
    ) -> Response {
        match message {
            // The stateless revision has no `initialize`: said in its terms, it is not found.
            Message::Request(request) if &*request.method == "initialize" && !is_modern(headers) => {
                self.initialize(path, tag, headers, request).await
            }
            Message::Request(request)
                if is_modern(headers) || era::of_opening(&request) == Some(Era::Modern) =>
            {
                self.modern_request(path, tag, headers, request).await
            }
            Message::Request(request) => match self.legacy(&tag, headers).await {
                Ok(entry) => self.legacy_request(&entry, request).await,
                Err(response) => response,
            },
            // A stateless client's notification has nothing to refer to: its requests end by disconnecting.
            Message::Notification(_) if is_modern(headers) => guard::empty(StatusCode::ACCEPTED),
            Message::Notification(notification) => match self.legacy(&tag, headers).await {
                Ok(entry) => self.legacy_notification(&entry, notification).await,
                Err(response) => response,
            },
            Message::Response(response) => match self.legacy(&tag, headers).await {
                Ok(entry) => {
                    self.front.response(&entry.session, response);
                    guard::empty(StatusCode::ACCEPTED)
                }
                Err(response) => response,
            },
        }
    }

    /// The legacy session a message belongs to, its version header checked.
    async fn legacy(&self, tag: &Tag, headers: &HeaderMap) -> Result<Arc<Entry>, Response> {
        if let Some(version) = version_header(headers)
            && Version::parse(version).is_none()
        {
            let message = format!("protocol version `{version}` is not supported");
            return Err(guard::plain(StatusCode::BAD_REQUEST, &message));
        }
        self.find(tag, headers).await
    }

    async fn initialize(&self, path: Arc<str>, tag: Tag, headers: &HeaderMap, request: Request) -> Response {
        let params = request.params.as_deref();
        // What a client says of itself is kept as long as its session.
        if params.is_some_and(|params| params.get().len() > LONGEST_OPENING) {
            let error = RpcError::invalid_params("the params of `initialize` are too large");
            return guard::error(StatusCode::BAD_REQUEST, Some(&request.id), error);
        }
        let Some(asked) = params.and_then(|params| raw::get_str(params, "protocolVersion")) else {
            let error = RpcError::invalid_params("`protocolVersion` is required");
            return guard::error(StatusCode::BAD_REQUEST, Some(&request.id), error);
        };
        // A header that contradicts the body is refused even where none is needed.
        if headers.contains_key(mirror::METHOD)
            && let Err(reason) = mirror::check(headers, &request.method, params, None)
        {
            let error = RpcError::new(code::HEADER_MISMATCH, &reason);
            return guard::error(StatusCode::BAD_REQUEST, Some(&request.id), error);
        }
        let client = Client::of_initialize(params);
        let Some(entry) = self.open(path, tag, Version::negotiate(&asked), client).await else {
            return guard::busy(
                StatusCode::SERVICE_UNAVAILABLE,
                "too many sessions are open, all of them in use",
            );
        };
        let result = self.front.initialize_result(&entry.session).await;
        let mut response = guard::reply(StatusCode::OK, Some(&request.id), &Ok(result));
        if let Ok(id) = HeaderValue::from_str(entry.session.id().as_str()) {
            response.headers_mut().insert(SESSION, id);
        }
        response
    }

    async fn legacy_notification(&self, entry: &Entry, notification: Notification) -> Response {
        self.front.notification(&entry.session, notification).await;
        guard::empty(StatusCode::ACCEPTED)
    }

    async fn legacy_request(&self, entry: &Arc<Entry>, request: Request) -> Response {
        let (outlet, mut messages) = mpsc::channel(QUEUE);
        let session = &entry.session;
        self.front.launch(session, outlet, request).await;
        let first = match self.front.service.replies(session) {
            Replies::Plain => self.first(&mut messages).await,
            Replies::Streamed => None,
        };
        match first {
            Some(out) if out.end != Ending::Open => guard::json(StatusCode::OK, out.bytes),
            first => self.stream_legacy(entry, first, messages),
        }
    }

    /// The first message, unless it takes so long that the client should have a stream meanwhile.
    async fn first(&self, messages: &mut mpsc::Receiver<Out>) -> Option<Out> {
        tokio::time::timeout(self.options.stream_after, messages.recv()).await.unwrap_or_default()
    }

    /// Replies of a legacy request as events that can be taken up again.
    fn stream_legacy(
        &self,
        entry: &Entry,
        first: Option<Out>,
        mut messages: mpsc::Receiver<Out>,
    ) -> Response {
        let log = entry.new_stream();
        let reader = log.attach(0);
        tokio::spawn(async move {
            if let Some(out) = first {
                log.push(out.bytes).await;
            }
            while let Some(out) = messages.recv().await {
                log.push(out.bytes).await;
            }
            log.finish();
        });
        let primed = entry.session.version() >= Version::V2025_11_25;
        stream::from_log(reader, self.options.keep_alive, primed)
    }

    async fn batch(
        self: &Arc<Self>,
        tag: &Tag,
        headers: &HeaderMap,
        parts: Vec<Result<Message, Malformed>>,
    ) -> Response {
        let entry = match self.legacy(tag, headers).await {
            Ok(entry) => entry,
            Err(response) => return response,
        };
        if entry.session.version() != Version::V2025_03_26 {
            return guard::plain(StatusCode::BAD_REQUEST, "batches only exist in revision 2025-03-26");
        }
        // Broken parts are answered before anyone reads: there must be room for all.
        let (outlet, mut messages) = mpsc::channel(QUEUE + parts.len());
        for part in parts {
            match part {
                Ok(Message::Request(request)) => {
                    self.front.launch(&entry.session, outlet.clone(), request).await;
                }
                Ok(Message::Notification(notification)) => {
                    self.front.notification(&entry.session, notification).await;
                }
                Ok(Message::Response(response)) => self.front.response(&entry.session, response),
                Err(malformed) => {
                    let out = crate::serve::dispatch::reply_out(malformed.id.as_ref(), &Err(malformed.error));
                    let _ = outlet.send(out).await;
                }
            }
        }
        drop(outlet);
        match messages.recv().await {
            None => guard::empty(StatusCode::ACCEPTED),
            first => self.stream_legacy(&entry, first, messages),
        }
    }

    async fn modern_request(
        self: &Arc<Self>,
        path: Arc<str>,
        tag: Tag,
        headers: &HeaderMap,
        request: Request,
    ) -> Response {
        let params = request.params.as_deref();
        let bad = |error: RpcError| guard::error(StatusCode::BAD_REQUEST, Some(&request.id), error);
        if let Err(error) = check_version(headers, params) {
            return bad(error);
        }
        let session = self.passing_session(path, tag, Client::of_meta(params));
        let mirrors = match mirror::name_of(&request.method, params) {
            Some(name) if &*request.method == "tools/call" => {
                self.front.service.mirrors(&session, &name).await
            }
            _ => None,
        };
        if let Err(reason) = mirror::check(headers, &request.method, params, mirrors.as_deref()) {
            return bad(RpcError::new(code::HEADER_MISMATCH, &reason));
        }
        let (outlet, mut messages) = mpsc::channel(QUEUE);
        let id = request.id.clone();
        let ctx = self.front.launch(&session, outlet, request).await;
        // Dropped with this future or with the stream: a client that disconnects has cancelled.
        let hangup = ctx.map(|ctx| Hangup::new(ctx, id));
        let replies = self.front.service.replies(&session);
        // Waited for even where all is streamed: an error's status stands before its body.
        match self.first(&mut messages).await {
            Some(Out { bytes, end: Ending::Result }) if replies == Replies::Plain => {
                guard::json(StatusCode::OK, bytes)
            }
            Some(Out { bytes, end: Ending::Error(code) }) => guard::json(status_of(code), bytes),
            first => stream::from_messages(first, messages, hangup, self.options.keep_alive),
        }
    }

    /// A session for the length of one request.
    fn passing_session(&self, path: Arc<str>, tag: Tag, client: Client) -> Arc<Session> {
        let turns = self.turns(&tag);
        Session::new(
            Seat {
                id: SessionId::new(""),
                transport: Transport::Http,
                version: Version::MODERN,
                path,
                tag,
                client,
                outlet: Outlet::Nowhere,
                parking: self.front.parking.clone(),
            },
            turns,
        )
    }
}

/// The version must stand in header and body, and be the same.
fn check_version(headers: &HeaderMap, params: Option<&serde_json::value::RawValue>) -> Result<(), RpcError> {
    let in_header = version_header(headers);
    let Some(in_body) = era::meta_version(params) else { return era::check_modern_meta(params) };
    match in_header {
        None => return Err(RpcError::new(code::HEADER_MISMATCH, "header `MCP-Protocol-Version` is missing")),
        Some(version) if version != in_body => {
            let message = format!("header `MCP-Protocol-Version` says `{version}`, the body `{in_body}`");
            return Err(RpcError::new(code::HEADER_MISMATCH, &message));
        }
        Some(_) => {}
    }
    era::check_modern_meta(params)
}

/// The HTTP status of a JSON-RPC error in the stateless era.
fn status_of(code: i64) -> StatusCode {
    match code {
        code::METHOD_NOT_FOUND => StatusCode::NOT_FOUND,
        code::HEADER_MISMATCH | code::MISSING_CAPABILITY | code::UNSUPPORTED_VERSION => {
            StatusCode::BAD_REQUEST
        }
        _ => StatusCode::OK,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_follow_the_revision() {
        assert_eq!(status_of(code::METHOD_NOT_FOUND), StatusCode::NOT_FOUND);
        assert_eq!(status_of(code::UNSUPPORTED_VERSION), StatusCode::BAD_REQUEST);
        assert_eq!(status_of(code::INVALID_PARAMS), StatusCode::OK);
    }
}
