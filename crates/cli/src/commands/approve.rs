//! `countersign approve`: a person looks at a plan, whole, and agrees to it, once. The store decides who was first.

mod ahead;
pub(crate) mod decide;

use clap::Args;
use countersign_core::confirm::{Approval, PlanState, Rail};
use countersign_core::record::Source;
use countersign_core::redact::Redactor;
use countersign_core::refusal::{Code, NextAction, Refusal};
use countersign_store::{PlanRow, Store, StoreUrl};
use jiff::Timestamp;

use crate::answer::{Answer, Outcome, Refused, Trouble};
use crate::cli::Cli;
use crate::commands::approve::decide::Whose;
use crate::commands::plans::{find, sheet};
use crate::house::Of;
use crate::output::{Format, GOOD, Voice, paint, visible};
use crate::person::ask::Said;
use crate::person::{self, ask};
use crate::records;

/// Shown under the help.
pub(crate) const EXAMPLES: &str = "Examples:
  countersign approve pln_01KA4Z7Q3V9M5T2X8R6W0YPQRS --yes
  countersign approve 0YTYPE --yes --confirm-text acme/site
  countersign approve 0YGRNT --yes --grant --uses 5 --expires 2h --any title";

/// What `approve` takes.
#[derive(Args, Debug)]
pub(crate) struct Approve {
    #[command(flatten)]
    of: Of,

    /// The plan's id, or at least 6 characters of its beginning or end
    id: String,

    /// Agree without being asked; needed off a terminal
    #[arg(long)]
    yes: bool,

    /// The resource's name, where it has to be typed; needed off a terminal
    #[arg(long, value_name = "TEXT")]
    confirm_text: Option<String>,

    /// What to keep with the approval
    #[arg(long, value_name = "TEXT")]
    note: Option<String>,

    #[command(flatten)]
    ahead: ahead::Ahead,
}

/// Shows the plan, asks, and decides.
pub(crate) fn run(args: &Approve, cli: &Cli, voice: Voice) -> Outcome {
    let url = args.of.url(cli)?;
    records::with(&url, async |store| approve(args, &store, &url, voice).await)
}

async fn approve(args: &Approve, store: &Store, url: &StoreUrl, voice: Voice) -> Outcome {
    let row = find::plan(store, url, &args.id).await?;
    let (now, redactor) = (Timestamp::now(), Redactor::new(store.salt()));
    if sheet::state(&row, now) != PlanState::Pending {
        return Err(decide::decided(store, url, &row, voice).await);
    }
    args.ahead.check(&row.plan)?;
    let shown = sheet::sheet(&row, &redactor, &sheet::zone(voice, now), now);
    let asks = !args.yes && ask::can_ask(voice);
    if !asks && let Err(mut refused) = check_flags(args, &row, &shown, voice) {
        refused.data.insert("plan".into(), sheet::json(&row, &redactor, now));
        return Err(Trouble::Refused(refused));
    }
    let person = person::prove(store, url, voice).await?;
    if asks {
        voice.tell(&format!("{shown}\n"));
        match decide::ask(voice, Whose::Others, &row.plan.need, &row.plan.tool, args.confirm_text.as_deref())
        {
            Ok(Said::Yes) => {}
            Ok(Said::Reject) => {
                return decide::reject(store, url, &row, person, args.note.clone(), voice).await;
            }
            Ok(Said::No) => {
                let message = format!("`{}` was not approved; it stays pending", row.plan.id);
                let next = format!("countersign approve {0}, or countersign reject {0}", row.plan.id);
                return Err(Trouble::refused(Refusal::new(Code::ConfirmRequired, message), next));
            }
            Err(refused) => return Err(Trouble::Refused(refused)),
        }
    }
    let now = Timestamp::now();
    let mut approval = Approval::over(Rail::Cli, person.name.clone(), now);
    approval.note.clone_from(&args.note);
    let decided = match store
        .approve_shown(&row.plan.id, Some((&row.plan).into()), approval.clone(), Some(Source::Cli), now)
        .await
    {
        Ok(decided) => decided,
        Err(refused) => return Err(decide::lost(store, url, &row, refused, voice).await),
    };
    let mut text = format!(
        "{} {} {} as {}\n",
        paint(GOOD, "approved"),
        decided.plan.id,
        visible(&decided.plan.tool.to_string()),
        visible(person.name.as_str())
    );
    let mut answer = Answer::default()
        .with("plan_id", row.plan.id.as_str())
        .with("state", PlanState::Approved.as_str())
        .with("tool", row.plan.tool.to_string())
        .with("plan_hash", row.plan.hash.hex())
        .with("approval", serde_json::to_value(&approval).unwrap_or_default())
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

/// Off a terminal the flags have to say everything a person would be asked.
fn check_flags(args: &Approve, row: &PlanRow, shown: &str, voice: Voice) -> Result<(), Box<Refused>> {
    if args.yes {
        if voice.format == Format::Text {
            voice.tell(&format!("{shown}\n"));
        }
        return decide::check_typed(&row.plan.need, args.confirm_text.as_deref(), &row.plan);
    }
    let refusal = Refusal::new(Code::ConfirmRequired, "nobody can be asked here: this is no terminal")
        .next(&[NextAction::AskPerson, NextAction::RetryWithYes])
        .with("plan_id", row.plan.id.as_str());
    let mut refused = Refused::from(refusal);
    refused.findings = shown.to_owned();
    refused.next = Some(decide::command(&row.plan));
    Err(Box::new(refused))
}
