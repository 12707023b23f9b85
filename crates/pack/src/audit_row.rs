//! Writes a ledger row of the kind `pack` for each change: which snapshot or branch holds it and how much it was. A call that changed
//! nothing gets none.

use countersign_policy::record::{CallRecord, RowKind, RowStatus};
use countersign_store::{Entry, Store};
use jiff::Timestamp;
use serde_json::{Map, Value};

use crate::reply::PackCommandReply;

/// What a row takes over from an answer.
const FACTS: [&str; 10] = [
    "snapshot_id",
    "event_snapshot_id",
    "rolled_back_to",
    "branch",
    "scope",
    "profile",
    "targets",
    "summary",
    "module_id",
    "remote",
];

/// Writes the row of a change; the answer says so where it could not be written.
pub(crate) async fn note(store: &Store, record: &CallRecord, reply: PackCommandReply) -> PackCommandReply {
    let Some(entry) = row(record, &reply.data) else { return reply };
    match store.append(entry, Timestamp::now()).await {
        Ok(_) => reply,
        Err(fault) => reply.warn(vec![format!("it is done, and its row is not written yet: {fault}")]),
    }
}

fn row(record: &CallRecord, data: &Map<String, Value>) -> Option<Entry> {
    let is = |name: &str| data.get(name).and_then(Value::as_bool);
    let nothing_restored = data.get("restored").and_then(Value::as_array).is_some_and(Vec::is_empty);
    let made = [is("applied"), is("created")].contains(&Some(false)) && record.tool.tool.as_str() != "init";
    if made || nothing_restored || is("dry_run") == Some(true) || is_named(data, "reason", "dry_run") {
        return None;
    }
    let mut detail = Map::new();
    detail.insert("action".into(), record.tool.tool.as_str().into());
    for name in FACTS {
        if let Some(value) = data.get(name) {
            detail.insert(name.into(), value.clone());
        }
    }
    let row = Entry { kind: RowKind::Pack, ..Entry::of_call(record, RowStatus::Success) };
    Some(row.with_detail(&Value::Object(detail)))
}

fn is_named(data: &Map<String, Value>, name: &str, word: &str) -> bool {
    data.get(name).and_then(Value::as_str) == Some(word)
}
