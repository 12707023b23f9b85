//! The interface of all kinds of upstreams. A tool is called with an [`UpstreamCall`], which is made from a recorded permit or a dry run
//! only: there is no other way to call a tool.

pub mod command;
pub mod environment;
pub mod mcp;
pub mod native;
mod recent;

use std::sync::Arc;
use std::time::Duration;

use countersign_mcp::client::{BoxFuture, ClientIdentity, Deadline, NotificationRelay, Questions};
use countersign_mcp::era::Era;
use countersign_mcp::fault::DeliveryState;
use countersign_mcp::jsonrpc::RpcError;
use countersign_mcp::raw::{self, RawJson};
use countersign_mcp::server::RequestContext;
use countersign_policy::call::Arguments;
use countersign_policy::gate::DryRun;
use countersign_policy::ids::UpstreamId;
use countersign_policy::refusal::Refusal;
use countersign_store::RecordedPermit;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::upstream_questions::{self, QuestionGate};

pub struct UpstreamCall<'a> {
    tool: &'a str,
    arguments: &'a str,
    rest: Option<&'a RawValue>,
    permitted: Option<&'a RecordedPermit>,
    earlier: Option<&'a str>,
}

impl<'a> UpstreamCall<'a> {
    /// The call of a recorded permit. `rest` holds the request's other members (see the module `members`).
    ///
    /// INVARIANT (written first): an `RecordedPermit` exists only after its row is in the ledger.
    pub fn opened(opened: &'a RecordedPermit, rest: Option<&'a RawValue>) -> Self {
        let permit = opened.permit();
        Self {
            tool: permit.tool().name.as_str(),
            arguments: permit.arguments(),
            rest,
            permitted: Some(opened),
            earlier: None,
        }
    }

    /// A dry run the gate asked for. Of the request only the `_meta` of its plan and its trace context are sent.
    pub fn dry_run(dry: &'a DryRun, rest: Option<&'a RawValue>) -> Self {
        let earlier = dry.earlier.as_deref();
        Self { tool: dry.tool.as_str(), arguments: &dry.arguments, rest, permitted: None, earlier }
    }

    pub fn tool(&self) -> &str {
        self.tool
    }

    /// Sent as it is.
    pub fn arguments(&self) -> &str {
        self.arguments
    }

    /// None for a dry run.
    pub fn permitted(&self) -> Option<&'a RecordedPermit> {
        self.permitted
    }

    /// The effects of earlier steps of the same plan, for a dry run: `[{tool, arguments, preview}]` as JSON text.
    pub fn earlier(&self) -> Option<&'a str> {
        self.earlier
    }

    /// The request's members that `members::call_params` knows.
    pub fn rest(&self) -> Option<&RawValue> {
        self.rest
    }
}

/// What a request carries besides its method and params.
#[derive(Clone)]
pub struct CallContext {
    pub deadline: Deadline,
    pub relay: Option<Arc<dyn NotificationRelay>>,
    pub questions: Questions,
    pub identity: Option<ClientIdentity>,
    pub log_level: Option<String>,
}

impl CallContext {
    /// The context of a client's request: progress, log messages, and the client's capabilities and questions as far as the upstream's
    /// configuration allows them.
    pub(crate) fn between(gate: &Arc<QuestionGate>, wait: Duration) -> Self {
        let client = gate.ctx().client();
        let identity = client.info.clone().map(|client_info| {
            let own = client.capabilities.clone().unwrap_or_else(raw::empty_object);
            ClientIdentity { client_info, capabilities: upstream_questions::offered(&gate.access(), &own) }
        });
        Self {
            deadline: Deadline::Quiet(wait),
            relay: Some(Arc::clone(gate) as _),
            questions: Questions::Bridge(Arc::clone(gate) as _),
            identity,
            log_level: log_level(gate.ctx()),
        }
    }
}

/// The log level for a modern upstream, which sends nothing without one. A legacy client that set none gets `info`.
fn log_level(ctx: &RequestContext) -> Option<String> {
    let usual = || (ctx.era() == Era::Legacy).then(|| r#""info""#.to_owned());
    ctx.session().log_level().or_else(usual)
}

impl CallContext {
    /// Without a client: no progress, and questions of the upstream go unanswered.
    pub fn alone(wait: Duration) -> Self {
        Self {
            deadline: Deadline::Quiet(wait),
            relay: None,
            questions: Questions::PassThrough,
            identity: None,
            log_level: None,
        }
    }
}

#[derive(Debug, Clone)]
pub enum UpstreamFault {
    /// Passed on unchanged.
    Rpc(RpcError),
    Unavailable {
        /// One line, with the end of its stderr where that helps.
        why: String,
        sent: DeliveryState,
    },
    TooLarge {
        /// One line, with the name of the setting.
        why: String,
    },
    Timeout {
        why: String,
        sent: DeliveryState,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Condition {
    /// Starts on first need.
    Idle,
    Starting,
    Up,
    Down(String),
}

/// For `get_status`, `upstreams list`, `doctor` and the page.
#[derive(Debug, Clone)]
pub struct UpstreamHealth {
    pub condition: Condition,
    pub restarts: u32,
    pub era: Option<&'static str>,
    pub version: Option<String>,
    pub server_info: Option<Value>,
    pub stderr_tail: String,
    /// Of the last calls, oldest first.
    pub recent_us: Vec<u64>,
}

pub trait Upstream: Send + Sync {
    fn id(&self) -> &UpstreamId;

    /// Reads all pages of its list; definitions are raw JSON.
    fn tools(&self) -> BoxFuture<'_, Result<Vec<RawJson>, UpstreamFault>>;

    /// Fills in arguments that our own protocol implies, before anything is checked or hashed.
    fn filled(&self, tool: &str, arguments: Arguments) -> Arguments {
        let _ = tool;
        arguments
    }

    fn call<'a>(
        &'a self,
        call: UpstreamCall<'a>,
        context: CallContext,
    ) -> BoxFuture<'a, Result<RawJson, UpstreamFault>>;

    /// Whether a tool can report the present state of its target, in ask mode.
    fn explains(&self, tool: &str) -> bool {
        let _ = tool;
        false
    }

    /// Whether any of its tools runs in the background.
    fn has_runs(&self) -> bool {
        false
    }

    /// Whether its dry runs consider [`UpstreamCall::earlier`].
    fn chains_previews(&self) -> bool {
        false
    }

    /// The part of a preview that must not change until it is applied; none for all of it.
    fn decisive(&self, preview: &str, result: &Value) -> Option<Value> {
        let _ = (preview, result);
        None
    }

    /// The refusal in a result of our own upstreams; results of others are theirs.
    fn own_refusal(&self, result: &Value) -> Option<Refusal> {
        let _ = result;
        None
    }

    /// Sends any request but `tools/call`: resources, prompts, completions, logging, tasks, extensions.
    fn request<'a>(
        &'a self,
        method: &'a str,
        params: Option<&'a RawValue>,
        context: CallContext,
    ) -> BoxFuture<'a, Result<RawJson, UpstreamFault>> {
        let _ = (params, context);
        Box::pin(async move { Err(UpstreamFault::Rpc(RpcError::method_not_found(method))) })
    }

    fn notify<'a>(&'a self, method: &'a str, params: Option<&'a RawValue>) -> BoxFuture<'a, ()> {
        let _ = (method, params);
        Box::pin(async {})
    }

    /// None before it is connected.
    fn capabilities(&self) -> Option<RawJson> {
        Some(raw::to_raw(&json!({"tools": {}})))
    }

    /// None before it is connected. Untrusted.
    fn instructions(&self) -> Option<String> {
        None
    }

    fn health(&self) -> UpstreamHealth;

    /// Read with every call, so it skips the rest of the health report.
    fn era(&self) -> Option<&'static str> {
        self.health().era
    }

    /// Ends it; a child and its descendants are gone when this returns.
    fn close(&self) -> BoxFuture<'_, ()>;

    /// The configuration has replaced or removed it: no new call comes. Background work may finish.
    fn retire(&self) -> BoxFuture<'_, ()> {
        self.close()
    }
}
