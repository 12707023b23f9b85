//! A home, a project, a config repo and a store for one test.

use std::path::PathBuf;
use std::time::Duration;

use countersign_gateway::standalone::StandaloneGateway;
use countersign_pack::place::PackEnvironment;
use countersign_pack::server::{self, TOKEN_LIFE};
use countersign_policy::role::Role;
use countersign_store::{ConnectOptions, Store, StoreUrl};
use serde_json::{Value, json};
use tempfile::TempDir;

pub(crate) struct World {
    room: TempDir,
}

pub(crate) const MANIFEST: &str = "version: 1
profiles: { default: { include_tags: [base] } }
targets:
  codex: { mode: files, scope: both }
  claude_code: { mode: files, scope: both }
  cursor: { mode: files, scope: project }
  vscode: { mode: files, scope: project }
modules:
  - { id: 'instructions:base', type: instructions, tags: [base], source: { local_path: { path: modules/base } } }
  - { id: 'instructions:more', type: instructions, tags: [base], source: { local_path: { path: modules/more } } }
  - { id: 'skill:review', type: skill, tags: [base], source: { local_path: { path: modules/review } } }
  - { id: 'prompt:draft', type: prompt, tags: [base], source: { local_path: { path: modules/draft.md } } }
  - { id: 'command:go', type: command, tags: [base], source: { local_path: { path: modules/go.md } } }
";

impl World {
    pub(crate) fn new() -> Self {
        let world = Self { room: tempfile::tempdir().unwrap() };
        world.write("repo/agentpack.yaml", MANIFEST);
        world.write("repo/modules/base/AGENTS.md", "be kind\n");
        world.write("repo/modules/more/AGENTS.md", "be brief\n");
        world.write("repo/modules/review/SKILL.md", "---\nname: review\ndescription: reviews\n---\nlook\n");
        world.write("repo/modules/draft.md", "draft it\n");
        world.write("repo/modules/go.md", "---\ndescription: goes\n---\ngo\n");
        std::fs::create_dir_all(world.path("project/.git")).unwrap();
        std::fs::create_dir_all(world.path("home")).unwrap();
        world
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.room.path().canonicalize().unwrap().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap()
    }

    pub(crate) fn place(&self) -> PackEnvironment {
        PackEnvironment {
            home: self.path("home"),
            pack_home: self.path("pack"),
            repo: self.path("repo"),
            codex_home: None,
            cwd: self.path("project"),
            machine: "box".into(),
            variables: vec![("PATH".into(), "/usr/bin:/bin".into())],
        }
    }

    /// A store of its own on the one file, as another process would have.
    pub(crate) async fn store(&self) -> Store {
        std::fs::create_dir_all(self.path("pack/state")).unwrap();
        let url = StoreUrl::file(self.path("pack/state/countersign.db"));
        Store::connect(&url, ConnectOptions::default()).await.unwrap()
    }

    /// A server as `pack mcp serve` opens one, whose tokens live this long.
    pub(crate) async fn server_with(&self, life: Duration) -> StandaloneGateway {
        server::open(self.store().await, self.place(), Role::Agent, "pack", life).await.unwrap()
    }

    /// A server of another place.
    pub(crate) async fn server_at(&self, place: PackEnvironment) -> StandaloneGateway {
        server::open(self.store().await, place, Role::Agent, "pack", TOKEN_LIFE).await.unwrap()
    }

    /// Deploys everything, others' files included.
    pub(crate) async fn deployed(&self) -> (StandaloneGateway, String) {
        let tools = self.tools().await;
        let token = call(&tools, "deploy", json!({})).await["data"]["confirm_token"].clone();
        let arguments = json!({"yes": true, "confirm_token": token, "adopt": true});
        let applied = call(&tools, "deploy_apply", arguments).await;
        let snapshot = applied["data"]["snapshot_id"].as_str().unwrap_or_default().to_owned();
        (tools, snapshot)
    }

    pub(crate) async fn tools(&self) -> StandaloneGateway {
        self.server_with(TOKEN_LIFE).await
    }
}

/// The result of a call, as clients get it.
pub(crate) async fn result(tools: &StandaloneGateway, tool: &str, arguments: Value) -> Value {
    let params = json!({"name": tool, "arguments": arguments});
    let result = tools.request("tools/call", &params).await.unwrap();
    serde_json::from_str(result.get()).unwrap()
}

/// Calls a tool; the envelope as programs read it.
pub(crate) async fn call(tools: &StandaloneGateway, tool: &str, arguments: Value) -> Value {
    let value = result(tools, tool, arguments).await["structuredContent"].take();
    assert_eq!(value["ok"].as_bool().unwrap(), value["errors"].as_array().unwrap().is_empty(), "{value:#}");
    value
}

/// The code of the one error.
#[track_caller]
pub(crate) fn code(envelope: &Value) -> &str {
    assert_eq!(envelope["ok"], false, "{envelope:#}");
    let details = &envelope["errors"][0]["details"];
    assert!(details["reason_code"].is_string() && details["next_actions"].is_array(), "{envelope:#}");
    envelope["errors"][0]["code"].as_str().unwrap()
}
