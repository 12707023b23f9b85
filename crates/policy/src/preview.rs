//! How a tool previews itself, what is shown where it does not, and how a preview reads.
//! Only says which call would be a dry run; running it is the gateway's.

mod detect;
mod view;

use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::call::{Arguments, ToolCall};
use crate::command_template::PreviewCommand;
use crate::effect::Effect;
use crate::intent::Intent;
use crate::plan::{HiddenArguments, Preview, PreviewSource};
use crate::record::CallRecord;
use crate::tool::Tool;

pub use view::{
    ChangeKind, ChangeView, PreviewAction, PreviewChange, blocks, is_diff, is_interface_tree,
    structured_answer,
};

/// How the preview of a tool is made, as a rule says or its input schema offers.
#[derive(Clone, Debug, PartialEq)]
pub enum PreviewStyle {
    /// The tool itself: this argument makes it a dry run.
    Argument { arg: String, preview: Value, apply: Value },
    /// Another tool of the same upstream.
    Companion {
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
pub fn style(tool: &Tool, rule: Option<&PreviewStyle>) -> PreviewStyle {
    if let Some(said) = rule {
        return said.clone();
    }
    match detect::dry_run_argument(&tool.definition) {
        Some(name) => {
            PreviewStyle::Argument { arg: name.to_owned(), preview: true.into(), apply: false.into() }
        }
        None => PreviewStyle::Computed,
    }
}

/// What a call that needs a second step becomes under a style: the arguments that will be sent on apply.
#[derive(Debug, PartialEq)]
pub enum EffectiveArguments {
    /// They are sent as they came.
    AsSent,
    /// The style's argument was not given, and says apply.
    Completed(Arguments),
    /// The style's argument has a value that means neither preview nor apply.
    Unclear { arg: String },
}

impl PreviewStyle {
    /// The style as a rule writes it; none for a computed preview.
    pub fn written(&self) -> Option<Value> {
        match self {
            PreviewStyle::Argument { arg, preview, apply } => {
                Some(json!({"arg": arg, "preview": preview, "apply": apply}))
            }
            PreviewStyle::Companion { tool, digest } => Some(json!({"tool": tool, "digest": digest})),
            PreviewStyle::Command(command) => Some(command.shown()),
            PreviewStyle::Computed => None,
        }
    }

    /// The arguments of the real call. An argument that was given is never turned into something else.
    pub fn effective(&self, arguments: &Arguments) -> EffectiveArguments {
        let PreviewStyle::Argument { arg, preview, apply } = self else { return EffectiveArguments::AsSent };
        match arguments.value().get(arg) {
            Some(given) if given == preview || given == apply => EffectiveArguments::AsSent,
            // Clients of typed languages write null for an argument that is not given.
            None | Some(Value::Null) => {
                EffectiveArguments::Completed(arguments.clone().with(arg, apply.clone()))
            }
            Some(_) => EffectiveArguments::Unclear { arg: arg.clone() },
        }
    }

    /// Whether the call itself says that it is a preview. It never becomes the real call.
    pub fn is_asked_for(&self, arguments: &Arguments) -> bool {
        match self {
            PreviewStyle::Argument { arg, preview, .. } => arguments.value().get(arg) == Some(preview),
            PreviewStyle::Companion { .. } | PreviewStyle::Command(_) | PreviewStyle::Computed => false,
        }
    }

    /// The real call's arguments without the one that says apply; none where there is no such argument.
    pub fn without_apply(&self, arguments: &Arguments) -> Option<Arguments> {
        match self {
            PreviewStyle::Argument { arg, apply, .. } if arguments.value().get(arg) == Some(apply) => {
                Some(arguments.clone().without(arg))
            }
            PreviewStyle::Argument { .. }
            | PreviewStyle::Companion { .. }
            | PreviewStyle::Command(_)
            | PreviewStyle::Computed => None,
        }
    }

    /// The arguments of the dry run.
    pub fn for_preview(&self, arguments: &Arguments) -> Arguments {
        match self {
            PreviewStyle::Argument { arg, preview, .. } => arguments.clone().with(arg, preview.clone()),
            PreviewStyle::Companion { .. } | PreviewStyle::Command(_) | PreviewStyle::Computed => {
                arguments.clone()
            }
        }
    }
}

/// What people read of a step without a preview yet.
pub const WHEN_REACHED: &str =
    "previewed when reached: what it would do can't be seen before the steps above it have run";

/// The preview computed from the call itself: tool, effect, who, arguments, declared reason, target.
pub fn computed(call: &ToolCall, effect: Effect, intent: Option<&Intent>, record: &CallRecord) -> Preview {
    let note = "the upstream offers no dry run: this is computed from the call";
    of_call(PreviewSource::Computed, note, call, effect, intent, record)
}

/// Stands for the preview of a step that can't be previewed before the steps above it have run. The mark is part of its digest,
/// and so of the plan's hash.
pub fn when_reached(
    call: &ToolCall,
    effect: Effect,
    intent: Option<&Intent>,
    record: &CallRecord,
) -> Preview {
    of_call(PreviewSource::WhenReached, WHEN_REACHED, call, effect, intent, record)
}

fn of_call(
    source: PreviewSource,
    note: &str,
    call: &ToolCall,
    effect: Effect,
    intent: Option<&Intent>,
    record: &CallRecord,
) -> Preview {
    let shown_arguments = &record.arguments;
    // The preview's digest is shown and recorded: what is hidden must not be found from it by trying.
    let digest = record.hash_salt.map_or_else(
        || call.arguments.digest(),
        |salt| HiddenArguments::salted(salt, &call.arguments).digest,
    );
    let mut decisive = json!({"tool": call.name.to_string(), "effect": effect, "arguments_digest": digest});
    if let (PreviewSource::WhenReached, Some(members)) = (source, decisive.as_object_mut()) {
        members.insert("previewed".into(), source.as_str().into());
    }
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
    shown.insert("note".into(), note.into());
    Preview::new(source, Value::Object(shown), &decisive)
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

/// The target of the call, for readers who do not see its arguments.
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
            let expect =
                PreviewStyle::Argument { arg: name.into(), preview: true.into(), apply: false.into() };
            assert_eq!(found, expect);
        }
        // By its name alone nothing is a dry run, and `preview` not even by its description.
        let bare = json!({"type": "boolean"});
        for (name, property) in [("dry_run", &bare), ("dryRun", &bare), ("preview", &bare), ("preview", &dry)]
        {
            assert_eq!(
                style(&tool(json!({"properties": {name: property}})), None),
                PreviewStyle::Computed,
                "{name}"
            );
        }
        let offered = tool(json!({"properties": {"dry_run": dry}}));
        assert_eq!(style(&offered, Some(&PreviewStyle::Computed)), PreviewStyle::Computed);
        let named =
            PreviewStyle::Argument { arg: "preview".into(), preview: true.into(), apply: false.into() };
        assert_eq!(style(&tool(json!({"properties": {"preview": bare}})), Some(&named)), named);
    }

    #[test]
    fn attack_01_an_argument_that_was_given_is_never_turned_around() {
        let style =
            PreviewStyle::Argument { arg: "preview".into(), preview: true.into(), apply: false.into() };
        let effective = |text: &str| style.effective(&Arguments::parse(text.as_bytes()).unwrap());
        let given = Arguments::parse(br#"{"id":1}"#).unwrap();
        assert_eq!(style.for_preview(&given).canonical(), r#"{"id":1,"preview":true}"#);
        let completed = |text: &str| match effective(text) {
            EffectiveArguments::Completed(arguments) => arguments.canonical().to_owned(),
            other @ (EffectiveArguments::AsSent | EffectiveArguments::Unclear { .. }) => panic!("{other:?}"),
        };
        assert_eq!(completed(r#"{"id":1}"#), r#"{"id":1,"preview":false}"#);
        assert_eq!(completed(r#"{"id":1,"preview":null}"#), r#"{"id":1,"preview":false}"#);
        assert_eq!(effective(r#"{"id":1,"preview":true}"#), EffectiveArguments::AsSent);
        assert_eq!(effective(r#"{"id":1,"preview":false}"#), EffectiveArguments::AsSent);
        assert_eq!(
            effective(r#"{"id":1,"preview":"true"}"#),
            EffectiveArguments::Unclear { arg: "preview".into() }
        );
        assert_eq!(
            effective(r#"{"id":1,"preview":1}"#),
            EffectiveArguments::Unclear { arg: "preview".into() }
        );
    }
}
