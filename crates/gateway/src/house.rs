//! The house: what all lines share. Law and catalogue are snapshots swapped whole; modes belong to a principal's session;
//! nothing here decides, it only has at hand what `conduct` needs.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use countersign_core::call::{Caller, Standing};
use countersign_core::confirm::PlanState;
use countersign_core::ids::{FullName, PlanId, PrincipalId, SessionId, UpstreamId};
use countersign_core::mode::Mode;
use countersign_core::redact::Redactor;
use countersign_store::{PlanFilter, PlanRow, Setter, Shared, Store, StoreFault};
use countersign_wire::serve::Session;
use jiff::Timestamp;
use tokio::sync::{Semaphore, broadcast, watch};

use crate::catalog::Catalog;
use crate::failed_credentials::FailedCredentials;
use crate::law::Law;
use crate::limits::Windows;
use crate::metrics::Metrics;
use crate::modes::Modes;
use crate::relist::Keeper;
use crate::runs::Runs;
use crate::schema::Schemas;
use crate::tasks::Calls;
use crate::trace::Watcher;
use crate::upstreams::{Condition, Upstream};

/// How long the first request waits for the first lists.
const FIRST_LISTS: Duration = Duration::from_secs(10);

/// Upstreams by our names of them.
pub type Upstreams = BTreeMap<UpstreamId, Arc<dyn Upstream>>;

/// What all lines share.
pub struct House {
    /// The records.
    pub store: Store,
    /// The law in force.
    pub law: ArcSwap<Law>,
    /// The tools in force.
    pub catalog: ArcSwap<Catalog>,
    /// What is governed.
    pub upstreams: ArcSwap<Upstreams>,
    /// How often rules were used.
    pub usage: Windows,
    /// What replaces secrets in records.
    pub redactor: Redactor,
    /// Compiled input schemas.
    pub schemas: Schemas,
    /// Answers kept for clients that asked for a task.
    pub calls: Calls,
    /// Which failed credentials were written lately.
    pub failed_credentials: FailedCredentials,
    /// What is counted.
    pub metrics: Metrics,
    /// Room for notices under way.
    pub notices: Arc<Semaphore>,
    modes: Mutex<Modes>,
    decided: broadcast::Sender<Option<PlanId>>,
    settled: watch::Sender<bool>,
    keeper: OnceLock<Weak<Keeper>>,
    runs: OnceLock<Arc<Runs>>,
    lines: Mutex<Vec<Weak<Session>>>,
    watcher: OnceLock<Arc<dyn Watcher>>,
}

impl House {
    /// A house with a store and a law; tools come in as upstreams are listed.
    pub fn new(store: Store, law: Law) -> Self {
        let redactor = Redactor::new(store.salt());
        Self {
            store,
            law: ArcSwap::from_pointee(law),
            catalog: ArcSwap::from_pointee(Catalog::default()),
            upstreams: ArcSwap::from_pointee(Upstreams::new()),
            usage: Windows::default(),
            redactor,
            schemas: Schemas::default(),
            calls: Calls::default(),
            failed_credentials: FailedCredentials::default(),
            metrics: Metrics::default(),
            notices: crate::notify::room(),
            modes: Mutex::default(),
            decided: broadcast::channel(256).0,
            settled: watch::Sender::new(false),
            keeper: OnceLock::new(),
            runs: OnceLock::new(),
            lines: Mutex::new(Vec::new()),
            watcher: OnceLock::new(),
        }
    }

    /// The moment.
    pub fn now(&self) -> Timestamp {
        Timestamp::now()
    }

    /// What `set_mode` left on the caller's session.
    pub async fn session_mode(&self, caller: &Caller) -> Result<Option<Mode>, StoreFault> {
        // Another replica may have set it a moment ago, and its word counts here at once.
        let shared = self.store.shared() == Shared::Yes;
        let key = (caller.principal.clone(), caller.session.clone());
        if !shared && let Some(mode) = self.modes().find(&key) {
            return Ok(mode);
        }
        let asked = Instant::now();
        let stored = Box::pin(self.store.session(&caller.principal, &caller.session)).await?;
        let stored = stored.and_then(|session| session.mode);
        if !shared {
            self.modes().found(key, stored, asked);
        }
        Ok(stored)
    }

    /// Sets the mode of the caller's session, in the store first.
    pub async fn set_session_mode(&self, caller: &Caller, mode: Mode) -> Result<(), StoreFault> {
        let setter = Setter {
            principal: caller.principal.clone(),
            session: caller.session.clone(),
            role: caller.role,
            source: caller.source,
        };
        self.store.set_mode(&setter, mode, self.now()).await?;
        let key = (caller.principal.clone(), caller.session.clone());
        if self.store.shared() == Shared::No {
            self.modes().set(key, mode);
        }
        Ok(())
    }

    fn modes(&self) -> MutexGuard<'_, Modes> {
        self.modes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A plan as it stands now: one whose time ran out is closed first.
    pub async fn plan(&self, id: &PlanId) -> Result<Option<PlanRow>, StoreFault> {
        let row = self.store.plan(id).await?;
        if !row.as_ref().is_some_and(|row| self.is_late(row)) {
            return Ok(row);
        }
        self.close_late().await?;
        self.store.plan(id).await
    }

    /// The principal's plans that wait for a decision, newest first.
    pub async fn pending_plans(&self, principal: &PrincipalId) -> Result<Vec<PlanRow>, StoreFault> {
        let wanted = PlanFilter {
            state: Some(PlanState::Pending),
            principal: Some(principal.clone()),
            ..PlanFilter::default()
        };
        self.plans(wanted).await
    }

    /// Plans as they stand now, newest first: those whose time ran out are closed first.
    pub async fn plans(&self, wanted: PlanFilter) -> Result<Vec<PlanRow>, StoreFault> {
        let rows = self.store.plans(wanted.clone()).await?;
        if !rows.iter().any(|row| self.is_late(row)) {
            return Ok(rows);
        }
        self.close_late().await?;
        self.store.plans(wanted).await
    }

    fn is_late(&self, row: &PlanRow) -> bool {
        matches!(row.state, PlanState::Pending | PlanState::Approved) && row.plan.expires <= self.now()
    }

    /// Closes what ran out, if anything did.
    pub async fn sweep(&self) -> Result<(), StoreFault> {
        if self.store.is_any_late(self.now()).await? { self.close_late().await } else { Ok(()) }
    }

    async fn close_late(&self) -> Result<(), StoreFault> {
        for plan in self.store.expire(self.now()).await? {
            self.announce(plan);
        }
        Ok(())
    }

    /// Tells whoever waits that a plan was decided or ran.
    pub fn announce(&self, plan: PlanId) {
        // Nobody waiting is no fault.
        let _ = self.decided.send(Some(plan));
    }

    /// Tells whoever waits that something may have been missed, and is worth a look.
    pub fn announce_all(&self) {
        let _ = self.decided.send(None);
    }

    /// Hears of plans that were decided or ran, from now on; none means that some may have been missed.
    pub fn decisions(&self) -> broadcast::Receiver<Option<PlanId>> {
        self.decided.subscribe()
    }

    /// Remembers a line, to tell it when the tool list changes.
    pub fn remember(&self, session: &Arc<Session>) {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.retain(|line| line.strong_count() > 0);
        lines.push(Arc::downgrade(session));
    }

    /// The lines that are open.
    pub fn lines(&self) -> Vec<Arc<Session>> {
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.iter().filter_map(Weak::upgrade).filter(|line| !line.is_ended()).collect()
    }

    /// What the program on the line of a session calls itself, where it is on the line.
    pub fn host_of(&self, session: &SessionId) -> Option<serde_json::Value> {
        let line = self.lines().into_iter().find(|line| line.id().as_str() == session.as_str())?;
        line.client().info.as_ref().and_then(|info| serde_json::from_str(info.get()).ok())
    }

    /// The one upstream that is served under its own names, where the configuration says so.
    pub fn bare_upstream(&self) -> Option<Arc<dyn Upstream>> {
        if !self.catalog.load().is_bare() {
            return None;
        }
        self.upstreams.load().values().next().cloned()
    }

    /// Names who watches what happens; once.
    pub fn watched_by(&self, watcher: Arc<dyn Watcher>) {
        // As with the keeper: the first stays.
        let _ = self.watcher.set(watcher);
    }

    /// Who watches what happens, if anybody does.
    pub fn watcher(&self) -> Option<&Arc<dyn Watcher>> {
        self.watcher.get()
    }

    /// What the gate is told of a name: what the catalogue says, and where its upstream was never listed because it is down, that.
    pub(crate) fn standing(&self, name: &FullName) -> Standing {
        let standing = self.catalog.load().standing(name);
        if let Standing::Unknown(_) = standing
            && let Some(upstream) = self.upstreams.load().get(&name.upstream)
            && let Condition::Down(why) = upstream.health().condition
            && !self.catalog.load().tools().any(|listed| listed.tool.upstream == name.upstream)
        {
            return Standing::Unlisted(why);
        }
        standing
    }

    /// Names the keeper of the catalogue; once.
    pub fn kept_by(&self, keeper: &Arc<Keeper>) {
        // A second keeper of one house would be a mistake of ours; the first goes on.
        let _ = self.keeper.set(Arc::downgrade(keeper));
    }

    /// The keeper of the catalogue.
    pub fn keeper(&self) -> Option<Arc<Keeper>> {
        self.keeper.get().and_then(Weak::upgrade)
    }

    /// Names the commands under way; once.
    pub fn runs_are(&self, runs: &Arc<Runs>) {
        // As with the keeper: the first stays.
        let _ = self.runs.set(Arc::clone(runs));
    }

    /// The commands under way, for whoever stops them.
    pub fn runs(&self) -> Option<&Arc<Runs>> {
        self.runs.get()
    }

    /// Every upstream was tried once: lists are as complete as they get for now.
    pub fn settle(&self) {
        self.settled.send_replace(true);
    }

    /// Whether every upstream was tried once.
    pub fn is_settled(&self) -> bool {
        *self.settled.borrow()
    }

    /// Waits for the first round of lists, but not for ever: a slow upstream is missed, not waited for.
    pub async fn settled(&self) {
        if *self.settled.borrow() {
            return;
        }
        let mut settled = self.settled.subscribe();
        let _ = tokio::time::timeout(FIRST_LISTS, settled.wait_for(|settled| *settled)).await;
    }
}
