//! `countersign plans list`: the inbox, newest first.

use anstyle::Style;
use clap::Args;
use countersign_policy::confirm::PlanState;
use countersign_policy::ids::PrincipalId;
use countersign_policy::redact::Redactor;
use countersign_store::{PlanFilter, PlanRow, StoreUrl};
use jiff::Timestamp;
use serde_json::json;

use super::{find, sheet};
use crate::command_result::{Answer, CommandResult};
use crate::output::{Column, DIM, NAME, OutputSettings, Table, exact, paint, shown};
use crate::{environment, records};

pub(crate) const EXAMPLES: &str = "Examples:
  countersign plans list
  countersign plans list --state rejected
  countersign plans list --all --limit 200 --json";

/// Who asks and why stay, however narrow the terminal is; what the other commands need of an id fits in its end.
const COLUMNS: [Column; 8] = [
    Column::spared("PLAN", 1).steady(10),
    Column::spared("STATE", 3).steady(8),
    Column::cut("TOOL", 14).steady(24),
    Column::spared("EFFECT", 4).steady(11),
    Column::spared("NEEDS", 5).steady(14),
    Column::cut("WHO", 12).steady(24),
    Column::spared("LEFT", 2).steady(10),
    Column::cut("REASON", 12),
];

/// An empty inbox says what would be in it, as the page and the README do.
const NOTHING_WAITS: &str = "nothing waits for a decision; by default no change runs on the agent's word: \
    its plan waits here until the host's dialog or a person agrees";

#[derive(Args, Debug)]
pub(crate) struct PlansListArgs {
    /// Those in this state: pending, approved, rejected, …
    #[arg(long, value_name = "STATE", conflicts_with = "all")]
    state: Option<PlanState>,

    /// Those in any state
    #[arg(long)]
    all: bool,

    /// How many, at most 1000
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1000))]
    limit: u32,
}

pub(crate) fn run(args: &PlansListArgs, url: &StoreUrl, voice: OutputSettings) -> CommandResult {
    let now = Timestamp::now();
    let wanted = if args.all { None } else { Some(args.state.unwrap_or(PlanState::Pending)) };
    // A plan whose time ran out may still be kept as pending or approved until someone sweeps.
    let kept = wanted.filter(|state| *state != PlanState::Expired);
    let limit = Some(if kept == wanted { args.limit } else { 1000 });
    let filter = PlanFilter { state: kept, limit, ..PlanFilter::default() };
    let (rows, paused, redactor) = records::with(url, async |store| {
        let fault = |fault| records::trouble(&fault, url);
        let rows = store.plans(filter).await.map_err(fault)?;
        let paused = store.all_paused().await.map_err(fault)?;
        Ok((rows, paused, Redactor::new(store.salt())))
    })?;
    let mut rows: Vec<PlanRow> = rows;
    rows.retain(|row| wanted.is_none_or(|wanted| sheet::state(row, now) == wanted));
    rows.truncate(usize::try_from(args.limit).unwrap_or(usize::MAX));
    let plans: Vec<String> = rows.iter().map(|row| sheet::json_text(row, &redactor, now)).collect();
    let resting_now = paused.iter().map(|(who, since)| json!({"principal": who, "since": exact(*since)}));
    let mut answer = Answer::text(text(&rows, &redactor, wanted, voice, now))
        .with_text("plans", format!("[{}]", plans.join(",")))
        .with("paused", resting_now.collect::<Vec<_>>());
    answer.warnings = paused.iter().map(|(who, since)| resting(who, *since, voice, now)).collect();
    Ok(answer)
}

fn resting(who: &PrincipalId, since: Timestamp, voice: OutputSettings, now: Timestamp) -> String {
    let since = shown(since, &sheet::zone(voice, now));
    format!("writes of `{who}` are paused since {since}; to let them go on: countersign plans resume {who}")
}

fn text(
    rows: &[PlanRow],
    redactor: &Redactor,
    wanted: Option<PlanState>,
    voice: OutputSettings,
    now: Timestamp,
) -> String {
    if rows.is_empty() {
        // In a pipe, nothing found is no line.
        let nothing = match wanted {
            Some(PlanState::Pending) => NOTHING_WAITS.to_owned(),
            Some(state) => format!("no {state} plans"),
            None => "no plans".to_owned(),
        };
        return if voice.is_watched() { format!("{}\n", paint(DIM, nothing)) } else { String::new() };
    }
    let mut table = table();
    let is_inbox = wanted == Some(PlanState::Pending) && voice.is_watched();
    for row in rows {
        table.row(if is_inbox { inbox_line(row, redactor, now) } else { line(row, redactor, voice, now) });
    }
    table.render(voice.width())
}

pub(super) fn table() -> Table {
    Table::new(&COLUMNS)
}

pub(super) fn line(
    row: &PlanRow,
    redactor: &Redactor,
    voice: OutputSettings,
    now: Timestamp,
) -> Vec<(String, Style)> {
    let mut cells = cells(row, redactor, now);
    if let Some((id, _)) = cells.first_mut() {
        *id = shown_id(id, voice);
    }
    cells
}

fn cells(row: &PlanRow, redactor: &Redactor, now: Timestamp) -> Vec<(String, Style)> {
    let (plan, state) = (&row.plan, sheet::state(row, now));
    let open = matches!(state, PlanState::Pending | PlanState::Approved);
    let reason = plan.intent.as_ref().and_then(|intent| intent.reason.as_deref());
    vec![
        (plan.id.to_string(), Style::new()),
        (state.to_string(), sheet::state_style(state)),
        (plan.tool.to_string(), NAME),
        (plan.effect.to_string(), sheet::effect_style(plan.effect)),
        (format!("{} {}", plan.requirement.kind, plan.requirement.strength), Style::new()),
        (plan.asked_by(environment::home_text().as_deref()), Style::new()),
        (if open { sheet::left(plan.expires, now) } else { String::new() }, Style::new()),
        (reason.map(|reason| redactor.clean_text(reason)).unwrap_or_default(), DIM),
    ]
}

/// The same for an inbox on a terminal: the id is short, and that all plans are pending goes without saying.
pub(super) fn inbox_line(row: &PlanRow, redactor: &Redactor, now: Timestamp) -> Vec<(String, Style)> {
    let mut cells = cells(row, redactor, now);
    if let Some((id, _)) = cells.first_mut() {
        *id = find::short_id(id);
    }
    if let Some((state, _)) = cells.get_mut(1) {
        state.clear();
    }
    cells
}

/// Short where a person reads it, whole in a pipe.
pub(crate) fn shown_id(id: &str, voice: OutputSettings) -> String {
    if voice.is_watched() { find::short_id(id) } else { id.to_owned() }
}
