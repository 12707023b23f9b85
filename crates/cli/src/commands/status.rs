//! `countersign status`: the configuration, the page, pending plans and withheld tools. Reads the configuration and the records; starts nothing.

use clap::Args;
use countersign_config::{Config, UpstreamKind};
use countersign_gateway::catalog::Catalog;
use countersign_policy::confirm::PlanState;
use countersign_store::ledger::{LedgerFilter, LedgerRow};
use countersign_store::{PlanFilter, Store, StoreFault, StoreUrl};
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use super::activity::rows;
use super::open;
use super::plans::sheet;
use crate::cli::Cli;
use crate::command_result::{Answer, CommandResult};
use crate::config_file::{self, ConfigFiles};
use crate::local_gateway::StoreArgs;
use crate::output::{BAD, BOLD, DIM, GOOD, OutputSettings, WARN, exact, paint, plural, shown, visible};
use crate::{log, natives, records};

pub(crate) const EXAMPLES: &str = "Examples:
  countersign status
  countersign status --json";

#[derive(Args, Debug)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    of: StoreArgs,
}

/// What the records say.
struct RecordedStatus {
    page: Option<String>,
    pending: usize,
    oldest: Option<Timestamp>,
    paused: Vec<String>,
    calls: u64,
    refused: u64,
    last: Option<LedgerRow>,
    accepted: usize,
    /// Tools that wait for a person, by name.
    withheld: Vec<String>,
}

pub(crate) fn run(args: &StatusArgs, cli: &Cli, voice: OutputSettings) -> CommandResult {
    let files = config_file::find(&cli.config)?;
    let url = args.of.url(cli)?;
    let found = match records::require(&url) {
        Ok(()) => Some(records::with_read_only(&url, async |store| {
            read(&store, files.as_ref()).await.map_err(|fault| records::trouble(&fault, &url))
        })?),
        // Nothing was recorded yet: that is a state, too.
        Err(_) => None,
    };
    Ok(answer(files.as_ref(), &url, found, voice))
}

async fn read(store: &Store, files: Option<&ConfigFiles>) -> Result<RecordedStatus, StoreFault> {
    let now = Timestamp::now();
    let filter = PlanFilter { state: Some(PlanState::Pending), limit: Some(1000), ..PlanFilter::default() };
    let mut pending = store.plans(filter).await?;
    pending.retain(|row| sheet::state(row, now) == PlanState::Pending);
    let day = now.checked_sub(SignedDuration::from_hours(24)).unwrap_or(now);
    let summary = store.summary(day, now).await?;
    let count = |all: &[countersign_store::ledger::NamedCount], name: &str| {
        all.iter().find(|one| one.name == name).map_or(0, |one| one.count)
    };
    let last = store.activity(LedgerFilter { limit: Some(1), ..LedgerFilter::default() }).await?.rows.pop();
    // A configuration with a mistake is `doctor`'s to explain.
    let config = files.and_then(|files| files.parse().ok());
    let catalog = recorded_catalog(store, config.as_ref()).await?;
    let withheld = catalog.tools().filter(|listed| !listed.is_accepted());
    Ok(RecordedStatus {
        page: store.desk_url().await?,
        pending: pending.len(),
        oldest: pending.last().map(|row| row.plan.created),
        paused: store.all_paused().await?.into_iter().map(|(who, _)| who.to_string()).collect(),
        calls: count(&summary.by_kind, "call"),
        refused: count(&summary.by_status, "refused"),
        last,
        accepted: catalog.accepted().count() + config.as_ref().map_or(0, own_tools),
        withheld: withheld.map(|listed| listed.tool.full_name().to_string()).collect(),
    })
}

/// The tools as they were listed last, of the upstreams that are configured.
async fn recorded_catalog(store: &Store, config: Option<&Config>) -> Result<Catalog, StoreFault> {
    let Some(config) = config else { return Ok(Catalog::default()) };
    let mut known = Vec::new();
    for upstream in &config.upstreams {
        known.push((upstream.id.clone(), upstream.prefix, store.pins(&upstream.id).await?));
    }
    Ok(Catalog::of_pins(known, &config.rules))
}

/// How many tools the configuration and this program bring along: no upstream lists them, so they are not recorded.
fn own_tools(config: &Config) -> usize {
    let count = |kind: &UpstreamKind| match kind {
        UpstreamKind::Native { kind, .. } => natives::definitions(*kind).len(),
        UpstreamKind::Command { tools, .. } => tools.len(),
        UpstreamKind::Stdio { .. } | UpstreamKind::Http { .. } => 0,
    };
    config.upstreams.iter().map(|upstream| count(&upstream.kind)).sum()
}

fn answer(
    files: Option<&ConfigFiles>,
    url: &StoreUrl,
    found: Option<RecordedStatus>,
    voice: OutputSettings,
) -> Answer {
    let mut lines = StatusLines::default();
    let names = files.map(ConfigFiles::names).unwrap_or_default();
    let configured =
        if names.is_empty() { "none: countersign init writes one".to_owned() } else { names.join(", ") };
    lines.add("configuration", &visible(&configured));
    let log = log::usual_file();
    let data = Answer::default()
        .with("configuration", json!(names))
        .with("store", url.to_string())
        .with("log_file", json!(log.as_ref().map(|path| path.display().to_string())));
    let Some(found) = found else {
        lines.add(
            "records",
            &format!("{} {}", visible(&url.to_string()), paint(DIM, "(nothing recorded yet)")),
        );
        return Answer { text: lines.0, ..data.with("page", json!(null)).with("pending", 0) };
    };
    lines.add("records", &visible(&url.to_string()));
    let page = found.page.filter(|page| open::answers(page));
    lines.add(
        "gateway",
        &match &page {
            Some(page) => format!("{}, its page is at {}", paint(GOOD, "running"), visible(page)),
            None => format!("{} {}", "no page answers", paint(DIM, "(hosts start one when they need it)")),
        },
    );
    let now = Timestamp::now();
    let zone = sheet::zone(voice, now);
    let since =
        found.oldest.map(|oldest| format!(", the oldest since {}", shown(oldest, &zone))).unwrap_or_default();
    let style = if found.pending > 0 { WARN } else { DIM };
    lines.add("waiting", &paint(style, format_args!("{}{since}", plural(found.pending, "plan"))));
    for who in &found.paused {
        let resume = format!("countersign plans resume {who}");
        lines.add("paused", &format!("{} {}", paint(BAD, visible(who)), paint(DIM, visible(&resume))));
    }
    let tools = format!("{} can be used", plural(found.accepted, "tool"));
    let withheld = found.withheld.len();
    lines.add(
        "tools",
        &match withheld {
            0 => tools,
            _ => format!(
                "{tools}, {}",
                paint(WARN, format_args!("{withheld} withheld: countersign tools list --withheld"))
            ),
        },
    );
    let last = found.last.as_ref().map(|row| {
        let who = rows::who(row).map(|who| format!(" by {who}")).unwrap_or_default();
        format!("; the last was {}{who} at {}", rows::about(row), shown(row.time, &zone))
    });
    let today = format!("{} in 24 hours, {} refused", plural(found.calls, "call row"), found.refused);
    lines.add("activity", &visible(&format!("{today}{}", last.unwrap_or_default())));
    if let Some(path) = &log {
        lines.add("log", &visible(&path.display().to_string()));
    }
    let data = data
        .with("page", json!(page))
        .with("pending", found.pending)
        .with("oldest_pending", json!(found.oldest.map(exact)))
        .with("paused", json!(found.paused))
        .with("tools", json!({"accepted": found.accepted, "withheld": found.withheld}))
        .with("last_24_hours", json!({"call_rows": found.calls, "refused": found.refused}))
        .with("last_row", json!(found.last));
    Answer { text: lines.0, ..data }
}

#[derive(Default)]
struct StatusLines(String);

impl StatusLines {
    /// `safe` has no text of others in it that was not made visible.
    fn add(&mut self, name: &str, safe: &str) {
        self.0.push_str(&format!("{} {safe}\n", paint(BOLD, format_args!("{name:<13}"))));
    }
}
