//! The tools as an MCP server would list them: names by family, schemas that refuse what they do not know at every level,
//! annotations by one policy.

use serde_json::{Map, Value, json};

use crate::OrderDeskError;

/// What kind of tool it is; the annotations follow from it.
#[derive(Clone, Copy, PartialEq)]
enum ToolFamily {
    Read,
    /// Adds something: `create_*`.
    Additive,
    /// Overwrites, removes or moves something that is there.
    Destructive,
    /// The same, and doing it twice is doing it once.
    Idempotent,
}

fn text(what: &str) -> Value {
    json!({"type": "string", "minLength": 1, "maxLength": 500, "description": what})
}

fn count(what: &str, least: i64) -> Value {
    json!({"type": "integer", "minimum": least, "maximum": 1_000_000, "description": what})
}

fn price() -> Value {
    json!({"type": "number", "minimum": 0, "maximum": 1_000_000, "description": "per piece; the item's own price if left out"})
}

fn date() -> Value {
    json!({"type": "string", "pattern": "^[0-9]{4}-[0-9]{2}-[0-9]{2}$", "description": "a day such as 2026-12-01"})
}

fn object(fields: &[(&str, Value)], required: &[&str]) -> Value {
    let properties: Map<String, Value> =
        fields.iter().map(|(name, schema)| ((*name).to_owned(), schema.clone())).collect();
    json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false})
}

fn list(items: &Value, what: &str) -> Value {
    json!({"type": "array", "minItems": 1, "maxItems": 100, "items": items, "description": what})
}

type DemoToolEntry =
    (&'static str, ToolFamily, &'static str, Vec<(&'static str, Value)>, &'static [&'static str]);

fn reads() -> Vec<DemoToolEntry> {
    let status = json!({"type": "string", "enum": ["draft", "open", "partial", "received", "shipped"]});
    vec![
        (
            "list_purchase_orders",
            ToolFamily::Read,
            "Lists purchase orders, newest first.",
            vec![("status", status.clone())],
            &[],
        ),
        (
            "list_sales_orders",
            ToolFamily::Read,
            "Lists sales orders, newest first.",
            vec![("status", status)],
            &[],
        ),
        (
            "get_order",
            ToolFamily::Read,
            "One purchase or sales order with its lines.",
            vec![("number", text("such as PO-1040 or SO-1039"))],
            &["number"],
        ),
        (
            "search_items",
            ToolFamily::Read,
            "Finds items by a part of their number or name.",
            vec![("query", text("a part of the number or name; left out: all"))],
            &[],
        ),
        (
            "check_inventory",
            ToolFamily::Read,
            "Stock of one item, what is on its way and what is promised.",
            vec![("sku", text("the item's number"))],
            &["sku"],
        ),
        ("list_stock_adjustments", ToolFamily::Read, "Lists stock adjustments, newest first.", vec![], &[]),
    ]
}

fn order_writes() -> Vec<DemoToolEntry> {
    use ToolFamily::{Additive, Destructive, Idempotent};
    let line = object(
        &[("sku", text("the item's number")), ("quantity", count("how many", 1)), ("price", price())],
        &["sku", "quantity"],
    );
    let changed = object(
        &[("sku", text("the item's number")), ("quantity", count("how many", 1)), ("price", price())],
        &["sku"],
    );
    let gone = object(&[("sku", text("the item's number"))], &["sku"]);
    let some = object(
        &[("sku", text("the item's number")), ("quantity", count("how many", 1))],
        &["sku", "quantity"],
    );
    let lines = || list(&line, "one line per item");
    let changes = |number: &str, party: &'static str| {
        vec![
            ("number", text(number)),
            (party, text("its name")),
            ("due", date()),
            ("note", text("a note")),
            ("set_lines", list(&changed, "lines whose quantity or price changes")),
            ("add_lines", list(&line, "lines to add")),
            ("remove_lines", list(&gone, "lines to remove")),
        ]
    };
    let corrected = |done: &'static str| {
        object(&[("sku", text("the item's number")), (done, count("the true count", 0))], &["sku", done])
    };
    let moved = |number: &str| {
        vec![
            ("number", text(number)),
            ("lines", list(&some, "which and how many; left out: all that is open")),
        ]
    };
    let head = |party: &'static str| {
        vec![(party, text("its name")), ("lines", lines()), ("due", date()), ("note", text("a note"))]
    };
    vec![
        (
            "create_purchase_order",
            Additive,
            "Orders goods from a supplier.",
            head("supplier"),
            &["supplier", "lines"],
        ),
        (
            "create_sales_order",
            Additive,
            "Takes an order of a customer.",
            head("customer"),
            &["customer", "lines"],
        ),
        (
            "modify_purchase_order",
            Idempotent,
            "Changes a purchase order: supplier, due day, note, lines.",
            changes("such as PO-1040", "supplier"),
            &["number"],
        ),
        (
            "modify_sales_order",
            Idempotent,
            "Changes a sales order: customer, due day, note, lines.",
            changes("such as SO-1039", "customer"),
            &["number"],
        ),
        (
            "delete_purchase_order",
            Destructive,
            "Deletes a purchase order with all its lines.",
            vec![("number", text("such as PO-1041"))],
            &["number"],
        ),
        (
            "delete_sales_order",
            Destructive,
            "Deletes a sales order with all its lines.",
            vec![("number", text("such as SO-1043"))],
            &["number"],
        ),
        (
            "fulfill_order",
            Destructive,
            "Ships lines of a sales order; the stock goes down.",
            moved("such as SO-1042"),
            &["number"],
        ),
        (
            "receive_purchase_order",
            Destructive,
            "Receives lines of a purchase order; the stock goes up.",
            moved("such as PO-1040"),
            &["number"],
        ),
        (
            "correct_purchase_order",
            Idempotent,
            "Sets right how many of a line were received, and the stock with it.",
            vec![
                ("number", text("such as PO-1038")),
                ("lines", list(&corrected("received"), "the true counts")),
            ],
            &["number", "lines"],
        ),
        (
            "correct_sales_order",
            Idempotent,
            "Sets right how many of a line were shipped, and the stock with it.",
            vec![
                ("number", text("such as SO-1036")),
                ("lines", list(&corrected("shipped"), "the true counts")),
            ],
            &["number", "lines"],
        ),
    ]
}

fn stock_writes() -> Vec<DemoToolEntry> {
    use ToolFamily::{Additive, Destructive, Idempotent};
    let difference = || json!({"type": "integer", "minimum": -1_000_000, "maximum": 1_000_000, "description": "more or less than the books say"});
    vec![
        (
            "modify_item",
            Idempotent,
            "Changes an item's name, price or reorder point.",
            vec![
                ("sku", text("the item's number")),
                ("name", text("its name")),
                ("price", json!({"type": "number", "minimum": 0, "maximum": 1_000_000})),
                ("reorder_point", count("order again below this", 0)),
            ],
            &["sku"],
        ),
        (
            "create_stock_adjustment",
            Additive,
            "Books a difference between shelf and books.",
            vec![("sku", text("the item's number")), ("quantity", difference()), ("reason", text("why"))],
            &["sku", "quantity", "reason"],
        ),
        (
            "update_stock_adjustment",
            Destructive,
            "Changes a stock adjustment; the stock moves with it.",
            vec![("number", text("such as SA-302")), ("quantity", difference()), ("reason", text("why"))],
            &["number"],
        ),
        (
            "delete_stock_adjustment",
            Destructive,
            "Deletes a stock adjustment; the stock goes back.",
            vec![("number", text("such as SA-303"))],
            &["number"],
        ),
        ("rebuild_cache", Destructive, "Wipes the cached stock figures and counts them again.", vec![], &[]),
    ]
}

fn entries() -> Vec<DemoToolEntry> {
    [reads(), order_writes(), stock_writes()].into_iter().flatten().collect()
}

fn schema(entry: &DemoToolEntry) -> Value {
    let (_, family, _, fields, required) = entry;
    let mut fields = fields.clone();
    if *family != ToolFamily::Read {
        let what = "true shows what would change, false changes it";
        fields.push(("preview", json!({"type": "boolean", "default": true, "description": what})));
    }
    object(&fields, required)
}

/// The tools as an MCP server lists them.
pub fn definitions() -> Vec<Value> {
    entries()
        .iter()
        .map(|entry| {
            let (name, family, description, ..) = entry;
            let hints = match family {
                ToolFamily::Read => json!({"readOnlyHint": true, "destructiveHint": false}),
                ToolFamily::Additive => json!({"readOnlyHint": false, "destructiveHint": false}),
                ToolFamily::Destructive => json!({"readOnlyHint": false, "destructiveHint": true}),
                ToolFamily::Idempotent => {
                    json!({"readOnlyHint": false, "destructiveHint": true, "idempotentHint": true})
                }
            };
            let mut hints = hints;
            if let Some(members) = hints.as_object_mut() {
                members.insert("openWorldHint".to_owned(), false.into());
            }
            json!({
                "name": name,
                "description": description,
                "inputSchema": schema(entry),
                "annotations": hints,
            })
        })
        .collect()
}

/// Whether a tool only reads.
pub(crate) fn is_read(tool: &str) -> bool {
    reads().iter().any(|(name, ..)| *name == tool)
}

/// Refuses names a tool does not know, at every level: what is not understood must not be dropped silently.
pub(crate) fn check(tool: &str, arguments: &Map<String, Value>) -> Result<(), OrderDeskError> {
    let entries = entries();
    let entry = entries.iter().find(|(name, ..)| *name == tool);
    let entry = entry.ok_or_else(|| OrderDeskError::Asked(format!("there is no tool `{tool}`")))?;
    check_names(&schema(entry), arguments, "")
}

fn check_names(schema: &Value, given: &Map<String, Value>, inside: &str) -> Result<(), OrderDeskError> {
    for (name, value) in given {
        let known = schema.get("properties").and_then(|all| all.get(name));
        let Some(known) = known else {
            return Err(OrderDeskError::Asked(format!("`{inside}{name}` is not known here")));
        };
        if let (Some(items), Some(rows)) = (known.get("items"), value.as_array()) {
            for (index, row) in rows.iter().enumerate() {
                if let Some(row) = row.as_object() {
                    check_names(items, row, &format!("{inside}{name}.{index}."))?;
                }
            }
        }
    }
    Ok(())
}
