//! One POST: a request, a notification or an answer, of either era. Headers are compared with the body before anything runs.

use std::sync::Arc;
use std::time::Duration;

use ::http::{HeaderMap, HeaderValue, StatusCode};
use axum::body::HttpBody as _;
use axum::extract::Request as HttpRequest;
use axum::response::Response;
use tokio::sync::mpsc;

use super::body::{BodyError, read_body};
use super::guard::{self, accepts, is_json, is_modern, version_header};
use super::stream::{self, CancelOnHangup};
use super::{HttpServer, LegacySession, SESSION};
use crate::era::{self, Era, Version};
use crate::framing::{FrameOutcome, OutgoingFrame};
use crate::jsonrpc::{self, Frame, MalformedFrame, Message, Notification, Request, RpcError, code};
use crate::mirrored_headers;
use crate::raw;
use crate::server::session::{ClientInfo, Session, SessionId, SessionOutlet, SessionParams};
use crate::server::{CallerIdentity, ClientAnomaly, ReplyDelivery, Service, Transport};

const QUEUE: usize = 64;
const LARGE_BODY: u64 = 256 << 10;
/// How long a request with a large body waits for the others.
const LARGE_PATIENCE: Duration = Duration::from_secs(30);
const LONGEST_OPENING: usize = 64 << 10;

impl<S: Service> HttpServer<S> {
    pub(super) async fn post(
        self: &Arc<Self>,
        path: Arc<str>,
        identity: CallerIdentity,
        request: HttpRequest,
    ) -> Response {
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
        let limiter = self.limiter(&identity);
        // Judging a large request takes many times its size in memory: one principal may have a few at once.
        let _place = if body.size_hint().upper().is_none_or(|size| size > LARGE_BODY) {
            let Ok(place) = tokio::time::timeout(LARGE_PATIENCE, limiter.large_body()).await else {
                let message = "too many large requests of this principal are open";
                return guard::busy(StatusCode::TOO_MANY_REQUESTS, message);
            };
            place
        } else {
            None
        };
        let body = match read_body(body, limits.frame).await {
            Ok(body) => body,
            Err(BodyError::Slow) => {
                return guard::plain(StatusCode::REQUEST_TIMEOUT, "the body did not come in time");
            }
            Err(BodyError::TooLong) => {
                let error = MalformedFrame::too_long(&[], &[], limits.frame).error;
                return guard::error(StatusCode::PAYLOAD_TOO_LARGE, None, error);
            }
            Err(BodyError::Cut) => {
                return guard::plain(StatusCode::BAD_REQUEST, "the body could not be read");
            }
        };
        match jsonrpc::parse(&body, limits) {
            Ok(Frame::One(message)) => self.message(path, identity, &headers, message).await,
            Ok(Frame::Batch(parts)) => self.batch(&identity, &headers, parts).await,
            Err(malformed) => {
                self.dispatcher
                    .service
                    .client_anomaly(None, ClientAnomaly::Malformed(malformed.error.code()));
                guard::error(StatusCode::BAD_REQUEST, malformed.id.as_ref(), malformed.error)
            }
        }
    }

    async fn message(
        self: &Arc<Self>,
        path: Arc<str>,
        identity: CallerIdentity,
        headers: &HeaderMap,
        message: Message,
    ) -> Response {
        match message {
            // The stateless revision has no `initialize`: in its terms, the method is not found.
            Message::Request(request) if &*request.method == "initialize" && !is_modern(headers) => {
                self.initialize(path, identity, headers, request).await
            }
            Message::Request(request)
                if is_modern(headers) || era::of_opening(&request) == Some(Era::Modern) =>
            {
                self.modern_request(path, identity, headers, request).await
            }
            Message::Request(request) => match self.legacy(&identity, headers).await {
                Ok(entry) => self.legacy_request(&entry, request).await,
                Err(response) => response,
            },
            // A notification of a stateless client has nothing to refer to: its requests end by disconnecting.
            Message::Notification(_) if is_modern(headers) => guard::empty(StatusCode::ACCEPTED),
            Message::Notification(notification) => match self.legacy(&identity, headers).await {
                Ok(entry) => self.legacy_notification(&entry, notification).await,
                Err(response) => response,
            },
            Message::Response(response) => match self.legacy(&identity, headers).await {
                Ok(entry) => {
                    self.dispatcher.response(&entry.session, response);
                    guard::empty(StatusCode::ACCEPTED)
                }
                Err(response) => response,
            },
        }
    }

    /// The legacy session of a message, with its version header checked.
    async fn legacy(
        &self,
        identity: &CallerIdentity,
        headers: &HeaderMap,
    ) -> Result<Arc<LegacySession>, Response> {
        if let Some(version) = version_header(headers)
            && Version::parse(version).is_none()
        {
            let message = format!("protocol version `{version}` is not supported");
            return Err(guard::plain(StatusCode::BAD_REQUEST, &message));
        }
        self.find(identity, headers).await
    }

    async fn initialize(
        &self,
        path: Arc<str>,
        identity: CallerIdentity,
        headers: &HeaderMap,
        request: Request,
    ) -> Response {
        let params = request.params.as_deref();
        // The client's description is kept as long as its session, so it must be short.
        if params.is_some_and(|params| params.get().len() > LONGEST_OPENING) {
            let error = RpcError::invalid_params("the params of `initialize` are too large");
            return guard::error(StatusCode::BAD_REQUEST, Some(&request.id), error);
        }
        let Some(asked) = params.and_then(|params| raw::get_str(params, "protocolVersion")) else {
            let error = RpcError::invalid_params("`protocolVersion` is required");
            return guard::error(StatusCode::BAD_REQUEST, Some(&request.id), error);
        };
        // A header that contradicts the body is refused even where none is required.
        if headers.contains_key(mirrored_headers::METHOD)
            && let Err(reason) = mirrored_headers::check(headers, &request.method, params, None)
        {
            let error = RpcError::new(code::HEADER_MISMATCH, &reason);
            return guard::error(StatusCode::BAD_REQUEST, Some(&request.id), error);
        }
        let client = ClientInfo::of_initialize(params);
        let Some(entry) = self.open(path, identity, Version::negotiate(&asked), client).await else {
            return guard::busy(
                StatusCode::SERVICE_UNAVAILABLE,
                "too many sessions are open, all of them in use",
            );
        };
        let result = self.dispatcher.initialize_result(&entry.session).await;
        let mut response = guard::reply(StatusCode::OK, Some(&request.id), &Ok(result));
        if let Ok(id) = HeaderValue::from_str(entry.session.id().as_str()) {
            response.headers_mut().insert(SESSION, id);
        }
        response
    }

    async fn legacy_notification(&self, entry: &LegacySession, notification: Notification) -> Response {
        self.dispatcher.notification(&entry.session, notification).await;
        guard::empty(StatusCode::ACCEPTED)
    }

    async fn legacy_request(&self, entry: &Arc<LegacySession>, request: Request) -> Response {
        let (outlet, mut messages) = mpsc::channel(QUEUE);
        let session = &entry.session;
        self.dispatcher.launch(session, outlet, request).await;
        let first = match self.dispatcher.service.replies(session) {
            ReplyDelivery::Plain => self.first(&mut messages).await,
            ReplyDelivery::Streamed => None,
        };
        match first {
            Some(out) if out.end != FrameOutcome::Open => guard::json(StatusCode::OK, out.bytes),
            first => self.stream_legacy(entry, first, messages),
        }
    }

    /// The first message, unless it takes so long that the client should get a stream.
    async fn first(&self, messages: &mut mpsc::Receiver<OutgoingFrame>) -> Option<OutgoingFrame> {
        tokio::time::timeout(self.options.stream_after, messages.recv()).await.unwrap_or_default()
    }

    /// Sends the replies of a legacy request as resumable events.
    fn stream_legacy(
        &self,
        entry: &LegacySession,
        first: Option<OutgoingFrame>,
        mut messages: mpsc::Receiver<OutgoingFrame>,
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
        identity: &CallerIdentity,
        headers: &HeaderMap,
        parts: Vec<Result<Message, MalformedFrame>>,
    ) -> Response {
        let entry = match self.legacy(identity, headers).await {
            Ok(entry) => entry,
            Err(response) => return response,
        };
        if entry.session.version() != Version::V2025_03_26 {
            return guard::plain(StatusCode::BAD_REQUEST, "batches only exist in revision 2025-03-26");
        }
        // Malformed parts are answered before anyone reads: the queue must hold all of them.
        let (outlet, mut messages) = mpsc::channel(QUEUE + parts.len());
        for part in parts {
            match part {
                Ok(Message::Request(request)) => {
                    self.dispatcher.launch(&entry.session, outlet.clone(), request).await;
                }
                Ok(Message::Notification(notification)) => {
                    self.dispatcher.notification(&entry.session, notification).await;
                }
                Ok(Message::Response(response)) => self.dispatcher.response(&entry.session, response),
                Err(malformed) => {
                    let out =
                        crate::server::dispatcher::reply_out(malformed.id.as_ref(), &Err(malformed.error));
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
        identity: CallerIdentity,
        headers: &HeaderMap,
        request: Request,
    ) -> Response {
        let params = request.params.as_deref();
        let bad = |error: RpcError| guard::error(StatusCode::BAD_REQUEST, Some(&request.id), error);
        if let Err(error) = check_version(headers, params) {
            return bad(error);
        }
        let session = self.passing_session(path, identity, ClientInfo::of_meta(params));
        let mirrors = match mirrored_headers::name_of(&request.method, params) {
            Some(name) if &*request.method == "tools/call" => {
                self.dispatcher.service.mirrors(&session, &name).await
            }
            _ => None,
        };
        if let Err(reason) = mirrored_headers::check(headers, &request.method, params, mirrors.as_deref()) {
            return bad(RpcError::new(code::HEADER_MISMATCH, &reason));
        }
        let (outlet, mut messages) = mpsc::channel(QUEUE);
        let id = request.id.clone();
        let ctx = self.dispatcher.launch(&session, outlet, request).await;
        // Dropped with this future or with the stream: a client that disconnects has cancelled.
        let hangup = ctx.map(|ctx| CancelOnHangup::new(ctx, id));
        let replies = self.dispatcher.service.replies(&session);
        // Waits even where everything is streamed: the status of an error comes before its body.
        match self.first(&mut messages).await {
            Some(OutgoingFrame { bytes, end: FrameOutcome::Result }) if replies == ReplyDelivery::Plain => {
                guard::json(StatusCode::OK, bytes)
            }
            Some(OutgoingFrame { bytes, end: FrameOutcome::Error(code) }) => {
                guard::json(status_of(code), bytes)
            }
            first => stream::from_messages(first, messages, hangup, self.options.keep_alive),
        }
    }

    /// A session for the duration of one request.
    fn passing_session(&self, path: Arc<str>, identity: CallerIdentity, client: ClientInfo) -> Arc<Session> {
        let limiter = self.limiter(&identity);
        Session::new(
            SessionParams {
                id: SessionId::new(""),
                transport: Transport::Http,
                version: Version::MODERN,
                path,
                identity,
                client,
                outlet: SessionOutlet::Nowhere,
                parking: self.dispatcher.parking.clone(),
            },
            limiter,
        )
    }
}

/// The version must be the same in header and body.
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
