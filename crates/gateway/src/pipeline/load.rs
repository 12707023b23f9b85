//! Loads what a decision needs: the tool's catalogue entry, the session's mode, the plan of a token, grants and pauses.
//! Decides nothing.

use countersign_policy::call::{Arguments, CatalogStatus, ToolCall};
use countersign_policy::confirm::PendingPlan;
use countersign_policy::gate::{WriteStatus, token_digest};
use countersign_policy::grant::Grant;
use countersign_policy::ids::{FullName, UpstreamId};
use countersign_policy::mode::Mode;
use countersign_store::StoreFault;

use super::request::ToolCallRequest;
use super::{CallPipeline, Stage};
use crate::schema;
use crate::surfaces::wait_for_upstream;

/// What the policy looks at besides rules and catalogue.
pub(super) struct DecisionContext {
    pub(super) session_mode: Option<Mode>,
    /// The plan of the token that the call brings.
    pub(super) held: Option<Box<PendingPlan>>,
    pub(super) grants: Vec<Grant>,
    pub(super) writes: WriteStatus,
}

impl CallPipeline<'_> {
    /// Waits until the call's own upstream has listed its tools. Others that are still starting hold up nobody.
    pub(super) async fn wait_for_own_upstream(&self, upstream: &UpstreamId) {
        if let Some(ctx) = self.ctx.filter(|_| self.gateway.startup.is_unlisted(upstream)) {
            Box::pin(wait_for_upstream(self.gateway, ctx, upstream)).await;
        }
    }

    pub(super) fn build_call(&self, request: ToolCallRequest) -> ToolCall {
        ToolCall {
            // Looked up later, right before the decision.
            catalog_status: CatalogStatus::Unknown(Vec::new()),
            caller: self.caller.clone(),
            arguments: self.complete_arguments(&request.name, request.arguments),
            name: request.name,
            entry_point: request.entry_point,
            intent: request.intent,
            mode: request.mode,
            confirm_input: request.confirm_input,
        }
    }

    /// Adds what the tool's upstream fills in and the defaults of required arguments. Done before the decision: what is
    /// decided, shown and hashed has to be what is sent.
    fn complete_arguments(&self, name: &FullName, arguments: Arguments) -> Arguments {
        let arguments = match self.gateway.upstreams.load().get(&name.upstream) {
            // What the upstream adds comes first, so that a default never overrides it.
            Some(upstream) => upstream.filled(name.tool.as_str(), arguments),
            None => arguments,
        };
        match self.gateway.catalog.load().get(name) {
            Some(listed) => schema::with_required_defaults(&listed.tool, arguments),
            None => arguments,
        }
    }

    /// Loads what the decision needs. What can't be read refuses the call.
    pub(super) async fn load_context(&self, call: &ToolCall) -> Stage<DecisionContext> {
        self.read_context(call).await.map_err(|fault| self.refuse_unrecorded(&fault.refusal()))
    }

    pub(super) async fn read_context(&self, call: &ToolCall) -> Result<DecisionContext, StoreFault> {
        let (store, principal) = (&self.gateway.store, &call.caller.principal);
        let session_mode = self.gateway.session_mode(&call.caller).await?;
        // Looked up by digest: a stolen database holds no usable token.
        let held = match &call.confirm_input.token {
            Some(token) => Box::pin(store.held(token_digest(token))).await?.map(Box::new),
            None => None,
        };
        // A plain read needs neither grants nor pauses: it costs no query.
        if self.gateway.catalog.load().get(&call.name).is_some_and(|listed| listed.is_plain_read()) {
            return Ok(DecisionContext { session_mode, held, grants: Vec::new(), writes: WriteStatus::Open });
        }
        let grants = match self.gateway.policy.load().ignores_grants {
            true => Vec::new(),
            false => Box::pin(store.grants_covering(principal, &call.name, self.gateway.now())).await?,
        };
        // Read for every write, not cached: a pause must stop the very next call, on every replica.
        let paused = Box::pin(store.paused(principal)).await?.is_some();
        let writes = if paused { WriteStatus::Paused } else { WriteStatus::Open };
        Ok(DecisionContext { session_mode, held, grants, writes })
    }

    /// The tool as the catalogue has it. Before a confirmed call the upstream lists its tools again, and a tool that is
    /// withheld is compared with its pin again: a person may have accepted it meanwhile.
    pub(super) async fn load_catalog_status(&self, call: &ToolCall) -> CatalogStatus {
        let name = &call.name;
        if let Some(refresher) = self.gateway.refresher() {
            if call.confirm_input.is_phase_two() {
                // Minutes may lie between approval and call: an upstream that swapped the tool meanwhile must be
                // noticed before it runs.
                Box::pin(refresher.relist(&name.upstream)).await;
            } else if self.gateway.catalog.load().get(name).is_some_and(|listed| !listed.is_accepted()) {
                Box::pin(refresher.recheck(&name.upstream)).await;
            }
        }
        self.gateway.standing(name)
    }
}
