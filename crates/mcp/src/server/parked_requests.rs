//! Requests of stateless clients that wait for an answer (`input_required`). The `requestState` that the client carries is a sealed
//! ticket: encrypted, bound to principal, method, target and arguments, single-use, and valid for a limited time. The request itself
//! stays in memory. Another process with the same key reads from the ticket which self-contained questions were asked about the same
//! request and accepts their answers; it asks everything else again.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::digest::{Context, SHA256};
use ring::rand::{SecureRandom, SystemRandom};
use serde_json::value::RawValue;
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

use super::client_questions::AskFault;
use super::request_context::RequestContext;
use super::session::lock;
use crate::jsonrpc::{Reply, Request, RpcError};
use crate::raw::{self, RawJson};

/// Prefix of every gateway's `requestState`; the mark of the instance follows.
const PREFIX: &str = "cs1.";
const HANDLE: usize = 16;
const DIGEST: usize = 32;
/// The mark of a question whose answer only the asking process can take.
const HERE: QuestionDigest = [0; DIGEST];
const LIMIT: usize = 4096;
/// Of them, of one principal.
const OF_ONE: usize = 256;

#[derive(Clone)]
pub struct SealKey(LessSafeKey);

impl SealKey {
    pub fn new(bytes: &[u8; 32]) -> Self {
        // INVARIANT (key length): ChaCha20-Poly1305 takes exactly 32 bytes, so this branch is never the fallback.
        match UnboundKey::new(&CHACHA20_POLY1305, bytes) {
            Ok(key) => Self(LessSafeKey::new(key)),
            Err(_) => Self::random(),
        }
    }

    /// A random key: parked requests do not outlive this process anyway.
    pub fn random() -> Self {
        let mut bytes = [0u8; 32];
        loop {
            if SystemRandom::new().fill(&mut bytes).is_ok()
                && let Ok(key) = UnboundKey::new(&CHACHA20_POLY1305, &bytes)
            {
                return Self(LessSafeKey::new(key));
            }
        }
    }

    fn seal(&self, ticket: &ResumeTicket, binding: &[u8]) -> Option<String> {
        let mut nonce = [0u8; NONCE_LEN];
        SystemRandom::new().fill(&mut nonce).ok()?;
        let mut sealed = ticket.bytes();
        self.0
            .seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::from(binding), &mut sealed)
            .ok()?;
        let mut whole = nonce.to_vec();
        whole.append(&mut sealed);
        Some(URL_SAFE_NO_PAD.encode(whole))
    }

    fn open(&self, sealed: &str, binding: &[u8]) -> Option<ResumeTicket> {
        let mut whole = URL_SAFE_NO_PAD.decode(sealed).ok()?;
        let (nonce, sealed) = whole.split_at_mut_checked(NONCE_LEN)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        ResumeTicket::read(self.0.open_in_place(nonce, Aad::from(binding), sealed).ok()?)
    }
}

impl fmt::Debug for SealKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SealKey(***)")
    }
}

/// What a retry must repeat: the same target with the same arguments. Equal in every process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RequestBinding([u8; DIGEST]);

impl RequestBinding {
    pub(crate) fn of(params: Option<&RawValue>) -> Self {
        let text = params.map_or("", RawValue::get);
        let part = |name| raw::get_text(text, name).unwrap_or_default();
        Self(digest(&[part("name"), part("uri"), part("arguments")]))
    }
}

pub(crate) type QuestionDigest = [u8; DIGEST];

fn digest(parts: &[&str]) -> [u8; DIGEST] {
    let mut context = Context::new(&SHA256);
    for part in parts {
        context.update(&(part.len() as u64).to_be_bytes());
        context.update(part.as_bytes());
    }
    let mut bytes = [0; DIGEST];
    bytes.iter_mut().zip(context.finish().as_ref()).for_each(|(to, from)| *to = *from);
    bytes
}

/// The contents of `requestState`.
#[derive(Debug, PartialEq, Eq)]
struct ResumeTicket {
    handle: [u8; HANDLE],
    /// Seconds since 1970.
    until: u64,
    /// When the questions were asked: milliseconds since 1970.
    asked: u64,
    bound: RequestBinding,
    questions: Vec<QuestionDigest>,
}

impl ResumeTicket {
    fn bytes(&self) -> Vec<u8> {
        let mut bytes = self.handle.to_vec();
        bytes.extend(self.until.to_be_bytes());
        bytes.extend(self.asked.to_be_bytes());
        bytes.extend(self.bound.0);
        self.questions.iter().for_each(|mark| bytes.extend(mark));
        bytes
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let (handle, rest) = bytes.split_first_chunk::<HANDLE>()?;
        let (until, rest) = rest.split_first_chunk::<8>()?;
        let (asked, rest) = rest.split_first_chunk::<8>()?;
        let (bound, rest) = rest.split_first_chunk::<DIGEST>()?;
        let (questions, []) = rest.as_chunks::<DIGEST>() else { return None };
        let (until, asked) = (u64::from_be_bytes(*until), u64::from_be_bytes(*asked));
        Some(Self {
            handle: *handle,
            until,
            asked,
            bound: RequestBinding(*bound),
            questions: questions.to_vec(),
        })
    }
}

fn seconds() -> u64 {
    milliseconds() / 1000
}

fn milliseconds() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// An answer that the client brought to another process than the one that asked.
#[derive(Debug)]
pub(crate) struct CarriedAnswer {
    pub(crate) mark: QuestionDigest,
    pub(crate) answer: RawJson,
    /// How long the client had the question.
    pub(crate) took: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AnswerScope {
    /// Only the process that asked it.
    Here,
    /// Every process with the same key: the question is self-contained and can be answered once.
    Anywhere,
}

#[derive(Debug)]
pub(crate) struct ClientQuestion {
    pub(crate) method: Box<str>,
    pub(crate) params: Option<RawJson>,
    pub(crate) answer: oneshot::Sender<Reply>,
    pub(crate) taker: AnswerScope,
}

impl ClientQuestion {
    pub(crate) fn mark(method: &str, params: Option<&RawValue>) -> QuestionDigest {
        digest(&[method, params.map_or("", RawValue::get)])
    }
}

struct ParkedRequest {
    ctx: RequestContext,
    questions: Vec<(String, ClientQuestion)>,
    timer: AbortHandle,
}

/// All requests that wait for their clients.
pub(crate) struct ParkedRequests {
    key: SealKey,
    /// Distinguishes our states from those of a gateway behind us, which pass to the service untouched.
    mark: String,
    ttl: Duration,
    waiting: Mutex<HashMap<[u8; HANDLE], ParkedRequest>>,
}

impl fmt::Debug for ParkedRequests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ParkedRequests").field("waiting", &lock(&self.waiting).len()).finish_non_exhaustive()
    }
}

/// The sealed part of a `requestState` that has our prefix.
pub(crate) enum SealedRequestState {
    Ours(String),
    Elsewhere(String),
}

/// A resumed request and the questions the client left open.
pub(crate) struct ResumedRequest {
    pub(crate) ctx: RequestContext,
    pub(crate) unanswered: Vec<ClientQuestion>,
}

impl ParkedRequests {
    pub(crate) fn new(key: SealKey, ttl: Duration) -> Arc<Self> {
        let mut instance = [0u8; 6];
        // Without randomness the mark is merely not unique; the seal still holds.
        let _ = SystemRandom::new().fill(&mut instance);
        let mark = format!("{PREFIX}{}.", URL_SAFE_NO_PAD.encode(instance));
        Arc::new(Self { key, mark, ttl, waiting: Mutex::default() })
    }

    fn binding(ctx_key: &str, method: &str) -> Vec<u8> {
        [ctx_key.as_bytes(), b"\0", method.as_bytes()].concat()
    }

    /// Parks a request and returns its `input_required` result.
    pub(crate) fn park(
        self: &Arc<Self>,
        ctx: RequestContext,
        questions: Vec<ClientQuestion>,
    ) -> Result<RawJson, AskFault> {
        let mut handle = [0u8; HANDLE];
        SystemRandom::new().fill(&mut handle).map_err(|_| AskFault::Gone)?;
        // Authenticated data of the seal: another principal or method cannot open the ticket.
        let binding = Self::binding(&ctx.session().identity().key, ctx.method());
        let ticket = ResumeTicket {
            handle,
            until: seconds().saturating_add(self.ttl.as_secs()),
            asked: milliseconds(),
            bound: ctx.bound().copied().unwrap_or(RequestBinding(HERE)),
            questions: questions
                .iter()
                .map(|question| match question.taker {
                    AnswerScope::Here => HERE,
                    AnswerScope::Anywhere => {
                        ClientQuestion::mark(&question.method, question.params.as_deref())
                    }
                })
                .collect(),
        };
        let sealed = self.key.seal(&ticket, &binding).ok_or(AskFault::Gone)?;
        let state = format!("{}{sealed}", self.mark);
        let questions: Vec<(String, ClientQuestion)> = questions
            .into_iter()
            .enumerate()
            .map(|(n, question)| (format!("q{}", n + 1), question))
            .collect();
        let mut texts: Vec<String> = Vec::new();
        for (name, question) in &questions {
            let params = question.params.as_deref().map_or("{}", RawValue::get);
            texts.push(format!(
                r#"{}:{{"method":{},"params":{params}}}"#,
                raw::to_raw(name.as_str()),
                raw::to_raw(&*question.method)
            ));
        }
        let text = format!(
            r#"{{"resultType":"input_required","inputRequests":{{{}}},"requestState":"{state}"}}"#,
            texts.join(",")
        );
        let result = raw::from_text(text).ok_or(AskFault::Gone)?;
        let mut waiting = lock(&self.waiting);
        let key = &ctx.session().identity().key;
        let of_one = waiting.values().filter(|parked| parked.ctx.session().identity().key == *key).count();
        // Parked requests cost memory until they expire; one principal must not fill the table.
        if waiting.len() >= LIMIT || of_one >= OF_ONE {
            return Err(AskFault::TooMany);
        }
        let timer = self.start_timer(handle);
        waiting.insert(handle, ParkedRequest { ctx, questions, timer });
        Ok(result)
    }

    fn start_timer(self: &Arc<Self>, handle: [u8; HANDLE]) -> AbortHandle {
        let (parking, ttl) = (Arc::downgrade(self), self.ttl);
        let wait = tokio::spawn(async move {
            tokio::time::sleep(ttl).await;
            let expired = parking.upgrade().and_then(|parking| lock(&parking.waiting).remove(&handle));
            if let Some(parked) = expired {
                // Dropping the questions reports the end to their askers. The handler may still finish; nobody reads its reply.
                parked.ctx.cancel();
            }
        });
        wait.abort_handle()
    }

    /// The state of a retry of a parked request, of this process or another.
    pub(crate) fn state_of(&self, request: &Request) -> Option<SealedRequestState> {
        let params = request.params.as_deref()?;
        memchr::memmem::find(params.get().as_bytes(), b"requestState")?;
        let state = raw::get_str(params, "requestState")?;
        if let Some(sealed) = state.strip_prefix(&*self.mark) {
            return Some(SealedRequestState::Ours(sealed.to_owned()));
        }
        let (_, sealed) = state.strip_prefix(PREFIX)?.split_once('.')?;
        Some(SealedRequestState::Elsewhere(sealed.to_owned()))
    }

    /// The answers to questions that another process with this key asked about the same request; `None` if the state is not sealed
    /// with this key, and passes untouched.
    pub(crate) fn carry(
        &self,
        sealed: &str,
        identity_key: &str,
        request: &Request,
    ) -> Result<Option<Vec<CarriedAnswer>>, RpcError> {
        let binding = Self::binding(identity_key, &request.method);
        let Some(ticket) = self.key.open(sealed, &binding) else { return Ok(None) };
        let params = request.params.as_deref();
        // The same question about other arguments is another question.
        if ticket.until < seconds() || ticket.bound != RequestBinding::of(params) {
            return Err(not_resumed());
        }
        let responses = params.and_then(|params| raw::get(params, "inputResponses"));
        let answers = ticket.questions.iter().enumerate().filter(|(_, mark)| **mark != HERE);
        let took = Duration::from_millis(milliseconds().saturating_sub(ticket.asked));
        let answers = answers.filter_map(|(number, mark)| {
            let answer = raw::get(responses?, &format!("q{}", number + 1))?.to_owned();
            Some(CarriedAnswer { mark: *mark, answer, took })
        });
        Ok(Some(answers.collect()))
    }

    /// Removes a parked request for good and delivers the answers to its askers.
    pub(crate) fn take(
        &self,
        sealed: &str,
        identity_key: &str,
        request: &Request,
    ) -> Result<ResumedRequest, RpcError> {
        let binding = Self::binding(identity_key, &request.method);
        let handle = self.key.open(sealed, &binding).ok_or_else(not_resumed)?.handle;
        let parked = {
            let mut waiting = lock(&self.waiting);
            // Compared before it is removed: a wrong retry must not use up the ticket.
            let same = waiting.get(&handle).is_some_and(|parked| {
                parked.ctx.bound() == Some(&RequestBinding::of(request.params.as_deref()))
            });
            if !same {
                return Err(not_resumed());
            }
            waiting.remove(&handle).ok_or_else(not_resumed)?
        };
        parked.timer.abort();
        let responses = request.params.as_deref().and_then(|params| raw::get(params, "inputResponses"));
        let mut unanswered = Vec::new();
        for (name, question) in parked.questions {
            match responses.and_then(|responses| raw::get(responses, &name)) {
                Some(response) => drop(question.answer.send(Ok(response.to_owned()))),
                // An asker that stopped waiting needs no new question.
                None if question.answer.is_closed() => {}
                None => unanswered.push(question),
            }
        }
        Ok(ResumedRequest { ctx: parked.ctx, unanswered })
    }
}

fn not_resumed() -> RpcError {
    RpcError::invalid_params(
        "`requestState` is unknown, expired, already used or of another call; call again without it",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jsonrpc::JsonRpcId;

    fn retry(arguments: &str) -> Request {
        let params = format!(
            r#"{{"name":"t","arguments":{arguments},"inputResponses":{{"q1":{{"n":1}},"q2":{{"n":2}},"q3":{{"n":3}}}}}}"#
        );
        Request { id: JsonRpcId::number(1), method: "tools/call".into(), params: raw::from_text(params) }
    }

    #[test]
    fn another_process_of_the_same_key_takes_answers_to_what_was_asked_about_the_same_call() {
        let key = SealKey::new(&[7; 32]);
        let there = ParkedRequests::new(key.clone(), Duration::from_secs(60));
        let marks = [ClientQuestion::mark("elicitation/create", None), HERE];
        let sealed = |until: u64| {
            let bound = RequestBinding::of(retry("{}").params.as_deref());
            let asked = milliseconds() - 2000;
            let ticket = ResumeTicket { handle: [1; HANDLE], until, asked, bound, questions: marks.to_vec() };
            key.seal(&ticket, &ParkedRequests::binding("ann", "tools/call")).unwrap()
        };
        let live = sealed(seconds() + 60);
        let answers = there.carry(&live, "ann", &retry("{}")).unwrap().unwrap();
        assert_eq!(answers.len(), 1, "only questions that say what they are about");
        assert_eq!((answers[0].mark, answers[0].answer.get()), (marks[0], r#"{"n":1}"#));
        assert!(answers[0].took >= Duration::from_secs(2), "it is known how long the client took");
        assert!(there.carry(&live, "ann", &retry(r#"{"all":true}"#)).is_err(), "other arguments");
        assert!(there.carry(&sealed(1), "ann", &retry("{}")).is_err(), "too late");
        assert!(there.carry(&live, "bob", &retry("{}")).unwrap().is_none(), "somebody else's");
        let foreign = ParkedRequests::new(SealKey::new(&[8; 32]), Duration::from_secs(60));
        assert!(foreign.carry(&live, "ann", &retry("{}")).unwrap().is_none(), "another key");
    }

    #[test]
    fn a_state_opens_only_where_it_was_sealed() {
        let key = SealKey::new(&[7; 32]);
        let ticket = || ResumeTicket {
            handle: [3; HANDLE],
            until: 9,
            asked: 8,
            bound: RequestBinding([4; DIGEST]),
            questions: vec![HERE],
        };
        let state = key.seal(&ticket(), b"ann\0tools/call").unwrap();
        assert_eq!(key.open(&state, b"ann\0tools/call"), Some(ticket()));
        assert_eq!(key.open(&state, b"bob\0tools/call"), None);
        assert_eq!(SealKey::new(&[8; 32]).open(&state, b"ann\0tools/call"), None);
        let mut forged = state.clone();
        forged.pop();
        assert_eq!(key.open(&forged, b"ann\0tools/call"), None);
        assert_eq!(key.open("", b""), None);
    }
}
