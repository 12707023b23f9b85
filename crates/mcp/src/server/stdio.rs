//! Serves one client over a byte stream, usually stdin and stdout, in the era it opens with. Writes nothing but protocol to the
//! stream.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;

use super::concurrency::ConcurrencyLimiter;
use super::dispatcher::{Dispatcher, reply_now, reply_out};
use super::session::{ClientInfo, Session, SessionId, SessionOutlet, SessionParams};
use super::{
    CallerIdentity, CallerInfo, ClientAnomaly, HeaderMap, ServeOptions, Service, SessionEnd, Transport,
};
use crate::era::{self, Era, Version};
use crate::framing::{FrameOutcome, InputLine, LineReader, OutgoingFrame, QUEUE, write_lines};
use crate::jsonrpc::{self, Frame, JsonRpcId, MalformedFrame, Message, Request, RpcError, code};
use crate::raw;

const LAST_WRITES: Duration = Duration::from_secs(2);

#[derive(Debug, Clone)]
pub struct StdioOptions {
    pub serve: ServeOptions,
    /// The same name across starts is the same session to the service.
    pub session: SessionId,
    /// How long requests in flight may finish after the client closed its end.
    pub drain: Duration,
}

impl StdioOptions {
    pub fn new(serve: ServeOptions, session: SessionId) -> Self {
        Self { serve, session, drain: Duration::from_secs(5) }
    }
}

/// Serves stdin and stdout until the client closes them.
pub async fn serve_stdio<S: Service>(service: Arc<S>, options: StdioOptions) -> io::Result<()> {
    let (reader, writer) = crate::framing::own_stdio()?;
    serve_stream(service, reader, writer, options).await
}

pub async fn serve_stream<S, R, W>(
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
    let opening = CallerInfo { transport: Transport::Stdio, path: "", headers: &headers, peer: None };
    let identity = service
        .authenticate(&opening)
        .await
        .map_err(|refusal| io::Error::new(io::ErrorKind::PermissionDenied, refusal.message))?;
    let (outlet, frames) = mpsc::channel(QUEUE);
    let mut writer = tokio::spawn(write_lines(frames, writer));
    let mut desk = StdioService {
        dispatcher: Dispatcher::new(service, options.serve.clone()),
        name: options.session,
        identity,
        outlet,
        session: None,
    };
    let read = desk.read(reader).await;
    // Requests in flight may have changed something: their replies are still delivered.
    desk.close(options.drain).await;
    drop(desk);
    // Requests that ignore their cancellation still hold the queue: do not wait for them.
    let written = match tokio::time::timeout(LAST_WRITES, &mut writer).await {
        Ok(written) => written.unwrap_or(Ok(())),
        Err(_) => {
            writer.abort();
            Ok(())
        }
    };
    // A client that leaves without reading is no error.
    read.and(
        written.or_else(|error| if error.kind() == io::ErrorKind::BrokenPipe { Ok(()) } else { Err(error) }),
    )
}

/// The reading half: parses frames, tracks the era, dispatches.
struct StdioService<S> {
    dispatcher: Arc<Dispatcher<S>>,
    name: SessionId,
    identity: CallerIdentity,
    outlet: mpsc::Sender<OutgoingFrame>,
    session: Option<Arc<Session>>,
}

impl<S: Service> StdioService<S> {
    async fn read<R: AsyncRead + Unpin>(&mut self, reader: R) -> io::Result<()> {
        let limits = self.dispatcher.options.limits;
        let mut lines = LineReader::new(reader, limits.frame);
        while let Some(line) = lines.next().await? {
            let parsed = match line {
                InputLine::Whole(bytes) if bytes.trim_ascii().is_empty() => continue,
                InputLine::Whole(bytes) => jsonrpc::parse(bytes, limits),
                InputLine::TooLong { head, tail, .. } => {
                    Err(MalformedFrame::too_long(&head, &tail, limits.frame))
                }
            };
            match parsed {
                Ok(Frame::One(message)) => self.message(message, self.outlet.clone()).await,
                Ok(Frame::Batch(parts)) => self.batch(parts).await,
                Err(malformed) => self.malformed(malformed, &self.outlet).await,
            }
        }
        Ok(())
    }

    async fn malformed(&self, malformed: MalformedFrame, outlet: &mpsc::Sender<OutgoingFrame>) {
        self.dispatcher
            .service
            .client_anomaly(self.session.as_deref(), ClientAnomaly::Malformed(malformed.error.code()));
        let _ = outlet.send(reply_out(malformed.id.as_ref(), &Err(malformed.error))).await;
    }

    async fn message(&mut self, message: Message, outlet: mpsc::Sender<OutgoingFrame>) {
        match message {
            Message::Request(request) => self.request(request, outlet).await,
            Message::Notification(notification) => {
                if let Some(session) = &self.session {
                    self.dispatcher.notification(session, notification).await;
                }
            }
            Message::Response(response) => match &self.session {
                Some(session) => self.dispatcher.response(session, response),
                // Nothing was asked before the session opened, so this answers nothing.
                None => self.dispatcher.service.client_anomaly(None, ClientAnomaly::LateAnswer),
            },
        }
    }

    async fn request(&mut self, request: Request, outlet: mpsc::Sender<OutgoingFrame>) {
        if let Some(session) = &self.session {
            // A host that has only probed may still switch to the legacy era.
            let turns_back =
                session.era() == Era::Modern && &*request.method == "initialize" && session.is_probe();
            if !turns_back {
                self.dispatcher.launch(session, outlet, request).await;
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
                let client = ClientInfo::of_meta(request.params.as_deref());
                let session = self.open(Version::MODERN, client).await;
                self.dispatcher.launch(&session, outlet, request).await;
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

    async fn initialize(&mut self, request: Request, outlet: mpsc::Sender<OutgoingFrame>) {
        let params = request.params.as_deref();
        let Some(asked) = params.and_then(|params| raw::get_str(params, "protocolVersion")) else {
            let error = RpcError::invalid_params("`protocolVersion` is required");
            return reply_now(&outlet, &request.id, Err(error)).await;
        };
        if let Some(probe) = self.session.take()
            && probe.end()
        {
            self.dispatcher.service.closed(probe, SessionEnd::TransportClosed).await;
        }
        let session = self.open(Version::negotiate(&asked), ClientInfo::of_initialize(params)).await;
        let result = self.dispatcher.initialize_result(&session).await;
        reply_now(&outlet, &request.id, Ok(result)).await;
    }

    async fn open(&mut self, version: Version, client: ClientInfo) -> Arc<Session> {
        let session = Session::new(
            SessionParams {
                id: self.name.clone(),
                transport: Transport::Stdio,
                version,
                path: "".into(),
                identity: self.identity.clone(),
                client,
                outlet: SessionOutlet::Line(self.outlet.downgrade()),
                parking: self.dispatcher.parking.clone(),
            },
            ConcurrencyLimiter::new(self.dispatcher.options.in_flight),
        );
        self.session = Some(session.clone());
        self.dispatcher.service.opened(session.clone()).await;
        session
    }

    /// Handles a legacy batch: its replies go out as one array.
    async fn batch(&mut self, parts: Vec<Result<Message, MalformedFrame>>) {
        let allowed = self.session.as_ref().is_some_and(|session| session.version() == Version::V2025_03_26);
        if !allowed {
            let error = RpcError::new(code::INVALID_REQUEST, "batches only exist in revision 2025-03-26");
            let _ = self.outlet.send(reply_out(None::<&JsonRpcId>, &Err(error))).await;
            return;
        }
        let (outlet, replies) = mpsc::channel(QUEUE);
        // In the background: a batch may contain a request that waits for a person.
        tokio::spawn(gather(replies, self.outlet.clone()));
        for part in parts {
            match part {
                Ok(message) => self.message(message, outlet.clone()).await,
                Err(malformed) => self.malformed(malformed, &outlet).await,
            }
        }
    }

    /// The client closed its end: lets requests in flight finish, then cancels them.
    async fn close(&mut self, drain: Duration) {
        let Some(session) = self.session.take() else { return };
        let _ = tokio::time::timeout(drain, session.idle()).await;
        if session.end() {
            self.dispatcher.service.closed(session, SessionEnd::TransportClosed).await;
        }
    }
}

/// Collects the replies of a batch. Its requests hold the senders, so it ends with the last of them.
async fn gather(mut replies: mpsc::Receiver<OutgoingFrame>, outlet: mpsc::Sender<OutgoingFrame>) {
    let mut all = vec![b'['];
    while let Some(out) = replies.recv().await {
        // Notifications and questions go out at once: in the array they would come after the replies they precede.
        if out.end == FrameOutcome::Open {
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
        let _ = outlet.send(OutgoingFrame::message(all)).await;
    }
}
