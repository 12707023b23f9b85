//! Upstreams that are part of this program. They are passed in as [`NativeServer`]s and governed like any other.

use std::fmt::Debug;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use countersign_config::NativeKind;
use countersign_mcp::client::BoxFuture;
use countersign_mcp::raw::{self, RawJson};
use countersign_policy::call::Arguments;
use countersign_policy::ids::UpstreamId;
use countersign_policy::refusal::Refusal;
use countersign_store::{RecordedPermit, Store};
use serde_json::Value;

use super::recent::RecentDurations;
use super::{CallContext, Condition, Upstream, UpstreamCall, UpstreamFault, UpstreamHealth};
use crate::answer;

#[derive(Clone, Copy)]
pub struct NativeCall<'a> {
    pub tool: &'a str,
    /// An object as JSON text.
    pub arguments: &'a str,
    /// None for a dry run, which must change nothing.
    pub permitted: Option<&'a RecordedPermit>,
    /// The effects of earlier steps of the same plan, for a dry run: `[{tool, arguments, preview}]`.
    pub earlier: Option<&'a str>,
}

pub trait NativeServer: Send + Sync {
    /// Definitions as in `tools/list`.
    fn tools(&self) -> Vec<Value>;

    /// Fills in arguments that our own protocol implies, before anything is checked or hashed.
    fn filled(&self, tool: &str, arguments: Arguments) -> Arguments {
        let _ = tool;
        arguments
    }

    /// Runs a tool and returns a result as in `tools/call`.
    fn call<'a>(&'a self, visit: NativeCall<'a>) -> BoxFuture<'a, Result<Value, UpstreamFault>>;

    /// Whether its dry runs consider [`NativeCall::earlier`].
    fn chains_previews(&self) -> bool {
        false
    }

    fn server_info(&self) -> Value;
}

#[derive(Clone, Copy)]
pub struct NativeContext<'a> {
    pub id: &'a UpstreamId,
    pub store: &'a Store,
    /// The folder of the configuration.
    pub folder: &'a Path,
    /// Its own folder, if configured.
    pub own_folder: Option<&'a Path>,
}

pub trait NativeFactory: Debug + Send + Sync {
    /// The error says in one line why it cannot be made.
    fn make(&self, kind: NativeKind, ground: NativeContext<'_>) -> Result<Arc<dyn NativeServer>, String>;
}

pub(crate) struct NativeUpstream {
    id: UpstreamId,
    native: Arc<dyn NativeServer>,
    recent: RecentDurations,
}

impl NativeUpstream {
    pub(crate) fn new(id: UpstreamId, native: Arc<dyn NativeServer>) -> Self {
        Self { id, native, recent: RecentDurations::default() }
    }

    async fn visit(&self, call: UpstreamCall<'_>) -> Result<RawJson, UpstreamFault> {
        let start = Instant::now();
        let visit = NativeCall {
            tool: call.tool(),
            arguments: call.arguments(),
            permitted: call.permitted(),
            earlier: call.earlier(),
        };
        let is_real = visit.permitted.is_some();
        let result = self.native.call(visit).await;
        self.recent.took(start.elapsed());
        result.map(|result| raw::to_raw(&if is_real { answer::marked(result) } else { result }))
    }
}

impl Upstream for NativeUpstream {
    fn id(&self) -> &UpstreamId {
        &self.id
    }

    fn tools(&self) -> BoxFuture<'_, Result<Vec<RawJson>, UpstreamFault>> {
        Box::pin(async { Ok(self.native.tools().iter().map(raw::to_raw).collect()) })
    }

    fn filled(&self, tool: &str, arguments: Arguments) -> Arguments {
        self.native.filled(tool, arguments)
    }

    fn chains_previews(&self) -> bool {
        self.native.chains_previews()
    }

    fn own_refusal(&self, result: &Value) -> Option<Refusal> {
        Refusal::told(result.pointer("/structuredContent/errors/0")?)
    }

    fn call<'a>(
        &'a self,
        call: UpstreamCall<'a>,
        _talk: CallContext,
    ) -> BoxFuture<'a, Result<RawJson, UpstreamFault>> {
        Box::pin(self.visit(call))
    }

    fn health(&self) -> UpstreamHealth {
        UpstreamHealth {
            condition: Condition::Up,
            restarts: 0,
            era: None,
            version: None,
            server_info: Some(self.native.server_info()),
            stderr_tail: String::new(),
            recent_us: self.recent.micros(),
        }
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }
}
