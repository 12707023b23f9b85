//! What `approve`, `reject` and `call` share: the question at the terminal, the rejection, and what is said when somebody else was
//! first. `gateway::approval` decides.

use countersign_gateway::approval::{ApprovalChannel, DecisionError, PlanDecider};
use countersign_policy::confirm::{ConfirmRequirement, Kind, PlanState, check_unblocked};
use countersign_policy::ids::FullName;
use countersign_policy::plan::Plan;
use countersign_policy::record::{RowKind, RowStatus};
use countersign_policy::refusal::{Code, Refusal};
use countersign_store::{DecideRefused, LedgerFilter, NotDecided, PauseOutcome, PlanRow, Store, StoreUrl};
use jiff::Timestamp;

use crate::command_result::{Answer, CommandError, CommandResult, Refused};
use crate::commands::plans::sheet;
use crate::output::{BAD, BOLD, OutputSettings, exact, paint, shown, visible};
use crate::person::Person;
use crate::person::ask::{self, PromptAnswer};
use crate::records;

/// What the person is asked: their own call may be dropped, somebody else's plan rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ApprovalQuestion {
    Approve,
    ApproveAndRun,
    OwnCall,
}

impl ApprovalQuestion {
    /// The question, as it says what an answer does.
    const fn words(self) -> &'static str {
        match self {
            Self::Approve => "Approve?",
            Self::ApproveAndRun | Self::OwnCall => "Approve and run?",
        }
    }
}

/// What the person at the terminal answered.
pub(crate) struct TerminalAnswer {
    pub(crate) said: PromptAnswer,
    /// The text as it was typed, where one has to be. Nothing has compared it yet.
    pub(crate) typed: Option<String>,
}

impl From<PromptAnswer> for TerminalAnswer {
    fn from(said: PromptAnswer) -> Self {
        Self { said, typed: None }
    }
}

/// Asks the person at the terminal: yes, no or reject, or the resource's name where it has to be typed.
pub(crate) fn ask(
    voice: OutputSettings,
    question: ApprovalQuestion,
    need: &ConfirmRequirement,
    tool: &FullName,
    typed_before: Option<&str>,
) -> TerminalAnswer {
    let (words, choices, otherwise): (&str, &[PromptAnswer], &str) = match question {
        ApprovalQuestion::Approve | ApprovalQuestion::ApproveAndRun => (
            "[yes/No/reject]",
            &[PromptAnswer::Yes, PromptAnswer::No, PromptAnswer::Reject],
            "an empty line leaves it pending",
        ),
        ApprovalQuestion::OwnCall => {
            ("[Yes/No]", &[PromptAnswer::Yes, PromptAnswer::No], "an empty line drops it")
        }
    };
    if need.kind != Kind::Type {
        return ask::decide(voice, &format!("{} {words}", question.words()), choices).into();
    }
    let typed = match typed_before {
        Some(typed) => Some(typed.to_owned()),
        None => {
            let name = need.typed.as_deref().unwrap_or_default();
            let name = paint(BOLD, visible(name));
            voice.tell(&format!("to go on, type {name} to the letter; {otherwise}\n"));
            ask::line(voice, &format!("{}:", need.prompt(tool))).filter(|typed| !typed.is_empty())
        }
    };
    match typed {
        Some(typed) => TerminalAnswer { said: PromptAnswer::Yes, typed: Some(typed) },
        None => PromptAnswer::No.into(),
    }
}

/// Off a terminal the name comes with a flag; without it nobody has confirmed anything.
pub(crate) fn check_text_given(plan: &Plan, typed: Option<&str>) -> Result<(), Box<Refused>> {
    if plan.requirement.kind != Kind::Type || typed.is_some() {
        return Ok(());
    }
    let message = "the name of the resource has to be given, to the letter: --confirm-text TEXT";
    let refusal = Refusal::new(Code::ConfirmRequired, message).with("plan_id", plan.id.as_str());
    Err(Box::new(Refused { next: Some(command(plan)), ..refusal.into() }))
}

/// Decides in the name of the person of this machine.
pub(crate) fn decider<'a>(store: &'a Store, person: &'a Person) -> PlanDecider<'a> {
    PlanDecider { store, channel: ApprovalChannel::CommandLine, by: &person.name, program: None }
}

/// What to type to approve a plan off a terminal.
pub(crate) fn command(plan: &Plan) -> String {
    let text = if plan.requirement.kind == Kind::Type { " --confirm-text TEXT" } else { "" };
    format!("countersign approve {} --yes{text}", plan.id)
}

pub(crate) async fn reject(
    store: &Store,
    url: &StoreUrl,
    row: &PlanRow,
    person: Person,
    note: Option<String>,
    voice: OutputSettings,
) -> CommandResult {
    let (plan, note) = (&row.plan, note.as_deref());
    let rejected =
        decider(store, &person).reject_plan(&plan.id, Some(plan.hash), note, Timestamp::now()).await;
    let decided = match rejected {
        Ok(decided) => decided,
        Err(error) => return Err(lost(store, url, row, error, voice).await),
    };
    let tool = decided.plan.tool.to_string();
    let text = format!(
        "{} {} {} as {}\n",
        paint(BAD, "rejected"),
        decided.plan.id,
        visible(&tool),
        visible(person.name.as_str())
    );
    let who = &decided.plan.principal;
    let mut answer = Answer::text(text)
        .with("plan_id", decided.plan.id.as_str())
        .with("state", PlanState::Rejected.as_str())
        .with("tool", tool)
        .with("by", person.name.as_str())
        .with("paused", decided.paused == PauseOutcome::Now)
        .with("ledger_id", decided.ledger_id.as_str());
    answer.warnings = person.warnings;
    if decided.paused == PauseOutcome::Now {
        answer.warnings.push(format!(
            "three rejections in ten minutes: writes of `{who}` are paused; to let them go on: countersign plans resume {who}"
        ));
    }
    Ok(answer)
}

/// A decision that came to nothing: the text was mistyped, somebody was faster, its time ran out, or the store is broken.
pub(crate) async fn lost(
    store: &Store,
    url: &StoreUrl,
    row: &PlanRow,
    error: DecisionError,
    voice: OutputSettings,
) -> CommandError {
    let is_mistyped = error.is_mistyped();
    let refused = match error {
        DecisionError::Input(refusal) if is_mistyped => {
            return CommandError::refused(refusal, "look at the name again, and type it");
        }
        DecisionError::Input(refusal) => {
            return CommandError::refused(refusal, format!("countersign plans show {}", row.plan.id));
        }
        DecisionError::Store(refused) => refused,
    };
    match refused {
        DecideRefused::Fault(fault) => records::trouble(&fault, url),
        DecideRefused::NotDecided(NotDecided::Expired | NotDecided::Decided(_)) => {
            let now = store.plan(&row.plan.id).await.ok().flatten();
            decided(store, url, now.as_ref().unwrap_or(row), voice).await
        }
        DecideRefused::NotDecided(why @ NotDecided::Blocked) => {
            let refusal = check_unblocked(&row.plan).err().unwrap_or_else(|| why.refusal());
            CommandError::refused(refusal, format!("countersign reject {}", row.plan.id))
        }
        DecideRefused::NotDecided(NotDecided::Ended(end)) => {
            let id = &row.plan.id;
            CommandError::refused(end.refusal(id.as_str()), format!("countersign plans show {id}"))
        }
        DecideRefused::NotDecided(why @ (NotDecided::ShownExpired | NotDecided::Changed)) => {
            CommandError::refused(why.refusal(), format!("countersign plans show {}", row.plan.id))
        }
        DecideRefused::NotDecided(why @ (NotDecided::Unknown | NotDecided::TooWeak)) => {
            CommandError::refused(why.refusal(), "countersign plans list")
        }
    }
}

pub(crate) async fn decided(
    store: &Store,
    url: &StoreUrl,
    row: &PlanRow,
    voice: OutputSettings,
) -> CommandError {
    let now = Timestamp::now();
    let (id, state, zone) = (&row.plan.id, sheet::state(row, now), sheet::zone(voice, now));
    let show = format!("countersign plans show {id}");
    if state == PlanState::Expired {
        let message = format!("the time of `{id}` ran out at {}", shown(row.plan.expires, &zone));
        let refusal = Refusal::new(Code::PlanDecided, message).because("plan_expired");
        return CommandError::refused(refusal.with("state", state.as_str()), show);
    }
    let by = match decided_by(store, row).await {
        Ok(by) => by,
        Err(fault) => return records::trouble(&fault, url),
    };
    let answered = match (&row.approval, state) {
        (Some(_), PlanState::Approved) | (None, _) => String::new(),
        (Some(_), _) => format!(", and it is {state}"),
    };
    let verb = if row.approval.is_some() { "approved" } else { state.as_str() };
    let who = by.as_ref().map(|by| format!(" by {}", visible(by))).unwrap_or_default();
    let when = row.decided.or(row.ended).map(|at| format!(" at {}", shown(at, &zone))).unwrap_or_default();
    let message = format!("`{id}` was {verb}{who}{when} already{answered}");
    let mut refusal = Refusal::new(Code::PlanDecided, message).with("state", state.as_str());
    if let Some(by) = by {
        refusal = refusal.with("decided_by", by);
    }
    if let Some(at) = row.decided {
        refusal = refusal.with("decided_at", exact(at));
    }
    CommandError::refused(refusal, show)
}

/// Who decided: the approval says, or the ledger does.
async fn decided_by(store: &Store, row: &PlanRow) -> Result<Option<String>, countersign_store::StoreFault> {
    if let Some(approval) = &row.approval {
        return Ok(Some(approval.by.to_string()));
    }
    for kind in [RowKind::Approval, RowKind::Decision] {
        let filter = LedgerFilter {
            kind: Some(kind),
            plan_id: Some(row.plan.id.clone()),
            // A mistyped text or a host's automatic answer is an approval row, too, and decided nothing.
            status: Some(RowStatus::Success),
            limit: Some(1),
            ..LedgerFilter::default()
        };
        let found = store.activity(filter).await?.rows.into_iter().next().and_then(|row| row.entry.principal);
        if let Some(found) = found {
            return Ok(Some(found.to_string()));
        }
    }
    Ok(None)
}
