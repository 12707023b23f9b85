//! Decisions on plans: approve, reject, cancel, expire, and the removal of steps by a person. Each is one conditional statement and its row,
//! in one transaction; the first decision counts. Does not check whether somebody may decide: that is the policy's part.

use std::sync::Arc;

use countersign_policy::confirm::{Approval, PlanEnd, PlanState, RecordedChannel, check_unblocked};
use countersign_policy::digest::Digest;
use countersign_policy::ids::{CredentialId, FullName, LedgerId, PlanId, PrincipalId};
use countersign_policy::plan::Plan;
use countersign_policy::record::{ActorRole, HostInfo, RowKind, Source};
use countersign_policy::refusal::{Code, Refusal};
use jiff::Timestamp;

use crate::engine::{FoundRow, cells, json_text};
use crate::fault::StoreFault;
use crate::ledger::{Entry, Json};
use crate::random::LedgerIdGenerator;
use crate::writer::Tx;
use crate::{Store, credentials, pauses, plans};

/// The note on a plan whose tool changed. No other cancelled plan gets a note from a caller.
pub(crate) const TOOL_CHANGED: &str = "the tool has changed";

// Sweeps run in batches: one transaction over thousands of plans would keep every other write waiting.
const SWEEP_LIMIT: u32 = 500;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotDecided {
    /// There is no such plan, or it is someone else's.
    Unknown,
    Expired,
    /// It was decided before, or it ran.
    Decided(PlanState),
    /// It is pending, but the expiry that was shown has passed.
    ShownExpired,
    /// It is pending, but its hash is not the one that was shown.
    Changed,
    /// The approval is weaker than the plan needs; the plan stays pending.
    TooWeak,
    Blocked,
    /// The credential it was requested with has ended.
    Ended(PlanEnd),
}

#[derive(Clone, Debug)]
pub enum DecideRefused {
    NotDecided(NotDecided),
    Fault(StoreFault),
}

impl DecideRefused {
    pub fn refusal(&self) -> Refusal {
        match self {
            DecideRefused::NotDecided(why) => why.refusal(),
            DecideRefused::Fault(fault) => fault.refusal(),
        }
    }
}

/// The part of a plan that a person was shown and decides on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShownPlan {
    pub hash: Digest,
    pub expires: Timestamp,
}

impl From<&Plan> for ShownPlan {
    fn from(plan: &Plan) -> Self {
        Self { hash: plan.hash, expires: plan.expires }
    }
}

/// Where a decision came from, for its row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DecisionOrigin {
    pub source: Option<Source>,
    pub host: Option<Arc<HostInfo>>,
}

impl From<Option<Source>> for DecisionOrigin {
    fn from(source: Option<Source>) -> Self {
        Self { source, host: None }
    }
}

impl DecisionOrigin {
    fn apply_to(self, entry: Entry) -> Entry {
        Entry { source: self.source, host: self.host.as_deref().map(Json::of_host), ..entry }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct DecidedPlan {
    pub plan: Plan,
    pub ledger_id: LedgerId,
    pub paused: PauseOutcome,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PauseOutcome {
    No,
    Now,
}

/// Writes the log event of a decision: every channel decides through this file. A note is a person's own text and is not logged.
fn log_decision(
    decision: &'static str,
    by: &PrincipalId,
    channel: RecordedChannel,
    source: Option<Source>,
    decided: Result<DecidedPlan, DecideRefused>,
) -> Result<DecidedPlan, DecideRefused> {
    let (channel, source) = (channel.as_str(), source.map(Source::as_str));
    match &decided {
        Ok(made) => tracing::info!(
            plan_id = made.plan.id.as_str(),
            ledger_id = made.ledger_id.as_str(),
            by = by.as_str(),
            channel,
            source,
            decision,
            "plan decided"
        ),
        Err(refused) => {
            let why = refused.refusal();
            let (code, reason) = (why.code.as_str(), why.reason_code);
            tracing::info!(by = by.as_str(), channel, source, code, reason, "plan not {decision}");
        }
    }
    decided
}

type DecisionResult<T> = Result<Result<T, NotDecided>, StoreFault>;

impl Store {
    /// Approves a plan.
    ///
    /// INVARIANT (races end in SQL): of all decisions, the one whose statement changes the row counts.
    pub async fn approve(
        &self,
        id: &PlanId,
        approval: Approval,
        now: Timestamp,
    ) -> Result<DecidedPlan, DecideRefused> {
        let source = source(approval.channel);
        self.approve_shown(id, None, approval, source, now).await
    }

    /// Approves a plan as it was shown: a plan whose hash has changed since is not approved, and the approval ends at the expiry that was
    /// shown, even if the plan got more time since.
    pub async fn approve_shown(
        &self,
        id: &PlanId,
        shown: Option<ShownPlan>,
        approval: Approval,
        origin: impl Into<DecisionOrigin>,
        now: Timestamp,
    ) -> Result<DecidedPlan, DecideRefused> {
        let (id, ledger_id, origin) = (id.clone(), self.mint(now), origin.into());
        let (by, channel, source) = (approval.by.clone(), approval.channel, origin.source);
        let kept = json_text(&approval).map_err(DecideRefused::Fault)?;
        let decided = self.write(move |tx| {
            tx.check_clock(now)?;
            if let Some(why) = find_obstacle(tx, &id, now)? {
                return Ok(Err(why));
            }
            let found = tx.one(
                // Everything that must hold at this moment is a condition here: a check before the statement would
                // race with other replicas. `$6` also shortens the plan to the expiry that was shown.
                "UPDATE plans SET state = 'approved', approval = $1, decided = $2,
                        expires = CASE WHEN $6 < expires THEN $6 ELSE expires END
                  WHERE plan_id = $3 AND state = 'pending' AND expires > $2 AND strength <= $4
                    AND $6 > $2 AND ($5 = '' OR hash = $5)
                  RETURNING plan_id, body",
                &cells![
                    kept.as_str(),
                    now,
                    id.as_str(),
                    plans::strength_rank(approval.strength),
                    shown.map(|shown| shown.hash.hex()).unwrap_or_default(),
                    // Without a shown expiry nothing is shortened.
                    shown.map_or(i64::MAX, |shown| shown.expires.as_microsecond()),
                ],
            )?;
            let Some(mut found) = found else {
                let why = why_not_decided(tx, &id, None, now)?;
                // `TooWeak` is what is left over: the hash or the shown expiry may have failed instead.
                return Ok(Err(if why == NotDecided::TooWeak {
                    why_not_as_shown(tx, &id, shown, now)?
                } else {
                    why
                }));
            };
            let plan = plans::open_body(&mut found, tx.seal)?;
            let entry = Entry::of_plan(
                RowKind::Approval,
                &plan,
                "approve",
                Some(&approval.by),
                Some(role(approval.channel)),
            )
            .with_approval(&approval);
            tx.append(&origin.clone().apply_to(entry), ledger_id.clone(), now);
            tx.notify_plan(&plan.id)?;
            Ok(Ok(DecidedPlan { plan, ledger_id: ledger_id.clone(), paused: PauseOutcome::No }))
        });
        log_decision("approved", &by, channel, source, flatten_result(decided.await))
    }

    /// Rejects a plan. The third rejection of one principal within ten minutes pauses its writes, in the same transaction.
    pub async fn reject(
        &self,
        id: &PlanId,
        by: PrincipalId,
        channel: RecordedChannel,
        note: Option<String>,
        now: Timestamp,
    ) -> Result<DecidedPlan, DecideRefused> {
        self.reject_from(id, by, channel, source(channel), note, now).await
    }

    /// Rejects a plan and records an origin that the channel alone does not tell.
    pub async fn reject_from(
        &self,
        id: &PlanId,
        by: PrincipalId,
        channel: RecordedChannel,
        origin: impl Into<DecisionOrigin>,
        note: Option<String>,
        now: Timestamp,
    ) -> Result<DecidedPlan, DecideRefused> {
        let (id, ledger_id, origin) = (id.clone(), self.mint(now), origin.into());
        let (ids, decider, source) = (self.ids(), by.clone(), origin.source);
        let decided = self.write(move |tx| {
            tx.check_clock(now)?;
            // PostgreSQL refuses NUL in text; the note must not decide whether a rejection can be stored.
            let note = note.as_deref().map(|note| note.replace('\0', "\u{2400}"));
            let found = tx.one(
                "UPDATE plans SET state = 'rejected', note = $1, decided = $2
                  WHERE plan_id = $3 AND state = 'pending' AND expires > $2
                  RETURNING plan_id, body",
                &cells![note.as_ref(), now, id.as_str()],
            )?;
            let Some(mut found) = found else { return why_not_decided(tx, &id, None, now).map(Err) };
            let plan = plans::open_body(&mut found, tx.seal)?;
            // A rejected plan never runs: its secret values need not be kept.
            plans::wipe_body(tx, &plan)?;
            let mut entry =
                Entry::of_plan(RowKind::Approval, &plan, "reject", Some(&by), Some(role(channel)))
                    .with_fact("rail", channel.as_str());
            if let Some(note) = note {
                entry = entry.with_fact("note", note);
            }
            tx.append(&origin.clone().apply_to(entry), ledger_id.clone(), now);
            tx.notify_plan(&plan.id)?;
            // Counted with the rejection: a crash in between would let the fourth plan through.
            let paused = pauses::count_rejections(tx, &ids, &plan.principal, now)?;
            Ok(Ok(DecidedPlan { plan, ledger_id: ledger_id.clone(), paused }))
        });
        log_decision("rejected", &decider, channel, source, flatten_result(decided.await))
    }

    /// Replaces the body of a pending plan by what a person left of it, under the same id and a new hash. False if the plan was decided,
    /// expired or changed meanwhile, or if an equal plan is open.
    pub async fn revise(
        &self,
        read_only: Digest,
        left: &Plan,
        by: &PrincipalId,
        now: Timestamp,
    ) -> Result<bool, StoreFault> {
        let (left, by, ledger_id) = (left.clone(), by.clone(), self.mint(now));
        let body = self.seal()?.seal_plan(&left)?;
        self.write(move |tx| {
            let changed = tx.execute(
                // The old hash is a condition, so that two people who take out different steps do not overwrite each
                // other. An equal open plan would break the unique index, which is a fault and not an answer.
                "UPDATE plans SET hash = $1, effect = $2, strength = $3, body = $4
                  WHERE plan_id = $5 AND hash = $6 AND state = 'pending' AND expires > $7
                    AND NOT EXISTS (SELECT 1 FROM plans other
                                     WHERE other.hash = $1 AND other.state IN ('pending', 'approved'))",
                &cells![
                    left.hash,
                    left.effect.as_str(),
                    plans::strength_rank(left.requirement.strength),
                    body.as_str(),
                    left.id.as_str(),
                    read_only,
                    now,
                ],
            )?;
            if changed == 0 {
                return Ok(false);
            }
            let removed = left.preview.shown.get("removed_steps").cloned().unwrap_or_default();
            let entry =
                Entry::of_plan(RowKind::Decision, &left, "remove_steps", Some(&by), Some(ActorRole::Human))
                    .with_fact("removed_steps", removed)
                    .with_fact("plan_hash_before", read_only.hex());
            tx.append(&Entry { source: Some(Source::Page), ..entry }, ledger_id.clone(), now);
            Ok(true)
        })
        .await
    }

    /// Cancels a plan of a principal; a plan of another principal does not exist for it.
    pub async fn cancel(
        &self,
        id: &PlanId,
        principal: &PrincipalId,
        now: Timestamp,
    ) -> Result<DecidedPlan, DecideRefused> {
        self.cancel_from(id, principal, DecisionOrigin::default(), now).await
    }

    /// Cancels a plan and records the connection it came over.
    pub async fn cancel_from(
        &self,
        id: &PlanId,
        principal: &PrincipalId,
        origin: DecisionOrigin,
        now: Timestamp,
    ) -> Result<DecidedPlan, DecideRefused> {
        let (id, principal, ledger_id) = (id.clone(), principal.clone(), self.mint(now));
        let decided = self.write(move |tx| {
            let found = tx.one(
                "UPDATE plans SET state = 'cancelled', decided = $1
                  WHERE plan_id = $2 AND principal = $3 AND state IN ('pending', 'approved') AND expires > $1
                  RETURNING plan_id, body",
                &cells![now, id.as_str(), principal.as_str()],
            )?;
            let Some(mut found) = found else {
                // With the principal: another one's plan is answered as unknown, not as forbidden, so that ids can't
                // be probed.
                return why_not_decided(tx, &id, Some(&principal), now).map(Err);
            };
            let plan = plans::open_body(&mut found, tx.seal)?;
            plans::wipe_body(tx, &plan)?;
            let entry = Entry::of_plan(RowKind::Decision, &plan, "cancel", Some(&principal), None);
            tx.append(&origin.clone().apply_to(entry), ledger_id.clone(), now);
            tx.notify_plan(&plan.id)?;
            Ok(Ok(DecidedPlan { plan, ledger_id: ledger_id.clone(), paused: PauseOutcome::No }))
        });
        flatten_result(decided.await)
    }

    /// Cancels every open plan of a changed tool: what was reviewed is not what would run.
    pub async fn cancel_for_tool(&self, tool: &FullName, now: Timestamp) -> Result<Vec<PlanId>, StoreFault> {
        let (tool, ids) = (tool.to_string(), self.ids());
        self.sweep(move |tx| {
            let closed = tx.query(
                &format!(
                    "UPDATE plans SET state = 'cancelled', decided = $1, note = '{TOOL_CHANGED}'
                      WHERE plan_id IN (SELECT plan_id FROM plans
                                         WHERE tool = $2 AND state IN ('pending', 'approved') LIMIT {SWEEP_LIMIT})
                        AND state IN ('pending', 'approved')
                      RETURNING plan_id, body"
                ),
                &cells![now, tool.as_str()],
            )?;
            close_all(tx, &ids, closed, "tool_changed", now)
        })
        .await
    }

    /// Closes every expired plan.
    pub async fn expire(&self, now: Timestamp) -> Result<Vec<PlanId>, StoreFault> {
        let ids = self.ids();
        self.sweep(move |tx| {
            // A clock behind the latest recorded moment can't judge what has expired.
            tx.check_clock(now)?;
            let closed = tx.query(
                &format!(
                    "UPDATE plans SET state = 'expired'
                      WHERE plan_id IN (SELECT plan_id FROM plans
                                         WHERE state IN ('pending', 'approved') AND expires <= $1 LIMIT {SWEEP_LIMIT})
                        AND state IN ('pending', 'approved') AND expires <= $1
                      RETURNING plan_id, body"
                ),
                &cells![now],
            )?;
            close_all(tx, &ids, closed, "expire", now)
        })
        .await
    }

    async fn sweep(
        &self,
        work: impl FnMut(&mut Tx<'_>) -> Result<Vec<PlanId>, StoreFault> + Send + 'static,
    ) -> Result<Vec<PlanId>, StoreFault> {
        let work = Arc::new(std::sync::Mutex::new(work));
        let mut all = Vec::new();
        loop {
            let work = Arc::clone(&work);
            let closed = self
                .write(move |tx| (work.lock().unwrap_or_else(std::sync::PoisonError::into_inner))(tx))
                .await?;
            // Each batch closes what it finds, so the loop ends.
            if closed.is_empty() {
                return Ok(all);
            }
            all.extend(closed);
        }
    }
}

/// Closes the open plan of a hash if it has expired or its credential has ended, so that a new one can replace it.
pub(crate) fn expire_equal(
    tx: &mut Tx<'_>,
    ids: &LedgerIdGenerator,
    hash: Digest,
    now: Timestamp,
) -> Result<(), StoreFault> {
    let closed = tx.query(
        "UPDATE plans SET state = 'expired'
          WHERE hash = $1 AND state IN ('pending', 'approved') AND expires <= $2
          RETURNING plan_id, body",
        &cells![hash, now],
    )?;
    close_all(tx, ids, closed, "expire", now)?;
    let open = "SELECT plan_id FROM plans WHERE hash = $1 AND state IN ('pending', 'approved')";
    let Some(mut found) = tx.one(open, &cells![hash])? else { return Ok(()) };
    let id = PlanId::new(found.text()?);
    let Some(NotDecided::Ended(_)) = find_obstacle(tx, &id, now)? else { return Ok(()) };
    cancel_ended(tx, ids, &id, now)
}

fn close_all(
    tx: &mut Tx<'_>,
    ids: &LedgerIdGenerator,
    closed: Vec<FoundRow>,
    action: &str,
    now: Timestamp,
) -> Result<Vec<PlanId>, StoreFault> {
    closed
        .into_iter()
        .map(|mut found| {
            let plan = plans::open_body(&mut found, tx.seal)?;
            plans::wipe_body(tx, &plan)?;
            tx.append(&Entry::of_plan(RowKind::Decision, &plan, action, None, None), ids.next(now), now);
            tx.notify_plan(&plan.id)?;
            Ok(plan.id)
        })
        .collect()
}

/// Why a plan can't be approved at all: its preview forbids it, or the credential it was requested with has ended. Reading first is no
/// race: `revise` is the only change of an open plan's body and gives it another hash, which `approve_shown` compares in its statement;
/// and revoking a credential cancels its plans.
fn find_obstacle(tx: &mut Tx<'_>, id: &PlanId, now: Timestamp) -> Result<Option<NotDecided>, StoreFault> {
    let sql = "SELECT plan_id, body, state FROM plans WHERE plan_id = $1 AND state IN ('pending', 'approved', 'cancelled')";
    let Some(mut found) = tx.one(sql, &cells![id.as_str()])? else { return Ok(None) };
    let (plan, state): (Plan, PlanState) = (plans::open_body(&mut found, tx.seal)?, found.word()?);
    if let Some(credential) = &plan.credential {
        let found = tx.one(&credentials::by_id_sql(), &cells![credential.as_str()])?;
        let found = found.map(credentials::decode).transpose()?;
        if let Some(end) = credentials::end_of(found.as_ref(), now) {
            return Ok(Some(NotDecided::Ended(end)));
        }
    }
    let is_blocked = state == PlanState::Pending && check_unblocked(&plan).is_err();
    Ok(is_blocked.then_some(NotDecided::Blocked))
}

/// Cancels the open plans that were requested with a credential that has just been revoked.
pub(crate) fn cancel_for_credential(
    tx: &mut Tx<'_>,
    ids: &LedgerIdGenerator,
    credential: &CredentialId,
    now: Timestamp,
) -> Result<(), StoreFault> {
    let open = tx.query(
        "SELECT plan_id, body FROM plans
          WHERE principal = (SELECT name FROM credentials WHERE credential_id = $1)
            AND state IN ('pending', 'approved')",
        &cells![credential.as_str()],
    )?;
    for mut found in open {
        let plan = plans::open_body(&mut found, tx.seal)?;
        // One name may have several credentials; the one of a plan is only inside its sealed body.
        if plan.credential.as_ref() == Some(credential) {
            cancel_ended(tx, ids, &plan.id, now)?;
        }
    }
    Ok(())
}

/// Cancels an open plan whose credential has ended.
fn cancel_ended(
    tx: &mut Tx<'_>,
    ids: &LedgerIdGenerator,
    id: &PlanId,
    now: Timestamp,
) -> Result<(), StoreFault> {
    let closed = tx.query(
        "UPDATE plans SET state = 'cancelled', decided = $1, note = 'the credential has ended'
          WHERE plan_id = $2 AND state IN ('pending', 'approved')
          RETURNING plan_id, body",
        &cells![now, id.as_str()],
    )?;
    close_all(tx, ids, closed, "credential_ended", now).map(drop)
}

/// Finds out why the statement changed no row. Only for the message: the statement has already decided.
fn why_not_decided(
    tx: &mut Tx<'_>,
    id: &PlanId,
    principal: Option<&PrincipalId>,
    now: Timestamp,
) -> Result<NotDecided, StoreFault> {
    let found =
        tx.one("SELECT state, expires, principal FROM plans WHERE plan_id = $1", &cells![id.as_str()])?;
    let Some(mut found) = found else { return Ok(NotDecided::Unknown) };
    let (state, expires, owner): (PlanState, Timestamp, String) =
        (found.word()?, found.time()?, found.text()?);
    if principal.is_some_and(|principal| principal.as_str() != owner) {
        return Ok(NotDecided::Unknown);
    }
    Ok(match state {
        // Expiry is a moment, not a state: the sweep that marks it may come later.
        PlanState::Pending | PlanState::Approved if expires <= now => NotDecided::Expired,
        PlanState::Expired => NotDecided::Expired,
        PlanState::Pending => NotDecided::TooWeak,
        PlanState::Approved
        | PlanState::Rejected
        | PlanState::Cancelled
        | PlanState::Executing
        | PlanState::Done
        | PlanState::Failed
        | PlanState::OutcomeUnknown => NotDecided::Decided(state),
    })
}

/// Why a pending plan was not approved as it was shown.
fn why_not_as_shown(
    tx: &mut Tx<'_>,
    id: &PlanId,
    shown: Option<ShownPlan>,
    now: Timestamp,
) -> Result<NotDecided, StoreFault> {
    let Some(shown) = shown else { return Ok(NotDecided::TooWeak) };
    if shown.expires <= now {
        return Ok(NotDecided::ShownExpired);
    }
    let sql = "SELECT 1 FROM plans WHERE plan_id = $1 AND hash = $2";
    let same = tx.one(sql, &cells![id.as_str(), shown.hash])?.is_some();
    Ok(if same { NotDecided::TooWeak } else { NotDecided::Changed })
}

fn flatten_result<T>(answer: DecisionResult<T>) -> Result<T, DecideRefused> {
    answer.map_err(DecideRefused::Fault)?.map_err(DecideRefused::NotDecided)
}

impl NotDecided {
    pub fn refusal(self) -> Refusal {
        match self {
            NotDecided::Unknown => Refusal::new(Code::PlanNotFound, "there is no such plan"),
            NotDecided::Expired => {
                Refusal::new(Code::PlanDecided, "the plan's time has run out").because("plan_expired")
            }
            NotDecided::ShownExpired => {
                let message =
                    "the time shown with the plan has run out: look at the plan again, it was given more";
                Refusal::new(Code::PlanDecided, message).because("plan_expired")
            }
            NotDecided::Changed => {
                let message = "this is not the plan that was looked at: it was changed since";
                Refusal::new(Code::PlanDecided, message).because("plan_changed")
            }
            NotDecided::Decided(state) => {
                let message = format!("the plan is {state} already");
                Refusal::new(Code::PlanDecided, message).with("state", state.as_str())
            }
            NotDecided::TooWeak => Refusal::new(
                Code::ApprovalPending,
                "the plan waits for an approval of more strength than this one",
            ),
            NotDecided::Ended(end) => end.refusal("the plan"),
            NotDecided::Blocked => {
                Refusal::new(Code::PreviewFailed, "the plan can't be approved, its preview forbids it")
                    .because("preview_blocked")
            }
        }
    }
}

fn role(channel: RecordedChannel) -> ActorRole {
    match channel {
        // In a chat the model relays the answer: the row must not claim that a person gave it.
        RecordedChannel::Chat => ActorRole::Agent,
        RecordedChannel::Elicitation | RecordedChannel::Card => ActorRole::Host,
        RecordedChannel::Page | RecordedChannel::Cli | RecordedChannel::Grant => ActorRole::Human,
    }
}

/// The interface a channel usually belongs to.
fn source(channel: RecordedChannel) -> Option<Source> {
    match channel {
        RecordedChannel::Chat | RecordedChannel::Elicitation | RecordedChannel::Card => Some(Source::Mcp),
        RecordedChannel::Page => Some(Source::Page),
        RecordedChannel::Cli => Some(Source::Cli),
        RecordedChannel::Grant => None,
    }
}
