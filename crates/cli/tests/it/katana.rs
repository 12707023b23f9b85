//! `presets/katana.toml`: the policy by tool family, and a plan from preview to apply on an upstream with those tools.

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::world::World;

fn preset() -> String {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../presets/katana.toml").display().to_string()
}

/// Every write of the server, by what its authors say of it: destroys, and previews itself.
const POLICY: [(&str, bool, bool); 38] = [
    ("create_purchase_order", false, true),
    ("create_sales_order", false, true),
    ("create_manufacturing_order", false, true),
    ("create_stock_adjustment", false, true),
    ("create_stock_transfer", false, true),
    ("create_bin_transfer", false, true),
    ("create_storage_bin", false, true),
    ("create_customer", false, true),
    ("add_serial_numbers", false, true),
    ("create_item", false, false),
    ("create_product", false, false),
    ("create_material", false, false),
    ("modify_purchase_order", true, true),
    ("modify_sales_order", true, true),
    ("modify_manufacturing_order", true, true),
    ("modify_stock_transfer", true, true),
    ("modify_bin_transfer", true, true),
    ("modify_item", true, true),
    ("delete_purchase_order", true, true),
    ("delete_sales_order", true, true),
    ("delete_manufacturing_order", true, true),
    ("delete_stock_transfer", true, true),
    ("delete_bin_transfer", true, true),
    ("delete_item", true, true),
    ("update_stock_adjustment", true, true),
    ("delete_stock_adjustment", true, true),
    ("delete_serial_numbers", true, true),
    ("manage_product_bom", true, true),
    ("receive_purchase_order", true, true),
    ("fulfill_order", true, true),
    ("correct_manufacturing_order", true, true),
    ("correct_sales_order", true, true),
    ("correct_purchase_order", true, true),
    ("rebuild_cache", true, true),
    ("create_custom_field_definition", true, true),
    ("update_custom_field_definition", true, true),
    ("delete_custom_field_definition", true, true),
    ("delete_sales_return", true, true),
];

fn world() -> World {
    let world = World::new();
    world.write(
        "countersign.toml",
        "[gateway]\nmode = \"execute\"\n[confirm]\nhold = \"0s\"\n[upstreams.katana]\nkind = \"demo\"\n",
    );
    world
}

fn run(world: &World, args: &[&str]) -> Value {
    let preset = preset();
    let args = [args, &["--json", "--config", "countersign.toml", "--config", &preset]].concat();
    world.run(&args).envelope()
}

#[test]
fn effects_and_previews_follow_the_policy_by_family() {
    let world = world();
    for (tool, destroys, previews) in POLICY {
        let name = format!("katana:{tool}");
        let told = run(&world, &["policy", "explain", "--tool", &name, "--args", "{}", "--mode", "execute"]);
        let explained = &told["data"]["explained"];
        assert_eq!(explained["effect"], if destroys { "destructive" } else { "write" }, "{tool}: {told}");
        let expect = if previews {
            json!({"from": "argument", "arg": "preview", "preview": true, "apply": false})
        } else {
            json!({"from": "computed"})
        };
        assert_eq!(explained["preview"]["from"], expect["from"], "{tool}: {told}");
        assert_eq!(explained["preview"]["arg"], expect["arg"], "{tool}: {told}");
    }
}

#[test]
fn the_preset_is_rules_only_and_lints_clean() {
    let world = world();
    let checked = run(&world, &["policy", "check"]);
    assert_eq!(checked["ok"], true, "{checked}");
    let text = std::fs::read_to_string(preset()).unwrap();
    assert!(!text.lines().any(|line| line.starts_with("[upstreams") || line.starts_with("[gateway")));
}

#[test]
fn one_tool_called_twice_is_one_plan_previewed_and_applied_as_reviewed() {
    let world = world();
    let create = |args: &Value| {
        let text = args.to_string();
        run(&world, &["call", "tool-write", "--tool-name=katana:create_purchase_order", "--json_args", &text])
    };
    let lines = json!([{"sku": "CHAIN-8S", "quantity": 40, "price": 10.95}]);
    // `preview` of the agent's own changes nothing: the gate previews first, and applies what was shown.
    for preview in [json!(null), json!(true), json!(false)] {
        let mut args = json!({"supplier": "Taiko Components", "lines": lines, "note": format!("{preview}")});
        if !preview.is_null() {
            args["preview"] = preview.clone();
        }
        let asked = create(&args);
        let shown = &asked["data"]["preview"]["shown"]["structuredContent"];
        assert_eq!(shown["is_preview"], true, "{asked}");
        let found = &asked["data"]["preview"]["source"];
        assert_eq!(found, "argument", "{asked}");
    }
    let orders = run(&world, &["call", "tool-read", "--tool-name=katana:list_purchase_orders"]);
    assert!(
        !orders.to_string().contains("\"supplier\":\"Taiko Components\",\"status\":\"open\""),
        "nothing was applied"
    );
}
