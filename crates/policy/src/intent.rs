//! Intent: the second key. The agent chooses a call tool and declares the same operation in words;
//! both spellings are read here, and the messages are the contract's to the letter.

use serde::Serialize;
use serde_json::{Map, Value};

use crate::effect::{AnnotationClaim, Effect};
use crate::ids::FullName;
use crate::refusal::{Code, Refusal};
use crate::words::{UnknownWord, words};

words! {
    /// Which of the three ways to run a tool was used.
    pub enum CallToolVariant("variant") {
        Read = "read",
        Write = "write",
        Destructive = "destructive",
    }
}

impl CallToolVariant {
    pub const fn call_tool(self) -> &'static str {
        match self {
            CallToolVariant::Read => "call_tool_read",
            CallToolVariant::Write => "call_tool_write",
            CallToolVariant::Destructive => "call_tool_destructive",
        }
    }

    /// The operation the variant stands for.
    pub const fn operation(self) -> Effect {
        match self {
            CallToolVariant::Read => Effect::Read,
            CallToolVariant::Write => Effect::Write,
            CallToolVariant::Destructive => Effect::Destructive,
        }
    }

    /// The variant to call a tool of this effect with.
    pub const fn for_effect(effect: Effect) -> Self {
        match effect {
            Effect::Read => CallToolVariant::Read,
            Effect::Write => CallToolVariant::Write,
            Effect::Destructive => CallToolVariant::Destructive,
        }
    }
}

words! {
    /// How sensitive the agent says the data is.
    pub enum DataSensitivity("data_sensitivity") {
        Public = "public",
        Internal = "internal",
        Private = "private",
        Unknown = "unknown",
    }
}

/// The longest reason, in characters.
pub const REASON_LIMIT: usize = 1000;

/// What the agent declared, well-formed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Intent {
    pub operation_type: Effect,
    /// `data_sensitivity`, where given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data_sensitivity: Option<DataSensitivity>,
    /// `reason`, where given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// The longest operation or sensitivity a row keeps, in characters.
const WORD_LIMIT: usize = 64;

/// What was declared, as a row keeps it: as it was given, valid or not, cut to a bounded length.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DeclaredIntent {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operation_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data_sensitivity: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl DeclaredIntent {
    /// What arguments that could not be read as a call declare, in either spelling; the nested one wins. None where they
    /// declare nothing.
    pub fn found_in(arguments: &Map<String, Value>) -> Option<Self> {
        let mut fields = match arguments.get("intent") {
            Some(Value::Object(nested)) => nested.clone(),
            None | Some(Value::Null) => Map::new(),
            // Not an object, and still all that was said.
            Some(other) => Map::from_iter([("operation_type".to_owned(), other.clone())]),
        };
        for field in FIELDS {
            if let Some(flat) = arguments.get(&format!("intent_{field}")) {
                fields.entry(field).or_insert_with(|| flat.clone());
            }
        }
        Self::of_fields(&fields)
    }

    fn of_fields(fields: &Map<String, Value>) -> Option<Self> {
        let given = |name: &str, limit: usize| match fields.get(name) {
            None | Some(Value::Null) => None,
            Some(Value::String(text)) => Some(cut(text, limit)),
            Some(other) => Some(cut(&other.to_string(), limit)),
        };
        let declared = Self {
            operation_type: given("operation_type", WORD_LIMIT),
            data_sensitivity: given("data_sensitivity", WORD_LIMIT),
            reason: given("reason", REASON_LIMIT),
        };
        (declared != Self::default()).then_some(declared)
    }
}

/// A text of at most `limit` characters; an ellipsis stands for the rest.
pub(crate) fn cut(text: &str, limit: usize) -> String {
    match text.char_indices().nth(limit) {
        None => text.to_owned(),
        Some((at, _)) => format!("{}…", text.get(..at).unwrap_or_default()),
    }
}

/// The entry point of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CallEntryPoint {
    /// The router surface: two keys.
    Router(CallToolVariant),
    /// The direct surface: the tool itself, intent optional.
    Direct,
}

/// What was said about intent, in both spellings together; not yet judged.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct UncheckedIntent {
    fields: Option<Map<String, Value>>,
}

const FIELDS: [&str; 3] = ["operation_type", "data_sensitivity", "reason"];

fn invalid(field: &str, why: impl std::fmt::Display) -> Refusal {
    Refusal::new(Code::ArgumentsInvalid, format!("`{field}` {why}")).with("field", field)
}

impl UncheckedIntent {
    /// Reads nested `intent` and flat `intent_*` of a call tool's arguments; where both speak they must agree.
    pub fn read(arguments: &Map<String, Value>) -> Result<Self, Refusal> {
        let mut spoken = Self::default();
        match arguments.get("intent") {
            None | Some(Value::Null) => {}
            Some(Value::Object(nested)) => {
                for name in nested.keys() {
                    if !FIELDS.contains(&name.as_str()) {
                        return Err(invalid(&format!("intent.{name}"), "is not a field of an intent"));
                    }
                }
                let given = nested.iter().filter(|(_, value)| !value.is_null());
                spoken.fields = Some(given.map(|(name, value)| (name.clone(), value.clone())).collect());
            }
            Some(_) => return Err(invalid("intent", "must be an object")),
        }
        for field in FIELDS {
            let flat = format!("intent_{field}");
            let Some(value) = arguments.get(&flat).filter(|value| !value.is_null()) else { continue };
            let fields = spoken.fields.get_or_insert_default();
            match fields.get(field) {
                Some(nested) if nested != value => {
                    return Err(invalid(&flat, format_args!("and `intent.{field}` disagree")));
                }
                _ => fields.insert(field.to_owned(), value.clone()),
            };
        }
        Ok(spoken)
    }

    /// What was said, whether or not it is valid.
    pub fn given(&self) -> Option<DeclaredIntent> {
        self.fields.as_ref().and_then(DeclaredIntent::of_fields)
    }

    /// The first four rows of the table, then the optional fields. `None` only on the direct surface.
    pub fn declare(&self, entry_point: CallEntryPoint) -> Result<Option<Intent>, Refusal> {
        let Some(fields) = &self.fields else {
            return match entry_point {
                CallEntryPoint::Direct => Ok(None),
                CallEntryPoint::Router(variant) => Err(Refusal::new(
                    Code::IntentRequired,
                    format!("intent parameter is required for {}", variant.call_tool()),
                )),
            };
        };
        let operation_type = declared_operation(fields)?;
        if let CallEntryPoint::Router(variant) = entry_point
            && variant.operation() != operation_type
        {
            let message = format!(
                "Intent mismatch: tool is {} but intent declares {operation_type}",
                variant.call_tool()
            );
            return Err(Refusal::new(Code::IntentMismatch, message));
        }
        Ok(Some(Intent {
            operation_type,
            data_sensitivity: declared_sensitivity(fields)?,
            reason: declared_reason(fields)?,
        }))
    }
}

fn declared_operation(fields: &Map<String, Value>) -> Result<Effect, Refusal> {
    let shown = match fields.get("operation_type") {
        None => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    };
    if shown.is_empty() {
        return Err(Refusal::new(Code::IntentOperationRequired, "intent.operation_type is required"));
    }
    shown.parse().map_err(|UnknownWord { expected, .. }| {
        let shown = crate::refusal::brief(&shown);
        let message = format!("Invalid intent.operation_type '{shown}': must be {expected}");
        Refusal::new(Code::IntentOperationInvalid, message)
    })
}

fn declared_sensitivity(fields: &Map<String, Value>) -> Result<Option<DataSensitivity>, Refusal> {
    let Some(value) = fields.get("data_sensitivity") else { return Ok(None) };
    let known = value.as_str().and_then(|text| text.parse().ok());
    known
        .map(Some)
        .ok_or_else(|| invalid("intent.data_sensitivity", "must be public, internal, private, or unknown"))
}

fn declared_reason(fields: &Map<String, Value>) -> Result<Option<String>, Refusal> {
    match fields.get("reason") {
        None => Ok(None),
        Some(Value::String(text)) if text.chars().count() <= REASON_LIMIT => Ok(Some(text.clone())),
        Some(Value::String(text)) => Err(invalid(
            "intent.reason",
            format_args!("has {} characters; at most {REASON_LIMIT} are allowed", text.chars().count()),
        )),
        Some(_) => Err(invalid("intent.reason", "must be a string")),
    }
}

/// Whether annotations that contradict the intent refuse or warn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IntentStrictness {
    /// `strict_server_validation = true`: they refuse.
    Strict,
    /// `strict_server_validation = false`: they warn.
    Lenient,
}

/// The last row of the table: the declared operation against what the server or a rule says of the tool.
pub fn against_server(
    entry_point: CallEntryPoint,
    intent: Option<&Intent>,
    declared: AnnotationClaim,
    strictness: IntentStrictness,
    tool: &FullName,
) -> Result<Option<String>, Refusal> {
    let operation = match (entry_point, intent) {
        (CallEntryPoint::Router(variant), _) => variant.operation(),
        (CallEntryPoint::Direct, Some(intent)) => intent.operation_type,
        (CallEntryPoint::Direct, None) => return Ok(None),
    };
    match (operation, declared) {
        (Effect::Read | Effect::Write, AnnotationClaim::Destructive) => {
            let advice = match entry_point {
                CallEntryPoint::Router(_) => "use call_tool_destructive",
                CallEntryPoint::Direct => "declare operation_type destructive",
            };
            let message = format!("Tool '{tool}' is marked destructive by server, {advice}");
            match strictness {
                IntentStrictness::Strict => Err(Refusal::new(Code::IntentServerMismatch, message)),
                IntentStrictness::Lenient => Ok(Some(message)),
            }
        }
        (Effect::Write, AnnotationClaim::ReadOnly) => {
            Ok(Some(format!("Tool '{tool}' is marked read-only by server, call_tool_read would do")))
        }
        (Effect::Read, AnnotationClaim::ReadOnly | AnnotationClaim::Nothing)
        | (Effect::Write, AnnotationClaim::Nothing)
        | (
            Effect::Destructive,
            AnnotationClaim::Destructive | AnnotationClaim::ReadOnly | AnnotationClaim::Nothing,
        ) => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn declare(arguments: Value, entry_point: CallEntryPoint) -> Result<Option<Intent>, Refusal> {
        UncheckedIntent::read(arguments.as_object().unwrap())?.declare(entry_point)
    }

    #[test]
    fn messages_are_the_contract_to_the_letter() {
        let check = |arguments: Value, variant, code: Code, message: &str| {
            let refusal = declare(arguments, CallEntryPoint::Router(variant)).unwrap_err();
            assert_eq!((refusal.code, refusal.message.as_str()), (code, message));
        };
        check(
            json!({}),
            CallToolVariant::Read,
            Code::IntentRequired,
            "intent parameter is required for call_tool_read",
        );
        check(
            json!({"intent": {}}),
            CallToolVariant::Read,
            Code::IntentOperationRequired,
            "intent.operation_type is required",
        );
        check(
            json!({"intent_reason": "because"}),
            CallToolVariant::Write,
            Code::IntentOperationRequired,
            "intent.operation_type is required",
        );
        check(
            json!({"intent": {"operation_type": "unknown"}}),
            CallToolVariant::Read,
            Code::IntentOperationInvalid,
            "Invalid intent.operation_type 'unknown': must be read, write, or destructive",
        );
        check(
            json!({"intent": {"operation_type": "write"}}),
            CallToolVariant::Read,
            Code::IntentMismatch,
            "Intent mismatch: tool is call_tool_read but intent declares write",
        );
        check(
            json!({"intent_operation_type": "read"}),
            CallToolVariant::Destructive,
            Code::IntentMismatch,
            "Intent mismatch: tool is call_tool_destructive but intent declares read",
        );
    }

    #[test]
    fn the_server_row_is_the_contract_to_the_letter() {
        let tool = FullName::new("github", "delete_repo");
        let refusal = against_server(
            CallEntryPoint::Router(CallToolVariant::Read),
            None,
            AnnotationClaim::Destructive,
            IntentStrictness::Strict,
            &tool,
        )
        .unwrap_err();
        assert_eq!(
            refusal.message,
            "Tool 'github:delete_repo' is marked destructive by server, use call_tool_destructive"
        );
    }

    #[test]
    fn both_spellings_are_read_and_must_agree() {
        let expect = Intent {
            operation_type: Effect::Write,
            data_sensitivity: Some(DataSensitivity::Private),
            reason: Some("r".into()),
        };
        let router = CallEntryPoint::Router(CallToolVariant::Write);
        for arguments in [
            json!({"intent": {"operation_type": "write", "data_sensitivity": "private", "reason": "r"}}),
            json!({"intent_operation_type": "write", "intent_data_sensitivity": "private", "intent_reason": "r"}),
            json!({"intent": {"operation_type": "write"}, "intent_operation_type": "write",
                "intent_data_sensitivity": "private", "intent_reason": "r"}),
        ] {
            assert_eq!(declare(arguments, router).unwrap().as_ref(), Some(&expect));
        }
        let refusal =
            declare(json!({"intent": {"operation_type": "write"}, "intent_operation_type": "read"}), router)
                .unwrap_err();
        assert_eq!(refusal.code, Code::ArgumentsInvalid);
        assert_eq!(refusal.details["field"], "intent_operation_type");
    }

    #[test]
    fn optional_fields_are_checked_by_name() {
        let check = |arguments: Value, field: &str| {
            let refusal = declare(arguments, CallEntryPoint::Router(CallToolVariant::Read)).unwrap_err();
            assert_eq!(refusal.code, Code::ArgumentsInvalid);
            assert_eq!(refusal.details["field"], field);
        };
        check(
            json!({"intent": {"operation_type": "read", "data_sensitivity": "secret"}}),
            "intent.data_sensitivity",
        );
        check(json!({"intent": {"operation_type": "read", "reason": "x".repeat(1001)}}), "intent.reason");
        check(json!({"intent": {"operation_type": "read", "reson": "x"}}), "intent.reson");
        check(json!({"intent": "read"}), "intent");
        let fine = json!({"intent": {"operation_type": "read", "reason": "é".repeat(1000)}});
        assert!(declare(fine, CallEntryPoint::Router(CallToolVariant::Read)).is_ok());
    }

    #[test]
    fn the_direct_surface_needs_no_intent() {
        assert_eq!(declare(json!({}), CallEntryPoint::Direct), Ok(None));
        assert!(declare(json!({"intent": {"operation_type": "nope"}}), CallEntryPoint::Direct).is_err());
    }

    #[test]
    fn write_on_a_read_only_tool_warns() {
        let tool = FullName::new("a", "b");
        let router = CallEntryPoint::Router(CallToolVariant::Write);
        let warned =
            against_server(router, None, AnnotationClaim::ReadOnly, IntentStrictness::Strict, &tool).unwrap();
        assert!(warned.unwrap().contains("read-only"));
        let lenient =
            against_server(router, None, AnnotationClaim::Destructive, IntentStrictness::Lenient, &tool)
                .unwrap();
        assert!(lenient.unwrap().contains("destructive"));
    }
}
