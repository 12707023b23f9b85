//! `countersign policy simulate`: the ledger's calls put to new rules, and every decision that would change. Changes nothing.

use std::path::PathBuf;

use clap::Args;
use countersign_config::{self as config, SimulatedDecision, VerdictWord};
use countersign_gateway::simulate::{ChangedDecision, ReplayedCall, Simulation, Undecidable};
use countersign_policy::confirm::{ApprovalStrength, Kind};
use countersign_store::StoreUrl;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde_json::{Map, Value, json};

use crate::cli::Cli;
use crate::command_result::{Answer, CommandResult};
use crate::config_file;
use crate::output::{BAD, BOLD, DIM, GOOD, OutputSettings, TimeDisplay, WARN, paint, plural, shown, visible};
use crate::records;
use crate::time_argument::TimeArgument;

pub(crate) const EXAMPLES: &str = "Examples:
  countersign policy simulate --rules new-rules.toml --since 7d
  countersign policy simulate --rules new-rules.toml --since 2026-11-01 --json

FILE holds the [[rules]] to try; they stand instead of the present ones. What else it says
(modes, upstreams) is laid over the present configuration.";

/// How many calls of one kind are shown; the rest is counted. `--json` has all.
const SHOWN: usize = 5;

#[derive(Args, Debug)]
pub(crate) struct PolicySimulateArgs {
    /// A file with the rules to try; several are merged
    #[arg(long, required = true, value_name = "FILE")]
    rules: Vec<PathBuf>,

    /// Replay calls since: a duration ago such as 2h or 7d, a day, or an exact time
    #[arg(long, value_name = "WHEN", default_value = "7d")]
    since: TimeArgument,

    /// The store to read: sqlite:PATH or postgres://…; `gateway.store` if left out
    #[arg(long, value_name = "URL")]
    store: Option<StoreUrl>,
}

pub(crate) fn run(args: &PolicySimulateArgs, cli: &Cli, voice: OutputSettings) -> CommandResult {
    let present = config_file::find(&cli.config)?;
    let new = config_file::read(&args.rules)?;
    let sources = present.as_ref().map(|files| files.sources.clone()).unwrap_or_default();
    let policy = match &present {
        Some(files) => files.parse()?,
        None => new.placed(config::parse(&[]).map_err(|found| new.invalid(&found))?),
    };
    let tried = config::parse_instead(&sources, &new.sources).map_err(|found| new.invalid(&found))?;
    let tried = tried.placed_like(&policy);
    let url = records::locate(args.store.as_ref(), cli)?;
    let now = Timestamp::now();
    let since = args.since.resolve(now, &TimeZone::system());
    let done = records::with(&url, async |store| {
        let done = countersign_gateway::simulate::simulate(&store, &policy, &tried, since).await;
        done.map_err(|fault| records::trouble(&fault, &url))
    })?;
    let mut data = match json!(done) {
        Value::Object(members) => members,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => Map::new(),
    };
    data.insert("since".into(), since.to_string().into());
    data.insert("rules".into(), json!(new.names()));
    let zone = if voice.is_watched() {
        TimeDisplay::Person { zone: TimeZone::system(), now }
    } else {
        TimeDisplay::Program
    };
    let mut warnings = Vec::new();
    if present.is_none() {
        warnings.push("there is no configuration: compared with what holds without one".to_owned());
    }
    Ok(Answer { text: text(&done, &zone), data, warnings, ..Answer::default() })
}

/// The changes, those alike together, then what can't be told, then the count.
fn text(done: &Simulation, zone: &TimeDisplay) -> String {
    let mut text = String::new();
    for (head, calls) in alike(&done.changes, |one| {
        (
            one.call.tool.clone(),
            happens(&one.change.before),
            happens(&one.change.after),
            one.change.after.rule.clone(),
        )
    }) {
        let (tool, before, after, rule) = head;
        text.push_str(&format!(
            "{}  {} {} {}\n",
            paint(BOLD, visible(&tool)),
            before,
            paint(DIM, "→"),
            after
        ));
        if let Some(rule) = rule {
            text.push_str(&format!("  {}\n", paint(DIM, format_args!("because of {}", visible(&rule)))));
        }
        lines(&mut text, calls.iter().map(|one: &&ChangedDecision| &one.call), zone);
    }
    for (head, calls) in
        alike(&done.undecidable, |one| (one.call.tool.clone(), one.rule.clone(), one.redacted.join(", ")))
    {
        let (tool, rule, names) = head;
        let what = if names.is_empty() {
            "arguments that were".to_owned()
        } else {
            format!("`{}`, which was", visible(&names))
        };
        text.push_str(&format!(
            "{}  {}\n  {}\n",
            paint(BOLD, visible(&tool)),
            paint(WARN, "can't be told"),
            paint(DIM, format_args!("{} looks at {what} kept out of the ledger", visible(&rule)))
        ));
        lines(&mut text, calls.iter().map(|one: &&Undecidable| &one.call), zone);
    }
    if !text.is_empty() {
        text.push('\n');
    }
    let changed = match done.changes.len() {
        0 => paint(GOOD, "no decision would change").to_string(),
        some => paint(WARN, format_args!("{} would change", plural(some, "decision"))).to_string(),
    };
    let calls = usize::try_from(done.replayed).unwrap_or(usize::MAX);
    text.push_str(&format!("{} replayed: {changed}", plural(calls, "call")));
    if !done.undecidable.is_empty() {
        text.push_str(&format!(", {} can't be told", done.undecidable.len()));
    }
    if done.left_out > 0 {
        text.push_str(&format!("; {} left out, which something else than rules decided", done.left_out));
    }
    text.push('\n');
    text
}

/// Those with the same head together, in the order in which heads come up.
fn alike<T, H: PartialEq>(all: &[T], head: impl Fn(&T) -> H) -> Vec<(H, Vec<&T>)> {
    let mut groups: Vec<(H, Vec<&T>)> = Vec::new();
    for one in all {
        let of = head(one);
        match groups.iter_mut().find(|(known, _)| *known == of) {
            Some((_, group)) => group.push(one),
            None => groups.push((of, vec![one])),
        }
    }
    groups
}

fn lines<'c>(text: &mut String, calls: impl ExactSizeIterator<Item = &'c ReplayedCall>, zone: &TimeDisplay) {
    let more = calls.len().saturating_sub(SHOWN);
    for call in calls.take(SHOWN) {
        let by = call.principal.as_ref().map_or("", |principal| principal.as_str());
        let arguments = call.arguments.to_string();
        text.push_str(&format!("  {}  {}  {}\n", shown(call.time, zone), visible(by), visible(&arguments)));
    }
    if more > 0 {
        text.push_str(&format!("  {}\n", paint(DIM, format_args!("and {more} more; --json has all"))));
    }
}

fn happens(decision: &SimulatedDecision) -> String {
    let code = decision.code.as_deref().unwrap_or_default();
    match decision.verdict {
        VerdictWord::Go => paint(GOOD, "runs at once").to_string(),
        VerdictWord::Hold => paint(WARN, format_args!("waits{}", step(decision))).to_string(),
        VerdictWord::Preview => format!("is previewed{}", step(decision)),
        VerdictWord::Explain => format!("is explained{}", step(decision)),
        VerdictWord::Refuse => paint(BAD, format_args!("is refused ({code})")).to_string(),
    }
}

fn step(decision: &SimulatedDecision) -> String {
    let kind = decision.confirm.map(Kind::as_str);
    let who = decision.strength.map(ApprovalStrength::as_str);
    match (kind, who) {
        (Some(kind), Some(who)) => format!(" for confirm {kind}, strength {who}"),
        (Some(kind), None) => format!(" for confirm {kind}"),
        (None, _) => String::new(),
    }
}
