//! `countersign reject`: a person says no to a plan, with a note for whoever asked. Safe, so it does not ask back.

use clap::Args;
use countersign_core::confirm::PlanState;
use countersign_store::StoreUrl;
use jiff::Timestamp;

use crate::answer::Outcome;
use crate::cli::Cli;
use crate::commands::approve::decide;
use crate::commands::plans::{find, sheet};
use crate::house::Of;
use crate::output::Voice;
use crate::{person, records};

/// Shown under the help.
pub(crate) const EXAMPLES: &str = "Examples:
  countersign reject pln_01KA4Z7Q3V9M5T2X8R6W0YREJC
  countersign reject 0YNOTE --note 'archive it, do not delete it'";

/// What `reject` takes.
#[derive(Args, Debug)]
pub(crate) struct Reject {
    #[command(flatten)]
    of: Of,

    /// The plan's id, or at least 6 characters of its beginning or end
    id: String,

    /// Why, for whoever asked: the agent is told
    #[arg(long, value_name = "TEXT")]
    note: Option<String>,
}

/// Rejects it.
pub(crate) fn run(args: &Reject, cli: &Cli, voice: Voice) -> Outcome {
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
