//! A preview or a result as a person reads it: changes as field, old → new; differences; plain text; warnings, and those that forbid it.
//! One reading for the card, the command line and the desk. Recognises shapes; what it does not recognise it keeps, and drops nothing.

use serde::Serialize;
use serde_json::{Map, Value};

use crate::plan::{Plan, Preview, PreviewSource};
use crate::strict_json;

/// What starts a warning that forbids going on.
const BLOCK: &str = "BLOCK:";

/// Stands for a text that was shown already.
const ABOVE: &str = "(shown above)";

/// Where an answer may keep what it says, below its top.
const INSIDE: [&str; 6] = ["data", "preview", "plan", "result", "response", "state"];

/// How a field changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ChangeKind {
    Added,
    Changed,
    /// It will not be there.
    Removed,
    /// It stays as it is.
    Unchanged,
    /// What it was is not known.
    Unknown,
}

/// One field, before and after.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PreviewChange {
    pub field: String,
    pub old: Value,
    pub new: Value,
    pub how: ChangeKind,
}

/// One action of a preview or a result.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct PreviewAction {
    /// What is done: create, update, delete …
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operation: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    pub changes: Vec<PreviewChange>,
    /// How it stands: PLANNED, APPLIED, FAILED …
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub more: Map<String, Value>,
}

/// A preview or a result as a person reads it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ChangeView {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Why it failed, where it says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    pub actions: Vec<PreviewAction>,
    pub diffs: Vec<String>,
    pub texts: Vec<String>,
    pub warnings: Vec<String>,
    pub blocks: Vec<String>,
    pub next: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rest: Option<Value>,
    /// What it says to programs, where it has texts that are meant for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub for_programs: Option<Value>,
}

impl ChangeView {
    pub fn of(preview: &Preview) -> Self {
        match preview.source {
            PreviewSource::Computed | PreviewSource::WhenReached => Self::of_computed(&preview.shown),
            PreviewSource::Argument
            | PreviewSource::Companion
            | PreviewSource::Command
            | PreviewSource::Chained => Self::of_result(&preview.shown),
        }
    }

    fn of_computed(shown: &Value) -> Self {
        let text = |name: &str| shown.get(name).and_then(Value::as_str).map(str::to_owned);
        let target = shown.get("target").and_then(Value::as_object).map(|target| {
            target
                .iter()
                .map(|(name, value)| format!("{name} {}", plain(value)))
                .collect::<Vec<_>>()
                .join(", ")
        });
        Self { message: text("note"), target, ..Self::default() }
    }

    /// A tool result's: `content` and `structuredContent`, or anything an upstream may answer.
    pub fn of_result(result: &Value) -> Self {
        let mut view = Self::default();
        let ResultContent { mut texts, others, is_for_people } = ResultContent::of(result);
        let structure = result.get("structuredContent").filter(|structure| structure.is_object());
        // A text that is the structure once more, or the structure itself, is not shown twice.
        let mut body = structure.cloned();
        texts.retain(|text| match strict_json::read_to_show(text) {
            Some(parsed @ Value::Object(_)) => match &body {
                Some(body) => *body != parsed,
                None => {
                    body = Some(parsed);
                    false
                }
            },
            _ => true,
        });
        if body.is_none() && result.get("content").is_none() {
            body = Some(result.clone());
        }
        for text in texts {
            view.take_text(text);
        }
        if let Some(body) = body {
            view.take_body(body);
        }
        let shown: Vec<&String> = view.texts.iter().chain(&view.diffs).collect();
        if let Some(rest) = &mut view.rest {
            leave_out(rest, &shown);
        }
        if is_for_people {
            view.for_programs = view.rest.take();
        }
        let more = Some(beside(result)).filter(|more| !more.is_empty()).map(Value::Object);
        let others = Some(others).filter(|others| !others.is_empty()).map(Value::Array);
        let mut rest: Vec<Value> = [view.rest.take(), others, more].into_iter().flatten().collect();
        view.rest = if rest.len() > 1 { Some(Value::Array(rest)) } else { rest.pop() };
        view
    }

    fn take_text(&mut self, text: String) {
        if text.trim().is_empty() {
            return;
        }
        // Warnings of tools that only write text stand on lines of their own; in a difference every line of somebody's file is
        // moved in by one.
        let is_diff = is_diff(&text);
        for line in text.lines() {
            let line = if is_diff { line } else { line.trim_start() };
            if let Some(block) = line.strip_prefix(BLOCK) {
                self.blocks.push(block.trim().to_owned());
            }
        }
        if is_diff { self.take_diff(text) } else { self.texts.push(text) }
    }

    /// A difference, once: a structure often repeats that of the text.
    fn take_diff(&mut self, diff: String) {
        if !self.diffs.iter().any(|known| known.contains(diff.trim_end())) {
            self.diffs.push(diff);
        }
    }

    fn take_body(&mut self, body: Value) {
        let Value::Object(mut members) = body else {
            self.rest = (!body.is_null()).then_some(body);
            return;
        };
        self.take_members(&mut members);
        // One level down, where nothing was found above.
        for name in INSIDE {
            if self.actions.is_empty()
                && self.diffs.is_empty()
                && let Some(Value::Object(inner)) = members.get_mut(name)
            {
                self.take_members(inner);
                if inner.is_empty() {
                    members.remove(name);
                }
            }
        }
        self.rest = (!members.is_empty()).then_some(Value::Object(members));
    }

    fn take_members(&mut self, members: &mut Map<String, Value>) {
        if members.get("actions").and_then(Value::as_array).is_some_and(|all| all.iter().all(is_action))
            && let Some(Value::Array(all)) = members.shift_remove("actions")
        {
            self.actions.extend(all.into_iter().filter_map(action));
        }
        if members.get("changes").and_then(Value::as_array).is_some_and(|all| is_changes(all))
            && let Some(Value::Array(all)) = members.shift_remove("changes")
        {
            self.actions.push(PreviewAction { changes: changes(all), ..PreviewAction::default() });
        }
        for name in ["diff", "patch", "unified_diff"] {
            if members.get(name).and_then(Value::as_str).is_some_and(is_diff)
                && let Some(Value::String(diff)) = members.shift_remove(name)
            {
                self.take_diff(diff);
            }
        }
        if members
            .get("warnings")
            .and_then(Value::as_array)
            .is_some_and(|all| all.iter().all(Value::is_string))
            && let Some(Value::Array(all)) = members.shift_remove("warnings")
        {
            for warning in all.iter().filter_map(Value::as_str) {
                match warning.trim_start().strip_prefix(BLOCK) {
                    Some(block) => self.blocks.push(block.trim().to_owned()),
                    None => self.warnings.push(warning.to_owned()),
                }
            }
        }
        if members
            .get("next_actions")
            .and_then(Value::as_array)
            .is_some_and(|all| all.iter().all(Value::is_string))
            && let Some(Value::Array(all)) = members.shift_remove("next_actions")
        {
            self.next.extend(all.iter().filter_map(Value::as_str).map(str::to_owned));
        }
        // Said by where it stands.
        if members.get("is_preview").is_some_and(Value::is_boolean) {
            members.shift_remove("is_preview");
        }
        self.message = self.message.take().or_else(|| take_string(members, &["message", "summary"]));
        self.error = self.error.take().or_else(|| take_string(members, &["error"]));
        self.target = self.target.take().or_else(|| target(members));
    }

    pub fn is_blocked(&self) -> bool {
        !self.blocks.is_empty()
    }
}

/// What forbids a plan, in the words of its previews; a plan of several is forbidden by any of its steps.
pub fn blocks(plan: &Plan) -> Vec<String> {
    let mut all = ChangeView::of(&plan.preview).blocks;
    // Without steps the loop adds nothing; with them the whole's own preview says nothing.
    for step in &plan.steps {
        all.extend(ChangeView::of(&step.preview).blocks);
    }
    all
}

/// Whether a text is a unified difference.
pub fn is_diff(text: &str) -> bool {
    text.lines().any(|line| line.starts_with("@@ ")) && text.lines().any(|line| line.starts_with("+++ "))
}

/// The content of a result.
struct ResultContent {
    texts: Vec<String>,
    /// Blocks that are no text, and what a text's block says besides.
    others: Vec<Value>,
    /// Whether all of it is meant for people and not for models (`audience`), which leaves the structure to programs.
    is_for_people: bool,
}

impl ResultContent {
    fn of(result: &Value) -> Self {
        let blocks = result.get("content").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let is_for_people = |block: &Value| {
            let audience = block.pointer("/annotations/audience").and_then(Value::as_array);
            audience.is_some_and(|audience| audience.iter().eq(["user"]))
        };
        let (mut texts, mut others) = (Vec::new(), Vec::new());
        for block in blocks {
            let Some(text) = block.get("text").and_then(Value::as_str) else {
                others.push(block.clone());
                continue;
            };
            texts.push(text.to_owned());
            let mut more = block.as_object().cloned().unwrap_or_default();
            more.retain(|name, _| !["type", "text", "annotations", "_meta"].contains(&name.as_str()));
            if !more.is_empty() {
                others.push(Value::Object(more));
            }
        }
        let is_for_people = !blocks.is_empty() && blocks.iter().all(is_for_people);
        Self { texts, others, is_for_people }
    }
}

/// The members of a result beside its content and its structure. `_meta` is for programs, by the protocol.
fn beside(result: &Value) -> Map<String, Value> {
    let Some(members) = result.as_object().filter(|members| members.contains_key("content")) else {
        return Map::new();
    };
    let said = |name: &str, value: &Value| match name {
        "content" | "_meta" | "isError" => true,
        "structuredContent" => value.is_object() || value.is_null(),
        _ => false,
    };
    let beside = members.iter().filter(|(name, value)| !said(name, value));
    beside.map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// Texts of several lines that were shown word for word are named, not shown again.
fn leave_out(rest: &mut Value, shown: &[&String]) {
    match rest {
        Value::String(text) => {
            let body = text.trim_end();
            if body.contains('\n') && shown.iter().any(|whole| whole.contains(body)) {
                *text = ABOVE.to_owned();
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| leave_out(item, shown)),
        Value::Object(members) => members.values_mut().for_each(|member| leave_out(member, shown)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn take_string(members: &mut Map<String, Value>, names: &[&str]) -> Option<String> {
    let name = names.iter().find(|name| members.get(**name).is_some_and(Value::is_string))?;
    match members.shift_remove(*name) {
        Some(Value::String(text)) => Some(text),
        _ => None,
    }
}

fn target(members: &mut Map<String, Value>) -> Option<String> {
    let id = members.get("entity_id").filter(|id| id.is_string() || id.is_number()).map(plain)?;
    members.shift_remove("entity_id");
    let kind = take_string(members, &["entity_type"]);
    Some(match kind {
        Some(kind) => format!("{} {id}", kind.replace('_', " ")),
        None => id,
    })
}

fn is_change(change: &Value) -> bool {
    change.get("field").is_some_and(Value::is_string)
        && (change.get("old").is_some() || change.get("new").is_some())
}

fn is_changes(all: &[Value]) -> bool {
    !all.is_empty() && all.iter().all(is_change)
}

fn is_action(action: &Value) -> bool {
    let changes = action.get("changes").and_then(Value::as_array);
    changes.is_some_and(|all| all.iter().all(is_change))
}

fn changes(all: Vec<Value>) -> Vec<PreviewChange> {
    all.into_iter().filter_map(change).collect()
}

fn change(change: Value) -> Option<PreviewChange> {
    let Value::Object(mut members) = change else { return None };
    let field = take_string(&mut members, &["field"])?;
    let flag = |name: &str| members.get(name) == Some(&Value::Bool(true));
    let (old, new) = (members.get("old"), members.get("new"));
    let absent = |value: Option<&Value>| value.is_none_or(Value::is_null);
    let how = if flag("is_unknown_prior") {
        ChangeKind::Unknown
    } else if flag("is_added") || (absent(old) && !absent(new)) {
        ChangeKind::Added
    } else if flag("is_unchanged") || old == new {
        ChangeKind::Unchanged
    } else if absent(new) {
        ChangeKind::Removed
    } else {
        ChangeKind::Changed
    };
    let old = members.shift_remove("old").unwrap_or_default();
    Some(PreviewChange { field, old, new: members.shift_remove("new").unwrap_or_default(), how })
}

fn action(action: Value) -> Option<PreviewAction> {
    let Value::Object(mut members) = action else { return None };
    let Some(Value::Array(all)) = members.shift_remove("changes") else { return None };
    let operation = take_string(&mut members, &["operation_label", "operation"]);
    let target = take_string(&mut members, &["target_label", "target", "target_id"]);
    let status = take_string(&mut members, &["status_label", "status"]);
    let error = take_string(&mut members, &["error"]);
    // Said by the labels already, or empty.
    for said in ["index", "succeeded", "operation", "summary"] {
        members.shift_remove(said);
    }
    members.retain(|_, value| !value.is_null());
    Some(PreviewAction { operation, target, changes: changes(all), status, error, more: members })
}

/// A value in a line: texts as they are, everything else as JSON.
fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            value.to_string()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn katana() -> Value {
        json!({
            "entity_type": "purchase_order", "entity_id": 7, "is_preview": true, "message": "one change",
            "actions": [{"index": 0, "operation": "update", "target_label": "PO-7", "succeeded": null, "error": null,
                "status_label": "PLANNED", "verified": null,
                "changes": [{"field": "due", "old": "2026-11-01", "new": "2026-12-01"},
                    {"field": "note", "old": null, "new": "x", "is_added": true},
                    {"field": "tax", "old": 1, "new": 1, "is_unchanged": true},
                    {"field": "bin", "old": "A", "new": null},
                    {"field": "rate", "old": null, "new": 2, "is_unknown_prior": true}]}],
            "warnings": ["late", "BLOCK: the period is closed"],
        })
    }

    #[test]
    fn a_line_of_a_file_is_no_warning_of_the_tool() {
        let blocks =
            |text: &str| ChangeView::of_result(&json!({"content": [{"type": "text", "text": text}]})).blocks;
        let diff = "--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@\n BLOCK: a file's own words\n-a\n+BLOCK: b\n";
        assert_eq!(blocks(diff), Vec::<String>::new());
        assert_eq!(blocks(&format!("{diff}BLOCK: closed\n")), ["closed"]);
        assert_eq!(blocks("  BLOCK: closed"), ["closed"]);
    }

    #[test]
    fn a_change_list_is_recognised_wherever_it_stands() {
        for result in [
            json!({"content": [{"type": "text", "text": katana().to_string()}], "structuredContent": katana()}),
            json!({"content": [{"type": "text", "text": katana().to_string()}]}),
            json!({"structuredContent": {"data": katana()}}),
            katana(),
        ] {
            let view = ChangeView::of_result(&result);
            let action = view.actions.first().unwrap_or_else(|| panic!("{view:?}"));
            let hows: Vec<ChangeKind> = action.changes.iter().map(|change| change.how).collect();
            assert_eq!(
                hows,
                [
                    ChangeKind::Changed,
                    ChangeKind::Added,
                    ChangeKind::Unchanged,
                    ChangeKind::Removed,
                    ChangeKind::Unknown
                ]
            );
            assert_eq!(action.changes[0].old, "2026-11-01");
            assert_eq!((action.status.as_deref(), action.target.as_deref()), (Some("PLANNED"), Some("PO-7")));
            assert_eq!(view.warnings, ["late"]);
            assert_eq!(view.blocks, ["the period is closed"], "without its mark");
            assert_eq!(view.message.as_deref(), Some("one change"));
            assert_eq!(view.target.as_deref(), Some("purchase order 7"));
            assert!(view.texts.is_empty(), "said once: {view:?}");
        }
    }

    #[test]
    fn differences_and_plain_text_are_told_apart() {
        let diff = "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-old\n+new\n";
        let text = |text: &str| json!({"content": [{"type": "text", "text": text}]});
        assert_eq!(ChangeView::of_result(&text(diff)).diffs, [diff]);
        assert_eq!(ChangeView::of_result(&text("3 to add\n+ a list")).texts, ["3 to add\n+ a list"]);
        assert_eq!(ChangeView::of_result(&json!({"structuredContent": {"diff": diff}})).diffs, [diff]);
        let blocked = ChangeView::of_result(&text("would fail\n  BLOCK: frozen"));
        assert_eq!(blocked.blocks, ["frozen"]);
        assert_eq!(blocked.texts.len(), 1, "the text stays whole");
    }

    #[test]
    fn a_difference_that_stands_in_text_and_structure_is_shown_once() {
        let diff = "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-old\n+new\n";
        let text = format!("--- a/w\n+++ b/w\n@@ -1 +1 @@\n-a\n+b\n{diff}");
        let content = json!([{"type": "text", "text": text}]);
        let structure = json!({"diff": diff, "files": [{"path": "x", "patch": diff.trim_end(), "lines": 2}]});
        let view = ChangeView::of_result(&json!({"content": content, "structuredContent": structure}));
        assert_eq!(view.diffs, [text]);
        let rest = json!({"files": [{"path": "x", "patch": ABOVE, "lines": 2}]});
        assert_eq!(view.rest, Some(rest), "the rest is shown whole");
        let other = json!({"files": [{"patch": "one\ntwo"}]});
        let view = ChangeView::of_result(&json!({"content": content, "structuredContent": other}));
        assert_eq!(view.rest, Some(other), "another text stays");
    }

    #[test]
    fn a_structure_beside_texts_for_people_is_for_programs() {
        let block =
            |audience: Value| json!({"type": "text", "text": "+ a", "annotations": {"audience": audience}});
        let structure = json!({"files": ["a"], "warnings": ["late"]});
        let of = |audience: Value| {
            ChangeView::of_result(&json!({"content": [block(audience)], "structuredContent": structure}))
        };
        let view = of(json!(["user"]));
        assert_eq!((view.rest, view.for_programs), (None, Some(json!({"files": ["a"]}))));
        assert_eq!(view.warnings, ["late"], "what warns is read wherever it stands");
        for audience in [json!(["user", "assistant"]), json!(["assistant"]), json!([]), json!("user")] {
            assert_eq!(of(audience).rest, Some(json!({"files": ["a"]})));
        }
        let mixed = json!({"content": [block(json!(["user"])), {"type": "text", "text": "b"}], "structuredContent": structure});
        assert_eq!(ChangeView::of_result(&mixed).rest, Some(json!({"files": ["a"]})));
    }

    #[test]
    fn what_is_not_recognised_is_kept() {
        let beside = json!({"content": [{"type": "text", "text": "a", "size": 3}], "isError": false, "colour": 1, "_meta": {}});
        let view = ChangeView::of_result(&beside);
        assert_eq!(view.rest, Some(json!([[{"size": 3}], {"colour": 1}])));
        let odd = json!({"actions": [{"no": "changes"}], "warnings": "late", "n": 1});
        let view = ChangeView::of_result(&json!({"structuredContent": odd}));
        assert_eq!(view.rest, Some(odd));
        let image = json!({"type": "image", "data": "x"});
        let view = ChangeView::of_result(&json!({"content": [image]}));
        assert_eq!(view.rest, Some(json!([image])));
        assert_eq!(ChangeView::of_result(&json!("a text")).rest, Some(json!("a text")));
        let more = json!({"actions": [{"changes": [], "verified": false, "colour": "red"}]});
        let view = ChangeView::of_result(&json!({"structuredContent": more}));
        assert_eq!(view.actions[0].more, *json!({"verified": false, "colour": "red"}).as_object().unwrap());
    }
}
