//! Spans of requests and their stages, as `tracing` spans for export. They carry names, effects, decisions, codes and durations, never an
//! argument, a result or a secret, and no name that only a client made up. The log does not show them: it has its own request span.
//! Without a subscriber that exports them a span is a disabled one and costs next to nothing.

use std::borrow::Cow;
use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use countersign_mcp::jsonrpc::Reply;
use countersign_mcp::raw::{self, MemberEdit, RawJson};
use countersign_policy::gate::Verdict;
use countersign_policy::record::CallRecord;
use countersign_policy::refusal::Code;
use serde_json::value::RawValue;
use tracing::field::Empty;
use tracing::{Instrument as _, Span, info_span};

use crate::answer::Answer;
use crate::call_log::micros_since;
use crate::upstreams::UpstreamFault;

/// The target of exported spans: a layer that exports selects it, the log does not.
pub const SPAN_TARGET: &str = "request_trace";

/// The keys of `_meta` that hold the trace context (W3C Trace Context; MCP's SEP-414).
const PARENT: &str = "traceparent";
const STATE: &str = "tracestate";

/// Longer texts are ignored; a `tracestate` may have 512 characters and more.
const MAX_CONTEXT_BYTES: usize = 4096;

/// The methods a span may be named after: a name that a client made up is not exported.
const METHODS: [&str; 16] = [
    "completion/complete",
    "logging/setLevel",
    "prompts/get",
    "prompts/list",
    "resources/list",
    "resources/read",
    "resources/subscribe",
    "resources/templates/list",
    "resources/unsubscribe",
    "tasks/cancel",
    "tasks/get",
    "tasks/list",
    "tasks/result",
    "tasks/update",
    "tools/call",
    "tools/list",
];

const OTHER_METHOD: &str = "request";

fn span_name(method: &str) -> &'static str {
    METHODS.iter().find(|known| **known == method).copied().unwrap_or(OTHER_METHOD)
}

/// A position in a trace, as W3C Trace Context writes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TraceContext {
    /// `traceparent`.
    pub parent: String,
    /// `tracestate`; empty where there is none.
    pub state: String,
}

impl TraceContext {
    /// The context a request names. The bridge checks whether it is well formed.
    fn from_params(params: Option<&RawValue>) -> Option<Self> {
        let text = |key| {
            let text = raw::get_str_in(params?, &["_meta", key])?;
            (text.len() <= MAX_CONTEXT_BYTES).then(|| text.into_owned())
        };
        Some(Self { parent: text(PARENT)?, state: text(STATE).unwrap_or_default() })
    }
}

/// Connects spans with the trace context of requests. The telemetry crate implements it: the gateway knows no OpenTelemetry.
pub trait TraceContextBridge: Send + Sync {
    /// Makes a new span part of a client's trace; ignores a context that is malformed.
    fn set_parent(&self, span: &Span, context: &TraceContext);

    /// The context to send along with a request made in this span.
    fn context(&self, span: &Span) -> Option<TraceContext>;

    /// Renames a span: the tool is known only after the span has begun.
    fn set_name(&self, span: &Span, name: String);
}

pub(crate) type SpanAttribute = (&'static str, Cow<'static, str>);

/// What is known at the end of a request, recorded once: an attribute that is recorded twice would be exported twice.
#[derive(Debug, Default)]
struct SpanOutcome {
    /// The tool, once it is known; the span's name ends with it.
    target: Option<String>,
    attributes: Vec<SpanAttribute>,
    fault: Option<Cow<'static, str>>,
}

impl SpanOutcome {
    fn set(&mut self, key: &'static str, value: Cow<'static, str>) {
        match self.attributes.iter_mut().find(|(known, _)| *known == key) {
            Some((_, old)) => *old = value,
            None => self.attributes.push((key, value)),
        }
    }
}

/// The span of a request; ends when the last task of the request drops it.
struct RequestSpan {
    span: Span,
    name: &'static str,
    bridge: Option<Arc<dyn TraceContextBridge>>,
    outcome: Mutex<SpanOutcome>,
}

impl RequestSpan {
    fn update(&self, work: impl FnOnce(&mut SpanOutcome)) {
        work(&mut self.outcome.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

impl Drop for RequestSpan {
    fn drop(&mut self) {
        let outcome = std::mem::take(&mut *self.outcome.lock().unwrap_or_else(PoisonError::into_inner));
        if let (Some(bridge), Some(target)) = (&self.bridge, outcome.target) {
            bridge.set_name(&self.span, format!("{} {target}", self.name));
        }
        for (key, value) in outcome.attributes {
            self.span.record(key, &*value);
        }
        record_fault(&self.span, outcome.fault.as_deref());
    }
}

fn record_fault(span: &Span, fault: Option<&str>) {
    if let Some(fault) = fault {
        span.record("error.type", fault);
        span.record("otel.status_description", fault);
    }
}

tokio::task_local! {
    static REQUEST: Arc<RequestSpan>;
}

/// The fault of a request whose client did not wait for its answer.
const CANCELLED: &str = "cancelled";

/// Answers a request inside a span of the client's trace.
pub async fn served(
    bridge: Option<&Arc<dyn TraceContextBridge>>,
    method: &str,
    params: Option<&RawValue>,
    attributes: impl FnOnce() -> Vec<SpanAttribute>,
    work: impl Future<Output = Reply>,
) -> Reply {
    let name = span_name(method);
    let span = info_span!(
        target: SPAN_TARGET, parent: None, "request",
        otel.kind = "server", otel.name = name, mcp.method.name = name, network.transport = Empty,
        gen_ai.tool.name = Empty, gen_ai.operation.name = Empty, countersign.role = Empty,
        countersign.upstream = Empty, countersign.effect = Empty, countersign.mode = Empty,
        countersign.decision = Empty, countersign.code = Empty, countersign.request_id = Empty,
        countersign.plan_id = Empty, countersign.ledger_id = Empty, error.type = Empty,
        otel.status_description = Empty,
    );
    if span.is_disabled() {
        return work.await;
    }
    if let (Some(bridge), Some(context)) = (bridge, TraceContext::from_params(params)) {
        bridge.set_parent(&span, &context);
    }
    // Until there is an answer: a client that leaves before it leaves this.
    let outcome = SpanOutcome { target: None, attributes: attributes(), fault: Some(CANCELLED.into()) };
    let (bridge, outcome) = (bridge.cloned(), Mutex::new(outcome));
    let request = Arc::new(RequestSpan { span, name, bridge, outcome });
    // Boxed: without an export the future of a request has no room for this.
    Box::pin(answer_in(request, work)).await
}

async fn answer_in(request: Arc<RequestSpan>, work: impl Future<Output = Reply>) -> Reply {
    let work = work.instrument(request.span.clone());
    let reply = REQUEST.scope(Arc::clone(&request), work).await;
    request.update(|outcome| {
        let unanswered = outcome.fault.as_deref() == Some(CANCELLED);
        outcome.fault = match &reply {
            Err(error) if unanswered => Some(error.code().to_string().into()),
            Ok(_) if unanswered => None,
            Ok(_) | Err(_) => outcome.fault.take(),
        };
    });
    reply
}

/// Work that no request asked for, in a span of its own.
pub async fn own<T>(
    bridge: Option<&Arc<dyn TraceContextBridge>>,
    name: &'static str,
    work: impl Future<Output = T>,
) -> T {
    let span = info_span!(
        target: SPAN_TARGET, parent: None, "own work",
        otel.kind = "internal", otel.name = name,
        gen_ai.tool.name = Empty, gen_ai.operation.name = Empty, countersign.upstream = Empty,
        countersign.effect = Empty, countersign.mode = Empty, countersign.decision = Empty,
        countersign.code = Empty, countersign.request_id = Empty, countersign.plan_id = Empty,
        countersign.ledger_id = Empty, error.type = Empty, otel.status_description = Empty,
    );
    if span.is_disabled() {
        return work.await;
    }
    let request =
        RequestSpan { span: span.clone(), name, bridge: bridge.cloned(), outcome: Mutex::default() };
    REQUEST.scope(Arc::new(request), work.instrument(span)).await
}

/// Work for the current request, to be done in a task of its own.
pub fn carried<T>(work: impl Future<Output = T>) -> impl Future<Output = T> {
    let (request, current) = (REQUEST.try_with(Clone::clone).ok(), Span::current());
    async move {
        // The current span may be one of the log: the exporter finds its parent among the entered spans only.
        match request {
            Some(request) => {
                let span = request.span.clone();
                REQUEST.scope(request, work.instrument(current)).instrument(span).await
            }
            None => work.await,
        }
    }
}

/// A stage of the current request. Large futures are passed pinned: a future that is passed by value is stored in each of the futures
/// it goes through.
pub async fn part<T>(name: &'static str, work: impl Future<Output = T>) -> T {
    let span = match in_request() {
        true => info_span!(target: SPAN_TARGET, "stage", otel.kind = "internal", otel.name = name),
        false => Span::none(),
    };
    timed(name, pin!(work.instrument(span))).await
}

fn in_request() -> bool {
    REQUEST.try_with(|_| ()).is_ok()
}

async fn timed<T>(name: &'static str, work: impl Future<Output = T>) -> T {
    let started = tracing::enabled!(tracing::Level::DEBUG).then(Instant::now);
    let done = work.await;
    if let Some(started) = started {
        tracing::debug!(stage = name, micros = micros_since(started), "stage ended");
    }
    done
}

/// A request to an upstream on behalf of the current one. `work` gets the params to send where they differ from those that came: our span
/// is the parent of the upstream's.
pub async fn sent<W>(
    upstream: &str,
    method: &str,
    tool: Option<&str>,
    params: Option<&RawValue>,
    work: impl FnOnce(Option<RawJson>) -> W,
) -> Result<RawJson, UpstreamFault>
where
    W: Future<Output = Result<RawJson, UpstreamFault>>,
{
    let name = span_name(method);
    let span = match in_request() {
        true => info_span!(
            target: SPAN_TARGET, "upstream request",
            otel.kind = "client",
            otel.name = tool.map_or_else(|| name.to_owned(), |tool| format!("{name} {tool}")),
            mcp.method.name = name, countersign.upstream = upstream, gen_ai.tool.name = tool,
            error.type = Empty, otel.status_description = Empty,
        ),
        false => Span::none(),
    };
    let doing = work(with_trace_context(&span, params)).instrument(span.clone());
    let answer = timed(name, pin!(doing)).await;
    record_fault(&span, fault_of(&answer).as_deref());
    answer
}

fn fault_of(answer: &Result<RawJson, UpstreamFault>) -> Option<Cow<'static, str>> {
    match answer {
        Ok(result) => is_error(result).then_some("tool_error".into()),
        Err(UpstreamFault::Rpc(error)) => Some(error.code().to_string().into()),
        Err(UpstreamFault::Unavailable { .. }) => Some(Code::UpstreamUnavailable.as_str().into()),
        Err(UpstreamFault::TooLarge { .. }) => Some(Code::UpstreamUnavailable.as_str().into()),
        Err(UpstreamFault::Timeout { .. }) => Some(Code::UpstreamTimeout.as_str().into()),
    }
}

fn is_error(result: &RawValue) -> bool {
    raw::get(result, "isError").is_some_and(|flag| flag.get() == "true")
}

/// Params with our trace context in their `_meta`, every other byte as it was; none where nothing is to be changed.
fn with_trace_context(span: &Span, params: Option<&RawValue>) -> Option<RawJson> {
    let bridge = REQUEST.try_with(|request| request.bridge.clone()).ok()??;
    let context = bridge.context(span)?;
    let params = params.map_or("{}", RawValue::get);
    // A `_meta` that is no object is invalid: the upstream rejects it as it came.
    if raw::get_text(params, "_meta").is_some_and(|meta| !meta.trim_start().starts_with('{')) {
        return None;
    }
    let (parent, state) = (raw::to_raw(context.parent.as_str()), raw::to_raw(context.state.as_str()));
    // A `tracestate` belongs to its trace: the client's goes where ours has none.
    let state = match context.state.is_empty() {
        true => MemberEdit::Remove(STATE),
        false => MemberEdit::Set(STATE, state.get()),
    };
    raw::from_text(raw::edit_inside(params, "_meta", &[MemberEdit::Set(PARENT, parent.get()), state])?)
}

fn update_request(work: impl FnOnce(&mut SpanOutcome)) {
    // Outside of a request, or without an exporter, there is nothing to update.
    let _ = REQUEST.try_with(|request| request.update(work));
}

/// Names the tool of the current request; one of our own.
pub fn about(tool: &str) {
    update_request(|outcome| {
        outcome.set("gen_ai.tool.name", tool.to_owned().into());
        outcome.set("gen_ai.operation.name", "execute_tool".into());
        outcome.target = Some(tool.to_owned());
    });
}

/// What the gate said. A name the catalogue does not have is a client's own word, and stays unoutcome.
pub fn judged(verdict: &Verdict, is_known: bool) {
    let (decision, record) = match verdict {
        Verdict::Go(permit) => ("allowed", permit.record()),
        Verdict::Redeem(redemption) => ("allowed", redemption.record()),
        Verdict::Hold(draft) => ("held", &draft.record),
        Verdict::Preview(draft) => ("previewed", &draft.record),
        Verdict::Explain(explanation) => ("explained", &explanation.record),
        Verdict::Refuse(refused) => ("refused", &refused.record),
    };
    recorded(record, is_known);
    update_request(|outcome| outcome.set("countersign.decision", decision.into()));
}

fn recorded(record: &CallRecord, is_known: bool) {
    update_request(|outcome| {
        if is_known {
            let name = record.tool.to_string();
            outcome.set("countersign.upstream", record.tool.upstream.to_string().into());
            outcome.set("gen_ai.operation.name", "execute_tool".into());
            outcome.set("gen_ai.tool.name", name.clone().into());
            outcome.target = Some(name);
        }
        if let Some(effect) = record.effect {
            outcome.set("countersign.effect", effect.as_str().into());
        }
        if let Some(mode) = record.mode {
            outcome.set("countersign.mode", mode.as_str().into());
        }
        if let Some(request) = &record.request_id {
            outcome.set("countersign.request_id", request.as_str().to_owned().into());
        }
        if let Some(plan) = &record.plan_id {
            outcome.set("countersign.plan_id", plan.as_str().to_owned().into());
        }
    });
}

/// Records a plan or row of the current call.
pub fn noted(key: &'static str, value: &str) {
    if !value.is_empty() {
        update_request(|outcome| outcome.set(key, value.to_owned().into()));
    }
}

/// Codes of faults, as opposed to refusals.
const FAULTS: [Code; 7] = [
    Code::LedgerUnavailable,
    Code::PreviewFailed,
    Code::RuleError,
    Code::StepFailed,
    Code::StoreUnavailable,
    Code::UpstreamTimeout,
    Code::UpstreamUnavailable,
];

/// Records how the current request is answered.
pub fn answered(answer: &Answer) {
    if !in_request() {
        return;
    }
    let code = match answer {
        Answer::Envelope(envelope) | Answer::Carded(envelope, _) => {
            envelope.errors.first().map(|first| first.code.clone())
        }
        Answer::Upstream(result) => {
            return update_request(|outcome| outcome.fault = is_error(result).then_some("tool_error".into()));
        }
        Answer::Rpc(error) => Some(error.code().to_string()),
    };
    let Some(code) = code else { return update_request(|outcome| outcome.fault = None) };
    let is_fault = FAULTS.iter().any(|fault| fault.as_str() == code) || matches!(answer, Answer::Rpc(_));
    update_request(|outcome| {
        outcome.fault = is_fault.then(|| code.clone().into());
        outcome.set("countersign.code", code.into());
    });
}
