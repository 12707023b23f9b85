//! Applying what was planned: one transaction per action, in order, stopping at the first that fails.
//! What was applied before stays, and the answer says so: nothing is rolled back behind anybody's back.

use rusqlite::{Connection, ErrorCode, params_from_iter};
use serde_json::{Value, json};

use crate::OrderDeskError;
use crate::change::{ActionStatus, PlannedAction, WritePlan};
use crate::orders::counted;

pub(crate) fn apply(connection: &mut Connection, planned: &WritePlan) -> Result<Value, OrderDeskError> {
    if let Some(block) = planned.blocks().next() {
        return Err(OrderDeskError::Asked(format!("not applied: {block}")));
    }
    let mut fates: Vec<ActionStatus> = Vec::with_capacity(planned.actions.len());
    for action in &planned.actions {
        let fate = if fates.iter().any(|fate| *fate != ActionStatus::Applied) {
            ActionStatus::NotRun
        } else {
            match perform(connection, action) {
                Ok(()) => ActionStatus::Applied,
                Err(why) => ActionStatus::Failed(why),
            }
        };
        fates.push(fate);
    }
    let applied = fates.iter().filter(|fate| **fate == ActionStatus::Applied).count();
    let failed = fates.iter().any(|fate| matches!(fate, ActionStatus::Failed(_)));
    let actions: Vec<Value> = planned
        .actions
        .iter()
        .zip(&fates)
        .enumerate()
        .map(|(index, (action, fate))| action.shown(index, fate))
        .collect();
    let why = fates.iter().find_map(|fate| match fate {
        ActionStatus::Failed(why) => Some(why.as_str()),
        ActionStatus::Planned | ActionStatus::Applied | ActionStatus::NotRun => None,
    });
    let message = match why {
        None => format!("{}: applied", planned.message),
        Some(why) => {
            format!(
                "{}: {applied} of {} applied, then: {why}",
                planned.message,
                counted(fates.len(), "action")
            )
        }
    };
    let mut body = json!({
        "entity_type": planned.entity_type,
        "entity_id": planned.entity_id.clone().or_else(|| newest(connection, planned.entity_type)),
        "is_preview": false,
        "message": message,
        "actions": actions,
        "prior_state": planned.prior,
        "warnings": planned.warnings,
    });
    if failed && let Some(members) = body.as_object_mut() {
        members.insert("failed".to_owned(), true.into());
        members.insert("error".to_owned(), why.unwrap_or_default().into());
        members.insert(
            "next_actions".to_owned(),
            json!([
                "what was applied stays applied: read the entity again",
                "correct the cause, then plan the rest anew"
            ]),
        );
    }
    Ok(body)
}

fn perform(connection: &mut Connection, action: &PlannedAction) -> Result<(), String> {
    let told = |error: &rusqlite::Error| in_words(error, &action.target);
    let transaction = connection.transaction().map_err(|error| told(&error))?;
    for deed in &action.deeds {
        let touched = transaction
            .execute(deed.sql, params_from_iter(deed.values.iter()))
            .map_err(|error| told(&error))?;
        if deed.touches.is_some_and(|expected| expected != touched) {
            return Err(format!("{} has changed since this was planned", action.target));
        }
    }
    transaction.commit().map_err(|error| told(&error))
}

/// A violated constraint of the tables, in the words of a warehouse.
fn in_words(error: &rusqlite::Error, target: &str) -> String {
    let text = error.to_string();
    match error.sqlite_error_code() {
        Some(ErrorCode::ConstraintViolation) if text.contains("bin_is_large_enough") => {
            format!("the bin of {target} is full")
        }
        Some(ErrorCode::ConstraintViolation) if text.contains("stock_is_there") => {
            format!("there is not enough of {target} in stock")
        }
        _ => format!("{target}: {text}"),
    }
}

/// The number of what was just created.
fn newest(connection: &Connection, entity_type: &str) -> Option<String> {
    let (sql, prefix) = match entity_type {
        "purchase_order" => ("SELECT max(id) FROM orders WHERE kind = 'purchase'", "PO-"),
        "sales_order" => ("SELECT max(id) FROM orders WHERE kind = 'sales'", "SO-"),
        "stock_adjustment" => ("SELECT max(id) FROM adjustments", "SA-"),
        _ => return None,
    };
    let id: i64 = connection.query_row(sql, [], |row| row.get(0)).ok()?;
    Some(format!("{prefix}{id}"))
}
