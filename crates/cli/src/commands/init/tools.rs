//! Starts each imported server once, counts its tools by what they need, collects proposals, and ends it again. What was listed is
//! stored after the configuration is written, so that the first start of a host lists every tool at once. A server that does not
//! answer in time is left out.

use std::collections::BTreeMap;
use std::path::Path;

use countersign_config::{Origin, Source};
use countersign_gateway::upstreams::Condition;
use countersign_policy::effect::Effect;
use countersign_policy::ids::UpstreamId;
use countersign_policy::tool::Tool;
use countersign_store::{ListingOccurrence, PinState, Store, StoreFault, StoreUrl, ToolPin};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::import::{HostImport, ImportedServer};
use crate::command_result::CommandError;
use crate::commands::tools::classify::{self, Proposed};
use crate::config_file::{self, ConfigFiles};
use crate::local_gateway::{ResolvedConfig, with_store};
use crate::output::{BAD, Column, DIM, NAME, OutputSettings, PLAIN, Table, visible};
use crate::records;

#[derive(Clone, Debug, Default)]
pub(super) struct ToolRequirements {
    counts: BTreeMap<Effect, usize>,
    confirms: BTreeMap<String, usize>,
    unannotated: usize,
    down: Option<String>,
}

impl ToolRequirements {
    pub(super) fn value(&self) -> Value {
        let count = |effect| self.counts.get(&effect).copied().unwrap_or_default();
        json!({
            "read": count(Effect::Read), "write": count(Effect::Write),
            "destructive": count(Effect::Destructive), "confirm": self.confirms,
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

/// Starts every upstream of a configuration that is not written yet, on records that nobody keeps.
pub(super) fn inspect(
    path: &Path,
    text: &str,
    import: &HostImport,
    voice: OutputSettings,
) -> Result<Seen, CommandError> {
    // Children start in the configuration's folder, which may not be there yet.
    let there = path.ancestors().skip(1).find(|folder| folder.is_dir());
    let folder = there.map(Path::to_path_buf).unwrap_or_default();
    let files = ConfigFiles { sources: vec![Source::new(path.display().to_string(), text)], folder };
    let settled =
        files.parse()?.settle(&|reference| match (reference.origin, import.secrets.get(&reference.name)) {
            (Origin::Keyring, Some(secret)) => Ok(secret.clone()),
            (Origin::Keyring | Origin::Env | Origin::File, _) => files.look_up(reference),
        });
    let config = settled.map_err(|found| files.invalid(&found))?;
    let blueprint = ResolvedConfig::new(config, StoreUrl::Memory, files);
    blueprint.with_gateway(voice, async |gateway| {
        let mut all: BTreeMap<String, ToolRequirements> = BTreeMap::new();
        for (id, upstream) in gateway.upstreams.load().iter() {
            let down = match upstream.health().condition {
                Condition::Down(why) => Some(why),
                Condition::Starting => Some("it has not answered in time".to_owned()),
                Condition::Idle | Condition::Up => None,
            };
            all.insert(id.to_string(), ToolRequirements { down, ..ToolRequirements::default() });
        }
        let catalog = gateway.catalog.load_full();
        for listed in catalog.tools() {
            let needs = all.entry(listed.tool.upstream.to_string()).or_default();
            *needs.counts.entry(listed.outlook.effect).or_default() += 1;
            *needs.confirms.entry(listed.outlook.kind.to_string()).or_default() += 1;
            let hints = listed.tool.definition.get("annotations");
            let hinted = |name: &str| hints.is_some_and(|hints| hints.get(name).is_some());
            needs.unannotated += usize::from(!hinted("readOnlyHint") && !hinted("destructiveHint"));
        }
        let is_imported = |tool: &Tool| import.upstreams.iter().any(|one| one.id == tool.upstream.as_str());
        let mut listings = Vec::new();
        for id in gateway.upstreams.load_full().keys() {
            let listing = StoredListing::read(&gateway.store, id).await;
            listings.extend(listing.map_err(|fault| records::trouble(&fault, &StoreUrl::Memory))?);
        }
        Ok(Seen { needs: all, proposals: classify::proposals(&catalog, &is_imported), listings })
    })
}

pub(super) fn table(
    upstreams: &[ImportedServer],
    needs: &BTreeMap<String, ToolRequirements>,
    width: Option<usize>,
) -> String {
    let mut table = Table::new(&[
        Column::kept("UPSTREAM"),
        Column::spared("FROM", 1),
        Column::kept("READ"),
        Column::kept("WRITE"),
        Column::kept("DESTRUCTIVE"),
        Column::spared("CONFIRM", 2),
    ]);
    for one in upstreams {
        let from: Vec<&str> = one.from.iter().map(|(host, _)| host.title).collect();
        let mut row = vec![(one.id.clone(), NAME), (from.join(", "), DIM)];
        match needs.get(&one.id) {
            Some(ToolRequirements { down: Some(why), .. }) => {
                row.extend([("-".to_owned(), DIM), ("-".to_owned(), DIM), ("-".to_owned(), DIM)]);
                row.push((format!("does not answer: {}", visible(first_line(why))), BAD));
            }
            Some(needs) => {
                for effect in [Effect::Read, Effect::Write, Effect::Destructive] {
                    let count = needs.counts.get(&effect).copied().unwrap_or_default();
                    row.push((count.to_string(), PLAIN));
                }
                let kinds: Vec<String> =
                    needs.confirms.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
                row.push((kinds.join(", "), DIM));
            }
            None => row.extend(std::iter::repeat_n(("?".to_owned(), DIM), 4)),
        }
        table.row(row);
    }
    table.render(width)
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}
