//! The approvals page, opened by the host (elicitation, mode `url`): where only a person with a credential may agree, a client
//! that can open addresses is asked to open the plan's page. Opening it decides nothing; a decline rejects the plan. A client
//! that declares this and can't do it is not asked again: its calls are held open like any other.

use std::collections::HashSet;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use countersign_mcp::era::Era;
use countersign_mcp::raw::{self, RawJson};
use countersign_mcp::server::{AskFault, RequestContext, Session};
use countersign_policy::call::Caller;
use countersign_policy::confirm::PlanState;
use countersign_policy::headline::headline;
use countersign_policy::ids::{PlanId, PrincipalId, SessionId};
use countersign_policy::plan::Plan;
use countersign_store::Holding;
use serde_json::json;

use super::CallPipeline;
use super::dialog::DialogOutcome;
use crate::decision_wait;
use crate::escape;
use crate::state::GatewayState;
use crate::trace;

/// How often the plan of a page that outlives its call is polled.
const POLL_INTERVAL: Duration = Duration::from_secs(2);

/// How many clients are remembered. A client may name as many sessions as it likes.
const MOST_REMEMBERED: usize = 4096;

/// Clients that were asked to open a page and did not answer that, or with an error.
#[derive(Debug, Default)]
pub(crate) struct UnopenedPages(Mutex<HashSet<(PrincipalId, SessionId)>>);

impl UnopenedPages {
    fn clients(&self) -> MutexGuard<'_, HashSet<(PrincipalId, SessionId)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn contains(&self, caller: &Caller) -> bool {
        self.clients().contains(&(caller.principal.clone(), caller.session.clone()))
    }

    fn add(&self, caller: &Caller) {
        let mut clients = self.clients();
        if clients.len() >= MOST_REMEMBERED {
            clients.clear();
        }
        clients.insert((caller.principal.clone(), caller.session.clone()));
    }

    fn remove(&self, caller: &Caller) {
        self.clients().remove(&(caller.principal.clone(), caller.session.clone()));
    }
}

/// Whether the client declares pages and fails the whole call when it is asked in the stateless protocol. Copilot CLI does
/// (tests/hosts, 1.0.102). It sends no error, so that nothing else tells.
fn fails_when_asked(caller: &Caller, era: Era) -> bool {
    let program = caller.host.as_ref().and_then(|host| host.program.as_deref()).unwrap_or_default();
    era == Era::Modern && program.to_ascii_lowercase().contains("copilot")
}

impl CallPipeline<'_> {
    /// Asks the host to open the plan's page, and waits a while for what is decided there.
    pub(super) async fn open_page(&self, plan: &Plan, holding: &Holding) -> DialogOutcome {
        let policy = self.gateway.policy.load();
        let Some((ctx, desk)) = self.ctx.zip(policy.desk_url.clone()) else {
            return DialogOutcome::Undecided;
        };
        let unopened = &self.gateway.unopened_pages;
        if unopened.contains(&self.caller) || fails_when_asked(&self.caller, ctx.era()) {
            return DialogOutcome::Undecided;
        }
        let id = uuid::Uuid::new_v4().to_string();
        let url = format!("{desk}/plans/{}", holding.plan_id);
        let headline = headline(plan, &self.gateway.redactor, policy.home.as_deref());
        drop(policy);
        let params = open_page_params(plan, &headline, &url, &id, ctx.era());
        if holding.state != PlanState::Pending || !ctx.can_ask("elicitation/create", Some(&params)) {
            return DialogOutcome::Undecided;
        }
        // A stateless client that fails on the question just never comes back. Until it does, it is not asked again.
        if ctx.era() == Era::Modern {
            unopened.add(&self.caller);
        }
        let waiting = self.wait_for_page(ctx, &params, plan, holding);
        let (is_opened, outcome) = trace::part("wait", waiting).await;
        match (ctx.era(), outcome) {
            _ if !is_opened => {}
            (Era::Legacy, DialogOutcome::Decided) => {
                // A client that left needs no notification.
                let _ = ctx.notify(COMPLETE, Some(&complete_params(&id))).await;
            }
            (Era::Legacy, DialogOutcome::Undecided | DialogOutcome::Automatic) => {
                let (gateway, session) = (Arc::clone(self.gateway), Arc::clone(ctx.session()));
                tokio::spawn(notify_when_decided(gateway, session, holding.plan_id.clone(), id));
            }
            // A stateless client comes back by itself.
            (Era::Modern, _) => {}
        }
        outcome
    }

    /// Whether the host opened the page, and what became of the plan.
    async fn wait_for_page(
        &self,
        ctx: &RequestContext,
        params: &RawJson,
        plan: &Plan,
        holding: &Holding,
    ) -> (bool, DialogOutcome) {
        let (seconds, asked) = (self.dialog_patience().as_secs_f64(), Instant::now());
        let mut decided =
            pin!(decision_wait::hold_until_decided(self.gateway, ctx, &holding.plan_id, seconds));
        let answer = tokio::select! {
            answer = ctx.ask("elicitation/create", Some(params)) => answer,
            decided = &mut decided => return (false, decided.into()),
        };
        match &answer {
            Ok(_) => self.gateway.unopened_pages.remove(&self.caller),
            Err(AskFault::Rpc(_)) => self.gateway.unopened_pages.add(&self.caller),
            Err(_) => {}
        }
        let action = answer.as_deref().ok().and_then(|answer| raw::get_str(answer, "action"));
        match action.as_deref() {
            Some("accept") => (true, decided.await.into()),
            Some("decline") => (false, self.take_decline(plan, holding, asked).await),
            // Not now, or not here. The other channels stay open.
            _ => (false, DialogOutcome::Undecided),
        }
    }
}

/// The address carries no secret and signs nobody in.
fn open_page_params(plan: &Plan, headline: &str, url: &str, id: &str, era: Era) -> RawJson {
    let message = escape::visible(&format!(
        "{headline}\n{} ({}), asked by {}. A person with a credential decides on the page; plan {}",
        plan.tool, plan.effect, plan.principal, plan.id
    ));
    let mut params = json!({"mode": "url", "message": message, "url": url});
    if let (Era::Legacy, Some(members)) = (era, params.as_object_mut()) {
        members.insert("elicitationId".into(), id.into());
    }
    raw::to_raw(&params)
}

const COMPLETE: &str = "notifications/elicitation/complete";

fn complete_params(id: &str) -> RawJson {
    raw::to_raw(&json!({"elicitationId": id}))
}

/// Notifies a client whose call has been answered already once the plan is decided.
async fn notify_when_decided(gateway: Arc<GatewayState>, session: Arc<Session>, plan: PlanId, id: String) {
    loop {
        match gateway.plan(&plan).await {
            Ok(Some(row)) if row.state == PlanState::Pending => {}
            Ok(_) => break,
            Err(_) => return,
        }
        tokio::select! {
            () = tokio::time::sleep(POLL_INTERVAL) => {}
            () = session.ended() => return,
        }
    }
    let _ = session.notify(COMPLETE, Some(&complete_params(&id))).await;
}
