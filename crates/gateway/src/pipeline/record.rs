//! The ledger's part of a call: the row before it is sent, the outcome after, and the row of a refusal.

use std::pin::pin;

use countersign_mcp::fault::DeliveryState;
use countersign_mcp::raw::{self, RawJson};
use countersign_policy::digest::{Digest, DigestDomain};
use countersign_policy::duration::RateLimit;
use countersign_policy::effect::Effect;
use countersign_policy::gate::{Permit, Refused, over_limit};
use countersign_policy::ids::{PlanId, RequestId, UpstreamId};
use countersign_policy::mode::Mode;
use countersign_policy::record::RowStatus;
use countersign_policy::refusal::{Code, Refusal};
use countersign_policy::rules::RuleName;
use countersign_policy::strict_json;
use countersign_store::{OpenRefused, Outcome, OutcomeStatus, RecordedPermit};

use super::dispatch::SentCall;
use super::{CallPipeline, Stage};
use crate::answer::Answer;
use crate::trace;
use crate::upstreams::UpstreamFault;

/// The longest result kept with a plan for `get_plan`, in bytes.
const KEPT_RESULT: usize = 256 << 10;

/// A call whose outcome is recorded.
pub(super) struct ClosedCall {
    pub(super) sent: Result<RawJson, UpstreamFault>,
    pub(super) ended: OutcomeStatus,
    pub(super) tool: String,
    pub(super) effect: Effect,
    pub(super) mode: Mode,
    pub(super) warnings: Vec<String>,
    pub(super) plan: Option<PlanId>,
    /// Empty where the outcome could not be written.
    pub(super) ledger_id: String,
}

impl CallPipeline<'_> {
    /// Takes a place in the rule's rate limit, spends the token and writes the row, which is durable when this returns.
    pub(super) async fn record_permit(&self, permit: Box<Permit>) -> Stage<RecordedPermit> {
        if let Err(refusal) = self.take_rate_limit(permit.limit()) {
            // The token is not spent yet: the call may be repeated with it once the window has room.
            let refused = Refused { refusal, record: permit.record().clone() };
            return Err(Box::pin(self.refuse(refused)).await);
        }
        let recorded = trace::part("ledger", pin!(self.gateway.store.open(permit, self.gateway.now()))).await;
        match recorded {
            Ok(recorded) => {
                if let Some(plan) = &recorded.permit().record().plan_id {
                    self.gateway.announce(plan.clone());
                }
                Ok(recorded)
            }
            Err(refused) => Err(Box::pin(self.refuse_not_recorded(refused)).await),
        }
    }

    /// The policy has only looked at the window. Two calls may both have seen its last place: one of them gets it here.
    fn take_rate_limit(&self, limit: Option<&(RuleName, RateLimit)>) -> Result<(), Refusal> {
        let Some((rule, rate)) = limit else { return Ok(()) };
        let taken = self.gateway.usage.take(rule, &self.caller.principal, *rate, self.gateway.now());
        taken.map_err(|wait| over_limit(rule, *rate, wait))
    }

    pub(super) async fn refuse_not_recorded(&self, refused: OpenRefused) -> Answer {
        let refusal = refused.refusal();
        match refused {
            // The store has written this row, in the transaction that found the token spent.
            OpenRefused::NotSpendable { .. } => self.refuse_unrecorded(&refusal),
            OpenRefused::Fault(_, record) => self.refuse(Refused { refusal, record: *record }).await,
        }
    }

    /// Writes the outcome. One that can't be written is logged; the caller still gets the result, for the call was made.
    pub(super) async fn record_outcome(&self, recorded: RecordedPermit, sent: SentCall) -> ClosedCall {
        let SentCall { sent, duration_us } = sent;
        let permit = recorded.permit();
        let (effect, plan) = (permit.effect(), permit.record().plan_id.clone());
        // The digest covers the upstream's own bytes: `respond` adds to `_meta` only later.
        let mut outcome = outcome(effect, &sent, duration_us, plan.as_ref());
        if outcome.status == OutcomeStatus::Error && outcome.code.is_none() {
            outcome.code = self.own_refusal_code(&permit.tool().upstream, &sent);
        }
        let mut closed = ClosedCall {
            ended: outcome.status,
            tool: permit.record().tool.to_string(),
            effect,
            mode: permit.mode(),
            warnings: permit.warnings().to_vec(),
            plan,
            ledger_id: String::new(),
            sent,
        };
        let status = match closed.ended {
            OutcomeStatus::Success => RowStatus::Success,
            OutcomeStatus::Error | OutcomeStatus::Unknown => RowStatus::Error,
        };
        self.gateway.metrics.took(duration_us);
        self.gateway.metrics.call(Some(effect), status);
        // The store retries this row until it is written: what has happened must not go missing.
        let closing = self.gateway.store.close(recorded, outcome, self.gateway.now());
        match trace::part("ledger", pin!(closing)).await {
            Ok(ledger) => ledger.as_str().clone_into(&mut closed.ledger_id),
            Err(fault) => {
                let (incident, fault) = (fault.incident(), fault.inside());
                tracing::error!(incident, fault, "an outcome could not be recorded");
            }
        }
        trace::noted("countersign.ledger_id", &closed.ledger_id);
        if let Some(plan) = &closed.plan {
            self.gateway.announce(plan.clone());
        }
        closed
    }

    /// The code of a refusal that one of our own upstreams answered with, for the row.
    fn own_refusal_code(&self, upstream: &UpstreamId, sent: &Result<RawJson, UpstreamFault>) -> Option<Code> {
        let result = strict_json::read_to_show(sent.as_ref().ok()?.get())?;
        let upstreams = self.gateway.upstreams.load();
        upstreams.get(upstream)?.own_refusal(&result).map(|refusal| refusal.code)
    }

    /// Refuses the call and writes its row. A row that can't be written does not turn a refusal into anything else.
    pub(super) async fn refuse(&self, refused: Refused) -> Answer {
        let Refused { refusal, record } = refused;
        self.log().refused(&record, &refusal);
        self.gateway.metrics.call(record.effect, RowStatus::Refused);
        if let Err(fault) = self.gateway.store.refused(&record, &refusal, self.gateway.now()).await {
            let (incident, fault) = (fault.incident(), fault.inside());
            tracing::error!(incident, fault, "a refusal could not be recorded");
        }
        Answer::refused(&self.command, &refusal)
    }

    /// Refuses the call without a row: the store has written it, or could not.
    pub(super) fn refuse_unrecorded(&self, refusal: &Refusal) -> Answer {
        let request_id = self.caller.request_id.as_ref().map(RequestId::as_str);
        let (code, reason) = (refusal.code.as_str(), refusal.reason_code);
        let principal = self.caller.principal.as_str();
        tracing::info!(request_id, principal, outcome = "refused", code, reason, "verdict");
        Answer::refused(&self.command, refusal)
    }
}

fn outcome(
    effect: Effect,
    sent: &Result<RawJson, UpstreamFault>,
    duration_us: u64,
    plan: Option<&PlanId>,
) -> Outcome {
    let (status, code, result) = match sent {
        Ok(result) => {
            let failed = raw::get_text(result.get(), "isError") == Some("true");
            let status = if failed { OutcomeStatus::Error } else { OutcomeStatus::Success };
            (status, None, Some(result))
        }
        // An error is an answer: the upstream says that it did not do it.
        Err(UpstreamFault::Rpc(_)) => (OutcomeStatus::Error, None, None),
        Err(UpstreamFault::Unavailable { sent, .. }) => {
            (ended_without_result(effect, *sent), Some(Code::UpstreamUnavailable), None)
        }
        Err(UpstreamFault::TooLarge { .. }) => {
            // An answer that was too long was an answer: the call ran, whatever we can read of it.
            let ended = ended_without_result(effect, DeliveryState::Unknown);
            (ended, Some(Code::UpstreamUnavailable), None)
        }
        Err(UpstreamFault::Timeout { sent, .. }) => {
            (ended_without_result(effect, *sent), Some(Code::UpstreamTimeout), None)
        }
    };
    Outcome {
        status,
        code,
        duration_us,
        result_digest: result.map(|result| Digest::of(DigestDomain::Outcome, result.get().as_bytes())),
        result: result
            // Only plans have readers later (`get_plan`, the page). Results of plain calls are kept as a digest only.
            .filter(|result| plan.is_some() && result.get().len() <= KEPT_RESULT)
            .map(|result| result.get().to_owned()),
    }
}

/// A read without a result has failed. A write that may have reached the upstream is unknown: it is never sent again by us.
pub(super) fn ended_without_result(effect: Effect, sent: DeliveryState) -> OutcomeStatus {
    match (effect, sent) {
        (Effect::Write | Effect::Destructive, DeliveryState::Unknown) => OutcomeStatus::Unknown,
        (Effect::Read, _)
        | (Effect::Write | Effect::Destructive, DeliveryState::No | DeliveryState::Refused) => {
            OutcomeStatus::Error
        }
    }
}
