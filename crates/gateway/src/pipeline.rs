//! One tool call, from request to answer. `run_tool_call` calls the stages in this order, each of them once: request, load,
//! authorize, preview, hold, redeem, record, dispatch, respond. The policy decides; this module loads what the decision needs
//! and does what the verdict says. Every failure on the way refuses the call.

pub(crate) mod approve_and_run;
mod authorize;
mod dialog;
mod dispatch;
mod explain;
pub(crate) mod finished_plan;
pub(crate) mod governed_request;
mod hold;
mod load;
pub(crate) mod open_page;
mod preview;
mod question;
mod record;
mod redeem;
pub mod request;
mod respond;
pub(crate) mod series;
mod steps;

use std::pin::pin;
use std::sync::Arc;
use std::time::Instant;

use countersign_mcp::raw::RawJson;
use countersign_mcp::server::RequestContext;
use countersign_policy::call::{Caller, ToolCall};
use countersign_policy::gate::{Permit, Verdict};
use countersign_policy::ids::PlanId;
use countersign_policy::refusal::Code;
use countersign_store::OutcomeStatus;

use crate::active_policy::ActivePolicy;
use crate::answer::Answer;
use crate::state::GatewayState;
use crate::trace;

use request::ToolCallRequest;

/// One call on its way. Stages are methods of it.
pub(crate) struct CallPipeline<'a> {
    pub gateway: &'a Arc<GatewayState>,
    /// The client's request; none where a person runs a plan and no client listens.
    pub ctx: Option<&'a RequestContext>,
    pub caller: Caller,
    /// The command name of our own answers.
    pub command: String,
    /// How long the call may be held open, where it says so itself.
    pub wait_seconds: Option<f64>,
    /// The params of `tools/call`. Some of their members are sent along.
    pub params: Option<RawJson>,
    /// When the work began, for the log.
    pub started: Instant,
}

/// What a stage returns: the next stage's input, or the answer that ends the call here.
type Stage<T> = Result<T, Answer>;

/// Runs a tool call that a client sent.
pub(crate) async fn run_tool_call(
    gateway: &Arc<GatewayState>,
    ctx: Option<&RequestContext>,
    caller: Caller,
    mut request: ToolCallRequest,
) -> Answer {
    let params = request.params.take();
    let pipeline = CallPipeline {
        wait_seconds: request.wait_seconds,
        params,
        ..CallPipeline::new(gateway, ctx, caller, std::mem::take(&mut request.command))
    };
    // Before the call is built: defaults come from the tool's schema, and an upstream that is still starting has
    // listed none.
    pipeline.wait_for_own_upstream(&request.name.upstream).await;
    let call = Box::new(pipeline.build_call(request));
    pipeline.run_call(call).await
}

impl<'a> CallPipeline<'a> {
    pub(crate) fn new(
        gateway: &'a Arc<GatewayState>,
        ctx: Option<&'a RequestContext>,
        caller: Caller,
        command: impl Into<String>,
    ) -> Self {
        let command = command.into();
        Self { gateway, ctx, caller, command, wait_seconds: None, params: None, started: Instant::now() }
    }

    /// Evaluates the call, has it confirmed where that is needed, and runs it. The call is boxed: every future it passes through
    /// would carry it otherwise.
    pub(super) async fn run_call(&self, call: Box<ToolCall>) -> Answer {
        let mut held = None;
        let permit = match self.obtain_permit(call, &mut held).await {
            Ok(permit) => permit,
            Err(answer) => return self.prefer_finished_result(held, answer).await,
        };
        let (answer, _) = self.execute(permit).await;
        self.prefer_finished_result(held, answer).await
    }

    async fn obtain_permit(&self, call: Box<ToolCall>, held: &mut Option<PlanId>) -> Stage<Box<Permit>> {
        // One policy for the whole decision: a reload between two stages must not mix two sets of rules.
        let policy = self.gateway.policy.load_full();
        match *self.evaluate(call, &policy).await? {
            Verdict::Go(permit) => Ok(Box::new(permit)),
            // Boxed: the future of a plain read would otherwise carry the size of everything in here.
            other @ (Verdict::Redeem(_)
            | Verdict::Hold(_)
            | Verdict::Preview(_)
            | Verdict::Explain(_)
            | Verdict::Refuse(_)) => Box::pin(self.handle_verdict(other, &policy, held)).await,
        }
    }

    /// Loads what the decision needs, then decides.
    async fn evaluate(&self, mut call: Box<ToolCall>, policy: &ActivePolicy) -> Stage<Box<Verdict>> {
        let stage = async {
            let context = self.load_context(&call).await?;
            // After the plan: a tool that changed only now ends the plan as `tool_changed`, not as cancelled by somebody.
            call.catalog_status = self.load_catalog_status(&call).await;
            Ok(self.authorize(*call, policy, &context))
        };
        trace::part("gate", pin!(stage)).await
    }

    /// Does what a verdict asks for that does not let the call run at once.
    async fn handle_verdict(
        &self,
        verdict: Verdict,
        policy: &ActivePolicy,
        held: &mut Option<PlanId>,
    ) -> Stage<Box<Permit>> {
        let verdict = match verdict {
            Verdict::Hold(draft) => {
                let plan = self.hold_plan(draft, policy).await?;
                // An approval that is redeemed without waiting is this call's own: its result is nobody else's.
                *held = (!plan.is_approved).then(|| plan.held.holding.plan_id.clone());
                let confirmed = self.wait_for_decision(plan, policy).await?;
                // The wait was long: the policy in force now decides whether the call may still run.
                *self.evaluate(confirmed, &self.gateway.policy.load_full()).await?
            }
            other @ (Verdict::Go(_)
            | Verdict::Redeem(_)
            | Verdict::Preview(_)
            | Verdict::Explain(_)
            | Verdict::Refuse(_)) => other,
        };
        match verdict {
            Verdict::Go(permit) => Ok(Box::new(permit)),
            Verdict::Redeem(redemption) => self.redeem(redemption).await,
            Verdict::Preview(draft) => Err(self.show_preview(draft).await),
            Verdict::Explain(explanation) => Err(self.explain(explanation).await),
            Verdict::Refuse(refused) => Err(self.refuse_with_suggestions(refused).await),
            // A call with its token is never held again. If it ever were, it would not run.
            Verdict::Hold(draft) => Err(self.refuse_held_twice(draft).await),
        }
    }

    /// Records the permit, sends the call, records the outcome and answers.
    pub(super) async fn execute(&self, permit: Box<Permit>) -> (Answer, OutcomeStatus) {
        let recorded = match self.record_permit(permit).await {
            Ok(recorded) => recorded,
            // Without a row nothing is sent.
            Err(answer) => return (answer, OutcomeStatus::Error),
        };
        let sent = self.dispatch(&recorded).await;
        let closed = self.record_outcome(recorded, sent).await;
        let ended = closed.ended;
        (self.respond(closed), ended)
    }

    /// A person who approved the plan may have run it, too, before the call that waited could: then its result is the answer.
    async fn prefer_finished_result(&self, held: Option<PlanId>, answer: Answer) -> Answer {
        match held {
            Some(plan) if answer.is_refused(Code::ConfirmTokenUsed) => {
                Box::pin(self.result_of_finished_plan(&plan, &[])).await.unwrap_or(answer)
            }
            Some(_) | None => answer,
        }
    }
}
