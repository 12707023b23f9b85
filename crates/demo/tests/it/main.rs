//! The order desk as a caller meets it. One binary.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

use countersign_demo::{OrderDesk, definitions};
use serde_json::{Map, Value, json};

fn call(desk: &OrderDesk, tool: &str, arguments: Value) -> Value {
    let Value::Object(arguments) = arguments else { panic!("arguments are an object") };
    let result = desk.call(tool, &arguments);
    let text: Value = serde_json::from_str(result["content"][0]["text"].as_str().unwrap()).unwrap();
    assert_eq!(text, result["structuredContent"], "ids are in both");
    result
}

fn body(desk: &OrderDesk, tool: &str, arguments: Value) -> Value {
    call(desk, tool, arguments)["structuredContent"].clone()
}

/// Everything the desk knows, to see whether something changed.
fn everything(desk: &OrderDesk) -> Value {
    let orders: Vec<Value> = ["list_purchase_orders", "list_sales_orders"]
        .iter()
        .flat_map(|tool| body(desk, tool, json!({}))["orders"].as_array().unwrap().clone())
        .map(|order| body(desk, "get_order", json!({"number": order["number"]})))
        .collect();
    json!([orders, body(desk, "search_items", json!({})), body(desk, "list_stock_adjustments", json!({}))])
}

/// One call of each write that is good on the data as delivered.
fn writes() -> Vec<(&'static str, Value)> {
    vec![
        (
            "create_purchase_order",
            json!({"supplier": "Taiko Components", "lines": [{"sku": "CHAIN-8S", "quantity": 40, "price": 10.95}], "due": "2026-12-01"}),
        ),
        (
            "create_sales_order",
            json!({"customer": "Veloteca Malasaña", "lines": [{"sku": "BIKE-CITY", "quantity": 2}], "note": "showroom"}),
        ),
        (
            "modify_purchase_order",
            json!({"number": "PO-1040", "due": "2026-12-07", "set_lines": [{"sku": "HUB-DYN-36", "quantity": 40}]}),
        ),
        ("modify_sales_order", json!({"number": "SO-1039", "note": "fleet renewal"})),
        ("modify_item", json!({"sku": "CHAIN-8S", "price": 12.5})),
        ("delete_purchase_order", json!({"number": "PO-1041"})),
        ("delete_sales_order", json!({"number": "SO-1043"})),
        ("fulfill_order", json!({"number": "SO-1042"})),
        ("receive_purchase_order", json!({"number": "PO-1037"})),
        (
            "correct_purchase_order",
            json!({"number": "PO-1038", "lines": [{"sku": "TYRE-700C", "received": 198}]}),
        ),
        ("correct_sales_order", json!({"number": "SO-1036", "lines": [{"sku": "BIKE-CITY", "shipped": 14}]})),
        ("create_stock_adjustment", json!({"sku": "SPOKE-262", "quantity": -20, "reason": "counted"})),
        ("update_stock_adjustment", json!({"number": "SA-302", "quantity": 6})),
        ("delete_stock_adjustment", json!({"number": "SA-303"})),
        ("rebuild_cache", json!({})),
    ]
}

fn applied(mut arguments: Value) -> Value {
    arguments["preview"] = false.into();
    arguments
}

#[test]
fn every_write_previews_by_default_and_changes_nothing() {
    let desk = OrderDesk::in_memory().unwrap();
    let before = everything(&desk);
    for (tool, arguments) in writes() {
        let shown = body(&desk, tool, arguments.clone());
        assert_eq!(shown["is_preview"], true, "{tool}: {shown}");
        let action = &shown["actions"][0];
        assert_eq!(action["status_label"], "PLANNED", "{tool}");
        let change = &action["changes"][0];
        assert!(change["field"].is_string() && change["old"] != change["new"], "{tool}: {change}");
        assert_eq!(
            shown,
            body(&desk, tool, arguments),
            "{tool}: the same twice, so that a digest means something"
        );
    }
    assert_eq!(before, everything(&desk));
}

#[test]
fn what_was_previewed_is_what_is_applied() {
    for (tool, arguments) in writes() {
        let desk = OrderDesk::in_memory().unwrap();
        let shown = body(&desk, tool, arguments.clone());
        let done = call(&desk, tool, applied(arguments));
        assert_eq!(done["isError"], false, "{tool}: {done}");
        let done = &done["structuredContent"];
        assert_eq!(done["is_preview"], false);
        assert!(done["entity_id"].is_string(), "{tool}: {done}");
        for (planned, made) in
            shown["actions"].as_array().unwrap().iter().zip(done["actions"].as_array().unwrap())
        {
            assert_eq!(planned["changes"], made["changes"], "{tool}");
            assert_eq!(made["status_label"], "APPLIED", "{tool}: {made}");
        }
    }
}

#[test]
fn a_plan_of_several_actions_stops_where_one_fails_and_says_so() {
    let desk = OrderDesk::in_memory().unwrap();
    let shown = body(&desk, "receive_purchase_order", json!({"number": "PO-1040"}));
    assert!(shown["warnings"][0].as_str().unwrap().contains("bin C-01"), "{shown}");
    let result = call(&desk, "receive_purchase_order", json!({"number": "PO-1040", "preview": false}));
    assert_eq!(result["isError"], true);
    let done = &result["structuredContent"];
    let labels: Vec<&str> = done["actions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|action| action["status_label"].as_str().unwrap())
        .collect();
    assert_eq!(labels, ["APPLIED", "APPLIED", "FAILED", "NOT RUN", "NOT RUN"]);
    assert_eq!(done["actions"][2]["error"], "the bin of TYRE-700C is full");
    assert!(done["message"].as_str().unwrap().contains("2 of 5 actions applied"), "{done}");
    let order = body(&desk, "get_order", json!({"number": "PO-1040"}));
    let received: Vec<i64> =
        order["lines"].as_array().unwrap().iter().map(|line| line["received"].as_i64().unwrap()).collect();
    assert_eq!(received, [3000, 60, 0, 0], "what was applied stays, and nothing after the failure happened");
    assert_eq!(body(&desk, "check_inventory", json!({"sku": "TYRE-700C"}))["stock"], 380);
}

#[test]
fn what_must_not_happen_is_blocked_in_the_preview_and_refused_when_applied() {
    let desk = OrderDesk::in_memory().unwrap();
    let before = everything(&desk);
    for (tool, arguments) in [
        ("delete_purchase_order", json!({"number": "PO-1038"})),
        ("fulfill_order", json!({"number": "SO-1043"})),
        ("receive_purchase_order", json!({"number": "PO-1041"})),
        ("modify_purchase_order", json!({"number": "PO-1034", "note": "x"})),
        ("create_stock_adjustment", json!({"sku": "SADDLE-W", "quantity": -20, "reason": "lost"})),
    ] {
        let shown = body(&desk, tool, arguments.clone());
        let warnings = shown["warnings"].as_array().unwrap();
        assert!(warnings.iter().any(|one| one.as_str().unwrap().starts_with("BLOCK: ")), "{tool}: {shown}");
        let result = call(&desk, tool, applied(arguments));
        assert_eq!(result["isError"], true, "{tool}");
    }
    assert_eq!(before, everything(&desk));
}

#[test]
fn what_is_not_understood_is_refused_at_every_level() {
    let desk = OrderDesk::in_memory().unwrap();
    for (tool, arguments, says) in [
        ("get_order", json!({"number": "PO-1"}), "there is no order `PO-1`"),
        ("get_order", json!({"nmuber": "PO-1040"}), "`nmuber` is not known here"),
        (
            "create_purchase_order",
            json!({"supplier": "Nobody", "lines": []}),
            "there is no supplier `Nobody`",
        ),
        (
            "create_purchase_order",
            json!({"supplier": "Taiko Components", "lines": [{"sku": "CHAIN-8S", "quantity": 1, "colour": "red"}]}),
            "`lines.0.colour` is not known here",
        ),
        (
            "create_purchase_order",
            json!({"supplier": "Taiko Components", "lines": [{"sku": "CHAIN-8S", "quantity": 0}]}),
            "`quantity` must be at least 1",
        ),
        ("delete_purchase_order", json!({"number": 1041}), "`number` must be a text"),
        (
            "delete_purchase_order",
            json!({"number": "PO-1041", "preview": "no"}),
            "`preview` must be true or false",
        ),
        ("drop_tables", json!({}), "there is no tool `drop_tables`"),
        ("modify_item", json!({"sku": "CHAIN-8S"}), "nothing of CHAIN-8S would change"),
    ] {
        let result = call(&desk, tool, arguments);
        assert_eq!(result["isError"], true, "{tool}");
        let said = result["structuredContent"]["error"].as_str().unwrap();
        assert!(said.contains(says), "{tool}: {said}");
    }
}

#[test]
fn a_file_keeps_what_was_done() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("orders.db");
    let desk = OrderDesk::open(&file).unwrap();
    call(&desk, "delete_purchase_order", json!({"number": "PO-1041", "preview": false}));
    drop(desk);
    let again = OrderDesk::open(&file).unwrap();
    assert_eq!(call(&again, "get_order", json!({"number": "PO-1041"}))["isError"], true);
    assert_eq!(call(&again, "get_order", json!({"number": "PO-1040"}))["isError"], false);
}

#[test]
fn annotations_follow_one_policy_by_family() {
    for tool in definitions() {
        let name = tool["name"].as_str().unwrap();
        let hints = &tool["annotations"];
        let read = ["list_", "get_", "search_", "check_"].iter().any(|start| name.starts_with(start));
        assert_eq!(hints["readOnlyHint"], read, "{name}");
        assert_eq!(hints["destructiveHint"], !read && !name.starts_with("create_"), "{name}");
        let previews = tool["inputSchema"]["properties"].get("preview");
        assert_eq!(previews.is_some(), !read, "{name}");
        assert_eq!(tool["inputSchema"]["additionalProperties"], false, "{name}");
    }
    let desk = OrderDesk::in_memory().unwrap();
    for tool in definitions() {
        let result = desk.call(tool["name"].as_str().unwrap(), &Map::new());
        let said = result["structuredContent"]["error"].as_str().unwrap_or_default();
        assert!(!said.contains("there is no tool"), "{said}");
    }
}
