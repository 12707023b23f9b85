//! Describes schema faults: where, as a JSON pointer, and what would be right. Never repeats a given value: it may be a secret.

use std::fmt::Write;

use countersign_policy::gate::SchemaFault;
use countersign_policy::words::plural;
use jsonschema::JsonType;
use jsonschema::error::{TypeKind, ValidationError, ValidationErrorKind as Kind};
use serde_json::Value;

use crate::escape;
use crate::upstreams::command::listing::{NO_FLAG, NO_NUL};

/// How much of a schema's own words is shown.
const SHOWN: usize = 120;
/// How many of the allowed values are named.
const NAMED: usize = 12;

/// One fault for each thing that is wrong.
pub(super) fn tell(error: &ValidationError<'_>) -> Vec<SchemaFault> {
    let place = error.instance_path().as_str();
    let at = |name: &str| format!("{place}/{}", name.replace('~', "~0").replace('/', "~1"));
    let fault = |field: String, why: String| SchemaFault { field: escape::excerpt(&field, SHOWN), why };
    let kind = error.kind();
    if let Kind::AdditionalProperties { unexpected } | Kind::UnevaluatedProperties { unexpected } = kind {
        return unexpected
            .iter()
            .map(|name| fault(at(name), "is not an argument of this tool".to_owned()))
            .collect();
    }
    let missing =
        if let Kind::Required { property: Value::String(name) } = kind { Some(at(name)) } else { None };
    let field = missing.unwrap_or_else(|| place.to_owned());
    vec![fault(field, why(kind))]
}

fn at_most(limit: u64, one: &str) -> String {
    let most = if limit == 0 { "" } else { "at most " };
    format!("must have {most}{}", plural(limit, one))
}

fn why(kind: &Kind) -> String {
    match kind {
        Kind::Type { kind } => format!("must be {}", types(kind)),
        Kind::Enum { options } => format!("must be one of {}", choices(options)),
        Kind::Constant { expected_value } => format!("must be {}", literal(expected_value)),
        Kind::MinLength { limit } => format!("must have at least {}", plural(*limit, "character")),
        Kind::MaxLength { limit } => at_most(*limit, "character"),
        // Patterns of ours for the arguments of commands, in words a caller can act on.
        Kind::Pattern { pattern } if *pattern == NO_FLAG => {
            "must not start with `-`, where it could be taken for a flag, nor hold a NUL character".to_owned()
        }
        Kind::Pattern { pattern } if *pattern == NO_NUL => "must not hold a NUL character".to_owned(),
        Kind::Pattern { pattern } => format!("must match the pattern `{}`", escape::excerpt(pattern, SHOWN)),
        Kind::Format { format } => format!("must be a valid `{}`", escape::excerpt(format, SHOWN)),
        Kind::Minimum { limit } => format!("must be at least {}", literal(limit)),
        Kind::Maximum { limit } => format!("must be at most {}", literal(limit)),
        Kind::ExclusiveMinimum { limit } => format!("must be more than {}", literal(limit)),
        Kind::ExclusiveMaximum { limit } => format!("must be less than {}", literal(limit)),
        Kind::MultipleOf { multiple_of } => format!("must be a multiple of {multiple_of}"),
        Kind::MinItems { limit } => format!("must have at least {}", plural(*limit, "item")),
        Kind::MaxItems { limit } => at_most(*limit, "item"),
        Kind::AdditionalItems { limit } => at_most(*limit as u64, "item"),
        Kind::UnevaluatedItems { .. } => "has items too many".to_owned(),
        Kind::UniqueItems => "must not hold anything twice".to_owned(),
        Kind::Contains => "does not hold an item it must".to_owned(),
        Kind::MinProperties { limit } => format!("must have at least {}", plural(*limit, "member")),
        Kind::MaxProperties { limit } => at_most(*limit, "member"),
        Kind::AdditionalProperties { .. } | Kind::UnevaluatedProperties { .. } => {
            "has members too many".to_owned()
        }
        Kind::Required { .. } => "is required".to_owned(),
        Kind::PropertyNames { error } => format!("has a name that {}", why(error.kind())),
        Kind::AnyOf { .. } | Kind::OneOfNotValid { .. } => "fits none of the allowed forms".to_owned(),
        Kind::OneOfMultipleValid { .. } => "fits more than one of the allowed forms".to_owned(),
        Kind::Not { .. } => "has a form that is not allowed".to_owned(),
        Kind::FalseSchema => "is not allowed".to_owned(),
        Kind::ContentEncoding { content_encoding } => {
            format!("must be encoded as `{}`", escape::excerpt(content_encoding, SHOWN))
        }
        Kind::ContentMediaType { content_media_type } => {
            format!("must be of type `{}`", escape::excerpt(content_media_type, SHOWN))
        }
        Kind::FromUtf8 { .. } => "must hold text".to_owned(),
        Kind::BacktrackLimitExceeded { .. } | Kind::RegexEngineFailure { .. } => {
            "cannot be checked: its pattern takes too long".to_owned()
        }
        Kind::Custom { .. } | Kind::Referencing(_) => "cannot be checked".to_owned(),
    }
}

fn types(kind: &TypeKind) -> String {
    match kind {
        TypeKind::Single(one) => noun(*one).to_owned(),
        TypeKind::Multiple(several) => {
            let mut all: Vec<JsonType> = several.iter().collect();
            // What is wanted first, nothing last.
            all.sort_unstable_by_key(|one| *one == JsonType::Null);
            all.into_iter().map(noun).collect::<Vec<_>>().join(" or ")
        }
    }
}

fn noun(one: JsonType) -> &'static str {
    match one {
        JsonType::Null => "null",
        JsonType::Boolean => "true or false",
        JsonType::Integer => "a whole number",
        JsonType::Number => "a number",
        JsonType::String => "a string",
        JsonType::Array => "a list",
        JsonType::Object => "an object",
    }
}

fn choices(options: &Value) -> String {
    let all: &[Value] = options.as_array().map(Vec::as_slice).unwrap_or_default();
    let mut text: String = all.iter().take(NAMED).map(literal).collect::<Vec<_>>().join(", ");
    if all.len() > NAMED {
        let _ = write!(text, " and {} more", all.len() - NAMED);
    }
    text
}

fn literal(value: &Value) -> String {
    escape::excerpt(&value.to_string(), SHOWN)
}
