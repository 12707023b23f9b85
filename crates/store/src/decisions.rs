//! Decisions on plans: approve, reject, cancel, expire. Each is one conditional statement and its row, in one transaction;
//! the first answer decides, once. Whether someone is entitled to answer is the law's business.

use std::sync::Arc;

use countersign_core::confirm::{Approval, PlanEnd, PlanState, Rail, check_unblocked};
use countersign_core::digest::Digest;
use countersign_core::ids::{CredentialId, FullName, LedgerId, PlanId, PrincipalId};
use countersign_core::plan::Plan;
use countersign_core::record::{ActorRole, RowKind, Source};
use countersign_core::refusal::{Code, Refusal};
use jiff::Timestamp;

use crate::chance::Mint;
use crate::engine::{Found, cells, json_text};
use crate::fault::StoreFault;
use crate::ledger::Entry;
use crate::writer::Tx;
use crate::{Store, credentials, pauses, plans};

/// What is noted on a plan whose tool changed. Nobody else can write a note on a cancelled plan.
pub(crate) const TOOL_CHANGED: &str = "the tool has changed";

/// How many plans one transaction closes at most.
const SWEEP: u32 = 500;

/// Why nothing was decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotDecided {
    /// There is no such plan, or it is someone else's.
    Unknown,
    /// It is past its time.
    Expired,
    /// Someone was faster, or it ran.
    Decided(PlanState),
    /// The answer is worth less than the plan needs; it stays open for a stronger one.
    TooWeak,
    /// Its own preview forbids it.
    Blocked,
    /// The credential it was asked for with has ended.
    Ended(PlanEnd),
}

/// A decision that was not made.
#[derive(Clone, Debug)]
pub enum DecideRefused {
    /// Something stood against it; nothing was changed.
    NotDecided(NotDecided),
    /// It could not be written.
    Fault(StoreFault),
}

impl DecideRefused {
    /// What is answered.
    pub fn refusal(&self) -> Refusal {
        match self {
            DecideRefused::NotDecided(why) => why.refusal(),
            DecideRefused::Fault(fault) => fault.refusal(),
        }
    }
}

/// What of a plan the person who decides was shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShownPlan {
    /// The plan's hash.
    pub hash: Digest,
    /// Until when it could be decided and run.
    pub expires: Timestamp,
}

impl From<&Plan> for ShownPlan {
    fn from(plan: &Plan) -> Self {
        Self { hash: plan.hash, expires: plan.expires }
    }
}

/// A decision that was made.
#[derive(Clone, Debug, PartialEq)]
pub struct Decided {
    /// The plan.
    pub plan: Plan,
    /// The row.
    pub ledger_id: LedgerId,
    /// Whether the rejection was one too many.
    pub paused: Paused,
}

/// Whether a principal's writes were paused by a rejection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Paused {
    /// No.
    No,
    /// It was the third in ten minutes.
    Now,
}

type Answer<T> = Result<Result<T, NotDecided>, StoreFault>;

impl Store {
    /// Agrees to a plan.
    ///
    /// INVARIANT (races end in SQL): of all who answer, the one whose statement changes the row decides.
    pub async fn approve(
        &self,
        id: &PlanId,
        approval: Approval,
        now: Timestamp,
    ) -> Result<Decided, DecideRefused> {
        let source = source(approval.rail);
        self.approve_shown(id, None, approval, source, now).await
    }

    /// Agrees to a plan as it was shown: one whose hash is another by now is not approved, and the approval ends at the expiry that was
    /// shown, even if the plan got more time since. The source is the door the person came through.
    pub async fn approve_shown(
        &self,
        id: &PlanId,
        shown: Option<ShownPlan>,
        approval: Approval,
        source: Option<Source>,
        now: Timestamp,
    ) -> Result<Decided, DecideRefused> {
        let (id, ledger_id) = (id.clone(), self.mint(now));
        let kept = json_text(&approval).map_err(DecideRefused::Fault)?;
        let decided = self.write(move |tx| {
            tx.check_clock(now)?;
            if let Some(why) = unapprovable(tx, &id, now)? {
                return Ok(Err(why));
            }
            let found = tx.one(
                "UPDATE plans SET state = 'approved', approval = $1, decided = $2,
                        expires = CASE WHEN $6 < expires THEN $6 ELSE expires END
                  WHERE plan_id = $3 AND state = 'pending' AND expires > $2 AND strength <= $4
                    AND $6 > $2 AND ($5 = '' OR hash = $5)
                  RETURNING plan_id, body",
                &cells![
                    kept.as_str(),
                    now,
                    id.as_str(),
                    plans::rank(approval.strength),
                    shown.map(|shown| shown.hash.hex()).unwrap_or_default(),
                    shown.map_or(i64::MAX, |shown| shown.expires.as_microsecond()),
                ],
            )?;
            let Some(mut found) = found else { return why_not(tx, &id, None, now).map(Err) };
            let plan = plans::opened(&mut found, tx.seal)?;
            let entry = Entry::of_plan(
                RowKind::Approval,
                &plan,
                "approve",
                Some(&approval.by),
                Some(role(approval.rail)),
            )
            .with_approval(&approval);
            tx.append(&Entry { source, ..entry }, ledger_id.clone(), now);
            tx.tell(&plan.id)?;
            Ok(Ok(Decided { plan, ledger_id: ledger_id.clone(), paused: Paused::No }))
        });
        answered(decided.await)
    }

    /// Says no to a plan. The third no to one principal within ten minutes pauses its writes, in the same transaction.
    pub async fn reject(
        &self,
        id: &PlanId,
        by: PrincipalId,
        rail: Rail,
        note: Option<String>,
        now: Timestamp,
    ) -> Result<Decided, DecideRefused> {
        self.reject_from(id, by, rail, source(rail), note, now).await
    }

    /// Says no to a plan, through a door that the rail alone does not tell.
    pub async fn reject_from(
        &self,
        id: &PlanId,
        by: PrincipalId,
        rail: Rail,
        source: Option<Source>,
        note: Option<String>,
        now: Timestamp,
    ) -> Result<Decided, DecideRefused> {
        let (id, ledger_id) = (id.clone(), self.mint(now));
        let ids = self.ids();
        let decided = self.write(move |tx| {
            tx.check_clock(now)?;
            let note = note.as_deref().map(|note| note.replace('\0', "\u{2400}"));
            let found = tx.one(
                "UPDATE plans SET state = 'rejected', note = $1, decided = $2
                  WHERE plan_id = $3 AND state = 'pending' AND expires > $2
                  RETURNING plan_id, body",
                &cells![note.as_ref(), now, id.as_str()],
            )?;
            let Some(mut found) = found else { return why_not(tx, &id, None, now).map(Err) };
            let plan = plans::opened(&mut found, tx.seal)?;
            plans::wipe_known(tx, &plan)?;
            let mut entry = Entry::of_plan(RowKind::Approval, &plan, "reject", Some(&by), Some(role(rail)))
                .with_fact("rail", rail.as_str());
            if let Some(note) = note {
                entry = entry.with_fact("note", note);
            }
            tx.append(&Entry { source, ..entry }, ledger_id.clone(), now);
            tx.tell(&plan.id)?;
            let paused = pauses::count_rejections(tx, &ids, &plan.principal, now)?;
            Ok(Ok(Decided { plan, ledger_id: ledger_id.clone(), paused }))
        });
        answered(decided.await)
    }

    /// Puts another plan in a pending one's place, under the same id: what a person left of it. False where it was decided,
    /// ran out or changed meanwhile, or an equal plan is open.
    pub async fn revise(
        &self,
        looked_at: Digest,
        left: &Plan,
        by: &PrincipalId,
        now: Timestamp,
    ) -> Result<bool, StoreFault> {
        let (left, by, ledger_id) = (left.clone(), by.clone(), self.mint(now));
        let body = self.seal()?.seal_plan(&left)?;
        self.write(move |tx| {
            let changed = tx.execute(
                "UPDATE plans SET hash = $1, effect = $2, strength = $3, body = $4
                  WHERE plan_id = $5 AND hash = $6 AND state = 'pending' AND expires > $7
                    AND NOT EXISTS (SELECT 1 FROM plans other
                                     WHERE other.hash = $1 AND other.state IN ('pending', 'approved'))",
                &cells![
                    left.hash,
                    left.effect.as_str(),
                    plans::rank(left.need.strength),
                    body.as_str(),
                    left.id.as_str(),
                    looked_at,
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
                    .with_fact("plan_hash_before", looked_at.hex());
            tx.append(&Entry { source: Some(Source::Page), ..entry }, ledger_id.clone(), now);
            Ok(true)
        })
        .await
    }

    /// Withdraws a plan, by the principal whose it is; to anyone else it does not exist.
    pub async fn cancel(
        &self,
        id: &PlanId,
        principal: &PrincipalId,
        now: Timestamp,
    ) -> Result<Decided, DecideRefused> {
        let (id, principal, ledger_id) = (id.clone(), principal.clone(), self.mint(now));
        let decided = self.write(move |tx| {
            let found = tx.one(
                "UPDATE plans SET state = 'cancelled', decided = $1
                  WHERE plan_id = $2 AND principal = $3 AND state IN ('pending', 'approved') AND expires > $1
                  RETURNING plan_id, body",
                &cells![now, id.as_str(), principal.as_str()],
            )?;
            let Some(mut found) = found else { return why_not(tx, &id, Some(&principal), now).map(Err) };
            let plan = plans::opened(&mut found, tx.seal)?;
            plans::wipe_known(tx, &plan)?;
            let entry = Entry::of_plan(RowKind::Decision, &plan, "cancel", Some(&principal), None);
            tx.append(&entry, ledger_id.clone(), now);
            tx.tell(&plan.id)?;
            Ok(Ok(Decided { plan, ledger_id: ledger_id.clone(), paused: Paused::No }))
        });
        answered(decided.await)
    }

    /// Cancels every open plan of a tool: what was reviewed is not what would run.
    pub async fn cancel_for_tool(&self, tool: &FullName, now: Timestamp) -> Result<Vec<PlanId>, StoreFault> {
        let (tool, ids) = (tool.to_string(), self.ids());
        self.sweep(move |tx| {
            let closed = tx.query(
                &format!(
                    "UPDATE plans SET state = 'cancelled', decided = $1, note = '{TOOL_CHANGED}'
                      WHERE plan_id IN (SELECT plan_id FROM plans
                                         WHERE tool = $2 AND state IN ('pending', 'approved') LIMIT {SWEEP})
                        AND state IN ('pending', 'approved')
                      RETURNING plan_id, body"
                ),
                &cells![now, tool.as_str()],
            )?;
            close_all(tx, &ids, closed, "tool_changed", now)
        })
        .await
    }

    /// Closes every plan whose time has run out.
    pub async fn expire(&self, now: Timestamp) -> Result<Vec<PlanId>, StoreFault> {
        let ids = self.ids();
        self.sweep(move |tx| {
            tx.check_clock(now)?;
            let closed = tx.query(
                &format!(
                    "UPDATE plans SET state = 'expired'
                      WHERE plan_id IN (SELECT plan_id FROM plans
                                         WHERE state IN ('pending', 'approved') AND expires <= $1 LIMIT {SWEEP})
                        AND state IN ('pending', 'approved') AND expires <= $1
                      RETURNING plan_id, body"
                ),
                &cells![now],
            )?;
            close_all(tx, &ids, closed, "expire", now)
        })
        .await
    }

    /// Repeats a bounded piece of work until it finds nothing more.
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
            if closed.is_empty() {
                return Ok(all);
            }
            all.extend(closed);
        }
    }
}

/// Closes the plan of a hash whose time has run out or whose credential has ended, so that a new one can take its place.
pub(crate) fn expire_equal(
    tx: &mut Tx<'_>,
    ids: &Mint,
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
    let Some(NotDecided::Ended(_)) = unapprovable(tx, &id, now)? else { return Ok(()) };
    cancel_ended(tx, ids, &id, now)
}

fn close_all(
    tx: &mut Tx<'_>,
    ids: &Mint,
    closed: Vec<Found>,
    action: &str,
    now: Timestamp,
) -> Result<Vec<PlanId>, StoreFault> {
    closed
        .into_iter()
        .map(|mut found| {
            let plan = plans::opened(&mut found, tx.seal)?;
            plans::wipe_known(tx, &plan)?;
            tx.append(&Entry::of_plan(RowKind::Decision, &plan, action, None, None), ids.next(now), now);
            tx.tell(&plan.id)?;
            Ok(plan.id)
        })
        .collect()
}

/// Why nobody can agree to a plan: its own preview forbids it, or the credential it was asked for with has ended. Its body
/// never changes, and revoking a credential cancels its plans: looking first is no race.
fn unapprovable(tx: &mut Tx<'_>, id: &PlanId, now: Timestamp) -> Result<Option<NotDecided>, StoreFault> {
    let sql = "SELECT plan_id, body, state FROM plans WHERE plan_id = $1 AND state IN ('pending', 'approved', 'cancelled')";
    let Some(mut found) = tx.one(sql, &cells![id.as_str()])? else { return Ok(None) };
    let (plan, state): (Plan, PlanState) = (plans::opened(&mut found, tx.seal)?, found.word()?);
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

/// Cancels the open plans of a principal that were asked for with a credential that has just been revoked.
pub(crate) fn cancel_for_credential(
    tx: &mut Tx<'_>,
    ids: &Mint,
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
        let plan = plans::opened(&mut found, tx.seal)?;
        if plan.credential.as_ref() == Some(credential) {
            cancel_ended(tx, ids, &plan.id, now)?;
        }
    }
    Ok(())
}

/// Cancels an open plan whose credential has ended.
fn cancel_ended(tx: &mut Tx<'_>, ids: &Mint, id: &PlanId, now: Timestamp) -> Result<(), StoreFault> {
    let closed = tx.query(
        "UPDATE plans SET state = 'cancelled', decided = $1, note = 'the credential has ended'
          WHERE plan_id = $2 AND state IN ('pending', 'approved')
          RETURNING plan_id, body",
        &cells![now, id.as_str()],
    )?;
    close_all(tx, ids, closed, "credential_ended", now).map(drop)
}

/// What stood against a decision, for the answer; the statement has already decided.
fn why_not(
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

fn answered<T>(answer: Answer<T>) -> Result<T, DecideRefused> {
    answer.map_err(DecideRefused::Fault)?.map_err(DecideRefused::NotDecided)
}

impl NotDecided {
    /// What is answered.
    pub fn refusal(self) -> Refusal {
        match self {
            NotDecided::Unknown => Refusal::new(Code::PlanNotFound, "there is no such plan"),
            NotDecided::Expired => {
                Refusal::new(Code::PlanDecided, "the plan's time has run out").because("plan_expired")
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

/// Who speaks over a rail.
fn role(rail: Rail) -> ActorRole {
    match rail {
        Rail::Chat => ActorRole::Agent,
        Rail::Elicitation | Rail::Card => ActorRole::Host,
        Rail::Page | Rail::Cli | Rail::Grant => ActorRole::Human,
    }
}

/// The door a rail usually leads through.
fn source(rail: Rail) -> Option<Source> {
    match rail {
        Rail::Chat | Rail::Elicitation | Rail::Card => Some(Source::Mcp),
        Rail::Page => Some(Source::Page),
        Rail::Cli => Some(Source::Cli),
        Rail::Grant => None,
    }
}
