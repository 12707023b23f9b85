//! Where a test's store is: a temporary SQLite file, or a schema of its own in the PostgreSQL that the environment names.

use std::path::PathBuf;
use std::time::Duration;

use countersign_store::{ConnectOptions, Store, StoreFault, StoreUrl};
use jiff::Timestamp;
use tempfile::TempDir;
use tokio_postgres::NoTls;

/// A place for one store, gone at the end of the test.
pub(crate) struct Place {
    pub(crate) room: TempDir,
    pub(crate) kind: Kind,
}

pub(crate) enum Kind {
    Sqlite,
    Postgres { server: String, schema: String },
}

/// Runs each function on both databases. The PostgreSQL half says so when it is left out.
macro_rules! on_both {
    ($($name:ident),+ $(,)?) => {
        mod sqlite {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $name() {
                super::$name($crate::place::Place::sqlite()).await;
            })+
        }
        mod postgres {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $name() {
                if let Some(place) = $crate::place::Place::postgres().await {
                    super::$name(place).await;
                }
            })+
        }
    };
}
pub(crate) use on_both;

/// Full size, for a release.
pub(crate) fn is_long() -> bool {
    std::env::var_os("COUNTERSIGN_TEST_LONG").is_some()
}

/// Between two edits.
pub(crate) fn is_quick() -> bool {
    std::env::var_os("COUNTERSIGN_TEST_QUICK").is_some()
}

pub(crate) fn options() -> ConnectOptions {
    ConnectOptions { now: Timestamp::UNIX_EPOCH, ..ConnectOptions::default() }
}

impl Place {
    pub(crate) fn sqlite() -> Self {
        Self { room: tempfile::tempdir().unwrap(), kind: Kind::Sqlite }
    }

    pub(crate) async fn postgres() -> Option<Self> {
        let Ok(server) = std::env::var("COUNTERSIGN_TEST_POSTGRES") else {
            println!("skipped: COUNTERSIGN_TEST_POSTGRES names no server");
            return None;
        };
        let room = tempfile::tempdir().unwrap();
        let name = room.path().file_name().unwrap().to_str().unwrap();
        let schema: String = name.chars().filter(char::is_ascii_alphanumeric).collect();
        let schema = format!("t_{}_{}", std::process::id(), schema.to_lowercase());
        let place = Self { room, kind: Kind::Postgres { server, schema: schema.clone() } };
        place.on_server(&format!("DROP SCHEMA IF EXISTS {schema} CASCADE; CREATE SCHEMA {schema}")).await;
        Some(place)
    }

    async fn on_server(&self, sql: &str) {
        let Kind::Postgres { server, .. } = &self.kind else { return };
        run_on(server, sql).await;
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.room.path().join("store.db")
    }

    pub(crate) fn key_file(&self) -> PathBuf {
        self.room.path().join("store.db.key")
    }

    pub(crate) fn url(&self) -> String {
        match &self.kind {
            Kind::Sqlite => format!("sqlite:{}", self.path().display()),
            Kind::Postgres { server, schema } => {
                let join = if server.contains('?') { '&' } else { '?' };
                format!("{server}{join}options=-c%20search_path%3D{schema}&application_name={schema}")
            }
        }
    }

    pub(crate) async fn try_store(&self, options: ConnectOptions) -> Result<Store, StoreFault> {
        let options = ConnectOptions { key_file: Some(self.key_file()), ..options };
        Store::connect(&self.url().parse::<StoreUrl>().unwrap(), options).await
    }

    pub(crate) async fn store(&self) -> Store {
        self.try_store(options()).await.unwrap_or_else(|fault| panic!("{}", fault.inside()))
    }

    /// Takes away what keeps rows of the ledger from being changed, as somebody could who owns the database.
    pub(crate) async fn unlock(&self) {
        let sql = match &self.kind {
            Kind::Sqlite => {
                "DROP TRIGGER ledger_no_update; DROP TRIGGER ledger_no_delete; DROP TRIGGER ledger_no_replace;
                 DROP TRIGGER checkpoints_no_update; DROP TRIGGER checkpoints_no_delete;
                 DROP TRIGGER tombstones_no_update; DROP TRIGGER tombstones_no_delete; DROP TRIGGER tombstones_no_replace"
            }
            Kind::Postgres { .. } => {
                "ALTER TABLE ledger DISABLE TRIGGER USER; ALTER TABLE checkpoints DISABLE TRIGGER USER;
                 ALTER TABLE ledger_tombstones DISABLE TRIGGER USER"
            }
        };
        self.raw(sql).await;
    }

    /// Statements from somebody who goes past the store; false where the database refuses.
    pub(crate) async fn try_raw(&self, sql: &str) -> bool {
        match &self.kind {
            Kind::Sqlite => rusqlite::Connection::open(self.path()).unwrap().execute_batch(sql).is_ok(),
            Kind::Postgres { .. } => {
                let (client, connection) = tokio_postgres::connect(&self.url(), NoTls).await.unwrap();
                let driver = tokio::spawn(connection);
                let done = client.batch_execute(sql).await.is_ok();
                drop(client);
                driver.await.unwrap().unwrap();
                done
            }
        }
    }

    /// Statements from somebody who goes past the store.
    pub(crate) async fn raw(&self, sql: &str) {
        match &self.kind {
            Kind::Sqlite => {
                let connection = rusqlite::Connection::open(self.path()).unwrap();
                connection.busy_timeout(Duration::from_secs(30)).unwrap();
                connection.execute_batch(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
            }
            Kind::Postgres { .. } => run_on(&self.url(), sql).await,
        }
    }

    /// The texts a query finds, from somebody who goes past the store.
    pub(crate) async fn raw_texts(&self, sql: &str) -> Vec<Vec<Option<String>>> {
        match &self.kind {
            Kind::Sqlite => {
                let connection = rusqlite::Connection::open(self.path()).unwrap();
                let mut statement = connection.prepare(sql).unwrap();
                let columns = statement.column_count();
                let rows =
                    statement.query_map([], |row| (0..columns).map(|column| row.get(column)).collect());
                rows.unwrap().map(Result::unwrap).collect()
            }
            Kind::Postgres { .. } => {
                let (client, connection) = tokio_postgres::connect(&self.url(), NoTls).await.unwrap();
                let driver = tokio::spawn(connection);
                let rows = client.query(sql, &[]).await.unwrap();
                let found =
                    rows.iter().map(|row| (0..row.len()).map(|column| row.get(column)).collect()).collect();
                drop(client);
                driver.await.unwrap().unwrap();
                found
            }
        }
    }
}

async fn run_on(url: &str, sql: &str) {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    let driver = tokio::spawn(connection);
    client.batch_execute(sql).await.unwrap_or_else(|error| panic!("{sql}: {error:?}"));
    drop(client);
    driver.await.unwrap().unwrap();
}

impl Drop for Place {
    fn drop(&mut self) {
        let Kind::Postgres { server, schema } = &self.kind else { return };
        let (server, sql) = (server.clone(), format!("DROP SCHEMA IF EXISTS {schema} CASCADE"));
        // A runtime of its own: drop can't wait in the test's.
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(run_on(&server, &sql));
        })
        .join()
        .unwrap();
    }
}
