//! Keeps the catalogue current: reads an upstream's list when it connects, announces a change, and at intervals; compares it with the
//! pins, records changes, closes plans on changed tools, and notifies clients. One refresher per gateway.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use countersign_config::{ToolNamePrefix, UpstreamStart, UpstreamTrust};
use countersign_mcp::jsonrpc::Notification;
use countersign_mcp::raw;
use countersign_mcp::server::Session;
use countersign_policy::digest::Digest;
use countersign_policy::ids::{FullName, ToolName, UpstreamId};
use countersign_store::{ListingOccurrence, PinState, StoreFault, ToolPin};
use serde_json::value::RawValue;
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::catalog::{
    Catalog, CatalogSource, HeaderMirroring, ListedTools, PinChange, PinComparison, PinPlan, plan_pins,
};
use crate::news_queue::{NewsQueue, UpstreamNews};
use crate::passthrough;
use crate::principal::Principal;
use crate::startup::{ListState, RememberedFacts};
use crate::state::GatewayState;
use crate::upstreams::{Upstream, UpstreamFault, UpstreamHealth};

/// How long announcements are collected before a list is read: a storm of them is read once.
const GATHER: Duration = Duration::from_millis(50);

/// How often a list is compared with pins that another gateway changes concurrently.
const TRIES: u32 = 8;

/// The first pause before a failed first list is tried again; doubled each time.
const FIRST_PAUSE: Duration = Duration::from_secs(5);

#[derive(Clone, Copy, Debug)]
pub struct UpstreamTerms {
    pub trust: UpstreamTrust,
    pub prefix: ToolNamePrefix,
    pub every: Duration,
    pub(crate) reach: UpstreamReach,
    pub start: UpstreamStart,
}

/// How an upstream is reached, as far as its list of tools depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpstreamReach {
    /// Over HTTP, where arguments may be mirrored as headers.
    Http,
    /// A process that speaks MCP on its standard input and output.
    Stdio,
    /// Commands of the configuration: listing them starts nothing.
    Command,
    /// A part of this program, whose definitions are trusted.
    Native,
}

impl UpstreamReach {
    /// Whether its list is at hand without a process or a connection.
    fn is_local(self) -> bool {
        match self {
            UpstreamReach::Command | UpstreamReach::Native => true,
            UpstreamReach::Http | UpstreamReach::Stdio => false,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChangeAnnouncement {
    Given,
    None,
    /// It did not, and this is its first list: `first_lists` notifies the clients.
    First,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChangeRecording {
    All,
    /// Another gateway pinned some of it concurrently.
    Otherwise,
    NotAll,
}

struct KnownListing {
    listed: Arc<ListedTools>,
    standings: HashMap<ToolName, PinComparison>,
    /// Whether the upstream listed this since it is served; otherwise it is what was accepted before.
    is_read: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnTools {
    Renamed,
    AsBefore,
}

pub struct CatalogRefresher {
    gateway: Arc<GatewayState>,
    /// In the order of the configuration, as the catalogue lists them.
    terms: RwLock<Vec<(UpstreamId, UpstreamTerms)>>,
    known: Mutex<BTreeMap<UpstreamId, KnownListing>>,
}

impl CatalogRefresher {
    pub(crate) fn new(gateway: Arc<GatewayState>, terms: Vec<(UpstreamId, UpstreamTerms)>) -> Self {
        Self { gateway, terms: RwLock::new(terms), known: Mutex::new(BTreeMap::new()) }
    }

    /// Serves these upstreams, before anything is listed.
    pub(crate) fn serve(&self, terms: Vec<(UpstreamId, UpstreamTerms)>) {
        let ids: Vec<UpstreamId> = terms.iter().map(|(id, _)| id.clone()).collect();
        *self.terms.write().unwrap_or_else(PoisonError::into_inner) = terms;
        self.gateway.startup.serve(&ids, &ids);
        self.swap(&BTreeMap::new());
    }

    fn terms(&self) -> Vec<(UpstreamId, UpstreamTerms)> {
        self.terms.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn terms_of(&self, id: &UpstreamId) -> Option<UpstreamTerms> {
        self.terms().into_iter().find(|(known, _)| known == id).map(|(_, terms)| terms)
    }

    /// Serves other upstreams from now on: drops the lists of removed and fresh ones, and reads the fresh ones.
    pub(crate) async fn change(
        self: &Arc<Self>,
        terms: Vec<(UpstreamId, UpstreamTerms)>,
        fresh: &[UpstreamId],
        own: OwnTools,
    ) {
        tracing::info!(upstreams = terms.len(), fresh = fresh.len(), "upstreams reloaded");
        let mut known = self.known.lock().await;
        known.retain(|id, _| terms.iter().any(|(kept, _)| kept == id) && !fresh.contains(id));
        let all: Vec<UpstreamId> = terms.iter().map(|(id, _)| id.clone()).collect();
        *self.terms.write().unwrap_or_else(PoisonError::into_inner) = terms;
        self.gateway.startup.serve(&all, fresh);
        let before = self.gateway.catalog.load_full();
        self.swap(&known);
        drop(known);
        let (refresher, fresh) = (Arc::clone(self), fresh.to_vec());
        tokio::spawn(async move { refresher.first_lists(fresh).await });
        self.gateway.startup.wait_briefly(false).await;
        if own == OwnTools::Renamed || !before.lists_the_same(&self.gateway.catalog.load()) {
            self.notify_tools_changed().await;
        }
    }

    pub(crate) async fn first_round(self: &Arc<Self>) {
        let all = self.terms().into_iter().map(|(id, _)| id).collect();
        self.first_lists(all).await;
    }

    /// Reads the first lists of these upstreams in parallel. Until one is read, its tools are those that were accepted before. Clients
    /// that were answered meanwhile are notified of each upstream that comes up.
    async fn first_lists(self: &Arc<Self>, ids: Vec<UpstreamId>) {
        let is_local = |id: &UpstreamId| self.terms_of(id).is_some_and(|terms| terms.reach.is_local());
        let (local, remote): (Vec<_>, Vec<_>) = ids.into_iter().partition(is_local);
        let mut readings = tokio::task::JoinSet::new();
        for id in remote.clone() {
            readings.spawn(Arc::clone(self).first_list(id));
        }
        // Requests wait for these: nothing here depends on another process, and a first list without them would be too short.
        for id in local {
            Arc::clone(self).first_list(id).await;
        }
        self.list_from_store(&remote).await;
        self.gateway.startup.note_recalled();
        let mut told = self.gateway.catalog.load_full();
        while let Some(read) = readings.join_next().await {
            // Several upstreams come up at the same time: one notification is enough.
            tokio::time::sleep(GATHER).await;
            let mut up: Vec<UpstreamId> = read.ok().flatten().into_iter().collect();
            while let Some(read) = readings.try_join_next() {
                up.extend(read.ok().flatten());
            }
            let now = self.gateway.catalog.load_full();
            if self.gateway.startup.answered_early() {
                if !now.lists_the_same(&told) {
                    self.notify_tools_changed().await;
                }
                self.notify_other_lists(&up).await;
            }
            told = now;
        }
    }

    /// Reads one upstream's first list as soon as it may start; none if that failed and is tried again later.
    async fn first_list(self: Arc<Self>, id: UpstreamId) -> Option<UpstreamId> {
        self.wait_for_start(&id).await;
        if self.reread(&id, ChangeAnnouncement::First).await {
            return Some(id);
        }
        tokio::spawn(async move { self.try_again(&id).await });
        None
    }

    async fn wait_for_start(&self, id: &UpstreamId) {
        if self.terms_of(id).is_some_and(|terms| terms.start == UpstreamStart::Lazy) {
            self.gateway.demand.raised().await;
        }
    }

    fn may_start(&self, terms: UpstreamTerms) -> bool {
        terms.start == UpstreamStart::Eager || self.gateway.demand.is_raised()
    }

    /// Tries an upstream whose first list failed, with growing pauses, until the regular interval takes over.
    async fn try_again(&self, id: &UpstreamId) {
        let mut pause = FIRST_PAUSE;
        while self.terms_of(id).is_some_and(|terms| pause < terms.every) {
            tracing::debug!(upstream = %id, ?pause, "first list failed, trying again later");
            tokio::time::sleep(pause).await;
            if self.gateway.startup.state(id) != Some(ListState::Failed)
                || self.reread(id, ChangeAnnouncement::None).await
            {
                return;
            }
            pause = pause.saturating_mul(2);
        }
    }

    /// Lists the accepted tools of upstreams that are not up yet, from the store.
    async fn list_from_store(&self, ids: &[UpstreamId]) {
        for id in ids {
            let (facts, tools) = match self.remembered(id).await {
                Ok(remembered) => remembered,
                Err(fault) => {
                    tracing::warn!(upstream = %id, fault = fault.inside(), "what is known of its tools could not be read");
                    continue;
                }
            };
            let mut known = self.known.lock().await;
            // The upstream may have listed its tools meanwhile, and that counts.
            if known.contains_key(id) || !self.gateway.startup.is_unlisted(id) {
                continue;
            }
            if let Some(facts) = facts {
                self.gateway.startup.remember(id, facts);
            }
            if let Some(tools) = tools {
                known.insert(id.clone(), tools);
                self.swap(&known);
                self.gateway.startup.note_remembered(id);
            }
        }
    }

    /// The stored facts of an upstream, and its tools that were accepted and listed the last time.
    async fn remembered(
        &self,
        id: &UpstreamId,
    ) -> Result<(Option<RememberedFacts>, Option<KnownListing>), StoreFault> {
        if self.terms_of(id).is_none_or(|terms| terms.reach == UpstreamReach::Native) {
            return Ok((None, None));
        }
        let facts = self.gateway.store.upstream_facts(id).await?.map(|facts| RememberedFacts::read(&facts));
        let mut pins = self.gateway.store.pins(id).await?;
        pins.retain(|pin| pin.state == PinState::Accepted);
        if let Some(facts) = &facts {
            // In the order of the last list, without tools that had left it.
            let place = |pin: &ToolPin| facts.tools.iter().position(|name| name == pin.tool.as_str());
            pins.retain(|pin| place(pin).is_some());
            pins.sort_by_key(place);
        }
        if pins.is_empty() {
            return Ok((facts, None));
        }
        let definitions = pins.iter().map(|pin| raw::to_raw(&pin.pinned.definition)).collect();
        let listed = ListedTools::read(id, definitions, HeaderMirroring::Plain, &self.gateway.schemas);
        let pinned: HashMap<&ToolName, Digest> =
            pins.iter().map(|pin| (&pin.tool, pin.pinned.fingerprint)).collect();
        // A stored definition counts only if it is what was accepted.
        let sound = listed.sound().into_iter();
        let as_pinned = sound.filter(|tool| pinned.get(&tool.name) == Some(&tool.fingerprint));
        let standings = as_pinned.map(|tool| (tool.name.clone(), PinComparison::Accepted)).collect();
        Ok((facts, Some(KnownListing { listed: Arc::new(listed), standings, is_read: false })))
    }

    /// Runs for the lifetime of the gateway.
    pub(crate) async fn run(self: Arc<Self>, news: Arc<NewsQueue>) {
        // Announced changes are forwarded even if nothing visible has changed.
        let mut announced: BTreeSet<UpstreamId> = BTreeSet::new();
        let mut due: BTreeMap<UpstreamId, Instant> =
            self.terms().into_iter().map(|(id, terms)| (id, Instant::now() + terms.every)).collect();
        loop {
            let next =
                due.values().min().copied().unwrap_or_else(|| Instant::now() + Duration::from_secs(3_600));
            tokio::select! {
                heard = news.next() => match heard {
                    UpstreamNews::Connected(id) => {
                        // The first list is read by `first_lists`; a new connection may list other tools.
                        if self.known.lock().await.get(&id).is_some_and(|known| known.is_read) {
                            due.insert(id, Instant::now() + GATHER);
                        }
                    }
                    UpstreamNews::Notified(id, said) => {
                        if &*said.method == "notifications/tools/list_changed" {
                            announced.insert(id.clone());
                            due.insert(id, Instant::now() + GATHER);
                        } else {
                            self.forward_notification(&id, &said).await;
                        }
                    }
                },
                () = tokio::time::sleep_until(next) => {
                    let now = Instant::now();
                    let late: Vec<UpstreamId> =
                        due.iter().filter(|(_, at)| **at <= now).map(|(id, _)| id.clone()).collect();
                    for id in late {
                        // Removed upstreams have no next time.
                        let Some(terms) = self.terms_of(&id) else {
                            due.remove(&id);
                            continue;
                        };
                        due.insert(id.clone(), now + terms.every);
                        if !self.may_start(terms) {
                            continue;
                        }
                        let announcement = if announced.remove(&id) { ChangeAnnouncement::Given } else { ChangeAnnouncement::None };
                        let refresher = Arc::clone(&self);
                        tokio::spawn(async move { refresher.reread(&id, announcement).await });
                    }
                }
            }
        }
    }

    /// Forwards a notification to every client that reaches the upstream, unchanged.
    async fn forward_notification(&self, id: &UpstreamId, said: &Notification) {
        let reaches = |session: &Session| {
            session.identity().get::<Principal>().is_some_and(|principal| {
                principal.scopes.upstreams.as_ref().is_none_or(|all| all.contains(id))
            })
        };
        self.notify_clients(&said.method, said.params.as_deref(), reaches).await;
    }

    /// Notifies clients concurrently: one that does not read delays no other.
    async fn notify_clients(
        &self,
        method: &str,
        params: Option<&RawValue>,
        is_meant: impl Fn(&Session) -> bool,
    ) {
        let (method, params): (Arc<str>, _) =
            (method.into(), params.map(|params| Arc::new(params.to_owned())));
        let mut told = tokio::task::JoinSet::new();
        for session in self.gateway.open_sessions().into_iter().filter(|session| is_meant(session)) {
            let (method, params) = (Arc::clone(&method), params.clone());
            told.spawn(
                async move { session.notify(&method, params.as_ref().map(|params| &***params)).await },
            );
        }
        while told.join_next().await.is_some() {}
    }

    /// Reads an upstream's list, compares it with the pins, and swaps the catalogue if anything changed.
    pub async fn relist(&self, id: &UpstreamId) {
        self.reread(id, ChangeAnnouncement::None).await;
    }

    /// The same; whether it was read.
    async fn reread(&self, id: &UpstreamId, announcement: ChangeAnnouncement) -> bool {
        let is_read = self.read_list(id, announcement).await;
        if !is_read {
            self.gateway.startup.note_failure(id);
        }
        is_read
    }

    async fn read_list(&self, id: &UpstreamId, announcement: ChangeAnnouncement) -> bool {
        let Some(upstream) = self.gateway.upstreams.load().get(id).cloned() else { return false };
        let definitions = match upstream.tools().await {
            Ok(definitions) => definitions,
            Err(fault) => {
                tracing::warn!(upstream = %id, why = why(&fault), "the tool list could not be read");
                return false;
            }
        };
        let Some(terms) = self.terms_of(id) else { return false };
        tracing::debug!(upstream = %id, tools = definitions.len(), ?announcement, "tool list read");
        // Depends on the negotiated era, so it is known only after the list was read.
        let headers = headers(terms.reach, &upstream.health());
        let listed = Arc::new(ListedTools::read(id, definitions, headers, &self.gateway.schemas));
        if terms.reach != UpstreamReach::Native {
            self.remember(upstream.as_ref(), &listed).await;
        }
        match self.apply_listing(id, listed, announcement).await {
            Ok(()) => !self.gateway.startup.is_unlisted(id),
            Err(fault) => {
                tracing::error!(upstream = %id, fault = fault.inside(), "pins could not be compared: the list stays as it was");
                false
            }
        }
    }

    /// Stores the upstream's own description for the next start.
    async fn remember(&self, upstream: &dyn Upstream, listed: &ListedTools) {
        let facts = RememberedFacts::of(upstream, &listed.sound());
        let text = facts.to_text();
        if self.gateway.startup.remember(upstream.id(), facts)
            && let Err(fault) = self.gateway.store.remember_upstream(upstream.id(), text).await
        {
            tracing::warn!(upstream = %upstream.id(), fault = fault.inside(), "it is not remembered");
        }
    }

    /// Compares the current list with the pins again: a person may have accepted something in another process.
    pub async fn recheck(&self, id: &UpstreamId) {
        let listed = self
            .known
            .lock()
            .await
            .get(id)
            .filter(|known| known.is_read)
            .map(|known| Arc::clone(&known.listed));
        let Some(listed) = listed else { return };
        if let Err(fault) = self.apply_listing(id, listed, ChangeAnnouncement::None).await {
            tracing::error!(upstream = %id, fault = fault.inside(), "pins could not be compared: the list stays as it was");
        }
    }

    async fn apply_listing(
        &self,
        id: &UpstreamId,
        listed: Arc<ListedTools>,
        announcement: ChangeAnnouncement,
    ) -> Result<(), StoreFault> {
        let Some(terms) = self.terms_of(id) else { return Ok(()) };
        // Under the lock from here on: two lists of one upstream must not overtake each other.
        let mut known = self.known.lock().await;
        let Some(plan) = self.compare(id, terms, &listed).await? else { return Ok(()) };
        known.insert(id.clone(), KnownListing { listed, standings: plan.standings, is_read: true });
        let before = self.gateway.catalog.load_full();
        self.swap(&known);
        drop(known);
        self.gateway.startup.note(id, ListState::Listed);
        let is_news = match announcement {
            ChangeAnnouncement::Given => true,
            ChangeAnnouncement::None => !before.lists_the_same(&self.gateway.catalog.load()),
            ChangeAnnouncement::First => false,
        };
        if is_news {
            self.notify_tools_changed().await;
        }
        Ok(())
    }

    /// Decides about each tool and stores what is new; none where that failed.
    async fn compare(
        &self,
        id: &UpstreamId,
        terms: UpstreamTerms,
        listed: &ListedTools,
    ) -> Result<Option<PinPlan>, StoreFault> {
        // Our own definitions need no pins: a newer program may have others.
        if terms.reach == UpstreamReach::Native {
            return Ok(Some(PinPlan::all_accepted(&listed.sound())));
        }
        for _ in 0..TRIES {
            let occurrence = self.gateway.store.sight_of(id).await?;
            let pins = self.gateway.store.pins(id).await?;
            let plan = plan_pins(terms.trust, occurrence, &pins, &listed.sound());
            match self.record(id, occurrence, &plan.changes).await? {
                ChangeRecording::All => return Ok(Some(plan)),
                // Another gateway saw the same list concurrently: its pins count, so compare again.
                ChangeRecording::Otherwise => {}
                ChangeRecording::NotAll => return Ok(None),
            }
        }
        Ok(None)
    }

    /// Stores what is new about an upstream's tools in one transaction, however many tools there are.
    async fn record(
        &self,
        id: &UpstreamId,
        occurrence: ListingOccurrence,
        changes: &[PinChange],
    ) -> Result<ChangeRecording, StoreFault> {
        let now = self.gateway.now();
        let mut writes = tokio::task::JoinSet::new();
        let (mut firsts, mut at_first_sight) = (Vec::new(), PinState::Pending);
        for change in changes.iter().cloned() {
            match change {
                PinChange::First { tool, seen, state } => {
                    firsts.push((tool, seen));
                    at_first_sight = state;
                }
                PinChange::Propose { tool, seen } => {
                    let store = self.gateway.store.clone();
                    let tool = FullName { upstream: id.clone(), tool };
                    writes.spawn(async move {
                        store.propose_pin(&tool, &seen, now).await?;
                        store.cancel_for_tool(&tool, now).await
                    });
                }
            }
        }
        // An empty first list is a first sight too: later tools wait for a person.
        let nothing_new = firsts.is_empty() && occurrence == ListingOccurrence::Later;
        let as_planned = nothing_new || self.gateway.store.pin_all(id, &firsts, at_first_sight, now).await?;
        while let Some(written) = writes.join_next().await {
            // A task that panicked wrote nothing: the catalogue stays as it was, and the next list tries again.
            let Ok(written) = written else { return Ok(ChangeRecording::NotAll) };
            written?.into_iter().for_each(|plan| self.gateway.announce(plan));
        }
        Ok(if as_planned { ChangeRecording::All } else { ChangeRecording::Otherwise })
    }

    /// Builds the catalogue under the current policy, after a list, a pin or a rule changed.
    pub async fn rebuild(&self) {
        let known = self.known.lock().await;
        self.swap(&known);
    }

    fn swap(&self, known: &BTreeMap<UpstreamId, KnownListing>) {
        let sources: Vec<CatalogSource> = self
            .terms()
            .iter()
            // An upstream without a list counts as well: whether there is only one must not depend on which are up.
            .map(|(id, terms)| match known.get(id) {
                Some(known) => CatalogSource {
                    listed: Arc::clone(&known.listed),
                    standings: known.standings.clone(),
                    prefix: terms.prefix,
                    is_starting: !known.is_read,
                },
                None => CatalogSource {
                    listed: Arc::new(ListedTools::empty(id)),
                    standings: HashMap::new(),
                    prefix: terms.prefix,
                    is_starting: true,
                },
            })
            .collect();
        // Swapped as a whole: a request sees one catalogue from its start to its end.
        let catalog = Catalog::build(&sources, &self.gateway.policy.load().rules);
        self.gateway.catalog.store(Arc::new(catalog));
    }

    async fn notify_tools_changed(&self) {
        tracing::debug!("tool list changed, notifying clients");
        self.notify_clients("notifications/tools/list_changed", None, |_| true).await;
    }

    /// Notifies clients of prompts and resources of upstreams that came up.
    async fn notify_other_lists(&self, up: &[UpstreamId]) {
        let upstreams = self.gateway.upstreams.load_full();
        for capability in ["prompts", "resources"] {
            let mut here = up.iter().filter_map(|id| upstreams.get(id));
            if here.any(|upstream| passthrough::offers(upstream.as_ref(), capability)) {
                let method = format!("notifications/{capability}/list_changed");
                self.notify_clients(&method, None, |_| true).await;
            }
        }
    }
}

fn headers(reach: UpstreamReach, health: &UpstreamHealth) -> HeaderMirroring {
    match (reach, health.era) {
        (UpstreamReach::Http, Some("modern")) => HeaderMirroring::Mirrored,
        (UpstreamReach::Http | UpstreamReach::Stdio | UpstreamReach::Command | UpstreamReach::Native, _) => {
            HeaderMirroring::Plain
        }
    }
}

fn why(fault: &UpstreamFault) -> String {
    match fault {
        UpstreamFault::Rpc(error) => error.message(),
        UpstreamFault::Unavailable { why, .. }
        | UpstreamFault::Timeout { why, .. }
        | UpstreamFault::TooLarge { why } => why.clone(),
    }
}
