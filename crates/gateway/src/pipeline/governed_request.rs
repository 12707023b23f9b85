//! Requests that are no tool calls and are governed like one: resources, prompts, completions and listed methods. Each is
//! evaluated as a read of `resource:URI`, `prompt:NAME` or `method:NAME`, and recorded like any read.

use std::sync::Arc;
use std::time::Instant;

use countersign_mcp::jsonrpc::{Reply, RpcError, code};
use countersign_mcp::raw::RawJson;
use countersign_mcp::server::RequestContext;
use countersign_policy::call::{Arguments, Caller, CatalogStatus, ToolCall};
use countersign_policy::confirm::ConfirmInput;
use countersign_policy::gate::{self, Permit, Refused, Verdict};
use countersign_policy::ids::FullName;
use countersign_policy::intent::{CallEntryPoint, UncheckedIntent};
use countersign_policy::record::CallRecord;
use countersign_policy::refusal::{Code, Refusal};
use countersign_policy::tool::Tool;
use serde_json::json;
use serde_json::value::RawValue;

use super::dispatch::SentCall;
use super::{CallPipeline, Stage};
use crate::answer::Answer;
use crate::call_log::{CallLog, micros_since};
use crate::members;
use crate::state::GatewayState;
use crate::trace;
use crate::upstream_questions::QuestionGate;
use crate::upstreams::{CallContext, Upstream, UpstreamFault};

/// One request to pass on to an upstream.
pub(crate) struct GovernedRequest<'p> {
    pub gateway: &'p Arc<GatewayState>,
    pub ctx: &'p RequestContext,
    pub caller: &'p Caller,
    pub upstream: &'p Arc<dyn Upstream>,
    pub method: &'p str,
    /// The params as they are sent.
    pub params: Option<&'p RawValue>,
}

impl GovernedRequest<'_> {
    /// Evaluates the request as a read of `name`, passes it on, and records it.
    pub(crate) async fn govern(&self, name: FullName, arguments: Arguments) -> Reply {
        let pipeline = CallPipeline::new(self.gateway, Some(self.ctx), self.caller.clone(), self.method);
        let recorded = match pipeline.authorize_request(name, arguments).await {
            Ok(permit) => pipeline.record_permit(permit).await,
            Err(answer) => Err(answer),
        };
        let recorded = match recorded {
            Ok(recorded) => recorded,
            Err(answer) => return reply(answer),
        };
        let start = Instant::now();
        let sent = self.send(recorded.permit().timeout()).await;
        let sent = SentCall { sent, duration_us: micros_since(start) };
        let closed = pipeline.record_outcome(recorded, sent).await;
        reply(pipeline.respond(closed))
    }

    /// Passes the request on as it is. Only for requests that read nothing of an upstream's: lists and log levels.
    pub(crate) async fn forward(&self) -> Reply {
        self.send(None).await.map_err(|fault| match fault {
            UpstreamFault::Rpc(error) => error,
            UpstreamFault::Unavailable { why, .. } => self.no_answer(&why, Code::UpstreamUnavailable),
            UpstreamFault::TooLarge { why } => self.no_answer(&why, Code::UpstreamUnavailable),
            UpstreamFault::Timeout { why, .. } => self.no_answer(&why, Code::UpstreamTimeout),
        })
    }

    fn no_answer(&self, why: &str, code: Code) -> RpcError {
        let message =
            format!("upstream `{}` gave no answer: {}", self.upstream.id(), crate::escape::visible(why));
        refused(&Refusal::new(code, message))
    }

    async fn send(&self, timeout: Option<std::time::Duration>) -> Result<RawJson, UpstreamFault> {
        let gate = QuestionGate::new(self.gateway, self.ctx, self.caller, self.upstream.as_ref());
        // Our members of `_meta` are for us: an upstream could take them for the host's own.
        let cleared = self.params.and_then(members::without_ours);
        let params = cleared.as_deref().or(self.params);
        // Recorded before the upstream gets them, as for tool calls.
        gate.note_answers(params).await;
        let talk = CallContext::between(&gate, timeout.unwrap_or(self.gateway.policy.load().timeout));
        let doing = async |onward: Option<RawJson>| {
            let params = onward.as_deref().or(params);
            tokio::select! {
                sent = self.upstream.request(self.method, params, talk) => sent,
                // A read leaves no outcome in doubt, so this is a plain error and not `DeliveryState::Unknown`.
                () = self.ctx.cancelled() => Err(UpstreamFault::Rpc(RpcError::new(code::INTERNAL, "cancelled"))),
            }
        };
        let sent = trace::sent(self.upstream.id().as_str(), self.method, None, params, doing).await;
        gate.checked(sent).await
    }
}

impl CallPipeline<'_> {
    /// The permit of a read that is no tool's. These methods can't carry a confirmation, so a need for one refuses.
    async fn authorize_request(&self, name: FullName, arguments: Arguments) -> Stage<Box<Permit>> {
        let Some(tool) = Tool::passage(&name) else {
            let refusal = Refusal::new(Code::NotFound, format!("there is no `{name}`"));
            return Err(self.refuse_unrecorded(&refusal));
        };
        let call = ToolCall {
            caller: self.caller.clone(),
            name,
            // There is no definition to pin: what the upstream lists is data to read, not code to run.
            catalog_status: CatalogStatus::Accepted(Arc::new(tool)),
            arguments,
            entry_point: CallEntryPoint::Direct,
            intent: UncheckedIntent::default(),
            mode: None,
            confirm_input: ConfirmInput::default(),
        };
        let policy = self.gateway.policy.load_full();
        let context = self.load_context(&call).await?;
        let verdict = gate::judge(call, &self.snapshot(&policy, &context), self.gateway.now());
        // Not `authorize`: a verdict that is no permit becomes a refusal here, and that logs itself.
        if let Verdict::Go(permit) = &verdict {
            self.log().decided("allowed", permit.record(), permit.rule());
        }
        let refused = match verdict {
            Verdict::Go(permit) => return Ok(Box::new(permit)),
            Verdict::Refuse(refused) => refused,
            Verdict::Hold(draft) | Verdict::Preview(draft) => needs_confirmation(draft.record),
            Verdict::Explain(explanation) => needs_confirmation(explanation.record),
            Verdict::Redeem(redemption) => needs_confirmation(redemption.record().clone()),
        };
        Err(self.refuse(refused).await)
    }
}

fn needs_confirmation(record: CallRecord) -> Refused {
    let message =
        format!("a rule asks for a confirmation of `{}`, which this method can't carry", record.tool);
    Refused { refusal: Refusal::new(Code::RuleDenied, message).because("cannot_be_confirmed"), record }
}

/// Refuses a request before it could be judged: the row, and the error.
pub(crate) async fn refuse(
    gateway: &Arc<GatewayState>,
    caller: &Caller,
    name: FullName,
    refusal: &Refusal,
    params: Option<&RawValue>,
) -> RpcError {
    let record = CallRecord::unread(caller, name, None, params.map_or("", RawValue::get).as_bytes());
    CallLog { started: None }.refused(&record, refusal);
    if let Err(fault) = gateway.store.refused(&record, refusal, gateway.now()).await {
        let (incident, fault) = (fault.incident(), fault.inside());
        tracing::error!(incident, fault, "a refusal could not be recorded");
    }
    refused(refusal)
}

fn refused(refusal: &Refusal) -> RpcError {
    let data = json!({"code": refusal.code.as_str(), "details": refusal.details_value()});
    RpcError::with_data(number(refusal.code.as_str(), refusal.reason_code), &refusal.message, &data)
}

fn number(code: &str, reason: &str) -> i64 {
    match (code, reason) {
        // The legacy number; the session layer translates it for modern clients.
        ("E_NOT_FOUND", _) => code::LEGACY_RESOURCE_NOT_FOUND,
        // A client that probes for an optional method has to see that it is absent, not that it asked wrongly.
        (_, "method_not_listed") => code::METHOD_NOT_FOUND,
        ("E_UPSTREAM_TIMEOUT", _) => code::INTERNAL,
        (code, _) if code.ends_with("_UNAVAILABLE") => code::INTERNAL,
        _ => code::INVALID_PARAMS,
    }
}

/// An answer as these methods give it: an upstream's result, or an error.
fn reply(answer: Answer) -> Reply {
    match answer {
        Answer::Upstream(result) => Ok(result),
        Answer::Rpc(error) => Err(error),
        Answer::Envelope(envelope) | Answer::Carded(envelope, _) => {
            let first = envelope.errors.first();
            let told = first.map(|error| json!(error)).unwrap_or_default();
            let text = |name: &str| told.get(name).and_then(serde_json::Value::as_str).unwrap_or_default();
            let data = json!({"code": text("code"), "details": told.get("details")});
            Err(RpcError::with_data(number(text("code"), ""), text("message"), &data))
        }
    }
}
