//! The OpenAPI 3.1 document, generated from the table of routes and their request and response types.

use std::sync::LazyLock;

use schemars::generate::SchemaSettings;
use schemars::{Schema, SchemaGenerator};
use serde_json::{Map, Value, json};

use crate::response::RefusedShape;
use crate::routes::{self, ROOT, Route, RouteResponse};

/// The error statuses of every route.
const COMMON_STATUSES: [u16; 4] = [400, 401, 403, 503];

pub(crate) fn document() -> &'static Value {
    static DOCUMENT: LazyLock<Value> = LazyLock::new(make);
    &DOCUMENT
}

struct SchemaGenerators {
    /// For request types.
    request: SchemaGenerator,
    /// For response types.
    response: SchemaGenerator,
}

impl SchemaGenerators {
    fn new() -> Self {
        let settings = || {
            let mut settings = SchemaSettings::draft2020_12();
            settings.definitions_path = "/components/schemas".into();
            settings.meta_schema = None;
            settings
        };
        Self {
            request: settings().for_deserialize().into_generator(),
            response: settings().for_serialize().into_generator(),
        }
    }

    fn definitions(mut self) -> Map<String, Value> {
        let mut all = self.request.take_definitions(true);
        all.extend(self.response.take_definitions(true));
        all
    }
}

fn make() -> Value {
    let mut shapes = SchemaGenerators::new();
    let refused: Schema = shapes.response.subschema_for::<RefusedShape>();
    let refused = refused.to_value();
    let mut paths: Map<String, Value> = Map::new();
    for route in routes::all() {
        let operation = operation(&route, &mut shapes, &refused);
        let path = paths.entry(format!("{ROOT}{}", route.path)).or_insert_with(|| json!({}));
        if let Some(members) = path.as_object_mut() {
            members.insert(route.method.to_owned(), operation);
        }
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Countersign",
            "version": env!("CARGO_PKG_VERSION"),
            "summary": "Human approval and audit log for MCP agents",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "security": [{"credential": []}, {"page": []}],
        "paths": paths,
        "components": {
            "schemas": shapes.definitions(),
            "securitySchemes": {
                "credential": {"type": "http", "scheme": "bearer",
                    "description": "a human credential, created with: countersign token create --role human"},
                "page": {"type": "apiKey", "in": "cookie", "name": crate::auth::COOKIE,
                    "description": "the session of the page; its name continues with `_` and eight digits of the store; changes also need X-CSRF-Token"},
            },
        },
    })
}

fn operation(route: &Route, shapes: &mut SchemaGenerators, refused: &Value) -> Value {
    let mut operation = json!({
        "operationId": route.id,
        "summary": route.summary,
        "parameters": parameters(route, shapes),
        "responses": responses(route, shapes, refused),
    });
    let Some(members) = operation.as_object_mut() else { return operation };
    if let Some(body) = route.body {
        let schema = body(&mut shapes.request).to_value();
        let body = json!({"required": false, "content": {"application/json": {"schema": schema}}});
        members.insert("requestBody".into(), body);
    }
    if route.id == "sign_in" {
        members.insert("security".into(), json!([]));
    }
    operation
}

fn parameters(route: &Route, shapes: &mut SchemaGenerators) -> Vec<Value> {
    let in_path = route.path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    let mut all: Vec<Value> = in_path
        .map(|name| json!({"name": name, "in": "path", "required": true, "schema": {"type": "string"}}))
        .collect();
    let Some(query) = route.query else { return all };
    // Each member of the query type is one parameter.
    let schema = query(&mut shapes.request).to_value();
    let name = schema.get("$ref").and_then(Value::as_str).and_then(|path| path.rsplit('/').next());
    let definition = name.and_then(|name| shapes.request.definitions().get(name).cloned()).unwrap_or(schema);
    let members = definition.get("properties").and_then(Value::as_object).cloned().unwrap_or_default();
    for (name, mut schema) in members {
        let description = schema.as_object_mut().and_then(|schema| schema.remove("description"));
        all.push(json!({"name": name, "in": "query", "required": false, "description": description,
            "schema": not_null(schema)}));
    }
    all
}

/// Removes `null` from a type: a query has no null.
fn not_null(mut schema: Value) -> Value {
    if let Some(members) = schema.as_object_mut()
        && let Some(Value::Array(kinds)) = members.get("type")
        && let Some(kind) = kinds.iter().find(|kind| **kind != "null").cloned()
    {
        members.insert("type".into(), kind);
    }
    schema
}

fn responses(route: &Route, shapes: &mut SchemaGenerators, refused: &Value) -> Value {
    let content = match &route.response {
        RouteResponse::Json(schema) => {
            json!({"application/json": {"schema": schema(&mut shapes.response).to_value()}})
        }
        RouteResponse::Other(kinds) => {
            let kinds = kinds.iter().map(|kind| ((*kind).to_owned(), json!({"schema": {"type": "string"}})));
            Value::Object(kinds.collect())
        }
    };
    let mut all = Map::from_iter([("200".to_owned(), json!({"description": "success", "content": content}))]);
    let mut statuses: Vec<u16> = COMMON_STATUSES.iter().chain(route.statuses).copied().collect();
    if route.path.contains('{') {
        statuses.push(404);
    }
    if route.body.is_some() {
        statuses.extend([413, 415]);
    }
    statuses.sort_unstable();
    statuses.dedup();
    for status in statuses {
        let error =
            json!({"description": status_text(status), "content": {"application/json": {"schema": refused}}});
        all.insert(status.to_string(), error);
    }
    Value::Object(all)
}

fn status_text(status: u16) -> &'static str {
    match status {
        400 => "the request is malformed",
        401 => "not authenticated",
        403 => "the credential of an agent, or a request of another page",
        404 => "not found",
        409 => "conflicts with the present state: decided, over, or changed",
        413 => "the body is too long",
        415 => "the body is not JSON",
        422 => "well-formed but refused: a mistyped name, a grant that is not allowed",
        429 => "too many attempts",
        _ => "the store is not available",
    }
}
