//! `countersign tools approve`: a person accepts a definition after looking at it; exactly that one, whatever the upstream
//! says meanwhile.

use clap::Args;
use clap_complete::ArgValueCandidates;
use countersign_policy::ids::{FullName, UpstreamId};
use countersign_policy::refusal::{Code, NextAction, Refusal};
use countersign_store::{DefinitionAcceptance, Store, StoreUrl, ToolPin};
use jiff::Timestamp;
use serde_json::json;

use super::diff;
use crate::command_result::{Answer, CommandError, CommandResult, Refused};
use crate::commands::completions::candidates;
use crate::output::{DIM, Format, GOOD, OutputSettings, paint, plural, visible};
use crate::person::{self, ask};
use crate::records;

pub(crate) const EXAMPLES: &str = "Examples:
  countersign tools approve github:delete_repo
  countersign tools approve --all github --known --yes
  countersign tools approve --all github --yes";

#[derive(Args, Debug)]
pub(crate) struct Approve {
    /// The tool's full name
    #[arg(value_name = "UPSTREAM:TOOL", required_unless_present = "all", add = ArgValueCandidates::new(candidates::tool_names))]
    tool: Option<FullName>,

    /// Every tool of this upstream that waits
    #[arg(long, value_name = "UPSTREAM", conflicts_with = "tool")]
    all: Option<String>,

    /// Accept every definition that was accepted before, as a set: the tool may flip between them
    #[arg(long)]
    known: bool,

    /// Accept this one definition and end the set
    #[arg(long, conflicts_with_all = ["known", "all"])]
    only: bool,

    /// Accept without being asked; needed off a terminal
    #[arg(long)]
    yes: bool,
}

impl Approve {
    /// What was named, as it is typed.
    fn named(&self) -> String {
        let how = match (self.known, self.only) {
            (true, _) => " --known",
            (false, true) => " --only",
            (false, false) => "",
        };
        match (&self.tool, &self.all) {
            (Some(name), _) => format!("{name}{how}"),
            (None, all) => format!("--all {}{how}", all.as_deref().unwrap_or_default()),
        }
    }

    /// What is accepted of a tool as it was shown.
    fn acceptance(&self, pin: &ToolPin) -> DefinitionAcceptance {
        match (self.known, self.only) {
            (true, _) => {
                let offered = pin.offered_set().iter();
                DefinitionAcceptance::Known(offered.map(|known| known.definition.fingerprint).collect())
            }
            (false, true) => DefinitionAcceptance::Only(diff::looked_at(pin)),
            (false, false) => DefinitionAcceptance::Waiting(diff::looked_at(pin)),
        }
    }

    /// What a person has to look at.
    fn story(&self, pin: &ToolPin, voice: OutputSettings) -> String {
        if self.known { diff::known_set(pin, voice) } else { diff::story(pin, voice) }
    }

    fn question(&self, waiting: &[ToolPin]) -> String {
        match (self.known, self.only) {
            (true, _) => {
                let all: usize = waiting.iter().map(|pin| pin.offered_set().len()).sum();
                format!("Accept {}, whichever is listed, as shown?", plural(all, "definition"))
            }
            (false, true) => "Accept this definition and no other, as shown?".to_owned(),
            (false, false) => format!("Accept {} as shown?", plural(waiting.len(), "definition")),
        }
    }
}

pub(crate) fn run(args: &Approve, url: &StoreUrl, voice: OutputSettings) -> CommandResult {
    records::with(url, async |store| approve(args, &store, url, voice).await)
}

async fn approve(args: &Approve, store: &Store, url: &StoreUrl, voice: OutputSettings) -> CommandResult {
    let waiting = waiting(args, store, url).await?;
    if waiting.is_empty() {
        let text = match args.known {
            true => "nothing to accept: no tool flips between known definitions now",
            false => "nothing waits: every definition is what was accepted",
        };
        let text = paint(DIM, text);
        return Ok(Answer::text(format!("{text}\n")).with("accepted", json!([])));
    }
    let shown = waiting.iter().map(|pin| args.story(pin, voice)).collect::<Vec<_>>().join("\n");
    let asks = !args.yes && ask::can_ask(voice);
    if !args.yes && !asks {
        return Err(nobody_to_ask(args, &waiting, shown));
    }
    if voice.format == Format::Text {
        voice.tell(&format!("{shown}\n"));
    }
    let person = person::prove(store, url, voice).await?;
    if asks && !ask::yes(voice, &args.question(&waiting)) {
        let next = format!("countersign tools approve {}", args.named());
        return Err(CommandError::refused(Refusal::new(Code::ConfirmRequired, "nothing was accepted"), next));
    }
    let (mut text, mut accepted) = (String::new(), Vec::new());
    for pin in &waiting {
        let name = FullName::new(pin.upstream.clone(), pin.tool.clone());
        let acceptance = args.acceptance(pin);
        let (member, prints) = match &acceptance {
            DefinitionAcceptance::Waiting(one) | DefinitionAcceptance::Only(one) => {
                ("fingerprint", json!(one))
            }
            DefinitionAcceptance::Known(all) => ("fingerprints", json!(all)),
        };
        let done = store.accept_definitions(&name, acceptance, &person.name, Timestamp::now()).await;
        let Some(ledger_id) = done.map_err(|fault| records::trouble(&fault, url))? else {
            let message = format!("`{name}` changed again while you looked");
            let mut refused = Refused::from(Refusal::new(Code::ToolChanged, message));
            refused.findings = text;
            refused.next = Some(format!("countersign tools diff {name}"));
            return Err(refused.into());
        };
        text.push_str(&format!("{} {}\n", paint(GOOD, "accepted"), visible(&name.to_string())));
        accepted.push(json!({"name": name.to_string(), (member): prints, "ledger_id": ledger_id}));
    }
    let mut answer = Answer::text(text).with("accepted", accepted);
    answer.warnings = person.warnings;
    Ok(answer)
}

async fn waiting(args: &Approve, store: &Store, url: &StoreUrl) -> Result<Vec<ToolPin>, CommandError> {
    let fault = |fault| records::trouble(&fault, url);
    let pins = match (&args.tool, &args.all) {
        (Some(name), _) => {
            let pin = store.pin_of(name).await.map_err(fault)?;
            let pin = pin.ok_or_else(|| diff::never_seen(name, url))?;
            if args.known && pin.offered_set().is_empty() {
                let message = format!("there is no set: one definition of `{name}` was accepted at most");
                let refusal = Refusal::new(Code::ArgumentsInvalid, message);
                return Err(CommandError::refused(refusal, format!("countersign tools diff {name}")));
            }
            vec![pin]
        }
        (None, all) => {
            let upstream = UpstreamId::new(all.as_deref().unwrap_or_default());
            let pins = store.pins(&upstream).await.map_err(fault)?;
            if pins.is_empty() {
                let refusal =
                    Refusal::new(Code::ToolNotFound, format!("no tool of `{upstream}` was ever listed"));
                return Err(CommandError::refused(refusal, "countersign tools list"));
            }
            pins
        }
    };
    let is_meant = |pin: &ToolPin| match (args.known, args.only) {
        // Of a whole upstream, only tools that flip now; of one tool, what was asked for.
        (true, _) => args.tool.is_some() || pin.flipped_to().is_some(),
        (false, true) => pin.waiting().is_some() || pin.accepted_set().next().is_some(),
        (false, false) => pin.waiting().is_some(),
    };
    Ok(pins.into_iter().filter(is_meant).collect())
}

fn nobody_to_ask(args: &Approve, waiting: &[ToolPin], shown: String) -> CommandError {
    let refusal = Refusal::new(Code::ConfirmRequired, "nobody can be asked here: this is no terminal")
        .next(&[NextAction::ReviewTool, NextAction::RetryWithYes]);
    let mut refused = Refused::from(refusal);
    refused.findings = shown;
    refused.data.insert("tools".into(), waiting.iter().map(diff::describe).collect());
    refused.next = Some(format!("countersign tools approve {} --yes", args.named()));
    refused.into()
}
