//! A connection for tests: passes everything to a real one, with hooks in place of its commits and queries.

use super::{Cell, DatabaseConnection, FoundRow, SqlDialect};
use crate::fault::StoreFault;

type CommitHook = dyn FnMut(&mut dyn DatabaseConnection) -> Result<(), StoreFault> + Send;
type QueryHook =
    dyn FnMut(&mut dyn DatabaseConnection, &str, &[Cell]) -> Result<Vec<FoundRow>, StoreFault> + Send;

pub(crate) struct ScriptedConnection {
    engine: Box<dyn DatabaseConnection>,
    commit: Box<CommitHook>,
    query: Box<QueryHook>,
}

impl ScriptedConnection {
    pub(crate) fn new(engine: Box<dyn DatabaseConnection>) -> Self {
        Self {
            engine,
            commit: Box::new(|engine| engine.commit()),
            query: Box::new(|engine, sql, values| engine.query(sql, values)),
        }
    }

    pub(crate) fn on_commit(
        mut self,
        hook: impl FnMut(&mut dyn DatabaseConnection) -> Result<(), StoreFault> + Send + 'static,
    ) -> Self {
        self.commit = Box::new(hook);
        self
    }

    pub(crate) fn on_query(
        mut self,
        hook: impl FnMut(&mut dyn DatabaseConnection, &str, &[Cell]) -> Result<Vec<FoundRow>, StoreFault>
        + Send
        + 'static,
    ) -> Self {
        self.query = Box::new(hook);
        self
    }
}

impl DatabaseConnection for ScriptedConnection {
    fn commit(&mut self) -> Result<(), StoreFault> {
        (self.commit)(self.engine.as_mut())
    }
    fn query(&mut self, sql: &str, values: &[Cell]) -> Result<Vec<FoundRow>, StoreFault> {
        (self.query)(self.engine.as_mut(), sql, values)
    }
    fn dialect(&self) -> SqlDialect {
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
    fn savepoint(&mut self) -> Result<(), StoreFault> {
        self.engine.savepoint()
    }
    fn release_savepoint(&mut self) -> Result<(), StoreFault> {
        self.engine.release_savepoint()
    }
    fn rollback_to_savepoint(&mut self) -> Result<(), StoreFault> {
        self.engine.rollback_to_savepoint()
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
    fn is_alive(&mut self, instance: &str) -> Result<bool, StoreFault> {
        self.engine.is_alive(instance)
    }
}
