//! The store: opened once, cloned freely. Writes go through one writer thread; reads do not wait for it.

use std::sync::mpsc;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

use countersign_policy::ids::{LedgerId, WriterId};
use countersign_policy::record::{RowKind, RowStatus};
use jiff::Timestamp;
use serde_json::json;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use crate::changes::ChangeListener;
use crate::engine::{
    Cell, ConnectionFactory, DatabaseConnection, PostgresHome, SqliteHome, cells, in_transaction,
};
use crate::fault::{FailureScope, FaultKind, StoreFault, StoreOperation};
use crate::ledger::{Checkpoint, CheckpointSink, Entry, PublicKey, SigningKey, key_path, keys_beside};
use crate::migrate;
use crate::options::{ConnectOptions, ReadRows};
use crate::random::{self, LedgerIdGenerator};
use crate::readers::{ReadTransaction, ReaderPool};
use crate::seal::{self, Seal};
use crate::url::StoreUrl;
use crate::writer::{
    self, CheckpointAge, StoreWriter, Tx, WriteJob, WriteQueue, WriteRetryPolicy, WriterHealth,
};

/// How many jobs may wait for the writer before callers have to wait.
const WAITING: usize = 4096;

#[derive(Clone)]
pub struct Store {
    inner: Arc<StoreInner>,
}

struct StoreInner {
    queue: WriteQueue,
    thread: Mutex<Option<JoinHandle<()>>>,
    places: Arc<Semaphore>,
    readers: Option<ReaderPool>,
    health: Arc<WriterHealth>,
    mint: Arc<LedgerIdGenerator>,
    writer: WriterId,
    reads: ReadRows,
    key: Option<Arc<SigningKey>>,
    trusted: Vec<PublicKey>,
    seal: Option<Arc<Seal>>,
    sinks: Vec<Arc<dyn CheckpointSink>>,
    listener: ChangeListener,
    shared: StoreSharing,
    access: StoreAccess,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StoreAccess {
    ReadWrite,
    ReadOnly,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreSharing {
    Yes,
    No,
}

struct OpenedStore {
    writer: StoreWriter,
    queue: WriteQueue,
    readers: Option<ReaderPool>,
    new_key: Option<String>,
}

struct ReadOnlyStore {
    home: Arc<dyn ConnectionFactory>,
    readers: ReaderPool,
    trusted: Vec<PublicKey>,
    seal: Option<Arc<Seal>>,
}

impl Store {
    /// Opens a store, creates it if needed, and migrates it.
    pub async fn connect(url: &StoreUrl, options: ConnectOptions) -> Result<Self, StoreFault> {
        let shared = shared(url);
        let (url, now) = (url.clone(), options.now);
        let (done, opened) = oneshot::channel();
        let (go, wait) = mpsc::channel::<StoreWriter>();
        // Opening blocks on the disk or the network; the thread that opens the store becomes the writer.
        let thread = std::thread::Builder::new()
            .name("store-writer".into())
            .spawn(move || {
                let _ = done.send(open_for_writing(&url, options));
                if let Ok(writer) = wait.recv() {
                    writer.run();
                }
            })
            .map_err(|error| {
                StoreFault::unavailable(format!("no thread: {error}")).during(StoreOperation::Opening)
            })?;
        let gone = |_| StoreFault::unavailable("the writer is gone").during(StoreOperation::Opening);
        let started = opened.await.map_err(gone)?.map_err(|fault| fault.during(StoreOperation::Opening))?;
        let OpenedStore { writer, queue, readers, new_key } = started;
        let inner = StoreInner {
            queue,
            thread: Mutex::new(Some(thread)),
            places: Arc::new(Semaphore::new(WAITING)),
            readers,
            health: Arc::clone(&writer.health),
            mint: Arc::default(),
            writer: writer.name.clone(),
            reads: writer.reads,
            key: writer.key.clone(),
            trusted: writer.key.as_ref().map(|key| key.trusted()).unwrap_or_default(),
            seal: Some(Arc::clone(&writer.seal)),
            sinks: writer.sinks.clone(),
            listener: ChangeListener::new(Arc::clone(&writer.home), writer.instance.clone()),
            shared,
            access: StoreAccess::ReadWrite,
        };
        go.send(writer)
            .map_err(|_| StoreFault::unavailable("the writer is gone").during(StoreOperation::Opening))?;
        let store = Self { inner: Arc::new(inner) };
        if let Some(public_key) = new_key {
            let detail = json!({"action": "signing_key", "public_key": public_key});
            store.append(Entry::new(RowKind::System, RowStatus::Success).with_detail(&detail), now).await?;
        }
        Ok(store)
    }

    /// Opens an existing store for reading. Creates, migrates and writes nothing; refuses a store of another version.
    pub async fn connect_to_read(url: &StoreUrl, options: ConnectOptions) -> Result<Self, StoreFault> {
        let (shared, writer, address) = (shared(url), options.writer.clone(), url.clone());
        let (done, opened) = oneshot::channel();
        // Opening blocks on the disk or the network.
        std::thread::Builder::new()
            .name("store-opener".into())
            .spawn(move || done.send(open_for_reading(&address, &options)).map_err(drop))
            .map_err(|error| {
                StoreFault::unavailable(format!("no thread: {error}")).during(StoreOperation::Opening)
            })?;
        let gone = |_| StoreFault::unavailable("nobody opens it").during(StoreOperation::Opening);
        let ReadOnlyStore { home, readers, trusted, seal } =
            opened.await.map_err(gone)?.map_err(|fault| fault.during(StoreOperation::Opening))?;
        let inner = StoreInner {
            // A queue without a receiver: every job is refused.
            queue: writer::queue().0,
            thread: Mutex::default(),
            places: Arc::new(Semaphore::new(WAITING)),
            readers: Some(readers),
            health: Arc::default(),
            mint: Arc::default(),
            writer,
            reads: ReadRows::Sync,
            key: None,
            trusted,
            seal,
            sinks: Vec::new(),
            listener: ChangeListener::new(home, String::new()),
            shared,
            access: StoreAccess::ReadOnly,
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    pub fn writer(&self) -> &WriterId {
        &self.inner.writer
    }

    pub fn shared(&self) -> StoreSharing {
        self.inner.shared
    }

    pub(crate) fn change_listener(&self) -> &ChangeListener {
        &self.inner.listener
    }

    /// The key of the redactor and of other digests that must not be guessed, from the seal file. Empty in a store opened for reading if that
    /// file can't be read.
    pub fn salt(&self) -> &[u8] {
        self.inner.seal.as_ref().map(|seal| seal.digest_key()).unwrap_or_default()
    }

    /// The keys of the key file beside the store: those whose checkpoints are trusted.
    pub fn trusted_keys(&self) -> &[PublicKey] {
        &self.inner.trusted
    }

    pub(crate) fn seal(&self) -> Result<Arc<Seal>, StoreFault> {
        let none = "plans are sealed, and the key file they are sealed with can't be read";
        self.inner.seal.clone().ok_or_else(|| StoreFault::new(FaultKind::Key, FailureScope::Statement, none))
    }

    /// Passes a committed checkpoint to the sinks; a failure becomes a row.
    pub(crate) async fn keep_outside(&self, made: &Checkpoint) -> Result<(), StoreFault> {
        for why in self.inner.sinks.iter().filter_map(|sink| sink.keep(made).err()) {
            self.append(Entry::not_kept_outside(&why), Timestamp::now()).await?;
        }
        Ok(())
    }

    pub fn is_failing(&self) -> bool {
        self.inner.health.is_failing()
    }

    /// Returns when every earlier job is written.
    pub async fn flush(&self) -> Result<(), StoreFault> {
        self.write(|_| Ok(())).await
    }

    pub(crate) fn reads(&self) -> ReadRows {
        self.inner.reads
    }

    pub(crate) fn signing_key(&self) -> Option<Arc<SigningKey>> {
        self.inner.key.clone()
    }

    pub(crate) fn mint(&self, now: Timestamp) -> LedgerId {
        self.inner.mint.next(now)
    }

    /// Makes ids of rows inside a transaction. A job must not hold the store itself: it would keep its own writer alive.
    pub(crate) fn ids(&self) -> Arc<LedgerIdGenerator> {
        Arc::clone(&self.inner.mint)
    }

    /// Runs a job in a write transaction; durable when it returns.
    pub(crate) async fn write<T: Send + 'static>(
        &self,
        work: impl FnMut(&mut Tx<'_>) -> Result<T, StoreFault> + Send + 'static,
    ) -> Result<T, StoreFault> {
        self.run_job(WriteRetryPolicy::Not, work).await
    }

    pub(crate) async fn run_job<T: Send + 'static>(
        &self,
        retry: WriteRetryPolicy,
        work: impl FnMut(&mut Tx<'_>) -> Result<T, StoreFault> + Send + 'static,
    ) -> Result<T, StoreFault> {
        let since = Instant::now();
        let gone = || StoreFault::unavailable("the writer is gone");
        let place = Arc::clone(&self.inner.places).acquire_owned().await.map_err(|_| gone())?;
        let (job, answer) = writer::awaited_job(since, place, retry, work);
        self.hand_over(job)?;
        answer.await.map_err(|_| gone())?
    }

    /// Runs one statement in a write transaction; returns how many rows it changed.
    pub(crate) async fn execute(
        &self,
        sql: &'static str,
        values: impl Into<Vec<Cell>>,
    ) -> Result<u64, StoreFault> {
        let values = values.into();
        self.write(move |tx| tx.execute(sql, &values)).await
    }

    /// Queues a job that no caller waits for; written within 100 ms, or as soon as the store can be written again.
    pub(crate) fn queue_job(
        &self,
        place: OwnedSemaphorePermit,
        work: impl FnMut(&mut Tx<'_>) -> Result<(), StoreFault> + Send + 'static,
    ) -> Result<(), StoreFault> {
        self.hand_over(writer::detached_job(Some(place), WriteRetryPolicy::UntilWritten, work))
    }

    pub(crate) fn try_place(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.inner.places).try_acquire_owned().ok()
    }

    fn hand_over(&self, job: Box<dyn WriteJob>) -> Result<(), StoreFault> {
        match (self.inner.queue.push(job), self.inner.access) {
            (true, _) => Ok(()),
            (false, StoreAccess::ReadWrite) => Err(StoreFault::unavailable("the writer is gone")),
            (false, StoreAccess::ReadOnly) => Err(StoreFault::new(
                FaultKind::ReadOnly,
                FailureScope::Statement,
                "it was opened to be read only",
            )),
        }
    }

    /// Runs a read transaction on one snapshot.
    pub(crate) async fn read<T: Send + 'static>(
        &self,
        mut work: impl FnMut(&mut ReadTransaction<'_>) -> Result<T, StoreFault> + Send + 'static,
    ) -> Result<T, StoreFault> {
        match &self.inner.readers {
            Some(readers) => readers.ask(work).await,
            None => self
                .write(move |tx| work(&mut tx.view()))
                .await
                .map_err(|fault| fault.during(StoreOperation::Reading)),
        }
    }
}

impl Drop for StoreInner {
    /// Waits for the writer thread, so that no queued job is lost with the process.
    fn drop(&mut self) {
        self.queue.close();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread.filter(|thread| thread.thread().id() != std::thread::current().id()) {
            let _ = thread.join();
        }
        if let Some(readers) = &self.readers {
            readers.end();
        }
        self.listener.end();
    }
}

fn shared(url: &StoreUrl) -> StoreSharing {
    match url {
        StoreUrl::Postgres(_) => StoreSharing::Yes,
        StoreUrl::Sqlite(_) | StoreUrl::Memory => StoreSharing::No,
    }
}

fn open_for_reading(url: &StoreUrl, options: &ConnectOptions) -> Result<ReadOnlyStore, StoreFault> {
    let gone = || {
        StoreFault::new(
            FaultKind::Empty,
            FailureScope::Statement,
            "a store in memory is gone with its process",
        )
    };
    let home: Arc<dyn ConnectionFactory> = match url {
        StoreUrl::Sqlite(path) => Arc::new(SqliteHome::read_only(path, options.patience)),
        StoreUrl::Memory => return Err(gone()),
        StoreUrl::Postgres(url) => Arc::new(PostgresHome::new(url, options.patience)?),
    };
    let mut engine = home.reader()?.ok_or_else(gone)?;
    migrate::check(engine.as_mut())?;
    let seal = seal::load(engine.as_mut(), url, options).map(Arc::new);
    drop(engine);
    let readers = ReaderPool::start(&home, options.readers)?.ok_or_else(gone)?;
    // Without a readable key file no key is trusted; verification reports that.
    let trusted = keys_beside(url, options).unwrap_or_default();
    Ok(ReadOnlyStore { home, readers, trusted, seal })
}

fn open_for_writing(url: &StoreUrl, options: ConnectOptions) -> Result<OpenedStore, StoreFault> {
    let instance = format!("{:032x}", random::bits());
    let home: Arc<dyn ConnectionFactory> = match url {
        StoreUrl::Sqlite(path) => {
            Arc::new(SqliteHome::file(path, &instance, options.max_bytes, options.patience)?)
        }
        StoreUrl::Memory => Arc::new(SqliteHome::memory()),
        StoreUrl::Postgres(url) => Arc::new(PostgresHome::new(url, options.patience)?),
    };
    let mut engine = home.writer(&instance)?;
    migrate::migrate(engine.as_mut(), options.now)?;
    let key = signing_key(url, &options)?.map(Arc::new);
    let new_key = record_key(engine.as_mut(), &options.writer, key.as_deref(), options.now)?;
    let seal = Arc::new(seal::load_or_create(engine.as_mut(), url, &options)?);
    let readers = ReaderPool::start(&home, options.readers)?;
    let (queue, work) = writer::queue();
    let writer = StoreWriter {
        queue: work,
        home,
        engine: Some(engine),
        name: options.writer,
        instance,
        key,
        seal,
        sinks: options.sinks,
        sink_fails: false,
        cadence: options.checkpoints,
        group: options.group.max(1),
        reads: options.reads,
        health: Arc::default(),
        since: CheckpointAge { rows: 0, when: Instant::now() },
        pace: Default::default(),
        backlog: Default::default(),
        ruined: None,
    };
    Ok(OpenedStore { writer, queue, readers, new_key })
}

fn signing_key(url: &StoreUrl, options: &ConnectOptions) -> Result<Option<SigningKey>, StoreFault> {
    match (url, key_path(url, options)) {
        (StoreUrl::Memory, None) => SigningKey::in_memory().map(Some),
        (_, Some(path)) => SigningKey::read_or_make(&path).map(Some),
        (StoreUrl::Sqlite(_) | StoreUrl::Postgres(_), None) => Ok(None),
    }
}

/// Records the public key; returns it if it is new to this store. The table only says which keys there were: verification does not trust it.
fn record_key(
    engine: &mut dyn DatabaseConnection,
    writer: &WriterId,
    key: Option<&SigningKey>,
    now: Timestamp,
) -> Result<Option<String>, StoreFault> {
    let Some(public) = key.map(|key| key.public().hex()) else { return Ok(None) };
    let sql =
        "INSERT INTO signing_keys (public_key, created) VALUES ($1, $2) ON CONFLICT (public_key) DO NOTHING";
    let added =
        in_transaction(engine, writer.as_str(), |engine| engine.execute(sql, &cells![public.as_str(), now]))?;
    Ok((added > 0).then_some(public))
}
