//! The OpenAPI 3.1 description, made from the list of routes and the types they take and tell. Nothing in it is written by hand
//! that the code knows.

use std::sync::LazyLock;

use schemars::generate::SchemaSettings;
use schemars::{Schema, SchemaGenerator};
use serde_json::{Map, Value, json};

use crate::routes::{self, Answers, ROOT, Route, Shape};
use crate::told::RefusedShape;

/// Every refusal a route may answer with, whatever it is about.
const ALWAYS: [u16; 4] = [400, 401, 403, 503];

/// The description.
pub(crate) fn document() -> &'static Value {
    static DOCUMENT: LazyLock<Value> = LazyLock::new(make);
    &DOCUMENT
}

struct Shapes {
    /// What is read.
    taken: SchemaGenerator,
    /// What is told.
    given: SchemaGenerator,
}

impl Shapes {
    fn new() -> Self {
        let settings = || {
            let mut settings = SchemaSettings::draft2020_12();
            settings.definitions_path = "/components/schemas".into();
            settings.meta_schema = None;
            settings
        };
        Self {
            taken: settings().for_deserialize().into_generator(),
            given: settings().for_serialize().into_generator(),
        }
    }

    fn taken(&mut self, shape: Shape) -> Value {
        shape(&mut self.taken).to_value()
    }

    fn given(&mut self, shape: Shape) -> Value {
        shape(&mut self.given).to_value()
    }

    fn all(mut self) -> Map<String, Value> {
        let mut all = self.taken.take_definitions(true);
        all.extend(self.given.take_definitions(true));
        all
    }
}

fn make() -> Value {
    let mut shapes = Shapes::new();
    let refused: Schema = shapes.given.subschema_for::<RefusedShape>();
    let refused = refused.to_value();
    let mut paths: Map<String, Value> = Map::new();
    for route in routes::all() {
        let operation = operation(&route, &mut shapes, &refused);
        let path = paths.entry(format!("{ROOT}{}", route.path)).or_insert_with(|| json!({}));
        if let Some(members) = path.as_object_mut() {
            members.insert(route.verb.as_str().to_owned(), operation);
        }
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Countersign",
            "version": env!("CARGO_PKG_VERSION"),
            "summary": "Where people decide what agents may do",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "security": [{"credential": []}, {"page": []}],
        "paths": paths,
        "components": {
            "schemas": shapes.all(),
            "securitySchemes": {
                "credential": {"type": "http", "scheme": "bearer",
                    "description": "a human credential: countersign token create --role human"},
                "page": {"type": "apiKey", "in": "cookie", "name": crate::access::COOKIE,
                    "description": "the page's session; changes need X-CSRF-Token as well"},
            },
        },
    })
}

fn operation(route: &Route, shapes: &mut Shapes, refused: &Value) -> Value {
    let mut operation = json!({
        "operationId": route.id,
        "summary": route.summary,
        "parameters": parameters(route, shapes),
        "responses": responses(route, shapes, refused),
    });
    let Some(members) = operation.as_object_mut() else { return operation };
    if let Some(body) = route.body {
        let schema = shapes.taken(body);
        let body = json!({"required": false, "content": {"application/json": {"schema": schema}}});
        members.insert("requestBody".into(), body);
    }
    if route.id == "sign_in" {
        members.insert("security".into(), json!([]));
    }
    operation
}

fn parameters(route: &Route, shapes: &mut Shapes) -> Vec<Value> {
    let in_path = route.path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    let mut all: Vec<Value> = in_path
        .map(|name| json!({"name": name, "in": "path", "required": true, "schema": {"type": "string"}}))
        .collect();
    let Some(query) = route.query else { return all };
    // Each member of the type is a parameter of its own.
    let schema = shapes.taken(query);
    let name = schema.get("$ref").and_then(Value::as_str).and_then(|path| path.rsplit('/').next());
    let definition = name.and_then(|name| shapes.taken.definitions().get(name).cloned()).unwrap_or(schema);
    let members = definition.get("properties").and_then(Value::as_object).cloned().unwrap_or_default();
    for (name, mut schema) in members {
        let description = schema.as_object_mut().and_then(|schema| schema.remove("description"));
        all.push(json!({"name": name, "in": "query", "required": false, "description": description,
            "schema": not_null(schema)}));
    }
    all
}

/// A query has no null: what is left out is left out.
fn not_null(mut schema: Value) -> Value {
    if let Some(members) = schema.as_object_mut()
        && let Some(Value::Array(kinds)) = members.get("type")
        && let Some(kind) = kinds.iter().find(|kind| **kind != "null").cloned()
    {
        members.insert("type".into(), kind);
    }
    schema
}

fn responses(route: &Route, shapes: &mut Shapes, refused: &Value) -> Value {
    let content = match &route.answers {
        Answers::Json(shape) => json!({"application/json": {"schema": shapes.given(*shape)}}),
        Answers::Other(kinds) => {
            let kinds = kinds.iter().map(|kind| ((*kind).to_owned(), json!({"schema": {"type": "string"}})));
            Value::Object(kinds.collect())
        }
    };
    let mut all = Map::from_iter([("200".to_owned(), json!({"description": "done", "content": content}))]);
    let mut statuses: Vec<u16> = ALWAYS.iter().chain(route.statuses).copied().collect();
    if route.path.contains('{') {
        statuses.push(404);
    }
    if route.body.is_some() {
        statuses.extend([413, 415]);
    }
    statuses.sort_unstable();
    statuses.dedup();
    for status in statuses {
        let said = json!({"description": said(status), "content": {"application/json": {"schema": refused}}});
        all.insert(status.to_string(), said);
    }
    Value::Object(all)
}

fn said(status: u16) -> &'static str {
    match status {
        400 => "what was asked can't be read",
        401 => "nobody is known to ask",
        403 => "an agent's credential, or a foreign page",
        404 => "there is no such thing",
        409 => "not as things stand: decided, over, or changed",
        413 => "the body is too long",
        415 => "the body is not JSON",
        422 => "read, and not to be done: a name typed wrong, a grant that can't be given",
        429 => "too many tries",
        _ => "the records can't be used at the moment",
    }
}
