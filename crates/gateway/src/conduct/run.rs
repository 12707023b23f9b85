//! Running what may run: the row first, then the upstream, then the outcome. Nothing is sent twice.

use std::pin::pin;
use std::sync::Arc;
use std::time::Instant;

use countersign_core::digest::{Digest, Domain};
use countersign_core::duration::Rate;
use countersign_core::effect::Effect;
use countersign_core::gate::{Permit, Refused, over_limit};
use countersign_core::ids::PlanId;
use countersign_core::record::RowStatus;
use countersign_core::refusal::{Code, NextAction, Refusal};
use countersign_core::rules::RuleName;
use countersign_core::strict_json;
use countersign_store::{Ended, OpenRefused, Opened, Outcome};
use countersign_wire::fault::Sent;
use countersign_wire::raw::{self, Raw};

use super::{Conduct, Facts};
use crate::answer::{Answer, with_meta};
use crate::cards::{self, Cards};
use crate::members;
use crate::trace;
use crate::upstream_questions::QuestionGate;
use crate::upstreams::{Errand, Talk, Upstream, UpstreamFault};

/// The longest result kept with a plan for `get_plan`, in bytes.
const KEPT_RESULT: usize = 256 << 10;

impl Conduct<'_> {
    /// Writes the row, sends the call, writes the outcome, answers.
    pub(super) async fn run(&self, permit: Box<Permit>) -> Answer {
        self.perform(permit).await.0
    }

    /// The same, with how it ended. What could not be opened has failed.
    pub(super) async fn perform(&self, permit: Box<Permit>) -> (Answer, Ended) {
        let opened = match self.open(permit).await {
            Ok(opened) => opened,
            Err(refused) => return (refused, Ended::Error),
        };
        if let Some(plan) = &opened.permit().record().plan_id {
            self.house.announce(plan.clone());
        }
        let start = Instant::now();
        let sent = self.send(&opened).await;
        self.close(opened, sent, start).await
    }

    /// Takes a place in the rule's window and writes the row, or answers why not.
    pub(super) async fn open(&self, permit: Box<Permit>) -> Result<Opened, Answer> {
        if let Err(refusal) = self.take(permit.limit()) {
            let refused = Refused { refusal, record: permit.record().clone() };
            return Err(Box::pin(self.refuse(refused)).await);
        }
        let opened = trace::part("ledger", pin!(self.house.store.open(permit, self.house.now()))).await;
        match opened {
            Ok(opened) => Ok(opened),
            Err(refused) => Err(Box::pin(self.not_opened(refused)).await),
        }
    }

    /// A permit that could not be used. What was spent meanwhile has its row from the store already.
    pub(super) async fn not_opened(&self, refused: OpenRefused) -> Answer {
        let refusal = refused.refusal();
        match refused {
            OpenRefused::NotSpendable { .. } => self.refuse_unlogged(&refusal),
            OpenRefused::Fault(_, record) => self.refuse(Refused { refusal, record: *record }).await,
        }
    }

    /// Takes a place in the rule's window; the gate has only looked.
    fn take(&self, limit: Option<&(RuleName, Rate)>) -> Result<(), Refusal> {
        let Some((rule, rate)) = limit else { return Ok(()) };
        let taken = self.house.usage.take(rule, &self.caller.principal, *rate, self.house.now());
        taken.map_err(|wait| over_limit(rule, *rate, wait))
    }

    async fn send(&self, opened: &Opened) -> Result<Raw, UpstreamFault> {
        let permit = opened.permit();
        let upstreams = self.house.upstreams.load();
        let Some(upstream) = upstreams.get(&permit.tool().upstream) else {
            let why = format!("upstream `{}` is gone", permit.tool().upstream);
            return Err(UpstreamFault::Unavailable { why, sent: Sent::No });
        };
        let along = members::along(self.rest.as_deref(), permit.record().variant, permit.meta());
        let (rest, tool) = (along.as_deref().or(self.rest.as_deref()), permit.tool().name.as_str());
        let gate = self.ctx.map(|ctx| QuestionGate::new(self.house, ctx, &self.caller, upstream.as_ref()));
        let talk = self.talk_through(gate.as_ref(), permit.timeout());
        if let Some(gate) = &gate {
            Box::pin(gate.note_answers(rest)).await;
        }
        let doing = async |onward: Option<Raw>| {
            let errand = Errand::opened(opened, onward.as_deref().or(rest));
            let call = upstream.call(errand, talk);
            tokio::select! {
                sent = call => sent,
                () = self.cancelled() => Err(UpstreamFault::Unavailable {
                    why: "the client cancelled the call".to_owned(),
                    sent: Sent::Unknown,
                }),
            }
        };
        let sent = trace::sent(permit.tool().upstream.as_str(), "tools/call", Some(tool), rest, doing).await;
        match gate {
            Some(gate) => Box::pin(gate.checked(sent)).await,
            None => sent,
        }
    }

    /// How this request speaks with an upstream: progress back to its client, questions in the client's era.
    pub(super) fn talk(&self, upstream: &dyn Upstream, timeout: Option<std::time::Duration>) -> Talk {
        let gate = self.ctx.map(|ctx| QuestionGate::new(self.house, ctx, &self.caller, upstream));
        self.talk_through(gate.as_ref(), timeout)
    }

    fn talk_through(&self, gate: Option<&Arc<QuestionGate>>, timeout: Option<std::time::Duration>) -> Talk {
        let wait = timeout.unwrap_or(self.house.law.load().timeout);
        match gate {
            Some(gate) => Talk::between(gate, wait),
            None => Talk::alone(wait),
        }
    }

    /// Ends when the client gives up; where there is none, never.
    pub(super) async fn cancelled(&self) {
        match self.ctx {
            Some(ctx) => ctx.cancelled().await,
            None => std::future::pending().await,
        }
    }

    /// Writes the outcome and answers.
    pub(super) async fn close(
        &self,
        opened: Opened,
        sent: Result<Raw, UpstreamFault>,
        start: Instant,
    ) -> (Answer, Ended) {
        let duration_us = u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX);
        let permit = opened.permit();
        let (effect, mode) = (permit.effect(), permit.mode());
        let (warnings, plan) = (permit.warnings().to_vec(), permit.record().plan_id.clone());
        let name = permit.record().tool.to_string();
        let outcome = outcome(effect, &sent, duration_us, plan.as_ref());
        let ended = outcome.status;
        self.house.metrics.took(duration_us);
        self.house.metrics.call(
            Some(effect),
            match outcome.status {
                Ended::Success => RowStatus::Success,
                Ended::Error | Ended::Unknown => RowStatus::Error,
            },
        );
        let closing = self.house.store.close(opened, outcome, self.house.now());
        let closed = trace::part("ledger", pin!(closing)).await;
        let ledger = match closed {
            Ok(ledger) => ledger.as_str().to_owned(),
            Err(fault) => {
                tracing::error!(
                    incident = fault.incident(),
                    fault = fault.inside(),
                    "an outcome could not be recorded"
                );
                String::new()
            }
        };
        trace::noted("countersign.ledger_id", &ledger);
        if let Some(plan) = &plan {
            self.house.announce(plan.clone());
        }
        let facts = Facts {
            plan_id: plan.as_ref().map(PlanId::as_str),
            ledger_id: &ledger,
            effect: effect.as_str(),
            mode: mode.as_str(),
            warnings: &warnings,
        };
        let answer = match sent {
            Ok(result) => Answer::Upstream(self.for_card(with_meta(result, &facts), &name, effect)),
            Err(UpstreamFault::Rpc(error)) => Answer::Rpc(error),
            Err(UpstreamFault::Unavailable { why, sent }) => {
                let refusal = no_result(Code::UpstreamUnavailable, &name, &why, effect, sent);
                Answer::refused(&self.command, &refusal.with("ledger_id", ledger))
            }
            Err(UpstreamFault::Timeout { why, sent }) => {
                let refusal = no_result(Code::UpstreamTimeout, &name, &why, effect, sent);
                Answer::refused(&self.command, &refusal.with("ledger_id", ledger))
            }
        };
        (answer, ended)
    }
}

impl Conduct<'_> {
    /// The result with what its card shows, where the client shows cards and the tool has one.
    fn for_card(&self, result: Raw, tool: &str, effect: Effect) -> Raw {
        if effect == Effect::Read || Cards::of(self.ctx) == Cards::Hidden {
            return result;
        }
        let parsed = strict_json::read_to_show(result.get()).unwrap_or_default();
        let view = raw::to_raw(&cards::outcome(tool, &parsed));
        raw::set_in(&result, "_meta", "countersign/view", &view).unwrap_or(result)
    }
}

/// What came of it; the result itself is kept with a plan only.
fn outcome(
    effect: Effect,
    sent: &Result<Raw, UpstreamFault>,
    duration_us: u64,
    plan: Option<&PlanId>,
) -> Outcome {
    let (status, code, result) = match sent {
        Ok(result) => {
            let failed = raw::get_text(result.get(), "isError") == Some("true");
            let status = if failed { Ended::Error } else { Ended::Success };
            (status, None, Some(result))
        }
        Err(UpstreamFault::Rpc(_)) => (Ended::Error, None, None),
        Err(UpstreamFault::Unavailable { sent, .. }) => {
            (lost(effect, *sent), Some(Code::UpstreamUnavailable), None)
        }
        Err(UpstreamFault::Timeout { sent, .. }) => (lost(effect, *sent), Some(Code::UpstreamTimeout), None),
    };
    Outcome {
        status,
        code,
        duration_us,
        result_digest: result.map(|result| Digest::of(Domain::Outcome, result.get().as_bytes())),
        result: result
            .filter(|result| plan.is_some() && result.get().len() <= KEPT_RESULT)
            .map(|result| result.get().to_owned()),
    }
}

/// A read that is lost is an error; a write that may have happened is unknown.
fn lost(effect: Effect, sent: Sent) -> Ended {
    match (effect, sent) {
        (Effect::Write | Effect::Destructive, Sent::Unknown) => Ended::Unknown,
        (Effect::Read, _) | (Effect::Write | Effect::Destructive, Sent::No | Sent::Refused) => Ended::Error,
    }
}

fn no_result(code: Code, name: &str, why: &str, effect: Effect, sent: Sent) -> Refusal {
    match lost(effect, sent) {
        Ended::Unknown => {
            let message = format!("`{name}` gave no answer, and whether it acted is not known: {why}");
            Refusal::new(code, message)
                .because("outcome_unknown")
                // Whatever the code says elsewhere: asking again may do it twice.
                .with("retryable", false)
                .next(&[NextAction::VerifyOutcome, NextAction::CheckUpstream])
        }
        Ended::Success | Ended::Error => Refusal::new(code, format!("`{name}` gave no answer: {why}"))
            .next(&[NextAction::CheckUpstream, NextAction::RetryLater]),
    }
}
