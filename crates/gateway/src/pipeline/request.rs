//! Reads tool calls from the bytes of their requests, strictly. Calls of the router's call tools and of direct tools get the same
//! form. Refusals name the field; nothing is decided here.

use countersign_mcp::raw::{self, RawJson};
use countersign_policy::call::{ArgumentFault, Arguments};
use countersign_policy::confirm::ConfirmInput;
use countersign_policy::fold::lookalike;
use countersign_policy::ids::FullName;
use countersign_policy::intent::{CallEntryPoint, CallToolVariant, UncheckedIntent};
use countersign_policy::nearest::nearest;
use countersign_policy::refusal::{Code, Refusal};
use countersign_policy::strict_json;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::surfaces::LONGEST_NAME;

/// A tool call as it was sent.
#[derive(Debug)]
pub struct ToolCallRequest {
    /// The command name of our own answers, such as `call_tool_write`.
    pub command: String,
    pub entry_point: CallEntryPoint,
    pub name: FullName,
    pub arguments: Arguments,
    pub intent: UncheckedIntent,
    pub mode: Option<String>,
    pub confirm_input: ConfirmInput,
    /// How long the call may be held open.
    pub wait_seconds: Option<f64>,
    /// The params of `tools/call`: which members are sent along is chosen at dispatch.
    pub params: Option<RawJson>,
}

const ROUTER_FIELDS: [&str; 13] = [
    "name",
    "args",
    "args_json",
    "intent",
    "intent_operation_type",
    "intent_data_sensitivity",
    "intent_reason",
    "mode",
    "preview",
    "confirm_token",
    "yes",
    "confirm_text",
    "wait_seconds",
];

const DIRECT_FIELDS: [&str; 7] =
    ["mode", "intent", "confirm_token", "yes", "confirm_text", "wait_seconds", "preview"];

/// The refusal of a field.
pub fn invalid(field: &str, why: impl std::fmt::Display) -> Refusal {
    Refusal::new(Code::ArgumentsInvalid, format!("`{field}` {why}")).with("field", field)
}

fn not_strict(field: &str, fault: &ArgumentFault) -> Refusal {
    match fault {
        ArgumentFault::NotStrict(_) => invalid(field, fault).because("arguments_not_strict"),
        ArgumentFault::NotAnObject => invalid(field, "must be an object"),
    }
}

/// The members of an object of ours, each read strictly; unknown and repeated names are refused.
fn fields(
    object: &RawValue,
    known: &[&str],
    skip: &[&str],
    inside: &str,
) -> Result<Map<String, Value>, Refusal> {
    let mut read = Map::new();
    for (name, value) in raw::members(object) {
        let shown = format!("{inside}{name}");
        // A mistyped `confirm_token` that was ignored would turn a confirmed call into a new plan.
        if !known.contains(&name.as_ref()) {
            let near = nearest(&name, known.iter().copied());
            let why = match near {
                Some(near) => format!("is not known here; did you mean `{inside}{near}`?"),
                None => "is not known here".to_owned(),
            };
            return Err(invalid(&shown, why));
        }
        // `args` keeps its bytes: it is parsed once, later, by the reader whose text is hashed and sent.
        let value = if skip.contains(&name.as_ref()) {
            Value::Null
        } else {
            strict_json::parse(value.get().as_bytes())
                .map_err(|fault| invalid(&shown, fault).because("arguments_not_strict"))?
        };
        if read.insert(name.clone().into_owned(), value).is_some() {
            return Err(invalid(&shown, "is given twice").because("arguments_not_strict"));
        }
    }
    Ok(read)
}

fn text(fields: &Map<String, Value>, name: &str, inside: &str) -> Result<Option<String>, Refusal> {
    match fields.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(_) => Err(invalid(&format!("{inside}{name}"), "must be a string")),
    }
}

fn truth(fields: &Map<String, Value>, name: &str, inside: &str) -> Result<Option<bool>, Refusal> {
    match fields.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Bool(truth)) => Ok(Some(*truth)),
        Some(_) => Err(invalid(&format!("{inside}{name}"), "must be true or false")),
    }
}

fn seconds(fields: &Map<String, Value>, inside: &str) -> Result<Option<f64>, Refusal> {
    match fields.get("wait_seconds") {
        None | Some(Value::Null) => Ok(None),
        Some(value) => match value.as_f64() {
            Some(wait) if (0.0..=600.0).contains(&wait) => Ok(Some(wait)),
            _ => Err(invalid(&format!("{inside}wait_seconds"), "must be a number from 0 to 600")),
        },
    }
}

/// The mode a call asks for: `mode`, or `preview: true`, which is the same as plan.
fn mode(fields: &Map<String, Value>, inside: &str) -> Result<Option<String>, Refusal> {
    let mode = text(fields, "mode", inside)?;
    match (truth(fields, "preview", inside)?, mode) {
        (Some(true), None) => Ok(Some("plan".to_owned())),
        (Some(true), Some(mode)) if mode != "plan" => {
            Err(invalid(&format!("{inside}preview"), format_args!("and mode `{mode}` disagree")))
        }
        (_, mode) => Ok(mode),
    }
}

impl ToolCallRequest {
    /// Reads a router call: `call_tool_read|write|destructive`. `params` are those of `tools/call`.
    pub(crate) fn from_router(
        variant: CallToolVariant,
        params: &RawValue,
    ) -> Result<Self, (Option<FullName>, Refusal)> {
        let none = raw::empty_object();
        let given = raw::get(params, "arguments").unwrap_or(&none);
        // Read apart from the rest, so that the row of a malformed call still names the tool.
        let named = raw::get_str(given, "name").filter(|name| name.len() <= LONGEST_NAME);
        let named = named.map(|name| full_name(&name));
        Self::read_router(variant, params, given).map_err(|refusal| (named, refusal))
    }

    fn read_router(variant: CallToolVariant, params: &RawValue, given: &RawValue) -> Result<Self, Refusal> {
        if !raw::is_object(given) {
            return Err(invalid("arguments", "must be an object"));
        }
        // Before the name is used: a repeated name must be refused, not resolved.
        let fields = fields(given, &ROUTER_FIELDS, &["args"], "")?;
        let name = match fields.get("name") {
            Some(Value::String(name)) if name.len() > LONGEST_NAME => {
                return Err(invalid("name", format_args!("is longer than {LONGEST_NAME} bytes")));
            }
            Some(Value::String(name)) if !name.trim().is_empty() => full_name(name),
            None => return Err(invalid("name", "is required: the tool as `upstream:tool`")),
            Some(_) => return Err(invalid("name", "must be a string such as `upstream:tool`")),
        };
        let arguments = match (raw::get(given, "args"), text(&fields, "args_json", "")?) {
            // Two sources of arguments are two readings: one could be shown and the other sent.
            (Some(_), Some(_)) => return Err(invalid("args_json", "and `args` exclude each other")),
            (Some(args), None) if args.get() == "null" => Arguments::none(),
            (Some(args), None) => {
                Arguments::parse(args.get().as_bytes()).map_err(|fault| not_strict("args", &fault))?
            }
            (None, Some(args)) => {
                Arguments::parse(args.as_bytes()).map_err(|fault| not_strict("args_json", &fault))?
            }
            (None, None) => Arguments::none(),
        };
        Ok(Self {
            command: variant.call_tool().to_owned(),
            entry_point: CallEntryPoint::Router(variant),
            name,
            arguments,
            intent: UncheckedIntent::read(&fields)?,
            mode: mode(&fields, "")?,
            confirm_input: ConfirmInput {
                token: text(&fields, "confirm_token", "")?,
                yes: truth(&fields, "yes", "")?,
                text: text(&fields, "confirm_text", "")?,
            },
            wait_seconds: seconds(&fields, "")?,
            params: Some(params.to_owned()),
        })
    }

    /// Reads a direct call. `accepts_preview` tells whether the tool has a `preview` argument of its own; if it has
    /// none, `preview` is accepted and removed, because cards send it; `true` then means mode plan.
    pub(crate) fn from_direct(
        name: FullName,
        accepts_preview: bool,
        params: &RawValue,
    ) -> Result<Self, Refusal> {
        let none = raw::empty_object();
        let given = match raw::get(params, "arguments") {
            Some(given) if given.get() == "null" => &none,
            Some(given) => given,
            None => &none,
        };
        if !raw::is_object(given) {
            return Err(invalid("arguments", "must be an object"));
        }
        // A lookalike would reach the upstream as an argument and look like our property to a person.
        if let Some(name) = raw::names(given).find(|name| lookalike(name, ["countersign"]).is_some()) {
            let why = "differs from `countersign` only by case";
            return Err(invalid(&name, why).because("arguments_not_strict"));
        }
        // Before our property is removed: of two equal names, another reader would take the other one.
        if let Some(name) = crate::members::first_repeated_name(given) {
            let why =
                format!("has `{}` twice, or once more in another case", crate::escape::excerpt(&name, 200));
            return Err(invalid("arguments", why).because("arguments_not_strict"));
        }
        let ours = match raw::get(given, "countersign") {
            None => Map::new(),
            Some(ours) if raw::is_object(ours) => fields(ours, &DIRECT_FIELDS, &[], "countersign.")?,
            Some(_) => return Err(invalid("countersign", "must be an object")),
        };
        let mut sent = raw::remove(given, "countersign").unwrap_or_else(|| given.to_owned());
        let own = if accepts_preview { None } else { raw::get(&sent, "preview").map(|value| value.get()) };
        let asks_preview = own == Some("true");
        if matches!(own, Some("true" | "false")) {
            sent = raw::remove(&sent, "preview").unwrap_or(sent);
        }
        let arguments =
            Arguments::parse(sent.get().as_bytes()).map_err(|fault| not_strict("arguments", &fault))?;
        let inside = "countersign.";
        Ok(Self {
            command: name.to_string(),
            entry_point: CallEntryPoint::Direct,
            name,
            arguments,
            intent: UncheckedIntent::read(&ours)?,
            // A preview of a tool that has none is ours. It never becomes the real call.
            mode: match mode(&ours, inside)? {
                None if asks_preview => Some("plan".to_owned()),
                Some(mode) if asks_preview && mode != "plan" => {
                    return Err(invalid("preview", format_args!("and mode `{mode}` disagree")));
                }
                mode => mode,
            },
            confirm_input: ConfirmInput {
                token: text(&ours, "confirm_token", inside)?,
                yes: truth(&ours, "yes", inside)?,
                text: text(&ours, "confirm_text", inside)?,
            },
            wait_seconds: seconds(&ours, inside)?,
            params: Some(params.to_owned()),
        })
    }
}

/// The name as given; without a colon it is a tool of no upstream, which the catalogue will not know.
fn full_name(text: &str) -> FullName {
    text.parse().unwrap_or_else(|_| FullName::new("", text.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn router(arguments: Value) -> Result<ToolCallRequest, Refusal> {
        let params = raw::to_raw(&json!({"name": "call_tool_read", "arguments": arguments}));
        ToolCallRequest::from_router(CallToolVariant::Read, &params).map_err(|(_, refusal)| refusal)
    }

    fn field(result: Result<ToolCallRequest, Refusal>) -> String {
        result.unwrap_err().details["field"].as_str().unwrap().to_owned()
    }

    #[test]
    fn args_come_as_an_object_or_as_text_not_both() {
        assert_eq!(
            router(json!({"name": "a:b", "args": {"x": 1}})).unwrap().arguments.canonical(),
            r#"{"x":1}"#
        );
        assert_eq!(
            router(json!({"name": "a:b", "args_json": "{\"x\": 1}"})).unwrap().arguments.text(),
            r#"{"x": 1}"#
        );
        assert_eq!(router(json!({"name": "a:b"})).unwrap().arguments.canonical(), "{}");
        assert_eq!(field(router(json!({"name": "a:b", "args": {}, "args_json": "{}"}))), "args_json");
        assert_eq!(field(router(json!({"name": "a:b", "args": []}))), "args");
        assert_eq!(field(router(json!({"name": "a:b", "args_json": "{\"x\":1,\"x\":2}"}))), "args_json");
    }

    #[test]
    fn fields_are_named_when_they_are_wrong() {
        assert_eq!(field(router(json!({"args": {}}))), "name");
        assert_eq!(field(router(json!({"name": "a:b", "nmae": 1}))), "nmae");
        assert_eq!(field(router(json!({"name": "a:b", "yes": "true"}))), "yes");
        assert_eq!(field(router(json!({"name": "a:b", "wait_seconds": -1}))), "wait_seconds");
        assert_eq!(field(router(json!({"name": "a:b", "mode": "execute", "preview": true}))), "preview");
        let params = raw::from_text(r#"{"name":"t","arguments":{"name":"a:b","name":"c:d"}}"#).unwrap();
        assert_eq!(
            ToolCallRequest::from_router(CallToolVariant::Read, &params).unwrap_err().1.details["field"],
            "name"
        );
    }

    #[test]
    fn preview_true_is_plan_mode_and_preview_false_changes_nothing() {
        assert_eq!(router(json!({"name": "a:b", "preview": true})).unwrap().mode.as_deref(), Some("plan"));
        assert_eq!(router(json!({"name": "a:b", "preview": false})).unwrap().mode, None);
    }

    #[test]
    fn attack_03_what_is_ours_stands_once_in_the_arguments() {
        for given in [
            r#"{"preview":true,"preview":false}"#,
            r#"{"countersign":{"mode":"ask"},"countersign":{"mode":"execute"}}"#,
            r#"{"Countersign":{}}"#,
        ] {
            let params = raw::from_text(format!(r#"{{"name":"a__b","arguments":{given}}}"#)).unwrap();
            let refusal = ToolCallRequest::from_direct(FullName::new("a", "b"), false, &params).unwrap_err();
            assert_eq!(refusal.reason_code, "arguments_not_strict", "{given}");
        }
    }

    #[test]
    fn the_direct_property_is_removed_before_anything_sees_the_arguments() {
        let params = raw::from_text(
            r#"{"name":"a__b","arguments":{"z":1.0,"countersign":{"yes":true,"confirm_token":"t"},"preview":false},"_meta":{"k":1}}"#,
        )
        .unwrap();
        let asked = ToolCallRequest::from_direct(FullName::new("a", "b"), false, &params).unwrap();
        assert_eq!(asked.arguments.text(), r#"{"z":1.0}"#);
        assert_eq!(asked.confirm_input.token.as_deref(), Some("t"));
        let kept = ToolCallRequest::from_direct(FullName::new("a", "b"), true, &params).unwrap();
        assert_eq!(kept.arguments.canonical(), r#"{"preview":false,"z":1}"#);
    }
}
