//! One client's line or session: who it is, where unrelated messages to it go, what of it is in flight.
//! It holds no mode and no rights; those hang on the service's own tag.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::value::RawValue;
use tokio::sync::{Notify, OwnedSemaphorePermit, mpsc};

use super::ask::{AskFault, AskTable, is_offered};
use super::ctx::Ctx;
use super::events::EventLog;
use super::listen::ListenFilter;
use super::parking::Parking;
use super::turns::Turns;
use super::{Tag, Transport};
use crate::era::{Era, Version, key};
use crate::frame::{self, Id};
use crate::line::Out;
use crate::raw::{self, Edit, Raw};
use crate::severity::Severity;
use crate::signal::Signal;

/// How long an unrelated notification waits for a client that does not read.
const PATIENCE: Duration = Duration::from_secs(1);

/// How long a client that missed one is not waited for again.
const IMPATIENCE: Duration = Duration::from_secs(10);

/// The name of a session; unguessable where it travels as a header.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SessionId(Arc<str>);

impl SessionId {
    /// A session name.
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self(name.into())
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The client cannot be reached any more, or does not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the client cannot be reached")]
pub struct Gone;

/// What a service keeps of an HTTP session to bring it back after a restart.
#[derive(Debug, Clone)]
pub struct Saved {
    /// Whose session it is (`Tag::key`).
    pub tag_key: String,
    /// The negotiated revision.
    pub version: Version,
    /// The path it was opened on.
    pub path: String,
    /// The client's `clientInfo`.
    pub client_info: Option<Raw>,
    /// The client's capabilities.
    pub capabilities: Option<Raw>,
}

/// What a client says of itself. Self-reported: good for wording and features, never for rights.
#[derive(Debug, Clone, Default)]
pub struct Client {
    /// `clientInfo`, as it came.
    pub info: Option<Raw>,
    /// The capabilities, as they came.
    pub capabilities: Option<Raw>,
}

impl Client {
    /// From the params of `initialize`.
    pub(crate) fn of_initialize(params: Option<&RawValue>) -> Self {
        let member = |name| params.and_then(|params| raw::get(params, name)).map(ToOwned::to_owned);
        Self { info: member("clientInfo"), capabilities: member("capabilities") }
    }

    /// From the `_meta` of a modern request.
    pub(crate) fn of_meta(params: Option<&RawValue>) -> Self {
        let meta = params.and_then(|params| raw::get_text(params.get(), "_meta"));
        let member = |name| meta.and_then(|meta| raw::get_text(meta, name)).and_then(raw::from_text);
        Self { info: member(key::CLIENT_INFO), capabilities: member(key::CLIENT_CAPABILITIES) }
    }
}

/// Where messages go that belong to no request.
#[derive(Debug)]
pub(crate) enum Outlet {
    /// The stdio line.
    /// Weak, so that a session kept by the service does not keep the line open.
    Line(mpsc::WeakSender<Out>),
    /// The GET stream of a legacy HTTP session, connected or not.
    Log(Arc<EventLog>),
    /// A modern HTTP request: only its listen streams hear anything.
    Nowhere,
}

/// One open `subscriptions/listen`.
#[derive(Debug)]
struct Listen {
    id: Id,
    filter: ListenFilter,
    outlet: mpsc::Sender<Out>,
}

/// What a session is made of.
pub(crate) struct Seat {
    pub(crate) id: SessionId,
    pub(crate) transport: Transport,
    pub(crate) version: Version,
    pub(crate) path: Arc<str>,
    pub(crate) tag: Tag,
    pub(crate) client: Client,
    pub(crate) outlet: Outlet,
    pub(crate) parking: Arc<Parking>,
}

/// One client's line (stdio), session (legacy HTTP), or single request or listen stream (modern HTTP).
pub struct Session {
    seat: Seat,
    asks: AskTable,
    live: Mutex<HashMap<Id, Ctx>>,
    listens: Mutex<Vec<Listen>>,
    ended: Signal,
    /// Wakes whoever waits for the last request to end.
    left: Notify,
    turns: Arc<Turns>,
    /// Whether more than `server/discover` was asked.
    used: AtomicBool,
    /// The least severe log message the client asked for (legacy era: `logging/setLevel`).
    level: Mutex<Option<Severity>>,
    /// When the client last missed a notification because it did not read.
    missed: Mutex<Option<Instant>>,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("transport", &self.seat.transport)
            .field("version", &self.seat.version)
            .field("path", &self.seat.path)
            .field("tag", &self.seat.tag)
            .finish_non_exhaustive()
    }
}

impl Session {
    pub(crate) fn new(seat: Seat, turns: Arc<Turns>) -> Arc<Self> {
        Arc::new(Self {
            seat,
            asks: AskTable::default(),
            live: Mutex::default(),
            listens: Mutex::default(),
            ended: Signal::default(),
            left: Notify::new(),
            turns,
            used: AtomicBool::new(false),
            level: Mutex::default(),
            missed: Mutex::default(),
        })
    }

    /// Its name: the `Mcp-Session-Id` (legacy HTTP), the configured name (stdio), a throw-away one (modern HTTP).
    pub fn id(&self) -> &SessionId {
        &self.seat.id
    }

    /// How it reached us.
    pub fn transport(&self) -> Transport {
        self.seat.transport
    }

    /// The era it opened with.
    pub fn era(&self) -> Era {
        self.seat.version.era()
    }

    /// The revision spoken.
    pub fn version(&self) -> Version {
        self.seat.version
    }

    /// The HTTP path it came in by; empty on stdio.
    pub fn path(&self) -> &str {
        &self.seat.path
    }

    /// Whom the service said this is.
    pub fn tag(&self) -> &Tag {
        &self.seat.tag
    }

    /// What the client said of itself when the session opened.
    pub fn client(&self) -> &Client {
        &self.seat.client
    }

    /// The log level the client set, as JSON, for upstreams that want it with every request.
    pub fn log_level(&self) -> Option<String> {
        self.level().map(Severity::as_json)
    }

    pub(crate) fn level(&self) -> Option<Severity> {
        *lock(&self.level)
    }

    pub(crate) fn set_level(&self, level: Severity) {
        *lock(&self.level) = Some(level);
    }

    /// What to keep so that the session can be restored.
    pub fn saved(&self) -> Saved {
        Saved {
            tag_key: self.seat.tag.key.to_string(),
            version: self.seat.version,
            path: self.seat.path.to_string(),
            client_info: self.seat.client.info.clone(),
            capabilities: self.seat.client.capabilities.clone(),
        }
    }

    /// Whether the session has ended.
    pub fn is_ended(&self) -> bool {
        self.ended.is_raised()
    }

    /// Returns when the session has ended.
    pub async fn ended(&self) {
        self.ended.wait().await;
    }

    /// Sends a notification that belongs to no request. A modern client hears it on the listen streams that want it;
    /// where none does, nothing is sent and that is no error. A client that does not read for a second misses it.
    pub async fn notify(&self, method: &str, params: Option<&RawValue>) -> Result<(), Gone> {
        if self.is_ended() {
            return Err(Gone);
        }
        // A client that does not read delays what others are told once, and not with every message.
        let is_slow = lock(&self.missed).is_some_and(|missed| missed.elapsed() < IMPATIENCE);
        let patience = if is_slow { Duration::ZERO } else { PATIENCE };
        let told = self.notify_within(method, params, patience).await;
        if told.is_ok() || !is_slow {
            *lock(&self.missed) = told.err().map(|Gone| Instant::now());
        }
        told
    }

    async fn notify_within(
        &self,
        method: &str,
        params: Option<&RawValue>,
        patience: Duration,
    ) -> Result<(), Gone> {
        if self.era() == Era::Modern {
            return self.notify_listens(method, params, patience).await;
        }
        let mut bytes = Vec::with_capacity(96 + params.map_or(0, |params| params.get().len()));
        frame::write_notification(&mut bytes, method, params.map(RawValue::get));
        match &self.seat.outlet {
            Outlet::Line(outlet) => send_patiently(&outlet.upgrade().ok_or(Gone)?, bytes, patience).await,
            Outlet::Log(log) => log.push_patiently(bytes, patience).await,
            Outlet::Nowhere => Ok(()),
        }
    }

    async fn notify_listens(
        &self,
        method: &str,
        params: Option<&RawValue>,
        patience: Duration,
    ) -> Result<(), Gone> {
        let targets: Vec<(Id, mpsc::Sender<Out>)> = lock(&self.listens)
            .iter()
            .filter(|listen| listen.filter.wants(method, params))
            .map(|listen| (listen.id.clone(), listen.outlet.clone()))
            .collect();
        let mut outcome = Ok(());
        for (id, outlet) in targets {
            outcome = send_patiently(&outlet, tagged(method, params, &id), patience).await.and(outcome);
        }
        outcome
    }

    /// Asks the client something outside of any request (legacy sessions only).
    pub async fn ask(&self, method: &str, params: Option<&RawValue>) -> Result<Raw, AskFault> {
        if self.era() == Era::Modern {
            return Err(AskFault::NotHere(method.to_owned()));
        }
        match &self.seat.outlet {
            Outlet::Line(outlet) => {
                let outlet = outlet.upgrade().ok_or(AskFault::Gone)?;
                self.ask_on(&outlet, &self.seat.client, method, params).await
            }
            Outlet::Log(log) => {
                // The log speaks to whoever holds the GET stream; the question travels like any event.
                let (outlet, mut question) = mpsc::channel::<Out>(4);
                let deliver = async {
                    while let Some(out) = question.recv().await {
                        if log.push_patiently(out.bytes, PATIENCE).await.is_err() {
                            return;
                        }
                    }
                };
                let ask = self.ask_on(&outlet, &self.seat.client, method, params);
                tokio::pin!(ask, deliver);
                tokio::select! {
                    answer = &mut ask => answer,
                    () = &mut deliver => Err(AskFault::Gone),
                }
            }
            Outlet::Nowhere => Err(AskFault::Gone),
        }
    }

    /// Sends a question as a JSON-RPC request and waits for the answer; dropping the future withdraws the question.
    pub(crate) async fn ask_on(
        &self,
        outlet: &mpsc::Sender<Out>,
        client: &Client,
        method: &str,
        params: Option<&RawValue>,
    ) -> Result<Raw, AskFault> {
        if !is_offered(client.capabilities.as_deref(), method, params) {
            return Err(AskFault::NotOffered(method.to_owned()));
        }
        let (id, answered) = self.asks.open()?;
        let withdraw = Withdraw { session: self, outlet, id };
        let mut bytes = Vec::new();
        frame::write_request(&mut bytes, &Id::number(id), method, params.map(RawValue::get));
        outlet.send(Out::message(bytes)).await.map_err(|_| AskFault::Gone)?;
        let reply = tokio::select! {
            reply = answered => reply.map_err(|_| AskFault::Gone)?,
            () = self.ended.wait() => return Err(AskFault::Gone),
        };
        drop(withdraw);
        reply.map_err(AskFault::Rpc)
    }

    /// Hands an answer to whoever asked; false when nobody waits for it.
    pub(crate) fn answer(&self, id: Option<&Id>, reply: frame::Reply) -> bool {
        self.asks.answer(id.and_then(Id::as_number), reply)
    }

    pub(crate) fn parking(&self) -> &Arc<Parking> {
        &self.seat.parking
    }

    /// Notes a request in flight; false when its id is taken already.
    pub(crate) fn enter(&self, id: Id, ctx: Ctx) -> bool {
        if ctx.method() != "server/discover" {
            self.used.store(true, Ordering::Relaxed);
        }
        match lock(&self.live).entry(id) {
            std::collections::hash_map::Entry::Occupied(_) => false,
            std::collections::hash_map::Entry::Vacant(place) => {
                place.insert(ctx);
                true
            }
        }
    }

    pub(crate) fn leave(&self, id: &Id) {
        lock(&self.live).remove(id);
        self.left.notify_waiters();
    }

    /// Whether the client has only asked what we are so far.
    pub(crate) fn is_probe(&self) -> bool {
        !self.used.load(Ordering::Relaxed)
    }

    /// Waits for a turn to run a request; `None` when too many wait already.
    pub(crate) async fn turn(&self) -> Option<OwnedSemaphorePermit> {
        self.turns.take().await
    }

    /// Waits for the turn of a request that gave its own up for a while.
    pub(crate) async fn turn_again(&self) -> Option<OwnedSemaphorePermit> {
        self.turns.again().await
    }

    /// Returns when no request is in flight; open listen streams do not count.
    pub(crate) async fn idle(&self) {
        loop {
            let left = self.left.notified();
            let busy = lock(&self.live).values().any(|ctx| ctx.method() != "subscriptions/listen");
            if !busy {
                return;
            }
            left.await;
        }
    }

    pub(crate) fn in_flight(&self) -> usize {
        lock(&self.live).len()
    }

    /// Raises `cancelled` on the request with this id.
    pub(crate) fn cancel(&self, id: &Id) {
        let found = lock(&self.live).get(id).cloned();
        if let Some(ctx) = found {
            ctx.cancel();
        }
    }

    /// Opens a listen stream; the acknowledgement must have been queued on `outlet` before.
    pub(crate) fn add_listen(&self, id: Id, filter: ListenFilter, outlet: mpsc::Sender<Out>) {
        lock(&self.listens).push(Listen { id, filter, outlet });
    }

    pub(crate) fn drop_listen(&self, id: &Id) {
        lock(&self.listens).retain(|listen| listen.id != *id);
    }

    /// Ends the session: questions fail, requests in flight are told to stop. True for the one who ended it.
    pub(crate) fn end(&self) -> bool {
        let first = self.ended.raise();
        self.asks.end();
        let live: Vec<Ctx> = lock(&self.live).values().cloned().collect();
        for ctx in live {
            ctx.cancel();
        }
        lock(&self.listens).clear();
        first
    }
}

/// Takes a question back if its asker stops waiting.
struct Withdraw<'a> {
    session: &'a Session,
    outlet: &'a mpsc::Sender<Out>,
    id: u64,
}

impl Drop for Withdraw<'_> {
    fn drop(&mut self) {
        if self.session.asks.forget(self.id) {
            let mut bytes = Vec::new();
            let params = format!(r#"{{"requestId":{},"reason":"no longer needed"}}"#, self.id);
            frame::write_notification(&mut bytes, "notifications/cancelled", Some(&params));
            // A client that does not read will find the question unanswered; nothing is lost.
            let _ = self.outlet.try_send(Out::message(bytes));
        }
    }
}

async fn send_patiently(outlet: &mpsc::Sender<Out>, bytes: Vec<u8>, patience: Duration) -> Result<(), Gone> {
    outlet.send_timeout(Out::message(bytes), patience).await.map_err(|_| Gone)
}

/// A notification as it goes out on one listen stream.
pub(crate) fn tagged(method: &str, params: Option<&RawValue>, subscription: &Id) -> Vec<u8> {
    let params = params.map_or("{}", RawValue::get);
    let edits = [Edit::Set(key::SUBSCRIPTION_ID, subscription.as_json())];
    let params = raw::edit_inside(params, "_meta", &edits);
    let mut bytes = Vec::new();
    frame::write_notification(&mut bytes, method, params.as_deref());
    bytes
}

/// A lock that outlives a panic elsewhere: the maps behind it stay consistent between statements.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
