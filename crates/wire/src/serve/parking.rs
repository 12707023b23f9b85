//! Requests of stateless clients that wait for an answer (`input_required`). The `requestState` the client carries is a sealed
//! handle: encrypted, bound to principal and method, good once and for a while. The request itself never leaves memory.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::fmt;
use std::hash::BuildHasher;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::rand::{SecureRandom, SystemRandom};
use serde_json::value::RawValue;
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

use super::ask::AskFault;
use super::ctx::Ctx;
use super::session::lock;
use crate::frame::{Reply, Request, RpcError};
use crate::raw::{self, Raw};

/// Marks a `requestState` as one of a gateway like ours; the instance's own mark follows.
const PREFIX: &str = "cs1.";
const HANDLE: usize = 16;
/// Most requests that may wait at once.
const LIMIT: usize = 4096;

/// The key that seals `requestState` values.
#[derive(Clone)]
pub struct SealKey(LessSafeKey);

impl SealKey {
    /// A key of 32 secret bytes.
    pub fn new(bytes: &[u8; 32]) -> Self {
        // INVARIANT (key length): ChaCha20-Poly1305 takes exactly 32 bytes, so this branch is never the fallback.
        match UnboundKey::new(&CHACHA20_POLY1305, bytes) {
            Ok(key) => Self(LessSafeKey::new(key)),
            Err(_) => Self::random(),
        }
    }

    /// A fresh key: parked requests do not outlive this process anyway.
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

    fn seal(&self, handle: &[u8; HANDLE], binding: &[u8]) -> Option<String> {
        let mut nonce = [0u8; NONCE_LEN];
        SystemRandom::new().fill(&mut nonce).ok()?;
        let mut sealed = handle.to_vec();
        self.0
            .seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::from(binding), &mut sealed)
            .ok()?;
        let mut whole = nonce.to_vec();
        whole.append(&mut sealed);
        Some(URL_SAFE_NO_PAD.encode(whole))
    }

    fn open(&self, sealed: &str, binding: &[u8]) -> Option<[u8; HANDLE]> {
        let mut whole = URL_SAFE_NO_PAD.decode(sealed).ok()?;
        let (nonce, sealed) = whole.split_at_mut_checked(NONCE_LEN)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        self.0.open_in_place(nonce, Aad::from(binding), sealed).ok()?.as_ref().try_into().ok()
    }
}

impl fmt::Debug for SealKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SealKey(***)")
    }
}

/// What a retry must repeat: the same target with the same arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bound(u64);

impl Bound {
    pub(crate) fn of(params: Option<&RawValue>) -> Self {
        static HASHER: OnceLock<RandomState> = OnceLock::new();
        let text = params.map_or("", RawValue::get);
        let part = |name| raw::get_text(text, name);
        Self(HASHER.get_or_init(RandomState::new).hash_one((part("name"), part("uri"), part("arguments"))))
    }
}

/// One question put to the client.
#[derive(Debug)]
pub(crate) struct Question {
    pub(crate) method: Box<str>,
    pub(crate) params: Option<Raw>,
    pub(crate) answer: oneshot::Sender<Reply>,
}

struct Parked {
    ctx: Ctx,
    questions: Vec<(String, Question)>,
    timer: AbortHandle,
}

/// All requests that wait for their clients.
pub(crate) struct Parking {
    key: SealKey,
    /// Tells our states from those of another gateway behind us; any but ours passes to the service untouched.
    mark: String,
    ttl: Duration,
    waiting: Mutex<HashMap<[u8; HANDLE], Parked>>,
}

impl fmt::Debug for Parking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parking").field("waiting", &lock(&self.waiting).len()).finish_non_exhaustive()
    }
}

/// The client came back: its request, and the questions it left open.
pub(crate) struct Return {
    pub(crate) ctx: Ctx,
    pub(crate) unanswered: Vec<Question>,
}

impl Parking {
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

    /// Parks a request and gives the `input_required` result that tells the client what to answer.
    pub(crate) fn park(self: &Arc<Self>, ctx: Ctx, questions: Vec<Question>) -> Result<Raw, AskFault> {
        let mut handle = [0u8; HANDLE];
        SystemRandom::new().fill(&mut handle).map_err(|_| AskFault::Gone)?;
        let binding = Self::binding(&ctx.session().tag().key, ctx.method());
        let sealed = self.key.seal(&handle, &binding).ok_or(AskFault::Gone)?;
        let state = format!("{}{sealed}", self.mark);
        let questions: Vec<(String, Question)> = questions
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
        if waiting.len() >= LIMIT {
            return Err(AskFault::TooMany);
        }
        let timer = self.start_timer(handle);
        waiting.insert(handle, Parked { ctx, questions, timer });
        Ok(result)
    }

    fn start_timer(self: &Arc<Self>, handle: [u8; HANDLE]) -> AbortHandle {
        let (parking, ttl) = (Arc::downgrade(self), self.ttl);
        let wait = tokio::spawn(async move {
            tokio::time::sleep(ttl).await;
            let expired = parking.upgrade().and_then(|parking| lock(&parking.waiting).remove(&handle));
            if let Some(parked) = expired {
                // Dropping the questions tells whoever asked; the handler may still finish, for nobody.
                parked.ctx.cancel();
            }
        });
        wait.abort_handle()
    }

    /// Whether a request is a retry of a parked one: the sealed part of its state, only where the state is ours.
    pub(crate) fn state_of(&self, request: &Request) -> Option<String> {
        let params = request.params.as_deref()?;
        memchr::memmem::find(params.get().as_bytes(), b"requestState")?;
        let state = raw::get_str(params, "requestState")?;
        state.strip_prefix(&*self.mark).map(str::to_owned)
    }

    /// Takes a parked request out, for good, and hands the answers to whoever asked.
    pub(crate) fn take(&self, sealed: &str, tag_key: &str, request: &Request) -> Result<Return, RpcError> {
        let refuse = || RpcError::invalid_params("`requestState` is unknown, expired or already used");
        let binding = Self::binding(tag_key, &request.method);
        let handle = self.key.open(sealed, &binding).ok_or_else(refuse)?;
        let parked = {
            let mut waiting = lock(&self.waiting);
            let same = waiting
                .get(&handle)
                .is_some_and(|parked| parked.ctx.bound() == Some(&Bound::of(request.params.as_deref())));
            if !same {
                return Err(refuse());
            }
            waiting.remove(&handle).ok_or_else(refuse)?
        };
        parked.timer.abort();
        let responses = request.params.as_deref().and_then(|params| raw::get(params, "inputResponses"));
        let mut unanswered = Vec::new();
        for (name, question) in parked.questions {
            match responses.and_then(|responses| raw::get(responses, &name)) {
                Some(response) => drop(question.answer.send(Ok(response.to_owned()))),
                // Whoever asked may have stopped waiting; then there is nothing to ask again.
                None if question.answer.is_closed() => {}
                None => unanswered.push(question),
            }
        }
        Ok(Return { ctx: parked.ctx, unanswered })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_opens_only_where_it_was_sealed() {
        let key = SealKey::new(&[7; 32]);
        let state = key.seal(&[3; HANDLE], b"ann\0tools/call").unwrap();
        assert_eq!(key.open(&state, b"ann\0tools/call"), Some([3; HANDLE]));
        assert_eq!(key.open(&state, b"bob\0tools/call"), None);
        assert_eq!(SealKey::new(&[8; 32]).open(&state, b"ann\0tools/call"), None);
        let mut forged = state.clone();
        forged.pop();
        assert_eq!(key.open(&forged, b"ann\0tools/call"), None);
        assert_eq!(key.open("", b""), None);
    }
}
