//! Events: what happens, as it happens. Every row of the ledger is one, so that a page that comes back can be told what it
//! missed; how upstreams and runs stand is looked at meanwhile. Nobody listening, nobody looks.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::Response;
use countersign_core::digest::Digest;
use countersign_core::ids::LedgerId;
use countersign_core::record::{RowKind, RowStatus};
use countersign_core::refusal::{Code, NextAction, Refusal};
use countersign_gateway::house::House;
use countersign_store::{Filter, Row, session_digest};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tokio::sync::{broadcast, watch};
use tokio::time::Instant;

use crate::access::{Came, Person};
use crate::desk::Desk;
use crate::told::{No, no_store};
use crate::views;

/// How often the ledger is looked at while somebody listens.
const LOOK: Duration = Duration::from_millis(250);
/// How often upstreams and runs are.
const SLOW_LOOK: Duration = Duration::from_secs(1);
/// Rows of another process may come in later than their time says.
const SLACK: SignedDuration = SignedDuration::from_secs(3);
/// How many rows one look takes, and how many a page may have missed.
const MANY: u32 = 1000;
/// How often a quiet stream says that it is alive, and asks whether its person still may listen.
const BEAT: Duration = Duration::from_secs(10);
/// How many streams one session or credential may have, and how many there may be in all. A browser needs one for all its
/// tabs, and opens six connections at most.
const STREAMS_OF_ONE: usize = 4;
const STREAMS: usize = 128;

/// One event as it is sent.
#[derive(Debug)]
struct Event {
    row: Option<LedgerId>,
    name: &'static str,
    data: Value,
}

impl Event {
    fn chunk(&self) -> Bytes {
        let id = self.row.as_ref().map(|id| format!("id: {id}\n")).unwrap_or_default();
        // JSON on one line has no line ends of its own.
        Bytes::from(format!("event: {}\n{id}data: {}\n\n", self.name, self.data))
    }
}

/// Tells everybody who listens.
pub(crate) struct Bell {
    house: Arc<House>,
    sender: broadcast::Sender<Arc<Event>>,
    looking: Arc<AtomicBool>,
    closing: watch::Sender<bool>,
    streams: Arc<Streams>,
}

/// How many streams of each session or credential are open.
#[derive(Default)]
struct Streams(Mutex<HashMap<Digest, usize>>);

/// One open stream.
struct OpenStream {
    streams: Arc<Streams>,
    of: Digest,
}

impl Streams {
    fn open(self: &Arc<Self>, of: Digest) -> Result<OpenStream, No> {
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let own = open.get(&of).copied().unwrap_or(0);
        if own >= STREAMS_OF_ONE || open.values().sum::<usize>() >= STREAMS {
            let message = "too many streams of events are open: close one, or read again now and then";
            let refusal = Refusal::new(Code::LimitExceeded, message).because("rate_limited");
            let refusal = refusal.next(&[NextAction::RetryLater]);
            return Err(No::from(refusal).header(header::RETRY_AFTER, HeaderValue::from_static("5")));
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

impl Bell {
    pub(crate) fn new(house: Arc<House>) -> Self {
        Self {
            house,
            sender: broadcast::channel(1024).0,
            looking: Arc::default(),
            closing: watch::Sender::new(false),
            streams: Arc::default(),
        }
    }

    pub(crate) fn close(&self) {
        self.closing.send_replace(true);
    }

    /// Listens from now on; the first listener makes somebody look.
    fn listen(&self) -> broadcast::Receiver<Arc<Event>> {
        let receiver = self.sender.subscribe();
        if !self.looking.swap(true, Ordering::AcqRel) {
            let look = Look {
                house: Arc::clone(&self.house),
                sender: self.sender.clone(),
                known: Known::default(),
                began: self.house.now(),
                upstreams: None,
                runs: None,
            };
            let (looking, closing) = (Arc::clone(&self.looking), self.closing.subscribe());
            tokio::spawn(look.go_on(looking, closing));
        }
        receiver
    }
}

/// Which rows were told already, a bounded number of them.
#[derive(Default)]
struct Known {
    ids: HashSet<LedgerId>,
    order: VecDeque<LedgerId>,
}

impl Known {
    fn is_new(&mut self, id: &LedgerId) -> bool {
        if !self.ids.insert(id.clone()) {
            return false;
        }
        self.order.push_back(id.clone());
        while self.order.len() > 8 * MANY as usize {
            if let Some(old) = self.order.pop_front() {
                self.ids.remove(&old);
            }
        }
        true
    }
}

struct Look {
    house: Arc<House>,
    sender: broadcast::Sender<Arc<Event>>,
    known: Known,
    began: Timestamp,
    upstreams: Option<HashMap<String, (String, u32)>>,
    runs: Option<HashMap<String, &'static str>>,
}

impl Look {
    async fn go_on(mut self, looking: Arc<AtomicBool>, mut closing: watch::Receiver<bool>) {
        let mut decisions = self.house.decisions();
        let (mut since, mut slow) = (self.house.now(), Instant::now());
        while !*closing.borrow() {
            if self.sender.receiver_count() == 0 {
                looking.store(false, Ordering::Release);
                // Somebody may have come between the count and the mark: then one of the two goes on looking.
                if self.sender.receiver_count() == 0 || looking.swap(true, Ordering::AcqRel) {
                    return;
                }
            }
            if let Some(latest) = self.rows(since).await {
                since = latest;
            }
            if slow <= Instant::now() {
                slow = Instant::now() + SLOW_LOOK;
                // A plan whose time runs out is an event, too.
                let _ = self.house.sweep().await;
                self.states().await;
            }
            tokio::select! {
                _ = decisions.recv() => {}
                () = tokio::time::sleep(LOOK) => {}
                _ = closing.changed() => {}
            }
        }
    }

    /// Tells of rows since a moment; gives back the moment of the latest.
    async fn rows(&mut self, since: Timestamp) -> Option<Timestamp> {
        let start = since.checked_sub(SLACK).unwrap_or(since);
        let filter = Filter { start_time: Some(start), limit: Some(MANY), ..Filter::default() };
        let mut rows = self.house.store.activity(filter).await.ok()?.rows;
        rows.reverse();
        let latest = rows.iter().map(|row| row.time).max();
        for row in &rows {
            // What was there before anybody listened is no news.
            if self.known.is_new(&row.id) && row.time >= self.began {
                for event in told_of(row) {
                    // Nobody listening any more is no fault.
                    let _ = self.sender.send(Arc::new(event));
                }
            }
        }
        latest.map(|latest| latest.max(since))
    }

    async fn states(&mut self) {
        let upstreams = self.house.upstreams.load_full();
        let now: HashMap<String, (String, u32)> = upstreams
            .iter()
            .map(|(id, upstream)| {
                let health = upstream.health();
                (id.to_string(), (views::condition(&health).to_owned(), health.restarts))
            })
            .collect();
        if let Some(before) = self.upstreams.replace(now.clone()) {
            for (name, (state, restarts)) in now.iter().filter(|(name, is)| before.get(*name) != Some(*is)) {
                let data =
                    json!({"kind": "upstream.changed", "name": name, "state": state, "restarts": restarts});
                let _ = self.sender.send(Arc::new(Event { row: None, name: "upstream", data }));
            }
        }
        let Ok(runs) = self.house.store.runs(None, 100).await else { return };
        let now: HashMap<String, &'static str> =
            runs.iter().map(|run| (run.id.to_string(), run.state.as_str())).collect();
        if let Some(before) = self.runs.replace(now.clone()) {
            for (id, state) in now.iter().filter(|(id, state)| before.get(*id) != Some(*state)) {
                let data = json!({"kind": format!("run.{state}"), "run_id": id, "state": state});
                let _ = self.sender.send(Arc::new(Event { row: None, name: "run", data }));
            }
        }
    }
}

/// What a row says to somebody who watches: the row, and what it is about.
fn told_of(row: &Row) -> Vec<Event> {
    let mut events = Vec::new();
    let event = |name: &'static str, data: Value| Event { row: Some(row.id.clone()), name, data };
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
        events.push(event("plan", data));
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
                "tool",
                json!({"kind": format!("tool.{action}"), "name": name, "ledger_id": row.id}),
            ));
        }
        (RowKind::Decision, "grant") => events.push(event("grant", about(format!("grant.{action}")))),
        (RowKind::Decision, "principal") => events.push(event("pause", about(format!("pause.{action}")))),
        (RowKind::System, "credential") => {
            events.push(event("credential", about(format!("credential.{action}"))));
        }
        (RowKind::Config, _) => events.push(event("policy", about(format!("policy.{action}")))),
        (RowKind::Memory, _) => events.push(event("memory", about(format!("memory.{action}")))),
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
    let mut whole = serde_json::to_value(views::activity(row)).unwrap_or_default();
    if let Some(members) = whole.as_object_mut() {
        // The row's own kind stays; which event it is stands beside it.
        let kind = members.insert("kind".into(), json!("activity"));
        members.insert("row_kind".into(), kind.unwrap_or_default());
    }
    events.push(event("activity", whole));
    events
}

/// One page that listens.
struct Listener {
    desk: Arc<Desk>,
    person: Person,
    first: VecDeque<Bytes>,
    told: HashSet<LedgerId>,
    bell: broadcast::Receiver<Arc<Event>>,
    closing: watch::Receiver<bool>,
    /// Its place among all streams.
    _stream: OpenStream,
}

impl Listener {
    async fn next(&mut self) -> Option<Bytes> {
        if let Some(chunk) = self.first.pop_front() {
            return Some(chunk);
        }
        loop {
            if *self.closing.borrow() {
                return None;
            }
            tokio::select! {
                heard = self.bell.recv() => match heard {
                    Ok(event) if event.row.as_ref().is_some_and(|row| self.told.contains(row)) => {}
                    Ok(event) => return Some(event.chunk()),
                    // Too slow to be told everything: the page has to look for itself.
                    Err(broadcast::error::RecvError::Lagged(_)) => return Some(reset()),
                    Err(broadcast::error::RecvError::Closed) => return None,
                },
                () = tokio::time::sleep(BEAT) => {
                    return if self.may_listen().await { Some(Bytes::from_static(b": alive\n\n")) } else { None };
                }
                _ = self.closing.changed() => return None,
            }
        }
    }

    /// A session that ended and a credential that was revoked hear no more.
    async fn may_listen(&self) -> bool {
        let (store, now) = (&self.desk.house.store, self.desk.house.now());
        match &self.person.came {
            Came::Page { session, .. } => {
                matches!(store.desk_session(session_digest(session), now).await, Ok(Some(_)))
            }
            Came::Bearer => match store.credentials().await {
                Ok(all) => all.iter().any(|one| one.id == self.person.credential.id && one.is_live(now)),
                Err(_) => false,
            },
        }
    }
}

fn reset() -> Bytes {
    Event { row: None, name: "reset", data: json!({"kind": "plan.reset"}) }.chunk()
}

/// `GET /events`
pub(crate) async fn stream(
    State(desk): State<Arc<Desk>>,
    person: Person,
    headers: HeaderMap,
) -> Result<Response, No> {
    let of = match &person.came {
        Came::Page { session, .. } => session_digest(session),
        Came::Bearer => Digest::plain(person.credential.id.as_str().as_bytes()),
    };
    let opened = desk.bell.streams.open(of)?;
    let bell = desk.bell.listen();
    let mut first = VecDeque::from([Bytes::from_static(b"retry: 1000\n: listening\n\n")]);
    let mut told = HashSet::new();
    let last = headers.get("last-event-id").and_then(|id| id.to_str().ok());
    if let Some((last, since)) = last.and_then(|id| Some((LedgerId::new(id), moment_of(id)?))) {
        let filter = Filter { start_time: Some(since), limit: Some(MANY), ..Filter::default() };
        let page = desk.house.store.activity(filter).await?;
        if page.next_cursor.is_some() {
            first.push_back(reset());
        } else {
            for row in page.rows.iter().rev().filter(|row| row.id > last) {
                told.insert(row.id.clone());
                first.extend(told_of(row).iter().map(Event::chunk));
            }
        }
    }
    let closing = desk.bell.closing.subscribe();
    let listener = Listener { desk: Arc::clone(&desk), person, first, told, bell, closing, _stream: opened };
    let chunks = futures_util::stream::unfold(listener, async |mut listener| {
        let chunk = listener.next().await?;
        Some((Ok::<_, std::convert::Infallible>(chunk), listener))
    });
    let mut response = Response::new(Body::from_stream(chunks));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    no_store(&mut response);
    Ok(response)
}

/// The moment in a row's id: its first ten letters are milliseconds in Crockford's base 32.
fn moment_of(id: &str) -> Option<Timestamp> {
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
        assert_eq!(moment_of(LedgerId::mint(now, 7).as_str()), Some(now));
        for bad in ["", "01KA", "ÄÄÄÄÄÄÄÄÄÄÄÄÄ", "uuuuuuuuuuuuuuuuuuuuuuuuuu"] {
            assert_eq!(moment_of(bad), None, "{bad}");
        }
    }
}
