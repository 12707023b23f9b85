//! A misbehaving child as an upstream, and an ear for what it says.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use countersign_gateway::upstreams::environment;
use countersign_gateway::upstreams::mcp::{McpSettings, McpUpstream, NewsListener, RestartBackoff};
use countersign_gateway::upstreams::{CallContext, Upstream, UpstreamCall, UpstreamFault};
use countersign_mcp::client::{
    ClientIdentity, Deadline, Questions, StdioSpec, UpstreamAnomaly, UpstreamSpec,
};
use countersign_mcp::era::Era;
use countersign_mcp::fault::DeliveryState;
use countersign_mcp::jsonrpc::Notification;
use countersign_mcp::raw::{self, RawJson};
use countersign_policy::gate::DryRun;
use countersign_policy::ids::{ToolName, UpstreamId};
use serde_json::{Value, json};
use tempfile::TempDir;

/// Writes down what an upstream says.
#[derive(Default)]
pub(crate) struct Ear {
    pub(crate) notes: Mutex<Vec<Notification>>,
    pub(crate) anomaly: Mutex<Vec<UpstreamAnomaly>>,
    pub(crate) events: Mutex<Vec<&'static str>>,
}

impl NewsListener for Ear {
    fn notification(&self, _: &UpstreamId, notification: Notification) {
        self.notes.lock().unwrap().push(notification);
    }
    fn connected(&self, _: &UpstreamId) {
        self.events.lock().unwrap().push("connected");
    }
    fn closed(&self, _: &UpstreamId, _: &str) {
        self.events.lock().unwrap().push("closed");
    }
    fn anomaly(&self, _: &UpstreamId, oddity: UpstreamAnomaly) {
        self.anomaly.lock().unwrap().push(oddity);
    }
}

pub(crate) fn identity() -> ClientIdentity {
    ClientIdentity {
        client_info: raw::to_raw(&json!({"name": "countersign", "version": "0"})),
        capabilities: raw::empty_object(),
    }
}

/// The scripted child, with a folder of its own.
pub(crate) struct Peer {
    pub(crate) upstream: Arc<McpUpstream>,
    pub(crate) ear: Arc<Ear>,
    folder: TempDir,
}

impl Peer {
    pub(crate) fn new(id: &str) -> Self {
        Self::with(id, &[], |_| {})
    }

    pub(crate) fn with(id: &str, env: &[(&str, &str)], set: impl FnOnce(&mut McpSettings)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/peers/fault.py");
        let mut spec = StdioSpec::new("python3", ["-u".into(), script.into_os_string()]);
        let configured = env.iter().map(|(name, value)| ((*name).into(), (*value).into()));
        let effects = ("EFFECTS".into(), folder.path().join("effects").into_os_string());
        spec.env = environment::clean(std::env::vars_os(), configured.chain([effects]));
        spec.grace = Duration::from_millis(200);
        let mut settings = McpSettings::new(UpstreamSpec::Stdio(spec), identity());
        settings.era = Some(Era::Legacy);
        settings.backoff = RestartBackoff { first: Duration::from_millis(20), ..RestartBackoff::default() };
        set(&mut settings);
        let ear = Arc::new(Ear::default());
        let upstream = Arc::new(McpUpstream::new(UpstreamId::new(id), settings, ear.clone()));
        Self { upstream, ear, folder }
    }

    /// What it did, a line each.
    pub(crate) fn effects(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.folder.path().join("effects")).unwrap_or_default();
        text.lines().map(ToOwned::to_owned).collect()
    }

    /// How often it did this.
    pub(crate) fn count(&self, effect: &str) -> usize {
        self.effects().iter().filter(|line| *line == effect).count()
    }

    pub(crate) async fn call(&self, tool: &str, limit: Duration) -> Result<RawJson, UpstreamFault> {
        call(&*self.upstream, tool, json!({}), limit).await
    }

    /// Calls with time enough and takes the text of the answer.
    pub(crate) async fn text(&self, tool: &str) -> String {
        text_of(&self.call(tool, LONG).await.unwrap())
    }
}

/// Time enough on a busy machine.
pub(crate) const LONG: Duration = Duration::from_secs(60);
/// As long as a test waits for what must not come.
pub(crate) const SHORT: Duration = Duration::from_millis(700);

pub(crate) fn talk(limit: Duration) -> CallContext {
    CallContext {
        deadline: Deadline::Total(limit),
        relay: None,
        questions: Questions::PassThrough,
        identity: None,
        log_level: None,
    }
}

pub(crate) async fn call(
    upstream: &dyn Upstream,
    tool: &str,
    arguments: Value,
    limit: Duration,
) -> Result<RawJson, UpstreamFault> {
    let dry = DryRun { tool: ToolName::new(tool), arguments: arguments.to_string(), earlier: None };
    upstream.call(UpstreamCall::dry_run(&dry, None), talk(limit)).await
}

pub(crate) fn text_of(result: &RawJson) -> String {
    let value: Value = serde_json::from_str(result.get()).unwrap();
    value["content"][0]["text"].as_str().unwrap().to_owned()
}

/// What became of a call, in a word or two.
pub(crate) fn told(result: &Result<RawJson, UpstreamFault>) -> String {
    let sent = |sent: &DeliveryState| format!("{sent:?}").to_lowercase();
    match result {
        Ok(_) => "ok".to_owned(),
        Err(UpstreamFault::Rpc(error)) => format!("rpc {}", error.code()),
        Err(UpstreamFault::Unavailable { sent: s, .. }) => format!("unavailable {}", sent(s)),
        Err(UpstreamFault::TooLarge { .. }) => "too large".to_owned(),
        Err(UpstreamFault::Timeout { sent: s, .. }) => format!("timeout {}", sent(s)),
    }
}

pub(crate) fn why(result: &Result<RawJson, UpstreamFault>) -> String {
    match result {
        Ok(result) => result.get().to_owned(),
        Err(UpstreamFault::Rpc(error)) => error.to_string(),
        Err(
            UpstreamFault::Unavailable { why, .. }
            | UpstreamFault::Timeout { why, .. }
            | UpstreamFault::TooLarge { why },
        ) => why.clone(),
    }
}

/// Whether a process is there.
pub(crate) fn is_alive(pid: &str) -> bool {
    std::process::Command::new("kill")
        .args(["-0", pid])
        .stderr(std::process::Stdio::null())
        .status()
        .unwrap()
        .success()
}

/// Waits until something holds, which it must within a while.
pub(crate) async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = tokio::time::Instant::now() + LONG;
    while !holds() {
        assert!(tokio::time::Instant::now() < deadline, "{what} never came true");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
