//! Calls: a permit becomes a `RecordedPermit` when its token is spent and its row is on disk, both in one transaction; only that can
//! be dispatched. The outcome is a second row. Decides nothing but which of two racing calls wins.

use std::sync::Arc;

use countersign_policy::confirm::{PlanEnd, PlanState};
use countersign_policy::digest::Digest;
use countersign_policy::effect::Effect;
use countersign_policy::gate::Permit;
use countersign_policy::ids::{GrantId, LedgerId, PlanId, PrincipalId};
use countersign_policy::record::{ActorRole, CallRecord, RowKind, RowStatus};
use countersign_policy::refusal::{Code, NextAction, Refusal};
use countersign_policy::words::UnknownWord;
use jiff::Timestamp;
use tokio::sync::OwnedSemaphorePermit;

use crate::engine::{cells, json_text};
use crate::fault::StoreFault;
use crate::ledger::Entry;
use crate::options::ReadRows;
use crate::writer::{Tx, WriteRetryPolicy};
use crate::{Store, decisions, plans};

/// The largest result that is kept with a plan, in bytes.
pub const RESULT_LIMIT: usize = 256 * 1024;

/// A call whose row is written: it may be dispatched, once.
#[derive(Debug)]
pub struct RecordedPermit {
    permit: Box<Permit>,
    ledger_id: LedgerId,
    /// What the row says; the row of the outcome repeats it.
    row: Arc<Entry>,
}

impl RecordedPermit {
    pub fn permit(&self) -> &Permit {
        &self.permit
    }
    pub fn ledger_id(&self) -> &LedgerId {
        &self.ledger_id
    }
    pub fn plan_id(&self) -> Option<&PlanId> {
        self.permit.spend().map(|spend| &spend.plan)
    }
}

/// Why a permit could not be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotSpendable {
    Used,
    Cancelled,
    ToolChanged,
    Rejected,
    Expired,
    Unknown,
    /// The plan is marked as approved and the ledger has no approval: somebody wrote that past the store.
    Unproven,
    GrantSpent,
}

#[derive(Clone, Debug)]
pub enum OpenRefused {
    /// The token or the grant can't be used any more. A row `refused` is written.
    NotSpendable { why: NotSpendable, plan: Option<PlanId>, ledger_id: LedgerId },
    /// The row could not be written, so the call must not be dispatched. Returns what the row would have said.
    Fault(StoreFault, Box<CallRecord>),
}

impl OpenRefused {
    fn fault(fault: StoreFault, permit: &Permit) -> Self {
        OpenRefused::Fault(fault, Box::new(permit.record().clone()))
    }

    pub fn refusal(&self) -> Refusal {
        match self {
            OpenRefused::NotSpendable { why, plan, .. } => why.refusal(plan.as_ref()),
            OpenRefused::Fault(fault, _) => fault.refusal(),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutcomeStatus {
    Success,
    Error,
    Unknown,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    pub status: OutcomeStatus,
    pub code: Option<Code>,
    pub duration_us: u64,
    pub result_digest: Option<Digest>,
    /// Stored with the plan unless it is longer than [`RESULT_LIMIT`].
    pub result: Option<String>,
}

/// The token and the grant a permit spends.
#[derive(Clone)]
struct PermitUses {
    token: Option<(PlanId, Digest, Digest, String)>,
    grant: Option<GrantId>,
    effect: Effect,
}

impl PermitUses {
    fn of(permit: &Permit) -> Result<Self, StoreFault> {
        let token = match permit.spend() {
            Some(spend) => Some((spend.plan.clone(), spend.hash, spend.token, json_text(&spend.approval)?)),
            None => None,
        };
        Ok(Self { token, grant: permit.grant().cloned(), effect: permit.effect() })
    }

    fn is_empty(&self) -> bool {
        self.token.is_none() && self.grant.is_none()
    }
}

impl Store {
    /// Spends the permit's token and grant and writes the call's row in one transaction; durable when it returns. Rows of reads may be
    /// written up to 100 ms later, unless the store is opened with [`ReadRows::Sync`] or can't be written now.
    ///
    /// INVARIANT (written first): there is no other way to a [`RecordedPermit`].
    pub async fn open(
        &self,
        permit: impl Into<Box<Permit>>,
        now: Timestamp,
    ) -> Result<RecordedPermit, OpenRefused> {
        let permit = permit.into();
        let uses = match PermitUses::of(&permit) {
            Ok(uses) => uses,
            Err(fault) => return Err(OpenRefused::fault(fault, &permit)),
        };
        let ledger_id = self.mint(now);
        // Shared with the outcome's row, which repeats it: large arguments are not copied.
        let row = Arc::new(Entry::of_call(permit.record(), RowStatus::Allowed));
        if permit.effect() == Effect::Read
            && uses.is_empty()
            && let Some(place) = self.place_for_row()
        {
            return match self.queue_row(place, Arc::clone(&row), ledger_id.clone(), None, now) {
                Ok(()) => Ok(RecordedPermit { permit, ledger_id, row }),
                Err(fault) => Err(OpenRefused::fault(fault, &permit)),
            };
        }
        // Boxed, so that the future of a read that does not wait stays small.
        Box::pin(self.open_durably(permit, uses, ledger_id, row, now)).await
    }

    async fn open_durably(
        &self,
        permit: Box<Permit>,
        uses: PermitUses,
        ledger_id: LedgerId,
        row: Arc<Entry>,
        now: Timestamp,
    ) -> Result<RecordedPermit, OpenRefused> {
        let (id, record, allowed) = (ledger_id.clone(), permit.record().clone(), Arc::clone(&row));
        let spent = self.write(move |tx| {
            // Tokens and grants expire. A clock that runs backwards would revive them.
            if uses.token.is_some() || uses.grant.is_some() {
                tx.check_clock(now)?;
            }
            if let Err(why) = spend(tx, &uses, &id, now)? {
                let refusal = why.refusal(record.plan_id.as_ref());
                // Committed with the lost race: a refused second use is worth a row.
                tx.append_call(&Entry::refused(&record, &refusal), id.clone(), None, now)?;
                return Ok(Err(why));
            }
            // A crash leaves no doubtful outcome of a read that runs no plan.
            if uses.effect != Effect::Read || uses.token.is_some() {
                let plan = uses.token.as_ref().map(|(plan, ..)| plan.as_str());
                let values = cells![id.as_str(), plan, tx.instance, now];
                tx.execute(
                    "INSERT INTO in_flight (ledger_id, plan_id, instance, opened) VALUES ($1, $2, $3, $4)",
                    &values,
                )?;
            }
            tx.append_call(&allowed, id.clone(), None, now)?;
            Ok(Ok(()))
        });
        match spent.await {
            Ok(Ok(())) => Ok(RecordedPermit { permit, ledger_id, row }),
            Ok(Err(why)) => {
                let plan = permit.record().plan_id.clone();
                Err(OpenRefused::NotSpendable { why, plan, ledger_id })
            }
            Err(fault) => Err(OpenRefused::fault(fault, &permit)),
        }
    }

    /// Writes the outcome of a call and of its plan. If the store can't be written now, returns the fault; the row is written as soon as
    /// the store is available again.
    pub async fn close(
        &self,
        opened: RecordedPermit,
        outcome: Outcome,
        now: Timestamp,
    ) -> Result<LedgerId, StoreFault> {
        let id = self.mint(now);
        let status = match outcome.status {
            OutcomeStatus::Success => RowStatus::Success,
            OutcomeStatus::Error | OutcomeStatus::Unknown => RowStatus::Error,
        };
        // If the first row is written already, this is the only reference.
        let mut row = Arc::unwrap_or_clone(opened.row);
        row.status = status;
        row.code = outcome.code.map(|code| code.as_str().to_owned());
        row.duration_us = Some(outcome.duration_us);
        row.result_digest = outcome.result_digest;
        row = row.with_fact("opened", opened.ledger_id.as_str());
        if outcome.status == OutcomeStatus::Unknown {
            // The status says error for readers that know no third word; this says that it may have happened.
            row = row.with_fact("outcome", "unknown");
        }
        let plan = opened.permit.spend().map(|spend| spend.plan.clone());
        if opened.permit.effect() == Effect::Read
            && plan.is_none()
            && let Some(place) = self.place_for_row()
        {
            self.queue_row(place, Arc::new(row), id.clone(), Some(opened.ledger_id), now)?;
            return Ok(id);
        }
        Box::pin(self.close_durably(opened.ledger_id, plan, row, outcome, id.clone(), now)).await?;
        Ok(id)
    }

    async fn close_durably(
        &self,
        opened_by: LedgerId,
        plan: Option<PlanId>,
        row: Entry,
        outcome: Outcome,
        id: LedgerId,
        now: Timestamp,
    ) -> Result<(), StoreFault> {
        self.run_job(WriteRetryPolicy::UntilWritten, move |tx| {
            // A commit whose answer was lost may have succeeded: a second row would end the call twice.
            if tx.again && tx.has_row(&id)? {
                return Ok(());
            }
            // Together with the outcome: what is still here after a crash has an unknown outcome.
            tx.execute("DELETE FROM in_flight WHERE ledger_id = $1", &cells![opened_by.as_str()])?;
            if let Some(plan) = &plan {
                plans::finish(tx, plan, &outcome, now)?;
            }
            tx.append_call(&row, id.clone(), Some(&opened_by), now)?;
            Ok(())
        })
        .await
    }

    /// Writes the row of a call that was refused.
    pub async fn refused(
        &self,
        record: &CallRecord,
        refusal: &Refusal,
        now: Timestamp,
    ) -> Result<LedgerId, StoreFault> {
        self.append(Entry::refused(record, refusal), now).await
    }

    /// Writes the row of a call that waits for an approval. [`Store::hold`] writes its own.
    pub async fn pending(&self, record: &CallRecord, now: Timestamp) -> Result<LedgerId, StoreFault> {
        self.append(Entry::of_call(record, RowStatus::Pending), now).await
    }

    /// Writes a row; durable when it returns.
    pub async fn append(&self, entry: Entry, now: Timestamp) -> Result<LedgerId, StoreFault> {
        let id = self.mint(now);
        self.write(move |tx| {
            tx.append_call(&entry, id.clone(), None, now)?;
            Ok(id.clone())
        })
        .await
    }

    /// Accepts the present clock, on a person's word: a moment in the future was recorded by mistake.
    pub async fn trust_clock(&self, by: &PrincipalId, now: Timestamp) -> Result<LedgerId, StoreFault> {
        let (by, id) = (by.clone(), self.mint(now));
        self.write(move |tx| {
            // The row is what makes this safe: accepting a clock is a decision with a name on it.
            tx.set_clock(now)?;
            let mut entry = Entry::new(RowKind::System, RowStatus::Success);
            entry.principal = Some(by.clone());
            entry.role = Some(ActorRole::Human);
            tx.append(&entry.with_fact("action", "trust_clock"), id.clone(), now);
            Ok(id.clone())
        })
        .await
    }

    /// A place in the queue for a row that no caller waits for. None if reads wait for the disk, if the last commit failed, or if the
    /// queue is full: then the caller waits, which slows it down.
    fn place_for_row(&self) -> Option<OwnedSemaphorePermit> {
        match self.reads() {
            // While the disk fails, reads wait for their rows too: otherwise they would be unrecorded without anybody
            // noticing.
            ReadRows::Soon if !self.is_failing() => self.try_place(),
            ReadRows::Soon | ReadRows::Sync => None,
        }
    }

    fn queue_row(
        &self,
        place: OwnedSemaphorePermit,
        row: Arc<Entry>,
        id: LedgerId,
        call: Option<LedgerId>,
        now: Timestamp,
    ) -> Result<(), StoreFault> {
        self.queue_job(place, move |tx| {
            if !(tx.again && tx.has_row(&id)?) {
                tx.append_call(&row, id.clone(), call.as_ref(), now)?;
            }
            Ok(())
        })
    }
}

/// Spends the token and the grant.
///
/// INVARIANT (races end in SQL): each is one conditional statement, and a caller whose statement changes no row has lost.
fn spend(
    tx: &mut Tx<'_>,
    uses: &PermitUses,
    id: &LedgerId,
    now: Timestamp,
) -> Result<Result<(), NotSpendable>, StoreFault> {
    if let Some((plan, hash, token, approval)) = &uses.token {
        let won = tx.execute(
            // An approval counts only with its ledger row: a value written past the store into `plans.approval`
            // spends nothing.
            "UPDATE plans SET state = 'executing', approval = COALESCE(approval, $1), ledger_id = $2
              WHERE plan_id = $3 AND hash = $4
                AND state IN ('pending', 'approved') AND expires > $6
                AND (approval IS NULL OR EXISTS
                     (SELECT 1 FROM ledger WHERE ledger.plan_id = plans.plan_id AND ledger.kind = 'approval'))
                AND EXISTS (SELECT 1 FROM tokens
                             WHERE tokens.token = $5 AND tokens.plan_id = plans.plan_id AND tokens.expires > $6)",
            &cells![approval, id.as_str(), plan.as_str(), *hash, *token, now],
        )?;
        if won == 0 {
            // Nothing was spent, so the refusal's row can share this transaction.
            return why_not_spent(tx, plan, *hash, *token).map(Err);
        }
        tx.notify_plan(plan)?;
    }
    if let Some(grant) = &uses.grant {
        let won = tx.execute(
            // The decrement is the check: of two calls that saw the last use, one changes no row.
            "UPDATE grants SET uses_left = uses_left - 1, last_used = $1
              WHERE grant_id = $2 AND uses_left > 0 AND revoked IS NULL AND expires > $1",
            &cells![now, grant.as_str()],
        )?;
        if won == 0 {
            return Ok(Err(NotSpendable::GrantSpent));
        }
    }
    Ok(Ok(()))
}

/// Finds out why the statement changed no row. Only for the message: the statement has already decided.
fn why_not_spent(
    tx: &mut Tx<'_>,
    plan: &PlanId,
    hash: Digest,
    token: Digest,
) -> Result<NotSpendable, StoreFault> {
    let found = tx.one(
        "SELECT plans.state, plans.note FROM plans JOIN tokens ON tokens.plan_id = plans.plan_id
          WHERE plans.plan_id = $1 AND plans.hash = $2 AND tokens.token = $3",
        &cells![plan.as_str(), hash, token],
    )?;
    // Plan, hash and token have to belong together, so that a foreign token does not learn the plan's state.
    let Some(mut found) = found else { return Ok(NotSpendable::Unknown) };
    let state: Result<PlanState, UnknownWord> = found.text()?.parse();
    Ok(match state {
        Ok(PlanState::Executing | PlanState::Done | PlanState::Failed | PlanState::OutcomeUnknown) => {
            NotSpendable::Used
        }
        Ok(PlanState::Cancelled) => match found.maybe_text()?.as_deref() {
            Some(decisions::TOOL_CHANGED) => NotSpendable::ToolChanged,
            Some(_) | None => NotSpendable::Cancelled,
        },
        Ok(PlanState::Rejected) => NotSpendable::Rejected,
        Ok(PlanState::Pending | PlanState::Approved) if lacks_approval_row(tx, plan)? => {
            NotSpendable::Unproven
        }
        Ok(PlanState::Pending | PlanState::Approved | PlanState::Expired) => NotSpendable::Expired,
        Err(_) => NotSpendable::Unknown,
    })
}

/// Whether the plan is marked as approved and the ledger has no approval of it.
fn lacks_approval_row(tx: &mut Tx<'_>, plan: &PlanId) -> Result<bool, StoreFault> {
    let sql = "SELECT plan_id FROM plans WHERE plan_id = $1 AND approval IS NOT NULL AND NOT EXISTS
               (SELECT 1 FROM ledger WHERE ledger.plan_id = plans.plan_id AND ledger.kind = 'approval')";
    Ok(tx.one(sql, &cells![plan.as_str()])?.is_some())
}

impl NotSpendable {
    pub fn refusal(self, plan: Option<&PlanId>) -> Refusal {
        let plan = plan.map_or("the plan", PlanId::as_str);
        match self {
            NotSpendable::Used => {
                let message = format!("`{plan}` was run already; a token works once");
                Refusal::new(Code::ConfirmTokenUsed, message).with("plan_id", plan)
            }
            NotSpendable::Cancelled => Refusal::new(Code::PlanCancelled, format!("`{plan}` was cancelled")),
            NotSpendable::ToolChanged => PlanEnd::ToolChanged.refusal(plan),
            NotSpendable::Rejected => Refusal::new(Code::ApprovalRejected, format!("`{plan}` was rejected")),
            NotSpendable::Expired => {
                Refusal::new(Code::ConfirmTokenExpired, format!("the confirm token of `{plan}` has expired"))
            }
            NotSpendable::Unknown => {
                Refusal::new(Code::ConfirmTokenMismatch, "the confirm token is not for this call")
            }
            NotSpendable::Unproven => {
                let message =
                    format!("`{plan}` is marked as approved, and no approval of it is in the ledger");
                Refusal::new(Code::ApprovalPending, message).because("approval_unproven")
            }
            NotSpendable::GrantSpent => {
                let message = "the grant for this call is used up, expired or revoked; call again to ask for an approval";
                Refusal::new(Code::ApprovalPending, message)
                    .next(&[NextAction::RequestNewPlan, NextAction::AskPerson])
            }
        }
    }
}
