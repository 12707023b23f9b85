//! A preview or a result that was recognised, for a terminal: changes as field, old → new, with a sign in front; differences in colour;
//! what forbids a plan first. Shows every text safely and leaves nothing out.

use countersign_policy::preview::{ChangeKind, ChangeView, PreviewAction, PreviewChange};
use serde_json::Value;

use crate::output::{BAD, BOLD, DIM, GOOD, NAME, WARN, paint, visible};
use crate::person::{diff, value};

pub(crate) fn lines(view: &ChangeView) -> Vec<String> {
    let mut lines = Vec::new();
    for block in &view.blocks {
        lines.push(paint(BAD, format_args!("blocked: {}", visible(block))));
    }
    if let Some(target) = &view.target {
        lines.push(paint(BOLD, visible(target)));
    }
    if let Some(message) = &view.message {
        lines.extend(message.lines().map(|line| visible(line).into_owned()));
    }
    if let Some(error) = view.error.as_ref().filter(|error| view.message.as_ref() != Some(error)) {
        lines.push(paint(BAD, visible(error)));
    }
    for action in &view.actions {
        lines.extend(action_lines(action));
    }
    // What is said in words before how it looks line by line.
    for line in view.texts.iter().flat_map(|text| text.lines()) {
        lines.push(format!("{} {}", paint(DIM, "│"), visible(line)));
    }
    for line in view.diffs.iter().flat_map(|text| text.lines()) {
        lines.push(format!("{} {}", paint(DIM, "│"), diff::colour(&visible(line))));
    }
    for warning in &view.warnings {
        lines.push(format!("{} {}", paint(WARN, "warning:"), visible(warning)));
    }
    if !view.next.is_empty() {
        lines.push(paint(DIM, format_args!("it suggests: {}", visible(&view.next.join("; ")))));
    }
    if let Some(rest) = &view.rest {
        lines.extend(value::lines(rest));
    }
    if view.for_programs.is_some() {
        lines.push(paint(DIM, "what it says to programs is not repeated here: --json shows it"));
    }
    lines
}

fn action_lines(action: &PreviewAction) -> Vec<String> {
    let name: Vec<&str> =
        [&action.operation, &action.target].into_iter().flatten().map(String::as_str).collect();
    let mut head = paint(BOLD, visible(&name.join(" ")));
    match action.status.as_deref() {
        None | Some("PLANNED") => {}
        Some(status) => head.push_str(&format!("  {}", paint(fate_style(status), visible(status)))),
    }
    let mut lines = Vec::new();
    if !name.is_empty() {
        lines.push(head);
    }
    if let Some(error) = &action.error {
        lines.push(format!("  {}", paint(BAD, visible(error))));
    }
    let width =
        action.changes.iter().map(|change| change.field.chars().count()).max().unwrap_or_default().min(28);
    lines.extend(action.changes.iter().map(|change| change_line(change, width)));
    if !action.more.is_empty() {
        lines.extend(
            value::lines(&Value::Object(action.more.clone())).into_iter().map(|line| format!("  {line}")),
        );
    }
    lines
}

fn fate_style(status: &str) -> anstyle::Style {
    if status.starts_with("APPLIED") {
        GOOD
    } else if status.starts_with("FAILED") {
        BAD
    } else {
        DIM
    }
}

fn change_line(change: &PreviewChange, width: usize) -> String {
    let (old, new) = (plain(&change.old), plain(&change.new));
    let (sign, shown) = match change.how {
        ChangeKind::Added => (paint(GOOD, "+"), paint(GOOD, &new)),
        ChangeKind::Removed => (paint(BAD, "−"), paint(BAD, &old)),
        ChangeKind::Changed => (paint(WARN, "~"), format!("{} → {}", paint(DIM, &old), paint(BOLD, &new))),
        ChangeKind::Unchanged => (" ".to_owned(), paint(DIM, &old)),
        ChangeKind::Unknown => {
            (paint(WARN, "?"), format!("{} → {}", paint(DIM, "not known"), paint(BOLD, &new)))
        }
    };
    let field = visible(&change.field);
    let gap = " ".repeat((width + 2).saturating_sub(field.chars().count()).max(1));
    format!("  {sign} {}{gap}{shown}", paint(NAME, field))
}

/// A value on one line: texts as they are, everything else as JSON.
fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => visible(text).into_owned(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            visible(&value.to_string()).into_owned()
        }
    }
}
