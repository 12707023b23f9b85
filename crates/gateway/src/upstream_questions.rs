//! Questions an upstream puts to its user: elicitation and sampling. They reach the host only as the upstream's configuration
//! allows, with a first line of ours, at a limited rate, and each leaves a row. What the user answers is never recorded.

mod capabilities;
mod credentials;
mod review;

use std::sync::Arc;
use std::time::Duration;

use countersign_core::call::Caller;
use countersign_core::config::UpstreamAccess;
use countersign_core::digest::Digest;
use countersign_core::duration::Rate;
use countersign_core::ids::{PrincipalId, ToolName, UpstreamId};
use countersign_core::record::{RowKind, RowStatus};
use countersign_core::refusal::{Code, Refusal};
use countersign_core::rules::RuleName;
use countersign_store::Entry;
use countersign_wire::era::Era;
use countersign_wire::frame::{Notification, Reply, RpcError, code};
use countersign_wire::raw::{self, Raw};
use countersign_wire::serve::Ctx;
use countersign_wire::upstream::{Asks, Later, Relay};
use serde_json::json;
use serde_json::value::RawValue;

pub use self::capabilities::{declared, offered};
use self::review::Question;
use crate::house::House;
use crate::own_marks;
use crate::upstreams::{Upstream, UpstreamFault};

/// How many refused ones have rows: an upstream that never stops asking must not fill the ledger.
const REFUSED_ROWS: Rate = Rate { count: 60, window: Duration::from_secs(60) };
/// The most questions one result may hold.
const MOST_AT_ONCE: usize = 16;
/// `URLElicitationRequiredError` of 2025-11-25.
const URL_REQUIRED: i64 = -32042;
/// What the specification has for a sampling request that was turned down.
const SAMPLING_REJECTED: i64 = -1;

/// What stands between the questions of one upstream and the host of one request.
pub struct QuestionGate {
    house: Arc<House>,
    ctx: Ctx,
    caller: Caller,
    upstream: UpstreamId,
    /// Whether client and upstream both speak the stateless revision, where the client answers by itself.
    both_modern: bool,
}

impl QuestionGate {
    /// The gate for one request to one upstream.
    pub fn new(house: &Arc<House>, ctx: &Ctx, caller: &Caller, upstream: &dyn Upstream) -> Arc<Self> {
        Arc::new(Self {
            house: Arc::clone(house),
            ctx: ctx.clone(),
            caller: caller.clone(),
            upstream: upstream.id().clone(),
            both_modern: ctx.era() == Era::Modern && upstream.era() == Some("modern"),
        })
    }

    /// The request that is spoken for.
    pub fn ctx(&self) -> &Ctx {
        &self.ctx
    }

    /// What the configuration in force lets this upstream do.
    pub fn access(&self) -> UpstreamAccess {
        access(&self.house, &self.upstream)
    }

    /// What an upstream answered, with the questions in it governed: an error that asks for an address to be opened, and a task
    /// that waits for input.
    pub async fn checked(&self, answer: Result<Raw, UpstreamFault>) -> Result<Raw, UpstreamFault> {
        match &answer {
            Err(UpstreamFault::Rpc(error)) if error.code() == URL_REQUIRED => {
                Err(UpstreamFault::Rpc(self.checked_url_error(error).await))
            }
            Ok(result) if has_open_task_questions(result) => Ok(self.checked_task(result)),
            Ok(_) | Err(_) => answer,
        }
    }

    /// Records the answers a stateless client brings to questions that were passed on to it.
    pub async fn note_answers(&self, params: Option<&RawValue>) {
        let Some(answers) = params.and_then(|params| raw::get(params, "inputResponses")) else { return };
        for (_, answer) in raw::members(answers).into_iter().take(MOST_AT_ONCE) {
            let entry = self.row("inputResponses", RowStatus::Success).with_fact("action", action_of(answer));
            self.write(entry).await;
        }
    }

    /// Takes a place in the upstream's window.
    fn take(&self) -> Result<(), Refusal> {
        let rate = self.access().questions;
        self.take_of("questions", rate).map_err(|wait| {
            let message = format!("upstream `{}` asks more than {rate}", self.upstream);
            Refusal::new(Code::LimitExceeded, message)
                .with("retry_after_ms", u64::try_from(wait.as_millis()).unwrap_or(u64::MAX))
        })
    }

    fn take_of(&self, what: &str, rate: Rate) -> Result<(), Duration> {
        // Not a rule's name: those are places in a file.
        let window = RuleName(format!("{what} of upstream {}", self.upstream));
        self.house.usage.take(&window, &PrincipalId::new(""), rate, self.house.now())
    }

    async fn answer(&self, method: &str, params: Option<Raw>) -> Reply {
        if method == "roots/list" {
            return self.ctx.ask(method, params.as_deref()).await.map_err(RpcError::from);
        }
        let params = params.map(own_marks::removed);
        let question = Question { method, params: params.as_deref() };
        let asked = match question.review(&self.upstream, &self.access(), self.desk().as_deref()) {
            Ok(asked) => asked,
            Err(refusal) => return self.refuse(&question, refusal).await,
        };
        // Whoever offers no such dialog is not asked, and nothing is counted.
        if !self.ctx.can_ask(method, Some(&asked)) {
            return Err(RpcError::new(
                code::METHOD_NOT_FOUND,
                &format!("the client does not offer `{method}`"),
            ));
        }
        if let Err(refusal) = self.take() {
            return self.refuse(&question, refusal).await;
        }
        let reply = self.ctx.ask(method, Some(&asked)).await.map_err(RpcError::from);
        let action = reply.as_deref().map_or_else(|_| "none".to_owned(), action_of);
        self.write(self.asked_row(&question, RowStatus::Success).with_fact("action", action)).await;
        reply
    }

    fn desk(&self) -> Option<String> {
        self.house.law.load().desk_url.clone()
    }

    /// A question that does not reach the host: its row, and an answer the upstream can go on with.
    async fn refuse(&self, question: &Question<'_>, refusal: Refusal) -> Reply {
        if self.take_of("refused questions", REFUSED_ROWS).is_ok() {
            let mut entry =
                self.asked_row(question, RowStatus::Refused).with_fact("reason_code", refusal.reason_code);
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

    /// The result with every question labelled, where all of them may be asked and the client answers by itself.
    async fn labelled(&self, result: &RawValue) -> Option<Raw> {
        if !self.both_modern {
            return None;
        }
        let (labelled, questions) = self.reviewed(result, Refused::Stops)?;
        if questions.len() > usize::try_from(self.access().questions.count).unwrap_or(usize::MAX) {
            return None;
        }
        for question in &questions {
            self.take().ok()?;
            self.write(self.asked_row(&question.borrowed(), RowStatus::Pending)).await;
        }
        Some(labelled)
    }

    /// A task's state: questions that may not be asked are taken out, so that the task waits for nobody.
    fn checked_task(&self, result: &RawValue) -> Raw {
        let labelled = self.reviewed(result, Refused::LeavesOut).map(|(labelled, _)| labelled);
        labelled.or_else(|| raw::remove(result, "inputRequests")).unwrap_or_else(raw::empty_object)
    }

    /// Reviews the questions of `inputRequests`; none where one may not be asked and that stops the rest, or where there are too many.
    fn reviewed(&self, result: &RawValue, refused: Refused) -> Option<(Raw, Vec<OwnedQuestion>)> {
        let requests = raw::get(result, "inputRequests");
        let requests = requests.map(raw::members).unwrap_or_default();
        if requests.len() > MOST_AT_ONCE {
            return None;
        }
        let (access, desk) = (self.access(), self.desk());
        // A request that looks at a task need not repeat what its client can be asked: the call that made the task said it.
        let is_open = |method: &str, asked: &Raw| {
            matches!(refused, Refused::LeavesOut)
                || method == "roots/list"
                || self.ctx.can_ask(method, Some(asked))
        };
        let (mut kept, mut questions) = (raw::empty_object(), Vec::new());
        for (name, request) in requests {
            let method = raw::get_str(request, "method").unwrap_or_default().into_owned();
            let params = raw::get(request, "params");
            let question = Question { method: &method, params };
            let asked = match question.review(&self.upstream, &access, desk.as_deref()) {
                Ok(asked) if is_open(&method, &asked) => asked,
                Ok(_) | Err(_) => match refused {
                    Refused::Stops => return None,
                    Refused::LeavesOut => continue,
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
        let items: Vec<Raw> = data.and_then(|list| serde_json::from_str(list.get()).ok()).unwrap_or_default();
        let mut labelled = Vec::new();
        for item in items.into_iter().take(MOST_AT_ONCE) {
            let params = raw::set(&item, "mode", &raw::to_raw("url")).unwrap_or(item);
            let question = Question { method: "elicitation/create", params: Some(&params) };
            let checked = question.review(&self.upstream, &self.access(), self.desk().as_deref());
            let checked = checked.and_then(|asked| self.take().map(|()| asked));
            match checked {
                Ok(asked) => {
                    self.write(self.asked_row(&question, RowStatus::Pending)).await;
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
        entry.upstream = Some(self.upstream.clone());
        entry.tool = Some(ToolName::new(method));
        entry
    }

    fn asked_row(&self, question: &Question<'_>, status: RowStatus) -> Entry {
        // A method is the upstream's own word: a long one is cut, its digest is whole.
        let method = crate::escape::excerpt(question.method, 80);
        let entry = self.row(&method, status).with_fact("during", self.ctx.method());
        let digest = Digest::plain(question.said().as_bytes()).hex();
        let mode = question.mode();
        entry.with_fact("message_digest", digest).with_fact("mode", mode.as_deref())
    }

    async fn write(&self, entry: Entry) {
        if let Err(fault) = self.house.store.append(entry, self.house.now()).await {
            let (incident, fault) = (fault.incident(), fault.inside());
            tracing::error!(incident, fault, "a question could not be recorded");
        }
    }
}

/// What a question that may not be asked does to those beside it.
#[derive(Clone, Copy)]
enum Refused {
    /// None of them passes.
    Stops,
    /// It alone is left out.
    LeavesOut,
}

struct OwnedQuestion {
    method: String,
    params: Option<Raw>,
}

impl OwnedQuestion {
    fn borrowed(&self) -> Question<'_> {
        Question { method: &self.method, params: self.params.as_deref() }
    }
}

/// What the configuration in force lets an upstream do.
pub fn access(house: &House, upstream: &UpstreamId) -> UpstreamAccess {
    house.law.load().config.upstream(upstream).map(|written| written.access.clone()).unwrap_or_default()
}

/// Whether a result tells of a task that waits for input; those of a call are governed before they come here.
fn has_open_task_questions(result: &RawValue) -> bool {
    raw::get(result, "inputRequests").is_some()
        && raw::get_text(result.get(), "resultType") != Some("\"input_required\"")
}

/// What was done with a question: never what was filled in.
fn action_of(answer: &RawValue) -> String {
    match raw::get_str(answer, "action").as_deref() {
        Some(word @ ("accept" | "decline" | "cancel")) => word.to_owned(),
        _ => "answered".to_owned(),
    }
}

impl Asks for QuestionGate {
    fn ask<'a>(&'a self, method: &'a str, params: Option<Raw>) -> Later<'a, Reply> {
        Box::pin(self.answer(method, params))
    }

    fn pass_on<'a>(&'a self, result: &'a RawValue) -> Later<'a, Option<Raw>> {
        Box::pin(self.labelled(result))
    }
}

impl Relay for QuestionGate {
    fn notification(&self, notification: Notification) -> Later<'_, ()> {
        Relay::notification(&self.ctx, own_marks::removed_from_notification(notification))
    }
}
