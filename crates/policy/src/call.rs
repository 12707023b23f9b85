//! A call as it reaches the gate: caller, tool, arguments, declared intent, confirm input.
//! Arguments are parsed strictly, once, here; the text that is hashed is the text that is sent.

use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

use crate::canonical;
use crate::confirm::ConfirmInput;
use crate::digest::{Digest, DigestDomain};
use crate::effect::Effect;
use crate::ids::{CredentialId, FullName, PrincipalId, RequestId, SessionId, UpstreamId};
use crate::intent::{CallEntryPoint, UncheckedIntent};
use crate::mode::Mode;
use crate::record::{HostInfo, Source};
use crate::role::Role;
use crate::strict_json::{self, JsonLimits, KeysAlike, StrictError};
use crate::tool::Tool;

/// The arguments of a call: an object that has exactly one meaning.
#[derive(Clone, Debug, PartialEq)]
pub struct Arguments {
    value: Map<String, Value>,
    sent: String,
    canonical: String,
    digest: Digest,
}

/// Why arguments were refused.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ArgumentFault {
    /// The text has no single meaning.
    #[error("{0}")]
    NotStrict(#[from] StrictError),
    #[error("arguments must be an object")]
    NotAnObject,
}

impl Arguments {
    /// Parses strictly: keys that are equal but for case, numbers that would change and the like are refused.
    pub fn parse(text: &[u8]) -> Result<Self, ArgumentFault> {
        Self::parse_with(text, &JsonLimits::default())
    }

    fn parse_with(text: &[u8], limits: &JsonLimits) -> Result<Self, ArgumentFault> {
        match strict_json::parse_with(text, limits)? {
            Value::Object(value) => {
                // INVARIANT (sent = hashed = shown): the text was valid UTF-8 when it was parsed.
                let sent = String::from_utf8_lossy(text).into_owned();
                Ok(Self::from_checked(value, sent))
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                Err(ArgumentFault::NotAnObject)
            }
        }
    }

    pub fn none() -> Self {
        Self::from_checked(Map::new(), "{}".to_owned())
    }

    /// An object made of parts that were parsed strictly before.
    pub(crate) fn of_members(members: Map<String, Value>) -> Self {
        Self::from_checked(members, String::new()).frozen()
    }

    fn from_checked(value: Map<String, Value>, sent: String) -> Self {
        let value = Value::Object(value);
        let canonical = canonical::to_string(&value);
        let digest = Digest::of(DigestDomain::Arguments, canonical.as_bytes());
        let Value::Object(value) = value else { return Self::none() };
        Self { value, sent, canonical, digest }
    }

    /// The same arguments with one set to a value that passes the strict check (rules are checked when read).
    #[must_use]
    pub fn with(self, name: &str, value: Value) -> Self {
        let mut members = self.value;
        members.insert(name.to_owned(), value);
        Self::of_members(members)
    }

    #[must_use]
    pub fn without(self, name: &str) -> Self {
        let mut members = self.value;
        members.remove(name);
        Self::of_members(members)
    }

    /// The same arguments with the canonical text as the one to send: what a plan holds.
    #[must_use]
    pub fn frozen(mut self) -> Self {
        self.sent.clone_from(&self.canonical);
        self
    }

    pub fn value(&self) -> &Map<String, Value> {
        &self.value
    }

    pub fn text(&self) -> &str {
        &self.sent
    }

    /// The one text all equal arguments share.
    pub fn canonical(&self) -> &str {
        &self.canonical
    }

    /// The digest of the canonical text.
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// The value at a dotted path, `*` not allowed.
    pub fn at(&self, path: &str) -> Option<&Value> {
        let mut parts = path.split('.');
        let mut here = self.value.get(parts.next()?)?;
        for part in parts {
            here = match here {
                Value::Object(members) => members.get(part)?,
                Value::Array(items) => items.get(part.parse::<usize>().ok()?)?,
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => return None,
            };
        }
        Some(here)
    }
}

impl Serialize for Arguments {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&self.canonical)
    }
}

impl<'de> Deserialize<'de> for Arguments {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        // A plan kept by an older version may have keys that fold together: it can be read and shown, and the gate refuses it.
        let limits = JsonLimits { keys_alike: KeysAlike::Exact, ..JsonLimits::default() };
        Self::parse_with(text.as_bytes(), &limits).map_err(serde::de::Error::custom)
    }
}

/// Whether the answer of a host's user interface counts as the host's. Decided when the connection was authenticated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostVouching {
    /// The host started this process, or its credential has the scope `may_vouch`.
    Allowed,
    /// Nothing tells the host from the agent: its answer counts as the caller's.
    Denied,
}

/// What a connection may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallerScopes {
    /// Upstreams it may use; none means all.
    pub upstreams: Option<Vec<UpstreamId>>,
    /// Effects it may cause; none means all.
    pub effects: Option<Vec<Effect>>,
    pub max_mode: Mode,
    pub vouching: HostVouching,
}

impl CallerScopes {
    /// Every upstream, effect and mode. Vouching is never part of it: the transport or a credential allows it.
    pub const fn all() -> Self {
        Self { upstreams: None, effects: None, max_mode: Mode::Execute, vouching: HostVouching::Denied }
    }
}

/// Who calls, and over which connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    pub principal: PrincipalId,
    /// The credential of the connection, if it has one.
    pub credential: Option<CredentialId>,
    /// Fixed when the connection was authenticated.
    pub role: Role,
    pub session: SessionId,
    /// The request, where one came from outside: the log and the ledger name it.
    pub request_id: Option<RequestId>,
    pub source: Source,
    /// The program on the other end, as far as it is known.
    pub host: Option<Arc<HostInfo>>,
    pub scopes: CallerScopes,
}

/// What the catalogue says of the tool that was named.
#[derive(Clone, Debug, PartialEq)]
pub enum CatalogStatus {
    /// Pinned and as it was accepted.
    Accepted(Arc<Tool>),
    /// Not what was accepted: withheld until a person looks.
    Changed(Arc<Tool>),
    /// Withheld, with a registered reason (`tool_new`, `tool_collision`, …).
    Quarantined(Arc<Tool>, &'static str),
    /// No such tool; the nearest names.
    Unknown(Vec<String>),
    /// Unknown, because its upstream could not list its tools; with the reason in one line.
    Unlisted(String),
}

/// A request to run a tool.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolCall {
    pub caller: Caller,
    pub name: FullName,
    pub catalog_status: CatalogStatus,
    pub arguments: Arguments,
    pub entry_point: CallEntryPoint,
    pub intent: UncheckedIntent,
    /// The call's own mode, as text: judged in its place.
    pub mode: Option<String>,
    pub confirm_input: ConfirmInput,
}
