//! `memory approve` and `memory reject`: a person decides what is true. Every text is shown before one question is asked for
//! all; each decision is its own transaction, with its own audit row.

use clap::Args;
use countersign_memory::inbox::{self, ProposalDecision, ProposalReview};
use countersign_policy::memory::ProposalStatus;
use countersign_policy::refusal::{Code, NextAction, Refusal};
use countersign_store::memory::ProposalQuery;
use countersign_store::{Store, StoreUrl};
use countersign_terminal::command_result::{Answer, CommandError, CommandResult, Refused};
use countersign_terminal::output::{BAD, Format, GOOD, OutputSettings, paint, plural, visible, zone};
use countersign_terminal::person::ask::{self, PromptAnswer};
use countersign_terminal::{person, records};
use jiff::Timestamp;
use serde_json::{Map, Value};

use crate::{actor, command_error, list, open_memory, sheet};

/// Shown under the help.
pub(crate) const APPROVE_EXAMPLES: &str = "Examples:
  countersign memory approve prop_01KA4Z7Q3V9M5T2X8R6W0YPROP --yes
  countersign memory approve 0YWORD --yes --content 'Releases are signed'
  countersign memory approve 0YBVLK 0YMORE --yes --note 'as agreed'";
/// Shown under the help.
pub(crate) const REJECT_EXAMPLES: &str = "Examples:
  countersign memory reject prop_01KA4Z7Q3V9M5T2X8R6W0YREJE
  countersign memory reject 0YNOPE --note 'not what we agreed on'";

/// What `memory approve` takes.
#[derive(Args, Debug)]
pub(crate) struct MemoryApproveArgs {
    /// Ids of proposals, or at least 6 characters of their beginnings or ends
    #[arg(required_unless_present = "all")]
    ids: Vec<String>,

    /// Everything that waits
    #[arg(long, conflicts_with = "ids")]
    all: bool,

    /// Approve without being asked; needed off a terminal
    #[arg(long)]
    yes: bool,

    /// The text to approve instead of the proposed one; both are kept
    #[arg(long, value_name = "TEXT", conflicts_with = "all")]
    content: Option<String>,

    /// What to keep with the decision
    #[arg(long, value_name = "TEXT")]
    note: Option<String>,
}

/// What `memory reject` takes.
#[derive(Args, Debug)]
pub(crate) struct MemoryRejectArgs {
    /// Ids of proposals, or at least 6 characters of their beginnings or ends
    #[arg(required = true)]
    ids: Vec<String>,

    /// The reason, shown to an agent that proposes the same again
    #[arg(long, value_name = "TEXT")]
    note: Option<String>,
}

/// What is decided about all of them.
#[derive(Clone, Copy)]
enum ReviewDecision {
    Approve,
    Reject,
}

/// Shows them, asks, and decides.
pub(crate) fn approve(args: &MemoryApproveArgs, url: &StoreUrl, voice: OutputSettings) -> CommandResult {
    if args.content.is_some() && args.ids.len() != 1 {
        let message = "--content goes with one proposal";
        return Err(CommandError::usage(
            "invalid_value",
            message,
            "countersign memory approve ID --content TEXT",
        ));
    }
    records::with(url, async |store| {
        let now = Timestamp::now();
        let reviews = meant(&store, url, &args.ids, now).await?;
        let shown = sheets(&reviews, voice, now);
        let asks = !args.yes && ask::can_ask(voice);
        if !args.yes && !asks {
            return Err(nobody_to_ask(args, &reviews, shown));
        }
        if voice.format == Format::Text {
            voice.tell(&shown);
        }
        let person = person::prove(&store, url, voice).await?;
        let mut word = ReviewDecision::Approve;
        if asks {
            let what = plural(reviews.len(), "proposal");
            let question = format!("Approve {what}? [yes/No/reject]");
            match ask::decide(voice, &question, &[PromptAnswer::Yes, PromptAnswer::No, PromptAnswer::Reject])
            {
                PromptAnswer::Yes => {}
                PromptAnswer::Reject => word = ReviewDecision::Reject,
                PromptAnswer::No => {
                    let refusal =
                        Refusal::new(Code::ConfirmRequired, "nothing was decided; they stay pending");
                    return Err(CommandError::refused(refusal, "countersign memory list --status pending"));
                }
            }
        }
        let said = DecisionInput { word, content: args.content.as_deref(), note: args.note.as_deref() };
        decide(&store, &reviews, said, person).await
    })
}

/// Shows them and says no.
pub(crate) fn reject(args: &MemoryRejectArgs, url: &StoreUrl, voice: OutputSettings) -> CommandResult {
    records::with(url, async |store| {
        let now = Timestamp::now();
        let reviews = meant(&store, url, &args.ids, now).await?;
        if voice.format == Format::Text {
            voice.tell(&sheets(&reviews, voice, now));
        }
        let person = person::prove(&store, url, voice).await?;
        let said = DecisionInput { word: ReviewDecision::Reject, content: None, note: args.note.as_deref() };
        decide(&store, &reviews, said, person).await
    })
}

/// The proposals that are meant, each once; without ids, all that wait.
async fn meant(
    store: &Store,
    url: &StoreUrl,
    ids: &[String],
    now: Timestamp,
) -> Result<Vec<ProposalReview>, CommandError> {
    let mut all = Vec::new();
    if ids.is_empty() {
        let query =
            ProposalQuery { status: Some(ProposalStatus::Pending), limit: 1000, ..ProposalQuery::default() };
        all = store.proposals(query, now).await.map_err(|fault| records::trouble(&fault, url))?;
        // In the order they came.
        all.reverse();
        if all.is_empty() {
            let refusal = Refusal::new(Code::NotFound, "no proposal waits for a decision");
            return Err(CommandError::refused(refusal, "countersign memory list"));
        }
    }
    for id in ids {
        let found = list::find(store, url, id, now).await?;
        if !all.iter().any(|one| one.id == found.id) {
            all.push(found);
        }
    }
    let memory = open_memory(store);
    let mut reviews = Vec::new();
    for proposal in all {
        reviews.push(inbox::review(&memory, proposal).await.map_err(|stop| command_error(stop, ""))?);
    }
    Ok(reviews)
}

fn sheets(reviews: &[ProposalReview], voice: OutputSettings, now: Timestamp) -> String {
    let zone = zone(voice, now);
    reviews.iter().map(|one| format!("{}\n", sheet::review(one, &zone, now))).collect()
}

fn nobody_to_ask(args: &MemoryApproveArgs, reviews: &[ProposalReview], shown: String) -> CommandError {
    let refusal = Refusal::new(Code::ConfirmRequired, "nobody can be asked here: this is no terminal")
        .next(&[NextAction::AskPerson, NextAction::RetryWithYes]);
    let mut refused = Refused::from(refusal);
    refused.findings = shown;
    refused.data.insert("proposals".into(), reviews.iter().map(inbox::json).collect::<Vec<_>>().into());
    let ids: Vec<&str> = reviews.iter().map(|one| one.proposal.id.as_str()).collect();
    let what = if args.all { "--all".to_owned() } else { ids.join(" ") };
    refused.next = Some(format!("countersign memory approve {what} --yes"));
    refused.into()
}

/// What a person says about all of them.
struct DecisionInput<'a> {
    word: ReviewDecision,
    content: Option<&'a str>,
    note: Option<&'a str>,
}

async fn decide(
    store: &Store,
    reviews: &[ProposalReview],
    said: DecisionInput<'_>,
    person: person::Person,
) -> CommandResult {
    let (memory, actor) = (open_memory(store), actor(&person));
    let mut answer = Answer { warnings: person.warnings, ..Answer::default() };
    let mut decided: Vec<Value> = Vec::new();
    let mut refused: Option<Refusal> = None;
    for review in reviews {
        let id = &review.proposal.id;
        let decision = match said.word {
            ReviewDecision::Approve => ProposalDecision::Approve(said.content),
            ReviewDecision::Reject => ProposalDecision::Reject,
        };
        match inbox::decide(&memory, id, decision, said.note, &actor, Timestamp::now()).await {
            Ok(reply) => {
                let line = match (said.word, reply.data.get("id").and_then(Value::as_str)) {
                    (ReviewDecision::Approve, record) => {
                        format!("{} {id} is {}", paint(GOOD, "approved"), record.unwrap_or_default())
                    }
                    (ReviewDecision::Reject, _) => format!("{} {id}", paint(BAD, "rejected")),
                };
                answer.text.push_str(&format!("{line} as {}\n", visible(person.name.as_str())));
                decided.push(Value::Object(reply.data));
            }
            Err(stop) => {
                answer.warnings.push(format!("{id}: {}", stop.0.message));
                refused.get_or_insert(*stop.0);
            }
        }
    }
    match refused {
        Some(refusal) if decided.is_empty() => Err(CommandError::refused(refusal, "countersign memory list")),
        // Some were decided: that stands, and the others are named.
        Some(refusal) => {
            let mut refused = Refused::from(refusal);
            refused.findings = answer.text;
            refused.warnings = answer.warnings;
            refused.data.insert("decided".into(), decided.into());
            Err(refused.into())
        }
        None => {
            let mut data = match decided.as_slice() {
                [Value::Object(only)] => only.clone(),
                _ => Map::new(),
            };
            data.insert("decided".into(), decided.into());
            answer.data = data;
            Ok(answer)
        }
    }
}
