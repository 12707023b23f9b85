//! Matches what an upstream sends to the requests in flight: replies by id, progress in order, questions to their handler, the rest to
//! the observer. A reply that nobody waits for is dropped and reported.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use serde_json::value::RawValue;
use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;

use super::{BoxFuture, Deadline, NotificationRelay, Observer, QuestionResponder, UpstreamAnomaly};
use crate::era::key;
use crate::fault::{FaultKind, TransportFault};
use crate::jsonrpc::{self, JsonRpcId, Message, Notification, Reply, Request, Response, RpcError};
use crate::raw::{self, RawJson};
use crate::server::lock;

/// Notifications of one request that may wait for their receiver.
const NOTES: usize = 128;
/// How long the reader waits for a slow receiver.
const PATIENCE: Duration = Duration::from_secs(5);
/// In bytes; a longer notification is dropped.
const LONGEST_NOTE: usize = 64 << 10;
/// Open questions of one upstream.
const QUESTIONS: usize = 64;
/// How many cancelled ids are remembered, to tell a late reply from a forged one.
const LATE: usize = 1024;

/// Sends a message back to the upstream.
pub(super) trait UpstreamSender: Send + Sync {
    fn send(&self, bytes: Vec<u8>) -> BoxFuture<'_, Result<(), TransportFault>>;
    /// Sends without waiting, as far as possible.
    fn send_now(&self, bytes: Vec<u8>);
}

struct InFlightRequest {
    reply: oneshot::Sender<Result<Reply, TransportFault>>,
    notes: Option<mpsc::Sender<Notification>>,
    /// The progress token of the caller.
    token: Option<RawJson>,
    asks: Option<Arc<dyn QuestionResponder>>,
    asking: Arc<AtomicUsize>,
    /// Whether its receiver was too slow before.
    slow: Arc<AtomicBool>,
}

#[derive(Default)]
struct RequestTable {
    waiting: HashMap<u64, InFlightRequest>,
    late: VecDeque<u64>,
    /// Questions of the upstream being answered.
    questions: HashMap<JsonRpcId, AbortHandle>,
}

/// The requests of one connection.
pub(super) struct PendingRequests {
    next: AtomicU64,
    table: Mutex<RequestTable>,
    closed: OnceLock<TransportFault>,
    /// Whether the connection was handed to a caller; a failed attempt is not reported to the observer.
    settled: AtomicBool,
    pub(super) observer: Arc<dyn Observer>,
}

/// What the caller of a request holds while it runs.
pub(super) struct ReplyWaiter {
    pub(super) id: u64,
    pending: Arc<PendingRequests>,
    reply: oneshot::Receiver<Result<Reply, TransportFault>>,
    notes: Option<mpsc::Receiver<Notification>>,
    asking: Arc<AtomicUsize>,
}

impl PendingRequests {
    pub(super) fn new(observer: Arc<dyn Observer>) -> Arc<Self> {
        Arc::new(Self {
            next: AtomicU64::new(1),
            table: Mutex::default(),
            closed: OnceLock::new(),
            settled: AtomicBool::new(false),
            observer,
        })
    }

    /// A fresh request id; it is also the progress token of that request.
    pub(super) fn next_id(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    pub(super) fn fault(&self) -> Option<&TransportFault> {
        self.closed.get()
    }

    /// Registers a request before it is sent.
    pub(super) fn open(
        self: &Arc<Self>,
        id: u64,
        token: Option<RawJson>,
        wants_notes: bool,
        asks: Option<Arc<dyn QuestionResponder>>,
    ) -> Result<ReplyWaiter, TransportFault> {
        let (reply, replied) = oneshot::channel();
        let (notes, noted) = if wants_notes {
            let (notes, noted) = mpsc::channel(NOTES);
            (Some(notes), Some(noted))
        } else {
            (None, None)
        };
        let asking = Arc::new(AtomicUsize::new(0));
        let slow = Arc::default();
        let waiting = InFlightRequest { reply, notes, token, asks, asking: asking.clone(), slow };
        let mut table = lock(&self.table);
        if let Some(fault) = self.closed.get() {
            // Checked under the lock: a request registered after `close` would wait for ever.
            return Err(TransportFault::unsent(fault.kind.clone()));
        }
        table.waiting.insert(id, waiting);
        Ok(ReplyWaiter { id, pending: self.clone(), reply: replied, notes: noted, asking })
    }

    /// Fails all requests; the first fault counts.
    pub(super) fn close(&self, fault: TransportFault) {
        let (failed, settled): (Vec<InFlightRequest>, bool) = {
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

    /// The connection is in use from now on: its end is reported, even if it has come already.
    pub(super) fn settle(&self) {
        let table = lock(&self.table);
        self.settled.store(true, Ordering::Release);
        let ended = self.closed.get().cloned();
        drop(table);
        if let Some(fault) = ended {
            self.observer.closed(&fault);
        }
    }

    /// Fails one request, for example for a reply over the limit.
    pub(super) fn fail(&self, id: u64, fault: TransportFault) {
        let waiting = lock(&self.table).waiting.remove(&id);
        if let Some(waiting) = waiting {
            let _ = waiting.reply.send(Err(fault));
        }
    }

    /// Processes one message; `related` is the request whose stream it came on, where that is known.
    pub(super) async fn incoming(
        self: &Arc<Self>,
        message: Message,
        related: Option<u64>,
        back: &Arc<dyn UpstreamSender>,
    ) {
        match message {
            Message::Response(response) => self.response(response),
            Message::Notification(notification) => self.notification(notification, related).await,
            Message::Request(request) => self.question(request, related, back).await,
        }
    }

    fn response(&self, response: Response) {
        let id = response.id.as_ref().and_then(JsonRpcId::as_number);
        let (waiting, late) = {
            let mut table = lock(&self.table);
            let waiting = id.and_then(|id| table.waiting.remove(&id));
            let late = waiting.is_none() && id.is_some_and(|id| table.late.contains(&id));
            (waiting, late)
        };
        match (waiting, id) {
            (Some(waiting), _) => drop(waiting.reply.send(Ok(response.reply))),
            (None, Some(id)) if late => self.observer.anomaly(UpstreamAnomaly::LateReply(id)),
            (None, _) => {
                let shown = response.id.map_or("null".to_owned(), |id| id.to_string());
                self.observer.anomaly(UpstreamAnomaly::UnknownReply(shown));
            }
        }
    }

    async fn notification(&self, notification: Notification, related: Option<u64>) {
        match &*notification.method {
            "notifications/progress" => {
                let params = notification.params.as_deref();
                let id = params.and_then(|params| raw::get(params, "progressToken")?.get().parse().ok());
                // We sent our id as the token. The caller gets its own token back.
                let target = id.and_then(|id| self.notes_of(id).map(|(notes, token)| (id, notes, token)));
                match target {
                    Some((id, notes, Some(token))) => {
                        let params = params.and_then(|params| raw::set(params, "progressToken", &token));
                        self.deliver(id, &notes, Notification { params, ..notification }).await;
                    }
                    Some(_) | None => self.observer.anomaly(UpstreamAnomaly::StrayProgress),
                }
            }
            // Log messages name no request: on a stream of its own it is known, else the newest request gets them.
            "notifications/message" => match self.related_notes(related) {
                Some((id, notes)) => self.deliver(id, &notes, notification).await,
                None => self.observer.notification(notification),
            },
            "notifications/cancelled" => {
                let id = notification.params.as_deref().and_then(|params| raw::get(params, "requestId"));
                let question =
                    id.and_then(JsonRpcId::from_raw).and_then(|id| lock(&self.table).questions.remove(&id));
                if let Some(question) = question {
                    question.abort();
                }
            }
            "notifications/subscriptions/acknowledged" => {}
            _ => self.observer.notification(untagged(notification)),
        }
    }

    fn notes_of(&self, id: u64) -> Option<(mpsc::Sender<Notification>, Option<RawJson>)> {
        let table = lock(&self.table);
        let waiting = table.waiting.get(&id)?;
        Some((waiting.notes.clone()?, waiting.token.clone()))
    }

    /// The request of a message without an id: the one of its stream, else the newest with a receiver.
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
            self.observer.anomaly(UpstreamAnomaly::TooLong(size));
            return;
        }
        let full = match notes.try_send(notification) {
            Ok(()) | Err(mpsc::error::TrySendError::Closed(_)) => return,
            Err(mpsc::error::TrySendError::Full(notification)) => notification,
        };
        let slow = lock(&self.table).waiting.get(&id).map(|waiting| waiting.slow.clone());
        let is_slow = slow.as_ref().is_none_or(|slow| slow.load(Ordering::Acquire));
        // The reader waits: that is the back-pressure. Only once, because others share this connection.
        if is_slow || notes.send_timeout(full, PATIENCE).await.is_err() {
            if let Some(slow) = slow {
                slow.store(true, Ordering::Release);
            }
            self.observer.anomaly(UpstreamAnomaly::SlowReceiver(id));
        }
    }

    async fn question(
        self: &Arc<Self>,
        request: Request,
        related: Option<u64>,
        back: &Arc<dyn UpstreamSender>,
    ) {
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
        let work: BoxFuture<'static, Reply> = match asked {
            Some((asks, asking)) => Box::pin(async move {
                let busy = OpenQuestionGuard::new(asking);
                let reply = asks.ask(&method, params).await;
                drop(busy);
                reply
            }),
            None => match self.observer.ask(&method, params) {
                Some(work) => work,
                None => Box::pin(std::future::ready(Err(RpcError::method_not_found(&method)))),
            },
        };
        let (pending, back, name) = (self.clone(), back.clone(), id.clone());
        // Answered with an error rather than queued: each question holds a person's attention.
        if lock(&self.table).questions.len() >= QUESTIONS {
            let error = RpcError::new(jsonrpc::code::INTERNAL, "too many questions wait for answers");
            let _ = back.send(response_bytes(&name, &Err(error))).await;
            return;
        }
        // Locked until the task is registered, so that it cannot end before.
        let mut table = lock(&self.table);
        let task = tokio::spawn(async move {
            let reply = work.await;
            lock(&pending.table).questions.remove(&name);
            let _ = back.send(response_bytes(&name, &reply)).await;
        });
        table.questions.insert(id, task.abort_handle());
    }
}

/// Counts a question while it is being answered: the deadline of its request pauses.
struct OpenQuestionGuard(Arc<AtomicUsize>);

impl OpenQuestionGuard {
    fn new(count: Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::AcqRel);
        Self(count)
    }
}

impl Drop for OpenQuestionGuard {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

fn response_bytes(id: &JsonRpcId, reply: &Reply) -> Vec<u8> {
    let mut bytes = Vec::new();
    jsonrpc::write_response(&mut bytes, Some(id), reply);
    bytes
}

/// Removes the subscription id, which means nothing to anyone else.
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

impl ReplyWaiter {
    /// Waits for the reply and relays the notifications before it, in order.
    pub(super) async fn wait(
        &mut self,
        relay: Option<&Arc<dyn NotificationRelay>>,
        deadline: Deadline,
    ) -> Result<Reply, TransportFault> {
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
                        return Err(TransportFault::unknown(FaultKind::Timeout(limit)));
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

    /// The reply is here; relays what arrived before it.
    async fn last_notes(
        &mut self,
        relay: Option<&Arc<dyn NotificationRelay>>,
        reply: Result<Result<Reply, TransportFault>, oneshot::error::RecvError>,
    ) -> Result<Reply, TransportFault> {
        if let (Some(relay), Some(notes)) = (relay, &mut self.notes) {
            while let Ok(note) = notes.try_recv() {
                relay.notification(note).await;
            }
        }
        reply.unwrap_or_else(|_| {
            Err(TransportFault::unknown(FaultKind::Closed("the connection went away".into())))
        })
    }

    /// Removes the request; true when its reply had not come yet.
    pub(super) fn abandon(&self) -> bool {
        let mut table = lock(&self.pending.table);
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

/// Waits for a notification; never resolves where none can come.
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

/// The `notifications/cancelled` for a request.
pub(super) fn cancelled_bytes(id: u64, reason: &str) -> Vec<u8> {
    let params = format!(r#"{{"requestId":{id},"reason":{}}}"#, raw::to_raw(reason).get());
    let mut bytes = Vec::new();
    jsonrpc::write_notification(&mut bytes, "notifications/cancelled", Some(&params));
    bytes
}

/// The first bytes of something unreadable, for a log line.
pub(super) fn excerpt(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes.get(..bytes.len().min(120)).unwrap_or_default()).into_owned()
}

pub(super) fn owned(object: &RawValue, name: &str) -> Option<RawJson> {
    raw::get(object, name).map(ToOwned::to_owned)
}
