//! The description is the routes': every route is in it, every reference resolves, every answer of a route has its shape.

use std::collections::BTreeSet;

use axum::body::Body;
use axum::http::Request;
use countersign_web::route_list;
use serde_json::Value;

use crate::kit::{HOST, Scene};

#[tokio::test]
async fn every_route_is_described_and_every_reference_resolves() {
    let scene = Scene::open().await;
    let request = Request::builder().uri("/openapi.json").header("host", HOST).body(Body::empty()).unwrap();
    let document = scene.send(request).await.json();
    assert_eq!(document["openapi"], "3.1.0");
    let mut described = BTreeSet::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            described.insert((method.clone(), path.clone()));
            let responses = operation["responses"].as_object().unwrap();
            assert!(responses.contains_key("200") && responses.contains_key("403"), "{method} {path}");
        }
    }
    let routes: BTreeSet<(String, String)> =
        route_list().into_iter().map(|(method, path)| (method.to_owned(), path)).collect();
    assert_eq!(described, routes);
    check_references(&document, &document);
    let names: BTreeSet<&str> = document["paths"]
        .as_object()
        .unwrap()
        .values()
        .flat_map(|methods| methods.as_object().unwrap().values())
        .map(|operation| operation["operationId"].as_str().unwrap())
        .collect();
    assert_eq!(names.len(), routes.len(), "no name twice");
}

fn check_references(value: &Value, document: &Value) {
    match value {
        Value::Object(members) => {
            if let Some(path) = members.get("$ref").and_then(Value::as_str) {
                let at = path.strip_prefix('#').unwrap();
                assert!(document.pointer(at).is_some(), "{path}");
            }
            members.values().for_each(|member| check_references(member, document));
        }
        Value::Array(items) => items.iter().for_each(|item| check_references(item, document)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
