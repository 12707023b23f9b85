//! Permits: the gate's yes as a type. Not `Clone`, no public constructor; `store` turns one into `RecordedPermit`
//! by writing its row, and only that can be dispatched.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::verdict::{CallDraft, DryRun, Refused};
use crate::call::Arguments;
use crate::confirm::{Approval, RecordedChannel};
use crate::digest::{Digest, DigestDomain};
use crate::duration::RateLimit;
use crate::effect::Effect;
use crate::grant::Grant;
use crate::ids::{GrantId, PlanId};
use crate::mode::Mode;
use crate::plan::{Plan, Preview};
use crate::preview::PreviewStyle;
use crate::record::CallRecord;
use crate::refusal::{Code, Refusal};
use crate::rules::RuleName;
use crate::tool::Tool;

/// How a confirm token is kept at rest.
pub fn token_digest(token: &str) -> Digest {
    Digest::of(DigestDomain::Token, token.as_bytes())
}

/// The token a permit spends, in the same transaction that writes its row.
#[derive(Debug, PartialEq)]
pub struct TokenSpend {
    pub plan: PlanId,
    /// Its hash, which must still be what the store holds.
    pub hash: Digest,
    pub token: Digest,
    /// Who agreed; kept with the plan.
    pub approval: Approval,
}

/// Which members of `_meta` go along with a call, besides those of progress and traces.
#[derive(Clone, Debug, PartialEq)]
pub enum SentMeta {
    /// Those of the request: nobody has to agree to the call.
    OfRequest,
    /// Those of the plan that was agreed to.
    OfPlan(Option<Arguments>),
}

/// The gate's yes to one call.
#[derive(Debug, PartialEq)]
pub struct Permit {
    tool: Arc<Tool>,
    send: String,
    meta: SentMeta,
    effect: Effect,
    mode: Mode,
    timeout: Option<Duration>,
    limit: Option<(RuleName, RateLimit)>,
    warnings: Vec<String>,
    record: CallRecord,
    spend: Option<TokenSpend>,
    grant: Option<GrantId>,
    rule: Option<String>,
}

impl Permit {
    pub(super) fn at_once(draft: CallDraft) -> Self {
        let send = draft.call.arguments.text().to_owned();
        Self::from_draft(draft, send)
    }

    pub(super) fn granted(draft: CallDraft, grant: &Grant, now: Timestamp) -> Self {
        let send = draft.call.arguments.canonical().to_owned();
        let mut permit = Self::from_draft(draft, send);
        // The person who gave the grant has seen no `_meta`, so none is sent.
        permit.meta = SentMeta::OfPlan(None);
        let mut approval = Approval::over(RecordedChannel::Grant, grant.by.clone(), now);
        approval.grant = Some(grant.id.clone());
        permit.record.approval = Some(approval);
        permit.grant = Some(grant.id.clone());
        permit
    }

    /// One step of a series that was agreed to as a whole.
    pub(super) fn of_step(draft: CallDraft, send: String) -> Self {
        Self { meta: SentMeta::OfPlan(None), ..Self::from_draft(draft, send) }
    }

    /// A series as a whole: it spends the token, and is never sent anywhere itself.
    pub(super) fn of_series(tool: Arc<Tool>, plan: &Plan, record: CallRecord, spend: TokenSpend) -> Self {
        Self {
            tool,
            send: plan.arguments.canonical().to_owned(),
            meta: SentMeta::OfPlan(None),
            effect: plan.effect,
            mode: Mode::Execute,
            timeout: None,
            limit: None,
            warnings: Vec::new(),
            record,
            spend: Some(spend),
            grant: None,
            rule: plan.rule.clone(),
        }
    }

    fn from_draft(draft: CallDraft, send: String) -> Self {
        Self {
            rule: draft.applied_rule(),
            effect: draft.classified.effect,
            mode: draft.mode,
            timeout: draft.rules.timeout,
            limit: draft.rules.limit_with_rule(),
            tool: draft.tool,
            warnings: draft.warnings,
            record: draft.record,
            send,
            meta: SentMeta::OfRequest,
            spend: None,
            grant: None,
        }
    }

    /// The tool that may be called.
    pub fn tool(&self) -> &Arc<Tool> {
        &self.tool
    }
    /// The text of the arguments, exactly as they are to be sent.
    pub fn arguments(&self) -> &str {
        &self.send
    }
    /// Which members of `_meta` go along.
    pub fn meta(&self) -> &SentMeta {
        &self.meta
    }
    pub fn effect(&self) -> Effect {
        self.effect
    }
    pub fn mode(&self) -> Mode {
        self.mode
    }
    /// How long the call may take, where a rule says.
    pub fn timeout(&self) -> Option<Duration> {
        self.timeout
    }
    /// The rate it counts against, where a rule says.
    pub fn limit(&self) -> Option<&(RuleName, RateLimit)> {
        self.limit.as_ref()
    }
    /// The rule that decided, where one did: for the log.
    pub fn rule(&self) -> Option<&str> {
        self.rule.as_deref()
    }
    /// What should be told with the answer.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }
    pub fn record(&self) -> &CallRecord {
        &self.record
    }
    pub fn spend(&self) -> Option<&TokenSpend> {
        self.spend.as_ref()
    }
    /// The grant it uses up by one.
    pub fn grant(&self) -> Option<&GrantId> {
        self.grant.as_ref()
    }
}

/// A redeemed plan that passed every check but two: the preview has to be equal, and the store has to spend the token.
#[derive(Debug)]
pub struct PlanRedemption {
    draft: CallDraft,
    plan: Box<Plan>,
    approval: Approval,
}

impl PlanRedemption {
    pub(super) fn new(mut draft: CallDraft, plan: Plan, approval: Approval) -> Self {
        draft.record.plan_id = Some(plan.id.clone());
        draft.record.plan_hash = Some(plan.hash);
        draft.record.approval = Some(approval.clone());
        Self { draft, plan: Box::new(plan), approval }
    }

    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The dry run to be done again, where the upstream computed the preview.
    pub fn dry_run(&self) -> Option<DryRun> {
        self.plan.preview.is_recomputed().then(|| self.draft.dry_run()).flatten()
    }

    pub fn style(&self) -> &PreviewStyle {
        &self.draft.style
    }

    /// What the ledger keeps, for a preview that fails.
    pub fn record(&self) -> &CallRecord {
        &self.draft.record
    }

    /// The permit, if the preview is still the one that was shown. A preview that had to be made again and
    /// was not refuses.
    pub fn settle(self, fresh: Option<&Preview>) -> Result<Permit, Refused> {
        // A preview that could not be made again counts as changed: otherwise an upstream that stops answering would let a
        // call through that nobody has seen in its present form.
        let drifted = match (self.plan.preview.is_recomputed(), fresh) {
            (true, Some(fresh)) => fresh.digest != self.plan.preview.digest,
            (true, None) => true,
            (false, _) => false,
        };
        if drifted {
            let message = format!(
                "what `{}` would do has changed since it was shown; ask for a new plan",
                self.plan.id
            );
            let refusal = Refusal::new(Code::ConfirmTokenMismatch, message)
                .because("plan_drifted")
                .with("reviewed", self.plan.preview.shown.clone())
                .with("now", fresh.map_or(serde_json::Value::Null, |fresh| fresh.shown.clone()));
            return Err(Refused { refusal, record: self.draft.record });
        }
        // INVARIANT (sent = hashed = shown): the plan's own text goes out, not the one that came with the token.
        let send = self.plan.arguments.canonical().to_owned();
        let token = self.draft.call.confirm_input.token.as_deref().map(token_digest);
        let mut permit = Permit::from_draft(self.draft, send);
        let Plan { id, hash, meta, .. } = *self.plan;
        permit.meta = SentMeta::OfPlan(meta);
        permit.spend = token.map(|token| TokenSpend { plan: id, hash, token, approval: self.approval });
        Ok(permit)
    }
}
