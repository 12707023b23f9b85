//! SQLite: one file, WAL, every commit synced. Knows locks, files and error codes; names no table.

use std::fs::{File, OpenOptions, TryLockError};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::types::{ToSqlOutput, Value, ValueRef};
use rusqlite::{Connection, ErrorCode, OpenFlags, Statement, ToSql, ffi};

use super::{Cell, ConnectionFactory, DatabaseConnection, FoundRow, SqlDialect};
use crate::fault::{FailureScope, FaultKind, StoreFault};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnectionAccess {
    Write,
    Read,
}

pub(crate) struct SqliteConnection {
    connection: Connection,
    home: Option<PathBuf>,
    /// The identity of the opened file: rows written to a file that was moved or removed would be lost.
    file: Option<FileId>,
    own: String,
}

/// What tells a file from another of the same name.
type FileId = (u64, u64);

#[cfg(unix)]
fn file_id(path: &Path) -> Option<FileId> {
    use std::os::unix::fs::MetadataExt as _;
    std::fs::metadata(path).ok().map(|meta| (meta.dev(), meta.ino()))
}

#[cfg(not(unix))]
fn file_id(path: &Path) -> Option<FileId> {
    // An open file can be neither removed nor replaced there.
    path.exists().then_some((0, 0))
}

/// Where the file is, and the lock that shows other processes that this one is alive.
pub(crate) struct SqliteHome {
    path: Option<PathBuf>,
    max_bytes: Option<u64>,
    patience: Duration,
    alive: Option<(PathBuf, File)>,
    access: ConnectionAccess,
}

impl SqliteHome {
    /// Creates the file if needed, readable by its owner alone, and marks `instance` as alive.
    pub(crate) fn file(
        path: &Path,
        instance: &str,
        max_bytes: Option<u64>,
        patience: Duration,
    ) -> Result<Self, StoreFault> {
        make_private(path).map_err(|error| from_io(&error, "the file can't be made"))?;
        remove_stale_locks(path);
        let live = live_path(path, instance);
        let lock = private().create(true).truncate(true).open(&live);
        let lock = lock.map_err(|error| from_io(&error, "the live file can't be made"))?;
        lock.lock().map_err(|error| from_io(&error, "the live file can't be locked"))?;
        let alive = Some((live, lock));
        Ok(Self {
            path: Some(path.to_path_buf()),
            max_bytes,
            patience,
            alive,
            access: ConnectionAccess::Write,
        })
    }

    /// A file that is only read: creates nothing.
    pub(crate) fn read_only(path: &Path, patience: Duration) -> Self {
        Self {
            path: Some(path.to_path_buf()),
            max_bytes: None,
            patience,
            alive: None,
            access: ConnectionAccess::Read,
        }
    }

    /// A store that is gone with the process.
    pub(crate) fn memory() -> Self {
        Self {
            path: None,
            max_bytes: None,
            patience: Duration::ZERO,
            alive: None,
            access: ConnectionAccess::Write,
        }
    }
}

impl Drop for SqliteHome {
    fn drop(&mut self) {
        if let Some((path, _)) = &self.alive {
            // If this fails, the next start finds the file unlocked and removes it.
            let _ = std::fs::remove_file(path);
        }
    }
}

impl ConnectionFactory for SqliteHome {
    fn writer(&self, instance: &str) -> Result<Box<dyn DatabaseConnection>, StoreFault> {
        let mut connection = match &self.path {
            Some(path) => open(path, ConnectionAccess::Write)?,
            None => Connection::open_in_memory().map_err(|error| from_sqlite(&error))?,
        };
        set_lock_timeout(&mut connection, self.patience)?;
        // FULL syncs the log at every commit; fullfsync makes that true on systems where fsync alone is a hint.
        let pragmas = "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA fullfsync = ON;
             PRAGMA checkpoint_fullfsync = ON; PRAGMA foreign_keys = ON; PRAGMA trusted_schema = OFF;
             PRAGMA temp_store = MEMORY; PRAGMA journal_size_limit = 67108864; PRAGMA secure_delete = ON;";
        connection.execute_batch(pragmas).map_err(|error| from_sqlite(&error))?;
        if let Some(bytes) = self.max_bytes {
            let page: i64 = connection
                .pragma_query_value(None, "page_size", |row| row.get(0))
                .map_err(|error| from_sqlite(&error))?;
            let pages = i64::try_from(bytes).unwrap_or(i64::MAX) / page.max(512);
            connection
                .pragma_update_and_check(None, "max_page_count", pages, |_| Ok(()))
                .map_err(|error| from_sqlite(&error))?;
        }
        connection.set_prepared_statement_cache_capacity(128);
        let file = self.path.as_deref().and_then(file_id);
        Ok(Box::new(SqliteConnection { connection, home: self.path.clone(), file, own: instance.to_owned() }))
    }

    fn reader(&self) -> Result<Option<Box<dyn DatabaseConnection>>, StoreFault> {
        let Some(path) = &self.path else { return Ok(None) };
        let mut connection = open(path, ConnectionAccess::Read)?;
        set_lock_timeout(&mut connection, self.patience)?;
        if self.access == ConnectionAccess::Read
            && let Err(error) = read_first_page(&connection)
        {
            connection = open_unchanging(path).ok_or_else(|| from_sqlite(&error))?;
        }
        connection
            .execute_batch("PRAGMA query_only = ON; PRAGMA trusted_schema = OFF; PRAGMA temp_store = MEMORY;")
            .map_err(|error| from_sqlite(&error))?;
        connection.set_prepared_statement_cache_capacity(128);
        let file = file_id(path);
        Ok(Some(Box::new(SqliteConnection { connection, home: self.path.clone(), file, own: String::new() })))
    }
}

fn open(path: &Path, access: ConnectionAccess) -> Result<Connection, StoreFault> {
    let flags = match access {
        ConnectionAccess::Write => OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE,
        ConnectionAccess::Read => OpenFlags::SQLITE_OPEN_READ_ONLY,
    };
    let flags = flags | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    Connection::open_with_flags(path, flags).map_err(|error| from_sqlite(&error))
}

/// Reads the first page: only this shows whether the file can be read at all.
fn read_first_page(connection: &Connection) -> rusqlite::Result<()> {
    connection.query_row("SELECT COUNT(*) FROM sqlite_schema", [], |_| Ok(()))
}

/// Opens a file in a folder that can't be written, such as somebody else's copy. Without a write-ahead log beside it, SQLite reads such a
/// file only if opened as immutable. None if there is a log, whose rows would be missing.
fn open_unchanging(path: &Path) -> Option<Connection> {
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    if std::fs::metadata(PathBuf::from(log)).is_ok_and(|log| log.len() > 0) {
        return None;
    }
    let name = path.to_str()?.replace('%', "%25").replace('?', "%3f").replace('#', "%23");
    let flags =
        OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_URI;
    let connection = Connection::open_with_flags(format!("file:{name}?immutable=1"), flags).ok()?;
    read_first_page(&connection).ok().map(|()| connection)
}

/// Waits for another process's lock in short steps: SQLite's own back-off grows to 100 ms and starves a waiter.
fn set_lock_timeout(connection: &mut Connection, patience: Duration) -> Result<(), StoreFault> {
    let step = Duration::from_millis(2);
    let steps = i32::try_from(patience.as_micros() / step.as_micros()).unwrap_or(i32::MAX);
    let wait = move |taken: i32| {
        let goes_on = taken < steps;
        if goes_on {
            std::thread::sleep(step);
        }
        goes_on
    };
    connection.busy_handler(Some(wait)).map_err(|error| from_sqlite(&error))
}

/// Opens to write; a new file is readable by its owner alone, whatever the umask.
fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

fn make_private(path: &Path) -> std::io::Result<()> {
    match private().create_new(true).open(path) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

fn live_path(path: &Path, instance: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!("-live-{instance}"));
    PathBuf::from(name)
}

/// Removes the lock files of processes that crashed. Young files stay: one that was just created is not locked yet.
fn remove_stale_locks(path: &Path) {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name().and_then(|name| name.to_str())) else {
        return;
    };
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let prefix = format!("{name}-live-");
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let ours = entry.file_name().to_str().is_some_and(|name| name.starts_with(&prefix));
        let age = entry.metadata().and_then(|data| data.modified()).ok().and_then(|when| when.elapsed().ok());
        if ours
            && age.is_some_and(|age| age > Duration::from_secs(60))
            && File::open(entry.path()).is_ok_and(|file| file.try_lock().is_ok())
        {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

impl ToSql for Cell {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(match self {
            Cell::Null | Cell::Foreign => ToSqlOutput::Owned(Value::Null),
            Cell::Int(number) => ToSqlOutput::Owned(Value::Integer(*number)),
            Cell::Text(text) => ToSqlOutput::Borrowed(ValueRef::Text(text.as_bytes())),
            Cell::Word(word) => ToSqlOutput::Borrowed(ValueRef::Text(word.as_bytes())),
        })
    }
}

/// Which value each parameter takes: `$n` the nth. SQLite numbers parameters in order of appearance, so go by name.
fn places(statement: &Statement<'_>) -> Vec<Option<usize>> {
    let value_of = |place| {
        let number = statement.parameter_name(place)?.strip_prefix('$')?.parse::<usize>().ok()?;
        number.checked_sub(1)
    };
    (1..=statement.parameter_count()).map(value_of).collect()
}

fn bind(statement: &mut Statement<'_>, places: &[Option<usize>], values: &[Cell]) -> rusqlite::Result<()> {
    for (at, place) in places.iter().enumerate() {
        let value = place.and_then(|number| values.get(number));
        statement.raw_bind_parameter(at + 1, value.unwrap_or(&Cell::Null))?;
    }
    Ok(())
}

fn read_cell(value: ValueRef<'_>) -> Cell {
    match value {
        ValueRef::Null => Cell::Null,
        ValueRef::Integer(number) => Cell::Int(number),
        ValueRef::Text(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) => Cell::Text(text.to_owned()),
            Err(_) => Cell::Foreign,
        },
        ValueRef::Real(_) | ValueRef::Blob(_) => Cell::Foreign,
    }
}

impl SqliteConnection {
    fn run<T>(&self, work: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T, StoreFault> {
        let began_inside = !self.connection.is_autocommit();
        work(&self.connection).map_err(|error| {
            let mut fault = from_sqlite(&error);
            // SQLite rolls back the whole transaction on some failures.
            if began_inside && self.connection.is_autocommit() {
                fault.scope = fault.scope.max(FailureScope::Transaction);
            }
            fault
        })
    }
}

impl DatabaseConnection for SqliteConnection {
    fn dialect(&self) -> SqlDialect {
        SqlDialect::Sqlite
    }
    fn begin(&mut self, _: &str) -> Result<(), StoreFault> {
        if self.home.as_deref().and_then(file_id) != self.file {
            let inside = "the store's file was moved, removed or replaced while it was open";
            return Err(StoreFault::new(FaultKind::Unavailable, FailureScope::Transaction, inside));
        }
        self.run(|connection| connection.execute_batch("BEGIN IMMEDIATE"))
    }
    fn begin_reading(&mut self) -> Result<(), StoreFault> {
        self.run(|connection| connection.execute_batch("BEGIN"))
    }
    fn commit(&mut self) -> Result<(), StoreFault> {
        self.run(|connection| connection.execute_batch("COMMIT"))
    }
    fn rollback(&mut self) {
        if !self.connection.is_autocommit() {
            // If this fails too, the first failure has already condemned the connection.
            let _ = self.connection.execute_batch("ROLLBACK");
        }
    }
    fn savepoint(&mut self) -> Result<(), StoreFault> {
        self.run(|connection| connection.execute_batch("SAVEPOINT part"))
    }
    fn release_savepoint(&mut self) -> Result<(), StoreFault> {
        self.run(|connection| connection.execute_batch("RELEASE part"))
    }
    fn rollback_to_savepoint(&mut self) -> Result<(), StoreFault> {
        self.run(|connection| connection.execute_batch("ROLLBACK TO part; RELEASE part"))
    }

    fn query(&mut self, sql: &str, values: &[Cell]) -> Result<Vec<FoundRow>, StoreFault> {
        self.run(|connection| {
            let mut statement = connection.prepare_cached(sql)?;
            let places = places(&statement);
            bind(&mut statement, &places, values)?;
            let columns = statement.column_count();
            let mut rows = statement.raw_query();
            let mut found = Vec::new();
            while let Some(row) = rows.next()? {
                let cells = (0..columns).map(|column| row.get_ref(column).map(read_cell));
                found.push(FoundRow::new(cells.collect::<rusqlite::Result<_>>()?));
            }
            Ok(found)
        })
    }

    fn execute(&mut self, sql: &str, values: &[Cell]) -> Result<u64, StoreFault> {
        self.run(|connection| {
            let mut statement = connection.prepare_cached(sql)?;
            let places = places(&statement);
            bind(&mut statement, &places, values)?;
            statement.raw_execute().map(|changed| changed as u64)
        })
    }

    fn execute_all(&mut self, sql: &str, rows: &[Vec<Cell>]) -> Result<(), StoreFault> {
        self.run(|connection| {
            let mut statement = connection.prepare_cached(sql)?;
            let places = places(&statement);
            for row in rows {
                bind(&mut statement, &places, row)?;
                statement.raw_execute()?;
            }
            Ok(())
        })
    }

    fn script(&mut self, sql: &str) -> Result<(), StoreFault> {
        self.run(|connection| connection.execute_batch(sql))
    }

    fn is_alive(&mut self, instance: &str) -> Result<bool, StoreFault> {
        let Some(path) = &self.home else { return Ok(instance == self.own) };
        if instance == self.own {
            return Ok(true);
        }
        let live = live_path(path, instance);
        let Ok(file) = File::open(&live) else { return Ok(false) };
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => Ok(true),
            // Its holder is gone. On a file system without locks this can't be told, so every process counts as alive.
            Ok(()) => {
                let _ = std::fs::remove_file(&live);
                Ok(false)
            }
            Err(TryLockError::Error(_)) => Ok(true),
        }
    }
}

fn from_io(error: &std::io::Error, what: &str) -> StoreFault {
    use std::io::ErrorKind;
    let is = |kinds: &[ErrorKind]| kinds.contains(&error.kind());
    let kind = if is(&[ErrorKind::StorageFull, ErrorKind::QuotaExceeded]) {
        FaultKind::Full
    } else if is(&[ErrorKind::ReadOnlyFilesystem, ErrorKind::PermissionDenied]) {
        FaultKind::ReadOnly
    } else {
        FaultKind::Unavailable
    };
    StoreFault::new(kind, FailureScope::Connection, format!("{what}: {error}"))
}

fn from_sqlite(error: &rusqlite::Error) -> StoreFault {
    let inside = error.to_string();
    let Some(failure) = error.sqlite_error() else { return StoreFault::invalid(inside) };
    let (kind, scope) = match failure.code {
        ErrorCode::DiskFull => (FaultKind::Full, FailureScope::Transaction),
        ErrorCode::ReadOnly => (FaultKind::ReadOnly, FailureScope::Connection),
        ErrorCode::SystemIoFailure => io_failure(failure.extended_code),
        ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked => {
            (FaultKind::Unavailable, FailureScope::Transaction)
        }
        ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase => {
            (FaultKind::Corrupt, FailureScope::Connection)
        }
        ErrorCode::ConstraintViolation | ErrorCode::TypeMismatch => {
            (FaultKind::Corrupt, FailureScope::Statement)
        }
        ErrorCode::TooBig | ErrorCode::ParameterOutOfRange => (FaultKind::Invalid, FailureScope::Statement),
        ErrorCode::PermissionDenied => (FaultKind::ReadOnly, FailureScope::Connection),
        ErrorCode::InternalMalfunction
        | ErrorCode::OperationAborted
        | ErrorCode::OperationInterrupted
        | ErrorCode::OutOfMemory
        | ErrorCode::NotFound
        | ErrorCode::CannotOpen
        | ErrorCode::FileLockingProtocolFailed
        | ErrorCode::SchemaChanged
        | ErrorCode::ApiMisuse
        | ErrorCode::NoLargeFileSupport
        | ErrorCode::AuthorizationForStatementDenied
        | ErrorCode::Unknown => (FaultKind::Unavailable, FailureScope::Connection),
        // The enum is non-exhaustive: treat an unknown code as the worst.
        _ => (FaultKind::Unavailable, FailureScope::Connection),
    };
    StoreFault::new(kind, scope, inside)
}

fn io_failure(extended: i32) -> (FaultKind, FailureScope) {
    match extended {
        ffi::SQLITE_IOERR_FSYNC | ffi::SQLITE_IOERR_DIR_FSYNC => (FaultKind::Unavailable, FailureScope::Disk),
        // The shared-memory file could not grow: the disk is full.
        ffi::SQLITE_IOERR_SHMSIZE => (FaultKind::Full, FailureScope::Connection),
        _ => (FaultKind::Unavailable, FailureScope::Connection),
    }
}
