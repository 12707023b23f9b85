//! Plans that a person ran from the page, over REST or with `approve --run`: their result belongs to the call that asked for
//! them. It is delivered once, to the call that waits or to the next equal one, so that a client that gave up and tries again
//! does not change the same thing twice.

use countersign_mcp::raw::{self, RawJson};
use countersign_policy::call::Arguments;
use countersign_policy::confirm::PlanState;
use countersign_policy::ids::PlanId;
use countersign_policy::mode::Mode;
use countersign_policy::record::{CallRecord, RowKind, RowStatus};
use countersign_policy::refusal::NextAction;
use countersign_store::{Entry, EqualCall, LedgerFilter, LedgerRow, PlanRow};
use serde_json::json;

use super::hold::always_needs_token;
use super::respond::ResultMetadata;
use super::{CallPipeline, Stage};
use crate::active_policy::ActivePolicy;
use crate::answer::{Answer, with_meta};
use crate::decision_wait;
use crate::state::GatewayState;

/// Notes that the agent has seen a plan's result: the next equal call is a new plan.
pub(crate) async fn mark_result_delivered(gateway: &GatewayState, plan: &PlanId) {
    // A note that can't be written repeats an answer, and changes nothing twice.
    let _ = gateway.store.release_result(plan).await;
}

impl CallPipeline<'_> {
    /// Ends an equal call with the result of a plan that a person ran and nobody has been given the result of.
    pub(super) async fn deliver_finished_plan(
        &self,
        arguments: &Arguments,
        record: &CallRecord,
        policy: &ActivePolicy,
    ) -> Stage<()> {
        // Such an upstream promises that nothing happens without a token of the call's own.
        if always_needs_token(&record.tool.upstream, policy) {
            return Ok(());
        }
        let (principal, session) = (&self.caller.principal, &self.caller.session);
        let equal = EqualCall { principal, session, tool: &record.tool, arguments };
        let found = match self.gateway.store.undelivered_plan(equal, self.gateway.now()).await {
            Ok(found) => found,
            Err(fault) => return Err(self.refuse_unrecorded(&fault.refusal())),
        };
        let Some(id) = found else { return Ok(()) };
        let mut record = record.clone();
        record.plan_id = Some(id.clone());
        // The row first: this call has none otherwise, and its result comes from the row of another.
        let row = Entry::of_call(&record, RowStatus::Pending).with_fact("action", "result_delivered");
        if let Err(fault) = self.gateway.store.append(row, self.gateway.now()).await {
            return Err(self.refuse_unrecorded(&fault.refusal()));
        }
        match self.result_of_finished_plan(&id, &[already_ran(&id)]).await {
            Some(answer) => Err(answer),
            None => self.answer_unfinished(&id).await,
        }
    }

    /// A plan that still runs, or whose result was too long to keep: says where it stands. One that failed without a result
    /// is asked for again.
    async fn answer_unfinished(&self, id: &PlanId) -> Stage<()> {
        let Some(row) = self.gateway.plan(id).await.ok().flatten() else { return Ok(()) };
        // A failed run without a result may be asked for again; one that still runs must not run twice.
        if !matches!(row.state, PlanState::Executing | PlanState::Done) {
            return Ok(());
        }
        if row.state == PlanState::Done {
            mark_result_delivered(self.gateway, id).await;
        }
        let envelope = self
            .envelope()
            .with("status", row.state.as_str())
            .with("plan_id", id.as_str())
            .with("tool", row.plan.tool.to_string())
            .with("next_actions", json!([NextAction::GetPlan]))
            .warn(vec![already_ran(id)]);
        Err(Answer::Envelope(envelope))
    }

    /// The plan once it has ended, where a person ran it; none where nobody did.
    pub(super) async fn await_finished_plan(&self, id: &PlanId) -> Option<PlanRow> {
        let is_run =
            |state: PlanState| matches!(state, PlanState::Executing | PlanState::Done | PlanState::Failed);
        let row = self.gateway.plan(id).await.ok().flatten().filter(|row| is_run(row.state))?;
        if row.state != PlanState::Executing {
            return Some(row);
        }
        // No longer than a dialog would hold the call: hosts give up on calls that never answer.
        let seconds = self.dialog_patience().as_secs_f64();
        decision_wait::until_settled(self.gateway, self.ctx?, id, seconds).await;
        self.gateway.plan(id).await.ok().flatten()
    }

    /// The result of a plan that a person ran, as the call itself would have returned it.
    pub(super) async fn result_of_finished_plan(&self, id: &PlanId, warnings: &[String]) -> Option<Answer> {
        let row = self.await_finished_plan(id).await?;
        let result = raw::from_text(row.result.as_deref()?)?;
        if !row.plan.steps.is_empty() {
            mark_result_delivered(self.gateway, id).await;
            return self.finished_series(&row, &result, warnings);
        }
        let filter =
            LedgerFilter { kind: Some(RowKind::Call), plan_id: Some(id.clone()), ..LedgerFilter::default() };
        let rows = self.gateway.store.activity(filter).await.ok()?.rows;
        // A plan has several call rows. The client gets the id of its end, as if it had run the plan itself.
        let ended = |row: &&LedgerRow| matches!(row.status, RowStatus::Success | RowStatus::Error);
        let ledger = rows.iter().find(ended).map(|row| row.id.as_str().to_owned()).unwrap_or_default();
        mark_result_delivered(self.gateway, id).await;
        let metadata = ResultMetadata {
            request_id: self.request_id(),
            plan_id: Some(id.as_str()),
            ledger_id: &ledger,
            effect: row.plan.effect.as_str(),
            mode: Mode::Execute.as_str(),
            warnings,
        };
        Some(Answer::Upstream(with_meta(result, &metadata)))
    }
}

impl CallPipeline<'_> {
    fn finished_series(&self, row: &PlanRow, result: &RawJson, warnings: &[String]) -> Option<Answer> {
        let status = if row.state == PlanState::Done { "done" } else { "failed" };
        let mut envelope = self.envelope().with("status", status).with("plan_id", row.plan.id.as_str());
        if let Some(next) = raw::get(result, "next_plan_id") {
            envelope = envelope.with_text("next_plan_id", next.get());
        }
        let steps = raw::get(result, "steps")?;
        Some(Answer::Envelope(envelope.with_text("steps", steps.get()).warn(warnings.to_vec())))
    }
}

fn already_ran(id: &PlanId) -> String {
    format!("a person ran `{id}`: this is its result, and nothing ran again")
}
