//! Reader threads with read-only connections of their own, which never wait for the writer.

use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use tokio::sync::oneshot;

use crate::engine::{Cell, ConnectionFactory, DatabaseConnection, FoundRow, SqlDialect};
use crate::fault::{FailureScope, StoreFault, StoreOperation};

pub(crate) struct ReadTransaction<'e> {
    engine: &'e mut dyn DatabaseConnection,
}

impl<'e> ReadTransaction<'e> {
    pub(crate) fn new(engine: &'e mut dyn DatabaseConnection) -> Self {
        Self { engine }
    }

    pub(crate) fn dialect(&self) -> SqlDialect {
        self.engine.dialect()
    }

    pub(crate) fn query(&mut self, sql: &str, values: &[Cell]) -> Result<Vec<FoundRow>, StoreFault> {
        self.engine.query(sql, values)
    }

    /// The first row of what was found.
    pub(crate) fn one(&mut self, sql: &str, values: &[Cell]) -> Result<Option<FoundRow>, StoreFault> {
        Ok(self.query(sql, values)?.into_iter().next())
    }
}

trait ReadJob: Send {
    fn attempt(&mut self, view: &mut ReadTransaction<'_>) -> Result<(), StoreFault>;
    fn answer(&mut self, outcome: Result<(), StoreFault>);
}

struct ReadRequest<T, W> {
    work: W,
    result: Option<T>,
    reply: Option<oneshot::Sender<Result<T, StoreFault>>>,
}

impl<T: Send, W: FnMut(&mut ReadTransaction<'_>) -> Result<T, StoreFault> + Send> ReadJob
    for ReadRequest<T, W>
{
    fn attempt(&mut self, view: &mut ReadTransaction<'_>) -> Result<(), StoreFault> {
        self.result = Some((self.work)(view)?);
        Ok(())
    }

    fn answer(&mut self, outcome: Result<(), StoreFault>) {
        let Some(reply) = self.reply.take() else { return };
        let lost = || StoreFault::unavailable("a question ended without an answer");
        let answer = outcome.and_then(|()| self.result.take().ok_or_else(lost));
        let _ = reply.send(answer.map_err(|fault| fault.during(StoreOperation::Reading)));
    }
}

pub(crate) struct ReaderPool {
    queue: Mutex<Option<Sender<Box<dyn ReadJob>>>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl ReaderPool {
    /// Starts the threads and makes the first connection here, so that a store that can't be read does not open. None where reads go
    /// through the writer's queue.
    pub(crate) fn start(home: &Arc<dyn ConnectionFactory>, count: usize) -> Result<Option<Self>, StoreFault> {
        let Some(first) = home.reader()? else { return Ok(None) };
        let (queue, work) = mpsc::channel();
        let work = Arc::new(Mutex::new(work));
        let mut first = Some(first);
        let mut threads = Vec::new();
        for _ in 0..count.max(1) {
            let (home, work, engine) = (Arc::clone(home), Arc::clone(&work), first.take());
            let thread = std::thread::Builder::new()
                .name("store-reader".into())
                .spawn(move || ReaderThread { home, engine }.run(&work))
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
        work: impl FnMut(&mut ReadTransaction<'_>) -> Result<T, StoreFault> + Send + 'static,
    ) -> Result<T, StoreFault> {
        let (reply, answer) = oneshot::channel();
        let gone = || StoreFault::unavailable("the readers are gone").during(StoreOperation::Reading);
        let job = ReadRequest { work, result: None, reply: Some(reply) };
        self.send(Box::new(job)).ok_or_else(gone)?;
        answer.await.map_err(|_| gone())?
    }

    fn send(&self, job: Box<dyn ReadJob>) -> Option<()> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).as_ref()?.send(job).ok()
    }
}

struct ReaderThread {
    home: Arc<dyn ConnectionFactory>,
    engine: Option<Box<dyn DatabaseConnection>>,
}

impl ReaderThread {
    fn run(mut self, work: &Mutex<Receiver<Box<dyn ReadJob>>>) {
        loop {
            // The lock is held only while waiting: one thread waits for work, the others for the lock.
            let next = work.lock().unwrap_or_else(PoisonError::into_inner).recv();
            let Ok(mut job) = next else { break };
            let mut outcome = self.attempt(job.as_mut());
            // A connection that died while idle is made again, once.
            if matches!(&outcome, Err(fault) if fault.scope >= FailureScope::Connection) {
                tracing::debug!("reader reconnects to the database");
                self.engine = None;
                outcome = self.attempt(job.as_mut());
            }
            job.answer(outcome);
        }
    }

    fn attempt(&mut self, job: &mut dyn ReadJob) -> Result<(), StoreFault> {
        let mut engine = match self.engine.take() {
            Some(engine) => engine,
            None => self.home.reader()?.ok_or_else(|| StoreFault::unavailable("there are no readers"))?,
        };
        engine.begin_reading()?;
        let outcome = job.attempt(&mut ReadTransaction::new(engine.as_mut()));
        engine.rollback();
        self.engine = Some(engine);
        outcome
    }
}
