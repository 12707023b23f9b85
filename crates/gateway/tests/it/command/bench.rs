//! Command tools from a configuration's text, called as the gateway calls them: judged, recorded, then run.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use countersign_config::{self as config, Config, Source as File, UpstreamKind};
use countersign_gateway::runs::BackgroundRuns;
use countersign_gateway::schema::Schemas;
use countersign_gateway::upstreams::command::{CommandSettings, CommandUpstream};
use countersign_gateway::upstreams::environment::Variable;
use countersign_gateway::upstreams::{Upstream, UpstreamCall, UpstreamFault};
use countersign_policy::call::{Arguments, Caller, CallerScopes, CatalogStatus, ToolCall};
use countersign_policy::confirm::ConfirmInput;
use countersign_policy::gate::{DryRun, NoLimits, PolicySnapshot, Verdict, WriteStatus, judge};
use countersign_policy::ids::{FullName, RunId, Secret, ToolName};
use countersign_policy::intent::{CallEntryPoint, IntentStrictness, UncheckedIntent};
use countersign_policy::mode::Mode;
use countersign_policy::record::Source;
use countersign_policy::redact::Redactor;
use countersign_policy::role::Role;
use countersign_policy::tool::Tool;
use countersign_store::{BackgroundRun, ConnectOptions, RecordedPermit, RunState, Store, StoreUrl};
use jiff::Timestamp;
use serde_json::{Map, Value};
use tempfile::TempDir;

use crate::upstreams::peer::{LONG, talk};

/// An upstream `u` of command tools.
pub(crate) struct Bench {
    pub(crate) folder: TempDir,
    pub(crate) store: Store,
    pub(crate) runs: Arc<BackgroundRuns>,
    pub(crate) upstream: Arc<CommandUpstream>,
    config: Config,
    schemas: Schemas,
    tools: Vec<Arc<Tool>>,
}

pub(crate) async fn store_in(folder: &Path) -> Store {
    let url: StoreUrl = format!("sqlite:{}", folder.join("c.db").display()).parse().unwrap();
    Store::connect(&url, ConnectOptions::default()).await.unwrap()
}

/// Our environment; a folder that has a `home` has its own, and one that has a `bin` finds programs there first.
fn ambient(folder: &Path) -> Vec<Variable> {
    let (home, bin) = (folder.join("home"), folder.join("bin"));
    let mut own: Vec<Variable> = Vec::new();
    if home.exists() {
        own.push(("HOME".into(), home.into_os_string()));
    }
    if bin.exists() {
        let path = std::env::var_os("PATH").unwrap();
        let path = std::env::join_paths(std::iter::once(bin).chain(std::env::split_paths(&path))).unwrap();
        own.push(("PATH".into(), path));
    }
    let theirs = std::env::vars_os().filter(|(name, _)| !own.iter().any(|(known, _)| known == name));
    theirs.chain(own.clone()).collect()
}

impl Bench {
    /// The tools of this text, in a folder of their own.
    pub(crate) async fn new(text: &str) -> Self {
        Self::with(text, tempfile::tempdir().unwrap()).await
    }

    /// The same in a folder that has something already. `${env:SECRET}` is `correct-horse`, any other its own name.
    pub(crate) async fn with(text: &str, folder: TempDir) -> Self {
        let parsed =
            config::parse(&[File::new("test.toml", text)]).unwrap_or_else(|found| panic!("{found:#?}"));
        let looked_up = |name: &str| match name {
            "SECRET" => "correct-horse".to_owned(),
            "HERE" => folder.path().display().to_string(),
            other => other.to_owned(),
        };
        let config = parsed.settle(&|reference| Ok(Secret::new(looked_up(&reference.name)))).unwrap();
        let store = store_in(folder.path()).await;
        let runs = BackgroundRuns::new(store.clone(), folder.path().join("runs"));
        let written = config.upstreams.first().unwrap();
        let UpstreamKind::Command { tools, env, cwd } = &written.kind else { panic!("no command tools") };
        let settings = CommandSettings {
            tools,
            env,
            cwd: cwd.as_ref(),
            timeout: written.timeout,
            ambient: &ambient(folder.path()),
            folder: folder.path(),
        };
        let upstream = CommandUpstream::new(written.id.clone(), &settings, Arc::clone(&runs)).unwrap();
        let tools = upstream.tools().await.unwrap();
        let tools = tools.iter().map(|raw| {
            let definition: Map<String, Value> = serde_json::from_str(raw.get()).unwrap();
            Arc::new(Tool::read(written.id.clone(), definition).unwrap())
        });
        let tools = tools.collect();
        Self { folder, store, runs, upstream: Arc::new(upstream), config, schemas: Schemas::default(), tools }
    }

    /// What the gate says in this mode.
    pub(crate) fn judge(&self, tool: &str, arguments: &Value, mode: Mode) -> Verdict {
        let tool = self.tools.iter().find(|known| known.name.as_str() == tool).unwrap();
        let call = ToolCall {
            caller: Caller {
                principal: "agent".into(),
                credential: None,
                role: Role::Agent,
                session: "s".into(),
                request_id: None,
                source: Source::Mcp,
                host: None,
                scopes: CallerScopes::all(),
            },
            name: FullName { upstream: tool.upstream.clone(), tool: tool.name.clone() },
            catalog_status: CatalogStatus::Accepted(Arc::clone(tool)),
            arguments: Arguments::parse(arguments.to_string().as_bytes()).unwrap(),
            entry_point: CallEntryPoint::Direct,
            intent: UncheckedIntent::read(&Map::new()).unwrap(),
            mode: None,
            confirm_input: ConfirmInput::default(),
        };
        let snapshot = PolicySnapshot {
            rules: &self.config.rules,
            strictness: IntentStrictness::Strict,
            configured_mode: mode,
            session_mode: None,
            pending_plan: None,
            grants: &[],
            usage: &NoLimits,
            writes: WriteStatus::Open,
            schema: &self.schemas,
            redactor: &Redactor::new(*b"salt"),
        };
        judge(call, &snapshot, Timestamp::now())
    }

    /// A call whose row is written; the code of its refusal otherwise. The tool has to need no confirmation.
    pub(crate) async fn open(&self, tool: &str, arguments: &Value) -> Result<RecordedPermit, &'static str> {
        match self.judge(tool, arguments, Mode::Execute) {
            Verdict::Go(permit) => Ok(self.store.open(permit, Timestamp::now()).await.unwrap()),
            Verdict::Refuse(refused) => Err(refused.refusal.code.as_str()),
            other @ (Verdict::Redeem(_) | Verdict::Hold(_) | Verdict::Preview(_) | Verdict::Explain(_)) => {
                panic!("{other:?}")
            }
        }
    }

    /// Runs a tool that needs no confirmation.
    pub(crate) async fn call(&self, tool: &str, arguments: Value) -> Result<Value, UpstreamFault> {
        self.call_within(tool, arguments, LONG).await
    }

    pub(crate) async fn call_within(
        &self,
        tool: &str,
        arguments: Value,
        limit: Duration,
    ) -> Result<Value, UpstreamFault> {
        let opened = self.open(tool, &arguments).await.unwrap();
        let limit = opened.permit().timeout().unwrap_or(limit);
        let raw = self.upstream.call(UpstreamCall::opened(&opened, None), talk(limit)).await?;
        Ok(serde_json::from_str(raw.get()).unwrap())
    }

    /// A dry run, which no gate is asked about.
    pub(crate) async fn dry_run(&self, tool: &str, arguments: Value) -> Result<Value, UpstreamFault> {
        let dry = DryRun { tool: ToolName::new(tool), arguments: arguments.to_string(), earlier: None };
        let raw = self.upstream.call(UpstreamCall::dry_run(&dry, None), talk(LONG)).await?;
        Ok(serde_json::from_str(raw.get()).unwrap())
    }

    /// Begins a run.
    pub(crate) async fn begin(&self, tool: &str, arguments: Value) -> RunId {
        let result = self.call(tool, arguments).await.unwrap();
        assert_eq!(result["isError"], false, "{result}");
        let data = &result["structuredContent"]["data"];
        assert_eq!((&data["state"], &data["tool"]), (&"queued".into(), &format!("u:{tool}").into()));
        RunId::new(data["run_id"].as_str().unwrap())
    }

    pub(crate) async fn run(&self, id: &RunId) -> BackgroundRun {
        self.store.run(id).await.unwrap().unwrap()
    }

    /// Waits until a run stands somewhere, which it must within a while.
    pub(crate) async fn until(&self, id: &RunId, states: &[RunState]) -> BackgroundRun {
        let deadline = tokio::time::Instant::now() + LONG;
        loop {
            let run = self.run(id).await;
            if states.contains(&run.state) {
                return run;
            }
            assert!(tokio::time::Instant::now() < deadline, "{run:?} never became {states:?}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Waits for a run's end.
    pub(crate) async fn ended(&self, id: &RunId) -> BackgroundRun {
        let ends = [RunState::Success, RunState::Failed, RunState::Cancelled, RunState::OutcomeUnknown];
        self.until(id, &ends).await
    }

    pub(crate) fn read(&self, file: &str) -> String {
        std::fs::read_to_string(self.folder.path().join(file)).unwrap_or_default()
    }
}

/// The text blocks of a result.
pub(crate) fn texts(result: &Value) -> Vec<&str> {
    result["content"].as_array().unwrap().iter().map(|block| block["text"].as_str().unwrap()).collect()
}
