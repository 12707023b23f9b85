//! Asks the policy for its verdict, and logs it. The decision itself is `countersign_policy::gate::judge`.

use countersign_policy::call::ToolCall;
use countersign_policy::confirm::ConfirmRequirement;
use countersign_policy::gate::{self, CallDraft, PolicySnapshot, Refused, Verdict};
use countersign_policy::ids::FullName;
use countersign_policy::mode::Mode;
use countersign_policy::refusal::{Code, Refusal};
use countersign_policy::suggest::SuggestionTrigger;
use serde_json::Value;

use super::CallPipeline;
use super::load::DecisionContext;
use crate::active_policy::ActivePolicy;
use crate::answer::Answer;
use crate::call_log::CallLog;
use crate::suggestions::SuggestionInput;
use crate::trace;

impl CallPipeline<'_> {
    /// The verdict on the call. Boxed: a verdict is large, and the futures above would carry it.
    pub(super) fn authorize(
        &self,
        call: ToolCall,
        policy: &ActivePolicy,
        context: &DecisionContext,
    ) -> Box<Verdict> {
        // Only known tools name spans and metrics: an agent could make up endless other names.
        let is_known = self.gateway.catalog.load().get(&call.name).is_some();
        let verdict = gate::judge(call, &self.snapshot(policy, context), self.gateway.now());
        trace::judged(&verdict, is_known);
        self.log().judged(&verdict);
        Box::new(verdict)
    }

    /// Policy and context in the form the gate takes.
    pub(super) fn snapshot<'s>(
        &'s self,
        policy: &'s ActivePolicy,
        context: &'s DecisionContext,
    ) -> PolicySnapshot<'s> {
        PolicySnapshot {
            rules: &policy.rules,
            strictness: policy.strictness,
            configured_mode: policy.mode,
            session_mode: context.session_mode,
            pending_plan: context.held.as_deref(),
            grants: &context.grants,
            usage: &self.gateway.usage,
            writes: context.writes,
            schema: &self.gateway.schemas,
            redactor: &self.gateway.redactor,
        }
    }

    /// Refuses the call. A refusal about the mode also says what can be done instead.
    pub(super) async fn refuse_with_suggestions(&self, refused: Refused) -> Answer {
        let about_mode = matches!(refused.refusal.code, Code::ModeForbidden | Code::ModeInvalid);
        let suggestions = about_mode.then(|| {
            self.suggest(SuggestionTrigger::ModeRefused, refused.record.mode, &refused.record.tool, None)
        });
        match (self.refuse(refused).await, suggestions) {
            (Answer::Envelope(envelope), Some(suggestions)) => {
                Answer::Envelope(envelope.with("suggestions", suggestions))
            }
            (answer, _) => answer,
        }
    }

    pub(super) async fn refuse_held_twice(&self, draft: CallDraft) -> Answer {
        let message = format!("`{}` needs another confirmation; ask for a new plan", draft.call.name);
        let refusal = Refusal::new(Code::ConfirmTokenMismatch, message).because("policy_changed");
        self.refuse(Refused { refusal, record: draft.record }).await
    }

    /// `data.suggestions`. A call without a valid mode counts as one in ask mode.
    pub(super) fn suggest(
        &self,
        moment: SuggestionTrigger,
        mode: Option<Mode>,
        tool: &FullName,
        need: Option<&ConfirmRequirement>,
    ) -> Value {
        // A suggestion must not name a mode that the scopes of the credential refuse.
        let mode = mode.unwrap_or(Mode::Ask).min(self.caller.scopes.max_mode);
        SuggestionInput { gateway: self.gateway, caller: &self.caller, moment, mode }.about(tool, need)
    }

    pub(super) fn log(&self) -> CallLog {
        CallLog { started: Some(self.started) }
    }
}
