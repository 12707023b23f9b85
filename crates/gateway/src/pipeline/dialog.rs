//! The host's own dialog (elicitation, mode `form`): asks the host's user where the client offers that and the answer is strong
//! enough. An answer that comes faster than a person reads is a program's: it is recorded and decides nothing.

use std::sync::Arc;
use std::time::{Duration, Instant};

use countersign_mcp::era::Era;
use countersign_mcp::raw;
use countersign_mcp::server::{AskFault, TimedAnswer};
use countersign_policy::call::HostVouching;
use countersign_policy::confirm::{Kind, PlanState, RecordedChannel, check_unblocked};
use countersign_policy::ids::PrincipalId;
use countersign_policy::plan::Plan;
use countersign_policy::record::{ActorRole, HostInfo, RowKind, RowStatus, Source};
use countersign_store::{Entry, Holding, ShownPlan};
use serde_json::json;

use super::CallPipeline;
use super::question::question;
use crate::approval::{ApprovalChannel, ApprovalInput, PlanDecider};
use crate::decision_wait;
use crate::state::GatewayState;
use crate::trace;

/// How often the plan of a dialog that outlives its call is polled.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// What became of a question to the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DialogOutcome {
    /// Somebody decided, in the dialog or elsewhere.
    Decided,
    /// Nobody decided, or nobody was asked.
    Undecided,
    /// The host answered by itself; that decides nothing.
    Automatic,
}

impl From<bool> for DialogOutcome {
    fn from(is_decided: bool) -> Self {
        if is_decided { Self::Decided } else { Self::Undecided }
    }
}

/// The warning that says why a dialog's answer did not count.
pub(super) const AUTOMATIC: &str = "the host answered its dialog by itself, faster than a person could: that approves and rejects nothing, \
    and the plan waits for a person elsewhere";

/// A dialog, with everything that is needed to take its answer after the call has ended.
struct Dialog {
    gateway: Arc<GatewayState>,
    plan: Plan,
    holding: Holding,
    vouching: HostVouching,
    client: Option<Arc<HostInfo>>,
}

/// What came first.
enum FirstAnswer {
    Dialog(Result<TimedAnswer, AskFault>),
    /// Somebody decided over another channel.
    OtherChannel,
    TimeOver,
}

impl CallPipeline<'_> {
    /// Asks in the host's dialog where the client offers one. Where its answer would be too weak, the host is asked to open the
    /// approvals page instead.
    pub(super) async fn ask_host(&self, plan: &Plan, holding: &Holding) -> DialogOutcome {
        if check_unblocked(plan).is_err() {
            return DialogOutcome::Undecided;
        }
        let vouching = self.caller.scopes.vouching;
        if plan.requirement.strength > RecordedChannel::Elicitation.strength_with(vouching)
            || plan.requirement.kind == Kind::Type
        {
            return self.open_page(plan, holding).await;
        }
        // A plan that was joined may have been decided already: nobody is asked twice.
        if holding.state != PlanState::Pending {
            return DialogOutcome::Undecided;
        }
        let home = self.gateway.policy.load().home.clone();
        let params = raw::to_raw(&json!({
            "mode": "form",
            "message": question(plan, &holding.plan_id, &self.gateway.redactor, home.as_deref()),
            "requestedSchema": {"type": "object", "properties": {}},
        }));
        let Some(ctx) = self.ctx.filter(|ctx| ctx.can_ask("elicitation/create", Some(&params))) else {
            return DialogOutcome::Undecided;
        };
        let (gateway, plan, holding) = (Arc::clone(self.gateway), plan.clone(), holding.clone());
        let dialog = Dialog { gateway, plan, holding, vouching, client: self.caller.host.clone() };
        let asker = ctx.clone();
        // The question names the plan, which is decided once: any replica can take the answer.
        let mut asked =
            Box::pin(async move { asker.ask_anywhere("elicitation/create", Some(&params)).await });
        // Some hosts claim dialogs and never show them: a decision over another channel ends the wait.
        let patience = self.dialog_patience().as_secs_f64();
        let decided = decision_wait::hold_until_decided(self.gateway, ctx, &dialog.holding.plan_id, patience);
        let waiting = async {
            tokio::select! {
                answer = &mut asked => FirstAnswer::Dialog(answer),
                decided = decided => if decided { FirstAnswer::OtherChannel } else { FirstAnswer::TimeOver },
            }
        };
        match trace::part("wait", waiting).await {
            FirstAnswer::Dialog(answer) => dialog.take_answer(answer).await,
            FirstAnswer::OtherChannel => DialogOutcome::Decided,
            FirstAnswer::TimeOver => {
                // The host may go on showing its dialog. What its user answers there still decides.
                if ctx.era() == Era::Legacy {
                    let session = Arc::clone(ctx.session());
                    tokio::spawn(async move {
                        tokio::select! {
                            answer = asked => drop(dialog.take_answer(answer).await),
                            () = dialog.plan_closed() => {}
                            () = session.ended() => {}
                        }
                    });
                }
                DialogOutcome::Undecided
            }
        }
    }

    /// Takes a decline of the host; an automatic one rejects nothing.
    pub(super) async fn take_decline(&self, plan: &Plan, holding: &Holding, asked: Instant) -> DialogOutcome {
        let (gateway, plan, holding) = (Arc::clone(self.gateway), plan.clone(), holding.clone());
        let (vouching, client) = (self.caller.scopes.vouching, self.caller.host.clone());
        let dialog = Dialog { gateway, plan, holding, vouching, client };
        dialog.take_action("decline", asked.elapsed()).await
    }
}

impl Dialog {
    async fn take_answer(&self, answer: Result<TimedAnswer, AskFault>) -> DialogOutcome {
        let Ok(TimedAnswer { answer, took }) = answer else { return DialogOutcome::Undecided };
        match raw::get_str(&answer, "action") {
            Some(action) => self.take_action(&action, took).await,
            None => DialogOutcome::Undecided,
        }
    }

    async fn take_action(&self, action: &str, took: Duration) -> DialogOutcome {
        let (store, now, id) = (&self.gateway.store, self.gateway.now(), &self.holding.plan_id);
        let host = PrincipalId::new(format!("host:{}", self.plan.principal));
        if took < self.gateway.policy.load().automatic_below && matches!(action, "accept" | "decline") {
            let mut entry = Entry::of_plan(
                RowKind::Approval,
                &self.plan,
                "automatic",
                Some(&host),
                Some(ActorRole::Host),
            )
            .with_fact("answer", action)
            .with_fact("rail", RecordedChannel::Elicitation.as_str())
            .with_fact("took_ms", u64::try_from(took.as_millis()).unwrap_or(u64::MAX));
            (entry.status, entry.source) = (RowStatus::Refused, Some(Source::Mcp));
            entry.plan_id = Some(id.clone());
            entry.set_host(self.client.as_ref());
            // A row that can't be written changes nothing: the answer does not count either way.
            let _ = store.append(entry, now).await;
            return DialogOutcome::Automatic;
        }
        let channel = ApprovalChannel::Elicitation(self.vouching);
        let decider = PlanDecider { store, channel, by: &host, program: self.client.as_ref() };
        let shown = ShownPlan { hash: self.holding.hash, expires: self.holding.expires };
        // A decision that comes too late is refused, and the first one stands: either way the plan is decided.
        match action {
            "accept" => drop(decider.approve_plan(id, ApprovalInput::of(shown), now).await),
            "decline" => drop(decider.reject_plan(id, Some(shown.hash), None, now).await),
            _ => return DialogOutcome::Undecided,
        }
        self.gateway.announce(id.clone());
        DialogOutcome::Decided
    }

    /// Returns when the plan no longer waits for a decision.
    async fn plan_closed(&self) {
        while let Ok(Some(row)) = self.gateway.plan(&self.holding.plan_id).await {
            if row.state != PlanState::Pending || row.plan.expires <= self.gateway.now() {
                return;
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }
}
