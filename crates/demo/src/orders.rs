//! Purchase and sales orders: created, modified, deleted. Planning only reads.

use rusqlite::{Connection, OptionalExtension as _};
use serde_json::{Map, Value, json};

use crate::OrderDeskError;
use crate::arguments::{id, maybe_amount, maybe_text, pieces, rows, text};
use crate::change::{CheckedStatement, FieldChange, PlannedAction, WritePlan, amount, cell, money};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OrderKind {
    Purchase,
    Sales,
}

impl OrderKind {
    pub(crate) const fn word(self) -> &'static str {
        match self {
            OrderKind::Purchase => "purchase",
            OrderKind::Sales => "sales",
        }
    }
    pub(crate) const fn entity(self) -> &'static str {
        match self {
            OrderKind::Purchase => "purchase_order",
            OrderKind::Sales => "sales_order",
        }
    }
    pub(crate) const fn prefix(self) -> &'static str {
        match self {
            OrderKind::Purchase => "PO-",
            OrderKind::Sales => "SO-",
        }
    }
    pub(crate) const fn party(self) -> &'static str {
        match self {
            OrderKind::Purchase => "supplier",
            OrderKind::Sales => "customer",
        }
    }
    /// What `done` of a line is called.
    pub(crate) const fn done(self) -> &'static str {
        match self {
            OrderKind::Purchase => "received",
            OrderKind::Sales => "shipped",
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Order {
    pub(crate) kind: OrderKind,
    pub(crate) id: i64,
    pub(crate) party: String,
    pub(crate) status: String,
    pub(crate) due: Option<String>,
    pub(crate) note: Option<String>,
    pub(crate) lines: Vec<OrderLine>,
}

#[derive(Clone, Debug)]
pub(crate) struct OrderLine {
    pub(crate) sku: String,
    pub(crate) quantity: i64,
    pub(crate) price: i64,
    pub(crate) done: i64,
}

impl Order {
    pub(crate) fn number(&self) -> String {
        format!("{}{}", self.kind.prefix(), self.id)
    }

    pub(crate) fn line(&self, sku: &str) -> Option<&OrderLine> {
        self.lines.iter().find(|line| line.sku == sku)
    }

    pub(crate) fn total(&self) -> i64 {
        self.lines.iter().map(|line| line.quantity * line.price).sum()
    }

    pub(crate) fn shown(&self) -> Value {
        let lines: Vec<Value> = self
            .lines
            .iter()
            .map(|line| {
                json!({"sku": line.sku, "quantity": line.quantity, "price": amount(line.price),
                    self.kind.done(): line.done})
            })
            .collect();
        json!({
            "number": self.number(),
            self.kind.party(): self.party,
            "status": self.status,
            "due": self.due,
            "note": self.note,
            "total": amount(self.total()),
            "lines": lines,
        })
    }
}

/// The order an argument `number` names.
pub(crate) fn find(
    connection: &Connection,
    kind: OrderKind,
    arguments: &Map<String, Value>,
) -> Result<Order, OrderDeskError> {
    let wanted = id(arguments, "number", kind.prefix())?;
    load(connection, kind, wanted)?.ok_or_else(|| {
        OrderDeskError::Asked(format!("there is no {} order {}{wanted}", kind.word(), kind.prefix()))
    })
}

pub(crate) fn load(
    connection: &Connection,
    kind: OrderKind,
    wanted: i64,
) -> Result<Option<Order>, OrderDeskError> {
    let head = connection
        .query_row(
            "SELECT party, status, due, note FROM orders WHERE id = ?1 AND kind = ?2",
            (wanted, kind.word()),
            |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)),
        )
        .optional()?;
    let Some((party, status, due, note)) = head else { return Ok(None) };
    let mut statement = connection
        .prepare_cached("SELECT sku, quantity, price, done FROM lines WHERE order_id = ?1 ORDER BY rowid")?;
    let lines = statement
        .query_map([wanted], |row| {
            Ok(OrderLine { sku: row.get(0)?, quantity: row.get(1)?, price: row.get(2)?, done: row.get(3)? })
        })?
        .collect::<Result<_, _>>()?;
    Ok(Some(Order { kind, id: wanted, party, status, due, note, lines }))
}

/// The price of an item that exists; what does not exist is refused with what does.
fn item_price(connection: &Connection, sku: &str) -> Result<i64, OrderDeskError> {
    let found = connection.query_row("SELECT price FROM items WHERE sku = ?1", [sku], |row| row.get(0));
    found
        .optional()?
        .ok_or_else(|| OrderDeskError::Asked(format!("there is no item `{sku}`; search_items lists them")))
}

fn check_party(connection: &Connection, kind: OrderKind, name: &str) -> Result<(), OrderDeskError> {
    let sql = "SELECT 1 FROM parties WHERE name = ?1 AND kind = ?2";
    let known = connection.query_row(sql, (name, kind.party()), |_| Ok(())).optional()?;
    if known.is_some() {
        return Ok(());
    }
    let mut statement = connection.prepare("SELECT name FROM parties WHERE kind = ?1 ORDER BY name")?;
    let names: Vec<String> =
        statement.query_map([kind.party()], |row| row.get(0))?.collect::<Result<_, _>>()?;
    Err(OrderDeskError::Asked(format!(
        "there is no {} `{name}`: known are {}",
        kind.party(),
        names.join(", ")
    )))
}

/// A line as it was asked for.
fn asked_line(connection: &Connection, given: &Map<String, Value>) -> Result<OrderLine, OrderDeskError> {
    let sku = text(given, "sku")?;
    let usual = item_price(connection, sku)?;
    let price = maybe_amount(given, "price")?.unwrap_or(usual);
    Ok(OrderLine { sku: sku.to_owned(), quantity: pieces(given, "quantity")?, price, done: 0 })
}

fn line_text(line: &OrderLine) -> String {
    format!("{} × {} at {}", line.quantity, line.sku, money(line.price))
}

/// `create_purchase_order`, `create_sales_order`.
pub(crate) fn create(
    connection: &Connection,
    kind: OrderKind,
    arguments: &Map<String, Value>,
) -> Result<WritePlan, OrderDeskError> {
    let party = text(arguments, kind.party())?;
    check_party(connection, kind, party)?;
    let (due, note) = (maybe_text(arguments, "due")?, maybe_text(arguments, "note")?);
    let given = rows(arguments, "lines")?;
    let lines: Vec<OrderLine> =
        given.into_iter().map(|line| asked_line(connection, line)).collect::<Result<_, _>>()?;
    if lines.is_empty() {
        return Err(OrderDeskError::Asked("`lines` needs at least one line".to_owned()));
    }
    no_twins(lines.iter().map(|line| line.sku.as_str()))?;
    let mut changes = vec![
        FieldChange::new(kind.party(), Value::Null, party),
        FieldChange::new("status", Value::Null, "open"),
    ];
    changes.extend(due.map(|due| FieldChange::new("due", Value::Null, due)));
    changes.extend(note.map(|note| FieldChange::new("note", Value::Null, note)));
    let mut deeds = vec![CheckedStatement::one(
        "INSERT INTO orders (kind, party, status, due, note) VALUES (?1, ?2, 'open', ?3, ?4)",
        vec![
            cell(kind.word().to_owned()),
            cell(party.to_owned()),
            cell(due.map(str::to_owned)),
            cell(note.map(str::to_owned)),
        ],
    )];
    for line in &lines {
        changes.push(FieldChange::new(format!("line {}", line.sku), Value::Null, line_text(line)));
        deeds.push(CheckedStatement::one(
            "INSERT INTO lines (order_id, sku, quantity, price) VALUES ((SELECT max(id) FROM orders), ?1, ?2, ?3)",
            vec![cell(line.sku.clone()), cell(line.quantity), cell(line.price)],
        ));
    }
    let total: i64 = lines.iter().map(|line| line.quantity * line.price).sum();
    changes.push(FieldChange::new("total", Value::Null, money(total)));
    let target = format!("{} order for {party}", kind.word());
    Ok(WritePlan {
        entity_type: kind.entity(),
        entity_id: None,
        message: format!("A {target} with {}", counted(lines.len(), "line")),
        actions: vec![PlannedAction { operation: "create", target, changes, deeds }],
        warnings: if total > 2_000_000 {
            vec!["the total is above 20000: ask whether it is budgeted".to_owned()]
        } else {
            Vec::new()
        },
        prior: None,
    })
}

fn no_twins<'a>(skus: impl Iterator<Item = &'a str>) -> Result<(), OrderDeskError> {
    let mut seen: Vec<&str> = Vec::new();
    for sku in skus {
        if seen.contains(&sku) {
            return Err(OrderDeskError::Asked(format!("`{sku}` is named twice: one line per item")));
        }
        seen.push(sku);
    }
    Ok(())
}

/// `1 line`, `3 lines`.
pub(crate) fn counted(count: usize, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}

/// `modify_purchase_order`, `modify_sales_order`: the head first, then lines changed, added and removed, each an action.
pub(crate) fn modify(
    connection: &Connection,
    kind: OrderKind,
    arguments: &Map<String, Value>,
) -> Result<WritePlan, OrderDeskError> {
    let order = find(connection, kind, arguments)?;
    let mut warnings = Vec::new();
    if matches!(order.status.as_str(), "received" | "shipped") {
        warnings.push(format!(
            "BLOCK: {} is {}; correct it instead of modifying it",
            order.number(),
            order.status
        ));
    }
    let mut actions: Vec<PlannedAction> = head(connection, &order, arguments)?.into_iter().collect();
    for given in rows(arguments, "set_lines")? {
        actions.push(set_line(&order, given)?);
    }
    for given in rows(arguments, "add_lines")? {
        actions.push(add_line(connection, &order, given)?);
    }
    for given in rows(arguments, "remove_lines")? {
        actions.push(remove_line(&order, given)?);
    }
    no_twins(actions.iter().map(|action| action.target.as_str()))?;
    if actions.is_empty() {
        return Err(OrderDeskError::Asked(format!("nothing of {} would change", order.number())));
    }
    Ok(WritePlan {
        entity_type: kind.entity(),
        entity_id: Some(order.number()),
        message: format!("{} of {}", counted(actions.len(), "change"), order.number()),
        actions,
        warnings,
        prior: Some(order.shown()),
    })
}

fn head(
    connection: &Connection,
    order: &Order,
    arguments: &Map<String, Value>,
) -> Result<Option<PlannedAction>, OrderDeskError> {
    let (mut changes, mut deeds) = (Vec::new(), Vec::new());
    if let Some(party) = maybe_text(arguments, order.kind.party())?.filter(|party| **party != order.party) {
        check_party(connection, order.kind, party)?;
        changes.push(FieldChange::new(order.kind.party(), order.party.as_str(), party));
        deeds.push(CheckedStatement::one(
            "UPDATE orders SET party = ?1 WHERE id = ?2 AND party = ?3",
            vec![cell(party.to_owned()), cell(order.id), cell(order.party.clone())],
        ));
    }
    for (field, old, sql) in [
        ("due", &order.due, "UPDATE orders SET due = ?1 WHERE id = ?2 AND due IS ?3"),
        ("note", &order.note, "UPDATE orders SET note = ?1 WHERE id = ?2 AND note IS ?3"),
    ] {
        if let Some(new) = maybe_text(arguments, field)?.filter(|new| Some(*new) != old.as_deref()) {
            changes.push(FieldChange::new(field, old.clone().map_or(Value::Null, Value::from), new));
            deeds.push(CheckedStatement::one(
                sql,
                vec![cell(new.to_owned()), cell(order.id), cell(old.clone())],
            ));
        }
    }
    let action = PlannedAction { operation: "update", target: order.number(), changes, deeds };
    Ok((!action.changes.is_empty()).then_some(action))
}

fn existing<'o>(order: &'o Order, given: &Map<String, Value>) -> Result<&'o OrderLine, OrderDeskError> {
    let sku = text(given, "sku")?;
    order.line(sku).ok_or_else(|| OrderDeskError::Asked(format!("{} has no line `{sku}`", order.number())))
}

fn set_line(order: &Order, given: &Map<String, Value>) -> Result<PlannedAction, OrderDeskError> {
    let line = existing(order, given)?;
    let quantity = match given.get("quantity") {
        None | Some(Value::Null) => line.quantity,
        Some(_) => pieces(given, "quantity")?,
    };
    let price = maybe_amount(given, "price")?.unwrap_or(line.price);
    if quantity < line.done {
        let (number, done) = (order.number(), order.kind.done());
        return Err(OrderDeskError::Asked(format!(
            "{} of `{}` on {number} are {done} already",
            line.done, line.sku
        )));
    }
    let mut changes = Vec::new();
    if quantity != line.quantity {
        changes.push(FieldChange::new("quantity", line.quantity, quantity));
    }
    if price != line.price {
        changes.push(FieldChange::new("price", money(line.price), money(price)));
    }
    if changes.is_empty() {
        return Err(OrderDeskError::Asked(format!("nothing of line `{}` would change", line.sku)));
    }
    changes.push(FieldChange::new(
        "order total",
        money(order.total()),
        money(order.total() - line.quantity * line.price + quantity * price),
    ));
    let deed = CheckedStatement::one(
        "UPDATE lines SET quantity = ?1, price = ?2
          WHERE order_id = ?3 AND sku = ?4 AND quantity = ?5 AND price = ?6 AND done <= ?1",
        vec![
            cell(quantity),
            cell(price),
            cell(order.id),
            cell(line.sku.clone()),
            cell(line.quantity),
            cell(line.price),
        ],
    );
    let target = format!("{} line {}", order.number(), line.sku);
    Ok(PlannedAction { operation: "update", target, changes, deeds: vec![deed] })
}

fn add_line(
    connection: &Connection,
    order: &Order,
    given: &Map<String, Value>,
) -> Result<PlannedAction, OrderDeskError> {
    let line = asked_line(connection, given)?;
    if order.line(&line.sku).is_some() {
        return Err(OrderDeskError::Asked(format!(
            "{} has a line `{}` already: set_lines changes it",
            order.number(),
            line.sku
        )));
    }
    let deed = CheckedStatement::one(
        "INSERT INTO lines (order_id, sku, quantity, price) VALUES (?1, ?2, ?3, ?4)",
        vec![cell(order.id), cell(line.sku.clone()), cell(line.quantity), cell(line.price)],
    );
    Ok(PlannedAction {
        operation: "add",
        target: format!("{} line {}", order.number(), line.sku),
        changes: vec![FieldChange::new("line", Value::Null, line_text(&line))],
        deeds: vec![deed],
    })
}

fn remove_line(order: &Order, given: &Map<String, Value>) -> Result<PlannedAction, OrderDeskError> {
    let line = existing(order, given)?;
    let deed = CheckedStatement::one(
        "DELETE FROM lines WHERE order_id = ?1 AND sku = ?2 AND quantity = ?3 AND done = 0",
        vec![cell(order.id), cell(line.sku.clone()), cell(line.quantity)],
    );
    Ok(PlannedAction {
        operation: "remove",
        target: format!("{} line {}", order.number(), line.sku),
        changes: vec![FieldChange::new("line", line_text(line), Value::Null)],
        deeds: vec![deed],
    })
}

/// `delete_purchase_order`, `delete_sales_order`: everything that goes is shown.
pub(crate) fn delete(
    connection: &Connection,
    kind: OrderKind,
    arguments: &Map<String, Value>,
) -> Result<WritePlan, OrderDeskError> {
    let order = find(connection, kind, arguments)?;
    let mut changes = vec![
        FieldChange::new(kind.party(), order.party.as_str(), Value::Null),
        FieldChange::new("status", order.status.as_str(), Value::Null),
    ];
    changes.extend(order.due.as_deref().map(|due| FieldChange::new("due", due, Value::Null)));
    changes.extend(order.note.as_deref().map(|note| FieldChange::new("note", note, Value::Null)));
    let lines = order.lines.iter();
    changes.extend(
        lines.map(|line| FieldChange::new(format!("line {}", line.sku), line_text(line), Value::Null)),
    );
    changes.push(FieldChange::new("total", money(order.total()), Value::Null));
    let done: i64 = order.lines.iter().map(|line| line.done).sum();
    let mut warnings = vec!["an order that is deleted cannot be brought back".to_owned()];
    if done > 0 {
        warnings.push(format!(
            "BLOCK: goods of {} are {} already; correct it instead of deleting it",
            order.number(),
            kind.done()
        ));
    }
    let deed = CheckedStatement::one(
        "DELETE FROM orders WHERE id = ?1 AND status = ?2
            AND NOT EXISTS (SELECT 1 FROM lines WHERE order_id = ?1 AND done > 0)",
        vec![cell(order.id), cell(order.status.clone())],
    );
    Ok(WritePlan {
        entity_type: kind.entity(),
        entity_id: Some(order.number()),
        message: format!("Deletion of {} for {}", order.number(), order.party),
        actions: vec![PlannedAction {
            operation: "delete",
            target: order.number(),
            changes,
            deeds: vec![deed],
        }],
        warnings,
        prior: Some(order.shown()),
    })
}
