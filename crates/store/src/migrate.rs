//! Migrations: numbered steps, forward only, one script for each database. Refuses a store of a newer version.

use jiff::Timestamp;

use crate::engine::{DatabaseConnection, SqlDialect, cells, in_transaction};
use crate::fault::{FailureScope, FaultKind, StoreFault};

struct MigrationStep {
    version: i64,
    name: &'static str,
    sqlite: &'static str,
    postgres: &'static str,
}

macro_rules! steps {
    ($($version:literal $name:literal: $file:literal,)+) => {
        &[$(MigrationStep {
            version: $version,
            name: $name,
            sqlite: include_str!(concat!("../migrations/sqlite/", $file)),
            postgres: include_str!(concat!("../migrations/postgres/", $file)),
        }),+]
    };
}

const STEPS: &[MigrationStep] = steps![
    1 "records": "0001-records.sql",
    2 "lines": "0002-lines.sql",
    3 "desk": "0003-desk.sql",
    4 "memory": "0004-memory.sql",
    5 "roles": "0005-roles.sql",
    6 "first-lists": "0006-first-lists.sql",
    7 "append-only": "0007-append-only.sql",
    8 "known-definitions": "0008-known-definitions.sql",
    9 "hosts": "0009-hosts.sql",
    10 "tombstones": "0010-tombstones.sql",
    11 "arguments-once": "0011-arguments-once.sql",
    12 "request-ids": "0012-request-ids.sql",
    13 "held-calls": "0013-held-calls.sql",
];

pub(crate) fn newest() -> i64 {
    STEPS.iter().map(|step| step.version).max().unwrap_or_default()
}

/// Checks that the store has the version this program reads. Changes nothing.
pub(crate) fn check(engine: &mut dyn DatabaseConnection) -> Result<(), StoreFault> {
    engine.begin_reading()?;
    let found = version(engine);
    engine.rollback();
    let have = found?;
    let (kind, what) = match have {
        None => (FaultKind::Empty, "there are no tables of ours".to_owned()),
        Some(have) if have > newest() => (FaultKind::NewerSchema, newer(have)),
        Some(have) if have < newest() => (
            FaultKind::OlderSchema,
            format!("the store is at version {have}, this program reads version {}", newest()),
        ),
        Some(_) => return Ok(()),
    };
    Err(StoreFault::new(kind, FailureScope::Statement, what))
}

/// The version a store is at; none where there is no store.
fn version(engine: &mut dyn DatabaseConnection) -> Result<Option<i64>, StoreFault> {
    let tables = match engine.dialect() {
        SqlDialect::Sqlite => {
            "SELECT COUNT(*) FROM sqlite_schema WHERE type = 'table' AND name = 'schema_migrations'"
        }
        SqlDialect::Postgres => "SELECT COUNT(*) FROM pg_class WHERE oid = to_regclass('schema_migrations')",
    };
    let there = engine.query(tables, &[])?.pop().map(|mut found| found.int()).transpose()?;
    if there.unwrap_or_default() == 0 {
        return Ok(None);
    }
    let found = engine.query("SELECT MAX(version) FROM schema_migrations", &[])?.pop();
    Ok(found.map(|mut found| found.maybe_int()).transpose()?.flatten())
}

fn newer(have: i64) -> String {
    format!("the store is at version {have}, this program knows up to {}", newest())
}

/// Applies the missing steps, in one transaction under a lock that all processes share.
pub(crate) fn migrate(engine: &mut dyn DatabaseConnection, now: Timestamp) -> Result<(), StoreFault> {
    // All processes take the same lock here, whatever their chains are called.
    in_transaction(engine, "schema migrations", |engine| steps(engine, now))
}

fn steps(engine: &mut dyn DatabaseConnection, now: Timestamp) -> Result<(), StoreFault> {
    let found = version(engine)?;
    if found.is_none() {
        // Create nothing in an existing store: the role that runs the gateway may lack the right to.
        engine.script(
            "CREATE TABLE IF NOT EXISTS schema_migrations (
               version BIGINT PRIMARY KEY, name TEXT NOT NULL, applied BIGINT NOT NULL)",
        )?;
    }
    let have = found.unwrap_or_default();
    if have > newest() {
        return Err(StoreFault::new(FaultKind::NewerSchema, FailureScope::Statement, newer(have)));
    }
    for step in STEPS.iter().filter(|step| step.version > have) {
        engine.script(match engine.dialect() {
            SqlDialect::Sqlite => step.sqlite,
            SqlDialect::Postgres => step.postgres,
        })?;
        engine.execute(
            "INSERT INTO schema_migrations (version, name, applied) VALUES ($1, $2, $3)",
            &cells![step.version, step.name, now],
        )?;
        tracing::info!(version = step.version, name = step.name, "migration applied");
    }
    Ok(())
}
