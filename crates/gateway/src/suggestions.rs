//! Suggested next steps: what the catalogue and the rules offer a caller now. Never includes what the caller may not see. A
//! suggestion permits nothing.

use countersign_policy::call::Caller;
use countersign_policy::confirm::ConfirmRequirement;
use countersign_policy::effect::Effect;
use countersign_policy::ids::FullName;
use countersign_policy::mode::Mode;
use countersign_policy::role::Role;
use countersign_policy::suggest::{CandidateTool, SuggestionContext, SuggestionTrigger, nearest_reads};
use serde_json::{Value, json};

use crate::catalog::Listed;
use crate::state::GatewayState;

pub(crate) struct SuggestionInput<'a> {
    pub(crate) gateway: &'a GatewayState,
    pub(crate) caller: &'a Caller,
    pub(crate) moment: SuggestionTrigger,
    pub(crate) mode: Mode,
}

impl SuggestionInput<'_> {
    /// `data.suggestions` about a tool; `need` is what the call itself needs, where that is known.
    pub(crate) fn about(&self, name: &FullName, need: Option<&ConfirmRequirement>) -> Value {
        let catalog = self.gateway.catalog.load();
        let tool = catalog.get(name).map(|listed| {
            let mut tool = candidate(listed);
            if let Some(need) = need {
                (tool.kind, tool.strength) = (need.kind, need.strength);
            }
            tool
        });
        let visible: Vec<CandidateTool> =
            catalog.accepted().filter(|listed| self.may_see(listed)).map(candidate).collect();
        let policy = self.gateway.policy.load();
        let named = policy.suggest.get(name).map(Vec::as_slice).unwrap_or_default();
        let first: Vec<CandidateTool> =
            named.iter().filter_map(|name| visible.iter().find(|one| one.name == *name).cloned()).collect();
        let reads = match &tool {
            Some(tool) => nearest_reads(tool, visible),
            None => visible,
        };
        self.steps(tool.as_ref(), &first, &reads)
    }

    /// `data.suggestions` about no tool.
    pub(crate) fn at_large(&self) -> Value {
        let catalog = self.gateway.catalog.load();
        let reads: Vec<CandidateTool> = catalog
            .accepted()
            .filter(|listed| self.may_see(listed) && listed.outlook.effect == Effect::Read)
            .take(2)
            .map(candidate)
            .collect();
        self.steps(None, &[], &reads)
    }

    fn steps(&self, tool: Option<&CandidateTool>, first: &[CandidateTool], reads: &[CandidateTool]) -> Value {
        let at = SuggestionContext {
            moment: self.moment,
            mode: self.mode,
            max_mode: self.caller.scopes.max_mode,
            tool,
            first,
            reads,
        };
        json!(at.suggest())
    }

    fn may_see(&self, listed: &Listed) -> bool {
        let scopes = &self.caller.scopes;
        scopes.upstreams.as_ref().is_none_or(|all| all.contains(&listed.tool.upstream))
            && scopes.effects.as_ref().is_none_or(|all| all.contains(&listed.outlook.effect))
            && !(self.caller.role == Role::Agent && listed.outlook.role == Some(Role::Human))
            && listed.outlook.denied.is_none()
    }
}

fn candidate(listed: &Listed) -> CandidateTool {
    let properties = listed.tool.definition.get("inputSchema").and_then(|schema| schema.get("properties"));
    let takes = properties.and_then(Value::as_object);
    CandidateTool {
        name: listed.tool.full_name(),
        effect: listed.outlook.effect,
        kind: listed.outlook.kind,
        strength: listed.outlook.strength,
        takes: takes.map(|all| all.keys().cloned().collect()).unwrap_or_default(),
    }
}
