//! Plans: one call, frozen, named by its hash. What is hashed is what is shown and what will be sent.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::call::Arguments;
use crate::canonical;
use crate::confirm::Need;
use crate::digest::{Digest, Domain};
use crate::effect::Effect;
use crate::ids::{CredentialId, FullName, PlanId, PrincipalId, SessionId, ToolName, UpstreamId};
use crate::intent::{DeclaredIntent, Door, Intent, Variant};
use crate::words::words;

words! {
    /// Where a preview came from.
    pub enum PreviewSource("preview source") {
        /// The tool itself, with an argument that makes it a dry run.
        Argument = "argument",
        /// Another tool of the same upstream.
        Companion = "companion",
        /// A configured command.
        Command = "command",
        /// Computed from the call: the upstream offers no dry run.
        Computed = "computed",
    }
}

/// What was shown to whoever decides, and the digest of what must not change until it runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Preview {
    /// Where it came from.
    pub source: PreviewSource,
    /// What is shown, in full.
    pub shown: Value,
    /// Over the part of it that decides whether the plan is still the one that was reviewed.
    pub digest: Digest,
}

impl Preview {
    /// A preview whose digest covers `decisive`.
    pub fn new(source: PreviewSource, shown: Value, decisive: &Value) -> Self {
        let digest = Digest::of(Domain::Preview, canonical::to_string(decisive).as_bytes());
        Self { source, shown, digest }
    }

    /// Whether it has to be computed again right before the call runs.
    pub fn is_recomputed(&self) -> bool {
        match self.source {
            PreviewSource::Argument | PreviewSource::Companion | PreviewSource::Command => true,
            PreviewSource::Computed => false,
        }
    }
}

/// The members of a plan's hash, exactly those of the contract.
#[derive(Clone, Copy, Debug)]
pub struct Hashed<'a> {
    /// Who asks.
    pub principal: &'a PrincipalId,
    /// In which session.
    pub session: &'a SessionId,
    /// Of which upstream.
    pub upstream: &'a UpstreamId,
    /// For which tool.
    pub tool: &'a ToolName,
    /// As it was defined.
    pub fingerprint: Digest,
    /// With which arguments.
    pub arguments: &'a Arguments,
    /// As it was shown.
    pub preview_digest: Digest,
    /// Under which rules.
    pub policy_digest: Digest,
}

impl Hashed<'_> {
    /// SHA-256 over the canonical JSON of `{v:1, principal, session, upstream, tool, fingerprint, arguments,
    /// preview_digest, policy_digest}`.
    ///
    /// The arguments' canonical text is spliced in, so that they are canonicalised once, where they were parsed:
    /// `arguments` is the first key in order, and no other member is longer than a name.
    pub fn hash(&self) -> Digest {
        let rest = json!({
            "fingerprint": self.fingerprint,
            "policy_digest": self.policy_digest,
            "preview_digest": self.preview_digest,
            "principal": self.principal,
            "session": self.session,
            "tool": self.tool,
            "upstream": self.upstream,
            "v": 1,
        });
        let rest = canonical::to_string(&rest);
        let mut text = String::with_capacity(rest.len() + self.arguments.canonical().len() + 16);
        text.push_str("{\"arguments\":");
        text.push_str(self.arguments.canonical());
        text.push(',');
        text.push_str(rest.strip_prefix('{').unwrap_or(&rest));
        Digest::plain(text.as_bytes())
    }
}

/// One call, frozen.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Its name for people and programs; no secret.
    pub id: PlanId,
    /// What it is bound by.
    pub hash: Digest,
    /// Who asks.
    pub principal: PrincipalId,
    /// The credential it was asked for with, where there was one. Its end is the plan's end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credential: Option<CredentialId>,
    /// In which session.
    pub session: SessionId,
    /// Which tool.
    #[serde(with = "full_name_text")]
    pub tool: FullName,
    /// As it was defined.
    pub fingerprint: Digest,
    /// With which arguments; the canonical text is what will be sent.
    pub arguments: Arguments,
    /// What was shown.
    pub preview: Preview,
    /// Under which rules.
    pub policy_digest: Digest,
    /// What the tool does.
    pub effect: Effect,
    /// What it needs.
    pub need: Need,
    /// Through which call tool it came; none on the direct surface.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variant: Option<Variant>,
    /// What the agent declared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub intent: Option<StoredIntent>,
    /// The rule that asks for the confirm, for the person who wonders why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// Paths of the arguments that records and pages must not show.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub redact: Vec<String>,
    /// The steps of a plan of several; empty for a single call.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<Step>,
    /// When it was drafted.
    pub created: Timestamp,
    /// Until when it can be decided and run.
    pub expires: Timestamp,
}

/// One step of a plan of several, frozen like a call of its own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// Which tool.
    #[serde(with = "full_name_text")]
    pub tool: FullName,
    /// As it was defined.
    pub fingerprint: Digest,
    /// With which arguments; the canonical text is what will be sent.
    pub arguments: Arguments,
    /// What was shown.
    pub preview: Preview,
    /// Under which rules.
    pub policy_digest: Digest,
    /// What the tool does.
    pub effect: Effect,
    /// What it would need alone.
    pub need: Need,
    /// What the agent declared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub intent: Option<StoredIntent>,
}

/// An intent as it is kept with a plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredIntent {
    /// `operation_type`.
    pub operation_type: Effect,
    /// `data_sensitivity`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_sensitivity: Option<crate::intent::Sensitivity>,
    /// `reason`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl From<Intent> for StoredIntent {
    fn from(intent: Intent) -> Self {
        Self {
            operation_type: intent.operation_type,
            data_sensitivity: intent.data_sensitivity,
            reason: intent.reason,
        }
    }
}

impl From<StoredIntent> for DeclaredIntent {
    fn from(intent: StoredIntent) -> Self {
        Self {
            operation_type: Some(intent.operation_type.as_str().to_owned()),
            data_sensitivity: intent.data_sensitivity.map(|word| word.as_str().to_owned()),
            reason: intent.reason,
        }
    }
}

/// The variant a door stands for, where it has one.
pub const fn door_variant(door: Door) -> Option<Variant> {
    match door {
        Door::Router(variant) => Some(variant),
        Door::Direct => None,
    }
}

mod full_name_text {
    use serde::{Deserialize as _, Deserializer, Serializer};

    use crate::ids::FullName;

    pub(super) fn serialize<S: Serializer>(name: &FullName, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(name)
    }
    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<FullName, D::Error> {
        String::deserialize(from)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_the_contracts() {
        let arguments = Arguments::parse(br#"{"b": 2.0, "a": "x"}"#).unwrap();
        let zero = Digest::from_bytes([0; 32]);
        let hash = Hashed {
            principal: &"agent".into(),
            session: &"s1".into(),
            upstream: &"github".into(),
            tool: &"delete_repo".into(),
            fingerprint: zero,
            arguments: &arguments,
            preview_digest: zero,
            policy_digest: zero,
        }
        .hash();
        let z = "0".repeat(64);
        let text = format!(
            r#"{{"arguments":{{"a":"x","b":2}},"fingerprint":"{z}","policy_digest":"{z}","preview_digest":"{z}","principal":"agent","session":"s1","tool":"delete_repo","upstream":"github","v":1}}"#
        );
        assert_eq!(hash, Digest::plain(text.as_bytes()));
        let value: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(canonical::to_string(&value), text, "the spliced text is canonical as a whole");
    }
}
