//! Steps that can only be previewed after an earlier step of the same plan ran. Such a step gets no permit until it is reached,
//! judged again and previewed. If a person has to see the preview, the step needs a new approval.

use super::is_softer;
use super::permit::Permit;
use super::series::changed_since;
use super::verdict::CallDraft;
use crate::confirm::{Approval, Kind, check_preview_unblocked};
use crate::digest::Digest;
use crate::ids::PlanId;
use crate::mode::Mode;
use crate::plan::{PlanStep, Preview, PreviewSource};
use crate::refusal::{Code, Refusal};

/// A step that gets its permit only when it is reached.
#[derive(Debug)]
pub struct PendingStep {
    pub(super) plan: PlanId,
    pub(super) hash: Digest,
    pub(super) index: usize,
    pub(super) step: PlanStep,
    pub(super) approval: Approval,
}

/// What becomes of a step that was previewed when it was reached.
#[derive(Debug)]
pub enum ReachedStep {
    /// It may run: its preview did not have to be seen by anyone.
    Run(Box<Permit>),
    /// Nobody has seen this preview, and it needs someone who has.
    AskAgain,
}

impl PendingStep {
    /// The step as it was agreed to.
    pub fn step(&self) -> &PlanStep {
        &self.step
    }

    /// Its number, counted from 1.
    pub fn number(&self) -> usize {
        self.index + 1
    }

    /// Refuses a step that is not the one that was agreed to. Checked before the upstream is asked for its preview.
    pub fn check(&self, draft: &CallDraft) -> Result<(), Refusal> {
        let changed = |what, reason| Err(changed_since(&self.plan, what, reason, self.index));
        if draft.mode != Mode::Execute {
            let message = format!("mode is {}: the step was not run", draft.mode);
            return Err(Refusal::new(Code::ModeAsk, message).with("step", self.index + 1));
        }
        if draft.tool.fingerprint != self.step.fingerprint {
            return changed("the tool has changed", "tool_changed");
        }
        let is_other = draft.call.name != self.step.tool
            || draft.classified.effect != self.step.effect
            || draft.call.arguments.canonical() != self.step.arguments.canonical();
        if is_other {
            return changed("the step has changed", "plan_drifted");
        }
        if draft.policy_digest != self.step.policy_digest
            || is_softer(&self.step.requirement, &draft.requirement)
        {
            return changed("the rules have changed", "policy_changed");
        }
        Ok(())
    }

    /// Turns a step into a permit after it was judged and previewed again. Asks again if the confirm kind is `preview` or `type` and
    /// nobody has seen a preview, or if the preview differs from the one that was shown.
    pub fn settle(self, mut draft: CallDraft, fresh: &Preview) -> Result<ReachedStep, Refusal> {
        self.check(&draft)?;
        check_preview_unblocked(&self.plan, fresh)?;
        let may_run = match self.step.preview.source {
            PreviewSource::Chained => self.step.preview.digest == fresh.digest,
            PreviewSource::WhenReached
            | PreviewSource::Argument
            | PreviewSource::Companion
            | PreviewSource::Command
            | PreviewSource::Computed => self.step.requirement.kind <= Kind::Simple,
        };
        if !may_run {
            return Ok(ReachedStep::AskAgain);
        }
        draft.record.plan_id = Some(self.plan);
        draft.record.plan_hash = Some(self.hash);
        draft.record.approval = Some(self.approval);
        let send = self.step.arguments.canonical().to_owned();
        Ok(ReachedStep::Run(Box::new(Permit::of_step(draft, send))))
    }
}
