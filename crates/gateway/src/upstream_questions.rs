//! Elicitation and sampling requests of upstreams. They reach the host only as the upstream's configuration allows, with a first line of
//! ours, at a limited rate, and each leaves a row. The user's answers are never recorded.

mod capabilities;
mod credentials;
mod review;

use std::sync::Arc;
use std::time::Duration;

use countersign_config::UpstreamAccess;
use countersign_mcp::client::{BoxFuture, NotificationRelay, QuestionResponder};
use countersign_mcp::era::Era;
use countersign_mcp::jsonrpc::{Notification, Reply, RpcError, code};
use countersign_mcp::raw::{self, RawJson};
use countersign_mcp::server::RequestContext;
use countersign_policy::call::Caller;
use countersign_policy::digest::Digest;
use countersign_policy::duration::RateLimit;
use countersign_policy::ids::{PrincipalId, ToolName, UpstreamId};
use countersign_policy::record::{RowKind, RowStatus};
use countersign_policy::refusal::{Code, Refusal};
use countersign_policy::rules::RuleName;
use countersign_store::Entry;
use serde_json::json;
use serde_json::value::RawValue;

pub(crate) use self::capabilities::with_roots;
pub(crate) use self::capabilities::{declared, offered};
use self::review::UpstreamQuestion;
use crate::own_marks;
use crate::state::GatewayState;
use crate::upstreams::{Upstream, UpstreamFault};

/// How many refused questions have rows: an upstream that never stops asking must not fill the ledger.
const REFUSED_ROWS: RateLimit = RateLimit { count: 60, window: Duration::from_secs(60) };
const MOST_AT_ONCE: usize = 16;
/// `URLElicitationRequiredError` of 2025-11-25.
const URL_REQUIRED: i64 = -32042;
/// The specification's error code for a rejected sampling request.
const SAMPLING_REJECTED: i64 = -1;

/// Governs the questions of one upstream during one request.
pub(crate) struct QuestionGate {
    gateway: Arc<GatewayState>,
    ctx: RequestContext,
    caller: Caller,
    upstream: UpstreamId,
    /// Whether client and upstream are both stateless, so that the client answers by itself.
    both_modern: bool,
}

impl QuestionGate {
    pub(crate) fn new(
        gateway: &Arc<GatewayState>,
        ctx: &RequestContext,
        caller: &Caller,
        upstream: &dyn Upstream,
    ) -> Arc<Self> {
        Arc::new(Self {
            gateway: Arc::clone(gateway),
            ctx: ctx.clone(),
            caller: caller.clone(),
            upstream: upstream.id().clone(),
            both_modern: ctx.era() == Era::Modern && upstream.era() == Some("modern"),
        })
    }

    pub(crate) fn ctx(&self) -> &RequestContext {
        &self.ctx
    }

    /// The upstream's current configuration.
    pub(crate) fn access(&self) -> UpstreamAccess {
        access(&self.gateway, &self.upstream)
    }

    /// Governs the questions inside an error that asks to open a URL, and inside a task that waits for input.
    pub(crate) async fn checked(
        &self,
        answer: Result<RawJson, UpstreamFault>,
    ) -> Result<RawJson, UpstreamFault> {
        match &answer {
            Err(UpstreamFault::Rpc(error)) if error.code() == URL_REQUIRED => {
                Err(UpstreamFault::Rpc(self.checked_url_error(error).await))
            }
            Ok(result) if has_open_task_questions(result) => Ok(self.checked_task(result)),
            Ok(_) | Err(_) => answer,
        }
    }

    /// Records the answers a stateless client brings to questions that were passed on to it.
    pub(crate) async fn note_answers(&self, params: Option<&RawValue>) {
        let Some(answers) = params.and_then(|params| raw::get(params, "inputResponses")) else { return };
        for (_, answer) in raw::members(answers).into_iter().take(MOST_AT_ONCE) {
            let entry = self.row("inputResponses", RowStatus::Success).with_fact("action", action_of(answer));
            self.write(entry).await;
        }
    }

    /// Takes a place in the upstream's rate limit.
    fn take_from_limit(&self) -> Result<(), Refusal> {
        let rate = self.access().questions;
        self.take_from_limit_of("questions", rate).map_err(|wait| {
            let message = format!("upstream `{}` asks more than {rate}", self.upstream);
            Refusal::new(Code::LimitExceeded, message)
                .with("retry_after_ms", u64::try_from(wait.as_millis()).unwrap_or(u64::MAX))
        })
    }

    fn take_from_limit_of(&self, what: &str, rate: RateLimit) -> Result<(), Duration> {
        // Not the name of a rule: those are positions in a file.
        let window = RuleName(format!("{what} of upstream {}", self.upstream));
        self.gateway.usage.take(&window, &PrincipalId::new(""), rate, self.gateway.now())
    }

    async fn answer(&self, method: &str, params: Option<RawJson>) -> Reply {
        if method == "roots/list" {
            return self.ctx.ask(method, params.as_deref()).await.map_err(RpcError::from);
        }
        let params = params.map(own_marks::removed);
        let question = UpstreamQuestion { method, params: params.as_deref() };
        let asked = match question.review(&self.upstream, &self.access(), self.desk().as_deref()) {
            Ok(asked) => asked,
            Err(refusal) => return self.refuse(&question, refusal).await,
        };
        // A client without such a dialog is not asked, and nothing is counted.
        if !self.ctx.can_ask(method, Some(&asked)) {
            return Err(RpcError::new(
                code::METHOD_NOT_FOUND,
                &format!("the client does not offer `{method}`"),
            ));
        }
        if let Err(refusal) = self.take_from_limit() {
            return self.refuse(&question, refusal).await;
        }
        let reply = self.ctx.ask(method, Some(&asked)).await.map_err(RpcError::from);
        let action = reply.as_deref().map_or_else(|_| "none".to_owned(), action_of);
        self.write(self.question_row(&question, RowStatus::Success).with_fact("action", action)).await;
        reply
    }

    fn desk(&self) -> Option<String> {
        self.gateway.policy.load().desk_url.clone()
    }

    /// Refuses a question: writes its row and answers the upstream.
    async fn refuse(&self, question: &UpstreamQuestion<'_>, refusal: Refusal) -> Reply {
        if self.take_from_limit_of("refused questions", REFUSED_ROWS).is_ok() {
            let mut entry =
                self.question_row(question, RowStatus::Refused).with_fact("reason_code", refusal.reason_code);
            entry.code = Some(refusal.code.as_str().to_owned());
            self.write(entry).await;
        }
        let data = json!({"code": refusal.code.as_str(), "details": refusal.details_value()});
        match (question.method, refusal.reason_code) {
            ("elicitation/create", reason) if reason != "question_not_allowed" => {
                Ok(raw::to_raw(&json!({"action": "decline"})))
            }
            ("sampling/createMessage", "rate_limited") => {
                Err(RpcError::with_data(SAMPLING_REJECTED, &refusal.message, &data))
            }
            _ => Err(RpcError::with_data(code::METHOD_NOT_FOUND, &refusal.message, &data)),
        }
    }

    /// Labels every question of the result, if all of them may be asked and the client answers by itself.
    async fn labelled(&self, result: &RawValue) -> Option<RawJson> {
        if !self.both_modern {
            return None;
        }
        let (labelled, questions) = self.reviewed(result, RefusalScope::Stops)?;
        if questions.len() > usize::try_from(self.access().questions.count).unwrap_or(usize::MAX) {
            return None;
        }
        for question in &questions {
            self.take_from_limit().ok()?;
            self.write(self.question_row(&question.borrowed(), RowStatus::Pending)).await;
        }
        Some(labelled)
    }

    /// Removes the questions of a task that may not be asked, so that it does not wait for them.
    fn checked_task(&self, result: &RawValue) -> RawJson {
        let labelled = self.reviewed(result, RefusalScope::LeavesOut).map(|(labelled, _)| labelled);
        labelled.or_else(|| raw::remove(result, "inputRequests")).unwrap_or_else(raw::empty_object)
    }

    /// Reviews the questions of `inputRequests`; none if there are too many, or if one may not be asked and that stops the rest.
    fn reviewed(&self, result: &RawValue, refused: RefusalScope) -> Option<(RawJson, Vec<OwnedQuestion>)> {
        let requests = raw::get(result, "inputRequests");
        let requests = requests.map(raw::members).unwrap_or_default();
        if requests.len() > MOST_AT_ONCE {
            return None;
        }
        let (access, desk) = (self.access(), self.desk());
        // A request about a task need not repeat the client's capabilities: the call that made the task declared them.
        let is_open = |method: &str, asked: &RawJson| {
            matches!(refused, RefusalScope::LeavesOut)
                || method == "roots/list"
                || self.ctx.can_ask(method, Some(asked))
        };
        let (mut kept, mut questions) = (raw::empty_object(), Vec::new());
        for (name, request) in requests {
            let method = raw::get_str(request, "method").unwrap_or_default().into_owned();
            let params = raw::get(request, "params");
            let question = UpstreamQuestion { method: &method, params };
            let asked = match question.review(&self.upstream, &access, desk.as_deref()) {
                Ok(asked) if is_open(&method, &asked) => asked,
                Ok(_) | Err(_) => match refused {
                    RefusalScope::Stops => return None,
                    RefusalScope::LeavesOut => continue,
                },
            };
            let request = raw::set(request, "params", &asked)?;
            kept = raw::set(&kept, &name, &request)?;
            if method != "roots/list" {
                questions.push(OwnedQuestion { method, params: params.map(ToOwned::to_owned) });
            }
        }
        Some((raw::set(result, "inputRequests", &kept)?, questions))
    }

    async fn checked_url_error(&self, error: &RpcError) -> RpcError {
        let data = raw::get_in(error.as_raw(), &["data", "elicitations"]);
        let items: Vec<RawJson> =
            data.and_then(|list| serde_json::from_str(list.get()).ok()).unwrap_or_default();
        let mut labelled = Vec::new();
        for item in items.into_iter().take(MOST_AT_ONCE) {
            let params = raw::set(&item, "mode", &raw::to_raw("url")).unwrap_or(item);
            let question = UpstreamQuestion { method: "elicitation/create", params: Some(&params) };
            let checked = question.review(&self.upstream, &self.access(), self.desk().as_deref());
            let checked = checked.and_then(|asked| self.take_from_limit().map(|()| asked));
            match checked {
                Ok(asked) => {
                    self.write(self.question_row(&question, RowStatus::Pending)).await;
                    labelled.push(asked);
                }
                Err(refusal) => {
                    let message = refusal.message.clone();
                    let told = json!({"code": refusal.code.as_str(), "details": refusal.details_value()});
                    let _ = self.refuse(&question, refusal).await;
                    return RpcError::with_data(code::INTERNAL, &message, &told);
                }
            }
        }
        let message = format!("upstream `{}` asks for an address to be opened first", self.upstream);
        RpcError::with_data(URL_REQUIRED, &message, &json!({"elicitations": labelled}))
    }

    fn row(&self, method: &str, status: RowStatus) -> Entry {
        let mut entry = Entry::new(RowKind::Question, status).with_fact("method", method);
        entry.principal = Some(self.caller.principal.clone());
        entry.role = Some(self.caller.role.into());
        entry.session = Some(self.caller.session.clone());
        entry.source = Some(self.caller.source);
        entry.set_host(self.caller.host.as_ref());
        entry.upstream = Some(self.upstream.clone());
        entry.tool = Some(ToolName::new(method));
        entry
    }

    fn question_row(&self, question: &UpstreamQuestion<'_>, status: RowStatus) -> Entry {
        // The method comes from the upstream: a long one is cut, its digest is complete.
        let method = crate::escape::excerpt(question.method, 80);
        let entry = self.row(&method, status).with_fact("during", self.ctx.method());
        let digest = Digest::plain(question.text().as_bytes()).hex();
        let mode = question.mode();
        entry.with_fact("message_digest", digest).with_fact("mode", mode.as_deref())
    }

    async fn write(&self, entry: Entry) {
        if let Err(fault) = self.gateway.store.append(entry, self.gateway.now()).await {
            let (incident, fault) = (fault.incident(), fault.inside());
            tracing::error!(incident, fault, "a question could not be recorded");
        }
    }
}

/// What a question that may not be asked means for the others.
#[derive(Clone, Copy)]
enum RefusalScope {
    Stops,
    LeavesOut,
}

struct OwnedQuestion {
    method: String,
    params: Option<RawJson>,
}

impl OwnedQuestion {
    fn borrowed(&self) -> UpstreamQuestion<'_> {
        UpstreamQuestion { method: &self.method, params: self.params.as_deref() }
    }
}

/// The upstream's current configuration.
pub(crate) fn access(gateway: &GatewayState, upstream: &UpstreamId) -> UpstreamAccess {
    gateway.policy.load().config.upstream(upstream).map(|written| written.access.clone()).unwrap_or_default()
}

/// Whether a result reports a task that waits for input; results of calls are governed before.
fn has_open_task_questions(result: &RawValue) -> bool {
    raw::get(result, "inputRequests").is_some()
        && raw::get_text(result.get(), "resultType") != Some("\"input_required\"")
}

/// The outcome of a question, without the user's input.
fn action_of(answer: &RawValue) -> String {
    match raw::get_str(answer, "action").as_deref() {
        Some(word @ ("accept" | "decline" | "cancel")) => word.to_owned(),
        _ => "answered".to_owned(),
    }
}

impl QuestionResponder for QuestionGate {
    fn ask<'a>(&'a self, method: &'a str, params: Option<RawJson>) -> BoxFuture<'a, Reply> {
        Box::pin(self.answer(method, params))
    }

    fn pass_on<'a>(&'a self, result: &'a RawValue) -> BoxFuture<'a, Option<RawJson>> {
        Box::pin(self.labelled(result))
    }
}

impl NotificationRelay for QuestionGate {
    fn notification(&self, notification: Notification) -> BoxFuture<'_, ()> {
        NotificationRelay::notification(&self.ctx, own_marks::removed_from_notification(notification))
    }
}
