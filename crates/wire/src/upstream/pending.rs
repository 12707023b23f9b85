//! Requests on their way to an upstream and everything that comes back: replies find their request, progress goes to it in
//! order, questions are answered, the rest is the observer's. A reply nobody waits for is dropped and told.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use serde_json::value::RawValue;
use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;

use super::{Asks, Deadline, Later, Observer, Oddity, Relay};
use crate::era::key;
use crate::fault::{FaultKind, WireFault};
use crate::frame::{self, Id, Message, Notification, Reply, Request, Response, RpcError};
use crate::raw::{self, Raw};
use crate::serve::lock;

/// How many notifications of one request may wait for their receiver.
const NOTES: usize = 128;
/// How long the reader waits for a receiver that does not take its notifications.
const PATIENCE: Duration = Duration::from_secs(5);
/// The longest notification of a request that is handed on, in bytes.
const LONGEST_NOTE: usize = 64 << 10;
/// How many questions of one upstream may be open.
const QUESTIONS: usize = 64;
/// How many given-up ids are remembered, to tell a late reply from a wrong one.
const LATE: usize = 1024;

/// Sends bytes of a message back to the upstream, however it is reached.
pub(super) trait Back: Send + Sync {
    fn send(&self, bytes: Vec<u8>) -> Later<'_, Result<(), WireFault>>;
    /// Sends without waiting, as far as possible.
    fn send_now(&self, bytes: Vec<u8>);
}

/// One request that waits for its reply.
struct Waiting {
    reply: oneshot::Sender<Result<Reply, WireFault>>,
    notes: Option<mpsc::Sender<Notification>>,
    /// The progress token its caller used.
    token: Option<Raw>,
    asks: Option<Arc<dyn Asks>>,
    asking: Arc<AtomicUsize>,
    /// Whether its receiver once did not take a notification in time.
    slow: Arc<AtomicBool>,
}

#[derive(Default)]
struct Table {
    waiting: HashMap<u64, Waiting>,
    late: VecDeque<u64>,
    /// Questions of the upstream being answered.
    questions: HashMap<Id, AbortHandle>,
}

/// Where all messages of one upstream connection meet.
pub(super) struct Hub {
    next: AtomicU64,
    table: Mutex<Table>,
    closed: OnceLock<WireFault>,
    /// Whether the connection was ever handed to anyone; a failed attempt ends in silence.
    settled: AtomicBool,
    pub(super) observer: Arc<dyn Observer>,
}

/// What the caller of a request holds while it runs.
pub(super) struct Waiter {
    pub(super) id: u64,
    hub: Arc<Hub>,
    reply: oneshot::Receiver<Result<Reply, WireFault>>,
    notes: Option<mpsc::Receiver<Notification>>,
    asking: Arc<AtomicUsize>,
}

impl Hub {
    pub(super) fn new(observer: Arc<dyn Observer>) -> Arc<Self> {
        Arc::new(Self {
            next: AtomicU64::new(1),
            table: Mutex::default(),
            closed: OnceLock::new(),
            settled: AtomicBool::new(false),
            observer,
        })
    }

    /// A fresh request id; it is the progress token of that request as well.
    pub(super) fn next_id(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Why the connection ended, if it did.
    pub(super) fn fault(&self) -> Option<&WireFault> {
        self.closed.get()
    }

    /// Registers a request before it is sent.
    pub(super) fn open(
        self: &Arc<Self>,
        id: u64,
        token: Option<Raw>,
        wants_notes: bool,
        asks: Option<Arc<dyn Asks>>,
    ) -> Result<Waiter, WireFault> {
        let (reply, replied) = oneshot::channel();
        let (notes, noted) = if wants_notes {
            let (notes, noted) = mpsc::channel(NOTES);
            (Some(notes), Some(noted))
        } else {
            (None, None)
        };
        let asking = Arc::new(AtomicUsize::new(0));
        let slow = Arc::default();
        let waiting = Waiting { reply, notes, token, asks, asking: asking.clone(), slow };
        let mut table = lock(&self.table);
        if let Some(fault) = self.closed.get() {
            return Err(WireFault::unsent(fault.kind.clone()));
        }
        table.waiting.insert(id, waiting);
        Ok(Waiter { id, hub: self.clone(), reply: replied, notes: noted, asking })
    }

    /// Fails everything that waits; the first fault stands.
    pub(super) fn close(&self, fault: WireFault) {
        let (failed, settled): (Vec<Waiting>, bool) = {
            let mut table = lock(&self.table);
            if self.closed.set(fault.clone()).is_err() {
                return;
            }
            for (_, question) in table.questions.drain() {
                question.abort();
            }
            let settled = self.settled.load(Ordering::Acquire);
            (table.waiting.drain().map(|(_, waiting)| waiting).collect(), settled)
        };
        for waiting in failed {
            let _ = waiting.reply.send(Err(fault.clone()));
        }
        if settled {
            self.observer.closed(&fault);
        }
    }

    /// The connection is in use from now on: its end will be told, also if it came already.
    pub(super) fn settle(&self) {
        let table = lock(&self.table);
        self.settled.store(true, Ordering::Release);
        let ended = self.closed.get().cloned();
        drop(table);
        if let Some(fault) = ended {
            self.observer.closed(&fault);
        }
    }

    /// Ends one request with a fault, such as a reply over the limit.
    pub(super) fn fail(&self, id: u64, fault: WireFault) {
        let waiting = lock(&self.table).waiting.remove(&id);
        if let Some(waiting) = waiting {
            let _ = waiting.reply.send(Err(fault));
        }
    }

    /// One message from the upstream; `related` is the request whose stream it came on, where that is known.
    pub(super) async fn incoming(
        self: &Arc<Self>,
        message: Message,
        related: Option<u64>,
        back: &Arc<dyn Back>,
    ) {
        match message {
            Message::Response(response) => self.response(response),
            Message::Notification(notification) => self.notification(notification, related).await,
            Message::Request(request) => self.question(request, related, back).await,
        }
    }

    fn response(&self, response: Response) {
        let id = response.id.as_ref().and_then(Id::as_number);
        let (waiting, late) = {
            let mut table = lock(&self.table);
            let waiting = id.and_then(|id| table.waiting.remove(&id));
            let late = waiting.is_none() && id.is_some_and(|id| table.late.contains(&id));
            (waiting, late)
        };
        match (waiting, id) {
            (Some(waiting), _) => drop(waiting.reply.send(Ok(response.reply))),
            (None, Some(id)) if late => self.observer.odd(Oddity::LateReply(id)),
            (None, _) => {
                let shown = response.id.map_or("null".to_owned(), |id| id.to_string());
                self.observer.odd(Oddity::UnknownReply(shown));
            }
        }
    }

    async fn notification(&self, notification: Notification, related: Option<u64>) {
        match &*notification.method {
            "notifications/progress" => {
                let params = notification.params.as_deref();
                let id = params.and_then(|params| raw::get(params, "progressToken")?.get().parse().ok());
                let target = id.and_then(|id| self.notes_of(id).map(|(notes, token)| (id, notes, token)));
                match target {
                    Some((id, notes, Some(token))) => {
                        let params = params.and_then(|params| raw::set(params, "progressToken", &token));
                        self.deliver(id, &notes, Notification { params, ..notification }).await;
                    }
                    Some(_) | None => self.observer.odd(Oddity::StrayProgress),
                }
            }
            "notifications/message" => match self.related_notes(related) {
                Some((id, notes)) => self.deliver(id, &notes, notification).await,
                None => self.observer.notification(notification),
            },
            "notifications/cancelled" => {
                let id = notification.params.as_deref().and_then(|params| raw::get(params, "requestId"));
                let question =
                    id.and_then(Id::from_raw).and_then(|id| lock(&self.table).questions.remove(&id));
                if let Some(question) = question {
                    question.abort();
                }
            }
            "notifications/subscriptions/acknowledged" => {}
            _ => self.observer.notification(untagged(notification)),
        }
    }

    fn notes_of(&self, id: u64) -> Option<(mpsc::Sender<Notification>, Option<Raw>)> {
        let table = lock(&self.table);
        let waiting = table.waiting.get(&id)?;
        Some((waiting.notes.clone()?, waiting.token.clone()))
    }

    /// The request a message without a name of its own belongs to: the one of its stream, else the newest that listens.
    fn related_notes(&self, related: Option<u64>) -> Option<(u64, mpsc::Sender<Notification>)> {
        let table = lock(&self.table);
        let id = match related {
            Some(id) => id,
            None => *table
                .waiting
                .iter()
                .filter(|(_, waiting)| waiting.notes.is_some())
                .map(|(id, _)| id)
                .max()?,
        };
        Some((id, table.waiting.get(&id)?.notes.clone()?))
    }

    async fn deliver(&self, id: u64, notes: &mpsc::Sender<Notification>, notification: Notification) {
        let size = notification.params.as_ref().map_or(0, |params| params.get().len());
        if size > LONGEST_NOTE {
            self.observer.odd(Oddity::TooLong(size));
            return;
        }
        let full = match notes.try_send(notification) {
            Ok(()) | Err(mpsc::error::TrySendError::Closed(_)) => return,
            Err(mpsc::error::TrySendError::Full(notification)) => notification,
        };
        let slow = lock(&self.table).waiting.get(&id).map(|waiting| waiting.slow.clone());
        let is_slow = slow.as_ref().is_none_or(|slow| slow.load(Ordering::Acquire));
        // The reader waits: that is the back-pressure. Not for ever, and not again: others share this connection.
        if is_slow || notes.send_timeout(full, PATIENCE).await.is_err() {
            if let Some(slow) = slow {
                slow.store(true, Ordering::Release);
            }
            self.observer.odd(Oddity::SlowReceiver(id));
        }
    }

    async fn question(self: &Arc<Self>, request: Request, related: Option<u64>, back: &Arc<dyn Back>) {
        if &*request.method == "ping" {
            let _ = back.send(response_bytes(&request.id, &Ok(raw::empty_object()))).await;
            return;
        }
        let asked = {
            let table = lock(&self.table);
            let newest = || {
                table.waiting.iter().filter(|(_, waiting)| waiting.asks.is_some()).map(|(id, _)| *id).max()
            };
            let waiting = related.or_else(newest).and_then(|id| table.waiting.get(&id));
            waiting.and_then(|waiting| Some((waiting.asks.clone()?, waiting.asking.clone())))
        };
        let Request { id, method, params } = request;
        let work: Later<'static, Reply> = match asked {
            Some((asks, asking)) => Box::pin(async move {
                let busy = Asking::new(asking);
                let reply = asks.ask(&method, params).await;
                drop(busy);
                reply
            }),
            None => match self.observer.ask(&method, params) {
                Some(work) => work,
                None => Box::pin(std::future::ready(Err(RpcError::method_not_found(&method)))),
            },
        };
        let (hub, back, name) = (self.clone(), back.clone(), id.clone());
        if lock(&self.table).questions.len() >= QUESTIONS {
            let error = RpcError::new(frame::code::INTERNAL, "too many questions wait for answers");
            let _ = back.send(response_bytes(&name, &Err(error))).await;
            return;
        }
        // Held until the task is noted, so that it cannot end before.
        let mut table = lock(&self.table);
        let task = tokio::spawn(async move {
            let reply = work.await;
            lock(&hub.table).questions.remove(&name);
            let _ = back.send(response_bytes(&name, &reply)).await;
        });
        table.questions.insert(id, task.abort_handle());
    }
}

/// Counts a question while it is being answered, so that the request's deadline waits.
struct Asking(Arc<AtomicUsize>);

impl Asking {
    fn new(count: Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::AcqRel);
        Self(count)
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

fn response_bytes(id: &Id, reply: &Reply) -> Vec<u8> {
    let mut bytes = Vec::new();
    frame::write_response(&mut bytes, Some(id), reply);
    bytes
}

/// Our own listen stream's mark means nothing to anyone else.
fn untagged(notification: Notification) -> Notification {
    let Some(params) = notification.params.as_deref() else { return notification };
    if memchr::memmem::find(params.get().as_bytes(), key::SUBSCRIPTION_ID.as_bytes()).is_none() {
        return notification;
    }
    let edited = raw::remove_in(params, "_meta", key::SUBSCRIPTION_ID).and_then(|params| {
        let empty = raw::get(&params, "_meta").is_some_and(|meta| meta.get() == "{}");
        if empty { raw::remove(&params, "_meta") } else { Some(params) }
    });
    match edited {
        Some(params) => {
            let params = (params.get() != "{}").then_some(params);
            Notification { method: notification.method, params }
        }
        None => notification,
    }
}

impl Waiter {
    /// Waits for the reply and relays what comes before it, in order.
    pub(super) async fn wait(
        &mut self,
        relay: Option<&Arc<dyn Relay>>,
        deadline: Deadline,
    ) -> Result<Reply, WireFault> {
        let limit = deadline.limit();
        let timer = tokio::time::sleep(limit.unwrap_or(Duration::MAX / 4));
        tokio::pin!(timer);
        loop {
            let note = tokio::select! {
                biased;
                note = next_note(&mut self.notes) => note,
                reply = &mut self.reply => {
                    return self.last_notes(relay, reply).await;
                }
                () = &mut timer, if limit.is_some() => {
                    let limit = limit.unwrap_or_default();
                    // A person is being asked on the upstream's behalf: that time is not the upstream's.
                    if self.asking.load(Ordering::Acquire) == 0 {
                        return Err(WireFault::unknown(FaultKind::Timeout(limit)));
                    }
                    timer.as_mut().reset(tokio::time::Instant::now() + limit);
                    continue;
                }
            };
            if let (Some(relay), Some(note)) = (relay, note) {
                relay.notification(note).await;
            }
            if let Deadline::Quiet(limit) = deadline {
                timer.as_mut().reset(tokio::time::Instant::now() + limit);
            }
        }
    }

    /// The reply is here; what arrived before it goes first.
    async fn last_notes(
        &mut self,
        relay: Option<&Arc<dyn Relay>>,
        reply: Result<Result<Reply, WireFault>, oneshot::error::RecvError>,
    ) -> Result<Reply, WireFault> {
        if let (Some(relay), Some(notes)) = (relay, &mut self.notes) {
            while let Ok(note) = notes.try_recv() {
                relay.notification(note).await;
            }
        }
        reply
            .unwrap_or_else(|_| Err(WireFault::unknown(FaultKind::Closed("the connection went away".into()))))
    }

    /// Forgets the request; true when its reply had not come yet.
    pub(super) fn abandon(&self) -> bool {
        let mut table = lock(&self.hub.table);
        if table.waiting.remove(&self.id).is_none() {
            return false;
        }
        if table.late.len() >= LATE {
            table.late.pop_front();
        }
        table.late.push_back(self.id);
        true
    }
}

/// Waits for a notification, for ever where none can come.
async fn next_note(notes: &mut Option<mpsc::Receiver<Notification>>) -> Option<Notification> {
    match notes {
        Some(receiver) => match receiver.recv().await {
            Some(note) => Some(note),
            // The sender left with the reply; only the reply is left to wait for.
            None => std::future::pending().await,
        },
        None => std::future::pending().await,
    }
}

/// The `notifications/cancelled` that gives a request up.
pub(super) fn cancelled_bytes(id: u64, reason: &str) -> Vec<u8> {
    let params = format!(r#"{{"requestId":{id},"reason":{}}}"#, raw::to_raw(reason).get());
    let mut bytes = Vec::new();
    frame::write_notification(&mut bytes, "notifications/cancelled", Some(&params));
    bytes
}

/// The first bytes of something unreadable, for a log line.
pub(super) fn excerpt(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes.get(..bytes.len().min(120)).unwrap_or_default()).into_owned()
}

/// The value of a member that is a raw object, owned.
pub(super) fn owned(object: &RawValue, name: &str) -> Option<Raw> {
    raw::get(object, name).map(ToOwned::to_owned)
}
