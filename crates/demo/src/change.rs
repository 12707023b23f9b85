//! What a write would do: actions in order, each with its changes field by field and the statements that make them so.
//! A statement names the values it was planned on, and fails where they have changed since.

use rusqlite::types::Value as Cell;
use serde_json::{Value, json};

/// One field, before and after.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct FieldChange {
    pub(crate) field: String,
    pub(crate) old: Value,
    pub(crate) new: Value,
}

impl FieldChange {
    pub(crate) fn new(field: impl Into<String>, old: impl Into<Value>, new: impl Into<Value>) -> Self {
        Self { field: field.into(), old: old.into(), new: new.into() }
    }

    fn shown(&self) -> Value {
        let mut shown = json!({"field": self.field, "old": self.old, "new": self.new});
        if let Some(members) = shown.as_object_mut() {
            if self.old.is_null() {
                members.insert("is_added".to_owned(), true.into());
            } else if self.old == self.new {
                members.insert("is_unchanged".to_owned(), true.into());
            }
        }
        shown
    }
}

/// A statement and how many rows it must touch; another number means that the world moved.
#[derive(Clone, Debug)]
pub(crate) struct CheckedStatement {
    pub(crate) sql: &'static str,
    pub(crate) values: Vec<Cell>,
    pub(crate) touches: Option<usize>,
}

impl CheckedStatement {
    pub(crate) fn one(sql: &'static str, values: Vec<Cell>) -> Self {
        Self { sql, values, touches: Some(1) }
    }

    pub(crate) fn any(sql: &'static str, values: Vec<Cell>) -> Self {
        Self { sql, values, touches: None }
    }
}

/// One action: applied as a whole or not at all.
#[derive(Clone, Debug)]
pub(crate) struct PlannedAction {
    pub(crate) operation: &'static str,
    pub(crate) target: String,
    pub(crate) changes: Vec<FieldChange>,
    pub(crate) deeds: Vec<CheckedStatement>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ActionStatus {
    Planned,
    Applied,
    Failed(String),
    NotRun,
}

#[derive(Clone, Debug)]
pub(crate) struct WritePlan {
    pub(crate) entity_type: &'static str,
    pub(crate) entity_id: Option<String>,
    pub(crate) message: String,
    pub(crate) actions: Vec<PlannedAction>,
    pub(crate) warnings: Vec<String>,
    pub(crate) prior: Option<Value>,
}

impl WritePlan {
    pub(crate) fn shown(&self) -> Value {
        let actions = self.actions.iter().enumerate();
        let actions: Vec<Value> =
            actions.map(|(index, action)| action.shown(index, &ActionStatus::Planned)).collect();
        json!({
            "entity_type": self.entity_type,
            "entity_id": self.entity_id,
            "is_preview": true,
            "message": format!("{}. Nothing has changed.", self.message),
            "actions": actions,
            "warnings": self.warnings,
            "next_actions": ["review the changes", "call again with preview=false to apply them"],
        })
    }

    pub(crate) fn blocks(&self) -> impl Iterator<Item = &str> {
        self.warnings.iter().filter_map(|warning| warning.strip_prefix("BLOCK:")).map(str::trim)
    }
}

impl PlannedAction {
    pub(crate) fn shown(&self, index: usize, fate: &ActionStatus) -> Value {
        let (succeeded, error, label) = match fate {
            ActionStatus::Planned => (Value::Null, Value::Null, "PLANNED"),
            ActionStatus::Applied => (true.into(), Value::Null, "APPLIED"),
            ActionStatus::Failed(why) => (false.into(), why.as_str().into(), "FAILED"),
            ActionStatus::NotRun => (Value::Null, Value::Null, "NOT RUN"),
        };
        json!({
            "index": index,
            "operation": self.operation,
            "target_label": self.target,
            "changes": self.changes.iter().map(FieldChange::shown).collect::<Vec<_>>(),
            "succeeded": succeeded,
            "error": error,
            "status_label": label,
        })
    }
}

/// An amount as people read it, with its cents.
pub(crate) fn money(cents: i64) -> String {
    format!("{}.{:02}", cents / 100, cents % 100)
}

/// An amount as programs read it.
pub(crate) fn amount(cents: i64) -> Value {
    #[allow(clippy::cast_precision_loss, reason = "amounts of a demonstration stay far below 2^53")]
    let units = cents as f64 / 100.0;
    json!(units)
}

pub(crate) fn cell(value: impl Into<Cell>) -> Cell {
    value.into()
}
