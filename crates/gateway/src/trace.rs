//! What happens, told to whoever watches: a span for every request and for its parts. Names, effects, decisions, codes and
//! durations only, never an argument, a result or a secret; names only of what the catalogue has, never a client's own words.
//! Without a watcher nothing is done, and what a client says of its trace passes as it came.

use std::borrow::Cow;
use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};

use countersign_core::gate::Verdict;
use countersign_core::record::CallRecord;
use countersign_core::refusal::Code;
use countersign_wire::frame::Reply;
use countersign_wire::raw::{self, Edit, Raw};
use serde_json::value::RawValue;

use crate::answer::Answer;
use crate::upstreams::UpstreamFault;

/// The keys of `_meta` that hold a place in a trace (W3C Trace Context; MCP's SEP-414).
const PARENT: &str = "traceparent";
const STATE: &str = "tracestate";

/// The longest text that is taken for a place in a trace; a `tracestate` may have 512 characters and more.
const LONGEST_PLACE: usize = 4096;

/// The methods a span may be named after: what a client makes up is no name.
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

/// What a request is called whose method is none of these.
const OTHER: &str = "request";

fn known(method: &str) -> Option<&'static str> {
    METHODS.iter().find(|known| **known == method).copied()
}

/// Where a trace stands, as W3C Trace Context writes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// `traceparent`.
    pub parent: String,
    /// `tracestate`; empty where there is none.
    pub state: String,
}

impl Place {
    /// What a request says of its trace; whether it makes sense is for the watcher to see.
    fn of(params: Option<&RawValue>) -> Option<Self> {
        let said = |key| {
            let text = raw::get_str_in(params?, &["_meta", key])?;
            (text.len() <= LONGEST_PLACE).then(|| text.into_owned())
        };
        Some(Self { parent: said(PARENT)?, state: said(STATE).unwrap_or_default() })
    }
}

/// Which side of a request a span is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// A request that came to us.
    Served,
    /// A part of our own work.
    Inside,
    /// A request we sent to an upstream.
    Sent,
}

/// A word about what happened.
pub type Fact = (&'static str, Cow<'static, str>);

/// What is said of a span at its end.
#[derive(Debug, Default)]
pub struct Told {
    /// What its name goes on with, once that is known: the tool.
    pub target: Option<String>,
    /// What is known, one value a key.
    pub facts: Vec<Fact>,
    /// What kind of fault it ended with, if it did.
    pub fault: Option<Cow<'static, str>>,
}

impl Told {
    fn set(&mut self, key: &'static str, value: Cow<'static, str>) {
        match self.facts.iter_mut().find(|(known, _)| *known == key) {
            Some((_, old)) => *old = value,
            None => self.facts.push((key, value)),
        }
    }
}

/// Whoever watches. Called on the way of a call: never blocks, never fails.
pub trait Watcher: Send + Sync {
    /// Something begins that is part of nothing of ours: of a client's trace, if it said so.
    fn begin(&self, name: &'static str, side: Side, under: Option<&Place>) -> Box<dyn Span>;
}

/// A span that goes on.
pub trait Span: Send + Sync {
    /// Where the trace stands with it.
    fn place(&self) -> Place;

    /// A part of it begins.
    fn child(&self, name: &'static str, side: Side) -> Box<dyn Span>;

    /// It is over. Said once.
    fn end(&mut self, told: Told);
}

/// A span of ours; over when nobody holds it.
struct Open {
    span: Mutex<Box<dyn Span>>,
    told: Mutex<Told>,
}

impl Open {
    fn new(span: Box<dyn Span>) -> Arc<Self> {
        Arc::new(Self { span: Mutex::new(span), told: Mutex::default() })
    }

    fn with<T>(&self, work: impl FnOnce(&mut Box<dyn Span>) -> T) -> T {
        work(&mut self.span.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn tell(&self, work: impl FnOnce(&mut Told)) {
        work(&mut self.told.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let told = std::mem::take(&mut *self.told.lock().unwrap_or_else(PoisonError::into_inner));
        self.with(|span| span.end(told));
    }
}

/// Where a task is in what is told.
#[derive(Clone)]
struct Here {
    request: Arc<Open>,
    part: Arc<Open>,
}

tokio::task_local! {
    static HERE: Here;
}

/// What ended a request whose client did not wait for its answer.
const CANCELLED: &str = "cancelled";

/// Answers a request, watched if somebody watches.
pub async fn served(
    watcher: Option<&Arc<dyn Watcher>>,
    method: &str,
    params: Option<&RawValue>,
    facts: impl FnOnce() -> Vec<Fact>,
    work: impl Future<Output = Reply>,
) -> Reply {
    let Some(watcher) = watcher else { return work.await };
    let name = known(method).unwrap_or(OTHER);
    let request = Open::new(watcher.begin(name, Side::Served, Place::of(params).as_ref()));
    request.tell(|told| {
        told.facts = facts();
        told.set("mcp.method.name", name.into());
        // Until there is an answer: whoever leaves before it leaves this.
        told.fault = Some(CANCELLED.into());
    });
    let here = Here { part: Arc::clone(&request), request: Arc::clone(&request) };
    let reply = HERE.scope(here, work).await;
    request.tell(|told| {
        let unsaid = told.fault.as_deref() == Some(CANCELLED);
        told.fault = match &reply {
            Err(error) if unsaid => Some(error.code().to_string().into()),
            Ok(_) if unsaid => None,
            Ok(_) | Err(_) => told.fault.take(),
        };
    });
    reply
}

/// Work that nobody's request asked for, watched if somebody watches.
pub async fn own<T>(
    watcher: Option<&Arc<dyn Watcher>>,
    name: &'static str,
    work: impl Future<Output = T>,
) -> T {
    let Some(watcher) = watcher else { return work.await };
    let request = Open::new(watcher.begin(name, Side::Inside, None));
    HERE.scope(Here { part: Arc::clone(&request), request }, work).await
}

/// Work for the request that is under way, to be done in a task of its own.
pub fn carried<T>(work: impl Future<Output = T>) -> impl Future<Output = T> {
    let here = HERE.try_with(Clone::clone).ok();
    async move {
        match here {
            Some(here) => HERE.scope(here, work).await,
            None => work.await,
        }
    }
}

/// A part of the request that is under way. What takes room is handed over pinned: a future that is handed on whole stands in
/// each of the futures it goes through, more than once.
pub async fn part<T>(name: &'static str, work: impl Future<Output = T>) -> T {
    within(name, Side::Inside, work).await
}

async fn within<T>(name: &'static str, side: Side, work: impl Future<Output = T>) -> T {
    let Ok(here) = HERE.try_with(Clone::clone) else { return work.await };
    let part = Open::new(here.part.with(|span| span.child(name, side)));
    HERE.scope(Here { part, request: here.request }, work).await
}

/// A request to an upstream on behalf of the one under way. It is handed what goes along in its params' place, where that
/// differs from what came: our span is the parent of whatever the upstream tells.
pub async fn sent<W>(
    upstream: &str,
    method: &str,
    tool: Option<&str>,
    params: Option<&RawValue>,
    work: impl FnOnce(Option<Raw>) -> W,
) -> Result<Raw, UpstreamFault>
where
    W: Future<Output = Result<Raw, UpstreamFault>>,
{
    let name = known(method).unwrap_or(OTHER);
    let doing = async {
        let answer = work(onward(params)).await;
        tell_part(|told| {
            told.set("mcp.method.name", name.into());
            told.set("countersign.upstream", upstream.to_owned().into());
            if let Some(tool) = tool {
                told.set("gen_ai.tool.name", tool.to_owned().into());
                told.target = Some(tool.to_owned());
            }
            told.fault = fault_of(&answer);
        });
        answer
    };
    within(name, Side::Sent, pin!(doing)).await
}

fn fault_of(answer: &Result<Raw, UpstreamFault>) -> Option<Cow<'static, str>> {
    match answer {
        Ok(result) => is_error(result).then_some("tool_error".into()),
        Err(UpstreamFault::Rpc(error)) => Some(error.code().to_string().into()),
        Err(UpstreamFault::Unavailable { .. }) => Some(Code::UpstreamUnavailable.as_str().into()),
        Err(UpstreamFault::Timeout { .. }) => Some(Code::UpstreamTimeout.as_str().into()),
    }
}

fn is_error(result: &RawValue) -> bool {
    raw::get(result, "isError").is_some_and(|flag| flag.get() == "true")
}

/// Params with our place in the trace in their `_meta`, every other byte as it was; none where nothing is to be changed.
fn onward(params: Option<&RawValue>) -> Option<Raw> {
    let place = HERE.try_with(|here| here.part.with(|span| span.place())).ok()?;
    // A watcher that has no place leaves the client's standing.
    if place.parent.is_empty() {
        return None;
    }
    let params = params.map_or("{}", RawValue::get);
    // What is no object is not ours to mend.
    if raw::get_text(params, "_meta").is_some_and(|meta| !meta.trim_start().starts_with('{')) {
        return None;
    }
    let text = |text: &str| raw::to_raw(text);
    let (parent, state) = (text(&place.parent), text(&place.state));
    let state = match place.state.is_empty() {
        true => Edit::Remove(STATE),
        false => Edit::Set(STATE, state.get()),
    };
    raw::from_text(raw::edit_inside(params, "_meta", &[Edit::Set(PARENT, parent.get()), state])?)
}

fn tell_request(work: impl FnOnce(&mut Told)) {
    // Nobody watches: nothing is told.
    let _ = HERE.try_with(|here| here.request.tell(work));
}

fn tell_part(work: impl FnOnce(&mut Told)) {
    let _ = HERE.try_with(|here| here.part.tell(work));
}

/// Which tool the request under way is about: one that is known by this name.
pub fn about(tool: &str) {
    tell_request(|told| {
        told.set("gen_ai.tool.name", tool.to_owned().into());
        told.set("gen_ai.operation.name", "execute_tool".into());
        told.target = Some(tool.to_owned());
    });
}

/// What the gate said. A name the catalogue does not have is a client's own word, and stays untold.
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
    tell_request(|told| told.set("countersign.decision", decision.into()));
}

fn recorded(record: &CallRecord, is_known: bool) {
    tell_request(|told| {
        if is_known {
            let name = record.tool.to_string();
            told.set("countersign.upstream", record.tool.upstream.to_string().into());
            told.set("gen_ai.operation.name", "execute_tool".into());
            told.set("gen_ai.tool.name", name.clone().into());
            told.target = Some(name);
        }
        if let Some(effect) = record.effect {
            told.set("countersign.effect", effect.as_str().into());
        }
        if let Some(mode) = record.mode {
            told.set("countersign.mode", mode.as_str().into());
        }
        if let Some(plan) = &record.plan_id {
            told.set("countersign.plan_id", plan.as_str().to_owned().into());
        }
    });
}

/// What became of the call that is under way: its plan, its row.
pub fn noted(key: &'static str, value: &str) {
    if !value.is_empty() {
        tell_request(|told| told.set(key, value.to_owned().into()));
    }
}

/// Codes of what is broken rather than refused.
const FAULTS: [Code; 7] = [
    Code::LedgerUnavailable,
    Code::PreviewFailed,
    Code::RuleError,
    Code::StepFailed,
    Code::StoreUnavailable,
    Code::UpstreamTimeout,
    Code::UpstreamUnavailable,
];

/// How the request under way is answered.
pub fn answered(answer: &Answer) {
    if HERE.try_with(|_| ()).is_err() {
        return;
    }
    let code = match answer {
        Answer::Envelope(envelope) | Answer::Carded(envelope, _) => {
            envelope.errors.first().map(|first| first.code.clone())
        }
        Answer::Upstream(result) => {
            return tell_request(|told| told.fault = is_error(result).then_some("tool_error".into()));
        }
        Answer::Rpc(error) => Some(error.code().to_string()),
    };
    let Some(code) = code else { return tell_request(|told| told.fault = None) };
    let is_fault = FAULTS.iter().any(|fault| fault.as_str() == code) || matches!(answer, Answer::Rpc(_));
    tell_request(|told| {
        told.fault = is_fault.then(|| code.clone().into());
        told.set("countersign.code", code.into());
    });
}
