//! How a tool previews itself, what is shown where it does not, and how a preview reads.
//! Only says which call would be a dry run; running it is the gateway's.

mod detect;
mod view;

use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::call::{Arguments, Call};
use crate::config::PreviewCommand;
use crate::effect::Effect;
use crate::intent::Intent;
use crate::plan::{HiddenArguments, Preview, PreviewSource};
use crate::record::CallRecord;
use crate::tool::Tool;

pub use view::{Action, Change, How, View, blocks, is_diff};

/// How the preview of a tool is made, as a rule says or its input schema offers.
#[derive(Clone, Debug, PartialEq)]
pub enum Style {
    /// The tool itself: this argument makes it a dry run.
    Argument {
        /// The argument's name.
        arg: String,
        /// Its value for a preview.
        preview: Value,
        /// Its value for the real call.
        apply: Value,
    },
    /// Another tool of the same upstream.
    Companion {
        /// The tool's name.
        tool: String,
        /// Dotted paths of its result that must not change until apply; empty means all of it.
        digest: Vec<String>,
    },
    /// A command beside the upstream, which looks.
    Command(Arc<PreviewCommand>),
    /// Computed from the call itself, whatever the schema offers.
    Computed,
}

/// The style of a tool: the rule's, else what its input schema offers, else computed.
pub fn style(tool: &Tool, rule: Option<&Style>) -> Style {
    if let Some(said) = rule {
        return said.clone();
    }
    match detect::dry_run_argument(&tool.definition) {
        Some(name) => Style::Argument { arg: name.to_owned(), preview: true.into(), apply: false.into() },
        None => Style::Computed,
    }
}

/// What a call that needs a second step becomes under a style: the arguments that will be sent on apply.
#[derive(Debug, PartialEq)]
pub enum Effective {
    /// They are sent as they came.
    AsSent,
    /// The style's argument was not given, and says apply.
    Completed(Arguments),
    /// The style's argument has a value that means neither preview nor apply.
    Unclear {
        /// The argument's name.
        arg: String,
    },
}

impl Style {
    /// The arguments of the real call. An argument that was given is never turned into something else.
    pub fn effective(&self, arguments: &Arguments) -> Effective {
        let Style::Argument { arg, preview, apply } = self else { return Effective::AsSent };
        match arguments.value().get(arg) {
            Some(given) if given == preview || given == apply => Effective::AsSent,
            // Clients of typed languages write null for an argument that is not given.
            None | Some(Value::Null) => Effective::Completed(arguments.clone().with(arg, apply.clone())),
            Some(_) => Effective::Unclear { arg: arg.clone() },
        }
    }

    /// Whether the call itself says that it is a preview. It never becomes the real call.
    pub fn is_asked_for(&self, arguments: &Arguments) -> bool {
        match self {
            Style::Argument { arg, preview, .. } => arguments.value().get(arg) == Some(preview),
            Style::Companion { .. } | Style::Command(_) | Style::Computed => false,
        }
    }

    /// The real call's arguments without the one that says apply; none where there is no such argument.
    pub fn without_apply(&self, arguments: &Arguments) -> Option<Arguments> {
        match self {
            Style::Argument { arg, apply, .. } if arguments.value().get(arg) == Some(apply) => {
                Some(arguments.clone().without(arg))
            }
            Style::Argument { .. } | Style::Companion { .. } | Style::Command(_) | Style::Computed => None,
        }
    }

    /// The arguments of the dry run.
    pub fn for_preview(&self, arguments: &Arguments) -> Arguments {
        match self {
            Style::Argument { arg, preview, .. } => arguments.clone().with(arg, preview.clone()),
            Style::Companion { .. } | Style::Command(_) | Style::Computed => arguments.clone(),
        }
    }
}

/// The preview computed from the call itself: tool, effect, who, arguments, declared reason, target.
pub fn computed(call: &Call, effect: Effect, intent: Option<&Intent>, record: &CallRecord) -> Preview {
    let shown_arguments = &record.arguments;
    // The preview's digest is shown and recorded: what is hidden must not be found from it by trying.
    let digest = record.hash_salt.map_or_else(
        || call.arguments.digest(),
        |salt| HiddenArguments::salted(salt, &call.arguments).digest,
    );
    let decisive = json!({"tool": call.name.to_string(), "effect": effect, "arguments_digest": digest});
    let mut shown = Map::new();
    shown.insert(
        "summary".into(),
        format!("{} {} would run with the arguments below", article(effect), call.name).into(),
    );
    shown.insert("tool".into(), call.name.to_string().into());
    shown.insert("effect".into(), effect.as_str().into());
    shown.insert("who".into(), call.caller.principal.as_str().into());
    shown.insert("arguments".into(), shown_arguments.clone());
    if let Some(target) = target(shown_arguments) {
        shown.insert("target".into(), target);
    }
    if let Some(reason) = intent.and_then(|intent| intent.reason.as_ref()) {
        shown.insert("reason".into(), reason.as_str().into());
    }
    shown.insert("note".into(), "the upstream offers no dry run: this is computed from the call".into());
    Preview::new(PreviewSource::Computed, Value::Object(shown), &decisive)
}

fn article(effect: Effect) -> &'static str {
    match effect {
        Effect::Read => "the read tool",
        Effect::Write => "the write tool",
        Effect::Destructive => "the destructive tool",
    }
}

/// What the call is about, by the names arguments usually have.
fn target(arguments: &Value) -> Option<Value> {
    const NAMES: [&str; 14] = [
        "name",
        "id",
        "repo",
        "repository",
        "path",
        "file",
        "url",
        "resource",
        "target",
        "table",
        "branch",
        "namespace",
        "workspace",
        "key",
    ];
    let found: Map<String, Value> = NAMES
        .iter()
        .filter_map(|name| arguments.get(name).map(|value| ((*name).to_owned(), value.clone())))
        .filter(|(_, value)| value.is_string() || value.is_number())
        .collect();
    (!found.is_empty()).then_some(Value::Object(found))
}

/// What the call is about, for whoever can't see its arguments beside it.
pub(crate) fn about(arguments: &Value) -> Option<Value> {
    if let Some(found) = target(arguments) {
        return Some(found);
    }
    // Otherwise its first short word or number: a thing is mostly named before what happens to it.
    let is_short = |value: &Value| value.is_number() || value.as_str().is_some_and(|text| text.len() <= 200);
    let (name, value) = arguments.as_object()?.iter().find(|(_, value)| is_short(value))?;
    Some(json!({ name: value }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool(schema: Value) -> Tool {
        let definition = json!({"name": "t", "inputSchema": schema});
        Tool::read("u".into(), definition.as_object().unwrap().clone()).unwrap()
    }

    #[test]
    fn a_call_is_about_what_its_arguments_name() {
        let long = "x".repeat(201);
        for (arguments, expect) in [
            (json!({"ecosystem": "demo", "force": true}), Some(json!({"ecosystem": "demo"}))),
            (json!({"note": long, "order": 7}), Some(json!({"order": 7}))),
            (json!({"ecosystem": "demo", "path": "a"}), Some(json!({"path": "a"}))),
            (json!({"force": true}), None),
        ] {
            assert_eq!(about(&arguments), expect);
        }
    }

    #[test]
    fn attack_01_a_dry_run_is_what_its_description_says_and_rules_win() {
        let dry =
            json!({"type": "boolean", "description": "Report what would happen without making changes"});
        for name in ["dry_run", "dryRun"] {
            let found = style(&tool(json!({"properties": {name: dry}})), None);
            let expect = Style::Argument { arg: name.into(), preview: true.into(), apply: false.into() };
            assert_eq!(found, expect);
        }
        // By its name alone nothing is a dry run, and `preview` not even by its description.
        let bare = json!({"type": "boolean"});
        for (name, property) in [("dry_run", &bare), ("dryRun", &bare), ("preview", &bare), ("preview", &dry)]
        {
            assert_eq!(
                style(&tool(json!({"properties": {name: property}})), None),
                Style::Computed,
                "{name}"
            );
        }
        let offered = tool(json!({"properties": {"dry_run": dry}}));
        assert_eq!(style(&offered, Some(&Style::Computed)), Style::Computed);
        let named = Style::Argument { arg: "preview".into(), preview: true.into(), apply: false.into() };
        assert_eq!(style(&tool(json!({"properties": {"preview": bare}})), Some(&named)), named);
    }

    #[test]
    fn attack_01_an_argument_that_was_given_is_never_turned_around() {
        let style = Style::Argument { arg: "preview".into(), preview: true.into(), apply: false.into() };
        let effective = |text: &str| style.effective(&Arguments::parse(text.as_bytes()).unwrap());
        let given = Arguments::parse(br#"{"id":1}"#).unwrap();
        assert_eq!(style.for_preview(&given).canonical(), r#"{"id":1,"preview":true}"#);
        let completed = |text: &str| match effective(text) {
            Effective::Completed(arguments) => arguments.canonical().to_owned(),
            other @ (Effective::AsSent | Effective::Unclear { .. }) => panic!("{other:?}"),
        };
        assert_eq!(completed(r#"{"id":1}"#), r#"{"id":1,"preview":false}"#);
        assert_eq!(completed(r#"{"id":1,"preview":null}"#), r#"{"id":1,"preview":false}"#);
        assert_eq!(effective(r#"{"id":1,"preview":true}"#), Effective::AsSent);
        assert_eq!(effective(r#"{"id":1,"preview":false}"#), Effective::AsSent);
        assert_eq!(effective(r#"{"id":1,"preview":"true"}"#), Effective::Unclear { arg: "preview".into() });
        assert_eq!(effective(r#"{"id":1,"preview":1}"#), Effective::Unclear { arg: "preview".into() });
    }
}
