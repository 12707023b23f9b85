//! Runs the steps of a confirmed plan: in order, stopped at the first failure, each with a row of its own. A step that is
//! previewed when reached is evaluated and previewed here. One that nobody may run unseen stops the plan, and a new plan asks for
//! it and for everything after it.

use std::time::Instant;

use countersign_mcp::raw::{self, RawJson};
use countersign_policy::envelope::Envelope;
use countersign_policy::gate::{
    CallDraft, PendingStep, ReachedStep, Refused, SeriesPermits, SeriesPurpose, StepPermit, freeze_series,
};
use countersign_policy::ids::PlanId;
use countersign_policy::plan::{Plan, Preview};
use countersign_policy::record::CallRecord;
use countersign_policy::refusal::{Code, Refusal};
use countersign_store::{Outcome, OutcomeStatus, RecordedPermit};
use serde_json::json;

use super::hold::HeldPlan;
use super::{CallPipeline, Stage};
use crate::answer::Answer;
use crate::call_log::micros_since;

/// How far the steps of a plan came.
struct StepsRun {
    /// One entry a step, in order.
    listed: Vec<RawJson>,
    ended: OutcomeStatus,
    done: usize,
    /// The plan that asks for the steps that are left, where one has to be seen first.
    rest: Option<HeldPlan>,
}

/// A plan that stopped where a step has to be seen first.
pub(super) struct StoppedSeries {
    plan: Plan,
    /// Its steps, with what became of each.
    listed: RawJson,
}

/// What became of a step that is previewed when reached.
enum StepOutcome {
    Ended(Answer, OutcomeStatus),
    AskAgain(Box<HeldPlan>),
}

impl CallPipeline<'_> {
    /// Spends the token, then runs one step after the other until one fails or has to be seen first.
    pub(super) async fn run_steps(
        &self,
        plan: Plan,
        permits: SeriesPermits,
    ) -> Stage<(StoppedSeries, HeldPlan)> {
        let SeriesPermits { whole, steps } = permits;
        // The whole plan is spent before its first step: a second run of the same token would repeat finished steps.
        let recorded = match self.gateway.store.open(whole, self.gateway.now()).await {
            Ok(recorded) => recorded,
            Err(refused) => return Err(self.refuse_not_recorded(refused).await),
        };
        self.gateway.announce(plan.id.clone());
        let start = Instant::now();
        let mut run = self.run_each(&plan, steps).await;
        let listed = raw::to_raw(&run.listed);
        self.record_series_outcome(recorded, &run, &listed, start).await;
        self.gateway.announce(plan.id.clone());
        match run.rest.take() {
            Some(rest) => Ok((StoppedSeries { plan, listed }, rest)),
            None => Err(self.steps_answer(&plan, &run, &listed)),
        }
    }

    async fn run_each(&self, plan: &Plan, steps: Vec<StepPermit>) -> StepsRun {
        let mut run = StepsRun {
            listed: Vec::with_capacity(steps.len()),
            ended: OutcomeStatus::Success,
            done: 0,
            rest: None,
        };
        for (permit, step) in steps.into_iter().zip(&plan.steps) {
            let (number, tool) = (run.listed.len() + 1, step.tool.to_string());
            let not_run = || raw::to_raw(&json!({"step": number, "tool": tool, "state": "not_run"}));
            // Listed as not run instead of left out: the agent must not conclude that they succeeded.
            if run.ended != OutcomeStatus::Success || run.rest.is_some() {
                run.listed.push(not_run());
                continue;
            }
            let (answer, how) = match permit {
                StepPermit::Ready(permit) => self.execute(permit).await,
                StepPermit::WhenReached(pending) => {
                    match self.run_reached(plan, *pending, number - 1).await {
                        StepOutcome::Ended(answer, how) => (answer, how),
                        StepOutcome::AskAgain(rest) => {
                            run.rest = Some(*rest);
                            run.listed.push(not_run());
                            continue;
                        }
                    }
                }
            };
            run.ended = how;
            run.done += usize::from(how == OutcomeStatus::Success);
            let state = if how == OutcomeStatus::Success { "done" } else { "failed" };
            let line = raw::to_raw(&json!({"step": number, "tool": tool, "state": state}));
            // The result is spliced in as text: parsing it would change digits.
            run.listed.push(raw::set(&line, "result", &answer_text(answer)).unwrap_or(line));
        }
        run
    }

    /// Evaluates and previews a step, and runs it where nobody has to see that preview first.
    async fn run_reached(&self, plan: &Plan, pending: PendingStep, index: usize) -> StepOutcome {
        match self.preview_reached(pending).await {
            Ok((ReachedStep::Run(permit), _)) => {
                let (answer, how) = self.execute(permit).await;
                StepOutcome::Ended(answer, how)
            }
            Ok((ReachedStep::AskAgain, preview)) => match self.hold_rest(plan, index, preview).await {
                Ok(rest) => StepOutcome::AskAgain(Box::new(rest)),
                Err(answer) => StepOutcome::Ended(answer, OutcomeStatus::Error),
            },
            Err(refused) => StepOutcome::Ended(self.refuse(*refused).await, OutcomeStatus::Error),
        }
    }

    async fn preview_reached(&self, pending: PendingStep) -> Result<(ReachedStep, Preview), Box<Refused>> {
        let step = pending.step();
        let drafts = self.evaluate_again(std::iter::once(step)).await;
        let numbered = |mut refused: Box<Refused>| {
            refused.refusal = refused.refusal.with("step", pending.number());
            refused
        };
        let Some(draft) = drafts.map_err(numbered)?.pop() else {
            let refusal = Refusal::new(Code::StepFailed, format!("`{}` was not judged", step.tool));
            let arguments = step.arguments.text().as_bytes();
            let record = CallRecord::unread(&self.caller, step.tool.clone(), None, arguments);
            return Err(Box::new(Refused { refusal, record }));
        };
        let record = draft.record.clone();
        let refused = |refusal| Box::new(Refused { refusal, record: record.clone() });
        // Before the preview: a dry run is a call, too, and what must not run must not be previewed.
        pending.check(&draft).map_err(&refused)?;
        let number = pending.number();
        let preview = self.compute_preview(&draft, None).await;
        let preview = preview.map_err(|fault| refused(fault.refusal().with("step", number)))?;
        let reached = pending.settle(draft, &preview).map_err(&refused)?;
        Ok((reached, preview))
    }

    /// Stores a plan for the steps from this one on, the first with the preview it has now.
    async fn hold_rest(&self, plan: &Plan, from: usize, preview: Preview) -> Stage<HeldPlan> {
        let drafts = self.evaluate_again(plan.steps.iter().skip(from)).await;
        let drafts: Vec<CallDraft> = self.or_refuse(drafts).await?;
        let steps = self.preview_steps(drafts, Some(preview)).await;
        let steps = self.or_refuse(steps).await?;
        let (policy, now) = (self.gateway.policy.load_full(), self.gateway.now());
        let id = PlanId::mint(now, uuid::Uuid::new_v4().as_u128());
        let mut rest = freeze_series(id, &self.caller, &SeriesPurpose::of(plan), &steps, now, policy.ttl);
        if let Some(shown) = rest.preview.shown.as_object_mut() {
            // Shown to the person who decides on the rest: part of this plan has already happened.
            shown.insert("continues".to_owned(), plan.id.as_str().into());
        }
        let record = self.series_record(&rest);
        self.store_plan(rest, record).await
    }

    async fn record_series_outcome(
        &self,
        recorded: RecordedPermit,
        run: &StepsRun,
        listed: &RawJson,
        start: Instant,
    ) {
        let mut result = raw::to_raw(&json!({}));
        result = raw::set(&result, "steps", listed).unwrap_or(result);
        if let Some(rest) = &run.rest {
            let id = raw::to_raw(&rest.holding.plan_id);
            result = raw::set(&result, "next_plan_id", &id).unwrap_or(result);
        }
        let (status, code) = match (run.ended, &run.rest) {
            (OutcomeStatus::Success, None) => (OutcomeStatus::Success, None),
            // What ran succeeded, and the plan did not finish: as a success it would read as complete.
            (OutcomeStatus::Success, Some(_)) => (OutcomeStatus::Error, Some(Code::ConfirmRequired)),
            (ended @ (OutcomeStatus::Error | OutcomeStatus::Unknown), _) => (ended, Some(Code::StepFailed)),
        };
        let outcome = Outcome {
            status,
            code,
            duration_us: micros_since(start),
            result_digest: None,
            result: Some(result.get().to_owned()),
        };
        if let Err(fault) = self.gateway.store.close(recorded, outcome, self.gateway.now()).await {
            let (incident, fault) = (fault.incident(), fault.inside());
            tracing::error!(incident, fault, "an outcome could not be recorded");
        }
    }

    /// The answer of a plan whose steps all ran, or of which one failed.
    fn steps_answer(&self, plan: &Plan, run: &StepsRun, listed: &RawJson) -> Answer {
        let status = if run.ended == OutcomeStatus::Success { "done" } else { "failed" };
        let mut envelope = self
            .envelope()
            .with("status", status)
            .with("plan_id", plan.id.as_str())
            .with_text("steps", listed.get());
        envelope = with_removed_steps(envelope, plan);
        if run.ended != OutcomeStatus::Success {
            let failed = run.done + 1;
            envelope.ok = false;
            let message = format!("step {failed} of `{}` failed; the steps after it were not run", plan.id);
            let refusal = Refusal::new(Code::StepFailed, message).with("step", failed);
            envelope.errors.push((&refusal).into());
        }
        Answer::Envelope(envelope)
    }

    /// Adds what ran before to the answer about the rest of a plan.
    pub(super) fn with_ran_steps(&self, answer: Answer, ran: &StoppedSeries) -> Answer {
        let with_steps = |mut envelope: Envelope| {
            if self.ctx.is_none() {
                // A person ran this, and tokens are the agent's. It drafts the same steps again to get one.
                envelope.data.remove("confirm_token");
            }
            let id = &ran.plan.id;
            let note =
                format!("`{id}` stopped where a step could only be previewed now: this is the rest of it");
            let envelope = envelope.warn(vec![note]).with("continues", id.as_str());
            with_removed_steps(envelope.with_text("ran_steps", ran.listed.get()), &ran.plan)
        };
        match answer {
            Answer::Envelope(envelope) => Answer::Envelope(with_steps(envelope)),
            Answer::Carded(envelope, meta) => Answer::Carded(with_steps(envelope), meta),
            other @ (Answer::Upstream(_) | Answer::Rpc(_)) => other,
        }
    }
}

/// Adds the steps that a person took out.
fn with_removed_steps(envelope: Envelope, plan: &Plan) -> Envelope {
    let Some(removed) = plan.preview.shown.get("removed_steps") else { return envelope };
    let note = "a person took steps out before agreeing: they were not run";
    envelope.with("removed_steps", removed.clone()).warn(vec![note.to_owned()])
}

fn answer_text(answer: Answer) -> RawJson {
    match answer {
        Answer::Envelope(envelope) | Answer::Carded(envelope, _) => raw::to_raw(&envelope),
        Answer::Upstream(result) => result,
        Answer::Rpc(error) => raw::to_raw(&json!({"code": error.code(), "message": error.message()})),
    }
}
