//! `countersign plans watch`: the inbox as it fills. On a terminal it is `inbox`; elsewhere, and with an end, plans are lines. Those
//! decide nothing.

use std::collections::HashSet;
use std::io;
use std::time::Duration;

use clap::Args;
use countersign_policy::confirm::PlanState;
use countersign_policy::duration;
use countersign_policy::ids::PlanId;
use countersign_policy::redact::Redactor;
use countersign_store::{PlanFilter, PlanRow, Store, StoreUrl};
use jiff::Timestamp;
use serde_json::Value;
use tokio::time::MissedTickBehavior;

use super::{inbox, list, sheet};
use crate::command_result::{Answer, CommandError, CommandResult};
use crate::output::{DIM, Format, OutputSettings, paint};
use crate::records;

pub(crate) const EXAMPLES: &str = "Examples:
  countersign plans watch --for 1s
  countersign plans watch --count 1 --json";

/// How often the inbox is looked at.
const BEAT: Duration = Duration::from_millis(250);
/// As many plans as are given in one envelope.
const MANY: usize = 1000;

#[derive(Args, Debug)]
pub(crate) struct PlansWatchArgs {
    /// Print plans as lines and stop after this many
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,

    /// Print plans as lines and stop after this time, such as 30s
    #[arg(long = "for", value_name = "SPAN", value_parser = duration::parse)]
    span: Option<Duration>,
}

/// Follows until it is stopped. With `--json`, the envelope at the end holds what was seen.
pub(crate) fn run(args: &PlansWatchArgs, url: &StoreUrl, voice: OutputSettings) -> CommandResult {
    if args.count.is_none() && args.span.is_none() && inbox::is_possible(voice) {
        return inbox::run(url, voice);
    }
    let mut sight =
        PlanWatchPrinter { voice, left: args.count, seen: HashSet::new(), kept: Vec::new(), titled: false };
    if voice.is_watched() {
        voice.tell(&format!("{}\n", paint(DIM, "plans that wait for a decision, as they come; Ctrl-C ends")));
    }
    records::with(url, async |store| {
        tokio::select! {
            seen = follow(&store, url, &mut sight) => seen,
            // An end that was asked for is a good one.
            _ = tokio::signal::ctrl_c() => Ok(()),
            () = until(args.span) => Ok(()),
        }
    })?;
    Ok(Answer::text("").with("plans", sight.kept))
}

async fn until(span: Option<Duration>) {
    match span {
        Some(span) => tokio::time::sleep(span).await,
        None => std::future::pending().await,
    }
}

async fn follow(store: &Store, url: &StoreUrl, sight: &mut PlanWatchPrinter) -> Result<(), CommandError> {
    let redactor = Redactor::new(store.salt());
    let mut beat = tokio::time::interval(BEAT);
    beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        beat.tick().await;
        let filter =
            PlanFilter { state: Some(PlanState::Pending), limit: Some(1000), ..PlanFilter::default() };
        let mut rows = store.plans(filter).await.map_err(|fault| records::trouble(&fault, url))?;
        rows.reverse();
        if !sight.see(rows, &redactor)? {
            return Ok(());
        }
    }
}

struct PlanWatchPrinter {
    voice: OutputSettings,
    left: Option<u64>,
    seen: HashSet<PlanId>,
    kept: Vec<Value>,
    titled: bool,
}

impl PlanWatchPrinter {
    /// Shows what is new; false when enough was seen.
    fn see(&mut self, rows: Vec<PlanRow>, redactor: &Redactor) -> Result<bool, CommandError> {
        let now = Timestamp::now();
        let pending: HashSet<PlanId> = rows.iter().map(|row| row.plan.id.clone()).collect();
        let mut new: Vec<PlanRow> = rows
            .into_iter()
            .filter(|row| sheet::state(row, now) == PlanState::Pending && !self.seen.contains(&row.plan.id))
            .collect();
        // What is decided does not come back: only what is pending has to be remembered.
        self.seen = pending;
        if let Some(left) = &mut self.left {
            new.truncate(usize::try_from(*left).unwrap_or(usize::MAX));
            *left -= new.len() as u64;
        }
        let goes_on = self.left != Some(0);
        if self.voice.format == Format::Json {
            self.kept.extend(new.iter().map(|row| sheet::json(row, redactor, now)));
            return Ok(goes_on && self.kept.len() < MANY);
        }
        match self.voice.say(&self.text(&new, redactor, now)) {
            Ok(()) => Ok(goes_on),
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
            Err(error) => Err(CommandError::Output(format!("can't write the plans: {error}"))),
        }
    }

    fn text(&mut self, rows: &[PlanRow], redactor: &Redactor, now: Timestamp) -> String {
        if rows.is_empty() {
            return String::new();
        }
        let mut table = list::table().steady();
        for row in rows {
            table.row(list::line(row, redactor, self.voice, now));
        }
        let text = table.render(self.voice.width());
        let is_titled = std::mem::replace(&mut self.titled, true);
        // The bell is how a terminal in the background says that it is needed.
        let bell = if self.voice.is_watched() && is_titled { "\u{7}" } else { "" };
        match text.split_once('\n') {
            Some((_, rest)) if is_titled => format!("{bell}{rest}"),
            _ => text,
        }
    }
}
