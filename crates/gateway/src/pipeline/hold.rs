//! Holds a call that needs a confirmation: stores its plan, asks the host, and keeps the call open until somebody decides or
//! its time is over. Decides nothing itself; decisions are made in `approval`.

use std::time::{Duration, Instant};

use countersign_config::{NativeKind, UpstreamKind};
use countersign_policy::call::ToolCall;
use countersign_policy::confirm::{ApprovalStrength, Kind, PlanState, RecordedChannel, check_unblocked};
use countersign_policy::duration::RateLimit;
use countersign_policy::gate::{CallDraft, Refused, RuleUsage as _, over_limit, token_digest};
use countersign_policy::ids::{PlanId, UpstreamId};
use countersign_policy::plan::Plan;
use countersign_policy::record::CallRecord;
use countersign_policy::refusal::Refusal;
use countersign_policy::rules::RuleName;
use countersign_store::{HoldRefused, Holding, PlanMatch};

use super::dialog::{AUTOMATIC, DialogOutcome};
use super::{CallPipeline, Stage};
use crate::active_policy::ActivePolicy;
use crate::cards::{CardSupport, RepeatedCall};
use crate::decision_wait;
use crate::trace;

/// How long a dialog holds its call where calls are not held open otherwise.
const DIALOG_PATIENCE: Duration = Duration::from_secs(50);

/// A stored plan, and the token of the call that asked for it.
pub(super) struct HeldPlan {
    pub(super) plan: Plan,
    pub(super) holding: Holding,
    pub(super) token: String,
}

pub(super) struct HeldCall {
    pub(super) held: HeldPlan,
    draft: CallDraft,
    /// An equal call was approved before: this one redeems that approval, and nobody is asked again.
    pub(super) is_approved: bool,
}

impl CallPipeline<'_> {
    /// Previews the call, freezes it into a plan and stores that.
    pub(super) async fn hold_plan(&self, mut draft: CallDraft, policy: &ActivePolicy) -> Stage<HeldCall> {
        if let Err(refusal) = self.check_draft_rate() {
            return Err(self.refuse(Refused { refusal, record: draft.record }).await);
        }
        // Before the preview: what has been changed already may not be previewed a second time.
        self.deliver_finished_plan(&draft.call.arguments, &draft.record, policy).await?;
        let preview = match self.preview_draft(&mut draft).await {
            Ok(preview) => preview,
            Err(refusal) => return Err(self.refuse(Refused { refusal, record: draft.record }).await),
        };
        let now = self.gateway.now();
        let id = PlanId::mint(now, uuid::Uuid::new_v4().as_u128());
        let plan = draft.freeze(id, preview, now, policy.ttl);
        let held = self.store_plan(plan, draft.record.clone()).await?;
        trace::noted("countersign.plan_id", held.holding.plan_id.as_str());
        let is_approved = self.is_approved(&held.holding, &held.plan.tool.upstream, policy).await;
        Ok(HeldCall { held, draft, is_approved })
    }

    /// Keeps the call open. Returns the call with its token once somebody decided; otherwise the call ends with the answer
    /// that asks for a confirmation.
    pub(super) async fn wait_for_decision(
        &self,
        call: HeldCall,
        policy: &ActivePolicy,
    ) -> Stage<Box<ToolCall>> {
        let HeldCall { held, draft, is_approved } = call;
        if is_approved {
            return Ok(with_token(draft, &held.token));
        }
        let outcome = self.ask_until_decided(&held.plan, &held.holding, policy).await;
        if outcome == DialogOutcome::Decided {
            return match self.result_of_finished_plan(&held.holding.plan_id, &[]).await {
                Some(answer) => Err(answer),
                None => Ok(with_token(draft, &held.token)),
            };
        }
        let again = RepeatedCall { entry_point: draft.call.entry_point, params: self.params.as_deref() };
        let mut warnings = draft.warnings;
        warnings.extend((outcome == DialogOutcome::Automatic).then(|| AUTOMATIC.to_owned()));
        Err(self.ask_for_confirmation(&held, policy, warnings, again))
    }

    /// Stores a plan with a new token, or joins the equal plan that is open, and announces a new one.
    pub(super) async fn store_plan(&self, plan: Plan, record: CallRecord) -> Stage<HeldPlan> {
        let token = uuid::Uuid::new_v4().to_string();
        let (digest, now) = (token_digest(&token), self.gateway.now());
        let holding = match self.gateway.store.hold(&plan, digest, plan.expires, record.clone(), now).await {
            Ok(holding) => holding,
            Err(refused) => {
                let refusal = refused.refusal();
                return Err(match refused {
                    // The store has written this row.
                    HoldRefused::TooManyPending => self.refuse_unrecorded(&refusal),
                    HoldRefused::Fault(_) => self.refuse(Refused { refusal, record }).await,
                });
            }
        };
        if holding.how == PlanMatch::New {
            let (rule, rate) = self.draft_rate();
            // Too late to refuse this plan: the next one is refused by `check_draft_rate`.
            let _ = self.gateway.usage.take(&rule, &self.caller.principal, rate, now);
            crate::notify::notify_pending(self.gateway, &holding.plan_id, &plan);
        }
        Ok(HeldPlan { plan, holding, token })
    }

    /// Refuses another plan of a principal that asked for too many lately. Cancelling plans does not make room: each of
    /// them was shown to somebody.
    pub(super) fn check_draft_rate(&self) -> Result<(), Refusal> {
        let (rule, rate) = self.draft_rate();
        match self.gateway.usage.wait(&rule, &self.caller.principal, rate, self.gateway.now()) {
            Some(wait) => Err(over_limit(&rule, rate, wait)),
            None => Ok(()),
        }
    }

    fn draft_rate(&self) -> (RuleName, RateLimit) {
        (RuleName("limits.drafts".into()), self.gateway.policy.load().config.limits.drafts)
    }

    /// Asks the host and waits for every other channel, both within the time the call is held open.
    pub(super) async fn ask_until_decided(
        &self,
        plan: &Plan,
        holding: &Holding,
        policy: &ActivePolicy,
    ) -> DialogOutcome {
        let outcome = self.hold_open(plan, holding, policy).await;
        if outcome != DialogOutcome::Decided {
            decision_wait::note_not_held(self.gateway, &holding.plan_id).await;
        }
        outcome
    }

    async fn hold_open(&self, plan: &Plan, holding: &Holding, policy: &ActivePolicy) -> DialogOutcome {
        let start = Instant::now();
        let asked = self.ask_host(plan, holding).await;
        if asked == DialogOutcome::Decided {
            return asked;
        }
        // A plan that was decided before this call, or whose preview forbids it, has nothing to wait for.
        let open = holding.state == PlanState::Pending && check_unblocked(plan).is_ok();
        let Some(ctx) = self.ctx.filter(|_| open) else { return asked };
        let left = self.call_patience(plan, policy).saturating_sub(start.elapsed());
        if left.is_zero() {
            return asked;
        }
        let waiting =
            decision_wait::hold_until_decided(self.gateway, ctx, &holding.plan_id, left.as_secs_f64());
        if trace::part("wait", waiting).await { DialogOutcome::Decided } else { asked }
    }

    /// How long this call is held open: as it says itself, else as configured where its own token is not enough.
    fn call_patience(&self, plan: &Plan, policy: &ActivePolicy) -> Duration {
        let card = RecordedChannel::Card.strength_with(self.caller.scopes.vouching);
        let card_is_enough = plan.requirement.strength <= card && plan.requirement.kind != Kind::Type;
        match self.wait_seconds {
            Some(seconds) => Duration::try_from_secs_f64(seconds).unwrap_or_default(),
            // A card comes with the answer: a call that is held open would keep the button from the person.
            None if card_is_enough && CardSupport::of(self.ctx) == CardSupport::Shown => Duration::ZERO,
            None if plan.requirement.strength > ApprovalStrength::Caller => policy.hold,
            None => Duration::ZERO,
        }
    }

    /// How long the host may take to answer its dialog.
    pub(super) fn dialog_patience(&self) -> Duration {
        let own = self.wait_seconds.map(|seconds| Duration::try_from_secs_f64(seconds).unwrap_or_default());
        let held = own.unwrap_or_else(|| self.gateway.policy.load().hold);
        if held.is_zero() { DIALOG_PATIENCE } else { held }
    }

    /// Whether an equal call was approved before, out of the model's reach: then this one may redeem that approval.
    pub(super) async fn is_approved(
        &self,
        holding: &Holding,
        upstream: &UpstreamId,
        policy: &ActivePolicy,
    ) -> bool {
        if holding.state != PlanState::Approved || always_needs_token(upstream, policy) {
            return false;
        }
        let row = self.gateway.plan(&holding.plan_id).await.ok().flatten();
        row.and_then(|row| row.approval).is_some_and(|approval| approval.strength >= ApprovalStrength::Host)
    }
}

/// The tools of `pack` never run without a token of their own (seed 001).
pub(super) fn always_needs_token(upstream: &UpstreamId, policy: &ActivePolicy) -> bool {
    let kind = policy.config.upstream(upstream).map(|written| &written.kind);
    matches!(kind, Some(UpstreamKind::Native { kind: NativeKind::Pack, .. }))
}

/// The same call as it would come back in phase 2.
fn with_token(draft: CallDraft, token: &str) -> Box<ToolCall> {
    let mut call = draft.call;
    call.confirm_input.token = Some(token.to_owned());
    call.confirm_input.yes = Some(true);
    Box::new(call)
}
