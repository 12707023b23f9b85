//! "Approve and run": runs an approved plan for a person, in the name of the agent that asked for it. It is the agent's own
//! second call, with a token of its own: the same checks apply. No client receives its progress.

use std::sync::Arc;

use countersign_policy::call::{Caller, CallerScopes, CatalogStatus, ToolCall};
use countersign_policy::confirm::ConfirmInput;
use countersign_policy::gate::token_digest;
use countersign_policy::intent::{CallEntryPoint, CallToolVariant, UncheckedIntent};
use countersign_policy::mode::Mode;
use countersign_policy::plan::{Plan, StoredIntent};
use countersign_policy::record::Source;
use countersign_policy::refusal::{Code, Refusal};
use serde_json::json;

use super::CallPipeline;
use super::finished_plan::mark_result_delivered;
use crate::answer::Answer;
use crate::state::GatewayState;
use crate::trace;

/// The command name of the answer and of its trace.
const RUN: &str = "approve_and_run";

/// Runs a plan that a person approved. One that the agent runs at the same time runs once.
///
/// `source` is where the person asked for it.
pub async fn run_approved(
    gateway: &Arc<GatewayState>,
    plan: &Plan,
    source: Source,
) -> Result<Answer, Refusal> {
    let token = uuid::Uuid::new_v4().to_string();
    // A token of its own, not a bypass: the statement that spends it decides against the agent's own call.
    let lent = gateway.store.lend_token(&plan.id, token_digest(&token), gateway.now()).await;
    if !lent.map_err(|fault| fault.refusal())? {
        let message = format!("`{}` is not approved any more: it ran, or its time is over", plan.id);
        return Err(Refusal::new(Code::PlanDecided, message));
    }
    let caller = Caller {
        principal: plan.principal.clone(),
        credential: None,
        role: plan.role,
        session: plan.session.clone(),
        request_id: Some(crate::call_log::mint_request_id()),
        source,
        host: plan.host.as_deref().cloned().map(Arc::new),
        // The caller's scopes were checked when the plan was made, and a person has agreed since.
        scopes: CallerScopes::all(),
    };
    let input = ConfirmInput { token: Some(token), yes: Some(true), text: None };
    let pipeline = CallPipeline::new(gateway, None, caller.clone(), RUN);
    let watcher = gateway.watcher();
    let answer = if plan.steps.is_empty() {
        let call = call_of_plan(plan, caller, input, Some(Mode::Execute.as_str().to_owned()));
        trace::own(watcher, RUN, pipeline.run_call(Box::new(call))).await
    } else {
        trace::own(watcher, RUN, pipeline.run_series(&plan.id, input)).await
    };
    // The agent was faster and has its result: nothing is left to be delivered to it.
    if answer.is_refused(Code::ConfirmTokenUsed) {
        mark_result_delivered(gateway, &plan.id).await;
    }
    Ok(answer)
}

/// The call of a plan, as it comes back with its token.
pub(super) fn call_of_plan(
    plan: &Plan,
    caller: Caller,
    confirm_input: ConfirmInput,
    mode: Option<String>,
) -> ToolCall {
    ToolCall {
        caller,
        name: plan.tool.clone(),
        catalog_status: CatalogStatus::Unknown(Vec::new()),
        arguments: plan.arguments.clone(),
        entry_point: plan.variant.map_or(CallEntryPoint::Direct, CallEntryPoint::Router),
        intent: declared_again(plan.intent.as_ref(), plan.variant),
        mode,
        confirm_input,
    }
}

/// The declared intent in the form a request has it.
pub(super) fn declared_again(
    intent: Option<&StoredIntent>,
    variant: Option<CallToolVariant>,
) -> UncheckedIntent {
    let fields = match (intent, variant) {
        (Some(intent), _) => json!({"intent": intent}),
        (None, Some(variant)) => json!({"intent": {"operation_type": variant.as_str()}}),
        (None, None) => json!({}),
    };
    fields.as_object().and_then(|fields| UncheckedIntent::read(fields).ok()).unwrap_or_default()
}
