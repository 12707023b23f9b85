//! "Approve and run": an approved plan executed from the desk, for the agent that asked for it. It goes the same way as
//! the agent's own second call, through the same gate, with a token of its own; only nobody listens to its progress.

use std::sync::Arc;

use countersign_core::call::{Call, Caller, Scopes, Standing};
use countersign_core::confirm::Brought;
use countersign_core::gate::token_digest;
use countersign_core::intent::{Door, Spoken, Variant};
use countersign_core::mode::Mode;
use countersign_core::plan::{Plan, StoredIntent};
use countersign_core::record::Source;
use countersign_core::refusal::{Code, Refusal};
use countersign_core::role::Role;
use countersign_store::StoreFault;
use serde_json::json;

use super::Conduct;
use crate::answer::Answer;
use crate::house::House;
use crate::trace;

/// What running a plan from the desk is called, in answers and to whoever watches.
const RUN: &str = "approve_and_run";

/// Runs a plan that a person approved, whoever is faster: a plan the agent runs meanwhile is not run again.
pub async fn run_approved(house: &Arc<House>, plan: &Plan) -> Result<Answer, Refusal> {
    let token = uuid::Uuid::new_v4().to_string();
    let lent = house.store.lend_token(&plan.id, token_digest(&token), house.now()).await;
    if !lent.map_err(|fault| fault.refusal())? {
        let message = format!("`{}` is not approved any more: it ran, or its time is over", plan.id);
        return Err(Refusal::new(Code::PlanDecided, message));
    }
    let caller = Caller {
        principal: plan.principal.clone(),
        credential: None,
        role: role_of(house, plan).await.map_err(|fault| fault.refusal())?,
        session: plan.session.clone(),
        source: Source::Page,
        // What the line could reach was judged when the plan was made; a person has agreed since.
        scopes: Scopes::all(),
    };
    let brought = Brought { token: Some(token), yes: Some(true), text: None };
    let conduct = Conduct {
        house,
        ctx: None,
        caller: caller.clone(),
        command: RUN.to_owned(),
        wait_seconds: None,
        rest: None,
    };
    let watcher = house.watcher();
    if !plan.steps.is_empty() {
        return Ok(trace::own(watcher, RUN, conduct.run_series(&plan.id, brought)).await);
    }
    let call = Call {
        caller,
        name: plan.tool.clone(),
        standing: Standing::Unknown(Vec::new()),
        arguments: plan.arguments.clone(),
        door: plan.variant.map_or(Door::Direct, Door::Router),
        intent: spoken(plan.intent.as_ref(), plan.variant),
        mode: Some(Mode::Execute.as_str().to_owned()),
        brought,
    };
    Ok(trace::own(watcher, RUN, conduct.go(call)).await)
}

/// In which role the plan was made: a person's own line may reach more. Names are never both.
async fn role_of(house: &House, plan: &Plan) -> Result<Role, StoreFault> {
    if plan.principal.as_str() == "local-human" {
        return Ok(Role::Human);
    }
    let all = house.store.credentials().await?;
    let named = all.iter().find(|one| one.name == plan.principal.as_str());
    Ok(named.map_or(Role::Agent, |one| one.role))
}

/// What was declared when the plan was made, as it would be said again.
fn spoken(intent: Option<&StoredIntent>, variant: Option<Variant>) -> Spoken {
    let said = match (intent, variant) {
        (Some(intent), _) => json!({"intent": intent}),
        (None, Some(variant)) => json!({"intent": {"operation_type": variant.as_str()}}),
        (None, None) => json!({}),
    };
    said.as_object().and_then(|fields| Spoken::read(fields).ok()).unwrap_or_default()
}
