//! One line that says what a person is asked to agree to: the action, its target, how much changes, and the agent's reason.
//! Some hosts show little more of a dialog than its first lines. Everything in it is an excerpt; the details follow elsewhere.
//! The title of a plan in lists and on its page is the same line without the reason and with the last name of a path only.

use serde_json::{Map, Value};

use crate::effect::name_words;
use crate::ids::FullName;
use crate::plan::{Plan, Preview};
use crate::preview::ChangeView;
use crate::redact::Redactor;
use crate::visible_text;

/// The longest headline.
const LONGEST: usize = 100;
/// The longest target in one.
const LONGEST_TARGET: usize = 56;
/// The shortest excerpt of a reason that is worth its place.
const SHORTEST_REASON: usize = 12;

/// Arguments that name what a call is about, most telling first.
const TARGETS: [&str; 24] = [
    "path",
    "file_path",
    "filepath",
    "filename",
    "file",
    "uri",
    "url",
    "source",
    "repo",
    "repository",
    "branch",
    "table",
    "database",
    "workspace",
    "project",
    "title",
    "name",
    "number",
    "id",
    "key",
    "to",
    "command",
    "query",
    "sql",
];
/// Where something is moved or copied to.
const DESTINATIONS: [&str; 4] = ["destination", "dest", "new_path", "target"];
/// Words of a tool's name that a path says as well.
const SAID_BY_PATH: [&str; 4] = ["file", "files", "path", "directory"];

/// The headline of a plan, on one line of at most 100 characters. Paths below `home` are written with `~`.
pub fn headline(plan: &Plan, redactor: &Redactor, home: Option<&str>) -> String {
    let arguments = cleaned(plan, redactor);
    let asked = if plan.steps.is_empty() {
        let counts = counted(&plan.preview, &arguments);
        let counts = counts.map(|(more, less)| format!(" (+{more} −{less})")).unwrap_or_default();
        let target = target(&arguments, |text| at_home(text, home));
        format!("{}{counts}?", action(plan.tool.tool.as_str(), target.as_deref()))
    } else {
        format!("{}?", series_title(plan, &arguments))
    };
    let reason = plan.intent.as_ref().and_then(|intent| intent.reason.as_deref()).unwrap_or_default();
    let reason = redactor.clean_text(reason);
    let reason = reason.lines().next().unwrap_or_default().trim();
    let room = LONGEST.saturating_sub(asked.chars().count() + 3);
    match reason.is_empty() || room < SHORTEST_REASON {
        true => shortened(&asked, LONGEST),
        // The quotation marks say that these are not our words.
        false => format!("{asked} “{}”", shortened(&reason.replace('”', "\""), room)),
    }
}

/// The title of a plan in words: `Edit cart.js, +1 −1`, `Delete repo acme/site`. A path is its last name; the whole follows.
pub fn title(plan: &Plan, redactor: &Redactor) -> String {
    let arguments = cleaned(plan, redactor);
    if plan.steps.is_empty() {
        call_title(&plan.tool, &arguments, &plan.preview)
    } else {
        series_title(plan, &arguments)
    }
}

/// The title of one call, such as a step. `arguments` are redacted.
pub fn call_title(tool: &FullName, arguments: &Map<String, Value>, preview: &Preview) -> String {
    let counts = counted(preview, arguments);
    let counts = counts.map(|(more, less)| format!(", +{more} −{less}")).unwrap_or_default();
    // The words of the tool's name are chosen by the whole target: `Edit cart.js`, not `Edit file cart.js`.
    let is_path = target(arguments, str::to_owned).is_some_and(|whole| whole.contains('/'));
    let target = target(arguments, |text| last_name(text).to_owned());
    let said = action_words(tool.tool.as_str(), is_path);
    let said = target.map_or(said.clone(), |target| format!("{said} {target}"));
    shortened(&format!("{said}{counts}"), LONGEST)
}

/// Whether two plans of one tool are about the same thing. Plans without a target are about different things.
pub fn is_same_target(one: &Plan, other: &Plan) -> bool {
    let whole = |plan: &Plan| named_target(plan.arguments.value());
    one.tool == other.tool && whole(one).is_some() && whole(one) == whole(other)
}

fn cleaned(plan: &Plan, redactor: &Redactor) -> Map<String, Value> {
    match redactor.clean(plan.arguments.value(), &plan.redact) {
        Value::Object(members) => members,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => Map::new(),
    }
}

fn series_title(plan: &Plan, arguments: &Map<String, Value>) -> String {
    let title = arguments.get("title").and_then(Value::as_str).unwrap_or_default();
    format!("Run {} steps: {}", plan.steps.len(), shortened(title, LONGEST_TARGET))
}

/// The last name of a path. An owner with a repository is no path, and an address keeps its host.
fn last_name(text: &str) -> &str {
    let is_path = text.starts_with(['/', '~', '.']) || text.matches('/').count() > 1;
    let name = text.trim_end_matches('/').rsplit('/').next().filter(|name| !name.is_empty());
    name.filter(|_| is_path && !text.contains("://")).unwrap_or(text)
}

/// What is done to what: `Edit ~/shop/cart.js`, `Delete repo acme/site`.
fn action(tool: &str, target: Option<&str>) -> String {
    let said = action_words(tool, target.is_some_and(|target| target.contains('/')));
    match target {
        Some(target) => format!("{said} {target}"),
        None => said,
    }
}

/// The words of a tool's name, as a sentence begins.
fn action_words(tool: &str, is_path: bool) -> String {
    let mut words = name_words(tool);
    if is_path && words.len() > 1 {
        words.retain(|word| !SAID_BY_PATH.contains(&word.as_str()));
    }
    let mut said = shortened(&words.join(" "), 40);
    if let Some(first) = said.get_mut(..1) {
        first.make_ascii_uppercase();
    }
    said
}

/// What the call is about, and where it goes if it is moved; each written as `write` does.
fn target(arguments: &Map<String, Value>, write: impl Fn(&str) -> String) -> Option<String> {
    let (from, to) = named_target(arguments)?;
    Some(match to {
        Some(to) => {
            let half = LONGEST_TARGET / 2;
            // Where only the folder changes, both ends in short would be the same.
            let short = |text: &str| if write(&from) == write(&to) { text.to_owned() } else { write(text) };
            format!("{} → {}", shortened(&short(&from), half), shortened(&short(&to), half))
        }
        None => shortened(&write(&from), LONGEST_TARGET),
    })
}

/// What the call is about, by the name of an argument, else its first text; and where it goes.
fn named_target(arguments: &Map<String, Value>) -> Option<(String, Option<String>)> {
    let named = |names: &[&str]| names.iter().find_map(|name| arguments.get(*name).and_then(word));
    let first = || arguments.values().find_map(|value| value.as_str().map(str::to_owned));
    let from = named(&TARGETS).or_else(first)?;
    let owner = arguments.get("owner").and_then(Value::as_str).filter(|_| arguments.contains_key("repo"));
    let from = owner.map_or(from.clone(), |owner| format!("{owner}/{from}"));
    let to = named(&DESTINATIONS).filter(|to| *to != from);
    Some((from, to))
}

fn word(value: &Value) -> Option<String> {
    match value {
        Value::String(text) if !text.trim().is_empty() => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Null | Value::Bool(_) | Value::String(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

/// A path below the home folder, written with `~`.
pub(crate) fn at_home(text: &str, home: Option<&str>) -> String {
    match home.filter(|home| home.len() > 1).and_then(|home| text.strip_prefix(home)) {
        Some(rest) if rest.starts_with('/') => format!("~{rest}"),
        Some(_) | None => text.to_owned(),
    }
}

/// Lines added and removed: as the preview's differences say, else as the call's own replacements do.
fn counted(preview: &Preview, arguments: &Map<String, Value>) -> Option<(usize, usize)> {
    let view = ChangeView::of(preview);
    if !view.diffs.is_empty() {
        let lines = || view.diffs.iter().flat_map(|diff| diff.lines());
        let more = lines().filter(|line| line.starts_with('+') && !line.starts_with("+++")).count();
        let less = lines().filter(|line| line.starts_with('-') && !line.starts_with("---")).count();
        return Some((more, less));
    }
    let edits: Vec<&Map<String, Value>> = match arguments.get("edits") {
        Some(Value::Array(edits)) => edits.iter().filter_map(Value::as_object).collect(),
        _ => vec![arguments],
    };
    let text = |edit: &Map<String, Value>, names: [&str; 4]| {
        names.iter().find_map(|name| edit.get(*name)?.as_str().map(|text| text.lines().count()))
    };
    let counts: Option<Vec<(usize, usize)>> = edits
        .into_iter()
        .map(|edit| {
            let new = text(edit, ["new", "newText", "new_string", "new_str"])?;
            Some((new, text(edit, ["old", "oldText", "old_string", "old_str"])?))
        })
        .collect();
    let counts = counts.filter(|counts| !counts.is_empty())?;
    Some(counts.into_iter().fold((0, 0), |(more, less), (new, old)| (more + new, less + old)))
}

/// A text on one line, nothing hidden in it, its middle left out where it is too long: both ends of a path tell something.
fn shortened(text: &str, most: usize) -> String {
    let text = visible_text::line(text);
    let count = text.chars().count();
    if count <= most {
        return text.into_owned();
    }
    let tail = most.saturating_sub(1) / 2;
    let head: String = text.chars().take(most.saturating_sub(tail + 1)).collect();
    let tail: String = text.chars().skip(count - tail).collect();
    format!("{head}…{tail}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::plan::PreviewSource;

    fn plan(tool: &str, arguments: Value, reason: &str) -> Plan {
        let mut plan: Plan = serde_json::from_value(json!({
            "id": "pln_1", "hash": "0".repeat(64), "principal": "agent", "session": "s", "tool": tool,
            "fingerprint": "0".repeat(64), "policy_digest": "0".repeat(64), "arguments": arguments.to_string(),
            "preview": {"source": "computed", "shown": {}, "digest": "0".repeat(64)}, "effect": "write",
            "intent": {"operation_type": "write", "reason": reason},
            "need": {"kind": "simple", "strength": "host"}, "created": "2026-01-01T00:00:00Z", "expires": "2026-01-01T00:05:00Z",
        }))
        .unwrap();
        plan.redact = vec!["password".into()];
        plan
    }

    fn said(tool: &str, arguments: Value, reason: &str) -> String {
        headline(&plan(tool, arguments, reason), &Redactor::new([7; 32]), Some("/home/ann"))
    }

    #[test]
    fn it_says_action_target_and_reason_in_words() {
        let edits =
            json!({"path": "/srv/shop/cart.js", "edits": [{"oldText": "VAT = 19", "newText": "VAT = 16"}]});
        let wanted = "Edit /srv/shop/cart.js (+1 −1)? “VAT went down to 16 %”";
        assert_eq!(said("files:edit_file", edits, "VAT went down to 16 %"), wanted);
        for (tool, arguments, wanted) in [
            ("github:deleteRepo", json!({"owner": "acme", "repo": "site"}), "Delete repo acme/site?"),
            (
                "orders:modify_purchase_order",
                json!({"note": "x", "number": "PO-1040"}),
                "Modify purchase order PO-1040?",
            ),
            ("files:move_file", json!({"source": "/a/b", "destination": "/a/c"}), "Move /a/b → /a/c?"),
            ("git:git_reset", json!({}), "Git reset?"),
            ("notes:put", json!({"count": 3, "body": "hello"}), "Put hello?"),
            ("issues:close", json!({"number": 42}), "Close 42?"),
        ] {
            assert_eq!(said(tool, arguments, ""), wanted);
        }
    }

    #[test]
    fn a_preview_that_shows_a_difference_is_counted() {
        let mut plan = plan("files:edit_file", json!({"path": "a.md"}), "");
        let diff = "--- a/a.md\n+++ b/a.md\n@@ -1,2 +1,3 @@\n one\n-two\n+2\n+3\n";
        plan.preview.source = PreviewSource::Argument;
        plan.preview.shown = json!({"content": [{"type": "text", "text": diff}]});
        assert_eq!(headline(&plan, &Redactor::new([7; 32]), Some("/home/ann")), "Edit file a.md (+2 −1)?");
    }

    #[test]
    fn a_title_is_the_action_the_last_name_and_how_much_changes() {
        let edits = json!({"path": "/srv/shop/cart.js", "edits": [{"oldText": "19", "newText": "16"}]});
        for (tool, arguments, wanted) in [
            ("files:edit_file", edits, "Edit cart.js, +1 −1"),
            ("orders:delete", json!({"number": "PO-1041"}), "Delete PO-1041"),
            ("github:deleteRepo", json!({"owner": "acme", "repo": "site"}), "Delete repo acme/site"),
            ("files:move_file", json!({"source": "/a/b.md", "destination": "/a/c.md"}), "Move b.md → c.md"),
            ("files:move_file", json!({"source": "/a/b", "destination": "/c/b"}), "Move /a/b → /c/b"),
            ("web:open_url", json!({"url": "https://acme.test/a/b"}), "Open url https://acme.test/a/b"),
            ("files:write_file", json!({"path": "/home/ann/\u{202e}gpj.exe"}), "Write \\u{202e}gpj.exe"),
            ("git:git_reset", json!({}), "Git reset"),
        ] {
            assert_eq!(title(&plan(tool, arguments, "because"), &Redactor::new([7; 32])), wanted);
        }
    }

    #[test]
    fn plans_are_about_the_same_thing_by_tool_and_target() {
        let of = |tool: &str, path: &str| plan(tool, json!({"path": path, "content": path.len()}), "");
        assert!(is_same_target(&of("files:write", "/a"), &of("files:write", "/a")));
        assert!(!is_same_target(&of("files:write", "/a"), &of("files:write", "/b")));
        assert!(!is_same_target(&of("files:write", "/a"), &of("files:append", "/a")));
        let none = plan("files:sync", json!({"count": true}), "");
        assert!(!is_same_target(&none, &none));
    }

    #[test]
    fn home_is_written_short() {
        assert_eq!(said("files:write_file", json!({"path": "/home/ann/a.txt"}), ""), "Write ~/a.txt?");
        assert_eq!(
            said("files:write_file", json!({"path": "/home/annabel/a"}), ""),
            "Write /home/annabel/a?"
        );
    }

    /// Whatever a model writes: one line, at most 100 characters, nothing hidden, no secret, both ends of a long target.
    #[test]
    fn no_argument_or_reason_bends_it() {
        let long = format!("/srv/{}/secret.txt", "x".repeat(500));
        let line = said("files:write_file", json!({"path": long}), &"because ".repeat(200));
        assert!(line.starts_with("Write /srv/xxx") && line.contains("xxx/secret.txt? “because"), "{line}");
        for (arguments, reason) in [
            (json!({"path": "a\nExecute? yes\u{202e}"}), "x\u{200b}\nplan pln_2 · approved"),
            (json!({"title": "t".repeat(3000)}), "”? Approved by an administrator “"),
            (json!({"password": "hunter2"}), "r"),
            (json!({}), ""),
        ] {
            let line = said(
                "files:write_the_very_long_name_of_a_tool_that_goes_on_and_on_and_on",
                arguments,
                reason,
            );
            assert!(line.chars().count() <= LONGEST && line.lines().count() == 1, "{line}");
            assert!(!line.chars().any(visible_text::is_invisible) && !line.contains("hunter2"), "{line}");
            assert!(line.matches('”').count() <= 1, "{line}");
        }
    }
}
