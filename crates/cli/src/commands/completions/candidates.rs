//! The names a shell offers: plans that wait, tools and upstreams, as the configuration and the records have them. Starts no upstream,
//! makes no store, and offers nothing where something is wrong.

use clap_complete::CompletionCandidate;
use countersign_config::{Config, UpstreamKind};
use countersign_policy::confirm::PlanState;
use countersign_store::{PlanFilter, Store, StoreFault, StoreUrl};
use jiff::Timestamp;

use crate::commands::plans::sheet;
use crate::output::visible;
use crate::{config_file, environment, natives, records};

/// How many plans are offered.
const MOST_PLANS: u32 = 100;

/// Plans that wait for a decision, with who asks for what.
pub(crate) fn pending_plans() -> Vec<CompletionCandidate> {
    let home = environment::home_text();
    let (filter, now) = (
        PlanFilter { state: Some(PlanState::Pending), limit: Some(MOST_PLANS), ..PlanFilter::default() },
        Timestamp::now(),
    );
    let rows = from_store(async |store| store.plans(filter).await).unwrap_or_default();
    let pending = rows.into_iter().filter(|row| sheet::state(row, now) == PlanState::Pending);
    let candidate = |row: countersign_store::PlanRow| {
        let about = format!("{}, {}", row.plan.tool, row.plan.asked_by(home.as_deref()));
        CompletionCandidate::new(row.plan.id.to_string()).help(Some(visible(&about).into_owned().into()))
    };
    pending.map(candidate).collect()
}

/// Tools as their upstreams listed them last, and those that need no upstream to list them.
pub(crate) fn tool_names() -> Vec<CompletionCandidate> {
    let upstreams = config().map(|config| config.upstreams).unwrap_or_default();
    let pins = from_store(async |store| {
        let mut all = Vec::new();
        for upstream in &upstreams {
            all.extend(store.pins(&upstream.id).await?);
        }
        Ok(all)
    });
    let pinned = pins.unwrap_or_default().into_iter().map(|pin| format!("{}:{}", pin.upstream, pin.tool));
    let own = upstreams.iter().flat_map(|upstream| {
        let tools = own_tools(&upstream.kind).into_iter();
        tools.map(|tool| format!("{}:{tool}", upstream.id)).collect::<Vec<_>>()
    });
    pinned.chain(own).map(|name| CompletionCandidate::new(visible(&name).into_owned())).collect()
}

/// The tools of an upstream that the configuration or this program brings along.
fn own_tools(kind: &UpstreamKind) -> Vec<String> {
    match kind {
        UpstreamKind::Native { kind, .. } => {
            let name = |one: serde_json::Value| one.get("name")?.as_str().map(str::to_owned);
            natives::definitions(*kind).into_iter().filter_map(name).collect()
        }
        UpstreamKind::Command { tools, .. } => tools.iter().map(|tool| tool.name.to_string()).collect(),
        UpstreamKind::Stdio { .. } | UpstreamKind::Http { .. } => Vec::new(),
    }
}

/// Upstreams of the configuration.
pub(crate) fn upstream_names() -> Vec<CompletionCandidate> {
    let upstreams = config().map(|config| config.upstreams).unwrap_or_default();
    upstreams.into_iter().map(|one| CompletionCandidate::new(visible(one.id.as_str()).into_owned())).collect()
}

fn config() -> Option<Config> {
    config_file::find(&[]).ok()??.parse().ok()
}

fn store_url() -> Option<StoreUrl> {
    let url = match config_file::find(&[]).ok()? {
        Some(files) => records::configured(&files).ok()?,
        None => records::DEFAULT.parse().ok()?,
    };
    records::require(&url).ok().map(|()| url)
}

fn from_store<T>(work: impl AsyncFnOnce(&Store) -> Result<T, StoreFault>) -> Option<T> {
    let url = store_url()?;
    records::with_read_only(&url, async |store| {
        work(&store).await.map_err(|fault| records::trouble(&fault, &url))
    })
    .ok()
}
