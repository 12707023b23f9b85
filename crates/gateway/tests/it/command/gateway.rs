//! Command tools through the whole house: a client on a line of its own, modes, previews, tokens, runs. Ask and plan leave every byte
//! of a real repository as it is.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use countersign_config::{self as config, AgentAuth, Source as File, ToolSurface};
use countersign_gateway::assemble::{GatewayEnvironment, assemble};
use countersign_gateway::http;
use countersign_gateway::principal::{ModeLimit, Principal};
use countersign_gateway::service::GatewayService;
use countersign_gateway::state::GatewayState;
use countersign_gateway::upstreams::Upstream;
use countersign_gateway::upstreams::mcp::{McpSettings, McpUpstream};
use countersign_mcp::client::{HttpSpec, UpstreamSpec};
use countersign_mcp::server::{ConnectionLimits, HttpOptions, SealKey, ServeOptions, listen};
use countersign_policy::call::CallerScopes;
use countersign_policy::confirm::PlanState;
use countersign_policy::ids::{PlanId, PrincipalId, Secret, UpstreamId};
use countersign_policy::mode::Mode;
use countersign_policy::record::Source;
use countersign_policy::role::Role;
use countersign_store::{Credential, secret_digest};
use serde_json::{Value, json};

use super::bench::store_in;
use crate::upstreams::peer::{Ear, LONG, call, identity, until};

const DEPLOY: &str = r#"
[upstreams.infra]
[[upstreams.infra.tools]]
name = "deploy"
description = "Deploy a stack"
effect = "destructive"
confirm = "simple"
strength = "caller"
background = true
lock = "deploy"
input = { stack = { type = "string", pattern = "^[a-z]+$" } }
run = ["sh", "-c", "echo deploying $1; while ! test -e $1.go; do sleep 0.02; done; echo deployed >> $1.state", "sh", "{stack}"]
preview = ["sh", "-c", "echo would deploy $1, now $(cat $1.state 2>/dev/null || echo nothing)", "sh", "{stack}"]
explain = ["sh", "-c", "cat $1.state", "sh", "{stack}"]
"#;

fn path() -> std::ffi::OsString {
    std::env::var_os("PATH").unwrap()
}

/// A house and a client on a line into it.
pub(super) struct Scene {
    gateway: Arc<GatewayState>,
    client: McpUpstream,
    pub(super) folder: tempfile::TempDir,
}

/// The agent's own token runs writes, and nothing waits: these tests are about commands.
const TOKENS: &str = "[confirm]\nstrength = { write = \"caller\" }\nhold = \"0s\"\n";

/// Makes a credential for an agent; gives its secret.
async fn enrol(gateway: &GatewayState) -> &'static str {
    let (now, secret) = (gateway.now(), "secret-of-local-agent");
    let credential = Credential {
        id: "crd_local-agent".into(),
        role: Role::Agent,
        name: "local-agent".to_owned(),
        scopes: json!({}),
        created: now,
        expires: None,
        revoked: None,
    };
    let digest = secret_digest(&Secret::new(secret));
    gateway.store.add_credential(&credential, digest, &"ada".into(), now).await.unwrap();
    secret
}

pub(super) async fn scene(texts: &[&str]) -> Scene {
    let folder = tempfile::tempdir().unwrap();
    let files: Vec<File> = texts.iter().chain([&TOKENS]).map(|text| File::new("test.toml", *text)).collect();
    let config = config::parse(&files).unwrap().settle(&|_| Err("nothing".to_owned())).unwrap();
    let around = GatewayEnvironment {
        // A home of its own: what the machine's user has configured for git is not ours.
        ambient: vec![("PATH".into(), path()), ("HOME".into(), folder.path().join("home").into_os_string())],
        folder: folder.path().to_owned(),
        ..GatewayEnvironment::default()
    };
    let store = store_in(folder.path()).await;
    let (gateway, _, _) = assemble(&config, store, around).unwrap();
    let local = Principal {
        id: PrincipalId::new("agent"),
        role: Role::Agent,
        credential: None,
        scopes: CallerScopes::all(),
        mode_limit: ModeLimit::Gateway,
        session: None,
        surface: ToolSurface::Router,
        source: Source::Mcp,
        host: None,
        launcher: None,
    };
    let face = GatewayService::new(Arc::clone(&gateway), local, AgentAuth::Required);
    let options = HttpOptions::loopback(ServeOptions::new(SealKey::random()));
    let (router, _front) = http::routes(Arc::clone(&gateway), face, options);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    tokio::spawn(listen(listener, None, router, ConnectionLimits::default(), std::future::pending()));
    let mut spec = HttpSpec::new(url);
    spec.headers.push(("Authorization".to_owned(), format!("Bearer {}", enrol(&gateway).await)));
    let settings = McpSettings::new(UpstreamSpec::Http(spec), identity());
    let client = McpUpstream::new(UpstreamId::new("line"), settings, Arc::new(Ear::default()));
    Scene { gateway, client, folder }
}

impl Scene {
    /// One of the gateway's own tools.
    async fn own(&self, tool: &str, arguments: Value) -> Value {
        let raw = call(&self.client, tool, arguments, LONG).await.unwrap();
        serde_json::from_str(raw.get()).unwrap()
    }

    /// A governed tool through the call tool of an effect, with more beside its name and arguments.
    pub(super) async fn governed(&self, effect: &str, name: &str, arguments: &Value, more: Value) -> Value {
        let mut asked = json!({"name": name, "args": arguments, "intent": {"operation_type": effect}});
        asked.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        self.own(&format!("call_tool_{effect}"), asked).await
    }

    pub(super) async fn close(self) {
        self.client.close().await;
        for upstream in self.gateway.upstreams.load().values() {
            upstream.close().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deployment_in_the_three_modes() {
    let scene = scene(&[DEPLOY]).await;
    let stack = json!({"stack": "blue"});
    let deploy = async |arguments: &Value, more: Value| {
        scene.governed("destructive", "infra:deploy", arguments, more).await
    };
    // Ask: explained, with how things stand where that can be told.
    let asked = deploy(&stack, json!({})).await;
    assert_eq!(asked["structuredContent"]["errors"][0]["code"], "E_MODE_ASK");
    assert!(asked["structuredContent"]["data"]["explain"].get("state").is_none());
    let warned = asked["structuredContent"]["warnings"][0].as_str().unwrap();
    assert!(warned.starts_with("how things stand now could not be told: `infra:deploy` failed"), "{warned}");
    std::fs::write(scene.folder.path().join("blue.state"), "version 1\n").unwrap();
    let asked = deploy(&stack, json!({})).await;
    assert_eq!(asked["structuredContent"]["data"]["explain"]["state"], "version 1\n");
    let odd = deploy(&json!({"stack": "blue; cat /etc/passwd"}), json!({})).await;
    assert!(odd["structuredContent"]["data"]["explain"].get("state").is_none(), "{odd}");
    // Plan: the tool's own preview.
    let planned = deploy(&stack, json!({"mode": "plan"})).await;
    let shown = &planned["structuredContent"]["data"]["preview"]["shown"]["content"][0]["text"];
    assert_eq!(shown, "would deploy blue, now version 1\n");
    // Execute: held, then begun with its token, then seen to its end.
    let held = deploy(&stack, json!({"mode": "execute"})).await;
    let token = held["structuredContent"]["data"]["confirm_token"].as_str().unwrap().to_owned();
    let again = json!({"mode": "execute", "confirm_token": token, "yes": true});
    let begun = deploy(&stack, again.clone()).await;
    let id = begun["structuredContent"]["data"]["run_id"].as_str().unwrap().to_owned();
    // This client is an upstream of ours, which takes our marks out of results: the records say which plan it was.
    let plan = PlanId::new(held["structuredContent"]["data"]["plan_id"].as_str().unwrap());
    let state = scene.gateway.store.plan(&plan).await.unwrap().unwrap().state;
    assert!(matches!(state, PlanState::Executing | PlanState::Done), "{state:?}");
    let used = deploy(&stack, again).await;
    assert_eq!(used["structuredContent"]["errors"][0]["code"], "E_CONFIRM_TOKEN_USED");
    let listed = scene.own("list_runs", json!({})).await;
    assert_eq!(listed["structuredContent"]["data"]["runs"][0]["run_id"], id.as_str());
    std::fs::write(scene.folder.path().join("blue.go"), "").unwrap();
    let state = scene.folder.path().join("blue.state");
    until("it is deployed", || std::fs::read_to_string(&state).unwrap().ends_with("deployed\n")).await;
    let run = loop {
        let run = scene.own("get_run", json!({"run_id": id, "tail": 5})).await;
        let run = run["structuredContent"]["data"]["run"].clone();
        if !["queued", "running"].contains(&run["state"].as_str().unwrap()) {
            break run;
        }
    };
    assert_eq!(
        (&run["state"], &run["exit_code"], &run["tool"]),
        (&json!("success"), &json!(0), &json!("infra:deploy"))
    );
    assert_eq!(run["log_tail"], json!(["deploying blue"]));
    // What the preview showed has changed since: a token for it is worth nothing.
    let held = deploy(&stack, json!({"mode": "execute"})).await;
    let token = held["structuredContent"]["data"]["confirm_token"].as_str().unwrap().to_owned();
    std::fs::write(&state, "version 3\n").unwrap();
    let drifted = deploy(&stack, json!({"mode": "execute", "confirm_token": token, "yes": true})).await;
    let error = &drifted["structuredContent"]["errors"][0];
    assert_eq!(error["details"]["reason_code"], "plan_drifted", "{drifted}");
    scene.close().await;
}

fn preset() -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../presets/git.toml");
    std::fs::read_to_string(path).unwrap()
}

fn bytes(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut all = BTreeMap::new();
    let mut open = vec![folder.join(".git"), folder.join("work")];
    while let Some(here) = open.pop() {
        for entry in std::fs::read_dir(here).unwrap().map(Result::unwrap) {
            if entry.file_type().unwrap().is_dir() {
                open.push(entry.path());
            } else {
                all.insert(entry.path(), std::fs::read(entry.path()).unwrap());
            }
        }
    }
    all
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn git_is_looked_at_freely_and_changed_with_a_token() {
    let preset = preset();
    let scene = scene(&[&preset]).await;
    let here = scene.folder.path();
    let git = |args: &[&str]| {
        let mut command = std::process::Command::new("git");
        let output = command.env_clear().env("PATH", path()).args(args).current_dir(here).output().unwrap();
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    git(&["init", "-q"]);
    git(&["config", "user.name", "Ada"]);
    git(&["config", "user.email", "ada@example.com"]);
    std::fs::create_dir(here.join("work")).unwrap();
    std::fs::write(here.join("work/a.txt"), "one\n").unwrap();
    let before = bytes(here);
    let status = scene.governed("read", "git:status", &json!({}), json!({})).await;
    let lines = &status["structuredContent"]["lines"];
    assert!(lines.as_array().unwrap().contains(&json!("? work/a.txt")), "{status}");
    let steps = [
        ("write", "git:add", json!({"paths": ["work/a.txt"]})),
        ("write", "git:commit", json!({"message": "first"})),
    ];
    for (effect, name, arguments) in &steps {
        for mode in [Mode::Ask, Mode::Plan] {
            scene.governed(effect, name, arguments, json!({"mode": mode})).await;
        }
    }
    assert!(bytes(here) == before, "asking and planning changed something");
    for (effect, name, arguments) in &steps {
        let held = scene.governed(effect, name, arguments, json!({"mode": "execute"})).await;
        let token = &held["structuredContent"]["data"]["confirm_token"];
        let more = json!({"mode": "execute", "confirm_token": token, "yes": true});
        let done = scene.governed(effect, name, arguments, more).await;
        assert_eq!(done["isError"], false, "{name}: {done}");
    }
    assert_eq!(git(&["log", "--format=%an %s"]), "Ada first\n");
    // What destroys waits for a person; the agent's own token is not enough.
    let reset = json!({"ref": "HEAD"});
    let held = scene.governed("destructive", "git:reset_hard", &reset, json!({"mode": "execute"})).await;
    let data = &held["structuredContent"]["data"];
    assert_eq!((&data["confirm"]["kind"], &data["confirm"]["strength"]), (&json!("type"), &json!("human")));
    let more = json!({"mode": "execute", "confirm_token": data["confirm_token"], "yes": true, "confirm_text": "HEAD"});
    let refused = scene.governed("destructive", "git:reset_hard", &reset, more).await;
    assert_eq!(refused["structuredContent"]["errors"][0]["code"], "E_APPROVAL_PENDING");
    scene.close().await;
}
