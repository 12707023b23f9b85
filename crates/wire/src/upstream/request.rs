//! One request to an upstream, from the caller's params to the raw result: era keys and progress token put in, questions
//! bridged, the deadline kept. Everything else of the params stays as it came.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;
use tokio::task::JoinSet;

use super::connect::{Link, Upstream};
use super::pending::{Waiter, owned};
use super::{Asks, Questions, RequestOptions};
use crate::era::{Era, Version, key};
use crate::fault::{Failure, FaultKind, WireFault};
use crate::frame::{self, Id, Reply, RpcError};
use crate::mirror;
use crate::raw::{self, Edit, Raw};

/// How often one request may come back with questions.
const ROUNDS: usize = 16;
/// How long to wait before an upstream that asked nothing is asked again, growing with each round.
const EMPTY_ROUND: Duration = Duration::from_millis(50);

/// What the client brings along when it asks again.
#[derive(Default)]
struct Retry {
    responses: Option<Raw>,
    state: Option<Raw>,
}

impl Upstream {
    /// Sends a request and waits for its result. Dropping the future cancels the request upstream. The result is as the
    /// upstream said it, in its own era; nothing is ever sent twice except a bridged question's answer.
    pub async fn request(
        &self,
        method: &str,
        params: Option<&RawValue>,
        options: RequestOptions,
    ) -> Result<Raw, Failure> {
        if self.era() == Era::Modern
            && let Some(result) = self.answer_locally(method, params).await
        {
            return result;
        }
        let asks = match &options.questions {
            Questions::PassThrough => None,
            Questions::Bridge(asks) => Some(asks),
        };
        let mut retry = Retry::default();
        for round in 0..ROUNDS {
            let result = self.exchange(method, params, &options, &retry).await?.map_err(Failure::Rpc)?;
            let Some(asks) = asks else { return Ok(result) };
            if raw::get_text(result.get(), "resultType") != Some("\"input_required\"") {
                return Ok(result);
            }
            if let Some(passed) = asks.pass_on(&result).await {
                return Ok(passed);
            }
            retry = answer_questions(asks, &result).await?;
            if retry.responses.is_none() {
                // Only a state and no question: the upstream wants to be asked again, not at once.
                tokio::time::sleep(EMPTY_ROUND * u32::try_from(round + 1).unwrap_or(1)).await;
            }
        }
        Err(WireFault::unknown(FaultKind::Protocol("the upstream keeps asking".into())).into())
    }

    /// Methods a modern upstream no longer has but a legacy client still calls.
    async fn answer_locally(&self, method: &str, params: Option<&RawValue>) -> Option<Result<Raw, Failure>> {
        match method {
            // The level travels with every request of the client that set it (`RequestOptions::log_level`).
            "ping" | "logging/setLevel" => {}
            "resources/subscribe" | "resources/unsubscribe" => {
                let Some(uri) = params.and_then(|params| raw::get_str(params, "uri")) else {
                    return Some(Err(Failure::Rpc(RpcError::invalid_params("`uri` is required"))));
                };
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

    /// One request and its reply.
    async fn exchange(
        &self,
        method: &str,
        params: Option<&RawValue>,
        options: &RequestOptions,
        retry: &Retry,
    ) -> Result<Reply, WireFault> {
        let hub = self.hub();
        let id = hub.next_id();
        let token = params.and_then(|params| raw::get_in(params, &["_meta", "progressToken"]));
        let text = self.prepare(id, params, options, retry, token.is_some());
        let mut bytes = Vec::with_capacity(text.as_ref().map_or(0, |text| text.len()) + 96);
        frame::write_request(&mut bytes, &Id::number(id), method, text.as_deref());
        let asks = match &options.questions {
            Questions::PassThrough => None,
            Questions::Bridge(asks) => Some(asks.clone()),
        };
        let token = token.map(ToOwned::to_owned);
        let waiter = hub.open(id, token, options.relay.is_some(), asks)?;
        let mut abandon = Abandon { link: self.link(), waiter };
        match self.link() {
            Link::Stdio(link) => {
                // A child that does not read must not hold its callers either.
                match options.deadline.limit() {
                    Some(limit) => tokio::time::timeout(limit, link.send(bytes))
                        .await
                        .map_err(|_| WireFault::unsent(FaultKind::Timeout(limit)))??,
                    None => link.send(bytes).await?,
                }
                abandon.waiter.wait(options.relay.as_ref(), options.deadline).await
            }
            Link::Http(link) => {
                let headers = match self.era() {
                    Era::Modern => mirror::outgoing(method, params, options.mirrors.as_deref()),
                    Era::Legacy => Vec::new(),
                };
                let pump = link.pump(id, bytes, headers);
                let wait = abandon.waiter.wait(options.relay.as_ref(), options.deadline);
                tokio::pin!(pump, wait);
                let fault = tokio::select! {
                    biased;
                    reply = &mut wait => return reply,
                    ended = &mut pump => match ended {
                        // The reply was delivered on the stream; take it.
                        Ok(()) => return wait.await,
                        Err(fault) => fault,
                    },
                };
                Err(fault)
            }
        }
    }

    /// The params of a request of our own as they go out.
    pub(super) fn prepare_plain<'a>(
        &self,
        id: u64,
        params: &'a RawValue,
        options: &RequestOptions,
    ) -> Option<Cow<'a, str>> {
        self.prepare(id, Some(params), options, &Retry::default(), false)
    }

    /// The params as they go out; `None` where there are none.
    fn prepare<'a>(
        &self,
        id: u64,
        params: Option<&'a RawValue>,
        options: &RequestOptions,
        retry: &Retry,
        has_token: bool,
    ) -> Option<Cow<'a, str>> {
        let identity = options.identity.as_ref().unwrap_or_else(|| self.identity());
        let (number, version) = (id.to_string(), format!("\"{}\"", Version::MODERN));
        let mut inner = Vec::with_capacity(5);
        if has_token {
            // Only where somebody listens: an upstream should not report to nobody.
            inner.push(match options.relay {
                Some(_) => Edit::Set("progressToken", &number),
                None => Edit::Remove("progressToken"),
            });
        }
        match self.era() {
            Era::Modern => {
                inner.push(Edit::Set(key::PROTOCOL_VERSION, &version));
                inner.push(Edit::Set(key::CLIENT_CAPABILITIES, identity.capabilities.get()));
                inner.push(Edit::Set(key::CLIENT_INFO, identity.client_info.get()));
                let own = params.and_then(|params| raw::get_in(params, &["_meta", key::LOG_LEVEL]));
                if let (Some(level), None) = (&options.log_level, own) {
                    inner.push(Edit::Set(key::LOG_LEVEL, level));
                }
            }
            Era::Legacy => inner.extend([
                Edit::Remove(key::PROTOCOL_VERSION),
                Edit::Remove(key::CLIENT_CAPABILITIES),
                Edit::Remove(key::CLIENT_INFO),
                Edit::Remove(key::LOG_LEVEL),
            ]),
        }
        let text = params.map(RawValue::get);
        let meta = text.and_then(|text| raw::get_text(text, "_meta"));
        if self.era() == Era::Legacy && meta.is_none() {
            return text.map(Cow::Borrowed);
        }
        let meta_text = raw::edit_text(meta.unwrap_or("{}"), &inner)?;
        let mut outer = Vec::with_capacity(3);
        outer.push(match (meta, meta_text.as_str()) {
            // An empty `_meta` the caller wrote stays; one that only held our own keys goes.
            (Some(before), "{}") if before != "{}" => Edit::Remove("_meta"),
            _ => Edit::Set("_meta", &meta_text),
        });
        if let Some(responses) = &retry.responses {
            outer.push(Edit::Set("inputResponses", responses.get()));
        }
        if let Some(state) = &retry.state {
            outer.push(Edit::Set("requestState", state.get()));
        }
        raw::edit_text(text.unwrap_or("{}"), &outer).map(Cow::Owned)
    }
}

/// Gives a request up if its caller stops waiting.
struct Abandon<'a> {
    link: &'a Link,
    waiter: Waiter,
}

impl Drop for Abandon<'_> {
    fn drop(&mut self) {
        match self.link {
            Link::Stdio(link) => link.cancel(&self.waiter, "no longer wanted"),
            Link::Http(link) => link.cancel(&self.waiter, "no longer wanted"),
        }
    }
}

/// Puts all questions of an `input_required` result to whoever answers, at once.
async fn answer_questions(asks: &Arc<dyn Asks>, result: &RawValue) -> Result<Retry, Failure> {
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
    let mut responses: Option<Raw> = None;
    while let Some(answered) = open.join_next().await {
        let Ok((name, method, reply)) = answered else { continue };
        let answer = match reply {
            Ok(answer) => answer,
            // Whoever cannot be asked has not agreed.
            Err(_) if method == "elicitation/create" => {
                raw::to_raw(&serde_json::json!({ "action": "cancel" }))
            }
            Err(error) => return Err(Failure::Rpc(error)),
        };
        let all = responses.unwrap_or_else(raw::empty_object);
        responses = Some(raw::set(&all, &name, &answer).unwrap_or(all));
    }
    Ok(Retry { responses, state: owned(result, "requestState") })
}
