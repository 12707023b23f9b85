//! Plans: one call, frozen, named by its hash. What is hashed is what is shown and what will be sent.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::call::Arguments;
use crate::canonical;
use crate::confirm::ConfirmRequirement;
use crate::digest::{Digest, DigestDomain};
use crate::effect::Effect;
use crate::ids::{CredentialId, FullName, PlanId, PrincipalId, SessionId, ToolName, UpstreamId};
use crate::intent::{CallEntryPoint, CallToolVariant, DeclaredIntent, Intent};
use crate::record::{HostInfo, asked_by};
use crate::redact::{HiddenValueScrubber, Redactor};
use crate::role::Role;
use crate::words::words;

words! {
    /// Where a preview came from.
    pub enum PreviewSource("preview source") {
        /// The tool itself, with an argument that makes it a dry run.
        Argument = "argument",
        /// Another tool of the same upstream.
        Companion = "companion",
        Command = "command",
        /// Computed from the call: the upstream offers no dry run.
        Computed = "computed",
        /// Not made yet: the steps before it have to run first.
        WhenReached = "when_reached",
        /// The upstream or a command, told what the steps before it would do. Made again when it is reached.
        Chained = "chained",
    }
}

/// What a person was shown, and the digest of the parts that must not change until the call runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Preview {
    pub source: PreviewSource,
    pub shown: Value,
    /// Over the part of it that decides whether the plan is still the one that was reviewed.
    pub digest: Digest,
}

impl Preview {
    /// A preview whose digest covers `decisive`.
    pub fn new(source: PreviewSource, shown: Value, decisive: &Value) -> Self {
        let digest = Digest::of(DigestDomain::Preview, canonical::to_string(decisive).as_bytes());
        Self { source, shown, digest }
    }

    /// Whether it has to be computed again right before the call runs.
    pub fn is_recomputed(&self) -> bool {
        match self.source {
            PreviewSource::Argument | PreviewSource::Companion | PreviewSource::Command => true,
            PreviewSource::Computed | PreviewSource::WhenReached | PreviewSource::Chained => false,
        }
    }

    /// Whether it has to be computed when its step is reached, because earlier steps change what it would be.
    pub fn is_made_when_reached(&self) -> bool {
        match self.source {
            PreviewSource::WhenReached | PreviewSource::Chained => true,
            PreviewSource::Argument
            | PreviewSource::Companion
            | PreviewSource::Command
            | PreviewSource::Computed => false,
        }
    }

    /// The same preview, made as if earlier steps had run.
    #[must_use]
    pub fn chained(self) -> Self {
        Self { source: PreviewSource::Chained, ..self }
    }
}

/// The members of a plan's hash, exactly those of the contract.
#[derive(Clone, Copy, Debug)]
pub struct PlanHashInput<'a> {
    pub principal: &'a PrincipalId,
    pub session: &'a SessionId,
    pub upstream: &'a UpstreamId,
    pub tool: &'a ToolName,
    pub fingerprint: Digest,
    pub arguments: &'a Arguments,
    /// With which members of `_meta`; none and an empty object are the same.
    pub meta: Option<&'a Arguments>,
    pub preview_digest: Digest,
    pub policy_digest: Digest,
    /// Mixed into the preview's digest where arguments are kept out of records: everything else that is hashed can be read there,
    /// so that short arguments could be found by trying.
    pub hash_salt: Option<Digest>,
}

impl PlanHashInput<'_> {
    /// SHA-256 over the canonical JSON of `{v:1, principal, session, upstream, tool, fingerprint, arguments, meta?,
    /// preview_digest, policy_digest}`.
    ///
    /// The arguments' canonical text is spliced in, so that they are canonicalised once, where they were parsed:
    /// `arguments` is the first key in order, and no other member is longer than a name.
    pub fn hash(&self) -> Digest {
        let salted = |salt: Digest| {
            Digest::of_parts(DigestDomain::Preview, &[self.preview_digest.bytes(), salt.bytes()])
        };
        let mut rest = json!({
            "fingerprint": self.fingerprint,
            "policy_digest": self.policy_digest,
            "preview_digest": self.hash_salt.map_or(self.preview_digest, salted),
            "principal": self.principal,
            "session": self.session,
            "tool": self.tool,
            "upstream": self.upstream,
            "v": 1,
        });
        if let (Some(meta), Some(members)) =
            (self.meta.filter(|meta| !meta.value().is_empty()), rest.as_object_mut())
        {
            members.insert("meta".into(), Value::Object(meta.value().clone()));
        }
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
    pub hash: Digest,
    pub principal: PrincipalId,
    /// The credential it was asked for with, where there was one. Its end is the plan's end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credential: Option<CredentialId>,
    /// The role of the caller. A plan of an older version has none and counts as an agent's, who may do less.
    #[serde(default = "agent_role")]
    pub role: Role,
    pub session: SessionId,
    /// The host program that asked. Not part of the hash: nothing is decided by it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<Box<HostInfo>>,
    #[serde(with = "full_name_text")]
    pub tool: FullName,
    pub fingerprint: Digest,
    /// With which arguments; the canonical text is what will be sent.
    pub arguments: Arguments,
    /// Members of the request's `_meta` that are sent along, progress and trace keys apart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Arguments>,
    pub preview: Preview,
    pub policy_digest: Digest,
    pub effect: Effect,
    #[serde(rename = "need")]
    pub requirement: ConfirmRequirement,
    /// Through which call tool it came; none on the direct surface.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variant: Option<CallToolVariant>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub intent: Option<StoredIntent>,
    /// The rule that asks for the confirm, for the person who wonders why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// Paths of the arguments that records and pages must not show.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub redact: Vec<String>,
    /// What is kept of arguments that records must not show; none where there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hidden: Option<HiddenArguments>,
    /// The steps of a plan of several; empty for a single call.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<PlanStep>,
    pub created: Timestamp,
    /// Until when it can be decided and run.
    pub expires: Timestamp,
}

const fn agent_role() -> Role {
    Role::Agent
}

/// What a plan keeps of arguments that records must not show. Kept sealed with it, never shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HiddenArguments {
    /// The digest that rows show: keyed, so that it can't be found by trying.
    pub digest: Digest,
    pub hash_salt: Digest,
    /// The digest of the arguments as they were, once they are wiped: tells whether a call that comes back is the plan's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wiped: Option<Digest>,
}

impl HiddenArguments {
    /// Of arguments of which each part has a salt; none where no part has.
    pub fn of_parts(salts: &[Digest], arguments: &Arguments) -> Option<Self> {
        if salts.is_empty() {
            return None;
        }
        let parts: Vec<&[u8]> = salts.iter().map(|salt| salt.bytes().as_slice()).collect();
        Some(Self::salted(Digest::of_parts(DigestDomain::HashSalt, &parts), arguments))
    }

    /// Of other arguments under the same salt.
    pub fn salted(hash_salt: Digest, arguments: &Arguments) -> Self {
        let digest =
            Digest::of_parts(DigestDomain::Arguments, &[hash_salt.bytes(), arguments.canonical().as_bytes()]);
        Self { digest, hash_salt, wiped: None }
    }
}

impl Plan {
    /// Who asked for it, for people.
    pub fn asked_by(&self, home: Option<&str>) -> String {
        asked_by(self.host.as_deref(), &self.principal, home)
    }

    /// What equal calls share: the plan's hash but for `meta`, in which hosts put an id of each request.
    pub fn identity(&self) -> Digest {
        PlanHashInput {
            principal: &self.principal,
            session: &self.session,
            upstream: &self.tool.upstream,
            tool: &self.tool.tool,
            fingerprint: self.fingerprint,
            arguments: &self.arguments,
            meta: None,
            preview_digest: self.preview.digest,
            policy_digest: self.policy_digest,
            hash_salt: self.hidden.map(|hidden| hidden.hash_salt),
        }
        .hash()
    }

    /// The digest of the arguments that rows show.
    pub fn recorded_digest(&self) -> Digest {
        self.hidden.map_or_else(|| self.arguments.digest(), |hidden| hidden.digest)
    }

    /// Whether these are the plan's arguments, also after they were wiped.
    pub fn has_arguments(&self, arguments: &Arguments) -> bool {
        match self.hidden.and_then(|hidden| hidden.wiped) {
            Some(wiped) => wiped == arguments.digest(),
            None => self.arguments.canonical() == arguments.canonical(),
        }
    }

    /// The plan without the values that records must not show, for one that is closed and never runs again; none where there is
    /// nothing to wipe.
    pub fn wiped(&self, redactor: &Redactor) -> Option<Self> {
        if self.hidden.is_some_and(|hidden| hidden.wiped.is_some()) {
            return None;
        }
        let wiping = HiddenValueScrubber::of(redactor, &self.arguments, &self.redact)?;
        // A plan of an older version has no digest for its rows yet.
        let hidden = self.hidden.unwrap_or(HiddenArguments {
            digest: redactor.arguments(&self.arguments, &self.redact).digest,
            hash_salt: self.hash,
            wiped: None,
        });
        let mut plan = self.clone();
        plan.hidden = Some(HiddenArguments { wiped: Some(self.arguments.digest()), ..hidden });
        plan.arguments = wiping.arguments(&self.arguments, &self.redact);
        plan.requirement.typed = plan.requirement.typed.map(|text| wiping.text(&text));
        plan.preview.shown = wiping.value(&plan.preview.shown);
        plan.intent = plan.intent.map(|intent| wiping.intent(intent));
        for step in &mut plan.steps {
            step.arguments = wiping.arguments(&step.arguments, &[]);
            step.preview.shown = wiping.value(&step.preview.shown);
            step.requirement.typed = step.requirement.typed.take().map(|text| wiping.text(&text));
            step.intent = step.intent.take().map(|intent| wiping.intent(intent));
        }
        Some(plan)
    }
}

/// One step of a plan of several, frozen like a call of its own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlanStep {
    #[serde(with = "full_name_text")]
    pub tool: FullName,
    pub fingerprint: Digest,
    /// With which arguments; the canonical text is what will be sent.
    pub arguments: Arguments,
    pub preview: Preview,
    pub policy_digest: Digest,
    pub effect: Effect,
    #[serde(rename = "need")]
    pub requirement: ConfirmRequirement,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub intent: Option<StoredIntent>,
}

/// An intent as it is kept with a plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredIntent {
    pub operation_type: Effect,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_sensitivity: Option<crate::intent::DataSensitivity>,
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

/// The router variant of an entry point; none on the direct surface.
pub const fn router_variant(entry_point: CallEntryPoint) -> Option<CallToolVariant> {
    match entry_point {
        CallEntryPoint::Router(variant) => Some(variant),
        CallEntryPoint::Direct => None,
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

    fn hash(meta: Option<&str>) -> Digest {
        let arguments = Arguments::parse(br#"{"b": 2.0, "a": "x"}"#).unwrap();
        let meta = meta.map(|meta| Arguments::parse(meta.as_bytes()).unwrap());
        let zero = Digest::from_bytes([0; 32]);
        PlanHashInput {
            principal: &"agent".into(),
            session: &"s1".into(),
            upstream: &"github".into(),
            tool: &"delete_repo".into(),
            fingerprint: zero,
            arguments: &arguments,
            meta: meta.as_ref(),
            preview_digest: zero,
            policy_digest: zero,
            hash_salt: None,
        }
        .hash()
    }

    fn check(meta: Option<&str>, hashed: &str) {
        let z = "0".repeat(64);
        let text = format!(
            r#"{{"arguments":{{"a":"x","b":2}},"fingerprint":"{z}",{hashed}"policy_digest":"{z}","preview_digest":"{z}","principal":"agent","session":"s1","tool":"delete_repo","upstream":"github","v":1}}"#
        );
        assert_eq!(hash(meta), Digest::plain(text.as_bytes()));
        let value: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(canonical::to_string(&value), text, "the spliced text is canonical as a whole");
    }

    #[test]
    fn a_plan_without_a_role_opens_as_an_agents() {
        let zero = "0".repeat(64);
        let mut stored = json!({
            "id": "pln_1", "hash": zero, "principal": "local-human", "role": "human", "session": "s", "tool": "a:b",
            "fingerprint": zero, "policy_digest": zero, "arguments": "{}", "effect": "write",
            "preview": {"source": "computed", "shown": {}, "digest": zero},
            "need": {"kind": "simple", "strength": "host"}, "created": "2026-01-01T00:00:00Z", "expires": "2026-01-01T00:05:00Z",
        });
        let opened: Plan = serde_json::from_value(stored.clone()).unwrap();
        assert_eq!(opened.role, Role::Human);
        stored.as_object_mut().unwrap().remove("role");
        let older: Plan = serde_json::from_value(stored).unwrap();
        assert_eq!(older.role, Role::Agent);
    }

    #[test]
    fn the_hash_is_the_contracts() {
        check(None, "");
    }

    #[test]
    fn attack_02_meta_is_part_of_the_hash_where_there_is_any() {
        check(Some("{}"), "");
        check(Some(r#"{"tenant":{"b":1.0,"a":"x"}}"#), r#""meta":{"tenant":{"a":"x","b":1}},"#);
        assert_ne!(hash(Some(r#"{"tenant":"a"}"#)), hash(Some(r#"{"tenant":"b"}"#)));
    }
}
