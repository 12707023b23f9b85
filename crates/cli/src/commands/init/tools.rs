//! Starts each imported server once, counts its tools by what they need, collects proposals, and ends it again. What was listed is
//! stored after the configuration is written, so that the first start of a host lists every tool at once. A server that does not
//! answer in its own time holds up no other.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use countersign_config::{Origin, Source};
use countersign_gateway::catalog::Listed;
use countersign_gateway::state::GatewayState;
use countersign_gateway::upstreams::Condition;
use countersign_policy::confirm::Kind;
use countersign_policy::effect::Effect;
use countersign_policy::ids::UpstreamId;
use countersign_policy::tool::Tool;
use countersign_store::{ListingOccurrence, PinState, Store, StoreFault, StoreUrl, ToolPin};
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::import::{HostImport, ImportedServer};
use super::start_display::StartDisplay;
use crate::command_result::CommandError;
use crate::commands::tools::classify::{self, Proposed};
use crate::config_file::{self, ConfigFiles};
use crate::local_gateway::{ResolvedConfig, with_store};
use crate::output::{BAD, Column, DIM, NAME, OutputSettings, PLAIN, Table, paint, visible};
use crate::records;

/// How many lines of a reason are shown below the first; the rest is in the server's own log.
const REASON_LINES: usize = 4;

#[derive(Clone, Debug, Default)]
pub(super) struct ToolRequirements {
    counts: BTreeMap<Effect, usize>,
    confirms: BTreeMap<String, usize>,
    unannotated: usize,
    down: Option<String>,
}

impl ToolRequirements {
    /// Whether the server did not answer.
    pub(super) fn is_down(&self) -> bool {
        self.down.is_some()
    }

    pub(super) fn tools_of(&self, effect: Effect) -> usize {
        self.counts.get(&effect).copied().unwrap_or_default()
    }

    /// How many tools ask in which way; those that do not ask are the reads.
    fn asking_kinds(&self) -> String {
        let asking = self.confirms.iter().filter(|(kind, _)| kind.as_str() != Kind::None.as_str());
        let kinds: Vec<String> = asking.map(|(kind, count)| format!("{count} {kind}")).collect();
        if kinds.is_empty() { "-".to_owned() } else { kinds.join(", ") }
    }

    fn count(&mut self, listed: &Listed) {
        *self.counts.entry(listed.outlook.effect).or_default() += 1;
        *self.confirms.entry(listed.outlook.kind.to_string()).or_default() += 1;
        let hints = listed.tool.definition.get("annotations");
        let hinted = |name: &str| hints.is_some_and(|hints| hints.get(name).is_some());
        self.unannotated += usize::from(!hinted("readOnlyHint") && !hinted("destructiveHint"));
    }

    pub(super) fn value(&self) -> Value {
        json!({
            "read": self.tools_of(Effect::Read), "write": self.tools_of(Effect::Write),
            "destructive": self.tools_of(Effect::Destructive), "confirm": self.confirms,
            "unannotated": self.unannotated, "down": self.down,
        })
    }
}

#[derive(Default)]
pub(super) struct Seen {
    pub(super) needs: BTreeMap<String, ToolRequirements>,
    /// Which of the imported tools most likely only read.
    pub(super) proposals: Vec<Proposed>,
    /// What the store keeps of each list.
    pub(super) listings: Vec<StoredListing>,
}

/// What a store keeps of an upstream that was listed.
pub(super) struct StoredListing {
    upstream: UpstreamId,
    facts: String,
    pins: Vec<ToolPin>,
}

impl StoredListing {
    async fn read(store: &Store, upstream: &UpstreamId) -> Result<Option<Self>, StoreFault> {
        let Some(facts) = store.upstream_facts(upstream).await? else { return Ok(None) };
        Ok(Some(Self { upstream: upstream.clone(), facts, pins: store.pins(upstream).await? }))
    }

    /// Records the list as a gateway would at its first sight. One that a gateway recorded before counts, and stays.
    async fn write(&self, store: &Store) -> Result<(), StoreFault> {
        if store.sight_of(&self.upstream).await? == ListingOccurrence::Later {
            return Ok(());
        }
        let state = self.pins.first().map_or(PinState::Pending, |pin| pin.state);
        let seen: Vec<_> = self.pins.iter().map(|pin| (pin.tool.clone(), pin.pinned.clone())).collect();
        store.pin_all(&self.upstream, &seen, state, Timestamp::now()).await?;
        store.remember_upstream(&self.upstream, self.facts.clone()).await
    }
}

/// Stores what was listed where the configuration says.
pub(super) fn store_listings(config: &Path, listings: &[StoredListing]) -> Result<(), CommandError> {
    if listings.is_empty() {
        return Ok(());
    }
    let url = records::configured(&config_file::read(&[config.to_owned()])?)?;
    with_store(&url, async |store| {
        for listing in listings {
            listing.write(&store).await.map_err(|fault| records::trouble(&fault, &url))?;
        }
        Ok(())
    })
}

/// Starts the imported servers of a configuration that is not written yet, each once, on records that nobody keeps.
pub(super) fn inspect(
    path: &Path,
    text: &str,
    import: &HostImport,
    wait: Duration,
    voice: OutputSettings,
) -> Result<Seen, CommandError> {
    // Children start in the configuration's folder, which may not be there yet.
    let there = path.ancestors().skip(1).find(|folder| folder.is_dir());
    let folder = there.map(Path::to_path_buf).unwrap_or_default();
    let files = ConfigFiles { sources: vec![Source::new(path.display().to_string(), text)], folder };
    let settled =
        files.parse()?.settle(&|reference| match (reference.origin, import.secret(&reference.name)) {
            (Origin::Keyring, Some(secret)) => Ok(secret.clone()),
            (Origin::Keyring | Origin::Env | Origin::File, _) => files.look_up(reference),
        });
    let config = settled.map_err(|found| files.invalid(&found))?;
    let is_imported = |id: &UpstreamId| import.upstreams.iter().any(|one| one.id == id.as_str());
    let blueprint =
        ResolvedConfig::new(config, StoreUrl::Memory, files).only(|upstream| is_imported(&upstream.id));
    blueprint.with_starting_gateway(voice, async |gateway| {
        let mut needs = start_all(&gateway, wait, voice).await;
        let catalog = gateway.catalog.load_full();
        for listed in catalog.tools() {
            needs.entry(listed.tool.upstream.to_string()).or_default().count(listed);
        }
        let mut listings = Vec::new();
        for id in gateway.upstreams.load_full().keys() {
            let listing = StoredListing::read(&gateway.store, id).await;
            listings.extend(listing.map_err(|fault| records::trouble(&fault, &StoreUrl::Memory))?);
        }
        let proposals = classify::proposals(&catalog, &|tool: &Tool| is_imported(&tool.upstream));
        Ok(Seen { needs, proposals, listings })
    })
}

/// Starts them at the same time. Each has its own limit, and none is started a second time.
async fn start_all(
    gateway: &Arc<GatewayState>,
    wait: Duration,
    voice: OutputSettings,
) -> BTreeMap<String, ToolRequirements> {
    let upstreams = gateway.upstreams.load_full();
    let display = StartDisplay::new(voice, upstreams.keys().map(UpstreamId::as_str));
    let mut starts = JoinSet::new();
    for (id, upstream) in upstreams.iter() {
        let (gateway, id, upstream) = (Arc::clone(gateway), id.clone(), Arc::clone(upstream));
        let line = display.begin(id.as_str());
        starts.spawn(async move {
            let in_time = tokio::time::timeout(wait, gateway.attempted(&id)).await.is_ok();
            let health = upstream.health();
            let down = match (health.condition, in_time) {
                // What it said last mostly says more than how it ended.
                (Condition::Down(why), _) => Some(format!("{why}\n{}", health.stderr_tail)),
                (Condition::Starting | Condition::Idle | Condition::Up, false) => {
                    let seconds = wait.as_secs();
                    Some(format!(
                        "it listed no tools in {seconds} s; a first download may take longer (--wait)"
                    ))
                }
                (Condition::Starting | Condition::Idle | Condition::Up, true) => None,
            };
            if down.is_some() {
                // An upstream that is open would be tried again while the others start.
                upstream.close().await;
            }
            let count = gateway.catalog.load().tools().filter(|listed| listed.tool.upstream == id).count();
            line.end(down.is_none().then_some(count));
            (id.to_string(), ToolRequirements { down, ..ToolRequirements::default() })
        });
    }
    // A task that panicked has seen nothing: its server counts as not looked at.
    let mut seen = BTreeMap::new();
    while let Some(start) = starts.join_next().await {
        seen.extend(start.ok());
    }
    display.end();
    seen
}

/// Every column stays: what does not fit is shortened, and reasons have their place below.
pub(super) fn table(
    upstreams: &[ImportedServer],
    needs: &BTreeMap<String, ToolRequirements>,
    width: Option<usize>,
) -> String {
    let columns = ["SERVER", "FROM", "READ", "WRITE", "DESTRUCTIVE", "CONFIRM"].map(Column::kept);
    let mut table = Table::new(&columns);
    for one in upstreams {
        let mut row = vec![(one.id.clone(), NAME), (from(one, width), DIM)];
        match needs.get(&one.id) {
            Some(ToolRequirements { down: Some(_), .. }) => {
                row.extend(std::iter::repeat_n(("-".to_owned(), DIM), 3));
                row.push(("no answer".to_owned(), BAD));
            }
            Some(needs) => {
                for effect in [Effect::Read, Effect::Write, Effect::Destructive] {
                    row.push((needs.tools_of(effect).to_string(), PLAIN));
                }
                row.push((needs.asking_kinds(), DIM));
            }
            None => row.extend(std::iter::repeat_n(("?".to_owned(), DIM), 4)),
        }
        table.row(row);
    }
    table.render(width)
}

/// The hosts a server came from; on a terminal the first, and how many more.
fn from(server: &ImportedServer, width: Option<usize>) -> String {
    let titles: Vec<&str> = server.from.iter().map(|(host, _)| host.title).collect();
    match (titles.as_slice(), width) {
        ([first, _, rest @ ..], Some(_)) => format!("{first} +{}", rest.len() + 1),
        _ => titles.join(", "),
    }
}

/// Why servers did not answer: the reason, and the last lines of what each said.
pub(super) fn reasons(needs: &BTreeMap<String, ToolRequirements>) -> String {
    let mut text = String::new();
    for (id, why) in needs.iter().filter_map(|(id, needs)| Some((id, needs.down.as_ref()?))) {
        let lines: Vec<&str> = why.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        let Some((first, said)) = lines.split_first() else { continue };
        text.push_str(&format!("`{id}` does not answer: {}\n", visible(first)));
        let last = said.get(said.len().saturating_sub(REASON_LINES)..).unwrap_or_default();
        // A reason may quote what was said already.
        for line in last.iter().filter(|line| !first.contains(**line)) {
            text.push_str(&format!("  {}\n", visible(line)));
        }
    }
    if text.is_empty() { text } else { paint(BAD, text) }
}
