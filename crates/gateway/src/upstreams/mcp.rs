//! An MCP server as an upstream, over stdio or HTTP: one connection shared by its calls, so many at a time, more wait with
//! their deadline running. A request is sent once: what became of it is told, and trying again is the caller's decision.

mod keep;
mod pages;
mod pause;
pub mod signin;
mod told;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use countersign_core::ids::UpstreamId;
use countersign_wire::era::Era;
use countersign_wire::fault::{Failure, FaultKind, Sent, WireFault};
use countersign_wire::frame::{Limits, Notification, Reply, code};
use countersign_wire::mirror::Mirrors;
use countersign_wire::raw::{self, Raw};
use countersign_wire::upstream::{Deadline, Identity, Later, Oddity, Questions, RequestOptions, Spec};
use serde_json::value::RawValue;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use self::keep::{Keep, Open};
use self::pages::Pages;
pub use self::pages::{MOST_BYTES, MOST_PAGES, MOST_TOOLS};
pub use self::pause::Pauses;
use super::recent::Recent;
use super::{Errand, Health, Talk, Upstream, UpstreamFault};
use crate::members;
use crate::own_marks;

/// What an MCP upstream says outside of any request, handed on in the order it came. Called from its reader: never block here.
pub trait News: Send + Sync {
    /// A notification: list changes, logging, resource updates, whatever else.
    fn notification(&self, upstream: &UpstreamId, notification: Notification);

    /// It was opened, for the first time or again: its lists may have changed.
    fn connected(&self, upstream: &UpstreamId) {
        let _ = upstream;
    }

    /// Its connection ended.
    fn closed(&self, upstream: &UpstreamId, why: &str) {
        let _ = (upstream, why);
    }

    /// It did something odd that was survived: a late reply, noise.
    fn odd(&self, upstream: &UpstreamId, oddity: Oddity) {
        let _ = (upstream, oddity);
    }

    /// It asks something that belongs to no request; `None` answers that there is no such method.
    fn ask(&self, upstream: &UpstreamId, method: &str, params: Option<Raw>) -> Option<Later<'static, Reply>> {
        let _ = (upstream, method, params);
        None
    }
}

/// How an MCP upstream is reached and held.
#[derive(Clone)]
pub struct Settings {
    /// What to start or where to connect.
    pub spec: Spec,
    /// Whom we say we are.
    pub identity: Identity,
    /// The era it speaks, where that is configured or remembered.
    pub era: Option<Era>,
    /// Frame limits.
    pub limits: Limits,
    /// How long opening may take.
    pub open_timeout: Duration,
    /// How long a child may take to answer in the newer era before it counts as one of the older.
    pub probe_timeout: Duration,
    /// How long reading the whole list of tools may take.
    pub list_timeout: Duration,
    /// How many requests may be under way at a time.
    pub in_flight: usize,
    /// How restarts are spaced.
    pub pauses: Pauses,
}

impl Settings {
    /// The usual limits.
    pub fn new(spec: Spec, identity: Identity) -> Self {
        Self {
            spec,
            identity,
            era: None,
            limits: Limits::default(),
            open_timeout: Duration::from_secs(60),
            probe_timeout: Duration::from_secs(10),
            list_timeout: Duration::from_secs(60),
            in_flight: 64,
            pauses: Pauses::default(),
        }
    }
}

/// An MCP server. The child or session ends with `close`, or with this value.
pub struct McpUpstream {
    keep: Arc<Keep>,
    places: Semaphore,
    recent: Recent,
    /// Which arguments of which tool are repeated in headers, as of the last listing.
    mirrors: RwLock<HashMap<String, Arc<Mirrors>>>,
    /// Why its tools could not be listed the last time: one that is open and does not say what it offers is of no use.
    unlisted: Mutex<Option<String>>,
}

impl McpUpstream {
    /// Starts nothing yet.
    pub fn new(id: UpstreamId, settings: Settings, news: Arc<dyn News>) -> Self {
        let places = Semaphore::new(settings.in_flight.clamp(1, Semaphore::MAX_PERMITS));
        Self {
            keep: Keep::new(id, settings, news),
            places,
            recent: Recent::default(),
            mirrors: RwLock::default(),
            unlisted: Mutex::default(),
        }
    }

    /// Opens the connection without waiting for it: for upstreams that start with the gateway.
    pub fn start(&self) {
        self.keep.start();
    }

    async fn ask(
        &self,
        method: &str,
        params: Option<&RawValue>,
        talk: Talk,
        mirrors: Option<Arc<Mirrors>>,
    ) -> Result<Raw, UpstreamFault> {
        let time = Time { asked: Instant::now(), deadline: talk.deadline };
        let id = self.keep.id();
        let place = time.within(self.places.acquire()).await;
        let place = place.map_err(|limit| told::not_in_time(id, limit, "had no place free"))?;
        let open = time.within(self.keep.open()).await;
        let open = open.map_err(|limit| told::not_in_time(id, limit, "could not be opened"))??;
        let options = RequestOptions {
            deadline: time.rest(),
            relay: talk.relay,
            questions: talk.questions,
            identity: talk.identity,
            log_level: talk.log_level,
            mirrors,
        };
        let result = open.wire.request(method, params, options).await;
        drop(place);
        result.map(own_marks::removed).map_err(|failure| self.failed(&open, failure, talk.deadline))
    }

    fn failed(&self, open: &Open, failure: Failure, deadline: Deadline) -> UpstreamFault {
        if let Failure::Wire(WireFault { kind: FaultKind::SessionExpired, .. }) = &failure {
            self.keep.expired(open.number);
        }
        told::fault(self.keep.id(), failure, deadline, &open.wire.stderr_tail())
    }

    async fn list(&self) -> Result<Vec<Raw>, UpstreamFault> {
        let time =
            Time { asked: Instant::now(), deadline: Deadline::Total(self.keep.settings().list_timeout) };
        let mut pages = Pages::default();
        let mut params: Option<Raw> = None;
        loop {
            let talk = Talk {
                deadline: time.rest(),
                relay: None,
                questions: Questions::PassThrough,
                identity: None,
                log_level: None,
            };
            let page = match self.ask("tools/list", params.as_deref(), talk, None).await {
                Ok(page) => page,
                // A server without tools has no such method.
                Err(UpstreamFault::Rpc(error)) if error.code() == code::METHOD_NOT_FOUND => break,
                Err(fault) => return Err(fault),
            };
            let next = pages.take(&page).map_err(|why| UpstreamFault::Unavailable {
                why: format!("`{}`: {why}", self.keep.id()),
                sent: Sent::Unknown,
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

    fn note_mirrors(&self, tools: &[Raw]) {
        let mirrored = tools.iter().filter_map(|tool| {
            let mirrors = Mirrors::of_schema(raw::get(tool, "inputSchema")?).ok()?;
            (!mirrors.is_empty()).then_some((raw::get_str(tool, "name")?.into_owned(), Arc::new(mirrors)))
        });
        *self.mirrors.write().unwrap_or_else(PoisonError::into_inner) = mirrored.collect();
    }

    fn mirrors_of(&self, tool: &str) -> Option<Arc<Mirrors>> {
        self.mirrors.read().unwrap_or_else(PoisonError::into_inner).get(tool).cloned()
    }

    fn note_duration(&self, taken: Duration) {
        self.recent.took(taken);
    }
}

impl Upstream for McpUpstream {
    fn id(&self) -> &UpstreamId {
        self.keep.id()
    }

    fn tools(&self) -> Later<'_, Result<Vec<Raw>, UpstreamFault>> {
        Box::pin(async {
            let listed = self.list().await;
            let why = match &listed {
                Ok(_) | Err(UpstreamFault::Rpc(_)) => None,
                Err(UpstreamFault::Unavailable { why, .. } | UpstreamFault::Timeout { why, .. }) => {
                    Some(why.clone())
                }
            };
            *self.unlisted.lock().unwrap_or_else(PoisonError::into_inner) = why;
            listed
        })
    }

    fn call<'a>(&'a self, errand: Errand<'a>, talk: Talk) -> Later<'a, Result<Raw, UpstreamFault>> {
        Box::pin(async move {
            let params = members::call_params(errand.tool(), errand.arguments(), errand.rest());
            let asked = Instant::now();
            let mirrors = self.mirrors_of(errand.tool());
            let result = self.ask("tools/call", Some(&params), talk, mirrors).await;
            self.note_duration(asked.elapsed());
            result
        })
    }

    fn request<'a>(
        &'a self,
        method: &'a str,
        params: Option<&'a RawValue>,
        talk: Talk,
    ) -> Later<'a, Result<Raw, UpstreamFault>> {
        Box::pin(self.ask(method, params, talk, None))
    }

    fn notify<'a>(&'a self, method: &'a str, params: Option<&'a RawValue>) -> Later<'a, ()> {
        Box::pin(async move {
            // News of a client nobody listens to are no reason to start anything.
            if self.keep.health().condition == super::Condition::Up
                && let Ok(open) = self.keep.open().await
            {
                let _ = open.wire.notify(method, params).await;
            }
        })
    }

    fn capabilities(&self) -> Option<Raw> {
        self.keep.capabilities()
    }

    fn health(&self) -> Health {
        let mut health = Health { recent_us: self.recent.micros(), ..self.keep.health() };
        let unlisted = self.unlisted.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let (super::Condition::Up, Some(why)) = (&health.condition, unlisted) {
            health.condition = super::Condition::Down(why);
        }
        health
    }

    fn era(&self) -> Option<&'static str> {
        self.keep.era()
    }

    fn close(&self) -> Later<'_, ()> {
        Box::pin(self.keep.close())
    }
}

/// The time of one request, running since it was asked for.
struct Time {
    asked: Instant,
    deadline: Deadline,
}

impl Time {
    fn limit(&self) -> Option<Duration> {
        match self.deadline {
            Deadline::Total(limit) | Deadline::Quiet(limit) => Some(limit),
            Deadline::Never => None,
        }
    }

    /// Waits for something that comes before sending; the limit where it does not come in time.
    async fn within<T>(&self, work: impl Future<Output = T>) -> Result<T, Duration> {
        match self.limit() {
            Some(limit) => tokio::time::timeout_at(self.asked + limit, work).await.map_err(|_| limit),
            None => Ok(work.await),
        }
    }

    /// What is left of it for the reply. Sending is a sign of life, so a quiet deadline begins anew.
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
        let rest = |deadline| Time { asked, deadline }.rest();
        let Deadline::Total(left) = rest(Deadline::Total(Duration::from_secs(8))) else { panic!() };
        assert!(left <= Duration::from_secs(3));
        assert_eq!(rest(Deadline::Total(Duration::from_secs(2))), Deadline::Total(Duration::ZERO));
        assert_eq!(rest(Deadline::Quiet(Duration::from_secs(2))), Deadline::Quiet(Duration::from_secs(2)));
        assert_eq!(rest(Deadline::Never), Deadline::Never);
    }
}
