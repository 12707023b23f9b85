//! One request as its handler sees it: send notifications, ask the client, watch for cancellation. In the stateless era a question
//! parks the request: its reply becomes `input_required`, and the client's retry resumes it.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::value::RawValue;
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};

use super::client_questions::{AskFault, is_offered};
use super::parked_requests::{AnswerScope, CarriedAnswer, ClientQuestion, RequestBinding};
use super::session::{ClientInfo, ClientUnreachable, Session, lock};
use crate::client::{BoxFuture, NotificationRelay, QuestionResponder};
use crate::era::{self, Era};
use crate::framing::{FrameOutcome, OutgoingFrame};
use crate::jsonrpc::{self, JsonRpcId, Notification, Reply, RpcError, code};
use crate::log_severity::LogSeverity;
use crate::one_shot_flag::OneShotFlag;
use crate::raw::{self, RawJson};

/// How many notifications are kept for a client until it retries.
const BACKLOG: usize = 256;
const BACKLOG_BYTES: usize = 1 << 20;

#[derive(Clone, Debug)]
pub struct TimedAnswer {
    pub answer: RawJson,
    /// From the question to the answer.
    pub took: Duration,
}

/// Where the request's messages go right now.
enum RequestPhase {
    /// The client waits for the reply.
    Live(LiveRequest),
    /// The client waits. It gets `input_required` as soon as all questions of this moment are collected.
    Parking {
        live: LiveRequest,
        questions: Vec<ClientQuestion>,
    },
    /// The client got `input_required` and will retry under another id.
    Parked {
        backlog: Vec<Notification>,
        questions: Vec<ClientQuestion>,
    },
    /// The handler finished before the client's retry.
    Finished(Reply),
    Done,
}

#[derive(Clone)]
pub(crate) struct LiveRequest {
    pub(crate) id: JsonRpcId,
    pub(crate) outlet: mpsc::Sender<OutgoingFrame>,
    pub(crate) token: Option<RawJson>,
}

struct ContextInner {
    session: Arc<Session>,
    client: Option<ClientInfo>,
    method: Box<str>,
    bound: Option<RequestBinding>,
    level: Option<LogSeverity>,
    server_info: Option<Arc<RawValue>>,
    cancelled: OneShotFlag,
    phase: Mutex<RequestPhase>,
    carried: Mutex<Vec<CarriedAnswer>>,
    /// Held while the request runs; released while it waits for a person or a client.
    slot: Mutex<Option<OwnedSemaphorePermit>>,
}

/// The context of a request; cheap to clone.
#[derive(Clone)]
pub struct RequestContext(Arc<ContextInner>);

impl fmt::Debug for RequestContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestContext")
            .field("method", &self.0.method)
            .field("session", &self.0.session)
            .finish()
    }
}

pub(crate) struct ContextParams {
    pub(crate) session: Arc<Session>,
    /// The client's description in a modern request.
    pub(crate) client: Option<ClientInfo>,
    pub(crate) method: Box<str>,
    /// What a retry must repeat (modern methods that may ask).
    pub(crate) bound: Option<RequestBinding>,
    /// The lowest log severity a modern request asks for; without one it gets no log messages.
    pub(crate) level: Option<LogSeverity>,
    /// For the `_meta` of modern results.
    pub(crate) server_info: Option<Arc<RawValue>>,
    pub(crate) live: LiveRequest,
    /// Answers to questions that another process asked.
    pub(crate) carried: Vec<CarriedAnswer>,
}

impl RequestContext {
    pub(crate) fn new(params: ContextParams) -> Self {
        let ContextParams { session, client, method, bound, level, server_info, live, carried } = params;
        Self(Arc::new(ContextInner {
            session,
            client,
            method,
            bound,
            level,
            server_info,
            cancelled: OneShotFlag::default(),
            phase: Mutex::new(RequestPhase::Live(live)),
            carried: Mutex::new(carried),
            slot: Mutex::default(),
        }))
    }

    pub(crate) fn set_slot(&self, slot: Option<OwnedSemaphorePermit>) {
        *lock(&self.0.slot) = slot;
    }

    /// Waits without one of the principal's slots, so that its other requests can run meanwhile.
    pub async fn without_slot<F: Future>(&self, waiting: F) -> F::Output {
        // Taken out of the lock before the wait: a person may take minutes, and the principal has few slots.
        let had_slot = lock(&self.0.slot).take().is_some();
        let output = waiting.await;
        if had_slot {
            self.set_slot(self.0.session.reacquire_slot().await);
        }
        output
    }

    pub fn session(&self) -> &Arc<Session> {
        &self.0.session
    }

    /// The client's description: from this request (modern), or from the opening of the session.
    pub fn client(&self) -> &ClientInfo {
        self.0.client.as_ref().unwrap_or_else(|| self.0.session.client())
    }

    pub fn method(&self) -> &str {
        &self.0.method
    }

    pub fn era(&self) -> Era {
        self.0.session.era()
    }

    /// Resolves when the client no longer wants the reply: it cancelled, disconnected, or its session ended.
    pub async fn cancelled(&self) {
        self.0.cancelled.wait().await;
    }

    pub fn is_cancelled(&self) -> bool {
        self.0.cancelled.is_raised()
    }

    /// Whether the client can answer this question: it declared the capability, and the method may ask.
    pub fn can_ask(&self, method: &str, params: Option<&RawValue>) -> bool {
        // A modern client repeats only these methods with an answer; a question in another would never be answered.
        let phase_allows = self.era() == Era::Legacy || era::may_ask(self.method());
        phase_allows && is_offered(self.client().capabilities.as_deref(), method, params)
    }

    /// The progress token of the client's current request.
    pub fn progress_token(&self) -> Option<RawJson> {
        if let RequestPhase::Live(live) | RequestPhase::Parking { live, .. } = &*lock(&self.0.phase) {
            live.token.clone()
        } else {
            None
        }
    }

    /// Sends a notification that belongs to this request, in order and before its reply.
    pub async fn notify(&self, method: &str, params: Option<&RawValue>) -> Result<(), ClientUnreachable> {
        self.relay(Notification::new(method, params.map(ToOwned::to_owned))).await
    }

    async fn relay(&self, notification: Notification) -> Result<(), ClientUnreachable> {
        if &*notification.method == "notifications/message" && !self.wants_log(notification.params.as_deref())
        {
            return Ok(());
        }
        let live = match &mut *lock(&self.0.phase) {
            RequestPhase::Live(live) | RequestPhase::Parking { live, .. } => live.clone(),
            // No connection to send on right now. Bounded, since the client may never come back.
            RequestPhase::Parked { backlog, .. } => {
                let bytes = |one: &Notification| one.params.as_ref().map_or(0, |params| params.get().len());
                let kept: usize = backlog.iter().map(bytes).sum();
                if backlog.len() < BACKLOG && kept + bytes(&notification) <= BACKLOG_BYTES {
                    backlog.push(notification);
                }
                return Ok(());
            }
            RequestPhase::Finished(_) | RequestPhase::Done => return Err(ClientUnreachable),
        };
        live.outlet
            .send(OutgoingFrame::message(notification_bytes(&notification)))
            .await
            .map_err(|_| ClientUnreachable)
    }

    /// Whether the client wants log messages of this severity. Without a level, a legacy client gets all and a modern one none.
    fn wants_log(&self, params: Option<&RawValue>) -> bool {
        let wanted = match self.era() {
            Era::Legacy => self.0.session.level(),
            Era::Modern => self.0.level,
        };
        match (self.era(), wanted) {
            (Era::Legacy, None) => true,
            (Era::Modern, None) => false,
            // An unreadable severity is no reason to drop a message.
            (_, Some(wanted)) => LogSeverity::of(params, &["level"]).is_none_or(|level| level >= wanted),
        }
    }

    /// Asks the client. Legacy: sends a JSON-RPC request. Modern: parks the request until the client's retry brings the answer.
    /// Dropping the future withdraws the question (legacy) or leaves it open for the retry (modern).
    pub async fn ask(&self, method: &str, params: Option<&RawValue>) -> Result<RawJson, AskFault> {
        Box::pin(self.without_slot(self.ask_for(method, params, AnswerScope::Here))).await
    }

    /// The same with a self-contained question: a modern client may bring the answer to another process with the same key, which
    /// asks the same question about the same call.
    pub async fn ask_anywhere(
        &self,
        method: &str,
        params: Option<&RawValue>,
    ) -> Result<TimedAnswer, AskFault> {
        // The client may have been sent to another replica for its retry, with the answer to a question asked
        // elsewhere.
        if let Some(CarriedAnswer { answer, took, .. }) = self.take_carried_answer(method, params) {
            return Ok(TimedAnswer { answer, took });
        }
        let asked = Instant::now();
        let answer = Box::pin(self.without_slot(self.ask_for(method, params, AnswerScope::Anywhere))).await?;
        Ok(TimedAnswer { answer, took: asked.elapsed() })
    }

    async fn ask_for(
        &self,
        method: &str,
        params: Option<&RawValue>,
        taker: AnswerScope,
    ) -> Result<RawJson, AskFault> {
        match self.era() {
            Era::Legacy => {
                let live = match &*lock(&self.0.phase) {
                    RequestPhase::Live(live) => live.clone(),
                    RequestPhase::Parking { .. }
                    | RequestPhase::Parked { .. }
                    | RequestPhase::Finished(_)
                    | RequestPhase::Done => {
                        return Err(AskFault::Gone);
                    }
                };
                let answer = self.0.session.ask_on(&live.outlet, self.client(), method, params);
                tokio::select! {
                    answer = answer => answer,
                    () = self.cancelled() => Err(AskFault::Gone),
                }
            }
            Era::Modern => self.ask_modern(method, params, taker).await,
        }
    }

    fn take_carried_answer(&self, method: &str, params: Option<&RawValue>) -> Option<CarriedAnswer> {
        let mut carried = lock(&self.0.carried);
        if carried.is_empty() {
            return None;
        }
        let mark = ClientQuestion::mark(method, params);
        // Only for the very same question: an answer to another text must not count as a yes to this one.
        let phase = carried.iter().position(|known| known.mark == mark)?;
        Some(carried.swap_remove(phase))
    }

    async fn ask_modern(
        &self,
        method: &str,
        params: Option<&RawValue>,
        taker: AnswerScope,
    ) -> Result<RawJson, AskFault> {
        if !era::may_ask(self.method()) {
            return Err(AskFault::NotHere(self.method().to_owned()));
        }
        if !is_offered(self.client().capabilities.as_deref(), method, params) {
            return Err(AskFault::NotOffered(method.to_owned()));
        }
        let (answer, answered) = oneshot::channel();
        let question =
            ClientQuestion { method: method.into(), params: params.map(ToOwned::to_owned), answer, taker };
        self.add_question(question)?;
        tokio::select! {
            reply = answered => reply.map_err(|_| AskFault::Expired)?.map_err(AskFault::Rpc),
            () = self.cancelled() => Err(AskFault::Gone),
        }
    }

    /// Parks the request with a question, or adds it to the round being collected.
    fn add_question(&self, question: ClientQuestion) -> Result<(), AskFault> {
        let mut phase = lock(&self.0.phase);
        match &mut *phase {
            RequestPhase::Parked { questions, .. } | RequestPhase::Parking { questions, .. } => {
                questions.push(question)
            }
            RequestPhase::Finished(_) | RequestPhase::Done => return Err(AskFault::Gone),
            RequestPhase::Live(live) => {
                *phase = RequestPhase::Parking { live: live.clone(), questions: vec![question] };
                // A task of its own: the asker may stop waiting, but the client must still get the round.
                tokio::spawn(self.clone().send_round());
            }
        }
        Ok(())
    }

    /// Answers the client's current request with `input_required`.
    async fn send_round(self) {
        // Lets questions that are asked concurrently go out in one round.
        for _ in 0..2 {
            tokio::task::yield_now().await;
        }
        let (live, result) = {
            let mut phase = lock(&self.0.phase);
            let RequestPhase::Parking { live, questions } = &mut *phase else { return };
            let (live, questions) = (live.clone(), std::mem::take(questions));
            // If nothing more can be parked, dropping the questions reports it to their askers.
            match self.0.session.parking().park(self.clone(), questions) {
                Ok(result) => {
                    *phase = RequestPhase::Parked { backlog: Vec::new(), questions: Vec::new() };
                    (live, result)
                }
                Err(_) => {
                    *phase = RequestPhase::Live(live);
                    return;
                }
            }
        };
        // Before the reply goes out: the retry may use the same id, and must not be refused as a duplicate.
        self.0.session.leave(&live.id);
        let mut bytes = Vec::new();
        jsonrpc::write_response(&mut bytes, Some(&live.id), &Ok(result));
        let _ = live.outlet.send(OutgoingFrame { bytes, end: FrameOutcome::Result }).await;
    }

    /// The client retried: later messages go to its new request, and questions it left open are asked again.
    pub(crate) async fn resume(&self, live: LiveRequest, unanswered: Vec<ClientQuestion>) {
        let (backlog, mut questions, finished) = {
            let mut phase = lock(&self.0.phase);
            match std::mem::replace(&mut *phase, RequestPhase::Live(live.clone())) {
                RequestPhase::Parked { backlog, questions } => (backlog, questions, None),
                RequestPhase::Finished(reply) => (Vec::new(), Vec::new(), Some(reply)),
                RequestPhase::Live(_) | RequestPhase::Parking { .. } | RequestPhase::Done => {
                    (Vec::new(), Vec::new(), None)
                }
            }
        };
        if let Some(reply) = finished {
            // The handler ended while the client was away: the retry gets the reply, and nothing runs again.
            return self.finish(reply).await;
        }
        for notification in backlog {
            let _ =
                live.outlet.send(OutgoingFrame::message(self.with_current_token(&notification, &live))).await;
        }
        questions.extend(unanswered);
        for question in questions {
            // The handler may have finished meanwhile and need no answers.
            if self.add_question(question).is_err() {
                return;
            }
        }
    }

    /// Rewrites a kept notification to the progress token of the client's new request.
    fn with_current_token(&self, notification: &Notification, live: &LiveRequest) -> Vec<u8> {
        let edited = match (&live.token, &notification.params) {
            (Some(token), Some(params)) if &*notification.method == "notifications/progress" => {
                // The retry has a token of its own; a client drops progress for one it does not know.
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
    pub(crate) fn bound(&self) -> Option<&RequestBinding> {
        self.0.bound.as_ref()
    }

    pub fn cancel(&self) {
        self.0.cancelled.raise();
    }

    /// The connection of request `id` is gone. That cancels the request only if it was not parked meanwhile.
    pub(crate) fn disconnected(&self, id: &JsonRpcId) {
        // A parked request outlives its connection by design: the client closes it to ask its user.
        let current = match &*lock(&self.0.phase) {
            RequestPhase::Live(live) | RequestPhase::Parking { live, .. } => live.id == *id,
            RequestPhase::Parked { .. } | RequestPhase::Finished(_) | RequestPhase::Done => false,
        };
        if current {
            self.cancel();
        }
    }

    /// Ends the request with a reply, translated to the client's era.
    pub(crate) async fn finish(&self, reply: Reply) {
        if let Some((outlet, out)) = self.settle(reply) {
            let _ = outlet.send(out).await;
        }
    }

    /// The same without waiting, for `Drop`.
    pub(crate) fn finish_now(&self, reply: Reply) {
        if let Some((outlet, out)) = self.settle(reply) {
            let _ = outlet.try_send(out);
        }
    }

    fn settle(&self, reply: Reply) -> Option<(mpsc::Sender<OutgoingFrame>, OutgoingFrame)> {
        let live = {
            let mut phase = lock(&self.0.phase);
            match std::mem::replace(&mut *phase, RequestPhase::Done) {
                RequestPhase::Live(live) | RequestPhase::Parking { live, .. } => live,
                RequestPhase::Parked { .. } => {
                    *phase = RequestPhase::Finished(reply);
                    return None;
                }
                RequestPhase::Finished(_) | RequestPhase::Done => return None,
            }
        };
        self.0.session.leave(&live.id);
        // A cancelled request gets no reply. Its queue closes with the last clone of this context.
        if self.is_cancelled() {
            return None;
        }
        let end = match &reply {
            Ok(_) => FrameOutcome::Result,
            Err(error) => FrameOutcome::Error(error.code()),
        };
        Some((live.outlet, OutgoingFrame { bytes: self.reply_bytes(&live.id, reply), end }))
    }

    fn reply_bytes(&self, id: &JsonRpcId, reply: Reply) -> Vec<u8> {
        let mut bytes = Vec::new();
        match (self.era(), reply) {
            (Era::Modern, Ok(result)) => {
                let text = era::modern_text(self.method(), result.get(), self.0.server_info.as_deref());
                bytes.reserve(text.len() + 64);
                jsonrpc::write_result_text(&mut bytes, id, &text);
            }
            (era, reply) => {
                let reply = era::reply_for(era, self.method(), reply);
                jsonrpc::write_response(&mut bytes, Some(id), &reply);
            }
        }
        bytes
    }
}

fn notification_bytes(notification: &Notification) -> Vec<u8> {
    let params = notification.params.as_deref().map(RawValue::get);
    let mut bytes = Vec::with_capacity(96 + params.map_or(0, str::len));
    jsonrpc::write_notification(&mut bytes, &notification.method, params);
    bytes
}

/// Answers a request whose handler panicked, so that its client does not wait for ever.
pub(crate) struct ReplyGuard(Option<RequestContext>);

impl ReplyGuard {
    pub(crate) fn new(ctx: RequestContext) -> Self {
        Self(Some(ctx))
    }

    pub(crate) async fn answer(mut self, reply: Reply) {
        if let Some(ctx) = self.0.take() {
            ctx.finish(reply).await;
        }
    }
}

impl Drop for ReplyGuard {
    fn drop(&mut self) {
        if let Some(ctx) = self.0.take() {
            ctx.finish_now(Err(RpcError::new(code::INTERNAL, "the request could not be answered")));
        }
    }
}

impl NotificationRelay for RequestContext {
    fn notification(&self, notification: Notification) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            // The client may have left; it learns of the end through its cancellation.
            let _ = self.relay(notification).await;
        })
    }
}

impl QuestionResponder for RequestContext {
    fn ask<'a>(&'a self, method: &'a str, params: Option<RawJson>) -> BoxFuture<'a, Reply> {
        Box::pin(
            async move { RequestContext::ask(self, method, params.as_deref()).await.map_err(RpcError::from) },
        )
    }
}
