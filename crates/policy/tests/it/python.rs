//! Python literals against Python itself: whatever JSON goes in, `ast.literal_eval` reads the same value out.

use std::io::Write as _;
use std::process::{Command, Stdio};

use countersign_policy::python;
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;
use serde_json::{Map, Value, json};

const ORACLE: &str = r#"
import ast, json, sys
for line in sys.stdin.buffer.read().decode("utf-8").split("\x00"):
    print(json.dumps(ast.literal_eval(line)) if line else "")
"#;

/// Each literal as Python reads it, as JSON.
fn read_by_python(literals: &[String]) -> Vec<Value> {
    let mut child = Command::new("python3")
        .args(["-c", ORACLE])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("the oracle needs python3: {error}"));
    child.stdin.take().unwrap().write_all(literals.join("\0").as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-(1i64 << 53)..(1i64 << 53)).prop_map(Value::from),
        any::<f64>()
            .prop_filter("finite", |number| number.is_finite() && *number != 0.0)
            .prop_map(Value::from),
        any::<String>().prop_map(Value::from),
        "[ -~\\\\'\"\u{202e}\u{200b}\u{feff}\u{ad}\n\r\t\u{7f}\u{85}\u{2028}é漢🚲\u{10ffff}]{0,24}"
            .prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 64, 8, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..8).prop_map(Value::from),
            prop::collection::hash_map(any::<String>(), inner, 0..8)
                .prop_map(|members| Value::Object(members.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

#[test]
fn python_reads_every_literal_as_the_value_it_was() {
    let mut runner = TestRunner::deterministic();
    let values: Vec<Value> = (0..600).map(|_| any_json().new_tree(&mut runner).unwrap().current()).collect();
    let literals: Vec<String> =
        values.iter().map(|value| python::literal(&value.to_string()).unwrap()).collect();
    for literal in &literals {
        assert!(
            !literal.chars().any(|c| c.is_control() || ('\u{202a}'..='\u{202e}').contains(&c)),
            "{literal:?}"
        );
    }
    for ((value, literal), read) in values.iter().zip(&literals).zip(read_by_python(&literals)) {
        assert_eq!(*value, read, "{literal}");
    }
}

#[test]
fn twenty_lines_of_an_order_come_through_whole() {
    let lines: Vec<Value> = (0..20)
        .map(|n| json!({"sku": format!("SKU-{n}'s \"best\""), "quantity": n, "price": 0.1 + f64::from(n), "note": null, "tags": ["ü", "\n"]}))
        .collect();
    let order = json!({"lines": lines, "nested": {"a": {"b": [true, false, null, 1e-7, -2.5e300]}}, "text": "Zeile 1\nZeile 2 🚲 \u{202e}"});
    let literal = python::literal(&serde_json::to_string_pretty(&order).unwrap()).unwrap();
    assert_eq!(read_by_python(&[literal]), [order]);
}
