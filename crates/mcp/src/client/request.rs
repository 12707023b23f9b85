//! One request to an upstream, from the caller's params to the raw result: adds the era's keys and a progress token, bridges
//! questions, keeps the deadline. Everything else of the params stays byte for byte.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;
use tokio::task::JoinSet;

use super::connection::{Upstream, UpstreamLink};
use super::pending_requests::{ReplyWaiter, owned};
use super::{QuestionResponder, Questions, RequestOptions};
use crate::era::{Era, Version, key};
use crate::fault::{FaultKind, RequestFailure, TransportFault};
use crate::jsonrpc::{self, JsonRpcId, Reply, RpcError};
use crate::mirrored_headers;
use crate::raw::{self, MemberEdit, RawJson};

/// How often one request may come back with questions.
const ROUNDS: usize = 16;
/// The pause before a request is repeated for an upstream that asked nothing; grows with each round.
const EMPTY_ROUND: Duration = Duration::from_millis(50);

/// What a retry carries.
#[derive(Default)]
struct RetryPayload {
    responses: Option<RawJson>,
    state: Option<RawJson>,
}

impl Upstream {
    /// Sends a request and waits for its result, in the upstream's own era. Dropping the future cancels the request upstream. Nothing is
    /// sent twice, except a request with the answers to bridged questions.
    pub async fn request(
        &self,
        method: &str,
        params: Option<&RawValue>,
        options: RequestOptions,
    ) -> Result<RawJson, RequestFailure> {
        if self.era() == Era::Modern
            && let Some(result) = self.answer_locally(method, params).await
        {
            return result;
        }
        let asks = match &options.questions {
            Questions::PassThrough => None,
            Questions::Bridge(asks) => Some(asks),
        };
        let mut retry = RetryPayload::default();
        // Bounded: an upstream that asks for ever must not hold its caller for ever.
        for round in 0..ROUNDS {
            let result =
                self.exchange(method, params, &options, &retry).await?.map_err(RequestFailure::Rpc)?;
            let Some(asks) = asks else { return Ok(result) };
            if raw::get_text(result.get(), "resultType") != Some("\"input_required\"") {
                return Ok(result);
            }
            // A modern client answers by itself. Bridging is for clients that can only be asked by a request.
            if let Some(passed) = asks.pass_on(&result).await {
                return Ok(passed);
            }
            retry = answer_questions(asks, &result).await?;
            if retry.responses.is_none() {
                // A state without questions: the upstream wants to be asked again, but not at once.
                tokio::time::sleep(EMPTY_ROUND * u32::try_from(round + 1).unwrap_or(1)).await;
            }
        }
        Err(TransportFault::unknown(FaultKind::Protocol("the upstream keeps asking".into())).into())
    }

    /// Answers methods that a modern upstream no longer has but a legacy client still calls.
    async fn answer_locally(
        &self,
        method: &str,
        params: Option<&RawValue>,
    ) -> Option<Result<RawJson, RequestFailure>> {
        match method {
            // The level travels with every request of the client that set it (`RequestOptions::log_level`).
            "ping" | "logging/setLevel" => {}
            "resources/subscribe" | "resources/unsubscribe" => {
                let Some(uri) = params.and_then(|params| raw::get_str(params, "uri")) else {
                    return Some(Err(RequestFailure::Rpc(RpcError::invalid_params("`uri` is required"))));
                };
                // Modern upstreams have no subscribe request: the one listen stream is reopened with another filter.
                let mut filter = self.listening();
                filter.resource_subscriptions.retain(|known| *known != uri);
                if method == "resources/subscribe" {
                    filter.resource_subscriptions.push(uri.into_owned());
                }
                self.listen(filter).await;
            }
            _ => return None,
        }
        Some(Ok(raw::empty_object()))
    }

    async fn exchange(
        &self,
        method: &str,
        params: Option<&RawValue>,
        options: &RequestOptions,
        retry: &RetryPayload,
    ) -> Result<Reply, TransportFault> {
        let pending = self.pending();
        let id = pending.next_id();
        let token = params.and_then(|params| raw::get_in(params, &["_meta", "progressToken"]));
        let text = self.prepare(id, params, options, retry, token.is_some());
        let mut bytes = Vec::with_capacity(text.as_ref().map_or(0, |text| text.len()) + 96);
        jsonrpc::write_request(&mut bytes, &JsonRpcId::number(id), method, text.as_deref());
        let asks = match &options.questions {
            Questions::PassThrough => None,
            Questions::Bridge(asks) => Some(asks.clone()),
        };
        let token = token.map(ToOwned::to_owned);
        // Registered before it is sent: a quick reply must find its request.
        let waiter = pending.open(id, token, options.relay.is_some(), asks)?;
        let mut abandon = CancelOnDrop { link: self.link(), waiter };
        match self.link() {
            UpstreamLink::Stdio(link) => {
                // A child that does not read must not block its callers either.
                match options.deadline.limit() {
                    Some(limit) => tokio::time::timeout(limit, link.send(bytes))
                        .await
                        .map_err(|_| TransportFault::unsent(FaultKind::Timeout(limit)))??,
                    None => link.send(bytes).await?,
                }
                abandon.waiter.wait(options.relay.as_ref(), options.deadline).await
            }
            UpstreamLink::Http(link) => {
                let headers = match self.era() {
                    Era::Modern => mirrored_headers::outgoing(method, params, options.mirrors.as_deref()),
                    Era::Legacy => Vec::new(),
                };
                let send_and_read = link.send_and_read(id, bytes, headers);
                let wait = abandon.waiter.wait(options.relay.as_ref(), options.deadline);
                tokio::pin!(send_and_read, wait);
                let fault = tokio::select! {
                    // The reply first: the stream ends right after it, and that is no fault then.
                    biased;
                    reply = &mut wait => return reply,
                    ended = &mut send_and_read => match ended {
                        // The reply was delivered on the stream.
                        Ok(()) => return wait.await,
                        Err(fault) => fault,
                    },
                };
                Err(fault)
            }
        }
    }

    /// The params of a request of our own.
    pub(super) fn prepare_plain<'a>(
        &self,
        id: u64,
        params: &'a RawValue,
        options: &RequestOptions,
    ) -> Option<Cow<'a, str>> {
        self.prepare(id, Some(params), options, &RetryPayload::default(), false)
    }

    /// The params as they are sent; `None` where there are none.
    fn prepare<'a>(
        &self,
        id: u64,
        params: Option<&'a RawValue>,
        options: &RequestOptions,
        retry: &RetryPayload,
        has_token: bool,
    ) -> Option<Cow<'a, str>> {
        let identity = options.identity.as_ref().unwrap_or_else(|| self.identity());
        let (number, version) = (id.to_string(), format!("\"{}\"", Version::MODERN));
        let mut inner = Vec::with_capacity(5);
        if has_token {
            // Only with a receiver: an upstream should not report progress to nobody.
            inner.push(match options.relay {
                Some(_) => MemberEdit::Set("progressToken", &number),
                None => MemberEdit::Remove("progressToken"),
            });
        }
        match self.era() {
            Era::Modern => {
                inner.push(MemberEdit::Set(key::PROTOCOL_VERSION, &version));
                // The calling client's identity, not the gateway's: stateless upstreams decide by it what to ask and to offer.
                inner.push(MemberEdit::Set(key::CLIENT_CAPABILITIES, identity.capabilities.get()));
                inner.push(MemberEdit::Set(key::CLIENT_INFO, identity.client_info.get()));
                let own = params.and_then(|params| raw::get_in(params, &["_meta", key::LOG_LEVEL]));
                if let (Some(level), None) = (&options.log_level, own) {
                    inner.push(MemberEdit::Set(key::LOG_LEVEL, level));
                }
            }
            Era::Legacy => inner.extend([
                MemberEdit::Remove(key::PROTOCOL_VERSION),
                MemberEdit::Remove(key::CLIENT_CAPABILITIES),
                MemberEdit::Remove(key::CLIENT_INFO),
                MemberEdit::Remove(key::LOG_LEVEL),
            ]),
        }
        let text = params.map(RawValue::get);
        let meta = text.and_then(|text| raw::get_text(text, "_meta"));
        // Byte-true: without `_meta` there is nothing of ours to remove.
        if self.era() == Era::Legacy && meta.is_none() {
            return text.map(Cow::Borrowed);
        }
        let meta_text = raw::edit_text(meta.unwrap_or("{}"), &inner)?;
        let mut outer = Vec::with_capacity(3);
        outer.push(match (meta, meta_text.as_str()) {
            // An empty `_meta` of the caller stays; one that held only our own keys goes.
            (Some(before), "{}") if before != "{}" => MemberEdit::Remove("_meta"),
            _ => MemberEdit::Set("_meta", &meta_text),
        });
        if let Some(responses) = &retry.responses {
            outer.push(MemberEdit::Set("inputResponses", responses.get()));
        }
        if let Some(state) = &retry.state {
            outer.push(MemberEdit::Set("requestState", state.get()));
        }
        raw::edit_text(text.unwrap_or("{}"), &outer).map(Cow::Owned)
    }
}

/// Cancels a request when its caller stops waiting.
struct CancelOnDrop<'a> {
    link: &'a UpstreamLink,
    waiter: ReplyWaiter,
}

impl Drop for CancelOnDrop<'_> {
    fn drop(&mut self) {
        match self.link {
            UpstreamLink::Stdio(link) => link.cancel(&self.waiter, "no longer wanted"),
            UpstreamLink::Http(link) => link.cancel(&self.waiter, "no longer wanted"),
        }
    }
}

/// Answers all questions of an `input_required` result concurrently.
async fn answer_questions(
    asks: &Arc<dyn QuestionResponder>,
    result: &RawValue,
) -> Result<RetryPayload, RequestFailure> {
    let mut open = JoinSet::new();
    let questions = raw::get(result, "inputRequests").map(raw::members).unwrap_or_default();
    for (name, question) in questions {
        let method = raw::get_str(question, "method").unwrap_or_default().into_owned();
        let (asks, name, params) = (asks.clone(), name.into_owned(), owned(question, "params"));
        open.spawn(async move {
            let reply = asks.ask(&method, params).await;
            (name, method, reply)
        });
    }
    let mut responses: Option<RawJson> = None;
    while let Some(answered) = open.join_next().await {
        // A handler that panicked leaves its question unanswered; the upstream asks it again.
        let Ok((name, method, reply)) = answered else { continue };
        let answer = match reply {
            Ok(answer) => answer,
            // A question that cannot be asked counts as declined.
            Err(_) if method == "elicitation/create" => {
                raw::to_raw(&serde_json::json!({ "action": "cancel" }))
            }
            Err(error) => return Err(RequestFailure::Rpc(error)),
        };
        let all = responses.unwrap_or_else(raw::empty_object);
        responses = Some(raw::set(&all, &name, &answer).unwrap_or(all));
    }
    Ok(RetryPayload { responses, state: owned(result, "requestState") })
}
