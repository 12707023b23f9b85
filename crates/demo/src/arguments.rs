//! Reads arguments by name and type; an error names the field.

use serde_json::{Map, Value};

use crate::OrderDeskError;

fn wrong(field: &str, why: &str) -> OrderDeskError {
    OrderDeskError::Asked(format!("`{field}` {why}"))
}

/// A text that must be there.
pub(crate) fn text<'a>(from: &'a Map<String, Value>, field: &str) -> Result<&'a str, OrderDeskError> {
    maybe_text(from, field)?.ok_or_else(|| wrong(field, "is required"))
}

pub(crate) fn maybe_text<'a>(
    from: &'a Map<String, Value>,
    field: &str,
) -> Result<Option<&'a str>, OrderDeskError> {
    match from.get(field) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) if !text.trim().is_empty() => Ok(Some(text)),
        Some(_) => Err(wrong(field, "must be a text that says something")),
    }
}

/// A whole number that must be there.
pub(crate) fn number(from: &Map<String, Value>, field: &str) -> Result<i64, OrderDeskError> {
    maybe_number(from, field)?.ok_or_else(|| wrong(field, "is required"))
}

/// A whole number that may be there.
pub(crate) fn maybe_number(from: &Map<String, Value>, field: &str) -> Result<Option<i64>, OrderDeskError> {
    match from.get(field) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => match value.as_i64().filter(|number| number.abs() <= 1_000_000) {
            Some(number) => Ok(Some(number)),
            None => Err(wrong(field, "must be a whole number of at most a million")),
        },
    }
}

/// A number of pieces, at least one.
pub(crate) fn pieces(from: &Map<String, Value>, field: &str) -> Result<i64, OrderDeskError> {
    match number(from, field)? {
        count if count > 0 => Ok(count),
        _ => Err(wrong(field, "must be at least 1")),
    }
}

/// An amount of money that may be there, in cents.
pub(crate) fn maybe_amount(from: &Map<String, Value>, field: &str) -> Result<Option<i64>, OrderDeskError> {
    match from.get(field) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => {
            let units = value.as_f64().filter(|units| (0.0..=1_000_000.0).contains(units));
            let units = units.ok_or_else(|| wrong(field, "must be an amount from 0 to 1000000"))?;
            #[allow(clippy::cast_possible_truncation, reason = "at most a hundred million, checked above")]
            Ok(Some((units * 100.0).round() as i64))
        }
    }
}

/// A list of objects that may be there.
pub(crate) fn rows<'a>(
    from: &'a Map<String, Value>,
    field: &str,
) -> Result<Vec<&'a Map<String, Value>>, OrderDeskError> {
    match from.get(field) {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::Array(items)) => items
            .iter()
            .map(|item| item.as_object().ok_or_else(|| wrong(field, "must be a list of objects")))
            .collect(),
        Some(_) => Err(wrong(field, "must be a list of objects")),
    }
}

/// The number inside `PO-1041`, where the prefix fits.
pub(crate) fn id(from: &Map<String, Value>, field: &str, prefix: &str) -> Result<i64, OrderDeskError> {
    let given = text(from, field)?;
    given
        .strip_prefix(prefix)
        .and_then(|digits| digits.parse().ok())
        .ok_or_else(|| wrong(field, &format!("must be a number such as {prefix}1041")))
}
