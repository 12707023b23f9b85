//! `answer_plan`: the tool behind the card's buttons. Visible to cards only and proved by a nonce that only the card has. Passes the
//! answer to `approval`; runs nothing.

use std::sync::Arc;

use countersign_mcp::raw::{self, RawJson};
use countersign_policy::call::Caller;
use countersign_policy::envelope::Envelope;
use countersign_policy::ids::{FullName, PlanId, PrincipalId};
use countersign_policy::refusal::{Code, NextAction, Refusal};
use countersign_policy::strict_json;
use countersign_store::PlanRow;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::nonce;
use crate::answer::Answer;
use crate::approval::{ApprovalChannel, ApprovalInput, DecisionError, PlanDecider};
use crate::pipeline::request::invalid;
use crate::state::GatewayState;
use crate::surfaces::own::plan_text;
use crate::surfaces::refuse_unread;

pub(crate) const NAME: &str = "answer_plan";

/// The definition, marked as visible to cards only.
pub(crate) fn definition() -> RawJson {
    let text = json!({"type": "string"});
    raw::to_raw(&json!({
        "name": NAME,
        "title": "Answer a plan",
        "description": "The card's button: records the answer of the person who looks at the card. Runs nothing. Not for models: it needs \
            the nonce that only the card has.",
        "inputSchema": {
            "type": "object",
            "properties": {"plan_id": text, "nonce": text, "answer": {"type": "string", "enum": ["approve", "reject"]}},
            "required": ["plan_id", "nonce", "answer"],
            "additionalProperties": false,
        },
        "annotations": {"title": "Answer a plan", "readOnlyHint": false, "destructiveHint": false, "openWorldHint": false},
        "_meta": {"ui": {"visibility": ["app"]}},
    }))
}

pub(crate) async fn call(gateway: &Arc<GatewayState>, caller: Caller, params: &RawValue) -> Answer {
    match answer(gateway, &caller, params).await {
        Ok(envelope) => Answer::Envelope(envelope),
        Err(refusal) => {
            // The nonce is a secret: the row records the plan id and not the arguments.
            let id = raw::get_str_in(params, &["arguments", "plan_id"]).unwrap_or_default();
            let kept = raw::to_raw(&json!({"plan_id": id}));
            refuse_unread(gateway, &caller, FullName::new("countersign", NAME), None, NAME, refusal, &kept)
                .await
        }
    }
}

async fn answer(
    gateway: &Arc<GatewayState>,
    caller: &Caller,
    params: &RawValue,
) -> Result<Envelope, Refusal> {
    let given = read_arguments(params)?;
    let text = |name: &str| match given.get(name) {
        Some(Value::String(text)) => Ok(text.as_str()),
        Some(_) => Err(invalid(name, "must be a string")),
        None => Err(invalid(name, "is required")),
    };
    let (id, nonce, word) = (PlanId::new(text("plan_id")?), text("nonce")?, text("answer")?);
    let approves = match word {
        "approve" => true,
        "reject" => false,
        _ => return Err(invalid("answer", "must be approve or reject")),
    };
    // An unknown plan, another principal's plan and a wrong nonce get the same refusal, so that it tells nothing.
    let row = find_own(gateway, caller, &id).await?;
    let shown = row.and_then(|row| Some((nonce::shown_by(&gateway.store, &id, row.plan.hash, nonce)?, row)));
    let (shown, row) = shown.ok_or_else(|| {
        let message = "the nonce is not that of a card of this plan";
        Refusal::new(Code::ConfirmTokenMismatch, message).next(&[NextAction::AskPerson])
    })?;
    let (now, host) = (gateway.now(), PrincipalId::new(format!("host:{}", caller.principal)));
    let channel = ApprovalChannel::Card(caller.scopes.vouching);
    let decider = PlanDecider { store: &gateway.store, channel, by: &host, program: caller.host.as_ref() };
    let decided = if approves {
        decider.approve_plan(&id, ApprovalInput::of(shown), now).await.map(drop)
    } else {
        decider.reject_plan(&id, Some(shown.hash), None, now).await.map(drop)
    };
    match decided {
        Ok(()) => {}
        Err(DecisionError::Input(refusal)) => return Err(refusal),
        Err(DecisionError::Store(refused)) => {
            let state = find_own(gateway, caller, &id).await?.map(|row| row.state.as_str());
            return Err(refused.refusal().with("plan_id", id.as_str()).with("state", state));
        }
    }
    gateway.announce(id.clone());
    let row = find_own(gateway, caller, &id).await?.unwrap_or(row);
    Ok(Envelope::ok(NAME, Map::new()).with_text("plan", plan_text(&row)))
}

async fn find_own(gateway: &GatewayState, caller: &Caller, id: &PlanId) -> Result<Option<PlanRow>, Refusal> {
    let row = gateway.plan(id).await.map_err(|fault| fault.refusal())?;
    Ok(row.filter(|row| row.plan.principal == caller.principal))
}

fn read_arguments(params: &RawValue) -> Result<Map<String, Value>, Refusal> {
    let none = raw::empty_object();
    let given = raw::get(params, "arguments").unwrap_or(&none);
    let parsed = strict_json::parse(given.get().as_bytes())
        .map_err(|fault| invalid("arguments", fault).because("arguments_not_strict"))?;
    let Value::Object(parsed) = parsed else { return Err(invalid("arguments", "must be an object")) };
    match parsed.keys().find(|name| !["plan_id", "nonce", "answer"].contains(&name.as_str())) {
        Some(other) => Err(invalid(other, "is not known here")),
        None => Ok(parsed),
    }
}
