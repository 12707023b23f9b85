//! `countersign activity list`: one page of the ledger, newest first.

use clap::Args;
use countersign_store::StoreUrl;
use countersign_store::ledger::{Cursor, LedgerFilter, Page};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::filter_args::ActivityFilterArgs;
use super::rows;
use crate::command_result::{Answer, CommandResult};
use crate::output::{DIM, OutputSettings, paint};
use crate::records;

pub(crate) const EXAMPLES: &str = "Examples:
  countersign activity list --since 7d --status refused
  countersign activity list --tool github:delete_repo --limit 5
  countersign activity list --role agent --q acme --json";

#[derive(Args, Debug)]
pub(crate) struct ActivityListArgs {
    #[command(flatten)]
    wanted: ActivityFilterArgs,

    /// How many rows, at most 1000
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1000))]
    limit: u32,

    /// Continue where the page before ended
    #[arg(long)]
    cursor: Option<Cursor>,
}

pub(crate) fn run(args: &ActivityListArgs, url: &StoreUrl, voice: OutputSettings) -> CommandResult {
    let now = Timestamp::now();
    let filter =
        LedgerFilter { limit: Some(args.limit), cursor: args.cursor.clone(), ..args.wanted.filter(now) };
    let page = records::with_read_only(url, async |store| {
        store.activity(filter).await.map_err(|fault| records::trouble(&fault, url))
    })?;
    Ok(Answer::text(text(&page, voice, now))
        .with("activities", json!(page.rows))
        .with("next_cursor", page.next_cursor.map_or(Value::Null, |cursor| cursor.to_string().into())))
}

fn text(page: &Page, voice: OutputSettings, now: Timestamp) -> String {
    if page.rows.is_empty() {
        // In a pipe, nothing found is no line.
        return if voice.is_watched() { format!("{}\n", paint(DIM, "no rows")) } else { String::new() };
    }
    let (zone, mut table) = (rows::zone(voice, now), rows::table());
    for row in &page.rows {
        table.row(rows::line(row, voice, &zone));
    }
    let mut text = table.render(voice.width());
    if let (Some(cursor), true) = (&page.next_cursor, voice.is_watched()) {
        text.push_str(&format!("{}\n", paint(DIM, format_args!("more: add --cursor {cursor}"))));
    }
    text
}
