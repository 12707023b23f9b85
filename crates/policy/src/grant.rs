//! Grants: an approval given ahead for a bounded family of calls. Never for what must be typed to confirm.
//! Whether a use is left is decided by one statement in `store`; here only whether a call lies inside.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::call::Arguments;
use crate::canonical;
use crate::confirm::{ConfirmRequirement, Kind};
use crate::digest::Digest;
use crate::ids::{FullName, GrantId, PrincipalId};
use crate::refusal::{Code, Refusal};
use crate::strict_json;

/// What a grant says of one argument.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Allowed {
    /// Exactly this value, by its canonical text.
    #[serde(rename = "exact")]
    Exact(Value),
    /// Any value, or none.
    #[serde(rename = "any")]
    Any,
}

/// "This tool with these argument values, so many times, until then."
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Grant {
    pub id: GrantId,
    pub principal: PrincipalId,
    /// Which tool, `upstream:tool`.
    pub tool: String,
    /// As it was defined when the grant was given.
    pub fingerprint: Digest,
    pub arguments: BTreeMap<String, Allowed>,
    pub uses_left: u32,
    pub expires: Timestamp,
    pub by: PrincipalId,
}

impl Grant {
    /// Whether the call lies inside the grant at this moment.
    pub fn covers(
        &self,
        principal: &PrincipalId,
        tool: &FullName,
        fingerprint: Digest,
        arguments: &Arguments,
        requirement: &ConfirmRequirement,
        now: Timestamp,
    ) -> bool {
        requirement.kind != Kind::Type
            && self.uses_left > 0
            && now < self.expires
            && &self.principal == principal
            && self.tool == tool.to_string()
            && self.fingerprint == fingerprint
            && self.admits(arguments)
    }

    fn admits(&self, arguments: &Arguments) -> bool {
        let listed = arguments.value().keys().all(|name| self.arguments.contains_key(name));
        listed
            && self.arguments.iter().all(|(name, allowed)| match (allowed, arguments.value().get(name)) {
                (Allowed::Any, _) => true,
                (Allowed::Exact(want), Some(have)) => {
                    canonical::to_string(want) == canonical::to_string(have)
                }
                (Allowed::Exact(_), None) => false,
            })
    }
}

/// Reads `{name: value | {"any": true}}`, the form REST and the command line take.
pub fn read_arguments(given: &serde_json::Map<String, Value>) -> Result<BTreeMap<String, Allowed>, Refusal> {
    let any = json!({"any": true});
    given
        .iter()
        .map(|(name, value)| {
            if *value == any {
                return Ok((name.clone(), Allowed::Any));
            }
            strict_json::check(value).map_err(|fault| {
                Refusal::new(Code::ArgumentsInvalid, format!("`{name}` can't be granted: {fault}"))
                    .with("field", name.as_str())
            })?;
            Ok((name.clone(), Allowed::Exact(value.clone())))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::confirm::ApprovalStrength;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn grant(arguments: Value) -> Grant {
        Grant {
            id: "grt_1".into(),
            principal: "agent".into(),
            tool: "github:close_issue".into(),
            fingerprint: Digest::plain(b"f"),
            arguments: read_arguments(arguments.as_object().unwrap()).unwrap(),
            uses_left: 1,
            expires: at(100),
            by: "ann".into(),
        }
    }

    fn covers(grant: &Grant, arguments: &str, kind: Kind, now: i64) -> bool {
        let requirement = ConfirmRequirement { kind, strength: ApprovalStrength::Human, typed: None };
        let arguments = Arguments::parse(arguments.as_bytes()).unwrap();
        let tool = FullName::new("github", "close_issue");
        grant.covers(&"agent".into(), &tool, Digest::plain(b"f"), &arguments, &requirement, at(now))
    }

    #[test]
    fn exact_values_any_and_nothing_else() {
        let grant = grant(json!({"repo": "acme/site", "number": {"any": true}}));
        assert!(covers(&grant, r#"{"repo":"acme/site","number":7}"#, Kind::Preview, 1));
        assert!(covers(&grant, r#"{"repo":"acme/site"}"#, Kind::Preview, 1), "any covers none");
        assert!(!covers(&grant, r#"{"repo":"acme/other","number":7}"#, Kind::Preview, 1));
        assert!(!covers(&grant, r#"{"number":7}"#, Kind::Preview, 1), "exact needs the value");
        assert!(
            !covers(&grant, r#"{"repo":"acme/site","force":true}"#, Kind::Preview, 1),
            "unlisted argument"
        );
    }

    #[test]
    fn never_for_type_never_late_never_used_up() {
        let mut grant = grant(json!({}));
        assert!(covers(&grant, "{}", Kind::Simple, 99));
        assert!(!covers(&grant, "{}", Kind::Type, 99));
        assert!(!covers(&grant, "{}", Kind::Simple, 100));
        grant.uses_left = 0;
        assert!(!covers(&grant, "{}", Kind::Simple, 99));
    }

    #[test]
    fn values_are_equal_by_their_canonical_text() {
        let grant = grant(json!({"n": 2, "o": {"b": 1, "a": 2}}));
        assert!(covers(&grant, r#"{"n":2.0,"o":{"a":2,"b":1}}"#, Kind::Simple, 1));
        assert!(!covers(&grant, r#"{"n":"2","o":{"a":2,"b":1}}"#, Kind::Simple, 1));
    }
}
