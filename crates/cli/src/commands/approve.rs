//! `countersign approve`: shows a plan to a person, whole, and passes their answer to `gateway::approval`.

pub(crate) mod decide;
mod grant_args;
mod run_plan;

use clap::Args;
use clap_complete::ArgValueCandidates;
use countersign_gateway::approval::{ApprovalInput, ApprovedPlan};
use countersign_policy::confirm::PlanState;
use countersign_policy::redact::Redactor;
use countersign_policy::refusal::{Code, NextAction, Refusal};
use countersign_store::{PlanRow, Store, StoreUrl};
use jiff::Timestamp;

use crate::cli::Cli;
use crate::command_result::{Answer, CommandError, CommandResult, Refused};
use crate::commands::approve::decide::{ApprovalQuestion, TerminalAnswer};
use crate::commands::completions::candidates;
use crate::commands::plans::{find, sheet};
use crate::local_gateway::StoreArgs;
use crate::output::{DIM, Format, GOOD, OutputSettings, paint, visible};
use crate::person::ask::PromptAnswer;
use crate::person::{self, Person, ask};
use crate::records;

pub(crate) const EXAMPLES: &str = "Examples:
  countersign approve pln_01KA4Z7Q3V9M5T2X8R6W0YPQRS --yes
  countersign approve 0YTYPE --yes --confirm-text acme/site
  countersign approve 0YGRNT --yes --grant --uses 5 --expires 2h --any title";

#[derive(Args, Debug)]
pub(crate) struct Approve {
    #[command(flatten)]
    of: StoreArgs,

    /// The plan's id, as lists show it or in full; at least 5 characters of its beginning or end
    #[arg(add = ArgValueCandidates::new(candidates::pending_plans))]
    id: String,

    /// Approve without being asked; needed off a terminal
    #[arg(long)]
    yes: bool,

    /// The text to type, where the plan asks for one; needed off a terminal
    #[arg(long, value_name = "TEXT")]
    confirm_text: Option<String>,

    /// A note to keep with the approval
    #[arg(long, value_name = "TEXT")]
    note: Option<String>,

    /// Run it at once, unless the agent's own call still waits and does
    #[arg(long)]
    run: bool,

    #[command(flatten)]
    ahead: grant_args::ApproveGrantArgs,
}

pub(crate) fn run(args: &Approve, cli: &Cli, voice: OutputSettings) -> CommandResult {
    let url = args.of.url(cli)?;
    let outcome = records::with(&url, async |store| match approve(args, &store, &url, voice).await? {
        ApproveOutcome::Approved(approved) if args.run && approved.is_held => {
            // The agent's own call runs it. Where that call is gone after all, it is run from here.
            let row = run_plan::await_held_call(&store, &url, &approved.row.plan.id).await?;
            Ok(ApproveOutcome::Approved(Box::new(ApprovedAnswer { row, ..*approved })))
        }
        outcome @ (ApproveOutcome::Approved(_) | ApproveOutcome::Rejected(_)) => Ok(outcome),
    })?;
    match outcome {
        ApproveOutcome::Rejected(answer) => Ok(answer),
        ApproveOutcome::Approved(approved) if args.run => run_plan::run(*approved, &url, cli, voice),
        ApproveOutcome::Approved(approved) => Ok(approved.answer),
    }
}

/// What the person decided.
enum ApproveOutcome {
    Approved(Box<ApprovedAnswer>),
    Rejected(Answer),
}

struct ApprovedAnswer {
    answer: Answer,
    row: PlanRow,
    /// Whether the agent's own call waited for the decision.
    is_held: bool,
}

async fn approve(
    args: &Approve,
    store: &Store,
    url: &StoreUrl,
    voice: OutputSettings,
) -> Result<ApproveOutcome, CommandError> {
    let row = find::plan(store, url, &args.id).await?;
    let (now, redactor) = (Timestamp::now(), Redactor::new(store.salt()));
    let state = sheet::state(&row, now);
    if state == PlanState::Approved && args.run {
        return approved_before(store, url, row, voice).await;
    }
    if state != PlanState::Pending {
        return Err(decide::decided(store, url, &row, voice).await);
    }
    args.ahead.check(&row.plan)?;
    let shown = sheet::sheet(&row, &redactor, &sheet::zone(voice, now), now);
    let asks = !args.yes && ask::can_ask(voice);
    if !asks && let Err(mut refused) = check_flags(args, &row, &shown, voice) {
        refused.data.insert("plan".into(), sheet::json(&row, &redactor, now));
        return Err(CommandError::Refused(refused));
    }
    let person = person::prove(store, url, voice).await?;
    let mut typed = args.confirm_text.clone();
    if asks {
        voice.tell(&format!("{shown}\n"));
        let question = if args.run { ApprovalQuestion::ApproveAndRun } else { ApprovalQuestion::Approve };
        let TerminalAnswer { said, typed: typed_now } =
            decide::ask(voice, question, &row.plan.requirement, &row.plan.tool, typed.as_deref());
        match said {
            PromptAnswer::Yes => typed = typed_now,
            PromptAnswer::Reject => {
                let rejected = decide::reject(store, url, &row, person, args.note.clone(), voice).await;
                return rejected.map(ApproveOutcome::Rejected);
            }
            PromptAnswer::No => {
                let message = format!("`{}` was not approved; it stays pending", row.plan.id);
                let next = format!("countersign approve {0}, or countersign reject {0}", row.plan.id);
                return Err(CommandError::refused(Refusal::new(Code::ConfirmRequired, message), next));
            }
        }
    }
    let (shown, note) = ((&row.plan).into(), args.note.as_deref());
    let input = ApprovalInput { shown, typed: typed.as_deref(), note };
    let decided_at = Timestamp::now();
    let decided = match decide::decider(store, &person).approve_plan(&row.plan.id, input, decided_at).await {
        Ok(decided) => decided,
        Err(error) => {
            let is_mistyped = error.is_mistyped();
            let mut trouble = decide::lost(store, url, &row, error, voice).await;
            if let CommandError::Refused(refused) = &mut trouble
                && is_mistyped
            {
                refused.warnings = person.warnings;
                refused.data.insert("plan".into(), sheet::json(&row, &redactor, now));
            }
            return Err(trouble);
        }
    };
    let is_held = row.is_held_open(decided_at);
    let answer = answer(args, store, url, &row, person, decided).await?;
    let answer = answer.with("call_waits", is_held);
    Ok(ApproveOutcome::Approved(Box::new(ApprovedAnswer { answer, row, is_held })))
}

/// A plan that was approved before and is to run now. The person has to prove who they are here, too.
async fn approved_before(
    store: &Store,
    url: &StoreUrl,
    row: PlanRow,
    voice: OutputSettings,
) -> Result<ApproveOutcome, CommandError> {
    let person = person::prove(store, url, voice).await?;
    let by = row.approval.as_ref().map(|approval| approval.by.to_string()).unwrap_or_default();
    let text = format!("{} was approved by {}\n", row.plan.id, visible(&by));
    let mut answer = Answer::text(text).with("plan_id", row.plan.id.as_str());
    answer.warnings = person.warnings;
    Ok(ApproveOutcome::Approved(Box::new(ApprovedAnswer { answer, row, is_held: false })))
}

/// Says what was approved, and gives the grant that was asked for with it.
async fn answer(
    args: &Approve,
    store: &Store,
    url: &StoreUrl,
    row: &PlanRow,
    person: Person,
    decided: ApprovedPlan,
) -> CommandResult {
    let mut text = format!(
        "{} {} {} as {}\n",
        paint(GOOD, "approved"),
        decided.plan.id,
        visible(&decided.plan.tool.to_string()),
        visible(person.name.as_str())
    );
    if !args.run {
        text.push_str(&format!("{}\n", paint(DIM, what_follows(row))));
    }
    let mut answer = Answer::default()
        .with("plan_id", row.plan.id.as_str())
        .with("state", PlanState::Approved.as_str())
        .with("tool", row.plan.tool.to_string())
        .with("plan_hash", row.plan.hash.hex())
        .with("approval", serde_json::to_value(&decided.approval).unwrap_or_default())
        .with("ledger_id", decided.ledger_id.as_str());
    answer.warnings = person.warnings;
    if let Some(granted) = args.ahead.give(store, url, &row.plan, &person.name).await? {
        text.push_str(&granted.text);
        answer.warnings.extend(granted.warnings);
        answer = answer.with("grant", granted.json);
    }
    answer.text = text;
    Ok(answer)
}

/// What becomes of a plan that was just approved.
pub(crate) fn what_follows(row: &PlanRow) -> String {
    if row.is_held_open(Timestamp::now()) {
        return "the agent's call still waits and runs it now".to_owned();
    }
    format!(
        "the agent's call no longer waits: it runs when the agent asks again, or now with countersign approve {} --run",
        find::short_id(row.plan.id.as_str())
    )
}

/// Off a terminal the flags have to say everything a person would be asked.
fn check_flags(
    args: &Approve,
    row: &PlanRow,
    shown: &str,
    voice: OutputSettings,
) -> Result<(), Box<Refused>> {
    if args.yes {
        if voice.format == Format::Text {
            voice.tell(&format!("{shown}\n"));
        }
        return decide::check_text_given(&row.plan, args.confirm_text.as_deref());
    }
    let refusal = Refusal::new(Code::ConfirmRequired, "nobody can be asked here: this is no terminal")
        .next(&[NextAction::AskPerson, NextAction::RetryWithYes])
        .with("plan_id", row.plan.id.as_str());
    let mut refused = Refused::from(refusal);
    refused.findings = shown.to_owned();
    refused.next = Some(decide::command(&row.plan));
    Err(Box::new(refused))
}
