//! A small order desk to try governance on: purchase and sales orders, stock, adjustments, on SQLite.
//! Every write previews itself with old → new and applies exactly what it previewed, action by action, stopping at the first that fails.
//! Knows nothing of modes, confirmation or who asks: that is the gateway's.

mod apply;
mod arguments;
mod change;
mod corrections;
mod orders;
mod reads;
mod seed;
mod stock;
mod tools;

use std::path::Path;
use std::sync::{Mutex, PoisonError};

use rusqlite::Connection;
use serde_json::{Map, Value, json};

pub use tools::definitions;

/// Why the order desk did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum OrderDeskError {
    /// The request makes no sense here; the text is for the caller.
    #[error("{0}")]
    Asked(String),
    #[error("the order desk's database failed: {0}")]
    Database(#[from] rusqlite::Error),
}

#[derive(Debug)]
pub struct OrderDesk {
    connection: Mutex<Connection>,
}

impl OrderDesk {
    /// An order desk that ends with the process, with its data as delivered.
    pub fn in_memory() -> Result<Self, OrderDeskError> {
        Self::over(Connection::open_in_memory()?)
    }

    /// An order desk in a file; a new one gets the data as delivered.
    pub fn open(file: &Path) -> Result<Self, OrderDeskError> {
        Self::over(Connection::open(file)?)
    }

    fn over(connection: Connection) -> Result<Self, OrderDeskError> {
        connection.busy_timeout(std::time::Duration::from_secs(5))?;
        seed::prepare(&connection)?;
        Ok(Self { connection: Mutex::new(connection) })
    }

    /// Runs a tool and answers with a tool result: `content`, `structuredContent`, `isError`. Writes preview unless
    /// `preview` is false.
    pub fn call(&self, tool: &str, arguments: &Map<String, Value>) -> Value {
        let mut connection = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        let answered = if tools::is_read(tool) {
            reads::answer(&connection, tool, arguments)
        } else {
            write(&mut connection, tool, arguments)
        };
        match answered {
            Ok(body) => {
                let failed = body.get("failed") == Some(&Value::Bool(true));
                result(body, failed)
            }
            Err(fault) => result(json!({"error": fault.to_string()}), true),
        }
    }
}

fn write(
    connection: &mut Connection,
    tool: &str,
    arguments: &Map<String, Value>,
) -> Result<Value, OrderDeskError> {
    tools::check(tool, arguments)?;
    let planned = plan(connection, tool, arguments)?;
    match arguments.get("preview") {
        Some(Value::Bool(false)) => apply::apply(connection, &planned),
        None | Some(Value::Null | Value::Bool(true)) => Ok(planned.shown()),
        Some(_) => Err(OrderDeskError::Asked("`preview` must be true or false".to_owned())),
    }
}

/// What a write would do, in full: nothing is changed here, and nothing is chosen later.
fn plan(
    connection: &Connection,
    tool: &str,
    arguments: &Map<String, Value>,
) -> Result<change::WritePlan, OrderDeskError> {
    use orders::OrderKind::{Purchase, Sales};
    match tool {
        "create_purchase_order" => orders::create(connection, Purchase, arguments),
        "create_sales_order" => orders::create(connection, Sales, arguments),
        "modify_purchase_order" => orders::modify(connection, Purchase, arguments),
        "modify_sales_order" => orders::modify(connection, Sales, arguments),
        "delete_purchase_order" => orders::delete(connection, Purchase, arguments),
        "delete_sales_order" => orders::delete(connection, Sales, arguments),
        "receive_purchase_order" => corrections::progress(connection, Purchase, arguments),
        "fulfill_order" => corrections::progress(connection, Sales, arguments),
        "correct_purchase_order" => corrections::correct(connection, Purchase, arguments),
        "correct_sales_order" => corrections::correct(connection, Sales, arguments),
        "modify_item" => stock::modify_item(connection, arguments),
        "create_stock_adjustment" => stock::create_adjustment(connection, arguments),
        "update_stock_adjustment" => stock::update_adjustment(connection, arguments),
        "delete_stock_adjustment" => stock::delete_adjustment(connection, arguments),
        "rebuild_cache" => stock::rebuild_cache(connection),
        other => Err(OrderDeskError::Asked(format!("there is no tool `{other}`"))),
    }
}

/// A tool result with the same facts as text and as structure.
fn result(body: Value, failed: bool) -> Value {
    json!({
        "content": [{"type": "text", "text": body.to_string()}],
        "structuredContent": body,
        "isError": failed,
    })
}
