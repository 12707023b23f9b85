//! Keeps one connection to an upstream: opened on first need, shared by all calls, reopened with back-off when it ends. It sends nothing
//! but what opening needs, and never sends anything twice.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use countersign_mcp::client::{
    BoxFuture, EraChoice, Observer, Upstream as McpClient, UpstreamAnomaly, UpstreamOptions,
};
use countersign_mcp::era::Era;
use countersign_mcp::fault::{DeliveryState, RequestFailure, TransportFault};
use countersign_mcp::jsonrpc::{Notification, Reply};
use countersign_mcp::raw::RawJson;
use countersign_policy::ids::UpstreamId;
use serde_json::Value;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::{McpSettings, NewsListener, fault_messages};
use crate::own_marks;
use crate::upstream_questions;
use crate::upstreams::{Condition, UpstreamFault, UpstreamHealth};

/// A caller waits for a restart this soon; otherwise it fails at once.
const NEAR: Duration = Duration::from_secs(2);
/// How many failed starts in a row are retried without a caller; after that a call is needed.
const REVIVALS: u32 = 10;

/// An open connection and its number, counted from 1.
#[derive(Clone)]
pub(super) struct OpenConnection {
    pub(super) client: McpClient,
    pub(super) number: u64,
    since: Instant,
}

enum ConnectionState {
    Idle,
    Starting,
    Up(OpenConnection),
    Down { why: String, until: Instant },
    Closed,
}

/// What an upstream reported when it was last opened.
#[derive(Clone)]
struct ServerDescription {
    era: Era,
    version: &'static str,
    server_info: Option<Value>,
    capabilities: RawJson,
    instructions: Option<String>,
}

impl ServerDescription {
    fn era(&self) -> &'static str {
        match self.era {
            Era::Legacy => "legacy",
            Era::Modern => "modern",
        }
    }
}

struct ConnectionInner {
    state: ConnectionState,
    /// The number of starts, and of failures in a row.
    starts: u64,
    failures: u32,
    facts: Option<ServerDescription>,
    /// The end of the last connection's stderr.
    stderr: String,
    /// The start or the pause in progress.
    task: Option<AbortHandle>,
    /// Connections to drop after the lock is released: their end calls us back, which takes the lock.
    gone: Vec<OpenConnection>,
}

pub(super) struct UpstreamConnection {
    id: UpstreamId,
    settings: McpSettings,
    news: Arc<dyn NewsListener>,
    inner: Mutex<ConnectionInner>,
    /// Counts state changes, for those who wait for one.
    changes: watch::Sender<u64>,
    weak: Weak<UpstreamConnection>,
}

/// The next step of a caller that needs the connection.
enum ConnectionStep {
    Ready(OpenConnection),
    Wait(Option<Instant>),
    Fail(String),
}

impl UpstreamConnection {
    pub(super) fn new(id: UpstreamId, settings: McpSettings, news: Arc<dyn NewsListener>) -> Arc<Self> {
        let inner = ConnectionInner {
            state: ConnectionState::Idle,
            starts: 0,
            failures: 0,
            facts: None,
            stderr: String::new(),
            task: None,
            gone: Vec::new(),
        };
        Arc::new_cyclic(|weak| Self {
            id,
            settings,
            news,
            inner: Mutex::new(inner),
            changes: watch::Sender::new(0),
            weak: weak.clone(),
        })
    }

    pub(super) fn id(&self) -> &UpstreamId {
        &self.id
    }

    pub(super) fn settings(&self) -> &McpSettings {
        &self.settings
    }

    /// Returns the connection, opened if need be. A caller that waited for a start that failed gets its error.
    pub(super) async fn open(&self) -> Result<OpenConnection, UpstreamFault> {
        if let Some(open) = self.with(|inner| inner.live()) {
            return Ok(open);
        }
        let mut changes = self.changes.subscribe();
        let mut waited = false;
        loop {
            self.check_alive();
            changes.borrow_and_update();
            match self.with(|inner| self.next_step(inner, waited)) {
                ConnectionStep::Ready(open) => return Ok(open),
                ConnectionStep::Fail(why) => {
                    // Nothing of the request was sent, whatever opening did.
                    return Err(UpstreamFault::Unavailable {
                        why: format!("`{}`: {why}", self.id),
                        sent: DeliveryState::No,
                    });
                }
                ConnectionStep::Wait(None) => {
                    let _ = changes.changed().await;
                    waited = true;
                }
                ConnectionStep::Wait(Some(until)) => tokio::select! {
                    _ = changes.changed() => {}
                    () = tokio::time::sleep_until(until) => {}
                },
            }
        }
    }

    fn next_step(&self, inner: &mut ConnectionInner, waited: bool) -> ConnectionStep {
        match &inner.state {
            ConnectionState::Up(open) => ConnectionStep::Ready(open.clone()),
            ConnectionState::Starting => ConnectionStep::Wait(None),
            ConnectionState::Closed => ConnectionStep::Fail("it was closed".to_owned()),
            ConnectionState::Down { why, .. } if waited => ConnectionStep::Fail(why.clone()),
            ConnectionState::Down { why, until } => {
                let left = until.saturating_duration_since(Instant::now());
                match left {
                    Duration::ZERO => {
                        self.start_connecting(inner);
                        ConnectionStep::Wait(None)
                    }
                    _ if left <= NEAR => ConnectionStep::Wait(Some(*until)),
                    _ => {
                        ConnectionStep::Fail(format!("{why}; it is tried again in {} s", left.as_secs() + 1))
                    }
                }
            }
            ConnectionState::Idle => {
                self.start_connecting(inner);
                ConnectionStep::Wait(None)
            }
        }
    }

    pub(super) fn start(&self) {
        self.with(|inner| {
            if matches!(inner.state, ConnectionState::Idle) {
                self.start_connecting(inner);
            }
        });
    }

    fn start_connecting(&self, inner: &mut ConnectionInner) {
        // The number tells a late result of an earlier start from this one.
        inner.starts += 1;
        self.replace(inner, ConnectionState::Starting);
        let number = inner.starts;
        let mut identity = self.settings.identity.clone();
        // A server may offer other tools to clients with roots, and ask for roots as soon as it is open.
        if self.settings.demand.has_roots() {
            identity.capabilities = upstream_questions::with_roots(&identity.capabilities);
        }
        let mut plan = UpstreamOptions::new(identity, Arc::new(NotificationForwarder(self.weak.clone())));
        plan.limits = self.settings.limits;
        plan.open_timeout = self.settings.open_timeout;
        plan.probe_timeout = self.settings.probe_timeout;
        // The era of the last connection is used again, until starts fail.
        let era =
            self.settings.era.or(inner.facts.as_ref().filter(|_| inner.failures < 2).map(|facts| facts.era));
        plan.era = era.map_or(EraChoice::Probe, EraChoice::Known);
        tracing::debug!(upstream = self.id.as_str(), start = number, era = ?plan.era, "upstream starting");
        let (weak, spec) = (self.weak.clone(), self.settings.spec.clone());
        let start = async move {
            let opened = McpClient::connect(&spec, plan).await;
            if let Some(connection) = weak.upgrade() {
                connection.finish_start(number, opened);
            }
        };
        inner.task = Some(tokio::spawn(start).abort_handle());
    }

    fn finish_start(&self, number: u64, opened: Result<McpClient, RequestFailure>) {
        let connected = self.with(|inner| {
            let current = inner.starts == number && matches!(inner.state, ConnectionState::Starting);
            match opened.map(|client| OpenConnection { client, number, since: Instant::now() }) {
                // Closed or started anew meanwhile.
                Ok(open) if !current => {
                    inner.gone.push(open);
                    false
                }
                Err(_) if !current => false,
                Ok(open) => {
                    let facts = ServerDescription::of(&open.client);
                    let (era, version) = (facts.era(), facts.version);
                    tracing::info!(upstream = self.id.as_str(), era, version, start = number, "upstream up");
                    inner.facts = Some(facts);
                    self.replace(inner, ConnectionState::Up(open));
                    true
                }
                Err(failure) => {
                    // A failed start is not retried at once, even the first time.
                    inner.failures = inner.failures.saturating_add(1).max(2);
                    self.back_off(inner, fault_messages::opening(&self.id, &failure));
                    false
                }
            }
        });
        if connected {
            self.news.connected(&self.id);
            // It may have ended before it counted as up.
            self.check_alive();
        }
    }

    /// Detects that the connection has ended.
    fn check_alive(&self) {
        let note_end = self.with(|inner| {
            let ConnectionState::Up(open) = &inner.state else { return None };
            let fault = open.client.fault()?.clone();
            self.note_end(inner, &fault);
            Some(fault)
        });
        if let Some(fault) = note_end {
            self.news.closed(&self.id, &fault.to_string());
        }
    }

    fn note_end(&self, inner: &mut ConnectionInner, fault: &TransportFault) {
        if let ConnectionState::Up(open) = &inner.state {
            let lived = open.since.elapsed() >= self.settings.backoff.stable;
            inner.failures = if lived { 1 } else { inner.failures.saturating_add(1) };
            inner.stderr = open.client.stderr_tail();
        }
        self.back_off(inner, crate::escape::excerpt(&fault.to_string(), 400));
    }

    fn back_off(&self, inner: &mut ConnectionInner, why: String) {
        let pause = self.settings.backoff.after(inner.failures, inner.starts ^ seed(&self.id));
        let until = Instant::now() + pause;
        // The reason may quote what the upstream printed, so it is not logged: `countersign upstreams list` shows it.
        tracing::info!(upstream = self.id.as_str(), failures = inner.failures, "upstream down");
        tracing::debug!(upstream = self.id.as_str(), ?pause, "upstream backs off");
        self.replace(inner, ConnectionState::Down { why, until });
        // One that once worked is restarted for its notifications; one that never did waits for a call.
        if inner.facts.is_some() && inner.failures <= REVIVALS {
            let weak = self.weak.clone();
            let revive = async move {
                tokio::time::sleep_until(until).await;
                if let Some(connection) = weak.upgrade() {
                    connection.with(|inner| {
                        if matches!(&inner.state, ConnectionState::Down { until: due, .. } if *due == until) {
                            connection.start_connecting(inner);
                        }
                    });
                }
            };
            inner.task = Some(tokio::spawn(revive).abort_handle());
        }
    }

    /// The upstream forgot this connection's session: the next request gets a new one.
    pub(super) fn expired(&self, number: u64) {
        self.with(|inner| {
            if matches!(&inner.state, ConnectionState::Up(open) if open.number == number) {
                tracing::debug!(upstream = self.id.as_str(), "upstream forgot the session, opening another");
                self.start_connecting(inner);
            }
        });
    }

    pub(super) async fn close(&self) {
        let open = self.with(|inner| {
            let open = if let ConnectionState::Up(open) = &inner.state { Some(open.clone()) } else { None };
            if open.is_some() {
                tracing::info!(upstream = self.id.as_str(), "upstream closed");
            }
            self.replace(inner, ConnectionState::Closed);
            open
        });
        if let Some(open) = open {
            open.client.close().await;
        }
    }

    pub(super) fn capabilities(&self) -> Option<RawJson> {
        self.with(|inner| inner.facts.as_ref().map(|facts| facts.capabilities.clone()))
    }

    pub(super) fn instructions(&self) -> Option<String> {
        self.with(|inner| inner.facts.as_ref().and_then(|facts| facts.instructions.clone()))
    }

    pub(super) fn era(&self) -> Option<&'static str> {
        self.with(|inner| inner.facts.as_ref().map(ServerDescription::era))
    }

    /// Durations are added by the caller.
    pub(super) fn health(&self) -> UpstreamHealth {
        self.with(|inner| {
            let condition = match &inner.state {
                ConnectionState::Idle => Condition::Idle,
                ConnectionState::Starting => Condition::Starting,
                ConnectionState::Up(_) => Condition::Up,
                ConnectionState::Down { why, .. } => Condition::Down(why.clone()),
                ConnectionState::Closed => Condition::Down("it was closed".to_owned()),
            };
            let stderr = if let ConnectionState::Up(open) = &inner.state {
                open.client.stderr_tail()
            } else {
                inner.stderr.clone()
            };
            let facts = inner.facts.as_ref();
            UpstreamHealth {
                condition,
                restarts: u32::try_from(inner.starts.saturating_sub(1)).unwrap_or(u32::MAX),
                era: facts.map(ServerDescription::era),
                version: facts.map(|facts| facts.version.to_owned()),
                server_info: facts.and_then(|facts| facts.server_info.clone()),
                stderr_tail: crate::escape::visible(&stderr),
                recent_us: Vec::new(),
            }
        })
    }

    fn replace(&self, inner: &mut ConnectionInner, state: ConnectionState) {
        if let Some(task) = inner.task.take() {
            task.abort();
        }
        if let ConnectionState::Up(open) = std::mem::replace(&mut inner.state, state) {
            inner.gone.push(open);
        }
        self.changes.send_modify(|count| *count += 1);
    }

    /// Runs with the state locked; connections it drops end after the lock is released.
    fn with<T>(&self, work: impl FnOnce(&mut ConnectionInner) -> T) -> T {
        let mut inner: MutexGuard<'_, ConnectionInner> =
            self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let out = work(&mut inner);
        let gone = std::mem::take(&mut inner.gone);
        drop(inner);
        drop(gone);
        out
    }
}

impl ConnectionInner {
    fn live(&self) -> Option<OpenConnection> {
        match &self.state {
            ConnectionState::Up(open) if open.client.fault().is_none() => Some(open.clone()),
            ConnectionState::Up(_)
            | ConnectionState::Idle
            | ConnectionState::Starting
            | ConnectionState::Down { .. }
            | ConnectionState::Closed => None,
        }
    }
}

impl Drop for UpstreamConnection {
    fn drop(&mut self) {
        let inner = self.inner.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(task) = inner.task.take() {
            task.abort();
        }
    }
}

impl ServerDescription {
    fn of(client: &McpClient) -> Self {
        Self {
            era: client.era(),
            version: client.version().as_str(),
            server_info: client.server_info().and_then(|info| serde_json::from_str(info.get()).ok()),
            capabilities: client.capabilities().to_owned(),
            instructions: client.instructions().map(ToOwned::to_owned),
        }
    }
}

/// Differs per upstream, so that several do not restart at the same moment.
fn seed(id: &UpstreamId) -> u64 {
    id.as_str()
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

/// Forwards what belongs to no request, in order.
struct NotificationForwarder(Weak<UpstreamConnection>);

impl Observer for NotificationForwarder {
    fn notification(&self, notification: Notification) {
        if let Some(connection) = self.0.upgrade() {
            connection.news.notification(&connection.id, own_marks::removed_from_notification(notification));
        }
    }

    fn closed(&self, _: &TransportFault) {
        // A cancelled probe closes as well: only the state of the connection itself counts.
        if let Some(connection) = self.0.upgrade() {
            connection.check_alive();
        }
    }

    fn anomaly(&self, oddity: UpstreamAnomaly) {
        if let Some(connection) = self.0.upgrade() {
            connection.news.anomaly(&connection.id, oddity);
        }
    }

    fn ask(&self, method: &str, params: Option<RawJson>) -> Option<BoxFuture<'static, Reply>> {
        let connection = self.0.upgrade()?;
        connection.news.ask(&connection.id, method, params)
    }
}
