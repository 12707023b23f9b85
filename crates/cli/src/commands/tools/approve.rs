//! `countersign tools approve`: a person accepts a definition after looking at it; exactly that one, whatever the upstream
//! says meanwhile.

use clap::Args;
use countersign_core::ids::{FullName, UpstreamId};
use countersign_core::refusal::{Code, NextAction, Refusal};
use countersign_store::{Pin, PinState, Store, StoreUrl};
use jiff::Timestamp;
use serde_json::json;

use super::diff;
use crate::answer::{Answer, Outcome, Refused, Trouble};
use crate::output::{DIM, Format, GOOD, Voice, paint, plural, visible};
use crate::person::{self, ask};
use crate::records;

/// Shown under the help.
pub(crate) const EXAMPLES: &str = "Examples:
  countersign tools approve github:delete_repo
  countersign tools approve --all github --yes";

/// What `tools approve` takes.
#[derive(Args, Debug)]
pub(crate) struct Approve {
    /// The tool's full name
    #[arg(value_name = "UPSTREAM:TOOL", required_unless_present = "all")]
    tool: Option<FullName>,

    /// Every tool of this upstream that waits
    #[arg(long, value_name = "UPSTREAM", conflicts_with = "tool")]
    all: Option<String>,

    /// Accept without being asked; needed off a terminal
    #[arg(long)]
    yes: bool,
}

impl Approve {
    /// What was named, as it is typed.
    fn named(&self) -> String {
        match (&self.tool, &self.all) {
            (Some(name), _) => name.to_string(),
            (None, all) => format!("--all {}", all.as_deref().unwrap_or_default()),
        }
    }
}

/// Shows what waits, asks, accepts.
pub(crate) fn run(args: &Approve, url: &StoreUrl, voice: Voice) -> Outcome {
    records::with(url, async |store| approve(args, &store, url, voice).await)
}

async fn approve(args: &Approve, store: &Store, url: &StoreUrl, voice: Voice) -> Outcome {
    let waiting = waiting(args, store, url).await?;
    if waiting.is_empty() {
        let text = paint(DIM, "nothing waits: every definition is what was accepted");
        return Ok(Answer::text(format!("{text}\n")).with("accepted", json!([])));
    }
    let shown = waiting.iter().map(|pin| diff::story(pin, voice)).collect::<Vec<_>>().join("\n");
    let asks = !args.yes && ask::can_ask(voice);
    if !args.yes && !asks {
        return Err(nobody_to_ask(args, &waiting, shown));
    }
    if voice.format == Format::Text {
        voice.tell(&format!("{shown}\n"));
    }
    let person = person::prove(store, url, voice).await?;
    if asks && !ask::yes(voice, &format!("Accept {} as shown?", plural(waiting.len(), "definition"))) {
        let next = format!("countersign tools approve {}", args.named());
        return Err(Trouble::refused(Refusal::new(Code::ConfirmRequired, "nothing was accepted"), next));
    }
    let (mut text, mut accepted) = (String::new(), Vec::new());
    for pin in &waiting {
        let name = FullName::new(pin.upstream.clone(), pin.tool.clone());
        let looked_at = diff::looked_at(pin);
        let done = store.accept_pin(&name, looked_at, &person.name, Timestamp::now()).await;
        let Some(ledger_id) = done.map_err(|fault| records::trouble(&fault, url))? else {
            let message = format!("`{name}` changed again while you looked");
            let mut refused = Refused::from(Refusal::new(Code::ToolChanged, message));
            refused.findings = text;
            refused.next = Some(format!("countersign tools diff {name}"));
            return Err(refused.into());
        };
        text.push_str(&format!("{} {}\n", paint(GOOD, "accepted"), visible(&name.to_string())));
        accepted.push(json!({"name": name.to_string(), "fingerprint": looked_at, "ledger_id": ledger_id}));
    }
    let mut answer = Answer::text(text).with("accepted", accepted);
    answer.warnings = person.warnings;
    Ok(answer)
}

async fn waiting(args: &Approve, store: &Store, url: &StoreUrl) -> Result<Vec<Pin>, Trouble> {
    let fault = |fault| records::trouble(&fault, url);
    let pins = match (&args.tool, &args.all) {
        (Some(name), _) => {
            let pin = store.pin_of(name).await.map_err(fault)?;
            vec![pin.ok_or_else(|| diff::never_seen(name, url))?]
        }
        (None, all) => {
            let upstream = UpstreamId::new(all.as_deref().unwrap_or_default());
            let pins = store.pins(&upstream).await.map_err(fault)?;
            if pins.is_empty() {
                let refusal =
                    Refusal::new(Code::ToolNotFound, format!("no tool of `{upstream}` was ever listed"));
                return Err(Trouble::refused(refusal, "countersign tools list"));
            }
            pins
        }
    };
    Ok(pins.into_iter().filter(|pin| pin.state != PinState::Accepted).collect())
}

fn nobody_to_ask(args: &Approve, waiting: &[Pin], shown: String) -> Trouble {
    let refusal = Refusal::new(Code::ConfirmRequired, "nobody can be asked here: this is no terminal")
        .next(&[NextAction::ReviewTool, NextAction::RetryWithYes]);
    let mut refused = Refused::from(refusal);
    refused.findings = shown;
    refused.data.insert("tools".into(), waiting.iter().map(diff::describe).collect());
    refused.next = Some(format!("countersign tools approve {} --yes", args.named()));
    refused.into()
}
