//! Serving one client over a line of bytes, usually our own stdin and stdout. The era is the one the client opens with.
//! Nothing but protocol is ever written to the line.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;

use super::dispatch::{Front, reply_now, reply_out};
use super::session::{Client, Outlet, Seat, Session, SessionId};
use super::turns::Turns;
use super::{End, HeaderMap, Notice, Opening, ServeOptions, Service, Tag, Transport};
use crate::era::{self, Era, Version};
use crate::frame::{self, Frame, Id, Malformed, Message, Request, RpcError, code};
use crate::line::{Ending, Line, Lines, Out, QUEUE, write_lines};
use crate::raw;

/// How long the last replies may take to be written.
const LAST_WRITES: Duration = Duration::from_secs(2);

/// How a stdio line is served.
#[derive(Debug, Clone)]
pub struct StdioOptions {
    /// What all fronts share.
    pub serve: ServeOptions,
    /// The session's name; the same name across starts is the same session to the service.
    pub session: SessionId,
    /// How long requests in flight may still finish after the client closed its end.
    pub drain: Duration,
}

impl StdioOptions {
    /// The usual drain time.
    pub fn new(serve: ServeOptions, session: SessionId) -> Self {
        Self { serve, session, drain: Duration::from_secs(5) }
    }
}

/// Serves our own stdin and stdout until the client closes them.
pub async fn serve_stdio<S: Service>(service: Arc<S>, options: StdioOptions) -> io::Result<()> {
    let (reader, writer) = crate::line::own_stdio()?;
    serve_line(service, reader, writer, options).await
}

/// Serves one client over any byte stream.
pub async fn serve_line<S, R, W>(
    service: Arc<S>,
    reader: R,
    writer: W,
    options: StdioOptions,
) -> io::Result<()>
where
    S: Service,
    R: AsyncRead + Unpin + Send,
    W: AsyncWrite + Unpin + Send + 'static,
{
    let headers = HeaderMap::new();
    let opening = Opening { transport: Transport::Stdio, path: "", headers: &headers, peer: None };
    let tag = service
        .authenticate(&opening)
        .await
        .map_err(|refusal| io::Error::new(io::ErrorKind::PermissionDenied, refusal.message))?;
    let (outlet, frames) = mpsc::channel(QUEUE);
    let mut writer = tokio::spawn(write_lines(frames, writer));
    let mut desk = Desk {
        front: Front::new(service, options.serve.clone()),
        name: options.session,
        tag,
        outlet,
        session: None,
    };
    let read = desk.read(reader).await;
    desk.close(options.drain).await;
    drop(desk);
    // Requests that ignore their cancellation still hold the queue; the line does not wait for them.
    let written = match tokio::time::timeout(LAST_WRITES, &mut writer).await {
        Ok(written) => written.unwrap_or(Ok(())),
        Err(_) => {
            writer.abort();
            Ok(())
        }
    };
    // A client that leaves without reading is no fault of ours.
    read.and(
        written.or_else(|error| if error.kind() == io::ErrorKind::BrokenPipe { Ok(()) } else { Err(error) }),
    )
}

/// The reading half of the line: parses, keeps the era, hands on.
struct Desk<S> {
    front: Arc<Front<S>>,
    name: SessionId,
    tag: Tag,
    outlet: mpsc::Sender<Out>,
    session: Option<Arc<Session>>,
}

impl<S: Service> Desk<S> {
    async fn read<R: AsyncRead + Unpin>(&mut self, reader: R) -> io::Result<()> {
        let limits = self.front.options.limits;
        let mut lines = Lines::new(reader, limits.frame);
        while let Some(line) = lines.next().await? {
            let parsed = match line {
                Line::Whole(bytes) if bytes.trim_ascii().is_empty() => continue,
                Line::Whole(bytes) => frame::parse(bytes, limits),
                Line::TooLong { head, tail, .. } => Err(Malformed::too_long(&head, &tail, limits.frame)),
            };
            match parsed {
                Ok(Frame::One(message)) => self.message(message, self.outlet.clone()).await,
                Ok(Frame::Batch(parts)) => self.batch(parts).await,
                Err(malformed) => self.malformed(malformed, &self.outlet).await,
            }
        }
        Ok(())
    }

    async fn malformed(&self, malformed: Malformed, outlet: &mpsc::Sender<Out>) {
        self.front.service.noticed(self.session.as_deref(), Notice::Malformed(malformed.error.code()));
        let _ = outlet.send(reply_out(malformed.id.as_ref(), &Err(malformed.error))).await;
    }

    async fn message(&mut self, message: Message, outlet: mpsc::Sender<Out>) {
        match message {
            Message::Request(request) => self.request(request, outlet).await,
            Message::Notification(notification) => {
                if let Some(session) = &self.session {
                    self.front.notification(session, notification).await;
                }
            }
            Message::Response(response) => match &self.session {
                Some(session) => self.front.response(session, response),
                None => self.front.service.noticed(None, Notice::LateAnswer),
            },
        }
    }

    async fn request(&mut self, request: Request, outlet: mpsc::Sender<Out>) {
        if let Some(session) = &self.session {
            // A host that only probed may still turn to the older era.
            let turns_back =
                session.era() == Era::Modern && &*request.method == "initialize" && session.is_probe();
            if !turns_back {
                self.front.launch(session, outlet, request).await;
                return;
            }
        }
        match era::of_opening(&request) {
            Some(Era::Legacy) => self.initialize(request, outlet).await,
            Some(Era::Modern) => {
                if let Err(error) = era::check_modern_meta(request.params.as_deref()) {
                    reply_now(&outlet, &request.id, Err(error)).await;
                    return;
                }
                let client = Client::of_meta(request.params.as_deref());
                let session = self.open(Version::MODERN, client).await;
                self.front.launch(&session, outlet, request).await;
            }
            None if &*request.method == "ping" => {
                reply_now(&outlet, &request.id, Ok(raw::empty_object())).await
            }
            None => {
                let message = "open with `initialize`, or carry the protocol version in `_meta`";
                reply_now(&outlet, &request.id, Err(RpcError::invalid_params(message))).await;
            }
        }
    }

    async fn initialize(&mut self, request: Request, outlet: mpsc::Sender<Out>) {
        let params = request.params.as_deref();
        let Some(asked) = params.and_then(|params| raw::get_str(params, "protocolVersion")) else {
            let error = RpcError::invalid_params("`protocolVersion` is required");
            return reply_now(&outlet, &request.id, Err(error)).await;
        };
        if let Some(probe) = self.session.take()
            && probe.end()
        {
            self.front.service.closed(probe, End::LineClosed).await;
        }
        let session = self.open(Version::negotiate(&asked), Client::of_initialize(params)).await;
        let result = self.front.initialize_result(&session).await;
        reply_now(&outlet, &request.id, Ok(result)).await;
    }

    async fn open(&mut self, version: Version, client: Client) -> Arc<Session> {
        let session = Session::new(
            Seat {
                id: self.name.clone(),
                transport: Transport::Stdio,
                version,
                path: "".into(),
                tag: self.tag.clone(),
                client,
                outlet: Outlet::Line(self.outlet.downgrade()),
                parking: self.front.parking.clone(),
            },
            Turns::new(self.front.options.in_flight),
        );
        self.session = Some(session.clone());
        self.front.service.opened(session.clone()).await;
        session
    }

    /// A batch: the replies go out as one array, everything else at once.
    async fn batch(&mut self, parts: Vec<Result<Message, Malformed>>) {
        let allowed = self.session.as_ref().is_some_and(|session| session.version() == Version::V2025_03_26);
        if !allowed {
            let error = RpcError::new(code::INVALID_REQUEST, "batches only exist in revision 2025-03-26");
            let _ = self.outlet.send(reply_out(None::<&Id>, &Err(error))).await;
            return;
        }
        let (outlet, replies) = mpsc::channel(QUEUE);
        tokio::spawn(gather(replies, self.outlet.clone()));
        for part in parts {
            match part {
                Ok(message) => self.message(message, outlet.clone()).await,
                Err(malformed) => self.malformed(malformed, &outlet).await,
            }
        }
    }

    /// The client closed its end: let what runs finish, then stop it.
    async fn close(&mut self, drain: Duration) {
        let Some(session) = self.session.take() else { return };
        let _ = tokio::time::timeout(drain, session.idle()).await;
        if session.end() {
            self.front.service.closed(session, End::LineClosed).await;
        }
    }
}

/// Collects the replies of one batch; its senders are the batch's requests, so it ends with the last of them.
async fn gather(mut replies: mpsc::Receiver<Out>, outlet: mpsc::Sender<Out>) {
    let mut all = vec![b'['];
    while let Some(out) = replies.recv().await {
        if out.end == Ending::Open {
            let _ = outlet.send(out).await;
            continue;
        }
        if all.len() > 1 {
            all.push(b',');
        }
        all.extend_from_slice(&out.bytes);
    }
    if all.len() > 1 {
        all.push(b']');
        let _ = outlet.send(Out::message(all)).await;
    }
}
