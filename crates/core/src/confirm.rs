//! The second step: kinds of confirm, how strong an agreement is, and the order in which phase 2 is checked.
//! Decides nothing about storage: the last check, spending the token, is one statement in `store`.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use subtle_eq::same;

use crate::call::{Arguments, Vouching};
use crate::ids::{FullName, GrantId, PrincipalId, SessionId};
use crate::plan::Plan;
use crate::refusal::{Code, Refusal};
use crate::words::words;

words! {
    /// The kind of second step a call needs, weakest first.
    pub enum Kind("confirm") {
        /// Runs at once.
        None = "none",
        /// Yes or no.
        Simple = "simple",
        /// The preview was shown, then yes or no.
        Preview = "preview",
        /// The preview was shown and the resource's name typed.
        Type = "type",
    }
}

words! {
    /// Who has to have agreed, weakest first.
    pub enum Strength("strength") {
        /// The agent brought the token back.
        Caller = "caller",
        /// The host's user interface answered.
        Host = "host",
        /// A human credential.
        Human = "human",
    }
}

words! {
    /// How an agreement came.
    pub enum Rail("rail") {
        /// The agent re-issued the call with its token.
        Chat = "chat",
        /// The host's form.
        Elicitation = "elicitation",
        /// The card's button, with its nonce.
        Card = "card",
        /// The approvals page or its REST routes.
        Page = "page",
        /// `countersign approve`.
        Cli = "cli",
        /// A grant given ahead by a person.
        Grant = "grant",
    }
}

impl Rail {
    /// The most that an agreement over this rail is worth.
    pub const fn strength(self) -> Strength {
        match self {
            Rail::Chat => Strength::Caller,
            Rail::Elicitation | Rail::Card => Strength::Host,
            Rail::Page | Rail::Cli | Rail::Grant => Strength::Human,
        }
    }

    /// What an agreement over this rail is worth on a connection whose host may or may not vouch.
    pub fn strength_with(self, vouching: Vouching) -> Strength {
        match (self.strength(), vouching) {
            (Strength::Host, Vouching::Denied) => Strength::Caller,
            (most, Vouching::Allowed | Vouching::Denied) => most,
        }
    }
}

words! {
    /// Where a plan stands.
    pub enum PlanState("plan state") {
        /// Nobody has decided.
        Pending = "pending",
        /// Someone agreed; it has not run.
        Approved = "approved",
        /// Someone said no.
        Rejected = "rejected",
        /// The agent withdrew it, or its tool changed.
        Cancelled = "cancelled",
        /// Its time ran out.
        Expired = "expired",
        /// Its call is on the way.
        Executing = "executing",
        /// Its call succeeded.
        Done = "done",
        /// Its call failed.
        Failed = "failed",
        /// The gateway died in between: nobody knows.
        OutcomeUnknown = "outcome_unknown",
    }
}

/// What a call needs before it may run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Need {
    /// The kind of second step.
    pub kind: Kind,
    /// Who has to agree.
    pub strength: Strength,
    /// For [`Kind::Type`]: the text to be typed. Shown to people, never to agents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub typed: Option<String>,
}

impl Need {
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
    /// The person, host or agent that agreed.
    pub by: PrincipalId,
    /// How it came.
    pub rail: Rail,
    /// What it is worth.
    pub strength: Strength,
    /// The grant it rests on, where it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grant: Option<GrantId>,
    /// When.
    pub at: Timestamp,
    /// What the person wrote.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

impl Approval {
    /// An agreement over a rail, worth what the rail is worth.
    pub fn over(rail: Rail, by: PrincipalId, at: Timestamp) -> Self {
        Self { by, rail, strength: rail.strength(), grant: None, at, note: None }
    }

    /// An answer of a host's user interface. Without the right to vouch it is worth no more than the caller's own word.
    pub fn by_host(rail: Rail, vouching: Vouching, by: PrincipalId, at: Timestamp) -> Self {
        Self { strength: rail.strength_with(vouching), ..Self::over(rail, by, at) }
    }
}

/// What phase 2 brings back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Brought {
    /// `confirm_token`.
    pub token: Option<String>,
    /// `yes`.
    pub yes: Option<bool>,
    /// `confirm_text`.
    pub text: Option<String>,
}

impl Brought {
    /// Whether this is phase 2: a token was given, or yes said.
    pub fn is_phase_two(&self) -> bool {
        self.token.is_some() || self.yes == Some(true)
    }
}

/// A plan as the store holds it, found by a token that belongs to it.
#[derive(Clone, Debug, PartialEq)]
pub struct Held {
    /// The plan.
    pub plan: Plan,
    /// Where it stands.
    pub state: PlanState,
    /// Who agreed, if anyone.
    pub approval: Option<Approval>,
    /// Until when the token that found it lives.
    pub token_expires: Timestamp,
    /// What was written with a rejection.
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
pub struct Asker<'a> {
    /// The principal of the line.
    pub principal: &'a PrincipalId,
    /// The session of the line.
    pub session: &'a SessionId,
    /// The tool of this call.
    pub tool: &'a FullName,
    /// The arguments of this call.
    pub arguments: &'a Arguments,
}

/// The checks that need no rules: `yes`, token given, known and of this line, not spent, not closed, not expired.
pub fn check_token<'h>(
    brought: &Brought,
    held: Option<&'h Held>,
    asker: Asker<'_>,
    now: Timestamp,
) -> Result<&'h Held, Refusal> {
    check_token_of(brought, held, |plan| is_of(plan, asker), now)
}

/// The same checks with another way to tell whose plan it is.
pub fn check_token_of<'h>(
    brought: &Brought,
    held: Option<&'h Held>,
    is_of: impl Fn(&Plan) -> bool,
    now: Timestamp,
) -> Result<&'h Held, Refusal> {
    if brought.yes != Some(true) {
        return Err(Refusal::new(Code::ConfirmRequired, "the confirm token needs `yes=true` beside it"));
    }
    if brought.token.is_none() {
        return Err(Refusal::new(
            Code::ConfirmTokenRequired,
            "`yes=true` needs the confirm token of the plan that was shown",
        ));
    }
    // A foreign token and an unknown one look the same.
    let held = held.filter(|held| is_of(&held.plan)).ok_or_else(|| {
        let message =
            "the confirm token is not for this call: tool, arguments and session must be those of the plan";
        Refusal::new(Code::ConfirmTokenMismatch, message)
    })?;
    check_open(held, now).map(|()| held)
}

/// Whether a plan is of this line, tool and arguments.
pub fn is_of(plan: &Plan, asker: Asker<'_>) -> bool {
    &plan.principal == asker.principal
        && &plan.session == asker.session
        && &plan.tool == asker.tool
        && plan.has_arguments(asker.arguments)
}

fn check_open(held: &Held, now: Timestamp) -> Result<(), Refusal> {
    let id = &held.plan.id;
    let expired =
        || Refusal::new(Code::ConfirmTokenExpired, format!("the confirm token of `{id}` has expired"));
    match held.state {
        PlanState::Executing | PlanState::Done | PlanState::Failed | PlanState::OutcomeUnknown => {
            let message = format!("`{id}` was run already; a token works once");
            return Err(Refusal::new(Code::ConfirmTokenUsed, message).with("plan_id", id.as_str()));
        }
        PlanState::Cancelled => {
            let cancelled = || Refusal::new(Code::PlanCancelled, format!("`{id}` was cancelled"));
            return Err(held.ended.map_or_else(cancelled, |end| end.refusal(id.as_str())));
        }
        PlanState::Rejected => {
            let mut refusal = Refusal::new(Code::ApprovalRejected, format!("`{id}` was rejected"));
            if let Some(note) = &held.note {
                refusal = refusal.with("note", note.as_str());
            }
            return Err(refusal);
        }
        PlanState::Expired => return Err(expired()),
        PlanState::Pending | PlanState::Approved => {}
    }
    let expired_with = held.credential_expires.filter(|at| now >= *at).map(|_| PlanEnd::CredentialExpired);
    if let Some(end) = held.ended.or(expired_with) {
        return Err(end.refusal(id.as_str()));
    }
    // An approval ends at the plan's expiry, which the person saw, however long a token lives.
    if now < held.token_expires && now < held.plan.expires { Ok(()) } else { Err(expired()) }
}

/// Whether the agreement the plan needs is there: an approval of the store, or what the caller itself brings.
///
/// INVARIANT (agents never approve): the only strength made here is `caller`.
pub fn check_strength(
    held: &Held,
    brought: &Brought,
    asker: Asker<'_>,
    now: Timestamp,
) -> Result<Approval, Refusal> {
    check_unblocked(&held.plan)?;
    let need = &held.plan.need;
    let approval = match &held.approval {
        Some(approval) if approval.strength >= need.strength => return Ok(approval.clone()),
        _ => Approval::over(Rail::Chat, asker.principal.clone(), now),
    };
    if approval.strength < need.strength {
        let message = format!("`{}` waits for an approval of strength `{}`", held.plan.id, need.strength);
        return Err(Refusal::new(Code::ApprovalPending, message)
            .with("plan_id", held.plan.id.as_str())
            .with("strength", need.strength.as_str()));
    }
    if need.kind == Kind::Type {
        check_typed(need, brought.text.as_deref())?;
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

/// Whether the typed text is the name, to the letter. Never echoes it.
pub fn check_typed(need: &Need, typed: Option<&str>) -> Result<(), Refusal> {
    match (&need.typed, typed) {
        (Some(expect), Some(given)) if same(expect, given) => Ok(()),
        (_, None) => Err(Refusal::new(Code::ConfirmTextMismatch, "the name of the resource has to be typed")
            .because("confirm_text_required")),
        (_, Some(_)) => Err(Refusal::new(
            Code::ConfirmTextMismatch,
            "what was typed is not the name of the resource, to the letter",
        )),
    }
}

/// Comparison whose time tells nothing about where two texts differ.
mod subtle_eq {
    pub(super) fn same(left: &str, right: &str) -> bool {
        left.len() == right.len()
            && left.bytes().zip(right.bytes()).fold(0u8, |differ, (a, b)| differ | (a ^ b)) == 0
    }
}
