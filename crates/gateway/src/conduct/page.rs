//! Opening the page: where only a person with a credential may agree and the client can open an address, its host is asked to
//! open the plan's page. Opening decides nothing: the page does, once somebody has signed in there and said so. A decline is a no.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use countersign_core::confirm::PlanState;
use countersign_core::ids::PlanId;
use countersign_core::plan::Plan;
use countersign_store::Holding;
use countersign_wire::era::Era;
use countersign_wire::raw::{self, Raw};
use countersign_wire::serve::{Ctx, Session};
use serde_json::json;

use super::Conduct;
use crate::escape;
use crate::house::House;
use crate::trace;
use crate::waiting;

/// How often a plan is looked at for a client that opened its page and went on.
const LOOK: Duration = Duration::from_secs(2);

impl Conduct<'_> {
    /// Asks the host to open the plan's page, and waits a while for what is decided there; true once there is a decision.
    pub(super) async fn open_page(&self, plan: &Plan, holding: &Holding) -> bool {
        let Some((ctx, desk)) = self.ctx.zip(self.house.law.load().desk_url.clone()) else { return false };
        let id = uuid::Uuid::new_v4().to_string();
        let url = format!("{desk}/plans/{}", holding.plan_id);
        let params = invitation(plan, &url, &id, ctx.era());
        if holding.state != PlanState::Pending || !ctx.can_ask("elicitation/create", Some(&params)) {
            return false;
        }
        let seconds = self.dialog_patience().as_secs_f64();
        let waiting = async {
            let mut decided = pin!(waiting::until_decided(self.house, ctx, &holding.plan_id, seconds));
            let answer = tokio::select! {
                answer = ctx.ask("elicitation/create", Some(&params)) => answer,
                decided = &mut decided => return Err(decided),
            };
            let answer = answer.ok();
            let action = answer.as_deref().and_then(|answer| raw::get_str(answer, "action"));
            match action.as_deref() {
                Some("accept") => Ok(decided.await),
                Some("decline") => {
                    self.host_rejects(plan, holding).await;
                    Err(true)
                }
                // Not now, or not here: the other rails stay open, and nothing was said about the plan.
                _ => Err(false),
            }
        };
        let is_decided = match trace::part("wait", waiting).await {
            Ok(is_decided) => is_decided,
            Err(otherwise) => return otherwise,
        };
        match (ctx.era(), is_decided) {
            (Era::Legacy, true) => told(ctx, &id).await,
            (Era::Legacy, false) => {
                let (house, session) = (Arc::clone(self.house), Arc::clone(ctx.session()));
                tokio::spawn(tell_later(house, session, holding.plan_id.clone(), id));
            }
            // A stateless client comes back by itself.
            (Era::Modern, _) => {}
        }
        is_decided
    }
}

/// What the host is asked. The address carries no secret and signs nobody in.
fn invitation(plan: &Plan, url: &str, id: &str, era: Era) -> Raw {
    let message = escape::visible(&format!(
        "{} asks for {} ({}). A person with a credential decides on the page; plan {}",
        plan.principal, plan.tool, plan.effect, plan.id
    ));
    let mut params = json!({"mode": "url", "message": message, "url": url});
    if let (Era::Legacy, Some(members)) = (era, params.as_object_mut()) {
        members.insert("elicitationId".into(), id.into());
    }
    raw::to_raw(&params)
}

async fn told(ctx: &Ctx, id: &str) {
    // A client that left is told nothing.
    let _ = ctx.notify("notifications/elicitation/complete", Some(&complete(id))).await;
}

fn complete(id: &str) -> Raw {
    raw::to_raw(&json!({"elicitationId": id}))
}

/// Tells a client whose call has been answered already that what it opened is done.
async fn tell_later(house: Arc<House>, session: Arc<Session>, plan: PlanId, id: String) {
    loop {
        match house.plan(&plan).await {
            Ok(Some(row)) if row.state == PlanState::Pending => {}
            Ok(_) => break,
            Err(_) => return,
        }
        tokio::select! {
            () = tokio::time::sleep(LOOK) => {}
            () = session.ended() => return,
        }
    }
    let _ = session.notify("notifications/elicitation/complete", Some(&complete(&id))).await;
}
