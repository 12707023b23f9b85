//! An MCP server as an upstream, over stdio or HTTP: one connection shared by a limited number of calls; further ones wait with their
//! deadline running. A request is sent once; retrying is the caller's decision.

mod connection;
mod fault_messages;
mod pages;
mod pause;
pub mod signin;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use countersign_mcp::client::{
    BoxFuture, ClientIdentity, Deadline, Questions, RequestOptions, UpstreamAnomaly, UpstreamSpec,
};
use countersign_mcp::era::Era;
use countersign_mcp::fault::{DeliveryState, FaultKind, RequestFailure, TransportFault};
use countersign_mcp::jsonrpc::{FrameLimits, Notification, Reply, code};
use countersign_mcp::mirrored_headers::MirroredHeaders;
use countersign_mcp::raw::{self, RawJson};
use countersign_policy::ids::UpstreamId;
use serde_json::value::RawValue;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use self::connection::{OpenConnection, UpstreamConnection};
pub use self::pages::MOST_BYTES;
use self::pages::ToolListPages;
pub use self::pause::RestartBackoff;
use super::recent::RecentDurations;
use super::{CallContext, Upstream, UpstreamCall, UpstreamFault, UpstreamHealth};
use crate::demand::UpstreamDemand;
use crate::members;
use crate::own_marks;

/// Receives what belongs to no request, in order. Called by the reader: must not block.
pub trait NewsListener: Send + Sync {
    fn notification(&self, upstream: &UpstreamId, notification: Notification);

    /// It was opened, for the first time or again: its lists may have changed.
    fn connected(&self, upstream: &UpstreamId) {
        let _ = upstream;
    }

    fn closed(&self, upstream: &UpstreamId, why: &str) {
        let _ = (upstream, why);
    }

    fn anomaly(&self, upstream: &UpstreamId, oddity: UpstreamAnomaly) {
        let _ = (upstream, oddity);
    }

    /// A question that belongs to no request; `None` answers that there is no such method.
    fn ask(
        &self,
        upstream: &UpstreamId,
        method: &str,
        params: Option<RawJson>,
    ) -> Option<BoxFuture<'static, Reply>> {
        let _ = (upstream, method, params);
        None
    }
}

/// A call that takes longer is logged.
const SLOW: Duration = Duration::from_secs(5);

#[derive(Clone)]
pub struct McpSettings {
    pub spec: UpstreamSpec,
    pub identity: ClientIdentity,
    /// Roots are declared if one of the clients that need it has any.
    pub(crate) demand: Arc<UpstreamDemand>,
    /// The configured or remembered era.
    pub era: Option<Era>,
    pub limits: FrameLimits,
    pub open_timeout: Duration,
    /// How long `server/discover` may take before the legacy era is tried in parallel.
    pub probe_timeout: Duration,
    /// Of the whole list.
    pub(crate) list_timeout: Duration,
    pub in_flight: usize,
    pub backoff: RestartBackoff,
}

impl McpSettings {
    pub fn new(spec: UpstreamSpec, identity: ClientIdentity) -> Self {
        Self {
            spec,
            identity,
            demand: Arc::default(),
            era: None,
            limits: FrameLimits::default(),
            open_timeout: Duration::from_secs(60),
            probe_timeout: Duration::from_secs(10),
            list_timeout: Duration::from_secs(60),
            in_flight: 64,
            backoff: RestartBackoff::default(),
        }
    }
}

/// The child or session ends with `close`, or with this value.
pub struct McpUpstream {
    connection: Arc<UpstreamConnection>,
    slots: Semaphore,
    recent: RecentDurations,
    /// The arguments of each tool that are repeated in headers, as of the last list.
    mirrors: RwLock<HashMap<String, Arc<MirroredHeaders>>>,
    /// Why the last listing failed: an open upstream without a list is of no use.
    unlisted: Mutex<Option<String>>,
}

impl McpUpstream {
    /// Starts nothing yet.
    pub fn new(id: UpstreamId, settings: McpSettings, news: Arc<dyn NewsListener>) -> Self {
        let slots = Semaphore::new(settings.in_flight.clamp(1, Semaphore::MAX_PERMITS));
        Self {
            connection: UpstreamConnection::new(id, settings, news),
            slots,
            recent: RecentDurations::default(),
            mirrors: RwLock::default(),
            unlisted: Mutex::default(),
        }
    }

    /// Opens the connection in the background.
    pub fn start(&self) {
        self.connection.start();
    }

    async fn ask(
        &self,
        method: &str,
        params: Option<&RawValue>,
        context: CallContext,
        mirrors: Option<Arc<MirroredHeaders>>,
    ) -> Result<RawJson, UpstreamFault> {
        let time = RequestTimer { asked: Instant::now(), deadline: context.deadline };
        let id = self.connection.id();
        // The deadline runs while waiting: a caller must not wait longer for a busy upstream than for a slow one.
        let slot = time.within(self.slots.acquire()).await;
        let slot = slot.map_err(|limit| fault_messages::not_in_time(id, limit, "had no place free"))?;
        let open = time.within(self.connection.open()).await;
        let open = open.map_err(|limit| fault_messages::not_in_time(id, limit, "could not be opened"))??;
        let options = RequestOptions {
            deadline: time.rest(),
            relay: context.relay,
            questions: context.questions,
            identity: context.identity,
            log_level: context.log_level,
            mirrors,
        };
        let result = open.client.request(method, params, options).await;
        drop(slot);
        // An upstream must not be able to write members that hosts take for ours.
        result.map(own_marks::removed).map_err(|failure| self.failed(&open, failure, context.deadline))
    }

    fn failed(&self, open: &OpenConnection, failure: RequestFailure, deadline: Deadline) -> UpstreamFault {
        if let RequestFailure::Wire(TransportFault { kind: FaultKind::SessionExpired, .. }) = &failure {
            self.connection.expired(open.number);
        }
        fault_messages::fault(self.connection.id(), failure, deadline, &open.client.stderr_tail())
    }

    async fn list(&self) -> Result<Vec<RawJson>, UpstreamFault> {
        let time = RequestTimer {
            asked: Instant::now(),
            deadline: Deadline::Total(self.connection.settings().list_timeout),
        };
        let mut pages = ToolListPages::default();
        let mut params: Option<RawJson> = None;
        loop {
            let context = CallContext {
                deadline: time.rest(),
                relay: None,
                questions: Questions::PassThrough,
                identity: None,
                log_level: None,
            };
            let page = match self.ask("tools/list", params.as_deref(), context, None).await {
                Ok(page) => page,
                // A server without tools has no such method.
                Err(UpstreamFault::Rpc(error)) if error.code() == code::METHOD_NOT_FOUND => break,
                Err(fault) => return Err(fault),
            };
            let next = pages.take(&page).map_err(|why| UpstreamFault::Unavailable {
                why: format!("`{}`: {why}", self.connection.id()),
                sent: DeliveryState::Unknown,
            })?;
            match next {
                Some(next) => params = Some(next),
                None => break,
            }
        }
        let tools = pages.done();
        self.note_mirrors(&tools);
        Ok(tools)
    }

    fn note_mirrors(&self, tools: &[RawJson]) {
        let mirrored = tools.iter().filter_map(|tool| {
            let mirrors = MirroredHeaders::of_schema(raw::get(tool, "inputSchema")?).ok()?;
            (!mirrors.is_empty()).then_some((raw::get_str(tool, "name")?.into_owned(), Arc::new(mirrors)))
        });
        *self.mirrors.write().unwrap_or_else(PoisonError::into_inner) = mirrored.collect();
    }

    fn mirrors_of(&self, tool: &str) -> Option<Arc<MirroredHeaders>> {
        self.mirrors.read().unwrap_or_else(PoisonError::into_inner).get(tool).cloned()
    }
}

impl Upstream for McpUpstream {
    fn id(&self) -> &UpstreamId {
        self.connection.id()
    }

    fn tools(&self) -> BoxFuture<'_, Result<Vec<RawJson>, UpstreamFault>> {
        Box::pin(async {
            let listed = self.list().await;
            // A JSON-RPC error is an answer: the upstream is up.
            let why = match &listed {
                Ok(_) | Err(UpstreamFault::Rpc(_)) => None,
                Err(
                    UpstreamFault::Unavailable { why, .. }
                    | UpstreamFault::Timeout { why, .. }
                    | UpstreamFault::TooLarge { why },
                ) => Some(why.clone()),
            };
            *self.unlisted.lock().unwrap_or_else(PoisonError::into_inner) = why;
            listed
        })
    }

    fn call<'a>(
        &'a self,
        call: UpstreamCall<'a>,
        context: CallContext,
    ) -> BoxFuture<'a, Result<RawJson, UpstreamFault>> {
        Box::pin(async move {
            let params = members::call_params(call.tool(), call.arguments(), call.rest());
            let asked = Instant::now();
            let mirrors = self.mirrors_of(call.tool());
            let result = self.ask("tools/call", Some(&params), context, mirrors).await;
            let took = asked.elapsed();
            self.recent.took(took);
            if took >= SLOW {
                tracing::debug!(upstream = self.id().as_str(), tool = call.tool(), ?took, "slow answer");
            }
            result
        })
    }

    fn request<'a>(
        &'a self,
        method: &'a str,
        params: Option<&'a RawValue>,
        context: CallContext,
    ) -> BoxFuture<'a, Result<RawJson, UpstreamFault>> {
        Box::pin(self.ask(method, params, context, None))
    }

    fn notify<'a>(&'a self, method: &'a str, params: Option<&'a RawValue>) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            // A client's notification is no reason to start an upstream.
            if self.connection.health().condition == super::Condition::Up
                && let Ok(open) = self.connection.open().await
            {
                let _ = open.client.notify(method, params).await;
            }
        })
    }

    fn capabilities(&self) -> Option<RawJson> {
        self.connection.capabilities()
    }

    fn instructions(&self) -> Option<String> {
        self.connection.instructions()
    }

    fn health(&self) -> UpstreamHealth {
        let mut health = UpstreamHealth { recent_us: self.recent.micros(), ..self.connection.health() };
        let unlisted = self.unlisted.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let (super::Condition::Up, Some(why)) = (&health.condition, unlisted) {
            health.condition = super::Condition::Down(why);
        }
        health
    }

    fn era(&self) -> Option<&'static str> {
        self.connection.era()
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.connection.close())
    }
}

/// The time of one request, since the caller asked for it.
struct RequestTimer {
    asked: Instant,
    deadline: Deadline,
}

impl RequestTimer {
    fn limit(&self) -> Option<Duration> {
        match self.deadline {
            Deadline::Total(limit) | Deadline::Quiet(limit) => Some(limit),
            Deadline::Never => None,
        }
    }

    /// Waits for something before sending; the error is the limit.
    async fn within<T>(&self, work: impl Future<Output = T>) -> Result<T, Duration> {
        match self.limit() {
            Some(limit) => tokio::time::timeout_at(self.asked + limit, work).await.map_err(|_| limit),
            None => Ok(work.await),
        }
    }

    /// The deadline of the reply. Sending is a sign of life, so a quiet deadline starts anew.
    fn rest(&self) -> Deadline {
        match self.deadline {
            Deadline::Total(limit) => Deadline::Total(limit.saturating_sub(self.asked.elapsed())),
            Deadline::Quiet(_) | Deadline::Never => self.deadline,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_total_deadline_runs_while_waiting_and_a_quiet_one_begins_anew() {
        let asked = Instant::now() - Duration::from_secs(5);
        let rest = |deadline| RequestTimer { asked, deadline }.rest();
        let Deadline::Total(left) = rest(Deadline::Total(Duration::from_secs(8))) else { panic!() };
        assert!(left <= Duration::from_secs(3));
        assert_eq!(rest(Deadline::Total(Duration::from_secs(2))), Deadline::Total(Duration::ZERO));
        assert_eq!(rest(Deadline::Quiet(Duration::from_secs(2))), Deadline::Quiet(Duration::from_secs(2)));
        assert_eq!(rest(Deadline::Never), Deadline::Never);
    }
}
