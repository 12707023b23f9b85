//! The event stream of the page. Every row of the audit log is an event, so that a page that reconnects can be sent what it missed;
//! states of upstreams and runs are polled. Polls only while somebody listens.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::Response;
use countersign_gateway::state::GatewayState;
use countersign_gateway::upstreams::UpstreamHealth;
use countersign_policy::digest::Digest;
use countersign_policy::ids::LedgerId;
use countersign_policy::record::{RowKind, RowStatus};
use countersign_policy::refusal::{Code, NextAction, Refusal};
use countersign_policy::words::words;
use countersign_store::{LedgerFilter, LedgerRow, session_digest};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tokio::sync::{broadcast, watch};
use tokio::time::Instant;

use crate::auth::{AuthMethod, AuthenticatedPerson};
use crate::response::{ApiError, no_store};
use crate::state::{Web, WebState};
use crate::views;

/// How often the audit log is read.
const ROW_INTERVAL: Duration = Duration::from_millis(250);
/// How often upstreams and runs are read.
const STATE_INTERVAL: Duration = Duration::from_secs(1);
/// Rows of another process may arrive later than their time says.
const LATE_ROWS: SignedDuration = SignedDuration::from_secs(3);
/// How many rows one read takes, and how many a page may have missed.
const MOST_ROWS: u32 = 1000;
/// How often a quiet stream sends a comment and checks that its person may still listen.
const HEARTBEAT: Duration = Duration::from_secs(10);
/// Streams of one session or credential, and of all. A browser needs one for all its tabs, and opens six connections at most.
const MOST_STREAMS_OF_ONE: usize = 4;
const MOST_STREAMS: usize = 128;

words! {
    /// The `event` field of the stream.
    pub enum EventName("event") {
        Plan = "plan",
        Activity = "activity",
        Upstream = "upstream",
        Tool = "tool",
        Run = "run",
        Grant = "grant",
        Credential = "credential",
        Pause = "pause",
        Policy = "policy",
        Memory = "memory",
        Reset = "reset",
    }
}

#[derive(Debug)]
struct PageEvent {
    row: Option<LedgerId>,
    name: EventName,
    data: Value,
}

impl PageEvent {
    fn chunk(&self) -> Bytes {
        let id = self.row.as_ref().map(|id| format!("id: {id}\n")).unwrap_or_default();
        // Compact JSON has no line breaks, which would end the field.
        Bytes::from(format!("event: {}\n{id}data: {}\n\n", self.name, self.data))
    }
}

/// Sends events to every open stream.
pub(crate) struct EventBroadcaster {
    gateway: Arc<GatewayState>,
    sender: broadcast::Sender<Arc<PageEvent>>,
    is_polling: Arc<AtomicBool>,
    closing: watch::Sender<bool>,
    streams: Arc<StreamCounts>,
}

/// How many streams of each session or credential are open.
#[derive(Default)]
struct StreamCounts(Mutex<HashMap<Digest, usize>>);

/// Counts as open until it is dropped.
struct OpenStream {
    streams: Arc<StreamCounts>,
    of: Digest,
}

impl StreamCounts {
    fn open(self: &Arc<Self>, of: Digest) -> Result<OpenStream, ApiError> {
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let own = open.get(&of).copied().unwrap_or(0);
        if own >= MOST_STREAMS_OF_ONE || open.values().sum::<usize>() >= MOST_STREAMS {
            let message = "too many streams of events are open: close one, or read again now and then";
            let refusal = Refusal::new(Code::LimitExceeded, message).because("rate_limited");
            let refusal = refusal.next(&[NextAction::RetryLater]);
            return Err(ApiError::from(refusal).header(header::RETRY_AFTER, HeaderValue::from_static("5")));
        }
        open.insert(of, own + 1);
        Ok(OpenStream { streams: Arc::clone(self), of })
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        let mut open = self.streams.0.lock().unwrap_or_else(PoisonError::into_inner);
        match open.get_mut(&self.of) {
            Some(count) if *count > 1 => *count -= 1,
            Some(_) | None => drop(open.remove(&self.of)),
        }
    }
}

impl EventBroadcaster {
    pub(crate) fn new(gateway: Arc<GatewayState>) -> Self {
        Self {
            gateway,
            sender: broadcast::channel(1024).0,
            is_polling: Arc::default(),
            closing: watch::Sender::new(false),
            streams: Arc::default(),
        }
    }

    pub(crate) fn close(&self) {
        self.closing.send_replace(true);
    }

    /// Subscribes; the first subscriber starts the poller.
    fn subscribe(&self) -> broadcast::Receiver<Arc<PageEvent>> {
        let receiver = self.sender.subscribe();
        if !self.is_polling.swap(true, Ordering::AcqRel) {
            let poller = EventPoller {
                gateway: Arc::clone(&self.gateway),
                sender: self.sender.clone(),
                sent: SentRowIds::default(),
                started: self.gateway.now(),
                upstreams: None,
                runs: None,
            };
            tracing::debug!("event polling starts");
            tokio::spawn(poller.run(Arc::clone(&self.is_polling), self.closing.subscribe()));
        }
        receiver
    }
}

/// The last rows that were sent, a bounded number of them.
#[derive(Default)]
struct SentRowIds {
    ids: HashSet<LedgerId>,
    order: VecDeque<LedgerId>,
}

impl SentRowIds {
    fn is_new(&mut self, id: &LedgerId) -> bool {
        if !self.ids.insert(id.clone()) {
            return false;
        }
        self.order.push_back(id.clone());
        while self.order.len() > 8 * MOST_ROWS as usize {
            if let Some(old) = self.order.pop_front() {
                self.ids.remove(&old);
            }
        }
        true
    }
}

struct EventPoller {
    gateway: Arc<GatewayState>,
    sender: broadcast::Sender<Arc<PageEvent>>,
    sent: SentRowIds,
    started: Timestamp,
    upstreams: Option<HashMap<String, (&'static str, u32)>>,
    runs: Option<HashMap<String, &'static str>>,
}

impl EventPoller {
    async fn run(mut self, is_polling: Arc<AtomicBool>, mut closing: watch::Receiver<bool>) {
        let mut decisions = self.gateway.decisions();
        let (mut since, mut next_states) = (self.gateway.now(), Instant::now());
        while !*closing.borrow() {
            if self.sender.receiver_count() == 0 {
                is_polling.store(false, Ordering::Release);
                // Somebody may have subscribed between the count and the store: exactly one poller must go on.
                if self.sender.receiver_count() == 0 || is_polling.swap(true, Ordering::AcqRel) {
                    tracing::debug!("event polling ends");
                    return;
                }
            }
            if let Some(latest) = self.send_rows(since).await {
                since = latest;
            }
            if next_states <= Instant::now() {
                next_states = Instant::now() + STATE_INTERVAL;
                // The sweep writes the rows of plans that expired.
                let _ = self.gateway.sweep().await;
                self.send_states().await;
            }
            tokio::select! {
                _ = decisions.recv() => {}
                () = tokio::time::sleep(ROW_INTERVAL) => {}
                _ = closing.changed() => {}
            }
        }
    }

    /// Sends the rows since a time; returns the time of the latest.
    async fn send_rows(&mut self, since: Timestamp) -> Option<Timestamp> {
        let start = since.checked_sub(LATE_ROWS).unwrap_or(since);
        let filter =
            LedgerFilter { start_time: Some(start), limit: Some(MOST_ROWS), ..LedgerFilter::default() };
        let mut rows = self.gateway.store.activity(filter).await.ok()?.rows;
        rows.reverse();
        let latest = rows.iter().map(|row| row.time).max();
        for row in &rows {
            // Rows from before the first subscriber are no news.
            if self.sent.is_new(&row.id) && row.time >= self.started {
                events_of_row(row).into_iter().for_each(|event| self.send(event));
            }
        }
        latest.map(|latest| latest.max(since))
    }

    fn send(&self, event: PageEvent) {
        // An error means that the last subscriber has just left.
        let _ = self.sender.send(Arc::new(event));
    }

    /// Sends the upstreams and runs whose state changed since the last time.
    async fn send_states(&mut self) {
        let upstreams = self.gateway.upstreams.load_full();
        let state = |health: UpstreamHealth| (views::upstream_state(&health).as_str(), health.restarts);
        let now: HashMap<String, (&'static str, u32)> =
            upstreams.iter().map(|(id, upstream)| (id.to_string(), state(upstream.health()))).collect();
        if let Some(before) = self.upstreams.replace(now.clone()) {
            for (name, (state, restarts)) in now.iter().filter(|(name, is)| before.get(*name) != Some(*is)) {
                let data =
                    json!({"kind": "upstream.changed", "name": name, "state": state, "restarts": restarts});
                self.send(PageEvent { row: None, name: EventName::Upstream, data });
            }
        }
        let Ok(runs) = self.gateway.store.runs(None, 100).await else { return };
        let now: HashMap<String, &'static str> =
            runs.iter().map(|run| (run.id.to_string(), run.state.as_str())).collect();
        if let Some(before) = self.runs.replace(now.clone()) {
            for (id, state) in now.iter().filter(|(id, state)| before.get(*id) != Some(*state)) {
                let data = json!({"kind": format!("run.{state}"), "run_id": id, "state": state});
                self.send(PageEvent { row: None, name: EventName::Run, data });
            }
        }
    }
}

/// The events of one row: the row itself, and one for the thing it is about.
fn events_of_row(row: &LedgerRow) -> Vec<PageEvent> {
    let mut events = Vec::new();
    let event = |name: EventName, data: Value| PageEvent { row: Some(row.id.clone()), name, data };
    let detail = row.detail.as_ref().map(|detail| detail.value()).unwrap_or_default();
    let action = detail.get("action").and_then(Value::as_str).unwrap_or_default();
    let about = |kind: String| json!({"kind": kind, "action": action, "entity_id": detail.get("entity_id"), "ledger_id": row.id});
    if let Some(plan) = &row.plan_id {
        let what = match (row.kind, row.status) {
            (_, RowStatus::Refused) => "refused",
            (RowKind::Approval | RowKind::Decision, _) => "decided",
            (_, RowStatus::Pending) => "pending",
            (_, RowStatus::Allowed) => "executing",
            (_, RowStatus::Success | RowStatus::Error) => "executed",
        };
        let data = json!({"kind": format!("plan.{what}"), "plan_id": plan, "action": action, "status": row.status, "ledger_id": row.id});
        events.push(event(EventName::Plan, data));
    }
    let entity = detail.get("entity_type").and_then(Value::as_str).unwrap_or_default();
    match (row.kind, entity) {
        (RowKind::ToolChange, _) => {
            let name = format!(
                "{}:{}",
                row.upstream.as_ref().map(AsRef::as_ref).unwrap_or_default(),
                row.tool.as_ref().map(AsRef::as_ref).unwrap_or_default()
            );
            events.push(event(
                EventName::Tool,
                json!({"kind": format!("tool.{action}"), "name": name, "ledger_id": row.id}),
            ));
        }
        (RowKind::Decision, "grant") => {
            events.push(event(EventName::Grant, about(format!("grant.{action}"))))
        }
        (RowKind::Decision, "principal") => {
            events.push(event(EventName::Pause, about(format!("pause.{action}"))))
        }
        (RowKind::System, "credential") => {
            events.push(event(EventName::Credential, about(format!("credential.{action}"))));
        }
        (RowKind::Config, _) => events.push(event(EventName::Policy, about(format!("policy.{action}")))),
        (RowKind::Memory, _) => events.push(event(EventName::Memory, about(format!("memory.{action}")))),
        (
            RowKind::Call
            | RowKind::Approval
            | RowKind::Decision
            | RowKind::Mode
            | RowKind::Pack
            | RowKind::Question
            | RowKind::System,
            _,
        ) => {}
    }
    let mut activity = serde_json::to_value(views::activity(row)).unwrap_or_default();
    if let Some(members) = activity.as_object_mut() {
        // `kind` is the kind of the event; the row's own kind moves to `row_kind`.
        let kind = members.insert("kind".into(), json!("activity"));
        members.insert("row_kind".into(), kind.unwrap_or_default());
    }
    events.push(event(EventName::Activity, activity));
    events
}

struct EventSubscriber {
    web: Arc<WebState>,
    person: AuthenticatedPerson,
    first: VecDeque<Bytes>,
    replayed: HashSet<LedgerId>,
    events: broadcast::Receiver<Arc<PageEvent>>,
    closing: watch::Receiver<bool>,
    _stream: OpenStream,
}

impl EventSubscriber {
    async fn next(&mut self) -> Option<Bytes> {
        if let Some(chunk) = self.first.pop_front() {
            return Some(chunk);
        }
        loop {
            if *self.closing.borrow() {
                return None;
            }
            tokio::select! {
                event = self.events.recv() => match event {
                    Ok(event) if event.row.as_ref().is_some_and(|row| self.replayed.contains(row)) => {}
                    Ok(event) => return Some(event.chunk()),
                    // Events were lost on a slow stream: the page has to read everything again.
                    Err(broadcast::error::RecvError::Lagged(_)) => return Some(reset()),
                    Err(broadcast::error::RecvError::Closed) => return None,
                },
                () = tokio::time::sleep(HEARTBEAT) => {
                    return if self.may_listen().await { Some(Bytes::from_static(b": alive\n\n")) } else { None };
                }
                _ = self.closing.changed() => return None,
            }
        }
    }

    /// Whether the session or the credential is still valid.
    async fn may_listen(&self) -> bool {
        let (store, now) = (&self.web.gateway.store, self.web.gateway.now());
        match &self.person.method {
            AuthMethod::Page { session, .. } => {
                matches!(store.desk_session(session_digest(session), now).await, Ok(Some(_)))
            }
            AuthMethod::Bearer => match store.credentials().await {
                Ok(all) => all.iter().any(|one| one.id == self.person.credential.id && one.is_live(now)),
                Err(_) => false,
            },
        }
    }
}

fn reset() -> Bytes {
    PageEvent { row: None, name: EventName::Reset, data: json!({"kind": "plan.reset"}) }.chunk()
}

pub(crate) async fn stream(
    State(web): Web,
    person: AuthenticatedPerson,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let of = match &person.method {
        AuthMethod::Page { session, .. } => session_digest(session),
        AuthMethod::Bearer => Digest::plain(person.credential.id.as_str().as_bytes()),
    };
    let opened = web.events.streams.open(of)?;
    let events = web.events.subscribe();
    tracing::debug!(by = person.name.as_str(), "event stream opens");
    let mut first = VecDeque::from([Bytes::from_static(b"retry: 1000\n: listening\n\n")]);
    let mut replayed = HashSet::new();
    let last = headers.get("last-event-id").and_then(|id| id.to_str().ok());
    if let Some((last, since)) = last.and_then(|id| Some((LedgerId::new(id), time_of_row_id(id)?))) {
        let filter =
            LedgerFilter { start_time: Some(since), limit: Some(MOST_ROWS), ..LedgerFilter::default() };
        let page = web.gateway.store.activity(filter).await?;
        if page.next_cursor.is_some() {
            first.push_back(reset());
        } else {
            for row in page.rows.iter().rev().filter(|row| row.id > last) {
                replayed.insert(row.id.clone());
                first.extend(events_of_row(row).iter().map(PageEvent::chunk));
            }
        }
    }
    let closing = web.events.closing.subscribe();
    let listener =
        EventSubscriber { web: Arc::clone(&web), person, first, replayed, events, closing, _stream: opened };
    let chunks = futures_util::stream::unfold(listener, async |mut listener| {
        let chunk = listener.next().await?;
        Some((Ok::<_, std::convert::Infallible>(chunk), listener))
    });
    let mut response = Response::new(Body::from_stream(chunks));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    no_store(&mut response);
    Ok(response)
}

/// The time in a row's id: its first ten characters are milliseconds in Crockford's base 32.
fn time_of_row_id(id: &str) -> Option<Timestamp> {
    const ALPHABET: &str = "0123456789ABCDEFGHJKMNPQRSTVWXYZ";
    if id.len() != 26 {
        return None;
    }
    let millis = id.chars().take(10).try_fold(0i64, |sum, letter| {
        let digit = i64::try_from(ALPHABET.find(letter)?).ok()?;
        sum.checked_mul(32)?.checked_add(digit)
    })?;
    Timestamp::from_millisecond(millis).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rows_id_tells_its_moment() {
        let now = Timestamp::from_millisecond(1_763_251_200_123).unwrap();
        assert_eq!(time_of_row_id(LedgerId::mint(now, 7).as_str()), Some(now));
        for bad in ["", "01KA", "ÄÄÄÄÄÄÄÄÄÄÄÄÄ", "uuuuuuuuuuuuuuuuuuuuuuuuuu"] {
            assert_eq!(time_of_row_id(bad), None, "{bad}");
        }
    }
}
