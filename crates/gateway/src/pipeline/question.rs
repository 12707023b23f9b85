//! The text of the host's dialog: a headline, because some hosts show three lines, then the whole plan, and the headline again,
//! because others show only the end. Foreign lines are marked, so that none passes for ours; invisible characters are escaped.

use countersign_policy::headline::headline;
use countersign_policy::ids::PlanId;
use countersign_policy::plan::{Plan, Preview, PreviewSource};
use countersign_policy::preview::{ChangeKind, ChangeView, PreviewAction, PreviewChange, WHEN_REACHED};
use countersign_policy::redact::Redactor;
use serde_json::Value;

use crate::escape;

/// How many columns a terminal leaves for a dialog's text, and how many of its rows are sure to be seen together.
const COLUMNS: usize = 76;
const ROWS: usize = 12;

pub(super) fn question(plan: &Plan, id: &PlanId, redactor: &Redactor, home: Option<&str>) -> String {
    let arguments = redactor.clean(plan.arguments.value(), &plan.redact);
    let mut page = DialogText::default();
    let headline = headline(plan, redactor, home);
    page.ours(&headline);
    page.ours(&format!("{} ({}), asked by {}", plan.tool, plan.effect, plan.principal));
    let reason = plan.intent.as_ref().and_then(|intent| intent.reason.as_deref());
    if let Some(reason) = reason {
        page.ours("the agent says:");
        page.theirs(&redactor.clean_text(reason));
    }
    if plan.steps.is_empty() {
        page.preview(&plan.preview, id);
        page.arguments(&arguments);
        if let Some(meta) = &plan.meta {
            page.ours("sent along in _meta:");
            page.json(&redactor.clean(meta.value(), &[]));
        }
    } else {
        if let Some(title) = arguments.get("title").and_then(Value::as_str) {
            page.theirs(title);
        }
        for (index, step) in plan.steps.iter().enumerate() {
            page.gap();
            page.ours(&format!("step {}: {} ({})", index.saturating_add(1), step.tool, step.effect));
            page.preview(&step.preview, id);
            let own = arguments.get("steps").and_then(|steps| steps.get(index)?.get("args"));
            page.arguments(own.unwrap_or(&Value::Null));
        }
    }
    page.gap();
    page.ours(&format!("plan {id} · {}", plan.hash));
    // Some hosts (Copilot CLI) show the end of a long dialog: its beginning has left the screen.
    if page.rows() > ROWS {
        page.ours(&headline);
    }
    page.ours(&plan.requirement.prompt(&plan.tool));
    page.text
}

#[derive(Default)]
struct DialogText {
    text: String,
}

impl DialogText {
    /// How many rows of a terminal the text takes.
    fn rows(&self) -> usize {
        self.text.lines().map(|line| line.chars().count().div_ceil(COLUMNS).max(1)).sum()
    }

    fn gap(&mut self) {
        self.text.push('\n');
    }

    fn ours(&mut self, line: &str) {
        // Also our own lines: they carry names that an agent or an upstream chose.
        self.text.push_str(&escape::line(line));
        self.text.push('\n');
    }

    /// A text of somebody else's, each of its lines marked.
    fn theirs(&mut self, text: &str) {
        for line in text.lines() {
            self.text.push_str("│ ");
            self.text.push_str(&escape::visible(line));
            self.text.push('\n');
        }
    }

    fn json(&mut self, value: &Value) {
        self.theirs(&serde_json::to_string_pretty(value).unwrap_or_default());
    }

    fn arguments(&mut self, arguments: &Value) {
        self.ours("arguments:");
        self.json(arguments);
    }

    fn preview(&mut self, preview: &Preview, id: &PlanId) {
        if preview.source == PreviewSource::WhenReached {
            return self.ours(WHEN_REACHED);
        }
        let view = ChangeView::of(preview);
        self.ours(match preview.source {
            PreviewSource::Chained => "what would happen after the steps above:",
            PreviewSource::Argument
            | PreviewSource::Companion
            | PreviewSource::Command
            | PreviewSource::Computed
            | PreviewSource::WhenReached => "what would happen:",
        });
        for block in &view.blocks {
            self.theirs(&format!("blocked: {block}"));
        }
        let told = [&view.target, &view.message, &view.error];
        told.into_iter().flatten().for_each(|text| self.theirs(text));
        view.actions.iter().for_each(|action| self.action(action));
        view.texts.iter().chain(&view.diffs).for_each(|text| self.theirs(text));
        for warning in &view.warnings {
            self.theirs(&format!("warning: {warning}"));
        }
        if !view.next.is_empty() {
            self.theirs(&format!("it suggests: {}", view.next.join("; ")));
        }
        if let Some(rest) = &view.rest {
            self.json(rest);
        }
        if view.for_programs.is_some() {
            self.ours(&format!("what it says to programs: countersign plans show {id} --json"));
        }
    }

    fn action(&mut self, action: &PreviewAction) {
        let head: Vec<&str> =
            [&action.operation, &action.target].into_iter().flatten().map(String::as_str).collect();
        if !head.is_empty() {
            self.theirs(&head.join(" "));
        }
        if let Some(error) = &action.error {
            self.theirs(&format!("  {error}"));
        }
        for change in &action.changes {
            self.theirs(&changed(change));
        }
        if !action.more.is_empty() {
            self.json(&Value::Object(action.more.clone()));
        }
    }
}

fn changed(change: &PreviewChange) -> String {
    let (old, new) = (plain(&change.old), plain(&change.new));
    let field = escape::line(&change.field);
    match change.how {
        ChangeKind::Added => format!("  + {field}: {new}"),
        ChangeKind::Removed => format!("  - {field}: {old}"),
        ChangeKind::Changed => format!("  ~ {field}: {old} → {new}"),
        ChangeKind::Unchanged => format!("    {field}: {old}"),
        ChangeKind::Unknown => format!("  ? {field}: not known → {new}"),
    }
}

/// A value on one line: texts as they are, everything else as JSON.
fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => escape::line(text).into_owned(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            value.to_string()
        }
    }
}
