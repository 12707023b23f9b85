//! `countersign activity checkpoint`: the ledger's heads at this moment, signed. Kept elsewhere, it shows truncation.

use std::io::Write as _;
use std::path::PathBuf;

use clap::Args;
use countersign_store::StoreUrl;
use countersign_store::ledger;
use serde_json::json;

use super::export;
use crate::command_result::{Answer, CommandResult};
use crate::records;

pub(crate) const EXAMPLES: &str = "Examples:
  countersign activity checkpoint --out head.json
  countersign activity checkpoint --json

Keep it where people who can change the store cannot reach it;
activity verify --checkpoint compares with it.";

#[derive(Args, Debug)]
pub(crate) struct ActivityCheckpointArgs {
    /// Write into this file instead of stdout; it must not exist yet
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

pub(crate) fn run(args: &ActivityCheckpointArgs, url: &StoreUrl) -> CommandResult {
    let made = records::with(url, async |store| {
        ledger::checkpoint(&store).await.map_err(|fault| records::trouble(&fault, url))
    })?;
    let line = format!("{made}\n");
    let text = match &args.out {
        None => line,
        Some(path) => {
            let mut file = export::create(path)?;
            let written = file.write_all(line.as_bytes()).and_then(|()| file.sync_all());
            written.map_err(|error| export::unwritable(path, &error))?;
            let heads = made.heads.iter().map(|head| format!("{} #{}", head.writer, head.sequence));
            format!("signed {} into {}\n", heads.collect::<Vec<_>>().join(", "), path.display())
        }
    };
    let out = args.out.as_ref().map(|path| path.display().to_string());
    Ok(Answer::text(text).with("checkpoint", json!(made)).with("out", out))
}
