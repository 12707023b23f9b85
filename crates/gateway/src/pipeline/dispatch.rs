//! Sends a recorded call to its upstream, once. Takes only a `RecordedPermit`: what has no row can't be sent.

use std::sync::Arc;
use std::time::{Duration, Instant};

use countersign_mcp::fault::DeliveryState;
use countersign_mcp::raw::RawJson;
use countersign_store::RecordedPermit;

use super::CallPipeline;
use crate::call_log::micros_since;
use crate::members;
use crate::trace;
use crate::upstream_questions::QuestionGate;
use crate::upstreams::{CallContext, Upstream, UpstreamCall, UpstreamFault};

/// What the upstream answered, and how long that took.
pub(super) struct SentCall {
    pub(super) sent: Result<RawJson, UpstreamFault>,
    pub(super) duration_us: u64,
}

impl CallPipeline<'_> {
    pub(super) async fn dispatch(&self, recorded: &RecordedPermit) -> SentCall {
        let start = Instant::now();
        let sent = self.send(recorded).await;
        SentCall { sent, duration_us: micros_since(start) }
    }

    async fn send(&self, recorded: &RecordedPermit) -> Result<RawJson, UpstreamFault> {
        let permit = recorded.permit();
        // A reload may have removed the upstream after the catalogue was asked.
        let upstreams = self.gateway.upstreams.load();
        let Some(upstream) = upstreams.get(&permit.tool().upstream) else {
            let why = format!("upstream `{}` is gone", permit.tool().upstream);
            return Err(UpstreamFault::Unavailable { why, sent: DeliveryState::No });
        };
        let params = self.params.as_deref();
        // A plan sends the `_meta` that was shown and hashed with it, not that of the call that brought the token.
        let forwarded = members::forwarded_params(params, permit.record().variant, permit.meta());
        let (params, tool) = (forwarded.as_deref().or(params), permit.tool().name.as_str());
        let gate = self.ctx.map(|ctx| QuestionGate::new(self.gateway, ctx, &self.caller, upstream.as_ref()));
        let talk = self.context_through(gate.as_ref(), permit.timeout());
        if let Some(gate) = &gate {
            // A stateless client answers a question of the upstream by calling again: recorded before the upstream
            // gets it.
            Box::pin(gate.note_answers(params)).await;
        }
        let doing = async |onward: Option<RawJson>| {
            let call = upstream.call(UpstreamCall::opened(recorded, onward.as_deref().or(params)), talk);
            tokio::select! {
                sent = call => sent,
                // The upstream may have acted already: the outcome is unknown, not failed.
                () = self.client_cancelled() => Err(UpstreamFault::Unavailable {
                    why: "the client cancelled the call".to_owned(),
                    sent: DeliveryState::Unknown,
                }),
            }
        };
        let sent =
            trace::sent(permit.tool().upstream.as_str(), "tools/call", Some(tool), params, doing).await;
        match gate {
            // Questions also come inside results and errors, past the channel that governs them.
            Some(gate) => Box::pin(gate.checked(sent)).await,
            None => sent,
        }
    }

    /// How this request talks to an upstream: progress goes back to its client, questions are asked in the client's era.
    pub(super) fn upstream_context(&self, upstream: &dyn Upstream, timeout: Option<Duration>) -> CallContext {
        let gate = self.ctx.map(|ctx| QuestionGate::new(self.gateway, ctx, &self.caller, upstream));
        self.context_through(gate.as_ref(), timeout)
    }

    fn context_through(&self, gate: Option<&Arc<QuestionGate>>, timeout: Option<Duration>) -> CallContext {
        let wait = timeout.unwrap_or(self.gateway.policy.load().timeout);
        match gate {
            Some(gate) => CallContext::between(gate, wait),
            // A plan run by a person has no client that could answer the upstream.
            None => CallContext::alone(wait),
        }
    }

    /// Resolves when the client gives up; never where there is no client.
    pub(super) async fn client_cancelled(&self) {
        match self.ctx {
            Some(ctx) => ctx.cancelled().await,
            None => std::future::pending().await,
        }
    }
}
