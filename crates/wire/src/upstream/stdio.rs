//! The line to a child process: one reader, one writer, all requests of the connection on it.
//! When the child goes, everything that waited is told, and nothing is sent again.

use std::sync::Arc;
use std::time::Duration;

use tokio::process::ChildStdout;
use tokio::sync::mpsc;

use super::child::Child;
use super::pending::{Back, Hub, Waiter, cancelled_bytes, excerpt};
use super::{Later, Observer, Oddity, StdioSpec};
use crate::fault::{FaultKind, WireFault};
use crate::frame::{self, Frame, Limits, Malformed};
use crate::line::{Line, Lines, Out, QUEUE, write_lines};
use crate::serve::lock;
use crate::signal::Signal;

/// How long what an exited child had written may still be read.
const LAST_READS: Duration = Duration::from_millis(500);

/// A child and the line to it.
pub(super) struct StdioLink {
    pub(super) hub: Arc<Hub>,
    pub(super) child: Arc<Child>,
    outbox: std::sync::Mutex<Option<mpsc::Sender<Out>>>,
    closing: Arc<Signal>,
}

/// The way back to the child.
struct LineBack(mpsc::WeakSender<Out>);

impl Back for LineBack {
    fn send(&self, bytes: Vec<u8>) -> Later<'_, Result<(), WireFault>> {
        Box::pin(async move {
            let closed = || WireFault::unsent(FaultKind::Closed("the line is closed".into()));
            let outbox = self.0.upgrade().ok_or_else(closed)?;
            outbox.send(Out::message(bytes)).await.map_err(|_| closed())
        })
    }

    fn send_now(&self, bytes: Vec<u8>) {
        if let Some(outbox) = self.0.upgrade() {
            let _ = outbox.try_send(Out::message(bytes));
        }
    }
}

impl StdioLink {
    pub(super) fn start(
        spec: &StdioSpec,
        observer: Arc<dyn Observer>,
        limits: Limits,
    ) -> Result<Self, WireFault> {
        let (child, pipes) = Child::start(spec)?;
        let child = Arc::new(child);
        let (outbox, frames) = mpsc::channel(QUEUE);
        tokio::spawn(write_lines(frames, pipes.stdin));
        let hub = Hub::new(observer);
        let back: Arc<dyn Back> = Arc::new(LineBack(outbox.downgrade()));
        let closing = Arc::new(Signal::default());
        let reader = Reader {
            hub: hub.clone(),
            child: Arc::downgrade(&child),
            back,
            limits,
            closing: closing.clone(),
        };
        tokio::spawn(reader.run(pipes.stdout, child.exited()));
        Ok(Self { hub, child, outbox: std::sync::Mutex::new(Some(outbox)), closing })
    }

    fn outbox(&self) -> Result<mpsc::Sender<Out>, WireFault> {
        lock(&self.outbox)
            .clone()
            .ok_or_else(|| WireFault::unsent(FaultKind::Closed("the connection was closed".into())))
    }

    /// Queues a message; an error means that not one byte of it left.
    pub(super) async fn send(&self, bytes: Vec<u8>) -> Result<(), WireFault> {
        let closed = || {
            let kind = self.hub.fault().map(|fault| fault.kind.clone());
            WireFault::unsent(kind.unwrap_or_else(|| FaultKind::Closed("the child does not read".into())))
        };
        self.outbox()?.send(Out::message(bytes)).await.map_err(|_| closed())
    }

    /// Tells the child that nobody waits for this request any more.
    pub(super) fn cancel(&self, waiter: &Waiter, reason: &str) {
        if waiter.abandon()
            && let Ok(outbox) = self.outbox()
        {
            let _ = outbox.try_send(Out::message(cancelled_bytes(waiter.id, reason)));
        }
    }

    /// Closes the child's stdin and sees it off.
    pub(super) async fn close(&self) {
        self.shut();
        self.child.gone().await;
    }

    /// Starts the end without waiting for it.
    pub(super) fn shut(&self) {
        self.closing.raise();
        drop(lock(&self.outbox).take());
        self.child.stop();
    }
}

impl Drop for StdioLink {
    fn drop(&mut self) {
        self.shut();
    }
}

struct Reader {
    hub: Arc<Hub>,
    child: std::sync::Weak<Child>,
    back: Arc<dyn Back>,
    limits: Limits,
    closing: Arc<Signal>,
}

impl Reader {
    async fn run(self, stdout: ChildStdout, exited: Arc<Signal>) {
        let reading = self.read(stdout);
        let ended = async {
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
                self.child.upgrade().map_or_else(|| "the child ended".to_owned(), |child| child.epitaph())
            }
        };
        self.hub.close(WireFault::unknown(FaultKind::Closed(said)));
        if let Some(child) = self.child.upgrade() {
            child.stop();
        }
    }

    async fn read(&self, stdout: ChildStdout) -> Option<String> {
        let mut lines = Lines::new(stdout, self.limits.frame);
        loop {
            let parsed = match lines.next().await {
                Ok(None) => return None,
                Err(error) => return Some(error.to_string()),
                Ok(Some(Line::Whole(bytes))) if bytes.trim_ascii().is_empty() => continue,
                Ok(Some(Line::Whole(bytes))) => {
                    let unread = FaultKind::Protocol("the reply cannot be read".into());
                    frame::parse(bytes, self.limits)
                        .map_err(|broken| (broken.id, Oddity::Noise(excerpt(bytes)), unread))
                }
                Ok(Some(Line::TooLong { head, tail, length })) => {
                    let limit = self.limits.frame;
                    let id = Malformed::too_long(&head, &tail, limit).id;
                    Err((id, Oddity::TooLong(length), FaultKind::TooLarge(limit)))
                }
            };
            match parsed {
                Ok(Frame::One(message)) => self.hub.incoming(message, None, &self.back).await,
                Ok(Frame::Batch(parts)) => {
                    for message in parts.into_iter().flatten() {
                        self.hub.incoming(message, None, &self.back).await;
                    }
                }
                Err((id, oddity, kind)) => {
                    self.hub.observer.odd(oddity);
                    // Where the broken line was somebody's reply, that one must not wait for ever.
                    if let Some(id) = id.and_then(|id| id.as_number()) {
                        self.hub.fail(id, WireFault::unknown(kind));
                    }
                }
            }
        }
    }
}
