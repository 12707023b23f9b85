//! `answer_plan`: the card's button. Listed for cards only, proved by the nonce that only the card has; it decides and runs nothing.

use std::sync::Arc;

use countersign_core::call::Caller;
use countersign_core::confirm::{Approval, Kind, Rail};
use countersign_core::envelope::Envelope;
use countersign_core::ids::{FullName, PlanId, PrincipalId};
use countersign_core::refusal::{Code, NextAction, Refusal};
use countersign_core::strict_json;
use countersign_store::PlanRow;
use countersign_wire::raw::{self, Raw};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::nonce;
use crate::answer::Answer;
use crate::asked::invalid;
use crate::house::House;
use crate::surfaces::own::plan_text;
use crate::surfaces::refuse_unread;

/// The tool's name.
pub const NAME: &str = "answer_plan";

/// The tool as it is listed: for cards, not for models.
pub fn definition() -> Raw {
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

/// Answers a plan in the name of the host's user.
pub async fn call(house: &Arc<House>, caller: Caller, params: &RawValue) -> Answer {
    match answer(house, &caller, params).await {
        Ok(envelope) => Answer::Envelope(envelope),
        Err(refusal) => {
            // A nonce is a secret: the row keeps which plan was named, not what was sent.
            let said = named(params).unwrap_or_default();
            let kept = raw::to_raw(&json!({"plan_id": said}));
            refuse_unread(house, &caller, FullName::new("countersign", NAME), None, NAME, refusal, &kept)
                .await
        }
    }
}

fn named(params: &RawValue) -> Option<String> {
    raw::get_str_in(params, &["arguments", "plan_id"]).map(|id| id.into_owned())
}

async fn answer(house: &Arc<House>, caller: &Caller, params: &RawValue) -> Result<Envelope, Refusal> {
    let given = read(params)?;
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
    // A plan that is not there, is another's, or has another nonce: all look the same.
    let row = own(house, caller, &id).await?.filter(|_| nonce::fits(&house.store, &id, nonce));
    let row = row.ok_or_else(|| {
        let message = "the nonce is not that of a card of this plan";
        Refusal::new(Code::ConfirmTokenMismatch, message).next(&[NextAction::AskPerson])
    })?;
    let (now, host) = (house.now(), PrincipalId::new(format!("host:{}", caller.principal)));
    let decided = if approves {
        if row.plan.need.kind == Kind::Type {
            let message = format!("`{id}` is confirmed by typing a name, on the desk or the command line");
            return Err(Refusal::new(Code::ApprovalPending, message).with("plan_id", id.as_str()));
        }
        let approval = Approval::by_host(Rail::Card, caller.scopes.vouching, host, now);
        house.store.approve(&id, approval, now).await
    } else {
        house.store.reject(&id, host, Rail::Card, None, now).await
    };
    if let Err(refused) = decided {
        let state = own(house, caller, &id).await?.map(|row| row.state.as_str());
        return Err(refused.refusal().with("plan_id", id.as_str()).with("state", state));
    }
    house.announce(id.clone());
    let row = own(house, caller, &id).await?.unwrap_or(row);
    Ok(Envelope::ok(NAME, Map::new()).with_text("plan", plan_text(&row)))
}

async fn own(house: &House, caller: &Caller, id: &PlanId) -> Result<Option<PlanRow>, Refusal> {
    let row = house.plan(id).await.map_err(|fault| fault.refusal())?;
    Ok(row.filter(|row| row.plan.principal == caller.principal))
}

fn read(params: &RawValue) -> Result<Map<String, Value>, Refusal> {
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
