//! Plans, stored until they are decided. An equal call joins the open plan with a token of its own. Decisions are in `decisions`, running
//! a plan is in `calls`.

use countersign_policy::call::Arguments;
use countersign_policy::confirm::{Approval, PendingPlan, PlanEnd, PlanState};
use countersign_policy::digest::{Digest, DigestDomain};
use countersign_policy::headline::is_same_target;
use countersign_policy::ids::{FullName, LedgerId, PlanId, PrincipalId, SessionId};
use countersign_policy::plan::Plan;
use countersign_policy::record::{CallRecord, RowStatus};
use countersign_policy::refusal::{Code, NextAction, Refusal};
use jiff::Timestamp;

use crate::calls::{Outcome, OutcomeStatus, RESULT_LIMIT};
use crate::engine::{Cell, FoundRow, cells};
use crate::fault::StoreFault;
use crate::ledger::Entry;
use crate::seal::{Seal, SealedColumn};
use crate::writer::Tx;
use crate::{Store, credentials, decisions};

/// How many plans of one principal may be pending.
pub const PENDING_LIMIT: u64 = 20;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holding {
    pub plan_id: PlanId,
    pub hash: Digest,
    pub how: PlanMatch,
    pub state: PlanState,
    pub expires: Timestamp,
    /// The row `pending`.
    pub ledger_id: LedgerId,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlanMatch {
    /// It is a plan of its own.
    New,
    Existing,
}

#[derive(Clone, Debug)]
pub enum HoldRefused {
    TooManyPending,
    Fault(StoreFault),
}

impl HoldRefused {
    pub fn refusal(&self) -> Refusal {
        match self {
            HoldRefused::TooManyPending => too_many(),
            HoldRefused::Fault(fault) => fault.refusal(),
        }
    }
}

/// A plan and what became of it.
#[derive(Clone, Debug, PartialEq)]
pub struct PlanRow {
    pub plan: Plan,
    pub state: PlanState,
    pub approval: Option<Approval>,
    /// The person's note on a rejection.
    pub note: Option<String>,
    pub decided: Option<Timestamp>,
    pub ledger_id: Option<LedgerId>,
    pub code: Option<String>,
    /// The result, unless it was too long to store.
    pub result: Option<String>,
    pub result_bytes: Option<u64>,
    pub ended: Option<Timestamp>,
    /// Until when the call that asked for it is held open, as its gateway noted.
    pub held_until: Option<Timestamp>,
}

impl PlanRow {
    /// Whether the agent's own call still waits for the decision, and runs the plan itself then.
    pub fn is_held_open(&self, now: Timestamp) -> bool {
        self.state == PlanState::Pending && self.held_until.is_some_and(|until| until > now)
    }
}

#[derive(Clone, Debug, Default)]
pub struct PlanFilter {
    pub state: Option<PlanState>,
    pub principal: Option<PrincipalId>,
    /// How many; 50 where none is given, at most 1000.
    pub limit: Option<u32>,
    /// Only those before this one, for the next page.
    pub cursor: Option<PlanId>,
}

const COLUMNS: &str = "plans.plan_id, body, plans.expires, state, approval, note, decided, ledger_id, code, result, result_bytes, ended, held_until";

pub(crate) const PLAN: &str = "plan_id, body";

pub(crate) fn open_body(found: &mut FoundRow, seal: &Seal) -> Result<Plan, StoreFault> {
    let id = PlanId::new(found.text()?);
    seal.open_plan(&id, &found.text()?)
}

fn decode(mut found: FoundRow, seal: &Seal) -> Result<PlanRow, StoreFault> {
    let mut plan = open_body(&mut found, seal)?;
    let id = plan.id.clone();
    // An equal call may have extended it while it was pending.
    plan.expires = found.time()?;
    Ok(PlanRow {
        plan,
        state: found.word()?,
        approval: found.maybe_json()?,
        note: found.maybe_text()?,
        decided: found.maybe_time()?,
        ledger_id: found.maybe_text()?.map(Into::into),
        code: found.maybe_text()?,
        result: match found.maybe_text()? {
            Some(sealed) => Some(seal.open(id.as_str(), SealedColumn::Result, &sealed)?),
            None => None,
        },
        result_bytes: found.maybe_count()?,
        ended: found.maybe_time()?,
        held_until: found.maybe_time()?,
    })
}

impl Store {
    /// Stores a plan and its token, or adds the token to the equal plan that is open, and writes the row `pending`, in one transaction.
    pub async fn hold(
        &self,
        plan: &Plan,
        token: Digest,
        token_expires: Timestamp,
        record: CallRecord,
        now: Timestamp,
    ) -> Result<Holding, HoldRefused> {
        let (plan, ledger_id) = (plan.clone(), self.mint(now));
        let body = self.seal().and_then(|seal| seal.seal_plan(&plan)).map_err(HoldRefused::Fault)?;
        let ids = self.ids();
        let held = self.write(move |tx| {
            tx.check_clock(now)?;
            // First: an equal plan that has expired would be joined, and nobody could approve it any more.
            decisions::expire_equal(tx, &ids, plan.hash, now)?;
            let place = match join_or_insert(tx, &plan, &body, now)? {
                Some(place) => place,
                None => {
                    tx.append_call(&Entry::refused(&record, &too_many()), ledger_id.clone(), None, now)?;
                    return Ok(None);
                }
            };
            tx.execute(
                "INSERT INTO tokens (token, plan_id, expires) VALUES ($1, $2, $3)",
                // A joined plan may end sooner: a token must not outlive it.
                &cells![token, place.plan_id.as_str(), token_expires.min(place.expires)],
            )?;
            let mut record = record.clone();
            record.plan_id = Some(place.plan_id.clone());
            record.plan_hash = Some(place.hash);
            let mut row = Entry::of_call(&record, RowStatus::Pending);
            if let Some(rule) = &plan.rule {
                row = row.with_fact("rule", rule.as_str());
            }
            tx.append_call(&row, ledger_id.clone(), None, now)?;
            tx.notify_plan(&place.plan_id)?;
            Ok(Some(Holding { ledger_id: ledger_id.clone(), ..place }))
        });
        held.await.map_err(HoldRefused::Fault)?.ok_or(HoldRefused::TooManyPending)
    }

    /// Notes until when the call that asked for a pending plan is held open; none once it no longer waits.
    pub async fn note_held_until(&self, plan: &PlanId, until: Option<Timestamp>) -> Result<(), StoreFault> {
        let (plan, until) = (plan.clone(), until.map_or(Cell::Null, Cell::from));
        self.write(move |tx| {
            let sql = "UPDATE plans SET held_until = $1 WHERE plan_id = $2 AND state = 'pending'";
            tx.execute(sql, &[until.clone(), plan.as_str().into()]).map(drop)
        })
        .await
    }

    /// The plan a token belongs to, for the gate.
    pub async fn held(&self, token: Digest) -> Result<Option<PendingPlan>, StoreFault> {
        let sql = format!(
            "SELECT tokens.expires, {COLUMNS} FROM tokens JOIN plans ON plans.plan_id = tokens.plan_id WHERE tokens.token = $1"
        );
        let seal = self.seal()?;
        self.read(move |view| {
            let Some(mut found) = view.one(&sql, &cells![token])? else { return Ok(None) };
            let token_expires = found.time()?;
            let PlanRow { plan, state, approval, note, .. } = decode(found, &seal)?;
            let credential = match &plan.credential {
                Some(id) => {
                    let found = view.one(&credentials::by_id_sql(), &cells![id.as_str()])?;
                    Some(found.map(credentials::decode).transpose()?)
                }
                None => None,
            };
            let ended = match (&credential, state, note.as_deref()) {
                // A credential that is gone counts as revoked.
                (Some(found), _, _) if found.as_ref().is_none_or(|one| one.revoked.is_some()) => {
                    Some(PlanEnd::CredentialRevoked)
                }
                (_, PlanState::Cancelled, Some(decisions::TOOL_CHANGED)) => Some(PlanEnd::ToolChanged),
                _ => None,
            };
            let credential_expires = credential.flatten().and_then(|credential| credential.expires);
            Ok(Some(PendingPlan { plan, state, approval, token_expires, note, ended, credential_expires }))
        })
        .await
    }

    /// A plan and what became of it.
    pub async fn plan(&self, id: &PlanId) -> Result<Option<PlanRow>, StoreFault> {
        let values = cells![id.as_str()];
        let sql = format!("SELECT {COLUMNS} FROM plans WHERE plan_id = $1");
        let seal = self.seal()?;
        self.read(move |view| view.one(&sql, &values)?.map(|found| decode(found, &seal)).transpose()).await
    }

    /// Plans, newest first. The id of the last is the cursor of the next page.
    pub async fn plans(&self, filter: PlanFilter) -> Result<Vec<PlanRow>, StoreFault> {
        let mut conditions = Vec::new();
        let mut values: Vec<Cell> = Vec::new();
        let mut add = |condition: &str, value: Cell| {
            values.push(value);
            conditions.push(condition.replace('?', &format!("${}", values.len())));
        };
        if let Some(state) = filter.state {
            add("state = ?", state.as_str().into());
        }
        if let Some(principal) = &filter.principal {
            add("principal = ?", principal.as_str().into());
        }
        if let Some(cursor) = &filter.cursor {
            // Ids sort by time, so a page stays where it is while new plans arrive. An offset would shift.
            add("plan_id < ?", cursor.as_str().into());
        }
        let limit = filter.limit.unwrap_or(50).clamp(1, 1000);
        let filters =
            if conditions.is_empty() { String::new() } else { format!("WHERE {}", conditions.join(" AND ")) };
        let sql = format!("SELECT {COLUMNS} FROM plans {filters} ORDER BY plan_id DESC LIMIT {limit}");
        let seal = self.seal()?;
        self.read(move |view| {
            view.query(&sql, &values)?.into_iter().map(|found| decode(found, &seal)).collect()
        })
        .await
    }
}

impl Store {
    /// Whether a plan has expired and is still open.
    pub async fn is_any_late(&self, now: Timestamp) -> Result<bool, StoreFault> {
        self.read(move |view| {
            let sql =
                "SELECT plan_id FROM plans WHERE state IN ('pending', 'approved') AND expires <= $1 LIMIT 1";
            Ok(view.one(sql, &cells![now])?.is_some())
        })
        .await
    }

    /// Keeps one more token of an approved plan, for a person who runs it, and the agent's claim on its result. False where the
    /// plan is not approved.
    pub async fn lend_token(&self, plan: &PlanId, token: Digest, now: Timestamp) -> Result<bool, StoreFault> {
        let plan = plan.clone();
        self.write(move |tx| {
            let sql = "INSERT INTO tokens (token, plan_id, expires)
                       SELECT $1, plan_id, expires FROM plans
                        WHERE plan_id = $2 AND state = 'approved' AND expires > $3
                       ON CONFLICT (token) DO NOTHING";
            let added = tx.execute(sql, &cells![token, plan.as_str(), now])?;
            // With the token, or a crash in between would run the plan and lose the agent's claim on its result.
            tx.execute(sql, &cells![result_claim(&plan), plan.as_str(), now])?;
            Ok(added > 0)
        })
        .await
    }

    /// Gives up the agent's claim on a plan's result: it has the result, or it ran the plan itself.
    pub async fn release_result(&self, plan: &PlanId) -> Result<(), StoreFault> {
        let claim = result_claim(plan);
        let claimed = self.read(move |view| {
            Ok(view.one("SELECT plan_id FROM tokens WHERE token = $1", &cells![claim])?.is_some())
        });
        // Most plans have none: those cost no write.
        if claimed.await? {
            let release = "DELETE FROM tokens WHERE token = $1";
            self.write(move |tx| tx.execute(release, &cells![claim]).map(drop)).await?;
        }
        Ok(())
    }

    /// The newest plan of an equal call that a person ran, before its expiry, and whose result the agent has not seen.
    pub async fn undelivered_plan(
        &self,
        call: EqualCall<'_>,
        now: Timestamp,
    ) -> Result<Option<PlanId>, StoreFault> {
        let values = cells![call.principal.as_str(), call.session.as_str(), call.tool.to_string(), now];
        let arguments = call.arguments.clone();
        let sql = format!(
            "SELECT {COLUMNS} FROM plans WHERE principal = $1 AND session = $2 AND tool = $3
                AND state IN ('executing', 'done', 'failed') AND expires > $4 ORDER BY plan_id DESC"
        );
        let seal = self.seal()?;
        self.read(move |view| {
            for found in view.query(&sql, &values)? {
                let plan = decode(found, &seal)?.plan;
                let claim = "SELECT plan_id FROM tokens WHERE token = $1";
                // Compared after unsealing: the arguments are in no column that SQL could compare.
                if plan.has_arguments(&arguments)
                    && view.one(claim, &cells![result_claim(&plan.id)])?.is_some()
                {
                    return Ok(Some(plan.id));
                }
            }
            Ok(None)
        })
        .await
    }

    /// The plan of the same principal about the same target that was approved last, before this one. Only the latest are
    /// compared: what somebody approved long ago says little about this plan.
    pub async fn approved_before(&self, plan: &Plan) -> Result<Option<PlanRow>, StoreFault> {
        let values = cells![plan.tool.to_string(), plan.principal.as_str(), plan.id.as_str()];
        let sql = format!(
            "SELECT {COLUMNS} FROM plans WHERE tool = $1 AND principal = $2 AND plan_id < $3 AND approval IS NOT NULL
              ORDER BY plan_id DESC LIMIT 50"
        );
        let (seal, plan) = (self.seal()?, plan.clone());
        self.read(move |view| {
            for found in view.query(&sql, &values)? {
                let row = decode(found, &seal)?;
                if is_same_target(&row.plan, &plan) {
                    return Ok(Some(row));
                }
            }
            Ok(None)
        })
        .await
    }
}

/// What makes two calls equal.
#[derive(Clone, Copy, Debug)]
pub struct EqualCall<'a> {
    pub principal: &'a PrincipalId,
    pub session: &'a SessionId,
    pub tool: &'a FullName,
    pub arguments: &'a Arguments,
}

/// The claim on a plan's result. It is kept beside the plan's tokens and is none itself: no text has this digest as a token.
fn result_claim(plan: &PlanId) -> Digest {
    Digest::of(DigestDomain::Outcome, plan.as_str().as_bytes())
}

/// The open plan of an equal call, or a new one; none if too many are pending. The first statement locks the principal's row, so that
/// replicas that hold plans of one principal do not both count too few.
fn join_or_insert(
    tx: &mut Tx<'_>,
    plan: &Plan,
    body: &str,
    now: Timestamp,
) -> Result<Option<Holding>, StoreFault> {
    tx.execute(
        "INSERT INTO principals (principal) VALUES ($1) ON CONFLICT (principal) DO UPDATE SET principal = excluded.principal",
        &cells![plan.principal.as_str()],
    )?;
    if let Some(place) = join(tx, plan, now)? {
        return Ok(Some(place));
    }
    let pending = tx.one(
        "SELECT COUNT(*) FROM plans WHERE principal = $1 AND state = 'pending' AND expires > $2",
        &cells![plan.principal.as_str(), now],
    )?;
    if pending.map(|mut found| found.count()).transpose()?.unwrap_or_default() >= PENDING_LIMIT {
        return Ok(None);
    }
    let added = tx.execute(
        "INSERT INTO plans (plan_id, hash, principal, session, tool, effect, strength, state, created, expires, body)
         VALUES ($1, $2, $3, $4, $5, $6, $7, 'pending', $8, $9, $10)
         ON CONFLICT (hash) WHERE state IN ('pending', 'approved') DO NOTHING",
        &cells![
            plan.id.as_str(),
            plan.hash,
            plan.principal.as_str(),
            plan.session.as_str(),
            plan.tool.to_string(),
            plan.effect.as_str(),
            strength_rank(plan.requirement.strength),
            plan.created,
            plan.expires,
            body,
        ],
    )?;
    if added == 0 {
        let lost = || StoreFault::unavailable("an equal plan came and went");
        return join(tx, plan, now)?.ok_or_else(lost).map(Some);
    }
    Ok(Some(Holding {
        plan_id: plan.id.clone(),
        hash: plan.hash,
        how: PlanMatch::New,
        state: PlanState::Pending,
        expires: plan.expires,
        ledger_id: LedgerId::new(""),
    }))
}

/// Joins the open plan of an equal call, if there is one. Only a pending plan gets more time: an approval ends at the expiry that the
/// person saw. The plan keeps its own `meta`, so its hash may differ: hosts put a fresh id of each request there.
fn join(tx: &mut Tx<'_>, plan: &Plan, now: Timestamp) -> Result<Option<Holding>, StoreFault> {
    let Some(hash) = find_equal_open(tx, plan, now)? else { return Ok(None) };
    let found = tx.one(
        "UPDATE plans SET expires = CASE WHEN state = 'pending' AND expires < $1 THEN $1 ELSE expires END
          WHERE hash = $2 AND state IN ('pending', 'approved') AND expires > $3
          RETURNING plan_id, state, expires",
        &cells![plan.expires, hash, now],
    )?;
    let Some(mut found) = found else { return Ok(None) };
    Ok(Some(Holding {
        plan_id: found.text()?.into(),
        hash,
        how: PlanMatch::Existing,
        state: found.word()?,
        expires: found.time()?,
        ledger_id: LedgerId::new(""),
    }))
}

/// The hash of the open plan of an equal call. A principal has few open plans of one tool, so they are compared one by one.
fn find_equal_open(tx: &mut Tx<'_>, plan: &Plan, now: Timestamp) -> Result<Option<Digest>, StoreFault> {
    let sql = format!(
        "SELECT {COLUMNS} FROM plans WHERE principal = $1 AND session = $2 AND tool = $3
            AND state IN ('pending', 'approved') AND expires > $4 ORDER BY plan_id"
    );
    let of_call = cells![plan.principal.as_str(), plan.session.as_str(), plan.tool.to_string(), now];
    let identity = plan.identity();
    for found in tx.query(&sql, &of_call)? {
        let open = decode(found, tx.seal)?.plan;
        if open.identity() == identity {
            return Ok(Some(open.hash));
        }
    }
    Ok(None)
}

fn too_many() -> Refusal {
    let message =
        format!("{PENDING_LIMIT} plans are pending already; someone has to decide some of them first");
    Refusal::new(Code::LimitExceeded, message)
        .because("too_many_pending")
        .with("limit", PENDING_LIMIT)
        .next(&[NextAction::GetPlan, NextAction::AskPerson, NextAction::RetryLater])
}

/// Strengths as numbers, so that a statement can compare them.
pub(crate) fn strength_rank(strength: countersign_policy::confirm::ApprovalStrength) -> i64 {
    match strength {
        countersign_policy::confirm::ApprovalStrength::Caller => 1,
        countersign_policy::confirm::ApprovalStrength::Host => 2,
        countersign_policy::confirm::ApprovalStrength::Human => 3,
    }
}

/// Writes the state of a plan after its call. A later outcome replaces `outcome_unknown`.
pub(crate) fn finish(
    tx: &mut Tx<'_>,
    plan: &PlanId,
    outcome: &Outcome,
    now: Timestamp,
) -> Result<(), StoreFault> {
    let state = match outcome.status {
        OutcomeStatus::Success => PlanState::Done,
        OutcomeStatus::Error => PlanState::Failed,
        OutcomeStatus::Unknown => PlanState::OutcomeUnknown,
    };
    let kept = outcome.result.as_ref().filter(|result| result.len() <= RESULT_LIMIT);
    let seal = tx.seal;
    let sealed =
        |result: &String| seal.seal(plan.as_str(), SealedColumn::Result, &result.replace('\0', "\u{2400}"));
    let bytes = outcome.result.as_ref().map(|result| result.len() as u64);
    tx.execute(
        "UPDATE plans SET state = $1, code = $2, result = $3, result_bytes = $4, ended = $5
          WHERE plan_id = $6 AND state IN ('executing', 'outcome_unknown')",
        &cells![
            state.as_str(),
            outcome.code.map(|code| code.as_str()),
            kept.map(sealed).transpose()?,
            bytes,
            now,
            plan.as_str(),
        ],
    )?;
    wipe(tx, plan)?;
    tx.notify_plan(plan)
}

/// Removes redacted values from a closed plan.
pub(crate) fn wipe(tx: &mut Tx<'_>, id: &PlanId) -> Result<(), StoreFault> {
    let sql = format!("SELECT {PLAN} FROM plans WHERE plan_id = $1");
    match tx.one(&sql, &cells![id.as_str()])? {
        Some(mut found) => {
            let plan = open_body(&mut found, tx.seal)?;
            wipe_body(tx, &plan)
        }
        None => Ok(()),
    }
}

pub(crate) fn wipe_body(tx: &mut Tx<'_>, plan: &Plan) -> Result<(), StoreFault> {
    if let Some(body) = tx.seal.wiped(plan)? {
        tx.execute("UPDATE plans SET body = $1 WHERE plan_id = $2", &cells![body, plan.id.as_str()])?;
    }
    Ok(())
}
