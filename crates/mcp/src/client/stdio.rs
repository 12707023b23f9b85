//! The link to a child process: one reader and one writer for all requests of the connection. When the child exits, all requests in
//! flight fail, and nothing is sent again.

use std::sync::Arc;
use std::time::Duration;

use tokio::process::ChildStdout;
use tokio::sync::mpsc;

use super::child_process::ChildProcess;
use super::pending_requests::{PendingRequests, ReplyWaiter, UpstreamSender, cancelled_bytes, excerpt};
use super::{BoxFuture, Observer, StdioSpec, UpstreamAnomaly};
use crate::fault::{FaultKind, TransportFault};
use crate::framing::{InputLine, LineReader, OutgoingFrame, QUEUE, write_lines};
use crate::jsonrpc::{self, Frame, FrameLimits, MalformedFrame};
use crate::one_shot_flag::OneShotFlag;
use crate::server::lock;

/// How long the remaining output of an exited child is read.
const LAST_READS: Duration = Duration::from_millis(500);

pub(super) struct StdioLink {
    pub(super) pending: Arc<PendingRequests>,
    pub(super) child: Arc<ChildProcess>,
    outbox: std::sync::Mutex<Option<mpsc::Sender<OutgoingFrame>>>,
    closing: Arc<OneShotFlag>,
}

/// Answers the child.
// Weak: a strong sender in the reader would keep the child's stdin open, and the child would never see its end.
struct StdioSender(mpsc::WeakSender<OutgoingFrame>);

impl UpstreamSender for StdioSender {
    fn send(&self, bytes: Vec<u8>) -> BoxFuture<'_, Result<(), TransportFault>> {
        Box::pin(async move {
            let closed = || TransportFault::unsent(FaultKind::Closed("the line is closed".into()));
            let outbox = self.0.upgrade().ok_or_else(closed)?;
            outbox.send(OutgoingFrame::message(bytes)).await.map_err(|_| closed())
        })
    }

    fn send_now(&self, bytes: Vec<u8>) {
        if let Some(outbox) = self.0.upgrade() {
            let _ = outbox.try_send(OutgoingFrame::message(bytes));
        }
    }
}

impl StdioLink {
    pub(super) fn start(
        spec: &StdioSpec,
        observer: Arc<dyn Observer>,
        limits: FrameLimits,
    ) -> Result<Self, TransportFault> {
        let (child, pipes) = ChildProcess::start(spec)?;
        let child = Arc::new(child);
        let (outbox, frames) = mpsc::channel(QUEUE);
        tokio::spawn(write_lines(frames, pipes.stdin));
        let pending = PendingRequests::new(observer);
        let back: Arc<dyn UpstreamSender> = Arc::new(StdioSender(outbox.downgrade()));
        let closing = Arc::new(OneShotFlag::default());
        let reader = StdoutReader {
            pending: pending.clone(),
            child: Arc::downgrade(&child),
            back,
            limits,
            closing: closing.clone(),
        };
        tokio::spawn(reader.run(pipes.stdout, child.exited()));
        Ok(Self { pending, child, outbox: std::sync::Mutex::new(Some(outbox)), closing })
    }

    fn outbox(&self) -> Result<mpsc::Sender<OutgoingFrame>, TransportFault> {
        lock(&self.outbox)
            .clone()
            .ok_or_else(|| TransportFault::unsent(FaultKind::Closed("the connection was closed".into())))
    }

    /// Queues a message; an error means that no byte of it was sent.
    pub(super) async fn send(&self, bytes: Vec<u8>) -> Result<(), TransportFault> {
        let closed = || {
            let kind = self.pending.fault().map(|fault| fault.kind.clone());
            TransportFault::unsent(
                kind.unwrap_or_else(|| FaultKind::Closed("the child does not read".into())),
            )
        };
        self.outbox()?.send(OutgoingFrame::message(bytes)).await.map_err(|_| closed())
    }

    /// Cancels a request at the child.
    pub(super) fn cancel(&self, waiter: &ReplyWaiter, reason: &str) {
        if waiter.abandon()
            && let Ok(outbox) = self.outbox()
        {
            // A child that does not read must not block the caller that is leaving.
            let _ = outbox.try_send(OutgoingFrame::message(cancelled_bytes(waiter.id, reason)));
        }
    }

    /// Closes the child's stdin and waits for its exit.
    pub(super) async fn close(&self) {
        self.stop();
        self.child.wait_for_exit().await;
    }

    /// The same in the background.
    pub(super) fn stop(&self) {
        self.closing.raise();
        drop(lock(&self.outbox).take());
        self.child.stop();
    }
}

impl Drop for StdioLink {
    fn drop(&mut self) {
        self.stop();
    }
}

struct StdoutReader {
    pending: Arc<PendingRequests>,
    child: std::sync::Weak<ChildProcess>,
    back: Arc<dyn UpstreamSender>,
    limits: FrameLimits,
    closing: Arc<OneShotFlag>,
}

impl StdoutReader {
    async fn run(self, stdout: ChildStdout, exited: Arc<OneShotFlag>) {
        let reading = self.read(stdout);
        let ended = async {
            // A grandchild may hold stdout open after the child is gone: its end is not awaited for ever.
            exited.wait().await;
            tokio::time::sleep(LAST_READS).await;
        };
        let broken = tokio::select! {
            broken = reading => broken,
            () = ended => None,
        };
        let said = match broken {
            Some(reason) => reason,
            None if self.closing.is_raised() => "closed by us".to_owned(),
            None => {
                // The exit status usually follows the end of output at once.
                let _ = tokio::time::timeout(LAST_READS, exited.wait()).await;
                self.child
                    .upgrade()
                    .map_or_else(|| "the child ended".to_owned(), |child| child.exit_summary())
            }
        };
        self.pending.close(TransportFault::unknown(FaultKind::Closed(said)));
        if let Some(child) = self.child.upgrade() {
            child.stop();
        }
    }

    async fn read(&self, stdout: ChildStdout) -> Option<String> {
        let mut lines = LineReader::new(stdout, self.limits.frame);
        loop {
            let parsed = match lines.next().await {
                Ok(None) => return None,
                Err(error) => return Some(error.to_string()),
                Ok(Some(InputLine::Whole(bytes))) if bytes.trim_ascii().is_empty() => continue,
                Ok(Some(InputLine::Whole(bytes))) => {
                    // A line that came in a single piece is complete, however long.
                    let unread = match self.limits.frame {
                        limit if bytes.len() > limit => FaultKind::TooLarge(limit),
                        _ => FaultKind::Protocol("the reply cannot be read".into()),
                    };
                    jsonrpc::parse(bytes, self.limits)
                        .map_err(|broken| (broken.id, UpstreamAnomaly::Noise(excerpt(bytes)), unread))
                }
                Ok(Some(InputLine::TooLong { head, tail, length })) => {
                    let limit = self.limits.frame;
                    let id = MalformedFrame::too_long(&head, &tail, limit).id;
                    Err((id, UpstreamAnomaly::TooLong(length), FaultKind::TooLarge(limit)))
                }
            };
            match parsed {
                Ok(Frame::One(message)) => self.pending.incoming(message, None, &self.back).await,
                Ok(Frame::Batch(parts)) => {
                    for message in parts.into_iter().flatten() {
                        self.pending.incoming(message, None, &self.back).await;
                    }
                }
                Err((id, oddity, kind)) => {
                    self.pending.observer.anomaly(oddity);
                    // The malformed line may have been a reply: its caller must not wait for ever.
                    if let Some(id) = id.and_then(|id| id.as_number()) {
                        self.pending.fail(id, TransportFault::unknown(kind));
                    }
                }
            }
        }
    }
}
