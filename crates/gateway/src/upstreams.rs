//! What is governed: every kind of upstream behind one seam. A tool is called with an [`Errand`], and an errand is made
//! from an opened permit or a dry run only: there is no other way to a tool.

pub mod command;
pub mod environment;
pub mod mcp;
pub mod native;
mod recent;

use std::sync::Arc;
use std::time::Duration;

use countersign_core::call::Arguments;
use countersign_core::gate::DryRun;
use countersign_core::ids::UpstreamId;
use countersign_core::refusal::Refusal;
use countersign_store::Opened;
use countersign_wire::fault::Sent;
use countersign_wire::frame::RpcError;
use countersign_wire::raw::{self, Raw};
use countersign_wire::upstream::{Deadline, Identity, Later, Questions, Relay};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::upstream_questions::{self, QuestionGate};

/// One call of a tool that may be sent.
pub struct Errand<'a> {
    tool: &'a str,
    arguments: &'a str,
    rest: Option<&'a RawValue>,
    permitted: Option<&'a Opened>,
}

impl<'a> Errand<'a> {
    /// The call an opened permit stands for. `rest` holds what of the request goes along (see [`crate::members`]).
    ///
    /// INVARIANT (written first): an `Opened` exists only after its row is in the ledger.
    pub fn opened(opened: &'a Opened, rest: Option<&'a RawValue>) -> Self {
        let permit = opened.permit();
        Self {
            tool: permit.tool().name.as_str(),
            arguments: permit.arguments(),
            rest,
            permitted: Some(opened),
        }
    }

    /// A dry run the gate asked for. Nothing of the request goes along but the `_meta` of its plan and its place in a trace.
    pub fn dry_run(dry: &'a DryRun, rest: Option<&'a RawValue>) -> Self {
        Self { tool: dry.tool.as_str(), arguments: &dry.arguments, rest, permitted: None }
    }

    /// The tool's own name.
    pub fn tool(&self) -> &str {
        self.tool
    }

    /// The text of its arguments, to be sent as it is.
    pub fn arguments(&self) -> &str {
        self.arguments
    }

    /// Who asked and which row let it out; none for a dry run.
    pub fn permitted(&self) -> Option<&'a Opened> {
        self.permitted
    }

    /// What of the request goes along: of its members only those that [`crate::members::call_params`] knows.
    pub fn rest(&self) -> Option<&RawValue> {
        self.rest
    }
}

/// Everything a request brings along besides its method and params.
#[derive(Clone)]
pub struct Talk {
    /// How long to wait.
    pub deadline: Deadline,
    /// Takes progress and log notifications of this request.
    pub relay: Option<Arc<dyn Relay>>,
    /// What questions of the upstream become.
    pub questions: Questions,
    /// The client that is spoken for.
    pub identity: Option<Identity>,
    /// The log level its session has.
    pub log_level: Option<String>,
}

impl Talk {
    /// What passes between a client's request and an upstream: progress, log lines, and as far as the upstream's configuration
    /// allows it the client's own capabilities and questions.
    pub fn between(gate: &Arc<QuestionGate>, wait: Duration) -> Self {
        let client = gate.ctx().client();
        let identity = client.info.clone().map(|client_info| {
            let own = client.capabilities.clone().unwrap_or_else(raw::empty_object);
            Identity { client_info, capabilities: upstream_questions::offered(&gate.access(), &own) }
        });
        Self {
            deadline: Deadline::Quiet(wait),
            relay: Some(Arc::clone(gate) as _),
            questions: Questions::Bridge(Arc::clone(gate) as _),
            identity,
            log_level: gate.ctx().session().log_level(),
        }
    }
}

impl Talk {
    /// A request nobody listens to: no progress, and questions of the upstream are answered by nobody.
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

/// Why an upstream gave no result.
#[derive(Debug, Clone)]
pub enum UpstreamFault {
    /// It answered with a JSON-RPC error: passed on as it is.
    Rpc(RpcError),
    /// It can't be reached, died, or broke the protocol.
    Unavailable {
        /// One line for a reader, with the tail of its stderr where that helps.
        why: String,
        /// Whether it may have acted.
        sent: Sent,
    },
    /// It did not answer in time.
    Timeout {
        /// One line for a reader.
        why: String,
        /// Whether it may have acted.
        sent: Sent,
    },
}

/// How an upstream is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Condition {
    /// Not started yet: it starts on first need.
    Idle,
    /// Being started or connected.
    Starting,
    /// Answers.
    Up,
    /// Down; when it is tried again is in [`Health`].
    Down(String),
}

/// An upstream's health, for `get_status`, `upstreams list`, `doctor` and the desk.
#[derive(Debug, Clone)]
pub struct Health {
    /// How it is.
    pub condition: Condition,
    /// How often it was restarted.
    pub restarts: u32,
    /// The era it speaks, once known.
    pub era: Option<&'static str>,
    /// The protocol version, once known.
    pub version: Option<String>,
    /// What it calls itself.
    pub server_info: Option<Value>,
    /// The tail of its stderr.
    pub stderr_tail: String,
    /// The last calls' durations in microseconds, oldest first.
    pub recent_us: Vec<u64>,
}

/// Something governed.
pub trait Upstream: Send + Sync {
    /// Our own name of it.
    fn id(&self) -> &UpstreamId;

    /// Its tools as it lists them now, every page, each definition the bytes it came as.
    fn tools(&self) -> Later<'_, Result<Vec<Raw>, UpstreamFault>>;

    /// A tool's arguments with what our own protocol stands for filled in, before anything is checked or hashed.
    fn filled(&self, tool: &str, arguments: Arguments) -> Arguments {
        let _ = tool;
        arguments
    }

    /// Runs a tool.
    fn call<'a>(&'a self, errand: Errand<'a>, talk: Talk) -> Later<'a, Result<Raw, UpstreamFault>>;

    /// Whether a tool can tell the present state of what it is about, in ask mode.
    fn explains(&self, tool: &str) -> bool {
        let _ = tool;
        false
    }

    /// Whether any of its tools goes on in the background.
    fn has_runs(&self) -> bool {
        false
    }

    /// What of a preview must not change until it is applied, where that is not all of it.
    fn decisive(&self, preview: &str, result: &Value) -> Option<Value> {
        let _ = (preview, result);
        None
    }

    /// What a result refuses in our own words, where the upstream is one of our own; what others say is theirs.
    fn own_refusal(&self, result: &Value) -> Option<Refusal> {
        let _ = result;
        None
    }

    /// Everything of MCP but `tools/call`: resources, prompts, completions, logging, tasks, extensions. Whoever has tools alone
    /// knows none of it.
    fn request<'a>(
        &'a self,
        method: &'a str,
        params: Option<&'a RawValue>,
        talk: Talk,
    ) -> Later<'a, Result<Raw, UpstreamFault>> {
        let _ = (params, talk);
        Box::pin(async move { Err(UpstreamFault::Rpc(RpcError::method_not_found(method))) })
    }

    /// A notification of the client.
    fn notify<'a>(&'a self, method: &'a str, params: Option<&'a RawValue>) -> Later<'a, ()> {
        let _ = (method, params);
        Box::pin(async {})
    }

    /// The server capabilities it declared, once it is connected.
    fn capabilities(&self) -> Option<Raw> {
        Some(raw::to_raw(&json!({"tools": {}})))
    }

    /// How it is.
    fn health(&self) -> Health;

    /// The era it speaks, once known: asked with every call, so it takes no look at the rest of its health.
    fn era(&self) -> Option<&'static str> {
        self.health().era
    }

    /// Ends it; a child and everything it started are gone when this returns.
    fn close(&self) -> Later<'_, ()>;

    /// The configuration has another in its place, or none: no new call comes. Work that goes on by itself may end by itself.
    fn retire(&self) -> Later<'_, ()> {
        self.close()
    }
}
