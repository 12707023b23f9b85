//! One piece of work for the writer: may be attempted again, is answered once. What it does is a closure over a
//! transaction; who waits for it is nobody or a channel.

use std::time::Instant;

use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::tx::Tx;
use crate::fault::StoreFault;

/// What becomes of work that could not be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keep {
    /// It is over.
    Not,
    /// It is tried again until it can be written: it tells of something that has happened.
    UntilWritten,
}

/// A piece of work.
pub(crate) trait Deed: Send {
    fn attempt(&mut self, tx: &mut Tx<'_>) -> Result<(), StoreFault>;
    fn answer(&mut self, outcome: Result<(), StoreFault>);
    fn keep(&self) -> Keep;
    /// Whether someone waits for it.
    fn is_urgent(&self) -> bool;
}

struct Asked<T, W> {
    work: W,
    result: Option<T>,
    reply: Option<oneshot::Sender<Result<T, StoreFault>>>,
    keep: Keep,
    tried: bool,
    since: Instant,
    place: Option<OwnedSemaphorePermit>,
}

impl<T, W> Deed for Asked<T, W>
where
    T: Send,
    W: FnMut(&mut Tx<'_>) -> Result<T, StoreFault> + Send,
{
    fn attempt(&mut self, tx: &mut Tx<'_>) -> Result<(), StoreFault> {
        self.result = None;
        tx.again = std::mem::replace(&mut self.tried, true);
        tx.waited = self.since.elapsed();
        self.result = Some((self.work)(tx)?);
        Ok(())
    }

    fn answer(&mut self, outcome: Result<(), StoreFault>) {
        // Work that is kept for later leaves the queue: it must not keep others from being told no.
        self.place = None;
        let Some(reply) = self.reply.take() else { return };
        let lost = || StoreFault::unavailable("a piece of work ended without a result");
        let answer = outcome.and_then(|()| self.result.take().ok_or_else(lost));
        // Nobody may be waiting any more; what was written stays written.
        let _ = reply.send(answer);
    }

    fn keep(&self) -> Keep {
        self.keep
    }

    fn is_urgent(&self) -> bool {
        self.reply.is_some()
    }
}

/// Work whose result someone waits for, since a moment.
pub(crate) fn ask<T: Send + 'static>(
    since: Instant,
    place: OwnedSemaphorePermit,
    keep: Keep,
    work: impl FnMut(&mut Tx<'_>) -> Result<T, StoreFault> + Send + 'static,
) -> (Box<dyn Deed>, oneshot::Receiver<Result<T, StoreFault>>) {
    let (reply, answer) = oneshot::channel();
    let deed =
        Asked { work, result: None, reply: Some(reply), keep, tried: false, since, place: Some(place) };
    (Box::new(deed), answer)
}

/// Work nobody waits for.
pub(crate) fn tell(
    place: Option<OwnedSemaphorePermit>,
    keep: Keep,
    work: impl FnMut(&mut Tx<'_>) -> Result<(), StoreFault> + Send + 'static,
) -> Box<dyn Deed> {
    Box::new(Asked { work, result: None, reply: None, keep, tried: false, since: Instant::now(), place })
}
