//! Items, stock adjustments and the cache of stock figures. Planning only reads.

use rusqlite::{Connection, OptionalExtension as _};
use serde_json::{Map, Value, json};

use crate::OrderDeskError;
use crate::arguments::{id, maybe_amount, maybe_number, maybe_text, number, text};
use crate::change::{CheckedStatement, FieldChange, PlannedAction, WritePlan, amount, cell, money};
use crate::orders::counted;

/// `modify_item`.
pub(crate) fn modify_item(
    connection: &Connection,
    arguments: &Map<String, Value>,
) -> Result<WritePlan, OrderDeskError> {
    let sku = text(arguments, "sku")?;
    let found: Option<(String, i64, i64)> = connection
        .query_row("SELECT name, price, reorder_point FROM items WHERE sku = ?1", [sku], |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?))
        })
        .optional()?;
    let (name, price, reorder) =
        found.ok_or_else(|| OrderDeskError::Asked(format!("there is no item `{sku}`")))?;
    let (mut changes, mut deeds) = (Vec::new(), Vec::new());
    if let Some(new) = maybe_text(arguments, "name")?.filter(|new| *new != name) {
        changes.push(FieldChange::new("name", name.as_str(), new));
        deeds.push(CheckedStatement::one(
            "UPDATE items SET name = ?1 WHERE sku = ?2 AND name = ?3",
            vec![cell(new.to_owned()), cell(sku.to_owned()), cell(name.clone())],
        ));
    }
    if let Some(new) = maybe_amount(arguments, "price")?.filter(|new| *new != price) {
        changes.push(FieldChange::new("price", money(price), money(new)));
        deeds.push(CheckedStatement::one(
            "UPDATE items SET price = ?1 WHERE sku = ?2 AND price = ?3",
            vec![cell(new), cell(sku.to_owned()), cell(price)],
        ));
    }
    if let Some(new) = maybe_number(arguments, "reorder_point")?.filter(|new| *new != reorder) {
        changes.push(FieldChange::new("reorder_point", reorder, new));
        deeds.push(CheckedStatement::one(
            "UPDATE items SET reorder_point = ?1 WHERE sku = ?2 AND reorder_point = ?3",
            vec![cell(new), cell(sku.to_owned()), cell(reorder)],
        ));
    }
    if changes.is_empty() {
        return Err(OrderDeskError::Asked(format!("nothing of {sku} would change")));
    }
    Ok(WritePlan {
        entity_type: "item",
        entity_id: Some(sku.to_owned()),
        message: format!("{} of item {sku}", counted(changes.len(), "change")),
        actions: vec![PlannedAction { operation: "update", target: sku.to_owned(), changes, deeds }],
        warnings: Vec::new(),
        prior: Some(json!({"sku": sku, "name": name, "price": amount(price), "reorder_point": reorder})),
    })
}

fn stock(connection: &Connection, sku: &str) -> Result<i64, OrderDeskError> {
    let found = connection.query_row("SELECT stock FROM items WHERE sku = ?1", [sku], |row| row.get(0));
    found.optional()?.ok_or_else(|| OrderDeskError::Asked(format!("there is no item `{sku}`")))
}

/// The stock of an item, moved by a difference.
fn shift(sku: &str, before: i64, by: i64) -> (FieldChange, CheckedStatement) {
    let after = before + by;
    let deed = CheckedStatement::one(
        "UPDATE items SET stock = ?1 WHERE sku = ?2 AND stock = ?3",
        vec![cell(after), cell(sku.to_owned()), cell(before)],
    );
    (FieldChange::new(format!("stock of {sku}"), before, after), deed)
}

fn short(sku: &str, after: i64) -> Vec<String> {
    if after < 0 { vec![format!("BLOCK: the stock of {sku} would be {after}")] } else { Vec::new() }
}

/// `create_stock_adjustment`.
pub(crate) fn create_adjustment(
    connection: &Connection,
    arguments: &Map<String, Value>,
) -> Result<WritePlan, OrderDeskError> {
    let (sku, by, reason) =
        (text(arguments, "sku")?, number(arguments, "quantity")?, text(arguments, "reason")?);
    if by == 0 {
        return Err(OrderDeskError::Asked("`quantity` must not be 0".to_owned()));
    }
    let before = stock(connection, sku)?;
    let (change, deed) = shift(sku, before, by);
    let insert = CheckedStatement::one(
        "INSERT INTO adjustments (sku, quantity, reason) VALUES (?1, ?2, ?3)",
        vec![cell(sku.to_owned()), cell(by), cell(reason.to_owned())],
    );
    let changes = vec![
        FieldChange::new("quantity", Value::Null, by),
        FieldChange::new("reason", Value::Null, reason),
        change,
    ];
    Ok(WritePlan {
        entity_type: "stock_adjustment",
        entity_id: None,
        message: format!("An adjustment of {sku} by {by}"),
        actions: vec![PlannedAction {
            operation: "create",
            target: sku.to_owned(),
            changes,
            deeds: vec![insert, deed],
        }],
        warnings: short(sku, before + by),
        prior: None,
    })
}

struct StockAdjustment {
    id: i64,
    sku: String,
    quantity: i64,
    reason: String,
}

impl StockAdjustment {
    fn find(connection: &Connection, arguments: &Map<String, Value>) -> Result<Self, OrderDeskError> {
        let wanted = id(arguments, "number", "SA-")?;
        let found = connection
            .query_row("SELECT sku, quantity, reason FROM adjustments WHERE id = ?1", [wanted], |row| {
                Ok(Self { id: wanted, sku: row.get(0)?, quantity: row.get(1)?, reason: row.get(2)? })
            })
            .optional()?;
        found.ok_or_else(|| OrderDeskError::Asked(format!("there is no stock adjustment SA-{wanted}")))
    }

    fn number(&self) -> String {
        format!("SA-{}", self.id)
    }

    fn shown(&self) -> Value {
        json!({"number": self.number(), "sku": self.sku, "quantity": self.quantity, "reason": self.reason})
    }
}

/// `update_stock_adjustment`: the stock moves with it.
pub(crate) fn update_adjustment(
    connection: &Connection,
    arguments: &Map<String, Value>,
) -> Result<WritePlan, OrderDeskError> {
    let old = StockAdjustment::find(connection, arguments)?;
    let quantity = maybe_number(arguments, "quantity")?.unwrap_or(old.quantity);
    let reason = maybe_text(arguments, "reason")?.unwrap_or(&old.reason);
    let before = stock(connection, &old.sku)?;
    let mut changes = Vec::new();
    let mut deeds = vec![CheckedStatement::one(
        "UPDATE adjustments SET quantity = ?1, reason = ?2 WHERE id = ?3 AND quantity = ?4 AND reason = ?5",
        vec![
            cell(quantity),
            cell(reason.to_owned()),
            cell(old.id),
            cell(old.quantity),
            cell(old.reason.clone()),
        ],
    )];
    if reason != old.reason {
        changes.push(FieldChange::new("reason", old.reason.as_str(), reason));
    }
    if quantity != old.quantity {
        changes.push(FieldChange::new("quantity", old.quantity, quantity));
        let (change, deed) = shift(&old.sku, before, quantity - old.quantity);
        changes.push(change);
        deeds.push(deed);
    }
    if changes.is_empty() {
        return Err(OrderDeskError::Asked(format!("nothing of {} would change", old.number())));
    }
    Ok(WritePlan {
        entity_type: "stock_adjustment",
        entity_id: Some(old.number()),
        message: format!("{} of {}", counted(changes.len(), "change"), old.number()),
        actions: vec![PlannedAction { operation: "update", target: old.number(), changes, deeds }],
        warnings: short(&old.sku, before + quantity - old.quantity),
        prior: Some(old.shown()),
    })
}

/// `delete_stock_adjustment`: the stock goes back to where it would be without it.
pub(crate) fn delete_adjustment(
    connection: &Connection,
    arguments: &Map<String, Value>,
) -> Result<WritePlan, OrderDeskError> {
    let old = StockAdjustment::find(connection, arguments)?;
    let before = stock(connection, &old.sku)?;
    let (change, deed) = shift(&old.sku, before, -old.quantity);
    let delete = CheckedStatement::one(
        "DELETE FROM adjustments WHERE id = ?1 AND quantity = ?2",
        vec![cell(old.id), cell(old.quantity)],
    );
    let changes = vec![
        FieldChange::new("quantity", old.quantity, Value::Null),
        FieldChange::new("reason", old.reason.as_str(), Value::Null),
        change,
    ];
    Ok(WritePlan {
        entity_type: "stock_adjustment",
        entity_id: Some(old.number()),
        message: format!("Deletion of {}", old.number()),
        actions: vec![PlannedAction {
            operation: "delete",
            target: old.number(),
            changes,
            deeds: vec![delete, deed],
        }],
        warnings: short(&old.sku, before - old.quantity),
        prior: Some(old.shown()),
    })
}

/// `rebuild_cache`: wipes the cached figures and counts them again.
pub(crate) fn rebuild_cache(connection: &Connection) -> Result<WritePlan, OrderDeskError> {
    let mut statement = connection.prepare(
        "SELECT items.sku, stock_cache.stock, items.stock FROM items LEFT JOIN stock_cache USING (sku)
          WHERE stock_cache.stock IS NOT items.stock ORDER BY items.sku",
    )?;
    let changes: Vec<FieldChange> = statement
        .query_map([], |row| {
            let (sku, cached, counted): (String, Option<i64>, i64) = (row.get(0)?, row.get(1)?, row.get(2)?);
            Ok(FieldChange::new(sku, cached, counted))
        })?
        .collect::<Result<_, _>>()?;
    let rows: i64 = connection.query_row("SELECT count(*) FROM stock_cache", [], |row| row.get(0))?;
    Ok(WritePlan {
        entity_type: "cache",
        entity_id: Some("stock_cache".to_owned()),
        message: format!("The cache of {rows} stock figures, wiped and counted again"),
        actions: vec![PlannedAction {
            operation: "rebuild",
            target: "stock_cache".to_owned(),
            changes,
            deeds: vec![
                CheckedStatement::any("DELETE FROM stock_cache", Vec::new()),
                CheckedStatement::any("INSERT INTO stock_cache SELECT sku, stock FROM items", Vec::new()),
            ],
        }],
        warnings: Vec::new(),
        prior: None,
    })
}
