//! Readers: a few threads with connections of their own, which never wait for the writer. They change nothing: SQLite
//! and PostgreSQL are both told so.

use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use tokio::sync::oneshot;

use crate::engine::{Cell, Dialect, Engine, Found, Home};
use crate::fault::{Doing, Hurt, StoreFault};

/// Everything as of one moment.
pub(crate) struct View<'e> {
    engine: &'e mut dyn Engine,
}

impl<'e> View<'e> {
    pub(crate) fn new(engine: &'e mut dyn Engine) -> Self {
        Self { engine }
    }

    pub(crate) fn dialect(&self) -> Dialect {
        self.engine.dialect()
    }

    pub(crate) fn query(&mut self, sql: &str, values: &[Cell]) -> Result<Vec<Found>, StoreFault> {
        self.engine.query(sql, values)
    }

    /// The first row of what was found.
    pub(crate) fn one(&mut self, sql: &str, values: &[Cell]) -> Result<Option<Found>, StoreFault> {
        Ok(self.query(sql, values)?.into_iter().next())
    }
}

/// A question to a reader.
trait Look: Send {
    fn attempt(&mut self, view: &mut View<'_>) -> Result<(), StoreFault>;
    fn answer(&mut self, outcome: Result<(), StoreFault>);
}

struct Asked<T, W> {
    work: W,
    result: Option<T>,
    reply: Option<oneshot::Sender<Result<T, StoreFault>>>,
}

impl<T: Send, W: FnMut(&mut View<'_>) -> Result<T, StoreFault> + Send> Look for Asked<T, W> {
    fn attempt(&mut self, view: &mut View<'_>) -> Result<(), StoreFault> {
        self.result = Some((self.work)(view)?);
        Ok(())
    }

    fn answer(&mut self, outcome: Result<(), StoreFault>) {
        let Some(reply) = self.reply.take() else { return };
        let lost = || StoreFault::unavailable("a question ended without an answer");
        let answer = outcome.and_then(|()| self.result.take().ok_or_else(lost));
        let _ = reply.send(answer.map_err(|fault| fault.while_(Doing::Reading)));
    }
}

/// The threads that read.
pub(crate) struct Readers {
    queue: Mutex<Option<Sender<Box<dyn Look>>>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Readers {
    /// Starts the threads; the first connection is made here, so that a store that can't be read does not open.
    /// None where readers have to queue with the writer.
    pub(crate) fn start(home: &Arc<dyn Home>, count: usize) -> Result<Option<Self>, StoreFault> {
        let Some(first) = home.reader()? else { return Ok(None) };
        let (queue, work) = mpsc::channel();
        let work = Arc::new(Mutex::new(work));
        let mut first = Some(first);
        let mut threads = Vec::new();
        for _ in 0..count.max(1) {
            let (home, work, engine) = (Arc::clone(home), Arc::clone(&work), first.take());
            let thread = std::thread::Builder::new()
                .name("store-reader".into())
                .spawn(move || Reader { home, engine }.run(&work))
                .map_err(|error| StoreFault::unavailable(format!("no thread: {error}")))?;
            threads.push(thread);
        }
        Ok(Some(Self { queue: Mutex::new(Some(queue)), threads: Mutex::new(threads) }))
    }

    /// Ends the threads and waits for them.
    pub(crate) fn end(&self) {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).take();
        for thread in self.threads.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            let _ = thread.join();
        }
    }

    pub(crate) async fn ask<T: Send + 'static>(
        &self,
        work: impl FnMut(&mut View<'_>) -> Result<T, StoreFault> + Send + 'static,
    ) -> Result<T, StoreFault> {
        let (reply, answer) = oneshot::channel();
        let gone = || StoreFault::unavailable("the readers are gone").while_(Doing::Reading);
        let look = Asked { work, result: None, reply: Some(reply) };
        self.send(Box::new(look)).ok_or_else(gone)?;
        answer.await.map_err(|_| gone())?
    }

    fn send(&self, look: Box<dyn Look>) -> Option<()> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).as_ref()?.send(look).ok()
    }
}

struct Reader {
    home: Arc<dyn Home>,
    engine: Option<Box<dyn Engine>>,
}

impl Reader {
    fn run(mut self, work: &Mutex<Receiver<Box<dyn Look>>>) {
        loop {
            // The lock is held while waiting, and only then: one thread waits for work, the others for the lock.
            let next = work.lock().unwrap_or_else(PoisonError::into_inner).recv();
            let Ok(mut look) = next else { break };
            let mut outcome = self.attempt(look.as_mut());
            // A connection that died while nobody used it is made again, once.
            if matches!(&outcome, Err(fault) if fault.hurt >= Hurt::Connection) {
                self.engine = None;
                outcome = self.attempt(look.as_mut());
            }
            look.answer(outcome);
        }
    }

    fn attempt(&mut self, look: &mut dyn Look) -> Result<(), StoreFault> {
        let mut engine = match self.engine.take() {
            Some(engine) => engine,
            None => self.home.reader()?.ok_or_else(|| StoreFault::unavailable("there are no readers"))?,
        };
        engine.begin_reading()?;
        let outcome = look.attempt(&mut View::new(engine.as_mut()));
        engine.rollback();
        self.engine = Some(engine);
        outcome
    }
}
