//! Migrations: numbered steps, forward only, each database its own. A store of a newer version is refused, never guessed at.

use jiff::Timestamp;

use crate::engine::{Dialect, Engine, cells};
use crate::fault::{FaultKind, Hurt, StoreFault};

/// One step for both databases.
struct Step {
    version: i64,
    name: &'static str,
    sqlite: &'static str,
    postgres: &'static str,
}

const STEPS: &[Step] = &[
    Step {
        version: 1,
        name: "records",
        sqlite: include_str!("../migrations/sqlite/0001-records.sql"),
        postgres: include_str!("../migrations/postgres/0001-records.sql"),
    },
    Step {
        version: 2,
        name: "lines",
        sqlite: include_str!("../migrations/sqlite/0002-lines.sql"),
        postgres: include_str!("../migrations/postgres/0002-lines.sql"),
    },
    Step {
        version: 3,
        name: "desk",
        sqlite: include_str!("../migrations/sqlite/0003-desk.sql"),
        postgres: include_str!("../migrations/postgres/0003-desk.sql"),
    },
    Step {
        version: 4,
        name: "memory",
        sqlite: include_str!("../migrations/sqlite/0004-memory.sql"),
        postgres: include_str!("../migrations/postgres/0004-memory.sql"),
    },
    Step {
        version: 5,
        name: "roles",
        sqlite: include_str!("../migrations/sqlite/0005-roles.sql"),
        postgres: include_str!("../migrations/postgres/0005-roles.sql"),
    },
    Step {
        version: 6,
        name: "first-lists",
        sqlite: include_str!("../migrations/sqlite/0006-first-lists.sql"),
        postgres: include_str!("../migrations/postgres/0006-first-lists.sql"),
    },
    Step {
        version: 7,
        name: "append-only",
        sqlite: include_str!("../migrations/sqlite/0007-append-only.sql"),
        postgres: include_str!("../migrations/postgres/0007-append-only.sql"),
    },
];

/// The newest version this program knows.
pub(crate) fn newest() -> i64 {
    STEPS.iter().map(|step| step.version).max().unwrap_or_default()
}

/// Whether what is there is what this program reads; nothing is changed.
pub(crate) fn check(engine: &mut dyn Engine) -> Result<(), StoreFault> {
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
    Err(StoreFault::new(kind, Hurt::Statement, what))
}

/// The version a store is at; none where there is no store.
fn version(engine: &mut dyn Engine) -> Result<Option<i64>, StoreFault> {
    let tables = match engine.dialect() {
        Dialect::Sqlite => {
            "SELECT COUNT(*) FROM sqlite_schema WHERE type = 'table' AND name = 'schema_migrations'"
        }
        Dialect::Postgres => "SELECT COUNT(*) FROM pg_class WHERE oid = to_regclass('schema_migrations')",
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

/// Brings a store up to date, in one transaction that no other process shares.
pub(crate) fn migrate(engine: &mut dyn Engine, now: Timestamp) -> Result<(), StoreFault> {
    // Every process takes the same name here, whatever its chain is called.
    engine.begin("schema migrations")?;
    match steps(engine, now) {
        Ok(()) => engine.commit(),
        Err(fault) => {
            engine.rollback();
            Err(fault)
        }
    }
}

fn steps(engine: &mut dyn Engine, now: Timestamp) -> Result<(), StoreFault> {
    let found = version(engine)?;
    if found.is_none() {
        // Only a new store is made: a role that runs the gateway need not be able to.
        engine.script(
            "CREATE TABLE IF NOT EXISTS schema_migrations (
               version BIGINT PRIMARY KEY, name TEXT NOT NULL, applied BIGINT NOT NULL)",
        )?;
    }
    let have = found.unwrap_or_default();
    if have > newest() {
        return Err(StoreFault::new(FaultKind::NewerSchema, Hurt::Statement, newer(have)));
    }
    for step in STEPS.iter().filter(|step| step.version > have) {
        engine.script(match engine.dialect() {
            Dialect::Sqlite => step.sqlite,
            Dialect::Postgres => step.postgres,
        })?;
        engine.execute(
            "INSERT INTO schema_migrations (version, name, applied) VALUES ($1, $2, $3)",
            &cells![step.version, step.name, now],
        )?;
    }
    Ok(())
}
