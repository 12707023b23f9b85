//! One row of the ledger for REST: the row's JSON as it is hashed, and what the seed calls `metadata`. Which columns there are is
//! the ledger's table of columns.

use std::borrow::Cow;
use std::collections::BTreeMap;

use countersign_policy::intent::DeclaredIntent;
use countersign_store::LedgerRow;
use countersign_store::ledger::{COLUMNS, LedgerColumn};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value, json};

/// What the seed's clients look for.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ActivityMetadata {
    /// The declared intent: `{operation_type, data_sensitivity?, reason?}`.
    #[schemars(with = "Option<Value>")]
    pub intent: Option<DeclaredIntent>,
    /// The call tool it came through: read, write, destructive.
    pub tool_variant: Option<String>,
}

/// A row of the ledger. Empty columns are left out.
#[derive(Clone, Debug, Serialize)]
#[serde(transparent)]
pub struct Activity(BTreeMap<String, Box<RawValue>>);

/// A row for programs.
pub fn activity(row: &LedgerRow) -> Activity {
    // The JSON of a row is an object, and stays as it is: numbers of the arguments must not change on the way.
    let mut members: BTreeMap<String, Box<RawValue>> = serde_json::from_str(&row.json()).unwrap_or_default();
    let metadata = ActivityMetadata {
        intent: row.intent.clone(),
        tool_variant: row.variant.map(|variant| variant.call_tool().to_owned()),
    };
    // Rows written before the column have the id in their detail.
    let request = row.request_id().map(|id| to_raw_value(&id));
    let added = [("metadata", Some(to_raw_value(&metadata))), ("request_id", request)];
    members.extend(added.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?.ok()?))));
    Activity(members)
}

impl JsonSchema for Activity {
    fn schema_name() -> Cow<'static, str> {
        "Activity".into()
    }

    fn json_schema(schemas: &mut SchemaGenerator) -> Schema {
        let mut properties = Map::new();
        for column in COLUMNS {
            let Some(path) = column.json else { continue };
            match path.split_once('.') {
                Some((object, _)) => drop(properties.insert(
                    object.to_owned(),
                    json!({"type": "object", "description": "What the caller declared."}),
                )),
                None => drop(properties.insert(path.to_owned(), property(column))),
            }
        }
        properties.insert("metadata".to_owned(), schemas.subschema_for::<ActivityMetadata>().to_value());
        let required =
            ["id", "time", "kind", "status", "writer", "sequence", "v", "prev_hash", "hash", "metadata"];
        let mut schema = Schema::default();
        schema.insert("description".to_owned(), "A row of the ledger. Empty columns are left out.".into());
        schema.insert("type".to_owned(), "object".into());
        schema.insert("properties".to_owned(), properties.into());
        schema.insert("required".to_owned(), json!(required));
        schema
    }
}

/// Columns that hold JSON, not text.
const JSON_COLUMNS: [&str; 4] = ["approval", "arguments", "detail", "host"];

fn property(column: &LedgerColumn) -> Value {
    match column.name {
        name if JSON_COLUMNS.contains(&name) => json!({"description": column.about}),
        "time" => json!({"type": "string", "description": column.about}),
        _ if column.sql_type == "BIGINT" => json!({"type": "integer", "description": column.about}),
        _ => json!({"type": "string", "description": column.about}),
    }
}
