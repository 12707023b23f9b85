//! A desk before a house with one command tool, people and agents with credentials, plans as a gateway keeps them.

use std::sync::Arc;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{HeaderMap, Method, Request, StatusCode};
use countersign_config::{self as config, Source as File};
use countersign_gateway::assemble::{GatewayEnvironment, assemble};
use countersign_policy::call::{Arguments, Caller, CallerScopes};
use countersign_policy::confirm::{ApprovalStrength, ConfirmRequirement, Kind};
use countersign_policy::digest::Digest;
use countersign_policy::effect::Effect;
use countersign_policy::gate::token_digest;
use countersign_policy::ids::{CredentialId, PlanId, Secret};
use countersign_policy::intent::CallToolVariant;
use countersign_policy::plan::{Plan, Preview, PreviewSource, StoredIntent};
use countersign_policy::record::{CallRecord, Source};
use countersign_policy::role::Role;
use countersign_store::{
    ConnectOptions, Credential, LedgerFilter, LedgerRow, Store, StoreUrl, secret_digest, sign_in_digest,
};
use countersign_web::{WebOptions, WebState, mount};
use jiff::{Timestamp, ToSpan as _};
use serde_json::{Value, json};
use tower::ServiceExt as _;

pub(crate) const HOST: &str = "127.0.0.1:7878";
pub(crate) const ORIGIN: &str = "http://127.0.0.1:7878";

const CONFIG: &str = r#"
[upstreams.infra]
[[upstreams.infra.tools]]
name = "wipe"
description = "Wipe a workspace"
input = { workspace = { type = "string" } }
run = ["echo", "wiped {workspace}"]
effect = "destructive"

[[rules]]
match = "infra:wipe"
confirm = "preview"
strength = "human"
redact = ["token"]
"#;

/// Everything a test needs.
pub(crate) struct Scene {
    pub(crate) desk: Arc<WebState>,
    pub(crate) store: Store,
    router: Router,
    pub(crate) ada: String,
    pub(crate) bot: String,
    folder: tempfile::TempDir,
}

/// What came back.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

impl Reply {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }

    /// The data of a good answer.
    #[track_caller]
    pub(crate) fn data(&self) -> Value {
        let mut all = self.json();
        assert_eq!(all["success"], true, "{} {}", self.status, self.text);
        all["data"].take()
    }

    pub(crate) fn code(&self) -> String {
        self.json()["error"]["code"].as_str().unwrap_or_default().to_owned()
    }
}

/// A page that is signed in.
#[derive(Clone, Debug)]
pub(crate) struct Page {
    pub(crate) cookie: String,
    pub(crate) proof: String,
}

pub(crate) fn credential(name: &str, role: Role, now: Timestamp) -> Credential {
    Credential {
        id: CredentialId::new(format!("crd_{name}")),
        role,
        name: name.to_owned(),
        scopes: json!({}),
        created: now,
        expires: None,
        revoked: None,
    }
}

impl Scene {
    pub(crate) async fn open() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let files = [File::new("test.toml", CONFIG)];
        let config = config::parse(&files).unwrap().settle(&|_| Err("nothing".to_owned())).unwrap();
        let url = StoreUrl::file(folder.path().join("test.db"));
        let store = Store::connect(&url, ConnectOptions::default()).await.unwrap();
        let around = GatewayEnvironment {
            ambient: vec![("PATH".into(), std::env::var_os("PATH").unwrap())],
            folder: folder.path().to_owned(),
            ..GatewayEnvironment::default()
        };
        let (gateway, _, _) = assemble(&config, store.clone(), around).unwrap();
        gateway.settled().await;
        let desk = WebState::new(gateway, WebOptions::loopback());
        let router = mount(&desk);
        let scene =
            Self { desk, store, router, ada: "csg_human_ada".into(), bot: "csg_agent_bot".into(), folder };
        scene.enrol("ada", Role::Human, &scene.ada).await;
        scene.enrol("bot", Role::Agent, &scene.bot).await;
        scene
    }

    pub(crate) fn folder(&self) -> &std::path::Path {
        self.folder.path()
    }

    pub(crate) async fn enrol(&self, name: &str, role: Role, secret: &str) -> Credential {
        let (now, secret) = (Timestamp::now(), Secret::new(secret));
        let made = credential(name, role, now);
        self.store.add_credential(&made, secret_digest(&secret), &"root".into(), now).await.unwrap();
        made
    }

    pub(crate) async fn send(&self, request: Request<Body>) -> Reply {
        let response = self.raw(request).await;
        let (parts, body) = response.into_parts();
        let bytes = to_bytes(body, usize::MAX).await.unwrap();
        Reply {
            status: parts.status,
            headers: parts.headers,
            text: String::from_utf8(bytes.to_vec()).unwrap(),
        }
    }

    pub(crate) async fn raw(&self, request: Request<Body>) -> axum::response::Response {
        self.router.clone().oneshot(request).await.unwrap()
    }

    /// Asks with ada's credential.
    pub(crate) async fn ask(&self, method: &str, path: &str, body: Option<Value>) -> Reply {
        self.ask_as(&self.ada, method, path, body).await
    }

    pub(crate) async fn ask_as(&self, secret: &str, method: &str, path: &str, body: Option<Value>) -> Reply {
        let mut request = Request::builder()
            .method(Method::from_bytes(method.to_uppercase().as_bytes()).unwrap())
            .uri(format!("/api/v1{path}"))
            .header("host", HOST)
            .header("authorization", format!("Bearer {secret}"));
        if body.is_some() {
            request = request.header("content-type", "application/json");
        }
        let body = body.map_or_else(Body::empty, |body| Body::from(body.to_string()));
        self.send(request.body(body).unwrap()).await
    }

    pub(crate) async fn get(&self, path: &str) -> Value {
        self.ask("get", path, None).await.data()
    }

    /// A code as `countersign open` makes one.
    pub(crate) async fn code(&self, code: &str) -> String {
        let (now, ada) = (Timestamp::now(), credential("ada", Role::Human, Timestamp::now()));
        let code = Secret::new(code);
        self.store.add_sign_in(sign_in_digest(&code), &ada, now + 60.seconds(), now).await.unwrap();
        code.expose().to_owned()
    }

    pub(crate) async fn sign_in(&self, body: Value) -> Reply {
        let request = Request::builder()
            .method("POST")
            .uri("/api/v1/session")
            .header("host", HOST)
            .header("origin", ORIGIN)
            .header("sec-fetch-site", "same-origin")
            .header("content-type", "application/json");
        self.send(request.body(Body::from(body.to_string())).unwrap()).await
    }

    /// A page that is signed in.
    pub(crate) async fn page(&self) -> Page {
        let code = self.code(&format!("code-{}", Timestamp::now().as_nanosecond())).await;
        let reply = self.sign_in(json!({"code": code})).await;
        let cookie = reply.headers["set-cookie"].to_str().unwrap().split(';').next().unwrap().to_owned();
        Page { cookie, proof: reply.data()["csrf_token"].as_str().unwrap().to_owned() }
    }

    /// Keeps a plan as the gateway does.
    pub(crate) async fn hold(&self, plan: &Plan) {
        let caller = Caller {
            principal: plan.principal.clone(),
            credential: None,
            role: Role::Agent,
            session: plan.session.clone(),
            request_id: None,
            source: Source::Mcp,
            host: None,
            scopes: CallerScopes::all(),
        };
        let record =
            CallRecord::unread(&caller, plan.tool.clone(), plan.variant, plan.arguments.text().as_bytes());
        let token = token_digest(plan.id.as_str());
        self.store.hold(plan, token, plan.expires, record, Timestamp::now()).await.unwrap();
    }

    pub(crate) async fn rows(&self, filter: LedgerFilter) -> Vec<LedgerRow> {
        self.store.flush().await.unwrap();
        self.store.activity(LedgerFilter { limit: Some(1000), ..filter }).await.unwrap().rows
    }
}

impl Page {
    /// The cookie's name, which carries the store, with another value.
    pub(crate) fn other_session(&self, session: &str) -> String {
        format!("{}={session}", self.cookie.split_once('=').unwrap().0)
    }
}

/// A plan an agent drafted a moment ago.
pub(crate) fn plan(id: &str, kind: Kind, arguments: Value) -> Plan {
    let now = Timestamp::now();
    let typed = (kind == Kind::Type).then(|| arguments["workspace"].as_str().unwrap().to_owned());
    let arguments = Arguments::parse(arguments.to_string().as_bytes()).unwrap();
    Plan {
        id: PlanId::new(format!("pln_{id}")),
        hash: Digest::plain(id.as_bytes()),
        principal: "bot".into(),
        credential: None,
        role: Role::Agent,
        session: "s1".into(),
        host: None,
        tool: "infra:wipe".parse().unwrap(),
        fingerprint: Digest::plain(b"definition"),
        meta: None,
        preview: Preview::new(PreviewSource::Computed, json!({"summary": "it would be gone"}), &json!(id)),
        policy_digest: Digest::plain(b"policy"),
        effect: Effect::Destructive,
        requirement: ConfirmRequirement { kind, strength: ApprovalStrength::Human, typed },
        variant: Some(CallToolVariant::Destructive),
        intent: Some(StoredIntent {
            operation_type: Effect::Destructive,
            data_sensitivity: None,
            reason: Some("no longer needed".into()),
        }),
        rule: Some("test.toml:9".into()),
        redact: vec!["token".into()],
        hidden: None,
        steps: Vec::new(),
        created: now,
        expires: now + 5.minutes(),
        arguments,
    }
}
