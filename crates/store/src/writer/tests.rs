//! What can't be brought about from outside: a commit whose answer is lost, and a disk that fails to sync.

use std::path::Path;
use std::sync::atomic::AtomicU8;
use std::thread::JoinHandle;

use countersign_core::ids::LedgerId;
use countersign_core::record::{RowKind, RowStatus};
use jiff::Timestamp;
use tokio::sync::Semaphore;

use super::*;
use crate::engine::{Cell, Dialect, Found, SqliteHome};
use crate::ledger::Entry;

/// What the next commit does.
const HONEST: u8 = 0;
const COMMITS_AND_HANGS_UP: u8 = 1;
const HANGS_UP: u8 = 2;
const FAILS_TO_SYNC: u8 = 3;

/// A database whose next commit goes as it was told.
struct Told {
    engine: Box<dyn Engine>,
    next: Arc<AtomicU8>,
}

struct ToldHome {
    home: SqliteHome,
    next: Arc<AtomicU8>,
}

impl Home for ToldHome {
    fn writer(&self, instance: &str) -> Result<Box<dyn Engine>, StoreFault> {
        Ok(Box::new(Told { engine: self.home.writer(instance)?, next: Arc::clone(&self.next) }))
    }
    fn reader(&self) -> Result<Option<Box<dyn Engine>>, StoreFault> {
        self.home.reader()
    }
}

impl Engine for Told {
    fn commit(&mut self) -> Result<(), StoreFault> {
        match self.next.swap(HONEST, Ordering::SeqCst) {
            COMMITS_AND_HANGS_UP => {
                self.engine.commit()?;
                Err(StoreFault::unavailable("hung up after the commit"))
            }
            HANGS_UP => {
                self.engine.rollback();
                Err(StoreFault::unavailable("hung up before the commit"))
            }
            FAILS_TO_SYNC => {
                self.engine.rollback();
                Err(StoreFault::new(FaultKind::Unavailable, Hurt::Disk, "fsync: input/output error"))
            }
            _ => self.engine.commit(),
        }
    }
    fn dialect(&self) -> Dialect {
        self.engine.dialect()
    }
    fn begin(&mut self, writer: &str) -> Result<(), StoreFault> {
        self.engine.begin(writer)
    }
    fn begin_reading(&mut self) -> Result<(), StoreFault> {
        self.engine.begin_reading()
    }
    fn rollback(&mut self) {
        self.engine.rollback();
    }
    fn mark(&mut self) -> Result<(), StoreFault> {
        self.engine.mark()
    }
    fn unmark(&mut self) -> Result<(), StoreFault> {
        self.engine.unmark()
    }
    fn back_to_mark(&mut self) -> Result<(), StoreFault> {
        self.engine.back_to_mark()
    }
    fn query(&mut self, sql: &str, values: &[Cell]) -> Result<Vec<Found>, StoreFault> {
        self.engine.query(sql, values)
    }
    fn execute(&mut self, sql: &str, values: &[Cell]) -> Result<u64, StoreFault> {
        self.engine.execute(sql, values)
    }
    fn execute_all(&mut self, sql: &str, rows: &[Vec<Cell>]) -> Result<(), StoreFault> {
        self.engine.execute_all(sql, rows)
    }
    fn script(&mut self, sql: &str) -> Result<(), StoreFault> {
        self.engine.script(sql)
    }
    fn lives(&mut self, instance: &str) -> Result<bool, StoreFault> {
        self.engine.lives(instance)
    }
}

/// A writer on a database that does as it is told.
struct Desk {
    queue: Queue,
    next: Arc<AtomicU8>,
    places: Arc<Semaphore>,
    thread: Option<JoinHandle<()>>,
    appended: u128,
}

impl Desk {
    fn open(path: &Path) -> Self {
        let next = Arc::new(AtomicU8::new(HONEST));
        let home = SqliteHome::file(path, "i", None, Duration::from_secs(5)).unwrap();
        let home = Arc::new(ToldHome { home, next: Arc::clone(&next) });
        let mut engine = home.writer("i").unwrap();
        crate::migrate::migrate(engine.as_mut(), Timestamp::UNIX_EPOCH).unwrap();
        let (queue, work) = queue();
        let writer = Writer {
            queue: work,
            home,
            engine: Some(engine),
            name: "main".into(),
            instance: "i".into(),
            key: None,
            seal: Arc::new(crate::seal::Seal::fleeting().unwrap()),
            sinks: Vec::new(),
            outside_fails: false,
            cadence: Cadence::default(),
            group: 16,
            reads: ReadRows::Soon,
            health: Arc::default(),
            since: Since { rows: 0, when: Instant::now() },
            pace: Pace::default(),
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
        let (deed, answer) = ask(Instant::now(), place, Keep::Not, move |tx| {
            let entry = Entry::new(RowKind::System, RowStatus::Success);
            tx.append(&entry, id.clone(), Timestamp::UNIX_EPOCH);
            Ok(())
        });
        assert!(self.queue.push(deed));
        answer.blocking_recv().unwrap()
    }

    /// The places of the chain, as somebody past the store sees them.
    fn sequences(&self, path: &Path) -> Vec<i64> {
        let connection = rusqlite::Connection::open(path).unwrap();
        let mut found = connection.prepare("SELECT sequence FROM ledger ORDER BY sequence").unwrap();
        found.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        self.queue.close();
        self.thread.take().unwrap().join().unwrap();
    }
}

#[test]
fn a_commit_whose_answer_was_lost_is_asked_for() {
    let room = tempfile::tempdir().unwrap();
    let path = room.path().join("x.db");
    let mut desk = Desk::open(&path);
    desk.append(HONEST).unwrap();
    desk.append(COMMITS_AND_HANGS_UP).unwrap();
    let fault = desk.append(HANGS_UP).unwrap_err();
    assert_eq!(fault.kind(), FaultKind::Unavailable);
    desk.append(HONEST).unwrap();
    assert_eq!(desk.sequences(&path), [1, 2, 3], "each acknowledged row once, the others not at all");
}

#[test]
fn nothing_is_written_after_a_failed_sync() {
    let room = tempfile::tempdir().unwrap();
    let path = room.path().join("x.db");
    let mut desk = Desk::open(&path);
    desk.append(HONEST).unwrap();
    assert!(desk.append(FAILS_TO_SYNC).is_err());
    // The disk may have dropped what it could not write, and would say nothing the next time.
    assert!(desk.append(HONEST).is_err());
    assert_eq!(desk.sequences(&path), [1]);
}
