//! Schemas: what fits, what does not, and what is refused because it would take too long.

use std::time::{Duration, Instant};

use countersign_policy::ids::UpstreamId;
use serde_json::json;

use super::*;

fn tool(schema: Value) -> Tool {
    let definition = json!({"name": "t", "inputSchema": schema});
    Tool::read(UpstreamId::new("u"), definition.as_object().unwrap().clone()).unwrap()
}

fn check(schema: &Value, arguments: Value, expect: &[&str]) {
    let tool = tool(schema.clone());
    let faults = Schemas::default().check(&tool, arguments.as_object().unwrap());
    let said: Vec<String> = faults.iter().map(ToString::to_string).collect();
    assert_eq!(said, expect, "{arguments}");
}

#[test]
fn faults_say_where_and_what_would_be_right() {
    let schema = json!({
        "$schema": "http://json-schema.org/draft-07/schema#", "type": "object",
        "properties": {
            "owner": {"type": "string", "minLength": 1, "maxLength": 5}, "count": {"type": "integer", "minimum": 1, "exclusiveMaximum": 10},
            "state": {"enum": ["open", "closed"]}, "sha": {"type": "string", "pattern": "^[0-9a-f]{4}$"},
            "tags": {"type": "array", "items": {"type": "string"}, "uniqueItems": true, "maxItems": 3},
            "either": {"anyOf": [{"type": "null"}, {"type": "object", "required": ["a~/b"]}]}, "price": {"type": ["number", "null"], "multipleOf": 0.01},
        },
        "required": ["owner"], "additionalProperties": false,
    });
    let fits = json!({"owner": "acme", "count": 9, "state": "open", "sha": "00ff", "tags": ["a"], "either": null, "price": 19.99});
    check(&schema, fits, &[]);
    check(&schema, json!({}), &["`/owner` is required"]);
    check(&schema, json!({"owner": 5}), &["`/owner` must be a string"]);
    check(&schema, json!({"owner": ""}), &["`/owner` must have at least 1 character"]);
    check(&schema, json!({"owner": "secret value"}), &["`/owner` must have at most 5 characters"]);
    check(&schema, json!({"owner": "a", "count": 1.5}), &["`/count` must be a whole number"]);
    check(&schema, json!({"owner": "a", "count": 0}), &["`/count` must be at least 1"]);
    check(&schema, json!({"owner": "a", "count": 10}), &["`/count` must be less than 10"]);
    check(&schema, json!({"owner": "a", "state": "x"}), &["`/state` must be one of \"open\", \"closed\""]);
    check(&schema, json!({"owner": "a", "sha": "xyz"}), &["`/sha` must match the pattern `^[0-9a-f]{4}$`"]);
    check(&schema, json!({"owner": "a", "tags": ["a", 1]}), &["`/tags/1` must be a string"]);
    check(&schema, json!({"owner": "a", "tags": ["a", "a"]}), &["`/tags` must not hold anything twice"]);
    check(&schema, json!({"owner": "a", "either": {}}), &["`/either` fits none of the allowed forms"]);
    check(&schema, json!({"owner": "a", "price": "1"}), &["`/price` must be a number or null"]);
    check(
        &schema,
        json!({"owner": "a", "x/y": 1, "z": 2}),
        &["`/x~1y` is not an argument of this tool", "`/z` is not an argument of this tool"],
    );
}

#[test]
fn drafts_and_missing_schemas_are_read_as_they_say() {
    check(&json!({"prefixItems": [{"type": "string"}], "type": "object"}), json!({"a": 1}), &[]);
    check(
        &json!({"properties": {"a": {"prefixItems": [{"type": "string"}], "items": false}}}),
        json!({"a": ["x", 1]}),
        &["`/a/1` is not allowed"],
    );
    let draft7 = json!({"$schema": "http://json-schema.org/draft-07/schema#",
        "properties": {"a": {"items": [{"type": "string"}], "additionalItems": false}}});
    check(&draft7, json!({"a": ["x", 1]}), &["`/a` must have at most 1 item"]);
    let bare = Tool::read(UpstreamId::new("u"), json!({"name": "t"}).as_object().unwrap().clone()).unwrap();
    assert_eq!(Schemas::default().usable(&bare), Ok(()));
    assert_eq!(Schemas::default().check(&bare, json!({"any": 1}).as_object().unwrap()), []);
}

#[test]
fn look_around_works_and_references_inside_do() {
    let email =
        r"^(?!\.)(?!.*\.\.)([A-Za-z0-9_'+\-\.]*)[A-Za-z0-9_+-]@([A-Za-z0-9][A-Za-z0-9\-]*\.)+[A-Za-z]{2,}$";
    let schema = json!({"properties": {"to": {"type": "string", "pattern": email}}});
    check(&schema, json!({"to": "a.b@example.com"}), &[]);
    let broken =
        Schemas::default().check(&tool(schema), json!({"to": "a..b@example.com"}).as_object().unwrap());
    assert_eq!(broken.len(), 1);
    let node = json!({"$defs": {"n": {"type": "object", "properties": {"next": {"$ref": "#/$defs/n"}, "v": {"type": "string"}}}},
        "$ref": "#/$defs/n"});
    check(&node, json!({"next": {"next": {"v": "x"}}}), &[]);
    check(&node, json!({"next": {"next": {"v": 1}}}), &["`/next/next/v` must be a string"]);
    let by_id = json!({"type": "object", "properties": {"a": {"$ref": "T0"}}, "$defs": {"x": {"$id": "T0", "type": "string"}}});
    check(&by_id, json!({"a": 1}), &["`/a` must be a string"]);
    let by_anchor =
        json!({"properties": {"a": {"$ref": "#t"}}, "$defs": {"x": {"$anchor": "t", "type": "string"}}});
    check(&by_anchor, json!({"a": 1}), &["`/a` must be a string"]);
    let escaped =
        json!({"properties": {"a": {"$ref": "#/$defs/a%20b~1c"}}, "$defs": {"a b/c": {"type": "string"}}});
    check(&escaped, json!({"a": 1}), &["`/a` must be a string"]);
}

#[test]
fn schemas_that_cannot_be_used_say_why() {
    let unusable = |schema: Value| Schemas::default().usable(&tool(schema)).unwrap_err();
    let mut deep = json!({"type": "object"});
    for _ in 0..40 {
        deep = json!({"properties": {"a": deep}});
    }
    assert_eq!(unusable(deep), "its schema nests deeper than 64 levels");
    assert_eq!(
        unusable(json!({"description": "x".repeat(LONGEST)})),
        format!("its schema is longer than {LONGEST} bytes")
    );
    assert_eq!(unusable(json!(true)), "its schema is not an object");
    for (to, said) in [
        ("http://127.0.0.1:9/x.json", "http://127.0.0.1:9/x.json"),
        ("file:///etc/hostname", "file:///etc/hostname"),
        ("other.json", "other.json"),
        ("#/$defs/none", "#/$defs/none"),
        ("#none", "#none"),
    ] {
        assert_eq!(
            unusable(json!({"properties": {"a": {"$ref": to}}})),
            format!("its schema refers to `{said}`, outside itself")
        );
    }
    assert!(unusable(json!({"type": "objekt"})).starts_with("its schema is not valid: "));
    assert!(
        unusable(json!({"properties": {"a": {"pattern": "("}}})).starts_with("its schema is not valid: ")
    );
    assert!(
        unusable(json!({"properties": {"a": {"pattern": "^((a{1000}){1000}){1000}$"}}}))
            .starts_with("its schema is not valid: ")
    );
    let round = "its schema refers to itself without end";
    assert_eq!(unusable(json!({"$ref": "#"})), round);
    assert_eq!(
        unusable(
            json!({"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"})
        ),
        round
    );
    assert_eq!(
        unusable(json!({"$defs": {"a": {"allOf": [{"$ref": "#/$defs/a"}]}}, "$ref": "#/$defs/a"})),
        round
    );
    assert_eq!(unusable(fan("allOf", "here")), round);
    assert_eq!(unusable(fan("anyOf", "here")), round);
    let many: Map<String, Value> = (0..6_000).map(|n| (format!("p{n}"), json!({}))).collect();
    assert_eq!(unusable(json!({"properties": many})), "its schema has more than 5000 parts");
    // And what was refused at listing is refused when called, too.
    check(
        &json!({"$ref": "#"}),
        json!({}),
        &["the schema cannot be used: its schema refers to itself without end"],
    );
}

/// Definitions each of which applies the next one twice, to the same value or to a member.
fn fan(how: &str, place: &str) -> Value {
    let mut all: Map<String, Value> = (0..30)
        .map(|n| {
            let next = json!({"$ref": format!("#/$defs/d{}", n + 1)});
            let twice = json!({how: [next.clone(), next]});
            (format!("d{n}"), if place == "here" { twice } else { json!({"properties": {"c": twice}}) })
        })
        .collect();
    all.insert("d30".to_owned(), json!({"type": "string"}));
    json!({"$defs": all, "$ref": "#/$defs/d0"})
}

fn nested(levels: usize) -> Value {
    (0..levels).fold(json!(1), |inner, _| json!({"c": inner}))
}

#[test]
fn no_check_takes_for_ever() {
    let twice = |to: &str| json!([{"$ref": to}, {"$ref": to}]);
    let key_patterns: Map<String, Value> =
        (0..1_000).map(|n| (format!("^(?!x)k{n}.*$"), json!({"type": "string"}))).collect();
    let keys: Map<String, Value> = (0..9_000).map(|n| (format!("k{n}"), json!("v"))).collect();
    let constants: Vec<Value> = (0..900).map(|n| json!({"const": format!("x{n}")})).collect();
    let cases = [
        ("fan over members", fan("allOf", "members"), nested(40)),
        ("recursion, all", json!({"properties": {"c": {"allOf": twice("#")}}}), nested(60)),
        ("recursion, any", json!({"type": "object", "properties": {"c": {"anyOf": twice("#")}}}), nested(60)),
        ("recursion, one", json!({"type": "object", "properties": {"c": {"oneOf": twice("#")}}}), nested(60)),
        (
            "dynamic recursion",
            json!({"$dynamicAnchor": "n", "type": "object", "properties": {"c": {"anyOf":
            [{"$dynamicRef": "#n"}, {"$dynamicRef": "#n"}]}}}),
            nested(60),
        ),
        (
            "look-ahead over a long text",
            json!({"properties": {"a": {"pattern": "(?=.*x).*(?!y)z"}}}),
            json!({"a": "a".repeat(1 << 20)}),
        ),
        (
            "back-references",
            json!({"properties": {"a": {"pattern": "(?=(.*x))q|(.)\\2\\2\\2.*z"}}}),
            json!({"a": "ab".repeat(1 << 19)}),
        ),
        ("many patterns, many names", json!({"patternProperties": key_patterns}), Value::Object(keys)),
        (
            "many forms, many items",
            json!({"properties": {"a": {"items": {"anyOf": constants}}}}),
            json!({"a": vec![1; 200_000]}),
        ),
    ];
    for (what, schema, arguments) in cases {
        let (schemas, tool) = (Schemas::default(), tool(schema));
        let started = Instant::now();
        let faults = schemas.check(&tool, arguments.as_object().unwrap());
        let taken = started.elapsed();
        assert!(!faults.is_empty(), "{what} passed");
        assert!(taken < Duration::from_secs(5), "{what} took {taken:?}");
    }
}

#[test]
fn bombs_that_are_harmless_here_are_just_checked() {
    let linear = json!({"properties": {"a": {"pattern": "^(a+)+$"}}});
    check(
        &linear,
        json!({"a": format!("{}!", "a".repeat(4_000))}),
        &["`/a` must match the pattern `^(a+)+$`"],
    );
    let turning = json!({"properties": {"a": {"pattern": "^(a*)*\\1$"}}});
    check(
        &turning,
        json!({"a": format!("{}!", "a".repeat(1_000))}),
        &["`/a` cannot be checked: its pattern takes too long"],
    );
    let unique: Vec<Value> = (0..20_000).map(|n| json!({"a": [n]})).collect();
    check(&json!({"properties": {"a": {"uniqueItems": true}}}), json!({"a": unique}), &[]);
    // As deep as arguments may be, on the stack of an ordinary worker.
    let worker = std::thread::Builder::new().stack_size(2 << 20).spawn(|| {
        let tree = json!({"$defs": {"n": {"anyOf": [{"type": "null"}, {"allOf": [{"type": "object", "properties":
            {"c": {"$ref": "#/$defs/n"}}}]}]}}, "$ref": "#/$defs/n"});
        let deep = (0..62).fold(json!(null), |inner, _| json!({"c": inner}));
        check(&tree, deep, &[]);
    });
    worker.unwrap().join().unwrap();
}

#[test]
fn the_bound_is_generous_for_honest_arguments() {
    let forms: Vec<Value> = (0..50).map(|n| json!({"const": n})).collect();
    let schema = json!({"properties": {"a": {"items": {"anyOf": forms}}}});
    check(&schema, json!({"a": vec![7; 1_000]}), &[]);
    let row = json!({"type": "object", "properties": {"id": {"type": "integer"}, "name": {"type": "string", "pattern": "^[a-z ]*$"}}});
    let rows: Vec<Value> = (0..5_000).map(|n| json!({"id": n, "name": "some name or other"})).collect();
    check(&json!({"properties": {"rows": {"type": "array", "items": row}}}), json!({"rows": rows}), &[]);
    check(
        &json!({"properties": {"text": {"type": "string", "pattern": "^[^x]*$"}}}),
        json!({"text": "y".repeat(4 << 20)}),
        &[],
    );
}

#[test]
fn compiled_schemas_are_kept_within_bounds() {
    let schemas = Schemas::default();
    for number in 0..KEPT + 20 {
        let tool = tool(json!({"properties": {"a": {"maximum": number}}}));
        assert_eq!(schemas.check(&tool, json!({"a": 0}).as_object().unwrap()), []);
    }
    assert_eq!(schemas.compiled.read().unwrap().len(), KEPT);
}
