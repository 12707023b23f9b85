//! What the gate can say, and what each answer carries.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::permit::{Permit, PlanRedemption};
use crate::call::{Arguments, ToolCall};
use crate::command_template::EXPLAIN_SUFFIX;
use crate::confirm::{ConfirmRequirement, Kind};
use crate::digest::Digest;
use crate::effect::{Effect, EffectClassification, EffectReason};
use crate::ids::{PlanId, ToolName};
use crate::intent::{CallEntryPoint, CallToolVariant, Intent};
use crate::mode::Mode;
use crate::plan::{HiddenArguments, Plan, PlanHashInput, Preview, router_variant};
use crate::preview::{self, PreviewStyle};
use crate::record::CallRecord;
use crate::refusal::{Code, Refusal};
use crate::rules::{RuleField, RuleResolution};
use crate::tool::Tool;

/// What the gate says.
#[derive(Debug)]
pub enum Verdict {
    /// May run, once its row is written.
    Go(Permit),
    /// May run, once the preview was made again and the token is spent.
    Redeem(PlanRedemption),
    /// Needs a second step: preview, keep, ask.
    Hold(CallDraft),
    /// Plan mode: preview, change nothing.
    Preview(CallDraft),
    /// Ask mode: say what would happen.
    Explain(CallExplanation),
    Refuse(Refused),
}

/// A no and what the ledger keeps of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Refused {
    pub refusal: Refusal,
    pub record: CallRecord,
}

/// A dry run that may be sent: it changes nothing, by the tool's own promise.
#[derive(Clone, Debug, PartialEq)]
pub struct DryRun {
    pub tool: ToolName,
    pub arguments: String,
    /// What earlier steps of the same plan would do, as JSON text, where it is made as if they had run.
    pub earlier: Option<String>,
}

/// A call that passed every gate up to the preview.
#[derive(Clone, Debug)]
pub struct CallDraft {
    pub call: ToolCall,
    pub tool: Arc<Tool>,
    pub classified: EffectClassification,
    pub requirement: ConfirmRequirement,
    pub intent: Option<Intent>,
    pub mode: Mode,
    pub policy_digest: Digest,
    pub style: PreviewStyle,
    pub warnings: Vec<String>,
    pub rules: RuleResolution,
    /// The members of the request's `_meta` that are sent with a confirmed call.
    pub meta: Option<Arguments>,
    pub record: CallRecord,
}

impl CallDraft {
    /// Whether the call itself says that it is a preview, and something would change if it were not.
    pub fn is_preview(&self) -> bool {
        let changes = self.classified.effect != Effect::Read || self.requirement.kind != Kind::None;
        changes && self.style.is_asked_for(&self.call.arguments)
    }

    /// The dry run that makes the preview, if the upstream or a preview command offers one.
    pub fn dry_run(&self) -> Option<DryRun> {
        match &self.style {
            PreviewStyle::Argument { .. } => Some(DryRun {
                tool: self.tool.name.clone(),
                arguments: self.style.for_preview(&self.call.arguments).canonical().to_owned(),
                earlier: None,
            }),
            PreviewStyle::Companion { tool, .. } => Some(DryRun {
                tool: ToolName::new(tool.as_str()),
                arguments: self.call.arguments.canonical().to_owned(),
                earlier: None,
            }),
            PreviewStyle::Command(_) => Some(DryRun {
                tool: self.tool.name.clone(),
                arguments: self.call.arguments.canonical().to_owned(),
                earlier: None,
            }),
            PreviewStyle::Computed => None,
        }
    }

    /// A look at the present state of what the call is about, for upstreams that offer one.
    pub(super) fn look(&self) -> DryRun {
        DryRun {
            tool: ToolName::new(format!("{}{EXPLAIN_SUFFIX}", self.tool.name)),
            arguments: self.call.arguments.canonical().to_owned(),
            earlier: None,
        }
    }

    /// The preview computed from the call itself.
    pub fn computed_preview(&self) -> Preview {
        preview::computed(&self.call, self.classified.effect, self.intent.as_ref(), &self.record)
    }

    /// Stands for a preview that can't be made before earlier steps have run.
    pub fn preview_when_reached(&self) -> Preview {
        preview::when_reached(&self.call, self.classified.effect, self.intent.as_ref(), &self.record)
    }

    /// Freezes the call with its preview into a plan.
    pub fn freeze(&self, id: PlanId, preview: Preview, now: Timestamp, life: Duration) -> Plan {
        let hash = PlanHashInput {
            principal: &self.call.caller.principal,
            session: &self.call.caller.session,
            upstream: &self.call.name.upstream,
            tool: &self.call.name.tool,
            fingerprint: self.tool.fingerprint,
            arguments: &self.call.arguments,
            meta: self.meta.as_ref(),
            preview_digest: preview.digest,
            policy_digest: self.policy_digest,
            hash_salt: self.record.hash_salt,
        }
        .hash();
        Plan {
            id,
            hash,
            principal: self.call.caller.principal.clone(),
            credential: self.call.caller.credential.clone(),
            role: self.call.caller.role,
            session: self.call.caller.session.clone(),
            host: self.call.caller.host.as_deref().cloned().map(Box::new),
            tool: self.call.name.clone(),
            fingerprint: self.tool.fingerprint,
            arguments: self.call.arguments.clone().frozen(),
            meta: self.meta.clone().map(Arguments::frozen),
            preview,
            policy_digest: self.policy_digest,
            effect: self.classified.effect,
            requirement: self.requirement.clone(),
            variant: router_variant(self.call.entry_point),
            intent: self.intent.clone().map(Into::into),
            rule: self.deciding_rule(),
            redact: self.rules.redact.clone(),
            hidden: self.record.hash_salt.map(|hash_salt| HiddenArguments {
                digest: self.record.arguments_digest,
                hash_salt,
                wiped: None,
            }),
            steps: Vec::new(),
            created: now,
            expires: now.checked_add(life).unwrap_or(now),
        }
    }

    /// The rule that asks for the second step, where a rule does.
    pub fn deciding_rule(&self) -> Option<String> {
        [RuleField::Confirm, RuleField::Strength, RuleField::Effect]
            .into_iter()
            .find_map(|field| self.rules.rule_for(field))
            .map(|rule| rule.0.clone())
    }

    /// The rule that decided how the call goes, where one did: the one that asks for the second step, else the one that allows it.
    pub fn applied_rule(&self) -> Option<String> {
        self.deciding_rule().or_else(|| self.rules.rule_for(RuleField::Allow).map(|rule| rule.0.clone()))
    }
}

/// What ask mode tells: what would happen, on what, how risky, and how to go on.
#[derive(Clone, Debug, PartialEq)]
pub struct CallExplanation {
    pub refusal: Refusal,
    pub explain: Value,
    pub requirement: ConfirmRequirement,
    /// How the present state may be looked at, if the arguments fit and the upstream offers it.
    pub state: Option<DryRun>,
    pub warnings: Vec<String>,
    pub record: CallRecord,
}

impl CallExplanation {
    pub(super) fn of(draft: CallDraft, state: Option<DryRun>) -> Self {
        let name = draft.call.name.to_string();
        let effect = draft.classified.effect;
        let message = format!("mode is ask: `{name}` is a {effect} tool and was not run");
        let target = crate::preview::about(&draft.record.arguments);
        let again = match draft.call.entry_point {
            CallEntryPoint::Router(_) => CallToolVariant::for_effect(effect).call_tool().to_owned(),
            CallEntryPoint::Direct => "the same call".to_owned(),
        };
        let explain = json!({
            "tool": name,
            "what": draft.tool.description(),
            "effect": effect,
            "risk": risk(draft.classified),
            "target": target,
            "arguments": draft.record.arguments,
            "mode": draft.mode,
            "confirm": draft.requirement.kind,
            "strength": draft.requirement.strength,
            "rule": draft.deciding_rule(),
            "how_to_go_on": [
                format!("preview: {again} with mode=\"plan\""),
                format!("change: set_mode {{\"mode\":\"execute\"}}, then {again}; it will ask for confirm `{}` of strength `{}`",
                    draft.requirement.kind, draft.requirement.strength),
            ],
        });
        let refusal = Refusal::new(Code::ModeAsk, message);
        Self {
            refusal,
            explain,
            requirement: draft.requirement,
            state,
            warnings: draft.warnings,
            record: draft.record,
        }
    }
}

fn risk(classified: EffectClassification) -> &'static str {
    match (classified.effect, classified.because) {
        (Effect::Read, _) => "none: it only reads",
        (Effect::Write, EffectReason::Unknown) => {
            "changes something; the upstream does not say more, so it counts as a write"
        }
        (Effect::Write, _) => "changes something",
        (Effect::Destructive, EffectReason::Contradiction) => {
            "destroys something by its name or arguments, although the upstream's annotations deny it"
        }
        (Effect::Destructive, EffectReason::Lexicon) => "destroys something, by its name",
        (Effect::Destructive, EffectReason::Schema) => {
            "destroys something or runs anything, by its arguments"
        }
        (Effect::Destructive, _) => "destroys or overwrites something",
    }
}
