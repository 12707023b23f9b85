//! What REST takes: bodies and queries, read strictly. Unknown names, names given twice and bodies too long are refused,
//! each with the field that is wrong.

use axum::extract::{FromRequest, FromRequestParts, Path, Request};
use axum::http::request::Parts;
use axum::http::{StatusCode, header};
use countersign_core::refusal::{Code, Refusal};
use countersign_core::strict_json;
use countersign_gateway::http::{NoBody, read_body};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::told::No;

/// The longest body, in bytes.
pub(crate) const LONGEST: usize = 1 << 20;

/// A request's body.
pub(crate) struct Body<T>(pub(crate) T);

/// A request's query.
pub(crate) struct Query<T>(pub(crate) T);

/// The one name in a request's path.
pub(crate) struct Named(pub(crate) String);

/// Something that can't be read.
pub(crate) fn invalid(field: &str, why: impl std::fmt::Display) -> Refusal {
    Refusal::new(Code::ArgumentsInvalid, format!("`{field}` {why}")).with("field", field)
}

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Body<T> {
    type Rejection = No;

    async fn from_request(request: Request, _: &S) -> Result<Self, No> {
        let is_json = request.headers().get(header::CONTENT_TYPE).is_none_or(|kind| {
            let kind = kind.to_str().unwrap_or_default().split(';').next().unwrap_or_default();
            kind.trim().eq_ignore_ascii_case("application/json")
        });
        let bytes = read_body(request.into_body(), LONGEST).await.map_err(|why| match why {
            NoBody::TooLong => No::from(invalid("body", format_args!("is longer than {LONGEST} bytes")))
                .status(StatusCode::PAYLOAD_TOO_LARGE),
            NoBody::Cut => No::from(invalid("body", "was cut off")),
            NoBody::Slow => {
                No::from(invalid("body", "did not come in time")).status(StatusCode::REQUEST_TIMEOUT)
            }
        })?;
        if !is_json && !bytes.is_empty() {
            let refusal = invalid("body", "must be JSON, with content-type application/json");
            return Err(No::from(refusal).status(StatusCode::UNSUPPORTED_MEDIA_TYPE));
        }
        // Nothing is an object without members: every field of it may be left out, or is asked for.
        let text: &[u8] = if bytes.is_empty() { b"{}" } else { &bytes };
        let value = strict_json::parse(text)
            .map_err(|fault| invalid("body", fault).because("arguments_not_strict"))?;
        read(value, "body").map(Self).map_err(No::from)
    }
}

/// Reads a value of ours, naming what is wrong with it.
pub(crate) fn read<T: DeserializeOwned>(value: Value, what: &str) -> Result<T, Refusal> {
    if !value.is_object() {
        return Err(invalid(what, "must be an object"));
    }
    serde_json::from_value(value).map_err(|error| {
        let why = error.to_string();
        Refusal::new(Code::ArgumentsInvalid, format!("the {what} can't be read: {why}")).with("field", what)
    })
}

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Query<T> {
    type Rejection = No;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, No> {
        let mut given = Map::new();
        let text = parts.uri.query().unwrap_or_default();
        for (name, value) in form_urlencoded::parse(text.as_bytes()) {
            // A form's empty field is one that was not filled in.
            if value.is_empty() {
                continue;
            }
            if given.insert(name.clone().into_owned(), Value::from(value.into_owned())).is_some() {
                return Err(invalid(&name, "is given twice").into());
            }
        }
        read(Value::Object(given), "query").map(Self).map_err(No::from)
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Named {
    type Rejection = No;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, No> {
        let Path(name) = Path::<String>::from_request_parts(parts, state)
            .await
            .map_err(|_| No::from(invalid("path", "can't be read")))?;
        Ok(Self(name))
    }
}

/// A whole number in a query, which is text.
pub(crate) fn number<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<u32>, D::Error> {
    let text: Option<String> = serde::Deserialize::deserialize(from)?;
    let wrong = |text: &str| serde::de::Error::custom(format!("`{text}` is not a whole number"));
    text.map(|text| text.parse().map_err(|_| wrong(&text))).transpose()
}

/// A word of a closed vocabulary in a query.
pub(crate) fn word<T: std::str::FromStr>(name: &str, text: Option<&str>) -> Result<Option<T>, Refusal>
where
    T::Err: std::fmt::Display,
{
    text.map(|text| text.parse::<T>().map_err(|why| invalid(name, format_args!("is wrong: {why}"))))
        .transpose()
}

/// How many, within bounds.
pub(crate) fn limit(given: Option<u32>, usual: u32) -> Result<u32, Refusal> {
    match given {
        None => Ok(usual),
        Some(limit @ 1..=1000) => Ok(limit),
        Some(_) => Err(invalid("limit", "must be a number from 1 to 1000")),
    }
}
