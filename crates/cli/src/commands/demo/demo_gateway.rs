//! The demo's gateway: the real gateway and page on a free port of this machine with the order desk behind them, and a credential that
//! ends with it.

use std::path::Path;
use std::sync::Arc;

use countersign_config::{AgentAuth, Source as Text, ToolSurface, parse};
use countersign_gateway::assemble::{GatewayEnvironment, assemble};
use countersign_gateway::http;
use countersign_gateway::principal::{ModeLimit, Principal};
use countersign_gateway::service::GatewayService;
use countersign_gateway::state::GatewayState;
use countersign_mcp::server::{ConnectionLimits, HttpOptions, SealKey, ServeOptions, listen};
use countersign_policy::call::CallerScopes;
use countersign_policy::ids::{PrincipalId, Secret};
use countersign_policy::record::Source;
use countersign_policy::refusal::{Code, Refusal};
use countersign_policy::role::Role;
use countersign_store::{Credential, Store, StoreUrl, secret_digest, sign_in_digest};
use countersign_web::{WebOptions, WebState, mount, secret};
use jiff::Timestamp;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::broken;
use crate::command_result::CommandError;
use crate::natives::BundledUpstreams;
use crate::{person, records};

/// The configuration of the demonstration: what a user would write.
const CONFIGURATION: &str = include_str!("countersign.toml");

const CODE_LETTERS: usize = 10;
const LINK_LIFE: std::time::Duration = std::time::Duration::from_secs(3600);

/// A gateway and a desk that are served until they are struck.
pub(super) struct DemoGateway {
    /// Where a person decides, and hosts connect.
    pub(super) url: String,
    /// The person who decides.
    pub(super) person: Credential,
    /// What proves them.
    pub(super) secret: Secret,
    /// The credential the agent connects with.
    pub(super) agent_secret: Secret,
    /// The records.
    pub(super) store: Store,
    gateway: Arc<GatewayState>,
    desk: Arc<WebState>,
    end: oneshot::Sender<()>,
    served: JoinHandle<std::io::Result<()>>,
}

impl DemoGateway {
    /// Sets it in a folder.
    pub(super) async fn set(folder: &Path) -> Result<Self, CommandError> {
        let io = |what: &str| {
            let what = what.to_owned();
            move |error: std::io::Error| broken(&what, &error.to_string())
        };
        std::fs::write(folder.join("countersign.toml"), CONFIGURATION)
            .map_err(io("the folder can't be written"))?;
        let config = parse(&[Text::new("countersign.toml", CONFIGURATION)])
            .map_err(|_| broken("the configuration of the demonstration can't be read", ""))?;
        let url = StoreUrl::file(folder.join("countersign.db"));
        // What is shown here is gone afterwards: nothing of it is kept outside.
        let store = Store::connect(&url, records::reading(&url))
            .await
            .map_err(|fault| records::trouble(&fault, &url))?;
        let listener = TcpListener::bind("127.0.0.1:0").await.map_err(io("no port is free"))?;
        let address = listener.local_addr().map_err(io("the address is unknown"))?;
        let desk_url = format!("http://{address}");
        let around = GatewayEnvironment {
            folder: folder.to_owned(),
            desk_url: Some(desk_url.clone()),
            natives: Some(Arc::new(BundledUpstreams)),
            ..GatewayEnvironment::default()
        };
        let built = assemble(&config, store.clone(), around);
        let (gateway, _keeper, _assembly) = built.map_err(|cannot| {
            let refusal = Refusal::new(Code::ConfigInvalid, cannot.to_string());
            CommandError::refused(refusal, "countersign doctor")
        })?;
        let desk = WebState::new(Arc::clone(&gateway), WebOptions::loopback());
        let face = GatewayService::new(Arc::clone(&gateway), nobody(), AgentAuth::Required);
        let options = HttpOptions::loopback(ServeOptions::new(SealKey::random()));
        let (router, front) = http::routes(Arc::clone(&gateway), face, options);
        let router = router.merge(mount(&desk));
        let (end, ended) = oneshot::channel::<()>();
        let served = tokio::spawn(async move {
            let until = async move {
                let _ = ended.await;
            };
            let served = listen(listener, None, router, ConnectionLimits::default(), until).await;
            front.shutdown().await;
            served
        });
        let (person, secret) = enrol(&store, &url).await?;
        let by = PrincipalId::new(person.name.as_str());
        let agent_secret = person::add_agent(&store, &url, "demo-agent", json!({}), &by).await?;
        // `countersign open` finds a kept desk by it.
        let _ = store.set_desk_url(&desk_url).await;
        Ok(Self { url: desk_url, person, secret, agent_secret, store, gateway, desk, end, served })
    }

    /// A link that signs the person in, once, as long as a demo may take. Its code is short, so that the line fits a terminal:
    /// 60 random bits for orders that nobody has.
    pub(super) async fn link(&self) -> Result<String, CommandError> {
        let now = Timestamp::now();
        let random = secret("").ok_or_else(|| broken("the system gives no randomness", ""))?;
        let code = Secret::new(random.expose().chars().take(CODE_LETTERS).collect::<String>());
        let until = now.checked_add(LINK_LIFE).unwrap_or(now);
        let added = self.store.add_sign_in(sign_in_digest(&code), &self.person, until, now).await;
        added.map_err(|fault| broken("the link can't be made", &fault.inside()))?;
        Ok(format!("{}/#code={}", self.url, code.expose()))
    }

    /// Ends everything that was started.
    pub(super) async fn strike(self) {
        self.desk.close();
        let _ = self.end.send(());
        let _ = tokio::time::timeout(std::time::Duration::from_secs(5), self.served).await;
        for upstream in self.gateway.upstreams.load().values() {
            upstream.close().await;
        }
        let _ = self.store.flush().await;
    }
}

/// The principal of stdio, which the demo does not serve.
fn nobody() -> Principal {
    Principal {
        id: PrincipalId::new("local-agent"),
        role: Role::Agent,
        credential: None,
        scopes: CallerScopes::all(),
        mode_limit: ModeLimit::Gateway,
        session: None,
        surface: ToolSurface::Router,
        source: Source::Mcp,
        host: None,
        launcher: None,
    }
}

/// A person for this performance only: their secret is written nowhere.
async fn enrol(store: &Store, url: &StoreUrl) -> Result<(Credential, Secret), CommandError> {
    let (now, secret) = (Timestamp::now(), person::new_secret(Role::Human)?);
    let credential = person::new_credential(&person::our_name(), Role::Human, now)?;
    let by = PrincipalId::new(credential.name.as_str());
    let added = store.add_credential(&credential, secret_digest(&secret), &by, now).await;
    added.map_err(|fault| records::trouble(&fault, url))?;
    Ok((credential, secret))
}
