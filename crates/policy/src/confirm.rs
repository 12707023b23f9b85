//! The second step: confirm kinds, approval strengths, and the fixed order of the checks in phase 2.
//! Does not spend the token: the last check is one SQL statement in `store`.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use subtle_eq::same;

use crate::call::{Arguments, HostVouching};
use crate::ids::{FullName, GrantId, PlanId, PrincipalId, SessionId};
use crate::plan::{Plan, Preview};
use crate::refusal::{Code, Refusal};
use crate::words::words;

words! {
    /// The kind of second step a call needs, weakest first.
    pub enum Kind("confirm") {
        None = "none",
        Simple = "simple",
        /// The preview was shown before the answer.
        Preview = "preview",
        /// The preview was shown and the resource's name typed.
        Type = "type",
    }
}

words! {
    /// Who has to have agreed, weakest first.
    pub enum ApprovalStrength("strength") {
        /// The agent brought the token back.
        Caller = "caller",
        /// The host's user interface answered.
        Host = "host",
        Human = "human",
    }
}

words! {
    /// How an agreement came, as audit rows name it (`rail`).
    pub enum RecordedChannel("rail") {
        /// The agent re-issued the call with its token.
        Chat = "chat",
        Elicitation = "elicitation",
        /// The card's button, with its nonce.
        Card = "card",
        /// The approvals page or its REST routes.
        Page = "page",
        Cli = "cli",
        /// A grant given ahead by a person.
        Grant = "grant",
    }
}

impl RecordedChannel {
    /// The highest strength of an approval over this channel.
    pub const fn strength(self) -> ApprovalStrength {
        match self {
            RecordedChannel::Chat => ApprovalStrength::Caller,
            RecordedChannel::Elicitation | RecordedChannel::Card => ApprovalStrength::Host,
            RecordedChannel::Page | RecordedChannel::Cli | RecordedChannel::Grant => ApprovalStrength::Human,
        }
    }

    /// The strength of an approval over this channel, given whether the host may vouch.
    pub fn strength_with(self, vouching: HostVouching) -> ApprovalStrength {
        match (self.strength(), vouching) {
            (ApprovalStrength::Host, HostVouching::Denied) => ApprovalStrength::Caller,
            (most, HostVouching::Allowed | HostVouching::Denied) => most,
        }
    }
}

words! {
    /// Where a plan stands.
    pub enum PlanState("plan state") {
        Pending = "pending",
        /// Someone agreed; it has not run.
        Approved = "approved",
        Rejected = "rejected",
        /// The agent withdrew it, or its tool changed.
        Cancelled = "cancelled",
        Expired = "expired",
        /// Its call is on the way.
        Executing = "executing",
        Done = "done",
        Failed = "failed",
        /// The gateway died in between: nobody knows.
        OutcomeUnknown = "outcome_unknown",
    }
}

/// What a call needs before it may run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfirmRequirement {
    pub kind: Kind,
    pub strength: ApprovalStrength,
    /// For [`Kind::Type`]: the text to be typed. Shown to people, never to agents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub typed: Option<String>,
}

impl ConfirmRequirement {
    /// The question a person is asked.
    pub fn prompt(&self, tool: &FullName) -> String {
        match self.kind {
            Kind::None => String::new(),
            Kind::Simple => format!("Proceed with {tool}? [Yes/No]"),
            Kind::Preview => "Execute?".to_owned(),
            Kind::Type => "Type the name of the resource to confirm".to_owned(),
        }
    }
}

/// A decision in favour of a plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Approval {
    pub by: PrincipalId,
    // Stored approvals and the ledger call it `rail`.
    #[serde(rename = "rail")]
    pub channel: RecordedChannel,
    pub strength: ApprovalStrength,
    /// The grant it rests on, where it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grant: Option<GrantId>,
    pub at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

impl Approval {
    /// An approval with the full strength of its channel.
    pub fn over(channel: RecordedChannel, by: PrincipalId, at: Timestamp) -> Self {
        Self { by, channel, strength: channel.strength(), grant: None, at, note: None }
    }

    /// An answer of a host's user interface. Without the right to vouch it is worth no more than the caller's own word.
    pub fn by_host(channel: RecordedChannel, vouching: HostVouching, by: PrincipalId, at: Timestamp) -> Self {
        Self { strength: channel.strength_with(vouching), ..Self::over(channel, by, at) }
    }
}

/// What phase 2 brings back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfirmInput {
    pub token: Option<String>,
    pub yes: Option<bool>,
    pub text: Option<String>,
}

impl ConfirmInput {
    /// Whether this is phase 2: a token was given, or yes said.
    pub fn is_phase_two(&self) -> bool {
        self.token.is_some() || self.yes == Some(true)
    }
}

/// A plan as the store holds it, found by a token that belongs to it.
#[derive(Clone, Debug, PartialEq)]
pub struct PendingPlan {
    pub plan: Plan,
    pub state: PlanState,
    pub approval: Option<Approval>,
    /// Until when the token that found it lives.
    pub token_expires: Timestamp,
    pub note: Option<String>,
    /// Why it ended, where nobody decided that.
    pub ended: Option<PlanEnd>,
    /// Until when the credential it was asked for with works, where it has an end.
    pub credential_expires: Option<Timestamp>,
}

/// Why a plan ended although nobody withdrew or rejected it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlanEnd {
    /// Its tool is not what was reviewed any more.
    ToolChanged,
    /// The credential it was asked for with was revoked.
    CredentialRevoked,
    /// The credential it was asked for with has expired.
    CredentialExpired,
}

impl PlanEnd {
    /// What is answered about a plan that ended so.
    pub fn refusal(self, plan: &str) -> Refusal {
        let cancelled = |why: &str, reason| {
            let message =
                format!("{plan} can't be approved or run: the credential it was asked for with {why}");
            Refusal::new(Code::PlanCancelled, message).because(reason)
        };
        match self {
            PlanEnd::ToolChanged => {
                let message = format!("the tool has changed since {plan} was shown; ask for a new plan");
                Refusal::new(Code::ConfirmTokenMismatch, message).because("tool_changed")
            }
            PlanEnd::CredentialRevoked => cancelled("was revoked", "credential_revoked"),
            PlanEnd::CredentialExpired => cancelled("has expired", "credential_expired"),
        }
    }
}

/// Who asks again, and for what.
#[derive(Clone, Copy, Debug)]
pub struct ConfirmingCall<'a> {
    pub principal: &'a PrincipalId,
    pub session: &'a SessionId,
    pub tool: &'a FullName,
    pub arguments: &'a Arguments,
}

/// The checks that need no rules, in order: `yes`, token present, token known and of this session, plan open, not expired.
pub fn check_token<'h>(
    confirm_input: &ConfirmInput,
    pending_plan: Option<&'h PendingPlan>,
    confirming: ConfirmingCall<'_>,
    now: Timestamp,
) -> Result<&'h PendingPlan, Refusal> {
    check_token_of(confirm_input, pending_plan, |plan| belongs_to(plan, confirming), now)
}

/// The same checks with another way to tell whose plan it is.
pub fn check_token_of<'h>(
    confirm_input: &ConfirmInput,
    pending_plan: Option<&'h PendingPlan>,
    belongs_to: impl Fn(&Plan) -> bool,
    now: Timestamp,
) -> Result<&'h PendingPlan, Refusal> {
    if confirm_input.yes != Some(true) {
        return Err(Refusal::new(Code::ConfirmRequired, "the confirm token needs `yes=true` beside it"));
    }
    if confirm_input.token.is_none() {
        return Err(Refusal::new(
            Code::ConfirmTokenRequired,
            "`yes=true` needs the confirm token of the plan that was shown",
        ));
    }
    // A foreign token and an unknown one get the same answer: otherwise a caller could find out which tokens exist.
    let pending_plan = pending_plan.filter(|pending_plan| belongs_to(&pending_plan.plan)).ok_or_else(|| {
        let message =
            "the confirm token is not for this call: tool, arguments and session must be those of the plan";
        Refusal::new(Code::ConfirmTokenMismatch, message)
    })?;
    check_open(pending_plan, now).map(|()| pending_plan)
}

/// Whether a plan belongs to this principal and session, and is for this tool and these arguments.
pub fn belongs_to(plan: &Plan, confirming: ConfirmingCall<'_>) -> bool {
    &plan.principal == confirming.principal
        && &plan.session == confirming.session
        && &plan.tool == confirming.tool
        && plan.has_arguments(confirming.arguments)
}

fn check_open(pending_plan: &PendingPlan, now: Timestamp) -> Result<(), Refusal> {
    let id = &pending_plan.plan.id;
    let expired =
        || Refusal::new(Code::ConfirmTokenExpired, format!("the confirm token of `{id}` has expired"));
    // Say that the plan ran before saying that it expired: after an expiry the agent would ask for the same change again.
    match pending_plan.state {
        PlanState::Executing | PlanState::Done | PlanState::Failed | PlanState::OutcomeUnknown => {
            let message = format!("`{id}` was run already; a token works once");
            return Err(Refusal::new(Code::ConfirmTokenUsed, message).with("plan_id", id.as_str()));
        }
        PlanState::Cancelled => {
            let cancelled = || Refusal::new(Code::PlanCancelled, format!("`{id}` was cancelled"));
            return Err(pending_plan.ended.map_or_else(cancelled, |end| end.refusal(id.as_str())));
        }
        PlanState::Rejected => {
            let mut refusal = Refusal::new(Code::ApprovalRejected, format!("`{id}` was rejected"));
            if let Some(note) = &pending_plan.note {
                refusal = refusal.with("note", note.as_str());
            }
            return Err(refusal);
        }
        PlanState::Expired => return Err(expired()),
        PlanState::Pending | PlanState::Approved => {}
    }
    let expired_with =
        pending_plan.credential_expires.filter(|at| now >= *at).map(|_| PlanEnd::CredentialExpired);
    if let Some(end) = pending_plan.ended.or(expired_with) {
        return Err(end.refusal(id.as_str()));
    }
    // A person approved until the plan's expiry, which the page showed. A token that lives longer does not extend that.
    if now < pending_plan.token_expires && now < pending_plan.plan.expires { Ok(()) } else { Err(expired()) }
}

/// Whether the agreement the plan needs is there: an approval of the store, or what the caller itself brings.
///
/// INVARIANT (agents never approve): the only strength made here is `caller`.
pub fn check_strength(
    pending_plan: &PendingPlan,
    confirm_input: &ConfirmInput,
    confirming: ConfirmingCall<'_>,
    now: Timestamp,
) -> Result<Approval, Refusal> {
    check_unblocked(&pending_plan.plan)?;
    let requirement = &pending_plan.plan.requirement;
    let approval = match &pending_plan.approval {
        // A stored approval included the typed text when it was given, so the text is not asked for again.
        Some(approval) if approval.strength >= requirement.strength => return Ok(approval.clone()),
        _ => Approval::over(RecordedChannel::Chat, confirming.principal.clone(), now),
    };
    if approval.strength < requirement.strength {
        let message = format!(
            "`{}` waits for an approval of strength `{}`",
            pending_plan.plan.id, requirement.strength
        );
        return Err(Refusal::new(Code::ApprovalPending, message)
            .with("plan_id", pending_plan.plan.id.as_str())
            .with("strength", requirement.strength.as_str()));
    }
    if requirement.kind == Kind::Type {
        check_typed(requirement, confirm_input.text.as_deref())?;
    }
    Ok(approval)
}

/// Whether the plan's own preview lets it be agreed to at all: what an upstream blocks nobody can wave through.
pub fn check_unblocked(plan: &Plan) -> Result<(), Refusal> {
    let blocks = crate::preview::blocks(plan);
    let Some(first) = blocks.first() else { return Ok(()) };
    let message = format!("`{}` can't be approved, its preview forbids it: {first}", plan.id);
    Err(Refusal::new(Code::PreviewFailed, message)
        .because("preview_blocked")
        .with("plan_id", plan.id.as_str())
        .with("blocks", blocks))
}

/// The same for the preview of one step, made when it was reached.
pub fn check_preview_unblocked(plan: &PlanId, preview: &Preview) -> Result<(), Refusal> {
    let blocks = crate::preview::ChangeView::of(preview).blocks;
    let Some(first) = blocks.first() else { return Ok(()) };
    let message = format!("a step of `{plan}` can't be run, its preview forbids it: {first}");
    Err(Refusal::new(Code::PreviewFailed, message)
        .because("preview_blocked")
        .with("plan_id", plan.as_str())
        .with("blocks", blocks))
}

/// Whether the typed text is the name, to the letter. Never echoes it.
pub fn check_typed(requirement: &ConfirmRequirement, typed: Option<&str>) -> Result<(), Refusal> {
    match (&requirement.typed, typed) {
        (Some(expect), Some(given)) if same(expect, given) => Ok(()),
        (_, None) => Err(Refusal::new(Code::ConfirmTextMismatch, "the name of the resource has to be typed")
            .because("confirm_text_required")),
        (_, Some(_)) => Err(Refusal::new(
            Code::ConfirmTextMismatch,
            "what was typed is not the name of the resource, to the letter",
        )),
    }
}

/// Compares in constant time: the time must not tell an agent how much of the name it guessed.
mod subtle_eq {
    pub(super) fn same(left: &str, right: &str) -> bool {
        left.len() == right.len()
            && left.bytes().zip(right.bytes()).fold(0u8, |differ, (a, b)| differ | (a ^ b)) == 0
    }
}
