//! Keeping the catalogue true: lists are read when an upstream connects, says they changed, and now and then; pins are
//! compared, changes recorded, plans on changed tools closed, and lines told. One keeper for the whole house.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use countersign_core::config::{Prefix, Trust};
use countersign_core::ids::{FullName, ToolName, UpstreamId};
use countersign_store::{PinState, Sight, StoreFault};
use countersign_wire::frame::Notification;
use countersign_wire::serve::Session;
use serde_json::value::RawValue;
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::catalog::{Catalog, Headers, PinChange, PinPlan, Pinned, Roster, Source, plan_pins};
use crate::house::House;
use crate::line::Principal;
use crate::news_queue::{NewsQueue, UpstreamNews};
use crate::upstreams::{Health, UpstreamFault};

/// How long list changes are gathered before the list is read: a storm of them is read once.
const GATHER: Duration = Duration::from_millis(50);

/// How often a list is compared with pins that others change in the same moment.
const TRIES: u32 = 8;

/// How an upstream's list is treated.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// Whether its first list is believed.
    pub trust: Trust,
    /// How its tools are named on the direct surface.
    pub prefix: Prefix,
    /// How often its list is read again.
    pub every: Duration,
    /// How it is reached.
    pub reach: Reach,
}

/// How an upstream is reached, as far as its tools' definitions depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Over HTTP, where arguments may be mirrored as headers.
    Http,
    /// Any other way.
    Elsewhere,
    /// It is part of this program.
    Here,
}

/// Whether an upstream said itself that its list changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Word {
    /// It did.
    Given,
    /// It did not.
    None,
}

/// Whether every change of a list is in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Recorded {
    /// It is.
    All,
    /// Somebody else pinned some of it in the same moment.
    Otherwise,
    /// Something is not.
    NotAll,
}

struct Known {
    roster: Arc<Roster>,
    standings: HashMap<ToolName, Pinned>,
}

/// Whether our own tools have other names than before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnTools {
    /// They have.
    Renamed,
    /// They have not.
    AsBefore,
}

/// Keeps the catalogue.
pub struct Keeper {
    house: Arc<House>,
    /// In the order of the configuration, as the catalogue lists them.
    terms: RwLock<Vec<(UpstreamId, Terms)>>,
    known: Mutex<BTreeMap<UpstreamId, Known>>,
}

impl Keeper {
    /// A keeper of these upstreams' lists.
    pub fn new(house: Arc<House>, terms: Vec<(UpstreamId, Terms)>) -> Self {
        Self { house, terms: RwLock::new(terms), known: Mutex::new(BTreeMap::new()) }
    }

    /// Serves these upstreams, before anything is listed.
    pub fn serve(&self, terms: Vec<(UpstreamId, Terms)>) {
        *self.terms.write().unwrap_or_else(PoisonError::into_inner) = terms;
    }

    fn terms(&self) -> Vec<(UpstreamId, Terms)> {
        self.terms.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn terms_of(&self, id: &UpstreamId) -> Option<Terms> {
        self.terms().into_iter().find(|(known, _)| known == id).map(|(_, terms)| terms)
    }

    /// Other upstreams are served from now on: forgets the lists of those that are gone or new, and reads the new ones.
    pub async fn change(
        self: &Arc<Self>,
        terms: Vec<(UpstreamId, Terms)>,
        fresh: &[UpstreamId],
        own: OwnTools,
    ) {
        let mut known = self.known.lock().await;
        known.retain(|id, _| terms.iter().any(|(kept, _)| kept == id) && !fresh.contains(id));
        *self.terms.write().unwrap_or_else(PoisonError::into_inner) = terms;
        let before = self.house.catalog.load_full();
        self.swap(&known);
        drop(known);
        for id in fresh {
            self.relist(id).await;
        }
        if own == OwnTools::Renamed || !before.lists_the_same(&self.house.catalog.load()) {
            self.tell_lines().await;
        }
    }

    /// Reads every list once, all at the same time, and says that the house has settled.
    pub async fn first_round(self: &Arc<Self>) {
        let mut rounds = tokio::task::JoinSet::new();
        for (id, _) in self.terms() {
            let keeper = Arc::clone(self);
            rounds.spawn(async move { keeper.relist(&id).await });
        }
        while rounds.join_next().await.is_some() {}
        self.house.settle();
    }

    /// Goes on for as long as the house stands.
    pub async fn keep(self: Arc<Self>, news: Arc<NewsQueue>) {
        // Upstreams that said so themselves: their word is handed on even if nothing we can see has changed.
        let mut announced: BTreeSet<UpstreamId> = BTreeSet::new();
        let mut due: BTreeMap<UpstreamId, Instant> =
            self.terms().into_iter().map(|(id, terms)| (id, Instant::now() + terms.every)).collect();
        loop {
            let next =
                due.values().min().copied().unwrap_or_else(|| Instant::now() + Duration::from_secs(3_600));
            tokio::select! {
                heard = news.next() => match heard {
                    UpstreamNews::Connected(id) => {
                        // The first list is read by whoever opened the connection; later ones may differ.
                        if self.known.lock().await.contains_key(&id) {
                            due.insert(id, Instant::now() + GATHER);
                        }
                    }
                    UpstreamNews::Said(id, said) => {
                        if &*said.method == "notifications/tools/list_changed" {
                            announced.insert(id.clone());
                            due.insert(id, Instant::now() + GATHER);
                        } else {
                            self.hand_on(&id, &said).await;
                        }
                    }
                },
                () = tokio::time::sleep_until(next) => {
                    let now = Instant::now();
                    let late: Vec<UpstreamId> =
                        due.iter().filter(|(_, at)| **at <= now).map(|(id, _)| id.clone()).collect();
                    for id in late {
                        // One that is gone is due no more.
                        let Some(terms) = self.terms_of(&id) else {
                            due.remove(&id);
                            continue;
                        };
                        due.insert(id.clone(), now + terms.every);
                        let word = if announced.remove(&id) { Word::Given } else { Word::None };
                        let keeper = Arc::clone(&self);
                        tokio::spawn(async move { keeper.reread(&id, word).await });
                    }
                }
            }
        }
    }

    /// Hands a notification that is not ours to act on to every client that reaches the upstream, as it came.
    async fn hand_on(&self, id: &UpstreamId, said: &Notification) {
        let reaches = |line: &Session| {
            line.tag().get::<Principal>().is_some_and(|principal| {
                principal.scopes.upstreams.as_ref().is_none_or(|all| all.contains(id))
            })
        };
        self.notify_lines(&said.method, said.params.as_deref(), reaches).await;
    }

    /// Notifies these clients at once: one that does not read delays no other. One that is gone needs no news.
    async fn notify_lines(
        &self,
        method: &str,
        params: Option<&RawValue>,
        is_meant: impl Fn(&Session) -> bool,
    ) {
        let (method, params): (Arc<str>, _) =
            (method.into(), params.map(|params| Arc::new(params.to_owned())));
        let mut told = tokio::task::JoinSet::new();
        for line in self.house.lines().into_iter().filter(|line| is_meant(line)) {
            let (method, params) = (Arc::clone(&method), params.clone());
            told.spawn(async move { line.notify(&method, params.as_ref().map(|params| &***params)).await });
        }
        while told.join_next().await.is_some() {}
    }

    /// Reads an upstream's list, compares it with the pins, and swaps the catalogue if anything changed.
    pub async fn relist(&self, id: &UpstreamId) {
        self.reread(id, Word::None).await;
    }

    async fn reread(&self, id: &UpstreamId, word: Word) {
        let Some(upstream) = self.house.upstreams.load().get(id).cloned() else { return };
        let definitions = match upstream.tools().await {
            Ok(definitions) => definitions,
            Err(fault) => {
                tracing::warn!(upstream = %id, why = why(&fault), "the tool list could not be read");
                return;
            }
        };
        let Some(terms) = self.terms_of(id) else { return };
        let headers = headers(terms.reach, &upstream.health());
        let roster = Arc::new(Roster::read(id, definitions, headers, &self.house.schemas));
        if let Err(fault) = self.take(id, roster, word).await {
            tracing::error!(upstream = %id, fault = fault.inside(), "pins could not be compared: the list stays as it was");
        }
    }

    /// Compares what is listed with the pins again: a person may have accepted something meanwhile, in another process.
    pub async fn recheck(&self, id: &UpstreamId) {
        let roster = self.known.lock().await.get(id).map(|known| Arc::clone(&known.roster));
        let Some(roster) = roster else { return };
        if let Err(fault) = self.take(id, roster, Word::None).await {
            tracing::error!(upstream = %id, fault = fault.inside(), "pins could not be compared: the list stays as it was");
        }
    }

    async fn take(&self, id: &UpstreamId, roster: Arc<Roster>, word: Word) -> Result<(), StoreFault> {
        let Some(terms) = self.terms_of(id) else { return Ok(()) };
        // One at a time from here: two lists of one upstream must not cross.
        let mut known = self.known.lock().await;
        let Some(plan) = self.compare(id, terms, &roster).await? else { return Ok(()) };
        known.insert(id.clone(), Known { roster, standings: plan.standings });
        let before = self.house.catalog.load_full();
        self.swap(&known);
        drop(known);
        // Before the first round is over everyone who asks for the list is waiting for it anyway.
        let changed = !before.lists_the_same(&self.house.catalog.load());
        if self.house.is_settled() && (changed || word == Word::Given) {
            self.tell_lines().await;
        }
        Ok(())
    }

    /// What becomes of each tool, with everything that is new about them stored; none where that could not be.
    async fn compare(
        &self,
        id: &UpstreamId,
        terms: Terms,
        roster: &Roster,
    ) -> Result<Option<PinPlan>, StoreFault> {
        // Whoever trusts this program trusts its own definitions; a newer one may have others.
        if terms.reach == Reach::Here {
            return Ok(Some(PinPlan::all_accepted(&roster.sound())));
        }
        for _ in 0..TRIES {
            let sight = self.house.store.sight_of(id).await?;
            let pins = self.house.store.pins(id).await?;
            let plan = plan_pins(terms.trust, sight, &pins, &roster.sound());
            match self.record(id, sight, &plan.changes).await? {
                Recorded::All => return Ok(Some(plan)),
                // Another gateway saw the same list in the same moment: what it pinned counts.
                Recorded::Otherwise => {}
                Recorded::NotAll => return Ok(None),
            }
        }
        Ok(None)
    }

    /// Stores what is new about an upstream's tools, all at once: a thousand first sights are one commit, not a thousand.
    async fn record(
        &self,
        id: &UpstreamId,
        sight: Sight,
        changes: &[PinChange],
    ) -> Result<Recorded, StoreFault> {
        let now = self.house.now();
        let mut writes = tokio::task::JoinSet::new();
        let (mut firsts, mut at_first_sight) = (Vec::new(), PinState::Pending);
        for change in changes.iter().cloned() {
            match change {
                PinChange::First { tool, seen, state } => {
                    firsts.push((tool, seen));
                    at_first_sight = state;
                }
                PinChange::Propose { tool, seen } => {
                    let store = self.house.store.clone();
                    let tool = FullName { upstream: id.clone(), tool };
                    writes.spawn(async move {
                        store.propose_pin(&tool, &seen, now).await?;
                        store.cancel_for_tool(&tool, now).await
                    });
                }
            }
        }
        // An empty first list is a first sight too: what comes later waits for a person.
        let nothing_new = firsts.is_empty() && sight == Sight::Later;
        let as_planned = nothing_new || self.house.store.pin_all(id, &firsts, at_first_sight, now).await?;
        while let Some(written) = writes.join_next().await {
            // A task that panicked wrote nothing: the catalogue stays as it was, and the next list tries again.
            let Ok(written) = written else { return Ok(Recorded::NotAll) };
            written?.into_iter().for_each(|plan| self.house.announce(plan));
        }
        Ok(if as_planned { Recorded::All } else { Recorded::Otherwise })
    }

    /// Builds the catalogue anew under the law in force: after a list, a pin or a rule changed.
    pub async fn rebuild(&self) {
        let known = self.known.lock().await;
        self.swap(&known);
    }

    fn swap(&self, known: &BTreeMap<UpstreamId, Known>) {
        let sources: Vec<Source> = self
            .terms()
            .iter()
            .filter_map(|(id, terms)| Some((known.get(id)?, terms)))
            .map(|(known, terms)| Source {
                roster: Arc::clone(&known.roster),
                standings: known.standings.clone(),
                prefix: terms.prefix,
            })
            .collect();
        let catalog = Catalog::build(&sources, &self.house.law.load().rules);
        self.house.catalog.store(Arc::new(catalog));
    }

    async fn tell_lines(&self) {
        self.notify_lines("notifications/tools/list_changed", None, |_| true).await;
    }
}

fn headers(reach: Reach, health: &Health) -> Headers {
    match (reach, health.era) {
        (Reach::Http, Some("modern")) => Headers::Mirrored,
        (Reach::Http | Reach::Elsewhere | Reach::Here, _) => Headers::Plain,
    }
}

fn why(fault: &UpstreamFault) -> String {
    match fault {
        UpstreamFault::Rpc(error) => error.message(),
        UpstreamFault::Unavailable { why, .. } | UpstreamFault::Timeout { why, .. } => why.clone(),
    }
}
