//! `countersign reject`: a person rejects a plan, with a note for the agent. Safe, so it does not ask for confirmation.

use clap::Args;
use clap_complete::ArgValueCandidates;
use countersign_policy::confirm::PlanState;
use countersign_store::StoreUrl;
use jiff::Timestamp;

use crate::cli::Cli;
use crate::command_result::CommandResult;
use crate::commands::approve::decide;
use crate::commands::completions::candidates;
use crate::commands::plans::{find, sheet};
use crate::local_gateway::StoreArgs;
use crate::output::OutputSettings;
use crate::{person, records};

pub(crate) const EXAMPLES: &str = "Examples:
  countersign reject pln_01KA4Z7Q3V9M5T2X8R6W0YREJC
  countersign reject 0YNOTE --note 'archive it, do not delete it'";

#[derive(Args, Debug)]
pub(crate) struct Reject {
    #[command(flatten)]
    of: StoreArgs,

    /// The plan's id, as lists show it or in full; at least 5 characters of its beginning or end
    #[arg(add = ArgValueCandidates::new(candidates::pending_plans))]
    id: String,

    /// The reason; the agent sees it
    #[arg(long, value_name = "TEXT")]
    note: Option<String>,
}

pub(crate) fn run(args: &Reject, cli: &Cli, voice: OutputSettings) -> CommandResult {
    let url: StoreUrl = args.of.url(cli)?;
    records::with(&url, async |store| {
        let row = find::plan(&store, &url, &args.id).await?;
        if sheet::state(&row, Timestamp::now()) != PlanState::Pending {
            return Err(decide::decided(&store, &url, &row, voice).await);
        }
        let person = person::prove(&store, &url, voice).await?;
        decide::reject(&store, &url, &row, person, args.note.clone(), voice).await
    })
}
