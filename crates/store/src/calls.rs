//! Calls: a permit becomes `Opened` when its token is spent and its row is on disk, both in one transaction; only that can
//! be dispatched. How it ended is written when it came back. Decides nothing: of two who race it lets one win.

use std::sync::Arc;

use countersign_core::confirm::{PlanEnd, PlanState};
use countersign_core::digest::Digest;
use countersign_core::effect::Effect;
use countersign_core::gate::Permit;
use countersign_core::ids::{GrantId, LedgerId, PlanId, PrincipalId};
use countersign_core::record::{ActorRole, CallRecord, RowKind, RowStatus};
use countersign_core::refusal::{Code, NextAction, Refusal};
use countersign_core::words::UnknownWord;
use jiff::Timestamp;
use tokio::sync::OwnedSemaphorePermit;

use crate::engine::{cells, json_text};
use crate::fault::StoreFault;
use crate::ledger::Entry;
use crate::options::ReadRows;
use crate::writer::{Keep, Tx};
use crate::{Store, decisions, plans};

/// The largest result that is kept with a plan, in bytes.
pub const RESULT_LIMIT: usize = 256 * 1024;

/// A call whose row is written: it may be dispatched, once.
#[derive(Debug)]
pub struct Opened {
    permit: Box<Permit>,
    ledger_id: LedgerId,
    /// What the row says: that of the outcome says it again.
    row: Arc<Entry>,
}

impl Opened {
    /// What the gate permitted.
    pub fn permit(&self) -> &Permit {
        &self.permit
    }
    /// The row that let it out.
    pub fn ledger_id(&self) -> &LedgerId {
        &self.ledger_id
    }
    /// The plan it runs, where there is one.
    pub fn plan_id(&self) -> Option<&PlanId> {
        self.permit.spend().map(|spend| &spend.plan)
    }
}

/// Why a permit could not be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotSpendable {
    /// The plan was run already.
    Used,
    /// The plan was cancelled.
    Cancelled,
    /// The plan was cancelled because its tool changed.
    ToolChanged,
    /// A person rejected the plan.
    Rejected,
    /// The token or its plan is past its time.
    Expired,
    /// There is no such plan, or the token is not its.
    Unknown,
    /// The plan says that it was approved, and the ledger does not know of it: somebody else wrote that.
    Unproven,
    /// The grant is used up, expired or revoked.
    GrantSpent,
}

/// A permit that was not opened.
#[derive(Clone, Debug)]
pub enum OpenRefused {
    /// Something came first. A row `refused` is written.
    NotSpendable {
        /// What came first.
        why: NotSpendable,
        /// The plan it was about.
        plan: Option<PlanId>,
        /// The row.
        ledger_id: LedgerId,
    },
    /// The row could not be written, so nothing may go out. What it would have said comes back.
    Fault(StoreFault, Box<CallRecord>),
}

impl OpenRefused {
    fn fault(fault: StoreFault, permit: &Permit) -> Self {
        OpenRefused::Fault(fault, Box::new(permit.record().clone()))
    }

    /// What is answered.
    pub fn refusal(&self) -> Refusal {
        match self {
            OpenRefused::NotSpendable { why, plan, .. } => why.refusal(plan.as_ref()),
            OpenRefused::Fault(fault, _) => fault.refusal(),
        }
    }
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It went well.
    Success,
    /// It went wrong.
    Error,
    /// Nobody knows.
    Unknown,
}

/// What came of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// How it ended.
    pub status: Ended,
    /// The code of what went wrong, where it has one.
    pub code: Option<Code>,
    /// How long it took.
    pub duration_us: u64,
    /// The digest of what came back.
    pub result_digest: Option<Digest>,
    /// What came back, kept with the plan if it is not longer than [`RESULT_LIMIT`].
    pub result: Option<String>,
}

/// What a permit uses up.
#[derive(Clone)]
struct Uses {
    token: Option<(PlanId, Digest, Digest, String)>,
    grant: Option<GrantId>,
    effect: Effect,
}

impl Uses {
    fn of(permit: &Permit) -> Result<Self, StoreFault> {
        let token = match permit.spend() {
            Some(spend) => Some((spend.plan.clone(), spend.hash, spend.token, json_text(&spend.approval)?)),
            None => None,
        };
        Ok(Self { token, grant: permit.grant().cloned(), effect: permit.effect() })
    }

    fn nothing(&self) -> bool {
        self.token.is_none() && self.grant.is_none()
    }
}

impl Store {
    /// Spends what the permit uses up and writes the call's row, as one; durable when it returns. Rows of reads may
    /// follow within 100 ms, unless the store is opened with [`ReadRows::Sync`] or can't be written just now.
    ///
    /// INVARIANT (written first): there is no other way to an [`Opened`].
    pub async fn open(&self, permit: impl Into<Box<Permit>>, now: Timestamp) -> Result<Opened, OpenRefused> {
        let permit = permit.into();
        let uses = match Uses::of(&permit) {
            Ok(uses) => uses,
            Err(fault) => return Err(OpenRefused::fault(fault, &permit)),
        };
        let ledger_id = self.mint(now);
        let row = Arc::new(Entry::of_call(permit.record(), RowStatus::Allowed));
        if permit.effect() == Effect::Read
            && uses.nothing()
            && let Some(place) = self.may_follow()
        {
            return match self.append_soon(place, Arc::clone(&row), ledger_id.clone(), now) {
                Ok(()) => Ok(Opened { permit, ledger_id, row }),
                Err(fault) => Err(OpenRefused::fault(fault, &permit)),
            };
        }
        // Boxed: a read that need not wait carries no room for it.
        Box::pin(self.open_durably(permit, uses, ledger_id, row, now)).await
    }

    async fn open_durably(
        &self,
        permit: Box<Permit>,
        uses: Uses,
        ledger_id: LedgerId,
        row: Arc<Entry>,
        now: Timestamp,
    ) -> Result<Opened, OpenRefused> {
        let (id, record, allowed) = (ledger_id.clone(), permit.record().clone(), Arc::clone(&row));
        let spent = self.write(move |tx| {
            if uses.token.is_some() || uses.grant.is_some() {
                tx.check_clock(now)?;
            }
            if let Err(why) = spend(tx, &uses, &id, now)? {
                let refusal = why.refusal(record.plan_id.as_ref());
                tx.append(&Entry::refused(&record, &refusal), id.clone(), now);
                return Ok(Err(why));
            }
            // A read that runs no plan leaves nothing behind that a crash could make doubtful.
            if uses.effect != Effect::Read || uses.token.is_some() {
                let plan = uses.token.as_ref().map(|(plan, ..)| plan.as_str());
                let values = cells![id.as_str(), plan, tx.instance, now];
                tx.execute(
                    "INSERT INTO in_flight (ledger_id, plan_id, instance, opened) VALUES ($1, $2, $3, $4)",
                    &values,
                )?;
            }
            tx.append(&allowed, id.clone(), now);
            Ok(Ok(()))
        });
        match spent.await {
            Ok(Ok(())) => Ok(Opened { permit, ledger_id, row }),
            Ok(Err(why)) => {
                let plan = permit.record().plan_id.clone();
                Err(OpenRefused::NotSpendable { why, plan, ledger_id })
            }
            Err(fault) => Err(OpenRefused::fault(fault, &permit)),
        }
    }

    /// Writes how a call ended, and where its plan stands. If the store can't be written now, the caller is told, and
    /// the row is written as soon as it can be.
    pub async fn close(
        &self,
        opened: Opened,
        outcome: Outcome,
        now: Timestamp,
    ) -> Result<LedgerId, StoreFault> {
        let id = self.mint(now);
        let status = match outcome.status {
            Ended::Success => RowStatus::Success,
            Ended::Error | Ended::Unknown => RowStatus::Error,
        };
        // Where the first row is written already, nobody else has it any more.
        let mut row = Arc::unwrap_or_clone(opened.row);
        row.status = status;
        row.code = outcome.code.map(|code| code.as_str().to_owned());
        row.duration_us = Some(outcome.duration_us);
        row.result_digest = outcome.result_digest;
        row = row.with_fact("opened", opened.ledger_id.as_str());
        if outcome.status == Ended::Unknown {
            row = row.with_fact("outcome", "unknown");
        }
        let plan = opened.permit.spend().map(|spend| spend.plan.clone());
        if opened.permit.effect() == Effect::Read
            && plan.is_none()
            && let Some(place) = self.may_follow()
        {
            self.append_soon(place, Arc::new(row), id.clone(), now)?;
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
        self.ask_writer(Keep::UntilWritten, move |tx| {
            if tx.again && tx.has_row(&id)? {
                return Ok(());
            }
            tx.execute("DELETE FROM in_flight WHERE ledger_id = $1", &cells![opened_by.as_str()])?;
            if let Some(plan) = &plan {
                plans::finish(tx, plan, &outcome, now)?;
            }
            tx.append(&row, id.clone(), now);
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

    /// Writes the row of a call that waits for someone. [`Store::hold`] writes its own.
    pub async fn pending(&self, record: &CallRecord, now: Timestamp) -> Result<LedgerId, StoreFault> {
        self.append(Entry::of_call(record, RowStatus::Pending), now).await
    }

    /// Writes a row; durable when it returns.
    pub async fn append(&self, entry: Entry, now: Timestamp) -> Result<LedgerId, StoreFault> {
        let id = self.mint(now);
        let written = id.clone();
        self.write(move |tx| {
            tx.append(&entry, id.clone(), now);
            Ok(())
        })
        .await?;
        Ok(written)
    }

    /// A person says that the clock is right after all: a moment in the future was recorded by mistake.
    pub async fn trust_clock(&self, by: &PrincipalId, now: Timestamp) -> Result<LedgerId, StoreFault> {
        let (by, id) = (by.clone(), self.mint(now));
        let written = id.clone();
        self.write(move |tx| {
            tx.set_clock(now)?;
            let mut entry = Entry::new(RowKind::System, RowStatus::Success);
            entry.principal = Some(by.clone());
            entry.role = Some(ActorRole::Human);
            tx.append(&entry.with_fact("action", "trust_clock"), id.clone(), now);
            Ok(())
        })
        .await?;
        Ok(written)
    }

    /// A place in the queue for a row that nobody waits for. None where reads have to wait for the disk, while the disk
    /// does not take rows, and when so many rows wait already that there would be no end to it.
    fn may_follow(&self) -> Option<OwnedSemaphorePermit> {
        match self.reads() {
            ReadRows::Soon if !self.is_failing() => self.try_place(),
            ReadRows::Soon | ReadRows::Sync => None,
        }
    }

    fn append_soon(
        &self,
        place: OwnedSemaphorePermit,
        row: Arc<Entry>,
        id: LedgerId,
        now: Timestamp,
    ) -> Result<(), StoreFault> {
        self.tell_writer(place, move |tx| {
            if !(tx.again && tx.has_row(&id)?) {
                tx.append(&row, id.clone(), now);
            }
            Ok(())
        })
    }
}

/// Uses up the token and the grant.
///
/// INVARIANT (races end in SQL): each is one conditional statement, and whoever changes no row has lost.
fn spend(
    tx: &mut Tx<'_>,
    uses: &Uses,
    id: &LedgerId,
    now: Timestamp,
) -> Result<Result<(), NotSpendable>, StoreFault> {
    if let Some((plan, hash, token, approval)) = &uses.token {
        let won = tx.execute(
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
            return why_not(tx, plan, *hash, *token).map(Err);
        }
        tx.tell(plan)?;
    }
    if let Some(grant) = &uses.grant {
        let won = tx.execute(
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

/// What came first, for the answer; the statement above has already decided.
fn why_not(tx: &mut Tx<'_>, plan: &PlanId, hash: Digest, token: Digest) -> Result<NotSpendable, StoreFault> {
    let found = tx.one(
        "SELECT plans.state, plans.note FROM plans JOIN tokens ON tokens.plan_id = plans.plan_id
          WHERE plans.plan_id = $1 AND plans.hash = $2 AND tokens.token = $3",
        &cells![plan.as_str(), hash, token],
    )?;
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
        Ok(PlanState::Pending | PlanState::Approved) if is_unproven(tx, plan)? => NotSpendable::Unproven,
        Ok(PlanState::Pending | PlanState::Approved | PlanState::Expired) => NotSpendable::Expired,
        Err(_) => NotSpendable::Unknown,
    })
}

/// Whether the plan claims an approval that the ledger does not know of.
fn is_unproven(tx: &mut Tx<'_>, plan: &PlanId) -> Result<bool, StoreFault> {
    let sql = "SELECT plan_id FROM plans WHERE plan_id = $1 AND approval IS NOT NULL AND NOT EXISTS
               (SELECT 1 FROM ledger WHERE ledger.plan_id = plans.plan_id AND ledger.kind = 'approval')";
    Ok(tx.one(sql, &cells![plan.as_str()])?.is_some())
}

impl NotSpendable {
    /// What is answered.
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
