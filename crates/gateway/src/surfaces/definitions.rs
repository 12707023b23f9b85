//! Our own tools as hosts see them: names, titles, schemas, explicit annotations.

use std::borrow::Cow;
use std::sync::LazyLock;

use countersign_mcp::raw;
use countersign_policy::intent::CallToolVariant;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::RawToolDefinition;
use crate::cards::{CardSupport, PLAN, RESULT, linked};
use crate::instructions::ReachableUpstreams;

/// The call tool of this name.
pub fn variant(name: &str) -> Option<CallToolVariant> {
    CallToolVariant::ALL.iter().copied().find(|variant| variant.call_tool() == name)
}

/// `usage_instructions` of `retrieve_tools`.
pub const USAGE: &str = "Use call_tool_read for read-only operations, call_tool_write for modifications, \
    call_tool_destructive for deletions. Intent must match tool variant.";

/// The three call tools and the search.
pub static ROUTER: LazyLock<Vec<RawToolDefinition>> = LazyLock::new(|| {
    let call = |variant: CallToolVariant, title: &str, text: &str| {
        definition(
            variant.call_tool(),
            title,
            &match variant {
                CallToolVariant::Read => format!("{text} {FINDING}"),
                CallToolVariant::Write | CallToolVariant::Destructive => {
                    format!("{text} {FINDING} {COACHING}")
                }
            },
            &call_schema(variant),
            hints(variant == CallToolVariant::Read, variant == CallToolVariant::Destructive, true),
        )
    };
    vec![
        call(CallToolVariant::Read, "Run a read-only tool", "Runs an upstream tool that only reads."),
        call(
            CallToolVariant::Write,
            "Run a tool that changes something",
            "Runs an upstream tool that changes something.",
        ),
        call(
            CallToolVariant::Destructive,
            "Run a destructive tool",
            "Runs an upstream tool that deletes or overwrites.",
        ),
    ]
});

const FINDING: &str = "Find tools and the right call tool with retrieve_tools. Declare the operation twice: by this \
    tool and by intent.operation_type.";

/// What a tool says that may be followed as a task.
pub(crate) static MAY_BE_TASK: LazyLock<RawToolDefinition> =
    LazyLock::new(|| raw::to_raw(&json!({"taskSupport": "optional"})));

/// What to do after a preview. It leads with the host that shows no card: nobody may wait for a click that can't come.
const COACHING: &str = "An answer with status confirmation_required is a preview: nothing has changed. If no card is shown, \
    summarise the preview, end the turn and ask the user; after a yes repeat the same call with confirm_token and yes=true. If a \
    card is shown, end the turn without repeating it or asking again. On a message `Apply: call …` re-issue exactly that call. On \
    `Cancel: …` acknowledge briefly and don't re-issue. Where \
    the answer has approve_command, a yes in the chat is not enough: name it and approve_url to the user; the same call runs once \
    that was approved, and get_plan with wait_seconds tells when.";

/// What the argument `countersign` of the direct surface takes.
pub(crate) const DIRECT_USAGE: &str = "Every tool takes one more optional argument, \
    countersign={mode, intent: {operation_type, data_sensitivity, reason}, confirm_token, yes, confirm_text, wait_seconds}; it is \
    the gateway's and never reaches the tool.";

/// The same for tools on the direct surface, said once.
pub(crate) const DIRECT_COACHING: &str = "The first call of a tool that changes something answers with a preview and status \
    confirmation_required, and nothing has changed. If no card is shown, summarise the preview, end the turn and ask the user; after \
    a yes repeat the same call with countersign={confirm_token, yes: true}. If a card is shown, end the turn without repeating it or \
    asking again. On a message `Apply: call …` re-issue exactly that call. On `Cancel: …` acknowledge briefly and don't re-issue. Where \
    the answer has approve_command, a yes in the chat is not enough: name it to the user; the same call runs once that was approved.";

/// A definition of ours as a client gets it: with the link to its card where it has one and the client shows cards.
pub(crate) fn carded(definition: &RawToolDefinition, cards: CardSupport) -> Cow<'_, RawValue> {
    let card = match raw::get_str(definition, "name").as_deref() {
        Some("call_tool_write" | "call_tool_destructive" | "draft_plan") => PLAN,
        Some("run_plan") => RESULT,
        _ => return Cow::Borrowed(definition),
    };
    match cards {
        CardSupport::Shown => Cow::Owned(linked(definition, card)),
        CardSupport::Hidden => Cow::Borrowed(definition),
    }
}

/// A definition of ours that leads to upstreams' tools, with their names: a host that searches its tools finds it by them.
pub(crate) fn naming<'d>(definition: Cow<'d, RawValue>, upstreams: &ReachableUpstreams) -> Cow<'d, RawValue> {
    let named = match raw::get_str(&definition, "name").as_deref() {
        Some("retrieve_tools") => upstreams.with_tools(LONGEST_PURPOSES),
        Some(name) if variant(name).is_some() => upstreams.names(LONGEST_NAMES),
        _ => return definition,
    };
    let said = raw::get_str(&definition, "description").filter(|_| !named.is_empty());
    let said = said.map(|said| raw::to_raw(&format!("{said} Upstreams: {named}.")));
    match said.and_then(|said| raw::set(&definition, "description", &said)) {
        Some(definition) => Cow::Owned(definition),
        None => definition,
    }
}

/// The most characters upstreams and their tools take in the description of `retrieve_tools`.
const LONGEST_PURPOSES: usize = 600;
/// The most characters their names take in that of a call tool.
const LONGEST_NAMES: usize = 160;

/// Tools of ours on both surfaces.
pub static OWN: LazyLock<Vec<RawToolDefinition>> = LazyLock::new(|| {
    let read = || hints(true, false, false);
    let act = || hints(false, false, false);
    vec![
        definition(
            "retrieve_tools",
            "Find tools",
            "Finds upstream tools by what they do. Each result says which call tool to use (call_with), its effect and \
             what confirmation it needs.",
            &object(&[
                (
                    "query",
                    json!({"type": "string", "description": "what the tool should do; empty lists all"}),
                    true,
                ),
                ("limit", json!({"type": "integer", "minimum": 1, "maximum": 100, "default": 15}), false),
                ("effect", json!({"type": "string", "enum": ["read", "write", "destructive"]}), false),
                ("upstream", json!({"type": "string", "description": "only tools of this upstream"}), false),
                (
                    "detail",
                    json!({"type": "string", "enum": ["full"], "description": "all results in full, not the first 5"}),
                    false,
                ),
            ]),
            read(),
        ),
        definition(
            "set_mode",
            "Set the mode",
            "Sets what may happen on this session: ask (inspect), plan (preview), execute (change).",
            &object(&[("mode", json!({"type": "string", "enum": ["ask", "plan", "execute"]}), true)]),
            act(),
        ),
        definition(
            "draft_plan",
            "Draft a plan of several steps",
            "Drafts one plan for several calls, which may depend on each other: every step is judged and previewed, and the whole \
             is confirmed once. In plan mode it only previews. In execute mode the answer asks for confirmation. If no card is shown, show every \
             step, end the turn, and after the user agreed call run_plan with plan_id, confirm_token and yes=true. If a card is \
             shown, end the turn. On a message `Apply: call run_plan(…)` make exactly that call; on `Cancel: …` acknowledge, \
             don't run it.",
            &object(&[
                ("title", json!({"type": "string", "maxLength": 200}), true),
                ("reason", json!({"type": "string", "maxLength": 1000}), false),
                (
                    "steps",
                    json!({
                        "type": "array",
                        "minItems": 1,
                        "maxItems": 50,
                        "items": {
                            "type": "object",
                            "properties": {
                                "name": {"type": "string", "description": "the tool as upstream:tool"},
                                "args": {"type": "object"},
                                "intent": {
                                    "type": "object",
                                    "properties": {
                                        "operation_type": {"type": "string", "enum": ["read", "write", "destructive"]},
                                        "data_sensitivity": {"type": "string"},
                                        "reason": {"type": "string", "maxLength": 1000},
                                    },
                                    "required": ["operation_type"],
                                },
                            },
                            "required": ["name", "intent"],
                        },
                    }),
                    true,
                ),
                ("wait_seconds", json!({"type": "number", "minimum": 0, "maximum": 600}), false),
            ]),
            act(),
        ),
        definition(
            "run_plan",
            "Run a confirmed plan",
            "Runs a plan after it was confirmed. A single call's plan answers as that call would, without its arguments again; the \
             steps of a drafted plan run in order, stop at the first failure, and each is said to be done, failed or not run.",
            &object(&[
                ("plan_id", json!({"type": "string"}), true),
                ("confirm_token", json!({"type": "string"}), false),
                ("yes", json!({"type": "boolean"}), false),
                ("confirm_text", json!({"type": "string"}), false),
                ("preview", json!({"type": "boolean", "description": "false, as cards say it"}), false),
            ]),
            hints(false, true, true),
        ),
        definition(
            "get_status",
            "Status",
            "Says who is on the line, the mode, the surface, the upstreams' health and the pending plans.",
            &object(&[]),
            read(),
        ),
        definition(
            "get_plan",
            "What became of a plan",
            "Says what became of a plan, with the result if it ran. With wait_seconds it waits for a decision.",
            &object(&[
                ("plan_id", json!({"type": "string"}), true),
                ("wait_seconds", json!({"type": "number", "minimum": 0, "maximum": 600}), false),
            ]),
            read(),
        ),
        definition(
            "cancel_plan",
            "Withdraw a plan",
            "Withdraws a plan of this session that has not run.",
            &object(&[("plan_id", json!({"type": "string"}), true)]),
            act(),
        ),
        definition(
            "list_runs",
            "Background runs",
            "Lists background runs, newest first.",
            &object(&[(
                "limit",
                json!({"type": "integer", "minimum": 1, "maximum": 100, "default": 20}),
                false,
            )]),
            read(),
        ),
        definition(
            "get_run",
            "One background run",
            "Says how a background run stands, with the last lines of its log. With wait_seconds it waits for its end and \
             tells progress meanwhile.",
            &object(&[
                ("run_id", json!({"type": "string"}), true),
                ("tail", json!({"type": "integer", "minimum": 0, "maximum": 1000, "default": 50}), false),
                ("wait_seconds", json!({"type": "number", "minimum": 0, "maximum": 600}), false),
            ]),
            read(),
        ),
    ]
});

fn definition(
    name: &str,
    title: &str,
    description: &str,
    schema: &Value,
    annotations: Value,
) -> RawToolDefinition {
    let mut annotations = annotations;
    if let Some(members) = annotations.as_object_mut() {
        members.insert("title".into(), title.into());
    }
    raw::to_raw(&json!({
        "name": name,
        "title": title,
        "description": description,
        "inputSchema": schema,
        "annotations": annotations,
    }))
}

fn hints(read_only: bool, destructive: bool, open_world: bool) -> Value {
    json!({"readOnlyHint": read_only, "destructiveHint": destructive, "openWorldHint": open_world})
}

fn object(fields: &[(&str, Value, bool)]) -> Value {
    let properties: serde_json::Map<String, Value> =
        fields.iter().map(|(name, schema, _)| ((*name).to_owned(), schema.clone())).collect();
    let required: Vec<&str> =
        fields.iter().filter(|(_, _, required)| *required).map(|(name, _, _)| *name).collect();
    json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false})
}

fn call_schema(variant: CallToolVariant) -> Value {
    let operation = variant.operation().as_str();
    let sensitivity = json!({"type": "string", "enum": ["public", "internal", "private", "unknown"]});
    object(&[
        ("name", json!({"type": "string", "description": "the tool as upstream:tool"}), true),
        ("args", json!({"type": "object", "description": "the tool's arguments"}), false),
        ("args_json", json!({"type": "string", "description": "args as JSON text"}), false),
        (
            "intent",
            json!({
                "type": "object",
                "properties": {
                    "operation_type": {"type": "string", "enum": ["read", "write", "destructive"],
                        "description": format!("must be `{operation}` here")},
                    "data_sensitivity": sensitivity,
                    "reason": {"type": "string", "maxLength": 1000},
                },
            }),
            false,
        ),
        (
            "intent_operation_type",
            json!({"type": "string", "description": "flat form of intent.operation_type"}),
            false,
        ),
        ("intent_data_sensitivity", sensitivity, false),
        ("intent_reason", json!({"type": "string", "maxLength": 1000}), false),
        (
            "mode",
            json!({"type": "string", "enum": ["ask", "plan", "execute"], "description": "for this call only"}),
            false,
        ),
        ("preview", json!({"type": "boolean", "description": "true is the same as mode=plan"}), false),
        (
            "confirm_token",
            json!({"type": "string", "description": "from the answer that asked for confirmation"}),
            false,
        ),
        (
            "yes",
            json!({"type": "boolean", "description": "the user agreed to the plan that was shown"}),
            false,
        ),
        (
            "confirm_text",
            json!({"type": "string", "description": "the name the user typed to confirm"}),
            false,
        ),
        (
            "wait_seconds",
            json!({"type": "number", "minimum": 0, "maximum": 600,
            "description": "wait this long for a person to decide"}),
            false,
        ),
    ])
}
