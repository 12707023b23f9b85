//! Phase 2: a plan that somebody agreed to, right before it runs. The preview is made again where the upstream made it; a
//! different one refuses the call.

use countersign_policy::confirm::PlanState;
use countersign_policy::gate::{Permit, PlanRedemption, Refused};
use countersign_store::NotSpendable;

use super::{CallPipeline, Stage};

impl CallPipeline<'_> {
    /// Compares the preview with the one that was shown. The token is spent later, by the statement that writes the row.
    pub(super) async fn redeem(&self, redemption: PlanRedemption) -> Stage<Box<Permit>> {
        let plan = redemption.plan();
        let fresh = match redemption.dry_run() {
            None => Ok(None),
            // The world may have moved since the approval. What was approved is the preview, so it is made again.
            Some(dry) => {
                let upstream = &plan.tool.upstream;
                self.run_dry(upstream, &dry, redemption.style(), plan.meta.as_ref()).await.map(Some)
            }
        };
        let settled = match fresh {
            Ok(fresh) => redemption.settle(fresh.as_ref()),
            // A preview that fails now can't be compared. The token stays unspent.
            Err(fault) => Err(Refused { refusal: fault.refusal(), record: redemption.record().clone() }),
        };
        match settled {
            Ok(permit) => Ok(Box::new(permit)),
            Err(refused) => {
                let refused = self.refused_as_used(refused).await;
                Err(self.refuse(refused).await)
            }
        }
    }

    /// A preview that differs because the plan ran meanwhile, with another token, is refused as used: that is the reason.
    async fn refused_as_used(&self, refused: Refused) -> Refused {
        let Some(id) = refused.record.plan_id.clone() else { return refused };
        let row = self.gateway.store.plan(&id).await.ok().flatten();
        let ran = row.is_some_and(|row| match row.state {
            PlanState::Executing | PlanState::Done | PlanState::Failed | PlanState::OutcomeUnknown => true,
            PlanState::Pending
            | PlanState::Approved
            | PlanState::Rejected
            | PlanState::Cancelled
            | PlanState::Expired => false,
        });
        if ran { Refused { refusal: NotSpendable::Used.refusal(Some(&id)), ..refused } } else { refused }
    }
}
