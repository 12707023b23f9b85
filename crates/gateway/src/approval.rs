//! The one place that approves or rejects a plan and gives grants. Every channel (approvals page, REST, command line, card,
//! elicitation) passes who answered, the plan as it was shown and what was typed. Works on a `Store` alone, so that the command
//! line decides without a running gateway. Does not prove who answered, and runs nothing: both are the channel's part.

pub mod grants;

use std::sync::Arc;

use countersign_policy::call::HostVouching;
use countersign_policy::confirm::{Approval, Kind, RecordedChannel, check_typed};
use countersign_policy::digest::Digest;
use countersign_policy::ids::{LedgerId, PlanId, PrincipalId};
use countersign_policy::plan::Plan;
use countersign_policy::record::{ActorRole, HostInfo, RowKind, RowStatus, Source};
use countersign_policy::refusal::{Code, Refusal};
use countersign_store::{
    DecideRefused, DecidedPlan, DecisionOrigin, Entry, NotDecided, ShownPlan, Store, StoreFault,
};
use jiff::Timestamp;

use crate::pipeline::request::invalid;

const LONGEST_NOTE: usize = 4000;

/// Where a decision was made. It fixes the channel, the source in the audit log, and the strength of an approval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApprovalChannel {
    /// The approvals page, by a person who signed in.
    Page,
    /// REST, with a human credential.
    Rest,
    /// `countersign approve`, `reject` or `call`, with a human credential.
    CommandLine,
    /// The button of a card, on a connection whose host may or may not vouch.
    Card(HostVouching),
    /// The host's own dialog, on such a connection.
    Elicitation(HostVouching),
}

impl ApprovalChannel {
    const fn recorded(self) -> RecordedChannel {
        match self {
            Self::Page | Self::Rest => RecordedChannel::Page,
            Self::CommandLine => RecordedChannel::Cli,
            Self::Card(_) => RecordedChannel::Card,
            Self::Elicitation(_) => RecordedChannel::Elicitation,
        }
    }

    const fn source(self) -> Source {
        match self {
            Self::Page => Source::Page,
            Self::Rest => Source::Api,
            Self::CommandLine => Source::Cli,
            Self::Card(_) | Self::Elicitation(_) => Source::Mcp,
        }
    }

    const fn role(self) -> ActorRole {
        match self {
            Self::Page | Self::Rest | Self::CommandLine => ActorRole::Human,
            Self::Card(_) | Self::Elicitation(_) => ActorRole::Host,
        }
    }

    fn approval(self, by: PrincipalId, now: Timestamp) -> Approval {
        match self {
            Self::Page | Self::Rest | Self::CommandLine => Approval::over(self.recorded(), by, now),
            Self::Card(vouching) | Self::Elicitation(vouching) => {
                Approval::by_host(self.recorded(), vouching, by, now)
            }
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub struct ApprovalInput<'a> {
    /// The plan as it was shown: another hash is not approved, and the approval ends at this expiry.
    pub shown: ShownPlan,
    /// The text that was typed, where the plan asks for one.
    pub typed: Option<&'a str>,
    pub note: Option<&'a str>,
}

impl ApprovalInput<'_> {
    /// The input of a channel that only shows the plan.
    pub fn of(shown: ShownPlan) -> Self {
        Self { shown, typed: None, note: None }
    }
}

#[derive(Clone, Debug)]
pub struct ApprovedPlan {
    pub plan: Plan,
    pub approval: Approval,
    pub ledger_id: LedgerId,
}

#[derive(Clone, Debug)]
pub enum DecisionError {
    /// What the channel passed is refused: another plan was shown, the text is mistyped, the note is too long.
    Input(Refusal),
    /// The plan can't be decided any more or not from this channel, or the store failed.
    Store(DecideRefused),
}

impl DecisionError {
    pub fn refusal(&self) -> Refusal {
        match self {
            Self::Input(refusal) => refusal.clone(),
            Self::Store(refused) => refused.refusal(),
        }
    }

    /// Whether the confirmation text was mistyped or missing.
    pub fn is_mistyped(&self) -> bool {
        matches!(self, Self::Input(refusal) if refusal.code == Code::ConfirmTextMismatch)
    }
}

impl From<Refusal> for DecisionError {
    fn from(refusal: Refusal) -> Self {
        Self::Input(refusal)
    }
}

impl From<DecideRefused> for DecisionError {
    fn from(refused: DecideRefused) -> Self {
        Self::Store(refused)
    }
}

impl From<StoreFault> for DecisionError {
    fn from(fault: StoreFault) -> Self {
        Self::Store(DecideRefused::Fault(fault))
    }
}

/// Decides plans in one person's or host's name, over one channel.
#[derive(Clone, Copy)]
pub struct PlanDecider<'a> {
    pub store: &'a Store,
    pub channel: ApprovalChannel,
    /// Who gave it. The channel has proved that.
    pub by: &'a PrincipalId,
    /// The host program on the other end, where a connection answered.
    pub program: Option<&'a Arc<HostInfo>>,
}

impl PlanDecider<'_> {
    /// Approves a plan as it was shown. A mistyped text is recorded and decides nothing.
    pub async fn approve_plan(
        &self,
        id: &PlanId,
        input: ApprovalInput<'_>,
        now: Timestamp,
    ) -> Result<ApprovedPlan, DecisionError> {
        check_note(input.note)?;
        // Read here and not taken from the channel: what has to be typed is what the store says, whatever was shown.
        let row = self.store.plan(id).await?;
        let plan = row.ok_or(DecideRefused::NotDecided(NotDecided::Unknown))?.plan;
        check_shown(&plan, input.shown.hash)?;
        if plan.requirement.kind == Kind::Type {
            self.check_text(&plan, input.typed, now).await?;
        }
        let mut approval = self.channel.approval(self.by.clone(), now);
        approval.note = input.note.map(str::to_owned);
        // The statement compares the hash again: the plan may have changed since it was read above.
        let DecidedPlan { plan, ledger_id, .. } =
            self.store.approve_shown(id, Some(input.shown), approval.clone(), self.origin(), now).await?;
        Ok(ApprovedPlan { plan, approval, ledger_id })
    }

    /// Rejects a plan: the one with the hash that was shown, where the channel shows one.
    pub async fn reject_plan(
        &self,
        id: &PlanId,
        shown: Option<Digest>,
        note: Option<&str>,
        now: Timestamp,
    ) -> Result<DecidedPlan, DecisionError> {
        check_note(note)?;
        // Not compared again by the statement below: a plan that changes in between is rejected, and nothing runs.
        if let Some(hash) = shown {
            let row = self.store.plan(id).await?;
            check_shown(&row.ok_or(DecideRefused::NotDecided(NotDecided::Unknown))?.plan, hash)?;
        }
        let (by, note) = (self.by.clone(), note.map(str::to_owned));
        Ok(self.store.reject_from(id, by, self.channel.recorded(), self.origin(), note, now).await?)
    }

    fn origin(&self) -> DecisionOrigin {
        DecisionOrigin { source: Some(self.channel.source()), host: self.program.cloned() }
    }

    async fn check_text(
        &self,
        plan: &Plan,
        typed: Option<&str>,
        now: Timestamp,
    ) -> Result<(), DecisionError> {
        // A host's button or dialog has no field for a text, and its answer is not a person's.
        if self.channel.role() != ActorRole::Human {
            let message =
                format!("`{}` is confirmed by typing a name, on the desk or the command line", plan.id);
            let refusal = Refusal::new(Code::ApprovalPending, message).with("plan_id", plan.id.as_str());
            return Err(refusal.into());
        }
        let Err(refusal) = check_typed(&plan.requirement, typed) else { return Ok(()) };
        self.record_mistyped(plan, &refusal, now).await?;
        Err(refusal.into())
    }

    /// Records that the text was mistyped, but not what was typed: it may be a secret typed into the wrong field.
    async fn record_mistyped(
        &self,
        plan: &Plan,
        refusal: &Refusal,
        now: Timestamp,
    ) -> Result<(), StoreFault> {
        let mut entry = Entry::new(RowKind::Approval, RowStatus::Refused)
            .with_fact("action", "approve")
            .with_fact("entity_type", "plan")
            .with_fact("entity_id", plan.id.as_str());
        entry.principal = Some(self.by.clone());
        entry.role = Some(self.channel.role());
        entry.source = Some(self.channel.source());
        entry.set_host(self.program);
        entry.upstream = Some(plan.tool.upstream.clone());
        entry.tool = Some(plan.tool.tool.clone());
        entry.plan_id = Some(plan.id.clone());
        entry.plan_hash = Some(plan.hash);
        entry.code = Some(refusal.code.as_str().into());
        self.store.append(entry, now).await.map(drop)
    }
}

/// Refuses to go on with a plan that is not the one that was shown.
pub fn check_shown(plan: &Plan, hash: Digest) -> Result<(), Refusal> {
    if hash == plan.hash {
        return Ok(());
    }
    let message = format!("`{}` is not the plan that was looked at: it was changed since", plan.id);
    Err(Refusal::new(Code::PlanDecided, message).because("plan_changed").with("plan_hash", plan.hash.hex()))
}

/// Refuses a note that is too long to keep.
pub fn check_note(note: Option<&str>) -> Result<(), Refusal> {
    match note {
        Some(note) if note.chars().count() > LONGEST_NOTE => {
            Err(invalid("note", format_args!("is longer than {LONGEST_NOTE} characters")))
        }
        Some(_) | None => Ok(()),
    }
}
