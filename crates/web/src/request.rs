//! Reads request bodies, queries and path parameters strictly. Rejects unknown and repeated names and bodies that are too long,
//! and names the wrong field.

use axum::extract::{FromRequest, FromRequestParts, Path, Request};
use axum::http::request::Parts;
use axum::http::{StatusCode, header};
use countersign_gateway::http::{BodyError, read_body};
use countersign_policy::refusal::{Code, Refusal};
use countersign_policy::strict_json;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::response::ApiError;

const MOST_BODY_BYTES: usize = 1 << 20;

pub(crate) struct Body<T>(pub(crate) T);

pub(crate) struct QueryParams<T>(pub(crate) T);

/// The one parameter of a path.
pub(crate) struct PathName(pub(crate) String);

/// The refusal of a field: `` `field` why ``.
pub(crate) fn invalid(field: &str, why: impl std::fmt::Display) -> Refusal {
    Refusal::new(Code::ArgumentsInvalid, format!("`{field}` {why}")).with("field", field)
}

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Body<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, _: &S) -> Result<Self, ApiError> {
        let is_json = request.headers().get(header::CONTENT_TYPE).is_none_or(|kind| {
            let kind = kind.to_str().unwrap_or_default().split(';').next().unwrap_or_default();
            kind.trim().eq_ignore_ascii_case("application/json")
        });
        let bytes = read_body(request.into_body(), MOST_BODY_BYTES).await.map_err(|why| match why {
            BodyError::TooLong => {
                ApiError::from(invalid("body", format_args!("is longer than {MOST_BODY_BYTES} bytes")))
                    .status(StatusCode::PAYLOAD_TOO_LARGE)
            }
            BodyError::Cut => ApiError::from(invalid("body", "was cut off")),
            BodyError::Slow => {
                ApiError::from(invalid("body", "did not come in time")).status(StatusCode::REQUEST_TIMEOUT)
            }
        })?;
        if !is_json && !bytes.is_empty() {
            let refusal = invalid("body", "must be JSON, with content-type application/json");
            return Err(ApiError::from(refusal).status(StatusCode::UNSUPPORTED_MEDIA_TYPE));
        }
        // An empty body is an empty object: required fields are reported by name.
        let text: &[u8] = if bytes.is_empty() { b"{}" } else { &bytes };
        let value = strict_json::parse(text)
            .map_err(|fault| invalid("body", fault).because("arguments_not_strict"))?;
        read(value, "body").map(Self).map_err(ApiError::from)
    }
}

fn read<T: DeserializeOwned>(value: Value, what: &str) -> Result<T, Refusal> {
    if !value.is_object() {
        return Err(invalid(what, "must be an object"));
    }
    serde_json::from_value(value).map_err(|error| {
        let why = error.to_string();
        Refusal::new(Code::ArgumentsInvalid, format!("the {what} can't be read: {why}")).with("field", what)
    })
}

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for QueryParams<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        let mut given = Map::new();
        let text = parts.uri.query().unwrap_or_default();
        for (name, value) in form_urlencoded::parse(text.as_bytes()) {
            // An empty field of a form counts as left out.
            if value.is_empty() {
                continue;
            }
            if given.insert(name.clone().into_owned(), Value::from(value.into_owned())).is_some() {
                return Err(invalid(&name, "is given twice").into());
            }
        }
        read(Value::Object(given), "query").map(Self).map_err(ApiError::from)
    }
}

impl<S: Send + Sync> FromRequestParts<S> for PathName {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let Path(name) = Path::<String>::from_request_parts(parts, state)
            .await
            .map_err(|_| ApiError::from(invalid("path", "can't be read")))?;
        Ok(Self(name))
    }
}

/// Reads a whole number from the text of a query.
pub(crate) fn number<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<u32>, D::Error> {
    let text: Option<String> = serde::Deserialize::deserialize(from)?;
    let wrong = |text: &str| serde::de::Error::custom(format!("`{text}` is not a whole number"));
    text.map(|text| text.parse().map_err(|_| wrong(&text))).transpose()
}

/// Reads a word of a closed vocabulary.
pub(crate) fn word<T: std::str::FromStr>(name: &str, text: Option<&str>) -> Result<Option<T>, Refusal>
where
    T::Err: std::fmt::Display,
{
    text.map(|text| text.parse::<T>().map_err(|why| invalid(name, format_args!("is wrong: {why}"))))
        .transpose()
}

/// Checks a limit and applies the default.
pub(crate) fn limit(given: Option<u32>, default: u32) -> Result<u32, Refusal> {
    match given {
        None => Ok(default),
        Some(limit @ 1..=1000) => Ok(limit),
        Some(_) => Err(invalid("limit", "must be a number from 1 to 1000")),
    }
}
