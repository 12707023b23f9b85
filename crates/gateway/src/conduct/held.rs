//! Calls held open: how long a first call waits for somebody to decide, what it answers when a person ran the plan meanwhile,
//! and when an equal call redeems a plan that was approved before. Decides nothing itself.

use std::time::{Duration, Instant};

use countersign_core::config::{NativeKind, UpstreamKind};
use countersign_core::confirm::{Kind, PlanState, Rail, Strength, check_unblocked};
use countersign_core::ids::{PlanId, UpstreamId};
use countersign_core::mode::Mode;
use countersign_core::plan::Plan;
use countersign_core::record::{RowKind, RowStatus};
use countersign_store::{Filter, Holding, PlanRow, Row};
use countersign_wire::raw;

use super::Conduct;
use crate::answer::Answer;
use crate::cards::Cards;
use crate::law::Law;
use crate::trace;
use crate::waiting;

/// How long a host may show its dialog where calls are not held open: the dialog itself holds this one.
const DIALOG_PATIENCE: Duration = Duration::from_secs(30);

impl Conduct<'_> {
    /// Asks the host and waits for the other rails, both within the time the call is held open; true once there is a decision.
    pub(super) async fn held_until_decided(&self, plan: &Plan, holding: &Holding, law: &Law) -> bool {
        let start = Instant::now();
        if self.ask_host(plan, holding).await {
            return true;
        }
        // A plan that was decided before this call, or whose preview forbids it, has nothing to wait for.
        let open = holding.state == PlanState::Pending && check_unblocked(plan).is_ok();
        let Some(ctx) = self.ctx.filter(|_| open) else { return false };
        let left = self.call_patience(plan, law).saturating_sub(start.elapsed());
        if left.is_zero() {
            return false;
        }
        let waiting = waiting::until_decided(self.house, ctx, &holding.plan_id, left.as_secs_f64());
        trace::part("wait", waiting).await
    }

    /// How long this call waits: as it says, else as configured where its own token would not be enough.
    fn call_patience(&self, plan: &Plan, law: &Law) -> Duration {
        match self.wait_seconds {
            Some(seconds) => Duration::try_from_secs_f64(seconds).unwrap_or_default(),
            // A card is shown with the answer: holding that back would keep its button from the person.
            None if Cards::of(self.ctx) == Cards::Shown && self.is_enough(Rail::Card, plan) => Duration::ZERO,
            None if plan.need.strength > Strength::Caller => law.hold,
            None => Duration::ZERO,
        }
    }

    /// Whether an answer over this rail of the host's would satisfy the plan.
    fn is_enough(&self, rail: Rail, plan: &Plan) -> bool {
        plan.need.strength <= rail.strength_with(self.caller.scopes.vouching) && plan.need.kind != Kind::Type
    }

    /// How long the host may take to answer its dialog.
    pub(super) fn dialog_patience(&self) -> Duration {
        let said = self.wait_seconds.map(|seconds| Duration::try_from_secs_f64(seconds).unwrap_or_default());
        let held = said.unwrap_or_else(|| self.house.law.load().hold);
        if held.is_zero() { DIALOG_PATIENCE } else { held }
    }

    /// Whether an equal call was approved before, out of the model's reach: then this one runs it, with the token it just got.
    /// The tools of `pack` follow their seed and always bring their own.
    pub(super) async fn is_redeemable(&self, holding: &Holding, upstream: &UpstreamId, law: &Law) -> bool {
        if holding.state != PlanState::Approved {
            return false;
        }
        let kind = law.config.upstream(upstream).map(|written| &written.kind);
        if matches!(kind, Some(UpstreamKind::Native { kind: NativeKind::Pack, .. })) {
            return false;
        }
        let row = self.house.plan(&holding.plan_id).await.ok().flatten();
        row.and_then(|row| row.approval).is_some_and(|approval| approval.strength >= Strength::Host)
    }

    /// A plan that a person ran from the desk while its call waited, once it has ended; none where nobody did.
    pub(super) async fn row_run_elsewhere(&self, id: &PlanId) -> Option<PlanRow> {
        let is_run =
            |state: PlanState| matches!(state, PlanState::Executing | PlanState::Done | PlanState::Failed);
        let row = self.house.plan(id).await.ok().flatten().filter(|row| is_run(row.state))?;
        if row.state != PlanState::Executing {
            return Some(row);
        }
        let seconds = self.dialog_patience().as_secs_f64();
        waiting::until_settled(self.house, self.ctx?, id, seconds).await;
        self.house.plan(id).await.ok().flatten()
    }

    /// What came back of such a plan, as whoever runs a call is told it.
    pub(super) async fn ran_elsewhere(&self, id: &PlanId) -> Option<Answer> {
        let row = self.row_run_elsewhere(id).await?;
        let result = raw::from_text(row.result.as_deref()?)?;
        let filter = Filter { kind: Some(RowKind::Call), plan_id: Some(id.clone()), ..Filter::default() };
        let rows = self.house.store.activity(filter).await.ok()?.rows;
        let ended = |row: &&Row| matches!(row.status, RowStatus::Success | RowStatus::Error);
        let ledger = rows.iter().find(ended).map(|row| row.id.as_str().to_owned()).unwrap_or_default();
        let facts = super::Facts {
            plan_id: Some(id.as_str()),
            ledger_id: &ledger,
            effect: row.plan.effect.as_str(),
            mode: Mode::Execute.as_str(),
            warnings: &[],
        };
        Some(Answer::Upstream(crate::answer::with_meta(result, &facts)))
    }
}
