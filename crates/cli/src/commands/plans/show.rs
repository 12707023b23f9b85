//! `countersign plans show`: one plan, whole.

use clap::Args;
use clap_complete::ArgValueCandidates;
use countersign_policy::confirm::PlanState;
use countersign_policy::redact::Redactor;
use countersign_store::StoreUrl;
use jiff::Timestamp;

use super::{find, sheet};
use crate::command_result::{Answer, CommandResult};
use crate::commands::completions::candidates;
use crate::output::{BOLD, OutputSettings, paint};
use crate::records;

pub(crate) const EXAMPLES: &str = "Examples:
  countersign plans show pln_01KA4Z7Q3V9M5T2X8R6W0YPQRS
  countersign plans show 0YPQRS --json";

#[derive(Args, Debug)]
pub(crate) struct PlansShowArgs {
    /// The plan's id, as lists show it or in full; at least 5 characters of its beginning or end
    #[arg(add = ArgValueCandidates::new(candidates::pending_plans))]
    id: String,
}

pub(crate) fn run(args: &PlansShowArgs, url: &StoreUrl, voice: OutputSettings) -> CommandResult {
    let (row, redactor) = records::with(url, async |store| {
        Ok((find::plan(&store, url, &args.id).await?, Redactor::new(store.salt())))
    })?;
    let now = Timestamp::now();
    let mut text = sheet::sheet(&row, &redactor, &sheet::zone(voice, now), now);
    if voice.is_watched() && sheet::state(&row, now) == PlanState::Pending {
        let id = &row.plan.id;
        let next = paint(BOLD, "next:");
        text.push_str(&format!("\n{next} countersign approve {id}\n   or countersign reject {id}\n"));
    }
    Ok(Answer::text(text).with_text("plan", sheet::json_text(&row, &redactor, now)))
}
