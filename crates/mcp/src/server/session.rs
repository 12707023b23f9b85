//! One client's session: its identity, where its unrelated notifications go, and its requests in flight. It holds no mode and no
//! permissions; those belong to the service's data in the identity.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::value::RawValue;
use tokio::sync::{Notify, OwnedSemaphorePermit, mpsc};

use super::client_questions::{AskFault, AskTable, is_offered};
use super::concurrency::ConcurrencyLimiter;
use super::event_log::EventLog;
use super::listen_filter::ListenFilter;
use super::parked_requests::ParkedRequests;
use super::request_context::RequestContext;
use super::{CallerIdentity, Transport};
use crate::era::{Era, Version, key};
use crate::framing::OutgoingFrame;
use crate::jsonrpc::{self, JsonRpcId};
use crate::log_severity::LogSeverity;
use crate::one_shot_flag::OneShotFlag;
use crate::raw::{self, MemberEdit, RawJson};

/// How long a notification waits for a client that does not read.
const PATIENCE: Duration = Duration::from_secs(1);

/// How long a client that missed one is not waited for again.
const IMPATIENCE: Duration = Duration::from_secs(10);

/// Unguessable where it travels as a header.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SessionId(Arc<str>);

impl SessionId {
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self(name.into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The client is gone or does not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the client cannot be reached")]
pub struct ClientUnreachable;

/// What a service keeps of an HTTP session to restore it after a restart.
#[derive(Debug, Clone)]
pub struct SavedSession {
    /// The key of its caller's identity.
    pub identity_key: String,
    pub version: Version,
    pub path: String,
    pub client_info: Option<RawJson>,
    pub capabilities: Option<RawJson>,
}

/// What a client reports about itself: good for wording and features, never for permissions.
#[derive(Debug, Clone, Default)]
pub struct ClientInfo {
    pub info: Option<RawJson>,
    pub capabilities: Option<RawJson>,
}

impl ClientInfo {
    pub(crate) fn of_initialize(params: Option<&RawValue>) -> Self {
        let member = |name| params.and_then(|params| raw::get(params, name)).map(ToOwned::to_owned);
        Self { info: member("clientInfo"), capabilities: member("capabilities") }
    }

    pub(crate) fn of_meta(params: Option<&RawValue>) -> Self {
        let meta = params.and_then(|params| raw::get_text(params.get(), "_meta"));
        let member = |name| meta.and_then(|meta| raw::get_text(meta, name)).and_then(raw::from_text);
        Self { info: member(key::CLIENT_INFO), capabilities: member(key::CLIENT_CAPABILITIES) }
    }
}

/// Where notifications go that belong to no request.
#[derive(Debug)]
pub(crate) enum SessionOutlet {
    /// The stdio connection. Weak, so that a session kept by the service does not keep it open.
    Line(mpsc::WeakSender<OutgoingFrame>),
    /// The GET stream of a legacy HTTP session, connected or not.
    Log(Arc<EventLog>),
    /// A modern HTTP request: only its listen streams get notifications.
    Nowhere,
}

#[derive(Debug)]
struct ListenStream {
    id: JsonRpcId,
    filter: ListenFilter,
    outlet: mpsc::Sender<OutgoingFrame>,
}

pub(crate) struct SessionParams {
    pub(crate) id: SessionId,
    pub(crate) transport: Transport,
    pub(crate) version: Version,
    pub(crate) path: Arc<str>,
    pub(crate) identity: CallerIdentity,
    pub(crate) client: ClientInfo,
    pub(crate) outlet: SessionOutlet,
    pub(crate) parking: Arc<ParkedRequests>,
}

/// A stdio client, a legacy HTTP session, or a single modern HTTP request or listen stream.
pub struct Session {
    params: SessionParams,
    asks: AskTable,
    live: Mutex<HashMap<JsonRpcId, RequestContext>>,
    listens: Mutex<Vec<ListenStream>>,
    ended: OneShotFlag,
    /// Signals the end of a request.
    left: Notify,
    limiter: Arc<ConcurrencyLimiter>,
    /// Whether the client sent more than `server/discover`.
    used: AtomicBool,
    /// The lowest log severity the client asked for (legacy: `logging/setLevel`).
    level: Mutex<Option<LogSeverity>>,
    /// When the client last missed a notification because it did not read.
    missed: Mutex<Option<Instant>>,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("transport", &self.params.transport)
            .field("version", &self.params.version)
            .field("path", &self.params.path)
            .field("tag", &self.params.identity)
            .finish_non_exhaustive()
    }
}

impl Session {
    pub(crate) fn new(params: SessionParams, limiter: Arc<ConcurrencyLimiter>) -> Arc<Self> {
        // Never log the id: over HTTP it opens the session.
        let (transport, version, era) = (params.transport, params.version.as_str(), params.version.era());
        tracing::debug!(?transport, version, ?era, "session opened");
        Arc::new(Self {
            params,
            asks: AskTable::default(),
            live: Mutex::default(),
            listens: Mutex::default(),
            ended: OneShotFlag::default(),
            left: Notify::new(),
            limiter,
            used: AtomicBool::new(false),
            level: Mutex::default(),
            missed: Mutex::default(),
        })
    }

    /// The `Mcp-Session-Id` (legacy HTTP), the configured name (stdio), or a random one (modern HTTP).
    pub fn id(&self) -> &SessionId {
        &self.params.id
    }

    pub fn transport(&self) -> Transport {
        self.params.transport
    }

    pub fn era(&self) -> Era {
        self.params.version.era()
    }

    pub fn version(&self) -> Version {
        self.params.version
    }

    /// Empty on stdio.
    pub fn path(&self) -> &str {
        &self.params.path
    }

    pub fn identity(&self) -> &CallerIdentity {
        &self.params.identity
    }

    /// The client's description when the session opened.
    pub fn client(&self) -> &ClientInfo {
        &self.params.client
    }

    /// The client's log level as JSON, for upstreams that want it with every request.
    pub fn log_level(&self) -> Option<String> {
        self.level().map(LogSeverity::as_json)
    }

    pub(crate) fn level(&self) -> Option<LogSeverity> {
        *lock(&self.level)
    }

    pub(crate) fn set_level(&self, level: LogSeverity) {
        *lock(&self.level) = Some(level);
    }

    pub fn saved(&self) -> SavedSession {
        SavedSession {
            identity_key: self.params.identity.key.to_string(),
            version: self.params.version,
            path: self.params.path.to_string(),
            client_info: self.params.client.info.clone(),
            capabilities: self.params.client.capabilities.clone(),
        }
    }

    pub fn is_ended(&self) -> bool {
        self.ended.is_raised()
    }

    pub async fn ended(&self) {
        self.ended.wait().await;
    }

    /// Sends a notification that belongs to no request. A modern client gets it on the listen streams that subscribe to it; without
    /// one, nothing is sent. A client that does not read for a second misses it.
    pub async fn notify(&self, method: &str, params: Option<&RawValue>) -> Result<(), ClientUnreachable> {
        if self.is_ended() {
            return Err(ClientUnreachable);
        }
        // A client that does not read delays the others once, not with every message.
        let is_slow = lock(&self.missed).is_some_and(|missed| missed.elapsed() < IMPATIENCE);
        let patience = if is_slow { Duration::ZERO } else { PATIENCE };
        let told = self.notify_within(method, params, patience).await;
        // A failure without patience says nothing new: it must not extend the time in which the client is skipped.
        if told.is_ok() || !is_slow {
            *lock(&self.missed) = told.err().map(|ClientUnreachable| Instant::now());
        }
        told
    }

    async fn notify_within(
        &self,
        method: &str,
        params: Option<&RawValue>,
        patience: Duration,
    ) -> Result<(), ClientUnreachable> {
        if self.era() == Era::Modern {
            // The stateless era has no connection to push to: only a stream the client opened itself.
            return self.notify_listens(method, params, patience).await;
        }
        let mut bytes = Vec::with_capacity(96 + params.map_or(0, |params| params.get().len()));
        jsonrpc::write_notification(&mut bytes, method, params.map(RawValue::get));
        match &self.params.outlet {
            SessionOutlet::Line(outlet) => {
                send_patiently(&outlet.upgrade().ok_or(ClientUnreachable)?, bytes, patience).await
            }
            SessionOutlet::Log(log) => log.push_patiently(bytes, patience).await,
            SessionOutlet::Nowhere => Ok(()),
        }
    }

    async fn notify_listens(
        &self,
        method: &str,
        params: Option<&RawValue>,
        patience: Duration,
    ) -> Result<(), ClientUnreachable> {
        let targets: Vec<(JsonRpcId, mpsc::Sender<OutgoingFrame>)> = lock(&self.listens)
            .iter()
            .filter(|listen| listen.filter.wants(method, params))
            // Cloned out of the lock: sending may wait for a slow reader.
            .map(|listen| (listen.id.clone(), listen.outlet.clone()))
            .collect();
        let mut outcome = Ok(());
        for (id, outlet) in targets {
            outcome = send_patiently(&outlet, tagged(method, params, &id), patience).await.and(outcome);
        }
        outcome
    }

    /// Asks the client outside of any request (legacy sessions only).
    pub async fn ask(&self, method: &str, params: Option<&RawValue>) -> Result<RawJson, AskFault> {
        if self.era() == Era::Modern {
            return Err(AskFault::NotHere(method.to_owned()));
        }
        match &self.params.outlet {
            SessionOutlet::Line(outlet) => {
                let outlet = outlet.upgrade().ok_or(AskFault::Gone)?;
                self.ask_on(&outlet, &self.params.client, method, params).await
            }
            SessionOutlet::Log(log) => {
                // The GET stream may reconnect: the question is an event of its log like any other.
                let (outlet, mut question) = mpsc::channel::<OutgoingFrame>(4);
                let deliver = async {
                    while let Some(out) = question.recv().await {
                        if log.push_patiently(out.bytes, PATIENCE).await.is_err() {
                            return;
                        }
                    }
                };
                let ask = self.ask_on(&outlet, &self.params.client, method, params);
                tokio::pin!(ask, deliver);
                tokio::select! {
                    answer = &mut ask => answer,
                    () = &mut deliver => Err(AskFault::Gone),
                }
            }
            SessionOutlet::Nowhere => Err(AskFault::Gone),
        }
    }

    /// Sends a question as a JSON-RPC request and waits for the answer. Dropping the future withdraws the question.
    pub(crate) async fn ask_on(
        &self,
        outlet: &mpsc::Sender<OutgoingFrame>,
        client: &ClientInfo,
        method: &str,
        params: Option<&RawValue>,
    ) -> Result<RawJson, AskFault> {
        // A question without the capability breaks clients that do not expect one.
        if !is_offered(client.capabilities.as_deref(), method, params) {
            return Err(AskFault::NotOffered(method.to_owned()));
        }
        let (id, answered) = self.asks.open()?;
        // Before the send: a caller that gives up while the queue is full must not leave its entry in the table.
        let withdraw = WithdrawOnDrop { session: self, outlet, id };
        let mut bytes = Vec::new();
        jsonrpc::write_request(&mut bytes, &JsonRpcId::number(id), method, params.map(RawValue::get));
        outlet.send(OutgoingFrame::message(bytes)).await.map_err(|_| AskFault::Gone)?;
        let reply = tokio::select! {
            reply = answered => reply.map_err(|_| AskFault::Gone)?,
            // A client that disconnects never answers, and the call that asked would hold its slot for ever.
            () = self.ended.wait() => return Err(AskFault::Gone),
        };
        drop(withdraw);
        reply.map_err(AskFault::Rpc)
    }

    /// Delivers an answer; false when nobody waits for it.
    pub(crate) fn answer(&self, id: Option<&JsonRpcId>, reply: jsonrpc::Reply) -> bool {
        self.asks.answer(id.and_then(JsonRpcId::as_number), reply)
    }

    pub(crate) fn parking(&self) -> &Arc<ParkedRequests> {
        &self.params.parking
    }

    /// Registers a request in flight; false when its id is in use.
    pub(crate) fn enter(&self, id: JsonRpcId, ctx: RequestContext) -> bool {
        if ctx.method() != "server/discover" {
            self.used.store(true, Ordering::Relaxed);
        }
        // A reused id would make a cancellation hit the wrong request.
        match lock(&self.live).entry(id) {
            std::collections::hash_map::Entry::Occupied(_) => false,
            std::collections::hash_map::Entry::Vacant(place) => {
                place.insert(ctx);
                true
            }
        }
    }

    pub(crate) fn leave(&self, id: &JsonRpcId) {
        lock(&self.live).remove(id);
        self.left.notify_waiters();
    }

    /// Whether the client has only sent `server/discover` so far.
    pub(crate) fn is_probe(&self) -> bool {
        !self.used.load(Ordering::Relaxed)
    }

    /// Waits for a slot to run a request; `None` when too many wait already.
    pub(crate) async fn slot(&self) -> Option<OwnedSemaphorePermit> {
        self.limiter.take().await
    }

    /// Waits for the slot of a request that released its own.
    pub(crate) async fn reacquire_slot(&self) -> Option<OwnedSemaphorePermit> {
        self.limiter.again().await
    }

    /// Resolves when no request is in flight; open listen streams do not count.
    pub(crate) async fn idle(&self) {
        loop {
            // Taken before the check: a request that ends in between would be missed.
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

    pub(crate) fn cancel(&self, id: &JsonRpcId) {
        // Cancelled outside the lock, which `leave` takes when the request ends.
        let found = lock(&self.live).get(id).cloned();
        if let Some(ctx) = found {
            ctx.cancel();
        }
    }

    /// Opens a listen stream. Queue its acknowledgement on `outlet` first.
    pub(crate) fn add_listen(
        &self,
        id: JsonRpcId,
        filter: ListenFilter,
        outlet: mpsc::Sender<OutgoingFrame>,
    ) {
        lock(&self.listens).push(ListenStream { id, filter, outlet });
    }

    pub(crate) fn drop_listen(&self, id: &JsonRpcId) {
        lock(&self.listens).retain(|listen| listen.id != *id);
    }

    /// Ends the session: fails its questions and cancels its requests. True for the first call.
    pub(crate) fn end(&self) -> bool {
        let first = self.ended.raise();
        self.asks.end();
        // Copied out: a cancelled request removes itself and takes the same lock.
        let live: Vec<RequestContext> = lock(&self.live).values().cloned().collect();
        for ctx in live {
            ctx.cancel();
        }
        lock(&self.listens).clear();
        first
    }
}

/// Withdraws a question when its asker stops waiting.
struct WithdrawOnDrop<'a> {
    session: &'a Session,
    outlet: &'a mpsc::Sender<OutgoingFrame>,
    id: u64,
}

impl Drop for WithdrawOnDrop<'_> {
    fn drop(&mut self) {
        if self.session.asks.forget(self.id) {
            let mut bytes = Vec::new();
            let params = format!(r#"{{"requestId":{},"reason":"no longer needed"}}"#, self.id);
            jsonrpc::write_notification(&mut bytes, "notifications/cancelled", Some(&params));
            // A client that does not read sees an unanswered question; nothing is lost.
            let _ = self.outlet.try_send(OutgoingFrame::message(bytes));
        }
    }
}

async fn send_patiently(
    outlet: &mpsc::Sender<OutgoingFrame>,
    bytes: Vec<u8>,
    patience: Duration,
) -> Result<(), ClientUnreachable> {
    outlet.send_timeout(OutgoingFrame::message(bytes), patience).await.map_err(|_| ClientUnreachable)
}

/// A notification for one listen stream, with its subscription id.
pub(crate) fn tagged(method: &str, params: Option<&RawValue>, subscription: &JsonRpcId) -> Vec<u8> {
    let params = params.map_or("{}", RawValue::get);
    let edits = [MemberEdit::Set(key::SUBSCRIPTION_ID, subscription.as_json())];
    let params = raw::edit_inside(params, "_meta", &edits);
    let mut bytes = Vec::new();
    jsonrpc::write_notification(&mut bytes, method, params.as_deref());
    bytes
}

/// Locks even if another thread panicked: the maps are consistent between statements.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
