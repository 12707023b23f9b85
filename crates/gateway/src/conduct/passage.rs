//! A request that is no tool call and is governed like one: a resource, a prompt, a completion, a listed method. The same gate
//! judges it as a read of `resource:URI`, `prompt:NAME` or `method:NAME`; its row is written like any read's.

use std::sync::Arc;
use std::time::Instant;

use countersign_core::call::{Arguments, Call, Caller, Standing};
use countersign_core::confirm::Brought;
use countersign_core::gate::{Permit, Refused, Verdict};
use countersign_core::ids::FullName;
use countersign_core::intent::{Door, Spoken};
use countersign_core::record::CallRecord;
use countersign_core::refusal::{Code, Refusal};
use countersign_core::tool::Tool;
use countersign_wire::frame::{Reply, RpcError, code};
use countersign_wire::raw::Raw;
use countersign_wire::serve::Ctx;
use serde_json::json;
use serde_json::value::RawValue;

use super::Conduct;
use crate::answer::Answer;
use crate::house::House;
use crate::members;
use crate::trace;
use crate::upstream_questions::QuestionGate;
use crate::upstreams::{Talk, Upstream, UpstreamFault};

/// One request to pass on to an upstream.
pub struct Passage<'p> {
    /// What all sessions share.
    pub house: &'p Arc<House>,
    /// The request.
    pub ctx: &'p Ctx,
    /// Who asks.
    pub caller: &'p Caller,
    /// The upstream.
    pub upstream: &'p Arc<dyn Upstream>,
    /// Its method.
    pub method: &'p str,
    /// The params as they are sent.
    pub params: Option<&'p RawValue>,
}

impl Passage<'_> {
    /// Judges the request as a read of `name` with these arguments, passes it on, and records it.
    pub async fn govern(&self, name: FullName, arguments: Arguments) -> Reply {
        let conduct = Conduct {
            house: self.house,
            ctx: Some(self.ctx),
            caller: self.caller.clone(),
            command: self.method.to_owned(),
            wait_seconds: None,
            rest: None,
        };
        let permit = match conduct.judge_passage(name, arguments).await {
            Ok(permit) => permit,
            Err(answer) => return reply(answer),
        };
        let opened = match conduct.open(permit).await {
            Ok(opened) => opened,
            Err(answer) => return reply(answer),
        };
        let start = Instant::now();
        let sent = self.send(opened.permit().timeout()).await;
        reply(conduct.close(opened, sent, start).await.0)
    }

    /// Passes the request on as it is. Only for requests that read nothing of an upstream's: lists and log levels.
    pub async fn forward(&self) -> Reply {
        self.send(None).await.map_err(|fault| match fault {
            UpstreamFault::Rpc(error) => error,
            UpstreamFault::Unavailable { why, .. } => self.no_answer(&why, Code::UpstreamUnavailable),
            UpstreamFault::Timeout { why, .. } => self.no_answer(&why, Code::UpstreamTimeout),
        })
    }

    fn no_answer(&self, why: &str, code: Code) -> RpcError {
        let message =
            format!("upstream `{}` gave no answer: {}", self.upstream.id(), crate::escape::visible(why));
        refused(&Refusal::new(code, message))
    }

    async fn send(&self, timeout: Option<std::time::Duration>) -> Result<Raw, UpstreamFault> {
        let gate = QuestionGate::new(self.house, self.ctx, self.caller, self.upstream.as_ref());
        let cleared = self.params.and_then(members::without_ours);
        let params = cleared.as_deref().or(self.params);
        gate.note_answers(params).await;
        let talk = Talk::between(&gate, timeout.unwrap_or(self.house.law.load().timeout));
        let doing = async |onward: Option<Raw>| {
            let params = onward.as_deref().or(params);
            tokio::select! {
                sent = self.upstream.request(self.method, params, talk) => sent,
                () = self.ctx.cancelled() => Err(UpstreamFault::Rpc(RpcError::new(code::INTERNAL, "cancelled"))),
            }
        };
        let sent = trace::sent(self.upstream.id().as_str(), self.method, None, params, doing).await;
        gate.checked(sent).await
    }
}

impl Conduct<'_> {
    /// The permit of a read that is no tool's. A second step can't be carried by these methods, so a need for one refuses.
    async fn judge_passage(&self, name: FullName, arguments: Arguments) -> Result<Box<Permit>, Answer> {
        let Some(tool) = Tool::passage(&name) else {
            let refusal = Refusal::new(Code::NotFound, format!("there is no `{name}`"));
            return Err(self.refuse_unlogged(&refusal));
        };
        let call = Call {
            caller: self.caller.clone(),
            name,
            standing: Standing::Accepted(Arc::new(tool)),
            arguments,
            door: Door::Direct,
            intent: Spoken::default(),
            mode: None,
            brought: Brought::default(),
        };
        let law = self.house.law.load_full();
        let world = match self.look(&call).await {
            Ok(world) => world,
            Err(fault) => return Err(self.refuse_unlogged(&fault.refusal())),
        };
        let refused = match self.judge(call, &law, &world) {
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
pub async fn refuse(
    house: &Arc<House>,
    caller: &Caller,
    name: FullName,
    refusal: &Refusal,
    params: Option<&RawValue>,
) -> RpcError {
    let record = CallRecord::unread(caller, name, None, params.map_or("", RawValue::get).as_bytes());
    if let Err(fault) = house.store.refused(&record, refusal, house.now()).await {
        let (incident, fault) = (fault.incident(), fault.inside());
        tracing::error!(incident, fault, "a refusal could not be recorded");
    }
    refused(refusal)
}

/// A refusal as a JSON-RPC error.
fn refused(refusal: &Refusal) -> RpcError {
    let data = json!({"code": refusal.code.as_str(), "details": refusal.details_value()});
    RpcError::with_data(number(refusal.code.as_str(), refusal.reason_code), &refusal.message, &data)
}

/// The JSON-RPC number of a refusal.
fn number(code: &str, reason: &str) -> i64 {
    match (code, reason) {
        ("E_NOT_FOUND", _) => code::LEGACY_RESOURCE_NOT_FOUND,
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
