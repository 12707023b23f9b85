//! The store: opened once, cloned freely. Writes go through the one writer, reads do not wait for it.

use std::sync::mpsc;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

use countersign_core::ids::{LedgerId, WriterId};
use countersign_core::record::{RowKind, RowStatus};
use jiff::Timestamp;
use serde_json::json;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use crate::chance::{self, Mint};
use crate::changes::Ear;
use crate::engine::{Engine, Home, PostgresHome, SqliteHome, cells};
use crate::fault::{Doing, FaultKind, Hurt, StoreFault};
use crate::ledger::{Checkpoint, CheckpointSink, Entry, PublicKey, SigningKey, key_path, keys_beside};
use crate::migrate;
use crate::options::{ConnectOptions, ReadRows};
use crate::readers::{Readers, View};
use crate::seal::{self, Seal};
use crate::url::StoreUrl;
use crate::writer::{self, Deed, Health, Keep, Queue, Since, Tx, Writer};

/// How much work may wait for the writer before callers wait to hand it over.
const WAITING: usize = 4096;

/// The records of one gateway.
#[derive(Clone)]
pub struct Store {
    inner: Arc<Inner>,
}

struct Inner {
    queue: Queue,
    thread: Mutex<Option<JoinHandle<()>>>,
    places: Arc<Semaphore>,
    readers: Option<Readers>,
    health: Arc<Health>,
    mint: Arc<Mint>,
    writer: WriterId,
    reads: ReadRows,
    key: Option<Arc<SigningKey>>,
    trusted: Vec<PublicKey>,
    seal: Option<Arc<Seal>>,
    sinks: Vec<Arc<dyn CheckpointSink>>,
    ear: Ear,
    shared: Shared,
    opened: ToDo,
}

/// What a store was opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ToDo {
    /// Reading and writing.
    Work,
    /// Reading, and nothing else.
    Look,
}

/// Whether other machines may use the same store at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shared {
    /// Replicas may.
    Yes,
    /// It lies on this machine.
    No,
}

/// What opening a store yields.
struct Started {
    writer: Writer,
    queue: Queue,
    readers: Option<Readers>,
    new_key: Option<String>,
}

/// What opening a store to read it yields.
struct Looking {
    home: Arc<dyn Home>,
    readers: Readers,
    trusted: Vec<PublicKey>,
    seal: Option<Arc<Seal>>,
}

impl Store {
    /// Opens a store, makes it where there is none, and brings it up to date.
    pub async fn connect(url: &StoreUrl, options: ConnectOptions) -> Result<Self, StoreFault> {
        let shared = shared(url);
        let (url, now) = (url.clone(), options.now);
        let (done, opened) = oneshot::channel();
        let (go, wait) = mpsc::channel::<Writer>();
        // Opening blocks on the disk or the network, and the thread that opens goes on as the writer.
        let thread = std::thread::Builder::new()
            .name("store-writer".into())
            .spawn(move || {
                let _ = done.send(start(&url, options));
                if let Ok(writer) = wait.recv() {
                    writer.run();
                }
            })
            .map_err(|error| StoreFault::unavailable(format!("no thread: {error}")).while_(Doing::Opening))?;
        let gone = |_| StoreFault::unavailable("the writer is gone").while_(Doing::Opening);
        let started = opened.await.map_err(gone)?.map_err(|fault| fault.while_(Doing::Opening))?;
        let Started { writer, queue, readers, new_key } = started;
        let inner = Inner {
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
            ear: Ear::new(Arc::clone(&writer.home), writer.instance.clone()),
            shared,
            opened: ToDo::Work,
        };
        go.send(writer).map_err(|_| StoreFault::unavailable("the writer is gone").while_(Doing::Opening))?;
        let store = Self { inner: Arc::new(inner) };
        if let Some(public_key) = new_key {
            let detail = json!({"action": "signing_key", "public_key": public_key});
            store.append(Entry::new(RowKind::System, RowStatus::Success).with_detail(&detail), now).await?;
        }
        Ok(store)
    }

    /// Opens a store that is there, to look at it: nothing is made, brought up to date or written, by this store or ever
    /// through it. A store of another version is refused.
    pub async fn connect_to_read(url: &StoreUrl, options: ConnectOptions) -> Result<Self, StoreFault> {
        let (shared, writer, address) = (shared(url), options.writer.clone(), url.clone());
        let (done, opened) = oneshot::channel();
        // Opening blocks on the disk or the network.
        std::thread::Builder::new()
            .name("store-opener".into())
            .spawn(move || done.send(look(&address, &options)).map_err(drop))
            .map_err(|error| StoreFault::unavailable(format!("no thread: {error}")).while_(Doing::Opening))?;
        let gone = |_| StoreFault::unavailable("nobody opens it").while_(Doing::Opening);
        let Looking { home, readers, trusted, seal } =
            opened.await.map_err(gone)?.map_err(|fault| fault.while_(Doing::Opening))?;
        let inner = Inner {
            // Nobody works it off, so nothing is taken.
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
            ear: Ear::new(home, String::new()),
            shared,
            opened: ToDo::Look,
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// The name of the chain this store appends to.
    pub fn writer(&self) -> &WriterId {
        &self.inner.writer
    }

    /// Whether replicas may use this store at the same time.
    pub fn shared(&self) -> Shared {
        self.inner.shared
    }

    pub(crate) fn ear(&self) -> &Ear {
        &self.inner.ear
    }

    /// The key of this store's redactor and of other digests that must not be guessed. It comes from a file outside the database;
    /// empty in a store that is opened to read where that file can't be read.
    pub fn salt(&self) -> &[u8] {
        self.inner.seal.as_ref().map(|seal| seal.digest_key()).unwrap_or_default()
    }

    /// The keys of the key file beside the store: those whose checkpoints are believed.
    pub fn trusted_keys(&self) -> &[PublicKey] {
        &self.inner.trusted
    }

    /// What opens plans.
    pub(crate) fn seal(&self) -> Result<Arc<Seal>, StoreFault> {
        let none = "plans are sealed, and the key file they are sealed with can't be read";
        self.inner.seal.clone().ok_or_else(|| StoreFault::new(FaultKind::Key, Hurt::Statement, none))
    }

    /// Gives a committed checkpoint to whatever keeps them outside; what can't be kept there is a row.
    pub(crate) async fn keep_outside(&self, made: &Checkpoint) -> Result<(), StoreFault> {
        for why in self.inner.sinks.iter().filter_map(|sink| sink.keep(made).err()) {
            self.append(Entry::not_kept_outside(&why), Timestamp::now()).await?;
        }
        Ok(())
    }

    /// Whether the last commit failed.
    pub fn is_failing(&self) -> bool {
        self.inner.health.is_failing()
    }

    /// Returns when everything handed over before is written.
    pub async fn flush(&self) -> Result<(), StoreFault> {
        self.write(|_| Ok(())).await
    }

    /// Whether reads go out before their rows are durable.
    pub(crate) fn reads(&self) -> ReadRows {
        self.inner.reads
    }

    pub(crate) fn signing_key(&self) -> Option<Arc<SigningKey>> {
        self.inner.key.clone()
    }

    pub(crate) fn mint(&self, now: Timestamp) -> LedgerId {
        self.inner.mint.next(now)
    }

    /// What mints ids of rows inside a transaction. Work must not hold the store itself: it would keep its own writer alive.
    pub(crate) fn ids(&self) -> Arc<Mint> {
        Arc::clone(&self.inner.mint)
    }

    /// Work in one transaction; durable when it returns.
    pub(crate) async fn write<T: Send + 'static>(
        &self,
        work: impl FnMut(&mut Tx<'_>) -> Result<T, StoreFault> + Send + 'static,
    ) -> Result<T, StoreFault> {
        self.ask_writer(Keep::Not, work).await
    }

    pub(crate) async fn ask_writer<T: Send + 'static>(
        &self,
        keep: Keep,
        work: impl FnMut(&mut Tx<'_>) -> Result<T, StoreFault> + Send + 'static,
    ) -> Result<T, StoreFault> {
        let since = Instant::now();
        let gone = || StoreFault::unavailable("the writer is gone");
        let place = Arc::clone(&self.inner.places).acquire_owned().await.map_err(|_| gone())?;
        let (deed, answer) = writer::ask(since, place, keep, work);
        self.hand_over(deed)?;
        answer.await.map_err(|_| gone())?
    }

    /// Work nobody waits for; written within 100 ms, or as soon as the store can be written again.
    pub(crate) fn tell_writer(
        &self,
        place: OwnedSemaphorePermit,
        work: impl FnMut(&mut Tx<'_>) -> Result<(), StoreFault> + Send + 'static,
    ) -> Result<(), StoreFault> {
        self.hand_over(writer::tell(Some(place), Keep::UntilWritten, work))
    }

    /// A place in the writer's queue, if one is free.
    pub(crate) fn try_place(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.inner.places).try_acquire_owned().ok()
    }

    fn hand_over(&self, deed: Box<dyn Deed>) -> Result<(), StoreFault> {
        match (self.inner.queue.push(deed), self.inner.opened) {
            (true, _) => Ok(()),
            (false, ToDo::Work) => Err(StoreFault::unavailable("the writer is gone")),
            (false, ToDo::Look) => {
                Err(StoreFault::new(FaultKind::ReadOnly, Hurt::Statement, "it was opened to be read only"))
            }
        }
    }

    /// A look at everything as of one moment.
    pub(crate) async fn read<T: Send + 'static>(
        &self,
        mut work: impl FnMut(&mut View<'_>) -> Result<T, StoreFault> + Send + 'static,
    ) -> Result<T, StoreFault> {
        match &self.inner.readers {
            Some(readers) => readers.ask(work).await,
            None => {
                self.write(move |tx| work(&mut tx.view())).await.map_err(|fault| fault.while_(Doing::Reading))
            }
        }
    }
}

impl Drop for Inner {
    /// Waits for the writer to end, so that nothing handed over is lost with the process.
    fn drop(&mut self) {
        self.queue.close();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread.filter(|thread| thread.thread().id() != std::thread::current().id()) {
            let _ = thread.join();
        }
        if let Some(readers) = &self.readers {
            readers.end();
        }
        self.ear.end();
    }
}

fn shared(url: &StoreUrl) -> Shared {
    match url {
        StoreUrl::Postgres(_) => Shared::Yes,
        StoreUrl::Sqlite(_) | StoreUrl::Memory => Shared::No,
    }
}

fn look(url: &StoreUrl, options: &ConnectOptions) -> Result<Looking, StoreFault> {
    let gone =
        || StoreFault::new(FaultKind::Empty, Hurt::Statement, "a store in memory is gone with its process");
    let home: Arc<dyn Home> = match url {
        StoreUrl::Sqlite(path) => Arc::new(SqliteHome::looked_at(path, options.patience)),
        StoreUrl::Memory => return Err(gone()),
        StoreUrl::Postgres(url) => Arc::new(PostgresHome::new(url, options.patience)?),
    };
    let mut engine = home.reader()?.ok_or_else(gone)?;
    migrate::check(engine.as_mut())?;
    let seal = seal::look(engine.as_mut(), url, options).map(Arc::new);
    drop(engine);
    let readers = Readers::start(&home, options.readers)?.ok_or_else(gone)?;
    // A key file that can't be read leaves nobody to believe; whoever verifies says so.
    let trusted = keys_beside(url, options).unwrap_or_default();
    Ok(Looking { home, readers, trusted, seal })
}

fn start(url: &StoreUrl, options: ConnectOptions) -> Result<Started, StoreFault> {
    let instance = format!("{:032x}", chance::bits());
    let home: Arc<dyn Home> = match url {
        StoreUrl::Sqlite(path) => {
            Arc::new(SqliteHome::file(path, &instance, options.max_bytes, options.patience)?)
        }
        StoreUrl::Memory => Arc::new(SqliteHome::memory()),
        StoreUrl::Postgres(url) => Arc::new(PostgresHome::new(url, options.patience)?),
    };
    let mut engine = home.writer(&instance)?;
    migrate::migrate(engine.as_mut(), options.now)?;
    let key = signing_key(url, &options)?.map(Arc::new);
    let new_key = settle_key(engine.as_mut(), &options.writer, key.as_deref(), options.now)?;
    let seal = Arc::new(seal::settle(engine.as_mut(), url, &options)?);
    let readers = Readers::start(&home, options.readers)?;
    let (queue, work) = writer::queue();
    let writer = Writer {
        queue: work,
        home,
        engine: Some(engine),
        name: options.writer,
        instance,
        key,
        seal,
        sinks: options.sinks,
        outside_fails: false,
        cadence: options.checkpoints,
        group: options.group.max(1),
        reads: options.reads,
        health: Arc::default(),
        since: Since { rows: 0, when: Instant::now() },
        pace: Default::default(),
        backlog: Default::default(),
        ruined: None,
    };
    Ok(Started { writer, queue, readers, new_key })
}

fn signing_key(url: &StoreUrl, options: &ConnectOptions) -> Result<Option<SigningKey>, StoreFault> {
    match (url, key_path(url, options)) {
        (StoreUrl::Memory, None) => SigningKey::fleeting().map(Some),
        (_, Some(path)) => SigningKey::read_or_make(&path).map(Some),
        (StoreUrl::Sqlite(_) | StoreUrl::Postgres(_), None) => Ok(None),
    }
}

/// Notes the public key, if this store has not seen it before. The table is a record of which keys there were; nothing believes it.
fn settle_key(
    engine: &mut dyn Engine,
    writer: &WriterId,
    key: Option<&SigningKey>,
    now: Timestamp,
) -> Result<Option<String>, StoreFault> {
    let Some(public) = key.map(|key| key.public().hex()) else { return Ok(None) };
    engine.begin(writer.as_str())?;
    let added = engine.execute(
        "INSERT INTO signing_keys (public_key, created) VALUES ($1, $2) ON CONFLICT (public_key) DO NOTHING",
        &cells![public.as_str(), now],
    );
    match added {
        Ok(added) => {
            engine.commit()?;
            Ok((added > 0).then_some(public))
        }
        Err(fault) => {
            engine.rollback();
            Err(fault)
        }
    }
}
