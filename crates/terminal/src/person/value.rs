//! JSON of others as a person reads it: whole, one thing a line, long texts line by line behind a bar, so that no text
//! can pass for anything but itself. Nothing is cut, nothing stays invisible.

use serde_json::Value;

use crate::output::visible;

/// What fits into one line goes there.
const SHORT: usize = 72;
/// The prefix of each line of a text.
const BAR: &str = "│ ";

/// The lines of a value; what is short stays together.
pub fn lines(value: &Value) -> Vec<String> {
    let mut lines = vec![String::new()];
    write(value, 0, SHORT, &mut lines);
    lines
}

/// The lines of a value, each thing on a line of its own, for comparing.
pub fn spread(value: &Value) -> Vec<String> {
    let mut lines = vec![String::new()];
    write(value, 0, 2, &mut lines);
    lines
}

/// The lines of a text, each behind a bar.
pub fn barred(text: &str) -> Vec<String> {
    text.split('\n').map(|line| format!("{BAR}{}", visible(line))).collect()
}

fn write(value: &Value, depth: usize, short: usize, lines: &mut Vec<String>) {
    if let Value::String(text) = value
        && text.contains('\n')
    {
        let pad = "  ".repeat(depth + 1);
        lines.extend(barred(text).into_iter().map(|line| format!("{pad}{line}")));
        return;
    }
    if !holds_lines(value) {
        let line = compact(value);
        let is_leaf = !matches!(value, Value::Array(_) | Value::Object(_));
        if is_leaf || line.chars().count() <= short {
            append(lines, &line);
            return;
        }
    }
    let (open, close, items): (&str, &str, Vec<(Option<&String>, &Value)>) = match value {
        Value::Array(items) => ("[", "]", items.iter().map(|item| (None, item)).collect()),
        Value::Object(members) => {
            ("{", "}", members.iter().map(|(name, member)| (Some(name), member)).collect())
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => return,
    };
    append(lines, open);
    let pad = "  ".repeat(depth + 1);
    let last = items.len().saturating_sub(1);
    for (at, (name, item)) in items.into_iter().enumerate() {
        let name = name.map(|name| format!("{}:", quoted(name))).unwrap_or_default();
        // A text begins on the next line.
        let gap =
            if name.is_empty() || item.as_str().is_some_and(|text| text.contains('\n')) { "" } else { " " };
        lines.push(format!("{pad}{name}{gap}"));
        write(item, depth + 1, short, lines);
        if at < last {
            append(lines, ",");
        }
    }
    lines.push(format!("{}{close}", "  ".repeat(depth)));
}

fn append(lines: &mut [String], text: &str) {
    // A comma after a barred text would look like a part of it.
    if let Some(last) =
        lines.last_mut().filter(|last| text != "," || !last.trim_start().starts_with(BAR.trim_end()))
    {
        last.push_str(text);
    }
}

fn holds_lines(value: &Value) -> bool {
    match value {
        Value::String(text) => text.contains('\n'),
        Value::Array(items) => items.iter().any(holds_lines),
        Value::Object(members) => members.values().any(holds_lines),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

fn compact(value: &Value) -> String {
    match value {
        Value::String(text) => quoted(text),
        Value::Array(items) => {
            format!("[{}]", items.iter().map(compact).collect::<Vec<_>>().join(", "))
        }
        Value::Object(members) => {
            let all: Vec<String> = members
                .iter()
                .map(|(name, member)| format!("{}: {}", quoted(name), compact(member)))
                .collect();
            format!("{{{}}}", all.join(", "))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => value.to_string(),
    }
}

fn quoted(text: &str) -> String {
    visible(&Value::String(text.to_owned()).to_string()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(value: Value, expect: &[&str]) {
        assert_eq!(lines(&value), expect);
    }

    #[test]
    fn short_things_stay_on_a_line() {
        check(json!("acme/site"), &[r#""acme/site""#]);
        check(json!({"a": 1, "b": [true, null]}), &[r#"{"a": 1, "b": [true, null]}"#]);
        check(json!("\u{202e}exe"), &["\"\\u{202e}exe\""]);
    }

    #[test]
    fn texts_stand_behind_a_bar() {
        check(json!("one\ntwo\u{1b}[2J\n"), &["", "  │ one", "  │ two\\u{1b}[2J", "  │ "]);
        check(
            json!({"text": "a\n}", "n": 1}),
            &["{", r#"  "text":"#, "    │ a", "    │ }", r#"  "n": 1"#, "}"],
        );
    }

    #[test]
    fn long_lists_go_line_by_line_and_nothing_is_left_out() {
        let long = json!({"list": ["x".repeat(80), "y"]});
        check(
            long,
            &["{", r#"  "list": ["#, &format!("    \"{}\",", "x".repeat(80)), r#"    "y""#, "  ]", "}"],
        );
    }
}
