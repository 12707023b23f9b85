//! Upstreams of our own, in this process: what they offer is handed in, and they are governed like any other. Knows none of them.

use std::fmt::Debug;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use countersign_core::call::Arguments;
use countersign_core::config::NativeKind;
use countersign_core::ids::UpstreamId;
use countersign_core::refusal::Refusal;
use countersign_store::{Opened, Store};
use countersign_wire::raw::{self, Raw};
use countersign_wire::upstream::Later;
use serde_json::Value;

use super::recent::Recent;
use super::{Condition, Errand, Health, Talk, Upstream, UpstreamFault};
use crate::answer;

/// One call of a native tool that was let through.
#[derive(Clone, Copy)]
pub struct Visit<'a> {
    /// The tool's own name.
    pub tool: &'a str,
    /// Its arguments, an object as JSON text.
    pub arguments: &'a str,
    /// Who asked and which row let it out; none for a dry run, which must change nothing.
    pub permitted: Option<&'a Opened>,
}

/// Something of our own that has tools.
pub trait Native: Send + Sync {
    /// Its tools, each as `tools/list` has it.
    fn tools(&self) -> Vec<Value>;

    /// Its arguments with what our own protocol stands for filled in, before anything is checked or hashed.
    fn filled(&self, tool: &str, arguments: Arguments) -> Arguments {
        let _ = tool;
        arguments
    }

    /// Runs a tool: a result as `tools/call` has it.
    fn call<'a>(&'a self, visit: Visit<'a>) -> Later<'a, Result<Value, UpstreamFault>>;

    /// What it says of itself.
    fn server_info(&self) -> Value;
}

/// What a native upstream is made of.
#[derive(Clone, Copy)]
pub struct Ground<'a> {
    /// Our name of it.
    pub id: &'a UpstreamId,
    /// The records of the house.
    pub store: &'a Store,
    /// The folder of the configuration.
    pub folder: &'a Path,
    /// Where it works or keeps its data, where the configuration says so.
    pub own_folder: Option<&'a Path>,
}

/// Makes upstreams of our own.
pub trait Natives: Debug + Send + Sync {
    /// Makes one, or says in a line why not.
    fn make(&self, kind: NativeKind, ground: Ground<'_>) -> Result<Arc<dyn Native>, String>;
}

/// One of our own behind the seam of all upstreams.
pub struct NativeUpstream {
    id: UpstreamId,
    native: Arc<dyn Native>,
    recent: Recent,
}

impl NativeUpstream {
    /// Stands for `native` under a name.
    pub fn new(id: UpstreamId, native: Arc<dyn Native>) -> Self {
        Self { id, native, recent: Recent::default() }
    }

    async fn visit(&self, errand: Errand<'_>) -> Result<Raw, UpstreamFault> {
        let start = Instant::now();
        let visit =
            Visit { tool: errand.tool(), arguments: errand.arguments(), permitted: errand.permitted() };
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

    fn tools(&self) -> Later<'_, Result<Vec<Raw>, UpstreamFault>> {
        Box::pin(async { Ok(self.native.tools().iter().map(raw::to_raw).collect()) })
    }

    fn filled(&self, tool: &str, arguments: Arguments) -> Arguments {
        self.native.filled(tool, arguments)
    }

    fn own_refusal(&self, result: &Value) -> Option<Refusal> {
        Refusal::told(result.pointer("/structuredContent/errors/0")?)
    }

    fn call<'a>(&'a self, errand: Errand<'a>, _talk: Talk) -> Later<'a, Result<Raw, UpstreamFault>> {
        Box::pin(self.visit(errand))
    }

    fn health(&self) -> Health {
        Health {
            condition: Condition::Up,
            restarts: 0,
            era: None,
            version: None,
            server_info: Some(self.native.server_info()),
            stderr_tail: String::new(),
            recent_us: self.recent.micros(),
        }
    }

    fn close(&self) -> Later<'_, ()> {
        Box::pin(async {})
    }
}
