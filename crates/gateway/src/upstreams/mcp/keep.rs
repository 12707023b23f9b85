//! Keeps one connection to an upstream: opened on first need, shared by all its calls, opened again with pauses when it fell.
//! It sends nothing but what opening needs, and never sends anything twice.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use countersign_core::ids::UpstreamId;
use countersign_wire::era::Era;
use countersign_wire::fault::{Failure, Sent, WireFault};
use countersign_wire::frame::{Notification, Reply};
use countersign_wire::raw::Raw;
use countersign_wire::upstream::{Connect, EraChoice, Later, Observer, Oddity, Upstream as Wire};
use serde_json::Value;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::{News, Settings, told};
use crate::own_marks;
use crate::upstreams::{Condition, Health, UpstreamFault};

/// A caller waits for a restart this near; beyond it, it is told at once.
const NEAR: Duration = Duration::from_secs(2);
/// So many failed starts in a row are tried without anyone asking; after that only need starts it again.
const REVIVALS: u32 = 10;

/// An open connection and which one it is, counted from 1.
#[derive(Clone)]
pub(super) struct Open {
    pub(super) wire: Wire,
    pub(super) number: u64,
    since: Instant,
}

enum State {
    Idle,
    Starting,
    Up(Open),
    Down { why: String, until: Instant },
    Closed,
}

/// What an upstream said of itself when it was last opened.
#[derive(Clone)]
struct Facts {
    era: Era,
    version: &'static str,
    server_info: Option<Value>,
    capabilities: Raw,
}

impl Facts {
    fn era(&self) -> &'static str {
        match self.era {
            Era::Legacy => "legacy",
            Era::Modern => "modern",
        }
    }
}

struct Held {
    state: State,
    /// How often it was started, and how often in a row that or its life failed.
    starts: u64,
    failures: u32,
    facts: Option<Facts>,
    /// What the last connection left on stderr.
    stderr: String,
    /// The start or the pause under way.
    task: Option<AbortHandle>,
    /// Connections to let go of once the lock is free: their end is told to us, and that takes the lock.
    gone: Vec<Open>,
}

/// The keeper of one upstream's connection.
pub(super) struct Keep {
    id: UpstreamId,
    settings: Settings,
    news: Arc<dyn News>,
    held: Mutex<Held>,
    /// Counts changes of state, for those who wait for one.
    moved: watch::Sender<u64>,
    me: Weak<Keep>,
}

/// What to do next for a caller that needs the connection.
enum Step {
    Ready(Open),
    Wait(Option<Instant>),
    Fail(String),
}

impl Keep {
    pub(super) fn new(id: UpstreamId, settings: Settings, news: Arc<dyn News>) -> Arc<Self> {
        let held = Held {
            state: State::Idle,
            starts: 0,
            failures: 0,
            facts: None,
            stderr: String::new(),
            task: None,
            gone: Vec::new(),
        };
        Arc::new_cyclic(|me| Self {
            id,
            settings,
            news,
            held: Mutex::new(held),
            moved: watch::Sender::new(0),
            me: me.clone(),
        })
    }

    pub(super) fn id(&self) -> &UpstreamId {
        &self.id
    }

    pub(super) fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The connection, opened if need be. Waits for a start under way; whoever waited for one that failed is told so.
    pub(super) async fn open(&self) -> Result<Open, UpstreamFault> {
        if let Some(open) = self.with(|held| held.standing()) {
            return Ok(open);
        }
        let mut moved = self.moved.subscribe();
        let mut waited = false;
        loop {
            self.look();
            moved.borrow_and_update();
            match self.with(|held| self.step(held, waited)) {
                Step::Ready(open) => return Ok(open),
                Step::Fail(why) => {
                    // Nothing of the request was sent, whatever opening did.
                    return Err(UpstreamFault::Unavailable {
                        why: format!("`{}`: {why}", self.id),
                        sent: Sent::No,
                    });
                }
                Step::Wait(None) => {
                    let _ = moved.changed().await;
                    waited = true;
                }
                Step::Wait(Some(until)) => tokio::select! {
                    _ = moved.changed() => {}
                    () = tokio::time::sleep_until(until) => {}
                },
            }
        }
    }

    fn step(&self, held: &mut Held, waited: bool) -> Step {
        match &held.state {
            State::Up(open) => Step::Ready(open.clone()),
            State::Starting => Step::Wait(None),
            State::Closed => Step::Fail("it was closed".to_owned()),
            State::Down { why, .. } if waited => Step::Fail(why.clone()),
            State::Down { why, until } => {
                let left = until.saturating_duration_since(Instant::now());
                match left {
                    Duration::ZERO => {
                        self.begin(held);
                        Step::Wait(None)
                    }
                    _ if left <= NEAR => Step::Wait(Some(*until)),
                    _ => Step::Fail(format!("{why}; it is tried again in {} s", left.as_secs() + 1)),
                }
            }
            State::Idle => {
                self.begin(held);
                Step::Wait(None)
            }
        }
    }

    /// Starts it if nothing has yet.
    pub(super) fn start(&self) {
        self.with(|held| {
            if matches!(held.state, State::Idle) {
                self.begin(held);
            }
        });
    }

    fn begin(&self, held: &mut Held) {
        held.starts += 1;
        self.replace(held, State::Starting);
        let number = held.starts;
        let mut plan = Connect::new(self.settings.identity.clone(), Arc::new(Ear(self.me.clone())));
        plan.limits = self.settings.limits;
        plan.open_timeout = self.settings.open_timeout;
        plan.probe_timeout = self.settings.probe_timeout;
        // What it spoke last time it speaks again; a failed start forgets.
        let era =
            self.settings.era.or(held.facts.as_ref().filter(|_| held.failures < 2).map(|facts| facts.era));
        plan.era = era.map_or(EraChoice::Probe, EraChoice::Known);
        let (me, spec) = (self.me.clone(), self.settings.spec.clone());
        let start = async move {
            let opened = Wire::connect(&spec, plan).await;
            if let Some(keep) = me.upgrade() {
                keep.settle(number, opened);
            }
        };
        held.task = Some(tokio::spawn(start).abort_handle());
    }

    /// A start came to an end.
    fn settle(&self, number: u64, opened: Result<Wire, Failure>) {
        let connected = self.with(|held| {
            let current = held.starts == number && matches!(held.state, State::Starting);
            match opened.map(|wire| Open { wire, number, since: Instant::now() }) {
                // Closed or started anew meanwhile.
                Ok(open) if !current => {
                    held.gone.push(open);
                    false
                }
                Err(_) if !current => false,
                Ok(open) => {
                    held.facts = Some(Facts::of(&open.wire));
                    self.replace(held, State::Up(open));
                    true
                }
                Err(failure) => {
                    // A start that failed is not tried again at once, even the first time.
                    held.failures = held.failures.saturating_add(1).max(2);
                    self.down(held, told::opening(&self.id, &failure));
                    false
                }
            }
        });
        if connected {
            self.news.connected(&self.id);
            // It may have died before it counted as up.
            self.look();
        }
    }

    /// Notices a connection that ended.
    fn look(&self) {
        let fell = self.with(|held| {
            let State::Up(open) = &held.state else { return None };
            let fault = open.wire.fault()?.clone();
            self.fell(held, &fault);
            Some(fault)
        });
        if let Some(fault) = fell {
            self.news.closed(&self.id, &fault.to_string());
        }
    }

    fn fell(&self, held: &mut Held, fault: &WireFault) {
        if let State::Up(open) = &held.state {
            let lived = open.since.elapsed() >= self.settings.pauses.stable;
            held.failures = if lived { 1 } else { held.failures.saturating_add(1) };
            held.stderr = open.wire.stderr_tail();
        }
        self.down(held, crate::escape::excerpt(&fault.to_string(), 400));
    }

    fn down(&self, held: &mut Held, why: String) {
        let pause = self.settings.pauses.after(held.failures, held.starts ^ seed(&self.id));
        let until = Instant::now() + pause;
        self.replace(held, State::Down { why, until });
        // One that once worked comes back by itself, so that its news go on; one that never did waits for need.
        if held.facts.is_some() && held.failures <= REVIVALS {
            let me = self.me.clone();
            let revive = async move {
                tokio::time::sleep_until(until).await;
                if let Some(keep) = me.upgrade() {
                    keep.with(|held| {
                        if matches!(&held.state, State::Down { until: due, .. } if *due == until) {
                            keep.begin(held);
                        }
                    });
                }
            };
            held.task = Some(tokio::spawn(revive).abort_handle());
        }
    }

    /// The upstream forgot this connection's session: the next request gets a new one.
    pub(super) fn expired(&self, number: u64) {
        self.with(|held| {
            if matches!(&held.state, State::Up(open) if open.number == number) {
                self.begin(held);
            }
        });
    }

    /// Ends it for good.
    pub(super) async fn close(&self) {
        let open = self.with(|held| {
            let open = if let State::Up(open) = &held.state { Some(open.clone()) } else { None };
            self.replace(held, State::Closed);
            open
        });
        if let Some(open) = open {
            open.wire.close().await;
        }
    }

    pub(super) fn capabilities(&self) -> Option<Raw> {
        self.with(|held| held.facts.as_ref().map(|facts| facts.capabilities.clone()))
    }

    /// The era it speaks, once known.
    pub(super) fn era(&self) -> Option<&'static str> {
        self.with(|held| held.facts.as_ref().map(Facts::era))
    }

    /// How it is; durations are not known here.
    pub(super) fn health(&self) -> Health {
        self.with(|held| {
            let condition = match &held.state {
                State::Idle => Condition::Idle,
                State::Starting => Condition::Starting,
                State::Up(_) => Condition::Up,
                State::Down { why, .. } => Condition::Down(why.clone()),
                State::Closed => Condition::Down("it was closed".to_owned()),
            };
            let stderr =
                if let State::Up(open) = &held.state { open.wire.stderr_tail() } else { held.stderr.clone() };
            let facts = held.facts.as_ref();
            Health {
                condition,
                restarts: u32::try_from(held.starts.saturating_sub(1)).unwrap_or(u32::MAX),
                era: facts.map(Facts::era),
                version: facts.map(|facts| facts.version.to_owned()),
                server_info: facts.and_then(|facts| facts.server_info.clone()),
                stderr_tail: crate::escape::visible(&stderr),
                recent_us: Vec::new(),
            }
        })
    }

    fn replace(&self, held: &mut Held, state: State) {
        if let Some(task) = held.task.take() {
            task.abort();
        }
        if let State::Up(open) = std::mem::replace(&mut held.state, state) {
            held.gone.push(open);
        }
        self.moved.send_modify(|count| *count += 1);
    }

    /// Works on the state; what it lets go of ends after the lock is free.
    fn with<T>(&self, work: impl FnOnce(&mut Held) -> T) -> T {
        let mut held: MutexGuard<'_, Held> = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let out = work(&mut held);
        let gone = std::mem::take(&mut held.gone);
        drop(held);
        drop(gone);
        out
    }
}

impl Held {
    /// The connection, if it stands.
    fn standing(&self) -> Option<Open> {
        match &self.state {
            State::Up(open) if open.wire.fault().is_none() => Some(open.clone()),
            State::Up(_) | State::Idle | State::Starting | State::Down { .. } | State::Closed => None,
        }
    }
}

impl Drop for Keep {
    fn drop(&mut self) {
        let held = self.held.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(task) = held.task.take() {
            task.abort();
        }
    }
}

impl Facts {
    fn of(wire: &Wire) -> Self {
        Self {
            era: wire.era(),
            version: wire.version().as_str(),
            server_info: wire.server_info().and_then(|info| serde_json::from_str(info.get()).ok()),
            capabilities: wire.capabilities().to_owned(),
        }
    }
}

/// A number of an upstream's own, so that several do not return in step.
fn seed(id: &UpstreamId) -> u64 {
    id.as_str()
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

/// Hears what the upstream says outside of requests and hands it on, in order.
struct Ear(Weak<Keep>);

impl Observer for Ear {
    fn notification(&self, notification: Notification) {
        if let Some(keep) = self.0.upgrade() {
            keep.news.notification(&keep.id, own_marks::removed_from_notification(notification));
        }
    }

    fn closed(&self, _: &WireFault) {
        // A probe that was given up closes as well: only the state of the connection itself counts.
        if let Some(keep) = self.0.upgrade() {
            keep.look();
        }
    }

    fn odd(&self, oddity: Oddity) {
        if let Some(keep) = self.0.upgrade() {
            keep.news.odd(&keep.id, oddity);
        }
    }

    fn ask(&self, method: &str, params: Option<Raw>) -> Option<Later<'static, Reply>> {
        let keep = self.0.upgrade()?;
        keep.news.ask(&keep.id, method, params)
    }
}
