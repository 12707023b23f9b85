//! The gateway's state, shared by all sessions. Policy and catalogue are snapshots that are replaced whole; modes belong to a
//! principal's session. Nothing here decides: it holds what `pipeline` needs.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Instant;

use arc_swap::ArcSwap;
use countersign_mcp::server::{ClientInfo, Session};
use countersign_policy::call::{Caller, CatalogStatus};
use countersign_policy::confirm::PlanState;
use countersign_policy::ids::{FullName, PlanId, PrincipalId, UpstreamId};
use countersign_policy::mode::Mode;
use countersign_policy::redact::Redactor;
use countersign_store::{ModeSetter, PlanFilter, PlanRow, Store, StoreFault, StoreSharing};
use jiff::Timestamp;
use tokio::sync::broadcast;

use crate::active_policy::ActivePolicy;
use crate::catalog::Catalog;
use crate::catalog_refresh::CatalogRefresher;
use crate::decision_wait::WaitingCalls;
use crate::demand::UpstreamDemand;
use crate::failed_credentials::FailedCredentials;
use crate::limits::RateLimitWindows;
use crate::metrics::Metrics;
use crate::modes::SessionModes;
use crate::news_queue::NewsQueue;
use crate::notify::NoticeQueues;
use crate::pipeline::open_page::UnopenedPages;
use crate::runs::BackgroundRuns;
use crate::schema::Schemas;
use crate::startup::{ListState, Startup};
use crate::tasks::StoredTasks;
use crate::trace::TraceContextBridge;
use crate::upstreams::{Condition, Upstream};

pub(crate) type UpstreamMap = BTreeMap<UpstreamId, Arc<dyn Upstream>>;

/// What all connections share.
pub struct GatewayState {
    pub store: Store,
    pub policy: ArcSwap<ActivePolicy>,
    pub catalog: ArcSwap<Catalog>,
    pub upstreams: ArcSwap<UpstreamMap>,
    /// Rate limits of rules.
    pub(crate) usage: RateLimitWindows,
    /// Replaces secrets in records.
    pub redactor: Redactor,
    pub schemas: Schemas,
    /// Answers kept for clients that asked for a task.
    pub(crate) calls: StoredTasks,
    /// Failed credentials that were recorded lately.
    pub(crate) failed_credentials: FailedCredentials,
    pub metrics: Metrics,
    /// Notices on their way to people.
    pub(crate) notices: NoticeQueues,
    /// Notifications of upstreams outside of requests.
    pub(crate) news: Arc<NewsQueue>,
    pub(crate) waits: WaitingCalls,
    /// Clients that could not open the approvals page.
    pub(crate) unopened_pages: UnopenedPages,
    /// Which upstreams have listed their tools.
    pub(crate) startup: Startup,
    /// Whether anything needed the upstreams yet.
    pub(crate) demand: Arc<UpstreamDemand>,
    modes: Mutex<SessionModes>,
    decided: broadcast::Sender<Option<PlanId>>,
    refresher: OnceLock<Weak<CatalogRefresher>>,
    runs: OnceLock<Arc<BackgroundRuns>>,
    sessions: Mutex<Vec<Weak<Session>>>,
    watcher: OnceLock<Arc<dyn TraceContextBridge>>,
}

impl GatewayState {
    /// A gateway without tools: they are added as upstreams list them.
    pub fn new(store: Store, policy: ActivePolicy) -> Self {
        let redactor = Redactor::new(store.salt());
        Self {
            store,
            policy: ArcSwap::from_pointee(policy),
            catalog: ArcSwap::from_pointee(Catalog::default()),
            upstreams: ArcSwap::from_pointee(UpstreamMap::new()),
            usage: RateLimitWindows::default(),
            redactor,
            schemas: Schemas::default(),
            calls: StoredTasks::default(),
            failed_credentials: FailedCredentials::default(),
            metrics: Metrics::default(),
            notices: NoticeQueues::default(),
            news: NewsQueue::new(),
            waits: WaitingCalls::default(),
            unopened_pages: UnopenedPages::default(),
            startup: Startup::default(),
            demand: Arc::default(),
            modes: Mutex::default(),
            decided: broadcast::channel(256).0,
            refresher: OnceLock::new(),
            runs: OnceLock::new(),
            sessions: Mutex::new(Vec::new()),
            watcher: OnceLock::new(),
        }
    }

    pub fn now(&self) -> Timestamp {
        Timestamp::now()
    }

    /// The mode that `set_mode` set for the caller's session.
    pub async fn session_mode(&self, caller: &Caller) -> Result<Option<Mode>, StoreFault> {
        // Not cached where replicas share the store: another one may have set it a moment ago.
        let shared = self.store.shared() == StoreSharing::Yes;
        let key = (caller.principal.clone(), caller.session.clone());
        if !shared && let Some(mode) = self.modes().find(&key) {
            return Ok(mode);
        }
        let asked = Instant::now();
        let stored = Box::pin(self.store.session(&caller.principal, &caller.session)).await?;
        let stored = stored.and_then(|session| session.mode);
        if !shared {
            self.modes().insert_read(key, stored, asked);
        }
        Ok(stored)
    }

    /// Sets the mode of the caller's session, in the store first.
    pub(crate) async fn set_session_mode(&self, caller: &Caller, mode: Mode) -> Result<(), StoreFault> {
        let setter = ModeSetter {
            principal: caller.principal.clone(),
            session: caller.session.clone(),
            role: caller.role,
            source: caller.source,
            host: caller.host.clone(),
        };
        self.store.set_mode(&setter, mode, self.now()).await?;
        let key = (caller.principal.clone(), caller.session.clone());
        if self.store.shared() == StoreSharing::No {
            self.modes().set(key, mode);
        }
        Ok(())
    }

    fn modes(&self) -> MutexGuard<'_, SessionModes> {
        self.modes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A plan as it is now. One that has expired is closed first.
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

    /// Plans as they are now, newest first. Expired ones are closed first.
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

    /// Closes expired plans.
    pub async fn sweep(&self) -> Result<(), StoreFault> {
        if self.store.is_any_late(self.now()).await? { self.close_late().await } else { Ok(()) }
    }

    async fn close_late(&self) -> Result<(), StoreFault> {
        for plan in self.store.expire(self.now()).await? {
            self.announce(plan);
        }
        Ok(())
    }

    /// Wakes calls that wait for this plan.
    pub fn announce(&self, plan: PlanId) {
        // An error only says that nobody waits.
        let _ = self.decided.send(Some(plan));
    }

    /// Wakes every waiting call: some announcements may have been lost.
    pub(crate) fn announce_all(&self) {
        let _ = self.decided.send(None);
    }

    /// Plans that are decided or run from now on; `None` where some may have been missed.
    pub fn decisions(&self) -> broadcast::Receiver<Option<PlanId>> {
        self.decided.subscribe()
    }

    /// Remembers a session, to notify it when the tool list changes.
    pub fn remember(&self, session: &Arc<Session>) {
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        sessions.retain(|known| known.strong_count() > 0);
        sessions.push(Arc::downgrade(session));
    }

    /// The sessions that are open.
    pub fn open_sessions(&self) -> Vec<Arc<Session>> {
        let sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        sessions.iter().filter_map(Weak::upgrade).filter(|session| !session.is_ended()).collect()
    }

    /// The single upstream that is served without prefix, where the configuration says so.
    pub(crate) fn bare_upstream(&self) -> Option<Arc<dyn Upstream>> {
        if !self.catalog.load().is_bare() {
            return None;
        }
        self.upstreams.load().values().next().cloned()
    }

    pub fn set_trace_bridge(&self, watcher: Arc<dyn TraceContextBridge>) {
        // Set once: a second value is ignored.
        let _ = self.watcher.set(watcher);
    }

    pub fn watcher(&self) -> Option<&Arc<dyn TraceContextBridge>> {
        self.watcher.get()
    }

    /// What the catalogue says of a tool; of an upstream that has not listed its tools, why not.
    ///
    /// INVARIANT (closed by default): a tool known from its pin is not called until its upstream has listed it again.
    pub(crate) fn standing(&self, name: &FullName) -> CatalogStatus {
        if self.startup.is_unlisted(&name.upstream)
            && let Some(upstream) = self.upstreams.load().get(&name.upstream)
        {
            return CatalogStatus::Unlisted(match upstream.health().condition {
                Condition::Down(why) => why,
                Condition::Idle | Condition::Starting | Condition::Up => {
                    format!("`{}` is still starting: it has not listed its tools yet", name.upstream)
                }
            });
        }
        self.catalog.load().standing(name)
    }

    /// Waits until an upstream has listed its tools or failed to. One that failed before is asked again.
    pub(crate) async fn wait_for_upstream(&self, id: &UpstreamId) {
        self.need_upstreams();
        if !self.startup.is_unlisted(id) {
            return;
        }
        let listed = async {
            match (self.startup.state(id), self.refresher()) {
                (Some(ListState::Failed), Some(refresher)) => refresher.relist(id).await,
                _ => self.startup.wait_for_attempt(id).await,
            }
        };
        let _ = tokio::time::timeout(self.policy.load().timeout, listed).await;
    }

    /// Starts lazy upstreams for a client, with its capabilities.
    pub(crate) fn need_upstreams_for(&self, client: &ClientInfo) {
        if self.demand.note_client(client) {
            self.startup.begin_now();
        }
    }

    /// Starts lazy upstreams where no client has yet.
    fn need_upstreams(&self) {
        if self.demand.raise() {
            self.startup.begin_now();
        }
    }

    /// Waits a moment at the start, before something is listed.
    pub(crate) async fn wait_for_lists(&self) {
        self.startup.wait_briefly(self.catalog.load().is_bare()).await;
    }

    /// Waits shortly for upstreams that may own what a request names.
    pub(crate) async fn wait_for_owners(&self, possible: &[UpstreamId]) {
        self.need_upstreams();
        self.startup.wait_briefly_for(possible).await;
    }

    pub(crate) fn set_refresher(&self, refresher: &Arc<CatalogRefresher>) {
        // Set once: a second value is ignored.
        let _ = self.refresher.set(Arc::downgrade(refresher));
    }

    pub fn refresher(&self) -> Option<Arc<CatalogRefresher>> {
        self.refresher.get().and_then(Weak::upgrade)
    }

    pub(crate) fn set_runs(&self, runs: &Arc<BackgroundRuns>) {
        // Set once: a second value is ignored.
        let _ = self.runs.set(Arc::clone(runs));
    }

    pub fn runs(&self) -> Option<&Arc<BackgroundRuns>> {
        self.runs.get()
    }

    /// Starts the upstreams where nobody has yet, and waits until one was tried; the caller limits the time.
    pub async fn attempted(&self, upstream: &UpstreamId) {
        self.need_upstreams();
        self.startup.wait_for_attempt(upstream).await;
    }

    /// Waits until every upstream was tried once, for a bounded time.
    pub async fn settled(&self) {
        self.need_upstreams();
        self.startup.wait_until_settled().await;
    }
}
