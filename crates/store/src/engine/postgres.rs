//! PostgreSQL: a connection that is driven by the thread that uses it. Knows sessions, advisory locks and SQLSTATEs; names no table.
//! Locks are named after schema and purpose, so that several stores can share a database.

pub(crate) mod address;
mod change_listener;
mod tls;

use std::collections::HashMap;
use std::time::Duration;

use countersign_policy::digest::Digest;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{IsNull, ToSql, Type, private::BytesMut, to_sql_checked};
use tokio_postgres::{Client, Config, Row, Statement};

use super::{Cell, ConnectionFactory, DatabaseConnection, FoundRow, ReplicaMessage, SqlDialect};
use crate::fault::{FailureScope, FaultKind, StoreFault};
use address::PostgresAddress;
use tls::PostgresTls;

pub(crate) struct PostgresConnection {
    // Fields drop in order: the client before the runtime that drives it.
    client: Client,
    statements: HashMap<String, Statement>,
    schema: String,
    own: String,
    patience: Duration,
    /// Whether this transaction has short lock waits.
    has_short_waits: bool,
    runtime: Runtime,
}

pub(crate) struct PostgresHome {
    config: Config,
    tls: PostgresTls,
    patience: Duration,
}

/// Prepared statements differ by filter and add up; beyond this number they are dropped.
const KEPT_STATEMENTS: usize = 256;

impl PostgresHome {
    pub(crate) fn new(url: &str, patience: Duration) -> Result<Self, StoreFault> {
        let address = PostgresAddress::read(url).map_err(StoreFault::invalid)?;
        let tls = PostgresTls::new(&address)?;
        let mut config = address.config;
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(Duration::from_secs(10));
        }
        if config.get_application_name().is_none() {
            config.application_name("countersign");
        }
        Ok(Self { config, tls, patience })
    }

    fn connect(&self) -> Result<PostgresConnection, StoreFault> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| StoreFault::unavailable(format!("no runtime: {error}")))?;
        let client = runtime.block_on(async {
            let (client, connection) = self.config.connect(self.tls.clone()).await?;
            // It runs whenever this thread waits for an answer. Its end shows as a closed client.
            tokio::spawn(async move {
                let _ = connection.await;
            });
            Ok::<_, tokio_postgres::Error>(client)
        });
        let client = client.map_err(|error| from_postgres(&error))?;
        let mut made = PostgresConnection {
            client,
            statements: HashMap::new(),
            schema: String::new(),
            own: String::new(),
            patience: self.patience,
            has_short_waits: false,
            runtime,
        };
        let millis = self.patience.as_millis();
        made.script(&format!(
            "SET lock_timeout = {millis}; SET client_min_messages = warning;
             SELECT set_config('synchronous_commit', 'on', false)
              WHERE current_setting('synchronous_commit') IN ('off', 'local', 'remote_write')"
        ))?;
        made.schema = match made.query("SELECT CAST(current_schema() AS TEXT)", &[])?.pop() {
            Some(mut found) => found.maybe_text()?.unwrap_or_default(),
            None => String::new(),
        };
        Ok(made)
    }
}

impl ConnectionFactory for PostgresHome {
    fn writer(&self, instance: &str) -> Result<Box<dyn DatabaseConnection>, StoreFault> {
        let mut made = self.connect()?;
        let key = made.lock_key("instance", instance);
        // Shared, so that a new connection does not wait for the end of the one it replaces.
        made.script(&format!("SELECT pg_advisory_lock_shared({key})"))?;
        instance.clone_into(&mut made.own);
        Ok(Box::new(made))
    }
    fn reader(&self) -> Result<Option<Box<dyn DatabaseConnection>>, StoreFault> {
        let mut made = self.connect()?;
        made.script("SET default_transaction_read_only = on")?;
        Ok(Some(Box::new(made)))
    }
    fn listen(
        &self,
        instance: &str,
        receive: &mut dyn FnMut(ReplicaMessage<'_>),
        end: oneshot::Receiver<()>,
    ) {
        change_listener::listen(&self.config, &self.tls, instance, receive, end);
    }
}

impl PostgresConnection {
    fn lock_key(&self, purpose: &str, name: &str) -> i64 {
        lock_key(&self.schema, purpose, name)
    }

    fn prepare(&mut self, sql: &str) -> Result<Statement, StoreFault> {
        if let Some(statement) = self.statements.get(sql) {
            return Ok(statement.clone());
        }
        if self.statements.len() >= KEPT_STATEMENTS {
            self.statements.clear();
        }
        let made = self.runtime.block_on(self.client.prepare(sql)).map_err(|error| from_postgres(&error))?;
        self.statements.insert(sql.to_owned(), made.clone());
        Ok(made)
    }
}

fn lock_key(schema: &str, purpose: &str, name: &str) -> i64 {
    let digest = Digest::plain(format!("countersign\0{schema}\0{purpose}\0{name}").as_bytes());
    let mut first = [0u8; 8];
    first.iter_mut().zip(digest.bytes()).for_each(|(to, from)| *to = *from);
    i64::from_be_bytes(first)
}

/// The notification channel of the stores of one schema.
fn channel(schema: &str) -> String {
    format!("countersign_{:016x}", lock_key(schema, "channel", "").cast_unsigned())
}

fn parameters(values: &[Cell]) -> Vec<&(dyn ToSql + Sync)> {
    values.iter().map(|value| value as &(dyn ToSql + Sync)).collect()
}

impl ToSql for Cell {
    fn to_sql(
        &self,
        kind: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        match self {
            Cell::Null | Cell::Foreign => Ok(IsNull::Yes),
            Cell::Int(number) => number.to_sql(kind, out),
            Cell::Text(text) => text.to_sql(kind, out),
            Cell::Word(word) => word.to_sql(kind, out),
        }
    }
    fn accepts(kind: &Type) -> bool {
        <i64 as ToSql>::accepts(kind) || <String as ToSql>::accepts(kind)
    }
    to_sql_checked!();
}

fn read_row(row: &Row) -> Result<FoundRow, StoreFault> {
    let cells = row.columns().iter().enumerate().map(|(index, column)| {
        let bad = |error: tokio_postgres::Error| StoreFault::corrupt(error.to_string());
        match *column.type_() {
            Type::INT8 => {
                Ok(row.try_get::<_, Option<i64>>(index).map_err(bad)?.map_or(Cell::Null, Cell::Int))
            }
            Type::TEXT => {
                Ok(row.try_get::<_, Option<String>>(index).map_err(bad)?.map_or(Cell::Null, Cell::Text))
            }
            _ => Ok(Cell::Foreign),
        }
    });
    Ok(FoundRow::new(cells.collect::<Result<_, StoreFault>>()?))
}

impl DatabaseConnection for PostgresConnection {
    fn dialect(&self) -> SqlDialect {
        SqlDialect::Postgres
    }
    fn begin(&mut self, writer: &str) -> Result<(), StoreFault> {
        let key = self.lock_key("writer", writer);
        self.script(&format!("BEGIN ISOLATION LEVEL READ COMMITTED; SELECT pg_advisory_xact_lock({key})"))
    }
    fn begin_reading(&mut self) -> Result<(), StoreFault> {
        self.script("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
    }
    fn commit(&mut self) -> Result<(), StoreFault> {
        if !std::mem::take(&mut self.has_short_waits) {
            return self.script("COMMIT");
        }
        // Commits with notifications are serialised by the server: wait for that lock as usual. Its holder waits for no lock of ours.
        self.script(&format!("SET LOCAL lock_timeout = {}; COMMIT", self.patience.as_millis()))
    }
    fn rollback(&mut self) {
        self.has_short_waits = false;
        if !self.client.is_closed() {
            // If this fails too, so does the next statement, and the connection is made again.
            let _ = self.script("ROLLBACK");
        }
    }
    fn savepoint(&mut self) -> Result<(), StoreFault> {
        self.script("SAVEPOINT part")
    }
    fn release_savepoint(&mut self) -> Result<(), StoreFault> {
        self.script("RELEASE part")
    }
    fn rollback_to_savepoint(&mut self) -> Result<(), StoreFault> {
        self.script("ROLLBACK TO part; RELEASE part")
    }

    fn query(&mut self, sql: &str, values: &[Cell]) -> Result<Vec<FoundRow>, StoreFault> {
        let statement = self.prepare(sql)?;
        let rows = self
            .runtime
            .block_on(self.client.query(&statement, &parameters(values)))
            .map_err(|error| from_postgres(&error))?;
        rows.iter().map(read_row).collect()
    }

    fn execute(&mut self, sql: &str, values: &[Cell]) -> Result<u64, StoreFault> {
        let statement = self.prepare(sql)?;
        let done = self.runtime.block_on(self.client.execute(&statement, &parameters(values)));
        done.map_err(|error| from_postgres(&error))
    }

    fn execute_all(&mut self, sql: &str, rows: &[Vec<Cell>]) -> Result<(), StoreFault> {
        let statement = self.prepare(sql)?;
        let client = &self.client;
        // Pipelined: one round trip, however many rows.
        self.runtime.block_on(async {
            let sent: Vec<_> = rows
                .iter()
                .map(|row| {
                    let statement = statement.clone();
                    Box::pin(async move { client.execute(&statement, &parameters(row)).await })
                })
                .collect();
            pipeline(sent).await
        })
    }

    fn script(&mut self, sql: &str) -> Result<(), StoreFault> {
        self.runtime.block_on(self.client.batch_execute(sql)).map_err(|error| from_postgres(&error))
    }

    fn is_alive(&mut self, instance: &str) -> Result<bool, StoreFault> {
        if instance == self.own {
            return Ok(true);
        }
        let key = self.lock_key("instance", instance);
        let sql = "SELECT CAST(CASE WHEN pg_try_advisory_xact_lock($1) THEN 1 ELSE 0 END AS BIGINT)";
        let free = self.query(sql, &[Cell::Int(key)])?.pop().map(|mut found| found.int()).transpose()?;
        Ok(free != Some(1))
    }

    fn shorten_lock_waits(&mut self) -> Result<(), StoreFault> {
        // Far below the second after which the server looks for deadlocks and aborts one side.
        self.has_short_waits = true;
        self.script("SET LOCAL lock_timeout = 10")
    }

    fn notify(&mut self, message: &str) -> Result<(), StoreFault> {
        let values = [Cell::Text(channel(&self.schema)), Cell::Text(message.to_owned())];
        // Sent with the commit only; a rollback to a savepoint discards it.
        self.execute("SELECT pg_notify($1, $2)", &values).map(drop)
    }
}

type PendingStatement<'a> = std::pin::Pin<Box<dyn Future<Output = Result<u64, tokio_postgres::Error>> + 'a>>;

/// Waits for all statements. Polling a statement sends it, so each is polled once before any is waited for.
async fn pipeline<'a>(
    sent: Vec<std::pin::Pin<Box<impl Future<Output = Result<u64, tokio_postgres::Error>> + 'a>>>,
) -> Result<(), StoreFault> {
    let mut open: Vec<PendingStatement<'a>> =
        sent.into_iter().map(|one| one as PendingStatement<'a>).collect();
    let mut first_fault = None;
    std::future::poll_fn(|context| {
        open.retain_mut(|one| match one.as_mut().poll(context) {
            std::task::Poll::Pending => true,
            std::task::Poll::Ready(done) => {
                if let Err(error) = done {
                    first_fault.get_or_insert_with(|| from_postgres(&error));
                }
                false
            }
        });
        if open.is_empty() { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
    first_fault.map_or(Ok(()), Err)
}

fn from_postgres(error: &tokio_postgres::Error) -> StoreFault {
    let inside = match error.as_db_error() {
        Some(failure) => format!("{}: {}", failure.code().code(), failure.message()),
        None => match std::error::Error::source(error) {
            Some(cause) => format!("{error}: {cause}"),
            None => error.to_string(),
        },
    };
    // The driver reports a failed handshake only in its message.
    if inside.contains("TLS handshake") {
        return StoreFault::new(FaultKind::Untrusted, FailureScope::Connection, inside);
    }
    let Some(state) = error.code() else { return StoreFault::unavailable(inside) };
    let (kind, scope) = match *state {
        SqlState::T_R_SERIALIZATION_FAILURE | SqlState::T_R_DEADLOCK_DETECTED => {
            (FaultKind::Unavailable, FailureScope::Conflict)
        }
        SqlState::LOCK_NOT_AVAILABLE => (FaultKind::Unavailable, FailureScope::Busy),
        SqlState::QUERY_CANCELED => (FaultKind::Unavailable, FailureScope::Transaction),
        SqlState::DISK_FULL | SqlState::OUT_OF_MEMORY => (FaultKind::Full, FailureScope::Transaction),
        SqlState::READ_ONLY_SQL_TRANSACTION => (FaultKind::ReadOnly, FailureScope::Connection),
        SqlState::CHARACTER_NOT_IN_REPERTOIRE | SqlState::UNTRANSLATABLE_CHARACTER => {
            (FaultKind::Invalid, FailureScope::Statement)
        }
        _ => match state.code().get(..2) {
            Some("23") => (FaultKind::Corrupt, FailureScope::Statement),
            Some("22" | "54") => (FaultKind::Invalid, FailureScope::Statement),
            Some("XX") => (FaultKind::Corrupt, FailureScope::Connection),
            _ => (FaultKind::Unavailable, FailureScope::Connection),
        },
    };
    StoreFault::new(kind, scope, inside)
}
