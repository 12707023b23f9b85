//! Answers: the upstream's result with our `_meta`, or an envelope of our own.

use countersign_mcp::fault::DeliveryState;
use countersign_mcp::raw::{self, RawJson};
use countersign_policy::confirm::ApprovalStrength;
use countersign_policy::effect::Effect;
use countersign_policy::envelope::Envelope;
use countersign_policy::ids::{PlanId, RequestId};
use countersign_policy::mode::Mode;
use countersign_policy::plan::{Plan, Preview};
use countersign_policy::preview::blocks;
use countersign_policy::refusal::{Code, NextAction, Refusal};
use countersign_policy::strict_json;
use countersign_policy::suggest::SuggestionTrigger;
use countersign_store::OutcomeStatus;
use serde_json::{Value, json};

use super::CallPipeline;
use super::hold::HeldPlan;
use super::record::{ClosedCall, ended_without_result};
use crate::active_policy::ActivePolicy;
use crate::answer::{Answer, with_meta};
use crate::cards::{self, CardSupport, RepeatedCall};
use crate::upstreams::UpstreamFault;

/// `_meta["countersign"]` of a result.
#[derive(serde::Serialize)]
pub(super) struct ResultMetadata<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) plan_id: Option<&'a str>,
    pub(super) ledger_id: &'a str,
    pub(super) effect: &'static str,
    pub(super) mode: &'static str,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    pub(super) warnings: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) request_id: Option<&'a str>,
}

impl CallPipeline<'_> {
    pub(super) fn respond(&self, closed: ClosedCall) -> Answer {
        let ClosedCall { sent, tool, effect, mode, warnings, plan, ledger_id, .. } = closed;
        let metadata = ResultMetadata {
            request_id: self.request_id(),
            plan_id: plan.as_ref().map(PlanId::as_str),
            ledger_id: &ledger_id,
            effect: effect.as_str(),
            mode: mode.as_str(),
            warnings: &warnings,
        };
        let refusal = match sent {
            // The upstream's bytes stay as they are; our note is spliced into `_meta`.
            Ok(result) => {
                return Answer::Upstream(self.with_result_card(with_meta(result, &metadata), &tool, effect));
            }
            // Unchanged, so that a client sees the same error with and without a gateway.
            Err(UpstreamFault::Rpc(error)) => return Answer::Rpc(error),
            Err(UpstreamFault::Unavailable { why, sent }) => {
                no_answer(Code::UpstreamUnavailable, &tool, &why, effect, sent)
            }
            Err(UpstreamFault::TooLarge { why }) => too_large(&tool, &why, effect),
            Err(UpstreamFault::Timeout { why, sent }) => {
                no_answer(Code::UpstreamTimeout, &tool, &why, effect, sent)
            }
        };
        Answer::refused(&self.command, &refusal.with("ledger_id", ledger_id))
    }

    pub(super) fn request_id(&self) -> Option<&str> {
        self.caller.request_id.as_ref().map(RequestId::as_str)
    }

    /// Adds what the result's card shows, where the client shows cards and the tool has one.
    fn with_result_card(&self, result: RawJson, tool: &str, effect: Effect) -> RawJson {
        // Reads are frequent and large: parsing them for a card nobody needs would cost every call.
        if effect == Effect::Read || CardSupport::of(self.ctx) == CardSupport::Hidden {
            return result;
        }
        let parsed = strict_json::read_to_show(result.get()).unwrap_or_default();
        let view = raw::to_raw(&cards::outcome_view(tool, &parsed));
        raw::set_in(&result, "_meta", "countersign/view", &view).unwrap_or(result)
    }

    /// Phase 1: answers with the preview, the token, and who has to agree. Nothing has changed.
    pub(super) fn ask_for_confirmation(
        &self,
        held: &HeldPlan,
        policy: &ActivePolicy,
        warnings: Vec<String>,
        again: RepeatedCall<'_>,
    ) -> Answer {
        let HeldPlan { plan, holding, token } = held;
        let envelope = self.confirmation_envelope(held, policy).warn(warnings);
        match CardSupport::of(self.ctx) {
            CardSupport::Shown => {
                let vouching = self.caller.scopes.vouching;
                Answer::Carded(
                    envelope,
                    cards::confirmation_meta(self.gateway, plan, holding, token, again, vouching),
                )
            }
            CardSupport::Hidden => Answer::Envelope(envelope),
        }
    }

    fn confirmation_envelope(&self, held: &HeldPlan, policy: &ActivePolicy) -> Envelope {
        let HeldPlan { plan, holding, token } = held;
        let confirm = json!({
            "kind": plan.requirement.kind,
            "strength": plan.requirement.strength,
            "prompt": plan.requirement.prompt(&plan.tool),
            "expires": plan.expires,
        });
        let mut envelope = self
            .envelope()
            .with("status", "confirmation_required")
            .with("plan_id", holding.plan_id.as_str())
            .with("state", holding.state.as_str())
            .with("tool", plan.tool.to_string())
            .with("effect", plan.effect.as_str())
            .with("confirm", confirm)
            .with("preview", preview_data(&plan.preview))
            .with("confirm_token", token.as_str())
            .with("confirm_plan_hash", holding.hash.hex())
            .with("confirm_token_expires_at", plan.expires.to_string());
        // Nobody can agree to what the preview forbids: the answer says that instead of where to ask.
        let blocks = blocks(plan);
        if !blocks.is_empty() {
            return envelope
                .with("blocks", blocks)
                .with("next_actions", json!([NextAction::FixArguments, NextAction::Stop]));
        }
        // A model that may confirm by itself is not pointed to a person.
        if plan.requirement.strength > ApprovalStrength::Caller {
            envelope = envelope.with("approve_command", format!("countersign approve {}", holding.plan_id));
            if let Some(desk) = &policy.desk_url {
                envelope = envelope.with("approve_url", format!("{desk}/plans/{}", holding.plan_id));
            }
        }
        let next: &[NextAction] = match plan.requirement.strength {
            ApprovalStrength::Caller => &[NextAction::AskUser, NextAction::ReissueWithToken],
            ApprovalStrength::Host | ApprovalStrength::Human => {
                &[NextAction::AskPerson, NextAction::WaitForApproval, NextAction::ReissueWithToken]
            }
        };
        let suggestions =
            self.suggest(SuggestionTrigger::Held, Some(Mode::Execute), &plan.tool, Some(&plan.requirement));
        envelope.with("next_actions", json!(next)).with("suggestions", suggestions)
    }

    /// The answer of plan mode, with a card to look at where the client shows cards.
    pub(super) fn answer_with_preview_card(&self, envelope: Envelope, plan: &Plan) -> Answer {
        match CardSupport::of(self.ctx) {
            CardSupport::Shown => Answer::Carded(envelope, cards::preview_meta(self.gateway, plan)),
            CardSupport::Hidden => Answer::Envelope(envelope),
        }
    }

    pub(super) fn envelope(&self) -> Envelope {
        Envelope::ok(&self.command, serde_json::Map::new())
    }
}

/// A preview as answers carry it.
pub(super) fn preview_data(preview: &Preview) -> Value {
    json!({"source": preview.source, "digest": preview.digest, "shown": preview.shown})
}

/// A result beyond the frame limit. Not retryable: the same call would give the same.
fn too_large(tool: &str, why: &str, effect: Effect) -> Refusal {
    let refusal = match ended_without_result(effect, DeliveryState::Unknown) {
        OutcomeStatus::Unknown => Refusal::new(
            Code::UpstreamUnavailable,
            format!("`{tool}` ran, and what came of it is not known: {why}"),
        )
        .because("outcome_unknown")
        .next(&[NextAction::VerifyOutcome]),
        OutcomeStatus::Success | OutcomeStatus::Error => {
            Refusal::new(Code::UpstreamUnavailable, format!("`{tool}` ran, and its answer is lost: {why}"))
                .because("result_too_large")
                .next(&[NextAction::FixArguments, NextAction::AskPerson])
        }
    };
    refusal.with("retryable", false).with("setting", "limits.frame")
}

fn no_answer(code: Code, tool: &str, why: &str, effect: Effect, sent: DeliveryState) -> Refusal {
    match ended_without_result(effect, sent) {
        OutcomeStatus::Unknown => {
            let message = format!("`{tool}` gave no answer, and whether it acted is not known: {why}");
            Refusal::new(code, message)
                .because("outcome_unknown")
                // The code is retryable elsewhere. Here a retry may change something twice.
                .with("retryable", false)
                .next(&[NextAction::VerifyOutcome, NextAction::CheckUpstream])
        }
        OutcomeStatus::Success | OutcomeStatus::Error => {
            Refusal::new(code, format!("`{tool}` gave no answer: {why}"))
                .next(&[NextAction::CheckUpstream, NextAction::RetryLater])
        }
    }
}
