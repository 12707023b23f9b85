//! What the gate can say, and what each answer carries.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::permit::{Permit, Redemption};
use crate::call::{Arguments, Call};
use crate::config::EXPLAIN_SUFFIX;
use crate::confirm::{Kind, Need};
use crate::digest::Digest;
use crate::effect::{Because, Classified, Effect};
use crate::ids::{PlanId, ToolName};
use crate::intent::{Door, Intent, Variant};
use crate::mode::Mode;
use crate::plan::{Hashed, HiddenArguments, Plan, Preview, door_variant};
use crate::preview::{self, Style};
use crate::record::CallRecord;
use crate::refusal::{Code, Refusal};
use crate::rules::{Field, Resolution};
use crate::tool::Tool;

/// What the gate says.
#[derive(Debug)]
pub enum Verdict {
    /// May run, once its row is written.
    Go(Permit),
    /// May run, once the preview was made again and the token is spent.
    Redeem(Redemption),
    /// Needs a second step: preview, keep, ask.
    Hold(Draft),
    /// Plan mode: preview, change nothing.
    Preview(Draft),
    /// Ask mode: say what would happen.
    Explain(Explanation),
    /// No.
    Refuse(Refused),
}

/// A no and what the ledger keeps of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Refused {
    /// The no.
    pub refusal: Refusal,
    /// What the ledger keeps.
    pub record: CallRecord,
}

/// A dry run that may be sent: it changes nothing, by the tool's own promise.
#[derive(Clone, Debug, PartialEq)]
pub struct DryRun {
    /// The tool to call.
    pub tool: ToolName,
    /// The text of its arguments.
    pub arguments: String,
}

/// A call that passed every gate up to the preview.
#[derive(Clone, Debug)]
pub struct Draft {
    /// The call.
    pub call: Call,
    /// Its tool.
    pub tool: Arc<Tool>,
    /// What the tool does and why.
    pub classified: Classified,
    /// What it needs.
    pub need: Need,
    /// What was declared.
    pub intent: Option<Intent>,
    /// The mode in force.
    pub mode: Mode,
    /// The digest of the rules' decision.
    pub policy_digest: Digest,
    /// How the preview is made.
    pub style: Style,
    /// What should be told with the answer.
    pub warnings: Vec<String>,
    /// What the rules say.
    pub rules: Resolution,
    /// The members of the request's `_meta` that are sent with a confirmed call.
    pub meta: Option<Arguments>,
    /// What the ledger keeps.
    pub record: CallRecord,
}

impl Draft {
    /// Whether the call itself says that it is a preview, and something would change if it were not.
    pub fn is_preview(&self) -> bool {
        let changes = self.classified.effect != Effect::Read || self.need.kind != Kind::None;
        changes && self.style.is_asked_for(&self.call.arguments)
    }

    /// The dry run the upstream offers, or what the command that looks is told, if there is either.
    pub fn dry_run(&self) -> Option<DryRun> {
        match &self.style {
            Style::Argument { .. } => Some(DryRun {
                tool: self.tool.name.clone(),
                arguments: self.style.for_preview(&self.call.arguments).canonical().to_owned(),
            }),
            Style::Companion { tool, .. } => Some(DryRun {
                tool: ToolName::new(tool.as_str()),
                arguments: self.call.arguments.canonical().to_owned(),
            }),
            Style::Command(_) => Some(DryRun {
                tool: self.tool.name.clone(),
                arguments: self.call.arguments.canonical().to_owned(),
            }),
            Style::Computed => None,
        }
    }

    /// A look at the present state of what the call is about, for upstreams that offer one.
    pub(super) fn look(&self) -> DryRun {
        DryRun {
            tool: ToolName::new(format!("{}{EXPLAIN_SUFFIX}", self.tool.name)),
            arguments: self.call.arguments.canonical().to_owned(),
        }
    }

    /// The preview computed from the call itself.
    pub fn computed_preview(&self) -> Preview {
        preview::computed(&self.call, self.classified.effect, self.intent.as_ref(), &self.record)
    }

    /// Freezes the call with its preview into a plan.
    pub fn freeze(&self, id: PlanId, preview: Preview, now: Timestamp, life: Duration) -> Plan {
        let hash = Hashed {
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
            session: self.call.caller.session.clone(),
            tool: self.call.name.clone(),
            fingerprint: self.tool.fingerprint,
            arguments: self.call.arguments.clone().frozen(),
            meta: self.meta.clone().map(Arguments::frozen),
            preview,
            policy_digest: self.policy_digest,
            effect: self.classified.effect,
            need: self.need.clone(),
            variant: door_variant(self.call.door),
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
        [Field::Confirm, Field::Strength, Field::Effect]
            .into_iter()
            .find_map(|field| self.rules.rule_for(field))
            .map(|rule| rule.0.clone())
    }
}

/// What ask mode tells: what would happen, on what, how risky, and how to go on.
#[derive(Clone, Debug, PartialEq)]
pub struct Explanation {
    /// `E_MODE_ASK`.
    pub refusal: Refusal,
    /// `data.explain`.
    pub explain: Value,
    /// What the call would need.
    pub need: Need,
    /// How the present state may be looked at, if the arguments fit and the upstream offers it.
    pub state: Option<DryRun>,
    /// What should be told with the answer.
    pub warnings: Vec<String>,
    /// What the ledger keeps.
    pub record: CallRecord,
}

impl Explanation {
    pub(super) fn of(draft: Draft, state: Option<DryRun>) -> Self {
        let name = draft.call.name.to_string();
        let effect = draft.classified.effect;
        let message = format!("mode is ask: `{name}` is a {effect} tool and was not run");
        let target = crate::preview::about(&draft.record.arguments);
        let again = match draft.call.door {
            Door::Router(_) => Variant::for_effect(effect).call_tool().to_owned(),
            Door::Direct => "the same call".to_owned(),
        };
        let explain = json!({
            "tool": name,
            "what": draft.tool.description(),
            "effect": effect,
            "risk": risk(draft.classified),
            "target": target,
            "arguments": draft.record.arguments,
            "mode": draft.mode,
            "confirm": draft.need.kind,
            "strength": draft.need.strength,
            "rule": draft.deciding_rule(),
            "how_to_go_on": [
                format!("preview: {again} with mode=\"plan\""),
                format!("change: set_mode {{\"mode\":\"execute\"}}, then {again}; it will ask for confirm `{}` of strength `{}`",
                    draft.need.kind, draft.need.strength),
            ],
        });
        let refusal = Refusal::new(Code::ModeAsk, message);
        Self { refusal, explain, need: draft.need, state, warnings: draft.warnings, record: draft.record }
    }
}

fn risk(classified: Classified) -> &'static str {
    match (classified.effect, classified.because) {
        (Effect::Read, _) => "none: it only reads",
        (Effect::Write, Because::Unknown) => {
            "changes something; the upstream does not say more, so it counts as a write"
        }
        (Effect::Write, _) => "changes something",
        (Effect::Destructive, Because::Contradiction) => {
            "destroys something by its name, although the upstream's annotations deny it"
        }
        (Effect::Destructive, Because::Lexicon) => "destroys something, by its name",
        (Effect::Destructive, _) => "destroys or overwrites something",
    }
}
