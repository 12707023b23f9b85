//! The way from an agreement to a change: the gate judges, the store keeps plan and token and spends it once, the ledger has the
//! row before anything is written. The same engine as everywhere else; only the rules are ours.

use std::sync::Arc;
use std::time::{Duration, Instant};

use countersign_core::call::{Arguments, Call, Caller, Standing};
use countersign_core::canonical;
use countersign_core::confirm::{Brought, Held, Kind, PlanState, Strength};
use countersign_core::digest::{Digest, Domain};
use countersign_core::effect::Effect;
use countersign_core::gate::{
    self, NoLimits, NoSchema, Redemption, Refused, Snapshot, Verdict, Writes, token_digest,
};
use countersign_core::ids::{FullName, PlanId, PrincipalId, SessionId};
use countersign_core::intent::{Door, Spoken, Strictness};
use countersign_core::mode::Mode;
use countersign_core::plan::{Hashed, Plan, Preview};
use countersign_core::preview::Style;
use countersign_core::record::{CallRecord, Source};
use countersign_core::redact::Redactor;
use countersign_core::refusal::{Code, NextAction, Refusal};
use countersign_core::role::Role;
use countersign_core::rules::{Rule, RuleSet, Unlisted};
use countersign_core::tool::Tool;
use countersign_store::{Ended, Opened, Outcome as Ending, PENDING_LIMIT, PlanFilter, PlanRow, Store};
use jiff::Timestamp;
use serde_json::{Map, Value};

use crate::deed;
use crate::reply::Reply;
use crate::stop::{Outcome, Stop};

/// The upstream's name.
pub const UPSTREAM: &str = "pack";
/// How long a token lives where nobody says otherwise.
pub const TOKEN_LIFE: Duration = Duration::from_secs(300);

/// Who is on the line, and where plans and rows are kept.
#[derive(Clone)]
pub struct Line {
    store: Store,
    caller: Caller,
    rules: Arc<RuleSet>,
    redactor: Arc<Redactor>,
    life: Duration,
}

/// A token and what it stands for.
#[derive(Clone, Debug)]
pub struct Ticket {
    /// What phase 2 brings back.
    pub token: String,
    /// The plan's hash.
    pub hash: Digest,
    /// Until when.
    pub expires: Timestamp,
    /// The plan's name.
    pub plan_id: PlanId,
}

impl Line {
    /// A line of this role. A session's tokens are good in every process that names the same session.
    pub fn new(store: Store, role: Role, session: &str, source: Source, life: Duration) -> Outcome<Self> {
        let principal = match role {
            Role::Agent => PrincipalId::new("local-agent"),
            Role::Human => PrincipalId::new("local-human"),
        };
        let caller = Caller {
            principal,
            credential: None,
            role,
            session: SessionId::new(session),
            source,
            scopes: countersign_core::call::Scopes::all(),
        };
        let redactor = Arc::new(Redactor::new(store.salt().to_vec()));
        Ok(Self { store, caller, rules: Arc::new(rules()?), redactor, life })
    }

    /// The records.
    pub fn store(&self) -> &Store {
        &self.store
    }

    fn named(&self, tool: &str, arguments: &Arguments, brought: Brought) -> Outcome<Call> {
        let definition = crate::tools::definition(tool);
        let read =
            Tool::read(UPSTREAM.into(), definition).map_err(|error| Stop::broken("judge a call", error))?;
        Ok(Call {
            caller: self.caller.clone(),
            name: FullName::new(UPSTREAM, tool),
            standing: Standing::Accepted(Arc::new(read)),
            arguments: arguments.clone(),
            door: Door::Direct,
            intent: Spoken::default(),
            mode: None,
            brought,
        })
    }

    fn judge(
        &self,
        tool: &str,
        arguments: &Arguments,
        brought: Brought,
        held: Option<&Held>,
        now: Timestamp,
    ) -> Outcome<Verdict> {
        let call = self.named(tool, arguments, brought)?;
        let law = Snapshot {
            rules: &self.rules,
            strictness: Strictness::Strict,
            configured_mode: Mode::Execute,
            session_mode: None,
            held,
            grants: &[],
            usage: &NoLimits,
            writes: Writes::Open,
            schema: &NoSchema,
            redactor: &self.redactor,
        };
        Ok(gate::judge(call, &law, now))
    }

    /// Keeps a plan for `deploy_apply` and gives out a token for it.
    pub async fn hold(&self, arguments: &Arguments, preview: Preview, now: Timestamp) -> Outcome<Ticket> {
        let draft = match self.judge("deploy_apply", arguments, Brought::default(), None, now)? {
            Verdict::Hold(draft) => draft,
            Verdict::Refuse(refused) => return Err(self.refuse(refused, now).await),
            Verdict::Go(_) | Verdict::Redeem(_) | Verdict::Preview(_) | Verdict::Explain(_) => {
                return Err(Stop::broken("hold a plan", "the gate did not ask for a confirm"));
            }
        };
        let id = PlanId::mint(now, uuid::Uuid::new_v4().as_u128());
        let plan = draft.freeze(id, preview, now, self.life);
        let token = uuid::Uuid::new_v4().to_string();
        let expires = plan.expires;
        self.make_room(plan.hash, now).await?;
        let held = self.store.hold(&plan, token_digest(&token), expires, draft.record, now).await;
        let held = held.map_err(|refused| Stop::from(refused.refusal()))?;
        Ok(Ticket { token, hash: plan.hash, expires, plan_id: held.plan_id })
    }

    /// Withdraws the oldest plans that wait where one more would be too many: nobody but this line decides them, and to look again is no
    /// offence.
    async fn make_room(&self, coming: Digest, now: Timestamp) -> Outcome<()> {
        let filter = PlanFilter {
            state: Some(PlanState::Pending),
            principal: Some(self.caller.principal.clone()),
            limit: Some(1000),
            cursor: None,
        };
        let rows = self.store.plans(filter).await.map_err(|fault| Stop::from(fault.refusal()))?;
        let pending: Vec<&PlanRow> = rows.iter().filter(|row| row.plan.expires > now).collect();
        if pending.iter().any(|row| row.plan.hash == coming) {
            return Ok(());
        }
        let most = usize::try_from(PENDING_LIMIT).unwrap_or(usize::MAX);
        // Newest first: those past the last place that is left.
        for row in pending.iter().skip(most.saturating_sub(1)) {
            // Somebody else may have been faster; then there is room as well.
            let _ = self.store.cancel(&row.plan.id, &self.caller.principal, now).await;
        }
        Ok(())
    }

    /// Checks a token that was brought back: everything but the preview and the spend.
    pub async fn redeem(
        &self,
        arguments: &Arguments,
        token: Option<&str>,
        now: Timestamp,
    ) -> Outcome<Redemption> {
        let token = token.filter(|token| !token.is_empty());
        let held = match token {
            Some(token) => {
                self.store.held(token_digest(token)).await.map_err(|fault| Stop::from(fault.refusal()))?
            }
            None => None,
        };
        let brought = Brought { token: token.map(str::to_owned), yes: Some(true), text: None };
        match self.judge("deploy_apply", arguments, brought, held.as_ref(), now)? {
            Verdict::Redeem(redemption) => Ok(redemption),
            Verdict::Refuse(refused) => Err(self.refuse(refused, now).await),
            Verdict::Go(_) | Verdict::Hold(_) | Verdict::Preview(_) | Verdict::Explain(_) => {
                Err(Stop::broken("redeem a token", "the gate did not take it as one"))
            }
        }
    }

    /// Compares the plan with the one that was shown, spends the token and writes the row, as one.
    pub async fn settle(&self, redemption: Redemption, fresh: &Preview, now: Timestamp) -> Outcome<Opened> {
        let expected = redemption.plan().hash;
        let current = hash_with(redemption.plan(), fresh);
        match redemption.settle(Some(fresh)) {
            Ok(permit) => {
                self.store.open(permit, now).await.map_err(|refused| for_callers(refused.refusal()).into())
            }
            Err(refused) => {
                let Refused { mut refusal, record } = refused;
                // Both plans in full may be megabytes; `deploy` shows the new one.
                refusal.details.remove("reviewed");
                refusal.details.remove("now");
                let refusal = refusal
                    .with("confirm_plan_hash", current.hex())
                    .with("expected_confirm_plan_hash", expected.hex());
                Err(self.refuse(Refused { refusal, record }, now).await)
            }
        }
    }

    /// A call that changes something and needs no second step: judged, written down, and then let out.
    pub async fn open(&self, tool: &str, arguments: &Arguments, now: Timestamp) -> Outcome<Opened> {
        match self.judge(tool, arguments, Brought::default(), None, now)? {
            Verdict::Go(permit) => {
                self.store.open(permit, now).await.map_err(|refused| for_callers(refused.refusal()).into())
            }
            Verdict::Refuse(refused) => Err(self.refuse(refused, now).await),
            Verdict::Redeem(_) | Verdict::Hold(_) | Verdict::Preview(_) | Verdict::Explain(_) => {
                Err(Stop::broken("open a call", "the gate asked for a confirm"))
            }
        }
    }

    /// Runs what was let out, away from the line's own thread, and writes down how it ended.
    pub async fn conduct(
        &self,
        opened: Opened,
        work: impl FnOnce(&Opened) -> Outcome<Reply> + Send + 'static,
    ) -> Outcome<Reply> {
        let began = Instant::now();
        let record = opened.permit().record().clone();
        let ran = tokio::task::spawn_blocking(move || {
            let outcome = work(&opened);
            (opened, outcome)
        });
        let (opened, outcome) = ran.await.map_err(|error| Stop::broken("carry out a call", error))?;
        let digest = |data: &Map<String, Value>| {
            let text = canonical::to_string(&Value::Object(data.clone()));
            Digest::of(Domain::Outcome, text.as_bytes())
        };
        let (status, code, result_digest) = match &outcome {
            Ok(reply) => (Ended::Success, None, Some(digest(&reply.data))),
            Err(stop) => (Ended::Error, stop.refusal().map(|refusal| refusal.code), None),
        };
        let duration_us = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
        let ending = Ending { status, code, duration_us, result_digest, result: None };
        match (self.store.close(opened, ending, Timestamp::now()).await, outcome) {
            (Ok(_), Ok(reply)) => Ok(deed::note(&self.store, &record, reply).await),
            (Ok(_), Err(stop)) => Err(stop),
            (Err(fault), Ok(reply)) => {
                Ok(reply.warn(vec![format!("it is done, and how it ended is not written yet: {fault}")]))
            }
            (Err(_), Err(stop)) => Err(stop),
        }
    }

    /// Writes the row of a refusal that was not the gate's.
    pub async fn note(&self, record: &CallRecord, refusal: Refusal) -> Stop {
        self.refuse(Refused { refusal, record: record.clone() }, Timestamp::now()).await
    }

    /// Writes the row of a call that was refused before it came to the gate.
    pub async fn note_call(&self, tool: &str, arguments: &Arguments, stop: Stop) -> Stop {
        let (Ok(call), Some(refusal)) = (self.named(tool, arguments, Brought::default()), stop.refusal())
        else {
            return stop;
        };
        let mut record = CallRecord::begin(&call);
        record.set_arguments(&self.redactor, arguments, &[]);
        let noted = self.store.refused(&record, refusal, Timestamp::now()).await;
        noted.map_or_else(|fault| fault.refusal().into(), |_| stop)
    }

    /// Writes the row of a refusal and gives the refusal back, with what its callers can do.
    async fn refuse(&self, refused: Refused, now: Timestamp) -> Stop {
        let refusal = for_callers(refused.refusal);
        match self.store.refused(&refused.record, &refusal, now).await {
            Ok(_) => refusal.into(),
            Err(fault) => fault.refusal().into(),
        }
    }
}

/// A plan's hash, had its preview been this one.
fn hash_with(plan: &Plan, preview: &Preview) -> Digest {
    Hashed {
        principal: &plan.principal,
        session: &plan.session,
        upstream: &plan.tool.upstream,
        tool: &plan.tool.tool,
        fingerprint: plan.fingerprint,
        arguments: &plan.arguments,
        meta: plan.meta.as_ref(),
        preview_digest: preview.digest,
        policy_digest: plan.policy_digest,
        hash_salt: plan.hidden.map(|hidden| hidden.hash_salt),
    }
    .hash()
}

/// The token's refusals in the words of `deploy` and `deploy_apply`.
pub(crate) fn for_callers(refusal: Refusal) -> Refusal {
    let of_token = [
        Code::ConfirmTokenRequired,
        Code::ConfirmTokenMismatch,
        Code::ConfirmTokenUsed,
        Code::ConfirmTokenExpired,
        Code::PlanCancelled,
    ];
    if of_token.contains(&refusal.code) {
        let hint = "call `deploy`, show what it answers, then call `deploy_apply` with its confirm_token and yes=true";
        refusal.next(&[NextAction::CallDeploy, NextAction::RetryDeployApply]).with("hint", hint)
    } else if refusal.code == Code::ConfirmRequired {
        confirm_required("deploy --apply", refusal)
    } else {
        refusal
    }
}

/// The refusal of a change nobody said yes to.
pub fn unconfirmed(command: &str) -> Stop {
    let message = format!("`{command}` changes something and needs `yes`");
    confirm_required(command, Refusal::new(Code::ConfirmRequired, message)).into()
}

fn confirm_required(command: &str, refusal: Refusal) -> Refusal {
    refusal.next(&[NextAction::RetryWithYes]).with("command", command)
}

/// Only `deploy_apply` is in two steps here; the gateway's own rules ask for more.
fn rules() -> Outcome<RuleSet> {
    let mut apply = Rule::named("pack:deploy_apply", &["pack:deploy_apply"]);
    apply.effect = Some(Effect::Destructive);
    apply.confirm = Some(Kind::Preview);
    apply.strength = Some(Strength::Caller);
    apply.preview = Some(Style::Companion { tool: "deploy".to_owned(), digest: Vec::new() });
    let mut rest = Rule::named("pack:*", &["pack:*"]);
    rest.effect = Some(Effect::Write);
    rest.confirm = Some(Kind::None);
    rest.preview = Some(Style::Computed);
    RuleSet::compile(vec![apply, rest], Unlisted::Govern)
        .map_err(|error| Stop::broken("read our own rules", error))
}
