//! What a person reads in the host's own dialog: the plan in full, as plain text. Lines that somebody else wrote are marked, so that
//! none passes for one of ours; nothing invisible stays so.

use countersign_core::ids::PlanId;
use countersign_core::plan::{Plan, Preview};
use countersign_core::preview::{Action, Change, How, View};
use countersign_core::redact::Redactor;
use serde_json::Value;

use crate::escape;

/// The whole question.
pub(super) fn question(plan: &Plan, id: &PlanId, redactor: &Redactor) -> String {
    let arguments = redactor.clean(plan.arguments.value(), &plan.redact);
    let mut page = Page::default();
    page.ours(&plan.need.prompt(&plan.tool));
    page.gap();
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
    page.text
}

#[derive(Default)]
struct Page {
    text: String,
}

impl Page {
    fn gap(&mut self) {
        self.text.push('\n');
    }

    fn ours(&mut self, line: &str) {
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
        let view = View::of(preview);
        self.ours("what would happen:");
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

    fn action(&mut self, action: &Action) {
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

fn changed(change: &Change) -> String {
    let (old, new) = (plain(&change.old), plain(&change.new));
    let field = escape::line(&change.field);
    match change.how {
        How::Added => format!("  + {field}: {new}"),
        How::Removed => format!("  - {field}: {old}"),
        How::Changed => format!("  ~ {field}: {old} → {new}"),
        How::Unchanged => format!("    {field}: {old}"),
        How::Unknown => format!("  ? {field}: not known → {new}"),
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
