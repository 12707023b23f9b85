//! Tests of failures that can't be caused from outside: a commit whose answer is lost, and a disk that fails to sync.

use std::path::Path;
use std::sync::atomic::AtomicU8;
use std::thread::JoinHandle;

use countersign_policy::ids::LedgerId;
use countersign_policy::record::{RowKind, RowStatus};
use jiff::Timestamp;
use tokio::sync::Semaphore;

use super::*;
use crate::engine::{ScriptedConnection, SqliteHome};
use crate::ledger::Entry;

/// What the next commit does.
const HONEST: u8 = 0;
const COMMITS_AND_HANGS_UP: u8 = 1;
const HANGS_UP: u8 = 2;
const FAILS_TO_SYNC: u8 = 3;

/// Makes connections whose next commit does what a test has set.
struct ScriptedHome {
    home: SqliteHome,
    next: Arc<AtomicU8>,
}

impl ConnectionFactory for ScriptedHome {
    fn writer(&self, instance: &str) -> Result<Box<dyn DatabaseConnection>, StoreFault> {
        let next = Arc::clone(&self.next);
        let scripted =
            ScriptedConnection::new(self.home.writer(instance)?).on_commit(move |engine| {
                match next.swap(HONEST, Ordering::SeqCst) {
                    COMMITS_AND_HANGS_UP => {
                        engine.commit()?;
                        Err(StoreFault::unavailable("hung up after the commit"))
                    }
                    HANGS_UP => {
                        engine.rollback();
                        Err(StoreFault::unavailable("hung up before the commit"))
                    }
                    FAILS_TO_SYNC => {
                        engine.rollback();
                        let inside = "fsync: input/output error";
                        Err(StoreFault::new(FaultKind::Unavailable, FailureScope::Disk, inside))
                    }
                    _ => engine.commit(),
                }
            });
        Ok(Box::new(scripted))
    }
    fn reader(&self) -> Result<Option<Box<dyn DatabaseConnection>>, StoreFault> {
        self.home.reader()
    }
}

/// A writer on a scripted database.
struct WriterUnderTest {
    queue: WriteQueue,
    next: Arc<AtomicU8>,
    places: Arc<Semaphore>,
    thread: Option<JoinHandle<()>>,
    appended: u128,
}

impl WriterUnderTest {
    fn open(path: &Path) -> Self {
        let next = Arc::new(AtomicU8::new(HONEST));
        let home = SqliteHome::file(path, "i", None, Duration::from_secs(5)).unwrap();
        let home = Arc::new(ScriptedHome { home, next: Arc::clone(&next) });
        let mut engine = home.writer("i").unwrap();
        crate::migrate::migrate(engine.as_mut(), Timestamp::UNIX_EPOCH).unwrap();
        let (queue, work) = queue();
        let writer = StoreWriter {
            queue: work,
            home,
            engine: Some(engine),
            name: "main".into(),
            instance: "i".into(),
            key: None,
            seal: Arc::new(crate::seal::Seal::in_memory().unwrap()),
            sinks: Vec::new(),
            sink_fails: false,
            cadence: CheckpointCadence::default(),
            group: 16,
            reads: ReadRows::Soon,
            health: Arc::default(),
            since: CheckpointAge { rows: 0, when: Instant::now() },
            pace: BatchPace::default(),
            backlog: VecDeque::new(),
            ruined: None,
        };
        let thread = std::thread::spawn(move || writer.run());
        let places = Arc::new(Semaphore::new(8));
        Self { queue, next, places, thread: Some(thread), appended: 0 }
    }

    fn append(&mut self, next: u8) -> Result<(), StoreFault> {
        self.next.store(next, Ordering::SeqCst);
        self.appended += 1;
        let id = LedgerId::mint(Timestamp::UNIX_EPOCH, self.appended);
        let place = Arc::clone(&self.places).try_acquire_owned().unwrap();
        let (job, answer) = awaited_job(Instant::now(), place, WriteRetryPolicy::Not, move |tx| {
            let entry = Entry::new(RowKind::System, RowStatus::Success);
            tx.append(&entry, id.clone(), Timestamp::UNIX_EPOCH);
            Ok(())
        });
        assert!(self.queue.push(job));
        answer.blocking_recv().unwrap()
    }

    /// The places of the chain, as somebody past the store sees them.
    fn sequences(&self, path: &Path) -> Vec<i64> {
        let connection = rusqlite::Connection::open(path).unwrap();
        let mut found = connection.prepare("SELECT sequence FROM ledger ORDER BY sequence").unwrap();
        found.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
    }
}

impl Drop for WriterUnderTest {
    fn drop(&mut self) {
        self.queue.close();
        self.thread.take().unwrap().join().unwrap();
    }
}

#[test]
fn a_commit_whose_answer_was_lost_is_asked_for() {
    let room = tempfile::tempdir().unwrap();
    let path = room.path().join("x.db");
    let mut writer = WriterUnderTest::open(&path);
    writer.append(HONEST).unwrap();
    writer.append(COMMITS_AND_HANGS_UP).unwrap();
    let fault = writer.append(HANGS_UP).unwrap_err();
    assert_eq!(fault.kind(), FaultKind::Unavailable);
    writer.append(HONEST).unwrap();
    assert_eq!(writer.sequences(&path), [1, 2, 3], "each acknowledged row once, the others not at all");
}

#[test]
fn nothing_is_written_after_a_failed_sync() {
    let room = tempfile::tempdir().unwrap();
    let path = room.path().join("x.db");
    let mut writer = WriterUnderTest::open(&path);
    writer.append(HONEST).unwrap();
    assert!(writer.append(FAILS_TO_SYNC).is_err());
    // After a failed fsync the next one may report success although data is lost.
    assert!(writer.append(HONEST).is_err());
    assert_eq!(writer.sequences(&path), [1]);
}
