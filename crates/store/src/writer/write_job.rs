//! A job is a closure run inside a write transaction. It may be attempted several times and is answered once. The caller may wait for its
//! result on a oneshot channel.

use std::time::Instant;

use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::tx::Tx;
use crate::fault::StoreFault;

/// What happens to a job that could not be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteRetryPolicy {
    Not,
    /// Retried until it is written: it records something that has happened.
    UntilWritten,
}

pub(crate) trait WriteJob: Send {
    fn attempt(&mut self, tx: &mut Tx<'_>) -> Result<(), StoreFault>;
    fn answer(&mut self, outcome: Result<(), StoreFault>);
    fn retry_policy(&self) -> WriteRetryPolicy;
    fn is_urgent(&self) -> bool;
}

struct QueuedWrite<T, W> {
    work: W,
    result: Option<T>,
    reply: Option<oneshot::Sender<Result<T, StoreFault>>>,
    retry: WriteRetryPolicy,
    tried: bool,
    since: Instant,
    place: Option<OwnedSemaphorePermit>,
}

impl<T, W> WriteJob for QueuedWrite<T, W>
where
    T: Send,
    W: FnMut(&mut Tx<'_>) -> Result<T, StoreFault> + Send,
{
    fn attempt(&mut self, tx: &mut Tx<'_>) -> Result<(), StoreFault> {
        // A result of an attempt that was rolled back must not be sent.
        self.result = None;
        tx.again = std::mem::replace(&mut self.tried, true);
        tx.waited = self.since.elapsed();
        self.result = Some((self.work)(tx)?);
        Ok(())
    }

    fn answer(&mut self, outcome: Result<(), StoreFault>) {
        // A job that goes to the backlog frees its place in the queue, so that other callers get their errors too.
        self.place = None;
        let Some(reply) = self.reply.take() else { return };
        let lost = || StoreFault::unavailable("a piece of work ended without a result");
        let answer = outcome.and_then(|()| self.result.take().ok_or_else(lost));
        // The caller may be gone; what was written stays written.
        let _ = reply.send(answer);
    }

    fn retry_policy(&self) -> WriteRetryPolicy {
        self.retry
    }

    fn is_urgent(&self) -> bool {
        self.reply.is_some()
    }
}

/// A job whose result a caller waits for.
pub(crate) fn awaited_job<T: Send + 'static>(
    since: Instant,
    place: OwnedSemaphorePermit,
    retry: WriteRetryPolicy,
    work: impl FnMut(&mut Tx<'_>) -> Result<T, StoreFault> + Send + 'static,
) -> (Box<dyn WriteJob>, oneshot::Receiver<Result<T, StoreFault>>) {
    let (reply, answer) = oneshot::channel();
    let job = QueuedWrite {
        work,
        result: None,
        reply: Some(reply),
        retry,
        tried: false,
        since,
        place: Some(place),
    };
    (Box::new(job), answer)
}

pub(crate) fn detached_job(
    place: Option<OwnedSemaphorePermit>,
    retry: WriteRetryPolicy,
    work: impl FnMut(&mut Tx<'_>) -> Result<(), StoreFault> + Send + 'static,
) -> Box<dyn WriteJob> {
    Box::new(QueuedWrite {
        work,
        result: None,
        reply: None,
        retry,
        tried: false,
        since: Instant::now(),
        place,
    })
}
