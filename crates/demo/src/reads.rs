//! The tools that only read.

use rusqlite::{Connection, OptionalExtension as _, Row};
use serde_json::{Map, Value, json};

use crate::OrderDeskError;
use crate::arguments::{maybe_text, text};
use crate::change::amount;
use crate::orders::{OrderKind, load};
use crate::tools;

pub(crate) fn answer(
    connection: &Connection,
    tool: &str,
    arguments: &Map<String, Value>,
) -> Result<Value, OrderDeskError> {
    tools::check(tool, arguments)?;
    match tool {
        "list_purchase_orders" => orders(connection, OrderKind::Purchase, arguments),
        "list_sales_orders" => orders(connection, OrderKind::Sales, arguments),
        "get_order" => order(connection, arguments),
        "search_items" => items(connection, arguments),
        "check_inventory" => inventory(connection, arguments),
        "list_stock_adjustments" => adjustments(connection),
        other => Err(OrderDeskError::Asked(format!("there is no tool `{other}`"))),
    }
}

fn orders(
    connection: &Connection,
    kind: OrderKind,
    arguments: &Map<String, Value>,
) -> Result<Value, OrderDeskError> {
    let status = maybe_text(arguments, "status")?;
    let mut statement = connection
        .prepare("SELECT id FROM orders WHERE kind = ?1 AND (?2 IS NULL OR status = ?2) ORDER BY id DESC")?;
    let ids: Vec<i64> =
        statement.query_map((kind.word(), status), |row| row.get(0))?.collect::<Result<_, _>>()?;
    let mut found = Vec::new();
    for id in ids {
        if let Some(order) = load(connection, kind, id)? {
            found.push(json!({
                "number": order.number(),
                kind.party(): order.party,
                "status": order.status,
                "due": order.due,
                "note": order.note,
                "lines": order.lines.len(),
                "total": amount(order.total()),
            }));
        }
    }
    Ok(json!({"total": found.len(), "orders": found}))
}

fn order(connection: &Connection, arguments: &Map<String, Value>) -> Result<Value, OrderDeskError> {
    let number = text(arguments, "number")?;
    let unknown = || OrderDeskError::Asked(format!("there is no order `{number}`"));
    let (prefix, digits) = number.split_once('-').ok_or_else(unknown)?;
    let kind = match prefix {
        "PO" => OrderKind::Purchase,
        "SO" => OrderKind::Sales,
        _ => return Err(unknown()),
    };
    let id: i64 = digits.parse().map_err(|_| unknown())?;
    Ok(load(connection, kind, id)?.ok_or_else(unknown)?.shown())
}

fn item(row: &Row<'_>) -> rusqlite::Result<Value> {
    let (stock, reorder): (i64, i64) = (row.get(4)?, row.get(6)?);
    Ok(json!({
        "sku": row.get::<_, String>(0)?,
        "name": row.get::<_, String>(1)?,
        "unit": row.get::<_, String>(2)?,
        "price": amount(row.get(3)?),
        "stock": stock,
        "bin": row.get::<_, String>(5)?,
        "reorder_point": reorder,
        "below_reorder_point": stock < reorder,
    }))
}

const ITEM: &str = "SELECT sku, name, unit, price, stock, bin, reorder_point FROM items";

fn items(connection: &Connection, arguments: &Map<String, Value>) -> Result<Value, OrderDeskError> {
    let wanted = maybe_text(arguments, "query")?.map(str::to_lowercase);
    let mut statement = connection.prepare(&format!("{ITEM} ORDER BY sku"))?;
    let all: Vec<Value> = statement.query_map([], item)?.collect::<Result<_, _>>()?;
    let fits = |one: &Value| {
        let of = |field: &str| one.get(field).and_then(Value::as_str).unwrap_or_default().to_lowercase();
        wanted.as_ref().is_none_or(|wanted| of("sku").contains(wanted) || of("name").contains(wanted))
    };
    let found: Vec<Value> = all.into_iter().filter(fits).collect();
    Ok(json!({"total": found.len(), "items": found}))
}

fn inventory(connection: &Connection, arguments: &Map<String, Value>) -> Result<Value, OrderDeskError> {
    let sku = text(arguments, "sku")?;
    let found = connection.query_row(&format!("{ITEM} WHERE sku = ?1"), [sku], item).optional()?;
    let mut found = found.ok_or_else(|| OrderDeskError::Asked(format!("there is no item `{sku}`")))?;
    let open = |kind: &str| -> Result<i64, rusqlite::Error> {
        connection.query_row(
            "SELECT coalesce(sum(quantity - done), 0) FROM lines JOIN orders ON orders.id = order_id
              WHERE sku = ?1 AND kind = ?2 AND status <> 'draft'",
            (sku, kind),
            |row| row.get(0),
        )
    };
    let (incoming, committed) = (open("purchase")?, open("sales")?);
    if let Some(members) = found.as_object_mut() {
        members.insert("incoming".to_owned(), incoming.into());
        members.insert("committed".to_owned(), committed.into());
    }
    Ok(found)
}

fn adjustments(connection: &Connection) -> Result<Value, OrderDeskError> {
    let mut statement =
        connection.prepare("SELECT id, sku, quantity, reason FROM adjustments ORDER BY id DESC")?;
    let found: Vec<Value> = statement
        .query_map([], |row| {
            Ok(json!({
                "number": format!("SA-{}", row.get::<_, i64>(0)?),
                "sku": row.get::<_, String>(1)?,
                "quantity": row.get::<_, i64>(2)?,
                "reason": row.get::<_, String>(3)?,
            }))
        })?
        .collect::<Result<_, _>>()?;
    Ok(json!({"total": found.len(), "adjustments": found}))
}
