//! Plans: kept until someone decides. An equal call joins the open plan with a token of its own. What a decision
//! does is in `decisions`; what running one does, in `calls`.

use countersign_core::confirm::{Approval, Held, PlanEnd, PlanState};
use countersign_core::digest::Digest;
use countersign_core::ids::{LedgerId, PlanId, PrincipalId};
use countersign_core::plan::Plan;
use countersign_core::record::{CallRecord, RowStatus};
use countersign_core::refusal::{Code, NextAction, Refusal};
use jiff::Timestamp;

use crate::calls::{Ended, Outcome, RESULT_LIMIT};
use crate::engine::{Cell, Found, cells};
use crate::fault::StoreFault;
use crate::ledger::Entry;
use crate::seal::{Column, Seal};
use crate::writer::Tx;
use crate::{Store, credentials, decisions};

/// How many plans of one principal may be pending.
pub const PENDING_LIMIT: u64 = 20;

/// What became of a plan that was to be held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holding {
    /// The plan the token belongs to.
    pub plan_id: PlanId,
    /// Its hash.
    pub hash: Digest,
    /// Whether it is a new plan.
    pub how: Joined,
    /// Where it stands.
    pub state: PlanState,
    /// Until when it can be decided and run.
    pub expires: Timestamp,
    /// The row `pending`.
    pub ledger_id: LedgerId,
}

/// Whether a held call found an equal one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Joined {
    /// It is a plan of its own.
    New,
    /// An equal plan was open.
    Existing,
}

/// A plan that was not held.
#[derive(Clone, Debug)]
pub enum HoldRefused {
    /// The principal has too many plans pending. A row `refused` is written.
    TooManyPending,
    /// The plan could not be written.
    Fault(StoreFault),
}

impl HoldRefused {
    /// What is answered.
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
    /// The plan.
    pub plan: Plan,
    /// Where it stands.
    pub state: PlanState,
    /// Who agreed.
    pub approval: Option<Approval>,
    /// What was written with a rejection.
    pub note: Option<String>,
    /// When it was approved, rejected or cancelled.
    pub decided: Option<Timestamp>,
    /// The row that let its call out.
    pub ledger_id: Option<LedgerId>,
    /// The code of what went wrong.
    pub code: Option<String>,
    /// What came back, unless it was too long to keep.
    pub result: Option<String>,
    /// How long what came back was, in bytes.
    pub result_bytes: Option<u64>,
    /// When its call ended.
    pub ended: Option<Timestamp>,
}

/// Which plans are wanted, newest first.
#[derive(Clone, Debug, Default)]
pub struct PlanFilter {
    /// Where they stand.
    pub state: Option<PlanState>,
    /// Whose they are.
    pub principal: Option<PrincipalId>,
    /// How many; 50 where none is given, at most 1000.
    pub limit: Option<u32>,
    /// Only those before this one, for the next page.
    pub cursor: Option<PlanId>,
}

const COLUMNS: &str = "plans.plan_id, body, plans.expires, state, approval, note, decided, ledger_id, code, result, result_bytes, ended";

/// The columns that say which plan it is and what it holds.
pub(crate) const PLAN: &str = "plan_id, body";

/// A plan from the columns of [`PLAN`].
pub(crate) fn opened(found: &mut Found, seal: &Seal) -> Result<Plan, StoreFault> {
    let id = PlanId::new(found.text()?);
    seal.open_plan(&id, &found.text()?)
}

fn decode(mut found: Found, seal: &Seal) -> Result<PlanRow, StoreFault> {
    let mut plan = opened(&mut found, seal)?;
    let id = plan.id.clone();
    // Joining may have moved it while it was pending.
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
            Some(sealed) => Some(seal.open(id.as_str(), Column::Result, &sealed)?),
            None => None,
        },
        result_bytes: found.maybe_count()?,
        ended: found.maybe_time()?,
    })
}

impl Store {
    /// Keeps a plan and its token, or joins the equal plan that is open, and writes the row `pending`: one transaction.
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
            decisions::expire_equal(tx, &ids, plan.hash, now)?;
            let place = match find_place(tx, &plan, &body, now)? {
                Some(place) => place,
                None => {
                    tx.append(&Entry::refused(&record, &too_many()), ledger_id.clone(), now);
                    return Ok(None);
                }
            };
            tx.execute(
                "INSERT INTO tokens (token, plan_id, expires) VALUES ($1, $2, $3)",
                &cells![token, place.plan_id.as_str(), token_expires.min(place.expires)],
            )?;
            let mut record = record.clone();
            record.plan_id = Some(place.plan_id.clone());
            record.plan_hash = Some(place.hash);
            tx.append(&Entry::of_call(&record, RowStatus::Pending), ledger_id.clone(), now);
            tx.tell(&place.plan_id)?;
            Ok(Some(Holding { ledger_id: ledger_id.clone(), ..place }))
        });
        held.await.map_err(HoldRefused::Fault)?.ok_or(HoldRefused::TooManyPending)
    }

    /// The plan a token belongs to, as the gate wants it.
    pub async fn held(&self, token: Digest) -> Result<Option<Held>, StoreFault> {
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
                // A credential that is gone works as little as a revoked one.
                (Some(found), _, _) if found.as_ref().is_none_or(|one| one.revoked.is_some()) => {
                    Some(PlanEnd::CredentialRevoked)
                }
                (_, PlanState::Cancelled, Some(decisions::TOOL_CHANGED)) => Some(PlanEnd::ToolChanged),
                _ => None,
            };
            let credential_expires = credential.flatten().and_then(|credential| credential.expires);
            Ok(Some(Held { plan, state, approval, token_expires, note, ended, credential_expires }))
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
    /// Whether some plan's time ran out unnoticed.
    pub async fn is_any_late(&self, now: Timestamp) -> Result<bool, StoreFault> {
        self.read(move |view| {
            let sql =
                "SELECT plan_id FROM plans WHERE state IN ('pending', 'approved') AND expires <= $1 LIMIT 1";
            Ok(view.one(sql, &cells![now])?.is_some())
        })
        .await
    }

    /// Keeps one more token of an approved plan, for a person who runs it from the desk; false where it is not approved.
    pub async fn lend_token(&self, plan: &PlanId, token: Digest, now: Timestamp) -> Result<bool, StoreFault> {
        let plan = plan.clone();
        self.write(move |tx| {
            let added = tx.execute(
                "INSERT INTO tokens (token, plan_id, expires)
                 SELECT $1, plan_id, expires FROM plans WHERE plan_id = $2 AND state = 'approved' AND expires > $3",
                &cells![token, plan.as_str(), now],
            )?;
            Ok(added > 0)
        })
        .await
    }

    /// The plan of the same tool that was approved last, before this one.
    pub async fn approved_before(&self, plan: &Plan) -> Result<Option<PlanRow>, StoreFault> {
        let values = cells![plan.tool.to_string(), plan.id.as_str()];
        let sql = format!(
            "SELECT {COLUMNS} FROM plans WHERE tool = $1 AND plan_id < $2 AND approval IS NOT NULL
              ORDER BY plan_id DESC LIMIT 1"
        );
        let seal = self.seal()?;
        self.read(move |view| view.one(&sql, &values)?.map(|found| decode(found, &seal)).transpose()).await
    }
}

/// The open plan of this hash, or a new one; none where too many are pending. The first statement also makes replicas that hold plans of one principal
/// wait for each other, so that none of them counts too few.
fn find_place(
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
            rank(plan.need.strength),
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
        how: Joined::New,
        state: PlanState::Pending,
        expires: plan.expires,
        ledger_id: LedgerId::new(""),
    }))
}

/// Joins the open plan of an equal call, where there is one. Only what is pending gets more time: an approval ends at the expiry that
/// the person saw. The plan keeps its own `meta`, so its hash may be another: hosts put a fresh id of each request there.
fn join(tx: &mut Tx<'_>, plan: &Plan, now: Timestamp) -> Result<Option<Holding>, StoreFault> {
    let Some(hash) = equal_open(tx, plan, now)? else { return Ok(None) };
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
        how: Joined::Existing,
        state: found.word()?,
        expires: found.time()?,
        ledger_id: LedgerId::new(""),
    }))
}

/// The hash of the open plan of an equal call. A principal has few open plans of one tool, so they are compared one by one.
fn equal_open(tx: &mut Tx<'_>, plan: &Plan, now: Timestamp) -> Result<Option<Digest>, StoreFault> {
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
pub(crate) fn rank(strength: countersign_core::confirm::Strength) -> i64 {
    match strength {
        countersign_core::confirm::Strength::Caller => 1,
        countersign_core::confirm::Strength::Host => 2,
        countersign_core::confirm::Strength::Human => 3,
    }
}

/// Where a plan stands after its call. What is known later is better than `outcome_unknown`.
pub(crate) fn finish(
    tx: &mut Tx<'_>,
    plan: &PlanId,
    outcome: &Outcome,
    now: Timestamp,
) -> Result<(), StoreFault> {
    let state = match outcome.status {
        Ended::Success => PlanState::Done,
        Ended::Error => PlanState::Failed,
        Ended::Unknown => PlanState::OutcomeUnknown,
    };
    let kept = outcome.result.as_ref().filter(|result| result.len() <= RESULT_LIMIT);
    let seal = tx.seal;
    let sealed =
        |result: &String| seal.seal(plan.as_str(), Column::Result, &result.replace('\0', "\u{2400}"));
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
    tx.tell(plan)
}

/// Takes the values that records must not show out of a plan that is closed.
pub(crate) fn wipe(tx: &mut Tx<'_>, id: &PlanId) -> Result<(), StoreFault> {
    let sql = format!("SELECT {PLAN} FROM plans WHERE plan_id = $1");
    match tx.one(&sql, &cells![id.as_str()])? {
        Some(mut found) => {
            let plan = opened(&mut found, tx.seal)?;
            wipe_known(tx, &plan)
        }
        None => Ok(()),
    }
}

/// The same for a plan whose body was just read.
pub(crate) fn wipe_known(tx: &mut Tx<'_>, plan: &Plan) -> Result<(), StoreFault> {
    if let Some(body) = tx.seal.wiped(plan)? {
        tx.execute("UPDATE plans SET body = $1 WHERE plan_id = $2", &cells![body, plan.id.as_str()])?;
    }
    Ok(())
}
