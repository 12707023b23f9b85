//! Goods that move: received, shipped, and counts that were wrong and are set right. One action per line, so that a line
//! that fails leaves those before it done and those after it undone, and the answer says which.

use rusqlite::Connection;
use serde_json::{Map, Value};

use crate::OrderDeskError;
use crate::arguments::{number, pieces, rows, text};
use crate::change::{CheckedStatement, FieldChange, PlannedAction, WritePlan, cell};
use crate::orders::{Order, OrderKind, OrderLine, counted, find};

/// An item's stock, what its bin holds, and the bin.
fn stock_of(connection: &Connection, sku: &str) -> Result<(i64, i64, String), OrderDeskError> {
    let sql = "SELECT stock, capacity, bin FROM items WHERE sku = ?1";
    Ok(connection.query_row(sql, [sku], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?)
}

/// `receive_purchase_order`, `fulfill_order`: all that is open, or the lines that are named.
pub(crate) fn progress(
    connection: &Connection,
    kind: OrderKind,
    arguments: &Map<String, Value>,
) -> Result<WritePlan, OrderDeskError> {
    let order = find(connection, kind, arguments)?;
    let wanted = wanted(&order, arguments)?;
    let mut warnings = Vec::new();
    if order.status == "draft" {
        warnings.push(format!("BLOCK: {} is a draft and was never sent", order.number()));
    }
    let mut actions = Vec::new();
    for (line, count) in &wanted {
        let (stock, capacity, bin) = stock_of(connection, &line.sku)?;
        let after = match kind {
            OrderKind::Purchase => stock + count,
            OrderKind::Sales => stock - count,
        };
        if after < 0 {
            warnings.push(format!("BLOCK: {count} × {} are wanted, {stock} are in stock", line.sku));
        }
        if after > capacity {
            warnings.push(format!(
                "bin {bin} holds {capacity} × {}: with {after} it may not take them all",
                line.sku
            ));
        }
        actions.push(moved(&order, line, line.done + count, stock, after));
    }
    actions.push(settle(&order, &wanted));
    Ok(WritePlan {
        entity_type: kind.entity(),
        entity_id: Some(order.number()),
        message: match kind {
            OrderKind::Purchase => {
                format!("Receipt of {} of {}", counted(wanted.len(), "line"), order.number())
            }
            OrderKind::Sales => {
                format!("Shipment of {} of {}", counted(wanted.len(), "line"), order.number())
            }
        },
        actions,
        warnings,
        prior: Some(order.shown()),
    })
}

fn wanted<'o>(
    order: &'o Order,
    arguments: &Map<String, Value>,
) -> Result<Vec<(&'o OrderLine, i64)>, OrderDeskError> {
    let given = rows(arguments, "lines")?;
    if given.is_empty() {
        let open: Vec<(&OrderLine, i64)> = order
            .lines
            .iter()
            .filter(|line| line.done < line.quantity)
            .map(|line| (line, line.quantity - line.done))
            .collect();
        if open.is_empty() {
            return Err(OrderDeskError::Asked(format!(
                "everything of {} is {} already",
                order.number(),
                order.kind.done()
            )));
        }
        return Ok(open);
    }
    let mut wanted: Vec<(&OrderLine, i64)> = Vec::new();
    for row in given {
        let (sku, count) = (text(row, "sku")?, pieces(row, "quantity")?);
        let line = order.line(sku);
        let line =
            line.ok_or_else(|| OrderDeskError::Asked(format!("{} has no line `{sku}`", order.number())))?;
        if wanted.iter().any(|(other, _)| other.sku == sku) {
            return Err(OrderDeskError::Asked(format!("`{sku}` is named twice: one line per item")));
        }
        if line.done + count > line.quantity {
            let open = line.quantity - line.done;
            return Err(OrderDeskError::Asked(format!(
                "only {open} × `{sku}` of {} are open",
                order.number()
            )));
        }
        wanted.push((line, count));
    }
    Ok(wanted)
}

/// A line's count and the item's stock, moved together.
fn moved(order: &Order, line: &OrderLine, done: i64, stock: i64, after: i64) -> PlannedAction {
    let deeds = vec![
        CheckedStatement::one(
            "UPDATE lines SET done = ?1 WHERE order_id = ?2 AND sku = ?3 AND done = ?4",
            vec![cell(done), cell(order.id), cell(line.sku.clone()), cell(line.done)],
        ),
        CheckedStatement::one(
            "UPDATE items SET stock = ?1 WHERE sku = ?2 AND stock = ?3",
            vec![cell(after), cell(line.sku.clone()), cell(stock)],
        ),
    ];
    PlannedAction {
        operation: match order.kind {
            OrderKind::Purchase => "receive",
            OrderKind::Sales => "ship",
        },
        target: line.sku.clone(),
        changes: vec![
            FieldChange::new(format!("{} on {}", order.kind.done(), order.number()), line.done, done),
            FieldChange::new("stock", stock, after),
        ],
        deeds,
    }
}

/// The order's status once its lines have moved; an action of its own, so that it is shown.
fn settle(order: &Order, moved: &[(&OrderLine, i64)]) -> PlannedAction {
    let after = |line: &OrderLine| {
        let more = moved.iter().find(|(other, _)| other.sku == line.sku).map_or(0, |(_, count)| *count);
        line.done + more
    };
    let whole = order.lines.iter().all(|line| after(line) >= line.quantity);
    let status = if whole { order.kind.done() } else { "partial" };
    PlannedAction {
        operation: "update",
        target: order.number(),
        changes: vec![FieldChange::new("status", order.status.as_str(), status)],
        deeds: vec![CheckedStatement::one(
            "UPDATE orders SET status = ?1 WHERE id = ?2 AND status = ?3",
            vec![cell(status.to_owned()), cell(order.id), cell(order.status.clone())],
        )],
    }
}

/// `correct_purchase_order`, `correct_sales_order`: what was counted wrong, and the stock with it.
pub(crate) fn correct(
    connection: &Connection,
    kind: OrderKind,
    arguments: &Map<String, Value>,
) -> Result<WritePlan, OrderDeskError> {
    let order = find(connection, kind, arguments)?;
    let (mut actions, mut warnings) = (Vec::new(), Vec::new());
    for row in rows(arguments, "lines")? {
        let (sku, done) = (text(row, "sku")?, number(row, kind.done())?);
        let line = order.line(sku);
        let line =
            line.ok_or_else(|| OrderDeskError::Asked(format!("{} has no line `{sku}`", order.number())))?;
        if actions.iter().any(|action: &PlannedAction| action.target == sku) {
            return Err(OrderDeskError::Asked(format!("`{sku}` is named twice: one line per item")));
        }
        if !(0..=line.quantity).contains(&done) {
            return Err(OrderDeskError::Asked(format!(
                "`{}` must be from 0 to {}",
                kind.done(),
                line.quantity
            )));
        }
        let (stock, ..) = stock_of(connection, sku)?;
        let after = match kind {
            OrderKind::Purchase => stock + done - line.done,
            OrderKind::Sales => stock - done + line.done,
        };
        if after < 0 {
            warnings.push(format!("BLOCK: {} × {sku} are not in stock to be taken back", -after));
        }
        let action = moved(&order, line, done, stock, after);
        actions.push(PlannedAction { operation: "correct", ..action });
    }
    if actions.is_empty() {
        return Err(OrderDeskError::Asked("`lines` needs at least one line".to_owned()));
    }
    Ok(WritePlan {
        entity_type: kind.entity(),
        entity_id: Some(order.number()),
        message: format!("Correction of {} of {}", counted(actions.len(), "line"), order.number()),
        actions,
        warnings,
        prior: Some(order.shown()),
    })
}
