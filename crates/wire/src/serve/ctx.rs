//! One request as its handler sees it: notify, ask, hear of cancellation. In the stateless era a question parks the
//! request: its reply becomes `input_required`, and the client's retry picks it up where it stood.

use std::fmt;
use std::sync::{Arc, Mutex};

use serde_json::value::RawValue;
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};

use super::ask::{AskFault, is_offered};
use super::parking::{Bound, Mark, Question, Taker};
use super::session::{Client, Gone, Session, lock};
use crate::era::{self, Era};
use crate::frame::{self, Id, Notification, Reply, RpcError, code};
use crate::line::{Ending, Out};
use crate::raw::{self, Raw};
use crate::severity::Severity;
use crate::signal::Signal;
use crate::upstream::{Asks, Later, Relay};

/// How many notifications a parked request keeps for the client's return.
const BACKLOG: usize = 256;
/// How many bytes of them.
const BACKLOG_BYTES: usize = 1 << 20;

/// Where the request's messages go right now.
enum Place {
    /// A client waits for the reply.
    Live(Live),
    /// A client waits, and will be told to come back with answers as soon as all questions of this moment are in.
    Parking { live: Live, questions: Vec<Question> },
    /// The client went to fetch an answer; it will come back with another id.
    Parked { backlog: Vec<Notification>, questions: Vec<Question> },
    /// The handler finished while the client was away.
    Finished(Reply),
    /// Answered.
    Done,
}

/// The client's current request.
#[derive(Clone)]
pub(crate) struct Live {
    pub(crate) id: Id,
    pub(crate) outlet: mpsc::Sender<Out>,
    pub(crate) token: Option<Raw>,
}

struct Inner {
    session: Arc<Session>,
    client: Option<Client>,
    method: Box<str>,
    bound: Option<Bound>,
    level: Option<Severity>,
    server_info: Option<Arc<RawValue>>,
    cancelled: Signal,
    place: Mutex<Place>,
    carried: Mutex<Vec<(Mark, Raw)>>,
    /// The turn the request runs on; none while it waits for somebody.
    turn: Mutex<Option<OwnedSemaphorePermit>>,
}

/// A request's context; cheap to clone.
#[derive(Clone)]
pub struct Ctx(Arc<Inner>);

impl fmt::Debug for Ctx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ctx").field("method", &self.0.method).field("session", &self.0.session).finish()
    }
}

/// What a context is made of.
pub(crate) struct Setting {
    pub(crate) session: Arc<Session>,
    /// What a modern request says of its client.
    pub(crate) client: Option<Client>,
    pub(crate) method: Box<str>,
    /// What a retry must repeat (modern requests that may ask).
    pub(crate) bound: Option<Bound>,
    /// The least severe log message a modern request asks for; without one it gets none.
    pub(crate) level: Option<Severity>,
    /// Told in the `_meta` of modern results.
    pub(crate) server_info: Option<Arc<RawValue>>,
    pub(crate) live: Live,
    /// Answers the client brought along to questions that another process asked.
    pub(crate) carried: Vec<(Mark, Raw)>,
}

impl Ctx {
    pub(crate) fn new(setting: Setting) -> Self {
        let Setting { session, client, method, bound, level, server_info, live, carried } = setting;
        Self(Arc::new(Inner {
            session,
            client,
            method,
            bound,
            level,
            server_info,
            cancelled: Signal::default(),
            place: Mutex::new(Place::Live(live)),
            carried: Mutex::new(carried),
            turn: Mutex::default(),
        }))
    }

    /// Runs on this turn, or on none.
    pub(crate) fn set_turn(&self, turn: Option<OwnedSemaphorePermit>) {
        *lock(&self.0.turn) = turn;
    }

    /// Waits for something without one of the principal's turns: its other requests run meanwhile.
    pub async fn off_turn<F: Future>(&self, waiting: F) -> F::Output {
        let had_turn = lock(&self.0.turn).take().is_some();
        let output = waiting.await;
        if had_turn {
            self.set_turn(self.0.session.turn_again().await);
        }
        output
    }

    /// The line or session the request came in by.
    pub fn session(&self) -> &Arc<Session> {
        &self.0.session
    }

    /// What the client says of itself: in this request (modern), or when the session opened.
    pub fn client(&self) -> &Client {
        self.0.client.as_ref().unwrap_or_else(|| self.0.session.client())
    }

    /// The request's method.
    pub fn method(&self) -> &str {
        &self.0.method
    }

    /// The era the client speaks.
    pub fn era(&self) -> Era {
        self.0.session.era()
    }

    /// Returns when the client no longer wants the reply: it cancelled, disconnected, or its session ended.
    pub async fn cancelled(&self) {
        self.0.cancelled.wait().await;
    }

    /// Whether the client no longer wants the reply.
    pub fn is_cancelled(&self) -> bool {
        self.0.cancelled.is_raised()
    }

    /// Whether the client would answer this question (declared capability, and a method that may ask).
    pub fn can_ask(&self, method: &str, params: Option<&RawValue>) -> bool {
        let place_allows = self.era() == Era::Legacy || era::may_ask(self.method());
        place_allows && is_offered(self.client().capabilities.as_deref(), method, params)
    }

    /// The progress token the client's current request carries, if it wants to hear of progress.
    pub fn progress_token(&self) -> Option<Raw> {
        if let Place::Live(live) | Place::Parking { live, .. } = &*lock(&self.0.place) {
            live.token.clone()
        } else {
            None
        }
    }

    /// Sends a notification that belongs to this request, before its reply and in order.
    pub async fn notify(&self, method: &str, params: Option<&RawValue>) -> Result<(), Gone> {
        self.relay(Notification::new(method, params.map(ToOwned::to_owned))).await
    }

    async fn relay(&self, notification: Notification) -> Result<(), Gone> {
        if &*notification.method == "notifications/message" && !self.wants_log(notification.params.as_deref())
        {
            return Ok(());
        }
        let live = match &mut *lock(&self.0.place) {
            Place::Live(live) | Place::Parking { live, .. } => live.clone(),
            Place::Parked { backlog, .. } => {
                let bytes = |one: &Notification| one.params.as_ref().map_or(0, |params| params.get().len());
                let kept: usize = backlog.iter().map(bytes).sum();
                if backlog.len() < BACKLOG && kept + bytes(&notification) <= BACKLOG_BYTES {
                    backlog.push(notification);
                }
                return Ok(());
            }
            Place::Finished(_) | Place::Done => return Err(Gone),
        };
        live.outlet.send(Out::message(notification_bytes(&notification))).await.map_err(|_| Gone)
    }

    /// Whether the client asked for log messages this severe. A legacy client that named no level gets what there is, a modern
    /// one gets none.
    fn wants_log(&self, params: Option<&RawValue>) -> bool {
        let wanted = match self.era() {
            Era::Legacy => self.0.session.level(),
            Era::Modern => self.0.level,
        };
        match (self.era(), wanted) {
            (Era::Legacy, None) => true,
            (Era::Modern, None) => false,
            // A severity that cannot be read is nobody's reason to lose a message.
            (_, Some(wanted)) => Severity::of(params, &["level"]).is_none_or(|level| level >= wanted),
        }
    }

    /// Asks the client. Legacy: a JSON-RPC request on the line. Modern: the request parks and the client's retry brings the
    /// answer. Dropping the future withdraws the question (legacy) or leaves it open for the client's return (modern).
    pub async fn ask(&self, method: &str, params: Option<&RawValue>) -> Result<Raw, AskFault> {
        Box::pin(self.off_turn(self.ask_for(method, params, Taker::Here))).await
    }

    /// The same with a question that says what it is about, once and for all: a stateless client may bring its answer to
    /// another process with the same key, where the same question is asked of the same call.
    pub async fn ask_anywhere(&self, method: &str, params: Option<&RawValue>) -> Result<Raw, AskFault> {
        Box::pin(self.off_turn(self.ask_for(method, params, Taker::Anywhere))).await
    }

    async fn ask_for(&self, method: &str, params: Option<&RawValue>, taker: Taker) -> Result<Raw, AskFault> {
        match self.era() {
            Era::Legacy => {
                let live = match &*lock(&self.0.place) {
                    Place::Live(live) => live.clone(),
                    Place::Parking { .. } | Place::Parked { .. } | Place::Finished(_) | Place::Done => {
                        return Err(AskFault::Gone);
                    }
                };
                let answer = self.0.session.ask_on(&live.outlet, self.client(), method, params);
                tokio::select! {
                    answer = answer => answer,
                    () = self.cancelled() => Err(AskFault::Gone),
                }
            }
            Era::Modern => self.ask_parking(method, params, taker).await,
        }
    }

    /// The answer to this question, if the client brought it along.
    fn brought(&self, method: &str, params: Option<&RawValue>) -> Option<Raw> {
        let mut carried = lock(&self.0.carried);
        if carried.is_empty() {
            return None;
        }
        let mark = Question::mark(method, params);
        let place = carried.iter().position(|(known, _)| *known == mark)?;
        Some(carried.swap_remove(place).1)
    }

    async fn ask_parking(
        &self,
        method: &str,
        params: Option<&RawValue>,
        taker: Taker,
    ) -> Result<Raw, AskFault> {
        if !era::may_ask(self.method()) {
            return Err(AskFault::NotHere(self.method().to_owned()));
        }
        if !is_offered(self.client().capabilities.as_deref(), method, params) {
            return Err(AskFault::NotOffered(method.to_owned()));
        }
        if taker == Taker::Anywhere
            && let Some(answer) = self.brought(method, params)
        {
            return Ok(answer);
        }
        let (answer, answered) = oneshot::channel();
        let question =
            Question { method: method.into(), params: params.map(ToOwned::to_owned), answer, taker };
        self.pose(question)?;
        tokio::select! {
            reply = answered => reply.map_err(|_| AskFault::Expired)?.map_err(AskFault::Rpc),
            () = self.cancelled() => Err(AskFault::Gone),
        }
    }

    /// Parks the request with a question, or adds it to the round that is being made.
    fn pose(&self, question: Question) -> Result<(), AskFault> {
        let mut place = lock(&self.0.place);
        match &mut *place {
            Place::Parked { questions, .. } | Place::Parking { questions, .. } => questions.push(question),
            Place::Finished(_) | Place::Done => return Err(AskFault::Gone),
            Place::Live(live) => {
                *place = Place::Parking { live: live.clone(), questions: vec![question] };
                // In a task of its own: whoever asks may stop waiting, the client must still hear of the round.
                tokio::spawn(self.clone().send_round());
            }
        }
        Ok(())
    }

    /// Answers the client's current request with `input_required`; the questions wait in the parking.
    async fn send_round(self) {
        // Questions that are put side by side go out together.
        for _ in 0..2 {
            tokio::task::yield_now().await;
        }
        let (live, result) = {
            let mut place = lock(&self.0.place);
            let Place::Parking { live, questions } = &mut *place else { return };
            let (live, questions) = (live.clone(), std::mem::take(questions));
            // Where there is no room the questions are dropped, and whoever asked is told.
            match self.0.session.parking().park(self.clone(), questions) {
                Ok(result) => {
                    *place = Place::Parked { backlog: Vec::new(), questions: Vec::new() };
                    (live, result)
                }
                Err(_) => {
                    *place = Place::Live(live);
                    return;
                }
            }
        };
        self.0.session.leave(&live.id);
        let mut bytes = Vec::new();
        frame::write_response(&mut bytes, Some(&live.id), &Ok(result));
        let _ = live.outlet.send(Out { bytes, end: Ending::Result }).await;
    }

    /// The client is back: later messages go to its new request. Questions it left open are put again.
    pub(crate) async fn resume(&self, live: Live, unanswered: Vec<Question>) {
        let (backlog, mut questions, finished) = {
            let mut place = lock(&self.0.place);
            match std::mem::replace(&mut *place, Place::Live(live.clone())) {
                Place::Parked { backlog, questions } => (backlog, questions, None),
                Place::Finished(reply) => (Vec::new(), Vec::new(), Some(reply)),
                Place::Live(_) | Place::Parking { .. } | Place::Done => (Vec::new(), Vec::new(), None),
            }
        };
        if let Some(reply) = finished {
            return self.finish(reply).await;
        }
        for notification in backlog {
            let _ = live.outlet.send(Out::message(self.retokened(&notification, &live))).await;
        }
        questions.extend(unanswered);
        for question in questions {
            // A handler that finished meanwhile needs no answers any more.
            if self.pose(question).is_err() {
                return;
            }
        }
    }

    /// A notification kept while the client was away speaks of the progress token it came back with.
    fn retokened(&self, notification: &Notification, live: &Live) -> Vec<u8> {
        let edited = match (&live.token, &notification.params) {
            (Some(token), Some(params)) if &*notification.method == "notifications/progress" => {
                raw::set(params, "progressToken", token)
            }
            _ => None,
        };
        match edited {
            Some(params) => notification_bytes(&Notification::new(notification.method.clone(), Some(params))),
            None => notification_bytes(notification),
        }
    }

    /// What a retry of this request must repeat.
    pub(crate) fn bound(&self) -> Option<&Bound> {
        self.0.bound.as_ref()
    }

    /// The client no longer wants what it asked for.
    pub fn cancel(&self) {
        self.0.cancelled.raise();
    }

    /// The client's connection for the request `id` is gone; true cancellation only if it was not parked meanwhile.
    pub(crate) fn disconnected(&self, id: &Id) {
        let current = match &*lock(&self.0.place) {
            Place::Live(live) | Place::Parking { live, .. } => live.id == *id,
            Place::Parked { .. } | Place::Finished(_) | Place::Done => false,
        };
        if current {
            self.cancel();
        }
    }

    /// Ends the request with a reply, said in the client's era.
    pub(crate) async fn finish(&self, reply: Reply) {
        if let Some((outlet, out)) = self.settle(reply) {
            let _ = outlet.send(out).await;
        }
    }

    /// Ends the request without waiting, for places that cannot.
    pub(crate) fn finish_now(&self, reply: Reply) {
        if let Some((outlet, out)) = self.settle(reply) {
            let _ = outlet.try_send(out);
        }
    }

    fn settle(&self, reply: Reply) -> Option<(mpsc::Sender<Out>, Out)> {
        let live = {
            let mut place = lock(&self.0.place);
            match std::mem::replace(&mut *place, Place::Done) {
                Place::Live(live) | Place::Parking { live, .. } => live,
                Place::Parked { .. } => {
                    *place = Place::Finished(reply);
                    return None;
                }
                Place::Finished(_) | Place::Done => return None,
            }
        };
        self.0.session.leave(&live.id);
        // A cancelled request gets no reply; its outlet closes with the last clone of this context.
        if self.is_cancelled() {
            return None;
        }
        let end = match &reply {
            Ok(_) => Ending::Result,
            Err(error) => Ending::Error(error.code()),
        };
        Some((live.outlet, Out { bytes: self.reply_bytes(&live.id, reply), end }))
    }

    fn reply_bytes(&self, id: &Id, reply: Reply) -> Vec<u8> {
        let mut bytes = Vec::new();
        match (self.era(), reply) {
            (Era::Modern, Ok(result)) => {
                let text = era::modern_text(self.method(), result.get(), self.0.server_info.as_deref());
                bytes.reserve(text.len() + 64);
                frame::write_result_text(&mut bytes, id, &text);
            }
            (era, reply) => {
                let reply = era::reply_for(era, self.method(), reply);
                frame::write_response(&mut bytes, Some(id), &reply);
            }
        }
        bytes
    }
}

fn notification_bytes(notification: &Notification) -> Vec<u8> {
    let params = notification.params.as_deref().map(RawValue::get);
    let mut bytes = Vec::with_capacity(96 + params.map_or(0, str::len));
    frame::write_notification(&mut bytes, &notification.method, params);
    bytes
}

/// Answers a request whose handler vanished (a panic), so that its client does not wait for ever.
pub(crate) struct Unanswered(Option<Ctx>);

impl Unanswered {
    pub(crate) fn new(ctx: Ctx) -> Self {
        Self(Some(ctx))
    }

    pub(crate) async fn answer(mut self, reply: Reply) {
        if let Some(ctx) = self.0.take() {
            ctx.finish(reply).await;
        }
    }
}

impl Drop for Unanswered {
    fn drop(&mut self) {
        if let Some(ctx) = self.0.take() {
            ctx.finish_now(Err(RpcError::new(code::INTERNAL, "the request could not be answered")));
        }
    }
}

impl Relay for Ctx {
    fn notification(&self, notification: Notification) -> Later<'_, ()> {
        Box::pin(async move {
            // A client that left will not read it; its cancellation is told elsewhere.
            let _ = self.relay(notification).await;
        })
    }
}

impl Asks for Ctx {
    fn ask<'a>(&'a self, method: &'a str, params: Option<Raw>) -> Later<'a, Reply> {
        Box::pin(async move { Ctx::ask(self, method, params.as_deref()).await.map_err(RpcError::from) })
    }
}
