//! `countersign activity watch`: the ledger as it grows. Looks again and again; holds nothing open, changes nothing.

use std::collections::{HashSet, VecDeque};
use std::io;
use std::time::Duration;

use clap::{Args, ValueEnum};
use countersign_policy::duration;
use countersign_policy::ids::LedgerId;
use countersign_store::ledger::{LedgerFilter, LedgerRow};
use countersign_store::{Store, StoreUrl};
use jiff::Timestamp;
use serde_json::json;
use tokio::time::{Instant, MissedTickBehavior};

use super::filter_args::ActivityFilterArgs;
use super::rows;
use crate::command_result::{Answer, CommandError, CommandResult};
use crate::output::{Format, OutputSettings};
use crate::records;

pub(crate) const EXAMPLES: &str = "Examples:
  countersign activity watch --status refused --for 1s
  countersign activity watch --format jsonl --count 1";

/// How often the ledger is looked at.
const BEAT: Duration = Duration::from_millis(250);
/// Rows of other writers may come in late by so much.
const SLACK: Duration = Duration::from_secs(5);
/// As many rows as are asked for at once, remembered, or given in one envelope.
const MANY: usize = 1000;

#[derive(Args, Debug)]
pub(crate) struct ActivityWatchArgs {
    #[command(flatten)]
    wanted: ActivityFilterArgs,

    /// Begin with the last rows
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(0..=1000))]
    tail: u32,

    /// Stop after this many rows
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,

    /// Stop after this time, such as 30s; otherwise with Ctrl-C
    #[arg(long = "for", value_name = "SPAN", value_parser = duration::parse)]
    span: Option<Duration>,

    /// How rows are written
    #[arg(long, value_enum, default_value_t = WatchFormat::Table)]
    format: WatchFormat,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum WatchFormat {
    /// For people
    Table,
    /// One JSON object a line
    Jsonl,
}

/// Follows until it is stopped. With `--json`, the envelope at the end holds what was seen.
pub(crate) fn run(args: &ActivityWatchArgs, url: &StoreUrl, voice: OutputSettings) -> CommandResult {
    let mut sight =
        ActivityWatchPrinter { voice, lines: args.format, left: args.count, kept: Vec::new(), titled: false };
    records::with_read_only(url, async |store| {
        tokio::select! {
            seen = follow(&store, args, url, &mut sight) => seen,
            // An end that was asked for is a good one.
            _ = tokio::signal::ctrl_c() => Ok(()),
            () = until(args.span) => Ok(()),
        }
    })?;
    Ok(Answer::text("").with("activities", json!(sight.kept)))
}

async fn until(span: Option<Duration>) {
    match span {
        Some(span) => tokio::time::sleep(span).await,
        None => std::future::pending().await,
    }
}

async fn follow(
    store: &Store,
    args: &ActivityWatchArgs,
    url: &StoreUrl,
    sight: &mut ActivityWatchPrinter,
) -> Result<(), CommandError> {
    let now = Timestamp::now();
    let base = args.wanted.filter(now);
    let mut known = SeenRows::default();
    let mut first = LedgerFilter { limit: Some(args.tail.max(1)), ..base.clone() };
    let mut beat = tokio::time::interval_at(Instant::now(), BEAT);
    beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        beat.tick().await;
        let is_first = known.since.is_none();
        let page = store.activity(first.clone()).await.map_err(|fault| records::trouble(&fault, url))?;
        let mut rows = page.rows;
        rows.reverse();
        rows.retain(|row| known.is_new(row));
        if is_first && args.tail == 0 {
            rows.clear();
        }
        if !sight.see(rows)? {
            return Ok(());
        }
        let since = known.since.get_or_insert(now).checked_sub(SLACK).unwrap_or(now);
        let start_time = Some(base.start_time.map_or(since, |start| start.max(since)));
        first = LedgerFilter { limit: u32::try_from(MANY).ok(), start_time, ..base.clone() };
    }
}

/// Which rows were seen. Remembers a bounded number: older ones are cut off by their time.
#[derive(Default)]
struct SeenRows {
    ids: HashSet<LedgerId>,
    order: VecDeque<LedgerId>,
    since: Option<Timestamp>,
}

impl SeenRows {
    fn is_new(&mut self, row: &LedgerRow) -> bool {
        self.since = self.since.max(Some(row.time));
        let is_new = self.ids.insert(row.id.clone());
        if is_new {
            self.order.push_back(row.id.clone());
        }
        while self.order.len() > 8 * MANY {
            if let Some(old) = self.order.pop_front() {
                self.ids.remove(&old);
            }
        }
        is_new
    }
}

struct ActivityWatchPrinter {
    voice: OutputSettings,
    lines: WatchFormat,
    left: Option<u64>,
    kept: Vec<LedgerRow>,
    titled: bool,
}

impl ActivityWatchPrinter {
    /// Shows the rows; false when enough was seen.
    fn see(&mut self, mut rows: Vec<LedgerRow>) -> Result<bool, CommandError> {
        if let Some(left) = &mut self.left {
            rows.truncate(usize::try_from(*left).unwrap_or(usize::MAX));
            *left -= rows.len() as u64;
        }
        let goes_on = self.left != Some(0);
        if self.voice.format == Format::Json {
            self.kept.extend(rows);
            self.kept.truncate(MANY);
            return Ok(goes_on && self.kept.len() < MANY);
        }
        let text = self.text(&rows);
        let said = match self.lines {
            WatchFormat::Table => self.voice.say(&text),
            WatchFormat::Jsonl => self.voice.give(&text),
        };
        match said {
            Ok(()) => Ok(goes_on),
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
            Err(error) => Err(CommandError::Output(format!("can't write the rows: {error}"))),
        }
    }

    fn text(&mut self, rows: &[LedgerRow]) -> String {
        if rows.is_empty() {
            return String::new();
        }
        match self.lines {
            WatchFormat::Jsonl => rows.iter().map(|row| format!("{}\n", row.json())).collect(),
            WatchFormat::Table => {
                let zone = rows::zone(self.voice, Timestamp::now());
                let mut table = rows::table().steady();
                for row in rows {
                    table.row(rows::line(row, self.voice, &zone));
                }
                let text = table.render(self.voice.width());
                let is_titled = std::mem::replace(&mut self.titled, true);
                if is_titled {
                    text.split_once('\n').map(|(_, rest)| rest.to_owned()).unwrap_or_default()
                } else {
                    text
                }
            }
        }
    }
}
